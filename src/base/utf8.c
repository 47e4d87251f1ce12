#include "base/utf8.h"

#include <string.h>

int mt_utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0) return 0;
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    int len = 2 + (p[0] >= 0xe0) + (p[0] >= 0xf0);
    static const uint32_t smallest[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (p[0] < 0xc2 || p[0] > 0xf4 || n < (size_t)len) return 0;
    uint32_t v = p[0] & (0xffu >> (len + 1));
    for (int i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        v = v << 6 | (p[i] & 0x3f);
    }
    if (v < smallest[len] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff)) return 0;
    *cp = v;
    return len;
}

int mt_utf8_encode(uint32_t cp, char *out)
{
    unsigned char *o = (unsigned char *)out;
    if (cp < 0x80) {
        o[0] = (unsigned char)cp;
        return 1;
    }
    if (cp < 0x800) {
        o[0] = (unsigned char)(0xc0 | cp >> 6);
        o[1] = (unsigned char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp >= 0xd800 && cp <= 0xdfff) return 0;
    if (cp < 0x10000) {
        o[0] = (unsigned char)(0xe0 | cp >> 12);
        o[1] = (unsigned char)(0x80 | (cp >> 6 & 0x3f));
        o[2] = (unsigned char)(0x80 | (cp & 0x3f));
        return 3;
    }
    if (cp > 0x10ffff) return 0;
    o[0] = (unsigned char)(0xf0 | cp >> 18);
    o[1] = (unsigned char)(0x80 | (cp >> 12 & 0x3f));
    o[2] = (unsigned char)(0x80 | (cp >> 6 & 0x3f));
    o[3] = (unsigned char)(0x80 | (cp & 0x3f));
    return 4;
}

/* Bytes of the ASCII run at s, eight at a time: most text is mostly ASCII. */
static size_t ascii_run(const char *s, size_t n)
{
    size_t i = 0;
    for (uint64_t x; n - i >= 8; i += 8) {
        memcpy(&x, s + i, sizeof x);
        if (x & 0x8080808080808080u) break;
    }
    while (i < n && !((unsigned char)s[i] & 0x80)) i++;
    return i;
}

/* The common three-byte forms (most of the world's scripts), without the general decoder. */
static size_t three_byte_run(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (n - i >= 3 && p[i] > 0xe0 && p[i] < 0xed && (p[i + 1] & 0xc0) == 0x80 && (p[i + 2] & 0xc0) == 0x80) i += 3;
    return i;
}

bool mt_utf8_valid(const char *s, size_t n, size_t *bad_at)
{
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        i += ascii_run(s + i, n - i);
        i += three_byte_run((const unsigned char *)s + i, n - i);
        if (i >= n) break;
        int len = mt_utf8_decode(s + i, n - i, &cp);
        if (!len) {
            if (bad_at) *bad_at = i;
            return false;
        }
        i += (size_t)len;
    }
    return true;
}

size_t mt_utf8_mark(const char *s, size_t n) { return n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; }

static bool is_control(unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }

void mt_utf8_tame(char *s)
{
    for (size_t n = strlen(s); n; s++, n--) {
        unsigned char *p = (unsigned char *)s;
        uint32_t cp;
        int len = mt_utf8_decode(s, n, &cp);
        if (len == 0 || is_control(*p)) *p = '?';
        if (len == 2 && cp < 0xa0) p[0] = p[1] = '?'; /* 0x9b, for one, is ESC [ in one character */
        if (len > 1) s += len - 1, n -= (size_t)len - 1;
    }
}
