/* wide.h - models of random weights whose units have several chunks of the norm each (ops/sqnorm.h), so that they can be cut into
 * slices over lanes. */
#ifndef MT_TEST_WIDE_H
#define MT_TEST_WIDE_H

#include "rig.h"

#include "base/rng.h"

typedef enum wide_kind { WIDE_DENSE, WIDE_TIED, WIDE_EXPERTS, WIDE_HYBRID, WIDE_KINDS } wide_kind;

/* A batch of documents of different lengths. */
static inline void wide_batch(rig *r, int docs, int64_t vocab)
{
    mt_err err = { 0 };
    int32_t ids[16];
    for (int i = 0; i < docs; i++) {
        const int n = 4 + i * 5 % 9;
        for (int k = 0; k < n; k++) ids[k] = (int32_t)mt_rng_below(5, (uint64_t)i, (uint64_t)k, (uint64_t)vocab);
        assert_ok(mt_batch_add(&r->batch, ids, ids, n, vocab, &err));
    }
}

static inline void open_wide(rig *r, wide_kind kind, const mt_model_options *options)
{
    static const char *const more[WIDE_KINDS] = {
        "\"model_type\":\"qwen2\"", "\"model_type\":\"llama\",\"tie_word_embeddings\":true",
        "\"model_type\":\"qwen3_moe\",\"head_dim\":16,\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":64",
        "\"model_type\":\"qwen3_5_text\",\"head_dim\":16,\"linear_num_key_heads\":2,\"linear_num_value_heads\":2,"
        "\"linear_key_head_dim\":16,\"linear_value_head_dim\":16,\"linear_conv_kernel_dim\":3,\"tie_word_embeddings\":false,"
        "\"layer_types\":[\"full_attention\",\"linear_attention\"],\"rope_parameters\":{\"mrope_interleaved\":true,"
        "\"mrope_section\":[1,0,0],\"rope_type\":\"default\",\"rope_theta\":10000,\"partial_rotary_factor\":0.25}"
    };
    char config[1024];
    mt_err err = { 0 };
    mt_model_options o = options ? *options : (mt_model_options){ 0 };
    const int n = snprintf(config, sizeof config,
                           "{%s,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                           "\"num_key_value_heads\":2,\"vocab_size\":150,\"max_position_embeddings\":64}",
                           more[kind]);
    *r = (rig){ 0 };
    assert_ok(mt_config_parse(&r->config, config, (size_t)n, "a config", &err));
    o.unit_experts = rig_unit_experts(r->config);
    assert_ok(mt_model_create(&r->model, r->config, &o, &err));
    wide_batch(r, 7, 150);
}

#endif
