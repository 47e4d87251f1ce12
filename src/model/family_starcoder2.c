/* starcoder2: LayerNorms and biases everywhere, an mlp without a gate. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_UP(LAYER "mlp.c_fc"),
    MT_ROWS_DOWN(LAYER "mlp.c_proj"),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

const mt_family mt_family_starcoder2 = {
    .name = "starcoder2",
    .model_types = { "starcoder2" },
    .architectures = { "Starcoder2ForCausalLM" },
    .covers = "StarCoder2 3B, 7B and 15B",
    .telling = { "use_bias", "sliding_window" },
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .o_bias = MT_BIAS_UNLESS_KEY,
    .mlp_bias = MT_BIAS_UNLESS_KEY,
    .bias_key = "use_bias",
    .layer_norm = true,
    .norm_bias = true,
    .plain_mlp = true,
    .default_act = MT_ACT_GELU_TANH,
    .window = MT_WINDOW_ALL,
    .shape = { .K = 2, .positions = 4096 },
    .own_keys = { "norm_epsilon" },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .default_tied = true,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
};
