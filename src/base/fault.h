/* fault.h - make the n-th allocation, copy, queue operation or file call fail, on purpose, in tests.
 *
 * Every place that can fail for reasons outside our control asks mt_fault(kind) first.  Unarmed, that is
 * one relaxed load.  A test arms a kind with the number of calls to let through; the next one fails, once:
 *
 *     for (int n = 0;; n++) {
 *         mt_fault_arm(MT_FAULT_ALLOC, n);
 *         rc = thing_under_test(&err);
 *         if (!mt_fault_disarm()) break;         // it was never reached: every point has been tried
 *         assert_int_equal(rc, MT_ENOMEM);
 *     }
 *
 * A *kill point* is the same thing with the process ended instead (SIGKILL): a checkpoint must survive it. */
#ifndef MT_BASE_FAULT_H
#define MT_BASE_FAULT_H

#include <stdbool.h>

typedef enum mt_fault_kind {
    MT_FAULT_ALLOC,  /* host memory */
    MT_FAULT_DEVICE, /* device memory */
    MT_FAULT_COPY,   /* a copy between host and device */
    MT_FAULT_QUEUE,  /* work handed to a stream or a worker */
    MT_FAULT_THREAD, /* starting a thread */
    MT_FAULT_FILE,   /* open, read, write, sync, rename */
    MT_FAULT_PARCEL, /* a message between machines */
    MT_FAULT_KINDS
} mt_fault_kind;

/* Fail the call after `let_through` calls of this kind.  One fault can be armed at a time. */
void mt_fault_arm(mt_fault_kind kind, long let_through);
/* As above; the process dies there with SIGKILL. */
void mt_fault_arm_kill(mt_fault_kind kind, long let_through);
/* Disarm; true if the fault was delivered. */
bool mt_fault_disarm(void);
/* True if this call is the one to fail. */
bool mt_fault(mt_fault_kind kind);

/* Read MT_FAULT from the environment (used by tests that spawn the program): "file:17" fails once, "kill:file:17" kills,
 * "full:file:17" fails from then on, as a full disk does; "slow:300:" before any of them makes every call of that kind take 300
 * us. */
void mt_fault_from_env(void);

#endif
