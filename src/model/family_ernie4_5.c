#include "model/family.h"

const mt_family mt_family_ernie4_5 = {
    .name = "ernie4_5",
    .model_types = { "ernie4_5" },
    .architectures = { "Ernie4_5ForCausalLM" },
    .covers = "ERNIE 4.5 0.3B",
    .telling = { "use_bias" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .bias_key = "use_bias",
    .default_head_dim = 128,
    .default_eps = 1e-5,
    .default_theta = 500000,
    .default_tied = true,
    .rope = MT_ROPE_PAIR,
    .tensors = mt_tensors_standard,
};
