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
#ifndef MT_OPTIM_ADAMW_H
#define MT_OPTIM_ADAMW_H

#include "optim/optimizer.h"

extern const mt_optimizer mt_optimizer_adamw;

/* Uses no libm function but sqrt, so that it gives the same bits everywhere too. */
mt_update_coef mt_adamw_coef_of(const mt_update_step *step);

/* Update all n elements; return how many left the finite range.  One element never depends on another, so any cut of
 * the arrays over threads gives the same bits. */
size_t mt_adamw_update(const mt_update_args *args);                  /* the fastest this CPU can run */
size_t mt_adamw_piece(const mt_update *u, int64_t from, int64_t to); /* the row's on_host */

/* Fastest first; the last is portable C, always supported, and the truth for the others. */
extern const mt_update_impl mt_adamw_impls[];
extern const size_t mt_adamw_n_impls;

/* Shared by the implementations. */
size_t mt__adamw_portable(const mt_update_args *args);
size_t mt__adamw_avx2(const mt_update_args *args);
size_t mt__adamw_avx512(const mt_update_args *args);
size_t mt__adamw_block_avx2(const mt_update_args *args, const mt_moments_chunk *block);
size_t mt__adamw_block_avx512(const mt_update_args *args, const mt_moments_chunk *block);

#endif
