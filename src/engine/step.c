/* step.c - a step: sweeps forward and backward, then clip and update.
 *
 * Layer-major: while a unit's weights are on the device, every micro-batch of the sweep passes through it.  The engine queues
 * the compute of a unit before it waits for anything the next one needs. */
#include "engine/internal.h"
#include "optim/clip.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Some of a step's micro-batches, and where their rows lie in the sweep's buffers. */
typedef struct sweep {
    int64_t first, end; /* micro-batches */
    int64_t rows;
    bool is_first, is_last;
} sweep;

static int64_t row_of(const mt_engine *e, const sweep *s, int64_t micro)
{
    return e->cuts[micro].first_row - e->cuts[s->first].first_row;
}

static void *dx_at(mt_engine *e, int64_t row)
{
    char *dx = mt__buffer(e, MT_BUF_DX, -1, -1);
    return dx + (size_t)(row * e->model->config->D) * mt_dtype_bytes(e->plan->arithmetic.compute);
}

/* The next unit in the order of visits: acquire it, and afterwards look ahead. */
static mt_rc visit(mt_engine *e, int u, mt_weights *w, mt_err *err)
{
    assert(e->visits[e->visit] == u);
    return mt__ring_acquire(e, u, w, err);
}

static mt_rc leave(mt_engine *e, int u, mt_err *err)
{
    MT_TRY(mt__ring_release(e, u, err));
    MT_TRY(mt__ring_prefetch(e, err));
    MT_TRY(mt__updates_pace(e, err));
    mt__ring_next(e);
    return MT_OK;
}

static int unit_of(const mt_engine *e, int layer) { return mt_layer_first_unit(e->model, layer); }

/* -- forward --------------------------------------------------------------------------------------- */

static mt_rc forward_embed(mt_engine *e, const sweep *s, bool train, mt_err *err)
{
    mt_weights w;
    int u = e->model->embed;
    MT_TRY(visit(e, u, &w, err));
    MT_TRY(mt__keeps_open(e, 0, train, err));
    for (int64_t i = s->first; i < s->end; i++)
        MT_TRY(mt_embed_forward(&e->run, &w, &e->micros[i], mt__keeps_x(e, 0, train, row_of(e, s, i)), err));
    return leave(e, u, err);
}

static mt_rc forward_layer(mt_engine *e, int layer, const sweep *s, bool train, mt_err *err)
{
    mt_weights w;
    int u = unit_of(e, layer);
    MT_TRY(visit(e, u, &w, err));
    MT_TRY(mt__keeps_open(e, layer + 1, train, err));
    for (int64_t i = s->first; i < s->end; i++) {
        int64_t row = row_of(e, s, i);
        mt_acts a = mt__keeps_acts(e, layer, train, 0, row);
        a.at[MT_ARRAY_INPUT] = mt__keeps_x(e, layer, train, row);
        MT_TRY(mt_layer_forward(&e->run, layer, &w, &e->micros[i], &a, mt__keeps_x(e, layer + 1, train, row), err));
    }
    if (train) MT_TRY(mt__keeps_close(e, layer, s->rows, err));
    return leave(e, u, err);
}

/* Loss and, in training, the gradient that backward starts from. */
static mt_rc head(mt_engine *e, const sweep *s, bool train, mt_err *err)
{
    mt_weights w;
    float *acc = NULL;
    int u = e->model->head;
    MT_TRY(visit(e, u, &w, err));
    if (train) MT_TRY(mt__grads_begin(e, u, s->is_first, &acc, err));
    for (int64_t i = s->first; i < s->end; i++) {
        int64_t row = row_of(e, s, i);
        const void *x = mt__keeps_x(e, (int)e->model->config->L, train, row);
        MT_TRY(mt_head_loss(&e->run, &w, acc, &e->micros[i], x, train ? dx_at(e, row) : NULL, e->dscale, e->sum, err));
    }
    MT_TRY(leave(e, u, err));
    return train && !mt_unit_is_tied(e->model, u) ? mt__grads_end(e, u, s->is_last, err) : MT_OK;
}

static mt_rc forward(mt_engine *e, const sweep *s, bool train, mt_err *err)
{
    MT_TRY(forward_embed(e, s, train, err));
    for (int l = 0; l < e->model->config->L; l++) MT_TRY(forward_layer(e, l, s, train, err));
    return MT_OK;
}

/* -- backward -------------------------------------------------------------------------------------- */

/* A run of layers whose first keeps its input; the others are redone from it. */
typedef struct segment {
    int first, end;
    mt_weights w[MT_MAX_SEGMENT];
    float *acc[MT_MAX_SEGMENT];
} segment;

