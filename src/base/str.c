#include "base/str.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reserve(mt_str *b, size_t extra)
{
    if (b->failed) return false;
    size_t need;
    if (!mt_add_size(b->n, extra + 1, &need) || mt_grow(&b->s, &b->cap, need, 1, NULL)) b->failed = true;
    return !b->failed;
}

void mt_str_add(mt_str *b, const char *bytes, size_t n)
{
    if (!reserve(b, n)) return;
    if (n) memcpy(b->s + b->n, bytes, n);
    b->n += n;
    b->s[b->n] = '\0';
}

void mt_str_puts(mt_str *b, const char *s) { mt_str_add(b, s, strlen(s)); }
void mt_str_putc(mt_str *b, char c) { mt_str_add(b, &c, 1); }

void mt_str_printf(mt_str *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->s + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void mt_str_json(mt_str *b, const char *s, size_t n)
{
    mt_str_putc(b, '"');
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = mt_utf8_decode(s + i, n - i, &cp);
        unsigned char c = (unsigned char)s[i];
        if (len == 0) {
            mt_str_puts(b, "\xef\xbf\xbd");
            i++;
        } else {
            if (c == '"' || c == '\\')
                mt_str_printf(b, "\\%c", c);
            else if (c == '\n')
                mt_str_puts(b, "\\n");
            else if (c == '\r')
                mt_str_puts(b, "\\r");
            else if (c == '\t')
                mt_str_puts(b, "\\t");
            else if (c < 0x20)
                mt_str_printf(b, "\\u%04x", c);
            else
                mt_str_add(b, s + i, (size_t)len);
            i += (size_t)len;
        }
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
        return mt_fail(err, MT_ENOMEM, "no host memory for a string");
    }
    *out = b->s;
    *b = (mt_str){ 0 };
    return MT_OK;
}
