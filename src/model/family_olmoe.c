/* olmoe: norms over all query and all key heads, experts in every layer. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."
#define OF_EXPERTS(ROWS)                                                                                                         \
    MT_ROWS_EMBED, MT_ROWS_NORM1(LAYER), MT_ROWS_QKV(LAYER "self_attn."),                                                        \
        MT_ROW(MT_W_Q_NORM, LAYER "self_attn.q_norm.weight", MT_H_DH),                                                           \
        MT_ROW(MT_W_K_NORM, LAYER "self_attn.k_norm.weight", MT_K_DH), MT_ROWS_O(LAYER "self_attn.o_proj"),                      \
        MT_ROWS_NORM2(LAYER), MT_ROW(MT_W_ROUTER, LAYER "mlp.gate.weight", MT_E, MT_D), ROWS, MT_ROWS_LLAMA_END

static const mt_tensor_row tensors[] = { OF_EXPERTS(MT_ROWS_EXPERTS_USUAL(LAYER)) };
static const mt_tensor_row fused[] = { OF_EXPERTS(MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)) };

static const mt_expert_rules experts = { .router = MT_ROUTE_SOFTMAX, .norm_key = true, .mlp_width = true };

static mt_rc family_olmoe_read(mt_config *c, const mt_keys *k)
{
    (void)c;
    if (!mt_json_missing(mt_value_get(k->doc, "clip_qkv")))
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"clip_qkv\" is set; no published model has it, and it is not supported",
                       k->path);
    return MT_OK;
}

const mt_family mt_family_olmoe = {
    .name = "olmoe",
    .model_types = { "olmoe" },
    .architectures = { "OlmoeForCausalLM" },
    .covers = "OLMoE-1B-7B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .qk_norm_whole = true,
    .shape = { .positions = 4096 },
    .default_eps = 1e-5,
    .default_pad = MT_PAD(1),
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .other_tensors = fused,
    .experts = &experts,
    .read = family_olmoe_read,
};
