/* adamw.cu - the expression of adamw.h, operation by operation (__fmul_rn and the like are never fused), so that the
 * bits are the host's.
 *
 * Shapes: hi, lo, m, v, g [n].  Bytes moved: 26 a parameter (28 with fp32 gradients).  n_bad is a sum of integers, so the
 * order of its atomic additions cannot show. */
#include "ops/ops_cuda.cuh"

extern "C" {
#include "base/split.h"
}

enum { THREADS = 256, W = 8 };

typedef struct param {
    uint16_t hi;
    int16_t lo;
    float m, v;
} param;

/* Returns 1 if it left the finite range. */
__device__ __forceinline__ int update_one(param *p, float grad, const mt_adamw_coef &c)
{
    float g = __fmul_rn(grad, c.grad_scale);
    float m = __fadd_rn(__fmul_rn(c.beta1, p->m), __fmul_rn(c.one_minus_beta1, g));
    float v = __fadd_rn(__fmul_rn(c.beta2, p->v), __fmul_rn(c.one_minus_beta2, __fmul_rn(g, g)));
    float denom = __fadd_rn(__fmul_rn(__fsqrt_rn(v), c.inv_sqrt_bc2), c.eps);
    float w = __uint_as_float(((uint32_t)p->hi << 16) + (uint32_t)(int32_t)p->lo);
    w = __fsub_rn(__fmul_rn(w, c.decay), __fmul_rn(c.step_size, __fdiv_rn(m, denom)));
    uint32_t bits = __float_as_uint(w);
    bool ok = (bits & 0x7fffffff) < MT_SPLIT_LIMIT;
    p->hi = ok ? (uint16_t)((bits + 0x8000) >> 16) : (uint16_t)MT_ADAMW_BAD_HI;
    p->lo = ok ? (int16_t)(uint16_t)bits : (int16_t)0;
    p->m = m;
    p->v = v;
    return !ok || (__float_as_uint(v) & 0x7fffffff) >= 0x7f800000;
}

template <typename T, int N_AT_ONCE>
__device__ __forceinline__ int update_some(const mt_adamw &a, int64_t i, const mt_adamw_coef &coef)
{
    vec<uint16_t, N_AT_ONCE> hi = load<uint16_t, N_AT_ONCE>(a.hi + i);
    vec<int16_t, N_AT_ONCE> lo = load<int16_t, N_AT_ONCE>(a.lo + i);
    vec<float, N_AT_ONCE> m = load<float, N_AT_ONCE>(a.m + i), v = load<float, N_AT_ONCE>(a.v + i);
    vec<T, N_AT_ONCE> g = load<T, N_AT_ONCE>((const T *)a.g + i);
    int n_bad = 0;
#pragma unroll
    for (int k = 0; k < N_AT_ONCE; k++) {
        param p = { hi.at[k], lo.at[k], m.at[k], v.at[k] };
        n_bad += update_one(&p, to_f32(g.at[k]), coef);
        hi.at[k] = p.hi;
        lo.at[k] = p.lo;
        m.at[k] = p.m;
        v.at[k] = p.v;
    }
    store<uint16_t, N_AT_ONCE>(a.hi + i, hi);
    store<int16_t, N_AT_ONCE>(a.lo + i, lo);
    store<float, N_AT_ONCE>(a.m + i, m);
    store<float, N_AT_ONCE>(a.v + i, v);
    return n_bad;
}

template <typename T> __global__ void __launch_bounds__(THREADS) update_kernel(mt_adamw a, bool whole)
{
    if (a.guard && !isfinite(*a.guard)) return;
    int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    int n_bad = 0;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W; i < a.n; i += step) {
        if (whole && i + W <= a.n_decay)
            n_bad += update_some<T, W>(a, i, a.coef);
        else if (whole && i >= a.n_decay && i + W <= a.n)
            n_bad += update_some<T, W>(a, i, a.coef_no_decay);
        else
            for (int64_t j = i; j < i + W && j < a.n; j++)
                n_bad += update_some<T, 1>(a, j, j < a.n_decay ? a.coef : a.coef_no_decay);
    }
    if (n_bad) atomicAdd((unsigned long long *)a.n_bad, (unsigned long long)n_bad);
}

mt_rc mt__adamw_cuda(mt_stream *s, const mt_adamw *a, mt_err *err)
{
    if (a->n == 0) return MT_OK;
    unsigned blocks = (unsigned)mt_min_i64(div_up(a->n, THREADS * W), (int64_t)mt_cuda_device_of(s)->n_sms * 32);
    bool halves = is_aligned(a->hi, 16) && is_aligned(a->lo, 16) && is_aligned(a->m, 32) && is_aligned(a->v, 32);
    if (a->t == MT_DTYPE_BF16)
        update_kernel<bf16><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a, halves && is_aligned(a->g, 16));
    else
        update_kernel<float><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a, halves && is_aligned(a->g, 32));
    return mt__cuda_launched(s, "adamw", err);
}
