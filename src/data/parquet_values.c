/* parquet_values.c - the values of one page, in whichever encoding it was written, a batch at a time. */
#include "base/le.h"
#include "data/parquet.h"

#include <string.h>

/* Joined prefixes can make much of little; a batch of values never needs this much. */
enum { MAX_JOINED_BYTES = 256 << 20 };

const char mt__pq_no_memory[] = "no memory for its values (or a batch of them unpacks to more than 256 MiB)";

static size_t fixed_width(const pq_node *leaf)
{
    static const size_t widths[PQ_TYPES] = { [PQ_INT32] = 4, [PQ_INT64] = 8, [PQ_INT96] = 12, [PQ_FLOAT] = 4, [PQ_DOUBLE] = 8 };
    return leaf->type == PQ_FIXED ? leaf->width : widths[leaf->type];
}

/* One value of a fixed width, from its bytes. */
static void load_cell(pq_cell *out, const pq_node *leaf, const uint8_t *p)
{
    switch (leaf->type) {
    case PQ_INT32: out->i = (int32_t)mt__le32(p); break;
    case PQ_INT64: out->i = (int64_t)mt__le64(p); break;
    case PQ_FLOAT: out->f = mt__le_f32(p); break;
    case PQ_DOUBLE: out->f = mt__le_f64(p); break;
    default: out->bytes.p = p; out->bytes.n = fixed_width(leaf);
    }
}

static const char *read_plain_booleans(pq_values *v, pq_cell *out, size_t n)
{
    if ((uint64_t)(v->end - v->p) * 8 - v->bit < n) return "fewer booleans than entries";
    for (size_t i = 0; i < n; i++, v->bit++) out[i].i = v->p[v->bit / 8] >> v->bit % 8 & 1;
    return NULL;
}

static const char *read_plain_bytes(pq_values *v, pq_cell *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (v->end - v->p < 4) return "fewer strings than entries";
        uint32_t len = mt__le32(v->p);
        v->p += 4;
        if (len > (uint64_t)(v->end - v->p)) return "a string reaches past its page";
        out[i].bytes.p = v->p;
        out[i].bytes.n = len;
        v->p += len;
    }
    return NULL;
}

static const char *read_plain(pq_values *v, pq_cell *out, size_t n)
{
    if (v->leaf->type == PQ_BOOLEAN) return read_plain_booleans(v, out, n);
    if (v->leaf->type == PQ_BYTE_ARRAY) return read_plain_bytes(v, out, n);
    size_t width = fixed_width(v->leaf);
    if ((size_t)(v->end - v->p) / width < n) return "fewer values than entries";
    for (size_t i = 0; i < n; i++, v->p += width) load_cell(&out[i], v->leaf, v->p);
    return NULL;
}

static const char *read_indices(pq_values *v, pq_cell *out, size_t n)
{
    uint32_t indices[PQ_BATCH];
    const char *trouble = mt__pq_runs_read(&v->runs, indices, n);
    if (trouble) return trouble;
    for (size_t i = 0; i < n; i++) {
        if (indices[i] >= v->n_dict) return "an index past the end of the dictionary";
        out[i] = v->dict[indices[i]];
    }
    return NULL;
}

static const char *read_rle_booleans(pq_values *v, pq_cell *out, size_t n)
{
    uint32_t bits[PQ_BATCH];
    const char *trouble = mt__pq_runs_read(&v->runs, bits, n);
    for (size_t i = 0; i < n && !trouble; i++) out[i].i = bits[i];
    return trouble;
}

static const char *read_delta_ints(pq_values *v, pq_cell *out, size_t n)
{
    int64_t ints[PQ_BATCH];
    const char *trouble = mt__pq_delta_read(&v->ints, ints, n);
    for (size_t i = 0; i < n && !trouble; i++) out[i].i = v->leaf->type == PQ_INT32 ? (int32_t)ints[i] : ints[i];
    return trouble;
}

static const char *read_delta_lengths(pq_values *v, pq_cell *out, size_t n)
{
    int64_t lengths[PQ_BATCH];
    const char *trouble = mt__pq_delta_read(&v->ints, lengths, n);
    for (size_t i = 0; i < n && !trouble; i++) {
        if (lengths[i] < 0 || lengths[i] > v->end - v->p) return "a string reaches past its page";
        out[i].bytes.p = v->p;
        out[i].bytes.n = (size_t)lengths[i];
        v->p += lengths[i];
    }
    return trouble;
}

/* Each value is the start of the one before plus its own suffix. */
static const char *read_delta_strings(pq_values *v, pq_cell *out, size_t n)
{
    int64_t shared[PQ_BATCH];
    const char *trouble = mt__pq_delta_read(&v->prefixes, shared, n);
    if (!trouble) trouble = read_delta_lengths(v, out, n);
    if (trouble) return trouble;
    mt_arena_reset(&v->joined);
    for (size_t i = 0; i < n; i++) {
        if (shared[i] < 0 || (uint64_t)shared[i] > v->previous.n) return "a string shares more than the one before has";
        v->previous.n = (size_t)shared[i];
        mt_str_add(&v->previous, (const char *)out[i].bytes.p, out[i].bytes.n);
        char *copy = mt_str_ok(&v->previous) ? mt_arena_strndup(&v->joined, v->previous.s, v->previous.n) : NULL;
        if (!copy) return mt__pq_no_memory;
        out[i].bytes.p = (const uint8_t *)copy;
        out[i].bytes.n = v->previous.n;
        if (v->leaf->type == PQ_FIXED && out[i].bytes.n != v->leaf->width) return "a fixed-length value of another length";
    }
    return NULL;
}

