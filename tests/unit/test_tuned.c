/* Kernels chosen by timing are remembered: by shape, for one GPU and library, from run to run and whatever ends a run. */
#include "test.h"

#include "base/file.h"
#include "base/log.h"
#include "device/tuned.h"
#include "tempdir.h"

#include <stdio.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_one_run_chose_the_next_finds, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(half_a_line_is_none_and_harms_no_other, tempdir_make, tempdir_remove),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_a_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
