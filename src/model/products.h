/* products.h - every product of rows with weights: of the parts of a layer, and of the head.
 *
 *     forward     y = alpha (x w' + b) (+ add)
 *     backward    dx (+)= alpha dy w,   dw (+)= alpha dy' x,   db += alpha sum of dy
 *
 * A part lists its products (mt_part.products) when a model is made; the layer's kind owns the list.  To compute one, the part
 * names its place in the list and says what goes in and where results go.  Everything that depends on a role is decided in
 * products.c: where its numbers are, its precision, which weights one op computes together, whether it trains, whether its gradient
 * is written or added.  No other file of this folder calls an op of a product (unit.layers checks that).
 *
 * So adapters of a role, products in FP8 and other forms of a weight change the list and that file, and no part.  What they can
 * rely on:
 *     roles     The list names each weight with its columns of y, even if one op computes several weights.
 *     inputs    All weights of a product read the same rows, so a product makes what it needs of x (a quantized copy, x a') once
 *               for all of them.  Backward gets the x of forward (P3) and can make it again: nothing is kept between calls.
 *     order     Backward is one call, or two if a part has x only after dx: the first without x makes dx alone, the second
 *               without dx makes the gradients of weights.  Both have dy.
 *     rows      A call takes a micro-batch, a chunk of it, a block of logits, or the rows that a pass sends to a unit's experts.
 *               Gradients of weights are sums over calls: each call adds, except in a fresh pass (mt_pass.fresh).
 *     memory    Arrays are the caller's and stay as they are until the stream has run the call.  Only gradients of weights use the
 *               scratch of ops: callers may have arrays of their own there during other calls. */
#ifndef MT_MODEL_PRODUCTS_H
#define MT_MODEL_PRODUCTS_H

#include "model/layer.h"

/* What one call reads and writes.  Rows are packed unless a field says otherwise. */
typedef struct mt_product_io {
    int64_t n;       /* rows; of experts: the most that all of the unit's can have */
    const void *x;   /* [n, k]; backward: NULL for dx alone */
    void *y;         /* [n, columns] */
    const void *add; /* [n, columns] or NULL; may be y */
    const void *dy;  /* [n, columns] */
    void *dx;        /* [n, k] or NULL */
    bool dx_add;     /* dx is added to */
    float softcap;   /* forward ends with y = softcap tanh(y / softcap); 0: none */
    int64_t ldx;     /* elements from row to row of x and dx; 0: k */
    int64_t ldy;     /* of y and dy; 0: all columns of the product */
    /* Only some columns of y, all of one weight; n_columns 0: all columns.  y, add and dy begin with the first of them. */
    int64_t first_column, n_columns;
    /* Of experts (mt_grouped_linear): the pass's rows by expert, and whether x and dy have a row for each token instead. */
    const mt_expert_sort *sorted;
    bool gather_x, gather_dy;
    const float *weights; /* [pairs] backward: y counts times these; NULL: as it is */
    float *dweights;      /* [pairs] their gradient; a bias adds to it */
} mt_product_io;

/* product: its place in the list of the pass's part. */
mt_rc mt_product_forward(const mt_pass *p, int product, const mt_product_io *io, mt_err *err);
/* Computes what has a place: dx, and with x the gradients of those weights that train. */
mt_rc mt_product_backward(const mt_pass *p, int product, const mt_product_io *io, mt_err *err);

/* True if role b must follow role a without a gap, so that one op can compute both. */
bool mt_product_joins(const mt_product *f, mt_role a, mt_role b);

/* Bytes of op scratch. */
size_t mt_product_scratch(const mt_product *f, const mt_layer_spec *s, const mt_scratch_shape *shape);

/* True if the product computes in fp32 (mt_product.exact) while all else is bf16. */
bool mt_product_is_exact(const mt_pass *p, int product);

#endif
