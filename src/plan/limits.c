/* limits.c - what the memory settings allow a plan, and what is said of the one that was chosen. */
#include "base/mem.h"
#include "plan/plan.h"

#include <stdio.h>

enum { USUAL_SEGMENT = 8 }; /* when nothing is said: longer ones save little more */

int mt_limits_longest(const mt_limits *l, const mt_model *m)
{
    int64_t n = mt_min_i64(l->interval > 0 ? l->interval : l->exact ? 1 : USUAL_SEGMENT, m->config->L);
    return (int)(l->exact ? n : mt_min_i64(n, MT_MAX_SEGMENT));
}

mt_rc mt_limits_check(const mt_limits *l, const mt_model *m, mt_err *err)
{
    if (mt_limits_longest(l, m) <= MT_MAX_SEGMENT) return MT_OK;
    return mt_fail(err, MT_ERANGE, "strict_checkpointing with checkpoint_interval %d: at most %d layers can be redone from one kept input", l->interval, MT_MAX_SEGMENT);
}

void mt_plan_describe_kept(const mt_plan *p, const mt_limits *l, char *out, size_t n)
{
    static const char *const keeps[] = { "nothing", "its input", "its input and attention", "everything" };
    const mt_layer_place *first = &p->place.layers[0];
    bool more = p->longest_segment < mt_limits_longest(l, p->model) || first->keep > MT_KEEP_INPUT;
    int k = p->longest_segment > 1 ? snprintf(out, n, "every %d layers one keeps its input", p->longest_segment) : snprintf(out, n, "every layer keeps %s", keeps[first->keep]);
    if (first->place == MT_HOST) k += snprintf(out + k, n - (size_t)k, " in host memory");
    if (l->exact)
        k += snprintf(out + k, n - (size_t)k, ", as checkpoint_interval %d says (strict_checkpointing)", l->interval);
    else if (more && l->interval > 1)
        k += snprintf(out + k, n - (size_t)k, ", which is more than checkpoint_interval %d asks for: it fits", l->interval);
    if (p->place.n_slabs) snprintf(out + k, n - (size_t)k, "; %d gradient slabs of at most %d", p->place.n_slabs, l->n_slabs ? l->n_slabs : p->place.n_slabs);
}
