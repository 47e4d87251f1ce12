/* mixtral: mistral's block with experts in every layer. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROWS_LLAMA_MIXER(LAYER),
    MT_ROW(MT_W_ROUTER, LAYER "block_sparse_moe.gate.weight", MT_E, MT_D),
    MT_ROWS_EXPERTS(LAYER "block_sparse_moe.experts.%e.", "w1", "w3", "w2"),
    MT_ROWS_LLAMA_END,
};

/* As transformers has them in memory, and saves them where it does not convert. */
static const mt_tensor_row fused[] = {
    MT_ROWS_LLAMA_MIXER(LAYER),
    MT_ROW(MT_W_ROUTER, LAYER "mlp.gate.weight", MT_E, MT_D),
    MT_ROWS_EXPERTS_FUSED(LAYER "mlp.experts.gate_up_proj", LAYER "mlp.experts.down_proj"),
    MT_ROWS_LLAMA_END,
};

static const mt_expert_rules experts = { .router = MT_ROUTE_SOFTMAX, .norm = true, .mlp_width = true };

const mt_family mt_family_mixtral = {
    .name = "mixtral",
    .model_types = { "mixtral" },
    .architectures = { "MixtralForCausalLM" },
    .covers = "Mixtral 8x7B and 8x22B",
    .window = MT_WINDOW_ALL,
    .default_eps = 1e-5,
    .default_theta = 1000000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .other_tensors = fused,
    .experts = &experts,
};
