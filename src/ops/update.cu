/* update.cu - what happens to a gradient: folded, rounded, measured.  And hi + lo made whole.
 *
 * fold         to += part (rounded to bf16 first, if asked): 8 bytes read, 4 written an element, and 4 more where the part is
 *              cleared; the CPU's bits but for NaN's payload
 * round_grad   g = round(acc (+ acc2)): 4 (8) bytes read, 2 or 4 written an element; the CPU's bits but for NaN's payload
 * grad_norm    *sum = the tree of sqnorm.h, the same bits as on the CPU: 2 or 4 bytes an element
 * join_halves  w = join(hi, lo), split.h: 4 bytes read, 4 written an element */
#include "ops/ops_cuda.cuh"

extern "C" {
#include "ops/sqnorm.h"
}

enum { THREADS = 256, W = 4 };

static unsigned blocks_for(int64_t n) { return (unsigned)mt_min_i64(div_up(n, THREADS * W), 132 * 16); }

template <typename T> __global__ void fold_kernel(float *to, float *part, int64_t n, bool clear, bool whole)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W; i < n; i += step) {
        if (whole && i + W <= n) {
            vec<float, W> sum = load<float, W>(to + i), v = load<float, W>(part + i), zero = {};
#pragma unroll
            for (int k = 0; k < W; k++) sum.at[k] = __fadd_rn(sum.at[k], to_f32(from_f32<T>(v.at[k])));
            store<float, W>(to + i, sum);
            if (clear) store<float, W>(part + i, zero);
        } else {
            for (int64_t j = i; j < i + W && j < n; j++) {
                to[j] = __fadd_rn(to[j], to_f32(from_f32<T>(part[j])));
                if (clear) part[j] = 0.0f;
            }
        }
    }
}

mt_rc mt__fold_cuda(mt_stream *s, const mt_fold *a, mt_err *err)
{
    if (a->n == 0) return MT_OK;
    bool whole = is_aligned(a->to, 16) && is_aligned(a->part, 16);
    if (a->bf16)
        fold_kernel<bf16><<<blocks_for(a->n), THREADS, 0, mt_cuda_raw(s)>>>(a->to, a->part, a->n, a->clear, whole);
    else
        fold_kernel<float><<<blocks_for(a->n), THREADS, 0, mt_cuda_raw(s)>>>(a->to, a->part, a->n, a->clear, whole);
    return mt__cuda_launched(s, "fold", err);
}

template <typename T> __global__ void round_kernel(T *g, const float *acc, const float *acc2, int64_t n, bool whole)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W; i < n; i += step) {
        if (whole && i + W <= n) {
            vec<float, W> v = load<float, W>(acc + i), v2;
            vec<T, W> out;
            if (acc2) v2 = load<float, W>(acc2 + i);
#pragma unroll
            for (int k = 0; k < W; k++) out.at[k] = from_f32<T>(acc2 ? v.at[k] + v2.at[k] : v.at[k]);
            store<T, W>(g + i, out);
        } else {
            for (int64_t j = i; j < i + W && j < n; j++) g[j] = from_f32<T>(acc2 ? acc[j] + acc2[j] : acc[j]);
        }
    }
}

mt_rc mt__round_grad_cuda(mt_stream *s, const mt_round_grad *a, mt_err *err)
{
    if (a->n == 0) return MT_OK;
    bool whole = is_aligned(a->acc, 16) && is_aligned(a->acc2, 16) && is_aligned(a->g, a->t == MT_DTYPE_BF16 ? 8 : 16);
    if (a->t == MT_DTYPE_BF16)
        round_kernel<bf16><<<blocks_for(a->n), THREADS, 0, mt_cuda_raw(s)>>>((bf16 *)a->g, a->acc, a->acc2, a->n, whole);
    else
        round_kernel<float><<<blocks_for(a->n), THREADS, 0, mt_cuda_raw(s)>>>((float *)a->g, a->acc, a->acc2, a->n, whole);
    return mt__cuda_launched(s, "round_grad", err);
}

