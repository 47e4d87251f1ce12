/* Lanes share one table of product kernels: a shape's kernel is chosen once, and every lane multiplies by that one. */
#include "test.h"

#include "device/choices.h"
#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct asker {
    mt_choices *choices;
    int64_t shape;
    uint64_t wish; /* what it would choose */
    atomic_int *asked;
} asker;

/* Shapes of odd numbers have no kernel. */
static bool choose(void *arg, uint64_t choice[MT_TUNED_CHOICE])
{
    const asker *a = arg;
    atomic_fetch_add(a->asked, 1);
    choice[0] = a->wish;
    choice[MT_TUNED_CHOICE - 1] = ~a->wish;
    return a->shape % 2 == 0;
}

static bool ask(asker *a, int64_t shape, uint64_t *wish)
{
    const int64_t key[MT_TUNED_KEY] = { shape, 7, [MT_TUNED_KEY - 1] = shape * shape };
    uint64_t choice[MT_TUNED_CHOICE] = { 0 };
    a->shape = shape;
    const bool found = mt_choices_find(a->choices, key, choose, a, choice);
    *wish = choice[0];
    assert_true(!found || choice[MT_TUNED_CHOICE - 1] == ~choice[0]);
    return found;
}

static void what_one_lane_chose_the_others_find(void **state)
{
    (void)state;
    mt_err err = { 0 };
    atomic_int asked = 0;
    asker first = { .wish = 5, .asked = &asked }, second = { .wish = 6, .asked = &asked };
    uint64_t got;
    assert_ok(mt_choices_create(&first.choices, &err));
    second.choices = mt_choices_share(first.choices);
    assert_true(ask(&first, 2, &got) && got == 5);
    assert_true(ask(&second, 2, &got) && got == 5);
    assert_true(ask(&second, 4, &got) && got == 6);
    assert_true(ask(&first, 4, &got) && got == 6);
    assert_false(ask(&second, 3, &got)); /* that there is none is a choice, too */
    assert_false(ask(&first, 3, &got));
    assert_int_equal(asked, 3);
    assert_int_equal(mt_choices_made(second.choices), 3);
    mt_choices_release(first.choices);
    assert_true(ask(&second, 2, &got) && got == 5); /* the table goes with the last of them */
    mt_choices_release(second.choices);
    mt_choices_release(NULL);
}

enum { LANES = 4, SHAPES = 500 };

typedef struct lane_run {
    asker a;
    uint64_t got[SHAPES];
} lane_run;

static void *ask_all(void *arg)
{
    lane_run *l = arg;
    for (int i = 0; i < SHAPES; i++)
        ask(&l->a, 2 * (1 + (i * 7 + (int)l->a.wish * 31) % SHAPES), &l->got[(i * 7 + (int)l->a.wish * 31) % SHAPES]);
    return NULL;
}

static void lanes_that_ask_at_once_get_the_same(void **state)
{
    (void)state;
    mt_err err = { 0 };
    atomic_int asked = 0;
    static lane_run lanes[LANES];
    pthread_t threads[LANES];
    mt_choices *c;
    assert_ok(mt_choices_create(&c, &err));
    for (int i = 0; i < LANES; i++) {
        lanes[i].a = (asker){ .choices = i ? mt_choices_share(c) : c, .wish = (uint64_t)i + 1, .asked = &asked };
        assert_int_equal(pthread_create(&threads[i], NULL, ask_all, &lanes[i]), 0);
    }
    for (int i = 0; i < LANES; i++) pthread_join(threads[i], NULL);
    assert_int_equal(asked, SHAPES);
    for (int i = 1; i < LANES; i++) assert_memory_equal(lanes[i].got, lanes[0].got, sizeof lanes[0].got);
    for (int i = 0; i < LANES; i++) mt_choices_release(lanes[i].a.choices);
}

/* More shapes than there are places: those of long ago are chosen again, and found. */
static void a_full_table_is_emptied(void **state)
{
    (void)state;
    mt_err err = { 0 };
    atomic_int asked = 0;
    asker a = { .wish = 1, .asked = &asked };
    uint64_t got;
    assert_ok(mt_choices_create(&a.choices, &err));
    for (int64_t i = 1; i <= 10000; i++) {
        assert_true(ask(&a, 2 * i, &got));
        assert_true(ask(&a, 2 * i, &got));
    }
    assert_int_equal(asked, 10000);
    assert_true(ask(&a, 2, &got));
    assert_int_equal(asked, 10001);
    mt_choices_release(a.choices);
}

static void devices_are_of_one_kind_by_name_and_processors(void **state)
{
    (void)state;
    const mt_device_info h200 = { .name = "NVIDIA H200", .n_processors = 132, .memory_limit = 1 },
                         other = { .name = "NVIDIA H200", .n_processors = 132, .memory_limit = 2 },
                         cut = { .name = "NVIDIA H200", .n_processors = 114 },
                         rtx = { .name = "NVIDIA GeForce RTX 4090", .n_processors = 132 };
    assert_true(mt_device_same_kind(&h200, &other));
    assert_false(mt_device_same_kind(&h200, &cut));
    assert_false(mt_device_same_kind(&h200, &rtx));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_lane_chose_the_others_find),
        cmocka_unit_test(lanes_that_ask_at_once_get_the_same),
        cmocka_unit_test(a_full_table_is_emptied),
        cmocka_unit_test(devices_are_of_one_kind_by_name_and_processors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
