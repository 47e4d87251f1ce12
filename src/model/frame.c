/* frame.c - a decoder layer around its two parts: norms, residual, the order of the branches.
 *
 *     serial      xmid = x + mixer(norm1(x));  x' = xmid + ffn(norm2(xmid))
 *     parallel    both branches read x, each through its own norm, or both through norm1
 *     input norm  first of all x becomes norm0(x): the embedding's rows, in the first layer of some families
 *     post norms  a branch's result is normed before it is added; backward needs it from before the norm
 * Without post norms the residual is added in the branch's last product. */
#include "base/mem.h"
#include "model/part.h"

/* The frame's arrays. */
enum { X, XMID, MIXED, FED, H, RSTD, RSTD_POST, H1, RSTD1, H2, RSTD2, DH, X0, RSTD0, ARRAYS };
_Static_assert((int)X == (int)MT_ARRAY_INPUT, "the layer's input is its first array");

static bool pre_norms(const mt_layer_spec *s) { return s->norms != MT_NORMS_POST; }
static bool post_norms(const mt_layer_spec *s) { return s->norms != MT_NORMS_PRE; }
/* Its experts are separate units. */
static bool apart(const mt_layer_spec *s) { return s->ffn->experts != NULL; }
static bool own_norm2(const mt_layer_spec *s) { return pre_norms(s) && s->form != MT_BLOCK_ONE_NORM; }

/* -- its weights, arrays, work and scratch --------------------------------------------------------- */

static bool frame_has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    switch (role) {
    case MT_W_NORM0: return !c->norm_bare && s->input_norm;
    case MT_B_NORM0: return c->norm_bias && s->input_norm;
    case MT_W_NORM1: return !c->norm_bare && pre_norms(s);
    case MT_W_NORM2: return !c->norm_bare && own_norm2(s);
    case MT_B_NORM1: return c->norm_bias && pre_norms(s);
    case MT_B_NORM2: return c->norm_bias && own_norm2(s);
    case MT_W_POST1:
    case MT_W_POST2: return !c->norm_bare && post_norms(s);
    default: return false;
    }
}

static int frame_arrays(const mt_config *c, const mt_layer_spec *s, mt_dtype t, mt_array *out)
{
    const size_t row = (size_t)c->D * mt_dtype_bytes(t), one = sizeof(float);
    /* Arrays that experts need exist as long as a layer's units take turns, and xmid is never made again. */
    const mt_extent h2 = apart(s) ? MT_EXTENT_SWEEP : MT_EXTENT_MICRO;
    const mt_keep xmid = apart(s) ? MT_KEEP_INPUT : MT_KEEP_ALL;
    const int instead_h2 = apart(s) ? 0 : 1 + H, instead_rstd2 = apart(s) ? 0 : 1 + RSTD;
    const size_t pre = pre_norms(s), post = post_norms(s), second = own_norm2(s);
    const mt_array arrays[ARRAYS] = {
        [X] = { "x", row, MT_KEEP_INPUT, MT_EXTENT_MICRO, false, 0, 0 },
        [XMID] = { "xmid", row, xmid, MT_EXTENT_MICRO, false, 0, 0 },
        [MIXED] = { "mixed", post * row, MT_KEEP_ALL, MT_EXTENT_MICRO, false, 0,
                    0 }, /* the branches' results before their norms */
        [FED] = { "fed", post * row, MT_KEEP_ALL, MT_EXTENT_MICRO, false, 0, 0 },
        [H] = { "h", pre * row, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [RSTD] = { "rstd", pre * one, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [RSTD_POST] = { "rstd.post", post * one, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [H1] = { "norm1", pre * row, MT_KEEP_NORMS, MT_EXTENT_MICRO, true, 1 + H, 0 },
        [RSTD1] = { "norm1.rstd", pre * one, MT_KEEP_NORMS, MT_EXTENT_MICRO, true, 1 + RSTD, 0 },
        [H2] = { "norm2", second * row, MT_KEEP_NORMS, h2, true, instead_h2, 0 },
        [RSTD2] = { "norm2.rstd", second * one, MT_KEEP_NORMS, h2, true, instead_rstd2, 0 },
        [DH] = { "dh", row, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 },
        [X0] = { "norm0", row, MT_KEEPS, MT_EXTENT_MICRO, false, 0, 0 }, /* made again before backward */
        [RSTD0] = { "norm0.rstd", one, MT_KEEPS, MT_EXTENT_MICRO, false, 0, 0 },
    };
    const int n = s->input_norm ? ARRAYS : X0; /* a layer's list has an end (MT_MAX_ARRAYS): no place for what few have */
    for (int i = 0; i < n; i++) out[i] = arrays[i];
    return n;
}

/* Numbers read and written for each of a row's, as measured: a norm forward MT_NORM_NUMBERS, backward 6, a post
 * norm 3 and 9. */
static int frame_work(const mt_config *c, const mt_layer_spec *s, mt_work_item *out)
{
    const double D = (double)c->D, norm = MT_NORM_NUMBERS * D, post = post_norms(s) ? 3 * D : 0;
    int n = 0;
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEP_MIXER, .n = norm };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = norm + post };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEPS, .n = post };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_REDO, .keep = MT_KEEP_NORMS, .n = 2 * norm };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_BACKWARD, .n = 12 * D + 3 * post };
    if (!s->input_norm) return n;
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEPS, .n = norm };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_REDO, .keep = MT_KEEPS, .n = norm };
    out[n++] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_BACKWARD, .n = 6 * D };
    return n;
}

