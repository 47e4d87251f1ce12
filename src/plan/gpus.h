/* gpus.h - known GPUs by name, so that anyone can plan for a machine they do not have. */
#ifndef MT_PLAN_GPUS_H
#define MT_PLAN_GPUS_H

#include "base/err.h"
#include "plan/machine.h"

typedef struct mt_gpu {
    const char *name;   /* as people call it: "rtx4090", "a100-80g" */
    const char *driver; /* words of the driver's name for it, in order: "RTX 4090"; NULL: not recognized */
    double gib;         /* memory a run may use: what the driver reports, less the driver's own share and our reserve */
    double tflops;      /* bf16 products in a long run, fp32 sums */
    double attention;   /* TFLOP/s, long documents */
    double gb_s;        /* device memory, achieved */
    double link;        /* GB/s each way, pinned memory */
    double host_gb_s;   /* bandwidth limit of the host memory usually found with this card */
    bool held;          /* tflops was measured in many runs, not derived from published figures */
} mt_gpu;

extern const mt_gpu mt_gpus[];
extern const size_t mt_n_gpus;

/* For an unknown name, the error suggests the nearest known one. */
mt_rc mt_gpu_find(const mt_gpu **out, const char *name, mt_err *err);
/* The row for the driver's name of a GPU, or NULL. */
const mt_gpu *mt_gpu_of_driver(const char *driver_name);

/* True if the rate measured alone, at full power, is what this kind of GPU should reach. */
bool mt_gpu_reaches(const mt_gpu *gpu, double flops);

/* Memory and rates of a machine with this GPU and this many cores; host_bytes stays unlimited. */
mt_machine mt_machine_of_gpu(const mt_gpu *gpu, int cores);

#endif
