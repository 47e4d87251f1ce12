/* slice.h - where a weight's numbers lie in the tensors of a checkpoint.
 *
 * In memory every role is a matrix of its own, output rows first.  Files may hold several roles in one tensor (fused q, k, v;
 * gate and up), regrouped by head, or transposed.  The rule is three numbers and a flag, used one way by the loader and the other
 * way by the saver, so what is loaded and saved again is the same bytes. */
#ifndef MT_MODEL_SLICE_H
#define MT_MODEL_SLICE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct mt_tensor_slice {
    int n_dims;
    int64_t shape[2];           /* of the tensor in the file */
    int64_t run, stride, first; /* row r of the weight is row first + r / run * stride + r % run of it */
    bool transposed;            /* of its columns, not rows */
} mt_tensor_slice;

struct mt_weight;

/* The file's tensor is this weight and nothing else, number by number. */
bool mt_weight_is_plain(const struct mt_weight *w);

/* Where in the tensor number i of the weight lies; *run: how many from it on lie side by side in both. */
int64_t mt_weight_place(const struct mt_weight *w, int64_t i, int64_t *run);
/* Numbers [first, first + n) of the weight out of the file's tensor; `size` bytes each. */
void mt_weight_gather(const struct mt_weight *w, const void *tensor, size_t size, int64_t first, int64_t n, void *out);
/* The same numbers into it. */
void mt_weight_scatter(const struct mt_weight *w, void *tensor, size_t size, int64_t first, int64_t n, const void *in);

#endif
