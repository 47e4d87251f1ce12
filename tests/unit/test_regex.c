/* Regular expressions find what Oniguruma finds, in a number of steps that the text's length bounds. */
#include "test.h"

#include "base/fault.h"
#include "base/rng.h"
#include "base/str.h"
#include "tokenizer/regex.h"
#include "tokenizer/scan.h"

#include <oniguruma.h>
#include <stdlib.h>

/* -- against Oniguruma ------------------------------------------------------------------------------------ */

static regex_t *oracle_of(const char *pattern)
{
    OnigEncoding utf8 = ONIG_ENCODING_UTF8;
    const OnigUChar *p = (const OnigUChar *)pattern;
    regex_t *re = NULL;
    onig_initialize(&utf8, 1);
    if (onig_new(&re, p, p + strlen(pattern), ONIG_OPTION_NONE, utf8, ONIG_SYNTAX_DEFAULT, NULL)) return NULL;
    return re;
}

/* -1: it gave up. */
static int ask_oracle(regex_t *re, const char *s, size_t n, size_t from, size_t *start, size_t *end)
{
    const OnigUChar *u = (const OnigUChar *)s;
    OnigRegion *region = onig_region_new();
    int at = onig_search(re, u, u + n, u + from, u + n, region, ONIG_OPTION_NONE);
    *start = at >= 0 ? (size_t)region->beg[0] : 0;
    *end = at >= 0 ? (size_t)region->end[0] : 0;
    onig_region_free(region, 1);
    if (at >= 0) return 1;
    return at == ONIG_MISMATCH ? 0 : -1;
}

/* All matches in a text, each searched from the end of the one before. */
static void compare_all(const mt_regex *re, mt_regex_state *st, regex_t *oracle, const char *pattern, const char *s, size_t n)
{
    mt_err err = { 0 };
    mt_regex_state_begin(st, n);
    for (size_t from = 0; from <= n;) {
        bool found;
        size_t start, end, his_start, his_end;
        int his = ask_oracle(oracle, s, n, from, &his_start, &his_end);
        if (his < 0 || mt_regex_find(re, st, s, n, from, &found, &start, &end, &err)) return;
        /* 6.9.8 passes over some matches (\\b.{2,}(?=a) on "-b  sa") that it finds when it begins there */
        if (found && (!his || his_start > start)) his = ask_oracle(oracle, s, n, start, &his_start, &his_end);
        if (found != his || (found && (start != his_start || end != his_end)))
            fail_msg("%s\n  on \"%s\" from %zu: %d [%zu, %zu), expected %d [%zu, %zu)", pattern, s, from, found, start, end, his,
                     his_start, his_end);
        if (!found) return;
        from = end > from ? end : from + 1;
        while (from < n && (s[from] & 0xc0) == 0x80) from++;
    }
}

/* clang-format off */
static const char *const alphabet[] = {
    "a", "a", "b", "b", "c", "A", "B", "k", "K", "s", "S", "t", "l", "'", " ", " ", "\n", "\r", "\t", "0", "1", "9", ".", ",", "-", "_", "$", "+", "^", "]",
    "\xc2\xa0", "\xc2\x85", "\xc3\xa9", "\xc3\x89", "\xc5\xbf", "\xe2\x84\xaa", "\xcc\x81", "\xd7\x90", "\xe0\xa4\xbf", "\xe4\xbd\xa0", "\xe3\x81\x82", "\xe3\x82\xa2",
    "\xd9\xa3", "\xc2\xbd", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf0\x9d\x9f\x98",
};

