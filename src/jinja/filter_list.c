/* filter_list.c - filters over whole sequences. */
#include "jinja/filter.h"

#include "jinja/method.h"

#define FILTER(name) mt_rc name(jrender *r, jval v, const jval *a, const jargs *args, jval *out)
#define UNUSED_ARGS  (void)a, (void)args

static mt_rc flag(jrender *r, jval v, bool *out)
{
    *out = false;
    return mt__j_given(v) ? mt__j_truth(r, v, out) : MT_OK;
}

static mt_rc fold_case(jrender *r, jval v, bool case_sensitive, jval *out)
{
    *out = v;
    return case_sensitive || v.type != JV_STR ? MT_OK : mt__j_change_case(r, v, false, out);
}

static mt_rc make_list(jrender *r, const jval *from, size_t n, jval *out)
{
    jval *items;
    MT_TRY(mt__j_new_list(r, JV_LIST, n, out, &items));
    if (n) memcpy(items, from, n * sizeof *items);
    return MT_OK;
}

static mt_rc next_of_list(jrender *r, jiter *it, jval *out)
{
    (void)r;
    *out = it->at < it->over.list->n ? it->over.list->items[it->at++] : (jval){ 0 };
    return MT_OK;
}

/* A generator over items that are already there. */
static mt_rc as_generator(jrender *r, jval list, const char *what, jval *out)
{
    return mt__j_new_iter(r, next_of_list, list, NULL, what, out);
}

FILTER(mt__j_f_length)
{
    UNUSED_ARGS;
    int64_t n;
    MT_TRY(mt__j_length(r, v, &n));
    *out = mt__j_int(n);
    return MT_OK;
}

FILTER(mt__j_f_list)
{
    UNUSED_ARGS;
    return mt__j_collect(r, v, out);
}

FILTER(mt__j_f_first)
{
    UNUSED_ARGS;
    jiter it;
    MT_TRY(mt__j_iterate(r, v, &it));
    MT_TRY(mt__j_next(r, &it, out));
    if (!mt__j_given(*out)) *out = mt__j_undefined_because("No first item, sequence was empty.");
    return MT_OK;
}

static bool reversible(jval v)
{
    return mt__j_is_seq(v) || v.type == JV_STR || v.type == JV_DICT || v.type == JV_VIEW || v.type == JV_RANGE ||
           v.type == JV_UNDEFINED;
}

FILTER(mt__j_f_last)
{
    UNUSED_ARGS;
    jval list;
    if (!reversible(v)) return mt__j_fail(r, "'%s' object is not reversible", mt__j_type_name(v));
    if (v.type == JV_STR && v.n) return mt__j_getitem(r, v, mt__j_int(-1), -1, out);
    MT_TRY(mt__j_collect(r, v, &list));
    *out = list.list->n ? list.list->items[list.list->n - 1] : mt__j_undefined_because("No last item, sequence was empty.");
    return MT_OK;
}

FILTER(mt__j_f_reverse)
{
    UNUSED_ARGS;
    jval list, turned, *to;
    if (v.type == JV_STR) {
        jslice *s;
        MT_TRY(mt__j_new(r, sizeof *s, &s));
        *s = (jslice){ .start = JV_NONE_VALUE, .stop = JV_NONE_VALUE, .step = mt__j_int(-1) };
        return mt__j_getitem(r, v, (jval){ .type = JV_SLICE, .slice = s }, -1, out);
    }
    MT_TRY(mt__j_collect(r, v, &list));
    MT_TRY(mt__j_new_list(r, JV_LIST, list.list->n, &turned, &to));
    for (size_t i = 0; i < list.list->n; i++) to[i] = list.list->items[list.list->n - 1 - i];
    if (!reversible(v)) return *out = turned, MT_OK; /* a generator cannot be walked backwards: Jinja makes a list */
    return as_generator(r, turned, "list_reverseiterator", out);
}

