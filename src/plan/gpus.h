/* gpus.h - known GPUs by name, so that anyone can plan for a machine they do not have. */
#ifndef MT_PLAN_GPUS_H
#define MT_PLAN_GPUS_H

#include "base/err.h"
#include "plan/machine.h"

typedef struct mt_gpu {
    const char *name;   /* as people call it: "rtx4090", "a100-80g" */
    const char *driver; /* words the driver's name for it holds, in order: "RTX 4090"; NULL: not told apart */
    double gib;         /* a run may use: what the driver reports, less its own share and our reserve */
    double tflops;      /* bf16 products in a long run, fp32 sums */
    double attention;   /* TFLOP/s, long documents */
    double gb_s;        /* device memory, achieved */
    double link;        /* GB/s each way, pinned memory */
    double host_gb_s;   /* of the host memory such a card usually sits beside, at most */
    bool held;          /* tflops was seen in many runs, not worked out from what is published */
} mt_gpu;

extern const mt_gpu mt_gpus[];
extern const size_t mt_n_gpus;

/* An unknown name is answered with the nearest known one. */
mt_rc mt_gpu_find(const mt_gpu **out, const char *name, mt_err *err);
/* The row that fits what the driver calls it, or NULL. */
const mt_gpu *mt_gpu_of_driver(const char *driver_name);

/* Does one of this kind multiply as fast as it should, alone and with all its power? */
bool mt_gpu_reaches(const mt_gpu *gpu, double flops);

/* Room and rates of a machine with this GPU and so many cores; host_bytes is left without a limit. */
mt_machine mt_machine_of_gpu(const mt_gpu *gpu, int cores);

#endif
