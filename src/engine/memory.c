/* memory.c - the plan's buffers, allocated once. */
#include "engine/internal.h"

#include "base/spread.h"

#include <stdio.h>
#include <string.h>

enum { AT_ONCE = 4 }; /* pools that threads take at the same time */

/* -- host memory ----------------------------------------------------------------------------------- */

/* As many buffers as a pool takes; one that is larger than that is alone.  Several pools even of a small plan: while the system
 * zeroes one, the driver pins another. */
static size_t pool_bytes(const mt_engine *e)
{
    size_t most = e->dev->api->host_pool, share = e->plan->host_bytes / AT_ONCE + 1;
    return most < share ? most : share;
}

static mt_rc list_pools(mt_engine *e, mt_err *err)
{
    const mt_plan *p = e->plan;
    size_t most = pool_bytes(e);
    host_pool *last = NULL;
    e->pools = mt_calloc(p->n_buffers + 1, sizeof *e->pools);
    if (!e->pools) return mt_no_memory(err, "the list of buffers");
    for (size_t i = 0; i < p->n_buffers; i++) {
        if (p->buffers[i].place != MT_HOST) continue;
        if (!last || last->bytes + p->buffers[i].bytes > most) {
            last = &e->pools[e->n_pools++];
            last->first = i;
        }
        last->bytes += p->buffers[i].bytes;
        last->end = i + 1;
    }
    return MT_OK;
}

/* What an error says could not be had. */
static void name_pool(const mt_engine *e, const host_pool *pool, char out[MT_NAME_BYTES])
{
    int n = 0;
    for (size_t i = pool->first; i < pool->end; i++) n += e->plan->buffers[i].place == MT_HOST;
    const char *first = e->plan->buffers[pool->first].name, *last = e->plan->buffers[pool->end - 1].name;
    if (n == 1)
        snprintf(out, MT_NAME_BYTES, "%s", first);
    else
        snprintf(out, MT_NAME_BYTES, "%s to %s, %d buffers", first, last, n);
}

static mt_rc allocate_pool(void *arg, int64_t index, mt_err *err)
{
    mt_engine *e = arg;
    host_pool *pool = &e->pools[index];
    char name[MT_NAME_BYTES];
    name_pool(e, pool, name);
    MT_TRY(e->dev->api->host_alloc(e->dev, &pool->p, pool->bytes, name, err));
    char *at = pool->p;
    for (size_t i = pool->first; i < pool->end; i++) {
        if (e->plan->buffers[i].place != MT_HOST) continue;
        e->buffers[i] = at;
        at += e->plan->buffers[i].bytes; /* a multiple of MT_DEVICE_ALIGN */
    }
    return MT_OK;
}

/* -- all of it ------------------------------------------------------------------------------------- */

mt_rc mt__memory_create(mt_engine *e, mt_err *err)
{
    const mt_plan *p = e->plan;
    e->buffers = mt_calloc(p->n_buffers, sizeof *e->buffers);
    if (!e->buffers) return mt_no_memory(err, "the list of buffers");
    MT_TRY(mt_buffer_index_create(&e->index, p->buffers, p->n_buffers, err));
    MT_TRY(list_pools(e, err));
    MT_TRY(e->dev->api->reserve(e->dev, p->device_bytes, err));
    for (size_t i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].place == MT_DEVICE)
            MT_TRY(e->dev->api->alloc(e->dev, &e->buffers[i], p->buffers[i].bytes, p->buffers[i].name, err));
    return mt_spread((int)mt_min_i64(AT_ONCE, mt_cpu_count()), (int64_t)e->n_pools, allocate_pool, e, err);
}

void mt__memory_free(mt_engine *e)
{
    const mt_plan *p = e->plan;
    for (size_t i = 0; e->buffers && i < p->n_buffers; i++)
        if (e->buffers[i] && p->buffers[i].place == MT_DEVICE) e->dev->api->free(e->dev, e->buffers[i]);
    for (size_t i = 0; i < e->n_pools; i++)
        if (e->pools[i].p) e->dev->api->host_free(e->dev, e->pools[i].p);
    mt_free(e->pools);
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
