/* step_time.h - how long a step under a plan takes.
 *
 * The sequencer (sequence.h) issues the step, just as it does for the engine; here its actions become tasks that take time, in
 * queues (queues.h), and its events the waits between them.  So what hides behind what is not a formula but follows from the
 * order of things.  Two steps are drawn and the second counts: the first, of which only backward is
 * drawn, pays for no updates.  Of many sweeps the first, one in the middle and the last are drawn. */
#ifndef MT_PLAN_STEP_TIME_H
#define MT_PLAN_STEP_TIME_H

#include "plan/costs.h"
#include "plan/plan.h"
#include "plan/queues.h"
#include "plan/sequence.h"

/* What drawings of plans that differ in their placement share. */
typedef struct mt_step_drawing {
    mt_costs costs; /* m is NULL before the first */
    mt_queues queues;
    mt_sequence *sequence;
    int *events, *slabs, *updates; /* tasks: of each event, of the host update that used a slab last, of each unit's newest */
    size_t cap_events, cap_slabs;
    mt_plan coarse;           /* a copy of the plan with larger pieces; its arrays are the plan's */
    bool every_piece;         /* is drawn as it is: a search, which is in a hurry, draws a few hundred larger ones */
    const double *stands_for; /* of a merged model (merge.h): how often each layer counts; NULL: once */
} mt_step_drawing;

mt_rc mt_step_drawing_init(mt_step_drawing *d, const mt_model *model, mt_err *err);
void mt_step_drawing_free(mt_step_drawing *d);

/* Seconds the device computes in a step, updates left out: no step is faster.  Takes next to no time. */
double mt_step_compute(mt_step_drawing *d, const mt_plan *p, const mt_machine *m);
/* False without simulating when the step cannot be faster than `give_up`: then only the parts of *out are filled in. */
mt_rc mt_step_time(mt_step_drawing *d, const mt_plan *p, const mt_machine *m, double give_up, mt_times *out, bool *simulated,
                   mt_err *err);

#endif
