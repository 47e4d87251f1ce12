/* plan_ask.h - the machine a plan is asked for, and the two questions `megatrain plan` asks when it is given nothing. */
#ifndef MT_CLI_PLAN_ASK_H
#define MT_CLI_PLAN_ASK_H

#include "cli/plan_view.h"
#include "plan/measure.h"
#include "settings/settings.h"

/* What flags said; 0: nothing. */
typedef struct mt_machine_asked {
    mt_machine_given given;
    uint64_t device_memory, ram, link;
    int64_t cores;
    mt_set_device device;
} mt_machine_asked;

typedef struct mt_machine_found {
    mt_machine machine;
    char device[160], ram_source[96];
} mt_machine_found;

mt_rc mt_plan_machine(mt_machine_found *out, const mt_machine_asked *asked, mt_err *err);
/* Batch sizes, plan or remedies of a->q.  The plan is the caller's to free; a->plan points to it. */
mt_rc mt_plan_answer_find(mt_plan_answer *a, mt_plan **plan, mt_err *err);

/* A table of all known models: fits, tight, or what it needs. */
mt_rc mt_plan_what_fits(const mt_machine_asked *asked, int64_t seq_len, mt_err *err);
/* On a terminal: (1) what can I train here, (2) which batch size. */
mt_rc mt_plan_ask(mt_err *err);

#endif
