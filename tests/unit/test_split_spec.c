/* Parts of a dataset: the records that Hugging Face's datasets 5.2 takes for the same words, from every kind of file. */
#include "test.h"

#include "data/records.h"
#include "data/split_spec.h"

#define FILES MT_TESTS_DIR "/golden/formats/files/"

/* From ReadInstruction.from_spec(text).to_absolute({"train": n}). */
static const struct {
    int64_t n;
    const char *text;
    int64_t first, end;
} known[] = {
    { 10, "train", 0, 10 },         { 10, "train[:10]", 0, 10 },      { 10, "train[5:]", 5, 10 },
    { 10, "train[3:7]", 3, 7 },     { 10, "train[-3:]", 7, 10 },      { 10, "train[:-3]", 0, 7 },
    { 10, "train[-5:-2]", 5, 8 },   { 10, "train[:1000]", 0, 10 },    { 10, "train[50:]", 10, 10 },
    { 1, "train[-3:]", 0, 1 },      { 1, "train[:-3]", 0, 0 },        { 1, "train[5%:]", 0, 1 },
    { 1, "train[-10%:]", 0, 1 },    { 1, "train[:-50%]", 0, 0 },      { 7, "train[:10%]", 0, 1 },
    { 7, "train[-10%:]", 6, 7 },    { 7, "train[:-50%]", 0, 3 },      { 7, "train[33%:66%]", 2, 5 },
    { 7, "train[25%:75%]", 2, 5 },  { 10, "train[25%:75%]", 2, 8 },   { 25, "train[:10%]", 0, 2 },
    { 25, "train[-10%:]", 23, 25 }, { 25, "train[:-50%]", 0, 13 },    { 25, "train[33%:66%]", 8, 16 },
    { 199, "train[:-50%]", 0, 99 }, { 199, "train[5%:]", 10, 199 },   { 199, "train[25%:75%]", 50, 149 },
    { 199, "train[:0%]", 0, 0 },    { 1000, "train[1%:2%]", 10, 20 }, { 1000, "train[:100%]", 0, 1000 },
    { 0, "train[5%:]", 0, 0 },      { 0, "train[:10]", 0, 0 },
};

static void ranges_are_those_of_datasets(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(known); i++) {
        mt_err err = { 0 };
        mt_split_spec s;
        int64_t first, end;
        assert_ok(mt_split_spec_parse(&s, known[i].text, &err));
        assert_string_equal(s.name, "train");
        mt_split_spec_range(&s, known[i].n, &first, &end);
        if (first != known[i].first || end != known[i].end)
            fail_msg("%s of %lld: [%lld, %lld)", known[i].text, (long long)known[i].n, (long long)first, (long long)end);
    }
}

static void what_is_no_split_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "train[5]", "such as train[:1000]" },
        { "train[:5", "is not a split" },
        { "train[a:b]", "is not a split" },
        { "train[:5]x", "is not a split" },
        { "[:5]", "is not a split" },
        { "train+test", "is not a split" },
        { "train[:5%](pct1_dropremainder)", "is not a split" },
        { "train[5%:10]", "both in percent" },
        { "train[:101%]", "from -100 to 100" },
        { "train[:99999999999999999999]", "is not a split" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_split_spec s;
        assert_int_equal(mt_split_spec_parse(&s, cases[i].text, &err), MT_EINVAL);
        assert_says(cases[i].says);
    }
}

/* How many records a split has, and the row of the first. */
static void expect_part(const char *path, const char *split, int64_t n, int64_t first_row)
{
    mt_err err = { 0 };
    mt_records *r;
    mt_arena a = { 0 };
    mt_value v;
    mt_record_place where;
    assert_ok(mt_records_open(&r, path, &(mt_records_options){ .split = split }, &err));
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0;; i++) {
            assert_ok(mt_records_next(r, &a, &v, &where, &err));
            if (where.state == MT_RECORD_END) {
                if (i != n) fail_msg("%s, %s: %lld records", path, split, (long long)i);
                break;
            }
            if (i == 0) assert_int_equal(where.row, first_row);
        }
        assert_ok(mt_records_rewind(r, &err));
    }
    mt_arena_free(&a);
    mt_records_close(r);
}

static void parts_are_read_from_every_format(void **state)
{
    (void)state;
    expect_part(FILES "repo", "train", 6, 1); /* two Parquet files of three: rows count in each */
    expect_part(FILES "repo", "train[:2]", 2, 1);
    expect_part(FILES "repo", "train[1:5]", 4, 2);
    expect_part(FILES "repo", "train[4:]", 2, 2);
    expect_part(FILES "repo", "train[:50%]", 3, 1);
    expect_part(FILES "repo", "test[:50%]", 2, 1);
    expect_part(FILES "repo", "train[900:]", 0, 0);
    expect_part(FILES "poem.txt", "train[2:4]", 2, 3); /* by lines, blank ones among them */
    expect_part(FILES "poem.txt", "train[-1:]", 1, 8); /* has to count them */
}

MT_TEST_MAIN(cmocka_unit_test(ranges_are_those_of_datasets), cmocka_unit_test(what_is_no_split_is_refused),
             cmocka_unit_test(parts_are_read_from_every_format))
