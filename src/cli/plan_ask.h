/* plan_ask.h - the questions of `megatrain plan` on a terminal without arguments.  The answers replace flags; an invalid answer
 * is asked again. */
#ifndef MT_CLI_PLAN_ASK_H
#define MT_CLI_PLAN_ASK_H

#include "cli/plan_question.h"

typedef struct mt_plan_asked {
    bool what_fits; /* true: what can I train here; false: which batch size */
    mt_subject_asked subject;
    mt_machine_asked machine;

    char model[128], gpu[64], config[512]; /* memory that the above point to */
    mt_shape own;
} mt_plan_asked;

/* The questions' other answers (tokens of context, batch_size: auto) go into the settings.  *ended: there was no more input. */
mt_rc mt_plan_ask(mt_plan_asked *out, mt_settings *set, bool *ended, mt_err *err);

#endif
