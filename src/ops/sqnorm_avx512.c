/* sqnorm_avx512.c - the lanes of sqnorm.h, 64 at a time in eight registers.  The fused operations round as separate ones would: the
 * squares are exact. */
#include "ops/sqnorm.h"

#include "base/cpuid.h"

#if MT_X86
#include <immintrin.h>

enum { CHUNK = MT_SQNORM_CHUNK, LANES = MT_SQNORM_LANES, PART = 64, REGS = PART / 8 };

/* sum[0], sum[1] += squares of 16 floats */
static inline void add_squares(__m512d *sum, __m512 x)
{
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    sum[0] = _mm512_fmadd_pd(low, low, sum[0]);
    sum[1] = _mm512_fmadd_pd(high, high, sum[1]);
}

static inline __m512 load_bf16(const uint16_t *x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x)), 16));
}

void mt__sqnorm_lanes_bf16_avx512(double *lane, const uint16_t *x)
{
    for (int at = 0; at < LANES; at += PART) {
        __m512d sum[REGS];
        for (int r = 0; r < REGS; r++) sum[r] = _mm512_setzero_pd();
        for (int k = at; k < CHUNK; k += LANES)
            for (int r = 0; r < REGS; r += 2) add_squares(sum + r, load_bf16(x + k + 8 * r));
        for (int r = 0; r < REGS; r++) _mm512_storeu_pd(lane + at + 8 * r, sum[r]);
    }
}

void mt__sqnorm_lanes_f32_avx512(double *lane, const float *x)
{
    for (int at = 0; at < LANES; at += PART) {
        __m512d sum[REGS];
        for (int r = 0; r < REGS; r++) sum[r] = _mm512_setzero_pd();
        for (int k = at; k < CHUNK; k += LANES)
            for (int r = 0; r < REGS; r += 2) add_squares(sum + r, _mm512_loadu_ps(x + k + 8 * r));
        for (int r = 0; r < REGS; r++) _mm512_storeu_pd(lane + at + 8 * r, sum[r]);
    }
}
#endif
