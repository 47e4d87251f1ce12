/* regex_parse.c - a pattern in Oniguruma's syntax becomes a tree.
 *
 * What options do ((?i) and the like) is decided here: the tree has none.  As in Oniguruma, an option in the middle of a group lasts to
 * the group's end and takes the alternatives with it: a(?i)b|c is a(?i:b|c). */
#include "tokenizer/regex_impl.h"

#include "base/utf8.h"

#include <string.h>

/* WORK counts spans added to sets and pairs looked at to ignore case: sets cost more than the bytes that name them. */
enum { MAX_PATTERN_BYTES = 1 << 16, MAX_DEPTH = 250, MAX_WORK = 1 << 22, FOLD_WORK = 2800, MAX_TIMES = 100000 };

typedef struct parser {
    const char *s;
    size_t n, i;
    mt__tree *tree;
    bool any_case, extended, dot_all;
    int depth;
    size_t work;
    mt_err *err;
} parser;

static mt_rc parse_group_body(parser *p, mt__node **out);

static mt_rc wrong(const parser *p, const char *why)
{
    return mt_fail(p->err, MT_EFORMAT, "regular expression \"%.*s\", byte %zu: %s", (int)mt_min_i64((int64_t)p->n, 200), p->s,
                   p->i, why);
}
static mt_rc missing(const parser *p, const char *what)
{
    return mt_fail(p->err, MT_EUNSUPPORTED, "regular expression \"%.*s\", byte %zu: %s are not supported",
                   (int)mt_min_i64((int64_t)p->n, 200), p->s, p->i, what);
}
static mt_rc spend(parser *p, size_t work)
{
    p->work += work;
    return p->work > MAX_WORK ? mt_fail(p->err, MT_ERANGE, "regular expression \"%.*s\": its sets of characters are too large",
                                        (int)mt_min_i64((int64_t)p->n, 200), p->s)
                              : MT_OK;
}

/* ---- characters ---- */

static bool more(const parser *p) { return p->i < p->n; }
static bool next_is(const parser *p, const char *what)
{
    return p->n - p->i >= strlen(what) && !memcmp(p->s + p->i, what, strlen(what));
}
static bool take(parser *p, const char *what)
{
    bool is = next_is(p, what);
    if (is) p->i += strlen(what);
    return is;
}
static uint32_t take_char(parser *p)
{
    uint32_t cp = 0;
    p->i += (size_t)mt_utf8_decode(p->s + p->i, p->n - p->i, &cp);
    return cp;
}

static int digit_of(char c, int base)
{
    int lower = c | 0x20, d = c >= '0' && c <= '9' ? c - '0' : -1;
    if (lower >= 'a' && lower <= 'f') d = lower - 'a' + 10;
    return d < base ? d : -1;
}

/* Up to `most` digits. */
static size_t take_number(parser *p, int base, size_t most, uint32_t *out)
{
    size_t n = 0;
    *out = 0;
    for (; n < most && more(p) && digit_of(p->s[p->i], base) >= 0; n++, p->i++)
        *out = *out * (uint32_t)base + (uint32_t)digit_of(p->s[p->i], base);
    return n;
}

/* After \x, \u, \o or \0: the code point. */
static mt_rc parse_code(parser *p, char kind, uint32_t *cp)
{
    char text[4];
    bool braces = (kind == 'x' || kind == 'o') && take(p, "{");
    size_t most = kind == 'u' ? 4 : 2;
    size_t n = take_number(p, kind == 'x' || kind == 'u' ? 16 : 8, braces ? 8 : most, cp);
    if (braces && (!n || !take(p, "}"))) return wrong(p, "a number in braces is expected");
    if (kind == 'u' && n < 4) return wrong(p, "four hexadecimal digits are expected");
    if (kind == 'o' && !braces) *cp = 'o';
    if (kind == 'x' && !braces && *cp >= 0x80) return missing(p, "single bytes of a character");
    return mt_utf8_encode(*cp, text) ? MT_OK : wrong(p, "this number is not a character's");
}

