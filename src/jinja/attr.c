/* attr.c - value.name and value[index], in the sandbox's order of lookup: a missing attribute is undefined, and only using an
 * undefined value is an error. */
#include "jinja/render.h"

#include "jinja/chars.h"
#include "jinja/method.h"

mt_rc mt__j_use_undefined(jrender *r, jval v)
{
    int n = (int)v.n;
    if (v.of == UNDEFINED_TEXT) return mt__j_fail(r, "%.*s", n, v.s);
    if (!v.of) return mt__j_fail(r, "'%.*s' is undefined", n, v.s);
    const char *type = mt__j_type_name((jval){ .type = v.of - 1 < JV_VIEW ? (uint8_t)(v.of - 1) : JV_NONE });
    if (v.of - 1 >= JV_VIEW) return mt__j_fail(r, "there is no attribute '%.*s'", n, v.s);
    if (v.safe) return mt__j_fail(r, "access to attribute '%.*s' of '%s' object is unsafe.", n, v.s, type);
    return mt__j_fail(r, "'%s object' has no attribute '%.*s'", type, n, v.s);
}

static jval no_attribute(jval v, jval name, bool refused)
{
    jval none = mt__j_undefined("", 0);
    if (name.type == JV_STR) none = mt__j_undefined(name.s, name.n);
    none.of = (uint16_t)(v.type + 1);
    none.safe = refused;
    return none;
}

static mt_rc bound_method(jrender *r, jval v, int row, jval *out)
{
    jmethod *m;
    MT_TRY(mt__j_new(r, sizeof *m, &m));
    *m = (jmethod){ .self = v, .id = row };
    *out = (jval){ .type = JV_METHOD, .method = m };
    return MT_OK;
}

static mt_rc space_attr(jrender *r, jval v, jval name, jval *out)
{
    const jspace *s = v.space;
    MT_TRY(mt__j_look(r, s->n));
    for (size_t i = 0; i < s->n; i++)
        if (mt__j_same_text(s->entries[i].key, name.s, name.n)) return *out = s->entries[i].value, MT_OK;
    *out = no_attribute(v, name, false);
    return MT_OK;
}

static mt_rc macro_attr(jrender *r, jval v, jval name, jval *out)
{
    const jnode *n = v.macro->node;
    if (mt__j_is_text(name, "name")) return *out = n->name.n ? n->name : JV_NONE_VALUE, MT_OK;
    if (mt__j_is_text(name, "catch_kwargs")) return *out = mt__j_bool(n->uses & USES_KWARGS), MT_OK;
    if (mt__j_is_text(name, "catch_varargs")) return *out = mt__j_bool(n->uses & USES_VARARGS), MT_OK;
    if (mt__j_is_text(name, "caller")) return *out = mt__j_bool(n->uses & USES_CALLER), MT_OK;
    if (!mt__j_is_text(name, "arguments")) return *out = no_attribute(v, name, false), MT_OK;
    jval *items;
    MT_TRY(mt__j_new_list(r, JV_TUPLE, n->n_params, out, &items));
    for (uint32_t i = 0; i < n->n_params; i++) items[i] = n->kid[i + 1]->name;
    return MT_OK;
}

static mt_rc cycler_attr(jval v, jval name, jval *out)
{
    const jcycler *c = v.cycler;
    *out = no_attribute(v, name, false);
    if (mt__j_is_text(name, "current")) *out = c->items->items[c->at];
    if (mt__j_is_text(name, "pos")) *out = mt__j_int((int64_t)c->at);
    if (mt__j_is_text(name, "items")) *out = (jval){ .type = JV_TUPLE, .list = c->items };
    return MT_OK;
}

