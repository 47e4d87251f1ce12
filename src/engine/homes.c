/* homes.c - between a unit's state, wherever its home is, and host memory: any number of threads at once, those that load and
 * those that save.
 *
 * State on the device crosses in pieces, through a stream and a pinned buffer that the step does not use.  Threads take the
 * buffer's slots in turn, so while one copies to or from its slot the device works on another. */
#include "engine/state_internal.h"

#include <string.h>

mt_rc mt__homes_create(mt_state *s, const mt_memory *memory, mt_err *err)
{
    home_channel *c = &s->channel;
    char *bounce = mt_memory_find(memory, MT_BUF_BOUNCE_STATE, -1, -1);
    if (!bounce) return MT_OK; /* all homes are on the host */
    MT_TRY(s->dev->api->stream_create(s->dev, &c->stream, "state", err));
    pthread_mutex_init(&c->lock, NULL);
    for (int i = 0; i < MT_STATE_SLOTS; i++) pthread_mutex_init(&c->slots[i].busy, NULL);
    c->has_locks = true;
    c->piece_bytes = mt_plan_bounce_bytes(memory->plan);
    for (int i = 0; i < MT_STATE_SLOTS; i++) {
        c->slots[i].bounce = bounce + (size_t)i * c->piece_bytes;
        MT_TRY(mt_event_create(s->dev, &c->slots[i].done, "state", err));
    }
    return MT_OK;
}

void mt__homes_stop(mt_state *s)
{
    s->dev->api->stream_free(s->channel.stream);
    s->channel.stream = NULL;
}

void mt__homes_free(mt_state *s)
{
    home_channel *c = &s->channel;
    if (!c->has_locks) return;
    for (int i = 0; i < MT_STATE_SLOTS; i++) {
        s->dev->api->event_free(c->slots[i].done);
        pthread_mutex_destroy(&c->slots[i].busy);
    }
    pthread_mutex_destroy(&c->lock);
}

/* Whoever writes has settled the engine; whoever reads need not have. */
static mt_rc queue_copy(mt_state *s, home_slot *slot, mt_event *updated, char *device, size_t n, mt_copy_dir dir, mt_err *err)
{
    home_channel *c = &s->channel;
    bool in = dir == MT_COPY_IN;
    pthread_mutex_lock(&c->lock);
    mt_rc rc = in || !updated ? MT_OK : mt_wait(c->stream, updated, err);
    if (!rc) rc = mt_copy(c->stream, in ? device : slot->bounce, in ? slot->bounce : device, n, dir, err);
    bool queued = !rc;
    if (!rc) rc = mt_record(c->stream, slot->done, err);
    if (rc && queued) mt_watch_fail(s->watch, err); /* when that copy ends cannot be known: nothing may be updated any more */
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static mt_rc move_piece(mt_state *s, mt_event *updated, char *device, char *host, size_t n, mt_copy_dir dir, mt_err *err)
{
    home_slot *slot = &s->channel.slots[atomic_fetch_add(&s->channel.turn, 1) % MT_STATE_SLOTS];
    pthread_mutex_lock(&slot->busy);
    /* A copy that could not be waited for may still read the slot. */
    mt_rc rc = dir == MT_COPY_IN ? mt_watch_check(s->watch, err) : MT_OK;
    if (!rc && dir == MT_COPY_IN) memcpy(slot->bounce, host, n);
    if (!rc) rc = queue_copy(s, slot, updated, device, n, dir, err);
    if (!rc) rc = mt_sync(slot->done, err);
    if (!rc && dir == MT_COPY_OUT) memcpy(host, slot->bounce, n);
    pthread_mutex_unlock(&slot->busy);
    return rc;
}

mt_rc mt__home_move(mt_state *s, int unit, void *home, char *host, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    if (!mt__lives_on_device(s, unit)) {
        memcpy(dir == MT_COPY_IN ? home : host, dir == MT_COPY_IN ? host : home, bytes);
        return MT_OK;
    }
    const size_t most = s->channel.piece_bytes;
    for (size_t done = 0; done < bytes; done += most) {
        size_t n = bytes - done < most ? bytes - done : most;
        MT_TRY(move_piece(s, s->units[unit].at_home, (char *)home + done, host + done, n, dir, err));
    }
    return MT_OK;
}

/* Host memory is zero as it comes. */
mt_rc mt__homes_clear(mt_state *s, mt_err *err)
{
    home_channel *c = &s->channel;
    for (int u = 0; u < s->model->n_units; u++) {
        const mt_home *h = &s->units[u].home;
        void *const parts[] = { h->hi, h->lo, h->m, h->v, h->exact };
        for (int k = 0; mt__lives_on_device(s, u) && k < (int)MT_COUNT(parts); k++) {
            size_t bytes =
                k < MT_STATE_KINDS ? mt_state_bytes(s, u, (mt_state_kind)k) : (size_t)mt__state_layout(s, u)->n_exact * 4;
            if (parts[k]) MT_TRY(mt_fill(c->stream, parts[k], 0, bytes, err));
        }
    }
    if (!c->stream) return MT_OK;
    MT_TRY(mt_record(c->stream, c->slots[0].done, err));
    return mt_sync(c->slots[0].done, err);
}
