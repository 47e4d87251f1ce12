/* Values and their JSON: what is read, what is refused, and that writing matches Python's json.dumps. */
#include "test.h"

#include "base/fault.h"
#include "base/value.h"

static void parse(mt_value *v, mt_arena *a, const char *text)
{
    mt_err err = { 0 };
    assert_ok(mt_value_parse_json(v, a, text, strlen(text), NULL, "test", &err));
}

static void documents_come_back_as_python_would_write_them(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "null", "null" },
        { " [1, -2,3.5,1e3,true ,false] ", "[1, -2, 3.5, 1000.0, true, false]" },
        { "{\"b\":1,\"a\":{\"x\":[]},\"c\":{}}", "{\"b\": 1, \"a\": {\"x\": []}, \"c\": {}}" },
        { "\"a\\u00e9\\n\\\"\\u4f60\\ud83d\\ude00\"", "\"a\xc3\xa9\\n\\\"\xe4\xbd\xa0\xf0\x9f\x98\x80\"" },
        { "\"\\ud83d x\"", "\"\xef\xbf\xbd x\"" },
        { "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\\/\"", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\x7f/\"" },
        { "{\"k\":1,\"j\":2,\"k\":3}", "{\"k\": 3, \"j\": 2}" },
        { "[0.1, 1e16, 1e15, 123456789012345680.0, 1e-5, 0.0001, 2.5e-10, 1e22]",
          "[0.1, 1e+16, 1000000000000000.0, 1.2345678901234568e+17, 1e-05, 0.0001, 2.5e-10, 1e+22]" },
        { "[5.9604644775390625e-08, -1.1125369292536007e-308, 9.332636185032189e-302]", /* 2**-24, -(2**-1023), 2**-1000 */
          "[5.960464477539063e-08, -1.1125369292536007e-308, 9.332636185032189e-302]" },
        { "[9007199254740993, 99999999999999999999]", "[9007199254740993, 99999999999999999999]" },
        { "[9223372036854775807, 9223372036854775808, -9223372036854775809]",
          "[9223372036854775807, 9223372036854775808, -9223372036854775809]" },
        { "[NaN, Infinity, -Infinity]", "[NaN, Infinity, -Infinity]" },
        { "\xef\xbb\xbf {\"a\": 1}", "{\"a\": 1}" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_arena a = { 0 };
        mt_str s = { 0 };
        mt_value v;
        parse(&v, &a, cases[i].in);
        mt_value_write_json(&s, &v);
        assert_string_equal(s.s, cases[i].out);
        mt_str_free(&s);
        mt_arena_free(&a);
    }
}

static void the_last_of_equal_keys_wins_among_many(void **state)
{
    (void)state;
    enum { N = 1000 };
    mt_str text = { 0 };
    mt_arena a = { 0 };
    mt_value v;
    for (int i = 0; i < 2 * N; i++) mt_str_printf(&text, "%s\"k%d\": %d", i ? ", " : "{\"in\": {\"k1\": 7}, ", i * 7 % N, i);
    mt_str_puts(&text, "}");
    parse(&v, &a, text.s);
    assert_int_equal(v.map.n, N + 1);
    assert_int_equal(mt_value_get(mt_value_get(&v, "in"), "k1")->i, 7);
    for (int i = 0; i < N; i++) { /* in the order of the first round, with the values of the second */
        char key[16];
        snprintf(key, sizeof key, "k%d", i * 7 % N);
        assert_int_equal(v.map.pairs[1 + i].key_n, strlen(key));
        assert_memory_equal(v.map.pairs[1 + i].key, key, strlen(key));
        assert_int_equal(v.map.pairs[1 + i].value.i, N + i);
        assert_int_equal(mt_value_get(&v, key)->i, N + i);
    }
    mt_arena_free(&a);
    mt_str_free(&text);
}

