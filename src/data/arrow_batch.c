/* arrow_batch.c - a RecordBatch message becomes a tree of arrays.
 *
 * The message lists, in the order of a walk through the fields, a node (length, nulls) per field and the buffers of each.
 * Compressed buffers are unpacked here; those of columns that are not requested are skipped. */
#include "base/le.h"
#include "data/arrow.h"

#include <string.h>

/* What one batch may unpack to. */
#define MAX_BATCH_BYTES ((size_t)4 << 30)

typedef struct loader {
    ar_batch *batch;
    mt_flat_vector nodes, buffers, variadic_counts;
    size_t next_node, next_buffer, next_variadic;
    const uint8_t *body;
    size_t body_n;
    bool compressed;
    mt_codec codec;
    size_t unpacked; /* bytes that have been, as they are in the file */
    const mt_record_bytes *src;
    mt_err *err;
} loader;

static mt_rc arrow_batch_bad(const loader *l, const ar_field *f, const char *message)
{
    return mt_fail(l->err, MT_EFORMAT, "%s: Arrow batch: column \"%s\": %s", l->src->path, f->name, message);
}

/* A compressed buffer: its unpacked length in 8 bytes (-1: it is not compressed after all), then the data. */
static mt_rc arrow_batch_unpack(loader *l, const ar_field *f, ar_bytes *b)
{
    if (b->n < 8) return arrow_batch_bad(l, f, "a compressed buffer is cut off");
    int64_t whole = (int64_t)mt__le64(b->p);
    b->p += 8;
    b->n -= 8;
    if (whole == -1) return MT_OK;
    if (whole < 0 || whole > MT_CODEC_MAX_BYTES) return arrow_batch_bad(l, f, "a buffer that would unpack to more than 1 GiB");
    /* Buffers that overlap could unpack the same bytes again and again. */
    l->unpacked += b->n;
    if (!mt__codec_can_unpack(l->codec, b->n, (size_t)whole) || l->unpacked > l->body_n)
        return arrow_batch_bad(l, f, "a buffer that would unpack to more than its bytes can hold");
    uint8_t *out = mt_arena_alloc(&l->batch->arena, (size_t)whole);
    if (!out) return mt_no_memory(l->err, "a batch of %s", l->src->path);
    if (mt__decompress(l->codec, b->p, b->n, out, (size_t)whole, l->err))
        return mt_note(l->err, "%s: column \"%s\"", l->src->path, f->name);
    *b = (ar_bytes){ .p = out, .n = (size_t)whole };
    return MT_OK;
}

/* The next buffer; NULL in out: pass it over. */
static mt_rc take_buffer(loader *l, const ar_field *f, ar_bytes *out)
{
    if (l->next_buffer >= l->buffers.n) return arrow_batch_bad(l, f, "fewer buffers than the schema needs");
    size_t i = l->next_buffer++;
    int64_t at = mt__flat_item_int(l->buffers, i, 0, 8), n = mt__flat_item_int(l->buffers, i, 8, 8);
    if (!out) return MT_OK;
    if (at < 0 || n < 0 || (uint64_t)at > l->body_n || (uint64_t)n > l->body_n - (uint64_t)at)
        return arrow_batch_bad(l, f, "a buffer reaches past its batch");
    *out = (ar_bytes){ .p = l->body + at, .n = (size_t)n, .in_file = true };
    return l->compressed && n ? arrow_batch_unpack(l, f, out) : MT_OK;
}

/* The same, and it must hold n items of `size` bytes. */
static mt_rc take_items(loader *l, const ar_field *f, ar_bytes *out, int64_t n, size_t item_bytes)
{
    size_t need;
    MT_TRY(take_buffer(l, f, out));
    if (!out) return MT_OK;
    if (!mt_mul_size((size_t)n, item_bytes, &need) || out->n < need)
        return arrow_batch_bad(l, f, "a buffer is smaller than its rows need");
    return MT_OK;
}

static mt_rc take_validity(loader *l, ar_array *a, bool wanted, int64_t n_nulls)
{
    ar_bytes bits;
    if (!wanted) return take_buffer(l, a->field, NULL);
    MT_TRY(take_buffer(l, a->field, &bits));
    if (bits.n == 0) return n_nulls == 0 || a->length == 0 ? MT_OK : arrow_batch_bad(l, a->field, "nulls without a bitmap");
    if (bits.n < ((uint64_t)a->length + 7) / 8) return arrow_batch_bad(l, a->field, "a bitmap is smaller than its rows need");
    a->validity = bits.p;
    return MT_OK;
}

static mt_rc take_view_buffers(loader *l, ar_array *a, bool wanted)
{
    if (l->next_variadic >= l->variadic_counts.n) return arrow_batch_bad(l, a->field, "views without a count of their buffers");
    int64_t n = mt__flat_item_int(l->variadic_counts, l->next_variadic++, 0, 8);
    if (n < 0 || (uint64_t)n > l->buffers.n - l->next_buffer)
        return arrow_batch_bad(l, a->field, "fewer buffers than the schema needs");
    a->variadic = mt_arena_calloc(&l->batch->arena, (size_t)n, sizeof *a->variadic);
    if (!a->variadic) return mt_no_memory(l->err, "a batch of %s", l->src->path);
    for (; a->n_variadic < (size_t)n; a->n_variadic++)
        MT_TRY(take_buffer(l, a->field, wanted ? &a->variadic[a->n_variadic] : NULL));
    return MT_OK;
}

