/* Layers with experts as several units: how many experts a unit has, what is one group, what a plan refuses, what is kept. */
#include "test.h"

#include "plan/search.h"
#include "schedule/plan.h"

#include <stdio.h>
#include <string.h>

typedef struct wide {
    mt_config *config;
    mt_model *model;
} wide;

/* Four layers, the second of them dense. */
static mt_rc open_wide(wide *w, int64_t D, int64_t I, int experts, const mt_model_options *o, mt_err *err)
{
    char text[640];
    int n =
        snprintf(text, sizeof text,
                 "{\"model_type\": \"qwen3_moe\", \"hidden_size\": %d, \"intermediate_size\": 64, \"moe_intermediate_size\": %d, "
                 "\"num_hidden_layers\": 4, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, "
                 "\"vocab_size\": 40, \"num_experts\": %d, \"num_experts_per_tok\": 2, \"mlp_only_layers\": [1]}",
                 (int)D, (int)I, experts);
    *w = (wide){ 0 };
    MT_TRY(mt_config_parse(&w->config, text, (size_t)n, "a config", err));
    return mt_model_create(&w->model, w->config, o, err);
}

static void close_wide(wide *w)
{
    mt_model_free(w->model);
    mt_config_close(w->config);
}

static void units_have_at_most_256m_parameters_and_at_least_one_expert(void **state)
{
    (void)state;
    static const struct {
        int64_t D, I;
        int E, unit;
    } cases[] = {
        { 2048, 768, 128, 32 }, /* Qwen3-30B-A3B */
        { 2048, 512, 512, 64 }, /* Qwen3-Next */
        { 4096, 14336, 8, 1 },  /* Mixtral 8x7B */
        { 6144, 16384, 8, 1 },  /* Mixtral 8x22B: one expert is larger */
        { 4096, 1408, 128, 8 }, /* GLM-4.5-Air */
        { 7168, 2048, 256, 4 }, /* DeepSeek-V3 */
        { 7168, 2048, 384, 6 }, /* Kimi-K2 */
        { 2048, 1024, 64, 32 }, /* OLMoE */
        { 2048, 1408, 60, 30 }, /* a number that is not a power of two */
        { 16, 8, 6, 6 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        wide w;
        assert_ok(open_wide(&w, cases[i].D, cases[i].I, cases[i].E, NULL, &err));
        const int n = cases[i].E / cases[i].unit;
        if (w.model->unit_experts != cases[i].unit)
            fail_msg("%d experts: units of %d, expected %d", cases[i].E, (int)w.model->unit_experts, cases[i].unit);
        assert_int_equal(mt_layer_expert_units(w.model, 0), n);
        assert_int_equal(mt_layer_expert_units(w.model, 1), 0);
        assert_int_equal(w.model->n_units, 2 + 4 + 3 * n);
        close_wide(&w);
    }
}

static void units_of_experts_follow_their_layer_and_are_one_group(void **state)
{
    (void)state;
    mt_err err = { 0 };
    wide w;
    char name[MT_NAME_BYTES];
    assert_ok(open_wide(&w, 16, 8, 6, &(mt_model_options){ .unit_experts = 2 }, &err));
    const mt_model *m = w.model;
    const int group = m->units[m->layers[0].first + 1].group;
    int64_t n_params = 0;
    for (int l = 0; l < 4; l++)
        for (int i = 0; i < m->layers[l].n; i++) {
            const mt_unit *u = &m->units[m->layers[l].first + i];
            assert_true(u->layer == l && u->kind == (i ? MT_UNIT_EXPERTS : MT_UNIT_LAYER));
            if (!i) continue;
            assert_true(u->group == group && u->first_expert == 2 * (i - 1) && u->n_experts == 2);
            assert_int_equal(u->layout->n_weights, 2 * 3);
        }
    for (int u = 0; u < m->n_units; u++)
        for (int k = 0; k < m->units[u].layout->n_weights; k++) n_params += m->units[u].layout->weights[k].n;
    assert_int_equal(n_params, m->n_params);
    mt_unit_name(m, m->layers[2].first + 3, name);
    assert_string_equal(name, "layer 2, experts 4 to 5");
    mt_weight_name(&m->units[m->layers[2].first + 3], &m->units[m->layers[2].first + 3].layout->weights[2], name);
    assert_string_equal(name, "model.layers.2.mlp.experts.5.gate_proj.weight");
    close_wide(&w);
    assert_int_equal(open_wide(&w, 16, 8, 6, &(mt_model_options){ .unit_experts = 4 }, &err), MT_EINVAL);
    assert_non_null(strstr(err.msg, "units of 4 experts for layer 0, which has 6"));
    close_wide(&w);
}

static void some_experts_of_a_layer_are_not_frozen_alone(void **state)
{
    (void)state;
    static const char *const some[] = { "model.layers.0.mlp.experts.3.*" }, *const layer[] = { "model.layers.0.mlp.experts.*" },
                             *const downs[] = { "*.experts.*.down_proj.weight" };
    for (int64_t unit = 1; unit <= 6; unit += unit == 3 ? 3 : 1) {
        mt_err err = { 0 };
        wide w;
        assert_int_equal(
            open_wide(&w, 16, 8, 6, &(mt_model_options){ .freeze = some, .n_freeze = 1, .unit_experts = unit }, &err), MT_EINVAL);
        assert_non_null(strstr(err.msg, "model.layers.0.mlp.experts."));
        close_wide(&w);
        assert_ok(open_wide(&w, 16, 8, 6, &(mt_model_options){ .freeze = layer, .n_freeze = 1, .unit_experts = unit }, &err));
        close_wide(&w);
        assert_ok(open_wide(&w, 16, 8, 6, &(mt_model_options){ .freeze = downs, .n_freeze = 1, .unit_experts = unit }, &err));
        close_wide(&w);
    }
}

/* The plain placement of a model with experts. */
static mt_rc plan_with(mt_plan **out, const mt_model *m, mt_arithmetic a, int64_t sweep, int keeps_nothing, mt_err *err)
{
    const mt_job job = { .train = true, .clip = true, .step_tokens = 64, .step_docs = 8, .longest = 8 };
    mt_placement p;
    MT_TRY(mt_placement_init(&p, m, err));
    p.sweep_tokens = sweep;
    mt_placement_set_slots(&p, m, 1, 1, 1);
    for (int l = 0; l < m->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    if (keeps_nothing >= 0) p.layers[keeps_nothing].keep = MT_KEEP_NOTHING;
    mt_rc rc = mt_plan_create(out, m, &job, &a, &p, err);
    mt_placement_free(&p);
    return rc;
}

static void a_plan_refuses_what_contradicts_experts(void **state)
{
    (void)state;
    mt_err err = { 0 };
    wide w;
    mt_plan *plan;
    mt_arithmetic a = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8 };
    assert_ok(open_wide(&w, 16, 8, 6, &(mt_model_options){ .unit_experts = 2 }, &err));
    a.moe_tokens = 32;
    assert_ok(plan_with(&plan, w.model, a, 32, -1, &err));
    assert_int_equal(plan->arithmetic.unit_experts, 2); /* the model's */
    mt_plan_free(plan);
    assert_int_equal(plan_with(&plan, w.model, a, 16, -1, &err), MT_EINVAL);
    assert_non_null(strstr(err.msg, "passes an expert together (32)"));
    for (int l = 1; l < 4; l++) { /* the dense one follows one with experts */
        assert_int_equal(plan_with(&plan, w.model, a, 32, l, &err), MT_EINVAL);
        assert_non_null(strstr(err.msg, "must keep its input"));
    }
    a.unit_experts = 3;
    assert_int_equal(plan_with(&plan, w.model, a, 32, -1, &err), MT_EINVAL);
    assert_non_null(strstr(err.msg, "units of 3 experts, and the model's have 2"));
    const mt_limits strict = { .interval = 2, .exact = true }, loose = { .interval = 4 };
    assert_int_equal(mt_limits_check(&strict, w.model, &err), MT_EINVAL);
    assert_int_equal(mt_limits_longest(&loose, w.model), 1);
    close_wide(&w);
}

/* Backward of an expert layer begins with xmid and the routes, whatever else is kept. */
static void every_level_keeps_what_experts_need(void **state)
{
    (void)state;
    mt_err err = { 0 };
    wide w;
    assert_ok(open_wide(&w, 16, 8, 6, NULL, &err));
    const mt_layer_kind *k = mt_layer_kind_of(w.model, 0);
    const mt_array *arrays = mt_kind_arrays(k, MT_DTYPE_BF16);
    int found = 0;
    for (int i = 0; i < k->n_arrays; i++) {
        const char *const needed[] = { "x", "xmid", "routes", "routes.weights" };
        for (size_t j = 0; j < MT_COUNT(needed); j++)
            if (strcmp(arrays[i].name, needed[j]) == 0) {
                assert_int_equal(arrays[i].keep, MT_KEEP_INPUT);
                found++;
            }
    }
    assert_int_equal(found, 4);
    assert_int_equal(mt_kept_row_bytes(k, MT_DTYPE_BF16, MT_KEEP_INPUT), 2 * 16 * 2 + 2 * 2 * 4);
    close_wide(&w);
}

static void layers_of_another_form_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        mt_norms norms;
        mt_block_form form;
        const char *words;
    } cases[] = {
        { MT_NORMS_POST, MT_BLOCK_SERIAL, "norms after their branches" },
        { MT_NORMS_SANDWICH, MT_BLOCK_SERIAL, "norms after their branches" },
        { MT_NORMS_PRE, MT_BLOCK_PARALLEL, "branches side by side" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        wide w;
        assert_ok(open_wide(&w, 16, 8, 6, NULL, &err));
        mt_model_free(w.model);
        w.model = NULL;
        w.config->layers[2].norms = cases[i].norms;
        w.config->layers[2].form = cases[i].form;
        assert_int_equal(mt_model_create(&w.model, w.config, NULL, &err), MT_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, cases[i].words));
        assert_non_null(strstr(err.msg, "qwen3_moe"));
        close_wide(&w);
    }
}

static void dense_arithmetics_hash_as_before(void **state)
{
    (void)state;
    const mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 512, .mlp_rows = 512, .head_rows = 64
    };
    mt_arithmetic b = a;
    b.unit_experts = 4;
    mt_arithmetic c = b;
    c.moe_tokens = 1024;
    assert_true(mt_arithmetic_hash(&a) == UINT64_C(0x3c44363dcaa3473d)); /* as a checkpoint of an earlier version has it */
    assert_true(mt_arithmetic_hash(&a) != mt_arithmetic_hash(&b) && mt_arithmetic_hash(&b) != mt_arithmetic_hash(&c));
}

MT_TEST_MAIN(cmocka_unit_test(units_have_at_most_256m_parameters_and_at_least_one_expert),
             cmocka_unit_test(units_of_experts_follow_their_layer_and_are_one_group),
             cmocka_unit_test(some_experts_of_a_layer_are_not_frozen_alone),
             cmocka_unit_test(a_plan_refuses_what_contradicts_experts), cmocka_unit_test(every_level_keeps_what_experts_need),
             cmocka_unit_test(layers_of_another_form_are_refused_by_name), cmocka_unit_test(dense_arithmetics_hash_as_before))
