/* state.h - the training state of a machine: masters and moments at their homes, the thread that updates them on the host, and
 * the locks under which a checkpoint reads them.
 *
 * All lanes (lane.h) share one state: lanes copy from and to homes, push host updates and check gates.  The state knows no lane.
 *
 *     create   finds the homes in the plan's memory and starts the updater
 *     join     with several machines: lets it exchange slices with the others
 *     follow   sets the event after which a device's newest update of a unit is at home
 *     stop     joins its threads and drains its stream; call it before freeing the lanes, whose events these wait for
 *     free     after the lanes
 *
 * A unit's version counts the updates issued for it.  Gates are raised in version order (U1).  The first failure is kept in the
 * watch and ends every wait (F1). */
#ifndef MT_ENGINE_STATE_H
#define MT_ENGINE_STATE_H

#include "base/watch.h"
#include "comm/comm.h"
#include "engine/home.h"
#include "engine/memory.h"
#include "engine/peers.h"
#include "schedule/deal.h"

typedef struct mt_state mt_state;

/* Settings of a step. */
typedef struct mt_hyper {
    double lr, beta1, beta2, eps, weight_decay;
    double max_grad_norm; /* used when the plan clips */
    uint64_t seed;        /* seed of the stochastic rounding of moments; used if they are not fp32 */
} mt_hyper;

/* dev: the device of device homes. n_workers: threads that update on the host (mt_engine_options).  Everything else is
 * borrowed. */
mt_rc mt_state_create(mt_state **out, mt_device *dev, const mt_plan *plan, const mt_memory *memory, mt_watch *watch,
                      int n_workers, mt_err *err);
/* With several machines, before the first step; comm is borrowed until stop, and nothing else may use it until then. */
mt_rc mt_state_join(mt_state *s, const mt_memory *memory, mt_comm *comm, mt_err *err);
void mt_state_stop(mt_state *s); /* accepts NULL, like free */
void mt_state_free(mt_state *s);
void mt_state_trace(mt_state *s, mt_trace *trace); /* NULL: stop tracing */
/* The first failure of the run, if there is one. */
mt_rc mt_state_check(mt_state *s, mt_err *err);
/* Ends the run with the error of a thread beside the engine, here and on other machines. */
void mt_state_fail(mt_state *s, const mt_err *err);
/* Before the first update.  Readers wait for the event; it outlives stop(). */
void mt_state_follow(mt_state *s, int unit, mt_event *at_home);

/* -- homes -- */

const mt_home *mt_state_home(const mt_state *s, int unit);
/* Weight number `weight` of the unit is in a mapped file, which must outlive the state. */
mt_rc mt_state_map(mt_state *s, int unit, int weight, const void *data, mt_err *err);
/* Bytes of one kind at its home. */
size_t mt_state_bytes(const mt_state *s, int unit, mt_state_kind kind);
/* Bytes of one number as read() returns it. */
size_t mt_state_number_bytes(const mt_state *s, mt_state_kind kind);
/* uint16 hi, int16 lo, the optimizer's arrays as mt_moments_type says.  Nothing may be in flight on the host; waits for device updates.  Any
 * number of threads may read. */
mt_rc mt_state_read(mt_state *s, mt_state_range r, void *dst, mt_err *err);
/* The packed part of a range of hi, lo or packed bytes, at any time: it never changes.  Returns the rest, which comes before it. */
mt_state_range mt_state_read_packed(const mt_state *s, mt_state_range r, void *dst);
/* Nothing may be in flight.  Any number of threads may write; 8-bit moments of a unit only one at a time, because numbers share
 * blocks. */
mt_rc mt_state_write(mt_state *s, mt_state_range r, const void *src, mt_err *err);
/* True if the plan has a home for such numbers: one that only runs forward in bf16 has none for low halves. */
bool mt_state_takes(const mt_state *s, mt_state_range r);

/* -- updates -- */

/* The optimizer's count of updates. */
int64_t mt_state_updates(const mt_state *s);
void mt_state_set_updates(mt_state *s, int64_t t);
/* Starts the next step's updates (number updates() + 1); gradients are multiplied by scale. */
void mt_state_begin_update(mt_state *s, const mt_hyper *h, double grad_scale);
/* The one dispatch of updates: the row of the plan's optimizer. */
const mt_optimizer *mt_state_optimizer(const mt_state *s);
/* Unit u's part of the update, without the addresses of state and gradient; or a range of its elements (mt_update_part). */
mt_update mt_state_update_of(const mt_state *s, int unit);
mt_update mt_state_update_range(const mt_state *s, int unit, mt_stretch of);

/* An update on the host. */
typedef struct mt_host_update {
    int unit;
    int64_t n;          /* the first n of its trained elements; a device updates the others */
    void *g;            /* the gradient, borrowed until the update is done, */
    mt_event *landed;   /* ready after this event; NULL: ready now */
    const double *norm; /* arrives with it: its sum of squares, which must be finite; NULL: not checked */
    int64_t version;    /* the unit's version once this is done */
} mt_host_update;
/* Updates run in the order in which they are pushed.  Waits while one update per unit is already queued. */
mt_rc mt_state_push(mt_state *s, const mt_host_update *u, mt_err *err);
bool mt_state_is_updated(mt_state *s, int unit, int64_t version);
mt_rc mt_state_await_update(mt_state *s, int unit, int64_t version, mt_err *err);
/* Returns once n updates have finished, counted from the start of the run; -1: all that were pushed. */
mt_rc mt_state_await_done(mt_state *s, int64_t n, mt_err *err);

