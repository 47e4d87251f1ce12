#include "engine/lane.h"

#include "device/trace.h"
#include "engine/lane_internal.h"

#include <string.h>

/* -- helpers for the parts ---------------------------------------------------------------------------- */

mt_rc mt__lane_bounce(mt_lane *lane, char *device, char *host, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    char *via = mt_memory_find(lane->memory, MT_BUF_BOUNCE, -1, -1);
    const bool in = dir == MT_COPY_IN;
    const size_t most = mt_plan_bounce_bytes(lane->memory->plan);
    for (size_t done = 0; done < bytes; done += most) {
        size_t n = bytes - done < most ? bytes - done : most;
        if (in) memcpy(via, host + done, n);
        MT_TRY(mt_copy_between(lane->compute, via, device + done, n, dir, err));
        MT_TRY(mt_record(lane->compute, lane->settled[0], err));
        MT_TRY(mt_sync(lane->settled[0], err));
        if (!in) memcpy(host + done, via, n);
    }
    return MT_OK;
}

/* U8.  The host's updater finds its own. */
static mt_rc check_finite(const mt_lane *lane, mt_err *err)
{
    if (!*lane->total.host) return MT_OK;
    return mt_fail(err, MT_ENUMERIC,
                   "%lld weights became non-finite in an update on the device.  Resume from the last checkpoint with a lower "
                   "learning rate",
                   (long long)*lane->total.host);
}

mt_rc mt__lane_await_sums(mt_lane *lane, mt_err *err)
{
    int64_t start = mt_now_ns();
    MT_TRY(mt_sync(lane->total.ready, err));
    if (lane->trace) mt_trace_host(lane->trace, "engine", "wait for the sums", start, mt_now_ns());
    return check_finite(lane, err);
}

/* -- passes ---------------------------------------------------------------------------------------- */

/* This does not clear the norms: copies of the last step's norms may still be in flight, and each unit overwrites its own.  It
 * does not clear n_bad either: the last step's updates may have just added to it, and nothing has read it since. */
static mt_rc clear_sums(mt_lane *lane, mt_err *err)
{
    const lane_router *r = &lane->router;
    const lane_sums *t = &lane->total;
    MT_TRY(mt_fill(lane->compute, t->losses, 0, (size_t)((char *)t->norms - (char *)t->losses), err));
    if (lane->pass.mode != MT_MODE_TRAIN) return MT_OK;
    MT_TRY(mt_fill(lane->compute, lane->total.loads, 0, (size_t)mt_plan_loads(lane->plan) * sizeof *lane->total.loads, err));
    if (!r->counts) return MT_OK;
    const size_t n = (size_t)(lane->input.n_cuts * r->over.E);
    MT_TRY(mt_fill(lane->compute, r->counts, 0, n * sizeof *r->counts, err));
    return mt_fill(lane->compute, r->probs, 0, n * sizeof *r->probs, err);
}

double mt_lane_weight(const mt_plan *plan, const mt_batch *b, bool train)
{
    const bool weighted = train && plan->job.objective.columns & MT_COLUMN_BIT(MT_COLUMN_WEIGHT);
    return weighted ? mt_batch_weight(b) : (double)b->n_trained;
}

static mt_rc begin_pass(mt_lane *lane, const mt_lane_pass *pass, mt_err *err)
{
    const double weight = mt_lane_weight(lane->plan, pass->batch, pass->mode == MT_MODE_TRAIN);
    const int64_t start = mt_now_ns();
    lane->pass = *pass;
    lane->logits = pass->mode == MT_MODE_CONTINUE ? mt_memory_find(lane->memory, MT_BUF_LOGITS_HOST, -1, -1) : pass->logits;
    lane->dscale = weight > 0 ? (float)(1.0 / weight) : 0.0f;
    lane->waits = (mt_lane_waits){ 0 };
    lane->n_update_waits = 0;
    MT_TRY(mt__input_load(lane, err));
    MT_TRY(clear_sums(lane, err));
    if (lane->trace && pass->mode == MT_MODE_TRAIN) mt_trace_host(lane->trace, "engine", "load the input", start, mt_now_ns());
    return MT_OK;
}