/* After a backslash, a character that stands for itself or for a control character. */
static mt_rc parse_escaped_char(parser *p, uint32_t *cp)
{
    static const char names[] = "tnrfvae", values[] = "\t\n\r\f\v\a\033";
    *cp = take_char(p);
    const char *at = *cp && *cp < 0x80 ? strchr(names, (int)*cp) : NULL;
    if (at) {
        *cp = (uint32_t)values[at - names];
        return MT_OK;
    }
    if (*cp == 'x' || *cp == 'u' || *cp == 'o' || *cp == '0') return parse_code(p, (char)*cp, cp);
    if (*cp && *cp < 0x80 && strchr("cCM", (int)*cp)) return missing(p, "control and meta characters");
    return MT_OK;
}

/* ---- sets ---- */

static mt_rc add_class(parser *p, mt__set *to, const char *name, size_t n, bool negate)
{
    bool known;
    mt__set s = { 0 };
    mt_rc rc = mt__set_add_class(&s, name, n, &known, p->err);
    mt__set_sort(&s);
    if (!rc && !known)
        rc = mt_fail(p->err, MT_EFORMAT, "regular expression \"%.*s\": \"%.*s\" is not a known class of characters",
                     (int)mt_min_i64((int64_t)p->n, 200), p->s, (int)mt_min_i64((int64_t)n, 60), name);
    if (!rc && negate) rc = mt__set_invert(&s, p->err);
    if (!rc) rc = spend(p, s.n);
    if (!rc) rc = mt__set_add_all(to, &s, p->err);
    mt_free(s.spans);
    return rc;
}

/* \d \s \w \h \p{..} and their opposites at p->i, which is after the backslash. */
static mt_rc parse_class_escape(parser *p, mt__set *to, bool *is)
{
    static const char letters[] = "dswh";
    static const char *const names[] = { "digit", "space", "word", "xdigit" };
    char c = more(p) ? p->s[p->i] : 0;
    const char *at = c ? strchr(letters, c | 0x20) : NULL;
    *is = at || ((c | 0x20) == 'p' && p->i + 1 < p->n && p->s[p->i + 1] == '{');
    if (!*is) return MT_OK;
    bool negate = c < 'a';
    p->i++;
    if (at) return add_class(p, to, names[at - letters], strlen(names[at - letters]), negate);
    p->i++;
    negate ^= take(p, "^");
    const char *name = p->s + p->i, *end = memchr(name, '}', p->n - p->i);
    if (!end) return wrong(p, "} is expected");
    p->i += (size_t)(end - name) + 1;
    return add_class(p, to, name, (size_t)(end - name), negate);
}

/* [:alpha:] or [:^alpha:] at p->i */
static mt_rc parse_posix(parser *p, mt__set *to, bool *is)
{
    static const char *const names[] = { "alnum", "alpha", "ascii", "blank", "cntrl", "digit",  "graph",
                                         "lower", "print", "punct", "space", "upper", "xdigit", "word" };
    size_t at = p->i + 2, negate = at < p->n && p->s[at] == '^', n = 0;
    *is = false;
    if (!next_is(p, "[:")) return MT_OK;
    at += negate;
    while (at + n < p->n && p->s[at + n] >= 'a' && p->s[at + n] <= 'z') n++;
    if (at + n + 2 > p->n || memcmp(p->s + at + n, ":]", 2)) return MT_OK;
    for (size_t k = 0; k < MT_COUNT(names) && !*is; k++) *is = strlen(names[k]) == n && !memcmp(names[k], p->s + at, n);
    if (!*is) return wrong(p, "a POSIX class that is not known");
    p->i = at + n + 2;
    return add_class(p, to, p->s + at, n, negate);
}

static mt_rc parse_set(parser *p, mt__set *out);

