/* ops.h - the arithmetic of a model, one struct of arguments per op, one table of functions per device.
 *
 *     MT_TRY(ops->norm_fwd(stream, &(mt_norm){ .y = h, .rstd = r, .x = x, .w = w, .eps = eps, ... }, err));
 *
 * A call queues the work on the stream and returns; its struct is copied, what it points to must stay valid
 * until the stream has passed it.  All pointers are device memory.  Activations and weights have the compute
 * dtype `t` (F32 or BF16), sums run in fp32; weight gradients (dw, db) are fp32 accumulators that are added
 * to.  The plain CPU version is the truth; every other one is compared with it.
 *
 * Scratch: mt_<op>_scratch(args) is a pure function of the shapes, the same in every build, and the largest
 * need over all devices; callers pass that much memory as `scratch`.  Products on a GPU also use the workspace that the
 * device took when it was opened (MT_DEVICE_WORKSPACE_BYTES).
 *
 * Letters: N rows (tokens), D width, H query heads, K key/value heads, Dh head width, F mlp width, V vocabulary, E experts, T
 * experts of a token. */
#ifndef MT_OPS_OPS_H
#define MT_OPS_OPS_H

#include "base/dtype.h"
#include "device/device.h"
#include "ops/forms.h"
#include "ops/moments.h"
#include "ops/update.h"

/* y[i] = scale * w[ids[i]] (+ w_pos[pos[i]]);   dw[ids[i]] += scale * dy[i], in ascending i for each id.
 * dw_pos[p] += dy of the row at position p of each document, documents in order. */
typedef struct mt_embed {
    mt_dtype t;
    int64_t N, D, V;
    const int32_t *ids;        /* [N], 0 <= id < V: checked when the batch was made */
    const int32_t *rows_by_id; /* [N] row numbers ordered by (id, row); backward only */
    void *y;                   /* [N, D] */
    const void *w;             /* [V, D] */
    const void *dy;            /* [N, D] */
    float *dw;                 /* [V, D] or NULL: not trained */
    float scale;
    int32_t pad_id;           /* this row gets no gradient; -1: none */
    const void *w_pos;        /* [positions, D] learned positions, or NULL */
    const int32_t *pos;       /* [N]; forward, with w_pos */
    const int32_t *doc_start; /* [n_docs + 1] device; backward, with dw_pos */
    int64_t n_docs;
    float *dw_pos; /* or NULL */
} mt_embed;

/* y = w * x / rms(x) (+ b) (+ add), rms over D with eps;   dx (+)= ..., dw += ..., db += ...
 * centered: the mean is taken off x first (LayerNorm); backward finds it again from x. */
typedef struct mt_norm {
    mt_dtype t;
    int64_t N, D;
    int64_t ldx, ld_dx; /* elements from row to row of x, of dx; 0: packed */
    float eps;
    bool one_plus; /* the stored weight is w - 1 */
    bool centered;
    bool dx_add;     /* backward adds to dx instead of writing it */
    void *y;         /* [N, D] */
    float *rstd;     /* [N] 1/rms of each row; written by forward, read by backward */
    const void *x;   /* [N, D] */
    const void *w;   /* [D], or NULL: all 1 */
    const void *b;   /* [D] or NULL */
    const void *add; /* [N, D] or NULL; may be y */
    const void *dy;  /* [N, D] */
    void *dx;        /* [N, D]; without dx_add and ld_dx it may be dy */
    float *dw, *db;  /* [D] or NULL: not trained */
    void *scratch;
} mt_norm;

/* y = alpha (x w' (+ b)) (+ add);   dx (+)= alpha dy w, dw (+)= alpha dy' x, db += alpha sum of dy.  Backward does what has a
 * place. softcap: forward ends with y = softcap tanh(y / softcap), for logits that are looked at; what trains caps them in
 * cross_entropy. */
typedef struct mt_linear {
    mt_dtype t;
    int64_t M, N, K;         /* x [M, K], w [N, K], y [M, N] */
    int64_t ldx, ldy, ldadd; /* elements from row to row; 0: packed */
    bool y_f32;              /* y is always fp32 (logits) */
    float alpha;             /* 0: 1 */
    float softcap;           /* 0: none */
    bool dx_add;
    bool dw_set;           /* dw is written, not added to */
    const void *x, *w, *b; /* b [N] or NULL */
    void *y;
    const void *add; /* [M, N] or NULL; may be y */
    const void *dy;  /* [M, N], rows ldy apart */
    void *dx;        /* [M, K] or NULL, rows ldx apart */
    float *dw, *db;  /* or NULL */
    void *scratch;
} mt_linear;

