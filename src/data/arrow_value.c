/* arrow_value.c - one value of an Arrow array.  Whatever the buffers say about other places is checked here. */
#include "base/le.h"
#include "data/arrow.h"

#include <string.h>

enum { MAX_VALUES = 1 << 24, MAX_BYTES = 1 << 30, MAX_DEPTH = 96 };

static mt_rc arrow_value_bad(const ar_row *r, const ar_array *a, const char *message)
{
    return mt_fail(r->err, MT_EFORMAT, "%s: column \"%s\": %s", r->src->path, a->field->name, message);
}

static bool bit(const uint8_t *bits, int64_t i) { return bits[i / 8] >> i % 8 & 1; }

static int64_t load_int(const uint8_t *p, size_t width, bool is_unsigned)
{
    uint64_t u = *p;
    if (width == 2) u = mt__le16(p);
    if (width == 4) u = mt__le32(p);
    if (width == 8) u = mt__le64(p);
    if (is_unsigned || width == 8) return (int64_t)u;
    int shift = (int)(64 - 8 * width);
    return (int64_t)(u << shift) >> shift;
}

static int64_t int_at(const ar_bytes *b, int64_t i, size_t width) { return load_int(b->p + (size_t)i * width, width, false); }

static mt_rc bytes_value(ar_row *r, const ar_array *a, const uint8_t *p, size_t n, bool in_file, mt_value *out)
{
    const char *trouble = NULL;
    if (n > MAX_BYTES - r->n_bytes) return arrow_value_bad(r, a, "a record of more than 1 GiB");
    r->n_bytes += n;
    if (!mt__scalar_from_bytes(out, &a->field->scalar, p, n, in_file, r->arena, &trouble))
        return mt_no_memory(r->err, "a record of %s", r->src->path);
    if (trouble && !r->trouble) r->trouble = trouble, r->trouble_column = a->field->name;
    return MT_OK;
}

/* [*from, *to) of item i, inside `limit` items. */
static mt_rc range_at(const ar_row *r, const ar_array *a, int64_t i, int64_t limit, int64_t *from, int64_t *to)
{
    size_t w = a->field->width;
    *from = int_at(&a->main, i, w);
    if (a->field->kind != AR_LIST_VIEW)
        *to = int_at(&a->main, i + 1, w);
    else if (__builtin_add_overflow(*from, int_at(&a->data, i, w), to))
        return arrow_value_bad(r, a, "a list that reaches past its items");
    if (*from < 0 || *to < *from || *to > limit) return arrow_value_bad(r, a, "offsets that reach past the data");
    return MT_OK;
}

/* A view: length, then up to twelve bytes, or four of them, a buffer's number and an offset. */
static mt_rc view_value(ar_row *r, const ar_array *a, int64_t i, mt_value *out)
{
    const uint8_t *view = a->main.p + (size_t)i * 16;
    int64_t n = load_int(view, 4, false), which = load_int(view + 8, 4, false), at = load_int(view + 12, 4, false);
    if (n < 0) return arrow_value_bad(r, a, "a string of negative length");
    if (n <= 12) return bytes_value(r, a, view + 4, (size_t)n, a->main.in_file, out);
    if (which < 0 || (uint64_t)which >= a->n_variadic || at < 0 || (uint64_t)at > a->variadic[which].n ||
        (uint64_t)n > a->variadic[which].n - (uint64_t)at)
        return arrow_value_bad(r, a, "a string outside its buffers");
    return bytes_value(r, a, a->variadic[which].p + at, (size_t)n, a->variadic[which].in_file, out);
}

static mt_rc string_value(ar_row *r, const ar_array *a, int64_t i, mt_value *out)
{
    int64_t from, to;
    MT_TRY(range_at(r, a, i, (int64_t)a->data.n, &from, &to));
    return bytes_value(r, a, a->data.p + from, (size_t)(to - from), a->data.in_file, out);
}

static mt_rc int_value(ar_row *r, const ar_array *a, int64_t i, mt_value *out)
{
    int64_t v = load_int(a->main.p + (size_t)i * a->field->width, a->field->width, a->field->is_unsigned);
    return mt__scalar_from_int(out, &a->field->scalar, v, r->arena) ? MT_OK
                                                                    : mt_no_memory(r->err, "a record of %s", r->src->path);
}

static mt_value float_value(const ar_array *a, int64_t i)
{
    const uint8_t *p = a->main.p + (size_t)i * a->field->width;
    return mt__scalar_float(a->field->width == 4 ? (double)mt__le_f32(p) : mt__le_f64(p));
}

