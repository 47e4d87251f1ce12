/* Published models by their config.json: the right family, parameter count, unit sizes and work, to the last parameter, without any
 * weights. published/make_published.py wrote the table, with the sizes transformers gives. */
#include "test.h"

#include "base/json.h"
#include "model/flops.h"
#include "model/layer.h"
#include "plan/shapes.h"

#include <math.h>
#include <stdlib.h>

static int64_t number(const mt_value *row, const char *key) { return (int64_t)mt_value_int(mt_value_get(row, key)); }

static int64_t n_params(const mt_unit *u)
{
    int64_t n = 0;
    for (int k = 0; k < u->layout->n_weights; k++) n += u->layout->weights[k].n;
    return n;
}

static int64_t layer_params(const mt_model *m, int layer)
{
    const mt_layer_units *l = &m->layers[layer];
    int64_t n = 0;
    for (int u = l->first; u < l->first + l->n; u++) n += n_params(&m->units[u]);
    return n;
}

/* Of all layers, or of each. */
static int64_t expected_layer(const mt_value *row, int layer)
{
    const mt_value *v = mt_value_get(row, "layer");
    return (int64_t)mt_value_int(mt_value_has(v, MT_VALUE_LIST) ? mt_value_at(v, (size_t)layer) : v);
}

static bool is(const char *name, const char *what, int64_t got, int64_t expected)
{
    if (got == expected) return true;
    print_error("%s: %s has %lld parameters, expected %lld\n", name, what, (long long)got, (long long)expected);
    return false;
}

static bool has_its_sizes(const char *name, const mt_value *row, const mt_model *m)
{
    int64_t L = number(row, "layers"), head = number(row, "head");
    bool ok = is(name, "it", m->n_params, number(row, "params")) &
              is(name, "the embedding", n_params(&m->units[0]), number(row, "embedding"));
    assert_int_equal(m->config->L, L);
    for (int i = 0; i < L; i++) ok &= is(name, "a layer", layer_params(m, i), expected_layer(row, i));
    return ok & (head == 0 || is(name, "the head", n_params(&m->units[m->head]), head));
}

/* What a layer's parts list as work has the products that they compute. */
static bool counts_its_products(const char *name, const mt_model *m)
{
    bool ok = true;
    for (const mt_layer_kind *k = m->kinds; k < m->kinds + m->n_kinds; k++) {
        double computed = 0, counted = 0;
        for (int i = 0; i < k->n_products; i++) {
            const mt_product *f = &k->products[i];
            const int64_t experts = f->rows == MT_EXTENT_PASS ? k->spec.T : 1;
            for (int j = 0; j < MT_PRODUCT_WEIGHTS; j++) computed += (double)(experts * f->of[j].n * f->k);
        }
        for (int i = 0; i < k->n_work; i++)
            if (k->work[i].kind == MT_WORK_PRODUCT && k->work[i].when == MT_IN_FORWARD) counted += k->work[i].n * k->work[i].k;
        if (computed == counted) continue;
        print_error("%s: a row of a layer has %.0f multiplications with weights, counted as %.0f\n", name, computed, counted);
        ok = false;
    }
    return ok;
}

static void published_models_are_known_and_have_their_sizes(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *rows;
    bool ok = true;
    assert_ok(mt_json_read(&rows, MT_TESTS_DIR "/unit/published/published.json", &err));
    assert_true(mt_value_items(rows) >= 60);
    for (size_t i = 0; i < mt_value_items(rows); i++) {
        const mt_value *row = mt_value_at(rows, i);
        const char *name = mt_json_string(mt_value_get(row, "name"));
        mt_str text = { 0 };
        mt_value_write_json(&text, mt_value_get(row, "config"));
        mt_config *c;
        mt_model *m;
        assert_ok(mt_config_parse(&c, text.s, text.n, name, &err));
        assert_ok(mt_model_create(&m, c, NULL, &err));
        assert_string_equal(c->family->name, mt_json_string(mt_value_get(row, "family")));
        assert_int_equal(c->n_assumptions, 0);
        ok &= has_its_sizes(name, row, m) & counts_its_products(name, m);
        mt_model_free(m);
        mt_config_close(c);
        mt_str_free(&text);
    }
    mt_json_free(rows);
    assert_true(ok);
}

