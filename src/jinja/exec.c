/* exec.c - statements. */
#include "jinja/render.h"

#include "jinja/chars.h"

mt_rc mt__j_enter_frame(jrender *r, const jframe *f)
{
    MT_TRY(mt__j_look(r, f->n_loads));
    for (uint32_t i = 0; i < f->n_loads; i++) {
        const jload *l = &f->loads[i];
        jval v = { 0 };
        if (l->kind == LOAD_CONTEXT) v = r->globals[l->global];
        if (l->kind == LOAD_ALIAS) v = *mt__j_slot(r, l->from);
        r->act->slots[l->slot] = v;
    }
    return MT_OK;
}

mt_rc mt__j_activate(jrender *r, const jframe *f, jactivation *outer, jactivation *act)
{
    act->outer = outer;
    MT_TRY(mt__j_new(r, f->n_slots * sizeof *act->slots, &act->slots));
    memset(act->slots, 0, f->n_slots * sizeof *act->slots);
    return MT_OK;
}

/* ---- capturing ---- */

size_t mt__j_capture(jrender *r)
{
    if (r->captures++ == 0) r->written = r->out->n;
    return r->out->n;
}

mt_rc mt__j_capture_abandon(jrender *r, size_t mark)
{
    r->captures--;
    size_t n = r->out->n - mark;
    r->out->n = mark;
    return mt__j_touch(r, n);
}

mt_rc mt__j_captured(jrender *r, size_t mark, jval *out)
{
    r->captures--;
    return mt__j_cut(r, mark, out);
}

/* ---- assignment ---- */

static mt_rc set_in_namespace(jrender *r, const jnode *target, jval v)
{
    jval space = *mt__j_slot(r, target->ref), key = target->value;
    r->at = target;
    if (space.type != JV_NAMESPACE) return mt__j_fail(r, "cannot assign attribute on non-namespace object");
    if (key.n && key.s[0] == '_')
        return mt__j_fail(r,
                          "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'. Please "
                          "rename the attribute.",
                          (int)key.n, key.s);
    jspace *s = space.space;
    MT_TRY(mt__j_look(r, s->n));
    for (size_t i = 0; i < s->n; i++)
        if (mt__j_same_text(s->entries[i].key, key.s, key.n)) return s->entries[i].value = v, MT_OK;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        jentry *bigger;
        MT_TRY(mt__j_new(r, cap * sizeof *bigger, &bigger));
        if (s->n) memcpy(bigger, s->entries, s->n * sizeof *bigger);
        s->entries = bigger;
        s->cap = cap;
    }
    s->entries[s->n++] = (jentry){ .key = key, .value = v };
    return MT_OK;
}

static mt_rc exec_unpack(jrender *r, const jnode *target, jval v)
{
    jiter it;
    jval item;
    r->at = target;
    if (mt__j_is_number(v) || v.type == JV_NONE) return mt__j_fail(r, "cannot unpack non-iterable %s object", mt__j_type_name(v));
    MT_TRY(mt__j_iterate(r, v, &it));
    jval *items;
    MT_TRY(mt__j_new(r, target->n * sizeof *items, &items));
    for (uint32_t i = 0; i < target->n; i++) {
        MT_TRY(mt__j_next(r, &it, &items[i]));
        if (!mt__j_given(items[i])) return mt__j_fail(r, "not enough values to unpack (expected %u, got %u)", target->n, i);
    }
    MT_TRY(mt__j_next(r, &it, &item));
    if (mt__j_given(item)) return mt__j_fail(r, "too many values to unpack (expected %u)", target->n);
    for (uint32_t i = 0; i < target->n; i++) MT_TRY(mt__j_assign(r, target->kid[i], items[i]));
    return MT_OK;
}

mt_rc mt__j_assign(jrender *r, const jnode *target, jval v)
{
    if (target->kind == N_NAME) return *mt__j_slot(r, target->ref) = v, MT_OK;
    return target->kind == N_NSREF ? set_in_namespace(r, target, v) : exec_unpack(r, target, v);
}

/* ---- statements ---- */

static mt_rc exec_if(jrender *r, const jnode *n)
{
    for (uint32_t i = 0; i + 1 < n->n; i += 2) {
        jval v;
        bool yes;
        MT_TRY(mt__j_steps(r, 1));
        MT_TRY(mt__j_eval(r, n->kid[i], &v));
        MT_TRY(mt__j_truth(r, v, &yes));
        if (yes) return mt__j_exec(r, n->kid[i + 1]);
    }
    return n->n % 2 ? mt__j_exec(r, n->kid[n->n - 1]) : MT_OK;
}

static mt_rc exec_set_block(jrender *r, const jnode *n)
{
    jval text;
    MT_TRY(mt__j_enter_frame(r, n->frame));
    size_t mark = mt__j_capture(r);
    MT_TRY(mt__j_exec(r, n->kid[2]));
    if (r->signal) return mt__j_capture_abandon(r, mark); /* a break leaves without assigning */
    MT_TRY(mt__j_captured(r, mark, &text));
    MT_TRY(mt__j_eval_filter(r, n->kid[1], text, &text));
    return mt__j_assign(r, n->kid[0], text);
}

static mt_rc exec_filter_block(jrender *r, const jnode *n)
{
    jval text;
    MT_TRY(mt__j_enter_frame(r, n->frame));
    size_t mark = mt__j_capture(r);
    MT_TRY(mt__j_exec(r, n->kid[0]));
    if (r->signal) return mt__j_capture_abandon(r, mark);
    MT_TRY(mt__j_captured(r, mark, &text));
    MT_TRY(mt__j_eval_filter(r, n->kid[1], text, &text));
    return mt__j_put_str(r, text);
}

