/* gpt_neo: gpt2 with windows on some layers, scores that are not scaled, and q, k, v apart and without biases. */
#include "model/family_rows.h"

#include <string.h>

#define LAYER "transformer.h.%d."

static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "transformer.wte.weight", MT_V, MT_D),
    MT_ROW(MT_W_POS, "transformer.wpe.weight", MT_POSITIONS, MT_D),
    MT_ROW(MT_W_NORM1, LAYER "ln_1.weight", MT_D),
    MT_ROW(MT_B_NORM1, LAYER "ln_1.bias", MT_D),
    MT_ROWS_QKV(LAYER "attn.attention."),
    MT_ROWS_O(LAYER "attn.attention.out_proj"),
    MT_ROW(MT_W_NORM2, LAYER "ln_2.weight", MT_D),
    MT_ROW(MT_B_NORM2, LAYER "ln_2.bias", MT_D),
    MT_ROWS_UP(LAYER "mlp.c_fc"),
    MT_ROWS_DOWN(LAYER "mlp.c_proj"),
    MT_ROWS_FINAL_NORM("transformer.ln_f"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc bad_types(const mt_config *c, const mt_keys *k)
{
    return mt_fail(k->err, MT_EFORMAT,
                   "%s: \"attention_types\" should list \"global\" and \"local\" for all %lld layers, as in "
                   "[[[\"global\", \"local\"], 12]]",
                   k->path, (long long)c->L);
}

/* A list of [[names], times]. */
static mt_rc read_types(mt_config *c, const mt_keys *k, const mt_value *types, int64_t width)
{
    int64_t layer = 0;
    for (size_t i = 0; i < mt_value_items(types); i++) {
        const mt_value *item = mt_value_at(types, i), *names = mt_value_at(item, 0), *times = mt_value_at(item, 1);
        int64_t n_names = (int64_t)mt_value_items(names), n = mt_value_int(times);
        if (n_names < 1 || n < 1 || n > c->L || n_names * n > c->L - layer) return bad_types(c, k);
        for (int64_t at = 0; at < n_names * n; at++) {
            const mt_value *v = mt_value_at(names, (size_t)(at % n_names));
            const char *name = mt_value_has(v, MT_VALUE_STR) ? mt_json_string(v) : "";
            if (strcmp(name, "local") != 0 && strcmp(name, "global") != 0) return bad_types(c, k);
            c->layers[layer++].window = strcmp(name, "local") == 0 ? width : 0;
        }
    }
    return layer == c->L ? MT_OK : bad_types(c, k);
}

static mt_rc read_neo(mt_config *c, const mt_keys *k)
{
    const mt_value *types = mt_value_get(k->doc, "attention_types");
    int64_t width;
    c->attention_scale = 1;
    MT_TRY(mt_json_i64(k->doc, "window_size", 256, &width, k->path, k->err));
    if (width < 1) return mt_fail(k->err, MT_ERANGE, "%s: \"window_size\" is %lld", k->path, (long long)width);
    if (!mt_json_missing(types)) return read_types(c, k, types, width);
    for (int64_t i = 1; i < c->L; i += 2) c->layers[i].window = width;
    return MT_OK;
}

const mt_family mt_family_gpt_neo = {
    .name = "gpt_neo",
    .model_types = { "gpt_neo" },
    .architectures = { "GPTNeoForCausalLM" },
    .covers = "GPT-Neo 125M, 1.3B and 2.7B, TinyStories",
    .telling = { "attention_types", "window_size" },
    .o_bias = MT_BIAS_ALWAYS,
    .mlp_bias = MT_BIAS_ALWAYS,
    .layer_norm = true,
    .norm_bias = true,
    .plain_mlp = true,
    .learned_positions = true,
    .default_act = MT_ACT_GELU_TANH,
    .default_mlp_factor = 4,
    .own_keys = { "activation_function", "layer_norm_epsilon" },
    .default_eps = 1e-5,
    .default_tied = true,
    .prefix = "transformer.",
    .tensors = tensors,
    .read = read_neo,
};
