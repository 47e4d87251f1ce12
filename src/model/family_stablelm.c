/* stablelm: LayerNorms, a quarter of each head rotates; by config attention and mlp side by side. */
#include "model/family.h"

static mt_rc read(mt_config *c, const mt_keys *k)
{
    bool parallel, qk_norm;
    MT_TRY(mt_json_bool(k->doc, "use_qkv_bias", false, &c->qkv_bias, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "use_parallel_residual", false, &parallel, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "qk_layernorm", false, &qk_norm, k->path, k->err));
    if (qk_norm) return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"qk_layernorm\": LayerNorms on queries and keys are not supported so far", k->path);
    if (parallel) c->form = MT_BLOCK_ONE_NORM;
    return MT_OK;
}

const mt_family mt_family_stablelm = {
    .name = "stablelm",
    .model_types = { "stablelm", "stablelm_epoch" },
    .architectures = { "StableLmForCausalLM", "StableLMEpochForCausalLM" },
    .covers = "StableLM 3B, StableLM 2 1.6B, Stable Code 3B",
    .layer_norm = true,
    .norm_bias = true,
    .default_eps = 1e-5,
    .default_theta = 10000,
    .default_partial = 0.25,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
    .read = read,
};
