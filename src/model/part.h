/* part.h - the parts of a layer, for authors of new ones.
 *
 * A layer = a frame + a mixer + an ffn.
 *     frame   norms, residual, the order of the branches, the residual added in a branch's last product (frame.c)
 *     mixer   looks across rows: attention (mixer_attention.c), latent attention (mixer_latent.c), a gated delta net
 *             (mixer_delta.c)
 *     ffn     looks at one row at a time: a gated or plain mlp (ffn_mlp.c), experts (ffn_experts.c)
 * Each part describes itself: the roles of its weights, the arrays it works on, the work it does.  Planner, engine and tracer
 * loop over these lists and know no array by name, so a new mixer is one file, its ops, its tests, and a family that names it
 * (docs/adding-a-mixer.md).
 *
 * Backward recomputes what forward did not keep, by the same calls on the same rows (P3).  An array names the least keep level that
 * keeps it; an item of work names the level that spares redoing it. */
#ifndef MT_MODEL_PART_H
#define MT_MODEL_PART_H

#include "model/products.h"

/* One micro-batch in one layer: what every call of a part works on. */
struct mt_pass {
    const mt_run *r;
    const mt_config *c;
    const mt_layer_spec *s;
    const mt_layout *l; /* where the layer's tensors are in w and g */
    const mt_weights *w;
    float *g;   /* NULL: forward, or no gradient is wanted */
    bool fresh; /* the gradients of the products' weights hold nothing yet (mt_layer_kind.writes): write them, do not add */
    const mt_micro *mb;
    const mt_acts *a;
    int first;                   /* of a->at: the part's own arrays */
    const mt_product *products;  /* the part's own */
    int first_expert, n_experts; /* of the unit whose weights these are; none, but in a unit of experts */
    bool again;                  /* backward recomputes forward: kept arrays are there */
};

/* Rows [first, first + n) of the micro-batch: an ffn takes some at a time. */
struct mt_row_range {
    int64_t first, n;
};

/* The shapes from which an op computes its scratch. */
struct mt_scratch_shape {
    mt_dtype t;
    int64_t rows, chunk; /* of a micro-batch, of a row chunk */
    int64_t pass;        /* that pass an expert together */
    int64_t docs, longest;
    bool router_loss; /* as in mt_work_rows */
    const mt_attention_use *attention;
};

/* -- finding things -- */

static inline const void *mt_pass_weight(const mt_pass *p, mt_role role)
{
    return p->l->at[role] < 0 ? NULL : (const char *)p->w->w + (size_t)p->l->at[role] * mt_dtype_bytes(p->r->t);
}

/* The same of a role whose numbers stay exact: always in fp32. */
static inline const float *mt_pass_exact(const mt_pass *p, mt_role role) { return mt_exact_weight(p->w, p->l, p->r->t, role); }

/* The sum of a role's gradient; NULL: there is none. */
static inline float *mt_pass_grad(const mt_pass *p, mt_role role)
{
    return p->g && p->l->at[role] >= 0 && p->l->trains[role] ? p->g + p->l->at[role] : NULL;
}

/* Row `row` of a tensor of the compute dtype whose rows are `width` wide. */
static inline void *mt_pass_rows(const mt_pass *p, const void *tensor, int64_t row, int64_t width)
{
    return (char *)(uintptr_t)tensor + (size_t)(row * width) * mt_dtype_bytes(p->r->t);
}

/* One of the part's own arrays, by its place in the part's list; and whether backward finds it as forward left it. */
static inline void *mt_pass_array(const mt_pass *p, int i) { return p->a->at[p->first + i]; }
static inline bool mt_pass_kept(const mt_pass *p, int i) { return p->a->kept >> (p->first + i) & 1; }

/* Attention of this shape over the rows and documents of the micro-batch; not its tensors. */
static inline mt_attention mt_pass_attention(const mt_pass *p, mt_attention a)
{
    a.t = p->r->t;
    a.use = p->r->attention;
    a.N = p->mb->n;
    a.n_docs = p->mb->n_docs;
    a.longest = p->mb->longest;
    a.doc_start = p->mb->doc_start;
    a.host_start = p->mb->host_start;
    a.scratch = p->r->scratch;
    return a;
}

