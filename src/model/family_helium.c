#include "model/family.h"

const mt_family mt_family_helium = {
    .name = "helium",
    .model_types = { "helium" },
    .architectures = { "HeliumForCausalLM" },
    .covers = "Helium 1 2B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .shape = { .positions = 4096 },
    .default_head_dim = 128,
    .default_eps = 1e-8,
    .default_pad = MT_PAD(3),
    .default_theta = 100000,
    .rope = MT_ROPE_PAIR,
    .tensors = mt_tensors_standard,
};
