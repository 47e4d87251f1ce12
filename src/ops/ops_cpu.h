/* ops_cpu.h - the CPU's ops as plain functions, run on a stream's thread; and the few helpers they share. */
#ifndef MT_OPS_OPS_CPU_H
#define MT_OPS_OPS_CPU_H

#include "base/pool.h"
#include "ops/ops.h"

#define MT_OP(n)                                                                                                                 \
    mt_rc mt__##n##_fwd_run(mt_pool *pool, const mt_##n *a, mt_err *err);                                                        \
    mt_rc mt__##n##_bwd_run(mt_pool *pool, const mt_##n *a, mt_err *err);
#define MT_OP1(n) mt_rc mt__##n##_run(mt_pool *pool, const mt_##n *a, mt_err *err);
#include "ops/ops.def"

/* Element i of an array of either compute dtype. */
static inline float mt_get(const void *p, mt_dtype t, int64_t i)
{
    return t == MT_DTYPE_F32 ? ((const float *)p)[i] : mt_bf16_to_f32(((const uint16_t *)p)[i]);
}

static inline void mt_put(void *p, mt_dtype t, int64_t i, float x)
{
    if (t == MT_DTYPE_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = mt_f32_to_bf16(x);
}

/* The address of element i. */
static inline const void *mt_at(const void *p, mt_dtype t, int64_t i) { return (const char *)p + (size_t)i * mt_dtype_bytes(t); }
static inline void *mt_at_mut(void *p, mt_dtype t, int64_t i) { return (char *)p + (size_t)i * mt_dtype_bytes(t); }

/* Sums over rows (norm and bias gradients) are made of partial sums over blocks of this many rows, added in
 * order: the same result for any number of threads. */
enum { MT_SUM_ROWS = 64 };
static inline int64_t mt_sum_blocks(int64_t N) { return (N + MT_SUM_ROWS - 1) / MT_SUM_ROWS; }
/* Scratch for such partial sums, `width` columns wide: a GPU, which wants more blocks, cuts each in two. */
static inline size_t mt_sum_scratch(int64_t N, int64_t width) { return (size_t)(2 * mt_sum_blocks(N) * width) * sizeof(float); }

/* sum of a[i] b[i], in 16 interleaved partial sums: fast, and one fixed order. */
float mt_dot(const float *a, const float *b, int64_t n);
/* Rotates x, dr wide, in place by a row of the tables; direction -1 is the inverse rotation. */
void mt_rotate(float *x, mt_rope_style style, int64_t dr, const float *cos_row, const float *sin_row, float direction);
/* y += alpha x */
void mt_axpy(float *y, float alpha, const float *x, int64_t n);

#endif
