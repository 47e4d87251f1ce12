/* text.h - text in a tokenizer's pipeline, and the origin of each of its bytes.
 *
 * A view is borrowed bytes; a text is a growing buffer that views are taken of.  When origins are tracked, every
 * byte knows the range [lo, hi) of the input it was made from, so that a token at the end of the pipeline can
 * be traced back.  A view without arrays is a plain slice of the input starting at `base`.
 *
 * Running out of memory, or growing past max_bytes (rules come from files, and 256 of them that each double the text would not
 * end well), is remembered in `failed` and reported once, at the end of the step. */
#ifndef MT_TOKENIZER_TEXT_H
#define MT_TOKENIZER_TEXT_H

#include "base/mem.h"
#include "base/utf8.h"

typedef struct mt_view {
    const char *s;
    size_t n;
    const uint32_t *lo, *hi; /* [n] origin of each byte, or both NULL: byte i is input byte base + i */
    uint32_t base;
} mt_view;

typedef struct mt_text {
    char *s;
    size_t n, cap;
    uint32_t *lo, *hi; /* [cap] when tracked */
    size_t lo_cap, hi_cap;
    size_t max_bytes;
    bool tracked, failed;
} mt_text;

static inline uint32_t mt_view_lo(const mt_view *v, size_t i) { return v->lo ? v->lo[i] : v->base + (uint32_t)i; }
static inline uint32_t mt_view_hi(const mt_view *v, size_t i) { return v->hi ? v->hi[i] : v->base + (uint32_t)i + 1; }
/* The input position of an insertion before byte i. */
uint32_t mt_view_point(const mt_view *v, size_t i);
mt_view mt_view_slice(const mt_view *v, size_t start, size_t n);
mt_view mt_text_view(const mt_text *t);

/* Empty it, keep the memory. */
void mt_text_reset(mt_text *t, bool tracked, size_t max_bytes);
/* How far n bytes of input may grow: real rules make at most eighteen characters of one.  Places in a text fit an int32. */
static inline size_t mt_text_limit(size_t n) { return n < INT32_MAX / 64 - 1024 ? 64 * n + 65536 : INT32_MAX - 1; }
/* Append n bytes that all come from input range [lo, hi). */
void mt_text_put(mt_text *t, const char *s, size_t n, uint32_t lo, uint32_t hi);
/* Append bytes [start, start + n) of a view, each with its own origin. */
void mt_text_copy(mt_text *t, const mt_view *v, size_t start, size_t n);
/* Append a code point made of bytes [start, start + n) of v. */
void mt_text_put_cp(mt_text *t, uint32_t cp, const mt_view *v, size_t start, size_t n);
void mt_text_deinit(mt_text *t);

/* Decode the code point at v->s[i]; text in the pipeline is valid UTF-8, so this cannot fail. */
static inline size_t mt_cp_at(const char *s, size_t n, size_t i, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s + i;
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    int len = mt_utf8_decode(s + i, n - i, cp);
    if (len) return (size_t)len;
    *cp = 0xfffd; /* unreachable for checked input; keeps loops moving */
    return 1;
}

#endif
