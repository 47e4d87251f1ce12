/* update.h - the arguments of an optimizer's op: an update of a unit's trained numbers, or of some of them.  The optimizers are in
 * optim/; each is an op with this one structure, and reads those of its fields that it needs. */
#ifndef MT_OPS_UPDATE_H
#define MT_OPS_UPDATE_H

#include "ops/moments.h"

typedef enum mt_optimizer_kind { MT_OPTIMIZER_ADAMW, MT_OPTIMIZER_LION, MT_OPTIMIZERS } mt_optimizer_kind;

enum { MT_MOST_ARRAYS = 2 }; /* of any optimizer's state */

/* Made once a step, on the host, in double, and rounded to fp32; every implementation takes them as they are. */
typedef struct mt_update_coef {
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float step_size;    /* AdamW: lr / (1 - beta1^t); Lion: lr */
    float inv_sqrt_bc2; /* AdamW: 1 / sqrt(1 - beta2^t) */
    float eps;
    float decay; /* 1 - lr * weight_decay */
    float grad_scale;
} mt_update_coef;

/* Numbers [0, n_decay) with decay and [n_decay, n) without. */
typedef struct mt_update {
    mt_dtype t; /* of g */
    mt_moments moments;
    int64_t n, n_decay;
    uint16_t *hi;
    int16_t *lo;
    union {
        void *array[MT_MOST_ARRAYS]; /* the optimizer's, mt_moments_bytes(moments, n) each */
        struct {
            void *m, *v; /* their names in AdamW; Lion has m, and v is NULL */
        };
    };
    const void *g;
    uint64_t key;                       /* of the random bits that round the arrays; not for fp32 */
    mt_update_coef coef, coef_no_decay; /* the same but for .decay */
    const double *guard;                /* do nothing unless *guard is finite; NULL: always */
    int64_t *n_bad;                     /* += weights that left the finite range */
} mt_update;

typedef mt_update mt_adamw, mt_lion;

/* Stored as hi instead of a weight that cannot be split; its lo is 0. */
#define MT_UPDATE_BAD_HI 0x7fc0

#endif
