/* eval.c - expressions. */
#include "jinja/filter.h"
#include "jinja/method.h"
#include "jinja/render.h"

static mt_rc eval_inner(jrender *r, const jnode *n, jval *out);

mt_rc mt__j_eval(jrender *r, const jnode *n, jval *out)
{
    /* constants and names are half of all nodes, and cannot recurse */
    if (n->kind == N_CONST) return *out = n->value, MT_OK;
    if (n->kind == N_NAME) {
        *out = *mt__j_slot(r, n->ref);
        if (out->type == JV_MISSING) *out = mt__j_undefined(n->name.s, n->name.n);
        return MT_OK;
    }
    r->at = n;
    MT_TRY(mt__j_steps(r, 1));
    MT_TRY(mt__j_deeper(r));
    MT_TRY(eval_inner(r, n, out));
    r->depth--;
    return MT_OK;
}

/* ---- arguments ---- */

static mt_rc spread(jrender *r, const jnode *n, uint32_t at, jval *star, jval *double_star)
{
    if (n->call.star) {
        MT_TRY(mt__j_eval(r, n->kid[at++], star));
        MT_TRY(mt__j_collect(r, *star, star));
    }
    if (!n->call.double_star) return MT_OK;
    MT_TRY(mt__j_eval(r, n->kid[at], double_star));
    return double_star->type == JV_DICT
               ? MT_OK
               : mt__j_fail(r, "argument after ** must be a mapping, not %s", mt__j_type_name(*double_star));
}

mt_rc mt__j_eval_args(jrender *r, const jnode *n, uint32_t first, jargs *out)
{
    const jcall *c = &n->call;
    *out = (jargs){ .n_pos = c->n_pos, .n_kw = c->n_kw, .kw_names = c->kw_names };
    if (!c->n_pos && !c->n_kw && !c->star && !c->double_star) return MT_OK;
    jval star = { 0 }, stars = { 0 }, *values, *names = NULL;
    if (c->star || c->double_star) MT_TRY(spread(r, n, first + c->n_pos + c->n_kw, &star, &stars));
    size_t n_star = c->star ? star.list->n : 0, n_stars = c->double_star ? stars.dict->n : 0;
    MT_TRY(mt__j_new(r, (c->n_pos + n_star + c->n_kw + n_stars) * sizeof *values, &values));
    size_t k = 0;
    for (uint32_t i = 0; i < c->n_pos; i++) MT_TRY(mt__j_eval(r, n->kid[first + i], &values[k++]));
    for (size_t i = 0; i < n_star; i++) values[k++] = star.list->items[i];
    out->pos = values;
    out->n_pos = k;
    out->kw = values + k;
    for (uint32_t i = 0; i < c->n_kw; i++) MT_TRY(mt__j_eval(r, n->kid[first + c->n_pos + i], &values[k++]));
    if (!n_stars) return MT_OK;
    MT_TRY(mt__j_new(r, (c->n_kw + n_stars) * sizeof *names, &names));
    MT_TRY(mt__j_look(r, c->n_kw * n_stars));
    if (c->n_kw) memcpy(names, c->kw_names, c->n_kw * sizeof *names);
    for (size_t i = 0; i < n_stars; i++) {
        const jentry *e = &stars.dict->entries[i];
        if (e->key.type != JV_STR) return mt__j_fail(r, "keywords must be strings");
        for (uint32_t j = 0; j < c->n_kw; j++)
            if (mt__j_same_text(names[j], e->key.s, e->key.n))
                return mt__j_fail(r, "got multiple values for keyword argument '%.*s'", (int)e->key.n, e->key.s);
        names[c->n_kw + i] = e->key;
        values[k++] = e->value;
    }
    out->kw_names = names;
    out->n_kw = c->n_kw + n_stars;
    return MT_OK;
}

/* ---- kinds of nodes ---- */

static mt_rc eval_items(jrender *r, const jnode *n, jval *out)
{
    jval *items;
    MT_TRY(mt__j_new_list(r, n->kind == N_LIST ? JV_LIST : JV_TUPLE, n->n, out, &items));
    for (uint32_t i = 0; i < n->n; i++) MT_TRY(mt__j_eval(r, n->kid[i], &items[i]));
    return MT_OK;
}

static mt_rc eval_dict(jrender *r, const jnode *n, jval *out)
{
    jdict *d;
    MT_TRY(mt__j_new_dict(r, n->n / 2, out, &d));
    for (uint32_t i = 0; i + 1 < n->n; i += 2) {
        jval key, value;
        MT_TRY(mt__j_eval(r, n->kid[i], &key));
        MT_TRY(mt__j_eval(r, n->kid[i + 1], &value));
        r->at = n;
        MT_TRY(mt__j_dict_put(r, d, key, value));
    }
    return MT_OK;
}

