/* nf4.c - bitsandbytes' NF4: reads the description of a quantized tensor, checks that everything it names is there and fits, and
 * reads numbers from codes, scales and the scales of scales. */
#include "base/json.h"
#include "ckpt/four_bits.h"
#include "ops/forms.h"

#include <math.h>

typedef struct nf4 {
    mt_st_decoder base;
    const mt_st_tensor *codes, *absmax, *more; /* more: fp32 scales of the scales; NULL: scales are not nested */
    const mt_st_tensor *parts[6];
    size_t block;
    int64_t columns; /* of the tensor's matrix */
    mt_form_nested nested;
} nf4;

static float scale_at(const nf4 *q, size_t block)
{
    float s;
    mt_st_read(q->more ? q->more : q->absmax, q->more ? block / MT_FORM_NESTED_BLOCK : block, 1, &s);
    if (!q->more) return s;
    const mt_packed one = { .scales = q->absmax->data + block, .more = &s, .extra = &q->nested };
    return mt_form_nested_scale(&one, 0);
}

static void read_nf4(const mt_st_decoder *d, size_t first, size_t n, float *out)
{
    static const float codes[16] = { MT_NF4_CODES };
    const nf4 *q = (const nf4 *)d;
    for (size_t end; n; n -= end - first, first = end) {
        end = (first / q->block + 1) * q->block;
        if (end > first + n) end = first + n;
        const float s = scale_at(q, first / q->block);
        for (size_t i = first; i < end; i++) {
            const uint8_t two = q->codes->data[i / 2];
            *out++ = codes[i % 2 ? two & 15 : two >> 4] * s;
        }
    }
}

static int spans_of_nf4(const mt_st_decoder *d, size_t first, size_t n, mt_st_span *out)
{
    const nf4 *q = (const nf4 *)d;
    const size_t end = first + n, from = first / q->block, to = (end - 1) / q->block + 1;
    out[0] = (mt_st_span){ q->codes->map, q->codes->data + first / 2, (end + 1) / 2 - first / 2 };
    out[1] = mt_st_plain_span(q->absmax, from, to - from);
    if (!q->more) return 2;
    out[2] = mt_st_plain_span(q->more, 0, q->more->n); /* few: packing the first row takes all of them */
    return 3;
}

/* Blocks must not reach from row to row; nested scales are shared by rows that follow each other. */
static bool packing_of(const mt_st_decoder *d, const mt_st_rows *rows, mt_packing *out)
{
    const nf4 *q = (const nf4 *)d;
    *out = (mt_packing){ q->more ? MT_FORM_NF4_NESTED : MT_FORM_NF4, rows->n, q->columns, (int64_t)q->block, 1, false };
    return mt_packing_is_possible(out) && (!q->more || mt_st_rows_follow(rows));
}

static void pack_nested(const nf4 *q, const mt_st_rows *rows, const mt_packing *p, const mt_packed_places *at, uint8_t *to)
{
    const size_t first = (size_t)(rows->first * at->blocks), n = (size_t)(p->rows * at->blocks);
    const size_t from = first / MT_FORM_NESTED_BLOCK, end = (first + n - 1) / MT_FORM_NESTED_BLOCK + 1;
    mt_form_nested nested = q->nested;
    nested.first = (int32_t)(first % MT_FORM_NESTED_BLOCK);
    memcpy(to + at->extra, &nested, sizeof nested);
    mt_st_read(q->more, from, end - from, (float *)(void *)(to + at->more));
}

static void pack(const mt_st_decoder *d, const mt_st_rows *rows, const mt_packing *p, int64_t from, int64_t n, uint8_t *to)
{
    const nf4 *q = (const nf4 *)d;
    const mt_packed_places at = mt_packing_places(p);
    const size_t each = (size_t)at.blocks * mt_dtype_bytes(q->absmax->dtype);
    for (int64_t r = from; r < from + n; r++) {
        const size_t row = (size_t)mt_st_row(rows, r), own = (size_t)r;
        memcpy(to + own * at.row_bytes, q->codes->data + row * at.row_bytes, at.row_bytes);
        memcpy(to + at.scales + own * each, q->absmax->data + row * each, each);
    }
    if (q->more && from == 0) pack_nested(q, rows, p, &at, to);
}

/* -- checking -------------------------------------------------------------------------------------- */

static mt_rc damaged(const mt_st_tensor *w, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT,
                   "%s: tensor \"%.200s\" is in bitsandbytes' NF4, but %s; the file is damaged or incomplete, download it again",
                   w->file, w->name, problem);
}

static mt_rc unsupported(const mt_st_tensor *w, const char *what, mt_err *err)
{
    return mt_fail(err, MT_EUNSUPPORTED,
                   "%s: tensor \"%.200s\" was quantized by bitsandbytes with %s, which is not read; take the original model",
                   w->file, w->name, what);
}

/* One of the tensors that belong to w. */
static const mt_st_tensor *take(nf4 *q, const mt__siblings *others, const char *tail)
{
    const mt_st_tensor *t = others->take(others->user, tail);
    if (t) q->parts[q->base.n_parts++] = t;
    return t;
}

static bool is_plain(const mt_st_tensor *t, mt_dtype dtype, size_t n) { return t && t->data && t->dtype == dtype && t->n == n; }

