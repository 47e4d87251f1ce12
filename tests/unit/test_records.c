/* Records of data files: what is refused and with which words, which record is bad and which file broken, what a
 * folder means, and that memory may run out anywhere.  What is read from real files is in golden/test_formats.c. */
#include "tempdir.h"

#include "base/fault.h"
#include "data/formats.h"
#include "data/records.h"

#include <sys/stat.h>

#define FILES   MT_TESTS_DIR "/golden/formats/files/"
#define SUBSETS MT_TESTS_DIR "/fixtures/subsets"

static mt_rc open_text(mt_records **r, const char *name, const char *text, mt_err *err)
{
    return mt__records_open_bytes(r, name, text, strlen(text), NULL, err);
}

/* The first error, bad record or end: its rc, state in *where, message in err. */
static mt_rc read_until_trouble(const char *name, const char *bytes, size_t n, const mt_records_options *opt,
                                mt_record_place *where, mt_err *err)
{
    mt_records *r = NULL;
    mt_arena a = { 0 };
    mt_value v;
    *where = (mt_record_place){ 0 };
    mt_rc rc = mt__records_open_bytes(&r, name, bytes, n, opt, err);
    while (!rc && where->state == MT_RECORD_OK) rc = mt_records_next(r, &a, &v, where, err);
    mt_arena_free(&a);
    where->file = NULL; /* gone with the reader */
    mt_records_close(r);
    return rc;
}

