/* mixtral, minimax_m2 and phimoe: experts in every layer, under the same names. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

/* A tensor for each expert; and the same as transformers has them in memory, and saves them where it does not convert. */
#define EACH MT_ROWS_EXPERTS(LAYER "block_sparse_moe.experts.%e.", "w1", "w3", "w2")
#define ONE  MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)

/* -- mixtral: mistral's block ---------------------------------------------------------------------- */

static const mt_tensor_row mixtral[] = {
    MT_ROWS_LLAMA_MIXER(LAYER),
    MT_ROW(MT_W_ROUTER, LAYER "block_sparse_moe.gate.weight", MT_E, MT_D),
    EACH,
    MT_ROWS_LLAMA_END,
};

static const mt_tensor_row mixtral_fused[] = {
    MT_ROWS_LLAMA_MIXER(LAYER),
    MT_ROW(MT_W_ROUTER, LAYER "mlp.gate.weight", MT_E, MT_D),
    ONE,
    MT_ROWS_LLAMA_END,
};

static const mt_expert_rules mixtral_experts = { .router = MT_ROUTE_SOFTMAX, .norm = true, .mlp_width = true };

const mt_family mt_family_mixtral = {
    .name = "mixtral",
    .model_types = { "mixtral" },
    .architectures = { "MixtralForCausalLM" },
    .covers = "Mixtral 8x7B and 8x22B",
    .window = MT_WINDOW_ALL,
    .shape = { .K = 8, .positions = 131072 },
    .default_eps = 1e-5,
    .default_theta = 1000000,
    .rope = MT_ROPE_HALF,
    .tensors = mixtral,
    .other_tensors = mixtral_fused,
    .experts = &mixtral_experts,
};

/* -- minimax_m2: norms over all heads, part of each head rotates, a correction bias ------------------ */

#define MINIMAX_MIXER                                                                                                            \
    MT_ROWS_EMBED, MT_ROWS_NORM1(LAYER), MT_ROWS_QKV(LAYER "self_attn."),                                                        \
        MT_ROW(MT_W_Q_NORM, LAYER "self_attn.q_norm.weight", MT_H_DH),                                                           \
        MT_ROW(MT_W_K_NORM, LAYER "self_attn.k_norm.weight", MT_K_DH), MT_ROWS_O(LAYER "self_attn.o_proj"), MT_ROWS_NORM2(LAYER)

static const mt_tensor_row minimax_m2[] = {
    MINIMAX_MIXER,
    MT_ROW(MT_W_ROUTER, LAYER "block_sparse_moe.gate.weight", MT_E, MT_D),
    MT_ROW_FIXED(MT_B_CHOICE, LAYER "block_sparse_moe.e_score_correction_bias", MT_E),
    EACH,
    MT_ROWS_LLAMA_END,
};

static const mt_tensor_row minimax_m2_fused[] = {
    MINIMAX_MIXER,
    MT_ROW(MT_W_ROUTER, LAYER "mlp.gate.weight", MT_E, MT_D),
    MT_ROW_FIXED(MT_B_CHOICE, LAYER "mlp.e_score_correction_bias", MT_E),
    ONE,
    MT_ROWS_LLAMA_END,
};

static const mt_expert_rules minimax_m2_experts = {
    .router = MT_ROUTE_SIGMOID, .norm = true, .choice_bias = true, .mlp_width = true
};

static mt_rc read_minimax_m2(mt_config *c, const mt_keys *k)
{
    MT_TRY(mt_json_i64(k->doc, "rotary_dim", c->rope.dr, &c->rope.dr, k->path, k->err));
    if (c->rope.dr < 2 || c->rope.dr % 2 || c->rope.dr > c->Dh)
        return mt_fail(k->err, MT_ERANGE, "%s: \"rotary_dim\" is %lld of head_dim=%lld; an even number of columns expected",
                       k->path, (long long)c->rope.dr, (long long)c->Dh);
    return MT_OK;
}

const mt_family mt_family_minimax_m2 = {
    .name = "minimax_m2",
    .model_types = { "minimax_m2" },
    .architectures = { "MiniMaxM2ForCausalLM" },
    .covers = "MiniMax-M2",
    .qk_norm = true,
    .qk_norm_whole = true,
    .shape = { .K = 8, .positions = 196608 },
    .default_head_dim = 128,
    .default_eps = 1e-6,
    .default_theta = 5000000,
    .partial = true,
    .rope = MT_ROPE_HALF,
    .tensors = minimax_m2,
    .other_tensors = minimax_m2_fused,
    .experts = &minimax_m2_experts,
    .read = read_minimax_m2,
};

/* -- phimoe: LayerNorms, biases, the sparse mixer for a router --------------------------------------- */

static const mt_tensor_row phimoe_fused[] = {
    MT_ROWS_LLAMA_MIXER(LAYER),
    MT_ROW(MT_W_ROUTER, LAYER "mlp.router.weight", MT_E, MT_D),
    ONE,
    MT_ROWS_LLAMA_END,
};

static const mt_expert_rules phimoe_experts = { .router = MT_ROUTE_MIXER, .mlp_width = true };

/* Its longrope has one list of factors, and two lengths' factors on cos and sin. */
static mt_rc read_phimoe_rope(mt_config *c, const mt_keys *k)
{
    const mt_value *d = mt_value_get(k->doc, "rope_scaling");
    if (mt_json_missing(d)) d = mt_value_get(k->doc, "rope_parameters");
    if (c->rope.type != MT_ROPE_LONG) return MT_OK;
    MT_TRY(mt_json_f64(d, "short_mscale", 1, &c->rope.attention_factor, k->path, k->err));
    MT_TRY(mt_json_f64(d, "long_mscale", 1, &c->rope.long_attention_factor, k->path, k->err));
    for (int64_t i = 0; i < c->rope.dr / 2; i++) c->rope.long_factor[i] = c->rope.short_factor[i];
    return MT_OK;
}

static mt_rc read_phimoe(mt_config *c, const mt_keys *k)
{
    MT_TRY(mt_json_bool(k->doc, "lm_head_bias", false, &c->head_bias, k->path, k->err));
    MT_TRY(mt_json_f64(k->doc, "router_jitter_noise", 0.01, &c->moe.jitter, k->path, k->err));
    if (c->layers[0].T != 2)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"num_experts_per_tok\" is %lld; this router chooses 2", k->path,
                       (long long)c->layers[0].T);
    c->notice = "phimoe's router works as in evaluation: when transformers trains, it draws experts at random";
    return read_phimoe_rope(c, k);
}

const mt_family mt_family_phimoe = {
    .name = "phimoe",
    .model_types = { "phimoe" },
    .architectures = { "PhiMoEForCausalLM", "PhimoeForCausalLM" },
    .covers = "Phi-3.5-MoE (the router as in evaluation)",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .layer_norm = true,
    .norm_bias = true,
    .window = MT_WINDOW_ALL,
    .shape = { .K = 8, .positions = 131072 },
    .default_eps = 1e-5,
    .default_theta = 1000000,
    .rope = MT_ROPE_HALF,
    .tensors = mixtral,
    .other_tensors = phimoe_fused,
    .experts = &phimoe_experts,
    .read = read_phimoe,
};
