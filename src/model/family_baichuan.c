/* baichuan: the llama block with q, k, v in one tensor.  The 13B models have ALiBi instead of rotary positions; they are the ones
 * whose config speaks of model_max_length alone.  The second generation normalizes the rows of its head. */
#include "model/family_rows.h"

#define LAYER "model.layers.%d."

static const mt_tensor_row tensors[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV_FUSED(LAYER "self_attn.W_pack.weight", LAYER "self_attn.W_pack.bias", MT_PACK_ROWS),
    MT_ROWS_O(LAYER "self_attn.o_proj"),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROWS_DOWN(LAYER "mlp.down_proj"),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

static mt_rc family_baichuan_read(mt_config *c, const mt_keys *k)
{
    enum { BAICHUAN1_VOCAB = 64000 }; /* the second generation has 125,696 */
    double z_loss;
    MT_TRY(mt_json_f64(k->doc, "z_loss_weight", 0, &z_loss, k->path, k->err));
    if (z_loss != 0)
        return mt_fail(
            k->err, MT_EUNSUPPORTED,
            "%s: \"z_loss_weight\" is %g; that term of the loss is not supported: set it to 0, as the published models have it",
            k->path, z_loss);
    c->norm_head = !mt_json_missing(mt_value_get(k->doc, "z_loss_weight")) || c->V > BAICHUAN1_VOCAB;
    if (!mt_json_missing(mt_value_get(k->doc, "max_position_embeddings"))) return MT_OK;
    mt_config_no_rope(c);
    c->alibi = 1;
    return MT_OK;
}

const mt_family mt_family_baichuan = {
    .name = "baichuan",
    .model_types = { "baichuan" },
    .architectures = { "BaichuanForCausalLM", "BaiChuanForCausalLM" },
    .covers = "Baichuan and Baichuan 2, 7B and 13B",
    .telling = { "z_loss_weight" },
    .default_eps = 1e-6,
    .default_theta = 10000,
    .rope = MT_ROPE_HALF,
    .tensors = tensors,
    .read = family_baichuan_read,
};
