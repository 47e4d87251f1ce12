/* question.h - turns settings into the planner's question about a model, for the library and for `plan`. */
#ifndef MT_API_QUESTION_H
#define MT_API_QUESTION_H

#include "plan/advise.h"
#include "settings/settings.h"

/* What the settings freeze. */
mt_model_options mt_plan_model_options(const mt_settings *set);
/* Fails for a step whose bytes could not be counted. */
mt_rc mt_plan_check_step(const mt_settings *set, mt_err *err);
/* q.batch counts a whole step: batch_size x gradient_accumulation_steps; 0: auto. */
mt_question mt_plan_question(const mt_model *model, const mt_settings *set, const mt_machine *machine);

#endif
