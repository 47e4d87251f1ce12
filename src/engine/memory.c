#include "engine/memory.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/spread.h"

#include <stdio.h>

enum { AT_ONCE = 4 }; /* pools allocated at the same time */

/* -- host memory ----------------------------------------------------------------------------------- */

static bool is_mine(const mt_memory *m, size_t i)
{
    const mt_buffer *b = &m->plan->buffers[i];
    return !m->machine || mt_buffer_of_lane(b->kind, b->place);
}

static bool is_host(const mt_memory *m, size_t i) { return m->plan->buffers[i].place == MT_HOST && is_mine(m, i); }

/* Fills a pool with as many buffers as fit; a larger buffer has its own pool.  Even a small plan has several pools: while the
 * system zeroes one, the driver pins another. */
static size_t pool_bytes(const mt_memory *m)
{
    size_t most = m->dev->api->host_pool, share = m->plan->host_bytes / AT_ONCE + 1;
    return most < share ? most : share;
}

static mt_rc list_pools(mt_memory *m, mt_err *err)
{
    const mt_plan *p = m->plan;
    size_t most = pool_bytes(m);
    mt_host_pool *last = NULL;
    m->pools = mt_calloc(p->n_buffers + 1, sizeof *m->pools);
    if (!m->pools) return mt_no_memory(err, "the list of buffers");
    for (size_t i = 0; i < p->n_buffers; i++) {
        if (!is_host(m, i)) continue;
        if (!last || last->bytes + p->buffers[i].bytes > most) {
            last = &m->pools[m->n_pools++];
            last->first = i;
        }
        last->bytes += p->buffers[i].bytes;
        last->end = i + 1;
    }
    return MT_OK;
}

/* The name of the memory in an error message. */
static void name_pool(const mt_memory *m, const mt_host_pool *pool, char out[MT_NAME_BYTES])
{
    int n = 0;
    for (size_t i = pool->first; i < pool->end; i++) n += is_host(m, i);
    const char *first = m->plan->buffers[pool->first].name, *last = m->plan->buffers[pool->end - 1].name;
    if (n == 1)
        snprintf(out, MT_NAME_BYTES, "%s", first);
    else
        snprintf(out, MT_NAME_BYTES, "%s to %s, %d buffers", first, last, n);
}

static mt_rc allocate_pool(void *arg, int64_t index, mt_err *err)
{
    mt_memory *m = arg;
    mt_host_pool *pool = &m->pools[index];
    char name[MT_NAME_BYTES];
    name_pool(m, pool, name);
    MT_TRY(m->dev->api->host_alloc(m->dev, &pool->p, pool->bytes, name, err));
    char *at = pool->p;
    for (size_t i = pool->first; i < pool->end; i++) {
        if (!is_host(m, i)) continue;
        m->buffers[i] = at;
        at += m->plan->buffers[i].bytes; /* a multiple of MT_DEVICE_ALIGN */
    }
    return MT_OK;
}

/* -- all of it ------------------------------------------------------------------------------------- */

mt_rc mt_memory_init(mt_memory *m, mt_device *dev, const mt_plan *p, const mt_memory *machine, mt_err *err)
{
    *m = (mt_memory){ .dev = dev, .plan = p, .machine = machine };
    m->buffers = mt_calloc(p->n_buffers, sizeof *m->buffers);
    if (!m->buffers) return mt_no_memory(err, "the list of buffers");
    MT_TRY(mt_buffer_index_create(&m->index, p->buffers, p->n_buffers, err));
    MT_TRY(list_pools(m, err));
    MT_TRY(m->dev->api->reserve(m->dev, p->device_bytes, err));
    for (size_t i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].place == MT_DEVICE)
            MT_TRY(m->dev->api->alloc(m->dev, &m->buffers[i], p->buffers[i].bytes, p->buffers[i].name, err));
    return mt_spread((int)mt_min_i64(AT_ONCE, mt_cpu_count()), (int64_t)m->n_pools, allocate_pool, m, err);
}

void mt_memory_deinit(mt_memory *m)
{
    const mt_plan *p = m->plan;
    for (size_t i = 0; m->buffers && i < p->n_buffers; i++)
        if (m->buffers[i] && p->buffers[i].place == MT_DEVICE) m->dev->api->free(m->dev, m->buffers[i]);
    for (size_t i = 0; i < m->n_pools; i++)
        if (m->pools[i].p) m->dev->api->host_free(m->dev, m->pools[i].p);
    mt_free(m->pools);
    mt_free(m->buffers);
    mt_buffer_index_free(&m->index);
}

void *mt_memory_find(const mt_memory *m, mt_buffer_kind kind, int i, int j)
{
    int k = mt_buffer_index_find(&m->index, kind, i, j);
    if (k < 0) return NULL;
    return is_mine(m, (size_t)k) ? m->buffers[k] : m->machine->buffers[k];
}