static mt_rc eval_slice(jrender *r, const jnode *n, jval *out)
{
    jslice *s;
    MT_TRY(mt__j_new(r, sizeof *s, &s));
    jval *parts[] = { &s->start, &s->stop, &s->step };
    for (int i = 0; i < 3; i++) {
        *parts[i] = JV_NONE_VALUE;
        if (n->kid[i]) MT_TRY(mt__j_eval(r, n->kid[i], parts[i]));
    }
    *out = (jval){ .type = JV_SLICE, .slice = s };
    return MT_OK;
}

static mt_rc eval_item(jrender *r, const jnode *n, jval *out)
{
    jval v, index;
    MT_TRY(mt__j_eval(r, n->kid[0], &v));
    MT_TRY(mt__j_eval(r, n->kid[1], &index));
    r->at = n;
    return mt__j_getitem(r, v, index, n->kid[1]->kind == N_CONST ? n->method : -1, out);
}

static mt_rc eval_attr(jrender *r, const jnode *n, jval *out)
{
    jval v;
    MT_TRY(mt__j_eval(r, n->kid[0], &v));
    r->at = n;
    return mt__j_getattr(r, v, n->name, n->method, out);
}

/* "x".upper() needs no method object in between. */
static mt_rc eval_call(jrender *r, const jnode *n, jval *out)
{
    const jnode *f = n->kid[0];
    jval callee = { 0 }, self;
    jargs args;
    int row = -1;
    if (f->kind == N_ATTR && f->method) {
        MT_TRY(mt__j_eval(r, f->kid[0], &self));
        r->at = f;
        row = mt__j_method_row(f->method, self);
        if (row >= 0 && !mt__j_methods[row].fn) row = -1;
        if (row < 0) MT_TRY(mt__j_getattr(r, self, f->name, f->method, &callee));
    } else
        MT_TRY(mt__j_eval(r, f, &callee));
    MT_TRY(mt__j_eval_args(r, n, 1, &args));
    r->at = n;
    return row >= 0 ? mt__j_call_method(r, row, self, &args, out) : mt__j_call(r, callee, &args, out);
}

static mt_rc apply_filter_node(jrender *r, const jnode *n, jval input, jval *out)
{
    jargs args;
    MT_TRY(mt__j_eval_args(r, n, 1, &args));
    r->at = n;
    if (!n->entry) return mt__j_fail(r, "no filter named '%.*s'", (int)n->name.n, n->name.s);
    return mt__j_apply_filter(r, n->entry, input, &args, out);
}

mt_rc mt__j_eval_filter(jrender *r, const jnode *n, jval input, jval *out)
{
    if (!n) return *out = input, MT_OK;
    MT_TRY(mt__j_steps(r, 1));
    MT_TRY(mt__j_deeper(r));
    MT_TRY(mt__j_eval_filter(r, n->kid[0], input, &input));
    r->depth--;
    return apply_filter_node(r, n, input, out);
}

static mt_rc eval_filter(jrender *r, const jnode *n, jval *out)
{
    jval input;
    MT_TRY(mt__j_eval(r, n->kid[0], &input));
    return apply_filter_node(r, n, input, out);
}

static mt_rc eval_test(jrender *r, const jnode *n, jval *out)
{
    jval input;
    jargs args;
    bool yes;
    MT_TRY(mt__j_eval(r, n->kid[0], &input));
    MT_TRY(mt__j_eval_args(r, n, 1, &args));
    r->at = n;
    if (!n->entry) return mt__j_fail(r, "no test named '%.*s'", (int)n->name.n, n->name.s);
    MT_TRY(mt__j_apply_test(r, n->entry, input, &args, &yes));
    *out = mt__j_bool(yes);
    return MT_OK;
}

static mt_rc eval_truth(jrender *r, const jnode *n, bool *out)
{
    jval v;
    MT_TRY(mt__j_eval(r, n, &v));
    return mt__j_truth(r, v, out);
}

static mt_rc eval_logic(jrender *r, const jnode *n, jval *out)
{
    bool yes;
    MT_TRY(mt__j_eval(r, n->kid[0], out));
    MT_TRY(mt__j_truth(r, *out, &yes));
    return yes == (n->kind == N_AND) ? mt__j_eval(r, n->kid[1], out) : MT_OK;
}

static mt_rc eval_compare(jrender *r, const jnode *n, jval *out)
{
    jval left, right;
    bool yes = true;
    MT_TRY(mt__j_eval(r, n->kid[0], &left));
    for (uint32_t i = 1; i < n->n && yes; i++) {
        MT_TRY(mt__j_steps(r, 1));
        MT_TRY(mt__j_eval(r, n->kid[i], &right));
        r->at = n;
        MT_TRY(mt__j_compare(r, (jop)n->ops[i - 1], left, right, &yes));
        left = right;
    }
    *out = mt__j_bool(yes);
    return MT_OK;
}

