/* step.c - a step: the compute of its visits, and the verdict on its loss and norm.  The order of visits, and what happens
 * between them: plan/sequence.c.
 *
 * Layer-major: while a unit's weights are on the device, every micro-batch of the sweep passes through it. */
#include "engine/internal.h"
#include "optim/clip.h"

#include <math.h>

/* Where a micro-batch's rows begin in the sweep's buffers. */
static int64_t row_of(const mt_engine *e, int64_t micro) { return e->cuts[micro].first_row - e->cuts[e->sweep.first].first_row; }

static void *dx_at(mt_engine *e, int64_t row)
{
    char *dx = mt__buffer(e, MT_BUF_DX, -1, -1);
    return dx + (size_t)(row * e->model->config->D) * mt_dtype_bytes(e->plan->arithmetic.compute);
}

static bool trains(const mt_engine *e) { return mt_sequence_mode(e->sequence) == MT_MODE_TRAIN; }
static int unit_of(const mt_engine *e, int layer) { return mt_layer_first_unit(e->model, layer); }

/* What unit u's gradient is summed in; NULL: it has none. */
static float *sum_of(const mt_engine *e, int u)
{
    int slot = trains(e) ? mt_sequence_sum(e->sequence, u) : -1;
    return slot < 0 ? NULL : e->sums[slot];
}

/* -- forward --------------------------------------------------------------------------------------- */

mt_rc mt__step_embed(mt_engine *e, mt_err *err)
{
    mt_weights w = mt__ring_weights(e, e->model->embed);
    for (int64_t i = e->sweep.first; i < e->sweep.end; i++)
        MT_TRY(mt_embed_forward(&e->run, &w, &e->micros[i], mt__keeps_x(e, 0, trains(e), row_of(e, i)), err));
    return MT_OK;
}

mt_rc mt__step_forward(mt_engine *e, int layer, mt_err *err)
{
    bool train = trains(e);
    mt_weights w = mt__ring_weights(e, unit_of(e, layer));
    for (int64_t i = e->sweep.first; i < e->sweep.end; i++) {
        int64_t row = row_of(e, i);
        mt_acts a = mt__keeps_acts(e, layer, train, 0, row);
        a.at[MT_ARRAY_INPUT] = mt__keeps_x(e, layer, train, row);
        MT_TRY(mt_layer_forward(&e->run, layer, &w, &e->micros[i], &a, mt__keeps_x(e, layer + 1, train, row), err));
    }
    return MT_OK;
}

/* Loss and, in training, the gradient that backward starts from. */
static mt_rc head_loss(mt_engine *e, const mt_weights *w, mt_err *err)
{
    bool train = trains(e);
    float *sum = sum_of(e, e->model->head);
    for (int64_t i = e->sweep.first; i < e->sweep.end; i++) {
        int64_t row = row_of(e, i);
        const void *x = mt__keeps_x(e, (int)e->model->config->L, train, row);
        MT_TRY(mt_head_loss(&e->run, w, sum, &e->micros[i], x, train ? dx_at(e, row) : NULL, e->dscale, e->sum, err));
    }
    return MT_OK;
}

/* Logits of every row. */
static mt_rc head_logits(mt_engine *e, const mt_weights *w, mt_err *err)
{
    const mt_config *c = e->model->config;
    for (int64_t i = e->sweep.first; i < e->sweep.end; i++) {
        const mt_micro *mb = &e->micros[i];
        MT_TRY(mt_head_norm(&e->run, w, mt__keeps_x(e, (int)c->L, false, row_of(e, i)), mb->n, err));
        for (int64_t first = 0; first < mb->n; first += e->run.head_rows) {
            int64_t n = mt_min_i64(e->run.head_rows, mb->n - first);
            MT_TRY(mt_head_logits(&e->run, w, first, n, err));
            MT_TRY(mt__bounce(e, (char *)e->run.ends.logits, (char *)(e->logits + (e->cuts[i].first_row + first) * c->V),
                              (size_t)(n * c->V) * sizeof(float), MT_COPY_OUT, err));
        }
    }
    return MT_OK;
}

