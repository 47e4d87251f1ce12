/* visit.c - the compute of a visit. schedule/sequence.c decides the order of visits and what happens between them.
 *
 * Layer-major: while a unit's weights are on the device, every micro-batch of the sweep passes through it. */
#include "engine/lane_internal.h"

/* First row of a micro-batch in the sweep's buffers. */
static int64_t row_of(const mt_lane *lane, int64_t micro)
{
    return lane->input.cuts[micro].first_row - lane->input.cuts[lane->sweep.first].first_row;
}

static void *dx_at(mt_lane *lane, int64_t row)
{
    char *dx = mt_memory_find(lane->memory, MT_BUF_DX, -1, -1);
    return dx + (size_t)(row * lane->model->config->D) * mt_dtype_bytes(lane->plan->arithmetic.compute);
}

static bool trains(const mt_lane *lane) { return mt_sequence_mode(lane->sequence) == MT_MODE_TRAIN; }
static int unit_of(const mt_lane *lane, int layer) { return mt_layer_first_unit(lane->model, layer); }

/* -- sums -------------------------------------------------------------------------------------------- */

/* The sums of unit u's gradient; NULL: none. */
static float *sum_of(const mt_lane *lane, int u)
{
    int slot = trains(lane) ? mt_sequence_sum(lane->sequence, u) : -1;
    return slot < 0 ? NULL : lane->sums[slot];
}

/* The sum that a micro-batch adds to. */
static float *sum_at(const mt_lane *lane, int u, float *sums, int64_t micro)
{
    if (!sums || mt_plan_acc_count(lane->plan) == 1) return sums;
    const int sum = mt_fold_order_of(&lane->input.deal, lane->input.share[micro]).sum;
    return sums + sum * mt_plan_acc_stride(mt__layout(lane, u)->n_train);
}

/* Adds `part` to `to` and clears it for the next; bundles may be rounded before they are added to the step's sum. */
static mt_rc fold_sum(mt_lane *lane, int u, float *sums, int to, int part, mt_err *err)
{
    const int64_t n = mt__layout(lane, u)->n_train, stride = mt_plan_acc_stride(n);
    return lane->ops->fold(lane->compute,
                           &(mt_fold){ .n = n,
                                       .to = sums + to * stride,
                                       .part = sums + part * stride,
                                       .bf16 = to == 0 && lane->input.deal.rounds,
                                       .clear = true },
                           err);
}

/* A micro-batch has added to unit u's sums.  After the last one of its share, adds the share's sum to the earlier ones. */
static mt_rc end_micro(mt_lane *lane, int u, float *sums, int64_t micro, mt_err *err)
{
    const lane_input *in = &lane->input;
    const int share = in->share[micro];
    if (!sums || mt_plan_acc_count(lane->plan) == 1) return MT_OK;
    if (micro + 1 < in->n_cuts && in->share[micro + 1] == share) return MT_OK;
    const mt_fold_order f = mt_fold_order_of(&in->deal, share);
    if (f.into >= 0) MT_TRY(fold_sum(lane, u, sums, f.into, f.sum, err));
    return f.ends_bundle ? fold_sum(lane, u, sums, 0, 1, err) : MT_OK;
}

/* -- the load-balancing loss ------------------------------------------------------------------------ */

/* Micro-batch i's share of E sum of F P: F and P are counts and probabilities over all rows of all its layers, and a micro-batch
 * is weighted by its rows (docs/experts.md). */
static double router_scale(const mt_lane *lane, int64_t i)
{
    const mt_routed *over = &lane->router.over;
    const double rows = (double)lane->input.micros[i].n, all = (double)over->layers * rows;
    return rows / (double)lane->pass.batch->n_tokens * (double)over->E / (all * all);
}

static mt_router_sums router_sums(const mt_lane *lane, int64_t i)
{
    const lane_router *r = &lane->router;
    if (!r->counts || !trains(lane)) return (mt_router_sums){ 0 };
    return (mt_router_sums){ .counts = r->counts + i * r->over.E,
                             .probs = r->probs + i * r->over.E,
                             .scale = (float)(lane->plan->job.router_loss * router_scale(lane, i)) };
}

