/* ends.c - the two ends of a model: embedding, and norm + head + loss. */
#include "base/mem.h"
#include "model/part.h"

static const mt_layout *head_layout(const mt_run *r) { return r->model->units[r->model->head].layout; }
static mt_role head_role(const mt_run *r) { return r->model->tied ? MT_W_EMBED : MT_W_HEAD; }

static const void *at_role(const mt_run *r, const mt_layout *l, const mt_weights *w, mt_role role)
{
    return l->at[role] < 0 ? NULL : (const char *)w->w + (size_t)l->at[role] * mt_dtype_bytes(r->t);
}

/* The sum of a role's gradient; NULL: there is none. */
static float *grad_at(const mt_layout *l, float *g, mt_role role) { return g && l->trains[role] ? g + l->at[role] : NULL; }

/* Some families multiply by a tensor of the compute dtype, which rounds the number. */
static float embed_scale(const mt_run *r)
{
    float s = (float)r->model->config->embed_scale;
    return r->model->config->embed_scale_rounds && r->t == MT_DTYPE_BF16 ? mt_bf16_to_f32(mt_f32_to_bf16(s)) : s;
}

/* Learned positions may begin in a later row of their table. */
static int64_t positions_at(const mt_run *r, const mt_layout *l)
{
    return l->at[MT_W_POS] + r->model->config->position_offset * r->model->config->D;
}

static mt_embed embed_args(const mt_run *r, const mt_micro *mb)
{
    const mt_config *c = r->model->config;
    return (mt_embed){ .t = r->t,
                       .N = mb->n,
                       .D = c->D,
                       .V = c->V,
                       .ids = mb->ids,
                       .rows_by_id = mb->rows_by_id,
                       .pos = mb->pos,
                       .doc_start = mb->doc_start,
                       .n_docs = mb->n_docs,
                       .scale = embed_scale(r),
                       .pad_id = c->pad_id };
}

mt_rc mt_embed_forward(const mt_run *r, const mt_weights *w, const mt_micro *mb, void *x, mt_err *err)
{
    mt_embed a = embed_args(r, mb);
    const mt_layout *l = r->model->units[r->model->embed].layout;
    a.w = at_role(r, l, w, MT_W_EMBED);
    if (l->at[MT_W_POS] >= 0) a.w_pos = (const char *)w->w + (size_t)positions_at(r, l) * mt_dtype_bytes(r->t);
    a.y = x;
    return r->ops->embed_fwd(r->stream, &a, err);
}

mt_rc mt_embed_backward(const mt_run *r, float *g, const mt_micro *mb, const void *dx, mt_err *err)
{
    const mt_layout *l = r->model->units[r->model->embed].layout;
    if (!g || !(l->trains[MT_W_EMBED] || l->trains[MT_W_POS])) return MT_OK;
    mt_embed a = embed_args(r, mb);
    a.dw = grad_at(l, g, MT_W_EMBED);
    a.dw_pos = l->trains[MT_W_POS] ? g + positions_at(r, l) : NULL;
    a.dy = dx;
    return r->ops->embed_bwd(r->stream, &a, err);
}

static mt_rows pick_args(const mt_run *r, const mt_micro *mb, const void *x)
{
    return (mt_rows){ .t = r->t,
                      .N = mb->n,
                      .n_picked = mb->n_trained,
                      .D = r->model->config->D,
                      .index = mb->trained_rows,
                      .x = x,
                      .y = r->ends.x };
}

mt_rc mt_head_pick(const mt_run *r, const mt_micro *mb, const void *x, mt_err *err)
{
    mt_rows pick = pick_args(r, mb, x);
    return r->ops->rows_fwd(r->stream, &pick, err);
}

static mt_norm final_norm(const mt_run *r, const mt_weights *w, const void *x, int64_t n)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = head_layout(r);
    return (mt_norm){ .t = r->t,
                      .N = n,
                      .D = c->D,
                      .eps = (float)c->eps,
                      .one_plus = c->norm_one_plus,
                      .centered = c->layer_norm,
                      .rstd = r->ends.rstd,
                      .x = x,
                      .w = at_role(r, l, w, MT_W_FINAL_NORM),
                      .b = at_role(r, l, w, MT_B_FINAL_NORM),
                      .scratch = r->scratch };
}

mt_rc mt_head_norm(const mt_run *r, const mt_weights *w, const void *x, int64_t n, mt_err *err)
{
    mt_norm a = final_norm(r, w, x, n);
    a.y = r->ends.h;
    return r->ops->norm_fwd(r->stream, &a, err);
}

