/* The hand-written scanners cut random text exactly where regex.h cuts it with the same pattern. */
#include "test.h"

#include "base/rng.h"
#include "base/str.h"
#include "base/utf8.h"
#include "tokenizer/regex.h"
#include "tokenizer/scan.h"

/* Characters every alternative of the patterns looks at. */
/* clang-format off */
static const char *const alphabet[] = {
    "a", "b", "s", "t", "T", "r", "R", "e", "E", "v", "V", "m", "l", "L", "d", "D", "Z", "'", "'", "'", " ", " ", " ", "\t", "\n", "\n", "\r",
    "\v", "0", "7", "9", ".", ",", "!", "/", "/", "-", "_", "$", "+", "^", "<", "\x01", "\x7f", "\xc2\xa0", "\xc2\x85", "\xe3\x80\x80",
    "\xc3\xa9", "\xc3\x89", "\xc5\xbf", "\xc7\x85", "\xca\xb0", "\xcc\x81", "\xd7\x90", "\xd9\x8f", "\xe0\xa4\xa8", "\xe0\xa4\xbf", "\xe2\x83\x9d",
    "\xe4\xbd\xa0", "\xe9\xbe\xa5", "\xe9\xbe\xa6", "\xe3\x81\x82", "\xe3\x82\xa2", "\xe3\x83\xbc", "\xe3\x80\x82", "\xd9\xa3", "\xc2\xbd", "\xe2\x85\xa7",
    "\xe2\x82\xac", "\xe2\x80\x99", "\xe2\x80\x8d", "\xef\xb8\x8f", "\xf0\x9f\x98\x80", "\xf0\x9d\x9f\x98", "\xf0\x9d\x94\x98", "\xef\xbf\xbd",
};
/* clang-format on */

static void random_text(mt_str *out, uint64_t i)
{
    mt_str_clear(out);
    uint64_t n = mt_rng_below(1, i, 0, 40), few = mt_rng_below(1, i, 1, 4) == 0 ? 6 : MT_COUNT(alphabet),
             base = mt_rng_below(1, i, 2, MT_COUNT(alphabet));
    for (uint64_t k = 0; k < n; k++) mt_str_puts(out, alphabet[(base + mt_rng_below(2, i, k, few)) % MT_COUNT(alphabet)]);
}

static void compare(mt_scan_fn scan, const mt_regex *re, mt_regex_state *st, const mt_unicode *uc, const char *s, size_t n,
                    const char *pattern)
{
    mt_err err = { 0 };
    mt_regex_state_begin(st, n);
    for (size_t at = 0; at < n;) {
        bool found;
        size_t start, end, our_start, our_end = scan(uc, s, n, at, &our_start);
        assert_ok(mt_regex_find(re, st, s, n, at, &found, &start, &end, &err));
        if (!found) start = end = n;
        if (our_start != start || our_end != end)
            fail_msg("%s\n  on \"%s\" from %zu: [%zu, %zu), expected [%zu, %zu)", pattern, s, at, our_start, our_end, start, end);
        at = end;
    }
}

static void scanners_cut_where_the_pattern_does(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_unicode uc;
    mt_str text = { 0 };
    mt_regex_state *st;
    assert_ok(mt_unicode_init(&uc, &err));
    assert_ok(mt_regex_state_create(&st, &err));
    for (size_t p = 0; mt_scan_pattern(p); p++) {
        const char *pattern = mt_scan_pattern(p);
        mt_scan_fn scan = mt_scan_for(pattern, strlen(pattern));
        mt_regex *re;
        assert_non_null(scan);
        assert_ok(mt_regex_create(&re, pattern, strlen(pattern), &err));
        for (uint64_t i = 0; i < 20000; i++) {
            random_text(&text, i);
            compare(scan, re, st, &uc, text.n ? text.s : "", text.n, pattern);
        }
        mt_regex_free(re);
    }
    mt_str_free(&text);
    mt_regex_state_free(st);
    mt_unicode_deinit(&uc);
}

static void unknown_patterns_are_left_to_the_engine(void **state)
{
    (void)state;
    assert_null(mt_scan_for("\\p{L}+", 6));
    assert_null(mt_scan_for("", 0));
}

/* At every border of the table: U+1E4D0 (Nag Mundari) came with Unicode 15.0. */
static void classes_are_those_of_the_reference(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t categories;
    } classes[] = { { "L", MT_GCS_LETTER },        { "^L", ~MT_GCS_LETTER },      { "N", MT_GCS_NUMBER },
                    { "P", MT_GCS_PUNCT },         { "S", MT_GCS_SYMBOL },        { "M", MT_GCS_MARK },
                    { "Lu", MT_GC_BIT(MT_GC_LU) }, { "Ll", MT_GC_BIT(MT_GC_LL) }, { "Lo", MT_GC_BIT(MT_GC_LO) },
                    { "Nd", MT_GC_BIT(MT_GC_ND) }, { "Mn", MT_GC_BIT(MT_GC_MN) }, { "So", MT_GC_BIT(MT_GC_SO) },
                    { "Zs", MT_GC_BIT(MT_GC_ZS) } };
    mt_err err = { 0 };
    mt_unicode uc;
    mt_regex_state *st;
    assert_ok(mt_unicode_init(&uc, &err));
    assert_ok(mt_regex_state_create(&st, &err));
    for (size_t c = 0; c < MT_COUNT(classes); c++) {
        mt_regex *re;
        char pattern[32];
        int n = snprintf(pattern, sizeof pattern, "\\A[\\p{%s}]\\z", classes[c].name);
        assert_ok(mt_regex_create(&re, pattern, (size_t)n, &err));
        for (size_t i = 0; i < 2 * mt__props_ranges_n; i++) {
            uint32_t cp = mt__props_ranges[i / 2].first - (i % 2 && i > 1);
            if (cp >= 0xd800 && cp < 0xe000) continue;
            char s[4];
            bool found;
            size_t start, end;
            mt_regex_state_begin(st, sizeof s);
            assert_ok(mt_regex_find(re, st, s, (size_t)mt_utf8_encode(cp, s), 0, &found, &start, &end, &err));
            if (found != mt_gc_in(mt_unicode_props(&uc, cp), classes[c].categories))
                fail_msg("\\p{%s} and U+%04X: %d, the reference says otherwise", classes[c].name, (unsigned)cp, found);
        }
        mt_regex_free(re);
    }
    mt_regex_state_free(st);
    mt_unicode_deinit(&uc);
}

static void endless_backtracking_is_stopped(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_regex *re;
    mt_regex_state *st;
    bool found;
    size_t start, end;
    char text[64];
    memset(text, 'a', sizeof text);
    text[63] = 'b';
    assert_ok(mt_regex_create(&re, "(a|a|aa)+$", 10, &err));
    assert_ok(mt_regex_state_create(&st, &err));
    assert_int_not_equal(mt_regex_find(re, st, text, sizeof text, 0, &found, &start, &end, &err), MT_OK);
    mt_regex_free(re);
    mt_regex_state_free(st);
    assert_int_equal(mt_regex_create(&re, "(", 1, &err), MT_EFORMAT);
    assert_null(re);
}

MT_TEST_MAIN(cmocka_unit_test(scanners_cut_where_the_pattern_does), cmocka_unit_test(unknown_patterns_are_left_to_the_engine),
             cmocka_unit_test(classes_are_those_of_the_reference), cmocka_unit_test(endless_backtracking_is_stopped))
