/* adamw.cu - the expression of adamw.h, operation by operation (__fmul_rn and the like are never fused), so that the
 * bits are the host's; moments are stored as moments.h says, by the very functions the host calls.
 *
 * Shapes: hi, lo, m, v, g [n].  Bytes moved: 26 a parameter (28 with fp32 gradients); 18 with moments in bf16, 14 in 8 bits.  n_bad is a sum of
 * integers, so the order of its atomic additions cannot show. */
#include "optim/update.cuh"

typedef struct param {
    uint16_t hi;
    int16_t lo;
    float m, v;
} param;

/* Returns 1 if it left the finite range. */
__device__ __forceinline__ int update_one(param *p, float grad, const mt_update_coef &c)
{
    float g = __fmul_rn(grad, c.grad_scale);
    float m = __fadd_rn(__fmul_rn(c.beta1, p->m), __fmul_rn(c.one_minus_beta1, g));
    float v = __fadd_rn(__fmul_rn(c.beta2, p->v), __fmul_rn(c.one_minus_beta2, __fmul_rn(g, g)));
    float denom = __fadd_rn(__fmul_rn(__fsqrt_rn(v), c.inv_sqrt_bc2), c.eps);
    float w = join_halves(p->hi, p->lo);
    w = __fsub_rn(__fmul_rn(w, c.decay), __fmul_rn(c.step_size, __fdiv_rn(m, denom)));
    uint32_t bits = __float_as_uint(w);
    bool ok = (bits & 0x7fffffff) < MT_SPLIT_LIMIT;
    p->hi = ok ? (uint16_t)((bits + 0x8000) >> 16) : (uint16_t)MT_UPDATE_BAD_HI;
    p->lo = ok ? (int16_t)(uint16_t)bits : (int16_t)0;
    p->m = m;
    p->v = v;
    return !ok || (__float_as_uint(v) & 0x7fffffff) >= 0x7f800000;
}

template <typename T, typename STORED, int N_AT_ONCE>
__device__ __forceinline__ int update_some(const mt_adamw &a, int64_t i, const mt_update_coef &coef)
{
    typedef typename STORED::type moment;
    vec<uint16_t, N_AT_ONCE> hi = load<uint16_t, N_AT_ONCE>(a.hi + i);
    vec<int16_t, N_AT_ONCE> lo = load<int16_t, N_AT_ONCE>(a.lo + i);
    vec<moment, N_AT_ONCE> m = load<moment, N_AT_ONCE>((moment *)a.m + i), v = load<moment, N_AT_ONCE>((moment *)a.v + i);
    vec<T, N_AT_ONCE> g = load<T, N_AT_ONCE>((const T *)a.g + i);
    int n_bad = 0;
#pragma unroll
    for (int k = 0; k < N_AT_ONCE; k++) {
        param p = { hi.at[k], lo.at[k], STORED::widen(m.at[k]), STORED::widen(v.at[k]) };
        uint32_t r = STORED::random(a.key, i + k);
        n_bad += update_one(&p, to_f32(g.at[k]), coef);
        hi.at[k] = p.hi;
        lo.at[k] = p.lo;
        m.at[k] = STORED::round(p.m, r & 0xffff);
        v.at[k] = STORED::round(p.v, r >> 16);
    }
    store<uint16_t, N_AT_ONCE>(a.hi + i, hi);
    store<int16_t, N_AT_ONCE>(a.lo + i, lo);
    store<moment, N_AT_ONCE>((moment *)a.m + i, m);
    store<moment, N_AT_ONCE>((moment *)a.v + i, v);
    return n_bad;
}

template <typename T, typename STORED> __global__ void __launch_bounds__(THREADS) update_kernel(mt_adamw a, bool whole)
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

/* Eight numbers or, at the end, fewer; WHOLE: eight, aligned. */
template <typename T, bool WHOLE> struct lane {
    vec<uint16_t, W> hi;
    vec<int16_t, W> lo;
    vec<uint8_t, W> m, v;
    vec<T, W> g;

    __device__ __forceinline__ void load_from(const mt_adamw &a, int64_t i, int n)
    {
        if constexpr (WHOLE) {
            hi = load<uint16_t, W>(a.hi + i);
            lo = load<int16_t, W>(a.lo + i);
            m = load<uint8_t, W>((uint8_t *)a.m + i);
            v = load<uint8_t, W>((uint8_t *)a.v + i);
            g = load<T, W>((const T *)a.g + i);
        } else {
            for (int k = 0; k < n; k++) {
                hi.at[k] = a.hi[i + k];
                lo.at[k] = a.lo[i + k];
                m.at[k] = ((uint8_t *)a.m)[i + k];
                v.at[k] = ((uint8_t *)a.v)[i + k];
                g.at[k] = ((const T *)a.g)[i + k];
            }
        }
    }
    __device__ __forceinline__ void store_to(const mt_adamw &a, int64_t i, int n) const
    {
        if constexpr (WHOLE) {
            store<uint16_t, W>(a.hi + i, hi);
            store<int16_t, W>(a.lo + i, lo);
            store<uint8_t, W>((uint8_t *)a.m + i, m);
            store<uint8_t, W>((uint8_t *)a.v + i, v);
        } else {
            for (int k = 0; k < n; k++) {
                a.hi[i + k] = hi.at[k];
                a.lo[i + k] = lo.at[k];
                ((uint8_t *)a.m)[i + k] = m.at[k];
                ((uint8_t *)a.v)[i + k] = v.at[k];
            }
        }
    }
};

