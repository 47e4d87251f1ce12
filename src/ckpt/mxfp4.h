/* mxfp4.h - MXFP4 matrices of experts: 4-bit floats in blocks of 32, a power of two for each.
 *
 * X_blocks [E, R, C/32, 16] holds C columns of each row, two to a byte, the even one in the low bits; X_scales [E, R, C/32] the
 * blocks' exponents.  A code is a sign and one of 0, 0.5, 1, 1.5, 2, 3, 4, 6;  W[r, c] = code 2^(scale - 127).  Every such number
 * is a bf16 one, but for the few that are too large for any float.
 *
 * Both together are tensor X as the same model has it in bf16: [E, C, R], input first. */
#ifndef MT_CKPT_MXFP4_H
#define MT_CKPT_MXFP4_H

#include "base/arena.h"
#include "ckpt/tensor.h"

/* The name of the tensor that blocks or scales belong to (n bytes of it): "x_blocks" -> "x"; 0: the name is of another kind. */
size_t mt__mxfp4_base_of_blocks(const char *name);
size_t mt__mxfp4_base_of_scales(const char *name);
/* *out becomes tensor X of this name; its decoder lives in the arena, name and both tensors must outlive it. */
mt_rc mt__mxfp4_join(mt_st_tensor *out, mt_arena *arena, const char *name, const mt_st_tensor *blocks, const mt_st_tensor *scales,
                     mt_err *err);

#endif
