/* hold.c - the state of all units after one update, kept still for another thread that saves it while the next step computes.
 *
 *     hold     (engine's thread)  from here on no unit is updated before it is let go
 *     await    (the saver's)      all of it that lies in host memory has come there
 *     read     (the saver's)      waits for the unit's own update, then copies from its home
 *     let_go   (the saver's)      the unit may be updated again
 *
 * No second copy of anything: the next update of a unit waits (H1), on the updater's thread where it runs on the host, on the
 * engine's where it is queued on the device.  The saver never waits for the engine's thread, so neither waits for the other in a
 * circle (H2).  Several of its threads may read at once (homes.c). */
#include "engine/internal.h"

mt_rc mt_engine_hold(mt_engine *e, mt_err *err)
{
    for (int u = 0; u < e->model->n_units; u++)
        if (!mt_watch_reached(&e->watch, &e->units[u].let_go, e->n_holds))
            return mt_fail(err, MT_EINVAL, "unit %d is held already", u);
    MT_TRY(mt_sequence_write_back(e->sequence, err)); /* the saver waits for the write-backs */
    e->n_holds++;
    for (int u = 0; u < e->model->n_units; u++) e->units[u].held_version = mt_sequence_version(e->sequence, u);
    return mt_watch_check(&e->watch, err);
}

void mt_engine_let_go(mt_engine *e, int unit) { mt_watch_raise(&e->watch, &e->units[unit].let_go, e->n_holds); }

bool mt__hold_is_on(mt_engine *e, int u) { return !mt_watch_reached(&e->watch, &e->units[u].let_go, e->n_holds); }

/* A saver lets go whatever happened to it, also when a copy of its may go on (homes.c): then the watch has failed before. */
mt_rc mt__hold_wait(mt_engine *e, int u, mt_err *err)
{
    if (!mt__hold_is_on(e, u)) return mt_watch_check(&e->watch, err);
    int64_t start = mt_now_ns();
    MT_TRY(mt_watch_reach(&e->watch, &e->units[u].let_go, e->n_holds, err));
    int64_t end = mt_now_ns();
    e->wait_save_ns += end - start;
    mt_trace_host(e->trace, "engine", "wait for a checkpoint", start, end);
    return mt_watch_check(&e->watch, err);
}

/* A device that fails later must not be asked whether a write-back of long ago is there (H4). */
mt_rc mt_engine_await_held(mt_engine *e, mt_err *err)
{
    for (int u = 0; u < e->model->n_units; u++) {
        const mt_unit_place *at = mt__place(e, u);
        if (at->home == MT_HOST && at->site == MT_SITE_STAGED)
            MT_TRY(mt_sync(e->events[mt_sequence_written(e->sequence, u)], err));
    }
    atomic_store(&e->held_there, e->n_holds);
    return MT_OK;
}

/* That the run has failed since is no matter (H4): if the unit's own update is done and its write-back is there, nothing has
 * changed it. */
mt_rc mt_engine_read_held(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, void *dst, mt_err *err)
{
    unit_state *s = &e->units[unit];
    const mt_unit_place *at = mt__place(e, unit);
    if (at->home == MT_HOST && at->site == MT_SITE_HOST) MT_TRY(mt_watch_reach(&e->watch, &s->updated, s->held_version, err));
    bool there = at->home != MT_HOST || at->site != MT_SITE_STAGED || atomic_load(&e->held_there) == e->n_holds;
    if (!there) MT_TRY(mt_sync(e->events[mt_sequence_written(e->sequence, unit)], err));
    return mt__state_read(e, unit, kind, first, n, dst, err);
}