static mt_rc acquire_segment(mt_engine *e, segment *g, const sweep *s, mt_err *err)
{
    for (int l = g->first; l < g->end; l++) {
        MT_TRY(visit(e, unit_of(e, l), &g->w[l - g->first], err));
        if (l + 1 < g->end) mt__ring_next(e); /* all of them stay lent */
        MT_TRY(mt__grads_begin(e, unit_of(e, l), s->is_first, &g->acc[l - g->first], err));
    }
    MT_TRY(mt__keeps_fetch(e, g->first, s->rows, err));
    return mt__keeps_acquire(e, g->first, err);
}

static mt_rc release_segment(mt_engine *e, const segment *g, const sweep *s, mt_err *err)
{
    for (int l = g->first; l + 1 < g->end; l++) MT_TRY(mt__ring_release(e, unit_of(e, l), err));
    MT_TRY(mt__keeps_release(e, g->first, err));
    MT_TRY(leave(e, unit_of(e, g->end - 1), err));
    if (s->is_last) MT_TRY(mt__updates_lend(e, g->first, err));
    for (int l = g->end - 1; l >= g->first; l--) MT_TRY(mt__grads_end(e, unit_of(e, l), s->is_last, err));
    return MT_OK;
}

/* One micro-batch through a segment: redo upward, then back down. */
static mt_rc backward_micro(mt_engine *e, const segment *g, const sweep *s, int64_t i, mt_err *err)
{
    int64_t row = row_of(e, s, i);
    const mt_micro *mb = &e->micros[i];
    mt_acts acts[MT_MAX_SEGMENT];
    for (int l = g->first; l < g->end; l++) {
        int at = l - g->first;
        acts[at] = mt__keeps_acts(e, l, true, at, row);
        mt_keep kept = l == g->first ? e->plan->place.layers[l].keep : MT_KEEP_NOTHING;
        MT_TRY(mt_layer_redo(&e->run, l, &g->w[at], mb, &acts[at], kept, err));
        if (l + 1 == g->end) {
            acts[at].whole = kept >= MT_KEEP_ALL; /* else backward redoes it chunk by chunk */
            break;
        }
        mt_acts next = mt__keeps_acts(e, l + 1, true, at + 1, row);
        MT_TRY(mt_layer_finish(&e->run, l, &g->w[at], mb, &acts[at], next.at[MT_ARRAY_INPUT], err));
    }
    for (int l = g->end - 1; l >= g->first; l--)
        MT_TRY(mt_layer_backward(&e->run, l, &g->w[l - g->first], g->acc[l - g->first], mb, &acts[l - g->first], dx_at(e, row),
                                 err));
    return MT_OK;
}

/* Backward ends with the segment that holds the first trained layer; L: no layer needs it. */
static int lowest_layer(const mt_engine *e)
{
    int first = mt_model_lowest_layer(e->model);
    return first >= e->model->config->L ? first : mt_plan_segment_start(e->plan, first);
}

static mt_rc backward_layers(mt_engine *e, const sweep *s, mt_err *err)
{
    int lowest = lowest_layer(e);
    for (int end = (int)e->model->config->L; end > lowest;) {
        segment g = { .first = mt_plan_segment_start(e->plan, end - 1), .end = end };
        MT_TRY(acquire_segment(e, &g, s, err));
        if (g.first > lowest) MT_TRY(mt__keeps_fetch(e, mt_plan_segment_start(e->plan, g.first - 1), s->rows, err));
        for (int64_t i = s->first; i < s->end; i++) MT_TRY(backward_micro(e, &g, s, i, err));
        MT_TRY(release_segment(e, &g, s, err));
        end = g.first;
    }
    return MT_OK;
}

static mt_rc backward_embed(mt_engine *e, const sweep *s, mt_err *err)
{
    float *acc;
    int u = e->model->embed;
    if (!mt__layout(e, u)->n_train) return MT_OK;
    MT_TRY(mt_unit_is_tied(e->model, u) ? mt__grads_begin_tied(e, s->is_first, &acc, err)
                                        : mt__grads_begin(e, u, s->is_first, &acc, err));
    for (int64_t i = s->first; i < s->end; i++)
        MT_TRY(mt_embed_backward(&e->run, acc, &e->micros[i], dx_at(e, row_of(e, s, i)), err));
    return mt__grads_end(e, u, s->is_last, err);
}

/* -- the order of visits --------------------------------------------------------------------------- */