/* -- gradients of several lanes or machines: fold.c, exchange_units.c -- */

/* A unit's fp32 sum over one share of the step, in the lane's landing slots, with the lookup's sum of a tied unit. */
typedef struct mt_share_sum {
    int unit;
    int slot;           /* index of the landing slot */
    float *sum, *tied;  /* tied: NULL if there is none; neither is used if sums are added on the devices */
    mt_event *landed;   /* already recorded; both sums are ready after it */
    const char *device; /* name of the lane's device in messages, borrowed */
} mt_share_sum;
/* Before the first pass: sums are added on the devices.  Borrowed until stop(). */
mt_rc mt_state_set_peers(mt_state *s, mt_peers *peers, mt_err *err);
/* A training pass with this deal begins (borrowed until the pass is over). mt_plan_share defines which lane computes which share.
 * early: units are updated as their gradients finish, with the settings of begin_update; otherwise gradients wait for
 * mt_host_update. */
void mt_state_begin_parts(mt_state *s, const mt_deal *deal, bool early);
/* Takes one lane's parts, share by share, in the order of backward.  The updater's thread adds the parts of all lanes in the
 * order of shares, then rounds and computes the norm. await: returns once the lane's first n parts have been added and their
 * slots are free; a lane has at most MT_LAND_SLOTS parts in flight. */
mt_rc mt_state_await_parts(mt_state *s, int lane, int64_t n, mt_err *err);
mt_rc mt_state_push_part(mt_state *s, int lane, const mt_share_sum *part, mt_err *err);
/* Waits until every gradient of the pass is finished and, if early, applied. */
mt_rc mt_state_await_folds(mt_state *s, mt_err *err);
/* After that: their sums of squares, one per unit. */
const double *mt_state_norms(const mt_state *s);

/* After gradients, on a settled state: reads the finished gradient of a unit whose state is in slices, in the arithmetic's
 * dtype. */
mt_rc mt_state_read_sliced_grad(mt_state *s, int unit, void *dst, mt_err *err);

/* -- other machines: exchange.c, reads.c -- */

int mt_state_machines(const mt_state *s); /* this one included */
int mt_state_machine(const mt_state *s);  /* this one's number */

/* Exchanges a record of n bytes per machine; all: [machines][n], in order.  All machines must call it, on the stepping thread.
 * what: name for messages, borrowed for the call. */
mt_rc mt_state_tell(mt_state *s, const void *mine, size_t n, void *all, const char *what, mt_err *err);

/* Between open and close, which all machines call, a machine can read what the others store.  Meanwhile each answers the others
 * through `here`, on a thread that open starts; close returns when no machine will ask again. */
typedef struct mt_reads {
    /* Reads a range that is stored here (mt_plan_runs), for this machine or another. */
    mt_rc (*here)(void *user, mt_state_range r, void *dst, mt_err *err);
    void (*dropped)(void *user, int unit); /* another machine has dropped the unit; may be NULL */
    /* Receives a note of another machine, on the first machine; NULL: expects none.  A failure ends the run. */
    mt_rc (*noted)(void *user, int number, uint64_t a, uint64_t b, mt_err *err);
    void *user;
} mt_reads;
mt_rc mt_state_open_reads(mt_state *s, const mt_reads *how, mt_err *err);
/* Reads any range of up to MT_READS_MOST numbers, on whichever machine it is stored; up to MT_READERS threads at once. */
enum { MT_READERS = 8, MT_READS_MOST = 1 << 17 };
mt_rc mt_state_read_anywhere(mt_state *s, mt_state_range r, void *dst, mt_err *err);
/* Tells all machines that this one will not read the unit again. */
mt_rc mt_state_drop_everywhere(mt_state *s, int unit, mt_err *err);
/* Sends a note (a number and two values) to the first machine; any other machine may call it. */
mt_rc mt_state_note_first(mt_state *s, int number, uint64_t a, uint64_t b, mt_err *err);
/* Returns when every other machine has called close, so all of their notes are here.  They can still read from this machine until it
 * closes, too. */
mt_rc mt_state_await_closed(mt_state *s, mt_err *err);
mt_rc mt_state_close_reads(mt_state *s, mt_err *err);

/* -- snapshot locks: locks.c -- */

/* On the thread that steps, after all write-backs are issued: no unit is updated again before it is unlocked.  may_lock: fails
 * while a unit is locked, before a write-back waits for it. */
mt_rc mt_state_may_lock(mt_state *s, mt_err *err);
mt_rc mt_state_lock(mt_state *s, mt_err *err);
/* True if the saver is not done with the unit.  A lane checks this before it queues an update of the unit on a device, or a
 * write-back. */
bool mt_state_is_locked(mt_state *s, int unit);
mt_rc mt_state_await_unlock(mt_state *s, int unit, mt_err *err);
/* For the threads that save locked state. await: waits at most this many seconds; after it, state in host memory can be read even
 * if the device fails.  Each lock ends with an unlock of every unit. */
mt_rc mt_state_await_locked(mt_state *s, mt_err *err);
mt_rc mt_state_read_locked(mt_state *s, mt_state_range r, void *dst, mt_err *err);
void mt_state_unlock(mt_state *s, int unit);
void mt_state_unlock_all(mt_state *s);

#endif