static size_t frame_scratch(const mt_config *c, const mt_layer_spec *s, const mt_scratch_shape *shape)
{
    float *some = (float *)1; /* present; never read */
    (void)s;
    return mt_norm_scratch(
        &(mt_norm){ .t = shape->t, .N = shape->rows, .D = c->D, .dw = some, .db = c->norm_bias ? some : NULL });
}

const mt_part mt_frame = { .name = "frame",
                           .has_role = frame_has_role,
                           .arrays = frame_arrays,
                           .work = frame_work,
                           .forward_kernels = 2,
                           .backward_kernels = 6,
                           .scratch = frame_scratch };

/* -- passes ---------------------------------------------------------------------------------------- */

static mt_pass unit_pass(const mt_run *r, int unit, const mt_weights *w, float *g, const mt_micro *mb, const mt_acts *a)
{
    const mt_model *m = r->model;
    const mt_unit *u = &m->units[unit];
    return (mt_pass){ .r = r,
                      .c = m->config,
                      .s = &m->config->layers[u->layer],
                      .l = u->layout,
                      .w = w,
                      .g = g,
                      .mb = mb,
                      .a = a,
                      .first_expert = u->first_expert,
                      .n_experts = u->n_experts };
}

/* Of the unit with a layer's norms and its mixer. */
static mt_pass pass_of(const mt_run *r, int layer, const mt_weights *w, float *g, const mt_micro *mb, const mt_acts *a)
{
    return unit_pass(r, mt_layer_first_unit(r->model, layer), w, g, mb, a);
}

/* The same for the layer's mixer, whose lists follow the frame's, and its ffn. */
static mt_pass to_mixer(const mt_pass *p, const mt_layer_kind *k)
{
    mt_pass q = *p;
    q.first = k->first_mixer;
    q.products = k->products;
    return q;
}

static mt_pass to_ffn(const mt_pass *p, const mt_layer_kind *k)
{
    mt_pass q = *p;
    q.first = k->first_ffn;
    q.products = k->products + k->first_ffn_product;
    return q;
}

/* -- norms ----------------------------------------------------------------------------------------- */

typedef enum norm_id { NORM0, NORM1, POST1, NORM2, POST2 } norm_id;

static const struct {
    mt_role w, b;
    int h, rstd; /* where a norm before a branch goes */
} norms[] = { [NORM0] = { MT_W_NORM0, MT_B_NORM0, X0, RSTD0 },
              [NORM1] = { MT_W_NORM1, MT_B_NORM1, H1, RSTD1 },
              [POST1] = { MT_W_POST1, MT_ROLES, 0, RSTD_POST },
              [NORM2] = { MT_W_NORM2, MT_B_NORM2, H2, RSTD2 },
              [POST2] = { MT_W_POST2, MT_ROLES, 0, RSTD_POST } };