/* The wanted rows of micro-batch i. */
static mt_rc head_wanted(mt_engine *e, int64_t i, const mt_weights *w, mt_err *err)
{
    const mt_config *c = e->model->config;
    const mt_micro *mb = &e->micros[i];
    if (!mb->n_trained) return MT_OK;
    MT_TRY(mt_head_pick(&e->run, mb, mt__keeps_x(e, (int)c->L, false, row_of(e, i)), err));
    MT_TRY(mt_head_norm(&e->run, w, e->run.ends.x, mb->n_trained, err));
    for (int64_t first = 0; first < mb->n_trained; first += e->run.head_rows) {
        int64_t n = mt_min_i64(e->run.head_rows, mb->n_trained - first);
        MT_TRY(mt_head_logits(&e->run, w, first, n, err));
        MT_TRY(mt_copy(e->compute, e->logits, e->run.ends.logits, (size_t)(n * c->V) * sizeof(float), MT_COPY_OUT, err));
        e->logits += n * c->V;
    }
    return MT_OK;
}

mt_rc mt__step_head(mt_engine *e, mt_err *err)
{
    mt_mode mode = mt_sequence_mode(e->sequence);
    mt_weights w = mt__ring_weights(e, e->model->head);
    if (mode == MT_MODE_LOGITS) return head_logits(e, &w, err);
    if (mode != MT_MODE_CONTINUE) return head_loss(e, &w, err);
    for (int64_t i = e->sweep.first; i < e->sweep.end; i++) MT_TRY(head_wanted(e, i, &w, err));
    return MT_OK;
}

/* -- backward -------------------------------------------------------------------------------------- */

/* A run of layers whose first keeps its input; the others are redone from it. */
typedef struct segment {
    int first, end;
    mt_weights w[MT_MAX_SEGMENT];
    float *acc[MT_MAX_SEGMENT];
} segment;

/* One micro-batch through a segment: redo upward, then back down. */
static mt_rc backward_micro(mt_engine *e, const segment *g, int64_t i, mt_err *err)
{
    int64_t row = row_of(e, i);
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

mt_rc mt__step_backward(mt_engine *e, int first, int end, mt_err *err)
{
    segment g = { .first = first, .end = end };
    for (int l = first; l < end; l++) {
        g.w[l - first] = mt__ring_weights(e, unit_of(e, l));
        g.acc[l - first] = sum_of(e, unit_of(e, l));
    }
    for (int64_t i = e->sweep.first; i < e->sweep.end; i++) MT_TRY(backward_micro(e, &g, i, err));
    return MT_OK;
}

mt_rc mt__step_embed_backward(mt_engine *e, int slot, mt_err *err)
{
    for (int64_t i = e->sweep.first; i < e->sweep.end; i++)
        MT_TRY(mt_embed_backward(&e->run, e->sums[slot], &e->micros[i], dx_at(e, row_of(e, i)), err));
    return MT_OK;
}

/* -- sums ------------------------------------------------------------------------------------------ */

mt_rc mt__step_read_sums(mt_engine *e, mt_err *err)
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
    MT_TRY(sync_sums(e, err));
    if (isfinite(e->host->sum.loss)) return MT_OK;
    return mt_fail(
        err, MT_ENUMERIC,
        "the loss is not finite (%g) and clipping is off, so the step cannot be skipped.  Resume from the last checkpoint "
        "with a lower learning rate, or set max_grad_norm",
        e->host->sum.loss);
}

/* Over units in order, in double. */
static double sum_of_squares(const mt_engine *e)
{
    double sum = 0;
    for (int u = 0; u < e->model->n_units; u++)
        if (mt__layout(e, u)->n_train) sum += e->host->norms[u];
    return sum;
}

static void fill_result(const mt_engine *e)
{
    const mt_batch *b = e->batch;
    *e->result = (mt_step_result){ .loss = b->n_trained ? e->host->sum.loss / (double)b->n_trained : 0,
                                   .clip_scale = 1,
                                   .n_tokens = b->n_tokens,
                                   .n_trained = b->n_trained,
                                   .n_correct = e->host->sum.correct,
                                   .wait_update_ns = e->wait_update_ns };
}

/* Clip, or skip a step that is not finite. */
static bool clip_step(mt_engine *e)
{
    mt_clip clip = mt_clip_of(sum_of_squares(e), e->hyper->max_grad_norm);
    e->result->clip_scale = clip.scale;
    e->result->skipped = !isfinite(e->result->loss) || !clip.finite;
    if (!e->result->skipped) mt__updates_coef(e, e->hyper, clip.scale);
    e->judged_ns = mt_now_ns();
    return !e->result->skipped;
}

