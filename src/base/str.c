#include "base/str.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static bool str_reserve(mt_str *b, size_t extra)
{
    if (b->failed) return false;
    size_t need;
    if (b->max_bytes && (b->n > b->max_bytes || extra > b->max_bytes - b->n)) b->failed = b->full = true;
    if (b->failed || !mt_add_size(b->n, extra + 1, &need) || mt_grow(&b->s, &b->cap, need, 1, NULL)) b->failed = true;
    return !b->failed;
}

void mt_str_add(mt_str *b, const char *bytes, size_t n)
{
    if (!str_reserve(b, n)) return;
    if (n) memcpy(b->s + b->n, bytes, n);
    b->n += n;
    b->s[b->n] = '\0';
}

void mt_str_puts(mt_str *b, const char *s) { mt_str_add(b, s, strlen(s)); }
void mt_str_putc(mt_str *b, char c) { mt_str_add(b, &c, 1); }

void mt_str_vprintf(mt_str *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n >= 0 && str_reserve(b, (size_t)n)) {
        vsnprintf(b->s + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void mt_str_printf(mt_str *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    mt_str_vprintf(b, fmt, ap);
    va_end(ap);
}

/* How many bytes at s stand for themselves in JSON and are ASCII. */
static size_t plain_run(const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && s[k] >= 0x20 && (unsigned char)s[k] < 0x80 && s[k] != '"' && s[k] != '\\') k++;
    return k;
}

void mt_str_json(mt_str *b, const char *s, size_t n)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt"; /* those with a short escape */
    mt_str_putc(b, '"');
    for (size_t i = 0; i < n;) {
        size_t plain = plain_run(s + i, n - i);
        if (plain) {
            mt_str_add(b, s + i, plain);
            i += plain;
            continue;
        }
        uint32_t cp = 0xfffd;
        int len = mt_utf8_decode(s + i, n - i, &cp);
        const char *hit = cp && cp < 0x80 ? strchr(special, (int)cp) : NULL;
        if (len == 0)
            mt_str_puts(b, "\xef\xbf\xbd");
        else if (hit)
            mt_str_printf(b, "\\%c", letters[hit - special]);
        else if (cp < 0x20)
            mt_str_printf(b, "\\u%04x", cp);
        else
            mt_str_add(b, s + i, (size_t)len);
        i += len ? (size_t)len : 1;
    }
    mt_str_putc(b, '"');
}

void mt_str_clear(mt_str *b)
{
    b->n = 0;
    if (b->s) b->s[0] = '\0';
}

void mt_str_free(mt_str *b)
{
    mt_free(b->s);
    *b = (mt_str){ 0 };
}

mt_rc mt_str_done(mt_str *b, char **out, mt_err *err)
{
    mt_str_add(b, "", 0);
    if (b->failed) {
        mt_str_free(b);
        return mt_no_memory(err, "a string");
    }
    *out = b->s;
    *b = (mt_str){ 0 };
    return MT_OK;
}

bool mt_ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}
