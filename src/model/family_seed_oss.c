#include "model/family.h"

static mt_rc family_seed_oss_read(mt_config *c, const mt_keys *k)
{
    return mt_json_bool(k->doc, "attention_out_bias", false, &c->o_bias, k->path, k->err);
}

const mt_family mt_family_seed_oss = {
    .name = "seed_oss",
    .model_types = { "seed_oss" },
    .architectures = { "SeedOssForCausalLM" },
    .covers = "Seed-OSS 36B",
    .telling = { "attention_out_bias" },
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .shape = { .K = 8, .positions = 524288 },
    .default_head_dim = 128,
    .default_eps = 1e-6,
    .default_pad = MT_PAD(1),
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
    .read = family_seed_oss_read,
};