/* -- a part describes its weights, arrays, work and scratch -- */

struct mt_part {
    const char *name; /* as plans and messages call it */
    bool (*has_role)(const mt_config *c, const mt_layer_spec *s, mt_role role);
    /* Its products, arrays and work in a layer of this spec; each returns their number.  products: NULL: none. */
    int (*products)(const mt_config *c, const mt_layer_spec *s, mt_product out[MT_MAX_PRODUCTS]);
    int (*arrays)(const mt_config *c, const mt_layer_spec *s, mt_dtype t, mt_array out[MT_MAX_ARRAYS]);
    int (*work)(const mt_config *c, const mt_layer_spec *s, mt_work_item out[MT_MAX_WORK]);
    /* In a pass, one call of each product makes the whole gradient of its weights, and writes it if the pass is fresh.  Layers do so
     * only if both of their parts have this, because they read one flag. */
    bool writes;
    int forward_kernels, backward_kernels; /* queued for a micro-batch */
    /* Bytes of the scratch of its ops other than products; NULL: none. */
    size_t (*scratch)(const mt_config *c, const mt_layer_spec *s, const mt_scratch_shape *shape);
};

struct mt_mixer {
    mt_part part;
    /* The cache that generation keeps of a sequence; NULL: the mixer cannot continue one. */
    mt_cache_bytes (*cache_bytes)(const mt_config *c, const mt_layer_spec *s, mt_dtype t);
    size_t (*cache_scratch)(const mt_config *c, const mt_layer_spec *s, mt_dtype t, int64_t rows, int64_t docs, int64_t deepest);
    /* From h, the branch's input, all that comes before the output projection. */
    mt_rc (*forward)(const mt_pass *p, const void *h, mt_err *err);
    /* y = alpha * output projection (+ add). */
    mt_rc (*output)(const mt_pass *p, void *y, const void *add, mt_err *err);
    /* Recomputes the arrays of forward that are never kept, from those that MT_KEEP_MIXER keeps. */
    mt_rc (*restore)(const mt_pass *p, mt_err *err);
    /* From the gradient of y to that of what output() read, which stays in the part's arrays. */
    mt_rc (*backward_output)(const mt_pass *p, const void *dy, mt_err *err);
    /* From there: dh = or += the gradient of h. */
    mt_rc (*backward)(const mt_pass *p, const void *h, void *dh, bool dh_add, mt_err *err);
};

struct mt_ffn {
    mt_part part;
    bool whole; /* its spans are whole micro-batches, not row chunks */
    /* From h, all rows of the branch's input, what output() reads of the rows of a span. */
    mt_rc (*forward)(const mt_pass *p, mt_row_range s, const void *h, mt_err *err);
    /* Those rows of y = alpha * (...) (+ add). */
    mt_rc (*output)(const mt_pass *p, mt_row_range s, void *y, const void *add, mt_err *err);
    /* From dy, the first of the span's rows of y's gradient, to dh = or += h's, likewise. */
    mt_rc (*backward)(const mt_pass *p, mt_row_range s, const void *h, const void *dy, void *dh, bool dh_add, mt_err *err);
    /* For an ffn whose experts are separate units; NULL in others.  The calls above then exclude the experts: forward() chooses,
     * output() does not exist if nothing is added, and backward() begins after the experts' backward.  Rows are those of a pass,
     * and h, dy the first of them. */
    bool (*adds)(const mt_layer_spec *s); /* output() exists */
    int routes;                           /* of its arrays: [N, T] the experts of each row */
    mt_rc (*experts)(const mt_pass *p, const void *h, mt_err *err);
    /* y = the sum of the experts + add. */
    mt_rc (*close)(const mt_pass *p, void *y, const void *add, mt_err *err);
    mt_rc (*experts_backward)(const mt_pass *p, const void *h, const void *dy, mt_err *err);
    int unit_forward_kernels, unit_backward_kernels;
};

extern const mt_part mt_frame;
extern const mt_mixer mt_mixer_attention, mt_mixer_delta, mt_mixer_latent;
extern const mt_ffn mt_ffn_mlp, mt_ffn_experts;

#endif