typedef enum mt_rope_style {
    MT_ROPE_NONE, /* no positions on this layer */
    MT_ROPE_HALF, /* pairs (j, j + dr/2) */
    MT_ROPE_PAIR, /* pairs (2j, 2j + 1) */
} mt_rope_style;

/* Per head: optional RMS norm over Dh (whole: over all query heads, and over all key heads; centered: LayerNorm), then the first
 * dr dimensions rotate by the row's position.  norm_last: the rotation first, then the norm.
 * q_beta: query heads of a row at position p are then times 1 + q_beta log(1 + floor((p + q_shift) / q_period)); only without a norm.
 * Forward reads q and k from qkv and writes them to qk; without norm the two may be the same memory.
 * Backward turns gradients of the rotated q, k (in dqkv) into gradients of what forward read, in place. */
typedef struct mt_qk_prepare {
    mt_dtype t;
    mt_rope_style style;
    int64_t N, H, K, Dh, dr;
    int64_t ld_qkv, ld_qk, ld_dqkv; /* elements from row to row */
    const int32_t *pos;             /* [N] */
    const float *cos, *sin;         /* [positions, dr/2], already scaled */
    const void *qkv;                /* q heads, then k heads, at the start of each row */
    void *qk;
    void *dqkv;
    const void *wq, *wk; /* [Dh] norm weights, or NULL; whole, own_weights: [H Dh] and [K Dh] */
    float *dwq, *dwk;    /* like wq, wk, or NULL */
    float eps;
    bool one_plus;
    bool whole;
    bool centered, own_weights; /* the mean is subtracted first; every head has its own weights */
    bool norm_last;
    bool bare;        /* norms without weights: wq and wk are NULL */
    float q_beta;     /* 0: query heads are not scaled by position */
    int64_t q_period; /* positions per step of that scale */
    int64_t q_shift;  /* positions that the first row counts as */
    void *scratch;
} mt_qk_prepare;

/* Queries and keys of latent attention, from what their projections make.  A head is [nope | rope], of widths dn and dr.
 * Forward rotates the rope part of every query head, in place or to another, and makes key head h of [its own nope | the rope part
 * that a row has once for all heads, rotated].
 * Backward turns dq back in place and takes dk apart: d_nope, and d_rope, the sum over the heads in ascending order. */
typedef struct mt_latent_qk {
    mt_dtype t;
    mt_rope_style style;
    int64_t N, H, dn, dr;
    int64_t ldq, ldk, ld_nope, ld_rope; /* elements from row to row */
    const int32_t *pos;                 /* [N] */
    const float *cos, *sin;             /* [positions, dr/2], already scaled */
    void *q;                            /* [N, H, dn + dr], or NULL: it was rotated before */
    void *q_to;                         /* the first rope part of the queries' copy, or NULL: they rotate in place */
    int64_t ld_q_to, q_apart;           /* its elements from row to row, from head to head */
    const void *nope, *rope;            /* [N, H, dn], [N, dr] */
    void *k;                            /* [N, H, dn + dr], or NULL: not wanted */
    int64_t ld_d;                       /* of all that follow */
    void *dq;                           /* [N, H, dn + dr] */
    const void *dk;
    void *d_nope, *d_rope;
} mt_latent_qk;

/* The attention kernels; attention_ways.c chooses one for a call. */
typedef enum mt_attention_way {
    MT_ATTENTION_PLAIN,      /* a row at a time: every shape, slowly */
    MT_ATTENTION_FLASH,      /* our tensor-core kernels; repeatable */
    MT_ATTENTION_CUDNN,      /* cuDNN; repeatable, the backward's workspace grows with the square of the length */
    MT_ATTENTION_CUDNN_FAST, /* cuDNN with atomic additions in the backward: not repeatable */
    MT_ATTENTION_WAYS
} mt_attention_way;

/* The attention kernels that a run may use.  Part of its arithmetic: they decide bits. */
typedef struct mt_attention_use {
    uint32_t ways;      /* a bit for each mt_attention_way; 0: our own two */
    int32_t cudnn_head; /* widest heads cuDNN computes right here */
    uint64_t workspace; /* bytes cuDNN's repeatable backward may take */
    bool parts;         /* documents that do not fit go through in parts; runs from before parts existed continue without them */
    bool caps;          /* cuDNN knows soft caps, too; likewise */
    int64_t docs, longest; /* most documents of a call and rows of one, over the run; 0: this call's.  Kernels are made for
                            * these */
} mt_attention_use;

/* o = softmax(S + mask) v per head, S = scale q k'; a row sees the rows of its own document up to itself, at most `window` of
 * them (itself included).  Query head h reads key head h / (H / K).  alibi: row i adds alibi slope(h) (j - i) to its score of row
 * j; softcap: then S = softcap tanh(S / softcap).  chunk: a document is cut every `chunk` rows, and a row sees those of its own
 * chunk alone.  sinks: each head's softmax has one more score, sinks[h], without a value: only the denominator and lse include
 * it.  So backward needs no more than lse;  dsinks[h] -= sum over rows of exp(sinks[h] - lse) (o . do). */
