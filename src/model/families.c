/* families.c - the list, and the tensor names most of them share. */
#include "model/family_rows.h"

#include <string.h>

const mt_family *const mt_families[] = {
    &mt_family_llama,
    &mt_family_mistral,
    &mt_family_qwen2,
    &mt_family_qwen3,
    &mt_family_phi3,
    &mt_family_gemma,
    &mt_family_gemma2,
    &mt_family_gemma3,
    &mt_family_glm,
    &mt_family_glm4,
    &mt_family_chatglm,
    &mt_family_internlm2,
    &mt_family_baichuan,
    &mt_family_olmo2,
    &mt_family_olmo3,
    &mt_family_granite,
    &mt_family_smollm3,
    &mt_family_exaone4,
    &mt_family_ernie4_5,
    &mt_family_seed_oss,
    &mt_family_arcee,
    &mt_family_nemotron,
    &mt_family_cohere,
    &mt_family_cohere2,
    &mt_family_starcoder2,
    &mt_family_stablelm,
    &mt_family_phi,
    &mt_family_gpt_neox,
    &mt_family_falcon,
    &mt_family_gpt2,
    &mt_family_opt,
    &mt_family_helium,
    &mt_family_jais2,
    &mt_family_cwm,
    &mt_family_vaultgemma,
    &mt_family_ministral3,
    &mt_family_olmo,
    &mt_family_hunyuan,
    &mt_family_nanochat,
    &mt_family_apertus,
    &mt_family_bloom,
    &mt_family_gptj,
    &mt_family_gpt_neo,
    &mt_family_gpt_bigcode,
    &mt_family_mpt,
    &mt_family_biogpt,
    &mt_family_hyperclovax,
    &mt_family_mixtral,
    &mt_family_qwen3_moe,
    &mt_family_qwen2_moe,
    &mt_family_olmoe,
    &mt_family_deepseek,
    &mt_family_glm4_moe,
    &mt_family_dots1,
    &mt_family_granitemoe,
    &mt_family_granitemoeshared,
    &mt_family_ernie4_5_moe,
    &mt_family_hunyuan_v1_moe,
    &mt_family_minimax_m2,
    &mt_family_phimoe,
    &mt_family_qwen3_5,
    &mt_family_qwen3_5_moe,
    &mt_family_qwen3_next,
    &mt_family_deepseek_v2,
    &mt_family_deepseek_v3,
    &mt_family_glm4_moe_lite,
    &mt_family_gpt_oss,
    &mt_family_llama4,
    NULL,
};

#define LAYER "model.layers.%d."

const mt_tensor_row mt_tensors_standard[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_QK_NORM(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
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
