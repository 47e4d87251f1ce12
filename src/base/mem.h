/* mem.h - host memory for bookkeeping, and sizes that cannot overflow.
 *
 * Large buffers (weights, state, activations) come from the plan through a device, never from here.
 * All of it can be made to fail by fault.h; all of it is released with mt_free. */
#ifndef MT_BASE_MEM_H
#define MT_BASE_MEM_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

void *mt_malloc(size_t bytes);
void *mt_calloc(size_t n, size_t size); /* zeroed; NULL also when n * size overflows */
void *mt_realloc(void *p, size_t bytes);
char *mt_strdup(const char *s);
char *mt_strndup(const char *s, size_t n);
char *mt_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* NULL: no memory */
void mt_free(void *p);

/* mt_no_memory(err, "the vocabulary of %s", path): "no host memory for the vocabulary of X (1.2 GiB)", MT_ENOMEM.  The bytes are
 * those that this thread was refused last; none are named where a bound of ours refused them.  This is how all host code reports
 * that it lacks memory.  A macro for mt_fail's reason. */
#define mt_no_memory(err, ...) mt__failed(mt__no_memory((err), __VA_ARGS__))
mt_rc mt__no_memory(mt_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* An allocator other than those above was refused this many bytes. */
void mt_memory_refused(size_t bytes);

/* Make room for `need` elements: *items grows geometrically, *cap follows.  For growing arrays:
 *     MT_TRY(mt_grow(&list->items, &list->cap, list->n + 1, sizeof *list->items, err)); */
mt_rc mt_grow(void *items_ptr, size_t *cap, size_t need, size_t elem_bytes, mt_err *err);

/* *out = a * b (or a + b); false when it does not fit. */
bool mt_mul_size(size_t a, size_t b, size_t *out);
bool mt_add_size(size_t a, size_t b, size_t *out);

static inline size_t mt_round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }
static inline int64_t mt_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int mt_min_int(int a, int b) { return a < b ? a : b; }
static inline int64_t mt_clamp_i64(int64_t x, int64_t lowest, int64_t highest)
{
    if (x < lowest) return lowest;
    return x > highest ? highest : x;
}
static inline int64_t mt_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

#define MT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
