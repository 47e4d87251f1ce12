/* Data files written by pyarrow and Hugging Face datasets come back record for record, and files that are cut
 * off or damaged end in an error, never in a crash.  formats/cases.jsonl lists the cases. */
#include "test.h"

#include "base/file.h"
#include "data/formats.h"
#include "data/records.h"

#define GOLDEN MT_TESTS_DIR "/golden/formats/"

typedef struct golden_case {
    const char *name, *path; /* path: full */
    mt_records_options opt;
    const mt_value *bad; /* list of rows */
} golden_case;

static const char *text_at(const mt_value *v, const char *key, mt_arena *a)
{
    const mt_value *s = mt_value_get(v, key);
    return s ? mt_arena_strndup(a, s->str.s, s->str.n) : NULL;
}

static mt_sample_by sample_by(const mt_value *v)
{
    const mt_value *s = mt_value_get(v, "sample_by");
    return mt_value_is(s, "document") ? MT_SAMPLE_DOCUMENT : mt_value_is(s, "paragraph") ? MT_SAMPLE_PARAGRAPH : MT_SAMPLE_LINE;
}

static const char *const *list_at(const mt_value *v, const char *key, mt_arena *a)
{
    const mt_value *list = mt_value_get(v, key);
    if (!list) return NULL;
    const char **out = mt_arena_calloc(a, list->list.n + 1, sizeof *out);
    for (size_t i = 0; i < list->list.n; i++) out[i] = mt_arena_strndup(a, list->list.items[i].str.s, list->list.items[i].str.n);
    return out;
}

static golden_case read_case(const mt_value *v, mt_arena *a)
{
    golden_case c = { .name = text_at(v, "name", a), .bad = mt_value_get(v, "bad") };
    char path[1024];
    snprintf(path, sizeof path, GOLDEN "files/%s", text_at(v, "path", a));
    c.path = mt_arena_strndup(a, path, strlen(path));
    c.opt = (mt_records_options){ .field = text_at(v, "field", a),
                                  .split = text_at(v, "split", a),
                                  .columns = list_at(v, "columns", a),
                                  .sample_by = sample_by(v) };
    const char *delimiter = text_at(v, "delimiter", a);
    if (delimiter) c.opt.delimiter = *delimiter;
    return c;
}

/* Calls fn for every case of the list. */
static void each_case(void (*fn)(const golden_case *))
{
    mt_err err = { 0 };
    mt_records *list;
    mt_arena a = { 0 };
    mt_value v;
    mt_record_place where;
    assert_ok(mt_records_open(&list, GOLDEN "cases.jsonl", NULL, &err));
    for (;;) {
        mt_arena_reset(&a);
        assert_ok(mt_records_next(list, &a, &v, &where, &err));
        if (where.state == MT_RECORD_END) break;
        assert_int_equal(where.state, MT_RECORD_OK);
        golden_case c = read_case(&v, &a);
        fn(&c);
    }
    mt_arena_free(&a);
    mt_records_close(list);
}

static bool is_listed(const mt_value *rows, int64_t row)
{
    for (size_t i = 0; rows && i < rows->list.n; i++)
        if (rows->list.items[i].i == row) return true;
    return false;
}

/* The next good record as text; NULL at the end.  Bad ones must be those that were announced. */
static char *next_text(mt_records *r, const golden_case *c, mt_arena *a, size_t *n_bad)
{
    mt_err err = { 0 };
    mt_value v;
    mt_record_place where;
    mt_str s = { 0 };
    for (;;) {
        mt_arena_reset(a);
        mt_rc rc = mt_records_next(r, a, &v, &where, &err);
        if (rc) fail_msg("%s: %s", c->name, err.msg);
        if (where.state == MT_RECORD_END) return NULL;
        if (where.state == MT_RECORD_OK) break;
        ++*n_bad;
        if (!is_listed(c->bad, where.row)) fail_msg("%s: row %lld is bad: %s", c->name, (long long)where.row, err.msg);
        if (!strstr(err.msg, mt_path_base(c->path))) fail_msg("%s: the message does not name the file: %s", c->name, err.msg);
    }
    mt_value_write_json(&s, &v);
    return s.s;
}

