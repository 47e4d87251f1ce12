/* split.h - an fp32 master weight as two 16-bit halves.
 *
 * `hi` is the bf16 a device computes with: the float rounded to nearest, halves away from zero.  `lo` is the
 * signed rest of the bits.  As integers,
 *     hi   = (bits + 0x8000) >> 16
 *     lo   = bits - (hi << 16)          -32768..32767, so an int16 holds it: it is the low half of bits, read as signed
 *     bits = (hi << 16) + lo
 * which is exact for every float whose hi is finite.  The others (NaN, infinities, and magnitudes from
 * 0x1.ffp127 up, which would round to infinity) are refused.
 *
 * Not ties to even, the usual rounding: a tie rounded down would leave lo = +32768, one more than an int16 holds. */
#ifndef MT_BASE_SPLIT_H
#define MT_BASE_SPLIT_H

#include "base/dtype.h"

/* Magnitudes (bits without the sign) from here on have no finite hi. */
#define MT_SPLIT_LIMIT UINT32_C(0x7f7f8000)

static inline bool mt_split_ok(float x) { return (mt_f32_bits(x) & 0x7fffffff) < MT_SPLIT_LIMIT; }

/* x must satisfy mt_split_ok; any other gives halves that do not join to it. */
static inline void mt_split(float x, uint16_t *hi, int16_t *lo)
{
    uint32_t bits = mt_f32_bits(x);
    *hi = (uint16_t)((bits + 0x8000) >> 16);
    *lo = (int16_t)(uint16_t)bits;
}

static inline float mt_join(uint16_t hi, int16_t lo) { return mt_f32_from_bits(((uint32_t)hi << 16) + (uint32_t)(int32_t)lo); }

/* n pairs of halves to floats. */
void mt_join_array(float *x, const uint16_t *hi, const int16_t *lo, size_t n);

/* Index of the first pair that no split can have made (a damaged file), or n. */
size_t mt_split_check(const uint16_t *hi, const int16_t *lo, size_t n);

#endif
