/* block.c - the decoder layer. */
#include "model/block.h"

#include "base/mem.h"

/* -- finding things in a unit ---------------------------------------------------------------------- */

static const mt_layout *layout_of(const mt_run *r, int layer) { return r->model->units[mt_layer_unit(layer)].layout; }

static const void *weight(const mt_run *r, const mt_layout *l, const void *w, mt_role role)
{
    return l->at[role] < 0 ? NULL : (const char *)w + (size_t)l->at[role] * mt_dtype_bytes(r->t);
}

static float *grad(const mt_layout *l, float *g, mt_role role) { return g && l->at[role] >= 0 && l->trains[role] ? g + l->at[role] : NULL; }

static void *rows_at(const mt_run *r, const void *p, int64_t row, int64_t width)
{
    return (char *)(uintptr_t)p + (size_t)(row * width) * mt_dtype_bytes(r->t);
}

/* -- products over tensors that lie side by side --------------------------------------------------- */

/* One product's share of a fused row: q, k, v or gate, up, joined where their weights touch and agree. */
typedef struct part {
    mt_role w, b;
    int64_t first, n; /* columns of the joint output */
} part;

/* qkv and gate-up as lists of (weight role, bias role, width). */
typedef struct fused {
    part parts[3];
    int n;
    int64_t width;
} fused;

static void add_part(fused *f, const mt_layout *l, mt_role w, mt_role b, int64_t n, int64_t k)
{
    part *last = f->n ? &f->parts[f->n - 1] : NULL;
    bool touches = last && l->at[last->w] + last->n * k == l->at[w] && l->trains[last->w] == l->trains[w] &&
                   (l->at[b] < 0 || (l->at[last->b] + last->n == l->at[b] && l->trains[last->b] == l->trains[b]));
    if (touches)
        last->n += n;
    else
        f->parts[f->n++] = (part){ w, b, f->width, n };
    f->width += n;
}

static fused qkv_parts(const mt_run *r, const mt_layout *l)
{
    const mt_config *c = r->model->config;
    fused f = { 0 };
    add_part(&f, l, MT_W_Q, MT_B_Q, c->H * c->Dh, c->D);
    add_part(&f, l, MT_W_K, MT_B_K, c->K * c->Dh, c->D);
    add_part(&f, l, MT_W_V, MT_B_V, c->K * c->Dh, c->D);
    return f;
}

static fused gate_up_parts(const mt_run *r, const mt_layout *l)
{
    const mt_config *c = r->model->config;
    fused f = { 0 };
    if (!c->plain_mlp) add_part(&f, l, MT_W_GATE, MT_B_GATE, c->F, c->D);
    add_part(&f, l, MT_W_UP, MT_B_UP, c->F, c->D);
    return f;
}

static mt_rc fused_forward(const mt_run *r, const mt_layout *l, const fused *f, const void *w, int64_t n, const void *x, void *y, mt_err *err)
{
    for (int i = 0; i < f->n; i++) {
        const part *p = &f->parts[i];
        MT_TRY(r->ops->linear_fwd(r->stream,
                                  &(mt_linear){ .t = r->t, .M = n, .N = p->n, .K = r->model->config->D, .ldy = f->width, .x = x,
                                                .w = weight(r, l, w, p->w), .b = weight(r, l, w, p->b), .y = rows_at(r, y, 1, p->first),
                                                .scratch = r->work.scratch },
                                  err));
    }
    return MT_OK;
}

/* dx = or += the products' shares. */
static mt_rc fused_backward(const mt_run *r, const mt_layout *l, const fused *f, const void *w, float *g, int64_t n, const void *x,
                            const void *dy, void *dx, bool dx_add, mt_err *err)
{
    for (int i = 0; i < f->n; i++) {
        const part *p = &f->parts[i];
        MT_TRY(r->ops->linear_bwd(r->stream,
                                  &(mt_linear){ .t = r->t, .M = n, .N = p->n, .K = r->model->config->D, .ldy = f->width, .x = x,
                                                .w = weight(r, l, w, p->w), .dy = rows_at(r, dy, 1, p->first), .dx = dx, .dx_add = dx_add || i > 0,
                                                .dw = grad(l, g, p->w), .db = grad(l, g, p->b), .scratch = r->work.scratch },
                                  err));
    }
    return MT_OK;
}

