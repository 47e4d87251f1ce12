/* lion.h - one Lion step over flat arrays (arXiv 2302.06675), the same bits on every machine.
 *
 * The contract, for portable C, AVX2, AVX-512 and CUDA alike, read as adamw.h's: IEEE fp32 operations in this order, none fused.
 *
 *     g     = grad * grad_scale                             grad: bf16 (widened exactly) or fp32
 *     u     = beta1 * m + one_minus_beta1 * g
 *     m     = beta2 * m + one_minus_beta2 * g
 *     w     = join(hi, lo)                                  base/split.h
 *     w     = w * decay - step_size * sign(u)               sign(0) = 0
 *     hi,lo = split(w)
 *
 * The decay is AdamW's, decay = 1 - lr * weight_decay, and there is no bias correction.
 *
 * Values that leave the finite range: a weight whose new w cannot be split, or whose new m is NaN or infinite, is stored as hi = 0x7fc0,
 * lo = 0, and counted.  The payload and sign of a NaN in m are the only bits that may differ between implementations.
 *
 * Bytes moved per parameter: hi 2+2, lo 2+2, m 4+4, grad 2 (or 4) = 18 (or 20). */
#ifndef MT_OPTIM_LION_H
#define MT_OPTIM_LION_H

#include "optim/optimizer.h"

extern const mt_optimizer mt_optimizer_lion;

mt_update_coef mt_lion_coef_of(const mt_update_step *step);
size_t mt_lion_piece(const mt_update *u, int64_t from, int64_t to); /* the row's on_host */

/* Fastest first; the last is portable C, always supported, and the truth for the others. */
extern const mt_update_impl mt_lion_impls[];
extern const size_t mt_lion_n_impls;

/* Shared by the implementations. */
size_t mt__lion_portable(const mt_update_args *args);
size_t mt__lion_avx2(const mt_update_args *args);
size_t mt__lion_avx512(const mt_update_args *args);
size_t mt__lion_block_avx2(const mt_update_args *args, const mt_moments_chunk *block);
size_t mt__lion_block_avx512(const mt_update_args *args, const mt_moments_chunk *block);

#endif