static void files_that_cannot_be_read_are_refused_with_advice(void **state)
{
    (void)state;
    static const struct {
        const char *name, *bytes;
        size_t n;
        mt_rc rc;
        const char *says;
    } cases[] = {
        { "x.jsonl", "\x1f\x8b\x08", 3, MT_EUNSUPPORTED, "gunzip" },
        { "x.jsonl", "\x28\xb5\x2f\xfd", 4, MT_EUNSUPPORTED, "zstd -d" },
        { "x.csv", "PK\x03\x04", 4, MT_EUNSUPPORTED, "unzip" },
        { "x.txt", "\xff\xfe{\0", 4, MT_EUNSUPPORTED, "UTF-16" },
        { "x.parquet", "PARE1234PARE", 12, MT_EUNSUPPORTED, "encrypted" },
        { "x.json", "version https://git-lfs.github.com/spec/v1\n", 43, MT_EUNSUPPORTED, "git lfs pull" },
        { "x.bin", "hello", 5, MT_EFORMAT, "neither its name nor its content" },
        { "x.parquet", "PAR1", 4, MT_EFORMAT, "is it complete?" },
        { "x.parquet", "PAR1\0\0\0\0\xff\0\0\0PAR1", 16, MT_EFORMAT, "255 bytes" },
        { "x.arrow", "ARROW1\0\0", 8, MT_EFORMAT, "is it complete?" },
        { "x.arrow", "", 0, MT_EFORMAT, "it is empty" },
        { "x.csv", "a,b\n1,\"2\n3", 10, MT_EFORMAT, "x.csv, line 2: a quoted field starts here and never ends" },
        { "x.json", "[{\"a\": 1}, {\"a\": 2", 18, MT_EFORMAT, "line 1, column 19" },
        { "x.json", "[{\"a\": 1}", 9, MT_EFORMAT, "the list does not end" },
        { "x.json", "[{\"a\": 1}] 2", 12, MT_EFORMAT, "something follows" },
        { "x.json", "[{\"a\": 1}\n{}]", 13, MT_EFORMAT, "line 2: expected ',' or ']'" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_record_place where;
        assert_int_equal(read_until_trouble(cases[i].name, cases[i].bytes, cases[i].n, NULL, &where, &err), cases[i].rc);
        assert_says(cases[i].says);
        assert_says(cases[i].name);
    }
}

static void text_that_starts_like_something_else_is_text(void **state)
{
    (void)state;
    static const char *const headers[] = { "PARENT,AGE\n", "PAR,AGE\n", "BZh,ARROW\n", "PK,{\n" };
    for (size_t i = 0; i < MT_COUNT(headers); i++) {
        mt_err err = { 0 };
        mt_records *r;
        assert_ok(open_text(&r, "x.csv", headers[i], &err));
        assert_string_equal(mt_records_format(r), "csv");
        mt_records_close(r);
    }
}

static void a_long_path_leaves_the_number_of_a_record(void **state)
{
    (void)state;
    char path[201], text[64];
    memset(path, 'p', 200);
    path[200] = '\0';
    mt_record_place_text(text, sizeof text, &(mt_record_place){ .file = path, .line = 1, .row = 1234567, .shares_line = true });
    assert_int_equal(strlen(text), sizeof text - 1);
    assert_string_equal(text + strlen(text) - 26, "pp, line 1, record 1234567");
    mt_record_place_text(text, sizeof text, &(mt_record_place){ .file = "x.csv", .line = 7, .row = 6 });
    assert_string_equal(text, "x.csv, line 7");
    mt_record_place_text(text, sizeof text, &(mt_record_place){ .file = "x.arrow", .row = 7 });
    assert_string_equal(text, "x.arrow, row 7");
}

static void a_bad_record_is_named_and_reading_goes_on(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        int64_t line, row;
        const char *says;
    } cases[] = {
        { "x.jsonl", "{\"a\":1}\n\n{\"a\":}\n{\"a\":2}\n", 3, 2, "x.jsonl: not valid JSON at line 3, column 6: a value" },
        { "x.jsonl", "{\"a\":1}\n[]\n{\"a\":2}\n", 2, 2, "x.jsonl, line 2: a record must be an object, found a list" },
        { "x.jsonl", "{\"a\":1}\n{\"a\":\"\xff\"}\n{\"a\":2}\n", 2, 2, "not valid UTF-8" },
        { "x.jsonl", "{\"a\":1}\n{\"a\":1} {\n{\"a\":2}\n", 2, 2, "something follows" },
        { "x.json", "[\n {\"a\":1},\n {\"a\":?},\n {\"a\":2}\n]", 3, 2, "line 3, column 7" },
        { "x.json", "[{\"a\":1}, 7, {\"a\":2}]", 1, 2, "x.json, line 1, record 2: a record must be an object, found an integer" },
        { "x.json", "{\"a\":1} 7 {\"a\":2}", 1, 2, "x.json, line 1, record 2: a record must be an object" },
        { "x.csv", "a\n1\n2,3\n2\n", 3, 2, "x.csv, line 3: 2 fields, the header has 1" },
        { "x.csv", "a,b\n1,2\n3\n4,5\n", 3, 2, "x.csv, line 3: 1 field, the header has 2" },
        { "x.csv", "a\n1\n\"2\"3\n2\n", 3, 2, "must be doubled" },
        { "x.csv", "a\n1\n\xc0\n2\n", 3, 2, "not valid UTF-8" },
        { "x.txt", "1\n\xe4\n2\n", 2, 2, "x.txt, line 2: not valid UTF-8 at byte 1" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_records *r;
        mt_arena a = { 0 };
        mt_value v;
        mt_record_place where;
        assert_ok(open_text(&r, cases[i].name, cases[i].text, &err));
        assert_ok(mt_records_next(r, &a, &v, &where, &err));
        assert_int_equal(where.state, MT_RECORD_OK);
        assert_int_equal(where.row, 1);
        assert_ok(mt_records_next(r, &a, &v, &where, &err));
        assert_int_equal(where.state, MT_RECORD_BAD);
        assert_int_equal(where.line, cases[i].line);
        assert_int_equal(where.row, cases[i].row);
        assert_string_equal(where.file, cases[i].name);
        assert_says(cases[i].says);
        assert_ok(mt_records_next(r, &a, &v, &where, &err));
        assert_int_equal(where.state, MT_RECORD_OK);
        assert_int_equal(where.row, 3);
        assert_ok(mt_records_next(r, &a, &v, &where, &err));
        assert_int_equal(where.state, MT_RECORD_END);
        assert_ok(mt_records_next(r, &a, &v, &where, &err)); /* the end stays the end */
        assert_int_equal(where.state, MT_RECORD_END);
        mt_records_close(r);
        mt_arena_free(&a);
    }
}

static void a_bad_record_is_parsed_once(void **state)
{
    (void)state;
    enum { N = 4096 };
    mt_err err = { 0 };
    mt_records *r;
    mt_arena a = { .max_bytes = N * sizeof(mt_value) * 3 / 2 }; /* twice its list has no room */
    mt_value v;
    mt_record_place where;
    mt_str text = { 0 };
    mt_str_puts(&text, "[\n {\"a\": [");
    for (int i = 0; i < N; i++) mt_str_puts(&text, i ? ",1" : "1");
    mt_str_puts(&text, "], \"b\": ?},\n {\"a\": []}\n]\n");
    assert_ok(open_text(&r, "x.json", text.s, &err));
    assert_ok(mt_records_next(r, &a, &v, &where, &err));
    assert_int_equal(where.state, MT_RECORD_BAD);
    assert_says("line 2, column 8208: a value was expected"); /* after 8 characters, 8,191 of the list, and 8 */
    assert_ok(mt_records_next(r, &a, &v, &where, &err));
    assert_int_equal(where.state, MT_RECORD_OK);
    mt_records_close(r);
    mt_arena_free(&a);
    mt_str_free(&text);
}

static void a_whole_file_is_no_record(void **state)
{
    (void)state;
    enum { N = (1 << 24) + 10 };
    mt_err err = { 0 };
    mt_record_place where;
    mt_str s = { 0 };
    mt_str_puts(&s, "{\"data\":[0");
    for (int i = 0; i < N; i++) mt_str_add(&s, ",0", 2);
    mt_str_puts(&s, "]}");
    assert_ok(read_until_trouble("x.json", s.s, s.n, NULL, &where, &err));
    assert_int_equal(where.state, MT_RECORD_BAD);
    assert_says("more values than one document may have");
    mt_str_free(&s);
}

static void a_broken_file_stays_broken_until_rewound(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_records *r;
    mt_arena a = { 0 };
    mt_value v;
    mt_record_place where;
    assert_ok(open_text(&r, "x.json", "[{\"a\": 1}, {\"a\"", &err));
    assert_ok(mt_records_next(r, &a, &v, &where, &err));
    for (int i = 0; i < 3; i++) {
        err = (mt_err){ 0 };
        assert_int_equal(mt_records_next(r, &a, &v, &where, &err), MT_EFORMAT);
        assert_says("x.json");
    }
    assert_ok(mt_records_rewind(r, &err));
    assert_ok(mt_records_next(r, &a, &v, &where, &err));
    assert_int_equal(mt_value_get(&v, "a")->i, 1);
    assert_int_equal(where.row, 1);
    mt_records_close(r);
    mt_arena_free(&a);
}

static void columns_and_format_are_known_before_the_first_record(void **state)
{
    (void)state;
    static const struct {
        const char *path, *format, *first;
        size_t n;
    } cases[] = {
        { FILES "array_pretty.json", "json", "a", 2 },
        { FILES "comma.csv", "csv", "instruction", 3 },
        { FILES "poem.txt", "text", "text", 1 },
        { FILES "chat_zstd_v1.parquet", "parquet", "messages", 3 },
        { FILES "arrow_file_plain_chat.arrow", "arrow", "messages", 3 },
        { FILES "saved", "arrow", "instruction", 3 },
        { FILES "no_extension", "json", "a", 2 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_records *r;
        const char *const *names;
        assert_ok(mt_records_open(&r, cases[i].path, NULL, &err));
        assert_string_equal(mt_records_format(r), cases[i].format);
        assert_int_equal(mt_records_columns(r, &names), cases[i].n);
        assert_string_equal(names[0], cases[i].first);
        mt_records_close(r);
    }
}

static void columns_of_one_name_are_numbered(void **state)
{
    (void)state;
    static const char *const expected[] = { "a", "a.1", "a.1.1", "a.2", "a.4", "a.3", "a.5", "b", "b.1" };
    mt_err err = { 0 };
    mt_records *r;
    const char *const *names;
    assert_ok(open_text(&r, "x.csv", "a,a.1,a.1,a,a.4,a,a,b,b\n", &err));
    assert_int_equal(mt_records_columns(r, &names), MT_COUNT(expected));
    for (size_t i = 0; i < MT_COUNT(expected); i++) assert_string_equal(names[i], expected[i]);
    mt_records_close(r);
}

static void thousands_of_columns_may_have_one_name(void **state)
{
    (void)state;
    enum { N = 4096 };
    mt_err err = { 0 };
    mt_records *r;
    const char *const *names;
    static char header[2 * N + 1];
    for (size_t i = 0; i < N; i++) memcpy(header + 2 * i, i + 1 < N ? "a," : "a\n", 2);
    alarm(10); /* it takes a moment, and took the better part of a minute */
    assert_ok(open_text(&r, "x.csv", header, &err));
    alarm(0);
    assert_int_equal(mt_records_columns(r, &names), N);
    assert_string_equal(names[N - 1], "a.4095");
    mt_records_close(r);
}

static void paths_that_lead_nowhere_say_so(void **state)
{
    (void)state;
    static const struct {
        const char *path, *split, *field, *format, *says;
    } cases[] = {
        { FILES "missing.jsonl", NULL, NULL, NULL, "no such file" },
        { FILES "*.nothing", NULL, NULL, NULL, "no file fits the pattern" },
        { FILES "saved_dict", "validation", NULL, NULL, "it has train, test" },
        { FILES "repo", "validation", NULL, NULL, "no file name carries the split \"validation\"" },
        { FILES "field.json", NULL, "nope", NULL, "has no field \"nope\"; check dataset.field" },
        { FILES "array.json", NULL, "nope", NULL, "leave dataset.field out" },
        { FILES "field.json", NULL, "more", NULL, "the field \"more\" is not a list; check dataset.field" },
        { FILES "poem.txt", NULL, NULL, "xml", "no format \"xml\"" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_records *r;
        mt_records_options opt = { .split = cases[i].split, .field = cases[i].field, .format = cases[i].format };
        assert_int_not_equal(mt_records_open(&r, cases[i].path, &opt, &err), MT_OK);
        assert_null(r);
        assert_says(cases[i].says);
    }
}

/* The files of a folder with these options, joined by their base names. */
static void expect_files(const char *path, const mt_records_options *opt, const char *want)
{
    mt_err err = { 0 };
    mt_records *r;
    const char *const *files;
    mt_str got = { 0 };
    assert_ok(mt_records_open(&r, path, opt, &err));
    size_t n = mt_records_files(r, &files);
    for (size_t i = 0; i < n; i++) mt_str_printf(&got, "%s%s", i ? " " : "", strstr(files[i], path) + strlen(path));
    assert_string_equal(got.s, want);
    mt_str_free(&got);
    mt_records_close(r);
}

static void a_subset_is_a_folder_or_a_word_of_file_names(void **state)
{
    (void)state;
    expect_files(SUBSETS, &(mt_records_options){ .subset = "main" }, "/main/train.jsonl");
    expect_files(SUBSETS, &(mt_records_options){ .subset = "main", .split = "test" }, "/main/test.jsonl");
    expect_files(SUBSETS, &(mt_records_options){ .subset = "socratic" }, "/socratic/train.jsonl");
    expect_files(SUBSETS, &(mt_records_options){ .subset = "" },
                 "/by_name/train-en.jsonl /by_name/train-zh.jsonl /main/train.jsonl /socratic/train.jsonl");
    expect_files(SUBSETS "/by_name", &(mt_records_options){ .subset = "en" }, "/train-en.jsonl");
    expect_files(SUBSETS "/by_name", &(mt_records_options){ .subset = "zh" }, "/train-zh.jsonl");
    expect_files(SUBSETS, &(mt_records_options){ .subset = "by_name/sub" }, "/by_name/sub/part.jsonl");
    mt_err err = { 0 };
    mt_records *r;
    assert_int_equal(mt_records_open(&r, SUBSETS, &(mt_records_options){ .subset = "mains" }, &err), MT_ENOENT);
    assert_says("neither a folder nor a file name carries the subset \"mains\"; its folders are ");
    assert_says("socratic");
    assert_int_equal(mt_records_open(&r, FILES "saved_dict", &(mt_records_options){ .subset = "main" }, &err), MT_ENOENT);
    assert_says("the subset \"main\"");
}

/* a/x.jsonl and a/y.jsonl, b -> a, self -> ., and c/x.jsonl -> a/x.jsonl, which is a separate file. */
static void make_links(const char *dir)
{
    char path[1024];
    for (const char *name = "ac"; *name; name++) {
        snprintf(path, sizeof path, "%s/%c", dir, *name);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    tempdir_write(dir, "a/x.jsonl", "{\"i\": 1}\n");
    tempdir_write(dir, "a/y.jsonl", "{\"i\": 2}\n");
    static const char *const links[][2] = { { "b", "a" }, { "self", "." }, { "c/x.jsonl", "../a/x.jsonl" } };
    for (size_t i = 0; i < MT_COUNT(links); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, links[i][0]);
        assert_int_equal(symlink(links[i][1], path), 0);
    }
}

static void remove_links(const char *dir)
{
    static const char *const made[] = { "self", "train", "b", "c/x.jsonl", "c", "a/x.jsonl", "a/y.jsonl", "a" };
    char path[1024];
    for (size_t i = 0; i < MT_COUNT(made); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, made[i]);
        assert_int_equal(remove(path), 0);
    }
}

static void folders_with_several_names_are_read_once(void **state)
{
    char path[1024];
    make_links(*state);
    expect_files(*state, NULL, "/a/x.jsonl /a/y.jsonl /c/x.jsonl");
    snprintf(path, sizeof path, "%s/train", (const char *)*state); /* a name that says what is in it is not lost */
    assert_int_equal(symlink("a", path), 0);
    expect_files(*state, NULL, "/train/x.jsonl /train/y.jsonl");
    remove_links(*state);
}

static void records_outlive_the_file_they_came_from(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_records *r;
    mt_arena a = { 0 };
    mt_value first, v;
    mt_record_place where = { 0 };
    const char *const *files;
    assert_ok(mt_records_open(&r, FILES "repo", NULL, &err));
    assert_int_equal(mt_records_files(r, &files), 2);
    assert_ok(mt_records_next(r, &a, &first, &where, &err));
    while (where.state == MT_RECORD_OK) assert_ok(mt_records_next(r, &a, &v, &where, &err));
    assert_int_equal(mt_value_get(&first, "i")->i, 0);
    mt_records_close(r);
    mt_arena_free(&a);
}

static mt_rc read_path(const char *path, mt_err *err)
{
    mt_records *r = NULL;
    mt_arena a = { 0 };
    mt_value v;
    mt_record_place where = { 0 };
    mt_rc rc = mt_records_open(&r, path, NULL, err);
    while (!rc && where.state != MT_RECORD_END) {
        mt_arena_reset(&a);
        rc = mt_records_next(r, &a, &v, &where, err);
    }
    mt_arena_free(&a);
    mt_records_close(r);
    return rc;
}

static size_t count_mappings(const char *name)
{
    char line[1024];
    size_t n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) n += strstr(line, name) != NULL;
    fclose(f);
    return n;
}

/* A machine lets a process map some 65000 files. */
static void many_files_do_not_stay_mapped(void **state)
{
    enum { N = 600 };
    mt_err err = { 0 };
    mt_records *r;
    mt_arena a = { 0 };
    mt_record_place where = { 0 };
    static mt_value all[N];
    mt_value end;
    char name[32], text[128];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, i % 2 ? "%03d.jsonl" : "%03d.csv", i);
        snprintf(text, sizeof text, i % 2 ? "{\"a\": \"text %d\", \"b\": [{\"c\": \"%d\"}, 1, null]}\n" : "a,b\ntext %d,%d\n", i,
                 i);
        tempdir_write(*state, name, text);
    }
    assert_ok(mt_records_open(&r, *state, NULL, &err));
    for (int i = 0; i < N; i++) assert_ok(mt_records_next(r, &a, &all[i], &where, &err));
    assert_ok(mt_records_next(r, &a, &end, &where, &err));
    assert_int_equal(where.state, MT_RECORD_END);
    assert_true(count_mappings(*state) <= 1);
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof text, "text %d", i);
        assert_true(mt_value_is(mt_value_get(&all[i], "a"), text));
        const mt_value *b = mt_value_get(&all[i], "b");
        assert_true(mt_value_is(i % 2 ? mt_value_get(&b->list.items[0], "c") : b, text + 5));
    }
    mt_arena_free(&a);
    mt_records_close(r);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const paths[] = {
        FILES "array_pretty.json",
        FILES "lines.jsonl",
        FILES "odd.csv",
        FILES "poem.txt",
        FILES "deep_v1.parquet",
        FILES "encoding_delta_strings_v2.parquet",
        FILES "many_groups.parquet",
        FILES "types.parquet",
        FILES "arrow_file_zstd_chat.arrow",
        FILES "arrow_stream_extra.arrow",
        FILES "arrow_dictionary_delta.arrow",
        FILES "repo",
    };
    for (size_t i = 0; i < MT_COUNT(paths); i++)
        for (int n = 0;; n++) {
            mt_err err = { 0 };
            mt_fault_arm(MT_FAULT_ALLOC, n);
            mt_rc rc = read_path(paths[i], &err);
            if (!mt_fault_disarm()) {
                assert_ok(rc);
                break;
            }
            if (rc != MT_ENOMEM) fail_msg("%s, allocation %d: %s: %s", paths[i], n, mt_rc_name(rc), err.msg);
        }
}

