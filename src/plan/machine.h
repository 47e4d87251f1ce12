/* machine.h - the machine a plan is chosen for: its memory and its rates. */
#ifndef MT_PLAN_MACHINE_H
#define MT_PLAN_MACHINE_H

#include "optim/optimizer.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum mt_whether { MT_MAY, MT_MUST, MT_MUST_NOT } mt_whether;

/* Limits that the settings put on a plan.  They are upper bounds unless marked exact. */
typedef struct mt_limits {
    int interval;       /* most layers recomputed from one kept input; 0: the search decides */
    bool exact;         /* every interval-th layer keeps its input, and nothing else is kept */
    int n_slabs;        /* most slots for gradients on their way to the host; 0: as many as help */
    mt_whether offload; /* allow kept activations in host memory */
    bool whole_units;   /* no updates in pieces, and two slots for kept activations: for comparison with older measurements */
} mt_limits;

typedef struct mt_machine {
    size_t device_bytes, host_bytes; /* memory this run may use */
    int crowd;                       /* lanes on one device, each with device_bytes; 0: one */
    bool shared;                     /* device memory is host memory: both together must fit host_bytes */
    bool home_host;                  /* the home of every unit is the host */
    mt_limits limits;

    /* Memory the runtime uses besides the plan's buffers, measured (docs/planner.md): the program, its libraries and threads, the
     * tokenizer and read buffers; the driver's context and workspaces. device_bytes already excludes base_device. */
    size_t base_host, base_device;
    size_t host_page; /* pinned buffers take whole pages of this size */
    int threads;      /* threads of a CPU device: each has scratch memory for its products */

    /* Rates of the device. */
    double flops; /* FLOP/s of large bf16 products during a run (measured alone they are faster: cards throttle) */
    double flops_f32;
    /* Slowdown of a product against the full rate, as a fraction.  A result of rows x columns leaves part of the device idle in
     * its last wave: small_result / (rows x columns), at most 0.15.  A short sum spends most of its time starting up: short_sum /
     * depth. */
    double small_result, short_sum;
    double attention;        /* FLOP/s of our own attention: forward, long documents, heads of 128; costs.c scales the others */
    bool cudnn;              /* cuDNN's attention is available; runs use it only on Hopper */
    double device_bandwidth; /* bytes a second of elementwise kernels */
    double launch;           /* seconds between empty kernels */
    double sync;             /* seconds from the last kernel of a step to the first of the next */

    /* Rates of the host and the link. */
    double copy_in, copy_out;           /* bytes a second, one way at a time */
    double copy_both;                   /* each way when both are busy */
    double copy_toll;                   /* slowdown of products beside copies */
    double host_bandwidth;              /* bytes a second that copies and Adam share */
    double adam_host[MT_MOMENTS_FORMS]; /* parameters a second that AdamW updates, alone */

    /* Bytes per second into one lane from the others while all lanes copy; 0: devices cannot reach each other, or nothing was
     * measured. */
    double peer;
} mt_machine;

/* No limits, with the rates of a recent server GPU: for planning when nothing was measured. */
mt_machine mt_machine_typical(void);
/* No limits, with a processor of `flops` FLOP/s as both host and device. */
mt_machine mt_machine_cpu(double flops, int n_threads);

/* Bytes of host memory that updating one parameter reads and writes, with bf16 gradients. */
double mt_machine_update_bytes(mt_state_form form);
/* Parameters a second that an optimizer updates on the host, alone: as fast as AdamW moves its bytes.  Measured (bench_adamw, one
 * core): Lion gets 1.44 times AdamW's rate in fp32, as said here, and 1.5 times in the smaller forms, where this says 1.29 and 1.17. */
double mt_machine_update_rate(const mt_machine *m, mt_state_form form);
/* Sets the Adam and host memory rates from the number of cores; most: the memory's best bytes per second. */
void mt_machine_set_cores(mt_machine *m, int cores, double most);
/* Scales Adam rates that were measured with `from` cores to `to` cores, as far as the measured memory allows. */
void mt_machine_scale_cores(mt_machine *m, int from, int to);

#endif
