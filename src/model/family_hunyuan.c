/* hunyuan: the llama block with norms of query and key heads after their rotation, and a rotary base stretched by "alpha".
 * hunyuan_v1_moe: experts and a shared one in every layer, an fp32 router. */
#include "model/family_rows.h"

#include <math.h>

#define LAYER "model.layers.%d."
#define MIXER                                                                                                                    \
    MT_ROWS_EMBED, MT_ROWS_NORM1(LAYER), MT_ROWS_QKV(LAYER "self_attn."),                                                        \
        MT_ROW(MT_W_Q_NORM, LAYER "self_attn.query_layernorm.weight", MT_DH),                                                    \
        MT_ROW(MT_W_K_NORM, LAYER "self_attn.key_layernorm.weight", MT_DH), MT_ROWS_O(LAYER "self_attn.o_proj"),                 \
        MT_ROWS_NORM2(LAYER)
#define OF_EXPERTS(ROWS)                                                                                                         \
    MIXER, MT_ROW_EXACT(MT_W_ROUTER, LAYER "mlp.gate.wg.weight", MT_E, MT_D), ROWS, MT_ROWS_SHARED(LAYER "mlp.shared_mlp."),     \
        MT_ROWS_LLAMA_END

static const mt_tensor_row tensors[] = { MIXER, MT_ROWS_GATE_UP(LAYER "mlp."), MT_ROWS_DOWN(LAYER "mlp.down_proj"),
                                         MT_ROWS_LLAMA_END };
static const mt_tensor_row of_experts[] = { OF_EXPERTS(MT_ROWS_EXPERTS_USUAL(LAYER)) };
static const mt_tensor_row fused[] = { OF_EXPERTS(MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)) };

static const mt_expert_rules experts = { .router = MT_ROUTE_SOFTMAX, .norm = true, .mlp_width = true, .shared = MT_SHARED_MLP };

/* "dynamic" with an alpha is static: only the base grows. */
static mt_rc read_hunyuan(mt_config *c, const mt_keys *k)
{
    const mt_value *d = mt_value_get(k->doc, "rope_scaling");
    double alpha, width = (double)c->rope.dr;
    if (mt_json_missing(d)) d = mt_value_get(k->doc, "rope_parameters");
    if (c->rope.type != MT_ROPE_DYNAMIC) return MT_OK;
    MT_TRY(mt_json_f64(d, "alpha", 0, &alpha, k->path, k->err));
    if (alpha == 0) return MT_OK;
    if (!(alpha > 0 && alpha < 1e9) || width <= 2)
        return mt_fail(k->err, MT_ERANGE, "%s: rope scaling with \"alpha\" %g over %g numbers of a head makes no sense", k->path,
                       alpha, width);
    c->rope.theta *= pow(alpha, width / (width - 2));
    c->rope.type = MT_ROPE_DEFAULT;
    c->rope.factor = 1;
    return MT_OK;
}

const mt_family mt_family_hunyuan = {
    .name = "hunyuan",
    .model_types = { "hunyuan_v1_dense" },
    .architectures = { "HunYuanDenseV1ForCausalLM" },
    .covers = "Hunyuan 0.5B, 1.8B, 4B and 7B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .qk_norm_last = true,
    .default_eps = 1e-5,
    .default_pad = MT_PAD(0),
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .read = read_hunyuan,
};

const mt_family mt_family_hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe",
    .model_types = { "hunyuan_v1_moe" },
    .architectures = { "HunYuanMoEV1ForCausalLM" },
    .covers = "Hunyuan-A13B",
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .qk_norm_last = true,
    .own_keys = { "num_experts_per_tok", "moe_topk" },
    .default_eps = 1e-5,
    .default_pad = MT_PAD(0),
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = of_experts,
    .other_tensors = fused,
    .experts = &experts,
    .read = read_hunyuan,
};
