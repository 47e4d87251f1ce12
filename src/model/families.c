/* families.c - the list, and the tensor names most of them share. */
#include "model/family.h"

#include <string.h>

const mt_family *const mt_families[] = {
    &mt_family_llama,
    &mt_family_mistral,
    &mt_family_qwen2,
    &mt_family_qwen3,
    NULL,
};

const mt_tensor_row mt_tensors_standard[] = {
    { MT_W_EMBED, "model.embed_tokens.weight", { MT_V, MT_D } },
    { MT_W_NORM1, "model.layers.%d.input_layernorm.weight", { MT_D } },
    { MT_W_Q, "model.layers.%d.self_attn.q_proj.weight", { MT_H_DH, MT_D } },
    { MT_W_K, "model.layers.%d.self_attn.k_proj.weight", { MT_K_DH, MT_D } },
    { MT_W_V, "model.layers.%d.self_attn.v_proj.weight", { MT_K_DH, MT_D } },
    { MT_B_Q, "model.layers.%d.self_attn.q_proj.bias", { MT_H_DH } },
    { MT_B_K, "model.layers.%d.self_attn.k_proj.bias", { MT_K_DH } },
    { MT_B_V, "model.layers.%d.self_attn.v_proj.bias", { MT_K_DH } },
    { MT_W_Q_NORM, "model.layers.%d.self_attn.q_norm.weight", { MT_DH } },
    { MT_W_K_NORM, "model.layers.%d.self_attn.k_norm.weight", { MT_DH } },
    { MT_W_O, "model.layers.%d.self_attn.o_proj.weight", { MT_D, MT_H_DH } },
    { MT_B_O, "model.layers.%d.self_attn.o_proj.bias", { MT_D } },
    { MT_W_NORM2, "model.layers.%d.post_attention_layernorm.weight", { MT_D } },
    { MT_W_GATE, "model.layers.%d.mlp.gate_proj.weight", { MT_F, MT_D } },
    { MT_W_UP, "model.layers.%d.mlp.up_proj.weight", { MT_F, MT_D } },
    { MT_B_GATE, "model.layers.%d.mlp.gate_proj.bias", { MT_F } },
    { MT_B_UP, "model.layers.%d.mlp.up_proj.bias", { MT_F } },
    { MT_W_DOWN, "model.layers.%d.mlp.down_proj.weight", { MT_D, MT_F } },
    { MT_B_DOWN, "model.layers.%d.mlp.down_proj.bias", { MT_D } },
    { MT_W_FINAL_NORM, "model.norm.weight", { MT_D } },
    { MT_W_HEAD, "lm_head.weight", { MT_V, MT_D } },
    { 0, NULL, { 0 } },
};

static bool listed(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

const mt_family *mt_family_by_model_type(const char *model_type)
{
    for (const mt_family *const *f = mt_families; *f; f++)
        if (listed((*f)->model_types, model_type)) return *f;
    return NULL;
}

const mt_family *mt_family_by_architecture(const char *architecture)
{
    for (const mt_family *const *f = mt_families; *f; f++)
        if (listed((*f)->architectures, architecture)) return *f;
    return NULL;
}
