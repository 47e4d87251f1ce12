/* combine.cu - the expert rows of each token, gathered and added in ascending order of the experts.
 *
 * Shapes: y packed rows [., D], sum and out [N, D].  Bytes moved: each packed row once, sum once or twice in fp32, out once.
 * A block takes a row: its threads take columns, W at a time.  One fused multiply-add per term on every device. */
#include "ops/ops_cuda.cuh"

/* W numbers of a sum, 16 bytes at a time where W allows. */
template <int W> __device__ __forceinline__ void load_sum(float x[W], const float *p)
{
    constexpr int V = W % 4 == 0 ? 4 : 1;
#pragma unroll
    for (int i = 0; i < W; i += V) {
        vec<float, V> v = load<float, V>(p + i);
#pragma unroll
        for (int j = 0; j < V; j++) x[i + j] = v.at[j];
    }
}
template <int W> __device__ __forceinline__ void store_sum(float *p, const float x[W])
{
    constexpr int V = W % 4 == 0 ? 4 : 1;
#pragma unroll
    for (int i = 0; i < W; i += V) {
        vec<float, V> v;
#pragma unroll
        for (int j = 0; j < V; j++) v.at[j] = x[i + j];
        store<float, V>(p + i, v);
    }
}

template <typename T, int W> __global__ void combine_kernel(mt_combine a)
{
    int64_t n = blockIdx.x, base = a.offsets[a.e0];
    const int32_t *experts = a.experts + n * a.T, *place = a.place + n * a.T;
    for (int64_t d = (int64_t)threadIdx.x * W; d < a.D; d += (int64_t)blockDim.x * W) {
        float sum[W] = {};
        if (!a.start) load_sum<W>(sum, a.sum + n * a.D + d);
        for (int64_t k = 0; k < a.T; k++) {
            if (experts[k] < a.e0 || experts[k] >= a.e0 + a.c) continue;
            float w = a.weights ? a.weights[n * a.T + k] : 1.0f;
            vec<T, W> y = load<T, W>((const T *)a.y + (place[k] - base) * a.D + d);
#pragma unroll
            for (int i = 0; i < W; i++) sum[i] = __fmaf_rn(w, to_f32(y.at[i]), sum[i]);
        }
        if (a.sum) store_sum<W>(a.sum + n * a.D + d, sum);
        if (!a.out) continue;
        vec<T, W> out, add;
        if (a.add) add = load<T, W>((const T *)a.add + n * a.D + d);
#pragma unroll
        for (int i = 0; i < W; i++) out.at[i] = from_f32<T>(sum[i] + (a.add ? to_f32(add.at[i]) : 0.0f));
        store<T, W>((T *)a.out + n * a.D + d, out);
    }
}

template <typename T> static void launch(mt_stream *s, const mt_combine *a)
{
    constexpr int W = wide<T>();
    bool whole =
        a->D % W == 0 && is_aligned(a->y, 16) && is_aligned(a->out, 16) && is_aligned(a->add, 16) && is_aligned(a->sum, 16);
    int64_t per_row = div_up(a->D, whole ? W : 1);
    unsigned threads = per_row >= 256 ? 256 : (unsigned)div_up(per_row, 32) * 32;
    if (whole)
        combine_kernel<T, W><<<(unsigned)a->N, threads, 0, mt_cuda_raw(s)>>>(*a);
    else
        combine_kernel<T, 1><<<(unsigned)a->N, threads, 0, mt_cuda_raw(s)>>>(*a);
}

mt_rc mt__combine_cuda(mt_stream *s, const mt_combine *a, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        launch<bf16>(s, a);
    else
        launch<float>(s, a);
    return mt__cuda_launched(s, "combine", err);
}