static void plan_visits(mt_engine *e, bool train)
{
    int n = 0, L = (int)e->model->config->L, lowest = lowest_layer(e);
    e->visits[n++] = e->model->embed;
    for (int l = 0; l < L; l++) e->visits[n++] = unit_of(e, l);
    e->visits[n++] = e->model->head;
    for (int end = L; train && end > lowest;) {
        int first = mt_plan_segment_start(e->plan, end - 1);
        for (int l = first; l < end; l++) e->visits[n++] = unit_of(e, l);
        end = first;
    }
    e->n_visits = n;
    mt__ring_begin(e);
}

/* -- a step ---------------------------------------------------------------------------------------- */

static mt_rc read_sums(mt_engine *e, mt_err *err)
{
    size_t bytes = sizeof *e->host + (size_t)e->model->n_units * sizeof(double);
    MT_TRY(mt_copy_small(e->compute, e->host, e->sum, bytes, MT_COPY_OUT, err));
    return mt_record(e->compute, e->sums_ready, err);
}

static mt_rc sync_sums(mt_engine *e, mt_err *err)
{
    int64_t start = mt_now_ns();
    MT_TRY(mt_sync(e->sums_ready, err));
    if (e->trace) mt_trace_host(e->trace, "engine", "wait for the sums", start, mt_now_ns());
    return mt__updates_check(e, err);
}

/* Without clipping a broken loss must be known before anything is updated from it. */
static mt_rc check_loss(mt_engine *e, mt_err *err)
{
    MT_TRY(read_sums(e, err));
    MT_TRY(sync_sums(e, err));
    if (isfinite(e->host->sum.loss)) return MT_OK;
    return mt_fail(
        err, MT_ENUMERIC,
        "the loss is not finite (%g) and clipping is off, so the step cannot be skipped.  Resume from the last checkpoint "
        "with a lower learning rate, or set max_grad_norm",
        e->host->sum.loss);
}

static mt_rc run_sweep(mt_engine *e, const sweep *s, bool train, mt_err *err)
{
    MT_TRY(forward(e, s, train, err));
    MT_TRY(head(e, s, train, err));
    if (!train) return MT_OK;
    if (e->updating) MT_TRY(check_loss(e, err));
    MT_TRY(backward_layers(e, s, err));
    MT_TRY(backward_embed(e, s, err));
    return e->any_borrows || s->is_last ? mt__updates_return_all(e, err) : MT_OK;
}

static int64_t count_sweeps(const mt_engine *e)
{
    int64_t n = 0;
    for (int64_t first = 0; first < e->n_cuts; n++) first = mt_cut_sweep(e->cuts, e->n_cuts, first, e->plan->place.sweep_tokens);
    return n;
}

static mt_rc run_sweeps(mt_engine *e, bool train, mt_err *err)
{
    e->n_sweeps = count_sweeps(e);
    e->sweep = 0;
    for (int64_t first = 0, end; first < e->n_cuts; first = end, e->sweep++) {
        end = mt_cut_sweep(e->cuts, e->n_cuts, first, e->plan->place.sweep_tokens);
        const mt_cut *last = &e->cuts[end - 1];
        sweep s = { .first = first, .end = end, .rows = last->first_row + last->n_rows - e->cuts[first].first_row,
                    .is_first = first == 0, .is_last = end == e->n_cuts };
        e->last_sweep = s.is_last;
        MT_TRY(run_sweep(e, &s, train, err));
    }
    return MT_OK;
}

static mt_rc begin_step(mt_engine *e, const mt_batch *b, const continued *at, bool train, mt_err *err)
{
    MT_TRY(mt_watch_check(&e->watch, err));
    mt_rc rc = mt__input_check(e, b, err);
    e->refused = rc != MT_OK;
    if (rc) return rc;
    e->in_flight = true;
    MT_TRY(mt__input_load(e, b, at, err));
    /* Not the norms: copies of the last step's may still be on their way out.  Each is overwritten by its unit.  Not n_bad
     * either: the last step's updates may just have added to it, and nobody has looked since. */
    MT_TRY(mt_fill(e->compute, e->sum, 0, sizeof *e->sum, err));
    plan_visits(e, train);
    e->dscale = b->n_trained ? (float)(1.0 / (double)b->n_trained) : 0.0f;
    e->wait_update_ns = e->wait_save_ns = 0;
    return MT_OK;
}

/* Over units in order, in double. */
static double sum_of_squares(const mt_engine *e)
{
    double sum = 0;
    for (int u = 0; u < e->model->n_units; u++)
        if (mt__layout(e, u)->n_train) sum += e->host->norms[u];
    return sum;
}

static void fill_result(const mt_engine *e, const mt_batch *b, mt_step_result *out)
{
    *out = (mt_step_result){ .loss = b->n_trained ? e->host->sum.loss / (double)b->n_trained : 0, .clip_scale = 1,
                             .n_tokens = b->n_tokens, .n_trained = b->n_trained, .n_correct = e->host->sum.correct,
                             .wait_update_ns = e->wait_update_ns };
}

