/* ends.c - the two ends of a model: embedding, and norm + head + loss. */
#include "base/mem.h"
#include "model/part.h"

/* An end's weights and micro-batch. */
static mt_pass end_pass(const mt_run *r, int unit, const mt_weights *w, float *g, const mt_micro *mb)
{
    return (mt_pass){ .r = r, .c = r->model->config, .l = r->model->units[unit].layout, .w = w, .g = g, .mb = mb };
}

static mt_role head_role(const mt_model *m) { return m->tied ? MT_W_EMBED : MT_W_HEAD; }

enum { W_HEAD };

static mt_product head_product(const mt_model *m)
{
    const mt_config *c = m->config;
    return (mt_product){ .k = c->D,
                         .alpha = (float)c->logit_scale,
                         .f32 = true,
                         .of = { { head_role(m), c->head_bias ? MT_B_HEAD : MT_ROLES, c->V } } };
}

/* head: head_product(), for as long as the pass. */
static mt_pass head_pass(const mt_run *r, const mt_weights *w, float *g, const mt_micro *mb, const mt_product *head)
{
    mt_pass p = end_pass(r, r->model->head, w, g, mb);
    p.products = head;
    return p;
}

/* Some families multiply by a tensor of the compute dtype, which rounds the number. */
static float embed_scale(const mt_run *r)
{
    float s = (float)r->model->config->embed_scale;
    return r->model->config->embed_scale_rounds && r->t == MT_DTYPE_BF16 ? mt_bf16_to_f32(mt_f32_to_bf16(s)) : s;
}

/* Learned positions may begin in a later row of their table. */
static int64_t first_position(const mt_config *c) { return c->position_offset * c->D; }

static mt_embed embed_args(const mt_pass *p)
{
    const mt_micro *mb = p->mb;
    return (mt_embed){ .t = p->r->t,
                       .N = mb->n,
                       .D = p->c->D,
                       .V = p->c->V,
                       .ids = mb->ids,
                       .rows_by_id = mb->rows_by_id,
                       .pos = mb->pos,
                       .doc_start = mb->doc_start,
                       .n_docs = mb->n_docs,
                       .scale = embed_scale(p->r),
                       .pad_id = p->c->pad_id };
}

mt_rc mt_embed_forward(const mt_run *r, const mt_weights *w, const mt_micro *mb, void *x, mt_err *err)
{
    const mt_pass p = end_pass(r, r->model->embed, w, NULL, mb);
    mt_embed a = embed_args(&p);
    a.w = mt_pass_weight(&p, MT_W_EMBED);
    if (p.l->at[MT_W_POS] >= 0) a.w_pos = mt_pass_rows(&p, mt_pass_weight(&p, MT_W_POS), 1, first_position(p.c));
    a.y = x;
    return r->ops->embed_fwd(r->stream, &a, err);
}

