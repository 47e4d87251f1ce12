/* smollm3: the llama block; every fourth layer has no rotary positions, and may have a window. */
#include "model/family.h"

#include <string.h>

/* Windows, where they are used at all, are on the layers without positions, unless layer_types says otherwise. */
static mt_rc family_smollm3_read(mt_config *c, const mt_keys *k)
{
    bool used;
    int64_t width;
    const mt_value *types = mt_value_get(k->doc, "layer_types");
    MT_TRY(mt_json_bool(k->doc, "use_sliding_window", false, &used, k->path, k->err));
    MT_TRY(mt_json_i64(k->doc, "sliding_window", 0, &width, k->path, k->err));
    for (int64_t i = 0; used && width > 0 && i < c->L; i++) {
        const char *type = mt_json_string(mt_value_at(types, (size_t)i));
        bool slides = type ? strcmp(type, "sliding_attention") == 0 : c->layers[i].rope == MT_LAYER_NOPE;
        c->layers[i].window = slides ? width : 0;
    }
    return MT_OK;
}

const mt_family mt_family_smollm3 = {
    .name = "smollm3",
    .model_types = { "smollm3" },
    .architectures = { "SmolLM3ForCausalLM" },
    .covers = "SmolLM3 3B",
    .telling = { "no_rope_layers", "no_rope_layer_interval", "use_sliding_window" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .mlp_bias = MT_BIAS_BY_KEY,
    .shape = { .K = 4, .positions = 32768 },
    .default_eps = 1e-6,
    .default_pad = MT_PAD(128004),
    .default_theta = 2000000,
    .nope_interval = 4,
    .default_tied = true,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
    .read = family_smollm3_read,
};
