/* engine.c - creating and releasing an engine, and waiting for it. */
#include "engine/engine.h"

#include "engine/internal.h"
#include "model/traits.h"

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc open_streams(mt_engine *e, mt_err *err)
{
    const mt_device_api *api = e->dev->api;
    MT_TRY(api->stream_create(e->dev, &e->compute, "compute", err));
    MT_TRY(api->stream_create(e->dev, &e->copy_in, "copy-in", err));
    MT_TRY(api->stream_create(e->dev, &e->copy_out, "copy-out", err));
    MT_TRY(api->stream_create(e->dev, &e->write_back, "write-back", err));
    for (size_t i = 0; i < MT_COUNT(e->settled); i++) MT_TRY(mt__event(e, &e->settled[i], "end", err));
    MT_TRY(mt__event(e, &e->input_read, "input", err));
    return mt__event(e, &e->sums_ready, "sums", err);
}

static mt_rc open_units(mt_engine *e, mt_err *err)
{
    static const mt_buffer_kind kinds[MT_STATE_KINDS] = { MT_BUF_HI, MT_BUF_LO, MT_BUF_M, MT_BUF_V };
    for (int u = 0; u < e->model->n_units; u++) {
        unit_state *s = &e->units[u];
        int at = mt_plan_alias(e->plan, u);
        for (int k = 0; k < MT_STATE_KINDS; k++) {
            void *p = mt__buffer(e, kinds[k], at, -1);
            if (p && mt__place(e, u)->home == MT_DEVICE)
                MT_TRY(mt_fill(e->compute, p, 0, mt__state_bytes(e, u, (mt_state_kind)k), err)); /* the host's is zero */
        }
        s->hi = mt__buffer(e, MT_BUF_HI, at, -1);
        s->lo = mt__buffer(e, MT_BUF_LO, at, -1);
        s->exact_home = mt__buffer(e, MT_BUF_EXACT_HOME, at, -1);
        if (s->exact_home && mt__place(e, u)->home == MT_DEVICE)
            MT_TRY(mt_fill(e->compute, s->exact_home, 0, (size_t)mt__layout(e, u)->n_exact * 4, err));
        s->m = mt__buffer(e, MT_BUF_M, at, -1);
        s->v = mt__buffer(e, MT_BUF_V, at, -1);
    }
    return MT_OK;
}

/* The rope tables, made on the host and sent over: cos and sin of the usual ones, then of the local ones. */
static mt_rc open_rope(mt_engine *e, mt_err *err)
{
    const mt_config *c = e->model->config;
    const mt_rope_spec *specs[] = { &c->rope, &c->rope_local };
    int64_t longest = e->plan->job.longest, short_rows = mt_rope_short_rows(&c->rope, longest);
    size_t n = (size_t)((short_rows + longest) * (c->rope.dr / 2)), n_tables = c->has_rope_local ? 2 : 1;
    if (n == 0) return MT_OK;
    float *device = mt__buffer(e, MT_BUF_ROPE, -1, -1), *host = mt_calloc(2 * n * n_tables, sizeof *host);
    if (!host) return mt_no_memory(err, "the rotary tables");
    for (size_t i = 0; i < n_tables; i++) {
        mt_rope_tables(specs[i], short_rows, longest, host + 2 * i * n, host + (2 * i + 1) * n);
        e->run.cos[i] = device + 2 * i * n;
        e->run.sin[i] = device + (2 * i + 1) * n;
    }
    mt_rc rc = mt__bounce(e, (char *)device, (char *)host, 2 * n * n_tables * sizeof *host, MT_COPY_IN, err);
    mt_free(host);
    return rc;
}

static mt_rc open_step(mt_engine *e, mt_err *err)
{
    const mt_job *j = &e->plan->job;
    const mt_arithmetic *a = &e->plan->arithmetic;
    size_t rows = (size_t)a->micro_tokens;
    e->cuts = mt_calloc((size_t)j->step_docs, sizeof *e->cuts);
    e->micros = mt_calloc((size_t)j->step_docs, sizeof *e->micros);
    e->sort_a = mt_calloc(rows, sizeof *e->sort_a);
    e->sort_b = mt_calloc(rows, sizeof *e->sort_b);
    if (!e->cuts || !e->micros || !e->sort_a || !e->sort_b) return mt_no_memory(err, "a step's tables");
    e->sum = mt__buffer(e, MT_BUF_SUMS, -1, -1);
    e->n_bad = (int64_t *)(e->sum + 1);
    e->norms = (double *)(e->n_bad + 1);
    e->host = mt__buffer(e, MT_BUF_SUMS_HOST, -1, -1);
    e->landed_norms = e->host->norms + e->model->n_units;
    e->run = (mt_run){ .model = e->model, .ops = e->ops, .stream = e->compute, .t = a->compute,
                       .attention = mt_plan_attention(e->plan), .mlp_rows = mt_min_i64(a->mlp_rows, a->micro_tokens),
                       .head_rows = mt_min_i64(a->head_rows, a->micro_tokens) };
    e->run.scratch = mt__buffer(e, MT_BUF_SCRATCH, -1, -1);
    mt_ends_carve(&e->run.ends, mt__buffer(e, MT_BUF_ENDS, -1, -1), e->model, a->compute, a->micro_tokens, e->run.head_rows,
                  j->train);
    MT_TRY(mt_fill(e->compute, e->sum, 0, sizeof *e->host + (size_t)e->model->n_units * sizeof(double), err));
    return open_rope(e, err);
}