/* -- pieces of the layer, forward ------------------------------------------------------------------ */

typedef enum norm_id { NORM1, POST1, NORM2, POST2 } norm_id;

static const struct {
    mt_role w, b;
} norm_roles[] = { { MT_W_NORM1, MT_B_NORM1 }, { MT_W_POST1, MT_ROLES }, { MT_W_NORM2, MT_B_NORM2 }, { MT_W_POST2, MT_ROLES } };

static mt_rmsnorm norm_args(const mt_run *r, const mt_layout *l, const void *w, norm_id id, int64_t n, const void *x)
{
    const mt_config *c = r->model->config;
    mt_role b = norm_roles[id].b;
    return (mt_rmsnorm){ .t = r->t, .N = n, .D = c->D, .eps = (float)c->eps, .one_plus = c->norm_one_plus, .centered = c->layer_norm, .x = x,
                         .w = weight(r, l, w, norm_roles[id].w), .b = b == MT_ROLES ? NULL : weight(r, l, w, b),
                         .rstd = id == POST1 || id == POST2 ? r->work.rstd_post : r->work.rstd, .scratch = r->work.scratch };
}

/* The norm the mlp's input goes through: parallel blocks may share attention's. */
static norm_id mlp_norm(const mt_run *r) { return r->model->config->form == MT_BLOCK_ONE_NORM ? NORM1 : NORM2; }
/* What the mlp reads before its norm. */
static const void *mlp_input(const mt_run *r, const mt_acts *a) { return r->model->config->form == MT_BLOCK_SERIAL ? a->xmid : a->x; }

/* Where a norm before a branch lies. */
static mt_normed normed(const mt_run *r, const mt_acts *a, norm_id id)
{
    mt_normed kept = id == NORM1 ? a->norm1 : a->norm2;
    return kept.h ? kept : (mt_normed){ r->work.h, r->work.rstd };
}

/* *h: x normed; x itself where the family has no norm before. */
static mt_rc norm(const mt_run *r, const mt_layout *l, const void *w, norm_id id, int64_t n, const mt_acts *acts, const void *x, const void **h, mt_err *err)
{
    *h = x;
    if (!mt_config_pre_norms(r->model->config)) return MT_OK;
    mt_rmsnorm a = norm_args(r, l, w, id, n, x);
    mt_normed to = normed(r, acts, id);
    *h = a.y = to.h;
    a.rstd = to.rstd;
    return r->ops->rmsnorm_fwd(r->stream, &a, err);
}

/* The same in backward, which finds kept ones. */
static mt_rc norm_again(const mt_run *r, const mt_layout *l, const void *w, norm_id id, int64_t n, const mt_acts *acts, const void *x, const void **h, mt_err *err)
{
    *h = id == NORM1 ? acts->norm1.h : acts->norm2.h;
    return *h ? MT_OK : norm(r, l, w, id, n, acts, x, h, err);
}

/* out = x + norm of a branch's product. */
static mt_rc post_norm(const mt_run *r, const mt_layout *l, const void *w, norm_id id, int64_t n, const void *product, const void *x, void *out,
                       mt_err *err)
{
    mt_rmsnorm a = norm_args(r, l, w, id, n, product);
    a.y = out;
    a.add = x;
    return r->ops->rmsnorm_fwd(r->stream, &a, err);
}