static mt_linear logits_args(const mt_run *r, const mt_weights *w, int64_t first, int64_t n)
{
    const mt_config *c = r->model->config;
    return (mt_linear){ .t = r->t,
                        .M = n,
                        .N = c->V,
                        .K = c->D,
                        .alpha = (float)c->logit_scale,
                        .w = at_role(r, head_layout(r), w, head_role(r)),
                        .x = (char *)r->ends.h + (size_t)(first * c->D) * mt_dtype_bytes(r->t),
                        .scratch = r->scratch };
}

/* The norms are in scratch: nothing between a chunk's logits and their gradients uses it. */
static mt_normhead norm_args(const mt_run *r, const mt_weights *w, int64_t n)
{
    const mt_config *c = r->model->config;
    return (mt_normhead){ .t = r->t,
                          .N = n,
                          .V = c->V,
                          .D = c->D,
                          .w = at_role(r, head_layout(r), w, head_role(r)),
                          .logits = r->ends.logits,
                          .rnorm = r->scratch };
}

static mt_rc logits_of_rows(const mt_run *r, const mt_weights *w, int64_t first, int64_t n, double softcap, mt_err *err)
{
    mt_linear a = logits_args(r, w, first, n);
    a.b = at_role(r, head_layout(r), w, MT_B_HEAD);
    a.y = r->ends.logits;
    a.y_f32 = true;
    a.softcap = (float)softcap;
    MT_TRY(r->ops->linear_fwd(r->stream, &a, err));
    if (!r->model->config->norm_head) return MT_OK;
    mt_normhead norm = norm_args(r, w, n);
    return r->ops->normhead_fwd(r->stream, &norm, err);
}

mt_rc mt_head_logits(const mt_run *r, const mt_weights *w, int64_t first, int64_t n, mt_err *err)
{
    return logits_of_rows(r, w, first, n, r->model->config->logit_softcap, err);
}

/* Loss of some trained rows and, with gradients wanted, their share of dh and dw. */
static mt_rc loss_of_rows(const mt_run *r, const mt_weights *w, float *g, const mt_micro *mb, int64_t first, int64_t n,
                          bool backward, float dscale, mt_loss_sum *sum, mt_err *err)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = head_layout(r);
    const mt_ends_work *k = &r->ends;
    MT_TRY(logits_of_rows(r, w, first, n, 0, err));
    MT_TRY(r->ops->cross_entropy(r->stream,
                                 &(mt_cross_entropy){ .t = r->t,
                                                      .N = n,
                                                      .V = c->V,
                                                      .logits = k->logits,
                                                      .targets = mb->targets + first,
                                                      .dlogits = backward ? k->dlogits : NULL,
                                                      .dscale = dscale,
                                                      .softcap = (float)c->logit_softcap,
                                                      .row_loss = k->row_loss,
                                                      .row_correct = k->row_correct,
                                                      .sum = sum },
                                 err));
    if (!backward) return MT_OK;
    float *dw = grad_at(l, g, head_role(r));
    if (c->norm_head) {
        mt_normhead norm = norm_args(r, w, n);
        norm.dlogits = k->dlogits;
        norm.dw = dw;
        MT_TRY(r->ops->normhead_bwd(r->stream, &norm, err));
    }
    mt_linear a = logits_args(r, w, first, n);
    a.dy = k->dlogits;
    if (mt_model_needs_head_dx(r->model)) a.dx = (char *)k->dh + (size_t)(first * c->D) * mt_dtype_bytes(r->t);
    a.dw = dw;
    a.db = grad_at(l, g, MT_B_HEAD);
    return r->ops->linear_bwd(r->stream, &a, err);
}

mt_rc mt_head_loss(const mt_run *r, const mt_weights *w, float *g, const mt_micro *mb, const void *x, void *dx, float dscale,
                   mt_loss_sum *sum, mt_err *err)
{
    const mt_layout *l = head_layout(r);
    const mt_ends_work *k = &r->ends;
    mt_rows pick = pick_args(r, mb, x);
    MT_TRY(r->ops->rows_fwd(r->stream, &pick, err));
    MT_TRY(mt_head_norm(r, w, k->x, mb->n_trained, err));
    for (int64_t first = 0; first < mb->n_trained; first += r->head_rows)
        MT_TRY(loss_of_rows(r, w, g, mb, first, mt_min_i64(r->head_rows, mb->n_trained - first), dx != NULL, dscale, sum, err));
    if (!dx || !mt_model_needs_head_dx(r->model)) return MT_OK;
    mt_norm norm = final_norm(r, w, k->x, mb->n_trained);
    norm.dy = k->dh;
    norm.dx = k->h;
    norm.dw = grad_at(l, g, MT_W_FINAL_NORM);
    norm.db = grad_at(l, g, MT_B_FINAL_NORM);
    MT_TRY(r->ops->norm_bwd(r->stream, &norm, err));
    pick.dy = k->h; /* the norm's output is no longer needed: its place held the gradient of the picked rows */
    pick.dx = dx;
    return r->ops->rows_bwd(r->stream, &pick, err);
}

