/* lexer.c - two alternating states: text up to the next tag, and tokens inside a tag.
 *
 * White space, as transformers sets Jinja up:
 *   trim_blocks    one newline after %} and #} is dropped, not after }}
 *   lstrip_blocks  blanks between the start of a line and {% or {# are dropped, not before {{
 *   {%- and -%}    drop all white space on that side; {%+ and +%} switch the two rules above off */
#include "jinja/lexer.h"

#include "base/arena.h"
#include "base/utf8.h"
#include "jinja/chars.h"

#include <errno.h>
#include <stdlib.h>

enum { MAX_NESTING = 512 };

typedef struct lexer {
    const char *text, *p, *end;
    const char *name;
    mt_arena *arena;
    jtokens *out;
    mt_err *err;
    const char *seen; /* line and col describe this place, and only move forward */
    uint32_t line, col;
    bool line_starting;     /* what was consumed last ended a line */
    char open[MAX_NESTING]; /* brackets waiting for their partner */
    size_t n_open;
} lexer;

static void locate(lexer *x, const char *at, uint32_t *line, uint32_t *col)
{
    if (at < x->seen) x->seen = x->text, x->line = x->col = 1;
    for (; x->seen < at; x->seen++) {
        if (*x->seen == '\n')
            x->line++, x->col = 1;
        else if (((unsigned char)x->seen[1] & 0xc0) != 0x80)
            x->col++;
    }
    *line = x->line;
    *col = x->col;
}

static mt_rc lexer_bad(lexer *x, const char *at, const char *message)
{
    uint32_t line, col;
    locate(x, at, &line, &col);
    return mt_fail(x->err, MT_EFORMAT, "%s:%u:%u: %s", x->name, line, col, message);
}

static mt_rc lexer_push(lexer *x, int type, const char *at, jval value)
{
    MT_TRY(mt_grow(&x->out->items, &x->out->cap, x->out->n + 1, sizeof *x->out->items, x->err));
    jtoken *t = &x->out->items[x->out->n++];
    *t = (jtoken){ .type = type, .value = value };
    locate(x, at, &t->line, &t->col);
    return MT_OK;
}

static bool at_text(const lexer *x, const char *p, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(x->end - p) >= n && memcmp(p, s, n) == 0;
}

static const char *skip_space(const lexer *x, const char *p) { return p + mt__j_space_prefix(p, (size_t)(x->end - p)); }

/* ---- text ---- */

/* The end of the text before a tag, given the sign after the tag's opening. */
static const char *text_end(const lexer *x, const char *from, const char *tag, char sign, bool is_print)
{
    if (sign == '-') return from + mt__j_rstrip(from, (size_t)(tag - from));
    if (sign == '+' || is_print) return tag;
    const char *line = tag;
    while (line > from && line[-1] != '\n') line--;
    if (line == from && !x->line_starting) return tag;
    return skip_space(x, line) >= tag ? line : tag;
}

static mt_rc push_text(lexer *x, const char *from, const char *tag, char sign, bool is_print)
{
    const char *end = text_end(x, from, tag, sign, is_print);
    return end > from ? lexer_push(x, T_DATA, from, mt__j_text(from, (size_t)(end - from))) : MT_OK;
}

static char sign_at(const lexer *x, const char *p) { return p < x->end && (*p == '-' || *p == '+') ? *p : 0; }

/* A closing "%}", "-%}" or "+%}" at p (plus: whether the last is one): where it ends, NULL if there is none. */
static const char *close_end(const lexer *x, const char *p, const char *close, bool plus, bool trim)
{
    if (at_text(x, p, close)) {
        p += 2;
        return trim && p < x->end && *p == '\n' ? p + 1 : p;
    }
    char sign = sign_at(x, p);
    if (!sign || !at_text(x, p + 1, close) || (sign == '+' && !plus)) return NULL;
    return sign == '-' ? skip_space(x, p + 3) : p + 3;
}

static void consume(lexer *x, const char *to)
{
    if (to > x->p) x->line_starting = to[-1] == '\n';
    x->p = to;
}

/* tag is at "{%": the end of "{% word %}", or NULL if it is something else. */
static const char *word_tag_end(const lexer *x, const char *tag, const char *word, bool plus, bool trim)
{
    const char *p = tag + 2;
    if (sign_at(x, p)) p++;
    p = skip_space(x, p);
    if (!at_text(x, p, word)) return NULL;
    return close_end(x, skip_space(x, p + strlen(word)), "%}", plus, trim);
}

static mt_rc lex_raw(lexer *x, const char *tag)
{
    for (const char *q = x->p; q + 1 < x->end; q++) {
        if (q[0] != '{' || q[1] != '%') continue;
        const char *end = word_tag_end(x, q, "endraw", true, true);
        if (!end) continue;
        MT_TRY(push_text(x, x->p, q, sign_at(x, q + 2), false));
        consume(x, end);
        return MT_OK;
    }
    return lexer_bad(x, tag, "a {% raw %} that is not closed by {% endraw %}");
}

