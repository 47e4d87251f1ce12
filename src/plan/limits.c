/* limits.c - the limits that the memory settings put on a plan. */
#include "base/mem.h"
#include "plan/plan.h"

enum { USUAL_SEGMENT = 8 }; /* the default: longer segments save little more */

int mt_limits_longest(const mt_limits *l, const mt_model *m)
{
    int64_t n = l->exact ? 1 : USUAL_SEGMENT;
    if (l->interval > 0) n = l->interval;
    n = mt_min_i64(n, m->config->L);
    if (m->unit_experts && !l->exact) return 1; /* a layer with experts is recomputed alone */
    return (int)(l->exact ? n : mt_min_i64(n, MT_MAX_SEGMENT));
}

mt_rc mt_limits_check(const mt_limits *l, const mt_model *m, mt_err *err)
{
    if (m->unit_experts && l->exact && l->interval > 1)
        return mt_fail(err, MT_EINVAL,
                       "strict_checkpointing with checkpoint_interval %d: layers with experts are recomputed one at a time; set "
                       "checkpoint_interval: 1",
                       l->interval);
    if (mt_limits_longest(l, m) <= MT_MAX_SEGMENT) return MT_OK;
    return mt_fail(err, MT_ERANGE,
                   "strict_checkpointing with checkpoint_interval %d: at most %d layers can be recomputed from one kept input",
                   l->interval, MT_MAX_SEGMENT);
}