typedef struct mt_attention {
    mt_dtype t;
    int64_t N, H, K, Dh;
    int64_t Dv;                 /* width of a head's values and of its output; 0: Dh */
    int64_t ldq, ldk, ldv, ldo; /* elements from row to row */
    int64_t n_docs, longest;    /* documents, rows of the longest */
    const int32_t *doc_start;   /* [n_docs + 1], device */
    const int32_t *host_start;  /* the same in host memory, read while the call is queued; backward */
    float scale;
    int64_t window;        /* 0: none */
    float softcap;         /* 0: none */
    float alibi;           /* factor on the slopes of mt_alibi_slope; 0: none */
    int64_t chunk;         /* 0: none */
    const float *sinks;    /* [H], always fp32, or NULL */
    float *dsinks;         /* [H] or NULL: not trained */
    const void *q, *k, *v; /* [N, heads, Dh]; v: Dv */
    void *o;               /* [N, H, Dv] */
    float *lse;            /* [N, H] log of the softmax denominators */
    const void *d_o;       /* rows ldo apart */
    void *dq, *dk, *dv;    /* rows ld_d apart */
    int64_t ld_d;
    mt_attention_use use;
    void *scratch;
} mt_attention;

/* Attention of rows that continue sequences (generation): the new rows' k and v are put into the cache, then each new row sees
 * its sequence's rows up to itself, at most `window` of them.  New rows of a sequence have ascending, adjacent positions; row p
 * of sequence d is row cache_row[d] + p of the cache.  Earlier contents of a cache row are overwritten and never read. */
typedef struct mt_cache_attention {
    mt_dtype t;
    int64_t N, H, K, Dh;
    int64_t Dv;                 /* as in attention; 0: Dh */
    int64_t ldq, ldk, ldv, ldo; /* elements from row to row */
    int64_t n_docs, longest;    /* sequences, most new rows of one */
    int64_t deepest;            /* rows of the longest sequence, cached and new */
    const int32_t *doc_start;   /* [n_docs + 1] new rows of each sequence, device */
    const int32_t *pos;         /* [N] positions of the new rows in their sequences */
    const int32_t *cache_row;   /* [n_docs] */
    float scale;
    int64_t window;          /* 0: none */
    float softcap, alibi;    /* as in attention */
    int64_t chunk;           /* likewise; positions of the sequence count */
    const float *sinks;      /* likewise */
    const void *q, *k, *v;   /* [N, heads, Dh]; v: Dv */
    void *o;                 /* [N, H, Dv] */
    void *cache_k, *cache_v; /* [cache rows, K, Dh], [cache rows, K, Dv]; cache_v NULL: values are the first Dv of the keys,
                              * without a separate v */
    void *scratch;
} mt_cache_attention;

/* Width of a head's values. */
static inline int64_t mt_value_width(int64_t Dh, int64_t Dv) { return Dv ? Dv : Dh; }

typedef enum mt_act {
    MT_ACT_SILU,
    MT_ACT_GELU_TANH,
    MT_ACT_GELU_ERF,
    MT_ACT_RELU,
    MT_ACT_RELU2,
    MT_ACT_XIELU,
    MT_ACT_CLAMPED, /* of a gate and its up: g = min(gate, limit), u = clamp(up, -limit, limit), y = g sigmoid(steep g) (u + 1) */
} mt_act;

/* xIELU: with p = softplus(alpha_p), n = beta + softplus(alpha_n), it is p x^2 + beta x for x > 0, else
 * n (expm1(min(x, eps)) - x) + beta x.  Both alphas are learned; beta and eps are not. */
#define MT_XIELU_BETA 0.5f
#define MT_XIELU_EPS  (-1e-6f)
enum { MT_XIELU_BLOCKS = 1024 }; /* most shares that the alphas' gradients are added up of on a GPU */

/* y = act(gate) * up with gate and up side by side in gu; plain: y = act(gu).  Backward writes dgu (may be gu itself) and, since
 * y is cheap, y again (may be dy itself) unless it is NULL.
 *
 * Rows of experts: `first` and `last` make the number of rows *last - *first, at most N, known to the device alone; row i is then
 * the pair order[*first + i] of expert_sort.  With weights, y is times the weight of the row's pair, and backward also writes
 * dweights[pair] = sum over f of dy[f] act(gate)[f] up[f].  That is the gradient of a routing weight if dy is the gradient of the
 * unweighted sum's input: <dy w_down, act(gate) up> = <dy, expert output>, so no expert output is kept or made again.
 * weigh_input: the weight is one of the row that the expert reads.  Its first product is linear, so gate and up are times the
 * weight and y is not; dgu are gradients of gate and up as they are in gu, and dweights[pair] = sum over f of the gradients of the
 * weighted gate and up times gate and up. */
