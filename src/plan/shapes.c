#include "plan/shapes.h"

#include "base/mem.h"
#include "base/nearest.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LLAMA(D, F, L, H, K, V, REST)                                                                                            \
    "{\"model_type\":\"llama\",\"hidden_size\":" #D ",\"intermediate_size\":" #F ",\"num_hidden_layers\":" #L                    \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V ",\"dtype\":\"bfloat16\"" REST "}",      \
        NULL, 0
#define MISTRAL(D, F, L, H, K, V, REST)                                                                                          \
    "{\"model_type\":\"mistral\",\"sliding_window\":null,\"hidden_size\":" #D ",\"intermediate_size\":" #F                       \
    ",\"num_hidden_layers\":" #L ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V             \
    ",\"dtype\":\"bfloat16\"" REST "}",                                                                                          \
        NULL, 0
#define QWEN2(D, F, L, H, K, V, REST)                                                                                            \
    "{\"model_type\":\"qwen2\",\"hidden_size\":" #D ",\"intermediate_size\":" #F ",\"num_hidden_layers\":" #L                    \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V                                          \
    ",\"rope_theta\":1000000.0,\"max_position_embeddings\":32768,\"dtype\":\"bfloat16\"" REST "}",                               \
        NULL, 0
#define QWEN3(D, F, L, H, K, V, REST)                                                                                            \
    "{\"model_type\":\"qwen3\",\"head_dim\":128,\"hidden_size\":" #D ",\"intermediate_size\":" #F ",\"num_hidden_layers\":" #L   \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V                                          \
    ",\"rope_theta\":1000000.0,\"max_position_embeddings\":40960,\"dtype\":\"bfloat16\"" REST "}",                               \
        NULL, 0
/* The text model: its last number counts value heads, beside 16 key heads. */
#define QWEN3_5(D, F, L, H, K, HEADS, REST)                                                                                      \
    "{\"model_type\":\"qwen3_5_text\",\"head_dim\":256,\"hidden_size\":" #D ",\"intermediate_size\":" #F                         \
    ",\"num_hidden_layers\":" #L ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":248320"          \
    ",\"linear_num_key_heads\":16,\"linear_num_value_heads\":" #HEADS                                                            \
    ",\"rope_theta\":10000000.0,\"max_position_embeddings\":262144,\"dtype\":\"bfloat16\"" REST "}",                             \
        NULL, 0
/* Any family: type, D, F, L, H, K, V. */
#define OF(TYPE, D, F, L, H, K, V, REST) TEXT(TYPE, D, F, L, H, K, V, REST), NULL, 0
#define TEXT(TYPE, D, F, L, H, K, V, REST)                                                                                       \
    "{\"model_type\":\"" TYPE "\",\"hidden_size\":" #D ",\"intermediate_size\":" #F ",\"num_hidden_layers\":" #L                 \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V ",\"dtype\":\"bfloat16\"" REST "}"
/* Families with their own keys. */
#define OPT(D, F, L, H)                                                                                                          \
    "{\"model_type\":\"opt\",\"hidden_size\":" #D ",\"ffn_dim\":" #F ",\"num_hidden_layers\":" #L ",\"num_attention_heads\":" #H \
    ",\"word_embed_proj_dim\":" #D ",\"vocab_size\":50272,\"max_position_embeddings\":2048,\"dtype\":\"float16\"}",              \
        NULL, 0
#define GPT2(D, L, H)                                                                                                            \
    "{\"model_type\":\"gpt2\",\"n_embd\":" #D ",\"n_layer\":" #L ",\"n_head\":" #H                                               \
    ",\"n_positions\":1024,\"vocab_size\":50257}",                                                                               \
        NULL, 0
#define CHATGLM(D, F, L, H, K, V, N)                                                                                             \
    "{\"model_type\":\"chatglm\",\"hidden_size\":" #D ",\"ffn_hidden_size\":" #F ",\"num_layers\":" #L                           \
    ",\"num_attention_heads\":" #H ",\"multi_query_attention\":true,\"multi_query_group_num\":" #K                               \
    ",\"kv_channels\":128,\"padded_vocab_size\":" #V                                                                             \
    ",\"add_qkv_bias\":true,\"add_bias_linear\":false,\"rmsnorm\":true,\"seq_length\":" #N ",\"dtype\":\"float16\"}",            \
        NULL, 0
/* With experts: experts per layer, experts per row. */
#define EXPERTS(E, T, REST) ",\"num_experts\":" #E ",\"num_experts_per_tok\":" #T REST
#define WIDE(I)             ",\"moe_intermediate_size\":" #I
#define SHARED(N)           ",\"n_shared_experts\":" #N
#define SHARED_WIDE(N)      ",\"shared_expert_intermediate_size\":" #N
#define DENSE(N)            ",\"first_k_dense_replace\":" #N
/* Latent attention: rank of the queries, widths of a head's scores (unrotated, rotated) and values. */
#define LATENT(RANK, DN, DR, DV)                                                                                                 \
    ",\"q_lora_rank\":" #RANK ",\"kv_lora_rank\":512,\"qk_nope_head_dim\":" #DN ",\"qk_rope_head_dim\":" #DR                     \
    ",\"v_head_dim\":" #DV
