/* Models of thousands of units: plans are made of passes over them, not of pairs. */
#include "test.h"

#include "base/mem.h"
#include "base/rng.h"
#include "plan/search.h"
#include "schedule/buffer_index.h"
#include "schedule/plan.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS = 4000 };

typedef struct deep {
    mt_config *config;
    mt_model *model;
    mt_job job;
    mt_arithmetic a;
} deep;

static void open_deep(deep *d, int layers)
{
    mt_err err = { 0 };
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": %d, \"num_attention_heads\": 2, "
             "\"intermediate_size\": 64, \"vocab_size\": 32}",
             layers);
    assert_ok(mt_config_parse(&d->config, text, strlen(text), "text", &err));
    assert_ok(mt_model_create(&d->model, d->config, NULL, &err));
    d->job = (mt_job){ .train = true, .clip = true, .step_tokens = 4096, .step_docs = 64, .longest = 64 };
    d->a = (mt_arithmetic){
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 512, .mlp_rows = 512, .head_rows = 512
    };
}

/* Thousands of units of experts in few layers. */
static void open_wide(deep *d, int layers, int experts)
{
    mt_err err = { 0 };
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"mixtral\", \"hidden_size\": 64, \"num_hidden_layers\": %d, \"num_attention_heads\": 2, "
             "\"intermediate_size\": 64, \"vocab_size\": 32, \"num_local_experts\": %d, \"num_experts_per_tok\": 2}",
             layers, experts);
    assert_ok(mt_config_parse(&d->config, text, strlen(text), "text", &err));
    assert_ok(mt_model_create(&d->model, d->config, &(mt_model_options){ .unit_experts = 1 }, &err));
    d->job = (mt_job){ .train = true, .clip = true, .step_tokens = 4096, .step_docs = 64, .longest = 64 };
    d->a = (mt_arithmetic){ .compute = MT_DTYPE_BF16,
                            .grad = MT_DTYPE_BF16,
                            .micro_tokens = 512,
                            .mlp_rows = 512,
                            .head_rows = 512,
                            .moe_tokens = 1024 };
}

static void close_deep(deep *d)
{
    mt_model_free(d->model);
    mt_config_close(d->config);
}

/* Every unit staged, every layer keeping everything on the device, small sweeps. */
static void stage_all(const deep *d, mt_placement *p)
{
    mt_err err = { 0 };
    assert_ok(mt_placement_init(p, d->model, &err));
    p->sweep_tokens = 1024;
    p->accumulators = MT_DEVICE;
    mt_placement_set_slots(p, d->model, 3, 1, 1);
    for (int l = 0; l < d->config->L; l++) p->layers[l] = (mt_layer_place){ MT_KEEP_ALL, MT_DEVICE };
    for (int u = 0; u < d->model->n_units; u++) p->units[u] = (mt_unit_place){ .site = MT_SITE_STAGED };
}

static void each_of_thousands_of_units_has_its_own_slot(void **state)
{
    (void)state;
    mt_err err = { 0 };
    deep d;
    mt_placement p;
    mt_plan *plan;
    open_deep(&d, LAYERS);
    stage_all(&d, &p);
    p.staging_slots = d.model->n_units;
    assert_ok(mt_plan_create(&plan, d.model, &d.job, &d.a, &p, &err));
    for (int u = 0; u < d.model->n_units; u++) assert_int_equal(mt_plan_private_slot(plan, u), u);
    mt_plan_free(plan);
    p.staging_slots--;
    assert_ok(mt_plan_create(&plan, d.model, &d.job, &d.a, &p, &err));
    for (int u = 0; u < d.model->n_units; u++) assert_int_equal(mt_plan_private_slot(plan, u), -1);
    mt_plan_free(plan);
    mt_placement_free(&p);
    close_deep(&d);
}

static void thousands_of_layers_lend_in_order(void **state)
{
    (void)state;
    mt_err err = { 0 };
    deep d;
    mt_placement p;
    mt_plan *plan;
    mt_reuse_search lending = { 0 };
    int loans = 0;
    open_deep(&d, LAYERS);
    stage_all(&d, &p);
    p.staging_slots = d.model->n_units;
    const mt_plan trial = { .model = d.model, .job = d.job, .arithmetic = d.a, .place = p };
    for (int u = 0; u < d.model->n_units; u++) loans += p.units[u].reuses = mt_plan_grant_reuse(&trial, &lending, u);
    assert_int_equal(loans, LAYERS - 1); /* the embedding takes two lenders, so the last layer has none */
    assert_ok(mt_plan_create(&plan, d.model, &d.job, &d.a, &p, &err));
    int before = -1;
    for (int u = 0; u < d.model->n_units; u++) {
        const mt_unit_place *at = &plan->place.units[u];
        if (!at->reuses) continue;
        assert_true(at->reused[1] > before && at->reused[0] >= at->reused[1]);
        before = at->reused[0];
    }
    mt_plan_free(plan);
    mt_placement_free(&p);
    close_deep(&d);
}