/* Published ones that are not in scan.c, and one for each thing the parser knows. */
static const char *const patterns[] = {
    "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\s+",
    "(?:'[sS]|'[tT]|'[lL][lL])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}", " ?[^(\\s|[.,!?])]+", "\\d{1,3}(?=(?:\\d{3})*\\b)", "(?=(\\d{3})+(?!\\d))",
    "\\p{N}{1,2}(?=(?:\\p{N}{3})*(?:\\P{N}|$))", " {2,}", "(?<!\\n)^", "``|''", "\\s?\\p{L}+", "\\w+|[^\\w\\s]+", "[0-9][0-9][0-9]", "(?<=\\s)\\S+(?=\\s)",
    "[[:punct:]]", "[^[:alpha:]\\s]+", "[[:^digit:]a]+", "\\p{^L}+", "\\P{Lu}\\p{Ll}", "\\p{Hiragana}|\\p{Katakana}|\\p{Arabic}+", "\\p{Letter}+|\\p{alnum}",
    "(?m:a.b)", "a.b", "(?i)K|S", "(?i:[^k]s)", "a(?i)b|c", "(?x: a  b # c\n c )", "(?x)a b", "\\Aa|b\\z|c\\Z", "^.*$", "^", "$", "\\b", "\\B.", "\\Ga", "\\R", "\\h+", "\\H",
    "\\x61|\\x{e9}|\\u00c9", "a{2}|b{,2}c|a{1,}", "a{,}|a{x", "a{2}?", "a{1,2}?b", "a{1,2}+b", "(?:ab|a)(?>b*)b", "(?>a+?)b", "a*+a", "(a|ab)(c|bcd)*", "(?<name>a)b",
    "(?#no)a", "(?:a*)*b", "(?:a|)*?b", "(?:|a)+", "(?:a?\?)*b", "(?<=a|bc)c", "(?<!a|bc)c", "(?<=a{1,3})b", "(?<=^|b)a", "(?=a*c)a", "(?!(?:a|b)c)[ab]", "(?=(?!b)a)a+",
    "[]a]", "[a-]", "[a\\-c]", "[a-c&&b-k]+", "[^a&&[^b]]", "[\\s\\S]", "[^\\n]+", "[a[bc]-]+", "\\n\\r?", "\\N+|\\O", ".\\z", "a|", "|a", "", "(?:)", "()", "(?i:\xc3\xa9)", "\\\\|\\.|\\]",
};
/* clang-format on */

static void random_text(mt_str *out, uint64_t i)
{
    uint64_t n = mt_rng_below(1, i, 0, 24), few = mt_rng_below(1, i, 1, 2) ? 6 : MT_COUNT(alphabet),
             base = mt_rng_below(1, i, 2, MT_COUNT(alphabet));
    mt_str_clear(out);
    mt_str_puts(out, "");
    for (uint64_t k = 0; k < n; k++) mt_str_puts(out, alphabet[(base + mt_rng_below(2, i, k, few)) % MT_COUNT(alphabet)]);
}

static void compare_pattern(const char *pattern, uint64_t seed, uint64_t n_texts, bool must_parse)
{
    mt_err err = { 0 };
    mt_str text = { 0 };
    mt_regex *re;
    mt_regex_state *st;
    regex_t *oracle = oracle_of(pattern);
    mt_rc rc = mt_regex_create(&re, pattern, strlen(pattern), &err);
    if (must_parse && (rc || !oracle)) fail_msg("%s: %s, Oniguruma: %s", pattern, err.msg, oracle ? "takes it" : "refuses it");
    assert_ok(mt_regex_state_create(&st, &err));
    for (uint64_t i = 0; i < n_texts && !rc && oracle; i++) {
        random_text(&text, seed * n_texts + i);
        compare_all(re, st, oracle, pattern, text.s, text.n);
    }
    if (!rc) mt_regex_free(re);
    onig_free(oracle);
    mt_regex_state_free(st);
    mt_str_free(&text);
}

static void known_patterns_match_as_in_oniguruma(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(patterns); i++) compare_pattern(patterns[i], i, 2000, true);
    for (size_t i = 0; mt_scan_pattern(i); i++) compare_pattern(mt_scan_pattern(i), i, 2000, true);
}

/* -- random patterns ---------------------------------------------------------------------------------------- */

typedef struct maker {
    uint64_t seed, i;
    mt_str *out;
} maker;

static uint64_t draw(maker *m, uint64_t n) { return mt_rng_below(3, m->seed, m->i++, n); }

