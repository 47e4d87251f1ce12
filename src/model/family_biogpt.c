/* biogpt: opt with gelu and an embedding scaled by sqrt(D). */
#include "model/family_rows.h"

#include <math.h>

#define LAYER "biogpt.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "biogpt.embed_tokens.weight", MT_V, MT_D),
    MT_ROW(MT_W_POS, "biogpt.embed_positions.weight", MT_POSITIONS, MT_D),
    MT_ROW(MT_W_NORM1, LAYER "self_attn_layer_norm.weight", MT_D),
    MT_ROW(MT_B_NORM1, LAYER "self_attn_layer_norm.bias", MT_D),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.out_proj"),
    MT_ROW(MT_W_NORM2, LAYER "final_layer_norm.weight", MT_D),
    MT_ROW(MT_B_NORM2, LAYER "final_layer_norm.bias", MT_D),
    MT_ROWS_UP(LAYER "fc1"),
    MT_ROWS_DOWN(LAYER "fc2"),
    MT_ROWS_FINAL_NORM("biogpt.layer_norm"),
    MT_ROWS_HEAD("output_projection"),
    MT_ROWS_END,
};

static mt_rc read_biogpt(mt_config *c, const mt_keys *k)
{
    enum { OFFSET = 2 };
    bool scaled;
    MT_TRY(mt_json_bool(k->doc, "scale_embedding", true, &scaled, k->path, k->err));
    if (scaled) c->embed_scale = sqrt((double)c->D);
    c->eps = 1e-5; /* transformers does not read layer_norm_eps */
    c->position_offset = OFFSET;
    c->position_rows = c->max_positions + OFFSET;
    return MT_OK;
}

const mt_family mt_family_biogpt = {
    .name = "biogpt",
    .model_types = { "biogpt" },
    .architectures = { "BioGptForCausalLM" },
    .covers = "BioGPT, BioGPT-Large",
    .telling = { "scale_embedding" },
    .qkv_bias = MT_BIAS_ALWAYS,
    .o_bias = MT_BIAS_ALWAYS,
    .mlp_bias = MT_BIAS_ALWAYS,
    .layer_norm = true,
    .norm_bias = true,
    .plain_mlp = true,
    .learned_positions = true,
    .default_act = MT_ACT_GELU_ERF,
    .shape = { .positions = 1024 },
    .default_eps = 1e-5,
    .default_pad = MT_PAD(1),
    .default_tied = true,
    .prefix = "biogpt.",
    .tensors = tensors,
    .read = read_biogpt,
};