static mt_rope rope_args(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = layout_of(r, layer);
    int64_t ld = (c->H + 2 * c->K) * c->Dh;
    int table = c->layer_rope[layer] == MT_LAYER_ROPE_LOCAL;
    int64_t at = mb->rope_row * (c->rope.dr / 2);
    return (mt_rope){ .t = r->t, .style = c->layer_rope[layer] == MT_LAYER_NOPE ? MT_ROPE_NONE : c->rope.style, .N = mb->n, .H = c->H, .K = c->K,
                      .Dh = c->Dh, .dr = c->rope.dr, .ld_qkv = ld, .ld_qk = a->qk == a->qkv ? ld : (c->H + c->K) * c->Dh, .ld_dqkv = ld,
                      .pos = mb->pos, .cos = r->cos[table] + at, .sin = r->sin[table] + at, .qkv = a->qkv, .qk = a->qk,
                      .wq = weight(r, l, w, MT_W_Q_NORM), .wk = weight(r, l, w, MT_W_K_NORM), .eps = (float)c->eps,
                      .one_plus = c->norm_one_plus, .whole = c->qk_norm_whole, .centered = c->qk_layer_norm,
                      .own_weights = c->qk_norm_own, .scratch = r->work.scratch };
}

static mt_attention attention_args(const mt_run *r, int layer, const mt_micro *mb, const mt_acts *a)
{
    const mt_config *c = r->model->config;
    int64_t ld = (c->H + 2 * c->K) * c->Dh, ld_qk = a->qk == a->qkv ? ld : (c->H + c->K) * c->Dh;
    return (mt_attention){ .t = r->t, .use = r->attention, .N = mb->n, .H = c->H, .K = c->K, .Dh = c->Dh, .ldq = ld_qk, .ldk = ld_qk, .ldv = ld,
                           .ldo = c->H * c->Dh, .n_docs = mb->n_docs, .longest = mb->longest, .doc_start = mb->doc_start, .host_start = mb->host_start,
                           .scale = (float)c->attention_scale, .window = c->window[layer],
                           .softcap = (float)c->attention_softcap, .alibi = (float)c->alibi, .q = a->qk,
                           .k = rows_at(r, a->qk, 1, c->H * c->Dh), .v = rows_at(r, a->qkv, 1, (c->H + c->K) * c->Dh), .o = a->attn,
                           .lse = a->lse, .scratch = r->work.scratch };
}

/* The same rows as continuations of what is cached. */
static mt_cache_attention cached_args(const mt_run *r, int layer, const mt_micro *mb, const mt_acts *a)
{
    const mt_attention t = attention_args(r, layer, mb, a);
    return (mt_cache_attention){ .t = t.t, .N = t.N, .H = t.H, .K = t.K, .Dh = t.Dh, .ldq = t.ldq, .ldk = t.ldk, .ldv = t.ldv, .ldo = t.ldo,
                                 .n_docs = t.n_docs, .longest = mb->longest, .deepest = mb->deepest, .doc_start = t.doc_start, .pos = mb->pos, .cache_row = mb->cache_row,
                                 .scale = t.scale, .window = t.window, .softcap = t.softcap, .alibi = t.alibi, .q = t.q, .k = t.k, .v = t.v, .o = t.o, .cache_k = a->cache_k,
                                 .cache_v = a->cache_v, .scratch = t.scratch };
}

static mt_rc positions(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, mt_err *err)
{
    mt_rope rope = rope_args(r, layer, w, mb, a);
    return r->ops->rope_fwd(r->stream, &rope, err);
}

static mt_rc attend(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, mt_err *err)
{
    const mt_layout *l = layout_of(r, layer);
    const void *h;
    fused qkv = qkv_parts(r, l);
    MT_TRY(norm(r, l, w, NORM1, mb->n, a, a->x, &h, err));
    MT_TRY(fused_forward(r, l, &qkv, w, mb->n, h, a->qkv, err));
    MT_TRY(positions(r, layer, w, mb, a, err));
    if (mb->cache_row) {
        mt_cache_attention cached = cached_args(r, layer, mb, a);
        return r->ops->cache_attention(r->stream, &cached, err);
    }
    mt_attention att = attention_args(r, layer, mb, a);
    return r->ops->attention_fwd(r->stream, &att, err);
}

static mt_rc mix(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, mt_err *err)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = layout_of(r, layer);
    bool post = mt_config_post_norms(c);
    MT_TRY(r->ops->linear_fwd(r->stream,
                              &(mt_linear){ .t = r->t, .M = mb->n, .N = c->D, .K = c->H * c->Dh, .alpha = (float)c->residual_scale, .x = a->attn,
                                            .w = weight(r, l, w, MT_W_O), .b = weight(r, l, w, MT_B_O), .y = post ? a->mixed : a->xmid,
                                            .add = post ? NULL : a->x, .scratch = r->work.scratch },
                              err));
    return post ? post_norm(r, l, w, POST1, mb->n, a->mixed, a->x, a->xmid, err) : MT_OK;
}