static mt_rc exec_with(jrender *r, const jnode *n)
{
    jval v;
    MT_TRY(mt__j_enter_frame(r, n->frame));
    for (uint32_t i = 1; i + 1 < n->n; i += 2) {
        MT_TRY(mt__j_steps(r, 1));
        MT_TRY(mt__j_eval(r, n->kid[i + 1], &v));
        MT_TRY(mt__j_assign(r, n->kid[i], v));
    }
    return mt__j_exec(r, n->kid[0]);
}

static mt_rc new_macro(jrender *r, const jnode *n, jval *out)
{
    jmacro *m;
    MT_TRY(mt__j_new(r, sizeof *m, &m));
    *m = (jmacro){ .node = n, .outer = r->act };
    *out = (jval){ .type = JV_MACRO, .macro = m };
    return MT_OK;
}

/* The call, with one more keyword argument: the block as a macro. */
static mt_rc exec_call_block(jrender *r, const jnode *n)
{
    const jnode *call = n->kid[n->n - 1];
    jval callee, *values, *names, out;
    jargs args;
    MT_TRY(mt__j_eval(r, call->kid[0], &callee));
    MT_TRY(mt__j_eval_args(r, call, 1, &args));
    r->at = call;
    MT_TRY(mt__j_new(r, (args.n_kw + 1) * sizeof *values, &values));
    MT_TRY(mt__j_new(r, (args.n_kw + 1) * sizeof *names, &names));
    if (args.n_kw) {
        memcpy(values, args.kw, args.n_kw * sizeof *values);
        memcpy(names, args.kw_names, args.n_kw * sizeof *names);
    }
    for (size_t i = 0; i < args.n_kw; i++)
        if (mt__j_is_text(names[i], "caller")) return mt__j_fail(r, "the call already has an argument named 'caller'");
    names[args.n_kw] = mt__j_literal("caller");
    MT_TRY(new_macro(r, n, &values[args.n_kw]));
    args.kw = values, args.kw_names = names, args.n_kw++;
    MT_TRY(mt__j_call(r, callee, &args, &out));
    return mt__j_put_str(r, out);
}

/* Until the rendering is complete, .end is how many characters the block wrote (jinja.c turns it into a place). */
static mt_rc add_span(jrender *r, size_t begin, size_t n_chars)
{
    if (!r->spans) return MT_OK;
    MT_TRY(mt_grow(&r->spans->items, &r->spans->cap, r->spans->n + 1, sizeof *r->spans->items, r->err));
    r->spans->items[r->spans->n++] = (mt_jinja_span){ begin - r->out_start, n_chars };
    return MT_OK;
}

/* transformers measures where a block begins by what has been output for good: text still being captured (by a
 * macro, say) does not count, and a block inside another begins where that one does. */
static mt_rc exec_generation(jrender *r, const jnode *n)
{
    jactivation *outer = r->act, *act;
    MT_TRY(mt__j_new(r, sizeof *act, &act));
    MT_TRY(mt__j_activate(r, n->frame, outer, act));
    r->act = act;
    MT_TRY(mt__j_enter_frame(r, n->frame));
    size_t begin = r->out->n;
    if (r->captures++ == 0) r->written = begin;
    MT_TRY(mt__j_exec(r, n->kid[0]));
    r->captures--;
    r->act = outer;
    size_t bytes = r->out->n - begin;
    MT_TRY(mt__j_touch(r, bytes));
    return add_span(r, r->written, bytes ? mt__j_count(r->out->s + begin, bytes) : 0);
}

static mt_rc exec_block(jrender *r, const jnode *n)
{
    for (uint32_t i = 0; i < n->n && !r->signal; i++) {
        const jnode *s = n->kid[i];
        if (s->kind == N_TEXT) {
            mt_str_add(r->out, s->value.s, s->value.n);
            MT_TRY(mt__j_check_out(r));
        } else
            MT_TRY(mt__j_exec(r, s));
    }
    return MT_OK;
}

static mt_rc exec_inner(jrender *r, const jnode *n)
{
    jval v;
    switch (n->kind) {
    case N_BLOCK: return exec_block(r, n);
    case N_TEXT: return mt__j_put_str(r, n->value);
    case N_PRINT: return mt__j_print(r, n->kid[0]);
    case N_IF: return exec_if(r, n);
    case N_FOR: return mt__j_exec_for(r, n);
    case N_SET: MT_TRY(mt__j_eval(r, n->kid[1], &v)); return mt__j_assign(r, n->kid[0], v);
    case N_SET_BLOCK: return exec_set_block(r, n);
    case N_MACRO: MT_TRY(new_macro(r, n, &v)); return *mt__j_slot(r, n->ref) = v, MT_OK;
    case N_CALL_BLOCK: return exec_call_block(r, n);
    case N_GENERATION: return exec_generation(r, n);
    case N_WITH: return exec_with(r, n);
    case N_FILTER_BLOCK: return exec_filter_block(r, n);
    case N_SCOPE: MT_TRY(mt__j_enter_frame(r, n->frame)); return mt__j_exec(r, n->kid[0]);
    case N_BREAK: r->signal = SIGNAL_BREAK; return MT_OK;
    case N_CONTINUE: r->signal = SIGNAL_CONTINUE; return MT_OK;
    default: return mt__j_fail_rc(r, MT_EINTERNAL, "a node of kind %d where a statement should be", n->kind);
    }
}

mt_rc mt__j_exec(jrender *r, const jnode *n)
{
    r->at = n;
    MT_TRY(mt__j_steps(r, 1));
    MT_TRY(mt__j_deeper(r));
    MT_TRY(exec_inner(r, n));
    r->depth--;
    return MT_OK;
}
