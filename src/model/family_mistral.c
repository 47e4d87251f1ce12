#include "model/family.h"

const mt_family mt_family_mistral = {
    .name = "mistral",
    .model_types = { "mistral", "ministral" },
    .architectures = { "MistralForCausalLM", "MinistralForCausalLM" },
    .covers = "Mistral 7B v0.1 to v0.3, Nemo 12B, Small 22B and 24B, Ministral 8B",
    .telling = { "sliding_window" },
    .window = MT_WINDOW_ALL,
    .default_window = 4096,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
};
