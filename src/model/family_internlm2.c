/* internlm2: the llama block under other names, with q, k, v in one tensor, grouped by key/value head. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROW(MT_W_EMBED, "model.tok_embeddings.weight", MT_V, MT_D),
    MT_ROW(MT_W_NORM1, LAYER "attention_norm.weight", MT_D),
    MT_ROWS_QKV_FUSED(LAYER "attention.wqkv.weight", LAYER "attention.wqkv.bias", MT_PACK_HEADS),
    MT_ROWS_O(LAYER "attention.wo"),
    MT_ROW(MT_W_NORM2, LAYER "ffn_norm.weight", MT_D),
    MT_ROW(MT_W_GATE, LAYER "feed_forward.w1.weight", MT_F, MT_D),
    MT_ROW(MT_W_UP, LAYER "feed_forward.w3.weight", MT_F, MT_D),
    MT_ROW(MT_W_DOWN, LAYER "feed_forward.w2.weight", MT_D, MT_F),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("output"),
    MT_ROWS_END,
};

const mt_family mt_family_internlm2 = {
    .name = "internlm2",
    .model_types = { "internlm2" },
    .architectures = { "InternLM2ForCausalLM" },
    .covers = "InternLM2 and 2.5, 1.8B to 20B",
    .qkv_bias = MT_BIAS_UNLESS_KEY,
    .o_bias = MT_BIAS_UNLESS_KEY,
    .bias_key = "bias",
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
};
