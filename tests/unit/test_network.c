/* plan/network.h: a network that is fast enough costs nothing, and one that is not costs what the bytes take. */
#include "plan/network.h"
#include "test.h"

#include <math.h>

static mt_network_cost cost(double alone_s, int machines, double rate)
{
    return mt_network_step(alone_s, &(mt_network_job){ .n_trained = 7000000000, .machines = machines, .rate = rate });
}

static void one_machine_waits_for_nothing(void **state)
{
    (void)state;
    const mt_network_cost c = cost(8, 1, 1);
    assert_true(c.step == 8 && c.waits == 0 && c.weights == 0 && c.sums == 0);
}

static void what_compute_hides_is_free(void **state)
{
    (void)state;
    const mt_network_cost c = cost(8, 4, 50e9);
    assert_true(fabs(c.weights - 2 * 0.75 * 7e9 / 50e9) < 1e-9);
    assert_true(fabs(c.sums - 4 * 0.75 * 7e9 / 50e9) < 1e-9);
    assert_true(c.waits == 0);
}

static void what_it_does_not_hide_is_waited_for(void **state)
{
    (void)state;
    const mt_network_cost c = cost(0.001, 2, 1e9);
    assert_true(fabs(c.step - (7.0 + 14.0)) < 1e-6);
    assert_true(fabs(c.waits - (c.step - 0.001)) < 1e-9);
    const mt_network_job whole = { .n_trained = 7000000000, .machines = 2, .rate = 1e9, .whole = true };
    assert_true(fabs(mt_network_step(0.001, &whole).weights - 14) < 1e-6);
    const mt_network_job rounded = { .n_trained = 7000000000, .machines = 2, .rate = 1e9, .rounded = true };
    assert_true(fabs(mt_network_step(0.001, &rounded).sums - 7) < 1e-6);
}

/* Four bundles on two machines: each sends two sums and receives two, and the weights once. */
static void every_bundle_of_a_machine_sends_a_sum(void **state)
{
    (void)state;
    const mt_model model = { .n_trained = 7000000000 };
    for (int bundles = 1; bundles <= 5; bundles++) {
        const int turns = (bundles + 1) / 2;
        const mt_plan plan = { .model = &model,
                               .job = { .machines = 2 },
                               .arithmetic = { .compute = MT_DTYPE_BF16, .bundles = bundles, .reduce_bf16 = bundles == 5 } };
        const mt_network_job job = mt_network_job_of(&plan, 1e9);
        const mt_network_cost c = mt_network_step(0.001, &job);
        assert_int_equal(job.turns, turns);
        assert_true(fabs(c.weights - 7) < 1e-6);
        assert_true(fabs(c.sums - turns * (bundles == 5 ? 7.0 : 14.0)) < 1e-6);
        assert_true(fabs(c.step - (c.weights + c.sums)) < 1e-6);
    }
}

/* The weights travel while the first bundle's forward runs, which is a quarter of its compute; later ones hide only sums. */
static void later_bundles_do_not_hide_weights(void **state)
{
    (void)state;
    const mt_network_job two = { .n_trained = 1000000000, .machines = 2, .turns = 2, .rate = 1e9 };
    const mt_network_cost c = mt_network_step(4, &two); /* weights 1 s, sums 4 s; forward 0.5 s of the first bundle's 2 s */
    assert_true(fabs(c.weights - 1) < 1e-9 && fabs(c.sums - 4) < 1e-9);
    assert_true(fabs(c.step - (1 + 4)) < 1e-9);
    assert_true(fabs(mt_network_step(16, &two).waits) < 1e-9);
}

/* More machines move more bytes, never more than twice what two move, and a faster network is never slower. */
static void costs_grow_with_machines_and_fall_with_the_rate(void **state)
{
    (void)state;
    double before = 0;
    for (int machines = 1; machines <= 64; machines++) {
        const mt_network_cost c = cost(0.5, machines, 10e9), two = cost(0.5, 2, 10e9);
        assert_true(c.step >= before && c.step >= 0.5);
        assert_true(c.weights <= 2 * two.weights && c.sums <= 2 * two.sums);
        assert_true(cost(0.5, machines, 20e9).step <= c.step);
        before = c.step;
    }
}

static void a_fixed_step_keeps_so_many_gpus_busy(void **state)
{
    (void)state;
    assert_int_equal((int)mt_network_most_gpus(1e6, 50e9, 620e12), 80);
    assert_int_equal((int)mt_network_most_gpus(1e6, 12.5e9, 620e12), 20);
}

MT_TEST_MAIN(cmocka_unit_test(one_machine_waits_for_nothing), cmocka_unit_test(what_compute_hides_is_free),
             cmocka_unit_test(what_it_does_not_hide_is_waited_for), cmocka_unit_test(every_bundle_of_a_machine_sends_a_sum),
             cmocka_unit_test(later_bundles_do_not_hide_weights),
             cmocka_unit_test(costs_grow_with_machines_and_fall_with_the_rate),
             cmocka_unit_test(a_fixed_step_keeps_so_many_gpus_busy))
