/* qwen3_5, qwen3_5_moe, qwen3_next: three of four layers mix by a gated delta net, the others by attention whose output is gated;
 * norm weights are stored as w - 1, but for the delta net's own.  The first has an mlp in every layer, the others experts. */
#include "model/family_rows.h"
#include "model/part.h"

#include <string.h>

enum { MAX_HEADS = 4096, MAX_HEAD = 1024 };

/* -- keys ------------------------------------------------------------------------------------------ */

static mt_rc read_size(const mt_keys *k, const char *key, int64_t fallback, int64_t least, int64_t most, int64_t *out)
{
    return mt_json_i64_in(k->doc, key, fallback, least, most, out, k->path, k->err);
}

static mt_rc read_delta_shape(mt_delta_shape *d, const mt_keys *k)
{
    MT_TRY(read_size(k, "linear_num_value_heads", 32, 1, MAX_HEADS, &d->H));
    MT_TRY(read_size(k, "linear_num_key_heads", 16, 1, MAX_HEADS, &d->K));
    MT_TRY(read_size(k, "linear_key_head_dim", 128, 1, MAX_HEAD, &d->Dk));
    MT_TRY(read_size(k, "linear_value_head_dim", 128, 1, MAX_HEAD, &d->Dv));
    MT_TRY(read_size(k, "linear_conv_kernel_dim", 4, MT_CONV_LEAST, MT_CONV_MOST, &d->width));
    if (d->H % d->K)
        return mt_fail(k->err, MT_EFORMAT, "%s: linear_num_value_heads=%lld is not a multiple of linear_num_key_heads=%lld",
                       k->path, (long long)d->H, (long long)d->K);
    return MT_OK;
}

/* layer_types, or every n-th layer has attention. */
static mt_rc read_mixers(mt_config *c, const mt_keys *k)
{
    const mt_value *types = mt_value_get(k->doc, "layer_types");
    const bool listed = !mt_json_missing(types);
    int64_t interval;
    MT_TRY(read_size(k, "full_attention_interval", 4, 1, INT32_MAX, &interval));
    if (listed && (!mt_value_has(types, MT_VALUE_LIST) || mt_value_items(types) < (size_t)c->L))
        return mt_fail(k->err, MT_EFORMAT, "%s: \"layer_types\" should list all %lld layers", k->path, (long long)c->L);
    for (int64_t i = 0; i < c->L; i++) {
        const mt_value *v = mt_value_at(types, (size_t)i);
        const char *type = (i + 1) % interval ? "linear_attention" : "full_attention";
        if (listed) type = mt_value_has(v, MT_VALUE_STR) ? mt_json_string(v) : "";
        if (strcmp(type, "linear_attention") == 0)
            c->layers[i].mixer = &mt_mixer_delta;
        else if (strcmp(type, "full_attention") != 0)
            return mt_fail(k->err, MT_EUNSUPPORTED,
                           "%s: layer %lld is of type \"%s\"; only linear_attention and full_attention are supported", k->path,
                           (long long)i, type);
    }
    return MT_OK;
}

static mt_rc family_qwen3_5_read(mt_config *c, const mt_keys *k)
{
    c->o_gate = true;
    if (c->act != MT_ACT_SILU)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: a gated delta net with an activation other than silu is not supported",
                       k->path);
    MT_TRY(read_delta_shape(&c->delta, k));
    return read_mixers(c, k);
}

/* -- tensors --------------------------------------------------------------------------------------- */

#define LAYER "model.layers.%d."
#define ATT   LAYER "self_attn."
#define DELTA LAYER "linear_attn."

#define START                                                                                                                    \
    MT_ROWS_EMBED, MT_ROW(MT_W_NORM1, LAYER "input_layernorm.weight", MT_D), MT_ROWS_QKV_GATED(ATT), MT_ROWS_QK_NORM(ATT),       \
        MT_ROWS_O(ATT "o_proj")
/* One tensor for q, k and v, others for the rest; or two tensors, by key head. */
#define SPLIT                                                                                                                    \
    MT_ROW_PACKED(MT_W_DELTA_Q, DELTA "in_proj_qkv.weight", MT_PACK_ROWS, MT_DELTA_KEYS, MT_D),                                  \
        MT_ROW_PACKED(MT_W_DELTA_K, DELTA "in_proj_qkv.weight", MT_PACK_ROWS, MT_DELTA_KEYS, MT_D),                              \
        MT_ROW_PACKED(MT_W_DELTA_V, DELTA "in_proj_qkv.weight", MT_PACK_ROWS, MT_DELTA_VALUES, MT_D),                            \
        MT_ROW(MT_W_DELTA_Z, DELTA "in_proj_z.weight", MT_DELTA_VALUES, MT_D),                                                   \
        MT_ROW(MT_W_DELTA_B, DELTA "in_proj_b.weight", MT_DELTA_H, MT_D),                                                        \
        MT_ROW(MT_W_DELTA_A, DELTA "in_proj_a.weight", MT_DELTA_H, MT_D)