mt_rc mt_lane_run(mt_lane *lane, const mt_lane_pass *pass, mt_err *err)
{
    MT_TRY(begin_pass(lane, pass, err));
    const bool parts = mt_plan_by_shares(lane->plan) && pass->mode == MT_MODE_TRAIN;
    lane->n_turns = 0; /* all lanes use the same landing slot for a unit */
    mt_sequence_parts(lane->sequence, parts ? lane->input.ends_part : NULL);
    MT_TRY(mt_sequence_run(lane->sequence, pass->mode, lane->input.n_sweeps, err));
    if (pass->mode != MT_MODE_CONTINUE) return MT_OK;
    MT_TRY(mt_record(lane->compute, lane->total.ready, err));
    return mt_sync(lane->total.ready, err);
}

void mt_lane_set_name(mt_lane *lane, const char *name) { lane->name = name; }
void mt_lane_set_peers(mt_lane *lane, mt_peers *peers) { lane->peers = peers; }
mt_lane_waits mt_lane_waited(const mt_lane *lane) { return lane->waits; }
int64_t mt_lane_experts_fetched(const mt_lane *lane) { return lane->chosen.n_fetched; }
const float *mt_lane_logits(const mt_lane *lane) { return mt_memory_find(lane->memory, MT_BUF_LOGITS_HOST, -1, -1); }

/* -- between passes -------------------------------------------------------------------------------- */

mt_rc mt_lane_write_back(mt_lane *lane, mt_err *err) { return mt_sequence_write_back(lane->sequence, err); }
void mt_lane_forget(mt_lane *lane, int unit) { mt_sequence_forget(lane->sequence, unit); }

mt_rc mt_lane_settle(mt_lane *lane, mt_err *err)
{
    mt_stream *const streams[LANE_STREAMS] = { lane->compute,  lane->copy_in, lane->copy_out,  lane->write_back,
                                               lane->piece_in, lane->piece,   lane->piece_back };
    int64_t *n_bad = lane->total.n_bad;
    int n = lane->piece ? LANE_STREAMS : LANE_STREAMS - PIECE_STREAMS;
    MT_TRY(mt_lane_write_back(lane, err));
    if (lane->piece) {
        MT_TRY(mt_record(lane->piece, lane->settled[0], err));
        MT_TRY(mt_wait(lane->compute, lane->settled[0], err)); /* pieces add to n_bad too */
    }
    MT_TRY(mt_copy_small(lane->compute, lane->total.host, n_bad, sizeof *n_bad, MT_COPY_OUT, err));
    for (int i = 0; i < n; i++) MT_TRY(mt_record(streams[i], lane->settled[i], err));
    for (int i = 0; i < n; i++) MT_TRY(mt_sync(lane->settled[i], err));
    return check_finite(lane, err);
}

mt_rc mt_lane_read_grad(mt_lane *lane, int unit, float *dst, mt_err *err)
{
    const lane_unit *u = &lane->units[unit];
    size_t n = (size_t)mt__layout(lane, unit)->n_train;
    mt_dtype t = lane->plan->arithmetic.grad;
    if (mt_plan_machines(lane->plan) > 1)
        return mt_fail(err, MT_EINVAL, "a machine among several keeps a slice of each gradient, not all of it");
    if (u->parked) return mt_to_f32(dst, u->parked, t, n), MT_OK;
    if (!u->grad_dev) return mt_fail(err, MT_EINVAL, "unit %d keeps no gradient under this plan", unit);
    void *copy = mt_malloc(n * mt_dtype_bytes(t));
    if (!copy) return mt_no_memory(err, "a gradient");
    mt_rc rc = mt__lane_bounce(lane, u->grad_dev, copy, n * mt_dtype_bytes(t), MT_COPY_OUT, err);
    if (!rc) mt_to_f32(dst, copy, t, n);
    mt_free(copy);
    return rc;
}

