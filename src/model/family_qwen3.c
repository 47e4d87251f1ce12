#include "model/family.h"

const mt_family mt_family_qwen3 = {
    .name = "qwen3",
    .model_types = { "qwen3" },
    .architectures = { "Qwen3ForCausalLM" },
    .covers = "Qwen3 0.6B to 32B",
    .telling = { "use_sliding_window" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .window = MT_WINDOW_LATE,
    .default_window = 4096,
    .shape = { .positions = 32768 },
    .default_head_dim = 128,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
};
