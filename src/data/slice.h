/* slice.h - bytes borrowed from a string, and questions about them. */
#ifndef MT_DATA_SLICE_H
#define MT_DATA_SLICE_H

#include "base/str.h"

#include <string.h>

typedef struct mt_slice {
    const char *s; /* never NULL */
    size_t n;
} mt_slice;

static inline mt_slice mt_slice_of(const mt_str *s) { return (mt_slice){ s->n ? s->s : "", s->n }; }
static inline mt_slice mt_slice_from(mt_slice t, size_t at) { return (mt_slice){ t.s + at, t.n - at }; }
static inline mt_slice mt_slice_upto(mt_slice t, size_t end) { return (mt_slice){ t.s, end }; }
static inline bool mt_slice_starts(mt_slice t, mt_slice with) { return t.n >= with.n && !memcmp(t.s, with.s, with.n); }
static inline bool mt_slice_ends(mt_slice t, mt_slice with)
{
    return t.n >= with.n && !memcmp(t.s + t.n - with.n, with.s, with.n);
}

/* Where the first (last) `what` in t begins; SIZE_MAX: nowhere. */
static inline size_t mt_slice_find(mt_slice t, mt_slice what)
{
    if (!what.n) return 0;
    for (size_t at = 0; t.n - at >= what.n;) {
        const char *p = memchr(t.s + at, *what.s, t.n - at - what.n + 1);
        if (!p) break;
        if (!memcmp(p, what.s, what.n)) return (size_t)(p - t.s);
        at = (size_t)(p - t.s) + 1;
    }
    return SIZE_MAX;
}

static inline size_t mt_slice_find_last(mt_slice t, mt_slice what)
{
    for (size_t at = t.n >= what.n ? t.n - what.n + 1 : 0; at-- > 0;)
        if (!memcmp(t.s + at, what.s, what.n)) return at;
    return SIZE_MAX;
}

static inline bool mt_slice_has(mt_slice t, mt_slice what) { return mt_slice_find(t, what) != SIZE_MAX; }

static inline bool mt_is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Without leading, or trailing, white space. */
static inline mt_slice mt_slice_skip_space(mt_slice t)
{
    while (t.n && mt_is_space(*t.s)) t = mt_slice_from(t, 1);
    return t;
}

static inline mt_slice mt_slice_trim_end(mt_slice t)
{
    while (t.n && mt_is_space(t.s[t.n - 1])) t.n--;
    return t;
}

#endif