/* Rows [first, first + n) of a tensor that holds either all rows or one chunk at a time. */
static void *chunk_of(const mt_run *r, const mt_acts *a, int64_t first)
{
    return a->gu_whole ? rows_at(r, a->gu, first, mt_config_gu(r->model->config)) : a->gu;
}

/* Likewise the activation, which is chunks of workspace unless all of it is kept. */
static void *act_of(const mt_run *r, const mt_acts *a, int64_t first) { return a->act ? rows_at(r, a->act, first, r->model->config->F) : r->work.act; }

/* h: what gate and up read, all rows. */
static mt_rc gate_up(const mt_run *r, int layer, const void *w, const mt_acts *a, const void *h, int64_t first, int64_t n, mt_err *err)
{
    const mt_layout *l = layout_of(r, layer);
    fused gu = gate_up_parts(r, l);
    return fused_forward(r, l, &gu, w, n, rows_at(r, h, first, r->model->config->D), chunk_of(r, a, first), err);
}

static mt_glu glu_args(const mt_run *r, const mt_acts *a, int64_t first, int64_t n)
{
    const mt_config *c = r->model->config;
    return (mt_glu){ .t = r->t, .act = c->act, .plain = c->plain_mlp, .N = n, .F = c->F, .gu = chunk_of(r, a, first), .y = act_of(r, a, first) };
}

static mt_linear down_args(const mt_run *r, int layer, const void *w, const mt_acts *a, int64_t first, int64_t n)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = layout_of(r, layer);
    return (mt_linear){ .t = r->t, .M = n, .N = c->D, .K = c->F, .alpha = (float)c->residual_scale, .w = weight(r, l, w, MT_W_DOWN), .x = act_of(r, a, first),
                        .scratch = r->work.scratch };
}

/* Rows of the mlp's result from gate and up: y = product (+ add). */
static mt_rc down(const mt_run *r, int layer, const void *w, const mt_acts *a, int64_t first, int64_t n, void *y, const void *add, mt_err *err)
{
    int64_t D = r->model->config->D;
    mt_glu glu = glu_args(r, a, first, n);
    MT_TRY(r->ops->glu_fwd(r->stream, &glu, err));
    mt_linear d = down_args(r, layer, w, a, first, n);
    d.b = weight(r, layout_of(r, layer), w, MT_B_DOWN);
    d.y = rows_at(r, y, first, D);
    d.add = add ? rows_at(r, add, first, D) : NULL;
    return r->ops->linear_fwd(r->stream, &d, err);
}

mt_rc mt_layer_forward(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, void *x_out, mt_err *err)
{
    MT_TRY(attend(r, layer, w, mb, a, err));
    MT_TRY(mix(r, layer, w, mb, a, err));
    return mt_layer_finish(r, layer, w, mb, a, x_out, err);
}

mt_rc mt_layer_finish(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, void *x_out, mt_err *err)
{
    const mt_layout *l = layout_of(r, layer);
    bool post = mt_config_post_norms(r->model->config);
    const void *h;
    MT_TRY(norm(r, l, w, mlp_norm(r), mb->n, a, mlp_input(r, a), &h, err));
    for (int64_t first = 0; first < mb->n; first += r->mlp_rows) {
        int64_t n = mt_min_i64(r->mlp_rows, mb->n - first);
        MT_TRY(gate_up(r, layer, w, a, h, first, n, err));
        MT_TRY(down(r, layer, w, a, first, n, post ? a->mlped : x_out, post ? NULL : a->xmid, err));
    }
    return post ? post_norm(r, l, w, POST2, mb->n, a->mlped, a->xmid, x_out, err) : MT_OK;
}

/* -- backward -------------------------------------------------------------------------------------- */