#define GROUPS(N, K, SCALE) ",\"n_group\":" #N ",\"topk_group\":" #K ",\"routed_scaling_factor\":" #SCALE
#define YARN(FACTOR, MSCALE)                                                                                                     \
    ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":" #FACTOR ",\"original_max_position_embeddings\":4096,\"mscale\":" #MSCALE  \
    ",\"mscale_all_dim\":" #MSCALE "}"
/* A mixture or hybrid: its active part as a dense block, and its total parameters in billions. */
#define MIX(TYPE, BILLIONS, D, F, L, H, K, DH, V)                                                                                \
    TEXT("llama", D, F, L, H, K, V, ",\"head_dim\":" #DH POS(131072)), TYPE, BILLIONS
/* Gated delta nets with this many value heads, beside 16 key heads. */
#define DELTA(n) ",\"linear_num_key_heads\":16,\"linear_num_value_heads\":" #n ",\"rope_theta\":10000000.0"
#define DH(n)    ",\"head_dim\":" #n
#define OWN_HEAD ",\"tie_word_embeddings\":false" /* for families whose default is a tied embedding */
#define TIED     ",\"tie_word_embeddings\":true"
#define POS(n)   ",\"max_position_embeddings\":" #n
#define L3                                                                                                                       \
    ",\"rope_theta\":500000.0,\"max_position_embeddings\":131072,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"     \
    "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"
#define MINISTRAL3                                                                                                               \
    ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":1000000.0,\"factor\":16.0,\"mscale\":1.0,\"mscale_all_dim\":1." \
    "0,"                                                                                                                         \
    "\"original_max_position_embeddings\":16384,\"llama_4_scaling_beta\":0.1}"

#define DEEPSEEK_V2                                                                                                              \
    OF("deepseek_v2", 5120, 12288, 60, 128, 128, 102400,                                                                         \
       LATENT(1536, 128, 64, 128)                                                                                                \
           EXPERTS(160, 6,                                                                                                       \
                   WIDE(1536) SHARED(2) DENSE(1) GROUPS(8, 3, 16.0) ",\"topk_method\":\"group_limited_greedy\"" YARN(40, 1.0)    \
                       POS(163840)))
#define DEEPSEEK_V3                                                                                                              \
    OF("deepseek_v3", 7168, 18432, 61, 128, 128, 129280,                                                                         \
       LATENT(1536, 128, 64, 128) EXPERTS(256, 8, WIDE(2048) SHARED(1) DENSE(3) GROUPS(8, 4, 2.5) YARN(40, 1.0) POS(163840)))
#define LLAMA4 ",\"rope_theta\":500000.0,\"intermediate_size_mlp\":16384,\"attention_chunk_size\":8192"

const mt_shape mt_shapes[] = {
    { "smollm2-135m", LLAMA(576, 1536, 30, 9, 3, 49152, POS(8192) TIED) },
    { "smollm2-360m", LLAMA(960, 2560, 32, 15, 5, 49152, POS(8192) TIED) },
    { "smollm2-1.7b", LLAMA(2048, 8192, 24, 32, 32, 49152, POS(8192) TIED) },
    { "tinyllama-1.1b", LLAMA(2048, 5632, 22, 32, 4, 32000, POS(2048)) },
    { "llama-2-7b", LLAMA(4096, 11008, 32, 32, 32, 32000, POS(4096)) },
    { "llama-2-13b", LLAMA(5120, 13824, 40, 40, 40, 32000, POS(4096)) },
    { "llama-2-70b", LLAMA(8192, 28672, 80, 64, 8, 32000, POS(4096)) },
    { "llama-3-8b", LLAMA(4096, 14336, 32, 32, 8, 128256, ",\"rope_theta\":500000.0" POS(8192)) },
    { "llama-3-70b", LLAMA(8192, 28672, 80, 64, 8, 128256, ",\"rope_theta\":500000.0" POS(8192)) },
    { "llama-3.1-8b", LLAMA(4096, 14336, 32, 32, 8, 128256, L3) },
    { "llama-3.1-70b", LLAMA(8192, 28672, 80, 64, 8, 128256, L3) },
    { "llama-3.1-405b", LLAMA(16384, 53248, 126, 128, 8, 128256, L3) },
    { "llama-3.2-1b", LLAMA(2048, 8192, 16, 32, 8, 128256, ",\"head_dim\":64" L3 TIED) },
    { "llama-3.2-3b", LLAMA(3072, 8192, 28, 24, 8, 128256, ",\"head_dim\":128" L3 TIED) },
    { "llama-3.3-70b", LLAMA(8192, 28672, 80, 64, 8, 128256, L3) },
    { "yi-1.5-6b", LLAMA(4096, 11008, 32, 32, 4, 64000, ",\"rope_theta\":5000000.0" POS(4096)) },
    { "yi-1.5-9b", LLAMA(4096, 11008, 48, 32, 4, 64000, ",\"rope_theta\":5000000.0" POS(4096)) },
    { "yi-1.5-34b", LLAMA(7168, 20480, 60, 56, 8, 64000, ",\"rope_theta\":5000000.0" POS(4096)) },
    { "deepseek-llm-7b", LLAMA(4096, 11008, 30, 32, 32, 102400, POS(4096)) },
    { "deepseek-llm-67b", LLAMA(8192, 22016, 95, 64, 8, 102400, POS(4096)) },
    { "deepseek-coder-1.3b-base", LLAMA(2048, 5504, 24, 16, 16, 32256, POS(16384)) },
    { "mistral-7b-v0.1", OF("mistral", 4096, 14336, 32, 32, 8, 32000, ",\"sliding_window\":4096" POS(32768)) },
    { "mistral-7b-v0.2", MISTRAL(4096, 14336, 32, 32, 8, 32000, ",\"rope_theta\":1000000.0" POS(32768)) },
    { "mistral-7b-v0.3", MISTRAL(4096, 14336, 32, 32, 8, 32768, ",\"rope_theta\":1000000.0" POS(32768)) },
    { "mistral-nemo-2407", MISTRAL(5120, 14336, 40, 32, 8, 131072, ",\"head_dim\":128,\"rope_theta\":1000000.0" POS(131072)) },
    { "mistral-small-24b-2501",
      MISTRAL(5120, 32768, 40, 32, 8, 131072, ",\"head_dim\":128,\"rope_theta\":100000000.0" POS(32768)) },
    { "mistral-large-2407", MISTRAL(12288, 28672, 88, 96, 8, 32768, ",\"head_dim\":128,\"rope_theta\":1000000.0" POS(131072)) },
    { "qwen2.5-0.5b", QWEN2(896, 4864, 24, 14, 2, 151936, TIED) },
    { "qwen2.5-1.5b", QWEN2(1536, 8960, 28, 12, 2, 151936, TIED) },
    { "qwen2.5-3b", QWEN2(2048, 11008, 36, 16, 2, 151936, TIED) },
    { "qwen2.5-7b", QWEN2(3584, 18944, 28, 28, 4, 152064, "") },
    { "qwen2.5-14b", QWEN2(5120, 13824, 48, 40, 8, 152064, "") },
    { "qwen2.5-32b", QWEN2(5120, 27648, 64, 40, 8, 152064, "") },
    { "qwen2.5-72b", QWEN2(8192, 29568, 80, 64, 8, 152064, "") },
    { "qwen3-0.6b", QWEN3(1024, 3072, 28, 16, 8, 151936, TIED) },
    { "qwen3-1.7b", QWEN3(2048, 6144, 28, 16, 8, 151936, TIED) },
    { "qwen3-4b", QWEN3(2560, 9728, 36, 32, 8, 151936, TIED) },
    { "qwen3-4b-2507", OF("qwen3", 2560, 9728, 36, 32, 8, 151936, DH(128) ",\"rope_theta\":5000000.0" POS(262144) TIED) },
    { "qwen3-8b", QWEN3(4096, 12288, 36, 32, 8, 151936, "") },
    { "qwen3-14b", QWEN3(5120, 17408, 40, 40, 8, 151936, "") },
    { "qwen3-32b", QWEN3(5120, 25600, 64, 64, 8, 151936, "") },
    { "qwen3.5-0.8b", QWEN3_5(1024, 3584, 24, 8, 2, 16, TIED) },
    { "qwen3.5-2b", QWEN3_5(2048, 6144, 24, 8, 2, 16, TIED) },
    { "qwen3.5-4b", QWEN3_5(2560, 9216, 32, 16, 4, 32, TIED) },
    { "qwen3.5-9b", QWEN3_5(4096, 12288, 32, 16, 4, 32, "") },
    { "qwen3.5-27b", QWEN3_5(5120, 17408, 64, 24, 4, 48, "") },
    { "phi-3-mini-4k", OF("phi3", 3072, 8192, 32, 32, 32, 32064, ",\"sliding_window\":2047" POS(4096)) },
    { "phi-3-medium-4k", OF("phi3", 5120, 17920, 40, 40, 10, 32064, POS(4096)) },
    { "phi-3.5-mini", OF("phi3", 3072, 8192, 32, 32, 32, 32064, POS(131072)) },
    { "phi-4", OF("phi3", 5120, 17920, 40, 40, 10, 100352, POS(16384)) },
    { "phi-4-mini", OF("phi3", 3072, 8192, 32, 24, 8, 200064, ",\"partial_rotary_factor\":0.75" POS(131072) TIED) },
    { "gemma-2b", OF("gemma", 2048, 16384, 18, 8, 1, 256000, DH(256) POS(8192)) },
    { "gemma-7b", OF("gemma", 3072, 24576, 28, 16, 16, 256000, DH(256) POS(8192)) },
    { "gemma-2-2b", OF("gemma2", 2304, 9216, 26, 8, 4, 256000, DH(256) POS(8192)) },
    { "gemma-2-9b", OF("gemma2", 3584, 14336, 42, 16, 8, 256000, DH(256) POS(8192)) },
    { "gemma-2-27b", OF("gemma2", 4608, 36864, 46, 32, 16, 256000, DH(128) ",\"query_pre_attn_scalar\":144" POS(8192)) },
    { "gemma-3-270m", OF("gemma3_text", 640, 2048, 18, 4, 1, 262144, DH(256) ",\"sliding_window\":512" POS(32768)) },
    { "gemma-3-1b", OF("gemma3_text", 1152, 6912, 26, 4, 1, 262144, DH(256) ",\"sliding_window\":512" POS(32768)) },
    { "gemma-3-4b", OF("gemma3_text", 2560, 10240, 34, 8, 4, 262208, DH(256) ",\"sliding_window\":1024" POS(131072)) },
    { "gemma-3-12b", OF("gemma3_text", 3840, 15360, 48, 16, 8, 262208, DH(256) ",\"sliding_window\":1024" POS(131072)) },
    { "gemma-3-27b", OF("gemma3_text", 5376, 21504, 62, 32, 16, 262208, DH(128) ",\"sliding_window\":1024" POS(131072)) },
    { "glm-4-9b-0414", OF("glm4", 4096, 13696, 40, 32, 2, 151552, POS(32768)) },
    { "glm-4-32b-0414", OF("glm4", 6144, 23040, 61, 48, 2, 151552, DH(128) ",\"attention_bias\":false" POS(32768)) },
    { "glm-4-9b", OF("glm", 4096, 13696, 40, 32, 2, 151552, DH(128) ",\"attention_bias\":true" POS(131072)) },
    { "chatglm3-6b", CHATGLM(4096, 13696, 28, 32, 2, 65024, 8192) },
    { "internlm2-1_8b", OF("internlm2", 2048, 8192, 24, 16, 8, 92544, ",\"bias\":false" POS(32768)) },
    { "internlm2-7b", OF("internlm2", 4096, 14336, 32, 32, 8, 92544, ",\"bias\":false" POS(32768)) },
    { "internlm2-20b", OF("internlm2", 6144, 16384, 48, 48, 8, 92544, ",\"bias\":false" POS(32768)) },
    { "internlm2_5-1_8b", OF("internlm2", 2048, 8192, 24, 16, 8, 92544, ",\"bias\":false" POS(32768)) },
    { "internlm2_5-7b", OF("internlm2", 4096, 14336, 32, 32, 8, 92544, ",\"bias\":false" POS(32768)) },
    { "internlm2_5-20b", OF("internlm2", 6144, 16384, 48, 48, 8, 92544, ",\"bias\":false" POS(32768)) },
    { "baichuan-7b", OF("baichuan", 4096, 11008, 32, 32, 32, 64000, POS(4096)) },
    { "baichuan-13b", OF("baichuan", 5120, 13696, 40, 40, 40, 64000, ",\"model_max_length\":4096") },
    { "olmo-2-0425-1b", OF("olmo2", 2048, 8192, 16, 16, 16, 100352, ",\"rope_theta\":500000.0" POS(4096)) },
    { "olmo-2-1124-7b", OF("olmo2", 4096, 11008, 32, 32, 32, 100352, POS(4096)) },
    { "olmo-2-1124-13b", OF("olmo2", 5120, 13824, 40, 40, 40, 100352, POS(4096)) },
    { "olmo-2-0325-32b", OF("olmo2", 5120, 27648, 64, 40, 8, 100352, POS(4096)) },
    { "olmo-3-1025-7b", OF("olmo3", 4096, 11008, 32, 32, 32, 100278, POS(65536)) },
    { "olmo-3-1125-32b", OF("olmo3", 5120, 27648, 64, 40, 8, 100278, POS(65536)) },
    { "granite-3.1-2b", OF("granite", 2048, 8192, 40, 32, 8, 49155, ",\"attention_multiplier\":0.015625" POS(131072) TIED) },
    { "granite-3.1-8b", OF("granite", 4096, 12800, 40, 32, 8, 49155, ",\"attention_multiplier\":0.0078125" POS(131072) TIED) },
    { "smollm3-3b", OF("smollm3", 2048, 11008, 36, 16, 4, 128256, POS(65536)) },
    { "baichuan2-7b",
      OF("baichuan", 4096, 11008, 32, 32, 32, 125696, ",\"model_max_length\":4096,\"z_loss_weight\":0" POS(4096)) },
    { "baichuan2-13b", OF("baichuan", 5120, 13696, 40, 40, 40, 125696, ",\"model_max_length\":4096") },
    { "ernie-4.5-0.3b", OF("ernie4_5", 1024, 3072, 18, 16, 2, 103424, DH(128) ",\"rope_theta\":500000.0" POS(131072) TIED) },
    { "exaone-4.0-1.2b", OF("exaone4", 2048, 4096, 30, 32, 8, 102400, DH(64) POS(65536) TIED) },
    { "exaone-4.0-32b", OF("exaone4", 5120, 27392, 64, 40, 8, 102400, ",\"sliding_window_pattern\":\"LLLG\"" POS(131072)) },
    { "seed-oss-36b", OF("seed_oss", 5120, 27648, 64, 80, 8, 155136, DH(128) POS(524288)) },
    { "minitron-4b-base", OF("nemotron", 3072, 9216, 32, 24, 8, 256000, DH(128) POS(4096)) },
    { "nemotron-4-340b", OF("nemotron", 18432, 73728, 96, 96, 8, 256000, DH(192) POS(4096)) },
    { "c4ai-command-r-v01", OF("cohere", 8192, 22528, 40, 64, 64, 256000, POS(131072)) },
    { "c4ai-command-r-plus", OF("cohere", 12288, 33792, 64, 96, 8, 256000, ",\"use_qk_norm\":true" POS(131072)) },
    { "aya-expanse-8b", OF("cohere", 4096, 14336, 32, 32, 8, 256000, POS(8192)) },
    { "c4ai-command-r7b-12-2024", OF("cohere2", 4096, 14336, 32, 32, 8, 256000, POS(132096)) },
    { "c4ai-command-a-03-2025", OF("cohere2", 12288, 36864, 64, 96, 8, 256000, POS(131072)) },
    { "starcoder2-3b", OF("starcoder2", 3072, 12288, 30, 24, 2, 49152, ",\"sliding_window\":4096" POS(16384)) },
    { "starcoder2-7b", OF("starcoder2", 4608, 18432, 32, 36, 4, 49152, ",\"sliding_window\":4096" POS(16384)) },
    { "starcoder2-15b", OF("starcoder2", 6144, 24576, 40, 48, 4, 49152, ",\"sliding_window\":4096" POS(16384) OWN_HEAD) },
    { "stablelm-2-1_6b", OF("stablelm", 2048, 5632, 24, 32, 32, 100352, ",\"use_qkv_bias\":true" POS(4096)) },
    { "stablelm-2-12b",
      OF("stablelm", 5120, 13824, 40, 32, 8, 100352, ",\"qk_layernorm\":true,\"use_parallel_residual\":true" POS(4096)) },
    { "stablelm-3b-4e1t", OF("stablelm", 2560, 6912, 32, 32, 32, 50304, POS(4096)) },
    { "phi-1_5", OF("phi", 2048, 8192, 24, 32, 32, 51200, POS(2048)) },
    { "phi-2", OF("phi", 2560, 10240, 32, 32, 32, 51200, ",\"partial_rotary_factor\":0.4" POS(2048)) },
    { "pythia-70m", OF("gpt_neox", 512, 2048, 6, 8, 8, 50304, POS(2048)) },
    { "pythia-410m", OF("gpt_neox", 1024, 4096, 24, 16, 16, 50304, POS(2048)) },
    { "pythia-1.4b", OF("gpt_neox", 2048, 8192, 24, 16, 16, 50304, POS(2048)) },
    { "pythia-6.9b", OF("gpt_neox", 4096, 16384, 32, 32, 32, 50432, POS(2048)) },
    { "pythia-12b", OF("gpt_neox", 5120, 20480, 36, 40, 40, 50688, POS(2048)) },
    { "gpt-neox-20b", OF("gpt_neox", 6144, 24576, 44, 64, 64, 50432, POS(2048)) },
    { "opt-125m", OPT(768, 3072, 12, 12) },
    { "opt-1.3b", OPT(2048, 8192, 24, 32) },
    { "opt-2.7b", OPT(2560, 10240, 32, 32) },
    { "opt-6.7b", OPT(4096, 16384, 32, 32) },
    { "opt-13b", OPT(5120, 20480, 40, 40) },
    { "opt-30b", OPT(7168, 28672, 48, 56) },
    { "opt-66b", OPT(9216, 36864, 64, 72) },
    { "helium-1-preview-2b", OF("helium", 2560, 7040, 24, 20, 20, 48000, DH(128) POS(4096)) },
    { "jais-2-8b-chat", OF("jais2", 3328, 26624, 32, 26, 26, 150272, POS(8192)) },
    { "cwm", OF("cwm", 6144, 21504, 64, 48, 8, 128256, DH(128) POS(131072)) },
    { "vaultgemma-1b", OF("vaultgemma", 1152, 6912, 26, 4, 1, 256000, DH(256) POS(1024) ",\"sliding_window\":512") },
    { "ministral-3-8b-base-2512", OF("ministral3", 4096, 14336, 34, 32, 8, 131072, DH(128) POS(262144) MINISTRAL3) },
    { "olmo-1b-hf", OF("olmo", 2048, 8192, 16, 16, 16, 50304, POS(2048) TIED) },
    { "olmo-7b-0424-hf", OF("olmo", 4096, 11008, 32, 32, 32, 50304, POS(4096) ",\"clip_qkv\":8.0") },
    { "hunyuan-0.5b-instruct", OF("hunyuan_v1_dense", 1024, 3584, 24, 16, 8, 120818, DH(128) POS(262144) TIED) },
    { "hunyuan-7b-instruct", OF("hunyuan_v1_dense", 4096, 14336, 32, 32, 8, 128167, DH(128) POS(262144) TIED) },
    { "nanochat-d32", OF("nanochat", 2048, 8192, 32, 16, 16, 65536, POS(2048)) },
    { "apertus-8b-2509", OF("apertus", 4096, 21504, 32, 32, 8, 131072, POS(65536)) },
    { "bloomz-560m",
      "{\"model_type\":\"bloom\",\"hidden_size\":1024,\"n_layer\":24,\"n_head\":16,\"vocab_size\":250880,\"dtype\":\"float16\"}",
      NULL, 0 },
    { "bloomz-7b1",
      "{\"model_type\":\"bloom\",\"hidden_size\":4096,\"n_layer\":30,\"n_head\":32,\"vocab_size\":250880,\"dtype\":\"float16\"}",
      NULL, 0 },
    { "gpt-j-6b",
      "{\"model_type\":\"gptj\",\"n_embd\":4096,\"n_layer\":28,\"n_head\":16,\"n_positions\":2048,\"rotary_dim\":64,"
      "\"vocab_size\":50400,\"dtype\":\"float16\"}",
      NULL, 0 },
    { "gpt-neo-125m",
      "{\"model_type\":\"gpt_neo\",\"hidden_size\":768,\"num_layers\":12,\"num_heads\":12,\"max_position_embeddings\":2048,"
      "\"vocab_size\":50257}",
      NULL, 0 },
    { "starcoderbase-1b",
      "{\"model_type\":\"gpt_bigcode\",\"n_embd\":2048,\"n_layer\":24,\"n_head\":16,\"n_inner\":8192,\"n_positions\":8192,"
      "\"vocab_size\":49152}",
      NULL, 0 },
    { "mpt-7b",
      "{\"model_type\":\"mpt\",\"d_model\":4096,\"n_layers\":32,\"n_heads\":32,\"max_seq_len\":2048,\"vocab_size\":50432,"
      "\"dtype\":\"bfloat16\"}",
      NULL, 0 },
    { "biogpt", OF("biogpt", 1024, 4096, 24, 16, 16, 42384, POS(1024)) },
    { "hyperclovax-seed-think-14b", OF("hyperclovax", 6144, 14336, 38, 48, 8, 110592, DH(128) POS(131072)) },
    { "afm-4.5b", OF("arcee", 2560, 18432, 36, 20, 4, 128004, DH(128) POS(65536)) },
    { "falcon-rw-1b",
      "{\"model_type\":\"falcon\",\"hidden_size\":2048,\"num_hidden_layers\":24,\"num_attention_heads\":32,\"vocab_size\":50304,"
      "\"multi_query\":false,"
      "\"alibi\":true,\"bias\":true,\"parallel_attn\":false,\"new_decoder_architecture\":false,\"dtype\":\"bfloat16\"}",
      NULL, 0 },
    { "falcon-7b",
      "{\"model_type\":\"falcon\",\"hidden_size\":4544,\"num_hidden_layers\":32,\"num_attention_heads\":71,\"num_kv_heads\":71,"
      "\"vocab_size\":65024,\"multi_query\":true,\"dtype\":\"bfloat16\"}",
      NULL, 0 },
    { "falcon-40b",
      "{\"model_type\":\"falcon\",\"hidden_size\":8192,\"num_hidden_layers\":60,\"num_attention_heads\":128,\"num_kv_heads\":8,"
      "\"vocab_size\":65024,\"new_decoder_architecture\":true,\"dtype\":\"bfloat16\"}",
      NULL, 0 },
    { "gpt2", GPT2(768, 12, 12) },
    { "gpt2-medium", GPT2(1024, 24, 16) },
    { "gpt2-large", GPT2(1280, 36, 20) },
    { "gpt2-xl", GPT2(1600, 48, 25) },
    { "mixtral-8x7b-v0.1", OF("mixtral", 4096, 14336, 32, 32, 8, 32000, EXPERTS(8, 2, POS(32768))) },
    { "mixtral-8x22b-v0.1", OF("mixtral", 6144, 16384, 56, 48, 8, 32768, EXPERTS(8, 2, POS(65536))) },
    { "qwen3-30b-a3b", OF("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, DH(128) EXPERTS(128, 8, WIDE(768) POS(40960))) },
    { "qwen3-coder-30b-a3b", OF("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, DH(128) EXPERTS(128, 8, WIDE(768) POS(262144))) },
    { "qwen3-235b-a22b", OF("qwen3_moe", 4096, 12288, 94, 64, 4, 151936, DH(128) EXPERTS(128, 8, WIDE(1536) POS(40960))) },
    { "qwen3-coder-480b-a35b", OF("qwen3_moe", 6144, 8192, 62, 96, 8, 151936, DH(128) EXPERTS(160, 8, WIDE(2560) POS(262144))) },
    { "qwen1.5-moe-a2.7b",
      OF("qwen2_moe", 2048, 5632, 24, 16, 16, 151936, EXPERTS(60, 4, WIDE(1408) SHARED_WIDE(5632) POS(8192))) },
    { "qwen2-57b-a14b",
      OF("qwen2_moe", 3584, 18944, 28, 28, 4, 151936, EXPERTS(64, 8, WIDE(2560) SHARED_WIDE(20480) POS(65536))) },
    { "olmoe-1b-7b-0924", OF("olmoe", 2048, 1024, 16, 16, 16, 50304, EXPERTS(64, 8, POS(4096))) },
    { "deepseek-moe-16b-base",
      OF("deepseek", 2048, 10944, 28, 16, 16, 102400, EXPERTS(64, 6, WIDE(1408) SHARED(2) DENSE(1) POS(4096))) },
    { "glm-4.5-air", OF("glm4_moe", 4096, 10944, 46, 96, 8, 151552,
                        DH(128) ",\"attention_bias\":true" EXPERTS(128, 8, WIDE(1408) SHARED(1) DENSE(1) POS(131072))) },
    { "glm-4.5",
      OF("glm4_moe", 5120, 12288, 92, 96, 8, 151552,
         DH(128) ",\"attention_bias\":true,\"use_qk_norm\":true" EXPERTS(160, 8, WIDE(1536) SHARED(1) DENSE(3) POS(131072))) },
    { "glm-4.6",
      OF("glm4_moe", 5120, 12288, 92, 96, 8, 151552,
         DH(128) ",\"attention_bias\":true,\"use_qk_norm\":true" EXPERTS(160, 8, WIDE(1536) SHARED(1) DENSE(3) POS(202752))) },
    { "dots.llm1",
      OF("dots1", 4096, 10944, 62, 32, 32, 152064, DH(128) EXPERTS(128, 6, WIDE(1408) SHARED(2) DENSE(1) POS(32768))) },
    { "granite-3.0-1b-a400m", OF("granitemoe", 1024, 512, 24, 16, 8, 49155, EXPERTS(32, 8, POS(4096) TIED)) },
    { "granite-3.0-3b-a800m", OF("granitemoe", 1536, 512, 32, 24, 8, 49155, EXPERTS(40, 8, POS(4096) TIED)) },
    { "moe-7b-1b-active-shared-experts",
      OF("granitemoeshared", 1536, 512, 40, 24, 8, 49160, EXPERTS(62, 6, ",\"shared_intermediate_size\":1024" POS(4096) TIED)) },
    { "ernie-4.5-21b-a3b", OF("ernie4_5_moe", 2560, 12288, 28, 20, 4, 103424,
                              EXPERTS(64, 6, WIDE(1536) SHARED(2) ",\"moe_layer_start_index\":1" POS(131072))) },
    { "hunyuan-a13b", OF("hunyuan_v1_moe", 4096, 3072, 32, 32, 8, 128167, DH(128) EXPERTS(64, 8, POS(32768) TIED)) },
    { "minimax-m2", OF("minimax_m2", 3072, 1536, 62, 48, 8, 200064, DH(128) EXPERTS(256, 8, ",\"rotary_dim\":64" POS(196608))) },
    { "phi-3.5-moe",
      OF("phimoe", 4096, 6400, 32, 32, 8, 32064, ",\"attention_bias\":true,\"lm_head_bias\":true" EXPERTS(16, 2, POS(131072))) },
    { "qwen3-next-80b-a3b", OF("qwen3_next", 2048, 5120, 48, 16, 2, 151936,
                               DH(256) EXPERTS(512, 10, WIDE(512) SHARED_WIDE(512) DELTA(32) POS(262144))) },
    { "qwen3.5-35b-a3b", OF("qwen3_5_moe_text", 2048, 512, 40, 16, 2, 248320,
                            DH(256) EXPERTS(256, 8, WIDE(512) SHARED_WIDE(512) DELTA(32) POS(262144))) },
    { "qwen3.5-122b-a10b", OF("qwen3_5_moe_text", 3072, 1024, 48, 32, 2, 248320,
                              DH(256) EXPERTS(256, 8, WIDE(1024) SHARED_WIDE(1024) DELTA(64) POS(262144))) },
    { "qwen3.5-397b-a17b", OF("qwen3_5_moe_text", 4096, 1024, 60, 32, 2, 248320,
                              DH(256) EXPERTS(512, 10, WIDE(1024) SHARED_WIDE(1024) DELTA(64) POS(262144))) },
    { "deepseek-v2-lite",
      OF("deepseek_v2", 2048, 10944, 27, 16, 16, 102400,
         LATENT(null, 128, 64, 128) EXPERTS(64, 6, WIDE(1408) SHARED(2) DENSE(1) YARN(40, 0.707) POS(163840))) },
    { "deepseek-v2", DEEPSEEK_V2 },
    { "deepseek-v2.5", DEEPSEEK_V2 },
    { "deepseek-v3", DEEPSEEK_V3 },
    { "deepseek-v3.1", DEEPSEEK_V3 },
    { "deepseek-r1", DEEPSEEK_V3 },
    { "moonlight-16b-a3b",
      OF("deepseek_v3", 2048, 11264, 27, 16, 16, 163840,
         LATENT(null, 128, 64, 128)
             EXPERTS(64, 6, WIDE(1408) SHARED(2) DENSE(1) GROUPS(1, 1, 2.446) ",\"rope_theta\":50000.0" POS(8192))) },
    { "kimi-k2",
      OF("kimi_k2", 7168, 18432, 61, 64, 64, 163840,
         LATENT(1536, 128, 64, 128) EXPERTS(
             384, 8, WIDE(2048) SHARED(1) DENSE(1) GROUPS(1, 1, 2.827) YARN(32, 1.0) ",\"rope_theta\":50000.0" POS(131072))) },
    { "glm-4.7-flash", OF("glm4_moe_lite", 2048, 10240, 47, 20, 20, 154880,
                          LATENT(768, 192, 64, 256) EXPERTS(
                              64, 4, WIDE(1536) SHARED(1) DENSE(1) GROUPS(1, 1, 1.8) ",\"rope_theta\":1000000.0" POS(202752))) },
    { "gpt-oss-20b", OF("gpt_oss", 2880, 2880, 24, 64, 8, 201088, DH(64) EXPERTS(32, 4, POS(131072))) },
    { "gpt-oss-120b", OF("gpt_oss", 2880, 2880, 36, 64, 8, 201088, DH(64) EXPERTS(128, 4, POS(131072))) },
    { "llama-4-scout-17b-16e", OF("llama4_text", 5120, 8192, 48, 40, 8, 202048, DH(128) EXPERTS(16, 1, LLAMA4 POS(10485760))) },
    { "llama-4-maverick-17b-128e",
      OF("llama4_text", 5120, 8192, 48, 40, 8, 202048,
         DH(128) EXPERTS(128, 1, LLAMA4 ",\"interleave_moe_layer_step\":2,\"use_qk_norm\":false" POS(1048576))) },
    /* Planned, not trained yet: mixtures and hybrids. */
    { "jamba-v0.1", MIX("jamba", 51.570, 4096, 28672, 32, 32, 8, 128, 65536) },
};
const size_t mt_n_shapes = MT_COUNT(mt_shapes);

/* -- by name --------------------------------------------------------------------------------------- */

/* A common prefix counts most, because names differ in their tails; then the edit distance. */
static int likeness(const char *a, const char *b)
{
    int n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return 64 * n - mt_edit_distance(a, b);
}

/* "Qwen/Qwen2.5-7B-Instruct" is qwen2.5-7b: tuning does not change a model's shape.  "Meta-Llama-3.1-8B" is llama-3.1-8b. */
static void plain_name(const char *name, char *out, size_t n)
{
    static const char maker[] = "meta-";
    static const struct {
        const char *text;
        bool at_end; /* nowhere else: it might be part of a word */
    } words[] = { { "-instruct", false }, { "-chat", false }, { "-base", false }, { "-hf", true },
                  { "-it", true },        { "-pt", true },    { "-v1.0", true } };
    const char *slash = strrchr(name, '/');
    snprintf(out, n, "%s", slash ? slash + 1 : name);
    for (char *p = out; *p; p++) *p = (char)tolower((unsigned char)*p);
    if (strncmp(out, maker, strlen(maker)) == 0) memmove(out, out + strlen(maker), strlen(out + strlen(maker)) + 1);
    for (size_t i = 0; i < MT_COUNT(words); i++) {
        char *at = strstr(out, words[i].text);
        size_t k = strlen(words[i].text);
        if (at && (!words[i].at_end || !at[k])) memmove(at, at + k, strlen(at + k) + 1);
    }
}

/* True if they differ at most in what separates their words, as the names in configs/ do: llama3_70b is llama-3-70b. */
static bool sounds_like(const char *a, const char *b)
{
    static const char marks[] = "-_.";
    for (;;) {
        a += strspn(a, marks);
        b += strspn(b, marks);
        if (*a != *b) return false;
        if (!*a) return true;
        a++, b++;
    }
}

mt_rc mt_shape_find(const mt_shape **out, const char *name, mt_err *err)
{
    char plain[128], known[128];
    const mt_shape *near = &mt_shapes[0], *alike = NULL;
    int nearest = INT_MIN, n_alike = 0;
    *out = NULL;
    plain_name(name, plain, sizeof plain);
    if (!*plain)
        return mt_fail(err, MT_ENOENT, "which model?  A published name such as %s; megatrain plan --list-shapes lists them all",
                       near->name);
    for (size_t i = 0; i < mt_n_shapes; i++) {
        *out = &mt_shapes[i];
        plain_name(mt_shapes[i].name, known, sizeof known); /* some are called -base */
        if (strcmp(known, plain) == 0) return MT_OK;
        if (sounds_like(known, plain)) alike = &mt_shapes[i], n_alike++;
        const int like = likeness(known, plain);
        if (like <= nearest) continue;
        nearest = like;
        near = &mt_shapes[i];
    }
    *out = n_alike == 1 ? alike : NULL; /* opt_13b may be opt-13b or opt-1.3b */
    if (*out) return MT_OK;
    return mt_fail(err, MT_ENOENT,
                   "no shape \"%s\"; the nearest is %s (names are the hub's, last part, lower case, without -instruct; megatrain "
                   "plan --list-shapes lists them all)",
                   name, near->name);
}

static mt_rc shapes_parse(mt_config **out, const mt_shape *s, mt_err *err)
{
    return mt_config_parse(out, s->config, strlen(s->config), s->name, err);
}

mt_rc mt_shape_open(mt_config **out, const char *name, mt_err *err)
{
    const mt_shape *s;
    *out = NULL;
    MT_TRY(mt_shape_find(&s, name, err));
    if (s->untrained)
        return mt_fail(err, MT_EINVAL, "%s is a %s model, which megatrain can plan but not train yet", s->name, s->untrained);
    return shapes_parse(out, s, err);
}

mt_rc mt_shape_model(mt_config **config, mt_model **model, const mt_shape *s, const mt_model_options *o, mt_err *err)
{
    *model = NULL;
    MT_TRY(shapes_parse(config, s, err));
    mt_rc rc = mt_model_create(model, *config, s->untrained ? NULL : o, err);
    if (rc) {
        mt_config_close(*config);
        *config = NULL;
        return rc;
    }
    int64_t L = (*config)->L, more = s->untrained ? ((int64_t)(s->billions * 1e9) - (*model)->n_params) / L : 0;
    mt_layout *layers = &(*model)->layouts[(*model)->units[mt_layer_first_unit(*model, 0)].group];
    layers->n_elems += more;
    layers->n_low += more;
    layers->n_hi += more;
    layers->n_train += more;
    layers->n_decay += more;
    (*model)->n_params += more * L;
    (*model)->n_trained += more * L;
    return MT_OK;
}
