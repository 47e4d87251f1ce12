/* jais2: LayerNorms and biases everywhere, a plain mlp with squared relu. */
#include "model/family.h"

const mt_family mt_family_jais2 = {
    .name = "jais2",
    .model_types = { "jais2" },
    .architectures = { "Jais2ForCausalLM" },
    .covers = "Jais 2 8B and 70B",
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .o_bias = MT_BIAS_UNLESS_KEY,
    .mlp_bias = MT_BIAS_UNLESS_KEY,
    .layer_norm = true,
    .norm_bias = true,
    .plain_mlp = true,
    .default_act = MT_ACT_RELU2,
    .shape = { .positions = 8192 },
    .own_keys = { "layer_norm_eps" },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
};
