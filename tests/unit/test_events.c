/* TensorBoard's event files, read back record by record: lengths, checksums, tags and values. */
#include "tempdir.h"

#include "base/outfile.h"
#include "ckpt/outdir.h"
#include "run/metrics.h"

#include <math.h>

static uint32_t little32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t masked(const void *data, size_t n)
{
    uint32_t crc = mt_crc32c(data, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void the_checksum_is_castagnolis(void **state)
{
    (void)state;
    assert_int_equal(mt_crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(mt_crc32c("", 0), 0);
}

/* The records of the one file in `dir`, each payload's place and length; checks every checksum. */
static size_t records_of(const char *dir, char **file, const uint8_t **at, size_t *n, size_t max)
{
    mt_err err = { 0 };
    mt_dir_names names;
    size_t bytes, count = 0;
    assert_ok(mt_dir_list(&names, dir, &err));
    assert_int_equal(names.n, 1);
    char *path = mt_path_join(dir, names.items[0]);
    assert_ok(mt_file_read(file, &bytes, path, 1 << 20, &err));
    const uint8_t *p = (const uint8_t *)*file;
    for (size_t i = 0; i < bytes; count++) {
        assert_true(count < max);
        size_t length = little32(p + i);
        assert_int_equal(little32(p + i + 4), 0);
        assert_int_equal(little32(p + i + 8), masked(p + i, 8));
        at[count] = p + i + 12;
        n[count] = length;
        assert_int_equal(little32(p + i + 12 + length), masked(p + i + 12, length));
        i += 16 + length;
    }
    mt_free(path);
    mt_dir_names_free(&names);
    return count;
}

/* True if the bytes of `tag` and, right after them, this value are in the record. */
static bool holds(const uint8_t *record, size_t n, const char *tag, float value)
{
    size_t k = strlen(tag);
    for (size_t i = 0; i + k + 5 <= n; i++) {
        if (memcmp(record + i, tag, k) != 0) continue;
        return record[i + k] == (2 << 3 | 5) && memcmp(record + i + k + 1, &value, 4) == 0; /* field 2, a float */
    }
    return false;
}

static void metrics_become_events(void **state)
{
    enum { MAX = 8 };
    mt_err err = { 0 };
    mt_metrics m;
    char *path = mt_path_join(*state, "metrics.jsonl"), *dir = mt_path_join(*state, "tensorboard"), *file;
    const uint8_t *at[MAX];
    size_t n[MAX];
    assert_ok(mt_metrics_open(&m, path, 0, &err));
    assert_ok(mt_events_new_path(&file, dir, &err));
    assert_ok(mt_events_open(&m.events, file, 4, &err));
    mt_free(file);
    mt_metrics_int(&m, "step", 5);
    mt_metrics_float(&m, "loss", 1.25);
    mt_metrics_float(&m, "grad_norm", NAN);
    mt_metrics_list(&m, "idle_experts", (double[]){ 0, 3, 1 }, 3);
    assert_ok(mt_metrics_end(&m, &err));
    mt_metrics_int(&m, "step", 300);
    mt_metrics_float(&m, "eval_loss", 0.5);
    mt_metrics_int(&m, "eval_tokens", 17);
    assert_ok(mt_metrics_end(&m, &err));
    mt_metrics_close(&m);

    assert_int_equal(records_of(dir, &file, at, n, MAX), 4);
    assert_memory_equal(at[0] + 9,
                        "\x10\x00\x1a\x0d"
                        "brain.Event:2",
                        17);                                       /* after the time: step 0, file version */
    assert_memory_equal(at[1] + 9, "\x10\x05\x3a\x02\x08\x01", 6); /* steps from 5 on start anew */
    assert_memory_equal(at[2] + 9, "\x10\x05", 2);
    assert_true(holds(at[2], n[2], "train/loss", 1.25f));
    assert_false(holds(at[2], n[2], "train/grad_norm", NAN));    /* what is not finite is left out */
    assert_true(holds(at[2], n[2], "train/idle_experts", 3.0f)); /* the largest */
    assert_memory_equal(at[3] + 9, "\x10\xac\x02", 3);
    assert_true(holds(at[3], n[3], "eval/loss", 0.5f));
    assert_true(holds(at[3], n[3], "eval/tokens", 17.0f));
    mt_free(file);
    assert_ok(mt_dir_remove(dir, &err));
    mt_free(path);
    mt_free(dir);
}

/* The file was cut, in the middle of a line: a separate line follows. */
static void lines_stay_lines_in_a_file_that_was_cut(void **state)
{
    mt_err err = { 0 };
    mt_metrics m;
    char *path = mt_path_join(*state, "metrics.jsonl"), *text;
    size_t n;
    assert_ok(mt_outfile_save(path, "{\"step\": 1}\n{\"st", 17, &err));
    assert_ok(mt_metrics_open(&m, path, 26, &err));
    mt_metrics_int(&m, "step", 3);
    mt_metrics_list(&m, "busiest_expert", (double[]){ 0.25, 1.0 / 3 }, 2);
    assert_ok(mt_metrics_end(&m, &err));
    mt_metrics_close(&m);
    assert_ok(mt_file_read(&text, &n, path, 100, &err));
    assert_string_equal(text, "{\"step\": 1}\n{\"step\": 3, \"busiest_expert\": [0.25, 0.3333]}\n");
    mt_free(text);
    assert_ok(mt_dir_remove(path, &err));
    mt_free(path);
}

/* A clock that was set back, or several starts within a second. */
static void the_newest_file_is_the_last_by_name(void **state)
{
    mt_err err = { 0 };
    char *dir = mt_path_join(*state, "tensorboard"), *before = NULL;
    assert_ok(mt_dir_make(dir, &err));
    char *future = mt_path_join(dir, "events.out.tfevents.9000000000.somewhere.7.0");
    assert_ok(mt_outfile_save(future, "", 0, &err));
    for (int i = 0; i < 3; i++) {
        mt_events e;
        char *path;
        assert_ok(mt_events_new_path(&path, dir, &err));
        assert_ok(mt_events_open(&e, path, -1, &err));
        mt_free(path);
        assert_true(strcmp(e.path, before ? before : future) > 0);
        mt_free(before);
        before = mt_strdup(e.path);
        mt_events_close(&e);
    }
    assert_ok(mt_dir_remove(dir, &err));
    mt_free(before);
    mt_free(future);
    mt_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checksum_is_castagnolis),
        cmocka_unit_test_setup_teardown(metrics_become_events, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(lines_stay_lines_in_a_file_that_was_cut, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(the_newest_file_is_the_last_by_name, tempdir_make, tempdir_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
