/* adamw_avx512.c - adamw.h, sixteen elements at a time.  Separate multiply and add on purpose: see the contract there. */
#include "ops/adamw.h"

#include "base/cpuid.h"
#include "base/split.h"

#if MT_X86
#include <assert.h>
#include <immintrin.h>

enum { LANES = 16 };

typedef struct coef {
    __m512 beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inv_sqrt_bc2, eps, decay, grad_scale;
} coef;

static inline coef broadcast(const mt_adamw_coef *c)
{
    return (coef){ _mm512_set1_ps(c->beta1),     _mm512_set1_ps(c->one_minus_beta1),
                   _mm512_set1_ps(c->beta2),     _mm512_set1_ps(c->one_minus_beta2),
                   _mm512_set1_ps(c->step_size), _mm512_set1_ps(c->inv_sqrt_bc2),
                   _mm512_set1_ps(c->eps),       _mm512_set1_ps(c->decay),
                   _mm512_set1_ps(c->grad_scale) };
}

static inline __m512 load_grad(const mt_adamw_args *a, size_t i, bool bf16)
{
    if (!bf16) return _mm512_loadu_ps((const float *)a->g + i);
    __m256i g = _mm256_loadu_si256((const void *)((const uint16_t *)a->g + i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(g), 16));
}

static inline __m512 load_weight(const mt_adamw_args *a, size_t i)
{
    __m512i hi = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(a->hi + i)));
    __m512i lo = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)(a->lo + i)));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(hi, 16), lo));
}

/* Returns the lanes whose weight could not be split. */
static inline __mmask16 store_weight(const mt_adamw_args *a, size_t i, __m512 w)
{
    __m512i bits = _mm512_castps_si512(w);
    __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    __mmask16 bad = _mm512_cmpge_epi32_mask(magnitude, _mm512_set1_epi32(MT_SPLIT_LIMIT));
    bits = _mm512_mask_mov_epi32(bits, bad, _mm512_set1_epi32(MT_ADAMW_BAD_HI << 16));
    __m512i hi = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), 16);
    _mm256_storeu_si256((void *)(a->hi + i), _mm512_cvtepi32_epi16(hi));
    _mm256_storeu_si256((void *)(a->lo + i), _mm512_cvtepi32_epi16(bits)); /* keeps the low half */
    return bad;
}

static inline size_t update_lanes(const mt_adamw_args *a, size_t i, const coef *c, bool bf16)
{
    __m512 g = _mm512_mul_ps(load_grad(a, i, bf16), c->grad_scale);
    __m512 m = _mm512_add_ps(_mm512_mul_ps(c->beta1, _mm512_loadu_ps(a->m + i)), _mm512_mul_ps(c->one_minus_beta1, g));
    __m512 v =
        _mm512_add_ps(_mm512_mul_ps(c->beta2, _mm512_loadu_ps(a->v + i)), _mm512_mul_ps(c->one_minus_beta2, _mm512_mul_ps(g, g)));
    __m512 denom = _mm512_add_ps(_mm512_mul_ps(_mm512_sqrt_ps(v), c->inv_sqrt_bc2), c->eps);
    __m512 w = _mm512_mul_ps(load_weight(a, i), c->decay);
    w = _mm512_sub_ps(w, _mm512_mul_ps(c->step_size, _mm512_div_ps(m, denom)));

    _mm512_storeu_ps(a->m + i, m);
    _mm512_storeu_ps(a->v + i, v);
    __m512i v_magnitude = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
    __mmask16 v_bad = _mm512_cmpge_epi32_mask(v_magnitude, _mm512_set1_epi32(0x7f800000));
    return (size_t)__builtin_popcount((unsigned)(store_weight(a, i, w) | v_bad));
}

size_t mt__adamw_avx512(const mt_adamw_args *args)
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
