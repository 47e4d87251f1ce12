/* The safetensors reader: files of the reference implementation come back as written, and no file, however
 * broken, does more than return an error that names it. */
#include "test.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/str.h"
#include "ckpt/safetensors.h"

#include <stdlib.h>

static const char good[] = MT_FIXTURE("safetensors/every_dtype.safetensors");

/* 8 bytes of length, the header, n_data bytes. */
static void build(mt_str *file, const char *header, size_t n_data)
{
    size_t n = strlen(header);
    mt_str_clear(file);
    for (int i = 0; i < 8; i++) mt_str_putc(file, (char)(n >> 8 * i & 0xff));
    mt_str_add(file, header, n);
    for (size_t i = 0; i < n_data; i++) mt_str_putc(file, (char)i);
}

static void every_format_of_the_reference_is_read(void **state)
{
    (void)state;
    /* clang-format off */
    static const struct { const char *name; mt_dtype dtype; int n_dims; int64_t shape[3]; } expected[] = {
        { "f32", MT_DTYPE_F32, 2, { 2, 3 } },     { "bf16", MT_DTYPE_BF16, 1, { 4 } },  { "f16", MT_DTYPE_F16, 3, { 2, 1, 2 } },
        { "f64", MT_DTYPE_F64, 1, { 2 } },        { "i64", MT_DTYPE_I64, 1, { 2 } },    { "i32", MT_DTYPE_I32, 1, { 2 } },
        { "i16", MT_DTYPE_I16, 1, { 2 } },        { "i8", MT_DTYPE_I8, 1, { 2 } },      { "u8", MT_DTYPE_U8, 1, { 3 } },
        { "bool", MT_DTYPE_BOOL, 1, { 2 } },      { "scalar", MT_DTYPE_F32, 0, { 0 } }, { "f8_e4m3", MT_DTYPE_F8_E4M3, 1, { 3 } },
        { "f8_e5m2", MT_DTYPE_F8_E5M2, 1, { 3 } }, { "empty", MT_DTYPE_F32, 2, { 0, 4 } },
        { "name with \"quotes\", \xc3\xa9 and \xe4\xbd\xa0", MT_DTYPE_F32, 1, { 1 } },
    };
    /* clang-format on */
    mt_err err = { 0 };
    mt_safetensors *st;
    assert_ok(mt_safetensors_open(&st, good, &err));
    assert_int_equal(mt_safetensors_count(st), MT_COUNT(expected));
    for (size_t i = 0; i < MT_COUNT(expected); i++) {
        const mt_st_tensor *t = mt_safetensors_find(st, expected[i].name);
        assert_non_null(t);
        assert_string_equal(t->file, "every_dtype.safetensors");
        assert_int_equal(t->dtype, expected[i].dtype);
        assert_int_equal(t->n_dims, expected[i].n_dims);
        assert_memory_equal(t->shape, expected[i].shape, sizeof *t->shape * (size_t)t->n_dims);
        assert_int_equal(t->bytes, t->n * mt_dtype_bytes(t->dtype));
    }
    assert_null(mt_safetensors_find(st, "f3"));
    assert_null(mt_safetensors_find(st, "__metadata__"));
    mt_safetensors_close(st);
}

static void values_lie_where_the_entries_say(void **state)
{
    (void)state;
    static const char *const counting[] = { "f32", "bf16", "f16", "f64", "f8_e4m3", "f8_e5m2" };
    mt_err err = { 0 };
    mt_safetensors *st;
    assert_ok(mt_safetensors_open(&st, good, &err));
    for (size_t i = 0; i < MT_COUNT(counting); i++) {
        const mt_st_tensor *t = mt_safetensors_find(st, counting[i]);
        float v[8];
        mt_to_f32(v, t->data, t->dtype, t->n);
        for (size_t k = 0; k < t->n; k++) assert_true(v[k] == (float)k);
    }
    float seven;
    memcpy(&seven, mt_safetensors_find(st, "scalar")->data, sizeof seven);
    assert_true(seven == 7.0f);
    for (size_t i = 1; i < mt_safetensors_count(st); i++)
        assert_true(mt_safetensors_at(st, i - 1)->data + mt_safetensors_at(st, i - 1)->bytes == mt_safetensors_at(st, i)->data);
    mt_safetensors_close(st);
}

