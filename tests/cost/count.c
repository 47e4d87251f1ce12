#define _GNU_SOURCE
#include "count.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static uint64_t steps;
static size_t now, most, at_start;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) { steps++; }

void cost_begin(void)
{
    steps = 0;
    at_start = most = now;
}

cost cost_end(void) { return (cost){ .steps = steps, .peak = most - at_start }; }

/* -- bytes gone over --------------------------------------------------------------------------------- */

static void over(size_t n) { steps += 1 + n / 16; }

void *__real_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n) { return over(n), __real_memcpy(to, from, n); }

void *__real_memmove(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n) { return over(n), __real_memmove(to, from, n); }

void *__real_memset(void *to, int c, size_t n);
void *__wrap_memset(void *to, int c, size_t n);
void *__wrap_memset(void *to, int c, size_t n) { return over(n), __real_memset(to, c, n); }

/* A comparison or search ends early: only as far as it went. */
int __real_memcmp(const void *a, const void *b, size_t n);
int __wrap_memcmp(const void *a, const void *b, size_t n);
int __wrap_memcmp(const void *a, const void *b, size_t n)
{
    size_t same = 0;
    const unsigned char *x = a, *y = b;
    while (same < n && x[same] == y[same]) same++;
    over(same);
    return __real_memcmp(a, b, n);
}

void *__real_memchr(const void *s, int c, size_t n);
void *__wrap_memchr(const void *s, int c, size_t n);
void *__wrap_memchr(const void *s, int c, size_t n)
{
    char *at = __real_memchr(s, c, n);
    return over(at ? (size_t)(at - (const char *)s) : n), at;
}

void *__real_memmem(const void *s, size_t n, const void *what, size_t m);
void *__wrap_memmem(const void *s, size_t n, const void *what, size_t m);
void *__wrap_memmem(const void *s, size_t n, const void *what, size_t m)
{
    char *at = __real_memmem(s, n, what, m);
    return over(m + (at ? (size_t)(at - (const char *)s) : n)), at;
}

size_t __real_strlen(const char *s);
size_t __wrap_strlen(const char *s);
size_t __wrap_strlen(const char *s)
{
    size_t n = __real_strlen(s);
    return over(n), n;
}

int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b)
{
    size_t same = 0;
    while (a[same] && a[same] == b[same]) same++;
    return over(same), __real_strcmp(a, b);
}

char *__real_strstr(const char *s, const char *what);
char *__wrap_strstr(const char *s, const char *what);
char *__wrap_strstr(const char *s, const char *what)
{
    char *at = __real_strstr(s, what);
    return over(at ? (size_t)(at - s) : __real_strlen(s)), at;
}

/* -- memory, of whichever library --------------------------------------------------------------------- */

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t alignment, size_t n);
extern void __libc_free(void *p);

static void *add(void *p)
{
    now += p ? malloc_usable_size(p) : 0;
    if (now > most) most = now;
    return p;
}

void *malloc(size_t n) { return add(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return add(__libc_calloc(n, size)); }
void *memalign(size_t alignment, size_t n) { return add(__libc_memalign(alignment, n)); }
void *aligned_alloc(size_t alignment, size_t n) { return add(__libc_memalign(alignment, n)); }

int posix_memalign(void **out, size_t alignment, size_t n)
{
    *out = add(__libc_memalign(alignment, n));
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    now -= p ? malloc_usable_size(p) : 0;
    __libc_free(p);
}

void *realloc(void *p, size_t n)
{
    size_t before = p ? malloc_usable_size(p) : 0;
    void *moved = __libc_realloc(p, n);
    if (!moved && n) return NULL;
    now -= before;
    return add(moved);
}
