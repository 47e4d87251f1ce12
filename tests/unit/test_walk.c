/* The walk over a model's weights (model/walk.h): every weight once, in order. */
#include "golden.h"
#include "test.h"

#include "model/walk.h"

#include <stdio.h>

typedef struct opened {
    mt_config *c;
    mt_model *m;
} opened;

static opened open_case(const char *name)
{
    opened o;
    mt_err err = { 0 };
    char dir[512];
    snprintf(dir, sizeof dir, "%s%s", GOLDEN_DIR, name);
    assert_ok(mt_config_open(&o.c, dir, &err));
    assert_ok(mt_model_create(&o.m, o.c, NULL, &err));
    return o;
}

static void close_case(opened *o)
{
    mt_model_free(o->m);
    mt_config_close(o->c);
}

static void the_walk_meets_every_weight_once_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(golden_cases); i++) {
        opened o = open_case(golden_cases[i]);
        mt_walk at = mt_walk_model(o.m);
        size_t n = 0;
        for (int u = 0; u < o.m->n_units; u++)
            for (int k = 0; k < o.m->units[u].layout->n_weights; k++, n++) {
                assert_true(mt_walk_next(&at));
                assert_int_equal(at.unit, u);
                assert_ptr_equal(at.u, &o.m->units[u]);
                assert_ptr_equal(at.w, &o.m->units[u].layout->weights[k]);
            }
        assert_false(mt_walk_next(&at));
        assert_false(mt_walk_next(&at)); /* and stays at the end */
        assert_int_equal(mt_walk_count(mt_walk_model(o.m)), n);
        close_case(&o);
    }
}

static void a_walk_over_some_units_stays_in_them(void **state)
{
    (void)state;
    opened o = open_case("mixtral");
    const mt_layer_units units = o.m->layers[1];
    size_t n = 0, expected = 0;
    for (int u = units.first; u < units.first + units.n; u++) expected += (size_t)o.m->units[u].layout->n_weights;
    for (mt_walk at = mt_walk_units(o.m, units); mt_walk_next(&at); n++) assert_int_equal(at.u->layer, 1);
    assert_true(units.n > 1);
    assert_int_equal(n, expected);
    assert_int_equal(mt_walk_count(mt_walk_units(o.m, (mt_layer_units){ units.first, 0 })), 0);
    close_case(&o);
}

/* As a tied head without a norm would be. */
static void units_without_weights_are_passed_over(void **state)
{
    (void)state;
    opened o = open_case("mixtral");
    mt_layout none = { 0 };
    const mt_layout *second = o.m->units[1].layout;
    o.m->units[0].layout = o.m->units[2].layout = &none;
    mt_walk at = mt_walk_units(o.m, (mt_layer_units){ 0, 3 });
    for (int k = 0; k < second->n_weights; k++) {
        assert_true(mt_walk_next(&at));
        assert_ptr_equal(at.w, &second->weights[k]);
    }
    assert_false(mt_walk_next(&at));
    close_case(&o);
}

MT_TEST_MAIN(cmocka_unit_test(the_walk_meets_every_weight_once_in_order), cmocka_unit_test(a_walk_over_some_units_stays_in_them),
             cmocka_unit_test(units_without_weights_are_passed_over))
