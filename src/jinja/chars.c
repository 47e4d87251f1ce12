#define _GNU_SOURCE /* memmem */
#include "jinja/chars.h"

#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

int mt__j_base_of(char letter)
{
    switch (letter) {
    case 'x': return 16;
    case 'o': return 8;
    case 'b': return 2;
    default: return 0;
    }
}

static utf8proc_category_t category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }

bool mt__j_is_space(uint32_t cp)
{
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool mt__j_is_break(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

static bool is_letter(utf8proc_category_t c) { return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO; }

bool mt__j_is_alpha(uint32_t cp)
{
    if (cp < 0x80) return (cp | 32) >= 'a' && (cp | 32) <= 'z';
    return is_letter(category(cp));
}
bool mt__j_is_decimal(uint32_t cp) { return category(cp) == UTF8PROC_CATEGORY_ND; }

/* Superscripts and circled digits count as digits, fractions and Roman numerals only as numbers. */
bool mt__j_is_digit(uint32_t cp)
{
    if (category(cp) == UTF8PROC_CATEGORY_ND) return true;
    return cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || cp == 0x2070 || (cp >= 0x2074 && cp <= 0x2079) ||
           (cp >= 0x2080 && cp <= 0x2089) || (cp >= 0x2460 && cp <= 0x2468) || (cp >= 0x2474 && cp <= 0x247c) ||
           (cp >= 0x2488 && cp <= 0x2490) || cp == 0x24ea || (cp >= 0x24f5 && cp <= 0x24fd) || cp == 0x24ff ||
           (cp >= 0x2776 && cp <= 0x277e) || (cp >= 0x2780 && cp <= 0x2788) || (cp >= 0x278a && cp <= 0x2792);
}

bool mt__j_is_numeric(uint32_t cp)
{
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool mt__j_is_word(uint32_t cp) { return cp == '_' || mt__j_is_alpha(cp) || mt__j_is_numeric(cp); }
bool mt__j_is_upper(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LU || (cp >= 0x2160 && cp <= 0x216f) || (cp >= 0x24b6 && cp <= 0x24cf) ||
           (cp >= 0x1f130 && cp <= 0x1f149) || (cp >= 0x1f150 && cp <= 0x1f169) || (cp >= 0x1f170 && cp <= 0x1f189);
}
bool mt__j_is_lower(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LL || cp == 0xaa || cp == 0xba || (cp >= 0x2b0 && cp <= 0x2b8) ||
           (cp >= 0x2170 && cp <= 0x217f) || (cp >= 0x24d0 && cp <= 0x24e9);
}
bool mt__j_is_title(uint32_t cp) { return category(cp) == UTF8PROC_CATEGORY_LT; }

bool mt__j_is_printable(uint32_t cp)
{
    if (cp < 0x7f) return cp >= 0x20;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

uint32_t mt__j_cp(const char *s, size_t n, size_t *len)
{
    unsigned char c = (unsigned char)*s;
    uint32_t cp = c;
    *len = 1;
    if (c < 0x80) return cp;
    int used = mt_utf8_decode(s, n, &cp);
    if (!used) return 0xfffd; /* strings are valid: this only keeps a broken caller from looping */
    *len = (size_t)used;
    return cp;
}

size_t mt__j_space_prefix(const char *s, size_t n)
{
    size_t i = 0, len;
    while (i < n && mt__j_is_space(mt__j_cp(s + i, n - i, &len))) i += len;
    return i;
}

size_t mt__j_rstrip(const char *s, size_t n)
{
    while (n) {
        size_t i = n - 1, len;
        while (i && ((unsigned char)s[i] & 0xc0) == 0x80) i--;
        if (!mt__j_is_space(mt__j_cp(s + i, n - i, &len))) return n;
        n = i;
    }
    return 0;
}

static bool continues_name(uint32_t cp)
{
    if (cp < 0x80) return cp == '_' || (cp >= '0' && cp <= '9') || ((cp | 32) >= 'a' && (cp | 32) <= 'z');
    utf8proc_category_t c = category(cp);
    return is_letter(c) || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_MN ||
           c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_PC;
}

size_t mt__j_identifier_prefix(const char *s, size_t n)
{
    size_t i = 0, len;
    while (i < n && continues_name(mt__j_cp(s + i, n - i, &len))) {
        if (i == 0 && *s >= '0' && *s <= '9') return 0;
        i += len;
    }
    return i;
}

bool mt__j_ascii(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80) return false;
    return true;
}

const char *mt__j_find(const char *s, size_t n, const char *what, size_t m)
{
    if (m == 0) return s;
    if (m > 8) return memmem(s, n, what, m); /* linear in n + m; the loop below is faster for short texts */
    for (const char *end = s + n; (size_t)(end - s) >= m; s++) {
        s = memchr(s, what[0], (size_t)(end - s) - m + 1);
        if (!s) return NULL;
        if (memcmp(s, what, m) == 0) return s;
    }
    return NULL;
}

const char *mt__j_rfind(const char *s, size_t n, const char *what, size_t m)
{
    if (m > n) return NULL;
    for (size_t i = n - m + 1; i-- > 0;)
        if (m == 0 || memcmp(s + i, what, m) == 0) return s + i;
    return NULL;
}

size_t mt__j_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

size_t mt__j_offset(const char *s, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80 && k-- == 0) return i;
    return n;
}

void mt__j_put_cp(mt_str *out, uint32_t cp)
{
    char s[4];
    mt_str_add(out, s, (size_t)mt_utf8_encode(cp, s));
}

void mt__j_put_escape(mt_str *out, char letter, uint32_t value, int digits)
{
    char text[2 + 8] = { '\\', letter };
    for (int i = 0; i < digits; i++) text[2 + i] = "0123456789abcdef"[value >> 4 * (digits - 1 - i) & 15];
    mt_str_add(out, text, 2 + (size_t)digits);
}

void mt__j_put_case(mt_str *out, uint32_t cp, jcase to)
{
    static const struct {
        uint32_t cp;
        const char *upper, *title;
    } several[] = {
        { 0xdf, "SS", "Ss" },
        { 0x149, "\xca\xbcN", "\xca\xbcN" },
        { 0x1f0, "J\xcc\x8c", "J\xcc\x8c" },
        { 0xfb00, "FF", "Ff" },
        { 0xfb01, "FI", "Fi" },
        { 0xfb02, "FL", "Fl" },
        { 0xfb03, "FFI", "Ffi" },
        { 0xfb04, "FFL", "Ffl" },
        { 0xfb05, "ST", "St" },
        { 0xfb06, "ST", "St" },
    };
    if (to == CASE_LOWER && cp == 0x130) return mt_str_puts(out, "i\xcc\x87");
    if (to == CASE_LOWER) return mt__j_put_cp(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
    for (size_t i = 0; cp >= 0x80 && i < MT_COUNT(several); i++)
        if (several[i].cp == cp) return mt_str_puts(out, to == CASE_UPPER ? several[i].upper : several[i].title);
    mt__j_put_cp(out,
                 (uint32_t)(to == CASE_UPPER ? utf8proc_toupper((utf8proc_int32_t)cp) : utf8proc_totitle((utf8proc_int32_t)cp)));
}

static bool is_cased(uint32_t cp) { return mt__j_is_upper(cp) || mt__j_is_lower(cp) || mt__j_is_title(cp); }

/* Unicode's Case_Ignorable: marks and signs that do not end a word. */
static bool is_case_ignorable(uint32_t cp)
{
    static const uint16_t signs[] = { '\'',   '.',    ':',    0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                      0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a };
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: break;
    }
    if (mt__j_is_alpha(cp)) return false;
    for (size_t i = 0; i < MT_COUNT(signs); i++)
        if (signs[i] == cp) return true;
    return false;
}

static bool cased_before(const char *s, size_t at)
{
    while (at) {
        size_t i = at - 1, len;
        while (i && ((unsigned char)s[i] & 0xc0) == 0x80) i--;
        uint32_t cp = mt__j_cp(s + i, at - i, &len);
        if (!is_case_ignorable(cp)) return is_cased(cp);
        at = i;
    }
    return false;
}

static bool cased_after(const char *s, size_t n, size_t at)
{
    for (size_t len; at < n; at += len) {
        uint32_t cp = mt__j_cp(s + at, n - at, &len);
        if (!is_case_ignorable(cp)) return is_cased(cp);
    }
    return false;
}

size_t mt__j_put_lower_at(mt_str *out, const char *s, size_t n, size_t at)
{
    size_t len;
    uint32_t cp = mt__j_cp(s + at, n - at, &len);
    if (cp < 0x80)
        mt_str_putc(out, (char)(cp >= 'A' && cp <= 'Z' ? cp | 32 : cp));
    else if (cp == 0x3a3 && cased_before(s, at) && !cased_after(s, n, at + len))
        mt__j_put_cp(out, 0x3c2);
    else
        mt__j_put_case(out, cp, CASE_LOWER);
    return len;
}

void mt__j_put_lower(mt_str *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) i += mt__j_put_lower_at(out, s, n, i);
}

void mt__j_put_upper(mt_str *out, const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = mt__j_cp(s + i, n - i, &len);
        if (cp < 0x80)
            mt_str_putc(out, (char)(cp >= 'a' && cp <= 'z' ? cp & ~32u : cp));
        else
            mt__j_put_case(out, cp, CASE_UPPER);
    }
}