typedef struct mt_activation {
    mt_dtype t;
    mt_act act;
    bool plain;
    int64_t N, F;
    const void *gu;                 /* [N, 2F]: gate, up; plain: [N, F] */
    void *y;                        /* [N, F] */
    const void *dy;                 /* [N, F] */
    void *dgu;                      /* like gu */
    const int32_t *first, *last;    /* device, or NULL: N rows */
    const int32_t *order;           /* pairs by packed row; with weights */
    const float *weights;           /* [pairs] or NULL: 1 */
    float *dweights;                /* [pairs]; backward, with weights */
    bool weigh_input;               /* the weights are of gate and up; with weights */
    float limit, steep;             /* MT_ACT_CLAMPED */
    const float *alpha_p, *alpha_n; /* [1] each; xIELU, which is plain and has no packed rows */
    float *dalpha_p, *dalpha_n;     /* or NULL: not trained */
    void *scratch;                  /* backward of xIELU */
} mt_activation;

/* -- experts ------------------------------------------------------------------------------------------
 *
 * A layer with E experts sends each row to T of them.  A *pair* n T + k is row n and its k-th expert, k in ascending order of the
 * experts.  expert_sort orders pairs by (expert, row): expert e owns the packed rows [offsets[e], offsets[e + 1]).  These numbers
 * live on the device; the host knows bounds only, and never waits for them.
 *
 * An expert unit holds c whole experts [e0, e0 + c).  Its calls work on the packed rows of these experts, counted from
 * offsets[e0]: its buffers have at most N min(T, c) rows.  Sums over experts run in ascending order in fp32 and are rounded once
 * at the end, so how experts are cut into units does not change a bit.
 *
 *     forward    route, expert_sort; per unit: grouped_linear (x gathered), activation, grouped_linear, combine (weights)
 *     backward   per unit: grouped_linear and activation again up to act(gate) up; grouped_linear dx (dy gathered) for its gradient
 *                without weights; activation backward with weights: dgu, weighted act(gate) up, dweights; grouped_linear dw of both
 *                matrices; grouped_linear dx, combine (no weights) into dx.  After the last unit: route backward. */

enum { MT_ROUTE_EXPERTS = 1024 }; /* most experts of a layer */

typedef enum mt_route_kind {
    MT_ROUTE_SOFTMAX,       /* score: softmax over all experts; chosen by the score (+ bias) */
    MT_ROUTE_SIGMOID,       /* score: sigmoid of the logit; chosen by the score (+ bias) */
    MT_ROUTE_CHOSEN,        /* chosen by the logit; weights: softmax over the chosen */
    MT_ROUTE_LOGIT_SIGMOID, /* chosen by the logit; weight: its sigmoid */
    MT_ROUTE_MIXER,         /* phimoe's sparse mixer as in evaluation: T = 2, one expert after the other; a weight is the softmax
                             * over the experts e with (top - l_e) / max(|l_e|, top) <= 2 jitter */
} mt_route_kind;

/* The T experts of each row and their weights.
 *
 * The T largest are chosen, among equal ones those of lower index (a NaN counts as -infinity).  With n_group > 1 only experts of
 * the topk_group best groups are eligible; a group's score is its largest choice value (SOFTMAX) or the sum of its two largest
 * (SIGMOID).  The weight of a chosen expert is its score; with `norm`, divided by max(sum over the chosen + norm_eps,
 * norm_floor); times scale.  SOFTMAX without a bias chooses by the logits, which have the same order: the same choice on every
 * device.
 *
 * Backward: dlogits from dweights, with the choice of forward taken from `experts`; bias and choice have no gradient.
 *
 * Auxiliary loss (Switch): aux_counts[e] += rows that have e among the T largest logits, aux_probs[e] += sum over rows of
 * softmax(logits)[e]; backward adds aux_scale p_e (aux_counts[e] - sum over j of aux_counts[j] p_j) to dlogits, the gradient of
 * aux_scale sum of aux_counts[e] aux_probs[e].  For R = layers times rows of the micro-batch, coefficient k and share s of the
 * micro-batch in the step, aux_scale = s k E / R^2. */
