/* mixer_attention.c - softmax attention with grouped heads: q, k, v in one product, head norms and rotation, attention over each
 * document, output projection.  If the output is gated, the same product makes the gate, after v. */
#include "base/mem.h"
#include "model/part.h"

/* QKV is rotated in place unless there is a head norm or a bound (clip_qkv), whose backward needs what came in: then QK holds the
 * result.  QK has its workspace either way, because sizes decide how many rows a fresh run takes at a time, and so its bits. */
enum { QKV, QK, ATTN, LSE, DQKV, DATTN, GATED, ARRAYS };
enum { W_QKV, W_O, PRODUCTS };

/* Widths of a row. */
static int64_t q_width(const mt_layer_spec *s) { return s->H * s->Dh; }
static int64_t kv_width(const mt_layer_spec *s) { return s->K * s->Dh; }
static int64_t qk_width(const mt_layer_spec *s) { return q_width(s) + kv_width(s); }
static int64_t gate_column(const mt_layer_spec *s) { return q_width(s) + 2 * kv_width(s); }
static int64_t gate_width(const mt_config *c, const mt_layer_spec *s) { return c->o_gate ? q_width(s) : 0; }
static int64_t qkv_width(const mt_config *c, const mt_layer_spec *s) { return gate_column(s) + gate_width(c, s); }

static bool has_qk_norm(const mt_config *c, const mt_layer_spec *s) { return c->qk_norm && !s->no_qk_norm; }

/* -- its weights, arrays, work and scratch --------------------------------------------------------- */

static bool attention_has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    switch (role) {
    case MT_W_Q:
    case MT_W_K:
    case MT_W_V:
    case MT_W_O: return true;
    case MT_B_Q:
    case MT_B_K:
    case MT_B_V: return c->qkv_bias;
    case MT_B_O: return c->o_bias;
    case MT_W_SINKS: return c->sinks;
    case MT_W_O_GATE: return c->o_gate;
    case MT_B_O_GATE: return c->o_gate && c->qkv_bias;
    case MT_W_Q_NORM:
    case MT_W_K_NORM: return has_qk_norm(c, s) && !c->qk_norm_bare;
    default: return false;
    }
}

static int attention_products(const mt_config *c, const mt_layer_spec *s, mt_product *out)
{
    const int64_t q = q_width(s), kv = kv_width(s);
    out[W_QKV] = (mt_product){ .k = c->D,
                               .of = { { MT_W_Q, MT_B_Q, q },
                                       { MT_W_K, MT_B_K, kv },
                                       { MT_W_V, MT_B_V, kv },
                                       { MT_W_O_GATE, MT_B_O_GATE, gate_width(c, s) } } };
    out[W_O] = (mt_product){ .k = q, .alpha = (float)c->residual_scale, .of = { { MT_W_O, MT_B_O, c->D } } };
    return PRODUCTS;
}