/* Attributes of a value besides methods and keys. */
static mt_rc own_attr(jrender *r, jval v, jval name, jval *out)
{
    switch (v.type) {
    case JV_NAMESPACE: return space_attr(r, v, name, out);
    case JV_LOOP: return mt__j_loop_attr(r, v.loop, name, out);
    case JV_CYCLER: return cycler_attr(v, name, out);
    case JV_MACRO: return macro_attr(r, v, name, out);
    case JV_TUPLE:
        *out = no_attribute(v, name, false);
        if (v.list->named && mt__j_is_text(name, "grouper")) *out = v.list->items[0];
        if (v.list->named && mt__j_is_text(name, "list")) *out = v.list->items[1];
        return MT_OK;
    case JV_RANGE:
        *out = no_attribute(v, name, false);
        if (mt__j_is_text(name, "start")) *out = mt__j_int(v.range->start);
        if (mt__j_is_text(name, "stop")) *out = mt__j_int(v.range->stop);
        if (mt__j_is_text(name, "step")) *out = mt__j_int(v.range->step);
        return MT_OK;
    case JV_INT:
    case JV_BOOL:
        *out = no_attribute(v, name, false);
        if (mt__j_is_text(name, "real") || mt__j_is_text(name, "numerator")) *out = mt__j_int(mt__j_as_int(v));
        if (mt__j_is_text(name, "imag")) *out = mt__j_int(0);
        if (mt__j_is_text(name, "denominator")) *out = mt__j_int(1);
        return MT_OK;
    default: *out = no_attribute(v, name, false); return MT_OK;
    }
}

mt_rc mt__j_getattr(jrender *r, jval v, jval name, int method, jval *out)
{
    if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
    int row = method ? mt__j_method_row(method, v) : -1;
    if (row >= 0) {
        if (!mt__j_methods[row].fn) return *out = no_attribute(v, name, true), MT_OK;
        return bound_method(r, v, row, out);
    }
    if (v.type == JV_DICT) {
        const jval *hit;
        MT_TRY(mt__j_dict_text(r, v.dict, name.s, name.n, &hit));
        *out = hit ? *hit : no_attribute(v, name, false);
        return MT_OK;
    }
    return own_attr(r, v, name, out);
}

/* ---- value[index] ---- */

/* The position of a slice's end: negative ones count from the back. */
static int64_t slice_end(int64_t at, int64_t len, int64_t first, int64_t last)
{
    if (at < -len) return first;
    return mt_clamp_i64(at < 0 ? at + len : at, first, last);
}

/* Where a slice of n items starts, its step, and how many items it has. */
static mt_rc slice_bounds(jrender *r, const jslice *s, size_t n, int64_t *start, int64_t *step, size_t *count)
{
    int64_t len = (int64_t)n;
    *step = s->step.type == JV_NONE ? 1 : mt__j_as_int(s->step);
    if (*step == 0) return mt__j_fail(r, "slice step cannot be zero");
    if (*step < -len - 1) *step = -len - 1; /* further than the whole, and cannot overflow */
    if (*step > len + 1) *step = len + 1;
    int64_t first = *step > 0 ? 0 : -1, last = *step > 0 ? len : len - 1;
    int64_t lo = *step > 0 ? first : last, hi = *step > 0 ? last : first;
    if (s->start.type != JV_NONE) lo = slice_end(mt__j_as_int(s->start), len, first, last);
    if (s->stop.type != JV_NONE) hi = slice_end(mt__j_as_int(s->stop), len, first, last);
    *start = lo;
    int64_t items = *step > 0 ? (hi - lo + *step - 1) / *step : (lo - hi - *step - 1) / -*step;
    *count = items > 0 ? (size_t)items : 0;
    return MT_OK;
}

static mt_rc slice_text(jrender *r, jval v, const jslice *s, jval *out)
{
    bool ascii = mt__j_ascii(v.s, v.n);
    size_t n = ascii ? v.n : mt__j_count(v.s, v.n), count;
    int64_t start, step;
    MT_TRY(slice_bounds(r, s, n, &start, &step, &count));
    if (count == 0) {
        *out = mt__j_text("", 0);
    } else if (step == 1) {
        size_t lo = ascii ? (size_t)start : mt__j_offset(v.s, v.n, (size_t)start);
        size_t hi = ascii ? lo + count : lo + mt__j_offset(v.s + lo, v.n - lo, count);
        *out = mt__j_text(v.s + lo, hi - lo);
    } else {
        size_t mark = mt__j_mark(r);
        uint32_t *starts;
        MT_TRY(mt__j_walk(r, v.n));
        MT_TRY(mt__j_new(r, (n + 1) * sizeof *starts, &starts));
        for (uint32_t i = 0, k = 0; i < v.n; i++)
            if (((unsigned char)v.s[i] & 0xc0) != 0x80) starts[k++] = i;
        starts[n] = v.n;
        for (size_t i = 0; i < count; i++, start += step)
            mt_str_add(r->out, v.s + starts[start], starts[start + 1] - starts[start]);
        MT_TRY(mt__j_cut(r, mark, out));
    }
    out->safe = v.safe;
    return MT_OK;
}

