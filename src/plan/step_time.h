/* step_time.h - how long a step under a plan takes.
 *
 * The step is drawn as the engine queues it (engine/step.c and its neighbours): compute, copies in, copies out and updates on the
 * host as queues, with the waits between them, and simulated.  So what hides behind what is not a formula but follows from the
 * order of things.  Two steps are drawn and the second counts: the first pays for no updates.  Of many sweeps the first, one in
 * the middle and the last are drawn. */
#ifndef MT_PLAN_STEP_TIME_H
#define MT_PLAN_STEP_TIME_H

#include "plan/costs.h"
#include "plan/plan.h"
#include "plan/queues.h"

/* What drawings of plans that differ in their placement share. */
typedef struct mt_step_drawing {
    mt_costs costs; /* m is NULL before the first */
    mt_queues queues;
    struct unit_drawn *units; /* [n_units] */
    struct ring_drawn *rings; /* [n_groups] */
    int *slots;               /* what is remembered of slots of every kind */
    size_t cap_slots;
} mt_step_drawing;

mt_rc mt_step_drawing_init(mt_step_drawing *d, const mt_model *model, mt_err *err);
void mt_step_drawing_free(mt_step_drawing *d);

/* Seconds the device computes in a step, updates left out: no step is faster.  Takes next to no time. */
double mt_step_compute(mt_step_drawing *d, const mt_plan *p, const mt_machine *m);
/* False without simulating when the step cannot be faster than `give_up`: then only the parts of *out are filled in. */
mt_rc mt_step_time(mt_step_drawing *d, const mt_plan *p, const mt_machine *m, double give_up, mt_times *out, bool *simulated,
                   mt_err *err);

#endif
