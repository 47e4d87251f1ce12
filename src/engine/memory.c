/* memory.c - the plan's buffers, allocated once. */
#include "engine/internal.h"

#include "base/spread.h"

#include <string.h>

static mt_rc allocate(mt_engine *e, size_t i, mt_err *err)
{
    const mt_buffer *b = &e->plan->buffers[i];
    return (b->place == MT_DEVICE ? e->dev->api->alloc : e->dev->api->host_alloc)(e->dev, &e->buffers[i], b->bytes, b->name, err);
}

static mt_rc allocate_on_host(void *arg, int64_t i, mt_err *err)
{
    mt_engine *e = arg;
    return e->plan->buffers[i].place == MT_HOST ? allocate(e, (size_t)i, err) : MT_OK;
}

/* Several of the host's at once: while the system zeroes one, the driver pins another. */
mt_rc mt__memory_create(mt_engine *e, mt_err *err)
{
    enum { AT_ONCE = 4 };
    const mt_plan *p = e->plan;
    e->buffers = mt_calloc(p->n_buffers, sizeof *e->buffers);
    if (!e->buffers) return mt_fail(err, MT_ENOMEM, "no host memory for the list of buffers");
    MT_TRY(mt_buffer_index_create(&e->index, p->buffers, p->n_buffers, err));
    MT_TRY(e->dev->api->reserve(e->dev, p->device_bytes, err));
    for (size_t i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].place == MT_DEVICE) MT_TRY(allocate(e, i, err));
    return mt_spread((int)mt_min_i64(AT_ONCE, mt_cpu_count()), (int64_t)p->n_buffers, allocate_on_host, e, err);
}

void mt__memory_free(mt_engine *e)
{
    const mt_plan *p = e->plan;
    for (size_t i = 0; e->buffers && i < p->n_buffers; i++)
        if (e->buffers[i]) (p->buffers[i].place == MT_DEVICE ? e->dev->api->free : e->dev->api->host_free)(e->dev, e->buffers[i]);
    mt_free(e->buffers);
    mt_buffer_index_free(&e->index);
}

void *mt__buffer(const mt_engine *e, mt_buffer_kind kind, int i, int j)
{
    int k = mt_buffer_index_find(&e->index, kind, i, j);
    return k < 0 ? NULL : e->buffers[k];
}

mt_rc mt__event(mt_engine *e, mt_event **out, const char *name, mt_err *err)
{
    MT_TRY(e->dev->api->event_create(e->dev, out, err));
    (*out)->name = name;
    return MT_OK;
}

mt_rc mt__slot_events(mt_engine *e, slot *s, const char *ready, const char *free, mt_err *err)
{
    MT_TRY(mt__event(e, &s->ready, ready, err));
    return mt__event(e, &s->free, free, err);
}

void mt__slot_free(mt_engine *e, slot *s)
{
    e->dev->api->event_free(s->ready);
    e->dev->api->event_free(s->free);
}

mt_rc mt__bounce(mt_engine *e, char *device, char *host, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    char *via = mt__buffer(e, MT_BUF_BOUNCE, -1, -1);
    for (size_t done = 0; done < bytes; done += MT_BOUNCE_BYTES) {
        size_t n = bytes - done < MT_BOUNCE_BYTES ? bytes - done : MT_BOUNCE_BYTES;
        if (dir == MT_COPY_IN) memcpy(via, host + done, n);
        MT_TRY(
            mt_copy(e->compute, dir == MT_COPY_IN ? device + done : via, dir == MT_COPY_IN ? via : device + done, n, dir, err));
        MT_TRY(mt_record(e->compute, e->settled[0], err));
        MT_TRY(mt_sync(e->settled[0], err));
        if (dir == MT_COPY_OUT) memcpy(host + done, via, n);
    }
    return MT_OK;
}