/* Byte k of all values is stored together: value i is p[i], p[stride + i], ... */
static const char *read_split(pq_values *v, pq_cell *out, size_t n)
{
    size_t width = fixed_width(v->leaf);
    if (v->stride - v->index < n) return "fewer values than entries";
    mt_arena_reset(&v->joined);
    uint8_t *joined = mt_arena_alloc(&v->joined, n * width);
    if (!joined) return mt__pq_no_memory;
    for (size_t i = 0; i < n; i++, v->index++, joined += width) {
        for (size_t k = 0; k < width; k++) joined[k] = v->p[k * v->stride + v->index];
        load_cell(&out[i], v->leaf, joined);
    }
    return NULL;
}

static const char *start_indices(pq_values *v)
{
    if (v->p >= v->end) { /* a page of nulls may leave even the width out */
        mt__pq_runs_init(&v->runs, v->p, v->end, 1);
        return NULL;
    }
    int width = *v->p++;
    if (width > 32) return "dictionary indices of more than 32 bits";
    mt__pq_runs_init(&v->runs, v->p, v->end, width);
    return NULL;
}

static const char *start_rle_booleans(pq_values *v)
{
    if (v->leaf->type != PQ_BOOLEAN) return "run-length encoding is for booleans only";
    if (v->end - v->p < 4) return "booleans are cut off";
    uint32_t n = mt__le32(v->p);
    if (n > (uint64_t)(v->end - v->p - 4)) return "booleans are cut off";
    mt__pq_runs_init(&v->runs, v->p + 4, v->p + 4 + n, 1);
    return NULL;
}

static const char *start_lengths(pq_values *v, pq_delta *d)
{
    const char *trouble = mt__pq_delta_init(d, v->p, v->end);
    return trouble ? trouble : mt__pq_delta_end(d, &v->p);
}

static const char *start_delta_strings(pq_values *v)
{
    if (v->leaf->type != PQ_BYTE_ARRAY && v->leaf->type != PQ_FIXED) return "a string encoding on a column of numbers";
    const char *trouble = v->encoding == PQ_DELTA_BYTE_ARRAY ? start_lengths(v, &v->prefixes) : NULL;
    mt_str_clear(&v->previous);
    return trouble ? trouble : start_lengths(v, &v->ints);
}

static const char *start_delta_ints(pq_values *v)
{
    if (v->leaf->type != PQ_INT32 && v->leaf->type != PQ_INT64) return "an integer encoding on a column of something else";
    return mt__pq_delta_init(&v->ints, v->p, v->end);
}

static const char *start_split(pq_values *v)
{
    size_t width = fixed_width(v->leaf);
    if (width == 0 || v->leaf->type == PQ_INT96) return "split streams on a column that cannot have them";
    v->stride = (size_t)(v->end - v->p) / width;
    v->index = 0;
    return NULL;
}

const char *mt__pq_values_start(pq_values *v, const pq_node *leaf, int encoding, const uint8_t *p, const uint8_t *end,
                                const pq_cell *dict, size_t n_dict)
{
    *v = (pq_values){ .leaf = leaf,
                      .encoding = (pq_encoding)encoding,
                      .p = p,
                      .end = end,
                      .dict = dict,
                      .n_dict = n_dict,
                      .joined = v->joined,
                      .previous = v->previous };
    v->joined.max_bytes = MAX_JOINED_BYTES;
    switch (encoding) {
    case PQ_PLAIN: return NULL;
    case PQ_PLAIN_DICTIONARY:
    case PQ_RLE_DICTIONARY: v->encoding = PQ_RLE_DICTIONARY; return start_indices(v);
    case PQ_RLE: return start_rle_booleans(v);
    case PQ_DELTA_BINARY_PACKED: return start_delta_ints(v);
    case PQ_DELTA_LENGTH_BYTE_ARRAY:
        return leaf->type == PQ_BYTE_ARRAY ? start_delta_strings(v) : "a string encoding on a column of numbers";
    case PQ_DELTA_BYTE_ARRAY: return start_delta_strings(v);
    case PQ_BYTE_STREAM_SPLIT: return start_split(v);
    default: return "an unknown encoding";
    }
}

const char *mt__pq_values_read(pq_values *v, pq_cell *out, size_t n)
{
    switch (v->encoding) {
    case PQ_RLE_DICTIONARY: return read_indices(v, out, n);
    case PQ_RLE: return read_rle_booleans(v, out, n);
    case PQ_DELTA_BINARY_PACKED: return read_delta_ints(v, out, n);
    case PQ_DELTA_LENGTH_BYTE_ARRAY: return read_delta_lengths(v, out, n);
    case PQ_DELTA_BYTE_ARRAY: return read_delta_strings(v, out, n);
    case PQ_BYTE_STREAM_SPLIT: return read_split(v, out, n);
    default: return read_plain(v, out, n);
    }
}

void mt__pq_values_free(pq_values *v)
{
    mt_arena_free(&v->joined);
    mt_str_free(&v->previous);
}
