/* hold.c - the state of all units after one update, kept still for another thread that saves it while the next step computes.
 *
 *     hold     (engine's thread)  from here on no unit is updated before it is let go
 *     read     (the saver's)      waits for the unit's own update, then copies from its home
 *     let_go   (the saver's)      the unit may be updated again
 *
 * No second copy of anything: the next update of a unit waits (H1), on the updater's thread where it runs on the host, on the
 * engine's where it is queued on the device.  The saver never waits for the engine's thread, so neither waits for the other in a
 * circle (H2).  Homes on the device are read through a stream and a buffer of the saver's own; several of its threads may read at once. */
#include "engine/internal.h"

#include <string.h>

mt_rc mt__hold_create(mt_engine *e, mt_err *err)
{
    char *bounce = mt__buffer(e, MT_BUF_BOUNCE_SAVE, -1, -1);
    if (!bounce) return MT_OK; /* everything lives on the host */
    MT_TRY(e->dev->api->stream_create(e->dev, &e->save, "save", err));
    pthread_mutex_init(&e->save_lock, NULL);
    for (int i = 0; i < MT_SAVE_SLOTS; i++) pthread_mutex_init(&e->save_slots[i].busy, NULL);
    for (int i = 0; i < MT_SAVE_SLOTS; i++) {
        e->save_slots[i].bounce = bounce + (size_t)i * MT_BOUNCE_BYTES;
        MT_TRY(mt__event(e, &e->save_slots[i].done, "save", err));
    }
    return MT_OK;
}

void mt__hold_free(mt_engine *e)
{
    if (!e->save) return;
    e->dev->api->stream_free(e->save);
    for (int i = 0; i < MT_SAVE_SLOTS; i++) {
        e->dev->api->event_free(e->save_slots[i].done);
        pthread_mutex_destroy(&e->save_slots[i].busy);
    }
    pthread_mutex_destroy(&e->save_lock);
}

mt_rc mt_engine_hold(mt_engine *e, mt_err *err)
{
    for (int u = 0; u < e->model->n_units; u++)
        if (!mt_watch_reached(&e->watch, &e->units[u].let_go, e->n_holds))
            return mt_fail(err, MT_EINVAL, "unit %d is held already", u);
    MT_TRY(mt__updates_return_all(e, err)); /* the saver waits for the write-backs */
    e->n_holds++;
    for (int u = 0; u < e->model->n_units; u++) e->units[u].held_version = e->units[u].version;
    return mt_watch_check(&e->watch, err);
}

void mt_engine_let_go(mt_engine *e, int unit) { mt_watch_raise(&e->watch, &e->units[unit].let_go, e->n_holds); }

bool mt__hold_is_on(mt_engine *e, int u) { return !mt_watch_reached(&e->watch, &e->units[u].let_go, e->n_holds); }

mt_rc mt__hold_wait(mt_engine *e, int u, mt_err *err)
{
    if (!mt__hold_is_on(e, u)) return MT_OK;
    int64_t start = mt_now_ns();
    MT_TRY(mt_watch_reach(&e->watch, &e->units[u].let_go, e->n_holds, err));
    int64_t end = mt_now_ns();
    e->wait_save_ns += end - start;
    mt_trace_host(e->trace, "engine", "wait for a checkpoint", start, end);
    return MT_OK;
}

/* One piece through a slot of the bounce buffer.  Threads take slots in turn, so while one copies out of its slot the device fills another. */
static mt_rc fetch_piece(mt_engine *e, mt_event *updated, const char *at, char *dst, size_t n, mt_err *err)
{
    save_slot *s = &e->save_slots[atomic_fetch_add(&e->save_turn, 1) % MT_SAVE_SLOTS];
    pthread_mutex_lock(&s->busy);
    pthread_mutex_lock(&e->save_lock);
    mt_rc rc = mt_wait(e->save, updated, err);
    if (!rc) rc = mt_copy(e->save, s->bounce, at, n, MT_COPY_OUT, err);
    bool reads = !rc;
    if (!rc) rc = mt_record(e->save, s->done, err);
    if (rc && reads) mt_watch_fail(&e->watch, err); /* when that copy ends is not to be known: nothing may be updated any more */
    pthread_mutex_unlock(&e->save_lock);
    if (!rc) rc = mt_sync(s->done, err);
    if (!rc) memcpy(dst, s->bounce, n);
    pthread_mutex_unlock(&s->busy);
    return rc;
}

static mt_rc fetch_from_device(mt_engine *e, int unit, char *at, char *dst, size_t bytes, mt_err *err)
{
    for (size_t done = 0; done < bytes; done += MT_BOUNCE_BYTES) {
        size_t n = bytes - done < MT_BOUNCE_BYTES ? bytes - done : MT_BOUNCE_BYTES;
        MT_TRY(fetch_piece(e, e->units[unit].device_updated, at + done, dst + done, n, err));
    }
    return MT_OK;
}

static mt_rc fetch_from_host(mt_engine *e, int unit, char *at, char *dst, size_t bytes, mt_err *err)
{
    (void)e, (void)unit, (void)err;
    memcpy(dst, at, bytes);
    return MT_OK;
}

/* That the run has failed since is no matter (H4): if the unit's own update is done and its write-back is there, nothing has changed it. */
mt_rc mt_engine_read_held(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, void *dst, mt_err *err)
{
    unit_state *s = &e->units[unit];
    if (mt__place(e, unit)->home == MT_DEVICE) return mt__state_read(e, unit, kind, first, n, dst, fetch_from_device, err);
    if (mt__place(e, unit)->site == MT_SITE_HOST) MT_TRY(mt_watch_reach(&e->watch, &s->updated, s->held_version, err));
    if (mt__place(e, unit)->site == MT_SITE_STAGED) MT_TRY(mt_sync(s->written, err));
    return mt__state_read(e, unit, kind, first, n, dst, fetch_from_host, err);
}
