/* mixer_latent.c - latent attention: one product makes small latents of a row, which are normed and expanded to the queries,
 * keys and values of all heads; then attention over each document, and the output projection.
 *
 *     PROJ   [ q_a | kv_a | rope ]      or, where queries are not expanded, [ q | kv_a | rope ]
 *     CQ     norm of q_a;     Q    [ H, dn + dr ]  = CQ q_b,   its rope parts rotated
 *     CKV    norm of kv_a;    KV   [ H dn | H dv ] = CKV (k_b | v_b)
 *     K      [ H, dn + dr ]: each head its part of KV, then the row's one rope part, rotated
 *
 * Widths of scores (dn + dr) and values (dv) differ.  What is kept: the latents from MT_KEEP_MIXER on, and backward expands them
 * again; the expanded queries and values from MT_KEEP_ALL on, which are an order of magnitude more bytes; K never. */
#include "base/mem.h"
#include "model/part.h"

enum { PROJ, CQ, CQ_RSTD, CKV, CKV_RSTD, Q, KV, K, ATTN, LSE, GRAD, DATTN, DC, ARRAYS };
enum { W_PROJ, W_Q, W_KV, W_O, PRODUCTS };

#define LATENT_EPS 1e-6f /* of both norms, independent of config.json */

/* Widths of a row. */
static int64_t q_width(const mt_layer_spec *s) { return s->H * s->Dh; }
static int64_t nope_width(const mt_config *c, const mt_layer_spec *s) { return s->H * c->latent.dn; }
static int64_t value_width(const mt_config *c, const mt_layer_spec *s) { return s->H * c->latent.dv; }
static int64_t kv_width(const mt_config *c, const mt_layer_spec *s) { return nope_width(c, s) + value_width(c, s); }
static bool expands_q(const mt_config *c) { return c->latent.q_rank > 0; }

/* Columns of PROJ. */
static int64_t kv_a_column(const mt_config *c, const mt_layer_spec *s) { return expands_q(c) ? c->latent.q_rank : q_width(s); }
static int64_t rope_column(const mt_config *c, const mt_layer_spec *s) { return kv_a_column(c, s) + c->latent.kv_rank; }
static int64_t proj_width(const mt_config *c, const mt_layer_spec *s) { return rope_column(c, s) + c->latent.dr; }

/* A row of GRAD has the gradients of all of them, since attention writes its three with one stride: those of PROJ, of Q where it
 * is expanded, of KV, of K. */
static int64_t dq_column(const mt_config *c, const mt_layer_spec *s) { return expands_q(c) ? proj_width(c, s) : 0; }
static int64_t dkv_column(const mt_config *c, const mt_layer_spec *s)
{
    return proj_width(c, s) + (expands_q(c) ? q_width(s) : 0);
}
static int64_t dk_column(const mt_config *c, const mt_layer_spec *s) { return dkv_column(c, s) + kv_width(c, s); }
static int64_t grad_width(const mt_config *c, const mt_layer_spec *s) { return dk_column(c, s) + q_width(s); }

/* -- its weights, arrays, work and scratch --------------------------------------------------------- */

static bool latent_has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    (void)s;
    switch (role) {
    case MT_W_Q: return !expands_q(c);
    case MT_W_Q_A:
    case MT_W_Q_A_NORM:
    case MT_W_Q_B: return expands_q(c);
    case MT_B_Q_A: return expands_q(c) && c->qkv_bias;
    case MT_W_KV_A:
    case MT_W_K_ROPE:
    case MT_W_KV_A_NORM:
    case MT_W_K_B:
    case MT_W_V_B:
    case MT_W_O: return true;
    case MT_B_KV_A:
    case MT_B_K_ROPE: return c->qkv_bias;
    case MT_B_O: return c->o_bias;
    default: return false;
    }
}

