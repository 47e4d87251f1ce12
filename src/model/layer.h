/* layer.h - forward and backward of a unit, for any device, and what planner and engine must know of it.
 *
 * One micro-batch at a time; experts have separate units and take several at a time, a pass.  A layer is made of parts (part.h),
 * and so are its lists:
 *     arrays     what its parts work on: kept from forward to backward from some keep level on, else in workspace that the next
 *                micro-batch overwrites
 *     products   of rows with weights (products.h)
 *     work       products, attention and bytes moved, with the level that avoids recomputing each
 * Layers whose specs are equal are of one kind and share these lists. */
#ifndef MT_MODEL_LAYER_H
#define MT_MODEL_LAYER_H

#include "model/model.h"
#include "model/objective.h"

typedef struct mt_pass mt_pass;
typedef struct mt_row_range mt_row_range;
typedef struct mt_scratch_shape mt_scratch_shape;
typedef struct mt_part mt_part;

/* Levels of what a layer keeps from forward to backward, the most expensive to recompute first. */
typedef enum mt_keep {
    MT_KEEP_NOTHING, /* inside a checkpoint interval: even the input is recomputed */
    MT_KEEP_INPUT,   /* the layer's input */
    MT_KEEP_MIXER,   /* and what the mixer made */
    MT_KEEP_ALL,     /* and all else except what is cheap to recompute */
    MT_KEEP_NORMS,   /* and norms: each a pass over memory to recompute */
    MT_KEEP_ACT,     /* and activations, which backward writes again on the way */
    MT_KEEPS
} mt_keep;

/* -- arrays -- */

typedef enum mt_extent {
    MT_EXTENT_MICRO,   /* rows of a micro-batch */
    MT_EXTENT_CHUNK,   /* rows an ffn takes at a time */
    MT_EXTENT_SEGMENT, /* such a chunk; all rows of a micro-batch where several layers are recomputed from one input */
    MT_EXTENT_PASS,    /* rows that pass an expert together */
    MT_EXTENT_SWEEP,   /* of a sweep: from one unit of the layer to the next */
} mt_extent;

typedef struct mt_array {
    const char *name;
    size_t row_bytes; /* 0: this layer has none */
    mt_keep keep;     /* the least level that keeps it; MT_KEEPS: it is never kept */
    mt_extent extent; /* its rows in workspace, where it is not kept */
    bool shared;      /* all layers share one workspace; else each layer of a recomputed segment has its own */
    int instead;      /* where it is not kept, it is the part's array `instead - 1`, which comes before it; 0: it has workspace */
    size_t fixed;     /* bytes beside its rows; not of what may be kept */
} mt_array;

enum { MT_MAX_ARRAYS = 64, MT_MAX_PRODUCTS = 16, MT_MAX_WORK = 32 }; /* of a layer */
enum { MT_ARRAY_INPUT = 0 };                                         /* the first array of all */

/* -- products -- */

enum { MT_PRODUCT_WEIGHTS = 6 };

/* y = alpha (x w' + b).  One product may have several weights (q, k, v; gate, up): each makes its own columns of y, in this order. */
typedef struct mt_product {
    mt_extent rows; /* it takes at a time.  MT_EXTENT_PASS: a product of experts, each with its own weights and rows */
    int64_t k;      /* columns of x */
    float alpha;    /* 0: 1 */
    bool f32;       /* y is fp32 whatever the compute dtype (logits) */
    bool exact;     /* if its weight is exact (mt_weight.exact), it computes in fp32, from rows in fp32 */
    struct {
        mt_role w, b; /* b: MT_ROLES if it never has a bias */
        int64_t n;    /* columns of y; 0: the layer does not have this weight */
    } of[MT_PRODUCT_WEIGHTS];
} mt_product;

/* -- work -- */

#define MT_NORM_NUMBERS 2.6 /* read and written by a norm, forward, for each of its rows' numbers: as measured */

typedef enum mt_work_kind {
    MT_WORK_PRODUCT,   /* a row of n columns, sums of length k; backward makes dx and dw of it */
    MT_WORK_ATTENTION, /* n: width of all scores' queries, k: of all values; backward likewise */
    MT_WORK_DELTA, /* the delta rule; n: numbers of all heads' states, k: width of all value heads' keys and values; likewise */
    MT_WORK_MOVED, /* n numbers of the compute dtype read and written a row */
} mt_work_kind;