/* Its value, once all layers have counted. */
static mt_rc router_loss(mt_lane *lane, mt_err *err)
{
    if (!lane->router.counts || !trains(lane)) return MT_OK;
    for (int64_t i = lane->sweep.first; i < lane->sweep.end; i++) {
        const mt_router_sums s = router_sums(lane, i);
        const mt_router_loss a = { .E = lane->router.over.E,
                                   .scale = router_scale(lane, i),
                                   .counts = s.counts,
                                   .probs = s.probs,
                                   .sum = &lane->total.router_losses[lane->input.share[i]] };
        MT_TRY(lane->run.ops->router_loss(lane->run.stream, &a, err));
    }
    return MT_OK;
}

/* -- forward --------------------------------------------------------------------------------------- */

mt_rc mt__visit_embed(mt_lane *lane, mt_err *err)
{
    mt_weights w = mt__ring_weights(lane, lane->model->embed);
    for (int64_t i = lane->sweep.first; i < lane->sweep.end; i++)
        MT_TRY(
            mt_embed_forward(&lane->run, &w, &lane->input.micros[i], mt__keeps_x(lane, 0, trains(lane), row_of(lane, i)), err));
    return MT_OK;
}

mt_rc mt__visit_forward(mt_lane *lane, int layer, mt_err *err)
{
    bool train = trains(lane);
    mt_weights w = mt__ring_weights(lane, unit_of(lane, layer));
    for (int64_t i = lane->sweep.first; i < lane->sweep.end; i++) {
        int64_t row = row_of(lane, i);
        mt_acts a = mt__keeps_acts(lane, layer, train, 0, row);
        a.at[MT_ARRAY_INPUT] = mt__keeps_x(lane, layer, train, row);
        a.router = router_sums(lane, i);
        MT_TRY(
            mt_layer_forward(&lane->run, layer, &w, &lane->input.micros[i], &a, mt__keeps_x(lane, layer + 1, train, row), err));
    }
    return MT_OK;
}

mt_rc mt__visit_routes(mt_lane *lane, int layer, mt_err *err)
{
    const mt_acts a = mt__keeps_acts(lane, layer, false, 0, 0);
    const int64_t n = lane->sweep.rows * lane->model->routed.T;
    char *device = (char *)(uintptr_t)mt_layer_routes(lane->model, layer, &a); /* only read */
    lane_chosen *c = &lane->chosen;
    MT_TRY(mt__lane_bounce(lane, device, (char *)c->routes, (size_t)n * sizeof *c->routes, MT_COPY_OUT, err));
    for (int64_t e = 0; e < lane->model->routed.E; e++) c->experts[e] = false;
    for (int64_t i = 0; i < n; i++) c->experts[c->routes[i]] = true;
    return MT_OK;
}

/* A pass's rows and activations; row: the first one in the sweep. */
typedef struct pass_rows {
    mt_micro mb; /* only its rows */
    mt_acts acts;
    int64_t row;
} pass_rows;

static pass_rows pass_of(mt_lane *lane, int layer, int64_t i)
{
    const mt_cut_pass *p = &lane->input.passes[i];
    pass_rows r = { .mb.n = p->n_rows, .row = row_of(lane, p->first) };
    r.acts = mt__keeps_acts(lane, layer, trains(lane), 0, r.row);
    if (trains(lane)) r.acts.router.loads = lane->total.loads + layer * lane->model->routed.E;
    return r;
}

mt_rc mt__visit_experts(mt_lane *lane, int unit, mt_err *err)
{
    mt_weights w = mt__ring_weights(lane, unit);
    for (int64_t i = lane->sweep.first_pass; i < lane->sweep.end_pass; i++) {
        const pass_rows r = pass_of(lane, lane->model->units[unit].layer, i);
        MT_TRY(mt_layer_experts(&lane->run, unit, &w, &r.mb, &r.acts, err));
    }
    return MT_OK;
}

/* All rows of the sweep at once: the result does not depend on their number. */
mt_rc mt__visit_close(mt_lane *lane, int layer, mt_err *err)
{
    const bool train = trains(lane);
    const mt_micro rows = { .n = lane->sweep.rows };
    const mt_acts a = mt__keeps_acts(lane, layer, train, 0, 0);
    return mt_layer_close(&lane->run, layer, &rows, &a, mt__keeps_x(lane, layer + 1, train, 0), err);
}