mt_rc mt__step_judge(mt_engine *e, bool all, bool *go, mt_err *err)
{
    *go = false;
    if (!all) return check_loss(e, err);
    MT_TRY(sync_sums(e, err));
    if (trains(e)) mt_trace_turn(e->trace);
    fill_result(e);
    if (!trains(e)) return MT_OK;
    e->result->grad_norm = sqrt(sum_of_squares(e));
    if (!e->updating && !e->only_gradients) *go = clip_step(e);
    return MT_OK;
}

/* -- a step ---------------------------------------------------------------------------------------- */

void mt__step_sweep(mt_engine *e, int64_t number)
{
    sweep *s = &e->sweep;
    s->first = number ? s->end : 0;
    s->end = mt_cut_sweep(e->cuts, e->n_cuts, s->first, e->plan->place.sweep_tokens);
    const mt_cut *last = &e->cuts[s->end - 1];
    s->rows = last->first_row + last->n_rows - e->cuts[s->first].first_row;
}

static int64_t count_sweeps(const mt_engine *e)
{
    int64_t n = 0;
    for (int64_t first = 0; first < e->n_cuts; n++) first = mt_cut_sweep(e->cuts, e->n_cuts, first, e->plan->place.sweep_tokens);
    return n;
}

static mt_rc begin_step(mt_engine *e, const mt_batch *b, const continued *at, mt_err *err)
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
    e->batch = b;
    e->dscale = b->n_trained ? (float)(1.0 / (double)b->n_trained) : 0.0f;
    e->wait_update_ns = e->wait_save_ns = 0;
    return MT_OK;
}

static mt_rc forward_backward(mt_engine *e, const mt_batch *b, mt_step_result *out, mt_err *err)
{
    int64_t start = mt_now_ns();
    e->result = out;
    MT_TRY(begin_step(e, b, NULL, err));
    if (e->trace) mt_trace_host(e->trace, "engine", "load the input", start, mt_now_ns());
    return mt_sequence_run(e->sequence, MT_MODE_TRAIN, count_sweeps(e), err);
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
    e->only_gradients = false;
    e->hyper = h;
    if (e->updating) mt__updates_coef(e, h, 1.0);
    MT_TRY(forward_backward(e, b, out, err));
    MT_TRY(check_updated(e, err));
    if (e->trace && !e->updating && !out->skipped)
        mt_trace_host(e->trace, "engine", "queue the updates", e->judged_ns, mt_now_ns());
    if (!out->skipped) e->t++;
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
    e->only_gradients = true;
    return sticky(e, forward_backward(e, b, out, err), err);
}

/* -- passes that only look ------------------------------------------------------------------------- */

static mt_rc evaluate(mt_engine *e, const mt_batch *b, mt_step_result *out, mt_err *err)
{
    e->updating = false;
    e->result = out;
    MT_TRY(begin_step(e, b, NULL, err));
    return mt_sequence_run(e->sequence, MT_MODE_EVALUATE, count_sweeps(e), err);
}

mt_rc mt_engine_evaluate(mt_engine *e, const mt_batch *b, mt_step_result *out, mt_err *err)
{
    return sticky(e, evaluate(e, b, out, err), err);
}

static mt_rc logits(mt_engine *e, const mt_batch *b, float *out, mt_err *err)
{
    MT_TRY(begin_step(e, b, NULL, err));
    e->logits = out;
    return mt_sequence_run(e->sequence, MT_MODE_LOGITS, count_sweeps(e), err);
}

mt_rc mt_engine_logits(mt_engine *e, const mt_batch *b, float *out, mt_err *err)
{
    return sticky(e, logits(e, b, out, err), err);
}

static mt_rc continue_pass(mt_engine *e, const mt_batch *b, const continued *at, mt_err *err)
{
    MT_TRY(begin_step(e, b, at, err));
    e->logits = mt__buffer(e, MT_BUF_LOGITS_HOST, -1, -1);
    MT_TRY(mt_sequence_run(e->sequence, MT_MODE_CONTINUE, count_sweeps(e), err));
    MT_TRY(mt_record(e->compute, e->sums_ready, err));
    return mt_sync(e->sums_ready, err);
}

mt_rc mt__step_continue(mt_engine *e, const mt_batch *b, const continued *at, mt_err *err)
{
    return sticky(e, continue_pass(e, b, at, err), err);
}