typedef enum mt_work_when {
    MT_IN_FORWARD, /* and recomputed before backward, unless `keep` or more is kept; MT_KEEPS: only where the next layer's input is
                       recomputed too */
    MT_IN_REDO,    /* only before backward, unless `keep` or more is kept */
    MT_IN_BACKWARD,
} mt_work_when;

typedef struct mt_work_item {
    const char *name; /* of a product, as tables of where time goes call it */
    mt_work_kind kind;
    mt_work_when when;
    mt_keep keep;
    double n, k;
    double T, E;            /* of experts: those of a row, and all of them; n is of T experts.  0: every row passes this */
    mt_attention attention; /* of attention: heads, strides, window; not its rows */
} mt_work_item;

/* -- a kind of layer -- */

struct mt_layer_kind {
    mt_layer_spec spec;
    const char *mixer_name, *ffn_name;
    int n_arrays, first_mixer, first_ffn; /* the frame's arrays come first */
    mt_array arrays[2][MT_MAX_ARRAYS];    /* with fp32 activations, with bf16 ones */
    int n_products, first_ffn_product;    /* the frame has none */
    mt_product products[MT_MAX_PRODUCTS];
    int n_work, first_ffn_work;
    mt_work_item work[MT_MAX_WORK];
    bool writes[MT_ROLES]; /* roles whose gradient a fresh pass writes */
    int forward_kernels, backward_kernels;
    int unit_forward_kernels, unit_backward_kernels; /* of a unit of experts */
};

/* Fills in the model's kinds: the distinct specs of its config, and which layer has which.  unit_experts: as in the model's
 * options. */
mt_rc mt_layer_kinds(mt_model *m, int64_t unit_experts, mt_err *err);

static inline const mt_array *mt_kind_arrays(const mt_layer_kind *k, mt_dtype t) { return k->arrays[t == MT_DTYPE_BF16]; }
static inline const mt_layer_kind *mt_layer_kind_of(const mt_model *m, int layer) { return &m->kinds[m->kind_of_layer[layer]]; }

/* Where each array begins in a block, and the block's bytes.  Arrays begin at multiples of MT_ARRAY_ALIGN: kernels choose loads,
 * and so the order of additions, by alignment, and kept arrays must compute like recomputed ones (P3). */
enum { MT_ARRAY_ALIGN = 256 };
typedef struct mt_carving {
    size_t at[MT_MAX_ARRAYS]; /* SIZE_MAX: not in this block */
    size_t bytes;
} mt_carving;
/* The arrays that a layer keeps of `rows` rows, and their bytes. */
void mt_carve_kept(mt_carving *out, const mt_layer_kind *k, mt_dtype t, mt_keep keep, int64_t rows);
size_t mt_kept_bytes(const mt_layer_kind *k, mt_dtype t, mt_keep keep, int64_t rows);
size_t mt_kept_row_bytes(const mt_layer_kind *k, mt_dtype t, mt_keep keep);
/* Workspace: a layer's own, or what all layers share. */
typedef struct mt_work_rows {
    int64_t micro, chunk; /* rows of a micro-batch, of a row chunk */
    int64_t pass, sweep;  /* rows that pass an expert together, rows of a sweep */
    bool segments;        /* several layers are recomputed from one input */
    bool router_loss;     /* routers also make what the load-balancing loss is computed from */
} mt_work_rows;
void mt_carve_work(mt_carving *out, const mt_layer_kind *k, mt_dtype t, bool shared, mt_work_rows rows);

/* -- computing -- */

