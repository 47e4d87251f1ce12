/* machine.h - what a plan is chosen for: room, and rates that say what is cheap. */
#ifndef MT_PLAN_MACHINE_H
#define MT_PLAN_MACHINE_H

#include "ops/moments.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum mt_whether { MT_MAY, MT_MUST, MT_MUST_NOT } mt_whether;

/* What the settings allow a plan: bounds on memory, not orders, unless they are exact. */
typedef struct mt_limits {
    int interval;       /* layers redone from one kept input, at most; 0: as the search likes */
    bool exact;         /* every interval-th layer keeps its input, and nothing else is kept */
    int n_slabs;        /* of gradients on their way to the host, at most; 0: as many as help */
    mt_whether offload; /* kept activations in host memory */
    bool whole_units;   /* no unit is updated in pieces, and kept activations have two slots: what was measured before either */
} mt_limits;

typedef struct mt_machine {
    size_t device_bytes, host_bytes; /* this run may use */
    int crowd;                       /* lanes that share one device, of which each has device_bytes; 0: one */
    bool shared;                     /* device memory is host memory: both together must fit host_bytes */
    bool home_host;                  /* every master and all state live in host memory between steps */
    mt_limits limits;

    /* What the runtime takes besides the plan's buffers, measured (docs/plan.md): the program, its libraries and threads, the
     * tokenizer and what is being read; the driver's context and workspaces.  device_bytes is without base_device already. */
    size_t base_host, base_device;
    size_t host_page; /* pinned buffers take whole pages of this size */
    int threads;      /* of a CPU that is the device: each has scratch for the products it computes */

    /* Of the device. */
    double flops; /* of large bf16 products in a run (not alone: cards throttle), a second */
    double flops_f32;
    /* What a product takes longer than at full rate, as a share: a result of rows x columns leaves part of the device idle in its
     * last wave, small_result / (rows x columns) and at most 0.15; a sum of `depth` has hardly begun when it ends, short_sum /
     * depth. */
    double small_result, short_sum;
    double attention;        /* FLOPs a second of our own attention, forward over long documents, heads of 128; costs.c
                              * compares others with it */
    bool cudnn;              /* it has cuDNN's, which our runs use on Hopper alone */
    double device_bandwidth; /* bytes a second of elementwise kernels */
    double launch;           /* seconds between kernels that do nothing */
    double sync;             /* seconds from the last kernel of a step to the first of the next */

    /* Of the host and the link. */
    double copy_in, copy_out;           /* bytes a second, one way at a time */
    double copy_both;                   /* each way when both are busy */
    double copy_toll;                   /* how much slower products are beside copies */
    double host_bandwidth;              /* bytes a second that copies and Adam share */
    double adam_host[MT_MOMENTS_FORMS]; /* parameters a second, alone */

    /* Between devices: bytes a second into one of several lanes while all of them copy; 0: they cannot, or none was measured. */
    double peer;
} mt_machine;

/* No limits, and the rates of a recent server GPU: for choosing when nothing was measured. */
mt_machine mt_machine_typical(void);
/* No limits, and a processor that makes `flops` operations a second as both host and device. */
mt_machine mt_machine_cpu(double flops, int n_threads);

/* Host memory an update of one parameter reads and writes, gradients in bf16. */
double mt_machine_adam_bytes(mt_moments form);
/* Adam and host memory by the number of cores; most: bytes a second the memory gives at best. */
void mt_machine_set_cores(mt_machine *m, int cores, double most);

#endif