static int attention_arrays(const mt_config *c, const mt_layer_spec *s, mt_dtype t, mt_array *out)
{
    const size_t e = mt_dtype_bytes(t), qkv = (size_t)qkv_width(c, s) * e, o = (size_t)q_width(s) * e;
    const mt_array arrays[ARRAYS] = {
        [QKV] = { "qkv", qkv, MT_KEEP_MIXER, MT_EXTENT_MICRO, false, 0, 0 },
        [QK] = { "qk", (size_t)qk_width(s) * e, MT_KEEPS, MT_EXTENT_MICRO, false, 0, 0 },
        [ATTN] = { "attn", o, MT_KEEP_MIXER, MT_EXTENT_MICRO, false, 0, 0 },
        [LSE] = { "lse", (size_t)s->H * sizeof(float), MT_KEEP_MIXER, MT_EXTENT_MICRO, false, 0, 0 },
        [DQKV] = { "dqkv", qkv, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [DATTN] = { "dattn", o, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [GATED] = { "gated", (size_t)gate_width(c, s) * e, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
    };
    for (int i = 0; i < ARRAYS; i++) out[i] = arrays[i];
    return ARRAYS;
}

/* True if QK holds queries and keys. */
static bool qk_apart(const mt_config *c, const mt_layer_spec *s) { return has_qk_norm(c, s) || c->clip_qkv != 0; }

/* Without its rows and documents. */
static mt_attention attention_shape(const mt_config *c, const mt_layer_spec *s)
{
    const int64_t ld = qkv_width(c, s), ld_qk = qk_apart(c, s) ? qk_width(s) : ld;
    return (mt_attention){ .H = s->H,
                           .K = s->K,
                           .Dh = s->Dh,
                           .ldq = ld_qk,
                           .ldk = ld_qk,
                           .ldv = ld,
                           .ldo = q_width(s),
                           .ld_d = ld,
                           .scale = (float)c->attention_scale,
                           .window = s->window,
                           .chunk = s->chunk,
                           .softcap = (float)c->attention_softcap,
                           .alibi = (float)c->alibi };
}

static int attention_work(const mt_config *c, const mt_layer_spec *s, mt_work_item *out)
{
    const double D = (double)c->D, o = (double)q_width(s), qk = (double)qk_width(s), qkv = (double)qkv_width(c, s),
                 head_norms = has_qk_norm(c, s) ? 3 * qk : 0, sinks = c->sinks ? 2 * o : 0,
                 clipped = c->clip_qkv != 0 ? 2 * qkv : 0;
    int n = 0;
    out[n++] =
        (mt_work_item){ .name = "qkv", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEP_MIXER, .n = qkv, .k = D };
    out[n++] =
        (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEP_MIXER, .n = 2 * qk + head_norms + clipped };
    out[n++] = (mt_work_item){ .name = "attention",
                               .kind = MT_WORK_ATTENTION,
                               .when = MT_IN_FORWARD,
                               .keep = MT_KEEP_MIXER,
                               .n = o,
                               .k = o,
                               .attention = attention_shape(c, s) };
    if (c->sinks) out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEP_MIXER, .n = sinks };
    if (c->o_gate) out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = 3 * o };
    out[n++] = (mt_work_item){ .name = "o", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = D, .k = o };
    /* Rotations, biases, the sums of o * do, and the gate. */
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED,
                               .when = MT_IN_BACKWARD,
                               .n = 2 * qk + qkv + 2 * o + 4 * head_norms + clipped + (c->o_gate ? 5 * o : 0) };
    return n;
}

static size_t attention_scratch(const mt_config *c, const mt_layer_spec *s, const mt_scratch_shape *shape)
{
    float *some = (float *)1; /* present; never read */
    mt_attention att = attention_shape(c, s);
    att.t = shape->t;
    att.N = shape->rows;
    att.n_docs = shape->docs;
    att.longest = shape->longest;
    att.sinks = c->sinks ? some : NULL;
    att.use = *shape->attention;
    att.ldq = att.ldk = att.ldv = att.ldo = att.ld_d = 0; /* for any strides */
    const size_t needs[] = {
        mt_qk_prepare_scratch(&(mt_qk_prepare){ .t = shape->t,
                                                .N = shape->rows,
                                                .H = s->H,
                                                .K = s->K,
                                                .Dh = s->Dh,
                                                .dr = c->rope.dr,
                                                .whole = c->qk_norm_whole,
                                                .own_weights = c->qk_norm_own,
                                                .dwq = some,
                                                .dwk = some }),
        mt_attention_scratch(&att),
    };
    size_t most = 0;
    for (size_t i = 0; i < MT_COUNT(needs); i++)
        if (needs[i] > most) most = needs[i];
    return most;
}

static mt_cache_bytes attention_cache_bytes(const mt_config *c, const mt_layer_spec *s, mt_dtype t)
{
    (void)c;
    return (mt_cache_bytes){ .row = 2 * (size_t)kv_width(s) * mt_dtype_bytes(t) };
}

static size_t cache_scratch(const mt_config *c, const mt_layer_spec *s, mt_dtype t, int64_t rows, int64_t docs, int64_t deepest)
{
    (void)c;
    return mt_cache_attention_scratch(&(mt_cache_attention){
        .t = t, .N = rows, .H = s->H, .K = s->K, .Dh = s->Dh, .n_docs = docs, .longest = rows, .deepest = deepest });
}

/* -- arguments ------------------------------------------------------------------------------------- */

/* Queries and keys as attention reads them. */
static void *qk_of(const mt_pass *p) { return mt_pass_array(p, qk_apart(p->c, p->s) ? QK : QKV); }

