/* engine.c - creates and frees an engine, waits for it, and reads and writes its state. */
#include "engine/engine.h"

#include "base/rng.h"
#include "engine/internal.h"
#include "model/traits.h"
#include "schedule/slices.h"

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc open_engine(mt_engine *e, const mt_engine_options *options, mt_err *err)
{
    MT_TRY(mt_traits_check(e->model->config, mt_ops_of(e->dev), e->dev->api->kind == MT_DEVICE_CPU ? "CPU" : "GPU", err));
    MT_TRY(mt_memory_init(&e->memory, e->dev, e->plan, NULL, err));
    MT_TRY(mt_state_create(&e->state, e->dev, e->plan, &e->memory, &e->watch, options ? options->n_workers : 0, err));
    MT_TRY(mt__machines_create(e, options ? options->comm : NULL, err));
    MT_TRY(mt_lane_create(&e->lane, e->dev, e->plan, &e->memory, e->state, 0, err));
    return mt__lanes_create(e, options ? options->more : NULL, err);
}

mt_rc mt_engine_create(mt_engine **out, mt_device *dev, const mt_plan *plan, const mt_engine_options *options, mt_err *err)
{
    *out = NULL;
    mt_engine *e = mt_calloc(1, sizeof *e);
    if (!e) return mt_no_memory(err, "the engine");
    e->dev = dev;
    e->plan = plan;
    e->model = plan->model;
    e->numbers = options ? options->numbers : NULL;
    e->in_flight = true; /* the lane's memory is being cleared */
    mt_watch_init(&e->watch);
    pthread_mutex_init(&e->write_lock, NULL);
    mt_rc rc = open_engine(e, options, err);
    if (rc) mt_watch_fail(&e->watch, err); /* other machines must not wait for this one */
    if (rc && options && options->comm) options->comm->api->fail(options->comm, err);
    if (rc)
        mt_engine_free(e);
    else
        *out = e;
    return rc;
}

/* F4: nothing that is freed is in any queue. */
void mt_engine_free(mt_engine *e)
{
    if (!e) return;
    mt__lanes_stop(e);
    mt_state_stop(e->state);
    mt_peers_stop(e->peers);
    mt_lane_free(e->lane);
    mt__lanes_free(e);
    mt__machines_free(e);
    mt_state_free(e->state);
    mt_memory_deinit(&e->memory);
    mt_watch_deinit(&e->watch);
    pthread_mutex_destroy(&e->write_lock);
    mt_free(e);
}

void mt_engine_trace(mt_engine *e, mt_trace *trace)
{
    e->trace = trace;
    mt_lane_trace(e->lane, trace);
    mt_state_trace(e->state, trace);
}

/* -- waiting --------------------------------------------------------------------------------------- */

static mt_rc settle(mt_engine *e, mt_err *err)
{
    if (e->peers) {
        MT_TRY(mt_state_await_done(e->state, -1, err)); /* their streams are empty */
        MT_TRY(mt_peers_settle(e->peers, err));
    }
    MT_TRY(mt__lanes_settle(e, err));
    MT_TRY(mt_state_await_done(e->state, -1, err));
    e->in_flight = false;
    return MT_OK;
}

mt_rc mt_engine_settle(mt_engine *e, mt_err *err)
{
    MT_TRY(mt_watch_check(&e->watch, err));
    if (e->in_flight && settle(e, err)) mt_watch_fail(&e->watch, err);
    return mt_watch_check(&e->watch, err);
}

mt_rc mt_engine_lock(mt_engine *e, mt_err *err)
{
    MT_TRY(mt_state_may_lock(e->state, err));
    MT_TRY(mt_lane_write_back(e->lane, err)); /* the saver waits for the write-backs */
    return mt_state_lock(e->state, err);
}

/* -- state ----------------------------------------------------------------------------------------- */

mt_state *mt_engine_state(mt_engine *e) { return e->state; }

mt_rc mt_engine_read(mt_engine *e, mt_state_range r, void *dst, mt_err *err)
{
    MT_TRY(mt_engine_settle(e, err));
    return mt_state_read(e->state, r, dst, err);
}

