/* The JSON writer (base/json_write.h): layout, escapes, numbers, and what it refuses. */
#include "test.h"

#include "base/json.h"
#include "base/json_write.h"

#include <math.h>
#include <string.h>

static void expect_text(mt_str *text, const mt_json_out *j, const char *expected)
{
    mt_err err = { 0 };
    assert_ok(mt_json_done(j, "a text", &err));
    assert_string_equal(text->s, expected);
    mt_str_free(text);
}

/* Two maps in a list, one of them empty, and an empty list. */
static void put_nested(mt_json_out *j, mt_json_layout outer, mt_json_layout inner)
{
    mt_json_map(j, NULL, outer);
    mt_json_put_int(j, "a", -3);
    mt_json_list(j, "b", inner);
    mt_json_map(j, NULL, MT_JSON_LINES);
    mt_json_put_bool(j, "c", true);
    mt_json_put_null(j, "d");
    mt_json_end(j);
    mt_json_map(j, NULL, MT_JSON_LINES);
    mt_json_end(j);
    mt_json_end(j);
    mt_json_list(j, "e", outer);
    mt_json_end(j);
    mt_json_end(j);
}

static void maps_and_lists_nest_in_three_layouts(void **state)
{
    (void)state;
    mt_str s = { 0 };
    mt_json_out tight = { .to = &s }, flat = { .to = &s }, lines = { .to = &s }, mixed = { .to = &s };
    put_nested(&tight, MT_JSON_TIGHT, MT_JSON_LINES);
    expect_text(&s, &tight, "{\"a\":-3,\"b\":[{\"c\":true,\"d\":null},{}],\"e\":[]}");
    put_nested(&flat, MT_JSON_FLAT, MT_JSON_TIGHT);
    expect_text(&s, &flat, "{\"a\": -3, \"b\": [{\"c\": true, \"d\": null}, {}], \"e\": []}");
    put_nested(&lines, MT_JSON_LINES, MT_JSON_LINES);
    expect_text(
        &s, &lines,
        "{\n  \"a\": -3,\n  \"b\": [\n    {\n      \"c\": true,\n      \"d\": null\n    },\n    {}\n  ],\n  \"e\": []\n}");
    put_nested(&mixed, MT_JSON_LINES, MT_JSON_FLAT);
    expect_text(&s, &mixed, "{\n  \"a\": -3,\n  \"b\": [{\"c\": true, \"d\": null}, {}],\n  \"e\": []\n}");
}

static void texts_and_keys_are_escaped_and_read_back(void **state)
{
    (void)state;
    static const char odd[] = "a\"\\\b\f\n\r\t\x01/\x7f\xc3\xa9\xf0\x9f\x98\x80</script>";
    mt_str s = { 0 };
    mt_err err = { 0 };
    const mt_value *doc;
    mt_json_out j = { .to = &s };
    mt_json_map(&j, NULL, MT_JSON_FLAT);
    mt_json_put_str(&j, odd, odd);
    mt_json_key(&j, "n\0l", 3);
    mt_json_put_bytes(&j, NULL, "a\0b", 3);
    mt_json_put_bytes(&j, "half", "\xc3", 1);
    mt_json_put_strf(&j, "made", "%c%03d\n", 'x', 7);
    mt_json_put_str(&j, "none", NULL);
    mt_json_end(&j);
    assert_ok(mt_json_done(&j, "a text", &err));
    assert_ok(mt_json_parse(&doc, s.s, s.n, "a text", &err));
    assert_string_equal(mt_json_string(mt_value_get(doc, odd)), odd);
    assert_memory_equal(doc->map.pairs[1].key, "n\0l", 4);
    assert_memory_equal(doc->map.pairs[1].value.str.s, "a\0b", 4);
    assert_string_equal(mt_json_string(mt_value_get(doc, "half")), "\xef\xbf\xbd");
    assert_string_equal(mt_json_string(mt_value_get(doc, "made")), "x007\n");
    assert_int_equal(mt_value_get(doc, "none")->type, MT_VALUE_NULL);
    mt_json_free(doc);
    mt_str_free(&s);
}

static void numbers_that_json_lacks_become_null(void **state)
{
    (void)state;
    mt_str s = { 0 };
    mt_json_out j = { .to = &s };
    mt_json_list(&j, NULL, MT_JSON_FLAT);
    mt_json_put_num(&j, NULL, "%.3f", 1.5);
    mt_json_put_num(&j, NULL, "%.6g", -1e-30);
    mt_json_put_num(&j, NULL, "%.6g", (double)NAN);
    mt_json_put_num(&j, NULL, "%.6g", -(double)NAN);
    mt_json_put_num(&j, NULL, "%.6g", (double)INFINITY);
    mt_json_put_num(&j, NULL, "%.6g", -(double)INFINITY);
    mt_json_put_num(&j, NULL, "%.17g", 0.1);
    mt_json_put_int(&j, NULL, INT64_MIN);
    mt_json_put_size(&j, NULL, SIZE_MAX);
    mt_json_end(&j);
    expect_text(&s, &j,
                "[1.500, -1e-30, null, null, null, null, 0.10000000000000001, -9223372036854775808, 18446744073709551615]");
    mt_json_out large = { .to = &s };
    mt_json_put_num(&large, NULL, "%.0f", 1e300);
    assert_true(mt_json_ok(&large) && s.n == 301);
    mt_str_free(&s);
}