typedef struct mt_route {
    mt_dtype t; /* of dlogits */
    mt_route_kind kind;
    int64_t N, E, T;
    int64_t n_group, topk_group; /* 0 or 1: no groups */
    bool norm;
    float norm_eps, norm_floor;
    float scale;           /* 0: 1 */
    float jitter;          /* MIXER */
    const float *logits;   /* [N, E] */
    const float *bias;     /* [E] added for choosing, or NULL; SOFTMAX and SIGMOID */
    int32_t *experts;      /* [N, T] ascending in each row; written by forward, read by backward */
    float *weights;        /* [N, T] */
    const float *dweights; /* [N, T] */
    void *dlogits;         /* [N, E] */
    int32_t *aux_counts;   /* [E], or NULL: no auxiliary loss */
    float *aux_probs;      /* [E]; forward */
    float aux_scale;       /* backward */
    void *scratch;
} mt_route;

/* MT_OK if there is a choice: 1 to MT_ROUTE_EXPERTS experts, and T in the groups that are kept. */
mt_rc mt_route_check(const mt_route *a, mt_err *err);

/* *sum += scale sum over e of counts[e] probs[e], in ascending order. */
typedef struct mt_router_loss {
    int64_t E;
    double scale;
    const int32_t *counts; /* [E] aux_counts of route */
    const float *probs;    /* [E] aux_probs */
    double *sum;
} mt_router_loss;

enum { MT_SORT_PAIRS = 512 }; /* pairs that a GPU counts together */

/* Pairs ordered by (expert, row): a stable counting sort. */
typedef struct mt_expert_sort {
    int64_t N, T, E;
    const int32_t *experts; /* [N, T], distinct in each row */
    int32_t *offsets;       /* [E + 1] packed rows of each expert; the last: N T */
    int32_t *order;         /* [N T] the pair of each packed row */
    int32_t *rows;          /* [N T] the row of each packed row: order / T */
    int32_t *place;         /* [N T] the packed row of each pair */
    int32_t *loads;         /* [E] += rows of each expert, or NULL */
    void *scratch;
} mt_expert_sort;

/* For each expert e of [e0, e0 + c) and its packed rows i, counted from offsets[e0]:
 *     y[i] = x[i] w[e]' (+ b[e]);   dx[i] = dy[i] w[e],   dw[e] += sum over its i of dy[i]' x[i],   db[e] += sum of dy[i].
 * gather_x: x has a row per token, and x[i] above is x[rows[offsets[e0] + i]]; gather_dy: likewise dy.  dx is always packed.
 * w, b, dw, db hold the c experts of this call.  dw_set: dw and db are written, not added to; an expert without rows gets zeros.
 * weights: y counts times the weight of its pair, order[offsets[e0] + i], and x was weighted before, so dw is right as it is; but
 *     db[e] += sum of weights[pair] dy[i],   dweights[pair] += dy[i] . b[e].
 * Rows are summed in ascending order, in a grouping that depends on N, K and the expert's own rows alone. */
typedef struct mt_grouped_linear {
    mt_dtype t;
    int64_t M;    /* packed rows at most */
    int64_t N, K; /* w [c, N, K] */
    int64_t e0, c;
    const int32_t *offsets; /* [E + 1] of expert_sort */
    const int32_t *rows;    /* of expert_sort; with gather_x or gather_dy */
    bool gather_x, gather_dy, dw_set;
    const void *x;     /* [M, K], or a row per token */
    const void *w, *b; /* b [c, N] or NULL */
    void *y;           /* [M, N] */
    const void *dy;    /* [M, N], or a row per token */
    void *dx;          /* [M, K] or NULL */
    float *dw, *db;    /* [c, N, K], [c, N], or NULL */
    const int32_t *order;
    const float *weights; /* [pairs], or NULL: 1; backward of biases */
    float *dweights;      /* [pairs] or NULL: no bias */
    void *scratch;
} mt_grouped_linear;

/* sum[n] (+)= sum over the experts of row n in [e0, e0 + c), ascending, of weights[n, k] y[packed row].   out = round(sum (+
 * add)).  Units follow each other in ascending order: the first has `start` and writes the sum, later ones add to it, the last
 * has `out`. */
typedef struct mt_combine {
    mt_dtype t;
    int64_t N, D, T, e0, c;
    bool start;             /* the sum begins with these experts */
    const int32_t *experts; /* [N, T] ascending in each row */
    const int32_t *place;   /* [N, T] of expert_sort */
    const int32_t *offsets; /* of expert_sort */
    const float *weights;   /* [N, T] or NULL: 1 */
    const void *y;          /* packed rows of these experts, D wide */
    float *sum;             /* [N, D]; NULL if this is the first unit and the last */
    void *out;              /* [N, D] or NULL: more experts follow */
    const void *add;        /* [N, D] or NULL; with out; may be out */
} mt_combine;

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

