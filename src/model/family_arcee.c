/* arcee, nemotron: mlps without a gate, squared relu; nemotron has LayerNorms whose weights are stored as w - 1. */
#include "model/family.h"

const mt_family mt_family_arcee = {
    .name = "arcee",
    .model_types = { "arcee" },
    .architectures = { "ArceeForCausalLM" },
    .covers = "AFM 4.5B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .plain_mlp = true,
    .default_act = MT_ACT_RELU2,
    .shape = { .positions = 4096 },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
};

const mt_family mt_family_nemotron = {
    .name = "nemotron",
    .model_types = { "nemotron" },
    .architectures = { "NemotronForCausalLM" },
    .covers = "Nemotron-4 340B, Minitron 4B and 8B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .layer_norm = true,
    .norm_bias = true,
    .norm_one_plus = true,
    .plain_mlp = true,
    .default_act = MT_ACT_RELU2,
    .shape = { .positions = 4096 },
    .own_keys = { "norm_eps" },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .default_partial = 0.5,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
};
