/* adamw.h - one AdamW step over flat arrays, the same bits on every machine.
 *
 * The contract, for portable C, AVX2, AVX-512 and CUDA alike.  Each line's operations are IEEE fp32 operations rounded to
 * nearest even, in this order; nothing is fused, division and square root are correctly rounded, denormals are kept:
 *
 *     g     = grad * grad_scale                             grad: bf16 (widened exactly) or fp32
 *     m     = beta1 * m + one_minus_beta1 * g
 *     v     = beta2 * v + one_minus_beta2 * (g * g)
 *     denom = sqrt(v) * inv_sqrt_bc2 + eps
 *     w     = join(hi, lo)                                  base/split.h
 *     w     = w * decay - step_size * (m / denom)
 *     hi,lo = split(w)
 *
 * which is torch.optim.AdamW with its bias corrections folded into step_size and inv_sqrt_bc2.  The coefficients are made
 * once a step, on the host, in double, and rounded to fp32; every implementation takes them as they are.
 *
 * Values that leave the finite range: a new w that cannot be split (NaN, infinite, or rounding to an infinite hi) is stored
 * as hi = 0x7fc0, lo = 0, a NaN that joins to itself.  m and v are stored as computed.  The step returns how many elements
 * have such a w, or a v that is not finite (a v of infinity would hold its weight still for ever without a sign); the
 * others are updated as usual.  Anything but 0 means the arrays must not be saved.  The payload of a NaN in m or v is the
 * only bit that may differ between implementations.
 *
 * Bytes moved per parameter: hi 2+2, lo 2+2, m 4+4, v 4+4, grad 2 (or 4) = 26 (or 28). */
#ifndef MT_OPS_ADAMW_H
#define MT_OPS_ADAMW_H

#include "ops/moments.h"

/* Adam's settings, and the number of the update. */
typedef struct mt_adamw_step {
    double lr; /* of this step: after the schedule */
    double beta1, beta2, eps;
    double weight_decay; /* 0 for parameters without */
    double grad_scale;   /* 1, or less to clip */
    int64_t t;           /* 1 for the first update */
} mt_adamw_step;

typedef struct mt_adamw_coef {
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float step_size;    /* lr / (1 - beta1^t) */
    float inv_sqrt_bc2; /* 1 / sqrt(1 - beta2^t) */
    float eps;
    float decay; /* 1 - lr * weight_decay */
    float grad_scale;
} mt_adamw_coef;

/* Uses no libm function but sqrt, so that it gives the same bits everywhere too. */
mt_adamw_coef mt_adamw_coef_of(const mt_adamw_step *step);

typedef struct mt_adamw_args {
    uint16_t *hi; /* [n] each; need no alignment beyond their type's; must not overlap */
    int16_t *lo;
    float *m, *v;
    const void *g;   /* [n] */
    mt_dtype g_type; /* MT_DTYPE_BF16 or MT_DTYPE_F32 */
    size_t n;
    mt_adamw_coef coef;
} mt_adamw_args;

/* Update all n elements; return how many left the finite range.  One element never depends on another, so any cut of
 * the arrays over threads gives the same bits. */
size_t mt_adamw_update(const mt_adamw_args *args); /* the fastest this CPU can run */

/* The same with moments of a smaller form: reads a whole block of them into args' m and v, updates all, and stores them. */
size_t mt_adamw_update_block(const mt_adamw_args *args, const mt_moments_chunk *block);

typedef struct mt_adamw_impl {
    const char *name;
    bool (*supported)(void);
    size_t (*update)(const mt_adamw_args *args);
    size_t (*update_block)(const mt_adamw_args *args, const mt_moments_chunk *block);
} mt_adamw_impl;

/* Fastest first; the last is portable C, always supported, and the truth for the others. */
extern const mt_adamw_impl mt_adamw_impls[];
extern const size_t mt_adamw_n_impls;

const mt_adamw_impl *mt_adamw_best(void);

/* Shared by the implementations. */
size_t mt__adamw_portable(const mt_adamw_args *args);
size_t mt__adamw_avx2(const mt_adamw_args *args);
size_t mt__adamw_avx512(const mt_adamw_args *args);
size_t mt__adamw_block_avx2(const mt_adamw_args *args, const mt_moments_chunk *block);
size_t mt__adamw_block_avx512(const mt_adamw_args *args, const mt_moments_chunk *block);

#define MT_ADAMW_BAD_HI 0x7fc0

/* args without its first n_done elements: what a vector loop leaves over. */
static inline mt_adamw_args mt__adamw_rest(const mt_adamw_args *args, size_t n_done)
{
    mt_adamw_args rest = *args;
    rest.hi += n_done;
    rest.lo += n_done;
    rest.m += n_done;
    rest.v += n_done;
    rest.g = (const char *)args->g + n_done * (args->g_type == MT_DTYPE_BF16 ? 2 : 4);
    rest.n -= n_done;
    return rest;
}

#endif