/* A micro-batch on the device. */
typedef struct mt_micro {
    int64_t n; /* rows */
    int64_t n_docs, longest;
    int64_t n_trained;
    const int32_t *ids, *pos;  /* [n]; pos of documents that turn by longrope's long list begins at its first row of the table */
    int64_t rope_row;          /* generation, whose pos count rows of the cache: where the rotary tables begin for all */
    const int32_t *rows_by_id; /* [n] */
    const int32_t *doc_start;  /* [n_docs + 1] */
    const int32_t *host_start; /* the same in host memory, until the next step's input is loaded */
    const int32_t *trained_rows; /* [n_trained] rows whose target counts */
    const int32_t *targets;      /* [n_trained] */
    int64_t deepest;             /* generation: rows of the longest document, cached ones included */
    const int32_t *cache_row;    /* [n_docs] generation: where each document's rows are in the cache; NULL: no cache */
    const int32_t *cache_slot;   /* [n_docs] and its slot, for state that does not depend on its length */

    const float *columns[MT_COLUMNS]; /* [n_trained] in training; NULL: not asked for */
} mt_micro;

/* Statistics of routes in training.  First those that the load-balancing loss needs of a micro-batch, over all of its layers (mt_route). */
typedef struct mt_router_sums {
    int32_t *counts; /* [E]; NULL: no such loss */
    float *probs;    /* [E] */
    float scale;     /* of the gradient */
    int32_t *loads;  /* [E] of the layer: rows that its experts take, added up over the step; NULL: they are not counted */
} mt_router_sums;

/* A layer's arrays for one micro-batch: kept ones point into kept memory, the others into workspace. */
typedef struct mt_acts {
    void *at[MT_MAX_ARRAYS]; /* the kind's arrays, in its order; NULL: this layer has none */
    uint64_t kept;           /* bit i: array i is kept */
    bool whole;              /* arrays of MT_EXTENT_SEGMENT hold all rows, not one chunk */
    void *cache;             /* of this layer, for micro-batches that use a cache */
    int64_t cache_rows, cache_slots;
    mt_router_sums router; /* in training */
} mt_acts;

/* Workspace of the two ends of a model, and of all ops. */
typedef struct mt_ends_work {
    void *x;              /* [micro, D] trained rows of the last layer's output; then their gradient */
    void *h;              /* [micro, D] normed */
    void *dh;             /* [micro, D] */
    float *rstd;          /* [micro] */
    float *logits;        /* [head_rows, V] */
    void *dlogits;        /* [head_rows, V] */
    float *row_loss;      /* [head_rows] */
    int32_t *row_correct; /* [head_rows] */
} mt_ends_work;
/* Its bytes; with a base, where everything in it is. */
size_t mt_ends_carve(mt_ends_work *out, char *base, const mt_model *m, mt_dtype t, int64_t micro, int64_t head_rows, bool train);

/* Everything a unit needs to issue work. */
typedef struct mt_run {
    const mt_model *model;
    const mt_ops *ops;
    mt_stream *stream;
    mt_dtype t;
    mt_attention_use attention;
    int64_t mlp_rows, head_rows;  /* rows at a time */
    const float *cos[2], *sin[2]; /* of config->rope, of config->rope_local */
    mt_ends_work ends;
    void *scratch; /* of ops */
    size_t scratch_bytes;
} mt_run;

/* A unit's weights on the device. */
typedef struct mt_weights {
    const void *w;      /* its block, in the compute dtype */
    const float *exact; /* those the layout calls exact, in fp32; NULL: there are none, or w has them so */
} mt_weights;

/* The numbers of an exact role in fp32; t: the compute dtype.  NULL: the unit has none. */
static inline const float *mt_exact_weight(const mt_weights *w, const mt_layout *l, mt_dtype t, mt_role role)
{
    if (l->exact_at[role] < 0) return NULL;
    return t == MT_DTYPE_F32 ? (const float *)w->w + l->at[role] : w->exact + l->exact_at[role];
}

/* g: the unit's fp32 gradient accumulators, or NULL. */
mt_rc mt_embed_forward(const mt_run *r, const mt_weights *w, const mt_micro *mb, void *x, mt_err *err);
mt_rc mt_embed_backward(const mt_run *r, float *g, const mt_micro *mb, const void *dx, mt_err *err);

/* x_out: where the next layer's input goes. */
mt_rc mt_layer_forward(const mt_run *r, int layer, const mt_weights *w, const mt_micro *mb, const mt_acts *a, void *x_out,
                       mt_err *err);
/* Recompute what `kept` lacks and backward needs. */
mt_rc mt_layer_redo(const mt_run *r, int layer, const mt_weights *w, const mt_micro *mb, const mt_acts *a, mt_keep kept,
                    mt_err *err);