static void metadata_is_kept(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_safetensors *st;
    assert_ok(mt_safetensors_open(&st, good, &err));
    assert_int_equal(mt_safetensors_meta_count(st), 2);
    assert_string_equal(mt_safetensors_meta(st, "format"), "pt");
    assert_string_equal(mt_safetensors_meta(st, "note"), "line\nbreak");
    assert_null(mt_safetensors_meta(st, "absent"));
    bool seen = false;
    for (size_t i = 0; i < mt_safetensors_meta_count(st); i++) {
        const char *key, *value;
        mt_safetensors_meta_at(st, i, &key, &value);
        if (strcmp(key, "format") == 0) seen = strcmp(value, "pt") == 0;
    }
    assert_true(seen);
    mt_safetensors_close(st);
}

static void small_but_valid_files_open(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        size_t count;
    } cases[] = {
        { "{}", 0, 0 },
        { "{}      ", 0, 0 },
        { "{\"__metadata__\":{}}", 0, 0 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1 },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[0,9],\"data_offsets\":[0,0]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_"
          "offsets\":[0,3]}}",
          3, 2 },
        { "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},\"a\":{\"data_offsets\":[0,2],\"shape\":[2],\"dtype\":"
          "\"U8\"}}",
          3, 2 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_str file = { 0 };
        mt_safetensors *st;
        build(&file, cases[i].header, cases[i].n_data);
        assert_ok(mt_safetensors_open_memory(&st, file.s, file.n, "x", &err));
        assert_int_equal(mt_safetensors_count(st), cases[i].count);
        mt_safetensors_close(st);
        mt_str_free(&file);
    }
}