static mt_norm norm_args(const mt_pass *p, norm_id id, int64_t n, const void *x)
{
    const mt_config *c = p->c;
    mt_role b = norms[id].b;
    return (mt_norm){ .t = p->r->t,
                      .N = n,
                      .D = c->D,
                      .eps = (float)c->eps,
                      .one_plus = c->norm_one_plus,
                      .centered = c->layer_norm,
                      .x = x,
                      .w = mt_pass_weight(p, norms[id].w),
                      .b = b == MT_ROLES ? NULL : mt_pass_weight(p, b),
                      .rstd = mt_pass_array(p, norms[id].rstd),
                      .scratch = p->r->scratch };
}

/* The norm the ffn's input goes through: parallel blocks may share the mixer's. */
static norm_id ffn_norm(const mt_pass *p) { return p->s->form == MT_BLOCK_ONE_NORM ? NORM1 : NORM2; }

/* The residual stream as the layer finds it. */
static void *stream_of(const mt_pass *p) { return mt_pass_array(p, p->s->input_norm ? X0 : X); }

/* The input of a norm before a branch. */
static const void *norm_input(const mt_pass *p, norm_id id)
{
    return id == NORM2 && p->s->form == MT_BLOCK_SERIAL ? mt_pass_array(p, XMID) : stream_of(p);
}

/* The norm of the input, where the layer has one. */
static mt_rc enter(const mt_pass *p, mt_err *err)
{
    if (!p->s->input_norm) return MT_OK;
    mt_norm a = norm_args(p, NORM0, p->mb->n, mt_pass_array(p, X));
    a.y = mt_pass_array(p, X0);
    return p->r->ops->norm_fwd(p->r->stream, &a, err);
}

/* dx, the gradient of that norm, to the input's. */
static mt_rc enter_backward(const mt_pass *p, void *dx, mt_err *err)
{
    if (!p->s->input_norm) return MT_OK;
    mt_norm a = norm_args(p, NORM0, p->mb->n, mt_pass_array(p, X));
    a.dy = a.dx = dx;
    a.dw = mt_pass_grad(p, MT_W_NORM0);
    a.db = mt_pass_grad(p, MT_B_NORM0);
    return p->r->ops->norm_bwd(p->r->stream, &a, err);
}

/* *h: a branch's input, normed; as it is where the family has no norm before. */
static mt_rc norm(const mt_pass *p, norm_id id, const void **h, mt_err *err)
{
    *h = norm_input(p, id);
    if (!pre_norms(p->s)) return MT_OK;
    mt_norm a = norm_args(p, id, p->mb->n, *h);
    *h = a.y = mt_pass_array(p, norms[id].h);
    return p->r->ops->norm_fwd(p->r->stream, &a, err);
}

/* The same in backward, which finds kept ones. */
static mt_rc norm_again(const mt_pass *p, norm_id id, const void **h, mt_err *err)
{
    *h = mt_pass_array(p, norms[id].h);
    return pre_norms(p->s) && mt_pass_kept(p, norms[id].h) ? MT_OK : norm(p, id, h, err);
}

/* out = x + norm of a branch's result. */
static mt_rc post_norm(const mt_pass *p, norm_id id, const void *result, const void *x, void *out, mt_err *err)
{
    mt_norm a = norm_args(p, id, p->mb->n, result);
    a.y = out;
    a.add = x;
    return p->r->ops->norm_fwd(p->r->stream, &a, err);
}

/* dx += the gradient (DH) that came through a norm before a branch; where it is not kept, RSTD is that norm's. */
static mt_rc norm_backward(const mt_pass *p, norm_id id, void *dx, mt_err *err)
{
    if (!pre_norms(p->s)) return MT_OK; /* it was added where it belongs */
    mt_norm a = norm_args(p, id, p->mb->n, norm_input(p, id));
    a.dy = mt_pass_array(p, DH);
    a.dx = dx;
    a.dx_add = true;
    a.dw = mt_pass_grad(p, norms[id].w);
    a.db = norms[id].b == MT_ROLES ? NULL : mt_pass_grad(p, norms[id].b);
    return p->r->ops->norm_bwd(p->r->stream, &a, err);
}

