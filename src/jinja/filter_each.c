/* filter_each.c - map, select, reject and their attribute forms: generators that work one item at a time. */
#include "jinja/filter.h"

#define FILTER(name) mt_rc name(jrender *r, jval v, const jval *a, const jargs *args, jval *out)

typedef struct each {
    jiter source;
    bool started;
    jval over;
    const jfilter_row *filter; /* map('upper') */
    const jtest_row *test;     /* select('string'); NULL: truth */
    jval attribute, fallback;  /* MISSING: the item itself; what map(attribute=, default=) puts for undefined */
    bool keep;                 /* select keeps what passes, reject what does not */
    jargs args;
    jval *failure_name; /* an unknown filter or test, reported when the first item is requested */
} each;

static mt_rc keep_args(jrender *r, const jargs *args, size_t skip, jargs *out)
{
    *out = (jargs){ .n_pos = args->n_pos > skip ? args->n_pos - skip : 0, .n_kw = args->n_kw };
    jval *pos, *names, *kw;
    MT_TRY(mt__j_new(r, out->n_pos * sizeof *pos, &pos));
    MT_TRY(mt__j_new(r, args->n_kw * sizeof *names, &names));
    MT_TRY(mt__j_new(r, args->n_kw * sizeof *kw, &kw));
    if (out->n_pos) memcpy(pos, args->pos + skip, out->n_pos * sizeof *pos);
    if (args->n_kw) {
        memcpy(names, args->kw_names, args->n_kw * sizeof *names);
        memcpy(kw, args->kw, args->n_kw * sizeof *kw);
    }
    out->pos = pos, out->kw_names = names, out->kw = kw;
    return MT_OK;
}

static mt_rc next_source(jrender *r, each *e, jval *out)
{
    MT_TRY(mt__j_steps(r, 1));
    if (!e->started) {
        bool any;
        e->started = true;
        MT_TRY(mt__j_truth(r, e->over, &any)); /* empty and undefined inputs are never walked */
        if (!any) e->over = (jval){ .type = JV_UNDEFINED };
        MT_TRY(mt__j_iterate(r, e->over, &e->source));
        if (any && e->failure_name)
            return mt__j_fail(r, "no filter or test named '%.*s'", (int)e->failure_name->n, e->failure_name->s);
    }
    return mt__j_next(r, &e->source, out);
}

static mt_rc pick(jrender *r, const each *e, jval item, jval *out)
{
    *out = item;
    if (!mt__j_given(e->attribute)) return MT_OK;
    MT_TRY(mt__j_follow(r, item, e->attribute, out));
    if (out->type == JV_UNDEFINED && mt__j_given(e->fallback) && e->fallback.type != JV_NONE) *out = e->fallback;
    return MT_OK;
}

static mt_rc next_mapped(jrender *r, jiter *it, jval *out)
{
    each *e = it->state;
    MT_TRY(next_source(r, e, out));
    if (!mt__j_given(*out)) return MT_OK;
    if (!e->filter) return pick(r, e, *out, out);
    return mt__j_apply_filter(r, e->filter, *out, &e->args, out);
}

static mt_rc next_selected(jrender *r, jiter *it, jval *out)
{
    each *e = it->state;
    for (;;) {
        jval subject;
        bool passes;
        MT_TRY(next_source(r, e, out));
        if (!mt__j_given(*out)) return MT_OK;
        MT_TRY(pick(r, e, *out, &subject));
        MT_TRY(e->test ? mt__j_apply_test(r, e->test, subject, &e->args, &passes) : mt__j_truth(r, subject, &passes));
        if (passes == e->keep) return MT_OK;
    }
}

static mt_rc new_each(jrender *r, jval v, each **out)
{
    MT_TRY(mt__j_new(r, sizeof **out, out));
    **out = (each){ .over = v };
    return MT_OK;
}

static mt_rc unknown_name(jrender *r, each *e, jval name)
{
    MT_TRY(mt__j_new(r, sizeof *e->failure_name, &e->failure_name));
    *e->failure_name = name.type == JV_STR ? name : mt__j_literal("?");
    return MT_OK;
}

static mt_rc map_attribute(jrender *r, each *e, const jargs *args)
{
    for (size_t i = 0; i < args->n_kw; i++) {
        if (mt__j_is_text(args->kw_names[i], "attribute"))
            e->attribute = args->kw[i];
        else if (mt__j_is_text(args->kw_names[i], "default"))
            e->fallback = args->kw[i];
        else
            return mt__j_fail(r, "map: unexpected keyword argument '%.*s'", (int)args->kw_names[i].n, args->kw_names[i].s);
    }
    return MT_OK;
}

static bool has_attribute_keyword(const jargs *args)
{
    for (size_t i = 0; i < args->n_kw; i++)
        if (mt__j_is_text(args->kw_names[i], "attribute")) return true;
    return false;
}

FILTER(mt__j_f_map)
{
    (void)a;
    each *e;
    MT_TRY(new_each(r, v, &e));
    if (!args->n_pos && has_attribute_keyword(args)) {
        MT_TRY(map_attribute(r, e, args));
    } else if (!args->n_pos) {
        MT_TRY(unknown_name(r, e, mt__j_literal("")));
    } else {
        jval name = args->pos[0];
        e->filter = name.type == JV_STR ? mt__j_filter_named(name.s, name.n) : NULL;
        if (!e->filter) MT_TRY(unknown_name(r, e, name));
        MT_TRY(keep_args(r, args, 1, &e->args));
    }
    return mt__j_new_iter(r, next_mapped, (jval){ 0 }, e, "generator", out);
}

static mt_rc select_or_reject(jrender *r, jval v, const jargs *args, bool keep, bool by_attribute, jval *out)
{
    each *e;
    size_t used = by_attribute;
    MT_TRY(new_each(r, v, &e));
    e->keep = keep;
    if (by_attribute && !args->n_pos)
        MT_TRY(unknown_name(r, e, mt__j_literal("")));
    else if (by_attribute)
        e->attribute = args->pos[0];
    if (args->n_pos > used) {
        jval name = args->pos[used];
        e->test = name.type == JV_STR ? mt__j_test_named(name.s, name.n) : NULL;
        if (!e->test) MT_TRY(unknown_name(r, e, name));
    }
    MT_TRY(keep_args(r, args, used + 1, &e->args));
    return mt__j_new_iter(r, next_selected, (jval){ 0 }, e, "generator", out);
}

FILTER(mt__j_f_select) { return (void)a, select_or_reject(r, v, args, true, false, out); }
FILTER(mt__j_f_reject) { return (void)a, select_or_reject(r, v, args, false, false, out); }
FILTER(mt__j_f_selectattr) { return (void)a, select_or_reject(r, v, args, true, true, out); }
FILTER(mt__j_f_rejectattr) { return (void)a, select_or_reject(r, v, args, false, true, out); }
