/* limits.c - what the memory settings allow a plan, and what is said of the one that was chosen. */
#include "base/mem.h"
#include "base/str.h"
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

/* "every layer keeps everything", or how many keep what. */
static void put_kept(mt_str *s, const mt_plan *p)
{
    static const char *const keeps[MT_KEEPS] = { "nothing", "its input", "its input and attention", "everything" };
    int64_t L = p->model->config->L, n[MT_KEEPS] = { 0 }, on_host = 0, some = 0;
    for (int64_t l = 0; l < L; l++) {
        n[p->place.layers[l].keep]++;
        on_host += p->place.layers[l].keep != MT_KEEP_NOTHING && p->place.layers[l].place == MT_HOST;
    }
    for (int k = MT_KEEPS - 1; k > MT_KEEP_NOTHING; k--)
        if (n[k] == L)
            mt_str_printf(s, "every layer keeps %s", keeps[k]);
        else if (n[k] == L - n[MT_KEEP_NOTHING] && k == MT_KEEP_INPUT)
            mt_str_printf(s, "every %d layers one keeps its input", p->longest_segment);
        else if (n[k])
            mt_str_printf(s, "%s%lld %s", some++ ? ", " : "layers keep: ", (long long)n[k], keeps[k]);
    if (on_host) mt_str_puts(s, " in host memory");
    if (on_host && on_host < L - n[MT_KEEP_NOTHING]) mt_str_printf(s, " (%lld of them)", (long long)on_host);
}

void mt_plan_describe_kept(const mt_plan *p, const mt_limits *l, char *out, size_t n)
{
    mt_str s = { 0 };
    bool more = p->longest_segment < mt_limits_longest(l, p->model) || p->place.layers[0].keep > MT_KEEP_INPUT;
    put_kept(&s, p);
    if (l->exact)
        mt_str_printf(&s, ", as checkpoint_interval %d says (strict_checkpointing)", l->interval);
    else if (more && l->interval > 1)
        mt_str_printf(&s, ", which is more than checkpoint_interval %d asks for: it fits", l->interval);
    if (p->place.n_slabs) mt_str_printf(&s, "; %d gradient slabs of at most %d", p->place.n_slabs, l->n_slabs ? l->n_slabs : p->place.n_slabs);
    snprintf(out, n, "%s", s.s ? s.s : "");
    mt_str_free(&s);
}