mt_rc mt_embed_backward(const mt_run *r, float *g, const mt_micro *mb, const void *dx, mt_err *err)
{
    const mt_pass p = end_pass(r, r->model->embed, NULL, g, mb);
    mt_embed a = embed_args(&p);
    a.dw = mt_pass_grad(&p, MT_W_EMBED);
    a.dw_pos = mt_pass_grad(&p, MT_W_POS);
    if (a.dw_pos) a.dw_pos += first_position(p.c);
    a.dy = dx;
    return a.dw || a.dw_pos ? r->ops->embed_bwd(r->stream, &a, err) : MT_OK;
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

static mt_norm final_norm(const mt_pass *p, const void *x, int64_t n)
{
    return (mt_norm){ .t = p->r->t,
                      .N = n,
                      .D = p->c->D,
                      .eps = (float)p->c->eps,
                      .one_plus = p->c->norm_one_plus,
                      .centered = p->c->layer_norm,
                      .rstd = p->r->ends.rstd,
                      .x = x,
                      .w = mt_pass_weight(p, MT_W_FINAL_NORM),
                      .b = mt_pass_weight(p, MT_B_FINAL_NORM),
                      .scratch = p->r->scratch };
}

mt_rc mt_head_norm(const mt_run *r, const mt_weights *w, const void *x, int64_t n, mt_err *err)
{
    const mt_pass p = end_pass(r, r->model->head, w, NULL, NULL);
    mt_norm a = final_norm(&p, x, n);
    a.y = r->ends.h;
    return r->ops->norm_fwd(r->stream, &a, err);
}

/* The norms are in scratch: nothing between a chunk's logits and their gradients uses it. */
static mt_normhead norm_args(const mt_pass *p, int64_t n)
{
    return (mt_normhead){ .t = p->r->t,
                          .N = n,
                          .V = p->c->V,
                          .D = p->c->D,
                          .w = mt_pass_weight(p, head_role(p->r->model)),
                          .logits = p->r->ends.logits,
                          .rnorm = p->r->scratch };
}

/* Row `first` of the head's input, or of its gradient. */
static void *head_rows(const mt_pass *p, void *rows, int64_t first) { return mt_pass_rows(p, rows, first, p->c->D); }

static mt_rc logits_of_rows(const mt_pass *p, int64_t first, int64_t n, double softcap, mt_err *err)
{
    const mt_ends_work *k = &p->r->ends;
    const mt_product_io logits = { .n = n, .x = head_rows(p, k->h, first), .y = k->logits, .softcap = (float)softcap };
    MT_TRY(mt_product_forward(p, W_HEAD, &logits, err));
    if (!p->c->norm_head) return MT_OK;
    mt_normhead norm = norm_args(p, n);
    return p->r->ops->normhead_fwd(p->r->stream, &norm, err);
}

mt_rc mt_head_logits(const mt_run *r, const mt_weights *w, int64_t first, int64_t n, mt_err *err)
{
    const mt_product head = head_product(r->model);
    const mt_pass p = head_pass(r, w, NULL, NULL, &head);
    return logits_of_rows(&p, first, n, p.c->logit_softcap, err);
}

/* Loss of some trained rows and, with gradients wanted, their share of dh and dw. */
static mt_rc loss_of_rows(const mt_pass *p, int64_t first, int64_t n, bool backward, mt_head_loss_of loss, mt_loss_sum *sum,
                          mt_err *err)
{
    const mt_run *r = p->r;
    const mt_ends_work *k = &r->ends;
    const mt_objective_use *use = loss.objective;
    MT_TRY(logits_of_rows(p, first, n, 0, err));
    mt_cross_entropy a = { .t = r->t,
                           .N = n,
                           .V = p->c->V,
                           .logits = k->logits,
                           .targets = p->mb->targets + first,
                           .dlogits = backward ? k->dlogits : NULL,
                           .dscale = loss.dscale,
                           .softcap = (float)p->c->logit_softcap,
                           .row_loss = k->row_loss,
                           .row_correct = k->row_correct,
                           .sum = sum,
                           .z_loss = use->z_loss };
    mt_objective_rows rows = { .r = r, .use = use };
    for (int c = 0; c < MT_COLUMNS; c++) rows.columns[c] = p->mb->columns[c] ? p->mb->columns[c] + first : NULL;
    a.weights = rows.columns[MT_COLUMN_WEIGHT];
    if (use->of) MT_TRY(use->of->rows(&rows, &a, err));
    MT_TRY(r->ops->cross_entropy(r->stream, &a, err));
    if (!backward) return MT_OK;
    if (p->c->norm_head) {
        mt_normhead norm = norm_args(p, n);
        norm.dlogits = k->dlogits;
        norm.dw = mt_pass_grad(p, head_role(r->model));
        MT_TRY(r->ops->normhead_bwd(r->stream, &norm, err));
    }
    mt_product_io logits = { .n = n, .x = head_rows(p, k->h, first), .dy = k->dlogits };
    if (mt_model_needs_head_dx(r->model)) logits.dx = head_rows(p, k->dh, first);
    return mt_product_backward(p, W_HEAD, &logits, err);
}

mt_rc mt_head_loss(const mt_run *r, const mt_weights *w, float *g, const mt_micro *mb, const void *x, void *dx,
                   mt_head_loss_of loss, mt_loss_sum *sum, mt_err *err)
{
    const mt_product head = head_product(r->model);
    const mt_pass p = head_pass(r, w, g, mb, &head);
    const mt_ends_work *k = &r->ends;
    mt_rows pick = pick_args(r, mb, x);
    MT_TRY(r->ops->rows_fwd(r->stream, &pick, err));
    MT_TRY(mt_head_norm(r, w, k->x, mb->n_trained, err));
    for (int64_t first = 0; first < mb->n_trained; first += r->head_rows)
        MT_TRY(loss_of_rows(&p, first, mt_min_i64(r->head_rows, mb->n_trained - first), dx != NULL, loss, sum, err));
    if (!dx || !mt_model_needs_head_dx(r->model)) return MT_OK;
    mt_norm norm = final_norm(&p, k->x, mb->n_trained);
    norm.dy = k->dh;
    norm.dx = k->h;
    norm.dw = mt_pass_grad(&p, MT_W_FINAL_NORM);
    norm.db = mt_pass_grad(&p, MT_B_FINAL_NORM);
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

static size_t ends_scratch(const mt_model *m, const mt_scratch_shape *s, int64_t head_rows)
{
    float *some = (float *)1; /* present; never read */
    const mt_config *c = m->config;
    const mt_product head = head_product(m);
    const mt_scratch_shape of_head = { .t = s->t, .rows = head_rows };
    size_t most = mt_product_scratch(&head, NULL, &of_head);
#define CONSIDER(op, ...) most = max_size(most, mt_##op##_scratch(&(mt_##op){ .t = s->t, __VA_ARGS__ }))
    CONSIDER(embed, .N = s->rows, .D = c->D, .V = c->V);
    CONSIDER(norm, .N = s->rows, .D = c->D, .dw = some, .db = c->norm_bias ? some : NULL);
    CONSIDER(rows, .N = s->rows, .n_picked = s->rows, .D = c->D);
    CONSIDER(cross_entropy, .N = head_rows, .V = c->V);
    if (c->norm_head) CONSIDER(normhead, .N = head_rows, .V = c->V, .D = c->D);
#undef CONSIDER
    return most;
}

size_t mt_model_scratch(const mt_model *m, mt_dtype t, mt_work_rows rows, int64_t n_docs, int64_t longest, int64_t head_rows,
                        const mt_attention_use *attention)
{
    const mt_scratch_shape shape = { .t = t,
                                     .rows = rows.micro,
                                     .chunk = rows.chunk,
                                     .pass = rows.pass,
                                     .docs = mt_min_i64(n_docs, rows.micro),
                                     .longest = longest,
                                     .router_loss = rows.router_loss,
                                     .attention = attention };
    size_t most = ends_scratch(m, &shape, head_rows);
    for (const mt_layer_kind *k = m->kinds; k < m->kinds + m->n_kinds; k++) {
        const mt_part *parts[] = { &mt_frame, &k->spec.mixer->part, &k->spec.ffn->part };
        for (size_t i = 0; i < MT_COUNT(parts); i++)
            if (parts[i]->scratch) most = max_size(most, parts[i]->scratch(m->config, &k->spec, &shape));
        for (int i = 0; i < k->n_products; i++) most = max_size(most, mt_product_scratch(&k->products[i], &k->spec, &shape));
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