static mt_rc slice_seq(jrender *r, jval v, const jslice *s, jval *out)
{
    int64_t start, step;
    size_t count;
    jval *items;
    MT_TRY(slice_bounds(r, s, v.list->n, &start, &step, &count));
    MT_TRY(mt__j_new_list(r, (jtype)v.type, count, out, &items));
    for (size_t i = 0; i < count; i++) items[i] = v.list->items[start + (int64_t)i * step];
    return MT_OK;
}

static mt_rc slice_range(jrender *r, jval v, const jslice *s, jval *out)
{
    int64_t start, step;
    jrange *g;
    MT_TRY(mt__j_new(r, sizeof *g, &g));
    MT_TRY(slice_bounds(r, s, v.range->n, &start, &step, &g->n));
    if (__builtin_mul_overflow(start, v.range->step, &g->start) || __builtin_add_overflow(v.range->start, g->start, &g->start) ||
        __builtin_mul_overflow(v.range->step, step, &g->step) || __builtin_mul_overflow((int64_t)g->n, g->step, &g->stop) ||
        __builtin_add_overflow(g->start, g->stop, &g->stop))
        return mt__j_fail_rc(r, MT_ERANGE, "an integer that does not fit 64 bits");
    *out = (jval){ .type = JV_RANGE, .range = g };
    return MT_OK;
}

static bool slice_part_ok(jval v) { return v.type == JV_NONE || mt__j_is_integer(v); }

static mt_rc get_slice(jrender *r, jval v, jval index, jval *out)
{
    const jslice *s = index.slice;
    bool ok = slice_part_ok(s->start) && slice_part_ok(s->stop) && slice_part_ok(s->step);
    if (ok && v.type == JV_STR) return slice_text(r, v, s, out);
    if (ok && mt__j_is_seq(v)) return slice_seq(r, v, s, out);
    if (ok && v.type == JV_RANGE) return slice_range(r, v, s, out);
    if (!ok) return mt__j_fail(r, "slice indices must be integers or None or have an __index__ method");
    return mt__j_fail(r, "'%s' object cannot be sliced", mt__j_type_name(v)); /* slices do not fall back to undefined */
}

static void get_at(jval v, int64_t i, jval *out)
{
    size_t count = v.type == JV_STR ? mt__j_count(v.s, v.n) : 0;
    if (v.type == JV_RANGE) count = v.range->n;
    if (v.type != JV_STR && v.type != JV_RANGE) count = v.list->n;
    const int64_t n = (int64_t)count;
    if (i < 0) i += n;
    if (i < 0 || i >= n) {
        *out = no_attribute(v, mt__j_literal("index"), false);
    } else if (v.type == JV_RANGE) {
        *out = mt__j_int(v.range->start + i * v.range->step);
    } else if (v.type == JV_STR) {
        size_t at = mt__j_offset(v.s, v.n, (size_t)i), len;
        mt__j_cp(v.s + at, v.n - at, &len);
        *out = mt__j_text(v.s + at, len);
        out->safe = v.safe;
    } else
        *out = v.list->items[i];
}

mt_rc mt__j_getitem(jrender *r, jval v, jval index, int method, jval *out)
{
    if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
    if (v.type == JV_STR) MT_TRY(mt__j_touch(r, v.n));
    if (index.type == JV_SLICE) return get_slice(r, v, index, out);
    if (v.type == JV_DICT) {
        const jval *hit = NULL;
        bool may_be_key = index.type != JV_LIST && index.type != JV_DICT;
        if (index.type == JV_TUPLE) MT_TRY(mt__j_hashable(r, index, &may_be_key));
        if (index.type == JV_STR)
            MT_TRY(mt__j_dict_text(r, v.dict, index.s, index.n, &hit));
        else if (may_be_key)
            MT_TRY(mt__j_dict_find(r, v.dict, index, &hit));
        if (hit) return *out = *hit, MT_OK;
    } else if (mt__j_is_integer(index) && (mt__j_is_seq(v) || v.type == JV_STR || v.type == JV_RANGE)) {
        get_at(v, mt__j_as_int(index), out);
        return MT_OK;
    }
    if (index.type != JV_STR) return *out = no_attribute(v, index, false), MT_OK;
    return mt__j_getattr(r, v, index, method < 0 ? mt__j_method_id(index) : method, out);
}