static void put_atom(maker *m, int depth);

static void put_row(maker *m, int depth)
{
    static const char *const times[] = { "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{0,2}?", "{2,}" };
    for (uint64_t n = draw(m, 4); n > 0; n--) {
        put_atom(m, depth);
        bool group = m->out->s[m->out->n - 1] == ')'; /* intervals of it end there once it has matched nothing */
        if (draw(m, 3) == 0) mt_str_puts(m->out, times[draw(m, MT_COUNT(times) - (group ? 4 : 0))]);
    }
}

static void put_alternatives(maker *m, int depth)
{
    put_row(m, depth);
    while (draw(m, 3) == 0) mt_str_puts(m->out, "|"), put_row(m, depth);
}

static void put_atom(maker *m, int depth)
{
    static const char *const leaves[] = { "a",      "b",          "ab",       ".",        "\\s",    "\\S",    "\\d",
                                          "\\w",    "[ab]",       "[^a]",     "[a-k\\s]", "\\p{L}", "\\p{N}", "[^\\s\\p{L}]",
                                          "\\b",    "^",          "$",        "c",        "1",      "\\n",    " ",
                                          "(?i:k)", "(?i:[b-t])", "\xc3\xa9", "\\p{Lu}" };
    static const char *const groups[] = { "(?:", "(?:", "(", "(?=", "(?!", "(?>", "(?<=", "(?<!" };
    uint64_t kind = depth > 3 ? 9 : draw(m, 10);
    if (kind > 2) {
        mt_str_puts(m->out, leaves[draw(m, MT_COUNT(leaves))]);
        return;
    }
    const char *group = groups[draw(m, MT_COUNT(groups))];
    mt_str_puts(m->out, group);
    if (strchr(group, '<')) /* which Oniguruma limits to simple texts */
        mt_str_puts(m->out, leaves[draw(m, 10)]);
    else
        put_alternatives(m, depth + 1);
    mt_str_puts(m->out, ")");
}

static void random_patterns_match_as_in_oniguruma(void **state)
{
    (void)state;
    const char *rounds = getenv("MT_DRAWS"), *first = getenv("MT_FIRST");
    mt_str pattern = { 0 };
    for (uint64_t i = first ? (uint64_t)atoll(first) : 0, n = i + (rounds ? (uint64_t)atoll(rounds) : 3000); i < n; i++) {
        mt_str_clear(&pattern);
        mt_str_puts(&pattern, "");
        put_alternatives(&(maker){ .seed = i, .out = &pattern }, 0);
        compare_pattern(pattern.s, i, 20, false);
    }
    mt_str_free(&pattern);
}

/* -- bounds --------------------------------------------------------------------------------------------------- */

static mt_rc find_all(const char *pattern, mt_regex_state *st, const char *s, size_t n, size_t *n_found, mt_err *err)
{
    mt_regex *re;
    mt_rc rc = MT_OK;
    bool found = true;
    size_t start, end;
    assert_int_equal(mt_regex_create(&re, pattern, strlen(pattern), err), MT_OK);
    mt_regex_state_begin(st, n);
    *n_found = 0;
    for (size_t from = 0; !rc && found && from < n; from = end, *n_found += !rc && found)
        rc = mt_regex_find(re, st, s, n, from, &found, &start, &end, err);
    mt_regex_free(re);
    return rc;
}

/* Patterns that back up at every place: no attempt of them is long by the count of an engine that counts only attempts. */
static const char *const endless[] = {
    "(?:(?=a*c)b|a)*d|a", "a*b|a",          "(a|a|aa)+b",      "(a*)*b",    "(?:a+)+b", "(?=a*b)c|a",
    "(?<=a*)b|a",         "(?<!ba*)a*b|a",  "a*?b|a",          "(?>a*)b|a", "a*+b|a",   "(?:a?){50}a{50}b",
    "(?:(?:a*)*)*b",      "(?!a*b)a*a*a*b", "(?:(?:)*?)*a*a*b"
};