/* One character of a set, which may begin or end a range; *single is false if it was a class or a nested set. */
static mt_rc parse_set_item(parser *p, mt__set *to, bool *single, uint32_t *cp)
{
    bool is;
    *single = false;
    if (next_is(p, "[")) {
        MT_TRY(parse_posix(p, to, &is));
        if (is) return MT_OK;
        mt__set nested = { 0 };
        p->i++;
        mt_rc rc = parse_set(p, &nested);
        if (!rc) rc = spend(p, nested.n);
        if (!rc) rc = mt__set_add_all(to, &nested, p->err);
        mt_free(nested.spans);
        return rc;
    }
    if (take(p, "\\")) {
        if (!more(p)) return wrong(p, "the pattern ends in a backslash");
        MT_TRY(parse_class_escape(p, to, &is));
        if (is) return MT_OK;
        *single = true;
        if (take(p, "b")) return *cp = '\b', MT_OK;
        if (p->s[p->i] == 'R' || p->s[p->i] == 'X') return missing(p, "\\R and \\X in a set");
        if (p->s[p->i] >= '1' && p->s[p->i] <= '7') return take_number(p, 8, 3, cp), MT_OK;
        return parse_escaped_char(p, cp);
    }
    *single = true;
    *cp = take_char(p);
    return MT_OK;
}

/* Items up to ], && or the end. */
static mt_rc parse_set_items(parser *p, mt__set *to)
{
    bool first = true, single, single_end;
    uint32_t cp, end;
    for (; more(p) && (first || !next_is(p, "]")) && !next_is(p, "&&"); first = false) {
        MT_TRY(spend(p, 1));
        MT_TRY(parse_set_item(p, to, &single, &cp));
        if (!single) continue;
        end = cp;
        bool range = next_is(p, "-") && p->i + 1 < p->n && p->s[p->i + 1] != ']';
        if (range) {
            const size_t dash = p->i++;
            if (next_is(p, "[") || next_is(p, "&&"))
                p->i = dash; /* the dash is a character */
            else {
                MT_TRY(parse_set_item(p, to, &single_end, &end));
                if (!single_end) { /* a-\d: three items */
                    MT_TRY(mt__set_add(to, '-', '-', p->err));
                    end = cp;
                }
            }
        }
        if (end < cp) return wrong(p, "a range of characters that ends before it begins");
        MT_TRY(mt__set_add(to, cp, end, p->err));
    }
    return MT_OK;
}

/* After "[", up to and with "]".  The outermost set ignores case before it is negated, as in Oniguruma. */
static mt_rc parse_set_parts(parser *p, mt__set *out, bool negate, bool outermost)
{
    bool met = false;
    for (;;) {
        mt__set part = { 0 };
        mt_rc rc = parse_set_items(p, met ? &part : out);
        mt__set_sort(met ? &part : out);
        if (!rc && met) rc = mt__set_meet(out, &part, p->err);
        mt_free(part.spans);
        if (rc) return rc;
        met = true;
        if (!take(p, "&&")) break;
    }
    if (!take(p, "]")) return wrong(p, "] is expected");
    if (outermost && p->any_case) {
        MT_TRY(spend(p, FOLD_WORK));
        MT_TRY(mt__set_fold(out, p->err));
    }
    return negate ? mt__set_invert(out, p->err) : MT_OK;
}

static mt_rc parse_set_nested(parser *p, mt__set *out, bool outermost)
{
    if (++p->depth > MAX_DEPTH) return wrong(p, "it is nested too deep");
    bool negate = take(p, "^");
    if (next_is(p, "]") && !memchr(p->s + p->i + 1, ']', p->n - p->i - 1)) return wrong(p, "a set without characters");
    MT_TRY(parse_set_parts(p, out, negate, outermost));
    p->depth--;
    return MT_OK;
}

static mt_rc parse_set(parser *p, mt__set *out) { return parse_set_nested(p, out, false); }

/* ---- nodes ---- */

static mt_rc new_node(parser *p, mt__node_kind kind, mt__node **out)
{
    *out = mt_arena_calloc(&p->tree->arena, 1, sizeof **out);
    if (!*out) return mt_no_memory(p->err, "a regular expression");
    (*out)->kind = kind;
    return MT_OK;
}

