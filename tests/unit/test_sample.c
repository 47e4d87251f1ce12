/* engine/sample.c: what stays among the candidates, and how often each is drawn. */
#include "test.h"

#include "engine/sample.h"

#include <math.h>

enum { V = 6 };
/* Probabilities 0.4, 0.05, 0.3, 0.05, 0.15, 0.05. */
static const double probability[V] = { 0.4, 0.05, 0.3, 0.05, 0.15, 0.05 };

static void fill(float *logits)
{
    for (int i = 0; i < V; i++) logits[i] = (float)log(probability[i]) + 3;
}

static int64_t candidates(const mt_sampling *s, mt_candidate *space)
{
    float logits[V];
    fill(logits);
    return mt_sample_candidates(s, logits, V, space);
}

static void temperature_zero_takes_the_likeliest(void **state)
{
    (void)state;
    mt_candidate space[V];
    float logits[V];
    fill(logits);
    for (uint64_t i = 0; i < 50; i++) assert_int_equal(mt_sample_token(&(mt_sampling){ .seed = i }, logits, V, 0, i, space), 0);
    logits[3] = logits[0] = 9;
    assert_int_equal(mt_sample_token(&(mt_sampling){ 0 }, logits, V, 0, 0, space), 0); /* equals: the lower id */
    for (uint64_t i = 0; i < 50; i++)
        assert_int_equal(mt_sample_token(&(mt_sampling){ .temperature = 1, .top_k = 1, .seed = i }, logits, V, 0, i, space), 0);
}

static void top_p_keeps_the_fewest_that_reach_it(void **state)
{
    (void)state;
    mt_candidate space[V];
    const struct {
        double top_p;
        int n;
    } cases[] = { { 0.1, 1 },  { 0.39, 1 }, { 0.41, 2 },  { 0.69, 2 }, { 0.71, 3 },
                  { 0.84, 3 }, { 0.86, 4 }, { 0.999, 6 }, { 1, 6 },    { 0, 6 } };
    for (size_t i = 0; i < MT_COUNT(cases); i++)
        assert_int_equal(candidates(&(mt_sampling){ .temperature = 1, .top_p = cases[i].top_p }, space), cases[i].n);
    candidates(&(mt_sampling){ .temperature = 1, .top_p = 0.86 }, space);
    const int32_t order[] = { 0, 2, 4, 1 };
    for (int i = 0; i < 4; i++) assert_int_equal(space[i].id, order[i]);
}

static void top_k_comes_before_top_p(void **state)
{
    (void)state;
    mt_candidate space[V];
    assert_int_equal(candidates(&(mt_sampling){ .temperature = 1, .top_k = 3 }, space), 3);
    assert_int_equal(space[2].id, 4);
    /* Of 0.4, 0.3, 0.15 the first two are 82%. */
    assert_int_equal(candidates(&(mt_sampling){ .temperature = 1, .top_k = 3, .top_p = 0.8 }, space), 2);
    assert_int_equal(candidates(&(mt_sampling){ .temperature = 1, .top_k = 3, .top_p = 0.83 }, space), 3);
    assert_int_equal(candidates(&(mt_sampling){ .temperature = 1, .top_k = 99 }, space), V);
}

/* 20000 draws: three deviations of a share of one half are 0.011. */
static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    mt_candidate space[V];
    float logits[V];
    fill(logits);
    for (int warm = 1; warm <= 2; warm++) {
        double expected[V], sum = 0;
        int counts[V] = { 0 };
        for (int i = 0; i < V; i++) sum += expected[i] = pow(probability[i], 1.0 / warm);
        for (uint64_t i = 0; i < DRAWS; i++)
            counts[mt_sample_token(&(mt_sampling){ .temperature = warm, .seed = 5 }, logits, V, 3, i, space)]++;
        for (int i = 0; i < V; i++) assert_true(fabs(counts[i] / (double)DRAWS - expected[i] / sum) < 0.011);
    }
}

static void streams_and_seeds_differ(void **state)
{
    (void)state;
    mt_candidate space[V];
    float logits[V];
    int same_seed = 0, other_seed = 0, other_stream = 0;
    fill(logits);
    for (uint64_t i = 0; i < 200; i++) {
        int32_t a = mt_sample_token(&(mt_sampling){ .temperature = 1, .seed = 1 }, logits, V, 1, i, space);
        same_seed += a == mt_sample_token(&(mt_sampling){ .temperature = 1, .seed = 1 }, logits, V, 1, i, space);
        other_seed += a == mt_sample_token(&(mt_sampling){ .temperature = 1, .seed = 2 }, logits, V, 1, i, space);
        other_stream += a == mt_sample_token(&(mt_sampling){ .temperature = 1, .seed = 1 }, logits, V, 2, i, space);
    }
    assert_int_equal(same_seed, 200);
    assert_true(other_seed < 120 && other_stream < 120);
}

static void settings_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    assert_int_equal(mt_sampling_check(&(mt_sampling){ .temperature = -1 }, &err), MT_ERANGE);
    assert_says("temperature");
    assert_int_equal(mt_sampling_check(&(mt_sampling){ .temperature = NAN }, &err), MT_ERANGE);
    assert_int_equal(mt_sampling_check(&(mt_sampling){ .top_p = 1.5 }, &err), MT_ERANGE);
    assert_says("top_p");
    assert_int_equal(mt_sampling_check(&(mt_sampling){ .top_k = -2 }, &err), MT_ERANGE);
    assert_says("top_k");
    assert_ok(mt_sampling_check(&(mt_sampling){ .temperature = 0.7, .top_p = 0.9, .top_k = 40 }, &err));
}

MT_TEST_MAIN(cmocka_unit_test(temperature_zero_takes_the_likeliest), cmocka_unit_test(top_p_keeps_the_fewest_that_reach_it),
             cmocka_unit_test(top_k_comes_before_top_p), cmocka_unit_test(draws_follow_the_probabilities),
             cmocka_unit_test(streams_and_seeds_differ), cmocka_unit_test(settings_that_make_no_sense_are_refused))