static mt_rc read_shape(mt_st_tensor *out, const mt_st_tensor *w, const mt_value *state, mt_err *err)
{
    const mt_value *shape = mt_value_get(state, "shape");
    size_t bytes;
    out->n_dims = (int)mt_value_items(shape);
    if (out->n_dims < 1 || out->n_dims > MT_ST_MAX_DIMS) return damaged(w, "its quant_state has no \"shape\"", err);
    for (int i = 0; i < out->n_dims; i++) out->shape[i] = mt_value_int(mt_value_at(shape, (size_t)i));
    if (!mt_st_size(MT_DTYPE_F32, out->n_dims, out->shape, &out->n, &bytes) || out->n == 0 || (out->n + 1) / 2 != w->n)
        return damaged(w, "it has not as many bytes as its quant_state's \"shape\" needs", err);
    return MT_OK;
}

static mt_rc read_nested(nf4 *q, const mt_st_tensor *w, const mt_value *state, size_t n_blocks, const mt__siblings *others,
                         mt_err *err)
{
    const mt_st_tensor *map = take(q, others, ".nested_quant_map");
    const mt_value *offset = mt_value_get(state, "nested_offset");
    q->more = take(q, others, ".nested_absmax");
    if (mt_value_int(mt_value_get(state, "nested_blocksize")) != MT_FORM_NESTED_BLOCK)
        return unsupported(w, "another nested_blocksize than 256", err);
    if (!is_plain(q->absmax, MT_DTYPE_U8, n_blocks)) return damaged(w, "its absmax is not a byte for each block", err);
    if (!is_plain(q->more, MT_DTYPE_F32, (n_blocks - 1) / MT_FORM_NESTED_BLOCK + 1))
        return damaged(w, "its nested_absmax is missing or has another size", err);
    if (!is_plain(map, MT_DTYPE_F32, MT_COUNT(q->nested.map)))
        return damaged(w, "its nested_quant_map is missing or not 256 numbers", err);
    if (!mt_value_is_number(offset)) return damaged(w, "its quant_state has no \"nested_offset\"", err);
    mt_st_read(map, 0, map->n, q->nested.map);
    q->nested.offset = (float)mt_value_number(offset);
    return MT_OK;
}

static mt_rc read_scales(nf4 *q, const mt_st_tensor *w, size_t n, const mt_value *state, const mt__siblings *others, mt_err *err)
{
    static const float usual[16] = { MT_NF4_CODES };
    float codes[16];
    const int64_t block = mt_value_int(mt_value_get(state, "blocksize"));
    const mt_st_tensor *map = take(q, others, ".quant_map");
    if (block < 2 || block > 1 << 20 || (block & (block - 1)))
        return damaged(w, "its quant_state has no usable \"blocksize\"", err);
    q->block = (size_t)block;
    q->absmax = take(q, others, ".absmax");
    if (!q->absmax) return damaged(w, "its scales (absmax) are missing", err);
    if (!is_plain(map, MT_DTYPE_F32, MT_COUNT(codes))) return damaged(w, "its quant_map is missing or not 16 numbers", err);
    mt_st_read(map, 0, MT_COUNT(codes), codes);
    if (memcmp(codes, usual, sizeof codes) != 0) return unsupported(w, "other codes (quant_map)", err);
    const size_t n_blocks = (n - 1) / q->block + 1;
    if (!mt_json_missing(mt_value_get(state, "nested_blocksize"))) return read_nested(q, w, state, n_blocks, others, err);
    return is_plain(q->absmax, MT_DTYPE_F32, n_blocks) ? MT_OK : damaged(w, "its absmax is not a number for each block", err);
}

static mt_rc read_state(nf4 *q, mt_st_tensor *out, const mt_st_tensor *w, const mt_value *state, const mt__siblings *others,
                        mt_err *err)
{
    const mt_value *type = mt_value_get(state, "quant_type");
    if (!type || !mt_value_is(type, "nf4")) return unsupported(w, "another quant_type than nf4", err);
    MT_TRY(read_shape(out, w, state, err));
    return read_scales(q, w, out->n, state, others, err);
}

mt_rc mt__nf4_join(mt_st_tensor *out, mt_arena *arena, const mt_st_tensor *w, const char *tail, const mt__siblings *others,
                   mt_err *err)
{
    const mt_value *state = NULL;
    nf4 *q = mt_arena_alloc(arena, sizeof *q);
    if (!q) return mt_no_memory(err, "NF4 scales");
    *q = (nf4){ .base = { .read = read_nf4,
                          .spans = spans_of_nf4,
                          .stored_as = "NF4",
                          .packing = packing_of,
                          .pack = pack,
                          .parts = q->parts,
                          .n_parts = 1 },
                .codes = w,
                .parts = { w } };
    const mt_st_tensor *text = take(q, others, tail);
    if (!w->data || w->dtype != MT_DTYPE_U8) return damaged(w, "its codes are not bytes", err);
    if (!text || !text->data || text->dtype != MT_DTYPE_U8) return damaged(w, "its quant_state is missing", err);
    *out = *w;
    mt_err problem = { 0 };
    mt_rc rc = mt_json_parse(&state, (const char *)text->data, text->n, "quant_state", &problem);
    if (rc) return rc == MT_ENOMEM ? mt_no_memory(err, "a quant_state") : damaged(w, "its quant_state is not JSON", err);
    rc = read_state(q, out, w, state, others, err);
    mt_json_free(state);
    q->columns = rc ? 0 : out->shape[out->n_dims - 1];
    out->bytes = w->bytes + (q->absmax ? q->absmax->bytes : 0) + (q->more ? q->more->bytes : 0);
    out->dtype = MT_DTYPE_F32;
    out->data = NULL;
    out->decoder = &q->base;
    return rc;
}
