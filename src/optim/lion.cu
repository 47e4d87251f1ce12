/* lion.cu - the expression of lion.h, operation by operation (__fmul_rn and the like are never fused), so that the bits are the
 * host's; the momentum is stored as ops/moments.h says, by the very functions the host calls.
 *
 * Shapes: hi, lo, m, g [n].  Bytes moved: 18 a parameter (20 with fp32 gradients); 14 with the momentum in bf16, 12 in 8 bits.  n_bad is
 * a sum of integers, so the order of its atomic additions cannot show. */
#include "optim/update.cuh"

/* Returns 1 if it left the finite range. */
__device__ __forceinline__ int update_one(uint16_t *hi, int16_t *lo, float *momentum, float grad, const mt_update_coef &c)
{
    float g = __fmul_rn(grad, c.grad_scale);
    float u = __fadd_rn(__fmul_rn(c.beta1, *momentum), __fmul_rn(c.one_minus_beta1, g));
    float m = __fadd_rn(__fmul_rn(c.beta2, *momentum), __fmul_rn(c.one_minus_beta2, g));
    uint32_t sign = __float_as_uint(u) & 0x80000000, step = __float_as_uint(c.step_size) | sign;
    float signed_step = __uint_as_float(__float_as_uint(u) & 0x7fffffff ? step : 0);
    float w = __fsub_rn(__fmul_rn(join_halves(*hi, *lo), c.decay), signed_step);
    uint32_t bits = __float_as_uint(w);
    bool ok = (bits & 0x7fffffff) < MT_SPLIT_LIMIT && (__float_as_uint(m) & 0x7fffffff) < 0x7f800000;
    *hi = ok ? (uint16_t)((bits + 0x8000) >> 16) : (uint16_t)MT_UPDATE_BAD_HI;
    *lo = ok ? (int16_t)(uint16_t)bits : (int16_t)0;
    *momentum = m;
    return !ok;
}

template <typename T, typename STORED, int N_AT_ONCE>
__device__ __forceinline__ int update_some(const mt_lion &a, int64_t i, const mt_update_coef &coef)
{
    typedef typename STORED::type moment;
    vec<uint16_t, N_AT_ONCE> hi = load<uint16_t, N_AT_ONCE>(a.hi + i);
    vec<int16_t, N_AT_ONCE> lo = load<int16_t, N_AT_ONCE>(a.lo + i);
    vec<moment, N_AT_ONCE> m = load<moment, N_AT_ONCE>((moment *)a.m + i);
    vec<T, N_AT_ONCE> g = load<T, N_AT_ONCE>((const T *)a.g + i);
    int n_bad = 0;
#pragma unroll
    for (int k = 0; k < N_AT_ONCE; k++) {
        float x = STORED::widen(m.at[k]);
        n_bad += update_one(&hi.at[k], &lo.at[k], &x, to_f32(g.at[k]), coef);
        m.at[k] = STORED::round(x, STORED::random(a.key, i + k) & 0xffff);
    }
    store<uint16_t, N_AT_ONCE>(a.hi + i, hi);
    store<int16_t, N_AT_ONCE>(a.lo + i, lo);
    store<moment, N_AT_ONCE>((moment *)a.m + i, m);
    return n_bad;
}

template <typename T, typename STORED> __global__ void __launch_bounds__(THREADS) update_kernel(mt_lion a, bool whole)
{
    if (a.guard && !isfinite(*a.guard)) return;
    int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    int n_bad = 0;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W; i < a.n; i += step) {
        if (whole && i + W <= a.n_decay)
            n_bad += update_some<T, STORED, W>(a, i, a.coef);
        else if (whole && i >= a.n_decay && i + W <= a.n)
            n_bad += update_some<T, STORED, W>(a, i, a.coef_no_decay);
        else
            for (int64_t j = i; j < i + W && j < a.n; j++)
                n_bad += update_some<T, STORED, 1>(a, j, j < a.n_decay ? a.coef : a.coef_no_decay);
    }
    if (n_bad) atomicAdd((unsigned long long *)a.n_bad, (unsigned long long)n_bad);
}

/* -- 8-bit: a warp a block, eight numbers a lane ---------------------------------------------------- */

static_assert(MT_MOMENT_BLOCK == 32 * W, "a warp takes a block");

