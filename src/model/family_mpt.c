/* mpt: ALiBi, LayerNorms without biases, plain gelu mlps, q, k, v in one tensor and by key bounded. */
#include "model/family_rows.h"

#define LAYER "transformer.blocks.%d."

static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "transformer.wte.weight", MT_V, MT_D),
    MT_ROW(MT_W_NORM1, LAYER "norm_1.weight", MT_D),
    MT_ROWS_QKV_FUSED(LAYER "attn.Wqkv.weight", LAYER "attn.Wqkv.bias", MT_PACK_ROWS),
    MT_ROWS_O(LAYER "attn.out_proj"),
    MT_ROW(MT_W_NORM2, LAYER "norm_2.weight", MT_D),
    MT_ROWS_UP(LAYER "ffn.up_proj"),
    MT_ROWS_DOWN(LAYER "ffn.down_proj"),
    MT_ROWS_FINAL_NORM("transformer.norm_f"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

/* transformers computes ALiBi with slopes down to 2^-8, ignoring the keys; other values are refused. */
static mt_rc refuse_variants(const mt_keys *k, const mt_value *attention)
{
    bool alibi, qk_norm, prefix, no_bias;
    int64_t most, ratio;
    MT_TRY(mt_json_bool(attention, "alibi", true, &alibi, k->path, k->err));
    MT_TRY(mt_json_bool(attention, "qk_ln", false, &qk_norm, k->path, k->err));
    MT_TRY(mt_json_bool(attention, "prefix_lm", false, &prefix, k->path, k->err));
    MT_TRY(mt_json_i64(attention, "alibi_bias_max", 8, &most, k->path, k->err));
    MT_TRY(mt_json_i64(k->doc, "expansion_ratio", 4, &ratio, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "no_bias", true, &no_bias, k->path, k->err));
    const char *key = NULL;
    if (!alibi) key = "alibi";
    if (qk_norm) key = "qk_ln";
    if (prefix) key = "prefix_lm";
    if (most != 8) key = "alibi_bias_max";
    if (ratio != 4) key = "expansion_ratio";
    if (!no_bias) key = "no_bias";
    if (!key) return MT_OK;
    return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"%s\" other than the published models' is not supported", k->path, key);
}

static mt_rc read_mpt(mt_config *c, const mt_keys *k)
{
    const mt_value *attention = mt_value_get(k->doc, "attn_config"); /* missing: the defaults */
    MT_TRY(refuse_variants(k, attention));
    MT_TRY(mt_json_f64(attention, "softmax_scale", c->attention_scale, &c->attention_scale, k->path, k->err));
    MT_TRY(mt_json_f64(attention, "clip_qkv", 0, &c->clip_qkv, k->path, k->err));
    if (!(c->clip_qkv >= 0))
        return mt_fail(k->err, MT_ERANGE, "%s: \"clip_qkv\" is %g; a positive number or null expected", k->path, c->clip_qkv);
    c->alibi = 1;
    c->act = MT_ACT_GELU_ERF; /* transformers reads no key for it */
    return MT_OK;
}

const mt_family mt_family_mpt = {
    .name = "mpt",
    .model_types = { "mpt" },
    .architectures = { "MptForCausalLM", "MPTForCausalLM" },
    .covers = "MPT 7B and 30B, Replit's and others' of that block",
    .telling = { "attn_config", "expansion_ratio" },
    .layer_norm = true,
    .plain_mlp = true,
    .default_act = MT_ACT_GELU_ERF,
    .default_mlp_factor = 4,
    .own_keys = { "layer_norm_epsilon" },
    .default_eps = 1e-5,
    .default_tied = true,
    .prefix = "transformer.",
    .tensors = tensors,
    .read = read_mpt,
};
