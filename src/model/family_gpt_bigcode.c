/* gpt_bigcode: gpt2 with matrices stored output first and one key/value head for all query heads, or one for each. */
#include "model/family_rows.h"

#include <math.h>

#define LAYER "transformer.h.%d."

/* All queries come before the one key/value head, or each head has its three together: both are grouped by key/value head. */
static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "transformer.wte.weight", MT_V, MT_D),
    MT_ROW(MT_W_POS, "transformer.wpe.weight", MT_POSITIONS, MT_D),
    MT_ROW(MT_W_NORM1, LAYER "ln_1.weight", MT_D),
    MT_ROW(MT_B_NORM1, LAYER "ln_1.bias", MT_D),
    MT_ROWS_QKV_FUSED(LAYER "attn.c_attn.weight", LAYER "attn.c_attn.bias", MT_PACK_HEADS),
    MT_ROWS_O(LAYER "attn.c_proj"),
    MT_ROW(MT_W_NORM2, LAYER "ln_2.weight", MT_D),
    MT_ROW(MT_B_NORM2, LAYER "ln_2.bias", MT_D),
    MT_ROWS_UP(LAYER "mlp.c_fc"),
    MT_ROWS_DOWN(LAYER "mlp.c_proj"),
    MT_ROWS_FINAL_NORM("transformer.ln_f"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc read_bigcode(mt_config *c, const mt_keys *k)
{
    bool scaled, crossed, one;
    MT_TRY(mt_json_bool(k->doc, "scale_attn_weights", true, &scaled, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "add_cross_attention", false, &crossed, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "multi_query", true, &one, k->path, k->err));
    if (crossed) return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"add_cross_attention\" is not supported", k->path);
    c->K = one ? 1 : c->H;
    if (!scaled) c->attention_scale = 1;
    c->init_branch = 1 / sqrt(2.0 * (double)c->L); /* 2L branches add up */
    return MT_OK;
}

const mt_family mt_family_gpt_bigcode = {
    .name = "gpt_bigcode",
    .model_types = { "gpt_bigcode" },
    .architectures = { "GPTBigCodeForCausalLM" },
    .covers = "StarCoder and StarCoderBase, SantaCoder, WizardCoder 15B, Granite Code 20B and 34B",
    .telling = { "n_embd", "n_head", "n_inner", "n_positions", "multi_query", "scale_attn_weights" },
    .qkv_bias = MT_BIAS_ALWAYS,
    .o_bias = MT_BIAS_ALWAYS,
    .mlp_bias = MT_BIAS_ALWAYS,
    .layer_norm = true,
    .norm_bias = true,
    .plain_mlp = true,
    .learned_positions = true,
    .default_act = MT_ACT_GELU_TANH,
    .default_mlp_factor = 4,
    .shape = { .K = 1, .positions = 1024 },
    .own_keys = { "activation_function", "layer_norm_epsilon" },
    .default_eps = 1e-5,
    .default_tied = true,
    .prefix = "transformer.",
    .tensors = tensors,
    .read = read_bigcode,
};
