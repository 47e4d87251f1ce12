/* gguf_arch.c - the architectures that are read from GGUF files: how each one's names, rows and metadata differ from Hugging Face's.
 * As llama.cpp's converter writes them. */
#include "ckpt/gguf_impl.h"

#include <math.h>
#include <string.h>

/* -- names of a layer's tensors: "blk.N.THEIRS.weight" (or .bias) is "model.layers.N.OURS.weight" ----------------------------------- */

#define ATTENTION                                                                                                                \
    { "attn_q", "self_attn.q_proj" }, { "attn_k", "self_attn.k_proj" }, { "attn_v", "self_attn.v_proj" },                        \
        { "attn_output", "self_attn.o_proj" }, { "attn_q_norm", "self_attn.q_norm" },                                            \
    {                                                                                                                            \
        "attn_k_norm", "self_attn.k_norm"                                                                                        \
    }
#define MLP                                                                                                                      \
    { "ffn_gate", "mlp.gate_proj" }, { "ffn_up", "mlp.up_proj" }, { "ffn_down", "mlp.down_proj" }
#define END                                                                                                                      \
    {                                                                                                                            \
        NULL, NULL                                                                                                               \
    }

static const mt__gguf_name usual[] = {
    { "attn_norm", "input_layernorm" }, ATTENTION, { "ffn_norm", "post_attention_layernorm" }, MLP, END
};
static const mt__gguf_name four_norms[] = { { "attn_norm", "input_layernorm" },
                                            ATTENTION,
                                            { "post_attention_norm", "post_attention_layernorm" },
                                            { "ffn_norm", "pre_feedforward_layernorm" },
                                            { "post_ffw_norm", "post_feedforward_layernorm" },
                                            MLP,
                                            END };
static const mt__gguf_name fused[] = { { "attn_norm", "input_layernorm" },
                                       { "attn_qkv", "self_attn.qkv_proj" },
                                       { "attn_output", "self_attn.o_proj" },
                                       { "ffn_norm", "post_attention_layernorm" },
                                       { "ffn_up", "mlp.gate_up_proj" },
                                       { "ffn_down", "mlp.down_proj" },
                                       END };

/* -- config keys of single architectures ------------------------------------------------------------- */

/* A number of the metadata under the name config.json has for it; nothing if it is not there. */
static void put_if_there(const mt_gguf *g, mt_json_out *out, const char *theirs, const char *ours)
{
    double d;
    if (mt__kv_number(mt__gguf_find_arch(g, theirs), &d) && isfinite(d)) mt__config_number(out, ours, d);
}

static mt_rc put_window(const mt_gguf *g, mt_json_out *out, mt_err *err)
{
    int64_t window;
    (void)err;
    if (mt__kv_int(mt__gguf_find_arch(g, "attention.sliding_window"), &window) && window > 0)
        mt_json_put_int(out, "sliding_window", window);
    return MT_OK;
}

static mt_rc put_gemma(const mt_gguf *g, mt_json_out *out, mt_err *err)
{
    (void)g, (void)err;
    mt_json_put_str(out, "hidden_activation", "gelu_pytorch_tanh");
    return MT_OK;
}

/* The files do not say what scores are divided by: the root of a head's width, but in the 27B models of the hidden width's share. */
static mt_rc put_gemma2(const mt_gguf *g, mt_json_out *out, mt_err *err)
{
    enum { GEMMA2_27B_LAYERS = 46, GEMMA3_27B_LAYERS = 62 };
    int64_t L, D, H, K, Dh;
    MT_TRY(mt__gguf_size(g, "block_count", &L, err));
    MT_TRY(mt__gguf_size(g, "embedding_length", &D, err));
    MT_TRY(mt__gguf_heads(g, &H, &K, &Dh, err));
    mt_json_put_int(out, "query_pre_attn_scalar", L == GEMMA2_27B_LAYERS || L == GEMMA3_27B_LAYERS ? D / H : Dh);
    put_if_there(g, out, "attn_logit_softcapping", "attn_logit_softcapping");
    put_if_there(g, out, "final_logit_softcapping", "final_logit_softcapping");
    MT_TRY(put_window(g, out, err));
    return put_gemma(g, out, err);
}

static mt_rc put_granite(const mt_gguf *g, mt_json_out *out, mt_err *err)
{
    (void)err;
    put_if_there(g, out, "embedding_scale", "embedding_multiplier");
    put_if_there(g, out, "residual_scale", "residual_multiplier");
    put_if_there(g, out, "attention.scale", "attention_multiplier");
    put_if_there(g, out, "logit_scale", "logits_scaling");
    return MT_OK;
}

static mt_rc put_no_window(const mt_gguf *g, mt_json_out *out, mt_err *err)
{
    (void)g, (void)err;
    mt_json_put_bool(out, "use_sliding_window", false);
    return MT_OK;
}

/* clang-format off */
/* llama and Mistral share an architecture here; a window distinguishes them. */
static const mt__gguf_arch mistral = { .name = "llama", .model_type = "mistral", .class = "MistralForCausalLM", .rows_reordered = true, .names = usual, .put = put_window };

static const mt__gguf_arch archs[] = {
    { .name = "llama", .model_type = "llama", .class = "LlamaForCausalLM", .rows_reordered = true, .bias_key = true, .names = usual },
    { .name = "qwen2", .model_type = "qwen2", .class = "Qwen2ForCausalLM", .names = usual, .put = put_no_window },
    { .name = "qwen3", .model_type = "qwen3", .class = "Qwen3ForCausalLM", .bias_key = true, .names = usual, .put = put_no_window },
    { .name = "gemma", .model_type = "gemma", .class = "GemmaForCausalLM", .norms_plus_one = true, .names = usual, .put = put_gemma },
    { .name = "gemma2", .model_type = "gemma2", .class = "Gemma2ForCausalLM", .norms_plus_one = true, .names = four_norms, .put = put_gemma2 },
    { .name = "gemma3", .model_type = "gemma3_text", .class = "Gemma3ForCausalLM", .norms_plus_one = true, .names = four_norms, .put = put_gemma2 },
    { .name = "phi3", .model_type = "phi3", .class = "Phi3ForCausalLM", .partial_rotary = true, .names = fused, .put = put_window },
    { .name = "granite", .model_type = "granite", .class = "GraniteForCausalLM", .rows_reordered = true, .bias_key = true, .names = usual, .put = put_granite },
    { .name = "smollm3", .model_type = "smollm3", .class = "SmolLM3ForCausalLM", .rows_reordered = true, .bias_key = true, .names = usual, .put = put_no_window },
    { .name = "olmo2", .model_type = "olmo2", .class = "Olmo2ForCausalLM", .names = four_norms },
};
/* clang-format on */

const mt__gguf_arch *mt__gguf_arch_of(const mt_gguf *g)
{
    int64_t window = 0;
    if (strcmp(g->arch, "llama") == 0 && mt__kv_int(mt__gguf_find_arch(g, "attention.sliding_window"), &window) && window > 0)
        return &mistral;
    for (size_t i = 0; i < MT_COUNT(archs); i++)
        if (strcmp(g->arch, archs[i].name) == 0) return &archs[i];
    return NULL;
}
