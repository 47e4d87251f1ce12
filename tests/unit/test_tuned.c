/* Kernels chosen by timing are remembered: by shape, for one GPU and library, from run to run and whatever ends a run. */
#include "test.h"

#include "base/file.h"
#include "base/log.h"
#include "device/tuned.h"
#include "tempdir.h"

#include <glob.h>
#include <stdio.h>
#include <sys/stat.h>

static const char gpu[] = "megatrain products 1, a GPU, library 12";

static void key_of(int64_t key[MT_TUNED_KEY], int64_t n)
{
    for (int i = 0; i < MT_TUNED_KEY; i++) key[i] = i ? n * i : n;
}

static void add(mt_tuned *t, int64_t n, uint64_t value)
{
    int64_t key[MT_TUNED_KEY];
    uint64_t choice[MT_TUNED_CHOICE] = { value, UINT64_MAX, 0, 7, 1, 2, 3, value };
    key_of(key, n);
    mt_tuned_add(t, key, choice);
}

/* 0: not known. */
static uint64_t look_up(const mt_tuned *t, int64_t n)
{
    int64_t key[MT_TUNED_KEY];
    uint64_t choice[MT_TUNED_CHOICE];
    key_of(key, n);
    if (!mt_tuned_find(t, key, choice)) return 0;
    assert_true(choice[1] == UINT64_MAX && choice[2] == 0 && choice[7] == choice[0]);
    return choice[0];
}

static mt_tuned *open_in(const char *dir, const char *who)
{
    mt_err err = { 0 };
    mt_tuned *t = NULL;
    assert_ok(mt_tuned_open(&t, dir, who, &err));
    return t;
}

static void what_one_run_chose_the_next_finds(void **state)
{
    const char *dir = *state;
    mt_tuned *t = open_in(dir, gpu);
    assert_int_equal(mt_tuned_count(t), 0);
    for (int64_t n = 1; n <= 200; n++) add(t, n, (uint64_t)n + 1000);
    assert_int_equal(look_up(t, 3), 1003);
    mt_tuned *beside = open_in(dir, gpu); /* while the first still runs */
    assert_int_equal(mt_tuned_count(beside), 200);
    for (int64_t n = 1; n <= 200; n++) assert_int_equal(look_up(beside, n), n + 1000);
    assert_int_equal(look_up(beside, 201), 0);
    add(t, 300, 1);
    add(beside, 300, 2); /* both timed it; the first counts from now on */
    mt_tuned_close(t);
    mt_tuned_close(beside);
    t = open_in(dir, gpu);
    assert_int_equal(look_up(t, 300), 1);
    assert_int_equal(mt_tuned_count(t), 201);
    mt_tuned_close(t);
    t = open_in(dir, "megatrain products 1, another GPU, library 12");
    assert_int_equal(mt_tuned_count(t), 0);
    mt_tuned_close(t);
}

/* A run that is killed may leave half a line. */
static void half_a_line_is_none_and_harms_no_other(void **state)
{
    const char *dir = *state;
    char command[512];
    mt_tuned *t = open_in(dir, gpu);
    add(t, 1, 11);
    add(t, 2, 12);
    mt_tuned_close(t);
    snprintf(command, sizeof command, "truncate -s -5 %s/products-*", dir);
    assert_int_equal(system(command), 0);
    t = open_in(dir, gpu);
    assert_int_equal(look_up(t, 1), 11);
    assert_int_equal(look_up(t, 2), 0);
    add(t, 2, 22);
    add(t, 3, 13);
    mt_tuned_close(t);
    t = open_in(dir, gpu);
    assert_int_equal(look_up(t, 1), 11);
    assert_int_equal(look_up(t, 2), 22);
    assert_int_equal(look_up(t, 3), 13);
    mt_tuned_close(t);
}

/* Nor one that ends within its last number, and is completed by the line after it; nor are those after zeros that a disk left. */
static void a_number_cut_short_is_no_other_number(void **state)
{
    const char *dir = *state;
    char command[512];
    for (int cut = 1; cut <= 24; cut++) {
        mt_tuned *t = open_in(dir, gpu);
        add(t, 100 + cut, 0x123456789abcdef0);
        mt_tuned_close(t);
        snprintf(command, sizeof command, "truncate -s -%d %s/products-*", cut, dir);
        assert_int_equal(system(command), 0);
        t = open_in(dir, gpu);
        add(t, 200 + cut, 7);
        mt_tuned_close(t);
        t = open_in(dir, gpu);
        uint64_t found = look_up(t, 100 + cut);
        /* One: its end alone. */
        if (found && (found != 0x123456789abcdef0 || cut > 1)) fail_msg("%d bytes less: %llx", cut, (unsigned long long)found);
        assert_int_equal(look_up(t, 200 + cut), 7);
        mt_tuned_close(t);
    }
    snprintf(command, sizeof command, "head -c 100 /dev/zero | tee -a %s/products-* > /dev/null", dir);
    assert_int_equal(system(command), 0);
    mt_tuned *t = open_in(dir, gpu);
    add(t, 300, 9);
    mt_tuned_close(t);
    t = open_in(dir, gpu);
    assert_int_equal(look_up(t, 300), 9);
    mt_tuned_close(t);
}

static int64_t bytes_of_file(const char *dir)
{
    glob_t found;
    struct stat st;
    char pattern[512];
    snprintf(pattern, sizeof pattern, "%s/products-*", dir);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    assert_int_equal(stat(found.gl_pathv[0], &st), 0);
    globfree(&found);
    return st.st_size;
}

/* What is known is written once. */
static void a_shape_has_one_line(void **state)
{
    mt_tuned *t = open_in(*state, gpu);
    add(t, 1, 5);
    int64_t once = bytes_of_file(*state);
    for (uint64_t i = 0; i < 3; i++) add(t, 1, 6 + i);
    mt_tuned_close(t);
    assert_int_equal(bytes_of_file(*state), once);
}

static void take_note(void *user, mt_log_level level, const char *text)
{
    (void)level;
    snprintf(user, 512, "%s", text);
}

static void a_folder_that_cannot_be_written_is_a_warning(void **state)
{
    (void)state;
    char said[512] = "";
    mt_log_set_sink(take_note, said);
    mt_tuned *t = open_in("/dev/null/nowhere", gpu);
    mt_log_set_sink(NULL, NULL);
    assert_non_null(strstr(said, "not remembered"));
    add(t, 1, 5);
    assert_int_equal(look_up(t, 1), 5); /* in this run it is */
    mt_tuned_close(t);
    t = open_in("", gpu);
    add(t, 1, 6);
    assert_int_equal(look_up(t, 1), 6);
    mt_tuned_close(t);
}

static void without_a_home_nothing_is_kept_and_that_is_said(void **state)
{
    (void)state;
    char said[512] = "", *home = mt_strdup(getenv("HOME") ? getenv("HOME") : "");
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    mt_log_set_sink(take_note, said);
    char *dir = mt_tuned_folder();
    mt_log_set_sink(NULL, NULL);
    assert_string_equal(dir, "");
    assert_non_null(strstr(said, "not remembered"));
    setenv("HOME", home, 1);
    mt_free(dir);
    mt_free(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_one_run_chose_the_next_finds, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(half_a_line_is_none_and_harms_no_other, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(a_number_cut_short_is_no_other_number, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(a_shape_has_one_line, tempdir_make, tempdir_remove),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_a_warning),
        cmocka_unit_test(without_a_home_nothing_is_kept_and_that_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
