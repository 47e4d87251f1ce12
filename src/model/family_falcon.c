/* falcon: LayerNorms, plain mlps, q, k, v in one tensor by key/value head.  The 7B has one key/value head and one norm for both
 * branches, the newer ones groups and two norms; the small ones came with ALiBi. */
#include "model/family_rows.h"

#include <math.h>

#define LAYER "transformer.h.%d."

#define ATTENTION                                                                                                                \
    MT_ROWS_QKV_FUSED(LAYER "self_attention.query_key_value.weight", LAYER "self_attention.query_key_value.bias",                \
                      MT_PACK_HEADS),                                                                                            \
        MT_ROWS_O(LAYER "self_attention.dense")
#define MLP_AND_HEAD                                                                                                             \
    MT_ROWS_UP(LAYER "mlp.dense_h_to_4h"), MT_ROWS_DOWN(LAYER "mlp.dense_4h_to_h"), MT_ROWS_FINAL_NORM("transformer.ln_f"),      \
        MT_ROWS_HEAD("lm_head"), MT_ROWS_END

static const mt_tensor_row usual_names[] = {
    MT_ROW(MT_W_EMBED, "transformer.word_embeddings.weight", MT_V, MT_D),
    MT_ROWS_NORM1(LAYER),
    ATTENTION,
    MT_ROWS_NORM2(LAYER),
    MLP_AND_HEAD,
};

static const mt_tensor_row two_norms[] = {
    MT_ROW(MT_W_EMBED, "transformer.word_embeddings.weight", MT_V, MT_D),
    MT_ROW(MT_W_NORM1, LAYER "ln_attn.weight", MT_D),
    MT_ROW(MT_B_NORM1, LAYER "ln_attn.bias", MT_D),
    ATTENTION,
    MT_ROW(MT_W_NORM2, LAYER "ln_mlp.weight", MT_D),
    MT_ROW(MT_B_NORM2, LAYER "ln_mlp.bias", MT_D),
    MLP_AND_HEAD,
};

static mt_rc family_falcon_read(mt_config *c, const mt_keys *k);

#define FALCON(TENSORS)                                                                                                          \
    {                                                                                                                            \
        .name = "falcon", .model_types = { "falcon", "RefinedWeb", "RefinedWebModel" },                                          \
        .architectures = { "FalconForCausalLM", "RWForCausalLM" }, .covers = "Falcon 7B, 40B, 180B, 11B, Falcon-RW 1B and 7B",   \
        .telling = { "new_decoder_architecture", "multi_query", "parallel_attn", "alibi", "n_head" },                            \
        .qkv_bias = MT_BIAS_BY_KEY, .o_bias = MT_BIAS_BY_KEY, .mlp_bias = MT_BIAS_BY_KEY, .bias_key = "bias",                    \
        .layer_norm = true, .norm_bias = true, .plain_mlp = true, .default_act = MT_ACT_GELU_ERF,                                \
        .own_keys = { "activation", "layer_norm_epsilon" }, .default_mlp_factor = 4, .default_eps = 1e-5,                        \
        .default_theta = 10000, .default_tied = true, .rope = MT_ROPE_HALF, .prefix = "transformer.", .tensors = TENSORS,        \
        .read = family_falcon_read                                                                                               \
    }

const mt_family mt_family_falcon = FALCON(usual_names);
static const mt_family falcon_two_norms = FALCON(two_norms);

static mt_rc family_falcon_read(mt_config *c, const mt_keys *k)
{
    bool grouped, multi_query, parallel, alibi;
    int64_t n_norms;
    MT_TRY(mt_json_bool(k->doc, "new_decoder_architecture", false, &grouped, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "multi_query", true, &multi_query, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "parallel_attn", true, &parallel, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "alibi", false, &alibi, k->path, k->err));
    MT_TRY(mt_json_i64(k->doc, "num_ln_in_parallel_attn", grouped ? 2 : 1, &n_norms, k->path, k->err));
    if (!grouped) c->K = multi_query ? 1 : c->H;
    if (grouped && !parallel)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: \"new_decoder_architecture\" without \"parallel_attn\"", k->path);
    c->form = grouped && n_norms == 2 ? MT_BLOCK_PARALLEL : MT_BLOCK_ONE_NORM;
    if (!parallel) c->form = MT_BLOCK_SERIAL;
    if (c->form == MT_BLOCK_PARALLEL) c->family = &falcon_two_norms;
    if (!alibi) return MT_OK;
    mt_config_no_rope(c);
    c->alibi = 1.0 / sqrt((double)c->Dh); /* added before the scores are scaled */
    return MT_OK;
}
