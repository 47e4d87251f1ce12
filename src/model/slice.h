/* slice.h - the place of a weight's numbers in the tensors of a checkpoint.
 *
 * In memory every role is a separate matrix, output rows first.  Files may hold several roles in one tensor (fused q, k, v; gate
 * and up), regrouped by head, or transposed.  The rule is three numbers and a flag, used one way by the loader and the other way
 * by the saver, so loading and saving reproduces the same bytes. */
#ifndef MT_MODEL_SLICE_H
#define MT_MODEL_SLICE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct mt_tensor_slice {
    int n_dims;
    int64_t shape[3];           /* of the tensor in the file; 1 beyond n_dims */
    int64_t slab[2];            /* the matrix the weight is part of: the tensor, or one expert's share of it */
    int64_t run, stride, first; /* row r of the weight is row first + r / run * stride + r % run of the slab */
    bool transposed;            /* of its columns, not rows */
    bool experts;               /* the tensor has a slab for every expert */
} mt_tensor_slice;

struct mt_weight;
struct mt_unit;
struct mt_layout;

/* Numbers of the whole tensor, and of a slab of it. */
static inline int64_t mt_slice_elems(const mt_tensor_slice *s) { return s->shape[0] * s->shape[1] * s->shape[2]; }
static inline int64_t mt_slice_slab(const mt_tensor_slice *s) { return s->slab[0] * s->slab[1]; }

/* Offset of the weight's slab in the tensor.  The unit decides which expert a weight belongs to. */
int64_t mt_weight_slab(const struct mt_unit *u, const struct mt_weight *w);
/* The weight's first row, counted over all slabs: it distinguishes weights of one tensor. */
int64_t mt_weight_first_row(const struct mt_unit *u, const struct mt_weight *w);
/* The next weight of weight k's slab; l->n_weights: there is none.  The weights of one expert are listed side by side, so few are
 * looked at. */
int mt_slab_next(const struct mt_layout *l, int k);

/* The slab is this weight and nothing else, number by number. */
bool mt_weight_is_plain(const struct mt_weight *w);

/* Offset in its slab of number i of the weight; *run: how many numbers from it on are contiguous in both. */
int64_t mt_weight_place(const struct mt_weight *w, int64_t i, int64_t *run);
/* Numbers [first, first + n) of the weight out of its slab; `size` bytes each. */
void mt_weight_gather(const struct mt_weight *w, const void *slab, size_t size, int64_t first, int64_t n, void *out);
/* The same numbers into it. */
void mt_weight_scatter(const struct mt_weight *w, void *slab, size_t size, int64_t first, int64_t n, const void *in);

#endif