/* A number of a row, where it has one. */
static bool takes(const mt_value *row, const char *key, double got)
{
    const mt_value *v = mt_value_get(row, key);
    if (!v || fabs(mt_value_number(v) - got) <= 1e-12 * fabs(got)) return true;
    print_error("%s: %s is %.12g, and %.12g in transformers\n",
                mt_json_string(mt_value_get(mt_value_get(row, "config"), "model_type")), key, got, mt_value_number(v));
    return false;
}

/* What published/make_defaults.py found in transformers' classes. */
static void keys_that_are_left_out_mean_what_transformers_takes(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *rows;
    bool ok = true;
    assert_ok(mt_json_read(&rows, MT_TESTS_DIR "/unit/published/defaults.json", &err));
    assert_true(mt_value_items(rows) >= 60);
    for (size_t i = 0; i < mt_value_items(rows); i++) {
        const mt_value *row = mt_value_at(rows, i);
        mt_str text = { 0 };
        mt_config *c;
        mt_value_write_json(&text, mt_value_get(row, "config"));
        assert_ok(mt_config_parse(&c, text.s, text.n, "config.json", &err));
        ok &= takes(row, "pad", c->pad_id) & takes(row, "positions", (double)c->max_positions) &
              takes(row, "kv_heads", (double)c->K) & takes(row, "head_dim", (double)c->Dh) & takes(row, "eps", c->eps) &
              takes(row, "theta", c->rope.theta) & takes(row, "rotated", (double)c->rope.dr);
        if (mt_value_is_false(mt_value_get(row, "tied")) == c->tied) {
            print_error("row %zu: tied is %d\n", i, c->tied);
            ok = false;
        }
        mt_config_close(c);
        mt_str_free(&text);
    }
    mt_json_free(rows);
    assert_true(ok);
}

/* The planner's table knows a model of every family, and those of this one to the last parameter. */
static void shapes_have_the_sizes_of_what_they_are_named_for(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *rows;
    size_t found = 0;
    assert_ok(mt_json_read(&rows, MT_TESTS_DIR "/unit/published/published.json", &err));
    for (size_t i = 0; i < mt_value_items(rows); i++) {
        const mt_value *row = mt_value_at(rows, i);
        const mt_shape *shape;
        mt_config *c;
        mt_model *m;
        if (mt_shape_find(&shape, mt_json_string(mt_value_get(row, "name")), &err) || shape->untrained) continue;
        assert_ok(mt_shape_model(&c, &m, shape, NULL, &err));
        assert_true(is(shape->name, "it", m->n_params, number(row, "params")));
        if (number(row, "active")) assert_true(is(shape->name, "a token's share", mt_flops_weights(m), number(row, "active")));
        mt_model_free(m);
        mt_config_close(c);
        found++;
    }
    mt_json_free(rows);
    assert_true(found >= 60);
}

static void every_family_has_a_shape(void **state)
{
    (void)state;
    mt_err err = { 0 };
    for (const mt_family *const *f = mt_families; *f; f++) {
        bool known = false;
        for (size_t i = 0; i < mt_n_shapes && !known; i++) {
            mt_config *c;
            if (mt_shapes[i].untrained) continue;
            assert_ok(mt_config_parse(&c, mt_shapes[i].config, strlen(mt_shapes[i].config), mt_shapes[i].name, &err));
            known = c->family == *f;
            mt_config_close(c);
        }
        if (!known) fail_msg("no shape of the family %s", (*f)->name);
    }
}

MT_TEST_MAIN(cmocka_unit_test(published_models_are_known_and_have_their_sizes),
             cmocka_unit_test(keys_that_are_left_out_mean_what_transformers_takes),
             cmocka_unit_test(shapes_have_the_sizes_of_what_they_are_named_for), cmocka_unit_test(every_family_has_a_shape))
