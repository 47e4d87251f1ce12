/* Orders that are not stored: shuffles, subsets, mixtures. */
#include "test.h"

#include "base/rng.h"
#include "data/mix.h"
#include "data/shuffle.h"
#include "data/subset.h"

#include <math.h>
#include <stdlib.h>

static void every_place_is_taken_exactly_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 2, 3, 4, 5, 7, 9, 10, 16, 17, 100, 255, 256, 257, 1000, 4097, 65536, 100003 };
    for (size_t k = 0; k < MT_COUNT(sizes); k++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            int64_t n = sizes[k];
            mt_shuffle s = mt_shuffle_of(n, seed, MT_SHUFFLE_EPOCH);
            char *seen = mt_calloc((size_t)n, 1);
            for (int64_t i = 0; i < n; i++) {
                int64_t x = mt_shuffle_at(&s, i);
                assert_true(x >= 0 && x < n && !seen[x]);
                seen[x] = 1;
            }
            mt_free(seen);
        }
}

/* Each of n things at each of n places, over many seeds: chi squared with (n-1)^2 degrees of freedom, about normal. */
static double evenness(int64_t n, int draws)
{
    int64_t *count = mt_calloc((size_t)(n * n), sizeof *count);
    double chi = 0, expected = (double)draws / (double)n, freedom = (double)((n - 1) * (n - 1));
    for (int d = 0; d < draws; d++) {
        mt_shuffle s = mt_shuffle_of(n, 17, MT_SHUFFLE_EPOCH + (uint64_t)d);
        for (int64_t i = 0; i < n; i++) count[i * n + mt_shuffle_at(&s, i)]++;
    }
    for (int64_t i = 0; i < n * n; i++) chi += pow((double)count[i] - expected, 2) / expected;
    mt_free(count);
    return (chi - freedom) / sqrt(2 * freedom);
}

static void shuffles_are_even(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 2, 3, 5, 9, 10, 16, 37 };
    for (size_t k = 0; k < MT_COUNT(sizes); k++) {
        double z = evenness(sizes[k], 4000);
        if (fabs(z) > 5) fail_msg("n = %lld: %.1f deviations from even", (long long)sizes[k], z);
    }
}

/* Neighbors do not stay neighbors: about 1 of n - 1 pairs does by chance, either way round. */
static void neighbors_part(void **state)
{
    (void)state;
    int64_t n = 10007, together = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        mt_shuffle s = mt_shuffle_of(n, seed, MT_SHUFFLE_EPOCH);
        for (int64_t i = 0; i + 1 < n; i++) together += llabs(mt_shuffle_at(&s, i + 1) - mt_shuffle_at(&s, i)) == 1;
    }
    assert_true(together > 10 && together < 90); /* 40 expected */
}

static void seeds_and_streams_give_other_orders(void **state)
{
    (void)state;
    mt_shuffle a = mt_shuffle_of(1000, 1, MT_SHUFFLE_EPOCH), b = mt_shuffle_of(1000, 1, MT_SHUFFLE_EPOCH + 1),
               c = mt_shuffle_of(1000, 2, MT_SHUFFLE_EPOCH);
    int same_ab = 0, same_ac = 0;
    for (int64_t i = 0; i < 1000; i++) {
        same_ab += mt_shuffle_at(&a, i) == mt_shuffle_at(&b, i);
        same_ac += mt_shuffle_at(&a, i) == mt_shuffle_at(&c, i);
    }
    assert_true(same_ab < 10 && same_ac < 10);
}

static void the_kth_member_is_found(void **state)
{
    (void)state;
    static const double shares[] = { 0, 0.001, 0.3, 0.99, 1 };
    for (size_t k = 0; k < MT_COUNT(shares); k++)
        for (int64_t n = 0; n < 4000; n = n * 3 + 1) {
            mt_err err = { 0 };
            mt_subset s;
            int64_t n_in = 0;
            assert_ok(mt_subset_init(&s, n, &err));
            for (int64_t i = 0; i < n; i++)
                if (mt_rng_uniform(5, 0, (uint64_t)i) < shares[k]) mt_subset_add(&s, i);
            mt_subset_count(&s);
            for (int64_t i = 0; i < n; i++)
                if (mt_subset_has(&s, i)) assert_int_equal(mt_subset_at(&s, n_in++), i);
            assert_int_equal(s.n_in, n_in);
            mt_subset_deinit(&s);
        }
}

/* -- mixtures -------------------------------------------------------------------------------------- */

static void concatenated_sets_follow_each_other(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_mix m;
    assert_ok(mt_mix_init(&m, MT_MIX_CONCAT, (int64_t[]){ 3, 0, 2 }, NULL, 3, 1, NULL, &err));
    static const struct {
        size_t set;
        int64_t k;
    } expected[] = { { 0, 0 }, { 0, 1 }, { 0, 2 }, { 2, 0 }, { 2, 1 } };
    assert_int_equal(m.n, 5);
    for (int64_t i = 0; i < 5; i++) {
        size_t set;
        int64_t k;
        mt_mix_at(&m, i, &set, &k);
        assert_int_equal(set, expected[i].set);
        assert_int_equal(k, expected[i].k);
    }
    mt_mix_deinit(&m);
}

