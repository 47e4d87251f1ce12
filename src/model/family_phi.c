/* phi: attention and a plain mlp in parallel after one LayerNorm, biases everywhere, the head included. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.dense"),
    MT_ROWS_UP(LAYER "mlp.fc1"),
    MT_ROWS_DOWN(LAYER "mlp.fc2"),
    MT_ROWS_FINAL_NORM("model.final_layernorm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc family_phi_read(mt_config *c, const mt_keys *k)
{
    bool qk_norm;
    (void)c;
    MT_TRY(mt_json_bool(k->doc, "qk_layernorm", false, &qk_norm, k->path, k->err));
    return qk_norm ? mt_fail(k->err, MT_EUNSUPPORTED,
                             "%s: \"qk_layernorm\": LayerNorms on queries and keys are not supported so far", k->path)
                   : MT_OK;
}

const mt_family mt_family_phi = {
    .name = "phi",
    .model_types = { "phi" },
    .architectures = { "PhiForCausalLM" },
    .covers = "Phi-1, Phi-1.5, Phi-2",
    .telling = { "qk_layernorm" },
    .qkv_bias = MT_BIAS_ALWAYS,
    .o_bias = MT_BIAS_ALWAYS,
    .mlp_bias = MT_BIAS_ALWAYS,
    .layer_norm = true,
    .norm_bias = true,
    .form = MT_BLOCK_ONE_NORM,
    .plain_mlp = true,
    .head_bias = true,
    .default_act = MT_ACT_GELU_TANH,
    .own_keys = { "layer_norm_eps" },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .default_partial = 0.5,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .read = family_phi_read,
};