template <typename T> __global__ void __launch_bounds__(MT_SQNORM_LANES) chunk_kernel(double *sums, const T *x, int64_t n)
{
    __shared__ double lane[MT_SQNORM_LANES];
    int l = threadIdx.x;
    int64_t from = (int64_t)blockIdx.x * MT_SQNORM_CHUNK + l;
    double sum = 0;
    T v[MT_SQNORM_CHUNK / MT_SQNORM_LANES];
#pragma unroll
    for (int k = 0; k < MT_SQNORM_CHUNK / MT_SQNORM_LANES; k++) {
        int64_t i = from + k * MT_SQNORM_LANES;
        v[k] = i < n ? x[i] : from_f32<T>(0.0f);
    }
#pragma unroll
    for (int k = 0; k < MT_SQNORM_CHUNK / MT_SQNORM_LANES; k++) {
        double d = (double)to_f32(v[k]);
        sum = __dadd_rn(sum, __dmul_rn(d, d));
    }
    lane[l] = sum;
    for (int half = MT_SQNORM_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (l < half) lane[l] += lane[l + half];
    }
    if (l == 0) sums[blockIdx.x] = lane[0];
}

/* Lane by lane, then folded, as within a chunk; AHEAD sums are loaded before the first of them is added. */
__global__ void __launch_bounds__(MT_SQNORM_LANES) add_chunks_kernel(double *sum, const double *sums, int64_t n)
{
    enum { AHEAD = 8 };
    __shared__ double lane[MT_SQNORM_LANES];
    int l = threadIdx.x;
    double total = 0;
    for (int64_t from = l; from < n; from += AHEAD * MT_SQNORM_LANES) {
        double next[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) next[k] = from + k * MT_SQNORM_LANES < n ? sums[from + k * MT_SQNORM_LANES] : 0.0;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) total = __dadd_rn(total, next[k]); /* past the end 0, which changes no sum of squares */
    }
    lane[l] = total;
    for (int half = MT_SQNORM_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (l < half) lane[l] += lane[l + half];
    }
    if (l == 0) *sum = lane[0];
}

mt_rc mt__grad_norm_cuda(mt_stream *s, const mt_grad_norm *a, mt_err *err)
{
    int64_t n_chunks = (int64_t)mt_sqnorm_n_chunks((size_t)a->n);
    if (n_chunks > 0) {
        if (a->t == MT_DTYPE_BF16)
            chunk_kernel<bf16><<<(unsigned)n_chunks, MT_SQNORM_LANES, 0, mt_cuda_raw(s)>>>(a->scratch, (const bf16 *)a->g, a->n);
        else
            chunk_kernel<float>
                <<<(unsigned)n_chunks, MT_SQNORM_LANES, 0, mt_cuda_raw(s)>>>(a->scratch, (const float *)a->g, a->n);
        MT_TRY(mt__cuda_launched(s, "grad_norm", err));
    }
    add_chunks_kernel<<<1, MT_SQNORM_LANES, 0, mt_cuda_raw(s)>>>(a->sum, a->scratch, n_chunks);
    return mt__cuda_launched(s, "grad_norm", err);
}

__global__ void join_kernel(float *w, const uint16_t *hi, const int16_t *lo, int64_t n, bool whole)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W; i < n; i += step) {
        if (whole && i + W <= n) {
            vec<uint16_t, W> h = load<uint16_t, W>(hi + i);
            vec<int16_t, W> l = {};
            if (lo) l = load<int16_t, W>(lo + i);
            vec<float, W> out;
#pragma unroll
            for (int k = 0; k < W; k++) out.at[k] = __uint_as_float(((uint32_t)h.at[k] << 16) + (uint32_t)(int32_t)l.at[k]);
            store<float, W>(w + i, out);
        } else {
            for (int64_t j = i; j < i + W && j < n; j++)
                w[j] = __uint_as_float(((uint32_t)hi[j] << 16) + (lo ? (uint32_t)(int32_t)lo[j] : 0u));
        }
    }
}

mt_rc mt__join_halves_cuda(mt_stream *s, const mt_join_halves *a, mt_err *err)
{
    if (a->n == 0) return MT_OK;
    bool whole = is_aligned(a->w, 16) && is_aligned(a->hi, 8) && is_aligned(a->lo, 8);
    join_kernel<<<blocks_for(a->n), THREADS, 0, mt_cuda_raw(s)>>>(a->w, a->hi, a->lo, a->n, whole);
    return mt__cuda_launched(s, "join_halves", err);
}
