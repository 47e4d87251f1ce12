/* ernie4_5 and ernie4_5_moe: rotary pairs; some layers with experts, a shared one and an fp32 router with a correction bias. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

const mt_family mt_family_ernie4_5 = {
    .name = "ernie4_5",
    .model_types = { "ernie4_5" },
    .architectures = { "Ernie4_5ForCausalLM" },
    .covers = "ERNIE 4.5 0.3B",
    .telling = { "use_bias" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .bias_key = "use_bias",
    .shape = { .K = 2, .positions = 131072 },
    .default_head_dim = 128,
    .default_eps = 1e-5,
    .default_pad = MT_PAD(0),
    .default_theta = 500000,
    .default_tied = true,
    .rope = MT_ROPE_PAIR,
    .tensors = mt_tensors_standard,
};

#define OF_EXPERTS(ROWS)                                                                                                         \
    MT_ROWS_LLAMA_MIXER(LAYER), MT_ROWS_MLP(LAYER), MT_ROW_EXACT(MT_W_ROUTER, LAYER "mlp.gate.weight", MT_E, MT_D),              \
        MT_ROW_FIXED(MT_B_CHOICE, LAYER "mlp.moe_statics.e_score_correction_bias", MT_ONE, MT_E), ROWS,                          \
        MT_ROWS_SHARED(LAYER "mlp.shared_experts."), MT_ROWS_LLAMA_END

static const mt_tensor_row tensors[] = { OF_EXPERTS(MT_ROWS_EXPERTS_USUAL(LAYER)) };
static const mt_tensor_row fused[] = { OF_EXPERTS(MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)) };

static const mt_expert_rules experts = { .router = MT_ROUTE_SOFTMAX,
                                         .norm = true,
                                         .norm_floor = 1e-12,
                                         .choice_bias = true,
                                         .layers = MT_SPARSE_RANGE,
                                         .shared = MT_SHARED_COUNT,
                                         .default_shared = 2 };

static mt_rc family_ernie4_5_read(mt_config *c, const mt_keys *k)
{
    c->head_bias = c->qkv_bias;
    return mt_json_f64(k->doc, "moe_norm_min", c->moe.norm_floor, &c->moe.norm_floor, k->path, k->err);
}

const mt_family mt_family_ernie4_5_moe = {
    .name = "ernie4_5_moe",
    .model_types = { "ernie4_5_moe" },
    .architectures = { "Ernie4_5_MoeForCausalLM" },
    .covers = "ERNIE 4.5 21B-A3B and 300B-A47B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .bias_key = "use_bias",
    .shape = { .K = 4, .positions = 131072 },
    .own_keys = { "num_experts_per_tok", "moe_k" },
    .default_eps = 1e-5,
    .default_pad = MT_PAD(0),
    .default_theta = 500000,
    .default_tied = true,
    .rope = MT_ROPE_PAIR,
    .tensors = tensors,
    .other_tensors = fused,
    .experts = &experts,
    .read = family_ernie4_5_read,
};