/* A node for a set, which it takes over. */
static mt_rc set_node(parser *p, mt__set *s, mt__node **out)
{
    mt__tree *t = p->tree;
    mt_rc rc = new_node(p, MT__NODE_SET, out);
    if (!rc && t->n_sets == t->cap_sets) rc = mt_grow(&t->sets, &t->cap_sets, t->n_sets + 1, sizeof *t->sets, p->err);
    if (rc) return mt_free(s->spans), rc;
    mt__set_seal(s);
    (*out)->value = (uint32_t)t->n_sets;
    t->sets[t->n_sets++] = *s;
    return MT_OK;
}

static mt_rc char_node(parser *p, uint32_t cp, mt__node **out)
{
    if (p->any_case) {
        mt__set s = { 0 };
        mt_rc rc = spend(p, FOLD_WORK);
        if (!rc) rc = mt__set_add(&s, cp, cp, p->err);
        if (!rc) rc = mt__set_fold(&s, p->err);
        if (rc) return mt_free(s.spans), rc;
        if (s.n != 1 || s.spans[0].first != s.spans[0].last) return set_node(p, &s, out);
        mt_free(s.spans);
    }
    MT_TRY(new_node(p, MT__NODE_CHAR, out));
    (*out)->value = cp;
    return MT_OK;
}

static mt_rc any_node(parser *p, bool newlines, mt__node **out)
{
    mt__set s = { 0 };
    mt_rc rc = newlines ? MT_OK : mt__set_add(&s, '\n', '\n', p->err);
    if (!rc) rc = mt__set_invert(&s, p->err);
    return rc ? mt_free(s.spans), rc : set_node(p, &s, out);
}

static mt_rc place_node(parser *p, mt__place place, mt__node **out)
{
    MT_TRY(new_node(p, MT__NODE_AT, out));
    (*out)->value = place;
    return MT_OK;
}

/* \R: (?>\r\n|[\n-\r\x85\x{2028}\x{2029}]), read as if it stood there. */
static mt_rc newline_node(parser *p, mt__node **out)
{
    static const char text[] = "(?>\\r\\n|[\\n-\\r\\u0085\\u2028\\u2029])";
    parser inner = { .s = text, .n = sizeof text - 1, .tree = p->tree, .work = p->work, .err = p->err };
    MT_TRY(parse_group_body(&inner, out));
    p->work = inner.work;
    return MT_OK;
}

static mt_rc parse_word(parser *p, mt__set *s)
{
    const bool negate = p->s[p->i++] == 'W';
    MT_TRY(mt__set_add_word(s, p->err));
    mt__set_sort(s);
    MT_TRY(spend(p, s->n));
    return negate ? mt__set_invert(s, p->err) : MT_OK;
}

static mt_rc parse_escape(parser *p, mt__node **out)
{
    static const char places[] = "AzZGbB";
    static const mt__place values[] = { MT__AT_START, MT__AT_END, MT__AT_LAST_LINE, MT__AT_FROM, MT__AT_EDGE, MT__AT_NO_EDGE };
    if (!more(p)) return wrong(p, "the pattern ends in a backslash");
    char c = p->s[p->i];
    const char *at = c ? strchr(places, c) : NULL;
    if (at) return p->i++, place_node(p, values[at - places], out);
    if (take(p, "R")) return newline_node(p, out);
    if (take(p, "N")) return any_node(p, false, out);
    if (take(p, "O")) return any_node(p, true, out);
    if (c >= '1' && c <= '9') return missing(p, "references to groups");
    if (c && strchr("kgKXyY", c)) return missing(p, "\\k, \\g, \\K, \\X, \\y and \\Y");
    bool is = c == 'w' || c == 'W';
    mt__set s = { 0 };
    mt_rc rc = is ? parse_word(p, &s) : parse_class_escape(p, &s, &is);
    if (rc) return mt_free(s.spans), rc;
    if (is) return set_node(p, &s, out);
    uint32_t cp;
    MT_TRY(parse_escaped_char(p, &cp));
    return char_node(p, cp, out);
}

static mt_rc parse_set_node(parser *p, mt__node **out)
{
    mt__set s = { 0 };
    mt_rc rc = parse_set_nested(p, &s, true);
    return rc ? mt_free(s.spans), rc : set_node(p, &s, out);
}

