/* call.c - calling things: sorting arguments, macros, methods, globals. */
#include "jinja/global.h"
#include "jinja/method.h"
#include "jinja/render.h"

/* The i-th name of "a,b,c". */
static bool spec_name(const char *spec, int i, const char **name, size_t *n)
{
    for (; *spec; i--) {
        *n = strcspn(spec, ",");
        *name = spec;
        if (i == 0) return true;
        spec += *n;
        if (*spec) spec++;
    }
    return false;
}

static mt_rc bind_keyword(jrender *r, const char *what, const char *spec, bool by_name, jval name, jval value, jval *out)
{
    const char *s;
    size_t n;
    for (int i = 0; by_name && spec_name(spec, i, &s, &n); i++) {
        if (!mt__j_same_text(name, s, n)) continue;
        if (mt__j_given(out[i])) return mt__j_fail(r, "%s() got multiple values for argument '%.*s'", what, (int)n, s);
        out[i] = value;
        return MT_OK;
    }
    return mt__j_fail(r, "%s() got an unexpected keyword argument '%.*s'", what, (int)name.n, name.s);
}

mt_rc mt__j_bind_args(jrender *r, const char *what, const char *spec, int n_required, const jargs *args, jval *out)
{
    bool by_name = *spec != '!';
    if (!by_name) spec++;
    int n_params = *spec != 0;
    for (const char *p = spec; *p; p++) n_params += *p == ',';
    if (args->n_pos > (size_t)n_params)
        return mt__j_fail(r, "%s() takes at most %d arguments (%zu given)", what, n_params, args->n_pos);
    for (int i = 0; i < n_params; i++) out[i] = (size_t)i < args->n_pos ? args->pos[i] : (jval){ 0 };
    for (size_t i = 0; i < args->n_kw; i++) MT_TRY(bind_keyword(r, what, spec, by_name, args->kw_names[i], args->kw[i], out));
    for (int i = 0; i < n_required; i++) {
        const char *s = "";
        size_t n = 0;
        if (mt__j_given(out[i])) continue;
        spec_name(spec, i, &s, &n);
        return mt__j_fail(r, "%s() misses its argument '%.*s'", what, (int)n, s);
    }
    return MT_OK;
}

mt_rc mt__j_call_method(jrender *r, int row, jval self, const jargs *args, jval *out)
{
    const jmethod_row *m = &mt__j_methods[row];
    jval bound[4];
    if (self.type == JV_STR) MT_TRY(mt__j_touch(r, self.n));
    if (m->params) MT_TRY(mt__j_bind_args(r, m->name, m->params, m->n_required, args, bound));
    return m->fn(r, self, m->params ? bound : NULL, args, out);
}

/* ---- macros ---- */

/* Keyword arguments that no parameter has taken yet. */
typedef struct leftovers {
    jval *names, *values;
    size_t n;
} leftovers;

static bool call_take(leftovers *l, jval name, jval *out)
{
    for (size_t i = 0; i < l->n; i++) {
        if (!mt__j_same_text(l->names[i], name.s, name.n)) continue;
        *out = l->values[i];
        l->n--;
        memmove(l->names + i, l->names + i + 1, (l->n - i) * sizeof *l->names);
        memmove(l->values + i, l->values + i + 1, (l->n - i) * sizeof *l->values);
        return true;
    }
    return false;
}

static mt_rc copy_keywords(jrender *r, const jargs *args, leftovers *l)
{
    l->n = args->n_kw;
    MT_TRY(mt__j_new(r, l->n * sizeof *l->names, &l->names));
    MT_TRY(mt__j_new(r, l->n * sizeof *l->values, &l->values));
    if (l->n) {
        memcpy(l->names, args->kw_names, l->n * sizeof *l->names);
        memcpy(l->values, args->kw, l->n * sizeof *l->values);
    }
    return MT_OK;
}

