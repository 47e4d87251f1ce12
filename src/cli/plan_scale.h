/* plan_scale.h - how a run would scale over the GPUs of a machine, and over machines: the same step on 1, 2, 4 ... of them. */
#ifndef MT_CLI_PLAN_SCALE_H
#define MT_CLI_PLAN_SCALE_H

#include "cli/plan_view.h"

/* a->plan: for the largest number of GPUs.  Shows nothing for one GPU on one machine. */
mt_rc mt_plan_scale_find(mt_plan_scale *s, const mt_plan_answer *a, mt_err *err);
void mt_plan_scale_show(mt_str *out, const mt_plan_answer *a);
void mt_plan_scale_json(mt_json_out *j, const mt_plan_scale *s);

#endif
