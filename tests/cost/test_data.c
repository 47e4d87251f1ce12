/* What the order of a run's samples costs, counted instead of timed (count.h): packed rows in the shuffled order of an epoch, and
 * places of a weighted mixture.  Both are looked up once for every sample of a run.  MT_SHOW=1 prints the numbers. */
#include "test.h"

#include "count.h"

#include "base/rng.h"
#include "data/mix.h"
#include "data/packing.h"
#include "data/shuffle.h"

#include <stdlib.h>

enum { ROW = 4096 };

/* 1 to 511 tokens; counts how often it is asked. */
static int64_t counted_length(const void *ctx, int64_t i)
{
    ++*(int64_t *)(uintptr_t)ctx;
    return 1 + (int64_t)mt_rng_below(3, 1, (uint64_t)i, 511);
}

/* The length of a sample is asked for once, and once more of the first 4096, whatever rows are read.  When the latest
 * million samples' windows were kept instead, this order of rows asked for 2,075 lengths a row. */
static void every_window_is_packed_once(void **state)
{
    (void)state;
    enum { N = 1 << 21, READ = 20000 };
    mt_err err = { 0 };
    mt_packing *p;
    int64_t asked = 0;
    cost_begin();
    assert_ok(mt_packing_create(&p, N, ROW, counted_length, &asked, NULL, &err));
    const cost made = cost_end();
    const mt_shuffle order = mt_shuffle_of(mt_packing_rows(p), 1, MT_SHUFFLE_EPOCH);
    cost_begin();
    for (int64_t u = 0; u < READ; u++) {
        const int64_t *items;
        int64_t n;
        mt_packing_row(p, mt_shuffle_at(&order, u), &items, &n);
        assert_true(n > 0);
    }
    const double each = (double)cost_end().steps / READ;
    if (getenv("MT_SHOW"))
        print_message("packing: %.3f lengths a sample, %.1f bytes of it, %.0f steps a row\n", (double)asked / N,
                      (double)made.peak / N, each);
    assert_int_equal(asked, N + 4096);
    assert_true(made.peak < 8 * N); /* with what packing a window takes, and a list that has grown */
    assert_true(each < 500);
    mt_packing_free(p);
}

/* A place of a mixture is found from the counts before it: at most 63 draws. */
static void places_of_a_mixture_are_near_a_count(void **state)
{
    (void)state;
    enum { PLACES = 20000 };
    mt_err err = { 0 };
    mt_mix m;
    cost_begin();
    assert_ok(
        mt_mix_init(&m, MT_MIX_UNDER, (int64_t[]){ 500000, 400000, 300000, 200000 }, (double[]){ 4, 3, 2, 1 }, 4, 1, NULL, &err));
    const cost made = cost_end();
    cost_begin();
    for (int64_t i = 0; i < PLACES; i++) {
        size_t set;
        int64_t k;
        mt_mix_at(&m, (int64_t)mt_rng_below(1, 1, (uint64_t)i, (uint64_t)m.n), &set, &k);
        assert_true(set < 4 && k >= 0);
    }
    const double each = (double)cost_end().steps / PLACES, draw = (double)made.steps / (double)m.n;
    if (getenv("MT_SHOW"))
        print_message("mixture: %.1f steps a draw, %.2f bytes a place, %.0f steps to find one\n", draw,
                      (double)made.peak / (double)m.n, each);
    assert_true(each < 48 * draw);
    assert_true((double)made.peak < 0.5 * (double)m.n);
    mt_mix_deinit(&m);
}

MT_TEST_MAIN(cmocka_unit_test(every_window_is_packed_once), cmocka_unit_test(places_of_a_mixture_are_near_a_count))
