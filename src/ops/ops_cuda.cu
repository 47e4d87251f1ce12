/* ops_cuda.cu - CUDA's table of ops, and the second stage of sums over rows. */
#include "ops/ops_cuda.cuh"

/* sum[j] += partial[0][j] + partial[1][j] + ...   Bytes moved: n_rows * width * 4.
 * A block takes 32 columns; its 16 warps take every 16th row, ascending, and their sums are added in order. */
enum { SUM_WARPS = 16 };

__global__ void sum_rows_kernel(float *sum, const float *partial, int64_t n_rows, int64_t width, int64_t ld)
{
    __shared__ float of_warp[SUM_WARPS][33];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t j = (int64_t)blockIdx.x * 32 + lane;
    float x = 0;
    if (j < width)
        for (int64_t i = warp; i < n_rows; i += SUM_WARPS) x += partial[i * ld + j];
    of_warp[warp][lane] = x;
    __syncthreads();
    if (warp || j >= width) return;
    for (int w = 1; w < SUM_WARPS; w++) x += of_warp[w][lane];
    sum[j] += x;
}

mt_rc mt__sum_rows_cuda(mt_stream *s, float *sum, const float *partial, int64_t n_rows, int64_t width, int64_t ld, mt_err *err)
{
    sum_rows_kernel<<<(unsigned)div_up(width, 32), SUM_WARPS * 32, 0, mt_cuda_raw(s)>>>(sum, partial, n_rows, width, ld);
    return mt__cuda_launched(s, "a sum over rows", err);
}

/* Each entry first asks the device whether it still works: an error is sticky. */
#define GUARDED(fn, type)                                                                                                        \
    static mt_rc guarded_##fn(mt_stream *s, const type *a, mt_err *err)                                                          \
    {                                                                                                                            \
        MT_TRY(mt__cuda_ready(s->dev, err));                                                                                     \
        return mt__##fn##_cuda(s, a, err);                                                                                       \
    }
#define MT_OP(n)                                                                                                                 \
    GUARDED(n##_fwd, mt_##n)                                                                                                     \
    GUARDED(n##_bwd, mt_##n)
#define MT_OP1(n) GUARDED(n, mt_##n)
#include "ops/ops.def"

extern "C" const mt_ops mt_ops_cuda = {
#define MT_OP(n)  .n##_fwd = guarded_##n##_fwd, .n##_bwd = guarded_##n##_bwd,
#define MT_OP1(n) .n = guarded_##n,
#include "ops/ops.def"
    .traits = MT_TRAITS_ALL,
    .attention_use = mt__attention_use_cuda,
};