mt_rc mt_layer_redo(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, mt_keep kept, mt_err *err)
{
    if (kept <= MT_KEEP_INPUT)
        MT_TRY(attend(r, layer, w, mb, a, err));
    else if (a->qk != a->qkv)
        MT_TRY(positions(r, layer, w, mb, a, err)); /* what was kept is from before the head norm */
    return kept < MT_KEEP_ALL ? mix(r, layer, w, mb, a, err) : MT_OK;
}

/* dx += the gradient (work.dh) that came through a norm of x before a branch; where it is not kept, work.rstd is that norm's. */
static mt_rc norm_backward(const mt_run *r, const mt_layout *l, const void *w, float *g, norm_id id, int64_t n, const mt_acts *acts, const void *x, void *dx, mt_err *err)
{
    if (!mt_config_pre_norms(r->model->config)) return MT_OK; /* it was added where it belongs */
    mt_rmsnorm a = norm_args(r, l, w, id, n, x);
    a.rstd = normed(r, acts, id).rstd;
    a.dy = r->work.dh;
    a.dx = dx;
    a.dx_add = true;
    a.dw = grad(l, g, norm_roles[id].w);
    a.db = norm_roles[id].b == MT_ROLES ? NULL : grad(l, g, norm_roles[id].b);
    return r->ops->rmsnorm_bwd(r->stream, &a, err);
}

/* The gradient of a branch's product, in `out`, from that of what its post norm was added to; `out` also takes the norm itself, which
 * only its 1/rms is wanted of. */
static mt_rc post_backward(const mt_run *r, const mt_layout *l, const void *w, float *g, norm_id id, int64_t n, const void *product, const void *dx,
                           void *out, mt_err *err)
{
    mt_rmsnorm a = norm_args(r, l, w, id, n, product);
    a.y = out;
    MT_TRY(r->ops->rmsnorm_fwd(r->stream, &a, err));
    a.dy = dx;
    a.dx = out;
    a.dw = grad(l, g, norm_roles[id].w);
    return r->ops->rmsnorm_bwd(r->stream, &a, err);
}

/* Some rows of the mlp: from dx, the gradient of the output, to the gradient of what gate and up read, which goes to work.dh, or is
 * added to dx where no norm lies between.  act, unless it is kept, takes the place of its own gradient. */
static mt_rc mlp_rows_backward(const mt_run *r, int layer, const void *w, float *g, const mt_acts *a, const void *h, int64_t first, int64_t n,
                               void *dx, mt_err *err)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = layout_of(r, layer);
    const mt_work *k = &r->work;
    const void *dout = rows_at(r, dx, first, c->D);
    void *dh = rows_at(r, k->dh, first, c->D);
    bool post = mt_config_post_norms(c), pre = mt_config_pre_norms(c);
    if (!a->gu_whole) MT_TRY(gate_up(r, layer, w, a, h, first, n, err));
    if (post) {
        if (!a->gu_whole) MT_TRY(down(r, layer, w, a, first, n, a->mlped, NULL, err));
        MT_TRY(post_backward(r, l, w, g, POST2, n, rows_at(r, a->mlped, first, c->D), dout, dh, err));
        dout = dh;
    }
    mt_linear through = down_args(r, layer, w, a, first, n), weights = through;
    through.dy = weights.dy = dout;
    through.dx = k->act;
    MT_TRY(r->ops->linear_bwd(r->stream, &through, err));
    mt_glu glu = glu_args(r, a, first, n);
    glu.dy = k->act;
    if (a->act) glu.y = NULL;
    glu.dgu = chunk_of(r, a, first);
    MT_TRY(r->ops->glu_bwd(r->stream, &glu, err));
    weights.dw = grad(l, g, MT_W_DOWN);
    weights.db = grad(l, g, MT_B_DOWN);
    if (weights.dw || weights.db) MT_TRY(r->ops->linear_bwd(r->stream, &weights, err));
    fused gate = gate_up_parts(r, l);
    return fused_backward(r, l, &gate, w, g, n, rows_at(r, h, first, c->D), glu.gu, pre ? dh : rows_at(r, dx, first, c->D), !pre, err);
}