static mt_rc lex_comment(lexer *x, const char *tag)
{
    for (const char *q = x->p; q + 1 < x->end; q++) {
        /* the earliest close wins, and a sign directly in front of it belongs to it */
        const char *end = close_end(x, q, "#}", true, true);
        if (!end) continue;
        consume(x, end);
        return MT_OK;
    }
    return lexer_bad(x, tag, "a comment that is not closed by #}");
}

/* ---- inside a tag ---- */

static bool is_digit(char c, int base)
{
    if (base <= 10) return c >= '0' && c < '0' + base;
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

/* Digits with single underscores between them; the first must be there. */
static const char *digits(const lexer *x, const char *p, int base)
{
    while (p < x->end && is_digit(*p, base)) {
        p++;
        if (p + 1 < x->end && *p == '_' && is_digit(p[1], base)) p++;
    }
    return p;
}

static const char *float_end(const lexer *x, const char *p)
{
    if (p > x->text && p[-1] == '.') return NULL;
    const char *q = digits(x, p, 10), *whole = q;
    if (q + 1 < x->end && *q == '.' && is_digit(q[1], 10)) q = digits(x, q + 1, 10);
    if (q < x->end && (*q | 32) == 'e') {
        const char *e = q + 1;
        if (e < x->end && (*e == '+' || *e == '-')) e++;
        if (e < x->end && is_digit(*e, 10)) return digits(x, e, 10);
    }
    return q > whole ? q : NULL;
}

static const char *integer_end(const lexer *x, const char *p, int *base)
{
    *base = 10;
    if (*p != '0') return digits(x, p, 10);
    char kind = p + 1 < x->end ? (char)(p[1] | 32) : 0;
    int want = mt__j_base_of(kind);
    const char *first = p + 2;
    if (want && first < x->end && *first == '_') first++;
    if (want && first < x->end && is_digit(*first, want)) {
        *base = want;
        return digits(x, first, want);
    }
    while (p < x->end && (*p == '0' || (*p == '_' && p + 1 < x->end && p[1] == '0'))) p++;
    return p;
}

static mt_rc lex_number(lexer *x)
{
    int base = 10;
    const char *start = x->p, *end = float_end(x, start);
    bool is_float = end != NULL;
    if (!end) end = integer_end(x, start, &base);
    char copy[128];
    size_t n = 0;
    for (const char *p = base == 10 ? start : start + 2; p < end; p++) {
        if (*p == '_') continue;
        if (n + 1 >= sizeof copy) return lexer_bad(x, start, "a number of more than 127 digits");
        copy[n++] = *p;
    }
    copy[n] = '\0';
    consume(x, end);
    if (is_float) return lexer_push(x, T_FLOAT, start, mt__j_float(strtod(copy, NULL)));
    errno = 0;
    long long v = strtoll(copy, NULL, base);
    if (errno == ERANGE) return lexer_bad(x, start, "an integer that does not fit 64 bits");
    return lexer_push(x, T_INTEGER, start, mt__j_int(v));
}

static int hex_value(const char *p, const char *end, int n, uint32_t *out)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++) {
        if (p + i >= end || !is_digit(p[i], 16)) return 0;
        v = v << 4 | (uint32_t)(p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    }
    *out = v;
    return n;
}

/* One escape; p is after the backslash.  Bytes used, 0 if malformed; unknown ones keep their backslash. */
static size_t unescape(const char *p, const char *end, char *dst, size_t *k)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *hit = *p ? strchr(from, *p) : NULL;
    if (hit) return dst[(*k)++] = to[hit - from], 1;
    if (*p == '\n') return 1;
    uint32_t cp;
    size_t used = 0;
    if (*p >= '0' && *p <= '7') {
        for (cp = 0; used < 3 && p + used < end && p[used] >= '0' && p[used] <= '7'; used++)
            cp = cp * 8 + (uint32_t)(p[used] - '0');
    } else if (*p == 'x' || *p == 'u' || *p == 'U') {
        int digits = *p == 'u' ? 4 : 8;
        if (*p == 'x') digits = 2;
        used = 1 + (size_t)hex_value(p + 1, end, digits, &cp);
        if (used == 1) return 0;
    } else if (*p == 'N')
        return 0; /* names of characters are not known here */
    if (!used) {
        dst[(*k)++] = '\\';
        return dst[(*k)++] = *p, 1;
    }
    int n = mt_utf8_encode(cp, dst + *k);
    *k += (size_t)n;
    return n ? used : 0;
}