/* A head whose rows count by their direction alone: logits[i][j] = x[i] . w[j] / |w[j]|, |w[j]| at least 1e-12.  Forward finds x
 * w' in logits and divides.  Backward finds the logits as forward left them and divides dlogits, so that linear's backward
 * continues from there; to dw it adds the norms' part: dw[j] -= w[j] / |w[j]| sum over i of dlogits[i][j] logits[i][j]. */
typedef struct mt_normhead {
    mt_dtype t;
    int64_t N, V, D;
    const void *w; /* [V, D] */
    float *logits; /* [N, V] */
    float *rnorm;  /* [V] 1 / |w[j]|; written by forward, read by backward */
    void *dlogits; /* [N, V] */
    float *dw;     /* [V, D] or NULL: not trained */
} mt_normhead;

/* Causal depthwise convolution, then silu; every document starts with zeros before it:
 *     s[t][c] = sum over m < width of w[c][m] x[t - width + 1 + m][c],   y = silu(s).
 * Backward makes s again from x:  ds = dy silu'(s),  dx[t] = sum over m of w[m] ds[t + width - 1 - m] inside the document,
 * dw[c][m] += sum over t of ds[t] x[t - width + 1 + m].  Nothing may alias. */
typedef struct mt_conv {
    mt_dtype t;
    int64_t N, C;            /* rows, channels */
    int64_t width;           /* MT_CONV_LEAST to MT_CONV_MOST */
    int64_t ldx, ldy, ld_dx; /* elements from row to row; dy has ldy */
    int64_t n_docs;
    const int32_t *doc_start; /* [n_docs + 1], device; the documents cover all N rows */
    const void *x;            /* [N, C] */
    const void *w;            /* [C, width] */
    void *y;                  /* [N, C] */
    const void *dy;
    void *dx;
    float *dw; /* [C, width] or NULL: not trained */
    void *scratch;
} mt_conv;
enum { MT_CONV_LEAST = 2, MT_CONV_MOST = 8 };

/* conv of rows that continue sequences (generation).  Document d is the new rows of a sequence whose last width - 1 inputs are
 * in state[slot[d]], oldest first.  The call reads them and replaces them.  A sequence at position 0 starts with zeros: what its
 * state held before is not read. */
typedef struct mt_cache_conv {
    mt_conv c;
    const int32_t *pos;  /* [N] positions of the new rows in their sequences */
    const int32_t *slot; /* [n_docs] */
    void *state;         /* [slots, width - 1, C] */
} mt_cache_conv;

/* The gated delta rule.  H value heads, K key heads; value head h reads key head h / (H / K).  Per value head, with a state S of
 * Dk x Dv that is 0 before each document:
 *     q^ = q rsqrt(q.q + 1e-6) / sqrt(Dk),  k^ = k rsqrt(k.k + 1e-6),  beta = sigmoid(b),  g = -exp(A_log) softplus(a + dt_bias)
 *     S = exp(g) S;   delta = beta (v - S' k^);   S = S + k^ delta';   o = S' q^.
 * The CPU does just that, row by row.  A GPU works in chunks of MT_DELTA_ROWS rows (delta_rule.cu).  The state and all sums are
 * fp32; with bf16, operands of products are rounded.  Per-chunk states are scratch: backward makes them again. */
typedef struct mt_delta_rule {
    mt_dtype t;
    int64_t N, H, K, Dk, Dv;
    int64_t ldq, ldk, ldv, ldo; /* elements from row to row; d_o has ldo */
    int64_t ld_ab;              /* of a and b */
    int64_t ld_d, ld_dab;       /* of dq, dk, dv; of da, db */
    int64_t n_docs;
    const int32_t *doc_start;     /* [n_docs + 1], device; the documents cover all N rows */
    const void *q, *k, *v;        /* [N, K, Dk], [N, K, Dk], [N, H, Dv] */
    const void *a, *b;            /* [N, H] */
    const float *A_log, *dt_bias; /* [H], always fp32 */
    void *o;                      /* [N, H, Dv] */
    const void *d_o;
    void *dq, *dk, *dv, *da, *db;
    float *dA_log, *ddt_bias; /* [H] or NULL: not trained */
    void *scratch;
    size_t scratch_bytes; /* that are there, for this call or one of more rows and documents; 0: those of mt_delta_rule_scratch */
} mt_delta_rule;
enum { MT_DELTA_ROWS = 64 };

/* delta_rule of rows that continue sequences (generation).  Document d is the new rows of a sequence whose state is
 * state[slot[d]].  The call reads the state and replaces it.  A sequence at position 0 starts with zeros. */
typedef struct mt_cache_delta {
    mt_delta_rule d;
    const int32_t *pos;  /* [N] positions of the new rows in their sequences */
    const int32_t *slot; /* [n_docs] */
    float *state;        /* [slots, H, Dk, Dv] */
} mt_cache_delta;