static mt_rc forward_backward(mt_engine *e, const mt_batch *b, mt_step_result *out, mt_err *err)
{
    int64_t start = mt_now_ns();
    MT_TRY(begin_step(e, b, NULL, true, err));
    if (e->trace) mt_trace_host(e->trace, "engine", "load the input", start, mt_now_ns());
    MT_TRY(run_sweeps(e, true, err));
    MT_TRY(read_sums(e, err));
    if (!e->updating) MT_TRY(mt__updates_stage_ahead(e, err));
    MT_TRY(sync_sums(e, err));
    mt_trace_turn(e->trace);
    fill_result(e, b, out);
    out->grad_norm = sqrt(sum_of_squares(e));
    return MT_OK;
}

static mt_rc check_updated(mt_engine *e, mt_err *err)
{
    char name[MT_NAME_BYTES];
    for (int u = 0; e->updating && u < e->model->n_units; u++)
        if (mt__layout(e, u)->n_train && !isfinite(e->host->norms[u])) {
            mt_unit_name(e->model, u, name);
            return mt_fail(err, MT_ENUMERIC,
                           "the gradient of the %s is not finite; nothing of it was applied.  Resume from the last checkpoint",
                           name);
        }
    return MT_OK;
}

/* Clip and update, or skip a step that is not finite. */
static mt_rc finish_step(mt_engine *e, const mt_hyper *h, mt_step_result *out, mt_err *err)
{
    if (e->updating) {
        MT_TRY(check_updated(e, err));
        e->t++;
        return MT_OK;
    }
    mt_clip clip = mt_clip_of(sum_of_squares(e), h->max_grad_norm);
    out->clip_scale = clip.scale;
    out->skipped = !isfinite(out->loss) || !clip.finite;
    if (out->skipped) return mt__updates_drop(e, err);
    int64_t start = mt_now_ns();
    mt__updates_coef(e, h, clip.scale);
    MT_TRY(mt__updates_all(e, err));
    if (e->trace) mt_trace_host(e->trace, "engine", "queue the updates", start, mt_now_ns());
    e->t++;
    return MT_OK;
}

/* Whatever fails here has failed for the whole run: wake everyone, remember it.  Only a batch that was refused before anything
 * was queued is the caller's to mend. */
static mt_rc sticky(mt_engine *e, mt_rc rc, mt_err *err)
{
    if (rc && !e->refused) mt_watch_fail(&e->watch, err);
    return rc;
}

static mt_rc step(mt_engine *e, const mt_batch *b, const mt_hyper *h, mt_step_result *out, mt_err *err)
{
    if (!b->n_trained) { /* weight decay alone would be a step nobody asked for */
        *out = (mt_step_result){ .loss = NAN, .clip_scale = 1, .n_tokens = b->n_tokens, .empty = true };
        return mt_watch_check(&e->watch, err);
    }
    e->updating = !e->plan->job.clip;
    if (e->updating) mt__updates_coef(e, h, 1.0);
    MT_TRY(forward_backward(e, b, out, err));
    MT_TRY(finish_step(e, h, out, err));
    out->wait_save_ns = e->wait_save_ns;
    return MT_OK;
}

mt_rc mt_engine_step(mt_engine *e, const mt_batch *b, const mt_hyper *h, mt_step_result *out, mt_err *err)
{
    if (!e->plan->job.train || e->plan->job.only_gradients) return mt_fail(err, MT_EINVAL, "this plan is for evaluation only");
    return sticky(e, step(e, b, h, out, err), err);
}

mt_rc mt_engine_gradients(mt_engine *e, const mt_batch *b, mt_step_result *out, mt_err *err)
{
    if (!e->plan->job.train || !e->plan->job.clip)
        return mt_fail(err, MT_EINVAL, "gradients can be read only under a plan that trains and clips");
    e->updating = false;
    mt_rc rc = forward_backward(e, b, out, err);
    if (!rc) rc = mt__updates_drop(e, err);
    return sticky(e, rc, err);
}

static mt_rc evaluate(mt_engine *e, const mt_batch *b, mt_step_result *out, mt_err *err)
{
    e->updating = false;
    MT_TRY(begin_step(e, b, NULL, false, err));
    MT_TRY(run_sweeps(e, false, err));
    MT_TRY(read_sums(e, err));
    MT_TRY(sync_sums(e, err));
    fill_result(e, b, out);
    return MT_OK;
}

