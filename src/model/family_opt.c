/* opt: learned positions that begin in the third row of their table, LayerNorms, plain relu mlps, biases everywhere. */
#include "model/family_rows.h"

#define LAYER "model.decoder.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "model.decoder.embed_tokens.weight", MT_V, MT_D),
    MT_ROW(MT_W_POS, "model.decoder.embed_positions.weight", MT_POSITIONS, MT_D),
    MT_ROW(MT_W_NORM1, LAYER "self_attn_layer_norm.weight", MT_D),
    MT_ROW(MT_B_NORM1, LAYER "self_attn_layer_norm.bias", MT_D),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.out_proj"),
    MT_ROW(MT_W_NORM2, LAYER "final_layer_norm.weight", MT_D),
    MT_ROW(MT_B_NORM2, LAYER "final_layer_norm.bias", MT_D),
    MT_ROWS_UP(LAYER "fc1"),
    MT_ROWS_DOWN(LAYER "fc2"),
    MT_ROWS_FINAL_NORM("model.decoder.final_layer_norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc family_opt_read(mt_config *c, const mt_keys *k)
{
    enum { OFFSET = 2 };
    bool before, affine;
    int64_t width;
    MT_TRY(mt_json_bool(k->doc, "do_layer_norm_before", true, &before, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "layer_norm_elementwise_affine", true, &affine, k->path, k->err));
    MT_TRY(mt_json_i64(k->doc, "word_embed_proj_dim", c->D, &width, k->path, k->err));
    const char *odd = width != c->D ? "word_embed_proj_dim" : NULL;
    if (!affine) odd = "layer_norm_elementwise_affine";
    if (!before) odd = "do_layer_norm_before";
    if (odd)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"%s\" as in OPT 350M or Galactica's kin is not supported", k->path, odd);
    c->eps = 1e-5; /* transformers reads no key for it */
    c->position_offset = OFFSET;
    c->position_rows = c->max_positions + OFFSET;
    return MT_OK;
}

const mt_family mt_family_opt = {
    .name = "opt",
    .model_types = { "opt" },
    .architectures = { "OPTForCausalLM" },
    .covers = "OPT 125M and 1.3B to 66B, Galactica",
    .telling = { "do_layer_norm_before", "word_embed_proj_dim", "ffn_dim" },
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .o_bias = MT_BIAS_UNLESS_KEY,
    .mlp_bias = MT_BIAS_UNLESS_KEY,
    .bias_key = "enable_bias",
    .layer_norm = true,
    .norm_bias = true,
    .plain_mlp = true,
    .learned_positions = true,
    .default_act = MT_ACT_RELU,
    .own_keys = { "activation_function", "init_std" },
    .default_eps = 1e-5,
    .default_pad = MT_PAD(1),
    .default_tied = true,
    .prefix = "model.",
    .tensors = tensors,
    .read = family_opt_read,
};