/* All lanes of a warp call it, with the same block. */
template <typename T> __device__ __forceinline__ int update_block(const mt_lion &a, int64_t block, bool whole)
{
    uint8_t *e = (uint8_t *)a.m + mt_moments_exponents_at((size_t)a.n) + block;
    int64_t i = block * MT_MOMENT_BLOCK + threadIdx.x % 32 * W;
    int n = (int)max((int64_t)0, min((int64_t)W, a.n - i)), n_bad = 0;
    mt_moment_scale scale = mt_moment_scale_of(*e, MT_MOMENT_E_BITS_M);
    uint32_t largest = 0;
    float m[W] = {};
    vec<uint16_t, W> hi = {};
    vec<int16_t, W> lo = {};
    vec<uint8_t, W> code = {};
    vec<T, W> g = {};
    if (whole && n == W) {
        hi = load<uint16_t, W>(a.hi + i);
        lo = load<int16_t, W>(a.lo + i);
        code = load<uint8_t, W>((uint8_t *)a.m + i);
        g = load<T, W>((const T *)a.g + i);
    } else {
#pragma unroll
        for (int k = 0; k < W; k++)
            if (k < n)
                hi.at[k] = a.hi[i + k], lo.at[k] = a.lo[i + k], code.at[k] = ((uint8_t *)a.m)[i + k],
                g.at[k] = ((const T *)a.g)[i + k];
    }
#pragma unroll
    for (int k = 0; k < W; k++) {
        if (k >= n) continue;
        mt_update_coef coef = a.coef;
        coef.decay = i + k < a.n_decay ? a.coef.decay : a.coef_no_decay.decay;
        m[k] = mt_moment_m_value(code.at[k], scale);
        n_bad += update_one(&hi.at[k], &lo.at[k], &m[k], to_f32(g.at[k]), coef);
        largest = max(largest, mt_moment_raised(m[k], mt_moment_bits(a.key, (uint32_t)(i + k)) & 0xffff));
    }
    uint32_t exponent = mt_moment_exponent(warp_max(largest));
    scale = mt_moment_scale_of(exponent, MT_MOMENT_E_BITS_M);
#pragma unroll
    for (int k = 0; k < W; k++)
        if (k < n) code.at[k] = (uint8_t)mt_moment_m_code(m[k], mt_moment_bits(a.key, (uint32_t)(i + k)) & 0xffff, scale);
    if (whole && n == W) {
        store<uint16_t, W>(a.hi + i, hi);
        store<int16_t, W>(a.lo + i, lo);
        store<uint8_t, W>((uint8_t *)a.m + i, code);
    } else {
#pragma unroll
        for (int k = 0; k < W; k++)
            if (k < n) a.hi[i + k] = hi.at[k], a.lo[i + k] = lo.at[k], ((uint8_t *)a.m)[i + k] = code.at[k];
    }
    if (threadIdx.x % 32 == 0) *e = (uint8_t)exponent; /* every lane has read the old one: warp_max */
    return n_bad;
}

template <typename T> __global__ void __launch_bounds__(THREADS) update_8bit_kernel(mt_lion a, bool whole)
{
    if (a.guard && !isfinite(*a.guard)) return;
    int64_t n_blocks = (int64_t)mt_moments_blocks((size_t)a.n), n_warps = (int64_t)gridDim.x * (THREADS / 32);
    int n_bad = 0;
    for (int64_t b = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32; b < n_blocks; b += n_warps)
        n_bad += update_block<T>(a, b, whole);
    if (n_bad) atomicAdd((unsigned long long *)a.n_bad, (unsigned long long)n_bad);
}

/* -- launcher -------------------------------------------------------------------------------------- */

template <typename T> static void launch(mt_stream *s, const mt_lion *a)
{
    size_t moment = 8;
    if (a->moments == MT_MOMENTS_BF16) moment = 16;
    if (a->moments == MT_MOMENTS_F32) moment = 32;
    bool aligned = is_aligned(a->hi, 16) && is_aligned(a->lo, 16) && is_aligned(a->m, moment) && is_aligned(a->g, W * sizeof(T));
    switch (a->moments) {
    case MT_MOMENTS_F32: update_kernel<T, in_f32><<<grid(s, a->n), THREADS, 0, mt_cuda_raw(s)>>>(*a, aligned); break;
    case MT_MOMENTS_BF16: update_kernel<T, in_bf16><<<grid(s, a->n), THREADS, 0, mt_cuda_raw(s)>>>(*a, aligned); break;
    default: update_8bit_kernel<T><<<grid(s, a->n), THREADS, 0, mt_cuda_raw(s)>>>(*a, aligned); break;
    }
}

mt_rc mt__lion_cuda(mt_stream *s, const mt_lion *a, mt_err *err)
{
    if (a->n == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        launch<bf16>(s, a);
    else
        launch<float>(s, a);
    return mt__cuda_launched(s, "lion", err);
}
