/* locks.c - snapshot locks: the state of all units after one update, kept unchanged for a thread that saves it while the next
 * step computes.
 *
 *     lock     (the stepping thread)  from here on no unit is updated until it is unlocked
 *     await    (the saver's)          all state with a host home has been written back
 *     read     (the saver's)          waits for the unit's own update, then copies from its home
 *     unlock   (the saver's)          the unit may be updated again
 *
 * Locking copies nothing: the next update of a unit waits (H1), on the updater's thread for a host update, on the stepping thread
 * for a device update.  The saver never waits for the stepping thread, so there is no cycle of waits (H2).  Several of its
 * threads may read at once (homes.c). */
#include "engine/state_internal.h"

mt_rc mt_state_may_lock(mt_state *s, mt_err *err)
{
    for (int u = 0; u < s->model->n_units; u++)
        if (mt_state_is_locked(s, u)) return mt_fail(err, MT_EINVAL, "unit %d is locked already", u);
    return MT_OK;
}

mt_rc mt_state_lock(mt_state *s, mt_err *err)
{
    MT_TRY(mt_state_may_lock(s, err));
    s->n_locks++;
    for (int u = 0; u < s->model->n_units; u++) s->units[u].locked_version = s->units[u].pushed;
    return mt_watch_check(s->watch, err);
}

void mt_state_unlock(mt_state *s, int unit) { mt_watch_raise(s->watch, &s->units[unit].unlocked, s->n_locks); }

void mt_state_unlock_all(mt_state *s)
{
    for (int u = 0; u < s->model->n_units; u++) mt_state_unlock(s, u);
}

bool mt_state_is_locked(mt_state *s, int unit) { return !mt_watch_reached(s->watch, &s->units[unit].unlocked, s->n_locks); }

/* A saver always unlocks, even if one of its copies may still be running (homes.c): in that case the watch has already failed. */
mt_rc mt_state_await_unlock(mt_state *s, int unit, mt_err *err)
{
    MT_TRY(mt_watch_reach(s->watch, &s->units[unit].unlocked, s->n_locks, err));
    return mt_watch_check(s->watch, err);
}

/* True if the unit is written back to the host after each device update. */
static bool is_written_back(const mt_state *s, int unit) { return s->units[unit].at_home && !mt__lives_on_device(s, unit); }

/* Once a write-back has ended, a device that fails later must not be asked about it again (H4). */
mt_rc mt_state_await_locked(mt_state *s, mt_err *err)
{
    for (int u = 0; u < s->model->n_units; u++)
        if (is_written_back(s, u)) MT_TRY(mt_sync(s->units[u].at_home, err));
    atomic_store(&s->written_lock, s->n_locks);
    return MT_OK;
}

/* A later failure of the run does not matter (H4): if the unit's own update is done and its write-back has ended, nothing has
 * changed it. */
mt_rc mt_state_read_locked(mt_state *s, mt_state_range r, void *dst, mt_err *err)
{
    const state_unit *at = &s->units[r.unit];
    MT_TRY(mt_watch_reach(s->watch, &at->updated, at->locked_version, err));
    if (is_written_back(s, r.unit) && atomic_load(&s->written_lock) != s->n_locks) MT_TRY(mt_sync(at->at_home, err));
    return mt_state_read(s, r, dst, err);
}
