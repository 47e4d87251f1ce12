/* cwm: llama with sliding windows on all but every fourth layer, the first of each four being full. */
#include "model/family.h"

/* Files without rope settings mean those of the published model. */
static void default_rope(mt_rope_spec *rope)
{
    rope->type = MT_ROPE_LLAMA3;
    rope->factor = 16;
    rope->low_freq = 1;
    rope->high_freq = 4;
    rope->original_positions = 8192;
}

/* Where config.json has no layer_types, which would have decided already. */
static mt_rc read_windows(mt_config *c, const mt_keys *k)
{
    int64_t width;
    if (!mt_json_missing(mt_value_get(k->doc, "layer_types"))) return MT_OK;
    MT_TRY(mt_json_i64(k->doc, "sliding_window", mt_value_get(k->doc, "sliding_window") ? 0 : 8192, &width, k->path, k->err));
    for (int64_t i = 0; i < c->L; i++) c->layers[i].window = i % 4 == 0 ? 0 : width;
    return MT_OK;
}

static mt_rc read_cwm(mt_config *c, const mt_keys *k)
{
    if (mt_json_missing(mt_value_get(k->doc, "rope_scaling")) && mt_json_missing(mt_value_get(k->doc, "rope_parameters")))
        default_rope(&c->rope);
    return read_windows(c, k);
}

const mt_family mt_family_cwm = {
    .name = "cwm",
    .model_types = { "cwm" },
    .architectures = { "CwmForCausalLM" },
    .covers = "Code World Model 32B",
    .telling = { "sliding_window" },
    .mlp_bias = MT_BIAS_BY_KEY,
    .window = MT_WINDOW_ALL,
    .typed_windows = "cwm",
    .default_window = 8192,
    .shape = { .K = 8, .positions = 131072 },
    .default_head_dim = 128,
    .default_eps = 1e-5,
    .default_theta = 1000000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
    .read = read_cwm,
};