/* -- workspace ------------------------------------------------------------------------------------- */

static void *ends_take(char *base, size_t *at, size_t bytes)
{
    void *here = base ? base + *at : NULL;
    *at += mt_round_up(bytes, MT_ARRAY_ALIGN);
    return here;
}

size_t mt_ends_carve(mt_ends_work *out, char *base, const mt_model *m, mt_dtype t, int64_t micro, int64_t head_rows, bool train)
{
    size_t at = 0, n = (size_t)micro, head = (size_t)head_rows, e = mt_dtype_bytes(t), D = (size_t)m->config->D,
           V = (size_t)m->config->V;
    mt_ends_work w;
    w.x = ends_take(base, &at, n * D * e);
    w.h = ends_take(base, &at, n * D * e);
    w.dh = ends_take(base, &at, n * D * e);
    w.rstd = ends_take(base, &at, n * sizeof(float));
    w.row_loss = ends_take(base, &at, head * sizeof(float));
    w.row_correct = ends_take(base, &at, head * sizeof(int32_t));
    w.logits = ends_take(base, &at, head * V * sizeof(float));
    w.dlogits = ends_take(base, &at, train ? head * V * e : 0);
    if (out) *out = w;
    return at;
}

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static size_t ends_scratch(const mt_config *c, const mt_scratch_shape *s, int64_t head_rows)
{
    float *some = (float *)1; /* present; never read */
    size_t most = 0;
#define CONSIDER(op, ...) most = max_size(most, mt_##op##_scratch(&(mt_##op){ .t = s->t, __VA_ARGS__ }))
    CONSIDER(embed, .N = s->rows, .D = c->D, .V = c->V);
    CONSIDER(norm, .N = s->rows, .D = c->D, .dw = some, .db = c->norm_bias ? some : NULL);
    CONSIDER(linear, .M = head_rows, .N = c->V, .K = c->D, .dw = some, .db = c->head_bias ? some : NULL);
    CONSIDER(rows, .N = s->rows, .n_picked = s->rows, .D = c->D);
    CONSIDER(cross_entropy, .N = head_rows, .V = c->V);
    if (c->norm_head) CONSIDER(normhead, .N = head_rows, .V = c->V, .D = c->D);
#undef CONSIDER
    return most;
}

size_t mt_model_scratch(const mt_model *m, mt_dtype t, mt_work_rows rows, int64_t n_docs, int64_t longest, int64_t head_rows,
                        const mt_attention_use *attention)
{
    const mt_config *c = m->config;
    const mt_scratch_shape shape = { .t = t,
                                     .rows = rows.micro,
                                     .chunk = rows.chunk,
                                     .pass = rows.pass,
                                     .docs = mt_min_i64(n_docs, rows.micro),
                                     .longest = longest,
                                     .router_loss = rows.router_loss,
                                     .attention = attention };
    size_t most = ends_scratch(c, &shape, head_rows);
    for (int k = 0; k < m->n_kinds; k++) {
        const mt_layer_spec *s = &m->kinds[k].spec;
        most = max_size(most, mt_frame.scratch(c, s, &shape));
        most = max_size(most, s->mixer->part.scratch(c, s, &shape));
        most = max_size(most, s->ffn->part.scratch(c, s, &shape));
    }
    return most;
}

size_t mt_model_cache_scratch(const mt_model *m, mt_dtype t, int64_t rows, int64_t docs, int64_t deepest)
{
    size_t most = 0;
    for (int k = 0; k < m->n_kinds; k++) {
        const mt_layer_spec *s = &m->kinds[k].spec;
        if (s->mixer->cache_scratch) most = max_size(most, s->mixer->cache_scratch(m->config, s, t, rows, docs, deepest));
    }
    return most;
}

mt_cache_bytes mt_layer_cache(const mt_model *m, int layer, mt_dtype t)
{
    const mt_layer_spec *s = &m->config->layers[layer];
    return s->mixer->cache_bytes ? s->mixer->cache_bytes(m->config, s, t) : (mt_cache_bytes){ 0 };
}