/* Who is granted a loan, asked one after the other, is who can be found lenders together with those before. */
static void units_are_granted_what_lenders_can_be_found_for(void **state)
{
    (void)state;
    deep d;
    mt_placement p;
    int yes = 0, no = 0;
    open_deep(&d, 12);
    stage_all(&d, &p);
    for (uint64_t seed = 0; seed < 500; seed++) {
        mt_reuse_search lending = { 0 };
        p.sweep_tokens = 512 * (1 + (int64_t)mt_rng_below(1, seed, 0, 7));
        for (int l = 0; l < d.config->L; l++) {
            p.layers[l].keep = (mt_keep)(MT_KEEP_INPUT + mt_rng_below(2, seed, (uint64_t)l, MT_KEEPS - MT_KEEP_INPUT));
            p.layers[l].place = mt_rng_below(3, seed, (uint64_t)l, 4) ? MT_DEVICE : MT_HOST;
        }
        for (int u = 0; u < d.model->n_units; u++) p.units[u].reuses = false;
        for (int u = 0; u < d.model->n_units; u++) {
            if (u == d.model->head || mt_rng_below(4, seed, (uint64_t)u, 3) == 0) continue;
            mt_plan trial = { .model = d.model, .job = d.job, .arithmetic = d.a, .place = p };
            p.units[u].reuses = true;
            bool found = mt_plan_settle(&trial), granted = mt_plan_grant_reuse(&trial, &lending, u);
            assert_int_equal(granted, found);
            p.units[u].reuses = granted;
            *(granted ? &yes : &no) += 1;
        }
    }
    assert_true(yes > 500 && no > 500);
    mt_placement_free(&p);
    close_deep(&d);
}

static void a_search_for_thousands_of_units_ends(void **state)
{
    (void)state;
    mt_err err = { 0 };
    deep d;
    mt_plan *plan;
    mt_machine machine = mt_machine_typical();
    open_deep(&d, LAYERS);
    machine.device_bytes = (size_t)2 << 30;
    assert_ok(mt_plan_search_faster(&plan, (mt_plan_inputs){ d.model, &d.job, &d.a, &machine }, 1e9, &err));
    assert_non_null(plan);
    assert_true(plan->device_bytes <= machine.device_bytes);
    mt_plan_free(plan);
    close_deep(&d);
}

/* All units of experts of a model are one group: its slots are for one at a time, and few of them. */
static void so_it_does_for_thousands_of_units_of_experts(void **state)
{
    (void)state;
    enum { WIDE = 16, EACH = 256 };
    mt_err err = { 0 };
    deep d;
    mt_plan *plan;
    mt_machine machine = mt_machine_typical();
    open_wide(&d, WIDE, EACH);
    assert_int_equal(d.model->n_units, WIDE * (EACH + 1) + 2);
    assert_int_equal(d.model->n_groups, 4);
    machine.device_bytes = (size_t)64 << 20;
    assert_ok(mt_plan_search_faster(&plan, (mt_plan_inputs){ d.model, &d.job, &d.a, &machine }, 1e9, &err));
    assert_non_null(plan);
    assert_true(plan->device_bytes <= machine.device_bytes);
    assert_int_equal(plan->place.groups[d.model->units[d.model->layers[0].first + 1].group].together, 1);
    mt_plan_free(plan);
    close_deep(&d);
}

static void every_buffer_is_found_and_no_other(void **state)
{
    (void)state;
    mt_err err = { 0 };
    deep d;
    mt_placement p;
    mt_plan *plan;
    mt_buffer_index x;
    open_deep(&d, LAYERS);
    stage_all(&d, &p);
    p.staging_slots = 100;
    d.a.compute = MT_DTYPE_F32;
    for (int u = 0; u < d.model->n_units; u += 2) p.units[u].resident = true;
    assert_ok(mt_plan_create(&plan, d.model, &d.job, &d.a, &p, &err));
    assert_ok(mt_buffer_index_create(&x, plan->buffers, plan->n_buffers, &err));
    for (size_t k = 0; k < plan->n_buffers; k++) {
        const mt_buffer *b = &plan->buffers[k];
        assert_int_equal(mt_buffer_index_find(&x, b->kind, b->i, b->j), k);
    }
    assert_int_equal(mt_buffer_index_find(&x, MT_BUF_HI, d.model->n_units, -1), -1);
    assert_int_equal(mt_buffer_index_find(&x, MT_BUF_HI, 0, 0), -1);
    assert_int_equal(mt_buffer_index_find(&x, MT_BUF_STAGE, 100, -1), -1);
    assert_int_equal(mt_buffer_index_find(&x, MT_BUF_RESIDENT, 1, -1), -1); /* a gap between two that are there */
    assert_int_equal(mt_buffer_index_find(&x, MT_BUF_CACHE, 0, -1), -1);
    assert_int_equal(mt_buffer_index_find(&x, MT_BUF_HALVES, 0, 3), -1);
    mt_buffer_index_free(&x);
    mt_plan_free(plan);
    mt_placement_free(&p);
    close_deep(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_of_thousands_of_units_has_its_own_slot),     cmocka_unit_test(thousands_of_layers_lend_in_order),
        cmocka_unit_test(units_are_granted_what_lenders_can_be_found_for), cmocka_unit_test(a_search_for_thousands_of_units_ends),
        cmocka_unit_test(so_it_does_for_thousands_of_units_of_experts),    cmocka_unit_test(every_buffer_is_found_and_no_other)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
