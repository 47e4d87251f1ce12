/* normhead.cu - logits z = u / |w| by column, u = x w'.   With dz given:  du = dz / |w|,   dw -= w / |w| * sum over rows of du * z.
 *
 * Shapes: w, dw [V, D]; logits, dlogits [N, V].  Bytes moved: w once and logits twice; backward w, dw twice, logits, dlogits twice.
 * A warp takes a row of w.  Backward: a block takes 32 columns of the logits, then their rows of dw. */
#include "ops/ops_cuda.cuh"

enum { THREADS = 256, N_WARPS = THREADS / 32 };

template <typename T> __global__ void norms_kernel(mt_normhead a)
{
    int64_t j = (int64_t)blockIdx.x * N_WARPS + threadIdx.x / 32;
    if (j >= a.V) return;
    const T *w = (const T *)a.w + j * a.D;
    float sum = 0;
    for (int64_t d = threadIdx.x % 32; d < a.D; d += 32) {
        float x = to_f32(w[d]);
        sum += x * x;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) a.rnorm[j] = 1.0f / fmaxf(sqrtf(sum), 1e-12f);
}

__global__ void divide_kernel(mt_normhead a)
{
    int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j >= a.V) return;
    for (int64_t i = blockIdx.y; i < a.N; i += gridDim.y) a.logits[i * a.V + j] *= a.rnorm[j];
}

template <typename T> __global__ void backward_kernel(mt_normhead a)
{
    __shared__ float of_warp[N_WARPS][33], factor[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t first = (int64_t)blockIdx.x * 32, j = first + lane;
    float r = j < a.V ? a.rnorm[j] : 0.0f, sum = 0;
    for (int64_t i = warp; j < a.V && i < a.N; i += N_WARPS) {
        T *dz = (T *)a.dlogits + i * a.V + j;
        float du = to_f32(*dz) * r;
        sum += du * a.logits[i * a.V + j];
        *dz = from_f32<T>(du);
    }
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp == 0) {
        for (int k = 1; k < N_WARPS; k++) sum += of_warp[k][lane];
        factor[lane] = sum * r;
    }
    __syncthreads();
    for (int k = warp; a.dw && k < 32 && first + k < a.V; k += N_WARPS) {
        const T *w = (const T *)a.w + (first + k) * a.D;
        float *dw = a.dw + (first + k) * a.D;
        for (int64_t d = lane; d < a.D; d += 32) dw[d] -= factor[k] * to_f32(w[d]);
    }
}

mt_rc mt__normhead_fwd_cuda(mt_stream *s, const mt_normhead *a, mt_err *err)
{
    unsigned blocks = (unsigned)div_up(a->V, N_WARPS);
    if (a->t == MT_DTYPE_BF16)
        norms_kernel<bf16><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    else
        norms_kernel<float><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    dim3 grid((unsigned)div_up(a->V, THREADS), (unsigned)mt_min_i64(a->N, 65535));
    if (a->N) divide_kernel<<<grid, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "normhead", err);
}

mt_rc mt__normhead_bwd_cuda(mt_stream *s, const mt_normhead *a, mt_err *err)
{
    unsigned blocks = (unsigned)div_up(a->V, 32);
    if (a->t == MT_DTYPE_BF16)
        backward_kernel<bf16><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    else
        backward_kernel<float><<<blocks, THREADS, 0, mt_cuda_raw(s)>>>(*a);
    return mt__cuda_launched(s, "normhead backward", err);
}
