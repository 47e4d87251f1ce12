/* ops_cuda.cuh - shared by the CUDA ops: one set of names for the two dtypes, 16-byte vectors, sums over a warp, a block or the
 * rows of a matrix, all in a fixed order. */
#ifndef MT_OPS_OPS_CUDA_CUH
#define MT_OPS_OPS_CUDA_CUH

#include "device/device_cuda.cuh"

extern "C" {
#include "ops/ops.h"

#define MT_OP(n)                                                                                                                 \
    mt_rc mt__##n##_fwd_cuda(mt_stream *s, const mt_##n *a, mt_err *err);                                                        \
    mt_rc mt__##n##_bwd_cuda(mt_stream *s, const mt_##n *a, mt_err *err);
#define MT_OP1(n) mt_rc mt__##n##_cuda(mt_stream *s, const mt_##n *a, mt_err *err);
#include "ops/ops.def"
void mt__attention_use_cuda(mt_device *dev, mt_attention_use *use);

/* sum[j] += the rows of partial [n_rows, width], 0 <= j < width, in a fixed order.  The second stage of every sum over rows. */
mt_rc mt__sum_rows_cuda(mt_stream *s, float *sum, const float *partial, int64_t n_rows, int64_t width, int64_t ld, mt_err *err);
}

typedef __nv_bfloat16 bf16;

/* Rows whose sum one block makes before the second stage; a divisor of the 64 the scratch functions count with. */
enum { SUM_ROWS = 32 };
static inline int64_t sum_blocks(int64_t N) { return (N + SUM_ROWS - 1) / SUM_ROWS; }

static inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline bool is_aligned(const void *p, size_t bytes) { return ((uintptr_t)p & (bytes - 1)) == 0; }

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(bf16 x) { return __bfloat162float(x); }
template <typename T> __device__ __forceinline__ T from_f32(float x);
template <> __device__ __forceinline__ float from_f32<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 from_f32<bf16>(float x) { return __float2bfloat16_rn(x); }

/* WIDTH elements that move in one access: 16 bytes where the caller found everything aligned, else one element. */
template <typename T, int WIDTH> struct alignas(sizeof(T) * WIDTH) vec {
    T at[WIDTH];
};
template <typename T> __host__ __device__ constexpr int wide() { return 16 / (int)sizeof(T); }

template <typename T, int WIDTH> __device__ __forceinline__ vec<T, WIDTH> load(const T *p) { return *(const vec<T, WIDTH> *)p; }
template <typename T, int WIDTH> __device__ __forceinline__ void store(T *p, vec<T, WIDTH> v) { *(vec<T, WIDTH> *)p = v; }

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int half = 16; half; half /= 2) x += __shfl_xor_sync(0xffffffffu, x, half);
    return x;
}

/* Every thread gets the sum over the block; threads a multiple of 32. */
__device__ __forceinline__ float block_sum(float x)
{
    __shared__ float of_warp[32];
    int n_warps = (int)blockDim.x / 32, lane = threadIdx.x % 32;
    x = warp_sum(x);
    __syncthreads(); /* the array may still be read from the last time */
    if (lane == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(lane < n_warps ? of_warp[lane] : 0.0f);
}

#endif
