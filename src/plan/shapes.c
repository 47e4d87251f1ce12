#include "plan/shapes.h"

#include "base/mem.h"

#include <string.h>
#include <strings.h>

#define LLAMA(D, F, L, H, K, V, REST)                                                                        \
    "{\"model_type\":\"llama\",\"hidden_size\":" #D ",\"intermediate_size\":" #F ",\"num_hidden_layers\":" #L                  \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V ",\"dtype\":\"bfloat16\"" REST "}"
#define MISTRAL(D, F, L, H, K, V, REST)                                                                      \
    "{\"model_type\":\"mistral\",\"sliding_window\":null,\"hidden_size\":" #D ",\"intermediate_size\":" #F                     \
    ",\"num_hidden_layers\":" #L ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V                \
    ",\"dtype\":\"bfloat16\"" REST "}"
#define QWEN2(D, F, L, H, K, V, REST)                                                                        \
    "{\"model_type\":\"qwen2\",\"hidden_size\":" #D ",\"intermediate_size\":" #F ",\"num_hidden_layers\":" #L                  \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V                                       \
    ",\"rope_theta\":1000000.0,\"max_position_embeddings\":32768,\"dtype\":\"bfloat16\"" REST "}"
#define QWEN3(D, F, L, H, K, V, REST)                                                                        \
    "{\"model_type\":\"qwen3\",\"head_dim\":128,\"hidden_size\":" #D ",\"intermediate_size\":" #F ",\"num_hidden_layers\":" #L  \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V                                       \
    ",\"rope_theta\":1000000.0,\"max_position_embeddings\":40960,\"dtype\":\"bfloat16\"" REST "}"
#define TIED   ",\"tie_word_embeddings\":true"
#define POS(n) ",\"max_position_embeddings\":" #n
#define L3     ",\"rope_theta\":500000.0,\"max_position_embeddings\":131072,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0," \
           "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"

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
    { "mistral-7b-v0.3", MISTRAL(4096, 14336, 32, 32, 8, 32768, ",\"rope_theta\":1000000.0" POS(32768)) },
    { "mistral-nemo-2407", MISTRAL(5120, 14336, 40, 32, 8, 131072, ",\"head_dim\":128,\"rope_theta\":1000000.0" POS(131072)) },
    { "mistral-small-24b-2501", MISTRAL(5120, 32768, 40, 32, 8, 131072, ",\"head_dim\":128,\"rope_theta\":100000000.0" POS(32768)) },
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
    { "qwen3-8b", QWEN3(4096, 12288, 36, 32, 8, 151936, "") },
    { "qwen3-14b", QWEN3(5120, 17408, 40, 40, 8, 151936, "") },
    { "qwen3-32b", QWEN3(5120, 25600, 64, 64, 8, 151936, "") },
};
const size_t mt_n_shapes = MT_COUNT(mt_shapes);

/* Characters that agree from the start: names differ in their tails. */
static size_t agreement(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

mt_rc mt_shape_open(mt_config **out, const char *name, mt_err *err)
{
    const mt_shape *near = &mt_shapes[0];
    for (size_t i = 0; i < mt_n_shapes; i++) {
        if (strcasecmp(mt_shapes[i].name, name) == 0) return mt_config_parse(out, mt_shapes[i].config, strlen(mt_shapes[i].config), mt_shapes[i].name, err);
        if (agreement(mt_shapes[i].name, name) > agreement(near->name, name)) near = &mt_shapes[i];
    }
    *out = NULL;
    return mt_fail(err, MT_ENOENT, "no shape \"%s\"; the nearest is %s (names are the hub's, last part, lower case, without -instruct)", name, near->name);
}
