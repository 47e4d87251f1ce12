/* block.h - forward and backward of a unit, written once over ops, for any device.
 *
 * One micro-batch at a time.  A layer's forward has three parts, so that backward can redo exactly those whose
 * results were not kept:
 *     attend   h = norm(x), qkv, positions, attention          -> qkv, attn, lse
 *     mix      xmid = x + attn Wo'                             -> xmid
 *     mlp      gu = norm(xmid) Wgu', x' = xmid + glu(gu) Wd'   -> gu, x'
 * With norms behind the branches (post norms) xmid = x + norm(mixed), mixed = attn Wo', and x' = xmid + norm(mlped), mlped =
 * glu(gu) Wd'; backward needs both products.  Parallel blocks take the mlp's norm of x, not of xmid.
 * What is kept of a layer is its input; plus the results of attend; or all but what is cheap to redo; or, of that, norms; or act
 * = glu(gu), too. */
#ifndef MT_MODEL_BLOCK_H
#define MT_MODEL_BLOCK_H

#include "model/model.h"

typedef enum mt_keep {
    MT_KEEP_NOTHING,   /* inside a checkpoint interval: even the input is redone */
    MT_KEEP_INPUT,     /* x */
    MT_KEEP_ATTENTION, /* x, qkv, attn, lse */
    MT_KEEP_ALL,       /* x, qkv, attn, lse, xmid, gu; with post norms mixed, mlped */
    MT_KEEP_NORMS,     /* and norm1, norm2: each a pass over memory to redo */
    MT_KEEP_ACT,       /* and act, which backward writes again on the way */
    MT_KEEPS
} mt_keep;

/* A micro-batch on the device. */
typedef struct mt_micro {
    int64_t n;          /* rows */
    int64_t n_docs, longest;
    int64_t n_trained;
    const int32_t *ids, *pos;      /* [n]; pos of documents that turn by longrope's long list begins at its first row of the table */
    int64_t rope_row;              /* generation, whose pos count rows of the cache: where the rotary tables begin for all */
    const int32_t *rows_by_id;     /* [n] */
    const int32_t *doc_start;      /* [n_docs + 1] */
    const int32_t *host_start;     /* the same in host memory, until the next step's input is loaded */
    const int32_t *trained_rows;   /* [n_trained] rows whose target counts */
    const int32_t *targets;        /* [n_trained] */
    int64_t deepest;               /* generation: rows of the longest document, cached ones included */
    const int32_t *cache_row;      /* [n_docs] generation: where each document's rows lie in the cache; NULL: no cache */
} mt_micro;

/* A norm before a branch: what it gave, and 1/rms of its rows for the way back. */
typedef struct mt_normed {
    void *h;     /* [n, D] */
    float *rstd; /* [n] */
} mt_normed;

/* Activations of one layer for one micro-batch.  Kept ones point into kept memory, the others into shared
 * workspace that the next micro-batch overwrites. */
typedef struct mt_acts {
    void *x;     /* [n, D] input */
    void *qkv;   /* [n, (H+2K) Dh]; rotated in place unless there is a head norm */
    void *qk;    /* [n, (H+K) Dh] normed and rotated; the same as qkv without head norm */
    void *attn;  /* [n, H Dh] */
    float *lse;  /* [n, H] */
    void *xmid;  /* [n, D] */
    void *mixed; /* [n, D] with post norms */
    void *mlped; /* [n, D] with post norms */
    void *gu;    /* [n or chunk, 2F]; plain mlp: F */
    mt_normed norm1, norm2; /* NULL: not kept, so workspace takes them and backward redoes them */
    void *act;   /* [n, F]; NULL likewise */
    void *cache_k, *cache_v; /* [cache rows, K Dh] of this layer, for micro-batches that use a cache */
    bool gu_whole; /* gu holds all rows, not one chunk; then mlped is there too */
} mt_acts;

/* Workspace shared by all layers. */
typedef struct mt_work {
    void *h;        /* [micro, D] a norm's output */
    float *rstd;    /* [micro] */
    float *rstd_post; /* [micro] of a post norm */
    void *act;      /* [mlp_rows, F] */
    void *dh;       /* [micro, D] */
    void *dqkv;     /* [micro, (H+2K) Dh] */
    void *dattn;    /* [micro, H Dh] */
    void *head_x;   /* [micro, D] trained rows of the last layer's output; then their gradient */
    void *head_h;   /* [micro, D] normed */
    void *head_dh;  /* [micro, D] */
    float *logits;  /* [head_rows, V] */
    void *dlogits;  /* [head_rows, V] */
    float *row_loss;      /* [head_rows] */
    int32_t *row_correct; /* [head_rows] */
    void *scratch;  /* of ops */
} mt_work;

/* Everything a block needs to issue work. */
typedef struct mt_run {
    const mt_model *model;
    const mt_ops *ops;
    mt_stream *stream;
    mt_dtype t;
    mt_attention_use attention;
    int64_t mlp_rows, head_rows; /* rows at a time */
    const float *cos[2], *sin[2]; /* of config->rope, of config->rope_local */
    mt_work work;
} mt_run;

/* w: a unit's weights in the compute dtype; g: its fp32 gradient accumulators, or NULL. */
mt_rc mt_embed_forward(const mt_run *r, const void *w, const mt_micro *mb, void *x, mt_err *err);
mt_rc mt_embed_backward(const mt_run *r, float *g, const mt_micro *mb, const void *dx, mt_err *err);

/* x_out: where the next layer's input goes. */
mt_rc mt_layer_forward(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, void *x_out, mt_err *err);
/* Redo what `kept` lacks and backward needs. */
mt_rc mt_layer_redo(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, mt_keep kept, mt_err *err);
/* From xmid on: the mlp, and the next layer's input. */
mt_rc mt_layer_finish(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, void *x_out, mt_err *err);
/* dx: gradient of the output in, of the input out. */
mt_rc mt_layer_backward(const mt_run *r, int layer, const void *w, float *g, const mt_micro *mb, const mt_acts *a, void *dx,
                        mt_err *err);

/* Final norm, logits, loss; with dx also the gradient of x and of the head's weights.
 * dscale is 1 / (trained tokens of the whole step). */
mt_rc mt_head_loss(const mt_run *r, const void *w, float *g, const mt_micro *mb, const void *x, void *dx, float dscale,
                   mt_loss_sum *sum, mt_err *err);
/* The rows with a target, into work.head_x. */
mt_rc mt_head_pick(const mt_run *r, const mt_micro *mb, const void *x, mt_err *err);
/* Logits of rows [first, first + n) of normed x, into work.logits; n at most head_rows. */
mt_rc mt_head_norm(const mt_run *r, const void *w, const void *x, int64_t n, mt_err *err);
mt_rc mt_head_logits(const mt_run *r, const void *w, int64_t first, int64_t n, mt_err *err);

/* Bytes of op scratch a micro-batch of n rows can need. */
size_t mt_block_scratch(const mt_model *m, mt_dtype t, int64_t n, int64_t n_docs, int64_t longest, int64_t mlp_rows,
                        int64_t head_rows, const mt_attention_use *attention);

#endif
