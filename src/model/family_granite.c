/* granite: the llama block with four multipliers. */
#include "model/family.h"

static mt_rc read(mt_config *c, const mt_keys *k)
{
    double divisor;
    MT_TRY(mt_json_f64(k->doc, "embedding_multiplier", 1, &c->embed_scale, k->path, k->err));
    MT_TRY(mt_json_f64(k->doc, "attention_multiplier", 1, &c->attention_scale, k->path, k->err));
    MT_TRY(mt_json_f64(k->doc, "residual_multiplier", 1, &c->residual_scale, k->path, k->err));
    MT_TRY(mt_json_f64(k->doc, "logits_scaling", 1, &divisor, k->path, k->err));
    if (divisor == 0 || c->residual_scale == 0) return mt_fail(k->err, MT_ERANGE, "%s: a multiplier of 0", k->path);
    c->logit_scale = 1 / divisor;
    return MT_OK;
}

const mt_family mt_family_granite = {
    .name = "granite",
    .model_types = { "granite" },
    .architectures = { "GraniteForCausalLM" },
    .covers = "Granite 3.0 to 3.3, 2B and 8B",
    .telling = { "embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
    .read = read,
};
