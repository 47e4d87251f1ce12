/* cohere, cohere2: attention and mlp side by side behind one LayerNorm without bias; logits scaled.  The second rotates only where it
 * has windows. */
#include "model/family.h"

static mt_rc read_cohere(mt_config *c, const mt_keys *k)
{
    bool qk_norm;
    MT_TRY(mt_json_f64(k->doc, "logit_scale", 0.0625, &c->logit_scale, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "use_qk_norm", false, &qk_norm, k->path, k->err));
    if (qk_norm) return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"use_qk_norm\": LayerNorms on queries and keys are not supported so far", k->path);
    if (c->logit_scale == 0) return mt_fail(k->err, MT_ERANGE, "%s: \"logit_scale\" is 0", k->path);
    return MT_OK;
}

static mt_rc read_cohere2(mt_config *c, const mt_keys *k)
{
    for (int64_t i = 0; i < c->L; i++)
        if (!c->window[i]) c->layer_rope[i] = MT_LAYER_NOPE;
    return read_cohere(c, k);
}

const mt_family mt_family_cohere = {
    .name = "cohere",
    .model_types = { "cohere" },
    .architectures = { "CohereForCausalLM" },
    .covers = "Command R, Aya 23 and Aya Expanse",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .layer_norm = true,
    .form = MT_BLOCK_ONE_NORM,
    .default_eps = 1e-5,
    .default_theta = 500000,
    .default_tied = true,
    .rope = MT_ROPE_PAIR,
    .tensors = mt_tensors_standard,
    .read = read_cohere,
};

const mt_family mt_family_cohere2 = {
    .name = "cohere2",
    .model_types = { "cohere2" },
    .architectures = { "Cohere2ForCausalLM" },
    .covers = "Command R7B, Command A",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .layer_norm = true,
    .form = MT_BLOCK_ONE_NORM,
    .window = MT_WINDOW_PATTERN,
    .default_window = 4096,
    .window_pattern = 4,
    .default_eps = 1e-5,
    .default_theta = 10000,
    .default_tied = true,
    .rope = MT_ROPE_PAIR,
    .tensors = mt_tensors_standard,
    .read = read_cohere2,
};
