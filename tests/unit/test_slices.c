/* Units cut over lanes: every number is in one slice, and no chunk of the norm is cut. */
#include "wide.h"

#include "ops/sqnorm.h"
#include "schedule/slices.h"

static mt_plan plan_for(const rig *r, int lanes)
{
    return (mt_plan){ .model = r->model, .job = { .train = true, .lanes = lanes } };
}

static void every_number_is_in_one_slice(void **state)
{
    (void)state;
    for (wide_kind kind = 0; kind < WIDE_KINDS; kind++) {
        rig r;
        open_wide(&r, kind, NULL);
        for (int lanes = 1; lanes <= 64; lanes++) {
            const mt_plan p = plan_for(&r, lanes);
            for (int u = 0; u < r.model->n_units; u++) {
                const int64_t n = r.model->units[u].layout->n_train;
                int64_t next = 0, most = 0, least = INT64_MAX;
                for (int l = 0; l < lanes; l++) {
                    const mt_stretch s = mt_plan_lane_slice(&p, u, l);
                    assert_int_equal(s.first, next);
                    assert_true(s.first % MT_SQNORM_CHUNK == 0 || s.n == 0);
                    next += s.n;
                    most = mt_max_i64(most, s.n);
                    least = mt_min_i64(least, s.n);
                }
                assert_int_equal(next, n);
                assert_true(most <= mt_plan_most_slice(&p, n));
                assert_true(most - least <= 2 * MT_SQNORM_CHUNK); /* they differ by a chunk, and the last one may be short */
            }
        }
        rig_close(&r);
    }
}

static void several_lanes_have_slices_of_the_test_models(void **state)
{
    (void)state;
    rig r;
    open_wide(&r, WIDE_DENSE, NULL);
    const mt_plan p = plan_for(&r, 3);
    for (int u = 0; u < r.model->n_units; u++)
        if (r.model->units[u].layer >= 0)
            for (int l = 0; l < 3; l++) assert_true(mt_plan_lane_slice(&p, u, l).n > 0);
    rig_close(&r);
}

MT_TEST_MAIN(cmocka_unit_test(every_number_is_in_one_slice), cmocka_unit_test(several_lanes_have_slices_of_the_test_models))
