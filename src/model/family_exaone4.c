/* exaone4: norms only after the branches, and per head on q and k; where there are windows, full layers have no rotary
 * positions. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROWS_QK_NORM(LAYER "self_attn."),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROW(MT_W_POST1, LAYER "post_attention_layernorm.weight", MT_D),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROW(MT_W_POST2, LAYER "post_feedforward_layernorm.weight", MT_D),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

enum { WINDOW = 4096 };

static mt_rc family_exaone4_read(mt_config *c, const mt_keys *k)
{
    int64_t width;
    bool named = mt_value_get(k->doc, "sliding_window");
    MT_TRY(mt_json_i64(k->doc, "sliding_window", named ? 0 : WINDOW, &width, k->path, k->err)); /* null: no layer has one */
    for (int64_t i = 0; width && i < c->L; i++)
        if (!c->layers[i].window) c->layers[i].rope = MT_LAYER_NOPE;
    return MT_OK;
}

const mt_family mt_family_exaone4 = {
    .name = "exaone4",
    .model_types = { "exaone4" },
    .architectures = { "Exaone4ForCausalLM" },
    .covers = "EXAONE 4.0 1.2B and 32B",
    .telling = { "sliding_window_pattern", "sliding_window" },
    .qk_norm = true,
    .norms = MT_NORMS_POST,
    .window = MT_WINDOW_PATTERN,
    .default_window = WINDOW,
    .window_pattern = 4,
    .default_eps = 1e-5,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .read = family_exaone4_read,
};
