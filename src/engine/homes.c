/* homes.c - copies between a unit's home and host memory, for any number of loading and saving threads at once.
 *
 * State on the device is copied in pieces, through a stream and a pinned buffer that the step does not use.  Threads take the
 * buffer's slots in turn, so while one thread copies to or from its slot, the device works on another. */
#include "engine/state_internal.h"
#include "schedule/slices.h"

#include <string.h>

static mt_rc open_lane(home_lane *l, mt_device *dev, mt_err *err)
{
    l->dev = dev;
    MT_TRY(dev->api->stream_create(dev, &l->stream, "state", err));
    for (int i = 0; i < MT_STATE_SLOTS; i++) MT_TRY(mt_event_create(dev, &l->done[i], "state", err));
    return MT_OK;
}

mt_rc mt__homes_create(mt_state *s, const mt_memory *memory, mt_err *err)
{
    home_channel *c = &s->channel;
    char *bounce = mt_memory_find(memory, MT_BUF_BOUNCE_STATE, -1, -1);
    if (!bounce) return MT_OK; /* all homes are on the host */
    c->lanes = mt_calloc((size_t)mt_plan_lanes(s->plan), sizeof *c->lanes);
    if (!c->lanes) return mt_no_memory(err, "the way to the state");
    pthread_mutex_init(&c->lock, NULL);
    c->piece_bytes = mt_plan_bounce_bytes(memory->plan);
    for (int i = 0; i < MT_STATE_SLOTS; i++) {
        pthread_mutex_init(&c->slots[i].busy, NULL);
        c->slots[i].bounce = bounce + (size_t)i * c->piece_bytes;
    }
    c->has_locks = true;
    c->n_lanes = 1;
    return open_lane(&c->lanes[0], s->dev, err);
}

mt_rc mt__homes_add_lanes(mt_state *s, mt_err *err)
{
    home_channel *c = &s->channel;
    for (int k = 1; c->n_lanes && k < mt_plan_lanes(s->plan); k++) {
        c->n_lanes++;
        MT_TRY(open_lane(&c->lanes[k], mt_peers_device(s->folder.peers, k), err));
    }
    return MT_OK;
}

void mt__homes_stop(mt_state *s)
{
    for (home_lane *l = s->channel.lanes; l && l < s->channel.lanes + s->channel.n_lanes; l++) {
        if (l->dev) l->dev->api->stream_free(l->stream);
        l->stream = NULL;
    }
}

void mt__homes_free(mt_state *s)
{
    home_channel *c = &s->channel;
    if (!c->has_locks) return;
    for (home_lane *l = c->lanes; l < c->lanes + c->n_lanes; l++)
        for (int i = 0; l->dev && i < MT_STATE_SLOTS; i++) l->dev->api->event_free(l->done[i]);
    for (int i = 0; i < MT_STATE_SLOTS; i++) pthread_mutex_destroy(&c->slots[i].busy);
    pthread_mutex_destroy(&c->lock);
    mt_free(c->lanes);
}

/* A writer has settled the engine; a reader need not have. */
static mt_rc queue_copy(mt_state *s, int lane, int slot, mt_event *updated, char *device, size_t n, mt_copy_dir dir, mt_err *err)
{
    home_channel *c = &s->channel;
    home_lane *l = &c->lanes[lane];
    char *bounce = c->slots[slot].bounce;
    pthread_mutex_lock(&c->lock);
    mt_rc rc = dir == MT_COPY_IN || !updated ? MT_OK : mt_wait(l->stream, updated, err);
    if (!rc) rc = mt_copy_between(l->stream, bounce, device, n, dir, err);
    bool queued = !rc;
    if (!rc) rc = mt_record(l->stream, l->done[slot], err);
    if (rc && queued) mt_watch_fail(s->watch, err); /* the end of that copy is unknown: nothing may be updated any more */
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static mt_rc move_piece(mt_state *s, int lane, mt_event *updated, char *device, char *host, size_t n, mt_copy_dir dir,
                        mt_err *err)
{
    const int at = (int)(atomic_fetch_add(&s->channel.turn, 1) % MT_STATE_SLOTS);
    home_slot *slot = &s->channel.slots[at];
    pthread_mutex_lock(&slot->busy);
    /* A copy that could not be waited for may still read the slot. */
    mt_rc rc = dir == MT_COPY_IN ? mt_watch_check(s->watch, err) : MT_OK;
    if (!rc && dir == MT_COPY_IN) memcpy(slot->bounce, host, n);
    if (!rc) rc = queue_copy(s, lane, at, updated, device, n, dir, err);
    if (!rc) rc = mt_sync(s->channel.lanes[lane].done[at], err);
    if (!rc && dir == MT_COPY_OUT) memcpy(host, slot->bounce, n);
    pthread_mutex_unlock(&slot->busy);
    return rc;
}

mt_rc mt__home_move(mt_state *s, int lane, int unit, void *home, char *host, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    if (lane < 0 || !(mt__lives_on_device(s, unit) || mt_plan_is_mirrored(s->plan, unit))) {
        if (dir == MT_COPY_IN)
            memcpy(home, host, bytes);
        else
            memcpy(host, home, bytes);
        return MT_OK;
    }
    mt_event *updated =
        mt_plan_is_gathered(s->plan, unit) ? mt_peers_updated(s->folder.peers, lane, unit) : s->units[unit].at_home;
    const size_t most = s->channel.piece_bytes;
    for (size_t done = 0; done < bytes; done += most) {
        size_t n = bytes - done < most ? bytes - done : most;
        MT_TRY(move_piece(s, lane, updated, (char *)home + done, host + done, n, dir, err));
    }
    return MT_OK;
}

/* Host memory is already zero.  The peers clear slices. */
mt_rc mt__homes_clear(mt_state *s, mt_err *err)
{
    home_channel *c = &s->channel;
    for (int u = 0; u < s->model->n_units; u++) {
        const mt_home *h = &s->units[u].home;
        if (!mt__lives_on_device(s, u) || mt_plan_is_sliced(s->plan, u)) continue;
        for (mt_state_kind k = 0; k < MT_STATE_KINDS; k++)
            if (mt_home_at(h, k)) MT_TRY(mt_fill(c->lanes[0].stream, mt_home_at(h, k), 0, mt_state_bytes(s, u, k), err));
        if (h->exact) MT_TRY(mt_fill(c->lanes[0].stream, h->exact, 0, (size_t)mt__state_layout(s, u)->n_exact * 4, err));
    }
    if (!c->n_lanes) return MT_OK;
    MT_TRY(mt_record(c->lanes[0].stream, c->lanes[0].done[0], err));
    return mt_sync(c->lanes[0].done[0], err);
}