FILTER(mt__j_f_unique)
{
    (void)args;
    bool exact;
    jval list, *keys, *kept, tmp;
    MT_TRY(flag(r, a[0], &exact));
    MT_TRY(mt__j_collect(r, v, &list));
    MT_TRY(mt__j_new_list(r, JV_LIST, list.list->n, &tmp, &keys));
    MT_TRY(mt__j_new_list(r, JV_LIST, list.list->n, &tmp, &kept));
    size_t n = 0;
    for (size_t i = 0; i < list.list->n; i++) {
        jval key;
        bool seen = false, hashable;
        MT_TRY(mt__j_follow(r, list.list->items[i], a[1], &key));
        MT_TRY(fold_case(r, key, exact, &key));
        MT_TRY(mt__j_hashable(r, key, &hashable));
        if (!hashable) return mt__j_fail(r, "unhashable type: '%s'", mt__j_type_name(key));
        for (size_t k = 0; k < n && !seen; k++) MT_TRY(mt__j_equal(r, keys[k], key, &seen));
        if (!seen) keys[n] = key, kept[n++] = list.list->items[i];
    }
    MT_TRY(make_list(r, kept, n, &list));
    return as_generator(r, list, "generator", out);
}

static mt_rc want_count(jrender *r, jval v, int64_t *out)
{
    if (!mt__j_is_integer(v)) return mt__j_fail(r, "a whole number was expected, not %s", mt__j_type_name(v));
    *out = mt__j_as_int(v);
    return MT_OK;
}

FILTER(mt__j_f_batch)
{
    (void)args;
    int64_t per = 0;
    jval list, rows, *row;
    MT_TRY(want_count(r, a[0], &per));
    MT_TRY(mt__j_collect(r, v, &list));
    size_t n = list.list->n;
    if (per <= 0) { /* never full (or full before the first): one row, in front of it an empty one for 0 */
        jval empty;
        size_t n_rows = n ? 1 + (per == 0) : 0;
        MT_TRY(mt__j_new_list(r, JV_LIST, n_rows, &rows, &row));
        MT_TRY(make_list(r, NULL, 0, &empty));
        if (n_rows == 2) row[0] = empty;
        if (n_rows) row[n_rows - 1] = list;
        return as_generator(r, rows, "generator", out);
    }
    size_t width = (size_t)per, n_rows = n / width + (n % width != 0);
    bool fill = mt__j_given(a[1]) && a[1].type != JV_NONE;
    MT_TRY(mt__j_new_list(r, JV_LIST, n_rows, &rows, &row));
    for (size_t i = 0; i < n_rows; i++) {
        size_t have = n - i * width < width ? n - i * width : width;
        jval *items;
        MT_TRY(mt__j_new_list(r, JV_LIST, fill ? width : have, &row[i], &items));
        for (size_t k = 0; k < (fill ? width : have); k++) items[k] = k < have ? list.list->items[i * width + k] : a[1];
    }
    return as_generator(r, rows, "generator", out);
}

FILTER(mt__j_f_slice)
{
    (void)args;
    int64_t slices = 0;
    jval list, rows, *row;
    MT_TRY(want_count(r, a[0], &slices));
    MT_TRY(mt__j_collect(r, v, &list));
    if (slices == 0) return mt__j_fail(r, "division by zero");
    if (slices < 0) slices = 0;
    if (slices > 1000000) return mt__j_fail_rc(r, MT_ERANGE, "more than a million slices");
    size_t n = list.list->n, count = (size_t)slices, per = count ? n / count : 0, extra = count ? n % count : 0, at = 0;
    bool fill = mt__j_given(a[1]) && a[1].type != JV_NONE;
    MT_TRY(mt__j_new_list(r, JV_LIST, count, &rows, &row));
    for (size_t i = 0; i < count; i++) {
        size_t have = per + (i < extra);
        bool padded = fill && i >= extra;
        jval *items;
        MT_TRY(mt__j_new_list(r, JV_LIST, have + padded, &row[i], &items));
        for (size_t k = 0; k < have; k++) items[k] = list.list->items[at++];
        if (padded) items[have] = a[1];
    }
    return as_generator(r, rows, "generator", out);
}