/* Empty arrays may lack the one offset they should have. */
static mt_rc take_offsets(loader *l, ar_array *a, bool wanted)
{
    return take_items(l, a->field, wanted ? &a->main : NULL, a->length ? a->length + 1 : 0, a->field->width);
}

static mt_rc take_buffers(loader *l, ar_array *a, bool wanted)
{
    const ar_field *f = a->field;
    ar_bytes *main = wanted ? &a->main : NULL, *data = wanted ? &a->data : NULL;
    if (a->indices) return take_items(l, f, main, a->length, f->index_width);
    switch (f->kind) {
    case AR_BOOL: return take_items(l, f, main, (a->length + 7) / 8, 1);
    case AR_INT:
    case AR_FLOAT:
    case AR_FIXED: return take_items(l, f, main, a->length, f->width);
    case AR_BYTES: MT_TRY(take_offsets(l, a, wanted)); return take_buffer(l, f, data);
    case AR_VIEW: MT_TRY(take_items(l, f, main, a->length, 16)); return take_view_buffers(l, a, wanted);
    case AR_LIST:
    case AR_MAP: return take_offsets(l, a, wanted);
    case AR_LIST_VIEW: MT_TRY(take_items(l, f, main, a->length, f->width)); return take_items(l, f, data, a->length, f->width);
    default: return MT_OK;
    }
}

static mt_rc load_array(loader *l, ar_array *a, const ar_field *f, bool values, bool wanted);

/* A child that a value's place in it follows from must be long enough for all of them. */
static mt_rc check_children(const loader *l, const ar_array *a)
{
    const ar_field *f = a->field;
    for (size_t i = 0; f->kind == AR_STRUCT && i < f->n_children; i++)
        if (a->children[i].length < a->length) return arrow_batch_bad(l, f, "a field with fewer rows than its struct");
    int64_t need;
    if (f->kind == AR_FIXED_LIST && (__builtin_mul_overflow(a->length, f->list_size, &need) || a->children[0].length < need))
        return arrow_batch_bad(l, f, "fewer items than its lists need");
    return MT_OK;
}

static mt_rc load_children(loader *l, ar_array *a, bool wanted)
{
    a->children = mt_arena_calloc(&l->batch->arena, a->field->n_children, sizeof *a->children);
    if (!a->children) return mt_no_memory(l->err, "a batch of %s", l->src->path);
    for (size_t i = 0; i < a->field->n_children; i++)
        MT_TRY(load_array(l, &a->children[i], &a->field->children[i], false, wanted));
    return check_children(l, a);
}

static mt_rc load_array(loader *l, ar_array *a, const ar_field *f, bool values, bool wanted)
{
    *a = (ar_array){ .field = f, .indices = f->encoded && !values };
    if (l->next_node >= l->nodes.n) return arrow_batch_bad(l, f, "fewer columns than the schema has");
    size_t i = l->next_node++;
    a->length = mt__flat_item_int(l->nodes, i, 0, 8);
    int64_t n_nulls = mt__flat_item_int(l->nodes, i, 8, 8);
    if (a->length < 0 || a->length > INT64_MAX / 64) return arrow_batch_bad(l, f, "a length that makes no sense");
    if (f->kind == AR_NULL && !a->indices) return MT_OK; /* no buffers at all */
    MT_TRY(take_validity(l, a, wanted, n_nulls));
    MT_TRY(take_buffers(l, a, wanted));
    return a->indices ? MT_OK : load_children(l, a, wanted);
}

static mt_rc find_codec(loader *l, mt_flat_table batch)
{
    mt_flat_table compression = mt__flat_child(batch, 3);
    if (!compression.at) return MT_OK;
    int64_t codec = mt__flat_int(compression, 0, 1, 0);
    if (codec != 0 && codec != 1) return mt_fail(l->err, MT_EUNSUPPORTED, "%s: an unknown compression of buffers", l->src->path);
    l->compressed = true;
    l->codec = codec == 0 ? MT_CODEC_LZ4_FRAME : MT_CODEC_ZSTD;
    return MT_OK;
}

/* The root has no node: its length is the batch's. */
static mt_rc load_root(loader *l, const ar_field *field, int64_t length)
{
    ar_array *root = &l->batch->root;
    *root = (ar_array){ .field = field, .length = length };
    root->children = mt_arena_calloc(&l->batch->arena, field->n_children, sizeof *root->children);
    if (!root->children) return mt_no_memory(l->err, "a batch of %s", l->src->path);
    for (size_t i = 0; i < field->n_children; i++)
        MT_TRY(load_array(l, &root->children[i], &field->children[i], false, field->children[i].wanted));
    return check_children(l, root);
}

mt_rc mt__ar_batch_load(ar_batch *out, mt_flat_table batch, const ar_field *field, bool values, const uint8_t *body,
                        size_t body_n, const mt_record_bytes *src, mt_err *err)
{
    mt_arena_reset(&out->arena);
    out->arena.max_bytes = MAX_BATCH_BYTES;
    loader l = { .batch = out, .body = body, .body_n = body_n, .src = src, .err = err };
    l.nodes = mt__flat_list(batch, 1, 16);
    l.buffers = mt__flat_list(batch, 2, 16);
    l.variadic_counts = mt__flat_list(batch, 4, 8);
    int64_t length = mt__flat_int(batch, 0, 8, 0);
    MT_TRY(find_codec(&l, batch));
    if (!batch.at || batch.buf->bad || length < 0) return arrow_batch_bad(&l, field, "its description is damaged");
    return values ? load_array(&l, &out->root, field, true, true) : load_root(&l, field, length);
}
