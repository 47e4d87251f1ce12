/* A step looks at each unit a fixed number of times, however many there are: where weights stay, where they pass through more
 * slots than any usual plan has, where state is staged through slots of units' own or shared ones.  And all of them give the same
 * bits. */
#include "rig.h"

#include "base/rng.h"
#include "engine/internal.h"
#include "engine/lane_internal.h"

typedef enum kind { RESIDENT, STREAMED, OWN_SLOTS, SHARED_SLOTS, KINDS } kind;

enum { EXPERTS = 32 };

/* This many units of layers; experts: mostly of experts, each in its own. */
static void open_deep(rig *r, int units, bool experts)
{
    mt_err err = { 0 };
    char text[512];
    int32_t ids[8];
    *r = (rig){ 0 };
    static const char *const dense =
        "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": %d, \"num_attention_heads\": 1, "
        "\"intermediate_size\": 8, \"vocab_size\": 16, \"tie_word_embeddings\": true}";
    static const char *const sparse =
        "{\"model_type\": \"mixtral\", \"hidden_size\": 8, \"num_hidden_layers\": %d, \"num_attention_heads\": 1, "
        "\"intermediate_size\": 8, \"vocab_size\": 16, \"tie_word_embeddings\": true, \"num_local_experts\": %d, "
        "\"num_experts_per_tok\": 2}";
    int n =
        experts ? snprintf(text, sizeof text, sparse, units / (EXPERTS + 1), EXPERTS) : snprintf(text, sizeof text, dense, units);
    assert_ok(mt_config_parse(&r->config, text, (size_t)n, "a config", &err));
    assert_ok(mt_model_create(&r->model, r->config, &(mt_model_options){ .unit_experts = experts }, &err));
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 8; k++) ids[k] = (int32_t)mt_rng_below(5, (uint64_t)i, (uint64_t)k, 16);
        assert_ok(mt_batch_add(&r->batch, ids, ids, 8, 16, &err));
    }
}

static mt_plan *plan_of(const rig *r, kind k)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    mt_job job = rig_job(r, true);
    const mt_arithmetic a = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8 };
    assert_ok(mt_placement_init(&p, r->model, &err));
    p.sweep_tokens = 16; /* two sweeps */
    mt_placement_set_slots(&p, r->model, k == STREAMED ? 70 : 2, 1, 1);
    p.n_slabs = 1;
    p.staging_slots = k == OWN_SLOTS ? r->model->n_units : 3;
    for (int l = 0; l < r->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    for (int u = 0; u < r->model->n_units; u++)
        p.units[u] = (mt_unit_place){ .resident = k == RESIDENT || k == OWN_SLOTS,
                                      .home = k == RESIDENT ? MT_DEVICE : MT_HOST,
                                      .site = k == RESIDENT   ? MT_SITE_DEVICE
                                              : k == STREAMED ? MT_SITE_HOST
                                                              : MT_SITE_STAGED };
    assert_ok(mt_plan_create(&plan, r->model, &job, &a, &p, &err));
    mt_placement_free(&p);
    return plan;
}

/* Looks of two steps, and what they end with. */
static int64_t looks_of(int layers, bool experts, kind k, uint64_t *sum)
{
    mt_err err = { 0 };
    rig r;
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1 };
    open_deep(&r, layers, experts);
    r.plan = plan_of(&r, k);
    assert_ok(mt_device_open(&r.dev, rig_device(), &(mt_device_options){ .n_threads = 1 }, &err));
    assert_ok(mt_engine_create(&r.engine, r.dev, r.plan, &(mt_engine_options){ .n_workers = 1 }, &err));
    assert_ok(mt_engine_init(r.engine, r.model, 7, &err));
    for (int i = 0; i < 2; i++) {
        mt_step_result s;
        assert_ok(mt_engine_step(r.engine, &r.batch, &h, &s, &err));
    }
    int64_t looks = mt_sequence_looks(r.engine->lane->sequence);
    assert_ok(mt_engine_checksum(r.engine, sum, &err));
    rig_close(&r);
    return looks;
}

static void a_step_looks_at_each_unit_a_fixed_number_of_times(void **state)
{
    (void)state;
    enum { FEW = 200, MANY = 800 }; /* both are many more than slots */
    uint64_t sums[KINDS], few;
    for (int experts = 0; experts < 2; experts++)
        for (kind k = 0; k < KINDS; k++) {
            int64_t a = looks_of(FEW, experts, k, &few), b = looks_of(MANY, experts, k, &sums[k]);
            if (b > 5 * a) fail_msg("kind %d: %lld looks for %d units, %lld for %d", k, (long long)a, FEW, (long long)b, MANY);
            assert_true(sums[k] == sums[0]);
        }
}

RIG_TEST_MAIN(cmocka_unit_test(a_step_looks_at_each_unit_a_fixed_number_of_times))
