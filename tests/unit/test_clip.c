/* Clipping: torch's formula, and what max_norm means at its ends. */
#include "test.h"

#include "optim/clip.h"

#include <math.h>

static void a_large_norm_is_scaled_down_as_torch_does(void **state)
{
    (void)state;
    mt_clip c = mt_clip_of(25.0, 1.0);
    assert_true(c.finite && c.norm == 5 && c.scale == 1.0 / (5 + 1e-6));
    c = mt_clip_of(1e-14, 1e-8);
    assert_true(c.norm == 1e-7 && c.scale == 1e-8 / (1e-7 + 1e-6)); /* the 1e-6 is torch's, felt only down here */
    c = mt_clip_of(1.0, 1.0);
    assert_true(c.scale == 1 / (1 + 1e-6)); /* torch's too: at the limit it already scales */
}

static void a_small_norm_is_left_alone(void **state)
{
    (void)state;
    assert_true(mt_clip_of(0.81, 1.0).scale == 1);
    assert_true(mt_clip_of(0.0, 1.0).scale == 1);
    assert_true(mt_clip_of(0.0, 1.0).norm == 0);
}

static void zero_is_off_and_infinity_only_watches(void **state)
{
    (void)state;
    assert_false(mt_clip_needs_norm(0));
    assert_false(mt_clip_needs_norm(-1));
    assert_true(mt_clip_needs_norm(1e-9));
    assert_true(mt_clip_needs_norm(INFINITY));
    assert_true(mt_clip_of(1e12, 0).scale == 1);
    assert_true(mt_clip_of(1e12, -1).scale == 1);
    mt_clip c = mt_clip_of(1e12, INFINITY);
    assert_true(c.scale == 1 && c.norm == 1e6 && c.finite);
}

static void a_broken_norm_is_said(void **state)
{
    (void)state;
    static const double limits[] = { 0, 1, INFINITY };
    for (size_t i = 0; i < MT_COUNT(limits); i++) {
        assert_false(mt_clip_of(INFINITY, limits[i]).finite);
        assert_false(mt_clip_of(NAN, limits[i]).finite);
        assert_true(mt_clip_of(NAN, limits[i]).scale == 0);
    }
}

MT_TEST_MAIN(cmocka_unit_test(a_large_norm_is_scaled_down_as_torch_does), cmocka_unit_test(a_small_norm_is_left_alone),
             cmocka_unit_test(zero_is_off_and_infinity_only_watches), cmocka_unit_test(a_broken_norm_is_said))
