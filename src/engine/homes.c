/* homes.c - between a unit's state, wherever its home is, and host memory: any number of threads at once, those that load and
 * those that save.
 *
 * What lives on the device crosses in pieces, through a stream and a pinned buffer that the step does not use.  Threads take the
 * buffer's slots in turn, so while one copies to or from its slot the device works on another. */
#include "engine/internal.h"

#include <string.h>

mt_rc mt__homes_create(mt_engine *e, mt_err *err)
{
    char *bounce = mt__buffer(e, MT_BUF_BOUNCE_STATE, -1, -1);
    if (!bounce) return MT_OK; /* everything lives on the host */
    MT_TRY(e->dev->api->stream_create(e->dev, &e->state, "state", err));
    pthread_mutex_init(&e->state_lock, NULL);
    for (int i = 0; i < MT_STATE_SLOTS; i++) pthread_mutex_init(&e->state_slots[i].busy, NULL);
    for (int i = 0; i < MT_STATE_SLOTS; i++) {
        e->state_slots[i].bounce = bounce + (size_t)i * MT_BOUNCE_BYTES;
        MT_TRY(mt__event(e, &e->state_slots[i].done, "state", err));
    }
    return MT_OK;
}

void mt__homes_free(mt_engine *e)
{
    if (!e->state) return;
    e->dev->api->stream_free(e->state);
    for (int i = 0; i < MT_STATE_SLOTS; i++) {
        e->dev->api->event_free(e->state_slots[i].done);
        pthread_mutex_destroy(&e->state_slots[i].busy);
    }
    pthread_mutex_destroy(&e->state_lock);
}

/* Who writes has settled the engine; who reads need not have. */
static mt_rc queue_copy(mt_engine *e, state_slot *s, mt_event *updated, char *device, size_t n, mt_copy_dir dir, mt_err *err)
{
    bool in = dir == MT_COPY_IN;
    pthread_mutex_lock(&e->state_lock);
    mt_rc rc = in ? MT_OK : mt_wait(e->state, updated, err);
    if (!rc) rc = mt_copy(e->state, in ? device : s->bounce, in ? s->bounce : device, n, dir, err);
    bool queued = !rc;
    if (!rc) rc = mt_record(e->state, s->done, err);
    if (rc && queued) mt_watch_fail(&e->watch, err); /* when that copy ends is not to be known: nothing may be updated any more */
    pthread_mutex_unlock(&e->state_lock);
    return rc;
}

static mt_rc move_piece(mt_engine *e, mt_event *updated, char *device, char *host, size_t n, mt_copy_dir dir, mt_err *err)
{
    state_slot *s = &e->state_slots[atomic_fetch_add(&e->state_turn, 1) % MT_STATE_SLOTS];
    pthread_mutex_lock(&s->busy);
    /* A copy that nobody could wait for may still read the slot. */
    mt_rc rc = dir == MT_COPY_IN ? mt_watch_check(&e->watch, err) : MT_OK;
    if (!rc && dir == MT_COPY_IN) memcpy(s->bounce, host, n);
    if (!rc) rc = queue_copy(e, s, updated, device, n, dir, err);
    if (!rc) rc = mt_sync(s->done, err);
    if (!rc && dir == MT_COPY_OUT) memcpy(host, s->bounce, n);
    pthread_mutex_unlock(&s->busy);
    return rc;
}

static mt_rc move_all(mt_engine *e, int unit, char *device, char *host, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    mt_event *updated = e->events[mt_sequence_device_updated(e->sequence, unit)];
    for (size_t done = 0; done < bytes; done += MT_BOUNCE_BYTES) {
        size_t n = bytes - done < MT_BOUNCE_BYTES ? bytes - done : MT_BOUNCE_BYTES;
        MT_TRY(move_piece(e, updated, device + done, host + done, n, dir, err));
    }
    return MT_OK;
}

mt_rc mt__home_read(mt_engine *e, int unit, char *home, void *dst, size_t bytes, mt_err *err)
{
    if (mt__place(e, unit)->home == MT_DEVICE) return move_all(e, unit, home, dst, bytes, MT_COPY_OUT, err);
    memcpy(dst, home, bytes);
    return MT_OK;
}

mt_rc mt__home_write(mt_engine *e, int unit, char *home, const void *src, size_t bytes, mt_err *err)
{
    if (mt__place(e, unit)->home == MT_DEVICE) return move_all(e, unit, home, (char *)(uintptr_t)src, bytes, MT_COPY_IN, err);
    memcpy(home, src, bytes);
    return MT_OK;
}
