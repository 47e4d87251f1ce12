/* str.h - a growing string.  Zero-initialize, append, free.  Running out of memory is remembered and
 * reported once, by mt_str_done or mt_str_ok, so a chain of appends needs no checks in between.  So is an append
 * past max_bytes: the string never grows beyond it, so a bound on text holds while the text is made. */
#ifndef MT_BASE_STR_H
#define MT_BASE_STR_H

#include "base/mem.h"

#include <stdarg.h>

typedef struct mt_str {
    char *s; /* NUL-terminated once anything was appended; NULL before */
    size_t n, cap;
    size_t max_bytes;  /* refuse to grow past this; 0: no limit */
    bool failed, full; /* full: failed because of max_bytes, not for want of memory */
} mt_str;

void mt_str_add(mt_str *b, const char *bytes, size_t n);
void mt_str_puts(mt_str *b, const char *s);
void mt_str_putc(mt_str *b, char c);
void mt_str_printf(mt_str *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mt_str_vprintf(mt_str *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Append s as a JSON string literal, quotes included; invalid UTF-8 bytes become U+FFFD. */
void mt_str_json(mt_str *b, const char *s, size_t n);
/* Empty it, keep the memory. */
void mt_str_clear(mt_str *b);
void mt_str_free(mt_str *b);
static inline bool mt_str_ok(const mt_str *b) { return !b->failed; }

/* Hand the string out (never NULL on success) and reset b. */
mt_rc mt_str_done(mt_str *b, char **out, mt_err *err);

/* True if a string ends with `tail`, or is it. */
bool mt_ends_with(const char *s, const char *tail);

#endif
