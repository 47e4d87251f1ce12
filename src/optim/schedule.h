/* schedule.h - the learning rate over a run, by the formulas of transformers' get_scheduler.
 *
 *     mt_schedule_config c = mt_schedule_defaults();
 *     c.name = "cosine"; c.lr = 2e-5; c.n_steps = 500; c.warmup_ratio = 0.03;
 *     MT_TRY(mt_schedule_init(&schedule, &c, err));
 *     lr = mt_schedule_lr(&schedule, step);                    step 0 is the first update
 *
 * A schedule is a pure function of the step: nothing to save, nothing to restore.  Steps past the end follow the formula
 * where it goes, as transformers does (a cosine rises again). */
#ifndef MT_OPTIM_SCHEDULE_H
#define MT_OPTIM_SCHEDULE_H

#include "base/err.h"

#include <stdint.h>

/* The settings of a schedule.  Numbers that are not given are NAN; transformers' defaults then hold.  The names in comments are those of
 * transformers' lr_scheduler_kwargs. */
typedef struct mt_schedule_config {
    const char *name;    /* "cosine"; mt_schedule_names() lists them */
    double lr;           /* the factor's 1 */
    int64_t n_steps;     /* optimizer steps of the whole run */
    double warmup_steps; /* from 1: steps; below 1: a share of n_steps, rounded up; 0: warmup_ratio decides */
    double warmup_ratio; /* share of n_steps, rounded up */

    double num_cycles;          /* cosine, cosine_with_min_lr, warmup_stable_decay: 0.5; cosine_with_restarts: 1 */
    double power;               /* polynomial: 1 */
    double lr_end;              /* polynomial: 1e-7 */
    double timescale;           /* inverse_sqrt: the warm-up, or 10000 without one */
    double min_lr, min_lr_rate; /* cosine_with_min_lr, cosine_warmup_with_min_lr: one of them must be given */
    double warmup_lr_rate;      /* cosine_warmup_with_min_lr: where the warm-up starts; else at one step of it */
    double num_decay_steps;     /* warmup_stable_decay: must be given */
    double num_stable_steps;    /* warmup_stable_decay: what warm-up and decay leave */
    double min_lr_ratio;        /* warmup_stable_decay: 0 */
    const char *warmup_type;    /* warmup_stable_decay: "linear" (default), "cosine", "1-sqrt" */
    const char *decay_type;     /* warmup_stable_decay: "cosine" (default), "linear", "1-sqrt" */
} mt_schedule_config;

mt_schedule_config mt_schedule_defaults(void); /* name "constant", no warm-up, the rest not given */

typedef struct mt_schedule mt_schedule;
typedef double (*mt_schedule_fn)(const mt_schedule *s, double step);
typedef double (*mt_schedule_curve)(double progress, double num_cycles);

/* A checked config with every default in place.  Owns nothing and borrows nothing: copy it freely. */
struct mt_schedule {
    mt_schedule_fn factor;
    double lr, n_steps;
    double warmup;        /* whole steps */
    double linear_warmup; /* those of them that rise from 0 before `factor` is asked; 0 where it does its own */
    double num_cycles, power, lr_end, timescale, min_lr_rate, warmup_lr_rate;
    double stable, decay;         /* whole steps */
    mt_schedule_curve rise, fall; /* warmup_stable_decay's */
};

/* An unknown name, a missing or senseless number: MT_EINVAL or MT_ERANGE, and the message says what would do. */
mt_rc mt_schedule_init(mt_schedule *out, const mt_schedule_config *config, mt_err *err);

double mt_schedule_factor(const mt_schedule *s, int64_t step); /* LambdaLR's lambda(step), step from 0 */
double mt_schedule_lr(const mt_schedule *s, int64_t step);

/* The names, comma-separated, for help texts. */
const char *mt_schedule_names(void);

#endif