static mt_rc item_pairs(jrender *r, const jdict *d, jval *out)
{
    jval *items;
    MT_TRY(mt__j_new_list(r, JV_LIST, d->n, out, &items));
    for (size_t i = 0; i < d->n; i++) MT_TRY(mt__j_new_pair(r, d->entries[i].key, d->entries[i].value, &items[i]));
    return MT_OK;
}

/* Wrong values fail when the generator is walked, as Python's does; `over` keeps the value until then. */
static mt_rc next_item(jrender *r, jiter *it, jval *out)
{
    *out = (jval){ 0 };
    if (it->over.type == JV_UNDEFINED) return MT_OK;
    if (it->over.type != JV_DICT) return mt__j_fail(r, "Can only get item pairs from a mapping.");
    const jdict *d = it->over.dict;
    if (it->at >= d->n) return MT_OK;
    const jentry *e = &d->entries[it->at++];
    return mt__j_new_pair(r, e->key, e->value, out);
}

FILTER(mt__j_f_items)
{
    UNUSED_ARGS;
    return mt__j_new_iter(r, next_item, v, NULL, "generator", out);
}

FILTER(mt__j_f_dictsort)
{
    (void)args;
    bool exact, reverse;
    jval pairs, keys_list, *keys;
    MT_TRY(flag(r, a[0], &exact));
    MT_TRY(flag(r, a[2], &reverse));
    bool by_value = mt__j_given(a[1]) && mt__j_is_text(a[1], "value");
    if (mt__j_given(a[1]) && !by_value && !mt__j_is_text(a[1], "key"))
        return mt__j_fail(r, "You can only sort by either \"key\" or \"value\"");
    if (v.type == JV_UNDEFINED) return mt__j_use_undefined(r, v);
    if (v.type != JV_DICT) return mt__j_fail(r, "dictsort wants a mapping, not %s", mt__j_type_name(v));
    MT_TRY(item_pairs(r, v.dict, &pairs));
    MT_TRY(mt__j_new_list(r, JV_LIST, v.dict->n, &keys_list, &keys));
    for (size_t i = 0; i < v.dict->n; i++) {
        const jentry *e = &v.dict->entries[i];
        MT_TRY(fold_case(r, by_value ? e->value : e->key, exact, &keys[i]));
    }
    MT_TRY(mt__j_sort(r, keys, pairs.list->items, v.dict->n, reverse));
    *out = pairs;
    return MT_OK;
}

/* The key of one item: a list with one entry for each comma-separated path. */
static mt_rc sort_key(jrender *r, jval item, jval attribute, bool exact, jval *out)
{
    if (!mt__j_given(attribute) || attribute.type != JV_STR || !memchr(attribute.s, ',', attribute.n)) {
        MT_TRY(mt__j_follow(r, item, attribute, out));
        return fold_case(r, *out, exact, out);
    }
    jval paths, *keys;
    const jval comma[2] = { mt__j_literal(","), { 0 } };
    MT_TRY(mt__j_str_split(r, attribute, comma, NULL, &paths));
    MT_TRY(mt__j_new_list(r, JV_LIST, paths.list->n, out, &keys));
    for (size_t i = 0; i < paths.list->n; i++) {
        MT_TRY(mt__j_follow(r, item, paths.list->items[i], &keys[i]));
        MT_TRY(fold_case(r, keys[i], exact, &keys[i]));
    }
    return MT_OK;
}

FILTER(mt__j_f_sort)
{
    (void)args;
    bool reverse, exact;
    jval list, keys_list, *keys;
    MT_TRY(flag(r, a[0], &reverse));
    MT_TRY(flag(r, a[1], &exact));
    MT_TRY(mt__j_collect(r, v, &list));
    size_t n = list.list->n;
    MT_TRY(make_list(r, list.list->items, n, out));
    MT_TRY(mt__j_new_list(r, JV_LIST, n, &keys_list, &keys));
    for (size_t i = 0; i < n; i++) MT_TRY(sort_key(r, list.list->items[i], a[2], exact, &keys[i]));
    return mt__j_sort(r, keys, out->list->items, n, reverse);
}