/* y = w * x / rms(x) * silu(gate), per row and head; rms over D with eps.  w is the same for all heads.
 * Backward writes dx (may be dy), dgate (may be gate) and, since y is cheap, y again (may be x) unless it is NULL; dw += ...
 * What shares memory has the same distance from row to row. */
typedef struct mt_gated_norm {
    mt_dtype t;
    int64_t N, H, D;
    int64_t ldx, ld_gate, ldy, ld_dx, ld_dgate; /* elements from row to row; dy has ldy */
    float eps;
    const void *x, *gate; /* [N, H, D] */
    const void *w;        /* [D] */
    void *y;              /* [N, H, D] */
    const void *dy;
    void *dx, *dgate;
    float *dw; /* [D] or NULL: not trained */
    void *scratch;
} mt_gated_norm;

/* y = x * sigmoid(gate).  Backward writes dx = dy sigmoid(gate) (may be dy), dgate (may be gate) and y again (may be x) unless it
 * is NULL.  What shares memory has the same distance from row to row. */
typedef struct mt_gate {
    mt_dtype t;
    int64_t N, D;
    int64_t ldx, ld_gate, ldy, ld_dx, ld_dgate; /* elements from row to row; dy has ldy */
    const void *x, *gate;                       /* [N, D] */
    void *y;
    const void *dy;
    void *dx, *dgate;
} mt_gate;

/* x = min(max(x, -limit), limit), in place.  Backward, with x as forward left it: dx = 0 where |x| is limit. */
typedef struct mt_bound {
    mt_dtype t;
    int64_t N, D;
    int64_t ldx, ld_dx; /* elements from row to row */
    float limit;
    void *x, *dx; /* [N, D] */
} mt_bound;

/* The sums of a step's loss, on the device; rows are added in order. */
typedef struct mt_loss_sum {
    double loss;     /* sum over rows: of -log p(target), or of what an objective makes of it */
    int64_t correct; /* rows whose target has the largest logit */
} mt_loss_sum;

/* Rows of logits: sum += their loss; dlogits = (softmax - onehot) * dscale.  Objectives add terms to both (row_terms.h has the
 * formula): smoothing, z_loss, factors and weights.
 * softcap: the loss is of softcap tanh(logits / softcap), dlogits are of the logits: times 1 - tanh^2.  Here, because a pass over
 * all logits before this one takes longer than the rest of capping. */
typedef struct mt_cross_entropy {
    mt_dtype t; /* of dlogits */
    int64_t N, V;
    const float *logits;    /* [N, V] */
    const int32_t *targets; /* [N], all trained */
    void *dlogits;          /* [N, V] or NULL: loss only */
    float dscale;           /* 1 / trained tokens of the step */
    float softcap;          /* 0: none */
    float *row_loss;        /* [N] scratch */
    int32_t *row_correct;   /* [N] scratch */
    mt_loss_sum *sum;
    float smoothing, z_loss;
    bool by_probability;  /* times p(target) */
    const float *factors; /* [N] of losses without z_loss; NULL: 1.  May be row_loss */
    const float *weights; /* [N] of whole losses; NULL: 1 */
} mt_cross_entropy;

/* factors[i] = (H / 3)^alpha, H the entropy of the softmax over the row's 20 largest logits, or over all if it has fewer. */
enum { MT_ENTROPY_LOGITS = 20 };
typedef struct mt_entropy_factor {
    int64_t N, V;
    const float *logits; /* [N, V] */
    float softcap;       /* as in cross_entropy */
    float alpha;
    float *factors; /* [N] */
} mt_entropy_factor;

/* to += part, element by element: any cut into ranges gives the same bits.  bf16: part is rounded to that first.  clear: part is
 * zero afterwards. */
typedef struct mt_fold {
    int64_t n;
    float *to, *part;
    bool bf16, clear;
} mt_fold;

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

/* fold and round_grad of elements [from, to), on this thread. */
void mt_fold_range(const mt_fold *a, int64_t from, int64_t to);
void mt_round_range(const mt_round_grad *a, int64_t from, int64_t to);

typedef struct mt_join_halves {
    int64_t n;
    const uint16_t *hi;
    const int16_t *lo; /* NULL: all zero */
    float *w;
} mt_join_halves;

/* A packed weight (ops/forms.h) to numbers, rounded as the high half of their split where t is bf16. */
typedef struct mt_expand {
    mt_dtype t; /* of w */
    mt_packing as;
    const void *packed; /* mt_packing_bytes(&as) of them, aligned to MT_FORM_ALIGN */
    void *w;            /* [rows, columns] */
} mt_expand;

