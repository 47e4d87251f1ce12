/* compare.c - ==, <, in and sorting, with Python's ideas of which types go together. */
#include "jinja/render.h"

#include "jinja/chars.h"

static mt_rc equal_seq(jrender *r, const jlist *a, const jlist *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) MT_TRY(mt__j_equal(r, a->items[i], b->items[i], out));
    return MT_OK;
}

static mt_rc equal_dict(jrender *r, const jdict *a, const jdict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const jval *other;
        MT_TRY(mt__j_dict_find(r, b, a->entries[i].key, &other));
        *out = other;
        if (other) MT_TRY(mt__j_equal(r, a->entries[i].value, *other, out));
    }
    return MT_OK;
}

/* keys() and items() compare as sets. */
static mt_rc equal_view(jrender *r, const jview *a, const jview *b, bool *out)
{
    *out = a == b;
    if (a == b || a->kind != b->kind || a->kind == VIEW_VALUES) return MT_OK;
    if (a->kind == VIEW_ITEMS) return equal_dict(r, a->dict, b->dict, out);
    *out = a->dict->n == b->dict->n;
    for (size_t i = 0; *out && i < a->dict->n; i++) {
        const jval *other;
        MT_TRY(mt__j_dict_find(r, b->dict, a->dict->entries[i].key, &other));
        *out = other;
    }
    return MT_OK;
}

