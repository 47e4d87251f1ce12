/* value_json.c - a JSON reader that writes values straight into an arena.
 *
 * Recursive descent, one pass, no copy of strings that hold no escape (they point into the text, which the
 * caller keeps as long as the values).  Items of a list under construction wait on one growing stack, so
 * each finished list is one exact allocation.  Strings are most of what training data is: they are scanned
 * eight bytes at a time, and only those with a byte past ASCII are checked as UTF-8. */
#include "base/hash.h"
#include "base/le.h"
#include "base/utf8.h"
#include "base/value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 512, MAX_SCANNED = 256 };

typedef struct reader {
    const char *text, *p, *end;
    const char *what;
    mt_arena *arena;
    mt_value_reader *keep; /* the stack and the scratch, kept between documents */
    size_t n_stack, n_values;
    int depth;
    mt_err *err;
} reader;

static mt_rc read_value(reader *r, mt_value *out);

/* Only a message looks for the start of the first line: a list of a million records may be one line. */
static int64_t first_column(const reader *r)
{
    const char *line = r->text;
    while (r->keep->whole && line > r->keep->whole && line[-1] != '\n') line--;
    return r->text - line + 1;
}

static mt_rc value_json_bad(const reader *r, const char *message)
{
    if (!r->err) return MT_EFORMAT;
    int64_t line = r->keep->first_line ? r->keep->first_line : 1, column = first_column(r);
    for (const char *c = r->text; c < r->p; c++, column++)
        if (*c == '\n') line++, column = 0;
    return mt_fail(r->err, MT_EFORMAT, "%s: not valid JSON at line %lld, column %lld: %s", r->what, (long long)line,
                   (long long)column, message);
}

static mt_rc too_many(reader *r)
{
    r->keep->too_many = true;
    return value_json_bad(r, "more values than one document may have");
}

static void skip_space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t')) r->p++;
}

static bool value_json_take(reader *r, char c)
{
    skip_space(r);
    if (r->p >= r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_hex4(reader *r, uint32_t *out)
{
    if (r->end - r->p < 4) return false;
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(r->p[i]);
        if (d < 0) return false;
        v = v << 4 | (uint32_t)d;
    }
    r->p += 4;
    *out = v;
    return true;
}

/* After "\u": one scalar value, from one escape or a surrogate pair; a lone surrogate becomes U+FFFD. */
static mt_rc read_unicode_escape(reader *r, char *dst, size_t *n)
{
    uint32_t hi, lo;
    if (!read_hex4(r, &hi)) return value_json_bad(r, "\\u needs four hexadecimal digits");
    if (hi >= 0xd800 && hi <= 0xdbff && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u') {
        const char *mark = r->p;
        r->p += 2;
        if (!read_hex4(r, &lo)) return value_json_bad(r, "\\u needs four hexadecimal digits");
        if (lo >= 0xdc00 && lo <= 0xdfff)
            hi = 0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00);
        else
            r->p = mark;
    }
    if (hi >= 0xd800 && hi <= 0xdfff) hi = 0xfffd;
    *n += (size_t)mt_utf8_encode(hi, dst + *n);
    return MT_OK;
}

#define ONES  0x0101010101010101u
#define HIGHS 0x8080808080808080u

/* The top bit of the first byte that is zero, or below `n`, is the lowest bit set (later ones may be false). */
static uint64_t zeros(uint64_t x) { return (x - ONES) & ~x & HIGHS; }
static uint64_t below(uint64_t x, uint64_t n) { return (x - ONES * n) & ~x & HIGHS; }

/* The next quote, backslash or control character; *high collects the top bits of what was passed.  The lowest byte of a word is
 * the first. */
static const char *scan_string(const char *p, const char *end, uint64_t *high)
{
    for (uint64_t x; end - p >= 8; p += 8) {
        x = mt__le64(p);
        uint64_t stops = zeros(x ^ ONES * '"') | zeros(x ^ ONES * '\\') | below(x, 0x20);
        if (stops) {
            uint64_t passed = (stops & -stops) - 1; /* all bits below the stop's top bit */
            *high |= x & passed & HIGHS;
            return p + __builtin_ctzll(stops) / 8;
        }
        *high |= x & HIGHS;
    }
    for (; p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20; p++) *high |= (unsigned char)*p & 0x80u;
    return p;
}

