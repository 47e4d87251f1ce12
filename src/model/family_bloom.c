/* bloom: ALiBi, a LayerNorm on the embedding, LayerNorms and biases everywhere, plain gelu mlps, q, k, v fused by head. */
#include "model/family_rows.h"

#define LAYER "transformer.h.%d."

static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "transformer.word_embeddings.weight", MT_V, MT_D),
    MT_ROW(MT_W_NORM0, "transformer.word_embeddings_layernorm.weight", MT_D),
    MT_ROW(MT_B_NORM0, "transformer.word_embeddings_layernorm.bias", MT_D),
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV_FUSED(LAYER "self_attention.query_key_value.weight", LAYER "self_attention.query_key_value.bias", MT_PACK_HEADS),
    MT_ROWS_O(LAYER "self_attention.dense"),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_UP(LAYER "mlp.dense_h_to_4h"),
    MT_ROWS_DOWN(LAYER "mlp.dense_4h_to_h"),
    MT_ROWS_FINAL_NORM("transformer.ln_f"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc read_bloom(mt_config *c, const mt_keys *k)
{
    bool after;
    MT_TRY(mt_json_bool(k->doc, "apply_residual_connection_post_layernorm", false, &after, k->path, k->err));
    if (after)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"apply_residual_connection_post_layernorm\" is not supported", k->path);
    c->alibi = 1;
    c->act = MT_ACT_GELU_TANH; /* transformers reads no key for it */
    return MT_OK;
}

const mt_family mt_family_bloom = {
    .name = "bloom",
    .model_types = { "bloom" },
    .architectures = { "BloomForCausalLM" },
    .covers = "BLOOM and BLOOMZ 560M to 176B",
    .telling = { "apply_residual_connection_post_layernorm", "n_head" },
    .qkv_bias = MT_BIAS_ALWAYS,
    .o_bias = MT_BIAS_ALWAYS,
    .mlp_bias = MT_BIAS_ALWAYS,
    .embed_norm = true,
    .layer_norm = true,
    .norm_bias = true,
    .plain_mlp = true,
    .default_act = MT_ACT_GELU_TANH,
    .default_mlp_factor = 4,
    .own_keys = { "layer_norm_epsilon" },
    .default_eps = 1e-5,
    .default_tied = true,
    .prefix = "transformer.",
    .tensors = tensors,
    .read = read_bloom,
};
