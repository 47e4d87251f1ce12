/* sqnorm_avx2.c - the lanes of sqnorm.h, 32 at a time in eight registers.  The fused operations round as separate ones would: the
 * squares are exact. */
#include "ops/sqnorm.h"

#include "base/cpuid.h"

#if MT_X86
#include <immintrin.h>

enum { CHUNK = MT_SQNORM_CHUNK, LANES = MT_SQNORM_LANES, PART = 32, REGS = PART / 4 };

/* sum[0], sum[1] += squares of 8 floats */
static inline void add_squares(__m256d *sum, __m256 x)
{
    __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    sum[0] = _mm256_fmadd_pd(low, low, sum[0]);
    sum[1] = _mm256_fmadd_pd(high, high, sum[1]);
}

static inline __m256 load_bf16(const uint16_t *x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)x)), 16));
}

void mt__sqnorm_lanes_bf16_avx2(double *lane, const uint16_t *x)
{
    for (int at = 0; at < LANES; at += PART) {
        __m256d sum[REGS];
        for (int r = 0; r < REGS; r++) sum[r] = _mm256_setzero_pd();
        for (int k = at; k < CHUNK; k += LANES)
            for (int r = 0; r < REGS; r += 2) add_squares(sum + r, load_bf16(x + k + 4 * r));
        for (int r = 0; r < REGS; r++) _mm256_storeu_pd(lane + at + 4 * r, sum[r]);
    }
}

void mt__sqnorm_lanes_f32_avx2(double *lane, const float *x)
{
    for (int at = 0; at < LANES; at += PART) {
        __m256d sum[REGS];
        for (int r = 0; r < REGS; r++) sum[r] = _mm256_setzero_pd();
        for (int k = at; k < CHUNK; k += LANES)
            for (int r = 0; r < REGS; r += 2) add_squares(sum + r, _mm256_loadu_ps(x + k + 4 * r));
        for (int r = 0; r < REGS; r++) _mm256_storeu_pd(lane + at + 4 * r, sum[r]);
    }
}
#endif
