/* gpt_neox: attention and a plain mlp in parallel, each after its own LayerNorm; q, k, v of a head together in one tensor. */
#include "model/family_rows.h"

#define LAYER "gpt_neox.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "gpt_neox.embed_in.weight", MT_V, MT_D),
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV_FUSED(LAYER "attention.query_key_value.weight", LAYER "attention.query_key_value.bias", MT_PACK_HEADS),
    MT_ROWS_O(LAYER "attention.dense"),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_UP(LAYER "mlp.dense_h_to_4h"),
    MT_ROWS_DOWN(LAYER "mlp.dense_4h_to_h"),
    MT_ROWS_FINAL_NORM("gpt_neox.final_layer_norm"),
    MT_ROWS_HEAD("embed_out"),
    MT_ROWS_END,
};

static mt_rc family_gpt_neox_read(mt_config *c, const mt_keys *k)
{
    bool parallel;
    MT_TRY(mt_json_bool(k->doc, "use_parallel_residual", true, &parallel, k->path, k->err));
    c->form = parallel ? MT_BLOCK_PARALLEL : MT_BLOCK_SERIAL;
    return MT_OK;
}

const mt_family mt_family_gpt_neox = {
    .name = "gpt_neox",
    .model_types = { "gpt_neox" },
    .architectures = { "GPTNeoXForCausalLM" },
    .covers = "Pythia 70M to 12B, GPT-NeoX 20B, Dolly v2, RedPajama-INCITE",
    .telling = { "rotary_pct", "rotary_emb_base", "use_parallel_residual" },
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .o_bias = MT_BIAS_UNLESS_KEY,
    .mlp_bias = MT_BIAS_ALWAYS,
    .layer_norm = true,
    .norm_bias = true,
    .plain_mlp = true,
    .default_act = MT_ACT_GELU_ERF,
    .own_keys = { "layer_norm_eps", "rotary_pct", "rotary_emb_base" },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .default_partial = 0.25,
    .rope = MT_ROPE_HALF,
    .prefix = "gpt_neox.",
    .other_head = "lm_head.weight",
    .tensors = tensors,
    .read = family_gpt_neox_read,
};
