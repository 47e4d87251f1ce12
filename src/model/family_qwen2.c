#include "model/family.h"

const mt_family mt_family_qwen2 = {
    .name = "qwen2",
    .model_types = { "qwen2" },
    .architectures = { "Qwen2ForCausalLM" },
    .covers = "Qwen2, Qwen2.5, Qwen2.5-Coder and -Math, QwQ, R1-Distill-Qwen",
    .telling = { "use_sliding_window" },
    .qkv_bias = MT_BIAS_ALWAYS,
    .window = MT_WINDOW_LATE,
    .default_window = 4096,
    .shape = { .positions = 32768 },
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
};
