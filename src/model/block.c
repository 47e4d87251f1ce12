/* block.c - the decoder layer. */
#include "model/block.h"

#include "base/mem.h"

/* One micro-batch in one layer: what every step below works on. */
typedef struct pass {
    const mt_run *r;
    const mt_config *c;
    const mt_layout *l; /* where the layer's tensors lie in w and g */
    int layer;
    const void *w;
    float *g; /* NULL: forward, or no gradient is wanted */
    const mt_micro *mb;
    const mt_acts *a;
} pass;

/* Rows [first, first + n) of the micro-batch: the mlp takes some at a time. */
typedef struct span {
    int64_t first, n;
} span;

static pass pass_of(const mt_run *r, int layer, const void *w, float *g, const mt_micro *mb, const mt_acts *a)
{
    return (pass){ .r = r, .c = r->model->config, .l = r->model->units[mt_layer_unit(layer)].layout, .layer = layer, .w = w,
                   .g = g, .mb = mb, .a = a };
}

/* -- finding things in a unit ---------------------------------------------------------------------- */

static const void *weight(const pass *p, mt_role role)
{
    return p->l->at[role] < 0 ? NULL : (const char *)p->w + (size_t)p->l->at[role] * mt_dtype_bytes(p->r->t);
}

static float *grad(const pass *p, mt_role role)
{
    return p->g && p->l->at[role] >= 0 && p->l->trains[role] ? p->g + p->l->at[role] : NULL;
}

