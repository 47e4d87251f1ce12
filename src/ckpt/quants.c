/* quants.c - one function for each block type.  A block is a number of small integers q and the scales that make them numbers
 * again:  x = d * q,  or with an offset  x = d * q + m  (the _1 kinds) or  x = d * s * q - dmin * m  (the K kinds, whose 16 or 8
 * sub-blocks each have a small integer scale s and offset m). */
#include "ckpt/quants.h"

#include "base/mem.h"
#include "base/le.h"
#include "ops/forms.h"

static float half(const uint8_t *p) { return mt_f16_to_f32(mt__le16(p)); }

/* d, 16 bytes: low nibbles are the first half, high ones the second. */
static void decode_q4_0(const uint8_t *b, float *x)
{
    float d = half(b);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)((b[2 + i] & 15) - 8);
        x[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

/* d, m, 16 bytes. */
static void decode_q4_1(const uint8_t *b, float *x)
{
    float d = half(b), m = half(b + 2);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)(b[4 + i] & 15) + m;
        x[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* The fifth bit of number i is bit i of `high`. */
static int fifth(uint32_t high, int i) { return (int)(high >> i & 1) << 4; }

/* d, 32 high bits, 16 bytes. */
static void decode_q5_0(const uint8_t *b, float *x)
{
    float d = half(b);
    uint32_t high = mt__le32(b + 2);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)(((b[6 + i] & 15) | fifth(high, i)) - 16);
        x[i + 16] = d * (float)((b[6 + i] >> 4 | fifth(high, i + 16)) - 16);
    }
}

/* d, m, 32 high bits, 16 bytes. */
static void decode_q5_1(const uint8_t *b, float *x)
{
    float d = half(b), m = half(b + 2);
    uint32_t high = mt__le32(b + 4);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)((b[8 + i] & 15) | fifth(high, i)) + m;
        x[i + 16] = d * (float)(b[8 + i] >> 4 | fifth(high, i + 16)) + m;
    }
}

static void decode_form(mt_form form, int64_t n, const uint8_t *block, float *x)
{
    mt_packed_read(&(mt_packed){ .as = { form, 1, n, n, 1, false }, .codes = block }, 0, n, x);
}

static void decode_q8_0(const uint8_t *b, float *x) { decode_form(MT_FORM_Q8_0, 32, b, x); }

/* 16 bytes of scale and offset (4 bits each), 64 of two-bit numbers, d, dmin.  Byte l of a half's 32 holds number l of four
 * rows of 32, two bits each. */
static void decode_q2_k(const uint8_t *b, float *x)
{
    const uint8_t *scales = b, *qs = b + 16;
    float d = half(b + 80), dmin = half(b + 82);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, row = i % 128 / 32, l = i % 32;
        uint8_t s = scales[i / 16];
        int q = qs[32 * h + l] >> 2 * row & 3;
        x[i] = d * (float)(s & 15) * (float)q - dmin * (float)(s >> 4);
    }
}

/* 32 bytes of third bits (bit k of byte l for row k of 32), 64 of low two bits as in Q2_K, 12 of six-bit scales, d. */
static void decode_q3_k(const uint8_t *b, float *x)
{
    const uint8_t *high = b, *qs = b + 32, *scales = b + 96;
    float d = half(b + 108);
    for (int i = 0; i < 256; i++) {
        int k = i / 16, h = i / 128, row = i % 128 / 32, l = i % 32;
        int low4 = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
        int s = (low4 | (scales[8 + k % 4] >> 2 * (k / 4) & 3) << 4) - 32;
        int q = (qs[32 * h + l] >> 2 * row & 3) - (high[l] >> (4 * h + row) & 1 ? 0 : 4);
        x[i] = d * (float)s * (float)q;
    }
}

static void decode_q4_k(const uint8_t *b, float *x) { decode_form(MT_FORM_Q4_K, 256, b, x); }

/* As Q4_K (d, dmin, 12 bytes of scales, 128 of nibbles: 32 bytes hold two sub-blocks, low nibbles first), with 32 bytes of fifth
 * bits between: bit k of byte l. */
