/* lenders.h - a small model whose state fits into what its layers keep, so that every way of updating through the device can be
 * had: in reused memory, in private slots, in shared ones. */
#ifndef MT_TEST_LENDERS_H
#define MT_TEST_LENDERS_H

#include "rig.h"

#include "base/rng.h"

/* Wide enough layers and enough rows for what they keep to hold any unit's state.  more: keys of its config.json. */
static inline void open_lenders_of(rig *r, const char *more, bool tied)
{
    static const char text[] =
        "{%s,\"hidden_size\":16,\"intermediate_size\":48,\"num_hidden_layers\":5,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":1,\"vocab_size\":40,\"max_position_embeddings\":64,\"tie_word_embeddings\":%s}";
    enum { DOC = 32, DOCS = 12 };
    char config[512];
    int32_t ids[DOC];
    mt_err err = { 0 };
    *r = (rig){ 0 };
    int n = snprintf(config, sizeof config, text, more, tied ? "true" : "false");
    assert_ok(mt_config_parse(&r->config, config, (size_t)n, "a config", &err));
    assert_ok(mt_model_create(&r->model, r->config, &(mt_model_options){ .unit_experts = rig_unit_experts(r->config) }, &err));
    for (int i = 0; i < DOCS; i++) {
        for (int k = 0; k < DOC; k++) ids[k] = (int32_t)mt_rng_below(5, (uint64_t)i, (uint64_t)k, 40);
        assert_ok(mt_batch_add(&r->batch, ids, ids, DOC, 40, &err));
    }
}

static inline void open_lenders(rig *r, bool tied) { open_lenders_of(r, "\"model_type\":\"qwen2\"", tied); }

/* Experts in all layers but one, three units of them in each. */
static inline void open_lenders_experts(rig *r, bool tied)
{
    open_lenders_of(r,
                    "\"model_type\":\"qwen3_moe\",\"head_dim\":8,\"num_experts\":6,\"num_experts_per_tok\":2,"
                    "\"moe_intermediate_size\":8,\"mlp_only_layers\":[1]",
                    tied);
}

/* slow: the one stream that dawdles; NULL: all of them, at random. */
static inline void start_lenders_slow(rig *r, mt_plan *plan, int dawdle_us, const char *slow)
{
    mt_err err = { 0 };
    const mt_device_options o = {
        .memory_limit = plan->device_bytes, .n_threads = 2, .dawdle_us = dawdle_us, .slow_stream = slow
    };
    r->plan = plan;
    assert_ok(mt_device_open(&r->dev, rig_device(), &o, &err));
    assert_ok(mt_engine_create(&r->engine, r->dev, plan, &(mt_engine_options){ .n_workers = 2 }, &err));
    for (int u = 0; u < r->model->n_units; u++)
        for (int64_t i = 0; i < r->model->units[u].layout->n_elems; i++) {
            uint16_t hi = mt_f32_to_bf16(0.2f * mt_rng_normal(9, (uint64_t)u, (uint64_t)i));
            assert_ok(mt_engine_write(r->engine, (mt_state_range){ u, MT_STATE_HI, i, 1 }, &hi, &err));
        }
}

static inline void start_lenders(rig *r, mt_plan *plan, int dawdle_us) { start_lenders_slow(r, plan, dawdle_us, NULL); }

/* Two prompts at a time may be continued, too. */
static inline mt_job lenders_job(const rig *r, bool clip)
{
    mt_job job = rig_job(r, clip);
    job.cache_slots = 2;
    job.router_loss = 0.05; /* where there are routers */
    return job;
}

/* Every unit that can borrow does, but the last `hosted` layers (-1: none does).  The others are updated on the host or, where
 * there are `slots`, in those: as many as units, and each has its own.  The smallest sweeps. */
static inline mt_plan *plan_loans(const rig *r, const mt_arithmetic *a, bool clip, bool resident, int hosted, int slots)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    mt_job job = lenders_job(r, clip);
    assert_ok(mt_placement_init(&p, r->model, &err));
    p.sweep_tokens = a->micro_tokens * 2;
    p.accumulators = MT_DEVICE;
    mt_placement_set_slots(&p, r->model, 3, 1, 2);
    p.n_slabs = 2;
    for (int l = 0; l < r->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_ALL, MT_DEVICE };
    for (int u = 0; u < r->model->n_units; u++)
        p.units[u] = (mt_unit_place){ .resident = resident, .home = MT_HOST, .site = MT_SITE_HOST };
    mt_reuse_search lending = { 0 };
    for (int u = 0; hosted >= 0 && u < r->model->n_units - hosted; u++) {
        const mt_plan trial = { .model = r->model, .job = job, .arithmetic = *a, .place = p };
        if (mt_plan_grant_reuse(&trial, &lending, u)) p.units[u].site = MT_SITE_STAGED, p.units[u].reuses = true;
    }
    for (int u = 0; slots && u < r->model->n_units; u++) p.units[u].site = MT_SITE_STAGED;
    p.staging_slots = slots;
    assert_ok(mt_plan_create(&plan, r->model, &job, a, &p, &err));
    mt_placement_free(&p);
    return plan;
}

#endif
