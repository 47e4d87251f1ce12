/* gptj: one LayerNorm for both branches, rotary pairs on the first rotary_dim numbers of each head, a bias on the head. */
#include "model/family_rows.h"

#define LAYER "transformer.h.%d."

static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "transformer.wte.weight", MT_V, MT_D),
    MT_ROW(MT_W_NORM1, LAYER "ln_1.weight", MT_D),
    MT_ROW(MT_B_NORM1, LAYER "ln_1.bias", MT_D),
    MT_ROWS_QKV(LAYER "attn."),
    MT_ROWS_O(LAYER "attn.out_proj"),
    MT_ROWS_UP(LAYER "mlp.fc_in"),
    MT_ROWS_DOWN(LAYER "mlp.fc_out"),
    MT_ROWS_FINAL_NORM("transformer.ln_f"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc read_gptj(mt_config *c, const mt_keys *k)
{
    const mt_value *key = mt_value_get(k->doc, "rotary_dim"); /* null: whole heads */
    MT_TRY(mt_json_i64(k->doc, "rotary_dim", key ? c->Dh : 64, &c->rope.dr, k->path, k->err));
    if (c->rope.dr < 2 || c->rope.dr % 2 || c->rope.dr > c->Dh || c->rope.dr / 2 > MT_MAX_PAIRS)
        return mt_fail(k->err, MT_ERANGE, "%s: \"rotary_dim\" is %lld; an even number up to head_dim=%lld expected", k->path,
                       (long long)c->rope.dr, (long long)c->Dh);
    return MT_OK;
}

const mt_family mt_family_gptj = {
    .name = "gptj",
    .model_types = { "gptj" },
    .architectures = { "GPTJForCausalLM" },
    .covers = "GPT-J 6B, GPT4All-J",
    .telling = { "rotary_dim", "n_embd", "n_head", "n_inner", "n_positions" },
    .mlp_bias = MT_BIAS_ALWAYS,
    .layer_norm = true,
    .norm_bias = true,
    .form = MT_BLOCK_ONE_NORM,
    .plain_mlp = true,
    .head_bias = true,
    .default_act = MT_ACT_GELU_TANH,
    .default_mlp_factor = 4,
    .own_keys = { "activation_function", "layer_norm_epsilon" },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .rope = MT_ROPE_PAIR,
    .prefix = "transformer.",
    .tensors = tensors,
    .read = read_gptj,
};
