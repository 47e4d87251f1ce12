/* ends.c - the two ends of a model: embedding, and norm + head + loss. */
#include "base/mem.h"
#include "model/block.h"

static const mt_layout *head_layout(const mt_run *r) { return r->model->units[r->model->head].layout; }
static mt_role head_role(const mt_run *r) { return r->model->config->tied ? MT_W_EMBED : MT_W_HEAD; }

static const void *at_role(const mt_run *r, const mt_layout *l, const void *w, mt_role role)
{
    return (const char *)w + (size_t)l->at[role] * mt_dtype_bytes(r->t);
}

static mt_embed embed_args(const mt_run *r, const mt_micro *mb)
{
    const mt_config *c = r->model->config;
    return (mt_embed){ .t = r->t, .N = mb->n, .D = c->D, .V = c->V, .ids = mb->ids, .rows_by_id = mb->rows_by_id, .scale = 1.0f, .pad_id = c->pad_id };
}

mt_rc mt_embed_forward(const mt_run *r, const void *w, const mt_micro *mb, void *x, mt_err *err)
{
    mt_embed a = embed_args(r, mb);
    a.w = at_role(r, r->model->units[0].layout, w, MT_W_EMBED);
    a.y = x;
    return r->ops->embed_fwd(r->stream, &a, err);
}

mt_rc mt_embed_backward(const mt_run *r, float *g, const mt_micro *mb, const void *dx, mt_err *err)
{
    const mt_layout *l = r->model->units[0].layout;
    if (!g || !l->trains[MT_W_EMBED]) return MT_OK;
    mt_embed a = embed_args(r, mb);
    a.dw = g + l->at[MT_W_EMBED];
    a.dy = dx;
    return r->ops->embed_bwd(r->stream, &a, err);
}

static mt_rows pick_args(const mt_run *r, const mt_micro *mb, const void *x)
{
    return (mt_rows){ .t = r->t, .N = mb->n, .n_picked = mb->n_trained, .D = r->model->config->D, .index = mb->trained_rows, .x = x, .y = r->work.head_x };
}

mt_rc mt_head_pick(const mt_run *r, const mt_micro *mb, const void *x, mt_err *err)
{
    mt_rows pick = pick_args(r, mb, x);
    return r->ops->rows_fwd(r->stream, &pick, err);
}

mt_rc mt_head_norm(const mt_run *r, const void *w, const void *x, int64_t n, mt_err *err)
{
    const mt_config *c = r->model->config;
    const mt_work *k = &r->work;
    return r->ops->rmsnorm_fwd(r->stream,
                               &(mt_rmsnorm){ .t = r->t, .N = n, .D = c->D, .eps = (float)c->eps, .y = k->head_h, .rstd = k->rstd, .x = x,
                                              .w = at_role(r, head_layout(r), w, MT_W_FINAL_NORM), .scratch = k->scratch },
                               err);
}

static mt_linear logits_args(const mt_run *r, const void *w, int64_t first, int64_t n)
{
    const mt_config *c = r->model->config;
    return (mt_linear){ .t = r->t, .M = n, .N = c->V, .K = c->D, .w = at_role(r, head_layout(r), w, head_role(r)),
                        .x = (char *)r->work.head_h + (size_t)(first * c->D) * mt_dtype_bytes(r->t), .scratch = r->work.scratch };
}

mt_rc mt_head_logits(const mt_run *r, const void *w, int64_t first, int64_t n, mt_err *err)
{
    mt_linear a = logits_args(r, w, first, n);
    a.y = r->work.logits;
    a.y_f32 = true;
    return r->ops->linear_fwd(r->stream, &a, err);
}

