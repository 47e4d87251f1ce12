#include "base/mem.h"

#include "base/fault.h"
#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Like errno: set where memory is refused, read where that is reported, so that no caller carries it between the two. */
static _Thread_local size_t refused_bytes;

void mt_memory_refused(size_t bytes) { refused_bytes = bytes; }

static void *noted(void *p, size_t bytes)
{
    if (!p) mt_memory_refused(bytes);
    return p;
}

void *mt_malloc(size_t bytes) { return noted(mt_fault(MT_FAULT_ALLOC) ? NULL : malloc(bytes ? bytes : 1), bytes); }

void *mt_calloc(size_t n, size_t size)
{
    size_t bytes;
    if (!mt_mul_size(n, size, &bytes)) return noted(NULL, SIZE_MAX);
    return noted(mt_fault(MT_FAULT_ALLOC) ? NULL : calloc(1, bytes ? bytes : 1), bytes);
}

void *mt_realloc(void *p, size_t bytes) { return noted(mt_fault(MT_FAULT_ALLOC) ? NULL : realloc(p, bytes ? bytes : 1), bytes); }

mt_rc mt__no_memory(mt_err *err, const char *fmt, ...)
{
    char thing[512], bytes[48] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(thing, sizeof thing, fmt, ap);
    va_end(ap);
    if (refused_bytes) snprintf(bytes, sizeof bytes, " (%s)", mt_bytes_text(refused_bytes).s);
    refused_bytes = 0;
    return mt_fail(err, MT_ENOMEM, "no host memory for %s%s", thing, bytes);
}

char *mt_strndup(const char *s, size_t n)
{
    char *copy = mt_malloc(n + 1);
    if (!copy) return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

char *mt_strdup(const char *s) { return mt_strndup(s, strlen(s)); }

char *mt_asprintf(const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = n < 0 ? NULL : mt_malloc((size_t)n + 1);
    if (s) vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

void mt_free(void *p) { free(p); }

mt_rc mt_grow(void *items_ptr, size_t *cap, size_t need, size_t elem_bytes, mt_err *err)
{
    if (need <= *cap) return MT_OK;
    size_t want = *cap ? *cap : 8, bytes;
    while (want < need) want += want / 2 + 1;
    void **items = items_ptr;
    void *grown = mt_mul_size(want, elem_bytes, &bytes) ? mt_realloc(*items, bytes) : NULL;
    if (!grown) return mt_no_memory(err, "a list of %zu entries", need);
    *items = grown;
    *cap = want;
    return MT_OK;
}

bool mt_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
bool mt_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