void mt_lane_trace(mt_lane *lane, mt_trace *trace)
{
    lane->trace = trace;
    lane->ops = lane->run.ops = trace ? &mt_ops_traced : mt_ops_of(lane->dev);
    mt_trace_attach(trace, lane->compute, trace ? "compute" : NULL);
    mt_trace_attach(trace, lane->copy_in, trace ? "copy-in" : NULL);
    mt_trace_attach(trace, lane->copy_out, trace ? "copy-out" : NULL);
    mt_trace_attach(trace, lane->write_back, trace ? "write-back" : NULL);
    if (!lane->piece) return;
    mt_trace_attach(trace, lane->piece_in, trace ? "piece-in" : NULL);
    mt_trace_attach(trace, lane->piece, trace ? "piece" : NULL);
    mt_trace_attach(trace, lane->piece_back, trace ? "piece-back" : NULL);
}

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc open_streams(mt_lane *lane, mt_err *err)
{
    const mt_device_api *api = lane->dev->api;
    MT_TRY(api->stream_create(lane->dev, &lane->compute, "compute", err));
    MT_TRY(api->stream_create(lane->dev, &lane->copy_in, "copy-in", err));
    MT_TRY(api->stream_create(lane->dev, &lane->copy_out, "copy-out", err));
    MT_TRY(api->stream_create(lane->dev, &lane->write_back, "write-back", err));
    if (lane->plan->has_pieces) {
        MT_TRY(api->stream_create(lane->dev, &lane->piece_in, "piece-in", err));
        MT_TRY(api->stream_create(lane->dev, &lane->piece, "piece", err));
        MT_TRY(api->stream_create(lane->dev, &lane->piece_back, "piece-back", err));
    }
    for (int i = 0; i < LANE_STREAMS; i++) MT_TRY(mt_event_create(lane->dev, &lane->settled[i], "end", err));
    for (int i = 0; i < MT_LAND_SLOTS; i++) MT_TRY(mt_event_create(lane->dev, &lane->landed[i], "gradient sums sent", err));
    return mt_event_create(lane->dev, &lane->total.ready, "sums", err);
}

static mt_rc open_sums(mt_lane *lane, mt_err *err)
{
    lane_sums *t = &lane->total;
    size_t n = (size_t)lane->model->n_units, parts = (size_t)mt_arithmetic_parts(&lane->plan->arithmetic);
    t->n_bad = mt_memory_find(lane->memory, MT_BUF_SUMS, -1, -1);
    t->losses = (mt_loss_sum *)(t->n_bad + 1);
    t->router_losses = (double *)(t->losses + parts);
    t->norms = t->router_losses + parts;
    t->loads = (int32_t *)(t->norms + n);
    t->bytes = mt_plan_sums_bytes(lane->plan);
    t->host = mt_memory_find(lane->memory, MT_BUF_SUMS_HOST, -1, -1);
    t->copied.losses = (const mt_loss_sum *)(t->host + 1);
    t->copied.router_losses = (const double *)(t->copied.losses + parts);
    t->copied.norms = t->copied.router_losses + parts;
    t->copied.loads = (const int32_t *)(t->copied.norms + n);
    t->landed_norms = (double *)(void *)((char *)t->host + t->bytes);
    return mt_fill(lane->compute, t->n_bad, 0, t->bytes, err);
}

static void open_router(mt_lane *lane)
{
    lane_router *r = &lane->router;
    if (!mt_plan_balances(lane->plan)) return;
    r->over = lane->model->routed;
    r->counts = mt_memory_find(lane->memory, MT_BUF_ROUTER, -1, -1);
    r->probs = (float *)(r->counts + mt_plan_most_micros(lane->plan) * r->over.E);
}

static mt_rc open_chosen(mt_lane *lane, mt_err *err)
{
    const mt_plan *p = lane->plan;
    const mt_routed *over = &lane->model->routed;
    const int64_t rows = mt_min_i64(p->arithmetic.micro_tokens, p->job.step_tokens);
    if (!p->job.cache_slots || !over->layers) return MT_OK;
    lane->chosen.routes = mt_calloc((size_t)(rows * over->T), sizeof *lane->chosen.routes);
    lane->chosen.experts = mt_calloc((size_t)over->E, sizeof *lane->chosen.experts);
    return lane->chosen.routes && lane->chosen.experts ? MT_OK : mt_no_memory(err, "the experts that a pass has chosen");
}

