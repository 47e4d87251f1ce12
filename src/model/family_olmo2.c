/* olmo2, olmo3: norms only after the branches, and over all query and all key heads at once. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROW(MT_W_Q_NORM, LAYER "self_attn.q_norm.weight", MT_H_DH),
    MT_ROW(MT_W_K_NORM, LAYER "self_attn.k_norm.weight", MT_K_DH),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROW(MT_W_POST1, LAYER "post_attention_layernorm.weight", MT_D),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROW(MT_W_POST2, LAYER "post_feedforward_layernorm.weight", MT_D),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

const mt_family mt_family_olmo2 = {
    .name = "olmo2",
    .model_types = { "olmo2" },
    .architectures = { "Olmo2ForCausalLM" },
    .covers = "OLMo 2 1B, 7B, 13B and 32B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .qk_norm_whole = true,
    .norms = MT_NORMS_POST,
    .default_eps = 1e-5,
    .default_pad = MT_PAD(1),
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
};

const mt_family mt_family_olmo3 = {
    .name = "olmo3",
    .model_types = { "olmo3" },
    .architectures = { "Olmo3ForCausalLM" },
    .covers = "OLMo 3 7B and 32B",
    .telling = { "sliding_window" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .qk_norm_whole = true,
    .norms = MT_NORMS_POST,
    .window = MT_WINDOW_PATTERN,
    .default_window = 4096,
    .window_pattern = 4,
    .default_eps = 1e-5,
    .default_pad = MT_PAD(1),
    .default_theta = 500000,
    .local_rope = true, /* scaling is for the full layers */
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
};
