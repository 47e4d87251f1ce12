/* llama4: layers that rotate cut documents into chunks and norm query and key heads after the rotation, without weights; every
 * fourth layer has no positions, sees the whole document and scales its queries by position.  Experts are in all layers or every
 * second one, beside a shared one; a routing weight is one of what its expert reads.  In the files their matrices are input
 * first. */
#include "model/family_rows.h"

#include <string.h>

#define LAYER "model.layers.%d."
#define FFN   LAYER "feed_forward."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_GATE_UP(FFN),
    MT_ROWS_DOWN(FFN "down_proj"),
    MT_ROW(MT_W_ROUTER, FFN "router.weight", MT_E, MT_D),
    MT_ROW_TURNED(MT_W_E_GATE, FFN "experts.gate_up_proj", MT_PACK_EXPERTS, MT_I, MT_D),
    MT_ROW_TURNED(MT_W_E_UP, FFN "experts.gate_up_proj", MT_PACK_EXPERTS, MT_I, MT_D),
    MT_ROW_TURNED(MT_W_E_DOWN, FFN "experts.down_proj", MT_PACK_EXPERTS, MT_D, MT_I),
    MT_ROWS_SHARED(FFN "shared_expert."),
    MT_ROWS_LLAMA_END,
};

static const mt_expert_rules experts = {
    .router = MT_ROUTE_LOGIT_SIGMOID, .weigh_input = true, .mlp_width = true, .layers = MT_SPARSE_LIST, .shared = MT_SHARED_MLP
};

enum { MOST = 1 << 24 };

static mt_rc read_size(const mt_keys *k, const char *key, int64_t fallback, int64_t *out)
{
    return mt_json_i64_in(k->doc, key, fallback, 1, MOST, out, k->path, k->err);
}

/* Of layers without positions.  Published files have true, or the number 4. */
static mt_rc read_temperature(mt_config *c, const mt_keys *k)
{
    const mt_value *on = mt_value_get(k->doc, "attn_temperature_tuning");
    if (!mt_json_missing(on) && (mt_value_is_false(on) || (mt_value_is_number(on) && mt_value_number(on) == 0))) return MT_OK;
    c->rope.q_shift = 1;
    MT_TRY(read_size(k, "floor_scale", 8192, &c->rope.q_period));
    return mt_json_f64(k->doc, "attn_scale", 0.1, &c->rope.q_beta, k->path, k->err);
}

static const char *type_of(const mt_value *types, int64_t layer)
{
    const mt_value *v = mt_value_at(types, (size_t)layer);
    return mt_value_has(v, MT_VALUE_STR) ? mt_json_string(v) : "";
}

/* layer_types, or else the layers that rotate are cut. */
static mt_rc read_chunks(mt_config *c, const mt_keys *k)
{
    const mt_value *types = mt_value_get(k->doc, "layer_types"), *size = mt_value_get(k->doc, "attention_chunk_size");
    const bool listed = !mt_json_missing(types);
    int64_t rows = 0;
    if (!size || !mt_json_missing(size)) MT_TRY(read_size(k, "attention_chunk_size", 8192, &rows)); /* null: none */
    if (listed && (!mt_value_has(types, MT_VALUE_LIST) || mt_value_items(types) < (size_t)c->L))
        return mt_fail(k->err, MT_EFORMAT, "%s: \"layer_types\" should list all %lld layers", k->path, (long long)c->L);
    for (int64_t i = 0; i < c->L; i++) {
        const bool rotates = c->layers[i].rope != MT_LAYER_NOPE;
        const char *type = rotates ? "chunked_attention" : "full_attention";
        if (listed) type = type_of(types, i);
        if (strcmp(type, "chunked_attention") == 0)
            c->layers[i].chunk = rows;
        else if (strcmp(type, "full_attention") != 0)
            return mt_fail(k->err, MT_EUNSUPPORTED,
                           "%s: layer %lld is of type \"%s\"; only chunked_attention and full_attention are supported", k->path,
                           (long long)i, type);
        c->layers[i].no_qk_norm = !rotates;
        c->layers[i].no_q_scale = rotates;
    }
    return MT_OK;
}

static mt_rc family_llama4_read(mt_config *c, const mt_keys *k)
{
    MT_TRY(read_size(k, "intermediate_size_mlp", 16384, &c->F)); /* of layers without experts */
    MT_TRY(mt_json_bool(k->doc, "use_qk_norm", true, &c->qk_norm, k->path, k->err));
    c->qk_norm_bare = c->qk_norm_last = c->qk_norm;
    MT_TRY(read_temperature(c, k));
    return read_chunks(c, k);
}

const mt_family mt_family_llama4 = {
    .name = "llama4",
    .model_types = { "llama4_text", "llama4" },
    .architectures = { "Llama4ForCausalLM", "Llama4ForConditionalGeneration" },
    .covers = "Llama 4 Scout and Maverick (the text model; vision towers are left as they are)",
    .telling = { "attention_chunk_size", "interleave_moe_layer_step", "intermediate_size_mlp", "floor_scale", "attn_scale" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .default_head_dim = 128,
    .shape = { .D = 5120, .F = 8192, .L = 48, .H = 40, .K = 8, .V = 202048, .positions = 131072 },
    .default_eps = 1e-5,
    .default_theta = 500000,
    .nope_interval = 4,
    .rope = MT_ROPE_PAIR,
    .tensors = tensors,
    .experts = &experts,
    .read = family_llama4_read,
};