/* Builds the rope tables on the host and copies them over: cos and sin of the usual table, then of the local one. */
static mt_rc open_rope(mt_lane *lane, mt_err *err)
{
    const mt_config *c = lane->model->config;
    const mt_rope_spec *specs[] = { &c->rope, &c->rope_local };
    int64_t longest = mt_job_positions(&lane->plan->job), short_rows = mt_rope_short_rows(c, longest);
    size_t n = (size_t)((short_rows + longest) * (c->rope.dr / 2)), n_tables = c->has_rope_local ? 2 : 1;
    if (n == 0) return MT_OK;
    float *device = mt_memory_find(lane->memory, MT_BUF_ROPE, -1, -1), *host = mt_calloc(2 * n * n_tables, sizeof *host);
    if (!host) return mt_no_memory(err, "the rotary tables");
    for (size_t i = 0; i < n_tables; i++) {
        mt_rope_tables(specs[i], short_rows, longest, lane->plan->job.prompt, host + 2 * i * n, host + (2 * i + 1) * n);
        lane->run.cos[i] = device + 2 * i * n;
        lane->run.sin[i] = device + (2 * i + 1) * n;
    }
    mt_rc rc = mt__lane_bounce(lane, (char *)device, (char *)host, 2 * n * n_tables * sizeof *host, MT_COPY_IN, err);
    mt_free(host);
    return rc;
}

static mt_rc open_run(mt_lane *lane, mt_err *err)
{
    const mt_arithmetic *a = &lane->plan->arithmetic;
    mt_run *r = &lane->run;
    *r = (mt_run){ .model = lane->model,
                   .ops = lane->ops,
                   .stream = lane->compute,
                   .t = a->compute,
                   .attention = mt_plan_attention(lane->plan),
                   .mlp_rows = mt_min_i64(a->mlp_rows, a->micro_tokens),
                   .head_rows = mt_min_i64(a->head_rows, a->micro_tokens),
                   .scratch = mt_memory_find(lane->memory, MT_BUF_SCRATCH, -1, -1),
                   .scratch_bytes = lane->plan->scratch };
    mt_ends_carve(&r->ends, mt_memory_find(lane->memory, MT_BUF_ENDS, -1, -1), lane->model, a->compute, a->micro_tokens,
                  r->head_rows, lane->plan->job.train);
    return open_rope(lane, err);
}

static mt_rc open_lane(mt_lane *lane, mt_err *err)
{
    lane->units = mt_calloc((size_t)lane->model->n_units, sizeof *lane->units);
    if (!lane->units) return mt_no_memory(err, "the table of gradients");
    MT_TRY(open_streams(lane, err));
    MT_TRY(mt__port_create(lane, err));
    MT_TRY(mt__ring_create(lane, err));
    MT_TRY(mt__keeps_create(lane, err));
    MT_TRY(mt__grads_create(lane, err));
    MT_TRY(mt__updates_create(lane, err));
    MT_TRY(mt__input_create(lane, err));
    MT_TRY(open_sums(lane, err));
    open_router(lane);
    MT_TRY(open_chosen(lane, err));
    return open_run(lane, err);
}

mt_rc mt_lane_create(mt_lane **out, mt_device *dev, const mt_plan *plan, const mt_memory *memory, mt_state *state, int index,
                     mt_err *err)
{
    *out = NULL;
    mt_lane *lane = mt_calloc(1, sizeof *lane);
    if (!lane) return mt_no_memory(err, "a lane");
    lane->dev = dev;
    lane->index = index;
    lane->plan = plan;
    lane->model = plan->model;
    lane->memory = memory;
    lane->state = state;
    lane->ops = mt_ops_of(dev);
    mt_rc rc = open_lane(lane, err);
    if (rc)
        mt_lane_free(lane);
    else
        *out = lane;
    return rc;
}

/* F4: streams before the events and memory that their queues hold. */
void mt_lane_free(mt_lane *lane)
{
    if (!lane) return;
    const mt_device_api *api = lane->dev->api;
    api->stream_free(lane->compute);
    api->stream_free(lane->copy_in);
    api->stream_free(lane->copy_out);
    api->stream_free(lane->write_back);
    api->stream_free(lane->piece_in);
    api->stream_free(lane->piece);
    api->stream_free(lane->piece_back);
    for (int i = 0; i < LANE_STREAMS; i++) api->event_free(lane->settled[i]);
    for (int i = 0; i < MT_LAND_SLOTS; i++) api->event_free(lane->landed[i]);
    api->event_free(lane->total.ready);
    mt__input_free(lane);
    mt__keeps_free(lane);
    mt__port_free(lane);
    mt_free(lane->ring);
    mt_free(lane->sums);
    mt_free(lane->outs);
    mt_free(lane->fresh);
    mt_free(lane->stages);
    mt_free(lane->pieces);
    mt_free(lane->units);
    mt_free(lane->chosen.routes);
    mt_free(lane->chosen.experts);
    mt_free(lane);
}