static void decode_q5_k(const uint8_t *b, float *x)
{
    const uint8_t *high = b + 16, *qs = b + 48;
    float s, m;
    for (int k = 0; k < 8; k++) {
        mt_form_q4_k_scale(b, k, &s, &m);
        for (int l = 0; l < 32; l++) {
            int q = (qs[32 * (k / 2) + l] >> 4 * (k % 2) & 15) | (high[l] >> k & 1) << 4;
            x[32 * k + l] = s * (float)q - m;
        }
    }
}

/* 128 bytes of low nibbles, 64 of top two bits, 16 signed scales, d.  In a half of 128: rows of 32 take the low nibbles of 32
 * bytes, of the next 32, then the high ones; and two bits of 32 bytes each. */
static void decode_q6_k(const uint8_t *b, float *x)
{
    const uint8_t *low = b, *high = b + 128, *scales = b + 192;
    float d = half(b + 208);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, row = i % 128 / 32, l = i % 32;
        int nibble = low[64 * h + 32 * (row % 2) + l] >> 4 * (row / 2) & 15;
        int q = (nibble | (high[32 * h + l] >> 2 * row & 3) << 4) - 32;
        x[i] = d * (float)(int8_t)scales[i / 16] * (float)q;
    }
}

static const mt__quant quants[] = {
    { 0, "F32", 1, 4, MT_DTYPE_F32, NULL },
    { 1, "F16", 1, 2, MT_DTYPE_F16, NULL },
    { 30, "BF16", 1, 2, MT_DTYPE_BF16, NULL },
    { 2, "Q4_0", 32, 18, MT_DTYPE_F32, decode_q4_0 },
    { 3, "Q4_1", 32, 20, MT_DTYPE_F32, decode_q4_1 },
    { 6, "Q5_0", 32, 22, MT_DTYPE_F32, decode_q5_0 },
    { 7, "Q5_1", 32, 24, MT_DTYPE_F32, decode_q5_1 },
    { 8, "Q8_0", 32, 34, MT_DTYPE_F32, decode_q8_0 },
    { 10, "Q2_K", 256, 84, MT_DTYPE_F32, decode_q2_k },
    { 11, "Q3_K", 256, 110, MT_DTYPE_F32, decode_q3_k },
    { 12, "Q4_K", 256, 144, MT_DTYPE_F32, decode_q4_k },
    { 13, "Q5_K", 256, 176, MT_DTYPE_F32, decode_q5_k },
    { 14, "Q6_K", 256, 210, MT_DTYPE_F32, decode_q6_k },
};

/* Known to exist, and not read. */
static const struct {
    uint32_t id;
    const char *name;
} others[] = {
    { 9, "Q8_1" },   { 15, "Q8_K" },  { 16, "IQ2_XXS" }, { 17, "IQ2_XS" }, { 18, "IQ3_XXS" }, { 19, "IQ1_S" }, { 20, "IQ4_NL" },
    { 21, "IQ3_S" }, { 22, "IQ2_S" }, { 23, "IQ4_XS" },  { 24, "I8" },     { 25, "I16" },     { 26, "I32" },   { 27, "I64" },
    { 28, "F64" },   { 29, "IQ1_M" }, { 34, "TQ1_0" },   { 35, "TQ2_0" },  { 39, "MXFP4" },
};

const mt__quant *mt__quant_find(uint32_t id, const char **name)
{
    *name = NULL;
    for (size_t i = 0; i < MT_COUNT(quants); i++)
        if (quants[i].id == id) return *name = quants[i].name, &quants[i];
    for (size_t i = 0; i < MT_COUNT(others); i++)
        if (others[i].id == id) *name = others[i].name;
    return NULL;
}

void mt__quant_read(const mt__quant *q, const uint8_t *data, size_t first, size_t n, float *out)
{
    float block[MT_QUANT_MAX_N];
    if (!q->decode) {
        mt_to_f32(out, data + first * q->block_bytes, q->dtype, n);
        return;
    }
    while (n) {
        size_t skip = first % q->block_n, some = q->block_n - skip < n ? q->block_n - skip : n;
        const uint8_t *b = data + first / q->block_n * q->block_bytes;
        if (some == q->block_n)
            q->decode(b, out);
        else {
            q->decode(b, block);
            memcpy(out, block + skip, some * sizeof *out);
        }
        first += some;
        out += some;
        n -= some;
    }
}
