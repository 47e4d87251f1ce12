#include "base/arena.h"

#include <stdalign.h>
#include <string.h>

enum { FIRST_BLOCK_BYTES = 4096, ALIGNMENT = 16 };

struct mt_arena_block {
    mt_arena_block *next;
    size_t size; /* of data */
    alignas(ALIGNMENT) unsigned char data[];
};

static bool add_block(mt_arena *a, size_t bytes)
{
    size_t size = a->blocks ? a->blocks->size * 2 : FIRST_BLOCK_BYTES;
    if (size < bytes) size = bytes;
    if (a->max_bytes && (size > a->max_bytes || a->total_bytes > a->max_bytes - size)) {
        size = bytes; /* cannot grow geometrically: allocate exactly the requested size, or fail */
        if (size > a->max_bytes || a->total_bytes > a->max_bytes - size) return false;
    }
    size_t whole;
    mt_arena_block *b = mt_add_size(size, sizeof *b, &whole) ? mt_malloc(whole) : NULL;
    if (!b) return false;
    b->next = a->blocks;
    b->size = size;
    a->blocks = b;
    a->used = 0;
    a->total_bytes += size;
    return true;
}

void *mt_arena_alloc(mt_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGNMENT) return NULL;
    bytes = mt_round_up(bytes ? bytes : 1, ALIGNMENT);
    if ((!a->blocks || a->blocks->size - a->used < bytes) && !add_block(a, bytes)) return NULL;
    void *p = a->blocks->data + a->used;
    a->used += bytes;
    return p;
}

void *mt_arena_calloc(mt_arena *a, size_t n, size_t size)
{
    size_t bytes;
    void *p = mt_mul_size(n, size, &bytes) ? mt_arena_alloc(a, bytes) : NULL;
    return p ? memset(p, 0, bytes) : NULL;
}

char *mt_arena_strndup(mt_arena *a, const char *s, size_t n)
{
    char *copy = n < SIZE_MAX ? mt_arena_alloc(a, n + 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

void mt_arena_reset(mt_arena *a)
{
    if (!a->blocks) return;
    for (mt_arena_block *b = a->blocks->next, *next; b; b = next) { /* the newest block is the largest */
        next = b->next;
        mt_free(b);
    }
    a->blocks->next = NULL;
    a->used = 0;
    a->total_bytes = a->blocks->size;
}

void mt_arena_free(mt_arena *a)
{
    mt_arena_reset(a);
    mt_free(a->blocks);
    size_t limit = a->max_bytes;
    *a = (mt_arena){ .max_bytes = limit };
}
