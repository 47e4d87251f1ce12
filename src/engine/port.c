/* port.c - a lane's side of the sequencer: actions become copies and kernels, events become device events, and the state answers
 * queries. */
#include "device/trace.h"
#include "engine/lane_internal.h"

/* -- actions --------------------------------------------------------------------------------------- */

static void begin_sweep(mt_lane *lane, int64_t number)
{
    const lane_input *in = &lane->input;
    const int64_t first_pass = number ? in->sweep_end[number - 1] : 0, end_pass = in->sweep_end[number];
    const mt_cut_pass *first = &in->passes[first_pass], *last = &in->passes[end_pass - 1];
    lane->sweep.first_pass = first_pass;
    lane->sweep.end_pass = end_pass;
    lane->sweep.first = first->first;
    lane->sweep.end = last->end;
    lane->sweep.rows = last->first_row + last->n_rows - first->first_row;
}

static mt_rc read_sums(mt_lane *lane, mt_err *err)
{
    lane_sums *t = &lane->total;
    MT_TRY(mt_copy_small(lane->compute, t->host, t->n_bad, t->bytes, MT_COPY_OUT, err));
    return mt_record(lane->compute, t->ready, err);
}

static mt_rc port_issue(void *self, const mt_action *a, mt_err *err)
{
    mt_lane *lane = self;
    if (mt_plan_lanes(lane->plan) > 1) MT_TRY(mt_state_check(lane->state, err)); /* another lane may have failed */
    switch (a->kind) {
    case MT_DO_SWEEP: return begin_sweep(lane, a->sweep), MT_OK;
    case MT_DO_FETCH: return mt__ring_fetch(lane, a->unit, a->slot, err);
    case MT_DO_EMBED: return mt__visit_embed(lane, err);
    case MT_DO_FORWARD: return mt__visit_forward(lane, a->layer, err);
    case MT_DO_ROUTES: return mt__visit_routes(lane, a->layer, err);
    case MT_DO_EXPERTS: return mt__visit_experts(lane, a->unit, err);
    case MT_DO_CLOSE: return mt__visit_close(lane, a->layer, err);
    case MT_DO_HEAD: return mt__visit_head(lane, err);
    case MT_DO_REOPEN: return mt__visit_reopen(lane, a->layer, err);
    case MT_DO_EXPERTS_BACKWARD: return mt__visit_experts_backward(lane, a->unit, err);
    case MT_DO_BACKWARD: return mt__visit_backward(lane, a->layer, a->end, err);
    case MT_DO_EMBED_BACKWARD: return mt__visit_embed_backward(lane, a->slot, err);
    case MT_DO_KEEP_OUT: return mt__keeps_copy(lane, a->layer, MT_COPY_OUT, err);
    case MT_DO_KEEP_IN: return mt__keeps_copy(lane, a->layer, MT_COPY_IN, err);
    case MT_DO_SUM_CLEAR: return mt__grads_clear(lane, a, err);
    case MT_DO_SUM_IN: return mt__grads_copy(lane, a, MT_COPY_IN, err);
    case MT_DO_SUM_OUT: return mt__grads_copy(lane, a, MT_COPY_OUT, err);
    case MT_DO_PART_OUT: return mt__grads_part(lane, a, err);
    case MT_DO_ROUND: return mt__grads_round(lane, a, err);
    case MT_DO_NORM: return mt__grads_norm(lane, a, err);
    case MT_DO_GRADIENT_OUT: return mt__grads_send(lane, a, err);
    case MT_DO_STAGE: return mt__updates_stage(lane, a, err);
    case MT_DO_UPDATE_HOST: return mt__updates_on_host(lane, a, err);
    case MT_DO_UPDATE_DEVICE: return mt__updates_on_device(lane, a->unit, a->in_place, err);
    case MT_DO_UPDATE_STAGED: return mt__updates_staged(lane, a, err);
    case MT_DO_WRITE_BACK: return mt__updates_write_back(lane, a, err);
    case MT_DO_PIECE_IN: return mt__pieces_in(lane, a, err);
    case MT_DO_PIECE_UPDATE: return mt__pieces_update(lane, a, err);
    case MT_DO_PIECE_BACK: return mt__pieces_back(lane, a, err);
    case MT_DO_READ_SUMS: return read_sums(lane, err);
    case MT_DO_COUNT: break;
    }
    return MT_OK;
}

/* -- events ---------------------------------------------------------------------------------------- */

static mt_stream *stream_of(const mt_lane *lane, mt_queue queue)
{
    switch (queue) {
    case MT_Q_IN: return lane->copy_in;
    case MT_Q_OUT: return lane->copy_out;
    case MT_Q_BACK: return lane->write_back;
    case MT_Q_PIECE_IN: return lane->piece_in;
    case MT_Q_PIECE: return lane->piece;
    case MT_Q_PIECE_BACK: return lane->piece_back;
    default: return lane->compute;
    }
}

static mt_rc port_record(void *self, mt_queue queue, int event, mt_err *err)
{
    mt_lane *lane = self;
    return mt_record(stream_of(lane, queue), lane->events[event], err);
}

static mt_rc port_wait(void *self, mt_queue queue, int event, mt_err *err)
{
    mt_lane *lane = self;
    if (queue != MT_Q_ADAM) return mt_wait(stream_of(lane, queue), lane->events[event], err);
    lane->before_update = lane->events[event]; /* the updater waits, with the next job */
    return MT_OK;
}