/* The character that an escape stands for, except 'u'; 0: not an escape. */
static char unescape(char c)
{
    switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'b': return '\b';
    case 'f': return '\f';
    case '"':
    case '\\':
    case '/': return c;
    default: return 0;
    }
}

/* r->p is after the backslash; dst has room for at least one byte per byte of the escape. */
static mt_rc read_escape(reader *r, char *dst, size_t *n)
{
    if (r->p >= r->end) return value_json_bad(r, "a string that does not end");
    char c = *r->p++, plain = unescape(c);
    if (c == 'u') return read_unicode_escape(r, dst, n);
    if (!plain) return value_json_bad(r, "an unknown escape in a string");
    dst[(*n)++] = plain;
    return MT_OK;
}

/* A string with escapes, from the first backslash on; [start, r->p) comes before it. */
static mt_rc read_escaped(reader *r, const char *start, uint64_t *high, size_t *n)
{
    mt_value_reader *k = r->keep;
    *n = 0;
    for (;;) {
        size_t run = (size_t)(r->p - start);
        size_t need = *n + run + 8; /* 8: an escape's UTF-8 */
        if (need > k->cap_scratch && mt_grow(&k->scratch, &k->cap_scratch, need, 1, NULL))
            return mt_no_memory(r->err, "%s", r->what);
        memcpy(k->scratch + *n, start, run);
        *n += run;
        if (r->p >= r->end) return value_json_bad(r, "a string that does not end");
        if (*r->p == '"') return MT_OK;
        if (*r->p != '\\') return value_json_bad(r, "a control character inside a string; write it as an escape");
        r->p++;
        MT_TRY(read_escape(r, k->scratch, n));
        start = r->p;
        r->p = scan_string(start, r->end, high);
    }
}

static mt_rc read_string(reader *r, const char **s, size_t *n)
{
    const char *start = ++r->p;
    uint64_t high = 0;
    r->p = scan_string(start, r->end, &high);
    if (r->p < r->end && *r->p == '"') {
        *s = start;
        *n = (size_t)(r->p - start);
    } else {
        MT_TRY(read_escaped(r, start, &high, n));
        *s = mt_arena_strndup(r->arena, r->keep->scratch, *n);
        if (!*s) return mt_no_memory(r->err, "%s", r->what);
    }
    if (high && !mt_utf8_valid(*s, *n, NULL)) return value_json_bad(r, "a string that is not valid UTF-8");
    r->p++;
    return MT_OK;
}

/* Up to 18 digits, which always fit. */
static int64_t short_int(const char *p, const char *end)
{
    bool negative = *p == '-';
    int64_t v = 0;
    for (p += negative; p < end; p++) v = v * 10 + (*p - '0');
    return negative ? -v : v;
}

static mt_rc read_number(reader *r, mt_value *out)
{
    const char *q = r->p;
    bool integral = true;
    if (q < r->end && *q == '-') q++;
    const char *digits = q;
    while (q < r->end && *q >= '0' && *q <= '9') q++;
    if (q == digits || (*digits == '0' && q - digits > 1)) return value_json_bad(r, "a value was expected");
    if (q < r->end && *q == '.') {
        const char *dot = q++;
        while (q < r->end && *q >= '0' && *q <= '9') q++;
        if (q == dot + 1) return value_json_bad(r, "expected digits after the decimal point");
        integral = false;
    }
    if (q < r->end && (*q == 'e' || *q == 'E')) {
        q++;
        if (q < r->end && (*q == '+' || *q == '-')) q++;
        const char *e = q;
        while (q < r->end && *q >= '0' && *q <= '9') q++;
        if (q == e) return value_json_bad(r, "digits were expected in the exponent");
        integral = false;
    }
    if (integral && q - digits <= 18) {
        *out = (mt_value){ .type = MT_VALUE_INT, .i = short_int(r->p, q) };
        r->p = q;
        return MT_OK;
    }
    char copy[400]; /* strtod wants a terminator; longer numbers carry no more information */
    size_t len = (size_t)(q - r->p);
    if (len >= sizeof copy) return value_json_bad(r, "a number of more than 399 characters");
    memcpy(copy, r->p, len);
    copy[len] = '\0';
    r->p = q;
    errno = 0;
    long long i = integral ? strtoll(copy, NULL, 10) : 0;
    if (integral && errno != ERANGE)
        *out = (mt_value){ .type = MT_VALUE_INT, .i = i };
    else
        *out = (mt_value){ .type = MT_VALUE_FLOAT, .f = strtod(copy, NULL) };
    if (integral && errno == ERANGE && !(out->digits = mt_arena_strndup(r->arena, copy, len)))
        return mt_no_memory(r->err, "%s", r->what);
    return MT_OK;
}