static mt_rc bind_special(jrender *r, const jnode *n, const jargs *args, leftovers *l, jval *slots)
{
    jval v;
    int name_n = (int)n->name.n;
    if (n->uses & USES_CALLER) {
        if (!call_take(l, mt__j_literal("caller"), &v) || v.type == JV_NONE) v = mt__j_undefined_because("No caller defined");
        slots[n->special[0].slot] = v;
    }
    if (n->uses & USES_KWARGS) {
        jdict *d;
        MT_TRY(mt__j_new_dict(r, l->n, &v, &d));
        for (size_t i = 0; i < l->n; i++) MT_TRY(mt__j_dict_put(r, d, l->names[i], l->values[i]));
        slots[n->special[1].slot] = v;
    } else if (l->n)
        return mt__j_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", name_n, n->name.s, (int)l->names[0].n,
                          l->names[0].s);
    size_t extra = args->n_pos > n->n_params ? args->n_pos - n->n_params : 0;
    if (n->uses & USES_VARARGS) {
        jval *items;
        MT_TRY(mt__j_new_list(r, JV_TUPLE, extra, &v, &items));
        if (extra) memcpy(items, args->pos + n->n_params, extra * sizeof *items);
        slots[n->special[2].slot] = v;
    } else if (extra)
        return mt__j_fail(r, "macro '%.*s' takes not more than %u argument(s)", name_n, n->name.s, n->n_params);
    return MT_OK;
}

static mt_rc bind_macro(jrender *r, const jnode *n, const jargs *args, jval *slots)
{
    leftovers l;
    MT_TRY(copy_keywords(r, args, &l));
    MT_TRY(mt__j_look(r, args->n_kw * n->n_params)); /* each parameter searches all of them */
    for (uint32_t i = 0; i < n->n_params; i++) {
        const jnode *param = n->kid[1 + i];
        jval v = { 0 };
        if (i < args->n_pos)
            v = args->pos[i];
        else
            call_take(&l, param->name, &v);
        slots[param->ref.slot] = v;
    }
    return bind_special(r, n, args, &l, slots);
}

/* Missing arguments: the default, evaluated in the macro's own frame, or undefined. */
static mt_rc fill_defaults(jrender *r, const jnode *n)
{
    for (uint32_t i = 0; i < n->n_params; i++) {
        const jnode *param = n->kid[1 + i], *fallback = n->kid[1 + n->n_params + i];
        jval *slot = &r->act->slots[param->ref.slot];
        if (mt__j_given(*slot)) continue;
        if (fallback)
            MT_TRY(mt__j_eval(r, fallback, slot));
        else
            *slot = mt__j_undefined(param->name.s, param->name.n);
    }
    return MT_OK;
}

static mt_rc call_macro(jrender *r, const jmacro *m, const jargs *args, jval *out)
{
    const jnode *n = m->node;
    jactivation act, *caller = r->act;
    MT_TRY(mt__j_deeper(r));
    MT_TRY(mt__j_activate(r, n->frame, m->outer, &act));
    MT_TRY(bind_macro(r, n, args, act.slots));
    jactivation *kept;
    MT_TRY(mt__j_new(r, sizeof *kept, &kept)); /* macros defined inside may outlive this call */
    *kept = act;
    r->act = kept;
    MT_TRY(mt__j_enter_frame(r, n->frame));
    MT_TRY(fill_defaults(r, n));
    size_t mark = mt__j_capture(r);
    MT_TRY(mt__j_exec(r, n->kid[0]));
    MT_TRY(mt__j_captured(r, mark, out));
    r->act = caller;
    r->depth--;
    return MT_OK;
}

mt_rc mt__j_call(jrender *r, jval callee, const jargs *args, jval *out)
{
    switch (callee.type) {
    case JV_MACRO: return call_macro(r, callee.macro, args, out);
    case JV_FUNC: return callee.func->call(r, args, out);
    case JV_METHOD: return mt__j_call_method(r, callee.method->id, callee.method->self, args, out);
    case JV_LOOP: return mt__j_loop_call(r, callee.loop, args, out);
    case JV_JOINER:
        if (args->n_pos || args->n_kw) return mt__j_fail(r, "a joiner takes no arguments");
        *out = callee.joiner->used ? callee.joiner->sep : mt__j_text("", 0);
        callee.joiner->used = true;
        return MT_OK;
    case JV_UNDEFINED: return mt__j_use_undefined(r, callee);
    default: return mt__j_fail(r, "'%s' object is not callable", mt__j_type_name(callee));
    }
}