/* Letters of options up to ) or :, as in (?i-m:...) */
static mt_rc parse_options(parser *p)
{
    bool on = true;
    for (; more(p) && !next_is(p, ")") && !next_is(p, ":"); p->i++) switch (p->s[p->i]) {
        case '-': on = false; break;
        case 'i': p->any_case = on; break;
        case 'm': p->dot_all = on; break;
        case 'x': p->extended = on; break;
        default: return missing(p, "options other than i, m and x");
        }
    return MT_OK;
}

static mt_rc close_group(parser *p) { return take(p, ")") ? MT_OK : wrong(p, ") is expected"); }

/* A group that wraps what is in it in a node of this kind. */
static mt_rc parse_wrapped(parser *p, mt__node_kind kind, bool behind, bool negative, mt__node **out)
{
    MT_TRY(new_node(p, kind, out));
    (*out)->behind = behind;
    (*out)->negative = negative;
    MT_TRY(parse_group_body(p, &(*out)->child));
    return close_group(p);
}

/* After "(?": options, for the group or up to the end of the one around it. */
static mt_rc parse_option_group(parser *p, mt__node **out)
{
    parser before = *p;
    MT_TRY(parse_options(p));
    bool whole = take(p, ")");
    if (!whole && !take(p, ":")) return wrong(p, ") is expected");
    MT_TRY(parse_group_body(p, out));
    p->any_case = before.any_case;
    p->dot_all = before.dot_all;
    p->extended = before.extended;
    return whole ? MT_OK : close_group(p);
}

/* After "(" */
static mt_rc parse_group(parser *p, mt__node **out)
{
    if (next_is(p, "*")) return missing(p, "callouts");
    if (!take(p, "?")) {
        MT_TRY(parse_group_body(p, out));
        return close_group(p);
    }
    if (take(p, ":")) {
        MT_TRY(parse_group_body(p, out));
        return close_group(p);
    }
    if (take(p, "=")) return parse_wrapped(p, MT__NODE_LOOK, false, false, out);
    if (take(p, "!")) return parse_wrapped(p, MT__NODE_LOOK, false, true, out);
    if (take(p, "<=")) return parse_wrapped(p, MT__NODE_LOOK, true, false, out);
    if (take(p, "<!")) return parse_wrapped(p, MT__NODE_LOOK, true, true, out);
    if (take(p, ">")) return parse_wrapped(p, MT__NODE_ATOMIC, false, false, out);
    if (next_is(p, "#")) {
        const char *end = memchr(p->s + p->i, ')', p->n - p->i);
        if (!end) return wrong(p, ") is expected");
        p->i = (size_t)(end - p->s) + 1;
        return new_node(p, MT__NODE_CAT, out);
    }
    if (take(p, "<")) {
        const char *end = memchr(p->s + p->i, '>', p->n - p->i);
        if (!end || end == p->s + p->i) return wrong(p, "the name of a group is expected");
        p->i = (size_t)(end - p->s) + 1;
        MT_TRY(parse_group_body(p, out));
        return close_group(p);
    }
    if (more(p) && strchr("~({@&|^Py", p->s[p->i])) return missing(p, "groups that begin so");
    return parse_option_group(p, out);
}

static mt_rc parse_atom(parser *p, mt__node **out)
{
    if (take(p, "(")) return parse_group(p, out);
    if (take(p, "[")) return parse_set_node(p, out);
    if (take(p, "\\")) return parse_escape(p, out);
    if (take(p, ".")) return any_node(p, p->dot_all, out);
    if (take(p, "^")) return place_node(p, MT__AT_LINE_START, out);
    if (take(p, "$")) return place_node(p, MT__AT_LINE_END, out);
    if (next_is(p, "*") || next_is(p, "+") || next_is(p, "?")) return wrong(p, "nothing to repeat");
    return char_node(p, take_char(p), out);
}

