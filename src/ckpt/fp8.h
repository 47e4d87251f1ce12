/* fp8.h - FP8 weights whose scales are in a separate tensor.
 *
 * X.weight holds 8-bit floats, X.weight_scale_inv (or X.weight_scale) what to multiply them with: one number for the
 * tensor, one for each row, or one for each block of rows and columns, where the last blocks may be cut off:
 *     W[r, c] = fp8[r, c] * scale[r / block_rows, c / block_columns]
 * Scales are floats, or bytes that stand for powers of two: 2^(byte - 127). */
#ifndef MT_CKPT_FP8_H
#define MT_CKPT_FP8_H

#include "base/arena.h"
#include "ckpt/tensor.h"

typedef struct mt__fp8_block {
    int64_t rows, columns; /* as config.json has it */
} mt__fp8_block;

/* The name of the tensor a scale belongs to (n bytes of it): "x.weight_scale_inv" -> "x.weight"; 0: not the name of a scale. */
size_t mt__fp8_base(const char *scale_name);
/* weight_block_size from a config.json; 128 x 128 where there is none. */
mt_rc mt__fp8_block_size(mt__fp8_block *out, const char *config_path, mt_err *err);
/* *out becomes `weight` times `scale`; its decoder lives in the arena, both tensors must outlive it. */
mt_rc mt__fp8_join(mt_st_tensor *out, mt_arena *arena, const mt_st_tensor *weight, const mt_st_tensor *scale, mt__fp8_block block,
                   mt_err *err);

#endif
