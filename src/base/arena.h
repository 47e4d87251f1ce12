/* arena.h - many small allocations released together.  Zero-initialize, allocate, reset or free.
 * Blocks grow geometrically; reset keeps the largest one, so a loop over records stops allocating soon. */
#ifndef MT_BASE_ARENA_H
#define MT_BASE_ARENA_H

#include "base/mem.h"

typedef struct mt_arena_block mt_arena_block;

typedef struct mt_arena {
    mt_arena_block *blocks; /* newest first */
    size_t used;            /* bytes taken from the newest block */
    size_t total_bytes;     /* bytes of all blocks */
    size_t max_bytes;       /* refuse to grow past this; 0: no limit */
} mt_arena;

/* 16-byte aligned, not cleared; NULL: no memory or past max_bytes. */
void *mt_arena_alloc(mt_arena *a, size_t bytes);
void *mt_arena_calloc(mt_arena *a, size_t n, size_t size);
char *mt_arena_strndup(mt_arena *a, const char *s, size_t n);
void mt_arena_reset(mt_arena *a);
void mt_arena_free(mt_arena *a);

#endif
