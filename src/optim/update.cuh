/* update.cuh - what the kernels of all optimizers share: the stored forms of arrays, weights as halves, sizes of launches. */
#ifndef MT_OPTIM_UPDATE_CUH
#define MT_OPTIM_UPDATE_CUH

#include "ops/ops_cuda.cuh"

extern "C" {
#include "base/split.h"
}

enum { THREADS = 256, W = 8 };

/* An array between updates, number by number. */
struct in_f32 {
    typedef float type;
    static __device__ __forceinline__ float widen(float x) { return x; }
    static __device__ __forceinline__ float round(float x, uint32_t) { return x; }
    static __device__ __forceinline__ uint32_t random(uint64_t, int64_t) { return 0; }
};
struct in_bf16 {
    typedef uint16_t type;
    static __device__ __forceinline__ float widen(uint16_t x) { return __uint_as_float((uint32_t)x << 16); }
    static __device__ __forceinline__ uint16_t round(float x, uint32_t r) { return mt_moment_to_bf16(x, r); }
    static __device__ __forceinline__ uint32_t random(uint64_t key, int64_t i) { return mt_moment_bits(key, (uint32_t)i); }
};

__device__ __forceinline__ float join_halves(uint16_t hi, int16_t lo)
{
    return __uint_as_float(((uint32_t)hi << 16) + (uint32_t)(int32_t)lo);
}

__device__ __forceinline__ uint32_t warp_max(uint32_t x)
{
#pragma unroll
    for (int half = 16; half; half /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, half));
    return x;
}

static unsigned grid(mt_stream *s, int64_t n)
{
    return (unsigned)mt_min_i64(div_up(n, THREADS * W), (int64_t)mt_cuda_device_of(s)->n_sms * 32);
}

#endif