/* The unit is about to be written: nothing is in flight, and its weights on devices are old. */
static mt_rc forget(mt_engine *e, int unit, mt_err *err)
{
    pthread_mutex_lock(&e->write_lock);
    mt_rc rc = mt_engine_settle(e, err);
    if (!rc) mt_lane_forget(e->lane, unit);
    for (int i = 0; !rc && i < e->n_more; i++) mt_lane_forget(e->more[i].lane, unit);
    pthread_mutex_unlock(&e->write_lock);
    return rc;
}

mt_rc mt_engine_write(mt_engine *e, mt_state_range r, const void *src, mt_err *err)
{
    MT_TRY(forget(e, r.unit, err));
    MT_TRY(mt_state_write(e->state, r, src, err));
    mt__engine_wrote(e, (size_t)r.n * mt_state_number_bytes(e->state, r.kind));
    return MT_OK;
}

mt_rc mt__engine_packed(mt_engine *e, int unit, uint8_t **out, mt_err *err)
{
    *out = mt_state_home(e->state, unit)->packed;
    return forget(e, unit, err);
}

void mt__engine_wrote(mt_engine *e, size_t bytes)
{
    if (e->wrote) e->wrote(e->wrote_user, bytes);
}

bool mt_engine_stores(const mt_engine *e, mt_state_range r) { return mt_plan_stores(e->plan, r); }

void mt_engine_watch_writes(mt_engine *e, void (*fn)(void *user, size_t bytes), void *user)
{
    e->wrote = fn;
    e->wrote_user = user;
}

static mt_rc read_sliced_grad(mt_engine *e, int unit, float *dst, mt_err *err)
{
    const size_t n = (size_t)e->model->units[unit].layout->n_train;
    const mt_dtype t = e->plan->arithmetic.grad;
    void *copy = mt_malloc(n * mt_dtype_bytes(t));
    if (!copy) return mt_no_memory(err, "a gradient");
    mt_rc rc = mt_state_read_sliced_grad(e->state, unit, copy, err);
    if (!rc) mt_to_f32(dst, copy, t, n);
    mt_free(copy);
    return rc;
}

mt_rc mt_engine_read_grad(mt_engine *e, int unit, float *dst, mt_err *err)
{
    MT_TRY(mt_engine_settle(e, err));
    return mt_plan_is_sliced(e->plan, unit) ? read_sliced_grad(e, unit, dst, err) : mt_lane_read_grad(e->lane, unit, dst, err);
}

static mt_rc hash_state(mt_engine *e, uint64_t *h, mt_err *err)
{
    enum { PART = 4096 };
    char part[PART * 4];
    for (int u = 0; u < e->model->n_units; u++)
        for (mt_state_kind kind = 0; kind < MT_STATE_KINDS; kind++) {
            const mt_state_range all = mt_unit_state(e->model, u, kind);
            if (!mt_state_has(mt_arithmetic_form(&e->plan->arithmetic), kind)) continue;
            for (int64_t at = 0; at < all.n; at += PART) {
                mt_state_range r = mt_state_piece(all, at, PART);
                MT_TRY(mt_state_read_anywhere(e->state, r, part, err));
                *h = mt_hash(part, (size_t)r.n * mt_state_number_bytes(e->state, kind), *h);
            }
        }
    return MT_OK;
}

static mt_rc read_here(void *state, mt_state_range r, void *dst, mt_err *err) { return mt_state_read(state, r, dst, err); }

mt_rc mt_engine_checksum(mt_engine *e, uint64_t *out, mt_err *err)
{
    *out = 0;
    MT_TRY(mt_engine_settle(e, err));
    MT_TRY(mt_state_open_reads(e->state, &(mt_reads){ .here = read_here, .user = e->state }, err));
    mt_rc rc = hash_state(e, out, err);
    if (rc) return (void)mt_state_close_reads(e->state, &(mt_err){ 0 }), rc;
    return mt_state_close_reads(e->state, err);
}
