/* moments.h - how an optimizer's arrays, such as Adam's two moments, are stored between updates, the same bits on every machine.
 *
 *     float32   4 bytes each     as computed
 *     bf16      2 bytes each     rounded stochastically
 *     8-bit     1 byte each      blocks of 256 numbers that share an exponent; rounded stochastically
 *
 * The update is always that of adamw.h, in fp32: stored moments are widened (exactly), updated, used for the weight, and only
 * then rounded for the next step.
 *
 * Stochastic rounding: up or down with the chance that makes the mean right.  Nearest would not do: v changes by 1 - beta2 a
 * step, a thousandth of itself, which is less than half the distance to the next bf16, so that v would never change again.  The
 * random bits of number i of a unit are a pure function of a key, made of (seed, unit, update), and i (mt_moment_bits): no
 * placement, thread, device or resume can change them.  Numbers 2^32 apart in one unit share theirs.
 *
 * 8-bit: numbers [256 b, 256 b + 256) of a unit are block b, which stores E, the exponent of its largest magnitude once that is
 * rounded.  A number is a small float below it, with f of three bits:
 *
 *     m   sign, e of 4 bits, f     (1 + f/8) 2^(E - 15 + e),  or f/8 2^(E - 14) where e = 0
 *     v         e of 5 bits, f     (1 + f/8) 2^(E - 31 + e),  or f/8 2^(E - 30) where e = 0
 *
 * The scale is a power of two and not the largest number itself, so that a block whose largest number changes does not move the
 * others: they are on the same grid before and after.  A v that is not 0 never becomes 0 (its weight would move by m / eps): the
 * smallest code is its floor.
 *
 * Not finite: a NaN of either moment is stored as 0x7fc0 (bf16) or the largest code, positive (8-bit); infinity as itself (bf16)
 * or the largest code.  adamw.h has counted them by then, and such arrays are not saved.
 *
 * Every number of the 8-bit form is exactly a bf16, and bf16 read into it give back the same codes: this is how checkpoints store
 * both. */
#ifndef MT_OPS_MOMENTS_H
#define MT_OPS_MOMENTS_H

#include "base/dtype.h"

#ifdef __CUDACC__ /* the arithmetic is written once, for host and device */
#define MT_ANYWHERE static __host__ __device__ __forceinline__
#else
#define MT_ANYWHERE static inline
#endif

typedef enum mt_moments { MT_MOMENTS_F32, MT_MOMENTS_BF16, MT_MOMENTS_8BIT, MT_MOMENTS_FORMS } mt_moments;

enum { MT_MOMENT_BLOCK = 256 };

/* Bytes of one moment of n numbers. */
size_t mt_moments_bytes(mt_moments form, size_t n);
/* The type in which callers read and write a moment: float32, or bfloat16 for both smaller forms. */
mt_dtype mt_moments_type(mt_moments form);
/* "float32", "bf16", "8bit", as the setting has it. */
const char *mt_moments_name(mt_moments form);
bool mt_moments_from_name(const char *name, mt_moments *out);

/* 8-bit: the codes come first; the blocks' exponents begin here. */
MT_ANYWHERE size_t mt_moments_exponents_at(size_t n) { return (n + 15) / 16 * 16; }
MT_ANYWHERE size_t mt_moments_blocks(size_t n) { return (n + MT_MOMENT_BLOCK - 1) / MT_MOMENT_BLOCK; }

/* The moments of up to a block of numbers, on their way to fp32 and back. */
typedef struct mt_moments_chunk {
    mt_moments form; /* not F32 */
    void *m, *v;     /* a whole unit's; v: NULL if there is none */
    size_t n_all;    /* numbers of that unit */
    size_t at, n;    /* these of them; `at` begins a block, n is at most one, less only at the end of the unit */
    uint64_t key;    /* store: of the random bits */
    float *m32, *v32;
} mt_moments_chunk;

/* In plain C; adamw.h has vector code that reads, updates and stores whole blocks. */
void mt_moments_load(const mt_moments_chunk *c);
void mt_moments_store(const mt_moments_chunk *c);

/* -- the arithmetic -------------------------------------------------------------------------------- */

MT_ANYWHERE uint32_t mt__bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

MT_ANYWHERE float mt__float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One of two, without a branch: compilers make vector code of it. */
MT_ANYWHERE uint32_t mt__pick(bool yes, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)yes;
    return (a & mask) | (b & ~mask);
}