static mt_rc value_json_push(reader *r, const mt_pair *p)
{
    mt_value_reader *k = r->keep;
    if (r->n_stack == k->cap_stack && mt_grow(&k->stack, &k->cap_stack, r->n_stack + 1, sizeof *k->stack, NULL))
        return mt_no_memory(r->err, "%s", r->what);
    k->stack[r->n_stack++] = *p;
    return MT_OK;
}

static mt_rc read_list(reader *r, mt_value *out)
{
    size_t base = r->n_stack;
    r->p++;
    if (!value_json_take(r, ']')) {
        do {
            mt_pair p = { 0 };
            MT_TRY(read_value(r, &p.value));
            MT_TRY(value_json_push(r, &p));
        } while (value_json_take(r, ','));
        if (!value_json_take(r, ']')) return value_json_bad(r, "',' or ']' was expected");
    }
    size_t n = r->n_stack - base;
    mt_value *items = mt_arena_alloc(r->arena, n * sizeof *items); /* the stack holds larger ones: no overflow */
    if (!items) return mt_no_memory(r->err, "%s", r->what);
    for (size_t i = 0; i < n; i++) items[i] = r->keep->stack[base + i].value;
    r->n_stack = base;
    *out = (mt_value){ .type = MT_VALUE_LIST };
    out->list.items = items;
    out->list.n = n;
    return MT_OK;
}

static bool same_key(const mt_pair *a, const mt_pair *b) { return a->key_n == b->key_n && memcmp(a->key, b->key, a->key_n) == 0; }

/* The last of equal keys wins and keeps the first one's place, as Python's dict does.  Records have few
 * keys: a scan finds equal ones.  What has more waits for unite_keys. */
static mt_rc push_pair(reader *r, size_t base, const mt_pair *p)
{
    mt_pair *stack = r->keep->stack;
    if (r->n_stack - base <= MAX_SCANNED)
        for (size_t i = base; i < r->n_stack; i++)
            if (same_key(&stack[i], p)) {
                if (r->keep->unique_keys) return value_json_bad(r, "a key is given twice");
                stack[i].value = p->value;
                return MT_OK;
            }
    return value_json_push(r, p);
}

/* The slot of p's key, or the free one where it belongs; slots hold 1 + a pair's place. */
static size_t *find_key(size_t *slots, size_t mask, const mt_pair *pairs, const mt_pair *p)
{
    size_t at = mt_hash_keyed(p->key, p->key_n) & mask;
    while (slots[at] && !same_key(&pairs[slots[at] - 1], p)) at = (at + 1) & mask;
    return &slots[at];
}

/* The same as push_pair for a whole map of many keys (a vocabulary), at its end. */
static mt_rc unite_keys(reader *r, size_t base)
{
    mt_pair *pairs = r->keep->stack + base;
    size_t n = r->n_stack - base, n_kept = 0, n_slots = 1;
    while (n_slots < 2 * n) n_slots *= 2;
    size_t *slots = mt_calloc(n_slots, sizeof *slots);
    if (!slots) return mt_no_memory(r->err, "%s", r->what);
    for (size_t i = 0; i < n; i++) {
        size_t *slot = find_key(slots, n_slots - 1, pairs, &pairs[i]);
        if (*slot && r->keep->unique_keys) {
            mt_free(slots);
            return value_json_bad(r, "a key is given twice");
        }
        if (*slot) {
            pairs[*slot - 1].value = pairs[i].value;
        } else {
            pairs[n_kept] = pairs[i];
            *slot = ++n_kept;
        }
    }
    r->n_stack = base + n_kept;
    mt_free(slots);
    return MT_OK;
}

