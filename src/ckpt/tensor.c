#include "ckpt/tensor.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

bool mt_st_is_float(const mt_st_tensor *t)
{
    switch (t->dtype) {
    case MT_DTYPE_F32:
    case MT_DTYPE_BF16:
    case MT_DTYPE_F16:
    case MT_DTYPE_F64:
    case MT_DTYPE_F8_E4M3:
    case MT_DTYPE_F8_E5M2: return true;
    default: return false;
    }
}

void mt_st_read(const mt_st_tensor *t, size_t first, size_t n, float *out)
{
    if (t->data)
        mt_to_f32(out, t->data + first * mt_dtype_bytes(t->dtype), t->dtype, n);
    else if (n)
        t->decoder->read(t->decoder, first, n, out);
}

mt_st_span mt_st_plain_span(const mt_st_tensor *t, size_t first, size_t n)
{
    const size_t size = mt_dtype_bytes(t->dtype);
    return (mt_st_span){ t->map, t->data + first * size, n * size };
}

int mt_st_spans(const mt_st_tensor *t, size_t first, size_t n, mt_st_span out[MT_ST_SPANS])
{
    if (!n) return 0;
    int k = 1;
    memset(out, 0, MT_ST_SPANS * sizeof *out);
    if (t->data)
        out[0] = mt_st_plain_span(t, first, n);
    else
        k = t->decoder->spans(t->decoder, first, n, out);
    for (int i = 0; i < k; i++)
        if (!out[i].map) out[i].map = t->map;
    return k;
}

void mt_st_read_every(const mt_st_tensor *t, size_t first, size_t step, size_t n, float *out)
{
    size_t size = mt_dtype_bytes(t->dtype);
    if (t->decoder && t->decoder->read_every) {
        if (n) t->decoder->read_every(t->decoder, first, step, n, out);
    } else if (t->data && t->dtype == MT_DTYPE_BF16) { /* what files of experts have, by the billion */
        const uint8_t *p = t->data + first * size;
        for (size_t i = 0; i < n; i++, p += step * size) out[i] = mt_bf16_to_f32((uint16_t)(p[0] | p[1] << 8));
    } else {
        for (size_t i = 0; i < n; i++) mt_st_read(t, first + i * step, 1, out + i);
    }
}

static bool same_numbers(const mt_st_tensor *a, const mt_st_tensor *b)
{
    enum { PIECE = 1024 };
    float x[PIECE], y[PIECE];
    for (size_t at = 0; at < a->n; at += PIECE) {
        size_t n = a->n - at < PIECE ? a->n - at : PIECE;
        mt_st_read(a, at, n, x);
        mt_st_read(b, at, n, y);
        if (memcmp(x, y, n * sizeof *x) != 0) return false;
    }
    return true;
}

/* Release pages after reading them: one of the two may not be read again. */
static bool same_bytes(const mt_st_tensor *a, const mt_st_tensor *b)
{
    enum { PIECE = 2 << 20 };
    bool same = true;
    for (size_t at = 0, n; same && at < a->bytes; at += n) {
        n = a->bytes - at < PIECE ? a->bytes - at : PIECE;
        same = memcmp(a->data + at, b->data + at, n) == 0;
        mt_map_release(a->map, a->data + at, n);
        mt_map_release(b->map, b->data + at, n);
    }
    return same;
}

bool mt_st_same(const mt_st_tensor *a, const mt_st_tensor *b)
{
    if (a->dtype != b->dtype || a->n_dims != b->n_dims || memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof *a->shape) != 0)
        return false;
    if (a->data && b->data) return a->data == b->data || same_bytes(a, b);
    return same_numbers(a, b);
}

const char *mt_st_stored_as(const mt_st_tensor *t)
{
    return t->decoder && t->decoder->stored_as ? t->decoder->stored_as : mt_dtype_st_name(t->dtype);
}

mt_shape_text mt_st_shape_text(int n_dims, const int64_t *shape)
{
    mt_shape_text t;
    size_t n = 0;
    t.s[n++] = '[';
    for (int i = 0; i < n_dims && i < MT_ST_MAX_DIMS; i++) /* 8 numbers of 20 digits fit */
        n += (size_t)snprintf(t.s + n, sizeof t.s - n, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(t.s + n, sizeof t.s - n, "]");
    return t;
}

bool mt_st_size(mt_dtype dtype, int n_dims, const int64_t *shape, size_t *n, size_t *bytes)
{
    size_t count = 1;
    if (n_dims < 0 || n_dims > MT_ST_MAX_DIMS) return false;
    for (int i = 0; i < n_dims; i++)
        if (shape[i] < 0 || !mt_mul_size(count, (size_t)shape[i], &count)) return false;
    *n = count;
    return mt_mul_size(count, mt_dtype_bytes(dtype), bytes);
}
