/* forms.h - how frozen weights are packed: the forms that model files have, written once for host and device.
 *
 * A form packs a matrix row by row, so any choice of rows of a packed matrix is packed itself, and no choice cuts a block.  The
 * numbers of a matrix [rows, columns] are in up to four planes, one after the other, each aligned to MT_FORM_ALIGN bytes:
 *
 *     codes    every form   a row of codes after the other
 *     scales   most forms   a scale per block of a row (FP8: of a tile)
 *     more     NF4, nested: fp32 scales of the scales;  int4: the zero point of each block, a byte
 *     extra    NF4, nested: mt_form_nested;  int4, if columns are not in the order of
 *                               their blocks: the block of each column, int32
 *
 *     form        block        code                                      number
 *     F8_E4M3     any tile     8 bits                                    code * scale[row / block_rows][column / block], fp32
 *     F8_E5M2     any tile     8 bits                                    the same
 *     MXFP4       32           4 bits, the even column in the low ones   code * 2^(scale - 127), a byte
 *     NF4         64, ...      4 bits, the even column in the high ones  code * scale, fp32
 *     NF4_NESTED  64, ...      the same                                  code * (map[scale] * more[block / 256] + offset)
 *     INT4        any group    4 bits, the even column in the low ones   (code - zero) * scale, fp16
 *     Q8_0        32           34 bytes a block: fp16 d, 32 int8         d * code
 *     Q4_K        256          144 bytes a block (quants.c)              d * s * code - dmin * m
 *
 * Files arrange some of these in other ways: GPTQ and AWQ pack columns of the matrix, GGUF reorders rows of q and k.  Reading
 * a file puts the rows in the order of the model's weights, without touching a code or a scale.
 *
 * Every operation rounds once: nothing is fused, so that all devices expand to the same bits. */
#ifndef MT_OPS_FORMS_H
#define MT_OPS_FORMS_H

#include "base/dtype.h"
#include "ops/moments.h"

typedef enum mt_form {
    MT_FORM_NUMBERS, /* not packed */
    MT_FORM_F8_E4M3,
    MT_FORM_F8_E5M2,
    MT_FORM_MXFP4,
    MT_FORM_NF4,
    MT_FORM_NF4_NESTED,
    MT_FORM_INT4,
    MT_FORM_Q8_0,
    MT_FORM_Q4_K,
    MT_FORMS
} mt_form;

enum { MT_FORM_ALIGN = 16, MT_FORM_NESTED_BLOCK = 256, MT_Q8_0_BYTES = 34, MT_Q4_K_BYTES = 144 };

/* How a matrix is packed. */
typedef struct mt_packing {
    mt_form form;
    int64_t rows, columns;
    int64_t block;      /* columns that share a scale; the last block of a row may be shorter (FP8, INT4) */
    int64_t block_rows; /* FP8: rows that share it; otherwise 1 */
    bool ordered;       /* INT4: columns name their blocks */
} mt_packing;

/* Where the planes of a packed matrix begin, in bytes. */
typedef struct mt_packed_places {
    size_t row_bytes; /* of codes */
    size_t scales, more, extra, bytes;
    int64_t blocks; /* of a row */
} mt_packed_places;
mt_packed_places mt_packing_places(const mt_packing *p);
/* Bytes of the matrix, whole MT_FORM_ALIGN; 0: it is not packed. */
size_t mt_packing_bytes(const mt_packing *p);
/* True if the numbers fit the form: whole bytes, whole blocks where the form needs them. */
bool mt_packing_is_possible(const mt_packing *p);
/* "MXFP4", as messages and plans have it. */
const char *mt_form_name(mt_form form);

/* The last plane of nested NF4. */
typedef struct mt_form_nested {
    float map[256];
    float offset;
    int32_t first; /* blocks of the file's tensor before the first one, less than MT_FORM_NESTED_BLOCK of them */
} mt_form_nested;

/* A packed matrix in memory; the planes may be apart. */
typedef struct mt_packed {
    mt_packing as;
    const uint8_t *codes;
    const void *scales, *more, *extra;
    size_t row_bytes;
    int64_t blocks;
} mt_packed;
mt_packed mt_packed_at(const mt_packing *p, const void *bytes);
/* Numbers [first, first + n) of the matrix, row by row. */
void mt_packed_read(const mt_packed *p, int64_t first, int64_t n, float *out);

/* -- the arithmetic -------------------------------------------------------------------------------- */

#ifdef __CUDA_ARCH__
#define MT_FORM_MUL(a, b) __fmul_rn(a, b)
#define MT_FORM_ADD(a, b) __fadd_rn(a, b)
#else /* compiled without contraction */
#define MT_FORM_MUL(a, b) ((a) * (b))
#define MT_FORM_ADD(a, b) ((a) + (b))
#endif