/* What an op may be asked beyond its plain form.  A device that lacks one says so in its table, and a model that needs it is
 * refused before anything is allocated (model/traits.h). */
#define MT_TRAIT_LIST(X)                                                                                                         \
    X(LAYERNORM, "LayerNorm (norm: centered, b)")                                                                                \
    X(PLAIN_MLP, "an mlp without a gate (activation: plain)")                                                                    \
    X(RELU, "relu activations (activation: MT_ACT_RELU, MT_ACT_RELU2)")                                                          \
    X(ATTENTION_SOFTCAP, "soft-capped attention scores (attention: softcap)")                                                    \
    X(ALIBI, "ALiBi positions (attention: alibi)")                                                                               \
    X(WHOLE_QK_NORM, "query and key norms over all heads (rope: whole)")                                                         \
    X(LOGIT_SOFTCAP, "soft-capped logits (linear, cross_entropy: softcap)")                                                      \
    X(MULTIPLIERS, "scaled residuals or logits (linear: alpha)")                                                                 \
    X(LEARNED_POSITIONS, "learned positions (embed: w_pos)")                                                                     \
    X(QK_LAYERNORM, "LayerNorms of query and key heads (rope: centered, own_weights)")                                           \
    X(NORM_HEAD, "a head of normalized rows (normhead)")                                                                         \
    X(QUERY_SCALE, "query heads scaled by position (rope: q_beta)")                                                              \
    X(BARE_NORM, "norms without weights (norm: no w; rope: bare)")                                                               \
    X(QK_NORM_LAST, "query and key norms after the rotation (rope: norm_last)")                                                  \
    X(XIELU, "the xIELU activation (activation: MT_ACT_XIELU)")                                                                  \
    X(BOUND, "bounded queries, keys and values (bound)")                                                                         \
    X(SINKS, "attention sinks (attention: sinks)")                                                                               \
    X(CHUNKS, "attention in chunks (attention: chunk)")                                                                          \
    X(CLAMPED, "the clamped activation (activation: MT_ACT_CLAMPED)")

enum mt_trait_bit {
#define MT_TRAIT_BIT(name, words) MT_TRAIT_BIT_##name,
    MT_TRAIT_LIST(MT_TRAIT_BIT)
#undef MT_TRAIT_BIT
        MT_TRAITS
};
#define MT_TRAIT(name) (1u << MT_TRAIT_BIT_##name)
#define MT_TRAITS_ALL  ((1u << MT_TRAITS) - 1)

/* The slope of query head h of H: a falling power of two, and for an H that is none, the even places of the next finer row. */
float mt_alibi_slope(int64_t H, int64_t h);

typedef struct mt_ops {
#define MT_OP(n)                                                                                                                 \
    mt_rc (*n##_fwd)(mt_stream *, const mt_##n *, mt_err *);                                                                     \
    mt_rc (*n##_bwd)(mt_stream *, const mt_##n *, mt_err *);
#define MT_OP1(n) mt_rc (*n)(mt_stream *, const mt_##n *, mt_err *);
#include "ops/ops.def"
    uint32_t traits;                                              /* which of MT_TRAIT_* it does */
    void (*attention_use)(mt_device *dev, mt_attention_use *use); /* fills in what it has: ways, cudnn_head */
} mt_ops;

extern const mt_ops mt_ops_cpu, mt_ops_cuda;

/* The same for streams that are traced: it uses the table of the stream's device. */
extern const mt_ops mt_ops_traced;

/* The table that fits a device. */
const mt_ops *mt_ops_of(const mt_device *dev);

/* What a run on this device should use: all it has, less what `deterministic` forbids; `plain`: the plain way alone, for
 * comparing. device_bytes bounds the workspace. */
mt_attention_use mt_attention_use_of(mt_device *dev, bool deterministic, bool plain, size_t device_bytes);
/* The same for a server GPU with cuDNN that is not here: for planning. */
mt_attention_use mt_attention_use_typical(bool deterministic, bool plain, size_t device_bytes);
/* The `workspace` for a device of this size. */
uint64_t mt_attention_workspace(const mt_attention_use *use, size_t device_bytes);
/* The attention kernel for this call: a pure function of its arguments. */
mt_attention_way mt_attention_choose(const mt_attention *a, bool backward);
const char *mt_attention_way_name(mt_attention_way way);
/* "cudnn, flash, plain": what may be used, the preferred first. */
void mt_attention_use_text(const mt_attention_use *use, char *out, size_t n);

/* Scratch bytes of each op for these arguments' shapes. */
#define MT_OP(n)  size_t mt_##n##_scratch(const mt_##n *a);
#define MT_OP1(n) size_t mt_##n##_scratch(const mt_##n *a);
#include "ops/ops.def"

#endif