static void compare(const golden_case *c)
{
    char path[1024];
    mt_err err = { 0 };
    mt_records *r, *want;
    mt_arena a = { 0 };
    size_t n = 0, n_bad = 0, none = 0;
    snprintf(path, sizeof path, GOLDEN "expected/%s.jsonl", c->name);
    assert_ok(mt_records_open(&want, path, NULL, &err));
    if (mt_records_open(&r, c->path, &c->opt, &err)) fail_msg("%s: %s", c->name, err.msg);
    int64_t count;
    assert_ok(mt_records_count(r, &count, &err));
    for (;; n++) {
        char *got_text = next_text(r, c, &a, &n_bad), *want_text = next_text(want, c, &a, &none);
        if (!got_text || !want_text || strcmp(got_text, want_text) != 0)
            if (got_text || want_text)
                fail_msg("%s, record %zu:\n  got  %s\n  want %s", c->name, n, got_text ? got_text : "the end",
                         want_text ? want_text : "the end");
        bool end = !got_text;
        mt_free(got_text);
        mt_free(want_text);
        if (end) break;
    }
    if (n_bad != c->bad->list.n) fail_msg("%s: %zu bad records, expected %zu", c->name, n_bad, c->bad->list.n);
    if (count >= 0 && (size_t)count != n + n_bad) fail_msg("%s: counts %lld rows, has %zu", c->name, (long long)count, n + n_bad);
    mt_arena_free(&a);
    mt_records_close(r);
    mt_records_close(want);
}

static void every_file_reads_back_equal(void **state)
{
    (void)state;
    each_case(compare);
}

/* Reads to the end or the error.  The bytes are an exact copy, so that sanitizers see every byte past them. */
static void read_all(const char *name, const uint8_t *data, size_t n, const mt_records_options *opt)
{
    mt_err err = { 0 };
    mt_records *r = NULL;
    mt_arena a = { 0 };
    mt_value v;
    mt_record_place where = { 0 };
    uint8_t *copy = mt_malloc(n ? n : 1);
    memcpy(copy, data, n);
    mt_rc rc = mt__records_open_bytes(&r, name, copy, n, opt, &err);
    if (rc) assert_null(r);
    for (int i = 0; !rc && i < 3000 && where.state != MT_RECORD_END; i++) {
        mt_arena_reset(&a);
        rc = mt_records_next(r, &a, &v, &where, &err);
    }
    if (rc && !strstr(err.msg, name)) fail_msg("the message does not name %s: %s", name, err.msg);
    mt_records_close(r);
    mt_arena_free(&a);
    mt_free(copy);
}

/* Long files are cut and damaged at fewer places, so that the test stays quick. */
static size_t step_for(size_t n, size_t places) { return n < places ? 1 : n / places; }

static void cut_everywhere(const golden_case *c)
{
    mt_err err = { 0 };
    mt_map map;
    if (!mt_file_exists(c->path)) return; /* a folder or glob */
    assert_ok(mt_map_open(&map, c->path, &err));
    for (size_t n = 0; n < map.size; n += step_for(map.size, 600)) read_all(mt_path_base(c->path), map.data, n, &c->opt);
    mt_map_close(&map);
}

static void damage_everywhere(const golden_case *c)
{
    static const uint8_t masks[] = { 0xff, 0x80, 0x01 };
    mt_err err = { 0 };
    mt_map map;
    if (!mt_file_exists(c->path)) return;
    assert_ok(mt_map_open(&map, c->path, &err));
    uint8_t *copy = mt_malloc(map.size + 1);
    memcpy(copy, map.data, map.size);
    for (size_t i = 0; i < map.size; i += step_for(map.size, 250))
        for (size_t k = 0; k < MT_COUNT(masks); k++) {
            copy[i] ^= masks[k];
            read_all(mt_path_base(c->path), copy, map.size, &c->opt);
            copy[i] ^= masks[k];
        }
    mt_free(copy);
    mt_map_close(&map);
}

static void files_cut_off_anywhere_end_in_an_error_or_early(void **state)
{
    (void)state;
    each_case(cut_everywhere);
}

static void damaged_bytes_never_crash(void **state)
{
    (void)state;
    each_case(damage_everywhere);
}

MT_TEST_MAIN(cmocka_unit_test(every_file_reads_back_equal), cmocka_unit_test(files_cut_off_anywhere_end_in_an_error_or_early),
             cmocka_unit_test(damaged_bytes_never_crash))