/* bitsandbytes' 16 codes of NF4. */
#define MT_NF4_CODES                                                                                                             \
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f,      \
        -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,     \
        0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f

/* A small float: sign, e_bits, m_bits, without infinities (E4M3: all ones is NaN), or with (E5M2). */
MT_ANYWHERE float mt_form_e4m3(uint32_t code)
{
    const uint32_t sign = (code & 128) << 24, e = code >> 3 & 15, m = code & 7;
    if (e == 0) return mt__float_of(mt__bits_of((float)(int32_t)m * 0x1p-9f) | sign);
    if (e == 15 && m == 7) return mt__float_of(0x7fc00000u | sign);
    return mt__float_of(sign | (e + 120) << 23 | m << 20);
}

MT_ANYWHERE float mt_form_e5m2(uint32_t code)
{
    const uint32_t sign = (code & 128) << 24, e = code >> 2 & 31, m = code & 3;
    if (e == 0) return mt__float_of(mt__bits_of((float)(int32_t)m * 0x1p-16f) | sign);
    if (e == 31) return mt__float_of((m ? 0x7fc00000u : 0x7f800000u) | sign);
    return mt__float_of(sign | (e + 112) << 23 | m << 21);
}

MT_ANYWHERE float mt_form_f16(uint32_t half)
{
    const uint32_t sign = (half & 0x8000) << 16, e = half >> 10 & 31, m = half & 1023;
    if (e == 0) return mt__float_of(mt__bits_of((float)(int32_t)m * 0x1p-24f) | sign);
    if (e == 31) return mt__float_of(0x7f800000u | m << 13 | sign);
    return mt__float_of(sign | (e + 112) << 23 | m << 13);
}

/* MXFP4: a sign, two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6. */
MT_ANYWHERE float mt_form_e2m1(uint32_t code)
{
    const uint32_t sign = (code & 8) << 28, e = code >> 1 & 3, m = code & 1;
    if (e == 0) return mt__float_of((m ? 0x3f000000u : 0u) | sign);
    return mt__float_of(sign | (e + 126) << 23 | m << 22);
}

/* 2^(scale - 127).  The scale is the float's exponent field; 0 needs a subnormal float, and 255 means NaN. */
MT_ANYWHERE float mt_form_e8m0(uint32_t scale)
{
    if (scale == 0) return mt__float_of(1u << 22);
    return mt__float_of(scale == 255 ? 0x7fc00000u : scale << 23);
}

/* Scale and offset of sub-block k of 8 of a Q4_K block.  They have six bits each: the first four are in the low bits of bytes 0
 * to 3 and 4 to 7; the others' low nibbles in bytes 8 to 11, their top two bits on top of the first four's. */
MT_ANYWHERE void mt_form_q4_k_scale(const uint8_t *block, int k, float *scale, float *offset)
{
    const uint8_t *p = block + 4;
    const uint32_t s = k < 4 ? p[k] & 63u : (p[k + 4] & 15u) | (uint32_t)p[k - 4] >> 6 << 4;
    const uint32_t m = k < 4 ? p[k + 4] & 63u : (uint32_t)p[k + 4] >> 4 | (uint32_t)p[k] >> 6 << 4;
    *scale = MT_FORM_MUL(mt_form_f16(block[0] | (uint32_t)block[1] << 8), (float)(int32_t)s);
    *offset = MT_FORM_MUL(mt_form_f16(block[2] | (uint32_t)block[3] << 8), (float)(int32_t)m);
}

/* The bf16 that a device computes with: the high half of the number's split (base/split.h). */
MT_ANYWHERE uint16_t mt_form_bf16(float x) { return (uint16_t)((mt__bits_of(x) + 0x8000u) >> 16); }

/* The fp32 scale of block `i` of nested NF4, counted from the matrix's first. */
MT_ANYWHERE float mt_form_nested_scale(const mt_packed *p, int64_t i)
{
    const mt_form_nested *n = (const mt_form_nested *)p->extra;
    const float *more = (const float *)p->more;
    const float scale = MT_FORM_MUL(n->map[((const uint8_t *)p->scales)[i]], more[(i + n->first) / MT_FORM_NESTED_BLOCK]);
    return MT_FORM_ADD(scale, n->offset);
}

/* The block of a column. */
MT_ANYWHERE int64_t mt_form_block_of(const mt_packed *p, int64_t column)
{
    return p->as.ordered ? ((const int32_t *)p->extra)[column] : column / p->as.block;
}

#endif