#define ENTRY(dtype, shape, offsets) "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void broken_headers_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        mt_rc rc;
        const char *says;
    } cases[] = {
        { "", 0, MT_EFORMAT, "not valid JSON" },
        { "{\"w\":", 0, MT_EFORMAT, "not valid JSON" },
        { "[]", 0, MT_EFORMAT, "not a JSON object" },
        { "{\"w\\u0000\":1}", 0, MT_EFORMAT, "not valid JSON" },
        { "{\"w\":1}", 0, MT_EFORMAT, "\"w\": its entry is not an object" },
        { "{\"w\":{}}", 0, MT_EFORMAT, "\"w\": it has no \"dtype\"" },
        { "{\"w\":{\"dtype\":\"F32\"}}", 0, MT_EFORMAT, "\"w\": it has no \"shape\"" },
        { "{\"w\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, MT_EFORMAT, "not a pair of integers" },
        { ENTRY("\"F4\"", "[2]", "[0,1]"), 1, MT_EUNSUPPORTED, "\"w\" has dtype \"F4\"" },
        { ENTRY("7", "[2]", "[0,1]"), 1, MT_EFORMAT, "no \"dtype\"" },
        { ENTRY("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, MT_EUNSUPPORTED, "9 dimensions" },
        { ENTRY("\"U8\"", "[-1]", "[0,1]"), 1, MT_EFORMAT, "not a size" },
        { ENTRY("\"U8\"", "[1.0]", "[0,1]"), 1, MT_EFORMAT, "not a size" },
        { ENTRY("\"U8\"", "[99999999999999999999]", "[0,1]"), 1, MT_EFORMAT, "not a size" },
        { "{\"w\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, MT_EFORMAT,
          "a key is given twice" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, MT_EFORMAT, "names something twice" },
        { "{} {}", 0, MT_EFORMAT, "something follows its end" },
        { ENTRY("\"U8\"", "[4294967296,4294967296,2]", "[0,0]"), 0, MT_EFORMAT, "larger than any memory" },
        { ENTRY("\"F32\"", "[9223372036854775807]", "[0,0]"), 0, MT_EFORMAT, "larger than any memory" },
        { ENTRY("\"U8\"", "[1]", "[0,1,2]"), 1, MT_EFORMAT, "not a pair" },
        { ENTRY("\"U8\"", "[1]", "[\"0\",1]"), 1, MT_EFORMAT, "not a pair" },
        { ENTRY("\"U8\"", "[1]", "[-1,0]"), 1, MT_EFORMAT, "do not begin before they end" },
        { ENTRY("\"U8\"", "[1]", "[1,0]"), 1, MT_EFORMAT, "do not begin before they end" },
        { ENTRY("\"F32\"", "[2,3]", "[0,20]"), 20, MT_EFORMAT, "data_offsets span 20 bytes, [2, 3] of F32 needs 24" },
        { ENTRY("\"F32\"", "[2,3]", "[0,24]"), 23, MT_EFORMAT, "download the file again" },
        { ENTRY("\"U8\"", "[1]", "[9223372036854775806,9223372036854775807]"), 1, MT_EFORMAT, "download the file again" },
        { ENTRY("\"U8\"", "[2]", "[1,3]"), 3, MT_EFORMAT, "a gap before" },
        { ENTRY("\"U8\"", "[2]", "[0,2]"), 5, MT_EFORMAT, "3 bytes follow the last tensor" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":"
          "[1,3]}}",
          3, MT_EFORMAT, "\"a\" and \"b\" overlap" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":"
          "[2,4]}}",
          4, MT_EFORMAT, "twice" },
        { "{\"__metadata__\":[]}", 0, MT_EFORMAT, "__metadata__ is not an object" },
        { "{\"__metadata__\":{\"k\":1}}", 0, MT_EFORMAT, "__metadata__ \"k\" is not a string" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_str file = { 0 };
        mt_safetensors *st = NULL;
        build(&file, cases[i].header, cases[i].n_data);
        mt_rc rc = mt_safetensors_open_memory(&st, file.s, file.n, "dir/x.safetensors", &err);
        assert_says(cases[i].says);
        assert_says("dir/x.safetensors");
        assert_int_equal(rc, cases[i].rc);
        assert_null(st);
        mt_str_free(&file);
    }
}

static void files_that_are_something_else_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {
        { "", 0, "0 bytes are not a safetensors file" },
        { "\x02\0\0", 3, "3 bytes are not a safetensors file" },
        { "\x03\0\0\0\0\0\0\0{}", 10, "claims 3 bytes and the file has 10" },
        { "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "at most 95.4 MiB" },
        { "\x01\xe1\xf5\x05\0\0\0\0{}", 10, "at most 95.4 MiB" }, /* 100,000,001 */
        { "\x00\xe1\xf5\x05\0\0\0\0{}", 10, "claims 100000000 bytes" },
        { "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", 56, "Git LFS pointer" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_safetensors *st = NULL;
        assert_int_equal(mt_safetensors_open_memory(&st, cases[i].bytes, cases[i].n, "x", &err), MT_EFORMAT);
        assert_says(cases[i].says);
    }
    mt_err err = { 0 };
    mt_safetensors *st = NULL;
    assert_int_equal(mt_safetensors_open(&st, MT_FIXTURE("safetensors/absent.safetensors"), &err), MT_ENOENT);
    assert_says("absent.safetensors");
    assert_int_equal(mt_safetensors_open(&st, MT_FIXTURE("safetensors"), &err), MT_EIO);
    assert_null(st);
}

/* Each prefix is copied into a block of its own size, so that a sanitizer sees a read past its end. */
static void a_file_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char *text;
    size_t n;
    assert_ok(mt_file_read(&text, &n, good, 1 << 20, &err));
    for (size_t k = 0; k < n; k++) {
        char *cut = malloc(k ? k : 1);
        assert_non_null(cut);
        memcpy(cut, text, k);
        mt_safetensors *st = NULL;
        assert_int_equal(mt_safetensors_open_memory(&st, cut, k, "cut", &err), MT_EFORMAT);
        assert_null(st);
        free(cut);
    }
    mt_free(text);
}

/* One byte changed at a time: it may still be a file, and then all of it can be read. */
static void a_file_with_one_byte_changed_is_refused_or_whole(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char *text;
    size_t n;
    unsigned sum = 0;
    assert_ok(mt_file_read(&text, &n, good, 1 << 20, &err));
    for (size_t k = 0; k < n; k++) {
        char kept = text[k];
        text[k] = (char)(kept ^ (1 << k % 8));
        mt_safetensors *st = NULL;
        if (mt_safetensors_open_memory(&st, text, n, "changed", &err) == MT_OK)
            for (size_t i = 0; i < mt_safetensors_count(st); i++)
                for (size_t b = 0; b < mt_safetensors_at(st, i)->bytes; b++) sum += mt_safetensors_at(st, i)->data[b];
        mt_safetensors_close(st);
        text[k] = kept;
    }
    assert_true(sum != 0);
    mt_free(text);
}

static void every_allocation_and_file_call_may_fail(void **state)
{
    (void)state;
    static const struct {
        mt_fault_kind kind;
        mt_rc rc;
    } kinds[] = { { MT_FAULT_ALLOC, MT_ENOMEM }, { MT_FAULT_FILE, MT_EIO } };
    for (size_t k = 0; k < MT_COUNT(kinds); k++) {
        for (int n = 0;; n++) {
            mt_err err = { 0 };
            mt_safetensors *st = NULL;
            mt_fault_arm(kinds[k].kind, n);
            mt_rc rc = mt_safetensors_open(&st, good, &err);
            bool hit = mt_fault_disarm();
            if (!hit) {
                assert_ok(rc);
                mt_safetensors_close(st);
                assert_true(n > 0);
                break;
            }
            assert_int_equal(rc, kinds[k].rc);
            assert_says("every_dtype.safetensors");
            assert_null(st);
        }
    }
}

static void shapes_are_written_as_people_read_them(void **state)
{
    (void)state;
    const int64_t wide[MT_ST_MAX_DIMS] = {
        INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX
    };
    assert_string_equal(mt_st_shape_text(0, NULL).s, "[]");
    assert_string_equal(mt_st_shape_text(2, (int64_t[]){ 4096, 1 }).s, "[4096, 1]");
    assert_true(strlen(mt_st_shape_text(MT_ST_MAX_DIMS, wide).s) == 8 * 19 + 7 * 2 + 2);
    size_t n, bytes;
    assert_true(mt_st_size(MT_DTYPE_BF16, 2, (int64_t[]){ 3, 5 }, &n, &bytes));
    assert_int_equal(bytes, 30);
    assert_false(mt_st_size(MT_DTYPE_BF16, 2, wide, &n, &bytes));
    assert_false(mt_st_size(MT_DTYPE_BF16, 9, wide, &n, &bytes));
}

MT_TEST_MAIN(cmocka_unit_test(every_format_of_the_reference_is_read), cmocka_unit_test(values_lie_where_the_entries_say),
             cmocka_unit_test(metadata_is_kept), cmocka_unit_test(small_but_valid_files_open),
             cmocka_unit_test(broken_headers_are_refused_with_the_reason),
             cmocka_unit_test(files_that_are_something_else_are_named), cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
             cmocka_unit_test(a_file_with_one_byte_changed_is_refused_or_whole),
             cmocka_unit_test(every_allocation_and_file_call_may_fail), cmocka_unit_test(shapes_are_written_as_people_read_them))
