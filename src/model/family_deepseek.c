/* deepseek (the first generation), glm4_moe and dots1: some dense layers first, then experts and a shared one.  The later two
 * have fp32 routers with correction biases. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."
#define OF_EXPERTS(ROUTER, ROWS)                                                                                                 \
    MT_ROWS_LLAMA_MIXER(LAYER), MT_ROWS_MLP(LAYER), ROUTER(MT_W_ROUTER, LAYER "mlp.gate.weight", MT_E, MT_D),                    \
        MT_ROW_FIXED(MT_B_CHOICE, LAYER "mlp.gate.e_score_correction_bias", MT_E), ROWS,                                         \
        MT_ROWS_SHARED(LAYER "mlp.shared_experts."), MT_ROWS_LLAMA_END

static const mt_tensor_row plain[] = { OF_EXPERTS(MT_ROW, MT_ROWS_EXPERTS_USUAL(LAYER)) };
static const mt_tensor_row plain_fused[] = { OF_EXPERTS(MT_ROW, MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)) };
static const mt_tensor_row exact[] = { OF_EXPERTS(MT_ROW_EXACT, MT_ROWS_EXPERTS_USUAL(LAYER)) };
static const mt_tensor_row exact_fused[] = { OF_EXPERTS(MT_ROW_EXACT, MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)) };

static const mt_expert_rules deepseek_experts = { .router = MT_ROUTE_SOFTMAX,
                                                  .norm_key = true,
                                                  .norm_eps = 1e-20,
                                                  .layers = MT_SPARSE_AFTER,
                                                  .layer_freq = true,
                                                  .shared = MT_SHARED_COUNT };

/* One expert's weight is not divided by itself. */
static mt_rc read_deepseek(mt_config *c, const mt_keys *k)
{
    for (int64_t i = 0; i < c->L; i++)
        if (c->layers[i].T == 1) c->moe.norm_topk = false;
    (void)k;
    return MT_OK;
}

const mt_family mt_family_deepseek = {
    .name = "deepseek",
    .model_types = { "deepseek" },
    .architectures = { "DeepseekForCausalLM" },
    .covers = "DeepSeek-MoE 16B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = plain,
    .other_tensors = plain_fused,
    .experts = &deepseek_experts,
    .read = read_deepseek,
};

static const mt_expert_rules glm_experts = { .router = MT_ROUTE_SIGMOID,
                                             .norm = true,
                                             .norm_key = true,
                                             .norm_eps = 1e-20,
                                             .scaled = true,
                                             .choice_bias = true,
                                             .layers = MT_SPARSE_AFTER,
                                             .first_dense = 1,
                                             .shared = MT_SHARED_COUNT,
                                             .default_shared = 1 };

static mt_rc read_glm(mt_config *c, const mt_keys *k)
{
    return mt_json_bool(k->doc, "use_qk_norm", false, &c->qk_norm, k->path, k->err);
}

const mt_family mt_family_glm4_moe = {
    .name = "glm4_moe",
    .model_types = { "glm4_moe" },
    .architectures = { "Glm4MoeForCausalLM" },
    .covers = "GLM-4.5, GLM-4.5-Air, GLM-4.6",
    .qkv_bias = MT_BIAS_BY_KEY,
    .shape = { .K = 8, .positions = 131072 },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .default_partial = 0.5,
    .rope = MT_ROPE_HALF,
    .tensors = exact,
    .other_tensors = exact_fused,
    .experts = &glm_experts,
    .read = read_glm,
};

static const mt_expert_rules dots_experts = { .router = MT_ROUTE_SIGMOID,
                                              .norm_key = true,
                                              .norm_eps = 1e-20,
                                              .scaled = true,
                                              .choice_bias = true,
                                              .layers = MT_SPARSE_AFTER,
                                              .shared = MT_SHARED_COUNT };

const mt_family mt_family_dots1 = {
    .name = "dots1",
    .model_types = { "dots1" },
    .architectures = { "Dots1ForCausalLM" },
    .covers = "dots.llm1",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .window = MT_WINDOW_FROM,
    .default_window = 4096,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = exact,
    .other_tensors = exact_fused,
    .experts = &dots_experts,
};