/* The ffn, and with it the next layer's input. */
mt_rc mt_layer_finish(const mt_run *r, int layer, const mt_weights *w, const mt_micro *mb, const mt_acts *a, void *x_out,
                      mt_err *err);
/* Sums of a unit's gradient.  fresh: those of roles that the layer's kind writes hold nothing yet, and backward writes them: clearing
 * and adding would move 8 bytes more for each. */
typedef struct mt_grads {
    float *sums; /* NULL: not wanted */
    bool fresh;
} mt_grads;
/* dx: gradient of the output in, of the input out. */
mt_rc mt_layer_backward(const mt_run *r, int layer, const mt_weights *w, mt_grads g, const mt_micro *mb, const mt_acts *a,
                        void *dx, mt_err *err);

/* A layer with experts, forward: mt_layer_forward() with the layer's first unit makes x_out what it is without the experts, and
 * what they read; mt_layer_experts() adds up a unit's experts, in the order of the units; mt_layer_close() adds the sum to x_out.
 * Backward: mt_layer_reopen(), mt_layer_experts_backward() in the same order, then recompute and backward.  Of mb only n is read where
 * experts compute: all rows of a pass, or of a sweep to close it. */
static inline bool mt_layer_has_experts(const mt_model *m, int layer) { return mt_layer_kind_of(m, layer)->spec.E > 0; }
mt_rc mt_layer_experts(const mt_run *r, int unit, const mt_weights *w, const mt_micro *mb, const mt_acts *a, mt_err *err);
/* [n, T] the experts of each row, once the layer's first unit has chosen them. */
const int32_t *mt_layer_routes(const mt_model *m, int layer, const mt_acts *a);
mt_rc mt_layer_close(const mt_run *r, int layer, const mt_micro *mb, const mt_acts *a, void *x_out, mt_err *err);
/* Recompute the experts' input from kept arrays. */
mt_rc mt_layer_reopen(const mt_run *r, int layer, const mt_weights *w, const mt_micro *mb, const mt_acts *a, mt_err *err);
/* dx: gradient of the layer's output. */
mt_rc mt_layer_experts_backward(const mt_run *r, int unit, const mt_weights *w, float *g, const mt_micro *mb, const mt_acts *a,
                                const void *dx, mt_err *err);

/* What the loss of a pass is. */
typedef struct mt_head_loss_of {
    const mt_objective_use *objective;
    float dscale; /* of gradients: 1 / (trained tokens of the whole step) */
} mt_head_loss_of;
/* Final norm, logits, loss; with dx also the gradient of x and of the head's weights. */
mt_rc mt_head_loss(const mt_run *r, const mt_weights *w, float *g, const mt_micro *mb, const void *x, void *dx,
                   mt_head_loss_of loss, mt_loss_sum *sum, mt_err *err);
/* The rows with a target, into ends.x. */
mt_rc mt_head_pick(const mt_run *r, const mt_micro *mb, const void *x, mt_err *err);
/* Logits of rows [first, first + n) of normed x, into ends.logits; n at most head_rows. */
mt_rc mt_head_norm(const mt_run *r, const mt_weights *w, const void *x, int64_t n, mt_err *err);
mt_rc mt_head_logits(const mt_run *r, const mt_weights *w, int64_t first, int64_t n, mt_err *err);

/* Bytes of op scratch for this many rows at a time; in generation, with that many cached documents. */
size_t mt_model_scratch(const mt_model *m, mt_dtype t, mt_work_rows rows, int64_t n_docs, int64_t longest, int64_t head_rows,
                        const mt_attention_use *attention);
size_t mt_model_cache_scratch(const mt_model *m, mt_dtype t, int64_t rows, int64_t docs, int64_t deepest);
/* Bytes that experts work in for each row of a pass: the most of any kind of layer. */
size_t mt_model_pass_bytes(const mt_model *m, mt_dtype t);
/* Bytes of a layer's cache for each row of a sequence, and for each sequence however long it is. */
typedef struct mt_cache_bytes {
    size_t row, sequence;
} mt_cache_bytes;
mt_cache_bytes mt_layer_cache(const mt_model *m, int layer, mt_dtype t);

#endif
