/* qwen3_moe and qwen2_moe: their dense blocks with experts on some or all layers. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

#define OF_EXPERTS(ROWS)                                                                                                         \
    MT_ROWS_LLAMA_MIXER(LAYER), MT_ROWS_MLP(LAYER), MT_ROW(MT_W_ROUTER, LAYER "mlp.gate.weight", MT_E, MT_D), ROWS,              \
        MT_ROWS_SHARED(LAYER "mlp.shared_expert."), MT_ROW(MT_W_S_SWITCH, LAYER "mlp.shared_expert_gate.weight", MT_ONE, MT_D),  \
        MT_ROWS_LLAMA_END

static const mt_tensor_row tensors[] = { OF_EXPERTS(MT_ROWS_EXPERTS_USUAL(LAYER)) };
static const mt_tensor_row fused[] = { OF_EXPERTS(MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)) };

static const mt_expert_rules experts3 = { .router = MT_ROUTE_SOFTMAX, .norm_key = true, .layers = MT_SPARSE_STEP };

const mt_family mt_family_qwen3_moe = {
    .name = "qwen3_moe",
    .model_types = { "qwen3_moe" },
    .architectures = { "Qwen3MoeForCausalLM" },
    .covers = "Qwen3 30B-A3B and 235B-A22B, Qwen3-Coder 30B and 480B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .window = MT_WINDOW_USED,
    .default_window = 4096,
    .shape = { .K = 4, .positions = 32768 },
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .other_tensors = fused,
    .experts = &experts3,
};

static const mt_expert_rules experts2 = { .router = MT_ROUTE_SOFTMAX,
                                          .norm_key = true,
                                          .layers = MT_SPARSE_STEP,
                                          .shared = MT_SHARED_WIDTH,
                                          .default_shared = 5632,
                                          .shared_switch = true };

const mt_family mt_family_qwen2_moe = {
    .name = "qwen2_moe",
    .model_types = { "qwen2_moe" },
    .architectures = { "Qwen2MoeForCausalLM" },
    .covers = "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .bias_key = "qkv_bias",
    .window = MT_WINDOW_EARLY,
    .default_window = 4096,
    .shape = { .positions = 32768 },
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .other_tensors = fused,
    .experts = &experts2,
};