static mt_rc struct_value(ar_row *r, const ar_array *a, int64_t i, mt_value *out)
{
    const ar_field *f = a->field;
    mt_pair *pairs = mt_arena_calloc(r->arena, f->n_children, sizeof *pairs);
    if (!pairs) return mt_no_memory(r->err, "a record of %s", r->src->path);
    size_t n = 0;
    for (size_t k = 0; k < f->n_children; k++) {
        if (r->depth == 1 && !f->children[k].wanted) continue; /* the root */
        pairs[n] = (mt_pair){ .key = f->children[k].name, .key_n = f->children[k].name_n };
        MT_TRY(mt__ar_value(r, &a->children[k], i, &pairs[n++].value));
    }
    *out = (mt_value){ .type = MT_VALUE_MAP };
    out->map.pairs = pairs;
    out->map.n = n;
    return MT_OK;
}

static mt_rc items_value(ar_row *r, const ar_array *items, int64_t from, int64_t to, mt_value *out)
{
    if (to - from > MAX_VALUES - (int64_t)r->n_values) return arrow_value_bad(r, items, "a record of more than 16777216 values");
    mt_value *list = mt_arena_calloc(r->arena, (size_t)(to - from), sizeof *list);
    if (!list) return mt_no_memory(r->err, "a record of %s", r->src->path);
    for (int64_t i = from; i < to; i++) MT_TRY(mt__ar_value(r, items, i, &list[i - from]));
    *out = (mt_value){ .type = MT_VALUE_LIST };
    out->list.items = list;
    out->list.n = (size_t)(to - from);
    return MT_OK;
}

static mt_rc map_value(ar_row *r, const ar_array *entries, int64_t from, int64_t to, mt_value *out)
{
    if (to - from > (MAX_VALUES - (int64_t)r->n_values) / 2)
        return arrow_value_bad(r, entries, "a record of more than 16777216 values");
    mt_value *list = mt_arena_calloc(r->arena, (size_t)(to - from), 2 * sizeof *list);
    if (!list) return mt_no_memory(r->err, "a record of %s", r->src->path);
    for (int64_t i = from; i < to; i++) {
        MT_TRY(mt__ar_value(r, &entries->children[0], i, &list[2 * (i - from)]));
        MT_TRY(mt__ar_value(r, &entries->children[1], i, &list[2 * (i - from) + 1]));
    }
    return mt__map_from_items(out, list, (size_t)(to - from), r->arena) ? MT_OK
                                                                        : mt_no_memory(r->err, "a record of %s", r->src->path);
}

static mt_rc list_value(ar_row *r, const ar_array *a, int64_t i, mt_value *out)
{
    int64_t from, to;
    const ar_array *items = &a->children[0];
    if (a->field->kind == AR_FIXED_LIST) {
        from = i * a->field->list_size; /* checked when the batch was loaded */
        return items_value(r, items, from, from + a->field->list_size, out);
    }
    MT_TRY(range_at(r, a, i, items->length, &from, &to));
    return a->field->kind == AR_MAP ? map_value(r, items, from, to, out) : items_value(r, items, from, to, out);
}

static mt_rc dictionary_value(ar_row *r, const ar_array *a, int64_t i, mt_value *out)
{
    int64_t index = load_int(a->main.p + (size_t)i * a->field->index_width, a->field->index_width, a->field->index_unsigned);
    for (size_t k = 0; k < r->n_dictionaries; k++) {
        const ar_dictionary *d = &r->dictionaries[k];
        for (size_t c = 0; d->id == a->field->dictionary && index >= 0 && c < d->n_chunks; c++) {
            if (index < d->chunks[c].root.length) return mt__ar_value(r, &d->chunks[c].root, index, out);
            index -= d->chunks[c].root.length;
        }
    }
    return arrow_value_bad(r, a, "an index that its dictionary does not have");
}

static mt_rc present_value(ar_row *r, const ar_array *a, int64_t i, mt_value *out)
{
    switch (a->field->kind) {
    case AR_NULL: return MT_OK;
    case AR_BOOL: *out = (mt_value){ .type = MT_VALUE_BOOL, .b = bit(a->main.p, i) }; return MT_OK;
    case AR_INT: return int_value(r, a, i, out);
    case AR_FLOAT: *out = float_value(a, i); return MT_OK;
    case AR_BYTES: return string_value(r, a, i, out);
    case AR_VIEW: return view_value(r, a, i, out);
    case AR_FIXED: return bytes_value(r, a, a->main.p + (size_t)i * a->field->width, a->field->width, a->main.in_file, out);
    case AR_STRUCT: return struct_value(r, a, i, out);
    default: return list_value(r, a, i, out);
    }
}

mt_rc mt__ar_value(ar_row *r, const ar_array *a, int64_t i, mt_value *out)
{
    *out = (mt_value){ 0 };
    if (i >= a->length) return arrow_value_bad(r, a, "fewer values than rows");
    if (++r->n_values > MAX_VALUES) return arrow_value_bad(r, a, "a record of more than 16777216 values");
    if (a->validity && !bit(a->validity, i)) return MT_OK;
    if (++r->depth > MAX_DEPTH) return arrow_value_bad(r, a, "values nested too deep (do dictionaries refer to each other?)");
    MT_TRY(a->indices ? dictionary_value(r, a, i, out) : present_value(r, a, i, out));
    r->depth--;
    return MT_OK;
}