/* All lanes of a warp call it, with the same block. */
template <typename T, bool WHOLE> __device__ __forceinline__ int update_block(const mt_adamw &a, int64_t block)
{
    int64_t exponent = (int64_t)mt_moments_exponents_at((size_t)a.n) + block, i = block * MT_MOMENT_BLOCK + threadIdx.x % 32 * W;
    int n = WHOLE ? W : (int)max((int64_t)0, min((int64_t)W, a.n - i)), n_bad = 0;
    uint8_t *em = (uint8_t *)a.m + exponent, *ev = (uint8_t *)a.v + exponent;
    mt_moment_scale sm = mt_moment_scale_of(*em, MT_MOMENT_E_BITS_M), sv = mt_moment_scale_of(*ev, MT_MOMENT_E_BITS_V);
    uint32_t largest_m = 0, largest_v = 0;
    float m[W], v[W];
    lane<T, WHOLE> x;
    x.load_from(a, i, n);
#pragma unroll
    for (int k = 0; k < W; k++) {
        if (!WHOLE && k >= n) break;
        param p = { x.hi.at[k], x.lo.at[k], mt_moment_m_value(x.m.at[k], sm), mt_moment_v_value(x.v.at[k], sv) };
        mt_update_coef coef = a.coef;
        coef.decay = i + k < a.n_decay ? a.coef.decay : a.coef_no_decay.decay;
        n_bad += update_one(&p, to_f32(x.g.at[k]), coef);
        x.hi.at[k] = p.hi;
        x.lo.at[k] = p.lo;
        m[k] = p.m;
        v[k] = p.v;
        uint32_t r = mt_moment_bits(a.key, (uint32_t)(i + k));
        largest_m = max(largest_m, mt_moment_raised(p.m, r & 0xffff));
        largest_v = max(largest_v, mt_moment_raised(p.v, r >> 16));
    }
    uint32_t new_m = mt_moment_exponent(warp_max(largest_m)), new_v = mt_moment_exponent(warp_max(largest_v));
    sm = mt_moment_scale_of(new_m, MT_MOMENT_E_BITS_M);
    sv = mt_moment_scale_of(new_v, MT_MOMENT_E_BITS_V);
#pragma unroll
    for (int k = 0; k < W; k++) {
        if (!WHOLE && k >= n) break;
        uint32_t r = mt_moment_bits(a.key, (uint32_t)(i + k)); /* again: cheaper than registers */
        x.m.at[k] = (uint8_t)mt_moment_m_code(m[k], r & 0xffff, sm);
        x.v.at[k] = (uint8_t)mt_moment_v_code(v[k], r >> 16, sv);
    }
    x.store_to(a, i, n);
    if (threadIdx.x % 32 == 0) *em = (uint8_t)new_m, *ev = (uint8_t)new_v; /* every lane has read the old ones: warp_max */
    return n_bad;
}

/* Blocks [from, to).  Whole ones and others are two kernels: one of both needs twice the registers. */
template <typename T, bool WHOLE>
__global__ void __launch_bounds__(THREADS, WHOLE ? 2 : 1) update_8bit_kernel(mt_adamw a, int64_t from, int64_t to)
{
    if (a.guard && !isfinite(*a.guard)) return;
    int64_t n_warps = (int64_t)gridDim.x * (THREADS / 32);
    int n_bad = 0;
    for (int64_t b = from + ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32; b < to; b += n_warps)
        n_bad += update_block<T, WHOLE>(a, b);
    if (n_bad) atomicAdd((unsigned long long *)a.n_bad, (unsigned long long)n_bad);
}

/* -- launcher -------------------------------------------------------------------------------------- */

template <typename T> static void launch_8bit(mt_stream *s, const mt_adamw *a, bool aligned)
{
    int64_t all = (int64_t)mt_moments_blocks((size_t)a->n), whole = aligned ? a->n / MT_MOMENT_BLOCK : 0;
    if (whole) update_8bit_kernel<T, true><<<grid(s, a->n), THREADS, 0, mt_cuda_raw(s)>>>(*a, 0, whole);
    if (whole < all)
        update_8bit_kernel<T, false><<<grid(s, a->n - whole * MT_MOMENT_BLOCK), THREADS, 0, mt_cuda_raw(s)>>>(*a, whole, all);
}

template <typename T> static void launch(mt_stream *s, const mt_adamw *a)
{
    size_t moment = 8;
    if (a->moments == MT_MOMENTS_BF16) moment = 16;
    if (a->moments == MT_MOMENTS_F32) moment = 32;
    bool aligned = is_aligned(a->hi, 16) && is_aligned(a->lo, 16) && is_aligned(a->m, moment) && is_aligned(a->v, moment) &&
                   is_aligned(a->g, W * sizeof(T));
    switch (a->moments) {
    case MT_MOMENTS_F32: update_kernel<T, in_f32><<<grid(s, a->n), THREADS, 0, mt_cuda_raw(s)>>>(*a, aligned); break;
    case MT_MOMENTS_BF16: update_kernel<T, in_bf16><<<grid(s, a->n), THREADS, 0, mt_cuda_raw(s)>>>(*a, aligned); break;
    default: launch_8bit<T>(s, a, aligned); break;
    }
}

mt_rc mt__adamw_cuda(mt_stream *s, const mt_adamw *a, mt_err *err)
{
    if (a->n == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        launch<bf16>(s, a);
    else
        launch<float>(s, a);
    return mt__cuda_launched(s, "adamw", err);
}