static void malformed_documents_are_refused_with_their_place(void **state)
{
    (void)state;
    /* clang-format off */
    static const struct { const char *in, *says; } cases[] = {
        { "", "column 1: the text ends" },        { "{\"a\":1,}", "column 8: a key in double quotes" },
        { "[1 2]", "column 4: ',' or ']'" },      { "[01]", "a value was expected" },
        { "\"\\x\"", "unknown escape" },          { "\"abc", "does not end" },
        { "\"a\\", "does not end" },              { "\"\xff\"", "not valid UTF-8" },
        { "\"\\u12g4\"", "hexadecimal" },         { "{\"a\" 1}", "expected ':'" },
        { "1 2", "something follows" },           { "[1.]", "decimal point" },
        { "[1e]", "exponent" },                   { "nul", "a value was expected" },
        { "{\n\n x}", "line 3, column 2" },       { "\"a\nb\"", "control character" },
    };
    /* clang-format on */
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_arena a = { 0 };
        mt_err err = { 0 };
        mt_value v;
        assert_int_equal(mt_value_parse_json(&v, &a, cases[i].in, strlen(cases[i].in), NULL, "x.json", &err), MT_EFORMAT);
        assert_says(cases[i].says);
        assert_says("x.json");
        mt_arena_free(&a);
    }
    char deep[2000];
    memset(deep, '[', sizeof deep);
    mt_arena a = { 0 };
    mt_err err = { 0 };
    mt_value v;
    assert_int_equal(mt_value_parse_json(&v, &a, deep, sizeof deep, NULL, "x", &err), MT_EFORMAT);
    assert_says("512 levels");
    mt_arena_free(&a);
}

static void several_documents_may_follow_each_other(void **state)
{
    (void)state;
    mt_arena a = { 0 };
    mt_err err = { 0 };
    mt_value v;
    const char *text = "{\"a\":1} {\"a\":2}";
    size_t used;
    assert_ok(mt_value_parse_json(&v, &a, text, strlen(text), &used, "t", &err));
    assert_int_equal(used, 8);
    assert_ok(mt_value_parse_json(&v, &a, text + used, strlen(text) - used, &used, "t", &err));
    assert_int_equal(mt_value_get(&v, "a")->i, 2);
    mt_arena_free(&a);
}

static void equality_ignores_order_and_number_kind(void **state)
{
    (void)state;
    mt_arena a = { 0 };
    mt_value x, y;
    parse(&x, &a, "{\"a\":[1,\"s\"],\"b\":2.0}");
    parse(&y, &a, "{\"b\":2,\"a\":[1,\"s\"]}");
    assert_true(mt_value_equal(&x, &y));
    parse(&y, &a, "{\"b\":2,\"a\":[1,\"t\"]}");
    assert_false(mt_value_equal(&x, &y));
    assert_true(mt_value_is(&mt_value_get(&x, "a")->list.items[1], "s"));
    parse(&x, &a, "1000000000000000000001");
    parse(&y, &a, "1000000000000000000002"); /* the same float */
    assert_false(mt_value_equal(&x, &y));
    assert_true(mt_value_equal(&x, &x));
    mt_arena_free(&a);
}

static void a_copy_needs_nothing_of_its_original(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": [\"x\", 1, {\"\": null}, []], \"b\": {\"c\": true, \"d\": 0.5, \"f\": 1000000000000000000001}, \"e\": {}}";
    mt_err err = { 0 };
    char *original = mt_strdup(text);
    mt_arena a = { 0 }, kept = { 0 };
    mt_value v, copy;
    mt_str out = { 0 };
    assert_ok(mt_value_parse_json(&v, &a, original, strlen(original), NULL, "t", &err));
    assert_true(mt_value_copy(&copy, &kept, &v));
    memset(original, '?', strlen(original));
    mt_free(original);
    mt_arena_free(&a);
    mt_value_write_json(&out, &copy);
    assert_string_equal(out.s, text);
    mt_str_free(&out);
    mt_arena_free(&kept);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const char *text = "{\"list\": [1,2,3,4,5,6,7,8,9,10,11,12], \"s\": \"a\\nb\", \"m\": {\"k\": [[]]}}";
    for (int n = 0;; n++) {
        mt_arena a = { 0 };
        mt_value v;
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = mt_value_parse_json(&v, &a, text, strlen(text), NULL, "t", &err);
        bool hit = mt_fault_disarm();
        mt_arena_free(&a);
        if (!hit) {
            assert_int_equal(rc, MT_OK);
            break;
        }
        assert_int_equal(rc, MT_ENOMEM);
    }
    mt_arena small = { .max_bytes = 64 };
    mt_value v;
    assert_int_equal(mt_value_parse_json(&v, &small, text, strlen(text), NULL, "t", &err), MT_ENOMEM);
    mt_arena_free(&small);
}

MT_TEST_MAIN(cmocka_unit_test(documents_come_back_as_python_would_write_them),
             cmocka_unit_test(the_last_of_equal_keys_wins_among_many),
             cmocka_unit_test(malformed_documents_are_refused_with_their_place),
             cmocka_unit_test(several_documents_may_follow_each_other), cmocka_unit_test(equality_ignores_order_and_number_kind),
             cmocka_unit_test(a_copy_needs_nothing_of_its_original), cmocka_unit_test(every_allocation_may_fail))
