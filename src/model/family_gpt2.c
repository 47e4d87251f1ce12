/* gpt2: learned positions, LayerNorms, plain mlps, biases everywhere; matrices stored input first. */
#include "model/family_rows.h"

#include <math.h>

#define LAYER "transformer.h.%d."

static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "transformer.wte.weight", MT_V, MT_D),
    MT_ROW(MT_W_POS, "transformer.wpe.weight", MT_POSITIONS, MT_D),
    MT_ROW(MT_W_NORM1, LAYER "ln_1.weight", MT_D),
    MT_ROW(MT_B_NORM1, LAYER "ln_1.bias", MT_D),
    MT_ROW_TURNED(MT_W_Q, LAYER "attn.c_attn.weight", MT_PACK_ROWS, MT_H_DH, MT_D),
    MT_ROW_TURNED(MT_W_K, LAYER "attn.c_attn.weight", MT_PACK_ROWS, MT_K_DH, MT_D),
    MT_ROW_TURNED(MT_W_V, LAYER "attn.c_attn.weight", MT_PACK_ROWS, MT_K_DH, MT_D),
    MT_ROW_PACKED(MT_B_Q, LAYER "attn.c_attn.bias", MT_PACK_ROWS, MT_H_DH),
    MT_ROW_PACKED(MT_B_K, LAYER "attn.c_attn.bias", MT_PACK_ROWS, MT_K_DH),
    MT_ROW_PACKED(MT_B_V, LAYER "attn.c_attn.bias", MT_PACK_ROWS, MT_K_DH),
    MT_ROW_TURNED(MT_W_O, LAYER "attn.c_proj.weight", MT_PACK_NONE, MT_D, MT_H_DH),
    MT_ROW(MT_B_O, LAYER "attn.c_proj.bias", MT_D),
    MT_ROW(MT_W_NORM2, LAYER "ln_2.weight", MT_D),
    MT_ROW(MT_B_NORM2, LAYER "ln_2.bias", MT_D),
    MT_ROW_TURNED(MT_W_UP, LAYER "mlp.c_fc.weight", MT_PACK_NONE, MT_F, MT_D),
    MT_ROW(MT_B_UP, LAYER "mlp.c_fc.bias", MT_F),
    MT_ROW_TURNED(MT_W_DOWN, LAYER "mlp.c_proj.weight", MT_PACK_NONE, MT_D, MT_F),
    MT_ROW(MT_B_DOWN, LAYER "mlp.c_proj.bias", MT_D),
    MT_ROWS_FINAL_NORM("transformer.ln_f"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc family_gpt2_read(mt_config *c, const mt_keys *k)
{
    bool scaled, by_layer, crossed;
    MT_TRY(mt_json_bool(k->doc, "scale_attn_weights", true, &scaled, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "scale_attn_by_inverse_layer_idx", false, &by_layer, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "add_cross_attention", false, &crossed, k->path, k->err));
    if (by_layer || crossed)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"%s\" is not supported", k->path,
                       by_layer ? "scale_attn_by_inverse_layer_idx" : "add_cross_attention");
    if (!scaled) c->attention_scale = 1;
    c->init_branch = 1 / sqrt(2.0 * (double)c->L); /* 2L branches add up */
    return MT_OK;
}

const mt_family mt_family_gpt2 = {
    .name = "gpt2",
    .model_types = { "gpt2" },
    .architectures = { "GPT2LMHeadModel" },
    .covers = "GPT-2 124M to 1.5B, DistilGPT2, DialoGPT",
    .telling = { "n_embd", "n_head", "n_inner", "n_positions", "scale_attn_weights" },
    .qkv_bias = MT_BIAS_ALWAYS,
    .o_bias = MT_BIAS_ALWAYS,
    .mlp_bias = MT_BIAS_ALWAYS,
    .layer_norm = true,
    .norm_bias = true,
    .plain_mlp = true,
    .learned_positions = true,
    .default_act = MT_ACT_GELU_TANH,
    .default_mlp_factor = 4,
    .shape = { .positions = 1024 },
    .own_keys = { "activation_function", "layer_norm_epsilon" },
    .default_eps = 1e-5,
    .default_tied = true,
    .prefix = "transformer.",
    .tensors = tensors,
    .read = family_gpt2_read,
};
