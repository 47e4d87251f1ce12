/* int4.c - GPTQ's and AWQ's int4 groups: reads from config.json which of the two a model is in, checks that codes, zero points and
 * scales of a weight fit each other, and reads numbers from them. */
#include "base/file.h"
#include "base/json.h"
#include "base/le.h"
#include "ckpt/four_bits.h"
#include "ops/forms.h"

enum { PER_WORD = 8 };

typedef struct int4 {
    mt_st_decoder base;
    const mt_st_tensor *codes, *zeros, *scales;
    const mt_st_tensor *parts[4];
    size_t in, out, group;
    const int32_t *order; /* [in] the group of each input; NULL: one after the other */
    bool awq;
    int plus; /* what a stored zero point lacks */
} int4;

/* Nibble i of word `at`. */
static int nibble(const mt_st_tensor *t, size_t at, unsigned i) { return (int)(mt__le32(t->data + at * 4) >> 4 * i & 15); }

/* The nibble of AWQ's words in which output 8k + i is. */
static unsigned awq_place(size_t i) { return (unsigned)((i & 1) << 2 | i >> 1); }

static int code_of(const int4 *q, size_t r, size_t c)
{
    if (q->awq) return nibble(q->codes, c * (q->out / PER_WORD) + r / PER_WORD, awq_place(r % PER_WORD));
    return nibble(q->codes, c / PER_WORD * q->out + r, (unsigned)(c % PER_WORD));
}

static size_t group_of(const int4 *q, size_t c) { return q->order ? (size_t)q->order[c] : c / q->group; }

static int zero_of(const int4 *q, size_t r, size_t group)
{
    const unsigned i = q->awq ? awq_place(r % PER_WORD) : (unsigned)(r % PER_WORD);
    return nibble(q->zeros, group * (q->out / PER_WORD) + r / PER_WORD, i) + q->plus;
}

static void read_int4(const mt_st_decoder *d, size_t first, size_t n, float *out)
{
    const int4 *q = (const int4 *)d;
    size_t last = SIZE_MAX, last_r = SIZE_MAX;
    float scale = 0;
    int zero = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t r = (first + i) / q->in, c = (first + i) % q->in, group = group_of(q, c);
        if (group != last || r != last_r) {
            zero = zero_of(q, r, group);
            mt_st_read(q->scales, group * q->out + r, 1, &scale);
        }
        last = group, last_r = r;
        out[i] = (float)(code_of(q, r, c) - zero) * scale;
    }
}

/* An output's codes are all over the tensor. */
static int spans_of_int4(const mt_st_decoder *d, size_t first, size_t n, mt_st_span *out)
{
    const int4 *q = (const int4 *)d;
    (void)first, (void)n;
    out[0] = mt_st_plain_span(q->codes, 0, q->codes->n);
    out[1] = mt_st_plain_span(q->zeros, 0, q->zeros->n);
    out[2] = mt_st_plain_span(q->scales, 0, q->scales->n);
    return 3;
}

static bool packing_of(const mt_st_decoder *d, const mt_st_rows *rows, mt_packing *out)
{
    const int4 *q = (const int4 *)d;
    *out = (mt_packing){ MT_FORM_INT4, rows->n, (int64_t)q->in, (int64_t)q->group, 1, q->order != NULL };
    return mt_packing_is_possible(out) && q->scales->dtype == MT_DTYPE_F16;
}

static void pack(const mt_st_decoder *d, const mt_st_rows *rows, const mt_packing *p, int64_t from, int64_t n, uint8_t *to)
{
    const int4 *q = (const int4 *)d;
    const mt_packed_places at = mt_packing_places(p);
    for (int64_t r = from; r < from + n; r++) {
        const size_t row = (size_t)mt_st_row(rows, r);
        uint8_t *codes = to + (size_t)r * at.row_bytes;
        for (size_t c = 0; c < q->in; c += 2) codes[c / 2] = (uint8_t)(code_of(q, row, c) | code_of(q, row, c + 1) << 4);
        for (size_t g = 0; g < (size_t)at.blocks; g++) {
            const size_t own = (size_t)(r * at.blocks) + g;
            memcpy(to + at.scales + own * 2, q->scales->data + (g * q->out + row) * 2, 2);
            to[at.more + own] = (uint8_t)zero_of(q, row, g);
        }
    }
    if (q->order && from == 0) memcpy(to + at.extra, q->order, q->in * sizeof *q->order);
}

/* -- config.json ----------------------------------------------------------------------------------- */

static mt_rc read_how(mt__int4_how *out, const char *path, const mt_value *config, mt_err *err)
{
    const mt_value *q = mt_value_get(config, "quantization_config"), *method = mt_value_get(q, "quant_method"),
                   *bits = mt_value_get(q, "bits"), *group = mt_value_get(q, "group_size"), *version = mt_value_get(q, "version"),
                   *format = mt_value_get(q, "checkpoint_format");
    const bool gptq = method && mt_value_is(method, "gptq");
    out->awq = method && mt_value_is(method, "awq");
    if (!gptq && !out->awq)
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "%s: quantization_config.quant_method should be \"gptq\" or \"awq\", since the files have tensors \".qweight\"",
            path);
    if (mt_value_int(bits) != 4)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: quantization_config.bits is %lld; of GPTQ and AWQ, 4 bits are read", path,
                       (long long)mt_value_int(bits));
    out->group = mt_json_missing(group) ? 128 : mt_value_int(group);
    if (out->group != -1 && (out->group < PER_WORD || out->group % PER_WORD))
        return mt_fail(err, MT_EFORMAT, "%s: quantization_config.group_size should be -1 or a multiple of 8", path);
    if (out->awq && version && !mt_value_is(version, "gemm") && !mt_value_is(version, "GEMM"))
        return mt_fail(err, MT_EUNSUPPORTED, "%s: quantization_config.version; of AWQ, \"gemm\" is read", path);
    out->zeros_are_true = out->awq || (format && mt_value_is(format, "gptq_v2"));
    if (gptq && !mt_json_missing(format) && !mt_value_is(format, "gptq") && !out->zeros_are_true)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: quantization_config.checkpoint_format; \"gptq\" and \"gptq_v2\" are read",
                       path);
    return MT_OK;
}