static mt_rc open_all(mt_engine *e, int n_workers, mt_err *err)
{
    e->units = mt_calloc((size_t)e->model->n_units, sizeof *e->units);
    if (!e->units) return mt_no_memory(err, "the table of units");
    MT_TRY(open_streams(e, err));
    MT_TRY(mt__memory_create(e, err));
    MT_TRY(open_units(e, err));
    MT_TRY(mt__port_create(e, err));
    MT_TRY(mt__ring_create(e, err));
    MT_TRY(mt__keeps_create(e, err));
    MT_TRY(mt__grads_create(e, err));
    MT_TRY(open_step(e, err));
    MT_TRY(mt__homes_create(e, err));
    MT_TRY(mt__updates_create(e, err));
    return mt__updater_create(e, n_workers, err);
}

mt_rc mt_engine_create(mt_engine **out, mt_device *dev, const mt_plan *plan, const mt_engine_options *options, mt_err *err)
{
    *out = NULL;
    mt_engine *e = mt_calloc(1, sizeof *e);
    if (!e) return mt_no_memory(err, "the engine");
    e->dev = dev;
    e->plan = plan;
    e->model = plan->model;
    e->ops = mt_ops_of(dev);
    e->in_flight = true; /* device homes are being cleared */
    mt_watch_init(&e->watch);
    pthread_mutex_init(&e->write_lock, NULL);
    mt_rc rc = mt_traits_check(e->model->config, e->ops, dev->api->kind == MT_DEVICE_CPU ? "CPU" : "GPU", err);
    if (!rc) rc = open_all(e, options ? options->n_workers : 0, err);
    if (rc)
        mt_engine_free(e);
    else
        *out = e;
    return rc;
}

void mt_engine_free(mt_engine *e)
{
    if (!e) return;
    const mt_device_api *api = e->dev->api;
    mt__updater_stop(e);
    api->stream_free(e->compute);
    api->stream_free(e->copy_in);
    api->stream_free(e->copy_out);
    api->stream_free(e->write_back);
    mt__homes_free(e);
    mt__updater_free(e);
    mt__updates_free(e);
    mt__grads_free(e);
    mt__keeps_free(e);
    mt__ring_free(e);
    mt__port_free(e);
    for (int u = 0; e->units && u < e->model->n_units; u++) mt_free(e->units[u].mapped);
    for (size_t i = 0; i < MT_COUNT(e->settled); i++) api->event_free(e->settled[i]);
    api->event_free(e->input_read);
    api->event_free(e->sums_ready);
    mt__memory_free(e);
    mt_free(e->units);
    mt_free(e->cuts);
    mt_free(e->micros);
    mt_free(e->sort_a);
    mt_free(e->sort_b);
    mt_watch_deinit(&e->watch);
    pthread_mutex_destroy(&e->write_lock);
    mt_free(e);
}

void mt_engine_trace(mt_engine *e, mt_trace *trace)
{
    e->trace = trace;
    e->ops = e->run.ops = trace ? &mt_ops_traced : mt_ops_of(e->dev);
    mt_trace_attach(trace, e->compute, trace ? "compute" : NULL);
    mt_trace_attach(trace, e->copy_in, trace ? "copy-in" : NULL);
    mt_trace_attach(trace, e->copy_out, trace ? "copy-out" : NULL);
    mt_trace_attach(trace, e->write_back, trace ? "write-back" : NULL);
}

/* -- state ----------------------------------------------------------------------------------------- */

static mt_rc settle(mt_engine *e, mt_err *err)
{
    mt_stream *const streams[] = { e->compute, e->copy_in, e->copy_out, e->write_back };
    _Static_assert(MT_COUNT(streams) == MT_COUNT(e->settled), "an event for each");
    MT_TRY(mt_sequence_write_back(e->sequence, err));
    for (int u = 0; u < e->model->n_units; u++)
        if (mt__place(e, u)->site == MT_SITE_HOST)
            MT_TRY(mt_watch_reach(&e->watch, &e->units[u].updated, mt_sequence_version(e->sequence, u), err));
    MT_TRY(mt_copy_small(e->compute, &e->host->n_bad, e->n_bad, sizeof *e->n_bad, MT_COPY_OUT, err));
    for (size_t i = 0; i < MT_COUNT(streams); i++) MT_TRY(mt_record(streams[i], e->settled[i], err));
    for (size_t i = 0; i < MT_COUNT(streams); i++) MT_TRY(mt_sync(e->settled[i], err));
    MT_TRY(mt__updates_check(e, err));
    e->in_flight = false;
    return MT_OK;
}

mt_rc mt_engine_settle(mt_engine *e, mt_err *err)
{
    MT_TRY(mt_watch_check(&e->watch, err));
    if (e->in_flight && settle(e, err)) mt_watch_fail(&e->watch, err);
    return mt_watch_check(&e->watch, err);
}

int64_t mt_engine_updates(const mt_engine *e) { return e->t; }
void mt_engine_set_updates(mt_engine *e, int64_t t) { e->t = t; }

mt_rc mt_engine_read_grad(mt_engine *e, int unit, float *dst, mt_err *err)
{
    unit_state *s = &e->units[unit];
    size_t n = (size_t)mt__layout(e, unit)->n_train;
    mt_dtype t = e->plan->arithmetic.grad;
    MT_TRY(mt_engine_settle(e, err));
    if (s->parked) return mt_to_f32(dst, s->parked, t, n), MT_OK;
    if (!s->grad_dev) return mt_fail(err, MT_EINVAL, "unit %d keeps no gradient under this plan", unit);
    void *copy = mt_malloc(n * mt_dtype_bytes(t));
    if (!copy) return mt_no_memory(err, "a gradient");
    mt_rc rc = mt__bounce(e, s->grad_dev, copy, n * mt_dtype_bytes(t), MT_COPY_OUT, err);
    if (!rc) mt_to_f32(dst, copy, t, n);
    mt_free(copy);
    return rc;
}