static mt_rc extreme(jrender *r, jval v, const jval *a, bool want_max, jval *out)
{
    bool exact, better;
    jiter it;
    jval item, key, best;
    MT_TRY(flag(r, a[0], &exact));
    MT_TRY(mt__j_iterate(r, v, &it));
    *out = mt__j_undefined_because("No aggregated item, sequence was empty.");
    for (bool first = true;; first = false) {
        MT_TRY(mt__j_next(r, &it, &item));
        if (!mt__j_given(item)) return MT_OK;
        MT_TRY(mt__j_follow(r, item, a[1], &key));
        MT_TRY(fold_case(r, key, exact, &key));
        if (!first) MT_TRY(mt__j_less(r, want_max ? best : key, want_max ? key : best, &better, want_max ? ">" : "<"));
        if (first || better) best = key, *out = item;
    }
}

FILTER(mt__j_f_min) { return (void)args, extreme(r, v, a, false, out); }
FILTER(mt__j_f_max) { return (void)args, extreme(r, v, a, true, out); }

FILTER(mt__j_f_sum)
{
    (void)args;
    jiter it;
    jval item, total = mt__j_given(a[1]) ? a[1] : mt__j_int(0);
    if (total.type == JV_STR) return mt__j_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    MT_TRY(mt__j_iterate(r, v, &it));
    for (;;) {
        MT_TRY(mt__j_next(r, &it, &item));
        if (!mt__j_given(item)) return *out = total, MT_OK;
        MT_TRY(mt__j_follow(r, item, a[0], &item));
        MT_TRY(mt__j_binary(r, OP_ADD, total, item, &total));
    }
}

static mt_rc group_key(jrender *r, jval item, const jval *a, bool exact, jval *raw, jval *key)
{
    MT_TRY(mt__j_follow(r, item, a[0], raw));
    if (raw->type == JV_UNDEFINED && mt__j_given(a[1]) && a[1].type != JV_NONE) *raw = a[1];
    return fold_case(r, *raw, exact, key);
}

FILTER(mt__j_f_groupby)
{
    (void)args;
    bool exact, same;
    jval list, sorted, tmp, *keys, *groups, raw;
    MT_TRY(flag(r, a[2], &exact));
    MT_TRY(mt__j_collect(r, v, &list));
    size_t n = list.list->n, n_groups = 0;
    MT_TRY(make_list(r, list.list->items, n, &sorted));
    MT_TRY(mt__j_new_list(r, JV_LIST, n, &tmp, &keys));
    for (size_t i = 0; i < n; i++) MT_TRY(group_key(r, list.list->items[i], a, exact, &raw, &keys[i]));
    MT_TRY(mt__j_sort(r, keys, sorted.list->items, n, false));
    MT_TRY(mt__j_new_list(r, JV_LIST, n, &tmp, &groups));
    for (size_t from = 0, to; from < n; from = to) {
        jval key, next, first_raw, members;
        MT_TRY(group_key(r, sorted.list->items[from], a, exact, &first_raw, &key));
        for (to = from + 1; to < n; to++) {
            MT_TRY(group_key(r, sorted.list->items[to], a, exact, &raw, &next));
            MT_TRY(mt__j_equal(r, key, next, &same));
            if (!same) break;
        }
        MT_TRY(make_list(r, sorted.list->items + from, to - from, &members));
        MT_TRY(mt__j_new_pair(r, first_raw, members, &groups[n_groups]));
        ((jlist *)(uintptr_t)groups[n_groups++].list)->named = true; /* made just now, and ours */
    }
    return make_list(r, groups, n_groups, out);
}