static mt_qk_prepare qk_prepare_args(const mt_pass *p)
{
    const mt_config *c = p->c;
    const mt_layer_spec *s = p->s;
    const int64_t ld = qkv_width(c, s), at = p->mb->rope_row * (c->rope.dr / 2);
    const int table = s->rope == MT_LAYER_ROPE_LOCAL;
    const bool normed = has_qk_norm(c, s);
    return (mt_qk_prepare){ .t = p->r->t,
                            .style = s->rope == MT_LAYER_NOPE ? MT_ROPE_NONE : c->rope.style,
                            .N = p->mb->n,
                            .H = s->H,
                            .K = s->K,
                            .Dh = s->Dh,
                            .dr = c->rope.dr,
                            .ld_qkv = ld,
                            .ld_dqkv = ld,
                            .ld_qk = qk_apart(c, s) ? qk_width(s) : ld,
                            .pos = p->mb->pos,
                            .cos = p->r->cos[table] + at,
                            .sin = p->r->sin[table] + at,
                            .qkv = mt_pass_array(p, QKV),
                            .qk = qk_of(p),
                            .wq = mt_pass_weight(p, MT_W_Q_NORM),
                            .wk = mt_pass_weight(p, MT_W_K_NORM),
                            .eps = (float)c->eps,
                            .one_plus = c->norm_one_plus,
                            .whole = c->qk_norm_whole,
                            .centered = c->qk_layer_norm,
                            .own_weights = c->qk_norm_own,
                            .norm_last = normed && c->qk_norm_last,
                            .bare = normed && c->qk_norm_bare,
                            .q_beta = s->no_q_scale ? 0.0f : (float)c->rope.q_beta,
                            .q_period = c->rope.q_period,
                            .q_shift = c->rope.q_shift,
                            .scratch = p->r->scratch };
}

static mt_bound bound_args(const mt_pass *p)
{
    const int64_t width = qkv_width(p->c, p->s);
    return (mt_bound){ .t = p->r->t,
                       .N = p->mb->n,
                       .D = width,
                       .ldx = width,
                       .ld_dx = width,
                       .limit = (float)p->c->clip_qkv,
                       .x = mt_pass_array(p, QKV) };
}

static mt_attention attention_args(const mt_pass *p)
{
    void *qk = qk_of(p);
    mt_attention a = mt_pass_attention(p, attention_shape(p->c, p->s));
    a.sinks = mt_pass_exact(p, MT_W_SINKS);
    a.q = qk;
    a.k = mt_pass_rows(p, qk, 1, q_width(p->s));
    a.v = mt_pass_rows(p, mt_pass_array(p, QKV), 1, qk_width(p->s));
    a.o = mt_pass_array(p, ATTN);
    a.lse = mt_pass_array(p, LSE);
    return a;
}

/* The same rows as continuations of the cache: all keys, then all values. */
static mt_cache_attention cached_args(const mt_pass *p)
{
    const mt_attention t = attention_args(p);
    void *values = mt_pass_rows(p, p->a->cache, p->a->cache_rows, kv_width(p->s));
    return (mt_cache_attention){ .t = t.t,
                                 .N = t.N,
                                 .H = t.H,
                                 .K = t.K,
                                 .Dh = t.Dh,
                                 .ldq = t.ldq,
                                 .ldk = t.ldk,
                                 .ldv = t.ldv,
                                 .ldo = t.ldo,
                                 .n_docs = t.n_docs,
                                 .longest = t.longest,
                                 .deepest = p->mb->deepest,
                                 .doc_start = t.doc_start,
                                 .pos = p->mb->pos,
                                 .cache_row = p->mb->cache_row,
                                 .scale = t.scale,
                                 .window = t.window,
                                 .softcap = t.softcap,
                                 .alibi = t.alibi,
                                 .chunk = t.chunk,
                                 .sinks = t.sinks,
                                 .q = t.q,
                                 .k = t.k,
                                 .v = t.v,
                                 .o = t.o,
                                 .cache_k = p->a->cache,
                                 .cache_v = values,
                                 .scratch = t.scratch };
}

static mt_gate gate_args(const mt_pass *p)
{
    const int64_t o = q_width(p->s), ld = qkv_width(p->c, p->s);
    return (mt_gate){ .t = p->r->t,
                      .N = p->mb->n,
                      .D = o,
                      .ldx = o,
                      .ld_gate = ld,
                      .ldy = o,
                      .ld_dx = o,
                      .ld_dgate = ld,
                      .x = mt_pass_array(p, ATTN),
                      .gate = mt_pass_rows(p, mt_pass_array(p, QKV), 1, gate_column(p->s)),
                      .y = mt_pass_array(p, GATED) };
}

/* -- forward and back ------------------------------------------------------------------------------ */

static mt_rc turn(const mt_pass *p, mt_err *err)
{
    mt_qk_prepare rope = qk_prepare_args(p);
    return p->r->ops->qk_prepare_fwd(p->r->stream, &rope, err);
}

