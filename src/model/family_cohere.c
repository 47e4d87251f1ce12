/* cohere, cohere2: attention and mlp in parallel after one LayerNorm without bias; logits scaled.  The second rotates only where
 * it has windows. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

/* The usual names; the norms of Command R+ have a row for each head. */
static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROW(MT_W_Q_NORM, LAYER "self_attn.q_norm.weight", MT_H, MT_DH),
    MT_ROW(MT_W_K_NORM, LAYER "self_attn.k_norm.weight", MT_K, MT_DH),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc read_cohere(mt_config *c, const mt_keys *k)
{
    MT_TRY(mt_json_f64(k->doc, "logit_scale", 0.0625, &c->logit_scale, k->path, k->err));
    MT_TRY(mt_json_bool(k->doc, "use_qk_norm", false, &c->qk_norm, k->path, k->err));
    c->qk_layer_norm = c->qk_norm_own = c->qk_norm;
    if (c->logit_scale == 0) return mt_fail(k->err, MT_ERANGE, "%s: \"logit_scale\" is 0", k->path);
    if (k->wrapped && c->logit_scale != 1)
        c->notice =
            "logits are multiplied by logit_scale as in the text model; transformers does not do so inside aya_vision and "
            "cohere2_vision";
    return MT_OK;
}

static mt_rc read_cohere2(mt_config *c, const mt_keys *k)
{
    for (int64_t i = 0; i < c->L; i++)
        if (!c->layers[i].window) c->layers[i].rope = MT_LAYER_NOPE;
    return read_cohere(c, k);
}

const mt_family mt_family_cohere = {
    .name = "cohere",
    .model_types = { "cohere" },
    .architectures = { "CohereForCausalLM" },
    .covers = "Command R and R+, Aya 23 and Aya Expanse",
    .telling = { "logit_scale", "use_qk_norm" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .layer_norm = true,
    .form = MT_BLOCK_ONE_NORM,
    .shape = { .positions = 8192 },
    .own_keys = { "layer_norm_eps" },
    .default_eps = 1e-5,
    .default_pad = MT_PAD(0),
    .default_theta = 500000,
    .default_tied = true,
    .rope = MT_ROPE_PAIR,
    .tensors = tensors,
    .read = read_cohere,
};

const mt_family mt_family_cohere2 = {
    .name = "cohere2",
    .model_types = { "cohere2" },
    .architectures = { "Cohere2ForCausalLM" },
    .covers = "Command R7B, Command A",
    .telling = { "logit_scale", "sliding_window", "sliding_window_pattern" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .layer_norm = true,
    .form = MT_BLOCK_ONE_NORM,
    .window = MT_WINDOW_PATTERN,
    .default_window = 4096,
    .window_pattern = 4,
    .shape = { .positions = 8192 },
    .own_keys = { "layer_norm_eps" },
    .default_eps = 1e-5,
    .default_pad = MT_PAD(0),
    .default_theta = 10000,
    .default_tied = true,
    .rope = MT_ROPE_PAIR,
    .tensors = tensors,
    .read = read_cohere2,
};