mt_rc mt_engine_evaluate(mt_engine *e, const mt_batch *b, mt_step_result *out, mt_err *err)
{
    return sticky(e, evaluate(e, b, out, err), err);
}

/* -- logits ---------------------------------------------------------------------------------------- */

static mt_rc copy_logits(mt_engine *e, const sweep *s, const mt_weights *w, float *out, mt_err *err)
{
    const mt_config *c = e->model->config;
    for (int64_t i = s->first; i < s->end; i++) {
        const mt_micro *mb = &e->micros[i];
        MT_TRY(mt_head_norm(&e->run, w, mt__keeps_x(e, (int)c->L, false, row_of(e, s, i)), mb->n, err));
        for (int64_t first = 0; first < mb->n; first += e->run.head_rows) {
            int64_t n = mt_min_i64(e->run.head_rows, mb->n - first);
            MT_TRY(mt_head_logits(&e->run, w, first, n, err));
            MT_TRY(mt__bounce(e, (char *)e->run.ends.logits, (char *)(out + (e->cuts[i].first_row + first) * c->V),
                              (size_t)(n * c->V) * sizeof(float), MT_COPY_OUT, err));
        }
    }
    return MT_OK;
}

static mt_rc logits(mt_engine *e, const mt_batch *b, float *out, mt_err *err)
{
    MT_TRY(begin_step(e, b, NULL, false, err));
    for (int64_t first = 0, end; first < e->n_cuts; first = end) {
        mt_weights w;
        end = mt_cut_sweep(e->cuts, e->n_cuts, first, e->plan->place.sweep_tokens);
        sweep s = { .first = first, .end = end, .is_first = first == 0, .is_last = end == e->n_cuts };
        e->last_sweep = s.is_last;
        MT_TRY(forward(e, &s, false, err));
        MT_TRY(visit(e, e->model->head, &w, err));
        MT_TRY(copy_logits(e, &s, &w, out, err));
        MT_TRY(leave(e, e->model->head, err));
    }
    return MT_OK;
}

mt_rc mt_engine_logits(mt_engine *e, const mt_batch *b, float *out, mt_err *err)
{
    return sticky(e, logits(e, b, out, err), err);
}

/* -- generation ------------------------------------------------------------------------------------ */

/* The wanted rows of micro-batch i, to `out` on the host. */
static mt_rc copy_wanted(mt_engine *e, const sweep *s, int64_t i, const mt_weights *w, float *out, mt_err *err)
{
    const mt_config *c = e->model->config;
    const mt_micro *mb = &e->micros[i];
    if (!mb->n_trained) return MT_OK;
    MT_TRY(mt_head_pick(&e->run, mb, mt__keeps_x(e, (int)c->L, false, row_of(e, s, i)), err));
    MT_TRY(mt_head_norm(&e->run, w, e->run.ends.x, mb->n_trained, err));
    for (int64_t first = 0; first < mb->n_trained; first += e->run.head_rows) {
        int64_t n = mt_min_i64(e->run.head_rows, mb->n_trained - first);
        MT_TRY(mt_head_logits(&e->run, w, first, n, err));
        MT_TRY(mt_copy(e->compute, out + first * c->V, e->run.ends.logits, (size_t)(n * c->V) * sizeof(float), MT_COPY_OUT, err));
    }
    return MT_OK;
}

static mt_rc continue_pass(mt_engine *e, const mt_batch *b, const continued *at, mt_err *err)
{
    float *out = mt__buffer(e, MT_BUF_LOGITS_HOST, -1, -1);
    MT_TRY(begin_step(e, b, at, false, err));
    e->last_sweep = false; /* another pass will follow: the ring wraps round to the embedding */
    for (int64_t first = 0, end; first < e->n_cuts; first = end) {
        mt_weights w;
        end = mt_cut_sweep(e->cuts, e->n_cuts, first, e->plan->place.sweep_tokens);
        sweep s = { .first = first, .end = end, .is_first = first == 0, .is_last = end == e->n_cuts };
        MT_TRY(forward(e, &s, false, err));
        MT_TRY(visit(e, e->model->head, &w, err));
        for (int64_t i = first; i < end; i++) {
            MT_TRY(copy_wanted(e, &s, i, &w, out, err));
            out += e->micros[i].n_trained * e->model->config->V;
        }
        MT_TRY(leave(e, e->model->head, err));
    }
    MT_TRY(mt_record(e->compute, e->sums_ready, err));
    return mt_sync(e->sums_ready, err);
}

mt_rc mt__step_continue(mt_engine *e, const mt_batch *b, const continued *at, mt_err *err)
{
    return sticky(e, continue_pass(e, b, at, err), err);
}
