/* adamw_avx2.c - adamw.h, eight elements at a time.  Separate multiply and add on purpose: see the contract there. */
#include "ops/adamw.h"

#include "base/cpuid.h"
#include "base/split.h"

#if MT_X86
#include <assert.h>
#include <immintrin.h>

enum { LANES = 8 };

typedef struct coef {
    __m256 beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inv_sqrt_bc2, eps, decay, grad_scale;
} coef;

static inline coef broadcast(const mt_adamw_coef *c)
{
    return (coef){ _mm256_set1_ps(c->beta1),     _mm256_set1_ps(c->one_minus_beta1),
                   _mm256_set1_ps(c->beta2),     _mm256_set1_ps(c->one_minus_beta2),
                   _mm256_set1_ps(c->step_size), _mm256_set1_ps(c->inv_sqrt_bc2),
                   _mm256_set1_ps(c->eps),       _mm256_set1_ps(c->decay),
                   _mm256_set1_ps(c->grad_scale) };
}

static inline __m256 load_grad(const mt_adamw_args *a, size_t i, bool bf16)
{
    if (!bf16) return _mm256_loadu_ps((const float *)a->g + i);
    __m128i g = _mm_loadu_si128((const void *)((const uint16_t *)a->g + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(g), 16));
}

static inline __m256 load_weight(const mt_adamw_args *a, size_t i)
{
    __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(a->hi + i)));
    __m256i lo = _mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)(a->lo + i)));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(hi, 16), lo));
}

/* Eight values of at most 16 bits, stored as such. */
static inline void store_narrow(void *dst, __m256i x)
{
    _mm_storeu_si128(dst, _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}

/* All ones in the lanes with |x| >= limit, as bits.  The compare is signed, and so are magnitudes without a sign bit. */
static inline __m256i at_least(__m256i bits, uint32_t limit)
{
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((int)(limit - 1)));
}

/* Returns the lanes whose weight could not be split. */
static inline __m256i store_weight(const mt_adamw_args *a, size_t i, __m256 w)
{
    __m256i bits = _mm256_castps_si256(w);
    __m256i bad = at_least(bits, MT_SPLIT_LIMIT);
    bits = _mm256_blendv_epi8(bits, _mm256_set1_epi32(MT_ADAMW_BAD_HI << 16), bad);
    store_narrow(a->hi + i, _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16));
    store_narrow(a->lo + i, _mm256_and_si256(bits, _mm256_set1_epi32(0xffff)));
    return bad;
}

static inline size_t update_lanes(const mt_adamw_args *a, size_t i, const coef *c, bool bf16)
{
    __m256 g = _mm256_mul_ps(load_grad(a, i, bf16), c->grad_scale);
    __m256 m = _mm256_add_ps(_mm256_mul_ps(c->beta1, _mm256_loadu_ps(a->m + i)), _mm256_mul_ps(c->one_minus_beta1, g));
    __m256 v =
        _mm256_add_ps(_mm256_mul_ps(c->beta2, _mm256_loadu_ps(a->v + i)), _mm256_mul_ps(c->one_minus_beta2, _mm256_mul_ps(g, g)));
    __m256 denom = _mm256_add_ps(_mm256_mul_ps(_mm256_sqrt_ps(v), c->inv_sqrt_bc2), c->eps);
    __m256 w = _mm256_mul_ps(load_weight(a, i), c->decay);
    w = _mm256_sub_ps(w, _mm256_mul_ps(c->step_size, _mm256_div_ps(m, denom)));

    _mm256_storeu_ps(a->m + i, m);
    _mm256_storeu_ps(a->v + i, v);
    __m256i bad = _mm256_or_si256(store_weight(a, i, w), at_least(_mm256_castps_si256(v), 0x7f800000));
    return (size_t)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(bad)));
}

size_t mt__adamw_avx2(const mt_adamw_args *args)
{
    const mt_adamw_args a = *args;
    const coef c = broadcast(&a.coef);
    size_t i = 0, n_bad = 0;
    assert(a.g_type == MT_DTYPE_BF16 || a.g_type == MT_DTYPE_F32);
    if (a.g_type == MT_DTYPE_BF16) {
        for (; i + LANES <= a.n; i += LANES) n_bad += update_lanes(&a, i, &c, true);
    } else {
        for (; i + LANES <= a.n; i += LANES) n_bad += update_lanes(&a, i, &c, false);
    }
    mt_adamw_args rest = mt__adamw_rest(&a, i);
    return n_bad + mt__adamw_portable(&rest);
}
#endif
