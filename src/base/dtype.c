#include "base/dtype.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>

static const struct {
    size_t bytes;
    const char *st, *torch;
} types[MT_DTYPE_COUNT] = {
#define MT_DTYPE_ROW(name, bytes, st, torch) { bytes, st, torch },
    MT_DTYPE_LIST(MT_DTYPE_ROW)
#undef MT_DTYPE_ROW
};

size_t mt_dtype_bytes(mt_dtype t) { return types[t].bytes; }
const char *mt_dtype_name(mt_dtype t) { return types[t].torch; }
const char *mt_dtype_st_name(mt_dtype t) { return types[t].st; }

bool mt_dtype_from_st(const char *name, mt_dtype *out)
{
    for (int i = 0; i < MT_DTYPE_COUNT; i++)
        if (strcmp(types[i].st, name) == 0) return *out = (mt_dtype)i, true;
    return false;
}

bool mt_dtype_from_torch(const char *name, mt_dtype *out)
{
    static const struct {
        const char *alias;
        mt_dtype t;
    } aliases[] = { { "bf16", MT_DTYPE_BF16 }, { "fp32", MT_DTYPE_F32 }, { "f32", MT_DTYPE_F32 },  { "float", MT_DTYPE_F32 },
                    { "fp16", MT_DTYPE_F16 },  { "f16", MT_DTYPE_F16 },  { "half", MT_DTYPE_F16 }, { "double", MT_DTYPE_F64 } };
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    for (int i = 0; i < MT_DTYPE_COUNT; i++)
        if (strcmp(types[i].torch, name) == 0) return *out = (mt_dtype)i, true;
    for (size_t i = 0; i < MT_COUNT(aliases); i++)
        if (strcmp(aliases[i].alias, name) == 0) return *out = aliases[i].t, true;
    return false;
}

float mt_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31) return mt_f32_from_bits(sign | 0x7f800000 | m << 13);
    if (e) return mt_f32_from_bits(sign | (e + 112) << 23 | m << 13);
    float f = (float)m * 0x1p-24f; /* subnormal: exact */
    return mt_f32_from_bits(sign | mt_f32_bits(f));
}

uint16_t mt_f32_to_f16(float f)
{
    uint32_t u = mt_f32_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds past 65504 */
    if (a < 0x38800000) {                                  /* subnormal or zero: let the FPU round to a multiple of 2^-24 */
        float scaled = mt_f32_from_bits(a) * 0x1p24f;
        return (uint16_t)(sign | (uint32_t)lrintf(scaled));
    }
    return (uint16_t)(sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13));
}

static float f8_to_f32(uint8_t b, int mantissa_bits, int bias, bool has_inf)
{
    int e = (b & 0x7f) >> mantissa_bits, m = b & ((1 << mantissa_bits) - 1);
    int e_max = (1 << (7 - mantissa_bits)) - 1;
    float v;
    if (e == e_max && has_inf)
        v = m ? NAN : INFINITY;
    else if (e == e_max && m == (1 << mantissa_bits) - 1)
        v = NAN;
    else if (e == 0)
        v = ldexpf((float)m, 1 - bias - mantissa_bits);
    else
        v = ldexpf((float)(m | 1 << mantissa_bits), e - bias - mantissa_bits);
    return b & 0x80 ? -v : v;
}

/* There are only 256 of them: many are looked up. */
static void f8_array_to_f32(float *dst, const uint8_t *b, size_t n, int mantissa_bits, int bias, bool has_inf)
{
    float table[256];
    if (n < MT_COUNT(table)) {
        for (size_t i = 0; i < n; i++) dst[i] = f8_to_f32(b[i], mantissa_bits, bias, has_inf);
        return;
    }
    for (size_t i = 0; i < MT_COUNT(table); i++) table[i] = f8_to_f32((uint8_t)i, mantissa_bits, bias, has_inf);
    for (size_t i = 0; i < n; i++) dst[i] = table[b[i]];
}

void mt_to_f32(float *dst, const void *src, mt_dtype src_type, size_t n)
{
    const uint8_t *b = src; /* a file's numbers need not be aligned */
    uint16_t h;
    switch (src_type) {
    case MT_DTYPE_F32: memcpy(dst, src, n * sizeof *dst); break;
    case MT_DTYPE_BF16:
        for (size_t i = 0; i < n; i++) memcpy(&h, b + 2 * i, 2), dst[i] = mt_bf16_to_f32(h);
        break;
    case MT_DTYPE_F16:
        for (size_t i = 0; i < n; i++) memcpy(&h, b + 2 * i, 2), dst[i] = mt_f16_to_f32(h);
        break;
    case MT_DTYPE_F64:
        for (size_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, b + i * sizeof d, sizeof d);
            dst[i] = (float)d;
        }
        break;
    case MT_DTYPE_F8_E4M3: f8_array_to_f32(dst, b, n, 3, 7, false); break;
    case MT_DTYPE_F8_E5M2: f8_array_to_f32(dst, b, n, 2, 15, true); break;
    default: assert(!"not a float format"); break;
    }
}

void mt_from_f32(void *dst, mt_dtype dst_type, const float *src, size_t n)
{
    uint16_t *h = dst;
    switch (dst_type) {
    case MT_DTYPE_F32: memcpy(dst, src, n * sizeof *src); break;
    case MT_DTYPE_BF16:
        for (size_t i = 0; i < n; i++) h[i] = mt_f32_to_bf16(src[i]);
        break;
    case MT_DTYPE_F16:
        for (size_t i = 0; i < n; i++) h[i] = mt_f32_to_f16(src[i]);
        break;
    default: assert(!"not a float format we write"); break;
    }
}
