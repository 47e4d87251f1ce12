/* train[:1000] and its kin mean what the datasets library makes of them (ReadInstruction, rounding "closest"). */
#include "tempdir.h"

#include "data/split.h"

static void slices_are_those_of_the_datasets_library(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t n, first, end;
    } cases[] = {
        /* ReadInstruction.from_spec(text).to_absolute({"train": n}) */
        { "train", 10, 0, 10 },          { "train[:1000]", 2500, 0, 1000 },  { "train[:1000]", 10, 0, 10 },   { "train[5%:]", 30, 2, 30 },
        { "train[5%:]", 50, 2, 50 },     { "train[:7%]", 50, 0, 4 },         { "train[-3:]", 10, 7, 10 },     { "train[:-3]", 10, 0, 7 },
        { "train[-10%:]", 95, 85, 95 },  { "train[10:20]", 100, 10, 20 },    { "train[25%:75%]", 10, 2, 8 },  { "train[:]", 3, 0, 3 },
        { "train[-100:5]", 10, 0, 5 },   { "train[:100%]", 7, 0, 7 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_split s;
        int64_t first, end;
        assert_ok(mt_split_parse(&s, cases[i].text, &err));
        assert_string_equal(s.name, "train");
        mt_split_rows(&s, cases[i].n, &first, &end);
        if (first != cases[i].first || end != cases[i].end)
            fail_msg("%s of %lld: [%lld, %lld), expected [%lld, %lld)", cases[i].text, (long long)cases[i].n, (long long)first, (long long)end,
                     (long long)cases[i].first, (long long)cases[i].end);
    }
}

static void what_is_no_slice_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "train[", "train[]", "train[5]", "train[a:b]", "train[1:2", "train[1:2]x", "train[:101%]" };
    mt_split s;
    mt_err err = { 0 };
    for (size_t i = 0; i < MT_COUNT(bad); i++) assert_int_not_equal(mt_split_parse(&s, bad[i], &err), MT_OK);
    assert_int_equal(mt_split_parse(&s, "train+test", &err), MT_EUNSUPPORTED);
    assert_ok(mt_split_parse(&s, NULL, &err));
    assert_string_equal(s.name, "");
}

/* Row numbers of the records a slice of two files of five rows gives. */
static void rows_of(const char *split, const char *dir, char out[128])
{
    mt_err err = { 0 };
    mt_split s;
    mt_records *r;
    mt_arena arena = { 0 };
    mt_value record;
    mt_record_place where = { 0 };
    assert_ok(mt_split_parse(&s, split, &err));
    mt_records_options o = { .split = s.name };
    assert_ok(mt_split_apply(&s, dir, &o, &err));
    assert_ok(mt_records_open(&r, dir, &o, &err));
    for (int pass = 0; pass < 2; pass++) { /* the same after a rewind */
        out[0] = '\0';
        for (;;) {
            assert_ok(mt_records_next(r, &arena, &record, &where, &err));
            if (where.state == MT_RECORD_END) break;
            const mt_value *v = mt_value_get(&record, "i");
            snprintf(out + strlen(out), 8, "%s%lld", out[0] ? " " : "", v ? (long long)v->i : -1);
        }
        assert_ok(mt_records_rewind(r, &err));
    }
    mt_arena_free(&arena);
    mt_records_close(r);
}

static void readers_give_the_slice(void **state)
{
    const char *dir = *state;
    char rows[128];
    for (int file = 0; file < 2; file++) {
        char *path = mt_asprintf("%s/train-%d.jsonl", dir, file);
        FILE *f = fopen(path, "w");
        for (int i = 0; i < 5; i++) fprintf(f, i == 2 && file ? "this is no record\n" : "{\"i\": %d}\n", 5 * file + i);
        fclose(f);
        mt_free(path);
    }
    rows_of("train[3:7]", dir, rows);
    assert_string_equal(rows, "3 4 5 6");
    rows_of("train[:2]", dir, rows);
    assert_string_equal(rows, "0 1");
    rows_of("train[70%:]", dir, rows);
    assert_string_equal(rows, "-1 8 9"); /* a bad row is a row */
    rows_of("train[-2:]", dir, rows);
    assert_string_equal(rows, "8 9");
    mt_err err = { 0 };
    mt_split s;
    assert_ok(mt_split_parse(&s, "train[4:4]", &err));
    assert_int_equal(mt_split_apply(&s, dir, &(mt_records_options){ 0 }, &err), MT_EINVAL);
    assert_says("holds no row");
}

MT_TEST_MAIN(cmocka_unit_test(slices_are_those_of_the_datasets_library), cmocka_unit_test(what_is_no_slice_is_refused),
             cmocka_unit_test_setup_teardown(readers_give_the_slice, tempdir_make, tempdir_remove))
