/* ops.h - the arithmetic of a model, one struct of arguments per op, one table of functions per device.
 *
 *     MT_TRY(ops->rmsnorm_fwd(stream, &(mt_rmsnorm){ .y = h, .rstd = r, .x = x, .w = w, .eps = eps, ... }, err));
 *
 * A call queues the work on the stream and returns; its struct is copied, what it points to must stay valid
 * until the stream has passed it.  All pointers are device memory.  Activations and weights have the compute
 * dtype `t` (F32 or BF16), sums run in fp32; weight gradients (dw, db) are fp32 accumulators that are added
 * to.  The plain CPU version is the truth; every other one is compared with it.
 *
 * Scratch: mt_<op>_scratch(args) is a pure function of the shapes, the same in every build, and the largest
 * need over all devices; callers pass that much memory as `scratch`.
 *
 * Letters: N rows (tokens), D width, H query heads, K key/value heads, Dh head width, F mlp width, V vocabulary. */
#ifndef MT_OPS_OPS_H
#define MT_OPS_OPS_H

#include "base/dtype.h"
#include "device/device.h"
#include "ops/adamw.h"

/* y[i] = scale * w[ids[i]];   dw[ids[i]] += scale * dy[i], in ascending i for each id. */
typedef struct mt_embed {
    mt_dtype t;
    int64_t N, D, V;
    const int32_t *ids;        /* [N], 0 <= id < V: checked when the batch was made */
    const int32_t *rows_by_id; /* [N] row numbers ordered by (id, row); backward only */
    void *y;                   /* [N, D] */
    const void *w;             /* [V, D] */
    const void *dy;            /* [N, D] */
    float *dw;                 /* [V, D] */
    float scale;
    int32_t pad_id;            /* this row gets no gradient; -1: none */
} mt_embed;

/* y = w * x / rms(x) (+ add), rms over D with eps;   dx (+)= ..., dw += ... */
typedef struct mt_rmsnorm {
    mt_dtype t;
    int64_t N, D;
    float eps;
    bool one_plus;   /* the stored weight is w - 1 */
    bool dx_add;     /* backward adds to dx instead of writing it */
    void *y;         /* [N, D] */
    float *rstd;     /* [N] 1/rms of each row; written by forward, read by backward */
    const void *x;   /* [N, D] */
    const void *w;   /* [D] */
    const void *add; /* [N, D] or NULL; may be y */
    const void *dy;  /* [N, D] */
    void *dx;        /* [N, D] */
    float *dw;       /* [D] or NULL: not trained */
    void *scratch;
} mt_rmsnorm;

/* y = x w' (+ b) (+ add);   dx (+)= dy w, dw += dy' x, db += sum of dy.  Backward does what has a place. */
typedef struct mt_linear {
    mt_dtype t;
    int64_t M, N, K;        /* x [M, K], w [N, K], y [M, N] */
    int64_t ldx, ldy, ldadd; /* elements from row to row; 0: packed */
    bool y_f32;             /* y is fp32 whatever t is (logits) */
    bool dx_add;
    const void *x, *w, *b;  /* b [N] or NULL */
    void *y;
    const void *add;        /* [M, N] or NULL; may be y */
    const void *dy;         /* [M, N], rows ldy apart */
    void *dx;               /* [M, K] or NULL, rows ldx apart */
    float *dw, *db;         /* or NULL */
    void *scratch;
} mt_linear;

typedef enum mt_rope_style {
    MT_ROPE_NONE, /* no positions on this layer */
    MT_ROPE_HALF, /* pairs (j, j + dr/2) */
    MT_ROPE_PAIR, /* pairs (2j, 2j + 1) */
} mt_rope_style;

/* Per head: optional RMS norm over Dh, then the first dr dimensions rotate by the row's position.
 * Forward reads q and k from qkv and writes them to qk; without norm the two may be the same memory.
 * Backward turns gradients of the rotated q, k (in dqkv) into gradients of what forward read, in place. */
typedef struct mt_rope {
    mt_dtype t;
    mt_rope_style style;
    int64_t N, H, K, Dh, dr;
    int64_t ld_qkv, ld_qk, ld_dqkv; /* elements from row to row */
    const int32_t *pos;             /* [N] */
    const float *cos, *sin;         /* [positions, dr/2], already scaled */
    const void *qkv;                /* q heads, then k heads, at the start of each row */
    void *qk;
    void *dqkv;
    const void *wq, *wk;            /* [Dh] norm weights, or NULL */
    float *dwq, *dwk;               /* [Dh] or NULL */
    float eps;
    bool one_plus;
    void *scratch;
} mt_rope;

/* o = softmax(scale q k' + mask) v per head; a row sees the rows of its own document up to itself, at most
 * `window` of them (itself included).  Query head h reads key head h / (H / K). */
typedef struct mt_attention {
    mt_dtype t;
    int64_t N, H, K, Dh;
    int64_t ldq, ldk, ldv, ldo;    /* elements from row to row */
    int64_t n_docs, longest;       /* documents, rows of the longest */
    const int32_t *doc_start;      /* [n_docs + 1], device */
    float scale;
    int64_t window;                /* 0: none */
    const void *q, *k, *v;         /* [N, heads, Dh] */
    void *o;                       /* [N, H, Dh] */
    float *lse;                    /* [N, H] log of the softmax denominators */
    const void *d_o;               /* rows ldo apart */
    void *dq, *dk, *dv;            /* rows ld_d apart */
    int64_t ld_d;
    void *scratch;
} mt_attention;

