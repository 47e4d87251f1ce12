/* deepseek_v2, deepseek_v3 and glm4_moe_lite: latent attention, some dense layers first, then experts and a shared one.  The
 * first chooses experts by a softmax, the others by sigmoids and a correction bias. */
#include "model/family_rows.h"

#include <string.h>

#define LAYER "model.layers.%d."
#define ATT   LAYER "self_attn."
#define OF_EXPERTS(ROWS)                                                                                                         \
    MT_ROWS_EMBED, MT_ROWS_NORM1(LAYER), MT_ROWS_LATENT(ATT), MT_ROWS_NORM2(LAYER), MT_ROWS_MLP(LAYER),                          \
        MT_ROW_EXACT(MT_W_ROUTER, LAYER "mlp.gate.weight", MT_E, MT_D),                                                          \
        MT_ROW_FIXED(MT_B_CHOICE, LAYER "mlp.gate.e_score_correction_bias", MT_E), ROWS,                                         \
        MT_ROWS_SHARED(LAYER "mlp.shared_experts."), MT_ROWS_LLAMA_END

static const mt_tensor_row apart[] = { OF_EXPERTS(MT_ROWS_EXPERTS_USUAL(LAYER)) };
static const mt_tensor_row fused[] = { OF_EXPERTS(MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)) };

/* -- keys ------------------------------------------------------------------------------------------ */

/* A key that files have and that has one value here. */
static mt_rc expect(const mt_keys *k, const char *key, const char *value)
{
    const char *found;
    MT_TRY(mt_json_str(k->doc, key, value, &found, k->path, k->err));
    if (strcmp(found, value) == 0) return MT_OK;
    return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"%s\" is \"%s\"; only \"%s\" is supported in this family", k->path, key, found,
                   value);
}

static mt_rc expect_every_layer(const mt_keys *k)
{
    int64_t step;
    MT_TRY(mt_json_i64(k->doc, "moe_layer_freq", 1, &step, k->path, k->err));
    if (step == 1) return MT_OK;
    return mt_fail(k->err, MT_EUNSUPPORTED,
                   "%s: \"moe_layer_freq\" is %lld; only 1 is supported: all layers after the dense ones have experts", k->path,
                   (long long)step);
}

static mt_rc read_deepseek_v2(mt_config *c, const mt_keys *k)
{
    const char *method;
    MT_TRY(expect(k, "scoring_func", "softmax"));
    MT_TRY(expect_every_layer(k));
    MT_TRY(mt_json_str(k->doc, "topk_method", "greedy", &method, k->path, k->err));
    if (strcmp(method, "group_limited_greedy") == 0) return MT_OK;
    if (strcmp(method, "greedy") != 0)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"topk_method\" is \"%s\"; greedy and group_limited_greedy are supported",
                       k->path, method);
    c->moe.n_group = c->moe.topk_group = 1;
    return MT_OK;
}

static mt_rc read_rope_style(mt_config *c, const mt_keys *k)
{
    bool pairs;
    MT_TRY(mt_json_bool(k->doc, "rope_interleave", true, &pairs, k->path, k->err));
    c->rope.style = pairs ? MT_ROPE_PAIR : MT_ROPE_HALF;
    return MT_OK;
}

static mt_rc read_deepseek_v3(mt_config *c, const mt_keys *k)
{
    MT_TRY(expect(k, "scoring_func", "sigmoid"));
    MT_TRY(expect(k, "topk_method", "noaux_tc"));
    MT_TRY(expect_every_layer(k));
    return read_rope_style(c, k);
}

/* -- families -------------------------------------------------------------------------------------- */

static const mt_expert_rules v2_experts = {
    .router = MT_ROUTE_SOFTMAX, .scaled = true, .layers = MT_SPARSE_AFTER, .shared = MT_SHARED_COUNT, .default_shared = 2
};

const mt_family mt_family_deepseek_v2 = {
    .name = "deepseek_v2",
    .model_types = { "deepseek_v2" },
    .architectures = { "DeepseekV2ForCausalLM" },
    .covers = "DeepSeek-V2, V2.5, V2-Lite, Coder-V2",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_PAIR,
    .tensors = apart,
    .other_tensors = fused,
    .experts = &v2_experts,
    .latent = { .q_rank = 1536, .kv_rank = 512, .dn = 128, .dr = 64, .dv = 128 },
    .read = read_deepseek_v2,
};

static const mt_expert_rules v3_experts = { .router = MT_ROUTE_SIGMOID,
                                            .norm = true,
                                            .norm_key = true,
                                            .norm_eps = 1e-20,
                                            .scaled = true,
                                            .scale = 2.5,
                                            .n_group = 8,
                                            .topk_group = 4,
                                            .choice_bias = true,
                                            .layers = MT_SPARSE_AFTER,
                                            .first_dense = 3,
                                            .shared = MT_SHARED_COUNT,
                                            .default_shared = 1 };

const mt_family mt_family_deepseek_v3 = {
    .name = "deepseek_v3",
    .model_types = { "deepseek_v3", "kimi_k2" },
    .architectures = { "DeepseekV3ForCausalLM" },
    .covers = "DeepSeek-V3, R1, V3.1, Moonlight-16B-A3B, Kimi-K2 (MTP layers are left as they are)",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .shape = { .positions = 4096 },
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_PAIR,
    .tensors = apart,
    .other_tensors = fused,
    .experts = &v3_experts,
    .latent = { .q_rank = 1536, .kv_rank = 512, .dn = 128, .dr = 64, .dv = 128 },
    .read = read_deepseek_v3,
};

static const mt_expert_rules lite_experts = { .router = MT_ROUTE_SIGMOID,
                                              .norm = true,
                                              .norm_key = true,
                                              .norm_eps = 1e-20,
                                              .scaled = true,
                                              .scale = 1.8,
                                              .choice_bias = true,
                                              .layers = MT_SPARSE_TYPES,
                                              .first_dense = 1,
                                              .shared = MT_SHARED_COUNT,
                                              .default_shared = 1 };

const mt_family mt_family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .model_types = { "glm4_moe_lite" },
    .architectures = { "Glm4MoeLiteForCausalLM" },
    .covers = "GLM-4.7-Flash (MTP layers are left as they are)",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .shape = { .positions = 202752 },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .rope = MT_ROPE_PAIR,
    .tensors = apart,
    .other_tensors = fused,
    .experts = &lite_experts,
    .latent = { .q_rank = 768, .kv_rank = 512, .dn = 192, .dr = 64, .dv = 256 },
    .read = read_rope_style,
};