/* The gradient of n rows of a branch's result, in `out`, from that of what its post norm was added to; `out` also takes the norm
 * itself, of which only 1/rms is wanted. */
static mt_rc post_backward(const mt_pass *p, norm_id id, int64_t n, const void *result, const void *dx, void *out, mt_err *err)
{
    mt_norm a = norm_args(p, id, n, result);
    a.y = out;
    MT_TRY(p->r->ops->norm_fwd(p->r->stream, &a, err));
    a.dy = dx;
    a.dx = out;
    a.dw = mt_pass_grad(p, norms[id].w);
    return p->r->ops->norm_bwd(p->r->stream, &a, err);
}

/* -- the mixer's branch ---------------------------------------------------------------------------- */

static mt_rc mix(const mt_pass *p, const mt_layer_kind *k, mt_err *err)
{
    const mt_pass q = to_mixer(p, k);
    const void *h;
    MT_TRY(norm(p, NORM1, &h, err));
    return p->s->mixer->forward(&q, h, err);
}

/* xmid from what the mixer made. */
static mt_rc mix_output(const mt_pass *p, const mt_layer_kind *k, void *xmid, mt_err *err)
{
    const mt_pass q = to_mixer(p, k);
    void *x = stream_of(p), *mixed = mt_pass_array(p, MIXED);
    if (!post_norms(p->s)) return p->s->mixer->output(&q, xmid, x, err);
    MT_TRY(p->s->mixer->output(&q, mixed, NULL, err));
    return post_norm(p, POST1, mixed, x, xmid, err);
}

/* dx, the gradient of xmid, to that of what the mixer made. */
static mt_rc mix_output_backward(const mt_pass *p, const mt_layer_kind *k, const void *dx, mt_err *err)
{
    const mt_pass q = to_mixer(p, k);
    if (post_norms(p->s)) {
        void *dh = mt_pass_array(p, DH);
        MT_TRY(post_backward(p, POST1, p->mb->n, mt_pass_array(p, MIXED), dx, dh, err));
        dx = dh;
    }
    return p->s->mixer->backward_output(&q, dx, err);
}

/* The gradient of x is added to dx: through the norm, or straight where there is none. */
static mt_rc mix_backward(const mt_pass *p, const mt_layer_kind *k, void *dx, mt_err *err)
{
    const mt_pass q = to_mixer(p, k);
    const bool pre = pre_norms(p->s), one_norm = p->s->form == MT_BLOCK_ONE_NORM; /* then the ffn's share is in DH already */
    const void *h;
    MT_TRY(norm_again(p, NORM1, &h, err));
    MT_TRY(p->s->mixer->backward(&q, h, pre ? mt_pass_array(p, DH) : dx, !pre || one_norm, err));
    return norm_backward(p, NORM1, dx, err);
}

/* -- the ffn's branch ------------------------------------------------------------------------------ */

/* Rows the ffn takes at a time. */
static int64_t chunk_rows(const mt_pass *p) { return p->s->ffn->whole ? p->mb->n : p->r->mlp_rows; }

static mt_row_range chunk_at(const mt_pass *p, int64_t first)
{
    return (mt_row_range){ first, mt_min_i64(chunk_rows(p), p->mb->n - first) };
}

static mt_rc feed(const mt_pass *p, const mt_layer_kind *k, void *x_out, mt_err *err)
{
    const mt_pass q = to_ffn(p, k);
    const mt_ffn *f = p->s->ffn;
    const bool post = post_norms(p->s);
    void *xmid = mt_pass_array(p, XMID), *fed = mt_pass_array(p, FED);
    const void *h;
    MT_TRY(norm(p, ffn_norm(p), &h, err));
    for (int64_t first = 0; first < p->mb->n; first += chunk_rows(p)) {
        mt_row_range s = chunk_at(p, first);
        MT_TRY(f->forward(&q, s, h, err));
        MT_TRY(f->output(&q, s, post ? fed : x_out, post ? NULL : xmid, err));
    }
    return post ? post_norm(p, POST2, fed, xmid, x_out, err) : MT_OK;
}