#define GROUPED                                                                                                                  \
    MT_ROW_PACKED(MT_W_DELTA_Q, DELTA "in_proj_qkvz.weight", MT_PACK_DELTA_HEADS, MT_DELTA_KEYS, MT_D),                          \
        MT_ROW_PACKED(MT_W_DELTA_K, DELTA "in_proj_qkvz.weight", MT_PACK_DELTA_HEADS, MT_DELTA_KEYS, MT_D),                      \
        MT_ROW_PACKED(MT_W_DELTA_V, DELTA "in_proj_qkvz.weight", MT_PACK_DELTA_HEADS, MT_DELTA_VALUES, MT_D),                    \
        MT_ROW_PACKED(MT_W_DELTA_Z, DELTA "in_proj_qkvz.weight", MT_PACK_DELTA_HEADS, MT_DELTA_VALUES, MT_D),                    \
        MT_ROW_PACKED(MT_W_DELTA_B, DELTA "in_proj_ba.weight", MT_PACK_DELTA_HEADS, MT_DELTA_H, MT_D),                           \
        MT_ROW_PACKED(MT_W_DELTA_A, DELTA "in_proj_ba.weight", MT_PACK_DELTA_HEADS, MT_DELTA_H, MT_D)
#define END MT_ROWS_DELTA(DELTA), MT_ROW(MT_W_NORM2, LAYER "post_attention_layernorm.weight", MT_D), MT_ROWS_MLP(LAYER)
#define OF_EXPERTS(ROWS)                                                                                                         \
    MT_ROW(MT_W_ROUTER, LAYER "mlp.gate.weight", MT_E, MT_D), ROWS, MT_ROWS_SHARED(LAYER "mlp.shared_expert."),                  \
        MT_ROW(MT_W_S_SWITCH, LAYER "mlp.shared_expert_gate.weight", MT_ONE, MT_D)

static const mt_tensor_row dense[] = { START, SPLIT, END, MT_ROWS_LLAMA_END };
static const mt_tensor_row split[] = { START, SPLIT, END, OF_EXPERTS(MT_ROWS_EXPERTS_USUAL(LAYER)), MT_ROWS_LLAMA_END };
static const mt_tensor_row split_fused[] = { START, SPLIT, END, OF_EXPERTS(MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)),
                                             MT_ROWS_LLAMA_END };
static const mt_tensor_row grouped[] = { START, GROUPED, END, OF_EXPERTS(MT_ROWS_EXPERTS_USUAL(LAYER)), MT_ROWS_LLAMA_END };
static const mt_tensor_row grouped_fused[] = { START, GROUPED, END, OF_EXPERTS(MT_ROWS_EXPERTS_FUSED_USUAL(LAYER)),
                                               MT_ROWS_LLAMA_END };

#define DELTA_KEYS                                                                                                               \
    {                                                                                                                            \
        "linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim",                        \
            "linear_conv_kernel_dim"                                                                                             \
    }

const mt_family mt_family_qwen3_5 = {
    .name = "qwen3_5",
    .model_types = { "qwen3_5_text", "qwen3_5" },
    .architectures = { "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration" },
    .covers = "Qwen3.5 0.8B, 2B, 4B, 9B and 27B (the text model; vision towers and MTP layers are left as they are)",
    .telling = DELTA_KEYS,
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .norm_one_plus = true,
    .default_act = MT_ACT_SILU,
    .default_head_dim = 256,
    .shape = { .D = 4096, .F = 12288, .L = 32, .H = 16, .K = 4, .V = 248320, .positions = 32768 },
    .default_eps = 1e-6,
    .default_theta = 10000,
    .default_partial = 0.25,
    .rope = MT_ROPE_HALF,
    .tensors = dense,
    .read = family_qwen3_5_read,
};

static const mt_expert_rules every_layer = {
    .router = MT_ROUTE_SOFTMAX, .norm = true, .shared = MT_SHARED_WIDTH, .default_shared = 512, .shared_switch = true
};

const mt_family mt_family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .model_types = { "qwen3_5_moe_text", "qwen3_5_moe" },
    .architectures = { "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration" },
    .covers = "Qwen3.5 35B-A3B, 122B-A10B and 397B-A17B (the text model; vision towers and MTP layers are left as they are)",
    .telling = DELTA_KEYS,
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .norm_one_plus = true,
    .default_act = MT_ACT_SILU,
    .default_head_dim = 256,
    .shape = { .D = 2048, .F = 512, .L = 40, .H = 16, .K = 2, .V = 248320, .positions = 32768 }, /* F: no layer has an mlp */
    .default_eps = 1e-6,
    .default_theta = 10000,
    .default_partial = 0.25,
    .rope = MT_ROPE_HALF,
    .tensors = split,
    .other_tensors = split_fused,
    .experts = &every_layer,
    .read = family_qwen3_5_read,
};

static const mt_expert_rules by_step = { .router = MT_ROUTE_SOFTMAX,
                                         .norm = true,
                                         .norm_key = true,
                                         .layers = MT_SPARSE_STEP,
                                         .shared = MT_SHARED_WIDTH,
                                         .default_shared = 512,
                                         .shared_switch = true };

const mt_family mt_family_qwen3_next = {
    .name = "qwen3_next",
    .model_types = { "qwen3_next" },
    .architectures = { "Qwen3NextForCausalLM" },
    .covers = "Qwen3-Next 80B-A3B (MTP layers are left as they are)",
    .telling = DELTA_KEYS,
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .norm_one_plus = true,
    .default_act = MT_ACT_SILU,
    .default_head_dim = 256,
    .shape = { .D = 2048, .F = 5632, .L = 48, .H = 16, .K = 2, .V = 151936, .positions = 32768 },
    .default_eps = 1e-6,
    .default_theta = 10000,
    .default_partial = 0.25,
    .rope = MT_ROPE_HALF,
    .tensors = grouped,
    .other_tensors = grouped_fused,
    .experts = &by_step,
    .read = family_qwen3_5_read,
};
