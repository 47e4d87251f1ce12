/* port.c - the engine's side of the sequencer: actions become copies and kernels, its events the device's, and its questions are
 * answered by the watch. */
#include "engine/internal.h"

/* -- actions --------------------------------------------------------------------------------------- */

static mt_rc port_issue(void *self, const mt_action *a, mt_err *err)
{
    mt_engine *e = self;
    switch (a->kind) {
    case MT_DO_SWEEP: return mt__step_sweep(e, a->sweep), MT_OK;
    case MT_DO_FETCH: return mt__ring_fetch(e, a->unit, a->slot, err);
    case MT_DO_EMBED: return mt__step_embed(e, err);
    case MT_DO_FORWARD: return mt__step_forward(e, a->layer, err);
    case MT_DO_HEAD: return mt__step_head(e, err);
    case MT_DO_BACKWARD: return mt__step_backward(e, a->layer, a->end, err);
    case MT_DO_EMBED_BACKWARD: return mt__step_embed_backward(e, a->slot, err);
    case MT_DO_KEEP_OUT: return mt__keeps_copy(e, a->layer, MT_COPY_OUT, err);
    case MT_DO_KEEP_IN: return mt__keeps_copy(e, a->layer, MT_COPY_IN, err);
    case MT_DO_SUM_CLEAR: return mt__grads_clear(e, a, err);
    case MT_DO_SUM_IN: return mt__grads_copy(e, a, MT_COPY_IN, err);
    case MT_DO_SUM_OUT: return mt__grads_copy(e, a, MT_COPY_OUT, err);
    case MT_DO_ROUND: return mt__grads_round(e, a, err);
    case MT_DO_NORM: return mt__grads_norm(e, a, err);
    case MT_DO_GRADIENT_OUT: return mt__grads_send(e, a, err);
    case MT_DO_STAGE: return mt__updates_stage(e, a, err);
    case MT_DO_UPDATE_HOST: return mt__updater_push(e, a->unit, mt__grads_host(e, a->unit, a->to), a->version, err);
    case MT_DO_UPDATE_DEVICE: return mt__updates_on_device(e, a->unit, a->in_place, err);
    case MT_DO_UPDATE_STAGED: return mt__updates_staged(e, a, err);
    case MT_DO_WRITE_BACK: return mt__updates_write_back(e, a, err);
    case MT_DO_READ_SUMS: return mt__step_read_sums(e, err);
    case MT_DO_COUNT: break;
    }
    return MT_OK;
}

/* -- events ---------------------------------------------------------------------------------------- */

static mt_stream *stream_of(const mt_engine *e, mt_queue queue)
{
    switch (queue) {
    case MT_Q_IN: return e->copy_in;
    case MT_Q_OUT: return e->copy_out;
    case MT_Q_BACK: return e->write_back;
    default: return e->compute;
    }
}

static mt_rc port_record(void *self, mt_queue queue, int event, mt_err *err)
{
    mt_engine *e = self;
    return mt_record(stream_of(e, queue), e->events[event], err);
}

static mt_rc port_wait(void *self, mt_queue queue, int event, mt_err *err)
{
    mt_engine *e = self;
    if (queue != MT_Q_ADAM) return mt_wait(stream_of(e, queue), e->events[event], err);
    e->updater.after = e->events[event]; /* its thread waits, with the next job */
    return MT_OK;
}

/* -- questions ------------------------------------------------------------------------------------- */

static bool port_updated(void *self, int unit, int64_t version)
{
    mt_engine *e = self;
    return mt_watch_reached(&e->watch, &e->units[unit].updated, version);
}

static mt_rc port_await_update(void *self, int unit, int64_t version, mt_err *err)
{
    mt_engine *e = self;
    int64_t start = mt_now_ns();
    MT_TRY(mt_watch_reach(&e->watch, &e->units[unit].updated, version, err));
    int64_t end = mt_now_ns();
    e->wait_update_ns += end - start;
    mt_trace_host(e->trace, "engine", "wait for an update on the host", start, end);
    return MT_OK;
}

static bool port_locked(void *self, int unit) { return mt__hold_is_on(self, unit); }
static mt_rc port_await_unlock(void *self, int unit, mt_err *err) { return mt__hold_wait(self, unit, err); }

static mt_rc port_await_jobs(void *self, int64_t jobs, mt_err *err)
{
    mt_engine *e = self;
    return mt_watch_reach(&e->watch, &e->updater.done, jobs, err);
}

static mt_rc port_judge(void *self, bool all, bool *go, mt_err *err) { return mt__step_judge(self, all, go, err); }

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

mt_rc mt__port_create(mt_engine *e, mt_err *err)
{
    MT_TRY(mt_sequence_create(&e->sequence, e->model, err));
    mt_sequence_open(e->sequence, e->plan, &port, e);
    int n = mt_sequence_events(e->sequence);
    e->events = mt_calloc((size_t)n, sizeof *e->events);
    if (!e->events) return mt_no_memory(err, "the table of events");
    for (; e->n_events < n; e->n_events++)
        MT_TRY(mt__event(e, &e->events[e->n_events], mt_sequence_event_name(e->sequence, e->n_events), err));
    return MT_OK;
}

void mt__port_free(mt_engine *e)
{
    for (int i = 0; i < e->n_events; i++) e->dev->api->event_free(e->events[i]);
    mt_free(e->events);
    mt_sequence_free(e->sequence);
}