/* Loss and, in training, the gradient that backward starts from. */
static mt_rc head_loss(mt_lane *lane, const mt_weights *w, mt_err *err)
{
    bool train = trains(lane);
    static const mt_objective_use plain = { 0 };
    const mt_head_loss_of loss = { train ? &lane->plan->job.objective : &plain, lane->dscale };
    const int u = lane->model->head;
    float *sums = sum_of(lane, u);
    for (int64_t i = lane->sweep.first; i < lane->sweep.end; i++) {
        int64_t row = row_of(lane, i);
        const void *x = mt__keeps_x(lane, (int)lane->model->config->L, train, row);
        MT_TRY(mt_head_loss(&lane->run, w, sum_at(lane, u, sums, i), &lane->input.micros[i], x, train ? dx_at(lane, row) : NULL,
                            loss, &lane->total.losses[lane->input.share[i]], err));
        MT_TRY(end_micro(lane, u, sums, i, err));
    }
    return router_loss(lane, err);
}

/* Logits of every row. */
static mt_rc head_logits(mt_lane *lane, const mt_weights *w, mt_err *err)
{
    const mt_config *c = lane->model->config;
    for (int64_t i = lane->sweep.first; i < lane->sweep.end; i++) {
        const mt_micro *mb = &lane->input.micros[i];
        MT_TRY(mt_head_norm(&lane->run, w, mt__keeps_x(lane, (int)c->L, false, row_of(lane, i)), mb->n, err));
        for (int64_t first = 0; first < mb->n; first += lane->run.head_rows) {
            int64_t n = mt_min_i64(lane->run.head_rows, mb->n - first);
            MT_TRY(mt_head_logits(&lane->run, w, first, n, err));
            MT_TRY(mt__lane_bounce(lane, (char *)lane->run.ends.logits,
                                   (char *)(lane->logits + (lane->input.cuts[i].first_row + first) * c->V),
                                   (size_t)(n * c->V) * sizeof(float), MT_COPY_OUT, err));
        }
    }
    return MT_OK;
}

/* The selected rows of micro-batch i. */
static mt_rc head_wanted(mt_lane *lane, int64_t i, const mt_weights *w, mt_err *err)
{
    const mt_config *c = lane->model->config;
    const mt_micro *mb = &lane->input.micros[i];
    if (!mb->n_trained) return MT_OK;
    MT_TRY(mt_head_pick(&lane->run, mb, mt__keeps_x(lane, (int)c->L, false, row_of(lane, i)), err));
    MT_TRY(mt_head_norm(&lane->run, w, lane->run.ends.x, mb->n_trained, err));
    for (int64_t first = 0; first < mb->n_trained; first += lane->run.head_rows) {
        int64_t n = mt_min_i64(lane->run.head_rows, mb->n_trained - first);
        MT_TRY(mt_head_logits(&lane->run, w, first, n, err));
        MT_TRY(mt_copy(lane->compute, lane->logits, lane->run.ends.logits, (size_t)(n * c->V) * sizeof(float), MT_COPY_OUT, err));
        lane->logits += n * c->V;
    }
    return MT_OK;
}

mt_rc mt__visit_head(mt_lane *lane, mt_err *err)
{
    mt_mode mode = mt_sequence_mode(lane->sequence);
    mt_weights w = mt__ring_weights(lane, lane->model->head);
    if (mode == MT_MODE_LOGITS) return head_logits(lane, &w, err);
    if (mode != MT_MODE_CONTINUE) return head_loss(lane, &w, err);
    for (int64_t i = lane->sweep.first; i < lane->sweep.end; i++) MT_TRY(head_wanted(lane, i, &w, err));
    return MT_OK;
}

/* -- backward -------------------------------------------------------------------------------------- */

mt_rc mt__visit_reopen(mt_lane *lane, int layer, mt_err *err)
{
    mt_weights w = mt__ring_weights(lane, unit_of(lane, layer));
    for (int64_t i = lane->sweep.first; i < lane->sweep.end; i++) {
        const mt_acts a = mt__keeps_acts(lane, layer, true, 0, row_of(lane, i));
        MT_TRY(mt_layer_reopen(&lane->run, layer, &w, &lane->input.micros[i], &a, err));
    }
    return MT_OK;
}