/* Some rows: from dx, the gradient of the output, to the gradient of what the ffn read, which goes to DH, or is added to dx where
 * no norm is between. */
static mt_rc feed_rows_backward(const mt_pass *p, const mt_layer_kind *k, mt_row_range s, const void *h, void *dx, mt_err *err)
{
    mt_pass q = to_ffn(p, k);
    const mt_ffn *f = p->s->ffn;
    const bool pre = pre_norms(p->s);
    q.again = true;
    q.fresh = p->fresh && s.first == 0; /* later rows add */
    void *fed = mt_pass_array(p, FED), *dx_here = mt_pass_rows(p, dx, s.first, p->c->D),
         *dh = mt_pass_rows(p, mt_pass_array(p, DH), s.first, p->c->D);
    const void *dy = dx_here;
    if (!p->a->whole) MT_TRY(f->forward(&q, s, h, err));
    if (post_norms(p->s)) {
        if (!p->a->whole) MT_TRY(f->output(&q, s, fed, NULL, err));
        MT_TRY(post_backward(p, POST2, s.n, mt_pass_rows(p, fed, s.first, p->c->D), dy, dh, err));
        dy = dh;
    }
    return f->backward(&q, s, h, dy, pre ? dh : dx_here, !pre, err);
}

static mt_rc feed_backward(const mt_pass *p, const mt_layer_kind *k, void *dx, mt_err *err)
{
    const void *h = mt_pass_array(p, H2); /* the experts have read it */
    if (!apart(p->s)) MT_TRY(norm_again(p, ffn_norm(p), &h, err));
    for (int64_t first = 0; first < p->mb->n; first += chunk_rows(p))
        MT_TRY(feed_rows_backward(p, k, chunk_at(p, first), h, dx, err));
    if (p->s->form == MT_BLOCK_ONE_NORM) return MT_OK; /* the mixer adds to DH, and goes through the norm for both */
    return norm_backward(p, NORM2, dx, err);
}

/* -- experts in separate units ----------------------------------------------------------------------- */

/* Where they do not add to it, xmid becomes x_out when they are done; it is there from the start where nothing keeps it. */
static void *xmid_of(const mt_pass *p, void *x_out)
{
    return apart(p->s) && !p->s->ffn->adds(p->s) && !mt_pass_kept(p, XMID) ? x_out : mt_pass_array(p, XMID);
}

/* All of the ffn but its experts: their input, and in x_out the terms added to them. */
static mt_rc open_experts(const mt_pass *p, const mt_layer_kind *k, void *xmid, void *x_out, mt_err *err)
{
    const mt_pass q = to_ffn(p, k);
    const mt_row_range all = { 0, p->mb->n };
    mt_norm a = norm_args(p, NORM2, p->mb->n, xmid);
    a.y = mt_pass_array(p, H2);
    MT_TRY(p->r->ops->norm_fwd(p->r->stream, &a, err));
    MT_TRY(p->s->ffn->forward(&q, all, a.y, err));
    return p->s->ffn->adds(p->s) ? p->s->ffn->output(&q, all, x_out, xmid, err) : MT_OK;
}

mt_rc mt_layer_experts(const mt_run *r, int unit, const mt_weights *w, const mt_micro *mb, const mt_acts *a, mt_err *err)
{
    const mt_pass p = unit_pass(r, unit, w, NULL, mb, a);
    const mt_pass q = to_ffn(&p, mt_layer_kind_of(r->model, r->model->units[unit].layer));
    return p.s->ffn->experts(&q, mt_pass_array(&p, H2), err);
}

const int32_t *mt_layer_routes(const mt_model *m, int layer, const mt_acts *a)
{
    const mt_layer_kind *k = mt_layer_kind_of(m, layer);
    return a->at[k->first_ffn + k->spec.ffn->routes];
}