static mt_rc read_map(reader *r, mt_value *out)
{
    size_t base = r->n_stack;
    r->p++;
    if (!value_json_take(r, '}')) {
        do {
            mt_pair p = { 0 };
            skip_space(r);
            if (r->p >= r->end || *r->p != '"') return value_json_bad(r, "a key in double quotes was expected");
            MT_TRY(read_string(r, &p.key, &p.key_n));
            if (!value_json_take(r, ':')) return value_json_bad(r, "expected ':' after a key");
            MT_TRY(read_value(r, &p.value));
            MT_TRY(push_pair(r, base, &p));
        } while (value_json_take(r, ','));
        if (!value_json_take(r, '}')) return value_json_bad(r, "',' or '}' was expected");
    }
    if (r->n_stack - base > MAX_SCANNED) MT_TRY(unite_keys(r, base));
    size_t n = r->n_stack - base;
    mt_pair *pairs = mt_arena_alloc(r->arena, n * sizeof *pairs);
    if (!pairs) return mt_no_memory(r->err, "%s", r->what);
    if (n) memcpy(pairs, r->keep->stack + base, n * sizeof *pairs);
    r->n_stack = base;
    *out = (mt_value){ .type = MT_VALUE_MAP };
    out->map.pairs = pairs;
    out->map.n = n;
    return MT_OK;
}

static bool take_word(reader *r, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) return false;
    r->p += n;
    return true;
}

static mt_rc read_value(reader *r, mt_value *out)
{
    skip_space(r);
    *out = (mt_value){ 0 };
    if (r->p >= r->end) return value_json_bad(r, "the text ends where a value was expected");
    if (r->keep->max_values && ++r->n_values > r->keep->max_values) return too_many(r);
    if (*r->p == '{' || *r->p == '[') {
        if (++r->depth > MAX_DEPTH) return value_json_bad(r, "nested deeper than 512 levels");
        MT_TRY(*r->p == '{' ? read_map(r, out) : read_list(r, out));
        r->depth--;
        return MT_OK;
    }
    if (*r->p == '"') {
        out->type = MT_VALUE_STR;
        return read_string(r, &out->str.s, &out->str.n);
    }
    if (*r->p >= '0' && *r->p <= '9') return read_number(r, out);
    if (take_word(r, "true")) return *out = (mt_value){ .type = MT_VALUE_BOOL, .b = true }, MT_OK;
    if (take_word(r, "false")) return *out = (mt_value){ .type = MT_VALUE_BOOL, .b = false }, MT_OK;
    if (take_word(r, "null")) return MT_OK;
    /* Python writes these, so data sets hold them. */
    if (take_word(r, "NaN")) return *out = (mt_value){ .type = MT_VALUE_FLOAT, .f = NAN }, MT_OK;
    if (take_word(r, "Infinity")) return *out = (mt_value){ .type = MT_VALUE_FLOAT, .f = INFINITY }, MT_OK;
    if (take_word(r, "-Infinity")) return *out = (mt_value){ .type = MT_VALUE_FLOAT, .f = -INFINITY }, MT_OK;
    return read_number(r, out);
}

mt_rc mt_value_reader_parse(mt_value_reader *keep, mt_value *out, mt_arena *a, const char *text, size_t n, size_t *used,
                            const char *what, mt_err *err)
{
    reader r = { .text = text, .p = text, .end = text + n, .what = what, .arena = a, .keep = keep, .err = err };
    if (!used) r.p += mt_utf8_mark(text, n); /* files that people write on Windows start with one */
    mt_rc rc = read_value(&r, out);
    if (!rc) skip_space(&r);
    if (used) *used = (size_t)(r.p - text);
    if (rc) return rc;
    if (used) return MT_OK;
    return r.p < r.end ? value_json_bad(&r, "something follows the end of the document") : MT_OK;
}

void mt_value_reader_free(mt_value_reader *keep)
{
    mt_free(keep->stack);
    mt_free(keep->scratch);
    *keep = (mt_value_reader){ 0 };
}

mt_rc mt_value_parse_json(mt_value *out, mt_arena *a, const char *text, size_t n, size_t *used, const char *what, mt_err *err)
{
    mt_value_reader keep = { 0 };
    mt_rc rc = mt_value_reader_parse(&keep, out, a, text, n, used, what, err);
    mt_value_reader_free(&keep);
    return rc;
}