mt_rc mt__visit_experts_backward(mt_lane *lane, int unit, mt_err *err)
{
    mt_weights w = mt__ring_weights(lane, unit);
    float *sums = sum_of(lane, unit);
    for (int64_t i = lane->sweep.first_pass; i < lane->sweep.end_pass; i++) {
        const mt_cut_pass *pass = &lane->input.passes[i];
        const pass_rows r = pass_of(lane, lane->model->units[unit].layer, i);
        MT_TRY(mt_layer_experts_backward(&lane->run, unit, &w, sum_at(lane, unit, sums, pass->first), &r.mb, &r.acts,
                                         dx_at(lane, r.row), err));
        MT_TRY(end_micro(lane, unit, sums, pass->end - 1, err));
    }
    return MT_OK;
}

/* A run of layers whose first keeps its input; the others are recomputed from it. */
typedef struct segment {
    int first, end;
    mt_weights w[MT_MAX_SEGMENT];
    mt_grads grads[MT_MAX_SEGMENT];
} segment;

/* One micro-batch through a segment: recompute upward, then backward down. */
static mt_rc backward_micro(mt_lane *lane, segment *g, int64_t i, mt_err *err)
{
    int64_t row = row_of(lane, i);
    const mt_micro *mb = &lane->input.micros[i];
    mt_acts acts[MT_MAX_SEGMENT];
    for (int l = g->first; l < g->end; l++) {
        int at = l - g->first;
        acts[at] = mt__keeps_acts(lane, l, true, at, row);
        acts[at].router = router_sums(lane, i);
        mt_keep kept = l == g->first ? lane->plan->place.layers[l].keep : MT_KEEP_NOTHING;
        MT_TRY(mt_layer_redo(&lane->run, l, &g->w[at], mb, &acts[at], kept, err));
        if (l + 1 == g->end) {
            acts[at].whole = kept >= MT_KEEP_ALL; /* otherwise backward recomputes it chunk by chunk */
            break;
        }
        mt_acts next = mt__keeps_acts(lane, l + 1, true, at + 1, row);
        MT_TRY(mt_layer_finish(&lane->run, l, &g->w[at], mb, &acts[at], next.at[MT_ARRAY_INPUT], err));
    }
    for (int l = g->end - 1; l >= g->first; l--) {
        const int at = l - g->first, u = unit_of(lane, l);
        float *sums = g->grads[at].sums;
        const mt_grads grads = { sum_at(lane, u, sums, i), g->grads[at].fresh };
        MT_TRY(mt_layer_backward(&lane->run, l, &g->w[at], grads, mb, &acts[at], dx_at(lane, row), err));
        MT_TRY(end_micro(lane, u, sums, i, err));
        g->grads[at].fresh = false; /* the next micro-batch adds */
    }
    return MT_OK;
}

mt_rc mt__visit_backward(mt_lane *lane, int first, int end, mt_err *err)
{
    segment g = { .first = first, .end = end };
    for (int l = first; l < end; l++) {
        g.w[l - first] = mt__ring_weights(lane, unit_of(lane, l));
        g.grads[l - first] = mt__grads_take(lane, unit_of(lane, l), sum_of(lane, unit_of(lane, l)));
    }
    for (int64_t i = lane->sweep.first; i < lane->sweep.end; i++) MT_TRY(backward_micro(lane, &g, i, err));
    return MT_OK;
}

mt_rc mt__visit_embed_backward(mt_lane *lane, int slot, mt_err *err)
{
    const int u = lane->model->embed;
    float *sums = lane->sums[slot];
    for (int64_t i = lane->sweep.first; i < lane->sweep.end; i++) {
        MT_TRY(
            mt_embed_backward(&lane->run, sum_at(lane, u, sums, i), &lane->input.micros[i], dx_at(lane, row_of(lane, i)), err));
        MT_TRY(end_micro(lane, u, sums, i, err));
    }
    return MT_OK;
}
