/* stablelm: LayerNorms, a quarter of each head rotates; by config attention and mlp side by side. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

/* The usual names; each head of the 12B has its own norm, in its own tensor. */
static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROW_PACKED(MT_W_Q_NORM, LAYER "self_attn.q_layernorm.norms.%h.weight", MT_PACK_APART, MT_H_DH),
    MT_ROW_PACKED(MT_W_K_NORM, LAYER "self_attn.k_layernorm.norms.%h.weight", MT_PACK_APART, MT_K_DH),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc family_stablelm_read(mt_config *c, const mt_keys *k)
{
    bool parallel;
    MT_TRY(mt_json_bool(k->doc, "use_qkv_bias", false, &c->qkv_bias, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "use_parallel_residual", false, &parallel, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "qk_layernorm", false, &c->qk_norm, k->path, k->err));
    c->qk_layer_norm = c->qk_norm_own = c->qk_norm;
    if (parallel) c->form = MT_BLOCK_ONE_NORM;
    return MT_OK;
}

const mt_family mt_family_stablelm = {
    .name = "stablelm",
    .model_types = { "stablelm", "stablelm_epoch" },
    .architectures = { "StableLmForCausalLM", "StableLMEpochForCausalLM" },
    .covers = "StableLM 3B, StableLM 2 1.6B and 12B, Stable Code 3B",
    .telling = { "use_qkv_bias", "use_parallel_residual", "qk_layernorm" },
    .layer_norm = true,
    .norm_bias = true,
    .shape = { .positions = 4096 },
    .own_keys = { "layer_norm_eps" },
    .default_eps = 1e-5,
    .default_theta = 10000,
    .default_partial = 0.25,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .read = family_stablelm_read,
};