static mt_rc mlp_backward(const mt_run *r, int layer, const void *w, float *g, const mt_micro *mb, const mt_acts *a, void *dx, mt_err *err)
{
    const mt_layout *l = layout_of(r, layer);
    const void *h;
    MT_TRY(norm_again(r, l, w, mlp_norm(r), mb->n, a, mlp_input(r, a), &h, err));
    for (int64_t first = 0; first < mb->n; first += r->mlp_rows)
        MT_TRY(mlp_rows_backward(r, layer, w, g, a, h, first, mt_min_i64(r->mlp_rows, mb->n - first), dx, err));
    if (r->model->config->form == MT_BLOCK_ONE_NORM) return MT_OK; /* attention adds to work.dh and goes through the norm for both */
    return norm_backward(r, l, w, g, NORM2, mb->n, a, mlp_input(r, a), dx, err);
}

/* Through the output projection: dx, the gradient of xmid, to that of attn. */
static mt_rc mix_backward(const mt_run *r, int layer, const void *w, float *g, const mt_micro *mb, const mt_acts *a, const void *dx, mt_err *err)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = layout_of(r, layer);
    const mt_work *k = &r->work;
    if (mt_config_post_norms(c)) {
        MT_TRY(post_backward(r, l, w, g, POST1, mb->n, a->mixed, dx, k->dh, err));
        dx = k->dh;
    }
    return r->ops->linear_bwd(r->stream,
                              &(mt_linear){ .t = r->t, .M = mb->n, .N = c->D, .K = c->H * c->Dh, .alpha = (float)c->residual_scale, .x = a->attn,
                                            .w = weight(r, l, w, MT_W_O), .dy = dx, .dx = k->dattn, .dw = grad(l, g, MT_W_O),
                                            .db = grad(l, g, MT_B_O), .scratch = k->scratch },
                              err);
}

/* From attn's gradient to that of qkv. */
static mt_rc attention_backward(const mt_run *r, int layer, const void *w, float *g, const mt_micro *mb, const mt_acts *a, mt_err *err)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = layout_of(r, layer);
    const mt_work *k = &r->work;
    mt_attention att = attention_args(r, layer, mb, a);
    att.d_o = k->dattn;
    att.dq = k->dqkv;
    att.dk = rows_at(r, k->dqkv, 1, c->H * c->Dh);
    att.dv = rows_at(r, k->dqkv, 1, (c->H + c->K) * c->Dh);
    att.ld_d = (c->H + 2 * c->K) * c->Dh;
    MT_TRY(r->ops->attention_bwd(r->stream, &att, err));
    mt_rope rope = rope_args(r, layer, w, mb, a);
    rope.dqkv = k->dqkv;
    rope.dwq = grad(l, g, MT_W_Q_NORM);
    rope.dwk = grad(l, g, MT_W_K_NORM);
    return r->ops->rope_bwd(r->stream, &rope, err);
}

mt_rc mt_layer_backward(const mt_run *r, int layer, const void *w, float *g, const mt_micro *mb, const mt_acts *a, void *dx, mt_err *err)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = layout_of(r, layer);
    const void *h;
    bool serial = c->form == MT_BLOCK_SERIAL, pre = mt_config_pre_norms(c);
    fused qkv = qkv_parts(r, l);
    /* In parallel blocks dx is both branches' gradient, so the second reads it before the first has added to it. */
    if (!serial) MT_TRY(mix_backward(r, layer, w, g, mb, a, dx, err));
    MT_TRY(mlp_backward(r, layer, w, g, mb, a, dx, err));
    if (serial) MT_TRY(mix_backward(r, layer, w, g, mb, a, dx, err));
    MT_TRY(attention_backward(r, layer, w, g, mb, a, err));
    MT_TRY(norm_again(r, l, w, NORM1, mb->n, a, a->x, &h, err));
    MT_TRY(fused_backward(r, l, &qkv, w, g, mb->n, h, r->work.dqkv, pre ? r->work.dh : dx, !pre || c->form == MT_BLOCK_ONE_NORM, err));
    return norm_backward(r, l, w, g, NORM1, mb->n, a, a->x, dx, err);
}
