/* apertus: head norms, plain mlps with xIELU, whose two alphas are learned in every layer; llama3 scaling by default. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROW(MT_W_NORM1, LAYER "attention_layernorm.weight", MT_D),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_QK_NORM(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROW(MT_W_NORM2, LAYER "feedforward_layernorm.weight", MT_D),
    MT_ROWS_UP(LAYER "mlp.up_proj"),
    MT_ROW_EXACT(MT_W_ALPHA_P, LAYER "mlp.act_fn.alpha_p", MT_NONE),
    MT_ROW_EXACT(MT_W_ALPHA_N, LAYER "mlp.act_fn.alpha_n", MT_NONE),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc read_apertus(mt_config *c, const mt_keys *k)
{
    if (!mt_json_missing(mt_value_get(k->doc, "rope_scaling"))) return MT_OK;
    if (!mt_json_missing(mt_value_get(k->doc, "rope_parameters"))) return MT_OK;
    c->rope.type = MT_ROPE_LLAMA3;
    c->rope.factor = 8;
    c->rope.low_freq = 1;
    c->rope.high_freq = 4;
    c->rope.original_positions = 8192;
    return MT_OK;
}

const mt_family mt_family_apertus = {
    .name = "apertus",
    .model_types = { "apertus" },
    .architectures = { "ApertusForCausalLM" },
    .covers = "Apertus 8B and 70B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .plain_mlp = true,
    .default_act = MT_ACT_XIELU,
    .shape = { .positions = 65536 },
    .default_eps = 1e-5,
    .default_pad = MT_PAD(3),
    .default_theta = 12000000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .read = read_apertus,
};
