/* phi3: the llama block with q, k, v in one tensor and gate, up in another; longrope and partial rotation by config. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV_FUSED(LAYER "self_attn.qkv_proj.weight", LAYER "self_attn.qkv_proj.bias", MT_PACK_ROWS),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_GATE_UP_FUSED(LAYER "mlp.gate_up_proj.weight"),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

const mt_family mt_family_phi3 = {
    .name = "phi3",
    .model_types = { "phi3" },
    .architectures = { "Phi3ForCausalLM" },
    .covers = "Phi-3 mini and medium, Phi-3.5-mini, Phi-4, Phi-4-mini and their reasoning variants",
    .telling = { "sliding_window" },
    .window = MT_WINDOW_ALL,
    .shape = { .positions = 4096 },
    .default_eps = 1e-5,
    .default_pad = MT_PAD(32000),
    .default_theta = 10000,
    .partial = true,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
};
