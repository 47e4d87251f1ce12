/* object.c - making values, and what every kind of value can answer: its truth, length and type. */
#include "jinja/render.h"

#include "jinja/chars.h"

const char *mt__j_view_name(const jview *view)
{
    static const char *const names[] = { [VIEW_KEYS] = "dict_keys", [VIEW_VALUES] = "dict_values", [VIEW_ITEMS] = "dict_items" };
    return names[view->kind];
}

const char *mt__j_type_name(jval v)
{
    static const char *const names[] = {
        "missing",     "Undefined", "NoneType",  "bool",  "int",       "float",
        "str",         "list",      "tuple",     "dict",  "dict_keys", "range",
        "generator",   "slice",     "Namespace", "Macro", "function",  "builtin_function_or_method",
        "LoopContext", "Cycler",    "Joiner"
    };
    if (v.type == JV_VIEW) return mt__j_view_name(v.view);
    if (v.type == JV_ITER) return v.iter->what;
    if (mt__j_is_long(v)) return names[JV_INT];
    return names[v.type];
}

bool mt__j_callable(jval v)
{
    switch (v.type) {
    case JV_UNDEFINED:
    case JV_MACRO:
    case JV_FUNC:
    case JV_METHOD:
    case JV_LOOP:
    case JV_JOINER: return true;
    default: return false;
    }
}

mt_rc mt__j_new(jrender *r, size_t bytes, void *out_ptr)
{
    void **out = out_ptr;
    *out = mt_arena_alloc(r->a, bytes);
    if (*out) return MT_OK;
    bool within = bytes < r->a->max_bytes && r->a->total_bytes < r->a->max_bytes - bytes; /* then it is the machine's limit */
    return within ? mt__j_fail_rc(r, MT_ENOMEM, "no memory to render the template") : mt__j_too_much(r);
}

mt_rc mt__j_copy_text(jrender *r, const char *s, size_t n, jval *out)
{
    if (n > UINT32_MAX) return mt__j_fail_rc(r, MT_ERANGE, "a string of more than 4 GiB");
    char *copy;
    MT_TRY(mt__j_new(r, n + 1, &copy));
    if (n) memcpy(copy, s, n);
    copy[n] = '\0';
    *out = mt__j_text(copy, n);
    return MT_OK;
}

mt_rc mt__j_new_list(jrender *r, jtype type, size_t n, jval *out, jval **items)
{
    jlist *list;
    size_t bytes;
    if (!mt_mul_size(n, sizeof(jval), &bytes) || !mt_add_size(bytes, sizeof *list, &bytes)) return mt__j_too_much(r);
    MT_TRY(mt__j_steps(r, n / 4));
    MT_TRY(mt__j_new(r, bytes, &list));
    *list = (jlist){ .n = n, .items = (jval *)(list + 1) };
    *items = list->items;
    *out = (jval){ .type = (uint8_t)type, .list = list };
    return MT_OK;
}

mt_rc mt__j_new_pair(jrender *r, jval a, jval b, jval *out)
{
    jval *items;
    MT_TRY(mt__j_new_list(r, JV_TUPLE, 2, out, &items));
    items[0] = a;
    items[1] = b;
    return MT_OK;
}

mt_rc mt__j_new_dict(jrender *r, size_t cap, jval *out, jdict **dict)
{
    size_t bytes;
    if (!mt_mul_size(cap, sizeof(jentry), &bytes) || !mt_add_size(bytes, sizeof **dict, &bytes)) return mt__j_too_much(r);
    MT_TRY(mt__j_new(r, bytes, dict));
    **dict = (jdict){ .entries = (jentry *)(*dict + 1) };
    *out = (jval){ .type = JV_DICT, .dict = *dict };
    return MT_OK;
}

mt_rc mt__j_hashable(jrender *r, jval v, bool *out)
{
    if (v.type != JV_TUPLE) {
        bool set = v.type == JV_VIEW && v.view->kind != VIEW_VALUES;
        *out = v.type != JV_LIST && v.type != JV_DICT && v.type != JV_SLICE && !set;
        return MT_OK;
    }
    *out = true;
    MT_TRY(mt__j_deeper(r));
    for (size_t i = 0; *out && i < v.list->n; i++) {
        MT_TRY(mt__j_steps(r, 1));
        MT_TRY(mt__j_hashable(r, v.list->items[i], out));
    }
    r->depth--;
    return MT_OK;
}

/* Templates make small dicts, so a scan beats a table; the work is counted against the bound on steps. */
mt_rc mt__j_dict_text(jrender *r, const jdict *d, const char *s, size_t n, const jval **out)
{
    const jval *hit = NULL;
    size_t i = 0;
    for (; i < d->n && !hit; i++) {
        const jval *key = &d->entries[i].key;
        if (key->n == n && key->type == JV_STR && (key->s == s || memcmp(key->s, s, n) == 0)) hit = &d->entries[i].value;
    }
    *out = hit;
    return i < 8 && n < JINJA_BYTES_PER_STEP ? MT_OK : mt__j_steps(r, i / 8 + n / JINJA_BYTES_PER_STEP * i);
}

mt_rc mt__j_dict_find(jrender *r, const jdict *d, jval key, const jval **out)
{
    bool hashable;
    *out = NULL;
    if (key.type == JV_STR) return mt__j_dict_text(r, d, key.s, key.n, out);
    MT_TRY(mt__j_hashable(r, key, &hashable));
    if (!hashable) return mt__j_fail(r, "unhashable type: '%s'", mt__j_type_name(key));
    for (size_t i = 0; i < d->n; i++) {
        bool same;
        MT_TRY(mt__j_equal(r, d->entries[i].key, key, &same));
        if (same) return *out = &d->entries[i].value, MT_OK;
    }
    return MT_OK;
}