static void work_is_bounded_whatever_the_pattern(void **state)
{
    (void)state;
    enum { N = 100000 };
    mt_err err = { 0 };
    mt_regex_state *st;
    size_t n;
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, 'a', N);
    assert_ok(mt_regex_state_create(&st, &err));
    for (size_t i = 0; i < MT_COUNT(endless); i++) {
        if (find_all(endless[i], st, text, N, &n, &err) != MT_ERANGE) fail_msg("%s", endless[i]);
        assert_true(strstr(err.msg, "takes too many steps on a text of 100000 bytes") || strstr(err.msg, "too many ways"));
    }
    mt_regex_state_free(st);
    free(text);
}

/* 400 words that begin alike or not: one step for each at a place where none begins. */
static void a_list_of_words_is_not_too_much_work(void **state)
{
    (void)state;
    enum { N = 300000 };
    mt_err err = { 0 };
    mt_regex_state *st;
    mt_str pattern = { 0 };
    size_t n;
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, '.', N);
    for (int i = 0; i < 400; i++) mt_str_printf(&pattern, "%cord%d|", 'a' + i % 26, i);
    mt_str_puts(&pattern, "\\.");
    assert_ok(mt_regex_state_create(&st, &err));
    assert_ok(find_all(pattern.s, st, text, N, &n, &err));
    assert_int_equal(n, N);
    mt_regex_state_free(st);
    mt_str_free(&pattern);
    free(text);
}

static void a_long_word_needs_no_memory(void **state)
{
    (void)state;
    enum { N = 3000000 };
    mt_err err = { 0 };
    mt_regex_state *st;
    size_t n;
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, 'a', N);
    assert_ok(mt_regex_state_create(&st, &err));
    assert_ok(find_all(" ?[a-z]+|\\s+(?!\\S)|\\s+", st, text, N, &n, &err));
    assert_int_equal(n, 1);
    assert_int_equal(find_all("(?:a|b)+", st, text, N, &n, &err), MT_ERANGE);
    assert_says("too many ways through a text of 3000000 bytes");
    mt_regex_state_free(st);
    free(text);
}

static void a_signal_stops_a_search(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_regex_state *st;
    size_t n;
    atomic_bool stop = true;
    char text[1000];
    memset(text, 'a', sizeof text);
    assert_ok(mt_regex_state_create(&st, &err));
    mt_regex_state_heed(st, &stop);
    assert_int_equal(find_all("(?:(?=a*c)b|a)*d|a", st, text, sizeof text, &n, &err), MT_ESTOPPED);
    mt_regex_state_free(st);
}

static void what_is_not_supported_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        mt_rc rc;
    } bad[] = { { "(", MT_EFORMAT },
                { ")", MT_EFORMAT },
                { "[a", MT_EFORMAT },
                { "a{3,1}", MT_EFORMAT },
                { "*a", MT_EFORMAT },
                { "\\", MT_EFORMAT },
                { "[]", MT_EFORMAT },
                { "[b-a]", MT_EFORMAT },
                { "\\p{Nonsense}", MT_EFORMAT },
                { "\xff", MT_EFORMAT },
                { "(a)\\1", MT_EUNSUPPORTED },
                { "(?~a)", MT_EUNSUPPORTED },
                { "\\X", MT_EUNSUPPORTED },
                { "(?{x})", MT_EUNSUPPORTED },
                { "(*FAIL)", MT_EUNSUPPORTED },
                { "(?(a)b)", MT_EUNSUPPORTED },
                { "\\g<a>", MT_EUNSUPPORTED },
                { "(?s)a", MT_EUNSUPPORTED },
                { "\\xe4", MT_EUNSUPPORTED },
                { "(?:(?:(?:ab){1000}){1000}){1000}", MT_ERANGE },
                { "(?:(?:(?:){90000}){90000}){90000}", MT_ERANGE } };
    mt_err err = { 0 };
    mt_regex *re;
    for (size_t i = 0; i < MT_COUNT(bad); i++) {
        if (mt_regex_create(&re, bad[i].pattern, strlen(bad[i].pattern), &err) != bad[i].rc)
            fail_msg("%s: %s", bad[i].pattern, err.msg);
        assert_null(re);
    }
    mt_str deep = { 0 };
    for (int i = 0; i < 20000; i++) mt_str_puts(&deep, "(");
    assert_int_equal(mt_regex_create(&re, deep.s, deep.n, &err), MT_EFORMAT);
    mt_str_clear(&deep);
    for (int i = 0; i < 7000; i++) mt_str_puts(&deep, "[^\\P{L}]");
    assert_int_equal(mt_regex_create(&re, deep.s, deep.n, &err), MT_ERANGE);
    mt_str_free(&deep);
}