static int latent_products(const mt_config *c, const mt_layer_spec *s, mt_product *out)
{
    const mt_latent_shape *l = &c->latent;
    const bool expands = expands_q(c);
    out[W_PROJ] = (mt_product){ .k = c->D,
                                .of = { { expands ? MT_W_Q_A : MT_W_Q, expands ? MT_B_Q_A : MT_ROLES, kv_a_column(c, s) },
                                        { MT_W_KV_A, MT_B_KV_A, l->kv_rank },
                                        { MT_W_K_ROPE, MT_B_K_ROPE, l->dr } } };
    out[W_Q] = (mt_product){ .k = l->q_rank, .of = { { MT_W_Q_B, MT_ROLES, expands ? q_width(s) : 0 } } };
    out[W_KV] = (mt_product){ .k = l->kv_rank,
                              .of = { { MT_W_K_B, MT_ROLES, nope_width(c, s) }, { MT_W_V_B, MT_ROLES, value_width(c, s) } } };
    out[W_O] = (mt_product){ .k = value_width(c, s), .alpha = (float)c->residual_scale, .of = { { MT_W_O, MT_B_O, c->D } } };
    return PRODUCTS;
}

static int latent_arrays(const mt_config *c, const mt_layer_spec *s, mt_dtype t, mt_array *out)
{
    const mt_latent_shape *l = &c->latent;
    const size_t e = mt_dtype_bytes(t), q = (size_t)q_width(s) * e, q_rank = (size_t)l->q_rank * e,
                 kv_rank = (size_t)l->kv_rank * e, o = (size_t)value_width(c, s) * e;
    const mt_array arrays[ARRAYS] = {
        [PROJ] = { "latents", (size_t)proj_width(c, s) * e, MT_KEEP_MIXER, MT_EXTENT_MICRO, false, 0, 0 },
        [CQ] = { "normed q", q_rank, MT_KEEP_NORMS, MT_EXTENT_MICRO, false, 0, 0 },
        [CQ_RSTD] = { "rstd q", expands_q(c) ? sizeof(float) : 0, MT_KEEP_NORMS, MT_EXTENT_MICRO, false, 0, 0 },
        [CKV] = { "normed kv", kv_rank, MT_KEEP_NORMS, MT_EXTENT_MICRO, false, 0, 0 },
        [CKV_RSTD] = { "rstd kv", sizeof(float), MT_KEEP_NORMS, MT_EXTENT_MICRO, false, 0, 0 },
        [Q] = { "q", expands_q(c) ? q : 0, MT_KEEP_ALL, MT_EXTENT_MICRO, false, 0, 0 },
        [KV] = { "kv", (size_t)kv_width(c, s) * e, MT_KEEP_ALL, MT_EXTENT_MICRO, false, 0, 0 },
        [K] = { "k", q, MT_KEEPS, MT_EXTENT_MICRO, false, 0, 0 },
        [ATTN] = { "attn", o, MT_KEEP_MIXER, MT_EXTENT_MICRO, false, 0, 0 },
        [LSE] = { "lse", (size_t)s->H * sizeof(float), MT_KEEP_MIXER, MT_EXTENT_MICRO, false, 0, 0 },
        [GRAD] = { "dlatents", (size_t)grad_width(c, s) * e, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [DATTN] = { "dattn", o, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [DC] = { "dnormed", q_rank > kv_rank ? q_rank : kv_rank, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
    };
    for (int i = 0; i < ARRAYS; i++) out[i] = arrays[i];
    return ARRAYS;
}

/* Without its rows and documents. */
static mt_attention attention_shape(const mt_config *c, const mt_layer_spec *s)
{
    return (mt_attention){ .H = s->H,
                           .K = s->H,
                           .Dh = s->Dh,
                           .Dv = c->latent.dv,
                           .ldq = expands_q(c) ? q_width(s) : proj_width(c, s),
                           .ldk = q_width(s),
                           .ldv = kv_width(c, s),
                           .ldo = value_width(c, s),
                           .ld_d = grad_width(c, s),
                           .scale = (float)c->attention_scale,
                           .window = s->window };
}

/* MT_KEEPS: no level keeps K.  That backward makes it again is in the last item. */
static int latent_work(const mt_config *c, const mt_layer_spec *s, mt_work_item *out)
{
    const mt_latent_shape *l = &c->latent;
    const double D = (double)c->D, q = (double)q_width(s), kv = (double)kv_width(c, s), o = (double)value_width(c, s),
                 latents = (double)(l->q_rank + l->kv_rank), proj = (double)proj_width(c, s);
    int n = 0;
    out[n++] = (mt_work_item){
        .name = "latents", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEP_MIXER, .n = proj, .k = D
    };
    out[n++] =
        (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEP_NORMS, .n = MT_NORM_NUMBERS * latents };
    if (expands_q(c))
        out[n++] = (mt_work_item){
            .name = "q", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = q, .k = (double)l->q_rank
        };
    out[n++] = (mt_work_item){
        .name = "kv", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = kv, .k = (double)l->kv_rank
    };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEPS, .n = 4 * q };
    out[n++] = (mt_work_item){ .name = "attention",
                               .kind = MT_WORK_ATTENTION,
                               .when = MT_IN_FORWARD,
                               .keep = MT_KEEP_MIXER,
                               .n = q,
                               .k = o,
                               .attention = attention_shape(c, s) };
    out[n++] = (mt_work_item){ .name = "o", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = D, .k = o };
    out[n++] =
        (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_BACKWARD, .n = 8 * q + 2 * o + 2 * MT_NORM_NUMBERS * latents };
    return n;
}

static size_t latent_scratch(const mt_config *c, const mt_layer_spec *s, const mt_scratch_shape *shape)
{
    float *some = (float *)1; /* present; never read */
    const mt_latent_shape *l = &c->latent;
    const mt_dtype t = shape->t;
    const int64_t rows = shape->rows;
    mt_attention att = attention_shape(c, s);
    att.t = t;
    att.N = rows;
    att.n_docs = shape->docs;
    att.longest = shape->longest;
    att.use = *shape->attention;
    const size_t needs[] = {
        mt_norm_scratch(&(mt_norm){ .t = t, .N = rows, .D = l->q_rank, .dw = some }),
        mt_norm_scratch(&(mt_norm){ .t = t, .N = rows, .D = l->kv_rank, .dw = some }),
        mt_attention_scratch(&att),
    };
    size_t most = 0;
    for (size_t i = 0; i < MT_COUNT(needs); i++)
        if (needs[i] > most) most = needs[i];
    return most;
}

/* -- generation: a row of the cache is [ CKV | the rope part, rotated ] ------------------------------ */

static int64_t cached_width(const mt_config *c) { return c->latent.kv_rank + c->latent.dr; }

static mt_cache_bytes latent_cache_bytes(const mt_config *c, const mt_layer_spec *s, mt_dtype t)
{
    (void)s;
    return (mt_cache_bytes){ .row = (size_t)cached_width(c) * mt_dtype_bytes(t) };
}

/* What is only worked on while sequences are continued: new rows of the cache, and queries and outputs of all heads as wide as the
 * latent.  In the scratch of ops that need none. */
typedef struct absorbed {
    size_t rows, q, o, bytes;
} absorbed;

static absorbed absorbed_at(const mt_config *c, const mt_layer_spec *s, mt_dtype t, int64_t n)
{
    const size_t row = (size_t)n * mt_dtype_bytes(t);
    absorbed a = { 0 };
    a.q = mt_round_up(row * (size_t)cached_width(c), MT_ARRAY_ALIGN);
    a.o = a.q + mt_round_up(row * (size_t)(s->H * cached_width(c)), MT_ARRAY_ALIGN);
    a.bytes = a.o + row * (size_t)(s->H * c->latent.kv_rank);
    return a;
}

static size_t latent_cache_scratch(const mt_config *c, const mt_layer_spec *s, mt_dtype t, int64_t rows, int64_t docs,
                                   int64_t deepest)
{
    (void)docs;
    (void)deepest;
    return absorbed_at(c, s, t, rows).bytes;
}

/* -- arguments ------------------------------------------------------------------------------------- */

/* Columns of one of the part's arrays from `column` on. */
static void *columns(const mt_pass *p, int array, int64_t column) { return mt_pass_rows(p, mt_pass_array(p, array), 1, column); }

/* One of the two latents: where it is in PROJ, its norm, and the product that expands it. */
typedef struct latent {
    int64_t column, rank;
    int normed, rstd; /* arrays */
    mt_role norm;
    int expand, to;   /* that product, and the array it makes */
    int64_t d_column; /* of that array's gradient */
} latent;

static latent q_latent(const mt_pass *p)
{
    return (latent){ .column = 0,
                     .rank = p->c->latent.q_rank,
                     .normed = CQ,
                     .rstd = CQ_RSTD,
                     .norm = MT_W_Q_A_NORM,
                     .expand = W_Q,
                     .to = Q,
                     .d_column = dq_column(p->c, p->s) };
}

static latent kv_latent(const mt_pass *p)
{
    return (latent){ .column = kv_a_column(p->c, p->s),
                     .rank = p->c->latent.kv_rank,
                     .normed = CKV,
                     .rstd = CKV_RSTD,
                     .norm = MT_W_KV_A_NORM,
                     .expand = W_KV,
                     .to = KV,
                     .d_column = dkv_column(p->c, p->s) };
}

static mt_norm norm_args(const mt_pass *p, const latent *l)
{
    return (mt_norm){ .t = p->r->t,
                      .N = p->mb->n,
                      .D = l->rank,
                      .ldx = proj_width(p->c, p->s),
                      .ld_dx = grad_width(p->c, p->s),
                      .eps = LATENT_EPS,
                      .y = mt_pass_array(p, l->normed),
                      .rstd = mt_pass_array(p, l->rstd),
                      .x = columns(p, PROJ, l->column),
                      .w = mt_pass_weight(p, l->norm),
                      .scratch = p->r->scratch };
}

static void *queries(const mt_pass *p) { return mt_pass_array(p, expands_q(p->c) ? Q : PROJ); }

static mt_latent_qk qk_args(const mt_pass *p)
{
    const mt_config *c = p->c;
    const mt_layer_spec *s = p->s;
    const int64_t at = p->mb->rope_row * (c->rope.dr / 2);
    return (mt_latent_qk){ .t = p->r->t,
                           .style = s->rope == MT_LAYER_NOPE ? MT_ROPE_NONE : c->rope.style,
                           .N = p->mb->n,
                           .H = s->H,
                           .dn = c->latent.dn,
                           .dr = c->latent.dr,
                           .ldq = expands_q(c) ? q_width(s) : proj_width(c, s),
                           .ldk = q_width(s),
                           .ld_nope = kv_width(c, s),
                           .ld_rope = proj_width(c, s),
                           .pos = p->mb->pos,
                           .cos = p->r->cos[0] + at,
                           .sin = p->r->sin[0] + at,
                           .nope = mt_pass_array(p, KV),
                           .rope = columns(p, PROJ, rope_column(c, s)),
                           .k = mt_pass_array(p, K),
                           .ld_d = grad_width(c, s) };
}

static mt_attention attention_args(const mt_pass *p)
{
    mt_attention a = mt_pass_attention(p, attention_shape(p->c, p->s));
    a.q = queries(p);
    a.k = mt_pass_array(p, K);
    a.v = columns(p, KV, nope_width(p->c, p->s));
    a.o = mt_pass_array(p, ATTN);
    a.lse = mt_pass_array(p, LSE);
    return a;
}

/* -- forward and back ------------------------------------------------------------------------------ */

/* Norm and expand a latent, except for kept parts. */
static mt_rc expand(const mt_pass *p, const latent *l, bool normed, bool expanded, mt_err *err)
{
    mt_norm norm = norm_args(p, l);
    if (!normed) MT_TRY(p->r->ops->norm_fwd(p->r->stream, &norm, err));
    if (expanded) return MT_OK;
    return mt_product_forward(p, l->expand, &(mt_product_io){ .n = p->mb->n, .x = norm.y, .y = mt_pass_array(p, l->to) }, err);
}

/* From PROJ to the expanded queries, which are there already if `done`. */
static mt_rc expand_queries(const mt_pass *p, bool normed, bool done, mt_err *err)
{
    if (!expands_q(p->c)) return MT_OK;
    const latent q = q_latent(p);
    return expand(p, &q, normed, done, err);
}

/* From PROJ to the queries, keys and values of all heads; again: less what backward finds. */
static mt_rc expand_all(const mt_pass *p, bool again, mt_err *err)
{
    const bool has_q = again && (!expands_q(p->c) || mt_pass_kept(p, Q)), has_kv = again && mt_pass_kept(p, KV);
    const latent kv = kv_latent(p);
    MT_TRY(expand_queries(p, again && mt_pass_kept(p, CQ), has_q, err));
    MT_TRY(expand(p, &kv, again && mt_pass_kept(p, CKV), has_kv, err));
    mt_latent_qk qk = qk_args(p);
    if (!has_q) qk.q = queries(p); /* kept queries are rotated already */
    return p->r->ops->latent_qk_fwd(p->r->stream, &qk, err);
}

/* -- continuing sequences --------------------------------------------------------------------------
 *
 * Keys and values of the cache are never expanded.  With k_b and v_b of a head h,
 *     q_h . (c k_b') + q_rope . k_rope = (q_h k_b) . c + q_rope . k_rope     and     (sum of P c) v_b' = sum of P (c v_b'),
 * so all heads attend to one key head, the cached rows themselves, whose first kv_rank numbers are the values. */

/* The queries, as wide as a cached row; and the new rows. */
static mt_rc absorb_queries(const mt_pass *p, const absorbed *at, char *scratch, mt_err *err)
{
    const mt_latent_shape *l = &p->c->latent;
    const int64_t width = cached_width(p->c);
    mt_latent_qk rotate = qk_args(p), rows = rotate;
    rotate.q = queries(p);
    rotate.q_to = mt_pass_rows(p, scratch + at->q, 1, l->kv_rank);
    rotate.ld_q_to = p->s->H * width;
    rotate.q_apart = width;
    rotate.k = NULL;
    MT_TRY(p->r->ops->latent_qk_fwd(p->r->stream, &rotate, err));
    rows.H = 1;
    rows.dn = rows.ld_nope = l->kv_rank;
    rows.ldk = width;
    rows.nope = mt_pass_array(p, CKV);
    rows.k = scratch + at->rows;
    MT_TRY(p->r->ops->latent_qk_fwd(p->r->stream, &rows, err));
    for (int64_t h = 0; h < p->s->H; h++) {
        mt_product_io k = { .n = p->mb->n, .ldx = p->s->H * width, .ldy = rotate.ldq }; /* q k_b goes the way of a gradient */
        k.dy = mt_pass_rows(p, queries(p), h, p->s->Dh);
        k.dx = mt_pass_rows(p, scratch + at->q, h, width);
        k.first_column = h * l->dn;
        k.n_columns = l->dn;
        MT_TRY(mt_product_backward(p, W_KV, &k, err));
    }
    return MT_OK;
}

static mt_rc attend_to_latents(const mt_pass *p, const absorbed *at, char *scratch, mt_err *err)
{
    const mt_micro *mb = p->mb;
    const int64_t width = cached_width(p->c), rank = p->c->latent.kv_rank;
    mt_cache_attention a = { .t = p->r->t, .N = mb->n, .H = p->s->H, .K = 1, .Dh = width, .Dv = rank };
    a.ldq = a.H * width;
    a.ldk = width;
    a.ldo = a.H * rank;
    a.n_docs = mb->n_docs;
    a.longest = mb->longest;
    a.deepest = mb->deepest;
    a.doc_start = mb->doc_start;
    a.pos = mb->pos;
    a.cache_row = mb->cache_row;
    a.scale = (float)p->c->attention_scale;
    a.window = p->s->window;
    a.q = scratch + at->q;
    a.k = scratch + at->rows;
    a.o = scratch + at->o;
    a.cache_k = p->a->cache;
    return p->r->ops->cache_attention(p->r->stream, &a, err);
}

static mt_rc expand_outputs(const mt_pass *p, const absorbed *at, char *scratch, mt_err *err)
{
    const mt_latent_shape *l = &p->c->latent;
    for (int64_t h = 0; h < p->s->H; h++) {
        mt_product_io v = { .n = p->mb->n, .ldx = p->s->H * l->kv_rank, .ldy = value_width(p->c, p->s) };
        v.x = mt_pass_rows(p, scratch + at->o, h, l->kv_rank);
        v.y = mt_pass_rows(p, mt_pass_array(p, ATTN), h, l->dv);
        v.first_column = nope_width(p->c, p->s) + h * l->dv;
        v.n_columns = l->dv;
        MT_TRY(mt_product_forward(p, W_KV, &v, err));
    }
    return MT_OK;
}

static mt_rc continue_sequences(const mt_pass *p, mt_err *err)
{
    const absorbed at = absorbed_at(p->c, p->s, p->r->t, p->mb->n);
    const latent kv = kv_latent(p);
    char *scratch = p->r->scratch;
    MT_TRY(expand_queries(p, false, false, err));
    MT_TRY(expand(p, &kv, false, true, err));
    MT_TRY(absorb_queries(p, &at, scratch, err));
    MT_TRY(attend_to_latents(p, &at, scratch, err));
    return expand_outputs(p, &at, scratch, err);
}

static mt_rc latent_forward(const mt_pass *p, const void *h, mt_err *err)
{
    MT_TRY(mt_product_forward(p, W_PROJ, &(mt_product_io){ .n = p->mb->n, .x = h, .y = mt_pass_array(p, PROJ) }, err));
    if (p->mb->cache_row) return continue_sequences(p, err);
    MT_TRY(expand_all(p, false, err));
    mt_attention a = attention_args(p);
    return p->r->ops->attention_fwd(p->r->stream, &a, err);
}

static mt_rc latent_restore(const mt_pass *p, mt_err *err) { return expand_all(p, true, err); }

static mt_rc latent_output(const mt_pass *p, void *y, const void *add, mt_err *err)
{
    return mt_product_forward(p, W_O, &(mt_product_io){ .n = p->mb->n, .x = mt_pass_array(p, ATTN), .y = y, .add = add }, err);
}

static mt_rc latent_backward_output(const mt_pass *p, const void *dy, mt_err *err)
{
    const mt_product_io o = { .n = p->mb->n, .x = mt_pass_array(p, ATTN), .dy = dy, .dx = mt_pass_array(p, DATTN) };
    return mt_product_backward(p, W_O, &o, err);
}

/* From the gradient of what a latent is expanded to, to its own. */
static mt_rc expand_backward(const mt_pass *p, latent l, mt_err *err)
{
    mt_norm norm = norm_args(p, &l);
    mt_product_io expand = { .n = p->mb->n, .x = norm.y, .ldy = grad_width(p->c, p->s) };
    expand.dy = columns(p, GRAD, l.d_column);
    expand.dx = mt_pass_array(p, DC);
    MT_TRY(mt_product_backward(p, l.expand, &expand, err));
    norm.dy = expand.dx;
    norm.dx = columns(p, GRAD, l.column);
    norm.dw = mt_pass_grad(p, l.norm);
    return p->r->ops->norm_bwd(p->r->stream, &norm, err);
}

static mt_rc latent_backward(const mt_pass *p, const void *h, void *dh, bool dh_add, mt_err *err)
{
    const mt_config *c = p->c;
    mt_attention a = attention_args(p);
    a.d_o = mt_pass_array(p, DATTN);
    a.dq = columns(p, GRAD, dq_column(c, p->s));
    a.dk = columns(p, GRAD, dk_column(c, p->s));
    a.dv = columns(p, GRAD, dkv_column(c, p->s) + nope_width(c, p->s));
    MT_TRY(p->r->ops->attention_bwd(p->r->stream, &a, err));
    mt_latent_qk qk = qk_args(p);
    qk.dq = a.dq;
    qk.dk = a.dk;
    qk.d_nope = columns(p, GRAD, dkv_column(c, p->s));
    qk.d_rope = columns(p, GRAD, rope_column(c, p->s));
    MT_TRY(p->r->ops->latent_qk_bwd(p->r->stream, &qk, err));
    MT_TRY(expand_backward(p, kv_latent(p), err));
    if (expands_q(c)) MT_TRY(expand_backward(p, q_latent(p), err));
    mt_product_io proj = { .n = p->mb->n, .x = h, .dx = dh, .dx_add = dh_add, .ldy = grad_width(c, p->s) };
    proj.dy = mt_pass_array(p, GRAD);
    return mt_product_backward(p, W_PROJ, &proj, err);
}

const mt_mixer mt_mixer_latent = {
    .part = { .name = "latent attention",
              .has_role = latent_has_role,
              .products = latent_products,
              .arrays = latent_arrays,
              .work = latent_work,
              .forward_kernels = 9,
              .backward_kernels = 24,
              .scratch = latent_scratch },
    .cache_bytes = latent_cache_bytes,
    .cache_scratch = latent_cache_scratch,
    .forward = latent_forward,
    .output = latent_output,
    .restore = latent_restore,
    .backward_output = latent_backward_output,
    .backward = latent_backward,
};