static void without_probabilities_sets_take_turns(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_mix m;
    assert_ok(mt_mix_init(&m, MT_MIX_UNDER, (int64_t[]){ 3, 5 }, NULL, 2, 1, NULL, &err));
    assert_int_equal(m.n, 6);
    mt_mix_deinit(&m);
    assert_ok(mt_mix_init(&m, MT_MIX_OVER, (int64_t[]){ 3, 5 }, NULL, 2, 1, NULL, &err));
    assert_int_equal(m.n, 10);
    for (int64_t i = 0; i < 10; i++) {
        size_t set;
        int64_t k;
        mt_mix_at(&m, i, &set, &k);
        assert_int_equal(set, i % 2);
        assert_int_equal(k, i / 2 % (set ? 5 : 3)); /* the shorter one begins again */
    }
    mt_mix_deinit(&m);
    assert_int_equal(mt_mix_init(&m, MT_MIX_OVER, (int64_t[]){ 3, 0 }, NULL, 2, 1, NULL, &err), MT_EINVAL);
    assert_says("without samples");
}

/* Walk a mixture: each set's samples come in turn, from 0 on, and as often as the probabilities say. */
static void walk(mt_mix_strategy strategy, const int64_t sizes[3], const double probs[3])
{
    mt_err err = { 0 };
    mt_mix m;
    int64_t count[3] = { 0 };
    double sum = probs[0] + probs[1] + probs[2];
    assert_ok(mt_mix_init(&m, strategy, sizes, probs, 3, 11, NULL, &err));
    for (int64_t i = 0; i < m.n; i++) {
        size_t set;
        int64_t k;
        mt_mix_at(&m, i, &set, &k);
        assert_int_equal(k, count[set]++ % sizes[set]);
    }
    int n_out = 0;
    for (size_t d = 0; d < 3; d++) assert_int_equal(mt_mix_drawn(&m, d), count[d]);
    for (int d = 0; d < 3; d++) {
        double p = probs[d] / sum, expected = p * (double)m.n;
        assert_true(fabs((double)count[d] - expected) < 6 * sqrt(expected * (1 - p)) + 2);
        n_out += count[d] >= sizes[d];
    }
    assert_int_equal(n_out, strategy == MT_MIX_UNDER ? 1 : 3);
    mt_mix_deinit(&m);
}

static void probabilities_are_kept(void **state)
{
    (void)state;
    walk(MT_MIX_UNDER, (int64_t[]){ 3000, 2000, 1000 }, (double[]){ 0.5, 0.3, 0.2 });
    walk(MT_MIX_OVER, (int64_t[]){ 3000, 2000, 1000 }, (double[]){ 0.5, 0.3, 0.2 });
    walk(MT_MIX_OVER, (int64_t[]){ 100, 4000, 50 }, (double[]){ 2, 1, 1 }); /* scaled to 1 */
    walk(MT_MIX_UNDER, (int64_t[]){ 90000, 50000, 40000 }, (double[]){ 0.5, 0.3, 0.2 });
    mt_err err = { 0 };
    mt_mix m;
    assert_int_equal(mt_mix_init(&m, MT_MIX_UNDER, (int64_t[]){ 1, 1 }, (double[]){ 1, 0 }, 2, 1, NULL, &err), MT_EINVAL);
    assert_says("number 2 has 0");
    /* Such a dataset would never be used up, and the count of draws would never end. */
    const double rare[] = { 1, 1e-18 };
    assert_int_equal(mt_mix_init(&m, MT_MIX_OVER, (int64_t[]){ 3, 4 }, rare, 2, 1, NULL, &err), MT_EINVAL);
    assert_says("with a chance of 1e-18, dataset 2 of 4 samples would be used up after about 4e+18 draws");
    assert_ok(mt_mix_init(&m, MT_MIX_UNDER, (int64_t[]){ 3, 4 }, rare, 2, 1, NULL, &err));
    assert_int_equal(m.n, 3);
    mt_mix_deinit(&m);
}

/* A billion draws take seconds, and end when a signal comes; more are refused. */
static void a_long_mixture_can_be_stopped(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_mix m;
    const atomic_bool stop = true;
    const int64_t sizes[] = { 900000000, 5 };
    assert_int_equal(mt_mix_init(&m, MT_MIX_OVER, sizes, (double[]){ 1, 1e-6 }, 2, 1, &stop, &err), MT_ESTOPPED);
    assert_says("stopped on request");
    assert_int_equal(mt_mix_init(&m, MT_MIX_OVER, (int64_t[]){ 1000000000, 5 }, (double[]){ 0.5, 0.5 }, 2, 1, &stop, &err),
                     MT_EINVAL);
    assert_says("would be used up after about 2e+09 draws");
}

MT_TEST_MAIN(cmocka_unit_test(every_place_is_taken_exactly_once), cmocka_unit_test(shuffles_are_even),
             cmocka_unit_test(neighbors_part), cmocka_unit_test(seeds_and_streams_give_other_orders),
             cmocka_unit_test(the_kth_member_is_found), cmocka_unit_test(concatenated_sets_follow_each_other),
             cmocka_unit_test(without_probabilities_sets_take_turns), cmocka_unit_test(probabilities_are_kept),
             cmocka_unit_test(a_long_mixture_can_be_stopped))
