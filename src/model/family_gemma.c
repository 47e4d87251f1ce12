/* gemma, gemma2, gemma3: weights stored as w - 1, embeddings scaled by sqrt(D), geglu.  The second adds norms after each branch,
 * soft-capping and alternating windows; the third drops the capping of scores for norms on q and k, and rotates sliding layers by
 * a separate base. */
#include "model/family_rows.h"

#include <math.h>

#define LAYER "model.layers.%d."

static const mt_tensor_row sandwich[] = {
    MT_ROWS_EMBED,
    MT_ROW(MT_W_NORM1, LAYER "input_layernorm.weight", MT_D),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_QK_NORM(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROW(MT_W_POST1, LAYER "post_attention_layernorm.weight", MT_D),
    MT_ROW(MT_W_NORM2, LAYER "pre_feedforward_layernorm.weight", MT_D),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROW(MT_W_POST2, LAYER "post_feedforward_layernorm.weight", MT_D),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static const mt_tensor_row before_only[] = {
    MT_ROWS_EMBED,
    MT_ROW(MT_W_NORM1, LAYER "input_layernorm.weight", MT_D),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROW(MT_W_NORM2, LAYER "pre_feedforward_layernorm.weight", MT_D),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc read_embedding(mt_config *c)
{
    c->embed_scale = sqrt((double)c->D);
    c->embed_scale_rounds = true;
    return MT_OK;
}

static mt_rc read_gemma(mt_config *c, const mt_keys *k)
{
    (void)k;
    if (c->act == MT_ACT_GELU_ERF) c->act = MT_ACT_GELU_TANH; /* the first releases say "gelu" and mean the tanh form */
    return read_embedding(c);
}

/* null says none; a missing key says the class's default. */
static mt_rc read_cap(const mt_keys *k, const char *key, double fallback, double *out)
{
    return mt_json_f64(k->doc, key, mt_value_get(k->doc, key) ? 0 : fallback, out, k->path, k->err);
}

static mt_rc read_scale(mt_config *c, const mt_keys *k)
{
    double scalar;
    MT_TRY(mt_json_f64(k->doc, "query_pre_attn_scalar", 256, &scalar, k->path, k->err));
    if (!(scalar > 0)) return mt_fail(k->err, MT_ERANGE, "%s: \"query_pre_attn_scalar\" is %g", k->path, scalar);
    c->attention_scale = 1.0 / sqrt(scalar);
    return read_embedding(c);
}

static mt_rc read_gemma2(mt_config *c, const mt_keys *k)
{
    MT_TRY(read_cap(k, "attn_logit_softcapping", 50, &c->attention_softcap));
    MT_TRY(read_cap(k, "final_logit_softcapping", 30, &c->logit_softcap));
    return read_scale(c, k);
}

static mt_rc read_gemma3(mt_config *c, const mt_keys *k)
{
    /* That of scores exists as a key and is never applied. */
    MT_TRY(read_cap(k, "final_logit_softcapping", 0, &c->logit_softcap));
    return read_scale(c, k);
}

const mt_family mt_family_gemma = {
    .name = "gemma",
    .model_types = { "gemma" },
    .architectures = { "GemmaForCausalLM" },
    .covers = "Gemma 2B and 7B, CodeGemma",
    .telling = { "hidden_activation" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .norm_one_plus = true,
    .default_act = MT_ACT_GELU_TANH,
    .shape = { .positions = 8192 },
    .default_head_dim = 256,
    .default_eps = 1e-6,
    .default_pad = MT_PAD(0),
    .default_theta = 10000,
    .default_tied = true,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
    .read = read_gemma,
};

const mt_family mt_family_gemma2 = {
    .name = "gemma2",
    .model_types = { "gemma2" },
    .architectures = { "Gemma2ForCausalLM" },
    .covers = "Gemma 2 2B, 9B and 27B",
    .telling = { "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "sliding_window",
                 "hidden_activation" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .norm_one_plus = true,
    .norms = MT_NORMS_SANDWICH,
    .default_act = MT_ACT_GELU_TANH,
    .own_keys = { "hidden_activation" },
    .window = MT_WINDOW_PATTERN,
    .default_window = 4096,
    .window_pattern = 2,
    .shape = { .K = 4, .positions = 8192 },
    .default_head_dim = 256,
    .default_eps = 1e-6,
    .default_pad = MT_PAD(0),
    .default_theta = 10000,
    .default_tied = true,
    .rope = MT_ROPE_HALF,
    .tensors = sandwich,
    .read = read_gemma2,
};

/* gemma2 without the norms after its branches. */
const mt_family mt_family_vaultgemma = {
    .name = "vaultgemma",
    .model_types = { "vaultgemma" },
    .architectures = { "VaultGemmaForCausalLM" },
    .covers = "VaultGemma 1B",
    .telling = { "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "sliding_window",
                 "hidden_activation" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .norm_one_plus = true,
    .default_act = MT_ACT_GELU_TANH,
    .own_keys = { "hidden_activation" },
    .window = MT_WINDOW_PATTERN,
    .default_window = 4096,
    .window_pattern = 2,
    .shape = { .K = 4, .positions = 8192 },
    .default_head_dim = 256,
    .default_eps = 1e-6,
    .default_pad = MT_PAD(0),
    .default_theta = 10000,
    .default_tied = true,
    .rope = MT_ROPE_HALF,
    .tensors = before_only,
    .read = read_gemma2,
};

const mt_family mt_family_gemma3 = {
    .name = "gemma3",
    .model_types = { "gemma3_text", "gemma3" },
    .architectures = { "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration" },
    .covers = "Gemma 3 270M, 1B, 4B, 12B and 27B (the text model; vision towers are left as they are), MedGemma",
    .telling = { "rope_local_base_freq", "query_pre_attn_scalar", "sliding_window", "sliding_window_pattern",
                 "hidden_activation" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .norm_one_plus = true,
    .norms = MT_NORMS_SANDWICH,
    .default_act = MT_ACT_GELU_TANH,
    .own_keys = { "hidden_activation" },
    .window = MT_WINDOW_PATTERN,
    .default_window = 4096,
    .window_pattern = 6,
    .shape = { .D = 2304, .F = 9216, .L = 26, .H = 8, .K = 4, .V = 262208, .positions = 131072 },
    .default_head_dim = 256,
    .default_eps = 1e-6,
    .default_pad = MT_PAD(0),
    .default_theta = 1000000,
    .local_rope = true,
    .local_theta = 10000,
    .default_tied = true,
    .rope = MT_ROPE_HALF,
    .tensors = sandwich,
    .read = read_gemma3,
};
