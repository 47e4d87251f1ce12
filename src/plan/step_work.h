/* step_work.h - how much work each action of a step is.
 *
 * The unit is that of the action's queue: seconds of compute, bytes of a copy, parameters of an update on the host.  The step time
 * model (step_time.c) puts this work on its queues. */
#ifndef MT_PLAN_STEP_WORK_H
#define MT_PLAN_STEP_WORK_H

#include "plan/costs.h"
#include "schedule/sequence.h"

/* Sweeps of a plan, on average.  All pointers are borrowed and outlive it. */
typedef struct mt_step_work {
    const mt_plan *p;
    const mt_costs *costs;
    const double *stands_for;    /* [L] for a merged model: how often each layer counts; NULL: once */
    double rows, micros, passes; /* of a sweep: rows, micro-batches, and passes of experts */
} mt_step_work;

/* How many layers a layer stands for; layer < 0: not a layer, 1. */
double mt__step_times_of(const mt_step_work *w, int layer);
double mt__step_action_work(const mt_step_work *w, const mt_action *a);
/* Seconds of compute of a sweep, forward and backward, without updates. */
double mt__step_sweep_seconds(const mt_step_work *w);

#endif