static mt_rc attention_forward(const mt_pass *p, const void *h, mt_err *err)
{
    MT_TRY(mt_product_forward(p, W_QKV, &(mt_product_io){ .n = p->mb->n, .x = h, .y = mt_pass_array(p, QKV) }, err));
    if (p->c->clip_qkv != 0) {
        mt_bound b = bound_args(p);
        MT_TRY(p->r->ops->bound_fwd(p->r->stream, &b, err));
    }
    MT_TRY(turn(p, err));
    if (p->mb->cache_row) {
        mt_cache_attention cached = cached_args(p);
        return p->r->ops->cache_attention(p->r->stream, &cached, err);
    }
    mt_attention a = attention_args(p);
    return p->r->ops->attention_fwd(p->r->stream, &a, err);
}

/* Kept queries and keys are from before head norm and rotation. */
static mt_rc attention_restore(const mt_pass *p, mt_err *err) { return qk_apart(p->c, p->s) ? turn(p, err) : MT_OK; }

static mt_rc attention_output(const mt_pass *p, void *y, const void *add, mt_err *err)
{
    const mt_gate gate = gate_args(p);
    if (p->c->o_gate) MT_TRY(p->r->ops->gate_fwd(p->r->stream, &gate, err));
    const void *x = mt_pass_array(p, p->c->o_gate ? GATED : ATTN);
    return mt_product_forward(p, W_O, &(mt_product_io){ .n = p->mb->n, .x = x, .y = y, .add = add }, err);
}

/* The gate writes again what the output projection read, so the projection's own gradient waits for it. */
static mt_rc gated_backward_output(const mt_pass *p, const void *dy, mt_err *err)
{
    const int64_t n = p->mb->n;
    void *d = mt_pass_array(p, DATTN);
    MT_TRY(mt_product_backward(p, W_O, &(mt_product_io){ .n = n, .dy = dy, .dx = d }, err));
    mt_gate gate = gate_args(p);
    gate.dy = gate.dx = d;
    gate.dgate = mt_pass_rows(p, mt_pass_array(p, DQKV), 1, gate_column(p->s));
    MT_TRY(p->r->ops->gate_bwd(p->r->stream, &gate, err));
    return mt_product_backward(p, W_O, &(mt_product_io){ .n = n, .x = gate.y, .dy = dy }, err);
}

static mt_rc attention_backward_output(const mt_pass *p, const void *dy, mt_err *err)
{
    if (p->c->o_gate) return gated_backward_output(p, dy, err);
    const mt_product_io o = { .n = p->mb->n, .x = mt_pass_array(p, ATTN), .dy = dy, .dx = mt_pass_array(p, DATTN) };
    return mt_product_backward(p, W_O, &o, err);
}

static mt_rc attention_backward(const mt_pass *p, const void *h, void *dh, bool dh_add, mt_err *err)
{
    void *dqkv = mt_pass_array(p, DQKV);
    mt_attention a = attention_args(p);
    a.d_o = mt_pass_array(p, DATTN);
    a.dq = dqkv;
    a.dk = mt_pass_rows(p, dqkv, 1, q_width(p->s));
    a.dv = mt_pass_rows(p, dqkv, 1, qk_width(p->s));
    a.dsinks = mt_pass_grad(p, MT_W_SINKS);
    MT_TRY(p->r->ops->attention_bwd(p->r->stream, &a, err));
    mt_qk_prepare rope = qk_prepare_args(p);
    rope.dqkv = dqkv;
    rope.dwq = mt_pass_grad(p, MT_W_Q_NORM);
    rope.dwk = mt_pass_grad(p, MT_W_K_NORM);
    MT_TRY(p->r->ops->qk_prepare_bwd(p->r->stream, &rope, err));
    if (p->c->clip_qkv != 0) {
        mt_bound b = bound_args(p);
        b.dx = dqkv;
        MT_TRY(p->r->ops->bound_bwd(p->r->stream, &b, err));
    }
    const mt_product_io qkv = { .n = p->mb->n, .x = h, .dy = dqkv, .dx = dh, .dx_add = dh_add };
    return mt_product_backward(p, W_QKV, &qkv, err);
}

const mt_mixer mt_mixer_attention = {
    .part = { .name = "attention",
              .has_role = attention_has_role,
              .products = attention_products,
              .writes = true,
              .arrays = attention_arrays,
              .work = attention_work,
              .forward_kernels = 6,
              .backward_kernels = 14,
              .scratch = attention_scratch },
    .cache_bytes = attention_cache_bytes,
    .cache_scratch = cache_scratch,
    .forward = attention_forward,
    .output = attention_output,
    .restore = attention_restore,
    .backward_output = attention_backward_output,
    .backward = attention_backward,
};