mt_rc mt__int4_read_how(mt__int4_how *out, const char *path, mt_err *err)
{
    const mt_value *config = NULL;
    *out = (mt__int4_how){ 0 };
    if (!mt_file_exists(path))
        return mt_fail(err, MT_ENOENT, "%s is missing: it says how tensors \".qweight\" are quantized; download it too", path);
    MT_TRY(mt_json_read(&config, path, err));
    mt_rc rc = read_how(out, path, config, err);
    mt_json_free(config);
    return rc;
}

/* -- checking -------------------------------------------------------------------------------------- */

static mt_rc damaged(const mt_st_tensor *w, const mt__int4_how *how, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT,
                   "%s: tensor \"%.200s\" is in %s's int4, but %s.\n"
                   "  config.json and the weights look like different revisions, or a file is damaged; download both again",
                   w->file, w->name, how->awq ? "AWQ" : "GPTQ", problem);
}

static bool has_shape(const mt_st_tensor *t, size_t rows, size_t columns)
{
    return t && t->data && t->n_dims == 2 && (size_t)t->shape[0] == rows && (size_t)t->shape[1] == columns;
}

/* Group of each input, if they are not one after the other. */
static mt_rc read_order(int4 *q, mt_arena *arena, const mt_st_tensor *t, const mt__int4_how *how, size_t groups, mt_err *err)
{
    if (!t->data || t->dtype != MT_DTYPE_I32 || t->n != q->in)
        return damaged(q->codes, how, "its g_idx is not an I32 for each input", err);
    int32_t *order = mt_arena_alloc(arena, q->in * sizeof *order);
    bool plain = true;
    if (!order) return mt_no_memory(err, "the groups of inputs");
    for (size_t c = 0; c < q->in; c++) {
        order[c] = (int32_t)mt__le32(t->data + c * sizeof *order);
        if (order[c] < 0 || (size_t)order[c] >= groups)
            return damaged(q->codes, how, "its g_idx names a group that is not there", err);
        plain &= (size_t)order[c] == c / q->group;
    }
    if (!plain) q->order = order;
    return MT_OK;
}

mt_rc mt__int4_join(mt_st_tensor *out, mt_arena *arena, const char *name, const mt_st_tensor *w, const mt__int4_how *how,
                    const mt__siblings *others, mt_err *err)
{
    const mt_st_tensor *order = others->take(others->user, ".g_idx");
    int4 *q = mt_arena_alloc(arena, sizeof *q);
    if (!q) return mt_no_memory(err, "int4 scales");
    *q = (int4){ .base = { .read = read_int4,
                           .spans = spans_of_int4,
                           .scattered = true,
                           .stored_as = how->awq ? "AWQ" : "GPTQ",
                           .packing = packing_of,
                           .pack = pack },
                 .codes = w,
                 .zeros = others->take(others->user, ".qzeros"),
                 .scales = others->take(others->user, ".scales"),
                 .awq = how->awq,
                 .plus = how->zeros_are_true ? 0 : 1 };
    if (!w->data || w->dtype != MT_DTYPE_I32 || w->n_dims != 2 || w->n == 0 || w->n > SIZE_MAX / 64)
        return damaged(w, how, "its codes are not a matrix of I32", err);
    q->in = (size_t)w->shape[0] * (how->awq ? 1 : PER_WORD);
    q->out = (size_t)w->shape[1] * (how->awq ? PER_WORD : 1);
    q->group = how->group < 0 ? q->in : (size_t)how->group;
    const size_t groups = (q->in - 1) / q->group + 1;
    if (q->out % PER_WORD || !has_shape(q->zeros, groups, q->out / PER_WORD) || q->zeros->dtype != MT_DTYPE_I32)
        return damaged(w, how, "its zero points (.qzeros) are missing or do not fit its groups", err);
    if (!has_shape(q->scales, groups, q->out) || !mt_st_is_float(q->scales))
        return damaged(w, how, "its .scales are missing or do not fit its groups", err);
    if (order) MT_TRY(read_order(q, arena, order, how, groups, err));
    q->parts[0] = w, q->parts[1] = q->zeros, q->parts[2] = q->scales, q->parts[3] = order;
    q->base.parts = q->parts;
    q->base.n_parts = order ? 4 : 3;
    *out = *w;
    out->name = name;
    out->dtype = MT_DTYPE_F32;
    out->n_dims = 2;
    out->shape[0] = (int64_t)q->out;
    out->shape[1] = (int64_t)q->in;
    out->n = w->n * PER_WORD;
    out->bytes = w->bytes + q->zeros->bytes + q->scales->bytes;
    out->data = NULL;
    out->decoder = &q->base;
    return MT_OK;
}