static void *rows_at(const pass *p, const void *tensor, int64_t row, int64_t width)
{
    return (char *)(uintptr_t)tensor + (size_t)(row * width) * mt_dtype_bytes(p->r->t);
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

static fused qkv_parts(const pass *p)
{
    const mt_config *c = p->c;
    fused f = { 0 };
    add_part(&f, p->l, MT_W_Q, MT_B_Q, c->H * c->Dh, c->D);
    add_part(&f, p->l, MT_W_K, MT_B_K, c->K * c->Dh, c->D);
    add_part(&f, p->l, MT_W_V, MT_B_V, c->K * c->Dh, c->D);
    return f;
}

static fused gate_up_parts(const pass *p)
{
    const mt_config *c = p->c;
    fused f = { 0 };
    if (!c->plain_mlp) add_part(&f, p->l, MT_W_GATE, MT_B_GATE, c->F, c->D);
    add_part(&f, p->l, MT_W_UP, MT_B_UP, c->F, c->D);
    return f;
}

static mt_linear part_args(const pass *p, const fused *f, const part *one, int64_t n, const void *x)
{
    return (mt_linear){ .t = p->r->t, .M = n, .N = one->n, .K = p->c->D, .ldy = f->width, .x = x, .w = weight(p, one->w),
                        .scratch = p->r->work.scratch };
}

/* y = n rows of x times all of the parts' weights. */
static mt_rc fused_forward(const pass *p, fused f, int64_t n, const void *x, void *y, mt_err *err)
{
    for (int i = 0; i < f.n; i++) {
        mt_linear a = part_args(p, &f, &f.parts[i], n, x);
        a.b = weight(p, f.parts[i].b);
        a.y = rows_at(p, y, 1, f.parts[i].first);
        MT_TRY(p->r->ops->linear_fwd(p->r->stream, &a, err));
    }
    return MT_OK;
}

/* dx = or += the products' shares. */
static mt_rc fused_backward(const pass *p, fused f, int64_t n, const void *x, const void *dy, void *dx, bool dx_add, mt_err *err)
{
    for (int i = 0; i < f.n; i++) {
        mt_linear a = part_args(p, &f, &f.parts[i], n, x);
        a.dy = rows_at(p, dy, 1, f.parts[i].first);
        a.dx = dx;
        a.dx_add = dx_add || i > 0;
        a.dw = grad(p, f.parts[i].w);
        a.db = grad(p, f.parts[i].b);
        MT_TRY(p->r->ops->linear_bwd(p->r->stream, &a, err));
    }
    return MT_OK;
}

/* -- norms ----------------------------------------------------------------------------------------- */

typedef enum norm_id { NORM1, POST1, NORM2, POST2 } norm_id;

static const struct {
    mt_role w, b;
} norm_roles[] = { { MT_W_NORM1, MT_B_NORM1 }, { MT_W_POST1, MT_ROLES }, { MT_W_NORM2, MT_B_NORM2 }, { MT_W_POST2, MT_ROLES } };

static mt_rmsnorm norm_args(const pass *p, norm_id id, int64_t n, const void *x)
{
    const mt_config *c = p->c;
    const mt_work *k = &p->r->work;
    mt_role b = norm_roles[id].b;
    return (mt_rmsnorm){ .t = p->r->t, .N = n, .D = c->D, .eps = (float)c->eps, .one_plus = c->norm_one_plus,
                         .centered = c->layer_norm, .x = x, .w = weight(p, norm_roles[id].w),
                         .b = b == MT_ROLES ? NULL : weight(p, b), .rstd = id == POST1 || id == POST2 ? k->rstd_post : k->rstd,
                         .scratch = k->scratch };
}

/* The norm the mlp's input goes through: parallel blocks may share attention's. */
static norm_id mlp_norm(const pass *p) { return p->c->form == MT_BLOCK_ONE_NORM ? NORM1 : NORM2; }

/* What a norm before a branch reads. */
static const void *norm_input(const pass *p, norm_id id)
{
    return id == NORM2 && p->c->form == MT_BLOCK_SERIAL ? p->a->xmid : p->a->x;
}

static mt_normed kept_norm(const pass *p, norm_id id) { return id == NORM1 ? p->a->norm1 : p->a->norm2; }

/* Where a norm before a branch lies. */
static mt_normed normed(const pass *p, norm_id id)
{
    mt_normed kept = kept_norm(p, id);
    return kept.h ? kept : (mt_normed){ p->r->work.h, p->r->work.rstd };
}

/* *h: a branch's input, normed; as it is where the family has no norm before. */
static mt_rc norm(const pass *p, norm_id id, const void **h, mt_err *err)
{
    *h = norm_input(p, id);
    if (!mt_config_pre_norms(p->c)) return MT_OK;
    mt_rmsnorm a = norm_args(p, id, p->mb->n, *h);
    mt_normed to = normed(p, id);
    *h = a.y = to.h;
    a.rstd = to.rstd;
    return p->r->ops->rmsnorm_fwd(p->r->stream, &a, err);
}

/* The same in backward, which finds kept ones. */
static mt_rc norm_again(const pass *p, norm_id id, const void **h, mt_err *err)
{
    *h = kept_norm(p, id).h;
    return *h ? MT_OK : norm(p, id, h, err);
}

/* out = x + norm of a branch's product. */
static mt_rc post_norm(const pass *p, norm_id id, const void *product, const void *x, void *out, mt_err *err)
{
    mt_rmsnorm a = norm_args(p, id, p->mb->n, product);
    a.y = out;
    a.add = x;
    return p->r->ops->rmsnorm_fwd(p->r->stream, &a, err);
}

/* dx += the gradient (work.dh) that came through a norm before a branch; where it is not kept, work.rstd is that norm's. */
static mt_rc norm_backward(const pass *p, norm_id id, void *dx, mt_err *err)
{
    if (!mt_config_pre_norms(p->c)) return MT_OK; /* it was added where it belongs */
    mt_rmsnorm a = norm_args(p, id, p->mb->n, norm_input(p, id));
    a.rstd = normed(p, id).rstd;
    a.dy = p->r->work.dh;
    a.dx = dx;
    a.dx_add = true;
    a.dw = grad(p, norm_roles[id].w);
    a.db = norm_roles[id].b == MT_ROLES ? NULL : grad(p, norm_roles[id].b);
    return p->r->ops->rmsnorm_bwd(p->r->stream, &a, err);
}

/* The gradient of n rows of a branch's product, in `out`, from that of what its post norm was added to; `out` also takes the norm
 * itself, which only its 1/rms is wanted of. */
static mt_rc post_backward(const pass *p, norm_id id, int64_t n, const void *product, const void *dx, void *out, mt_err *err)
{
    mt_rmsnorm a = norm_args(p, id, n, product);
    a.y = out;
    MT_TRY(p->r->ops->rmsnorm_fwd(p->r->stream, &a, err));
    a.dy = dx;
    a.dx = out;
    a.dw = grad(p, norm_roles[id].w);
    return p->r->ops->rmsnorm_bwd(p->r->stream, &a, err);
}

/* -- attention ------------------------------------------------------------------------------------- */

static mt_rope rope_args(const pass *p)
{
    const mt_config *c = p->c;
    const mt_run *r = p->r;
    int64_t ld = (c->H + 2 * c->K) * c->Dh;
    int table = c->layer_rope[p->layer] == MT_LAYER_ROPE_LOCAL;
    int64_t at = p->mb->rope_row * (c->rope.dr / 2);
    return (mt_rope){ .t = r->t, .style = c->layer_rope[p->layer] == MT_LAYER_NOPE ? MT_ROPE_NONE : c->rope.style, .N = p->mb->n,
                      .H = c->H, .K = c->K, .Dh = c->Dh, .dr = c->rope.dr, .ld_qkv = ld, .ld_dqkv = ld,
                      .ld_qk = p->a->qk == p->a->qkv ? ld : (c->H + c->K) * c->Dh, .pos = p->mb->pos, .cos = r->cos[table] + at,
                      .sin = r->sin[table] + at, .qkv = p->a->qkv, .qk = p->a->qk, .wq = weight(p, MT_W_Q_NORM),
                      .wk = weight(p, MT_W_K_NORM), .eps = (float)c->eps, .one_plus = c->norm_one_plus, .whole = c->qk_norm_whole,
                      .centered = c->qk_layer_norm, .own_weights = c->qk_norm_own, .scratch = r->work.scratch };
}

static mt_attention attention_args(const pass *p)
{
    const mt_config *c = p->c;
    const mt_micro *mb = p->mb;
    const mt_acts *a = p->a;
    int64_t ld = (c->H + 2 * c->K) * c->Dh, ld_qk = a->qk == a->qkv ? ld : (c->H + c->K) * c->Dh;
    return (mt_attention){ .t = p->r->t, .use = p->r->attention, .N = mb->n, .H = c->H, .K = c->K, .Dh = c->Dh, .ldq = ld_qk,
                           .ldk = ld_qk, .ldv = ld, .ldo = c->H * c->Dh, .n_docs = mb->n_docs, .longest = mb->longest,
                           .doc_start = mb->doc_start, .host_start = mb->host_start, .scale = (float)c->attention_scale,
                           .window = c->window[p->layer], .softcap = (float)c->attention_softcap, .alibi = (float)c->alibi,
                           .q = a->qk, .k = rows_at(p, a->qk, 1, c->H * c->Dh), .v = rows_at(p, a->qkv, 1, (c->H + c->K) * c->Dh),
                           .o = a->attn, .lse = a->lse, .scratch = p->r->work.scratch };
}

/* The same rows as continuations of what is cached. */
static mt_cache_attention cached_args(const pass *p)
{
    const mt_attention t = attention_args(p);
    return (mt_cache_attention){ .t = t.t, .N = t.N, .H = t.H, .K = t.K, .Dh = t.Dh, .ldq = t.ldq, .ldk = t.ldk, .ldv = t.ldv,
                                 .ldo = t.ldo, .n_docs = t.n_docs, .longest = t.longest, .deepest = p->mb->deepest,
                                 .doc_start = t.doc_start, .pos = p->mb->pos, .cache_row = p->mb->cache_row, .scale = t.scale,
                                 .window = t.window, .softcap = t.softcap, .alibi = t.alibi, .q = t.q, .k = t.k, .v = t.v,
                                 .o = t.o, .cache_k = p->a->cache_k, .cache_v = p->a->cache_v, .scratch = t.scratch };
}

static mt_rc positions(const pass *p, mt_err *err)
{
    mt_rope rope = rope_args(p);
    return p->r->ops->rope_fwd(p->r->stream, &rope, err);
}

static mt_rc attend(const pass *p, mt_err *err)
{
    const void *h;
    MT_TRY(norm(p, NORM1, &h, err));
    MT_TRY(fused_forward(p, qkv_parts(p), p->mb->n, h, p->a->qkv, err));
    MT_TRY(positions(p, err));
    if (p->mb->cache_row) {
        mt_cache_attention cached = cached_args(p);
        return p->r->ops->cache_attention(p->r->stream, &cached, err);
    }
    mt_attention att = attention_args(p);
    return p->r->ops->attention_fwd(p->r->stream, &att, err);
}

/* From attn's gradient (work.dattn) to that of qkv. */
static mt_rc attention_backward(const pass *p, mt_err *err)
{
    const mt_config *c = p->c;
    const mt_work *k = &p->r->work;
    mt_attention att = attention_args(p);
    att.d_o = k->dattn;
    att.dq = k->dqkv;
    att.dk = rows_at(p, k->dqkv, 1, c->H * c->Dh);
    att.dv = rows_at(p, k->dqkv, 1, (c->H + c->K) * c->Dh);
    att.ld_d = (c->H + 2 * c->K) * c->Dh;
    MT_TRY(p->r->ops->attention_bwd(p->r->stream, &att, err));
    mt_rope rope = rope_args(p);
    rope.dqkv = k->dqkv;
    rope.dwq = grad(p, MT_W_Q_NORM);
    rope.dwk = grad(p, MT_W_K_NORM);
    return p->r->ops->rope_bwd(p->r->stream, &rope, err);
}

/* -- the output projection ------------------------------------------------------------------------- */

static mt_linear mix_args(const pass *p)
{
    const mt_config *c = p->c;
    return (mt_linear){ .t = p->r->t, .M = p->mb->n, .N = c->D, .K = c->H * c->Dh, .alpha = (float)c->residual_scale,
                        .x = p->a->attn, .w = weight(p, MT_W_O), .scratch = p->r->work.scratch };
}

static mt_rc mix(const pass *p, mt_err *err)
{
    const mt_acts *a = p->a;
    bool post = mt_config_post_norms(p->c);
    mt_linear o = mix_args(p);
    o.b = weight(p, MT_B_O);
    o.y = post ? a->mixed : a->xmid;
    o.add = post ? NULL : a->x;
    MT_TRY(p->r->ops->linear_fwd(p->r->stream, &o, err));
    return post ? post_norm(p, POST1, a->mixed, a->x, a->xmid, err) : MT_OK;
}

/* dx, the gradient of xmid, to that of attn (work.dattn). */
static mt_rc mix_backward(const pass *p, const void *dx, mt_err *err)
{
    const mt_work *k = &p->r->work;
    if (mt_config_post_norms(p->c)) {
        MT_TRY(post_backward(p, POST1, p->mb->n, p->a->mixed, dx, k->dh, err));
        dx = k->dh;
    }
    mt_linear o = mix_args(p);
    o.dy = dx;
    o.dx = k->dattn;
    o.dw = grad(p, MT_W_O);
    o.db = grad(p, MT_B_O);
    return p->r->ops->linear_bwd(p->r->stream, &o, err);
}

/* -- the mlp --------------------------------------------------------------------------------------- */

/* The rows at hand of gate and up, which are there all at once or a chunk at a time. */
static void *chunk_of(const pass *p, span s)
{
    return p->a->gu_whole ? rows_at(p, p->a->gu, s.first, mt_config_gu(p->c)) : p->a->gu;
}

/* Likewise the activation, which is chunks of workspace unless all of it is kept. */
static void *act_of(const pass *p, span s) { return p->a->act ? rows_at(p, p->a->act, s.first, p->c->F) : p->r->work.act; }

/* h: what gate and up read, all rows. */
static mt_rc gate_up(const pass *p, span s, const void *h, mt_err *err)
{
    return fused_forward(p, gate_up_parts(p), s.n, rows_at(p, h, s.first, p->c->D), chunk_of(p, s), err);
}

static mt_glu glu_args(const pass *p, span s)
{
    const mt_config *c = p->c;
    return (mt_glu){ .t = p->r->t, .act = c->act, .plain = c->plain_mlp, .N = s.n, .F = c->F, .gu = chunk_of(p, s),
                     .y = act_of(p, s) };
}

static mt_linear down_args(const pass *p, span s)
{
    const mt_config *c = p->c;
    return (mt_linear){ .t = p->r->t, .M = s.n, .N = c->D, .K = c->F, .alpha = (float)c->residual_scale,
                        .w = weight(p, MT_W_DOWN), .x = act_of(p, s), .scratch = p->r->work.scratch };
}

/* Rows of the mlp's result from gate and up: y = product (+ add). */
static mt_rc down(const pass *p, span s, void *y, const void *add, mt_err *err)
{
    mt_glu glu = glu_args(p, s);
    MT_TRY(p->r->ops->glu_fwd(p->r->stream, &glu, err));
    mt_linear d = down_args(p, s);
    d.b = weight(p, MT_B_DOWN);
    d.y = rows_at(p, y, s.first, p->c->D);
    d.add = add ? rows_at(p, add, s.first, p->c->D) : NULL;
    return p->r->ops->linear_fwd(p->r->stream, &d, err);
}

static mt_rc mlp(const pass *p, void *x_out, mt_err *err)
{
    const mt_acts *a = p->a;
    bool post = mt_config_post_norms(p->c);
    const void *h;
    MT_TRY(norm(p, mlp_norm(p), &h, err));
    for (int64_t first = 0; first < p->mb->n; first += p->r->mlp_rows) {
        span s = { first, mt_min_i64(p->r->mlp_rows, p->mb->n - first) };
        MT_TRY(gate_up(p, s, h, err));
        MT_TRY(down(p, s, post ? a->mlped : x_out, post ? NULL : a->xmid, err));
    }
    return post ? post_norm(p, POST2, a->mlped, a->xmid, x_out, err) : MT_OK;
}

/* Some rows: from dx, the gradient of the output, to the gradient of what gate and up read, which goes to work.dh, or is added to
 * dx where no norm lies between.  act, unless it is kept, takes the place of its own gradient. */
static mt_rc mlp_rows_backward(const pass *p, span s, const void *h, void *dx, mt_err *err)
{
    const mt_acts *a = p->a;
    const mt_work *k = &p->r->work;
    const mt_ops *ops = p->r->ops;
    void *dx_here = rows_at(p, dx, s.first, p->c->D), *dh = rows_at(p, k->dh, s.first, p->c->D);
    const void *dout = dx_here;
    bool post = mt_config_post_norms(p->c), pre = mt_config_pre_norms(p->c);
    if (!a->gu_whole) MT_TRY(gate_up(p, s, h, err));
    if (post) {
        if (!a->gu_whole) MT_TRY(down(p, s, a->mlped, NULL, err));
        MT_TRY(post_backward(p, POST2, s.n, rows_at(p, a->mlped, s.first, p->c->D), dout, dh, err));
        dout = dh;
    }
    mt_linear through = down_args(p, s), weights = through;
    through.dy = weights.dy = dout;
    through.dx = k->act;
    MT_TRY(ops->linear_bwd(p->r->stream, &through, err));
    mt_glu glu = glu_args(p, s);
    glu.dy = k->act;
    if (a->act) glu.y = NULL;
    glu.dgu = chunk_of(p, s);
    MT_TRY(ops->glu_bwd(p->r->stream, &glu, err));
    weights.dw = grad(p, MT_W_DOWN);
    weights.db = grad(p, MT_B_DOWN);
    if (weights.dw || weights.db) MT_TRY(ops->linear_bwd(p->r->stream, &weights, err));
    return fused_backward(p, gate_up_parts(p), s.n, rows_at(p, h, s.first, p->c->D), glu.gu, pre ? dh : dx_here, !pre, err);
}

static mt_rc mlp_backward(const pass *p, void *dx, mt_err *err)
{
    const void *h;
    MT_TRY(norm_again(p, mlp_norm(p), &h, err));
    for (int64_t first = 0; first < p->mb->n; first += p->r->mlp_rows)
        MT_TRY(mlp_rows_backward(p, (span){ first, mt_min_i64(p->r->mlp_rows, p->mb->n - first) }, h, dx, err));
    if (p->c->form == MT_BLOCK_ONE_NORM) return MT_OK; /* attention adds to work.dh and goes through the norm for both */
    return norm_backward(p, NORM2, dx, err);
}

/* -- the layer ------------------------------------------------------------------------------------- */

mt_rc mt_layer_forward(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, void *x_out, mt_err *err)
{
    pass p = pass_of(r, layer, w, NULL, mb, a);
    MT_TRY(attend(&p, err));
    MT_TRY(mix(&p, err));
    return mlp(&p, x_out, err);
}

mt_rc mt_layer_finish(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, void *x_out, mt_err *err)
{
    pass p = pass_of(r, layer, w, NULL, mb, a);
    return mlp(&p, x_out, err);
}

mt_rc mt_layer_redo(const mt_run *r, int layer, const void *w, const mt_micro *mb, const mt_acts *a, mt_keep kept, mt_err *err)
{
    pass p = pass_of(r, layer, w, NULL, mb, a);
    if (kept <= MT_KEEP_INPUT)
        MT_TRY(attend(&p, err));
    else if (a->qk != a->qkv)
        MT_TRY(positions(&p, err)); /* what was kept is from before the head norm */
    return kept < MT_KEEP_ALL ? mix(&p, err) : MT_OK;
}

mt_rc mt_layer_backward(const mt_run *r, int layer, const void *w, float *g, const mt_micro *mb, const mt_acts *a, void *dx,
                        mt_err *err)
{
    pass p = pass_of(r, layer, w, g, mb, a);
    const mt_work *k = &r->work;
    const void *h;
    bool serial = p.c->form == MT_BLOCK_SERIAL, pre = mt_config_pre_norms(p.c);
    /* In parallel blocks dx is both branches' gradient, so the second reads it before the first has added to it. */
    if (!serial) MT_TRY(mix_backward(&p, dx, err));
    MT_TRY(mlp_backward(&p, dx, err));
    if (serial) MT_TRY(mix_backward(&p, dx, err));
    MT_TRY(attention_backward(&p, err));
    MT_TRY(norm_again(&p, NORM1, &h, err));
    MT_TRY(fused_backward(&p, qkv_parts(&p), mb->n, h, k->dqkv, pre ? k->dh : dx, !pre || p.c->form == MT_BLOCK_ONE_NORM, err));
    return norm_backward(&p, NORM1, dx, err);
}
