/* memory.h - the buffers of a plan, allocated once (P5) and found by kind and index.
 *
 * Device memory is allocated buffer by buffer, host memory in pools by several threads.  A buffer that was found is borrowed
 * until deinit(). */
#ifndef MT_ENGINE_MEMORY_H
#define MT_ENGINE_MEMORY_H

#include "device/device.h"
#include "schedule/buffer_index.h"

/* One allocation of host memory, for the host buffers among the plan's buffers [first, end). */
typedef struct mt_host_pool {
    void *p;
    size_t first, end, bytes;
} mt_host_pool;

typedef struct mt_memory {
    mt_device *dev;
    const mt_plan *plan;             /* borrowed, like the device */
    const struct mt_memory *machine; /* of a further lane: the memory that has the shared buffers; NULL: this one has them */
    void **buffers;                  /* parallel to plan->buffers */
    mt_buffer_index index;
    mt_host_pool *pools;
    size_t n_pools;
} mt_memory;

/* machine: NULL, or, for a further lane, the first lane's memory: then only the lane's separate buffers are allocated.  After a
 * failure, deinit() releases what was allocated. */
mt_rc mt_memory_init(mt_memory *m, mt_device *dev, const mt_plan *plan, const mt_memory *machine, mt_err *err);
void mt_memory_deinit(mt_memory *m);
/* NULL: the plan has no such buffer. */
void *mt_memory_find(const mt_memory *m, mt_buffer_kind kind, int i, int j);

#endif
