#include "model/family.h"

const mt_family mt_family_llama = {
    .name = "llama",
    .model_types = { "llama" },
    .architectures = { "LlamaForCausalLM", "LLaMAForCausalLM" },
    .covers = "Llama 2, 3, 3.1, 3.2, 3.3; Yi; DeepSeek LLM and Coder; R1-Distill-Llama; SmolLM2; TinyLlama",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
};
