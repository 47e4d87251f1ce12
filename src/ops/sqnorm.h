/* sqnorm.h - the sum of squares of a gradient block, in double, by one fixed tree that any device can follow.
 *
 * The definition.  The square of a bf16 or fp32 value is exact in double (so squaring and adding may be fused or not: the bits
 * are the same).  The block is cut into chunks of 4096 elements, the last padded with zeros.  Within a chunk
 *     lane[l] = x[l]^2 + x[l + 256]^2 + ... + x[l + 15*256]^2      ascending, l in 0..255
 *     for half = 128, 64, ..., 1:   lane[l] += lane[l + half]      l in 0..half-1
 * and lane[0] is the chunk's sum.  Chunk sums are added in the same way, however many they are: lane l takes sums l, l + 256, ...
 * ascending, and the lanes are folded.  Which thread computes which chunk cannot matter, and neither can what computes it.
 *
 * Non-finite elements: the sum is NaN if any element is NaN, else +infinity if any is infinite.  Finite elements cannot overflow
 * (fp32's largest square is 2^256).  So isfinite(sum) says that all elements are. */
#ifndef MT_OPS_SQNORM_H
#define MT_OPS_SQNORM_H

#include "base/dtype.h"

enum { MT_SQNORM_CHUNK = 4096, MT_SQNORM_LANES = 256 };

/* One block of gradients, n elements of bf16 or fp32. */
typedef struct mt_sqnorm_args {
    const void *x;
    mt_dtype type;
    size_t n;
} mt_sqnorm_args;

static inline size_t mt_sqnorm_n_chunks(size_t n) { return n / MT_SQNORM_CHUNK + (n % MT_SQNORM_CHUNK != 0); }

/* sums[0..n_chunks) = the sums of chunks first, first+1, ...; they must exist.  Ranges may be computed in parallel. */
void mt_sqnorm_chunks(const mt_sqnorm_args *args, size_t first, size_t n_chunks, double *sums);
/* The last step: all chunks' sums to one. */
double mt_sqnorm_add(const double *sums, size_t n_chunks);
/* All of it, on this thread. */
double mt_sqnorm(const mt_sqnorm_args *args);

/* How the lanes of one whole chunk are computed. */
typedef struct mt_sqnorm_impl {
    const char *name;
    bool (*supported)(void);
    void (*lanes_bf16)(double lane[MT_SQNORM_LANES], const uint16_t x[MT_SQNORM_CHUNK]);
    void (*lanes_f32)(double lane[MT_SQNORM_LANES], const float x[MT_SQNORM_CHUNK]);
} mt_sqnorm_impl;

/* Fastest first; the last is portable C, always supported, and the truth for the others. */
extern const mt_sqnorm_impl mt_sqnorm_impls[];
extern const size_t mt_sqnorm_n_impls;

const mt_sqnorm_impl *mt_sqnorm_best(void);
void mt_sqnorm_chunks_by(const mt_sqnorm_impl *impl, const mt_sqnorm_args *args, size_t first, size_t n_chunks, double *sums);

/* Shared by the implementations. */
void mt__sqnorm_lanes_bf16_avx2(double *lane, const uint16_t *x);
void mt__sqnorm_lanes_f32_avx2(double *lane, const float *x);
void mt__sqnorm_lanes_bf16_avx512(double *lane, const uint16_t *x);
void mt__sqnorm_lanes_f32_avx512(double *lane, const float *x);

#endif
