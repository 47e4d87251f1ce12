/* granite: the llama block with four multipliers; hyperclovax: and a norm after each branch; granitemoe and granitemoeshared:
 * experts in every layer, all of a layer in one tensor; beside them a shared one. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row post_norms[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROW(MT_W_POST1, LAYER "post_norm1.weight", MT_D),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROW(MT_W_POST2, LAYER "post_norm2.weight", MT_D),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

/* All but the attention's; *scaling: what logits_scaling says. */
static mt_rc read_multipliers(mt_config *c, const mt_keys *k, double *scaling)
{
    MT_TRY(mt_json_f64(k->doc, "embedding_multiplier", 1, &c->embed_scale, k->path, k->err));
    MT_TRY(mt_json_f64(k->doc, "residual_multiplier", 1, &c->residual_scale, k->path, k->err));
    MT_TRY(mt_json_f64(k->doc, "logits_scaling", 1, scaling, k->path, k->err));
    if (*scaling == 0 || c->residual_scale == 0) return mt_fail(k->err, MT_ERANGE, "%s: a multiplier of 0", k->path);
    return MT_OK;
}

static mt_rc read_granite(mt_config *c, const mt_keys *k)
{
    double divisor;
    MT_TRY(read_multipliers(c, k, &divisor));
    MT_TRY(mt_json_f64(k->doc, "attention_multiplier", 1, &c->attention_scale, k->path, k->err));
    c->logit_scale = 1 / divisor;
    return MT_OK;
}

static mt_rc read_hyperclovax(mt_config *c, const mt_keys *k)
{
    bool post;
    MT_TRY(read_multipliers(c, k, &c->logit_scale));
    MT_TRY(mt_json_f64(k->doc, "attention_multiplier", c->attention_scale, &c->attention_scale, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "use_post_norm", true, &post, k->path, k->err));
    c->norms = post ? MT_NORMS_SANDWICH : MT_NORMS_PRE;
    if (post && c->residual_scale != 1)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"residual_multiplier\" %g with \"use_post_norm\" is not supported", k->path,
                       c->residual_scale);
    return MT_OK;
}

const mt_family mt_family_granite = {
    .name = "granite",
    .model_types = { "granite" },
    .architectures = { "GraniteForCausalLM" },
    .covers = "Granite 3.0 to 3.3, 2B and 8B",
    .telling = { "embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
    .read = read_granite,
};

const mt_family mt_family_hyperclovax = {
    .name = "hyperclovax",
    .model_types = { "hyperclovax" },
    .architectures = { "HyperCLOVAXForCausalLM" },
    .covers = "HyperCLOVA X SEED Think 14B",
    .telling = { "embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier", "use_post_norm" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .norms = MT_NORMS_SANDWICH,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = post_norms,
    .read = read_hyperclovax,
};

static const mt_tensor_row with_experts[] = {
    MT_ROWS_LLAMA_MIXER(LAYER),
    MT_ROW(MT_W_ROUTER, LAYER "block_sparse_moe.router.layer.weight", MT_E, MT_D),
    MT_ROWS_EXPERTS_FUSED(LAYER "block_sparse_moe.input_linear.weight", LAYER "block_sparse_moe.output_linear.weight"),
    MT_ROW_PACKED(MT_W_S_GATE, LAYER "shared_mlp.input_linear.weight", MT_PACK_ROWS, MT_IS, MT_D),
    MT_ROW_PACKED(MT_W_S_UP, LAYER "shared_mlp.input_linear.weight", MT_PACK_ROWS, MT_IS, MT_D),
    MT_ROW(MT_W_S_DOWN, LAYER "shared_mlp.output_linear.weight", MT_D, MT_IS),
    MT_ROWS_LLAMA_END,
};

static const mt_expert_rules experts = { .router = MT_ROUTE_CHOSEN, .mlp_width = true };
static const mt_expert_rules experts_shared = { .router = MT_ROUTE_CHOSEN, .mlp_width = true, .shared = MT_SHARED_WIDTH };

const mt_family mt_family_granitemoe = {
    .name = "granitemoe",
    .model_types = { "granitemoe" },
    .architectures = { "GraniteMoeForCausalLM" },
    .covers = "Granite 3.0 and 3.1, 1B-A400M and 3B-A800M",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = with_experts,
    .experts = &experts,
    .read = read_granite,
};

const mt_family mt_family_granitemoeshared = {
    .name = "granitemoeshared",
    .model_types = { "granitemoeshared" },
    .architectures = { "GraniteMoeSharedForCausalLM" },
    .covers = "Granite MoE with a shared expert",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = with_experts,
    .experts = &experts_shared,
    .read = read_granite,
};