mt_rc mt__j_dict_put(jrender *r, jdict *d, jval key, jval value)
{
    const jval *old;
    MT_TRY(mt__j_dict_find(r, d, key, &old));
    if (old)
        *(jval *)(uintptr_t)old = value; /* the dict is still being made, and ours */
    else
        d->entries[d->n++] = (jentry){ .key = key, .value = value };
    return MT_OK;
}

static mt_rc map_from_value(jrender *r, const mt_value *v, jval *out)
{
    jdict *d;
    MT_TRY(mt__j_new_dict(r, v->map.n, out, &d));
    for (size_t i = 0; i < v->map.n; i++) {
        const mt_pair *p = &v->map.pairs[i];
        d->entries[i].key = mt__j_text(p->key, p->key_n);
        MT_TRY(mt__j_from_value(r, &p->value, &d->entries[i].value));
    }
    d->n = v->map.n;
    return MT_OK;
}

/* A long record may take long: each byte of its text adds this many steps to the bound. */
enum { STEPS_PER_CONTEXT_BYTE = 4 };

static mt_rc keep_digits(jrender *r, const char *digits, jval *out)
{
    if (r->n_digits == r->cap_digits) {
        size_t cap = r->cap_digits ? 2 * (size_t)r->cap_digits : 8;
        const char **grown;
        if (cap > UINT32_MAX / 2) return mt__j_too_much(r);
        MT_TRY(mt__j_new(r, cap * sizeof *grown, &grown));
        if (r->n_digits) memcpy(grown, r->digits, r->n_digits * sizeof *grown);
        r->digits = grown;
        r->cap_digits = (uint32_t)cap;
    }
    r->digits[r->n_digits++] = digits;
    out->n = r->n_digits;
    return MT_OK;
}

mt_rc mt__j_from_value(jrender *r, const mt_value *v, jval *out)
{
    jval *items;
    switch (v->type) {
    case MT_VALUE_NULL: *out = JV_NONE_VALUE; return MT_OK;
    case MT_VALUE_BOOL: *out = mt__j_bool(v->b); return MT_OK;
    case MT_VALUE_INT: *out = mt__j_int(v->i); return MT_OK;
    case MT_VALUE_FLOAT: *out = mt__j_float(v->f); return v->digits ? keep_digits(r, v->digits, out) : MT_OK;
    case MT_VALUE_STR:
        if (v->str.n > UINT32_MAX) return mt__j_fail_rc(r, MT_ERANGE, "a string of more than 4 GiB");
        *out = mt__j_text(v->str.s, v->str.n);
        r->steps_left += v->str.n * STEPS_PER_CONTEXT_BYTE;
        return MT_OK;
    case MT_VALUE_LIST:
        MT_TRY(mt__j_deeper(r));
        MT_TRY(mt__j_new_list(r, JV_LIST, v->list.n, out, &items));
        for (size_t i = 0; i < v->list.n; i++) MT_TRY(mt__j_from_value(r, &v->list.items[i], &items[i]));
        r->depth--;
        return MT_OK;
    case MT_VALUE_MAP:
        MT_TRY(mt__j_deeper(r));
        MT_TRY(map_from_value(r, v, out));
        r->depth--;
        return MT_OK;
    }
    return MT_OK;
}

mt_rc mt__j_truth(jrender *r, jval v, bool *out)
{
    int64_t n;
    switch (v.type) {
    case JV_MISSING:
    case JV_UNDEFINED:
    case JV_NONE: *out = false; return MT_OK;
    case JV_BOOL: *out = v.b; return MT_OK;
    case JV_INT: *out = v.i != 0; return MT_OK;
    case JV_FLOAT: *out = v.f != 0; return MT_OK;
    case JV_STR: *out = v.n != 0; return MT_OK;
    case JV_LIST:
    case JV_TUPLE: *out = v.list->n != 0; return MT_OK;
    case JV_DICT: *out = v.dict->n != 0; return MT_OK;
    case JV_VIEW:
    case JV_RANGE:
    case JV_LOOP:
        MT_TRY(mt__j_length(r, v, &n));
        *out = n != 0;
        return MT_OK;
    default: *out = true; return MT_OK;
    }
}

mt_rc mt__j_length(jrender *r, jval v, int64_t *out)
{
    jval length;
    switch (v.type) {
    case JV_UNDEFINED: *out = 0; return MT_OK;
    case JV_STR: *out = (int64_t)mt__j_count(v.s, v.n); return mt__j_touch(r, v.n);
    case JV_LIST:
    case JV_TUPLE: *out = (int64_t)v.list->n; return MT_OK;
    case JV_DICT: *out = (int64_t)v.dict->n; return MT_OK;
    case JV_VIEW: *out = (int64_t)v.view->dict->n; return MT_OK;
    case JV_RANGE: *out = (int64_t)v.range->n; return MT_OK;
    case JV_LOOP:
        MT_TRY(mt__j_loop_attr(r, v.loop, mt__j_literal("length"), &length));
        *out = length.i;
        return MT_OK;
    default: return mt__j_fail(r, "object of type '%s' has no len()", mt__j_type_name(v));
    }
}
