/* delta_rule.cuh - what the kernels of the delta rule share: the arrays of a call and its group of heads. */
#ifndef MT_OPS_DELTA_RULE_CUH
#define MT_OPS_DELTA_RULE_CUH

#include "ops/ops_cuda.cuh"

extern "C" {
#include "ops/delta_rule.h"
}

/* A group of heads of a call.  Kernels get it by value. */
struct delta_group {
    mt_delta_rule a;
    mt_delta_layout l;
    int first_key, n_keys, first_head, n_heads; /* this group's */
    int per_key;                                /* value heads of a key head */

    template <typename T> __device__ __forceinline__ T *at(size_t offset) const { return (T *)((char *)a.scratch + offset); }
    __device__ __forceinline__ mt_delta_chunk chunk(int64_t c) const { return at<const mt_delta_chunk>(l.chunks)[c]; }
    /* Row `row` of head h of the group, in an array of `columns` columns. */
    template <typename T> __device__ __forceinline__ T *rows(size_t offset, int h, int64_t row, int64_t columns) const
    {
        return at<T>(offset) + ((int64_t)h * a.N + row) * columns;
    }
    template <typename T> __device__ __forceinline__ T *state(size_t offset, int h, int slot) const
    {
        return at<T>(offset) + ((int64_t)h * l.n_slots + slot) * l.wide_k * l.wide_v;
    }
    /* Of all heads, by number. */
    __device__ __forceinline__ float *gamma(int head, int64_t row) const
    {
        return at<float>(l.gamma) + (int64_t)head * a.N + row;
    }
    __device__ __forceinline__ float *beta(int head, int64_t row) const { return at<float>(l.beta) + (int64_t)head * a.N + row; }
};

__device__ __forceinline__ float delta_softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }
__device__ __forceinline__ float delta_softplus_slope(float x) { return x > 20.0f ? 1.0f : 1.0f / (1.0f + expf(-x)); }

/* Tensor cores, bf16 (delta_rule_mma.cu).  False: the device has too little shared memory. */
bool mt__delta_mma_fits(mt_stream *s, const delta_group *g);
void mt__delta_mma_forward(mt_stream *s, const delta_group *g);
void mt__delta_mma_backward(mt_stream *s, const delta_group *g);

#endif
