#include "device/slots.h"

#include "base/mem.h"
#include "base/pool.h"

#include <string.h>

enum { N_SLOTS = 2, PART = 1 << 20, MOST_THREADS = 4 }; /* PART: bytes a thread moves at a time */

/* A slot is used by turns: moved into and out of by the host, copied from and to by the device.  Each waits for the other's
 * last. */
typedef struct slot {
    char *p;
    mt_event *moved, *copied;
} slot;

struct mt_slots {
    mt_device *dev;
    const mt_slots_how *how;
    mt_pool *pool;
    mt_stream *mover;
    mt_event *begun;
    slot slots[N_SLOTS];
    size_t bytes; /* of a slot */
    int next;
    bool behind; /* the mover has not waited for what the stream has */
};

/* -- moving ---------------------------------------------------------------------------------------- */

/* A piece between a slot and memory; freed when done. */
typedef struct piece {
    mt_pool *pool;
    char *dst;
    const char *src;
    size_t bytes;
} piece;

static void move_part(void *arg, int64_t i)
{
    const piece *p = arg;
    size_t at = (size_t)i * PART;
    memcpy(p->dst + at, p->src + at, p->bytes - at < PART ? p->bytes - at : PART);
}

static void move(void *arg)
{
    piece *p = arg;
    mt_pool_for(p->pool, (int64_t)((p->bytes + PART - 1) / PART), move_part, p);
    mt_free(p);
}

static mt_rc queue_move(mt_slots *s, void *dst, const void *src, size_t bytes, mt_err *err)
{
    piece *p = mt_calloc(1, sizeof *p);
    if (!p) return mt_no_memory(err, "copying what is not pinned");
    *p = (piece){ s->pool, dst, src, bytes };
    mt_rc rc = s->how->call(s->mover, move, p, err);
    if (rc) mt_free(p);
    return rc;
}

/* -- copies ---------------------------------------------------------------------------------------- */

static mt_rc piece_in(mt_slots *s, mt_stream *on, slot *via, char *dst, const char *src, size_t n, mt_err *err)
{
    const mt_device_api *api = s->dev->api;
    MT_TRY(api->wait(s->mover, via->copied, err));
    MT_TRY(queue_move(s, via->p, src, n, err));
    MT_TRY(api->record(s->mover, via->moved, err));
    MT_TRY(api->wait(on, via->moved, err));
    MT_TRY(api->copy(on, dst, via->p, n, MT_COPY_IN, err));
    return api->record(on, via->copied, err);
}

static mt_rc piece_out(mt_slots *s, mt_stream *on, slot *via, char *dst, const char *src, size_t n, mt_err *err)
{
    const mt_device_api *api = s->dev->api;
    MT_TRY(api->wait(on, via->moved, err));
    MT_TRY(api->copy(on, via->p, src, n, MT_COPY_OUT, err));
    MT_TRY(api->record(on, via->copied, err));
    MT_TRY(api->wait(s->mover, via->copied, err));
    MT_TRY(queue_move(s, dst, via->p, n, err));
    return api->record(s->mover, via->moved, err);
}

/* The mover reads memory no sooner than the stream would have.  While the stream waits for nothing it need not check again, and
 * may run ahead of earlier copies. */
static mt_rc catch_up(mt_slots *s, mt_stream *on, mt_err *err)
{
    if (!s->behind) return MT_OK;
    MT_TRY(s->dev->api->record(on, s->begun, err));
    return s->dev->api->wait(s->mover, s->begun, err);
}

mt_rc mt_slots_copy(mt_slots *s, mt_stream *on, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    bool in = dir == MT_COPY_IN;
    if (in) MT_TRY(catch_up(s, on, err));
    for (size_t at = 0; at < bytes; at += s->bytes) {
        size_t n = bytes - at < s->bytes ? bytes - at : s->bytes;
        MT_TRY((in ? piece_in : piece_out)(s, on, &s->slots[s->next], (char *)dst + at, (const char *)src + at, n, err));
        s->next = (s->next + 1) % N_SLOTS;
    }
    /* What comes next finds it there. */
    for (int i = 0; !in && i < N_SLOTS; i++) MT_TRY(s->dev->api->wait(on, s->slots[i].moved, err));
    s->behind = false; /* the mover has waited for the stream, and the stream since for the mover alone */
    return MT_OK;
}

void mt_slots_waited(mt_slots *s)
{
    if (s) s->behind = true;
}

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc open_slots(mt_slots *s, mt_err *err)
{
    const mt_device_api *api = s->dev->api;
    int threads = mt_cpu_count() < MOST_THREADS ? mt_cpu_count() : MOST_THREADS;
    MT_TRY(mt_pool_create(&s->pool, threads, err));
    MT_TRY(api->stream_create(s->dev, &s->mover, "mover", err));
    MT_TRY(api->event_create(s->dev, &s->begun, err));
    for (int i = 0; i < N_SLOTS; i++) {
        void *p;
        MT_TRY(s->how->alloc(s->dev, &p, s->bytes, err));
        s->slots[i].p = p;
        MT_TRY(api->event_create(s->dev, &s->slots[i].moved, err));
        MT_TRY(api->event_create(s->dev, &s->slots[i].copied, err));
    }
    return MT_OK;
}

mt_rc mt_slots_create(mt_slots **out, mt_device *dev, const mt_slots_how *how, size_t bytes, mt_err *err)
{
    *out = NULL;
    mt_slots *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "a copy");
    *s = (mt_slots){ .dev = dev, .how = how, .bytes = bytes / N_SLOTS, .behind = true };
    mt_rc rc = open_slots(s, err);
    if (rc)
        mt_slots_free(s);
    else
        *out = s;
    return rc;
}

void mt_slots_free(mt_slots *s)
{
    if (!s) return;
    const mt_device_api *api = s->dev->api;
    api->stream_free(s->mover);
    for (int i = 0; i < N_SLOTS; i++) {
        api->event_free(s->slots[i].moved);
        api->event_free(s->slots[i].copied);
        s->how->free(s->dev, s->slots[i].p);
    }
    api->event_free(s->begun);
    mt_pool_free(s->pool);
    mt_free(s);
}