mt_rc mt_layer_close(const mt_run *r, int layer, const mt_micro *mb, const mt_acts *a, void *x_out, mt_err *err)
{
    const mt_pass p = pass_of(r, layer, NULL, NULL, mb, a);
    const mt_pass q = to_ffn(&p, mt_layer_kind_of(r->model, layer));
    return p.s->ffn->close(&q, x_out, p.s->ffn->adds(p.s) ? x_out : xmid_of(&p, x_out), err);
}

mt_rc mt_layer_reopen(const mt_run *r, int layer, const mt_weights *w, const mt_micro *mb, const mt_acts *a, mt_err *err)
{
    const mt_pass p = pass_of(r, layer, w, NULL, mb, a);
    const void *h;
    return norm_again(&p, NORM2, &h, err);
}

mt_rc mt_layer_experts_backward(const mt_run *r, int unit, const mt_weights *w, float *g, const mt_micro *mb, const mt_acts *a,
                                const void *dx, mt_err *err)
{
    const mt_pass p = unit_pass(r, unit, w, g, mb, a);
    const mt_pass q = to_ffn(&p, mt_layer_kind_of(r->model, r->model->units[unit].layer));
    return p.s->ffn->experts_backward(&q, mt_pass_array(&p, H2), dx, err);
}

/* -- the layer ------------------------------------------------------------------------------------- */

mt_rc mt_layer_forward(const mt_run *r, int layer, const mt_weights *w, const mt_micro *mb, const mt_acts *a, void *x_out,
                       mt_err *err)
{
    const mt_pass p = pass_of(r, layer, w, NULL, mb, a);
    const mt_layer_kind *k = mt_layer_kind_of(r->model, layer);
    MT_TRY(enter(&p, err));
    void *xmid = xmid_of(&p, x_out);
    MT_TRY(mix(&p, k, err));
    MT_TRY(mix_output(&p, k, xmid, err));
    return apart(p.s) ? open_experts(&p, k, xmid, x_out, err) : feed(&p, k, x_out, err);
}

mt_rc mt_layer_finish(const mt_run *r, int layer, const mt_weights *w, const mt_micro *mb, const mt_acts *a, void *x_out,
                      mt_err *err)
{
    const mt_pass p = pass_of(r, layer, w, NULL, mb, a);
    return feed(&p, mt_layer_kind_of(r->model, layer), x_out, err);
}

mt_rc mt_layer_redo(const mt_run *r, int layer, const mt_weights *w, const mt_micro *mb, const mt_acts *a, mt_keep kept,
                    mt_err *err)
{
    const mt_pass p = pass_of(r, layer, w, NULL, mb, a);
    const mt_layer_kind *k = mt_layer_kind_of(r->model, layer);
    const mt_pass q = to_mixer(&p, k);
    MT_TRY(enter(&p, err));
    if (kept < MT_KEEP_MIXER)
        MT_TRY(mix(&p, k, err));
    else if (p.s->mixer->restore)
        MT_TRY(p.s->mixer->restore(&q, err));
    const bool has_xmid = kept >= MT_KEEP_ALL || apart(p.s);
    return has_xmid ? MT_OK : mix_output(&p, k, mt_pass_array(&p, XMID), err);
}

mt_rc mt_layer_backward(const mt_run *r, int layer, const mt_weights *w, mt_grads g, const mt_micro *mb, const mt_acts *a,
                        void *dx, mt_err *err)
{
    mt_pass p = pass_of(r, layer, w, g.sums, mb, a);
    p.fresh = g.fresh;
    const mt_layer_kind *k = mt_layer_kind_of(r->model, layer);
    bool serial = p.s->form == MT_BLOCK_SERIAL;
    /* In parallel blocks dx is both branches' gradient, so the second reads it before the first has added to it. */
    if (!serial) MT_TRY(mix_output_backward(&p, k, dx, err));
    MT_TRY(feed_backward(&p, k, dx, err));
    if (serial) MT_TRY(mix_output_backward(&p, k, dx, err));
    MT_TRY(mix_backward(&p, k, dx, err));
    return enter_backward(&p, dx, err);
}
