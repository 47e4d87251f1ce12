/* step_time.h - the step time model: how long a step of a plan takes.
 *
 * The sequencer (sequence.h) issues the step, just as it does for the engine; here its actions become tasks with a duration, in
 * queues (queues.h), and its events become waits between them.  Overlap is therefore not a formula but follows from the order of
 * the step.  The model simulates two steps and reports the second; of the first, which pays for no updates, it simulates only
 * backward.  Of many sweeps it simulates the first, one in the middle and the last. */
#ifndef MT_PLAN_STEP_TIME_H
#define MT_PLAN_STEP_TIME_H

#include "plan/costs.h"
#include "plan/queues.h"
#include "plan/search.h"
#include "schedule/sequence.h"

/* Memory and kernel costs shared by simulations of plans that differ only in their placement.
 *
 *     init   for a model
 *     mt_step_compute, mt_step_time, any number of times
 *     free   also after an init that failed */
typedef struct mt_step_model {
    mt_costs costs; /* m is NULL before the first */
    mt_queues queues;
    mt_sequence *sequence;
    int *events, *slabs,
        *updates; /* tasks: of each event, of the last host update that used a slab, of each unit's newest update */
    size_t cap_events, cap_slabs;
    mt_plan coarse;           /* a copy of the plan with larger pieces; its arrays are the plan's */
    bool every_piece;         /* simulate every piece; otherwise a few hundred larger ones, as a search does to save time */
    const double *stands_for; /* for a merged model (merge.h): how often each layer counts; NULL: once */
} mt_step_model;

mt_rc mt_step_model_init(mt_step_model *t, const mt_model *model, mt_err *err);
void mt_step_model_free(mt_step_model *t);

/* Seconds of device compute in a step, without updates: a lower bound for the step.  Takes next to no time. */
double mt_step_compute(mt_step_model *t, const mt_plan *p, const mt_machine *m);
/* Returns false without simulating if the step cannot be faster than `give_up`: then only the parts of *out are filled in. */
mt_rc mt_step_time(mt_step_model *t, const mt_plan *p, const mt_machine *m, double give_up, mt_times *out, bool *simulated,
                   mt_err *err);

#endif