/* -- queries ------------------------------------------------------------------------------------- */

static bool port_updated(void *self, int unit, int64_t version)
{
    return mt_state_is_updated(((mt_lane *)self)->state, unit, version);
}

static void count_wait(mt_lane *lane, int64_t *sum, const char *name, int64_t start)
{
    int64_t end = mt_now_ns();
    *sum += end - start;
    mt_trace_host(lane->trace, "engine", name, start, end);
}

/* This thread queues ahead, so most of its wait costs nothing: only what is left of it when compute has run dry. */
static mt_rc port_await_update(void *self, int unit, int64_t version, mt_err *err)
{
    mt_lane *lane = self;
    lane_wait *wait = lane->n_update_waits < lane->model->n_units ? &lane->update_waits[lane->n_update_waits] : NULL;
    int64_t start = mt_now_ns();
    if (wait) MT_TRY(mt_record(lane->compute, wait->dry, err));
    MT_TRY(mt_state_await_update(lane->state, unit, version, err));
    mt_trace_host(lane->trace, "engine", "wait for an update on the host", start, mt_now_ns());
    if (!wait) return MT_OK;
    lane->n_update_waits++;
    return mt_record(lane->compute, wait->resumed, err);
}

/* Compute has passed all of them. */
static void count_update_waits(mt_lane *lane)
{
    for (int i = 0; i < lane->n_update_waits; i++)
        lane->waits.update_ns += lane->dev->api->event_span(lane->update_waits[i].dry, lane->update_waits[i].resumed);
    lane->n_update_waits = 0;
}

static bool port_locked(void *self, int unit) { return mt_state_is_locked(((mt_lane *)self)->state, unit); }

static mt_rc port_await_unlock(void *self, int unit, mt_err *err)
{
    mt_lane *lane = self;
    int64_t start = mt_state_is_locked(lane->state, unit) ? mt_now_ns() : 0;
    MT_TRY(mt_state_await_unlock(lane->state, unit, err));
    if (start) count_wait(lane, &lane->waits.save_ns, "wait for a checkpoint", start);
    return MT_OK;
}

static mt_rc port_await_jobs(void *self, int64_t jobs, mt_err *err)
{
    return mt_state_await_done(((mt_lane *)self)->state, jobs, err);
}

static mt_rc port_judge(void *self, bool all, bool *go, mt_err *err)
{
    mt_lane *lane = self;
    *go = false;
    MT_TRY(mt__lane_await_sums(lane, err));
    if (all) count_update_waits(lane);
    lane->total.copied.n_bad = *lane->total.host;
    return lane->pass.judge(lane->pass.self, &lane->total.copied, all, go, err);
}

static const mt_port port = { .issue = port_issue,
                              .record = port_record,
                              .wait = port_wait,
                              .updated = port_updated,
                              .await_update = port_await_update,
                              .locked = port_locked,
                              .await_unlock = port_await_unlock,
                              .await_jobs = port_await_jobs,
                              .judge = port_judge };

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc open_waits(mt_lane *lane, mt_err *err)
{
    const mt_device_api *api = lane->dev->api;
    lane->update_waits = mt_calloc((size_t)lane->model->n_units, sizeof *lane->update_waits);
    if (!lane->update_waits) return mt_no_memory(err, "the table of waits");
    for (int u = 0; u < lane->model->n_units; u++) {
        MT_TRY(api->timed_event_create(lane->dev, &lane->update_waits[u].dry, err));
        MT_TRY(api->timed_event_create(lane->dev, &lane->update_waits[u].resumed, err));
    }
    return MT_OK;
}

mt_rc mt__port_create(mt_lane *lane, mt_err *err)
{
    MT_TRY(mt_sequence_create(&lane->sequence, lane->model, err));
    mt_sequence_open(lane->sequence, lane->plan, &port, lane);
    int n = mt_sequence_events(lane->sequence);
    lane->events = mt_calloc((size_t)n, sizeof *lane->events);
    if (!lane->events) return mt_no_memory(err, "the table of events");
    for (; lane->n_events < n; lane->n_events++)
        MT_TRY(mt_event_create(lane->dev, &lane->events[lane->n_events], mt_sequence_event_name(lane->sequence, lane->n_events),
                               err));
    MT_TRY(open_waits(lane, err));
    for (int u = 0; u < lane->model->n_units; u++) {
        const mt_unit_place *at = mt__place(lane, u);
        if (mt_plan_is_sliced(lane->plan, u)) continue; /* the peers know */
        if (at->home == MT_DEVICE)
            mt_state_follow(lane->state, u, lane->events[mt_sequence_device_updated(lane->sequence, u)]);
        else if (at->site == MT_SITE_STAGED || at->in_pieces)
            mt_state_follow(lane->state, u, lane->events[mt_sequence_written(lane->sequence, u)]);
    }
    return MT_OK;
}

void mt__port_free(mt_lane *lane)
{
    for (int i = 0; i < lane->n_events; i++) lane->dev->api->event_free(lane->events[i]);
    for (int u = 0; lane->update_waits && u < lane->model->n_units; u++) {
        lane->dev->api->event_free(lane->update_waits[u].dry);
        lane->dev->api->event_free(lane->update_waits[u].resumed);
    }
    mt_free(lane->update_waits);
    mt_free(lane->events);
    mt_sequence_free(lane->sequence);
}
