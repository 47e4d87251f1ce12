/* glm, glm4 and chatglm, which is glm under its own names: half of each head rotates, in pairs; gate and up are one tensor. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."
#define OWN   "transformer.encoder.layers.%d."

static const mt_tensor_row glm[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_GATE_UP_FUSED(LAYER "mlp.gate_up_proj.weight"),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static const mt_tensor_row glm4[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROW(MT_W_POST1, LAYER "post_self_attn_layernorm.weight", MT_D),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_GATE_UP_FUSED(LAYER "mlp.gate_up_proj.weight"),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROW(MT_W_POST2, LAYER "post_mlp_layernorm.weight", MT_D),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static const mt_tensor_row chatglm[] = {
    MT_ROW(MT_W_EMBED, "transformer.embedding.word_embeddings.weight", MT_V, MT_D),
    MT_ROWS_NORM1(OWN),
    MT_ROWS_QKV_FUSED(OWN "self_attention.query_key_value.weight", OWN "self_attention.query_key_value.bias", MT_PACK_ROWS),
    MT_ROWS_O(OWN "self_attention.dense"),
    MT_ROWS_NORM2(OWN),
    MT_ROWS_GATE_UP_FUSED(OWN "mlp.dense_h_to_4h.weight"),
    MT_ROWS_DOWN(OWN "mlp.dense_4h_to_h"),
    MT_ROWS_FINAL_NORM("transformer.encoder.final_layernorm"),
    MT_ROWS_HEAD("transformer.output_layer"),
    MT_ROWS_END,
};

static mt_rc read_chatglm(mt_config *c, const mt_keys *k)
{
    bool all, own, rms, after;
    double ratio;
    MT_TRY(mt_json_bool(k->doc, "add_bias_linear", false, &all, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "add_qkv_bias", false, &own, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "rmsnorm", true, &rms, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "apply_residual_connection_post_layernorm", false, &after, k->path, k->err));
    const char *odd = after ? "apply_residual_connection_post_layernorm" : NULL;
    if (!rms) odd = "rmsnorm";
    if (all) odd = "add_bias_linear";
    if (odd) return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"%s\" is set in a way no published model has it", k->path, odd);
    c->qkv_bias = own;
    MT_TRY(mt_json_f64(k->doc, "rope_ratio", 1, &ratio, k->path, k->err));
    if (!(ratio > 0)) return mt_fail(k->err, MT_ERANGE, "%s: \"rope_ratio\" is %g", k->path, ratio);
    c->rope.theta *= ratio;
    return MT_OK;
}

const mt_family mt_family_glm = {
    .name = "glm",
    .model_types = { "glm" },
    .architectures = { "GlmForCausalLM" },
    .covers = "GLM-4-9B in transformers' form, GLM-Edge",
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .shape = { .K = 2, .positions = 131072 },
    .default_head_dim = 128,
    .default_eps = 1.5625e-7,
    .default_pad = MT_PAD(151329),
    .default_theta = 10000,
    .default_partial = 0.5,
    .rope = MT_ROPE_PAIR,
    .tensors = glm,
};

const mt_family mt_family_glm4 = {
    .name = "glm4",
    .model_types = { "glm4" },
    .architectures = { "Glm4ForCausalLM" },
    .covers = "GLM-4-0414 9B and 32B, GLM-Z1",
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .norms = MT_NORMS_SANDWICH,
    .shape = { .K = 2, .positions = 131072 },
    .default_head_dim = 128,
    .default_eps = 1.5625e-7,
    .default_pad = MT_PAD(151329),
    .default_theta = 10000,
    .default_partial = 0.5,
    .rope = MT_ROPE_PAIR,
    .tensors = glm4,
};

const mt_family mt_family_chatglm = {
    .name = "chatglm",
    .model_types = { "chatglm" },
    .architectures = { "ChatGLMModel", "ChatGLMForConditionalGeneration" },
    .covers = "GLM-4-9b-chat, ChatGLM2 and ChatGLM3 6B, CodeGeeX4, in their own layout",
    .telling = { "multi_query_group_num", "add_qkv_bias", "rope_ratio", "kv_channels" },
    .own_keys = { "layernorm_epsilon" },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .default_partial = 0.5,
    .rope = MT_ROPE_PAIR,
    .prefix = "transformer.",
    .tensors = chatglm,
    .read = read_chatglm,
};
