/* nanochat: no norm has weights; the embedding's rows are normed, too, and query and key heads after their rotation, which turns
 * the other way; plain squared-relu mlps, capped logits. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROW(MT_W_UP, LAYER "mlp.fc1.weight", MT_F, MT_D),
    MT_ROW(MT_W_DOWN, LAYER "mlp.fc2.weight", MT_D, MT_F),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc read_nanochat(mt_config *c, const mt_keys *k)
{
    const mt_value *cap = mt_value_get(k->doc, "final_logit_softcapping"); /* null: none */
    c->rope.backwards = true;
    c->qk_norm_bare = true;
    return mt_json_f64(k->doc, "final_logit_softcapping", cap ? 0 : 15, &c->logit_softcap, k->path, k->err);
}

const mt_family mt_family_nanochat = {
    .name = "nanochat",
    .model_types = { "nanochat" },
    .architectures = { "NanoChatForCausalLM" },
    .covers = "nanochat d20 to d34",
    .telling = { "final_logit_softcapping" },
    .qkv_bias = MT_BIAS_BY_KEY,
    .o_bias = MT_BIAS_BY_KEY,
    .qk_norm = true,
    .qk_norm_last = true,
    .embed_norm = true,
    .norm_bare = true,
    .plain_mlp = true,
    .default_act = MT_ACT_RELU2,
    .default_eps = 1e-6,
    .default_pad = MT_PAD(1),
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .read = read_nanochat,
};
