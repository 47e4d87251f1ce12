#include "model/traits.h"

/* The MT_TRAIT bits of ops.h that this model needs. */
static uint32_t traits_of(const mt_config *c)
{
    uint32_t t = 0;
    if (c->layer_norm || c->norm_bias) t |= MT_TRAIT(LAYERNORM);
    if (c->plain_mlp) t |= MT_TRAIT(PLAIN_MLP);
    if (c->act == MT_ACT_RELU || c->act == MT_ACT_RELU2) t |= MT_TRAIT(RELU);
    if (c->attention_softcap != 0) t |= MT_TRAIT(ATTENTION_SOFTCAP);
    if (c->alibi != 0) t |= MT_TRAIT(ALIBI);
    if (c->qk_norm_whole) t |= MT_TRAIT(WHOLE_QK_NORM);
    if (c->logit_softcap != 0) t |= MT_TRAIT(LOGIT_SOFTCAP);
    if (c->residual_scale != 1 || c->logit_scale != 1) t |= MT_TRAIT(MULTIPLIERS);
    if (c->learned_positions) t |= MT_TRAIT(LEARNED_POSITIONS);
    if (c->qk_layer_norm || c->qk_norm_own) t |= MT_TRAIT(QK_LAYERNORM);
    if (c->norm_head) t |= MT_TRAIT(NORM_HEAD);
    if (c->qk_norm_last) t |= MT_TRAIT(QK_NORM_LAST);
    if (c->norm_bare || c->qk_norm_bare) t |= MT_TRAIT(BARE_NORM);
    if (c->act == MT_ACT_XIELU) t |= MT_TRAIT(XIELU);
    if (c->clip_qkv != 0) t |= MT_TRAIT(BOUND);
    if (c->rope.q_beta != 0) t |= MT_TRAIT(QUERY_SCALE);
    if (c->sinks) t |= MT_TRAIT(SINKS);
    if (c->act == MT_ACT_CLAMPED) t |= MT_TRAIT(CLAMPED);
    for (int64_t i = 0; i < c->L; i++)
        if (c->layers[i].chunk) t |= MT_TRAIT(CHUNKS);
    return t;
}

mt_rc mt_traits_check(const mt_config *c, const mt_ops *ops, const char *device, mt_err *err)
{
    static const char *const words[] = {
#define MT_TRAIT_WORDS(name, text) text,
        MT_TRAIT_LIST(MT_TRAIT_WORDS)
#undef MT_TRAIT_WORDS
    };
    uint32_t missing = traits_of(c) & ~ops->traits;
    for (int i = 0; i < MT_TRAITS; i++)
        if (missing >> i & 1)
            return mt_fail(err, MT_EUNSUPPORTED,
                           "this model (model_type \"%s\") needs %s, which the %s does not have yet; --device cpu has it",
                           c->model_type, words[i], device);
    return MT_OK;
}
