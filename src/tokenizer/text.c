#include "tokenizer/text.h"

#include <string.h>

uint32_t mt_view_point(const mt_view *v, size_t i)
{
    if (i < v->n) return mt_view_lo(v, i);
    return v->n ? mt_view_hi(v, v->n - 1) : v->base;
}

mt_view mt_view_slice(const mt_view *v, size_t start, size_t n)
{
    return (mt_view){ .s = v->s + start,
                      .n = n,
                      .lo = v->lo ? v->lo + start : NULL,
                      .hi = v->hi ? v->hi + start : NULL,
                      .base = v->lo ? mt_view_point(v, start) : v->base + (uint32_t)start };
}

mt_view mt_text_view(const mt_text *t)
{
    return (mt_view){ .s = t->s ? t->s : "", .n = t->n, .lo = t->tracked ? t->lo : NULL, .hi = t->tracked ? t->hi : NULL };
}

void mt_text_reset(mt_text *t, bool tracked, size_t max_bytes)
{
    t->n = 0;
    t->max_bytes = max_bytes;
    t->tracked = tracked;
    t->failed = false;
}

static bool text_reserve(mt_text *t, size_t more)
{
    size_t need = t->n + more;
    if (need > t->max_bytes) t->failed = true;
    if (t->failed) return false;
    if (need > t->cap && mt_grow(&t->s, &t->cap, need, 1, NULL)) t->failed = true;
    if (t->tracked && need > t->lo_cap && mt_grow(&t->lo, &t->lo_cap, need, sizeof *t->lo, NULL)) t->failed = true;
    if (t->tracked && need > t->hi_cap && mt_grow(&t->hi, &t->hi_cap, need, sizeof *t->hi, NULL)) t->failed = true;
    return !t->failed;
}

void mt_text_put(mt_text *t, const char *s, size_t n, uint32_t lo, uint32_t hi)
{
    if (!n || !text_reserve(t, n)) return;
    memcpy(t->s + t->n, s, n);
    if (t->tracked)
        for (size_t i = 0; i < n; i++) {
            t->lo[t->n + i] = lo;
            t->hi[t->n + i] = hi;
        }
    t->n += n;
}

void mt_text_copy(mt_text *t, const mt_view *v, size_t start, size_t n)
{
    if (!n || !text_reserve(t, n)) return;
    memcpy(t->s + t->n, v->s + start, n);
    if (t->tracked)
        for (size_t i = 0; i < n; i++) {
            t->lo[t->n + i] = mt_view_lo(v, start + i);
            t->hi[t->n + i] = mt_view_hi(v, start + i);
        }
    t->n += n;
}

void mt_text_put_cp(mt_text *t, uint32_t cp, const mt_view *v, size_t start, size_t n)
{
    char utf8[4];
    int len = mt_utf8_encode(cp, utf8);
    mt_text_put(t, utf8, (size_t)len, mt_view_point(v, start), n ? mt_view_hi(v, start + n - 1) : mt_view_point(v, start));
}

void mt_text_deinit(mt_text *t)
{
    mt_free(t->s);
    mt_free(t->lo);
    mt_free(t->hi);
    *t = (mt_text){ 0 };
}
