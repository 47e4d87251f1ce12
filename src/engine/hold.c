/* hold.c - the state of all units after one update, kept still for another thread that saves it while the next step computes.
 *
 *     hold     (engine's thread)  from here on no unit is updated before it is let go
 *     read     (the saver's)      waits for the unit's own update, then copies from its home
 *     let_go   (the saver's)      the unit may be updated again
 *
 * No second copy of anything: the next update of a unit waits (H1), on the updater's thread where it runs on the host, on the
 * engine's where it is queued on the device.  The saver never waits for the engine's thread, so neither waits for the other in a
 * circle (H2). Homes on the device are read through a stream and a buffer of the saver's own. */
#include "engine/internal.h"

#include <string.h>

mt_rc mt__hold_create(mt_engine *e, mt_err *err)
{
    e->save_bounce = mt__buffer(e, MT_BUF_BOUNCE_SAVE, -1, -1);
    if (!e->save_bounce) return MT_OK; /* everything lives on the host */
    MT_TRY(e->dev->api->stream_create(e->dev, &e->save, "save", err));
    return mt__event(e, &e->save_done, "save", err);
}

void mt__hold_free(mt_engine *e)
{
    e->dev->api->stream_free(e->save);
    e->dev->api->event_free(e->save_done);
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

mt_rc mt__hold_wait(mt_engine *e, int u, mt_err *err)
{
    if (mt_watch_reached(&e->watch, &e->units[u].let_go, e->n_holds)) return MT_OK;
    int64_t from = mt_now_ns();
    MT_TRY(mt_watch_reach(&e->watch, &e->units[u].let_go, e->n_holds, err));
    e->wait_save_ns += mt_now_ns() - from;
    return MT_OK;
}

static mt_rc fetch_from_device(mt_engine *e, int unit, char *at, char *dst, size_t bytes, mt_err *err)
{
    MT_TRY(mt_wait(e->save, e->units[unit].device_updated, err));
    for (size_t done = 0; done < bytes; done += MT_BOUNCE_BYTES) {
        size_t n = bytes - done < MT_BOUNCE_BYTES ? bytes - done : MT_BOUNCE_BYTES;
        MT_TRY(mt_copy(e->save, e->save_bounce, at + done, n, MT_COPY_OUT, err));
        MT_TRY(mt_record(e->save, e->save_done, err));
        MT_TRY(mt_sync(e->save_done, err));
        memcpy(dst + done, e->save_bounce, n);
    }
    return MT_OK;
}

static mt_rc fetch_from_host(mt_engine *e, int unit, char *at, char *dst, size_t bytes, mt_err *err)
{
    (void)e, (void)unit, (void)err;
    memcpy(dst, at, bytes);
    return MT_OK;
}

mt_rc mt_engine_read_held(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, void *dst, mt_err *err)
{
    unit_state *s = &e->units[unit];
    MT_TRY(mt_watch_check(&e->watch, err));
    if (mt__place(e, unit)->home == MT_DEVICE) return mt__state_read(e, unit, kind, first, n, dst, fetch_from_device, err);
    if (mt__place(e, unit)->site == MT_SITE_HOST) MT_TRY(mt_watch_reach(&e->watch, &s->updated, s->held_version, err));
    if (mt__place(e, unit)->site == MT_SITE_STAGED) MT_TRY(mt_sync(s->written, err));
    return mt__state_read(e, unit, kind, first, n, dst, fetch_from_host, err);
}