static void values_are_written_as_they_were_read(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": [1, 2.5, \"x\", null, {}], \"b\": {\"c\": true, \"d\": NaN}, \"e\": []}";
    mt_str s = { 0 };
    mt_err err = { 0 };
    const mt_value *doc;
    assert_ok(mt_json_parse(&doc, text, strlen(text), "a text", &err));
    mt_json_out j = { .to = &s };
    mt_json_put_value(&j, NULL, doc, MT_JSON_FLAT);
    expect_text(&s, &j, text);
    mt_json_out outer = { .to = &s };
    mt_json_map(&outer, NULL, MT_JSON_LINES);
    mt_json_put_value(&outer, "v", mt_value_get(doc, "b"), MT_JSON_LINES);
    mt_json_put_raw(&outer, "w", "[0]");
    mt_json_end(&outer);
    expect_text(&s, &outer, "{\n  \"v\": {\n    \"c\": true,\n    \"d\": NaN\n  },\n  \"w\": [0]\n}");
    mt_json_free(doc);
}

/* -- what is refused -------------------------------------------------------------------------------- */

static void value_without_key(mt_json_out *j) { mt_json_map(j, NULL, MT_JSON_FLAT), mt_json_put_int(j, NULL, 1), mt_json_end(j); }
static void key_in_a_list(mt_json_out *j) { mt_json_list(j, NULL, MT_JSON_FLAT), mt_json_put_int(j, "a", 1), mt_json_end(j); }
static void key_of_the_document(mt_json_out *j) { mt_json_map(j, "a", MT_JSON_FLAT), mt_json_end(j); }
static void two_documents(mt_json_out *j) { mt_json_put_int(j, NULL, 1), mt_json_put_int(j, NULL, 2); }
static void an_end_too_many(mt_json_out *j) { mt_json_list(j, NULL, MT_JSON_FLAT), mt_json_end(j), mt_json_end(j); }
static void no_end(mt_json_out *j) { mt_json_list(j, NULL, MT_JSON_FLAT); }
static void key_without_value(mt_json_out *j) { mt_json_map(j, NULL, MT_JSON_FLAT), mt_json_key(j, "a", 1), mt_json_end(j); }
static void two_keys(mt_json_out *j)
{
    mt_json_map(j, NULL, MT_JSON_FLAT), mt_json_key(j, "a", 1), mt_json_put_int(j, "b", 1), mt_json_end(j);
}
static void nothing(mt_json_out *j) { (void)j; }
static void too_deep(mt_json_out *j)
{
    for (int i = 0; i <= MT_JSON_DEPTH; i++) mt_json_list(j, NULL, MT_JSON_FLAT);
    for (int i = 0; i <= MT_JSON_DEPTH; i++) mt_json_end(j);
}

static void misuse_is_remembered_and_reported(void **state)
{
    (void)state;
    static void (*const misuses[])(mt_json_out *) = { value_without_key, key_in_a_list,   key_of_the_document,
                                                      two_documents,     an_end_too_many, key_without_value,
                                                      two_keys,          no_end,          nothing,
                                                      too_deep };
    for (size_t i = 0; i < MT_COUNT(misuses); i++) {
        mt_str s = { 0 };
        mt_err err = { 0 };
        mt_json_out j = { .to = &s };
        misuses[i](&j);
        assert_false(mt_json_ok(&j));
        assert_int_equal(mt_json_done(&j, "a text", &err), MT_EINVAL);
        assert_non_null(strstr(err.msg, "a text"));
        mt_str_free(&s);
    }
}

static void a_lack_of_memory_is_no_misuse(void **state)
{
    (void)state;
    mt_str s = { .max_bytes = 8 };
    mt_err err = { 0 };
    mt_json_out j = { .to = &s };
    mt_json_put_str(&j, NULL, "more than eight bytes");
    assert_int_equal(mt_json_done(&j, "a text", &err), MT_ENOMEM);
    mt_str_free(&s);
}

static void a_document_can_leave_in_pieces(void **state)
{
    (void)state;
    mt_str s = { 0 }, all = { 0 };
    mt_json_out j = { .to = &s };
    mt_json_list(&j, NULL, MT_JSON_LINES);
    for (int i = 0; i < 3; i++) {
        mt_json_put_int(&j, NULL, i);
        mt_str_add(&all, s.s, s.n);
        mt_str_clear(&s);
    }
    mt_json_end(&j);
    assert_true(mt_json_ok(&j));
    mt_str_puts(&all, s.s);
    assert_string_equal(all.s, "[\n  0,\n  1,\n  2\n]");
    mt_str_free(&s);
    mt_str_free(&all);
}

MT_TEST_MAIN(cmocka_unit_test(maps_and_lists_nest_in_three_layouts), cmocka_unit_test(texts_and_keys_are_escaped_and_read_back),
             cmocka_unit_test(numbers_that_json_lacks_become_null), cmocka_unit_test(values_are_written_as_they_were_read),
             cmocka_unit_test(misuse_is_remembered_and_reported), cmocka_unit_test(a_lack_of_memory_is_no_misuse),
             cmocka_unit_test(a_document_can_leave_in_pieces))