static mt_rc lex_string(lexer *x)
{
    const char *start = x->p, *p = start + 1;
    bool escaped = false;
    while (p < x->end && *p != *start) {
        if (*p == '\\') escaped = true, p++;
        p++;
    }
    if (p >= x->end) return lexer_bad(x, start, "a string that is not closed");
    jval v = mt__j_text(start + 1, (size_t)(p - start - 1));
    if (escaped) {
        char *dst =
            mt_arena_alloc(x->arena, v.n + 4); /* no escape is shorter than what it stands for; + 4: the encoder's reach */
        if (!dst) return mt_no_memory(x->err, "the template %s", x->name);
        size_t k = 0;
        for (const char *q = start + 1; q < p;) {
            if (*q != '\\') {
                dst[k++] = *q++;
                continue;
            }
            size_t used = unescape(q + 1, p, dst, &k);
            if (!used) return lexer_bad(x, q, "an escape in a string that cannot be read");
            q += 1 + used;
        }
        v = mt__j_text(dst, k);
    }
    consume(x, p + 1);
    return lexer_push(x, T_STRING, start, v);
}

static mt_rc lex_operator(lexer *x)
{
    static const struct {
        char text[3];
        int type;
    } twos[] = { { "//", T_FLOORDIV }, { "**", T_POW }, { "==", T_EQ }, { "!=", T_NE }, { ">=", T_GE }, { "<=", T_LE } };
    const char *start = x->p;
    for (size_t i = 0; i < MT_COUNT(twos); i++)
        if (at_text(x, start, twos[i].text)) {
            consume(x, start + 2);
            return lexer_push(x, twos[i].type, start, (jval){ 0 });
        }
    char c = *start;
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) return lexer_bad(x, start, "a character that has no meaning inside a tag");
    if (c == '(' || c == '[' || c == '{') {
        if (x->n_open == MAX_NESTING) return lexer_bad(x, start, "brackets nested too deeply");
        x->open[x->n_open++] = strchr("()[]{}", c)[1];
    } else if (c == ')' || c == ']' || c == '}') {
        if (!x->n_open || x->open[--x->n_open] != c) return lexer_bad(x, start, "a closing bracket without its partner");
    }
    consume(x, start + 1);
    return lexer_push(x, c, start, (jval){ 0 });
}

static mt_rc lex_tag(lexer *x, const char *tag, bool is_print)
{
    const char *close = is_print ? "}}" : "%}";
    x->n_open = 0;
    while (x->p < x->end) {
        const char *end = x->n_open ? NULL : close_end(x, x->p, close, !is_print, !is_print);
        if (end) {
            MT_TRY(lexer_push(x, is_print ? T_PRINT_END : T_TAG_END, x->p, (jval){ 0 }));
            consume(x, end);
            return MT_OK;
        }
        const char *start = x->p;
        size_t word = mt__j_identifier_prefix(start, (size_t)(x->end - start));
        if (skip_space(x, start) > start)
            consume(x, skip_space(x, start));
        else if (is_digit(*start, 10))
            MT_TRY(lex_number(x));
        else if (word) {
            consume(x, start + word);
            MT_TRY(lexer_push(x, T_NAME, start, mt__j_text(start, word)));
        } else if (*start == '\'' || *start == '"')
            MT_TRY(lex_string(x));
        else
            MT_TRY(lex_operator(x));
    }
    return lexer_bad(x, tag, is_print ? "a {{ that is not closed by }}" : "a {% that is not closed by %}");
}

static const char *next_tag(const lexer *x)
{
    for (const char *p = x->p; p + 1 < x->end; p++) {
        p = memchr(p, '{', (size_t)(x->end - p - 1));
        if (!p) return NULL;
        if (p[1] == '%' || p[1] == '{' || p[1] == '#') return p;
    }
    return NULL;
}

static mt_rc lex_next(lexer *x, const char *tag)
{
    const char *raw = tag[1] == '%' ? word_tag_end(x, tag, "raw", false, false) : NULL;
    char sign = sign_at(x, tag + 2);
    bool is_print = tag[1] == '{';
    MT_TRY(push_text(x, x->p, tag, sign, is_print));
    consume(x, raw ? raw : tag + 2 + (sign != 0));
    if (raw) return lex_raw(x, tag);
    if (tag[1] == '#') return lex_comment(x, tag);
    MT_TRY(lexer_push(x, is_print ? T_PRINT_BEGIN : T_TAG_BEGIN, tag, (jval){ 0 }));
    return lex_tag(x, tag, is_print);
}

mt_rc mt__j_lex(jtokens *out, mt_arena *a, const char *text, size_t n, const char *name, mt_err *err)
{
    lexer x = { .text = text,
                .p = text,
                .end = text + n,
                .name = name,
                .arena = a,
                .out = out,
                .err = err,
                .seen = text,
                .line = 1,
                .col = 1,
                .line_starting = true };
    for (const char *tag; (tag = next_tag(&x));) MT_TRY(lex_next(&x, tag));
    if (x.p < x.end) MT_TRY(lexer_push(&x, T_DATA, x.p, mt__j_text(x.p, (size_t)(x.end - x.p))));
    return lexer_push(&x, T_EOF, x.end, (jval){ 0 });
}
