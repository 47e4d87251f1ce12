/* bench.h - measures the speed of training a shape on this machine: random weights and tokens in memory, no files. */
#ifndef MT_RUN_BENCH_H
#define MT_RUN_BENCH_H

#include "engine/engine.h"
#include "plan/search.h"
#include "run/devices.h"
#include "run/spent.h"

typedef struct mt_bench_options {
    int64_t seq_len, tokens_per_step;
    double lognormal_mean; /* document lengths are drawn with this mean, at most seq_len; 0: all seq_len */
    double trained;        /* fraction of tokens that are trained */
    int steps, warmup;     /* steps 0: the traced step is also the timed one */
    int64_t warmup_tokens; /* tokens of a warm-up step, and of the first traced step if nothing else is timed; 0: the same as a
                            * timed step.  A step hides staged state, and a short step hides less: then the timed step pays for
                            * the rest */
    bool clip;
    bool alias_layers;  /* layers share one layer's host memory: measures speed only; nothing is learned */
    bool deterministic; /* repeatable kernels only */
    mt_dtype compute;
    mt_optimizer_kind optimizer;
    mt_moments moments;   /* form of its state */
    int64_t shares;       /* shares of a step; 0: one per device */
    int64_t micro_tokens; /* 0: chosen */
    int64_t head_rows;    /* logits at a time; 0: chosen */
    uint64_t seed;
    double product_rate; /* FLOP/s of a large product, if known; 0: measure it */
    bool table;          /* trace a step after the timed ones: fills result.spent */
    const char *trace;   /* write the trace to this file; NULL: no file */
} mt_bench_options;

enum { MT_BENCH_EACH = 64 };

/* Seconds of a step on one lane: from the start of the pass until it has reported its losses. */
typedef struct mt_bench_lane {
    int number; /* of its device */
    double seconds;
} mt_bench_lane;

typedef struct mt_bench_result {
    double seconds;                /* of a step: from the norm of the last warm-up step to the norm of the last timed one */
    double median, slowest;        /* of single steps, from norm to norm */
    double each[MT_BENCH_EACH];    /* the first n of them, in order; 0: end */
    double tokens, trained, flops; /* of a step */
    double predicted_seconds;
    double wait_update_seconds;      /* of a step */
    double loss;                     /* loss of the last step: must not be NaN */
    size_t device_bytes, host_bytes; /* the plan's */
    size_t host_peak;                /* peak resident size of the process during the run */
    double product_rate;             /* FLOP/s of a large product on this device */
    mt_spent spent;                  /* of a step after the timed ones, or of the timed step */
    mt_device_info device;
    mt_bench_lane lanes[MT_MOST_DEVICES];
    int n_lanes;               /* 0: one lane, not reported */
    double wait_lanes_seconds; /* seconds of a step that the first lane waited for the others and for the host's additions */
    char placement[320];       /* in words */
} mt_bench_result;

/* machine: the first device's, as a lane sees it. */
mt_rc mt_bench_run(const mt_devices *devices, const mt_model *model, const mt_machine *machine, const mt_bench_options *o,
                   mt_bench_result *out, mt_err *err);

#endif