/* Loss of some trained rows and, with gradients wanted, their share of dh and dw. */
static mt_rc loss_of_rows(const mt_run *r, const void *w, float *g, const mt_micro *mb, int64_t first, int64_t n, bool backward,
                          float dscale, mt_loss_sum *sum, mt_err *err)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = head_layout(r);
    const mt_work *k = &r->work;
    MT_TRY(mt_head_logits(r, w, first, n, err));
    MT_TRY(r->ops->cross_entropy(r->stream,
                                 &(mt_cross_entropy){ .t = r->t, .N = n, .V = c->V, .logits = k->logits, .targets = mb->targets + first,
                                                      .dlogits = backward ? k->dlogits : NULL, .dscale = dscale, .row_loss = k->row_loss,
                                                      .row_correct = k->row_correct, .sum = sum },
                                 err));
    if (!backward) return MT_OK;
    mt_linear a = logits_args(r, w, first, n);
    a.dy = k->dlogits;
    a.dx = (char *)k->head_dh + (size_t)(first * c->D) * mt_dtype_bytes(r->t);
    a.dw = g && l->trains[head_role(r)] ? g + l->at[head_role(r)] : NULL;
    return r->ops->linear_bwd(r->stream, &a, err);
}

mt_rc mt_head_loss(const mt_run *r, const void *w, float *g, const mt_micro *mb, const void *x, void *dx, float dscale,
                   mt_loss_sum *sum, mt_err *err)
{
    const mt_config *c = r->model->config;
    const mt_layout *l = head_layout(r);
    const mt_work *k = &r->work;
    mt_rows pick = pick_args(r, mb, x);
    MT_TRY(r->ops->rows_fwd(r->stream, &pick, err));
    MT_TRY(mt_head_norm(r, w, k->head_x, mb->n_trained, err));
    for (int64_t first = 0; first < mb->n_trained; first += r->head_rows)
        MT_TRY(loss_of_rows(r, w, g, mb, first, mt_min_i64(r->head_rows, mb->n_trained - first), dx != NULL, dscale, sum, err));
    if (!dx) return MT_OK;
    float *dw = g && l->trains[MT_W_FINAL_NORM] ? g + l->at[MT_W_FINAL_NORM] : NULL;
    MT_TRY(r->ops->rmsnorm_bwd(r->stream,
                               &(mt_rmsnorm){ .t = r->t, .N = mb->n_trained, .D = c->D, .eps = (float)c->eps, .rstd = k->rstd, .x = k->head_x,
                                              .w = at_role(r, l, w, MT_W_FINAL_NORM), .dy = k->head_dh, .dx = k->head_h, .dw = dw,
                                              .scratch = k->scratch },
                               err));
    pick.dy = k->head_h; /* the norm's output is no longer needed: its place held the gradient of the picked rows */
    pick.dx = dx;
    return r->ops->rows_bwd(r->stream, &pick, err);
}

size_t mt_block_scratch(const mt_model *m, mt_dtype t, int64_t n, int64_t n_docs, int64_t longest, int64_t mlp_rows, int64_t head_rows)
{
    const mt_config *c = m->config;
    float *some = (float *)1; /* present; never read */
    size_t most = 0, need;
    int64_t qkv = (c->H + 2 * c->K) * c->Dh;
#define CONSIDER(op, ...)                                                                                    \
    need = mt_##op##_scratch(&(mt_##op){ .t = t, __VA_ARGS__ });                                             \
    if (need > most) most = need
    CONSIDER(embed, .N = n, .D = c->D, .V = c->V);
    CONSIDER(rmsnorm, .N = n, .D = c->D, .dw = some);
    CONSIDER(linear, .M = n, .N = qkv, .K = c->D, .dw = some, .db = some);
    CONSIDER(linear, .M = n, .N = c->D, .K = c->H * c->Dh, .dw = some, .db = some);
    CONSIDER(linear, .M = mlp_rows, .N = 2 * c->F, .K = c->D, .dw = some, .db = some);
    CONSIDER(linear, .M = mlp_rows, .N = c->D, .K = c->F, .dw = some, .db = some);
    CONSIDER(linear, .M = head_rows, .N = c->V, .K = c->D, .dw = some);
    CONSIDER(rope, .N = n, .H = c->H, .K = c->K, .Dh = c->Dh, .dr = c->rope.dr, .dwq = some, .dwk = some);
    CONSIDER(attention, .N = n, .H = c->H, .K = c->K, .Dh = c->Dh, .n_docs = n_docs, .longest = longest);
    CONSIDER(glu, .N = mlp_rows, .F = c->F);
    CONSIDER(rows, .N = n, .n_picked = n, .D = c->D);
    CONSIDER(cross_entropy, .N = head_rows, .V = c->V);
#undef CONSIDER
    return most;
}
