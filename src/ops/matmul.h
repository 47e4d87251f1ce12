/* matmul.h - a product as linear.cu describes it for cuBLASLt and for our own kernel (dense_hopper.cu).
 *
 * D = alpha op(A) op(B) (+ bias) (+ beta C), column by column: op(A) m x k, op(B) k x n.  The library thinks in columns, so each
 * row-major matrix is described as its transpose, and y = x w' reads y' = w x'. */
#ifndef MT_OPS_MATMUL_H
#define MT_OPS_MATMUL_H

#include "base/dtype.h"
#include "device/device.h"

typedef struct mt_matmul {
    int64_t m, n, k;
    bool rows_in_k; /* the rows of activations, which vary, are k; else n */
    bool trans_a, trans_b;
    mt_dtype t, td; /* of A and B; of C and D */
    const void *a, *b, *c, *bias;
    void *d;
    int64_t lda, ldb, ldc, ldd;
    float alpha, beta;
} mt_matmul;

/* True if our own kernel can compute this product on this device.  Then it can compute one with fewer rows, too. */
bool mt__dense_fits(const mt_stream *s, const mt_matmul *p);
/* Queues a product that fits.  `workspace` is the stream's (mt__cuda_workspace). */
mt_rc mt__dense_by_hopper(mt_stream *s, const mt_matmul *p, void *workspace, mt_err *err);

#endif
