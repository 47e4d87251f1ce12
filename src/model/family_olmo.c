/* olmo: the llama block with LayerNorms that have no weights, and bounds on queries, keys and values by key. */
#include "model/family.h"

static mt_rc read_olmo(mt_config *c, const mt_keys *k)
{
    MT_TRY(mt_json_f64(k->doc, "clip_qkv", 0, &c->clip_qkv, k->path, k->err));
    if (!(c->clip_qkv >= 0))
        return mt_fail(k->err, MT_ERANGE, "%s: \"clip_qkv\" is %g; a positive number or null expected", k->path, c->clip_qkv);
    c->eps = 1e-5; /* config.json is ignored */
    return MT_OK;
}

const mt_family mt_family_olmo = {
    .name = "olmo",
    .model_types = { "olmo" },
    .architectures = { "OlmoForCausalLM" },
    .covers = "OLMo 1B and 7B, first generation",
    .telling = { "clip_qkv" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .layer_norm = true,
    .norm_bare = true,
    .default_eps = 1e-5,
    .default_pad = MT_PAD(1),
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
    .read = read_olmo,
};