/* {n}, {n,}, {,m} or {n,m} at p->i; anything else is text. */
static mt_rc parse_interval(parser *p, mt__node *repeat, bool *is)
{
    const size_t begin = p->i++;
    size_t n_least = take_number(p, 10, 7, &repeat->least), n_most = 0;
    bool comma = take(p, ",");
    repeat->most = repeat->least;
    if (comma) n_most = take_number(p, 10, 7, &repeat->most);
    if (comma && !n_most) repeat->most = MT__NO_MOST;
    *is = (n_least || n_most) && take(p, "}");
    if (!*is) return p->i = begin, MT_OK;
    if (repeat->least > MAX_TIMES || (repeat->most != MT__NO_MOST && repeat->most > MAX_TIMES))
        return wrong(p, "too many repetitions");
    return repeat->most < repeat->least ? wrong(p, "an interval that ends before it begins") : MT_OK;
}

static mt_rc parse_times(parser *p, mt__node *repeat, bool *is)
{
    repeat->most = MT__NO_MOST;
    *is = true;
    if (next_is(p, "{")) {
        MT_TRY(parse_interval(p, repeat, is));
        /* a{2}? is (?:a{2})?, and a plus after an interval repeats once more */
        if (*is && repeat->least != repeat->most && take(p, "?")) repeat->greed = MT__LAZY;
        return MT_OK;
    }
    if (take(p, "+"))
        repeat->least = 1;
    else if (take(p, "?"))
        repeat->most = 1;
    else if (!take(p, "*"))
        *is = false;
    if (!*is) return MT_OK;
    if (take(p, "?")) repeat->greed = MT__LAZY;
    if (repeat->greed == MT__GREEDY && take(p, "+")) repeat->greed = MT__POSSESSIVE;
    return MT_OK;
}

static void skip_comments(parser *p)
{
    while (p->extended && more(p))
        if (strchr(" \t\n\r\f\v", p->s[p->i]) && p->s[p->i])
            p->i++;
        else if (next_is(p, "#"))
            while (more(p) && p->s[p->i++] != '\n') {
            }
        else
            return;
}

static mt_rc parse_repeated(parser *p, mt__node **out)
{
    MT_TRY(parse_atom(p, out));
    for (int times = 0;; times++) {
        mt__node *repeat;
        bool is;
        skip_comments(p);
        MT_TRY(new_node(p, MT__NODE_REPEAT, &repeat));
        MT_TRY(parse_times(p, repeat, &is));
        if (!is) return MT_OK;
        if (times + p->depth > MAX_DEPTH) return wrong(p, "it is nested too deep");
        repeat->child = *out;
        *out = repeat;
    }
}

static mt_rc parse_row(parser *p, mt__node **out)
{
    MT_TRY(new_node(p, MT__NODE_CAT, out));
    mt__node **last = &(*out)->child;
    for (skip_comments(p); more(p) && !next_is(p, "|") && !next_is(p, ")"); skip_comments(p)) {
        MT_TRY(parse_repeated(p, last));
        last = &(*last)->next;
    }
    return MT_OK;
}

/* Alternatives up to ) or the end. */
static mt_rc parse_group_body(parser *p, mt__node **out)
{
    if (++p->depth > MAX_DEPTH) return wrong(p, "it is nested too deep");
    parser before = *p;
    MT_TRY(new_node(p, MT__NODE_ALT, out));
    mt__node **last = &(*out)->child;
    do {
        MT_TRY(parse_row(p, last));
        last = &(*last)->next;
    } while (take(p, "|"));
    p->any_case = before.any_case;
    p->dot_all = before.dot_all;
    p->extended = before.extended;
    p->depth--;
    return MT_OK;
}

mt_rc mt__regex_parse(mt__tree *tree, const char *pattern, size_t n, mt_err *err)
{
    parser p = { .s = pattern, .n = n, .tree = tree, .err = err };
    if (n > MAX_PATTERN_BYTES)
        return mt_fail(err, MT_ERANGE, "a regular expression of %zu bytes, at most %d are accepted", n, MAX_PATTERN_BYTES);
    if (!mt_utf8_valid(pattern, n, NULL)) return mt_fail(err, MT_EFORMAT, "a regular expression that is not valid UTF-8");
    MT_TRY(parse_group_body(&p, &tree->root));
    return more(&p) ? wrong(&p, "a ) without its (") : MT_OK;
}