/* For number i: the low half rounds m, the high half v. */
MT_ANYWHERE uint32_t mt_moment_bits(uint64_t key, uint32_t i)
{
    uint32_t x = i + (uint32_t)key;
    x = (x ^ x >> 16) * 0x7feb352du + (uint32_t)(key >> 32);
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* The key with which number 0 gets the random bits of number `first`: of an update of part of a unit. */
MT_ANYWHERE uint64_t mt_moment_key_at(uint64_t key, int64_t first)
{
    return (key >> 32 << 32) | (uint32_t)((uint32_t)key + (uint32_t)first);
}

/* r: 16 random bits.  What they could carry to infinity is cut instead. */
MT_ANYWHERE uint16_t mt_moment_to_bf16(float x, uint32_t r)
{
    uint32_t bits = mt__bits_of(x), magnitude = bits & 0x7fffffff;
    uint32_t rounded = (bits + mt__pick(magnitude < 0x7f7f0000, r, 0)) >> 16;
    return (uint16_t)mt__pick(magnitude > 0x7f800000, 0x7fc0, rounded);
}

enum {
    MT_MOMENT_LOWEST = 34,
    MT_MOMENT_HIGHEST = 254
}; /* of E, as fp32 has it: with 127 added.  The step of any block is a
                                                          * normal float */
enum { MT_MOMENT_E_BITS_M = 4, MT_MOMENT_E_BITS_V = 5 };

/* A magnitude with its 16 random bits added below the three of f: truncating it rounds the number. */
MT_ANYWHERE uint32_t mt_moment_raised(float x, uint32_t r) { return (mt__bits_of(x) & 0x7fffffff) + (r << 4); }

/* The exponent that a block stores for the largest of its raised magnitudes: a block of zeros stores 0. */
MT_ANYWHERE uint32_t mt_moment_exponent(uint32_t largest)
{
    uint32_t e = largest >> 23;
    e = e < MT_MOMENT_LOWEST ? MT_MOMENT_LOWEST : e > MT_MOMENT_HIGHEST ? MT_MOMENT_HIGHEST : e;
    return e - MT_MOMENT_LOWEST;
}

typedef struct mt_moment_scale {
    uint32_t normal;      /* bits of the smallest magnitude with e = 1 */
    uint32_t offset;      /* from a code to the leading bits of its float */
    float step, per_step; /* what f counts where e = 0 */
} mt_moment_scale;

MT_ANYWHERE mt_moment_scale mt_moment_scale_of(uint32_t exponent, int e_bits)
{
    uint32_t first = exponent + MT_MOMENT_LOWEST + 2 - (1u << e_bits);
    mt_moment_scale s;
    s.normal = first << 23;
    s.offset = (first - 1) * 8;
    s.step = mt__float_of((first - 3) << 23);
    s.per_step = mt__float_of((257 - first) << 23);
    return s;
}

/* The product is by a power of two, so exact or too small to matter: fused or not, the sum is the same. */
MT_ANYWHERE uint32_t mt_moment_code(uint32_t magnitude, uint32_t r, mt_moment_scale s, uint32_t top)
{
    uint32_t code = ((magnitude + (r << 4)) >> 20) - s.offset;
    uint32_t low = mt__pick(magnitude < s.normal, magnitude, 0); /* so that the next line stays below 9 */
    uint32_t small = (uint32_t)(int32_t)(mt__float_of(low) * s.per_step + (float)(int32_t)r * 0x1p-16f);
    code = mt__pick(magnitude < s.normal, small, code);
    return mt__pick(code < top, code, top);
}

MT_ANYWHERE uint32_t mt_moment_m_code(float m, uint32_t r, mt_moment_scale s)
{
    uint32_t bits = mt__bits_of(m), magnitude = bits & 0x7fffffff;
    uint32_t sign = mt__pick(magnitude > 0x7f800000, 0, bits >> 31 << 7);
    return sign | mt_moment_code(magnitude, r, s, 127);
}

MT_ANYWHERE uint32_t mt_moment_v_code(float v, uint32_t r, mt_moment_scale s)
{
    uint32_t magnitude = mt__bits_of(v) & 0x7fffffff, code = mt_moment_code(magnitude, r, s, 255);
    return code | (uint32_t)((code == 0) & (magnitude != 0));
}

MT_ANYWHERE float mt__moment_value(uint32_t code, mt_moment_scale s)
{
    float small = (float)(int32_t)code * s.step;
    return mt__float_of(mt__pick(code < 8, mt__bits_of(small), (code + s.offset) << 20));
}

MT_ANYWHERE float mt_moment_m_value(uint32_t code, mt_moment_scale s)
{
    return mt__float_of(mt__bits_of(mt__moment_value(code & 127, s)) | code >> 7 << 31);
}

MT_ANYWHERE float mt_moment_v_value(uint32_t code, mt_moment_scale s) { return mt__moment_value(code, s); }

#endif
