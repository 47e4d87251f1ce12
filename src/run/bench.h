/* bench.h - the speed of training a shape on this machine: random weights and tokens in memory, no files. */
#ifndef MT_RUN_BENCH_H
#define MT_RUN_BENCH_H

#include "engine/engine.h"
#include "run/devices.h"
#include "run/spent.h"

typedef struct mt_bench_options {
    int64_t seq_len, tokens_per_step;
    double lognormal_mean; /* document lengths are drawn with this mean, at most seq_len; 0: all seq_len */
    double trained;        /* share of tokens that are trained */
    int steps, warmup;     /* steps 0: the one that is traced is the one that is timed */
    int64_t warmup_tokens; /* of a step before the timed ones, and of the first traced where nothing else is timed; 0: as many as
                              in those.  State that is staged hides behind a step, and less of it behind a short one: then the
                              timed step pays for the rest */
    bool clip;
    bool alias_layers;  /* layers share one layer's host memory: a speed, not a training */
    bool deterministic; /* repeatable kernels only */
    mt_dtype compute;
    mt_moments moments;   /* how Adam's are stored */
    int64_t shares;       /* a step is summed in; 0: one for each device */
    int64_t micro_tokens; /* 0: chosen */
    int64_t head_rows;    /* logits at a time; 0: chosen */
    uint64_t seed;
    double product_rate; /* of a large product, where it is known; 0: measure it */
    bool table;          /* trace a step after the timed ones: fills result.spent */
    const char *trace;   /* and write it to this file; NULL: no file */
} mt_bench_options;

enum { MT_BENCH_EACH = 64 };

/* Of one lane, seconds of a step: from the order of the pass until it has handed in its losses. */
typedef struct mt_bench_lane {
    int number; /* of its device */
    double seconds;
} mt_bench_lane;

typedef struct mt_bench_result {
    double seconds;                /* of a step: from the norm of the last warm-up step to the norm of the last timed one */
    double median, slowest;        /* of single steps, from norm to norm */
    double each[MT_BENCH_EACH];    /* the first so many of them, in order; 0: no more */
    double tokens, trained, flops; /* of a step */
    double predicted_seconds;
    double wait_update_seconds;      /* of a step */
    double loss;                     /* of the last step: a number that must not be NaN */
    size_t device_bytes, host_bytes; /* the plan's */
    size_t host_peak;                /* of the process while this ran, resident */
    double product_rate;             /* FLOPs a second of a large product here */
    mt_spent spent;                  /* of a step after the timed ones, or of the timed one */
    mt_device_info device;
    mt_bench_lane lanes[MT_MOST_DEVICES];
    int n_lanes;               /* 0: there is one, and nothing is said of it */
    double wait_lanes_seconds; /* of a step: how long the first waited for the others and for the host to add */
    char placement[320];       /* in words */
} mt_bench_result;

/* machine: of the first device, as a lane sees it. */
mt_rc mt_bench_run(const mt_devices *devices, const mt_model *model, const mt_machine *machine, const mt_bench_options *o,
                   mt_bench_result *out, mt_err *err);

#endif