/* A pattern with a few of its bytes exchanged, inserted or dropped is refused or matches something. */
static void damaged_patterns_never_crash(void **state)
{
    (void)state;
    static const char bytes[] = "()[]{}|*+?\\^$.:-&<>=!#pPuxRb,0129aiL\n\xc3";
    const char *rounds = getenv("MT_DRAWS");
    mt_str text = { 0 }, damaged = { 0 };
    mt_regex_state *st;
    mt_err err = { 0 };
    assert_ok(mt_regex_state_create(&st, &err));
    for (uint64_t i = 0, n = rounds ? (uint64_t)atoll(rounds) : 5000; i < n; i++) {
        const char *pattern = patterns[mt_rng_below(5, i, 0, MT_COUNT(patterns))];
        mt_str_clear(&damaged);
        for (uint64_t k = 0; pattern[k]; k++) {
            const uint64_t what = mt_rng_below(6, i, k, 24);
            if (what < 2) mt_str_putc(&damaged, bytes[mt_rng_below(7, i, k, sizeof bytes - 1)]);
            if (what != 1 && what != 2) mt_str_putc(&damaged, pattern[k]);
        }
        mt_str_putc(&damaged, '(');
        mt_regex *re;
        for (int whole = 0; whole < 2; whole++) {
            bool found;
            size_t start, end;
            if (mt_regex_create(&re, damaged.s, damaged.n - !whole, &err)) continue;
            random_text(&text, i);
            mt_regex_state_begin(st, text.n);
            if (!mt_regex_find(re, st, text.s, text.n, 0, &found, &start, &end, &err) && found)
                assert_true(start <= end && end <= text.n);
            mt_regex_free(re);
        }
    }
    mt_regex_state_free(st);
    mt_str_free(&text);
    mt_str_free(&damaged);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char pattern[] = "[^\\P{L}a-f&&[b-z]]+|(?i:k[s-t])(?<=a|bc)|\\w{2}(?:a|)*\\b|\\R.";
    for (long n = 0;; n++) {
        mt_err err = { 0 };
        mt_regex *re = NULL;
        mt_regex_state *st = NULL;
        bool found;
        size_t start, end;
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = mt_regex_create(&re, pattern, sizeof pattern - 1, &err);
        if (!rc) rc = mt_regex_state_create(&st, &err);
        for (size_t i = 0; !rc && i < 8; i++) rc = mt_regex_find(re, st, "a1 ks__\n", 8, i, &found, &start, &end, &err);
        bool hit = mt_fault_disarm();
        mt_regex_free(re);
        mt_regex_state_free(st);
        if (!hit) break;
        assert_int_equal(rc, MT_ENOMEM);
    }
}

MT_TEST_MAIN(cmocka_unit_test(known_patterns_match_as_in_oniguruma), cmocka_unit_test(random_patterns_match_as_in_oniguruma),
             cmocka_unit_test(work_is_bounded_whatever_the_pattern), cmocka_unit_test(a_list_of_words_is_not_too_much_work),
             cmocka_unit_test(a_long_word_needs_no_memory), cmocka_unit_test(a_signal_stops_a_search),
             cmocka_unit_test(what_is_not_supported_is_refused), cmocka_unit_test(damaged_patterns_never_crash),
             cmocka_unit_test(every_allocation_may_fail))