/* Attention of rows that continue sequences (generation): the new rows' k and v are put into the cache, then each new row sees
 * its sequence's rows up to itself, at most `window` of them.  New rows of a sequence have ascending, adjacent positions; row p of
 * sequence d lies in row cache_row[d] + p of the cache.  What a cache row held before is overwritten and never read. */
typedef struct mt_cache_attention {
    mt_dtype t;
    int64_t N, H, K, Dh;
    int64_t ldq, ldk, ldv, ldo;    /* elements from row to row */
    int64_t n_docs, longest;       /* sequences, most new rows of one */
    int64_t deepest;               /* rows of the longest sequence, cached and new */
    const int32_t *doc_start;      /* [n_docs + 1] new rows of each sequence, device */
    const int32_t *pos;            /* [N] positions of the new rows in their sequences */
    const int32_t *cache_row;      /* [n_docs] */
    float scale;
    int64_t window;                /* 0: none */
    const void *q, *k, *v;         /* [N, heads, Dh] */
    void *o;                       /* [N, H, Dh] */
    void *cache_k, *cache_v;       /* [cache rows, K, Dh] */
    void *scratch;
} mt_cache_attention;

typedef enum mt_act { MT_ACT_SILU, MT_ACT_GELU_TANH, MT_ACT_GELU_ERF } mt_act;

/* y = act(gate) * up with gate and up side by side in gu.  Backward writes dgu (may be gu itself) and, since y
 * is cheap, y again (may be dy itself). */
typedef struct mt_glu {
    mt_dtype t;
    mt_act act;
    int64_t N, F;
    const void *gu; /* [N, 2F]: gate, up */
    void *y;        /* [N, F] */
    const void *dy; /* [N, F] */
    void *dgu;      /* [N, 2F] */
} mt_glu;

/* y[i] = x[index[i]];   dx = 0, then dx[index[i]] = dy[i].  Indices ascend and are distinct. */
typedef struct mt_rows {
    mt_dtype t;
    int64_t N, n_picked, D;
    const int32_t *index; /* [n_picked] */
    const void *x;        /* [N, D] */
    void *y;              /* [n_picked, D] */
    const void *dy;
    void *dx;
} mt_rows;

/* What a step's loss adds up to, on the device; added to row by row in order. */
typedef struct mt_loss_sum {
    double loss;     /* sum over rows of -log p(target) */
    int64_t correct; /* rows whose target has the largest logit */
} mt_loss_sum;

/* Rows of logits: sum += their loss; dlogits = (softmax - onehot) * dscale. */
typedef struct mt_cross_entropy {
    mt_dtype t;             /* of dlogits */
    int64_t N, V;
    const float *logits;    /* [N, V] */
    const int32_t *targets; /* [N], all trained */
    void *dlogits;          /* [N, V] or NULL: loss only */
    float dscale;           /* 1 / trained tokens of the step */
    float *row_loss;        /* [N] scratch */
    int32_t *row_correct;   /* [N] scratch */
    mt_loss_sum *sum;
} mt_cross_entropy;

/* g = round(acc (+ acc2)) to t. */
typedef struct mt_round_grad {
    mt_dtype t; /* F32 or BF16 */
    int64_t n;
    const float *acc, *acc2; /* acc2 may be NULL */
    void *g;
} mt_round_grad;

/* *sum = sum of g^2 by the tree of sqnorm.h. */
typedef struct mt_grad_norm {
    mt_dtype t;
    int64_t n;
    const void *g;
    double *sum;
    double *scratch; /* one double per chunk */
} mt_grad_norm;

/* The update of ops/adamw.h over [0, n_decay) with decay and [n_decay, n) without. */
typedef struct mt_adamw {
    mt_dtype t; /* of g */
    int64_t n, n_decay;
    uint16_t *hi;
    int16_t *lo;
    float *m, *v;
    const void *g;
    mt_adamw_coef coef, coef_no_decay;
    const double *guard; /* do nothing unless *guard is finite; NULL: always */
    int64_t *n_bad;      /* += weights that left the finite range */
} mt_adamw;

typedef struct mt_join_halves {
    int64_t n;
    const uint16_t *hi;
    const int16_t *lo;
    float *w;
} mt_join_halves;

typedef struct mt_ops {
#define MT_OP(n)                                                                                             \
    mt_rc (*n##_fwd)(mt_stream *, const mt_##n *, mt_err *);                                                 \
    mt_rc (*n##_bwd)(mt_stream *, const mt_##n *, mt_err *);
#define MT_OP1(n) mt_rc (*n)(mt_stream *, const mt_##n *, mt_err *);
#include "ops/ops.def"
} mt_ops;

extern const mt_ops mt_ops_cpu, mt_ops_cuda;

/* The table that fits a device. */
const mt_ops *mt_ops_of(const mt_device *dev);

/* Scratch bytes of each op for these arguments' shapes. */
#define MT_OP(n)  size_t mt_##n##_scratch(const mt_##n *a);
#define MT_OP1(n) size_t mt_##n##_scratch(const mt_##n *a);
#include "ops/ops.def"

#endif