static void every_file_call_may_fail(void **state)
{
    (void)state;
    for (int n = 0;; n++) {
        mt_err err = { 0 };
        mt_fault_arm(MT_FAULT_FILE, n);
        mt_rc rc = read_path(FILES "saved", &err);
        if (!mt_fault_disarm()) {
            assert_ok(rc);
            break;
        }
        assert_int_equal(rc, MT_EIO);
    }
}

MT_TEST_MAIN(cmocka_unit_test(text_that_starts_like_something_else_is_text),
             cmocka_unit_test(files_that_cannot_be_read_are_refused_with_advice),
             cmocka_unit_test(a_bad_record_is_named_and_reading_goes_on),
             cmocka_unit_test(a_long_path_leaves_the_number_of_a_record), cmocka_unit_test(a_whole_file_is_no_record),
             cmocka_unit_test(a_broken_file_stays_broken_until_rewound), cmocka_unit_test(a_bad_record_is_parsed_once),
             cmocka_unit_test(columns_and_format_are_known_before_the_first_record),
             cmocka_unit_test(columns_of_one_name_are_numbered), cmocka_unit_test(thousands_of_columns_may_have_one_name),
             cmocka_unit_test(paths_that_lead_nowhere_say_so), cmocka_unit_test(a_subset_is_a_folder_or_a_word_of_file_names),
             cmocka_unit_test_setup_teardown(folders_with_several_names_are_read_once, tempdir_make, tempdir_remove),
             cmocka_unit_test(records_outlive_the_file_they_came_from),
             cmocka_unit_test_setup_teardown(many_files_do_not_stay_mapped, tempdir_make, tempdir_remove),
             cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(every_file_call_may_fail))
