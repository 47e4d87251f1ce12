#include "model/family.h"

const mt_family mt_family_mistral = {
    .name = "mistral",
    .model_types = { "mistral", "ministral" },
    .architectures = { "MistralForCausalLM", "MinistralForCausalLM" },
    .covers = "Mistral 7B v0.1 to v0.3, Nemo 12B, Small 22B and 24B, Ministral 8B",
    .telling = { "sliding_window" },
    .window = MT_WINDOW_ALL,
    .typed_windows = "ministral",
    .default_window = 4096,
    .shape = { .K = 8, .positions = 131072 },
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
};

static mt_rc read_ministral3(mt_config *c, const mt_keys *k)
{
    if (c->rope.q_beta == 0)
        return mt_fail(k->err, MT_EFORMAT,
                       "%s: \"rope_parameters\" with \"llama_4_scaling_beta\" is missing; a ministral3 model needs it", k->path);
    if (c->rope.type == MT_ROPE_LONG)
        return mt_fail(k->err, MT_EUNSUPPORTED, "%s: longrope with \"llama_4_scaling_beta\" is not supported", k->path);
    return MT_OK;
}

/* Queries grow with their position, in steps of the original length. */
const mt_family mt_family_ministral3 = {
    .name = "ministral3",
    .model_types = { "ministral3" },
    .architectures = { "Ministral3ForCausalLM" },
    .covers = "Ministral 3 3B, 8B and 14B (the text model)",
    .telling = { "sliding_window" },
    .window = MT_WINDOW_ALL,
    .shape = { .K = 8, .positions = 262144 },
    .default_head_dim = 128,
    .default_eps = 1e-5,
    .default_pad = MT_PAD(11),
    .default_theta = 1000000,
    .query_scale = true,
    .rope = MT_ROPE_HALF,
    .tensors = mt_tensors_standard,
    .read = read_ministral3,
};
