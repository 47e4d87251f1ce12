/* gpt_oss: the llama block with a sink for each attention head, windows on every second layer, and biases everywhere.  Every layer
 * has experts with a clamped activation; in the files their matrices are input first, gate and up in turn. */
#include "model/family_rows.h"

#include <math.h>

#define LAYER   "model.layers.%d."
#define ATT     LAYER "self_attn."
#define EXPERTS LAYER "mlp.experts."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(ATT),
    MT_ROW_EXACT(MT_W_SINKS, ATT "sinks", MT_H),
    MT_ROWS_O(ATT "o_proj"),
    MT_ROWS_NORM2(LAYER),
    MT_ROW(MT_W_ROUTER, LAYER "mlp.router.weight", MT_E, MT_D),
    MT_ROW(MT_B_ROUTER, LAYER "mlp.router.bias", MT_E),
    MT_ROW_TURNED(MT_W_E_GATE, EXPERTS "gate_up_proj", MT_PACK_EXPERTS_IN_TURN, MT_I, MT_D),
    MT_ROW_TURNED(MT_W_E_UP, EXPERTS "gate_up_proj", MT_PACK_EXPERTS_IN_TURN, MT_I, MT_D),
    MT_ROW_TURNED(MT_W_E_DOWN, EXPERTS "down_proj", MT_PACK_EXPERTS, MT_D, MT_I),
    MT_ROW_PACKED(MT_B_E_GATE, EXPERTS "gate_up_proj_bias", MT_PACK_EXPERTS_IN_TURN, MT_I),
    MT_ROW_PACKED(MT_B_E_UP, EXPERTS "gate_up_proj_bias", MT_PACK_EXPERTS_IN_TURN, MT_I),
    MT_ROW_PACKED(MT_B_E_DOWN, EXPERTS "down_proj_bias", MT_PACK_EXPERTS, MT_D),
    MT_ROWS_LLAMA_END,
};

static const mt_expert_rules experts = { .router = MT_ROUTE_CHOSEN, .router_bias = true, .biases = true, .mlp_width = true };

/* Files without rope settings mean those of the published models. */
static void default_rope(mt_rope_spec *rope)
{
    rope->type = MT_ROPE_YARN;
    rope->factor = 32;
    rope->original_positions = 4096;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    rope->truncate = false;
    rope->attention_factor = 0.1 * log(rope->factor) + 1;
}

static mt_rc read_activation(mt_config *c, const mt_keys *k)
{
    MT_TRY(mt_json_f64(k->doc, "swiglu_limit", 7, &c->act_limit, k->path, k->err));
    MT_TRY(mt_json_f64(k->doc, "swiglu_alpha", 1.702, &c->act_steep, k->path, k->err));
    if (c->act != MT_ACT_SILU)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: a gpt_oss model with a \"hidden_act\" other than silu is not supported",
                       k->path);
    if (!(c->act_limit > 0 && c->act_limit < 1e6))
        return mt_fail(k->err, MT_ERANGE, "%s: \"swiglu_limit\" is %g; a positive number expected", k->path, c->act_limit);
    if (!(fabs(c->act_steep) < 1e3))
        return mt_fail(k->err, MT_ERANGE, "%s: \"swiglu_alpha\" is %g; -1000 to 1000 expected", k->path, c->act_steep);
    c->act = MT_ACT_CLAMPED;
    return MT_OK;
}

static mt_rc family_gpt_oss_read(mt_config *c, const mt_keys *k)
{
    c->sinks = true;
    if (mt_json_missing(mt_value_get(k->doc, "rope_scaling")) && mt_json_missing(mt_value_get(k->doc, "rope_parameters")))
        default_rope(&c->rope);
    return read_activation(c, k);
}

const mt_family mt_family_gpt_oss = {
    .name = "gpt_oss",
    .model_types = { "gpt_oss" },
    .architectures = { "GptOssForCausalLM" },
    .covers = "GPT-OSS 20B and 120B",
    .telling = { "swiglu_limit", "swiglu_alpha" },
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .o_bias = MT_BIAS_UNLESS_KEY,
    .window = MT_WINDOW_PATTERN,
    .default_window = 128,
    .window_pattern = 2,
    .shape = { .K = 8, .positions = 131072 },
    .default_head_dim = 64,
    .default_eps = 1e-5,
    .default_theta = 150000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .experts = &experts,
    .read = family_gpt_oss_read,
};