static mt_rc eval_condition(jrender *r, const jnode *n, jval *out)
{
    bool yes;
    MT_TRY(eval_truth(r, n->kid[0], &yes));
    if (yes || n->kid[2]) return mt__j_eval(r, n->kid[yes ? 1 : 2], out);
    *out = mt__j_undefined_because("the inline if-expression evaluated to false and no else section was defined.");
    return MT_OK;
}

static mt_rc eval_concat(jrender *r, const jnode *n, jval *out)
{
    size_t mark = mt__j_capture(r);
    for (uint32_t i = 0; i < n->n; i++) {
        jval v;
        MT_TRY(mt__j_steps(r, 1));
        MT_TRY(mt__j_eval(r, n->kid[i], &v));
        MT_TRY(mt__j_put_str(r, v));
    }
    return mt__j_captured(r, mark, out);
}

/* a + b + c + d of strings is the commonest expression of all.  The parts are written one after the other and cut out once at the
 * end; anything but plain strings falls back to adding in pairs.  *written: the sum is in the output, not in *out. */
static mt_rc eval_sum(jrender *r, const jnode *n, jval *out, bool *written)
{
    *written = false;
    if (n->kind != N_BINARY || n->op != OP_ADD) return mt__j_eval(r, n, out);
    jval left, right;
    size_t mark = mt__j_mark(r);
    bool left_written;
    MT_TRY(mt__j_steps(r, 1));
    MT_TRY(mt__j_deeper(r));
    MT_TRY(eval_sum(r, n->kid[0], &left, &left_written));
    if (!left_written && left.type == JV_STR && !left.safe) {
        mt_str_add(r->out, left.s, left.n);
        left_written = true;
    }
    MT_TRY(mt__j_eval(r, n->kid[1], &right));
    r->at = n;
    r->depth--;
    if (left_written && right.type == JV_STR && !right.safe) {
        mt_str_add(r->out, right.s, right.n);
        *written = true;
        return mt__j_check_out(r);
    }
    if (left_written) MT_TRY(mt__j_cut(r, mark, &left));
    return mt__j_binary(r, OP_ADD, left, right, out);
}

static mt_rc eval_binary(jrender *r, const jnode *n, jval *out)
{
    jval left, right;
    if (n->op == OP_ADD) {
        bool written;
        size_t mark = mt__j_capture(r);
        MT_TRY(eval_sum(r, n, out, &written));
        if (written) return mt__j_captured(r, mark, out);
        return mt__j_capture_abandon(r, mark);
    }
    MT_TRY(mt__j_eval(r, n->kid[0], &left));
    MT_TRY(mt__j_eval(r, n->kid[1], &right));
    r->at = n;
    return mt__j_binary(r, (jop)n->op, left, right, out);
}

/* {{ a + b + c }}: straight to the output where eval would cut a string out of it first. */
mt_rc mt__j_print(jrender *r, const jnode *n)
{
    jval v;
    if (n->kind == N_BINARY && n->op == OP_ADD) {
        bool written;
        mt__j_capture(r);
        MT_TRY(eval_sum(r, n, &v, &written));
        r->captures--;
        return written ? MT_OK : mt__j_put_str(r, v);
    }
    MT_TRY(mt__j_eval(r, n, &v));
    return mt__j_put_str(r, v);
}

static mt_rc eval_unary(jrender *r, const jnode *n, jval *out)
{
    jval v;
    bool yes;
    MT_TRY(mt__j_eval(r, n->kid[0], &v));
    r->at = n;
    if (n->kind != N_NOT) return mt__j_negate(r, v, out, n->kind == N_NEG);
    MT_TRY(mt__j_truth(r, v, &yes));
    *out = mt__j_bool(!yes);
    return MT_OK;
}

static mt_rc eval_inner(jrender *r, const jnode *n, jval *out)
{
    switch (n->kind) {
    case N_LIST:
    case N_TUPLE: return eval_items(r, n, out);
    case N_DICT: return eval_dict(r, n, out);
    case N_ATTR: return eval_attr(r, n, out);
    case N_ITEM: return eval_item(r, n, out);
    case N_SLICE: return eval_slice(r, n, out);
    case N_CALL: return eval_call(r, n, out);
    case N_FILTER: return eval_filter(r, n, out);
    case N_TEST: return eval_test(r, n, out);
    case N_NOT:
    case N_NEG:
    case N_POS: return eval_unary(r, n, out);
    case N_BINARY: return eval_binary(r, n, out);
    case N_CONCAT: return eval_concat(r, n, out);
    case N_AND:
    case N_OR: return eval_logic(r, n, out);
    case N_COMPARE: return eval_compare(r, n, out);
    case N_COND: return eval_condition(r, n, out);
    default: return mt__j_fail_rc(r, MT_EINTERNAL, "a node of kind %d where an expression should be", n->kind);
    }
}