static bool equal_range(const jrange *a, const jrange *b)
{
    return a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

static mt_rc equal_nested(jrender *r, jval a, jval b, bool *out)
{
    MT_TRY(mt__j_deeper(r));
    if (a.type == JV_DICT)
        MT_TRY(equal_dict(r, a.dict, b.dict, out));
    else if (a.type == JV_VIEW)
        MT_TRY(equal_view(r, a.view, b.view, out));
    else
        MT_TRY(equal_seq(r, a.list, b.list, out));
    r->depth--;
    return MT_OK;
}

mt_rc mt__j_equal(jrender *r, jval a, jval b, bool *out)
{
    MT_TRY(mt__j_steps(r, 1));
    if (mt__j_is_number(a) && mt__j_is_number(b)) {
        *out = mt__j_is_integer(a) && mt__j_is_integer(b) ? mt__j_as_int(a) == mt__j_as_int(b)
                                                          : mt__j_as_float(a) == mt__j_as_float(b);
        return MT_OK;
    }
    *out = false;
    if (a.type != b.type) return MT_OK;
    switch (a.type) {
    case JV_UNDEFINED:
    case JV_NONE: *out = true; return MT_OK;
    case JV_STR: *out = mt__j_same_text(a, b.s, b.n); return mt__j_touch(r, a.n == b.n ? a.n : 0);
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_VIEW: return equal_nested(r, a, b, out);
    case JV_RANGE: *out = equal_range(a.range, b.range); return MT_OK;
    default: *out = a.s == b.s; return MT_OK; /* the same object */
    }
}

static int text_order(jval a, jval b)
{
    /* bytes of UTF-8 sort as code points do */
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.s, b.s, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static mt_rc unorderable(jrender *r, jval a, jval b, const char *op)
{
    if (a.type == JV_UNDEFINED) return mt__j_use_undefined(r, a);
    if (b.type == JV_UNDEFINED) return mt__j_use_undefined(r, b);
    return mt__j_fail(r, "'%s' not supported between instances of '%s' and '%s'", op, mt__j_type_name(a), mt__j_type_name(b));
}

static mt_rc less_seq(jrender *r, jval a, jval b, bool *out, const char *op)
{
    MT_TRY(mt__j_deeper(r));
    size_t n = a.list->n < b.list->n ? a.list->n : b.list->n, i = 0;
    for (bool same = true; i < n; i++) {
        MT_TRY(mt__j_equal(r, a.list->items[i], b.list->items[i], &same));
        if (!same) break;
    }
    if (i < n)
        MT_TRY(mt__j_less(r, a.list->items[i], b.list->items[i], out, op));
    else
        *out = a.list->n < b.list->n;
    r->depth--;
    return MT_OK;
}

mt_rc mt__j_less(jrender *r, jval a, jval b, bool *out, const char *op)
{
    MT_TRY(mt__j_steps(r, 1));
    if (mt__j_is_integer(a) && mt__j_is_integer(b)) return *out = mt__j_as_int(a) < mt__j_as_int(b), MT_OK;
    if (mt__j_is_number(a) && mt__j_is_number(b)) return *out = mt__j_as_float(a) < mt__j_as_float(b), MT_OK;
    if (a.type == JV_STR && b.type == JV_STR) {
        *out = text_order(a, b) < 0;
        return mt__j_touch(r, a.n < b.n ? a.n : b.n);
    }
    if (mt__j_is_seq(a) && a.type == b.type) return less_seq(r, a, b, out, op);
    return unorderable(r, a, b, op);
}

static mt_rc ordered(jrender *r, jop op, jval a, jval b, bool *out)
{
    static const char *const names[] = { [OP_LT] = "<", [OP_LE] = "<=", [OP_GT] = ">", [OP_GE] = ">=" };
    if (a.type == JV_FLOAT || b.type == JV_FLOAT) { /* nan is neither less nor greater */
        if (!mt__j_is_number(a) || !mt__j_is_number(b)) return unorderable(r, a, b, names[op]);
        double x = mt__j_as_float(a), y = mt__j_as_float(b);
        *out = (x < y && (op == OP_LT || op == OP_LE)) || (x > y && (op == OP_GT || op == OP_GE)) ||
               (x == y && (op == OP_LE || op == OP_GE));
        return MT_OK;
    }
    bool swap = op == OP_GT || op == OP_LE;
    jval x = swap ? b : a, y = swap ? a : b;
    if (mt__j_is_seq(a) != mt__j_is_seq(b) || (mt__j_is_seq(a) && a.type != b.type)) return unorderable(r, a, b, names[op]);
    if (a.type == JV_UNDEFINED) return mt__j_use_undefined(r, a);
    MT_TRY(mt__j_less(r, x, y, out, names[op]));
    if (op == OP_LE || op == OP_GE) *out = !*out;
    return MT_OK;
}

mt_rc mt__j_compare(jrender *r, jop op, jval a, jval b, bool *out)
{
    switch (op) {
    case OP_EQ: return mt__j_equal(r, a, b, out);
    case OP_NE: MT_TRY(mt__j_equal(r, a, b, out)); break;
    case OP_IN: return mt__j_contains(r, b, a, out);
    case OP_NOT_IN: MT_TRY(mt__j_contains(r, b, a, out)); break;
    default: return ordered(r, op, a, b, out);
    }
    *out = !*out;
    return MT_OK;
}

static mt_rc contains_text(jrender *r, jval where, jval what, bool *out)
{
    if (what.type != JV_STR) return mt__j_fail(r, "'in <string>' requires string as left operand, not %s", mt__j_type_name(what));
    MT_TRY(mt__j_touch(r, where.n + what.n));
    *out = mt__j_find(where.s, where.n, what.s, what.n);
    return MT_OK;
}

mt_rc mt__j_contains(jrender *r, jval where, jval what, bool *out)
{
    const jval *hit;
    if (where.type == JV_STR) return contains_text(r, where, what, out);
    if (where.type == JV_DICT || (where.type == JV_VIEW && where.view->kind == VIEW_KEYS)) {
        MT_TRY(mt__j_dict_find(r, where.type == JV_DICT ? where.dict : where.view->dict, what, &hit));
        *out = hit;
        return MT_OK;
    }
    jiter it;
    jval item;
    *out = false;
    if (where.type == JV_NONE || mt__j_is_number(where) || where.type == JV_NAMESPACE)
        return mt__j_fail(r, "argument of type '%s' is not iterable", mt__j_type_name(where));
    MT_TRY(mt__j_iterate(r, where, &it));
    for (;;) {
        MT_TRY(mt__j_next(r, &it, &item));
        if (!mt__j_given(item)) return MT_OK;
        MT_TRY(mt__j_equal(r, item, what, out));
        if (*out) return MT_OK;
    }
}

/* Bottom-up merge sort of positions: stable, and errors from comparing leave nothing half moved. */
static mt_rc merge(jrender *r, const jval *keys, const size_t *from, size_t *to, size_t lo, size_t mid, size_t hi, bool reverse)
{
    size_t i = lo, j = mid, k = lo;
    while (i < mid && j < hi) {
        bool take_right;
        jval left = keys[from[i]], right = keys[from[j]];
        MT_TRY(mt__j_less(r, reverse ? left : right, reverse ? right : left, &take_right, "<"));
        to[k++] = take_right ? from[j++] : from[i++];
    }
    while (i < mid) to[k++] = from[i++];
    while (j < hi) to[k++] = from[j++];
    return MT_OK;
}

mt_rc mt__j_sort(jrender *r, jval *keys, jval *items, size_t n, bool reverse)
{
    size_t *order, *other;
    jval *copy;
    MT_TRY(mt__j_new(r, n * sizeof *order, &order));
    MT_TRY(mt__j_new(r, n * sizeof *other, &other));
    MT_TRY(mt__j_new(r, n * sizeof *copy, &copy));
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            MT_TRY(merge(r, keys, order, other, lo, mid, hi, reverse));
        }
        size_t *swap = order;
        order = other;
        other = swap;
    }
    for (size_t i = 0; i < n; i++) copy[i] = items[order[i]];
    if (n) memcpy(items, copy, n * sizeof *items);
    return MT_OK;
}
