/* Published models by their config.json, written out from the documented values: the right family, and the parameter count the
 * makers give, within half a percent, without any weights. */
#include "test.h"

#include "model/model.h"

#include <math.h>
#include <stdio.h>

#define DIMS(D, F, L, H, K, V)                                                                               \
    "\"hidden_size\":" #D ",\"intermediate_size\":" #F ",\"num_hidden_layers\":" #L ",\"num_attention_heads\":" #H                \
    ",\"num_key_value_heads\":" #K ",\"vocab_size\":" #V
#define TYPE(t) "\"model_type\":\"" t "\","

static const struct {
    const char *name, *config, *family;
    double params; /* millions */
} published[] = {
    { "Phi-3-mini-4k", TYPE("phi3") DIMS(3072, 8192, 32, 32, 32, 32064) ",\"sliding_window\":2047", "phi3", 3821.08 },
    { "Phi-3-medium", TYPE("phi3") DIMS(5120, 17920, 40, 40, 10, 32064), "phi3", 13960.24 },
    { "Phi-4", TYPE("phi3") DIMS(5120, 17920, 40, 40, 10, 100352), "phi3", 14659.51 },
    { "Phi-4-mini", TYPE("phi3") DIMS(3072, 8192, 32, 24, 8, 200064) ",\"partial_rotary_factor\":0.75,\"tie_word_embeddings\":true", "phi3", 3836.02 },
    { "gemma-2b", TYPE("gemma") DIMS(2048, 16384, 18, 8, 1, 256000) ",\"head_dim\":256,\"hidden_act\":\"gelu\"", "gemma", 2506.17 },
    { "gemma-7b", TYPE("gemma") DIMS(3072, 24576, 28, 16, 16, 256000) ",\"head_dim\":256,\"hidden_act\":\"gelu\"", "gemma", 8537.68 },
    { "gemma-2-2b", TYPE("gemma2") DIMS(2304, 9216, 26, 8, 4, 256000) ",\"head_dim\":256", "gemma2", 2614.34 },
    { "gemma-2-9b", TYPE("gemma2") DIMS(3584, 14336, 42, 16, 8, 256000) ",\"head_dim\":256", "gemma2", 9241.71 },
    { "gemma-2-27b", TYPE("gemma2") DIMS(4608, 36864, 46, 32, 16, 256000) ",\"head_dim\":128,\"query_pre_attn_scalar\":144", "gemma2", 27227.13 },
    { "gemma-3-270m", TYPE("gemma3_text") DIMS(640, 2048, 18, 4, 1, 262144) ",\"head_dim\":256,\"sliding_window\":512", "gemma3", 268.10 },
    { "gemma-3-1b", TYPE("gemma3_text") DIMS(1152, 6912, 26, 4, 1, 262144) ",\"head_dim\":256,\"sliding_window\":512", "gemma3", 999.89 },
    { "gemma-3-4b", TYPE("gemma3") "\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":2560,\"intermediate_size\":10240,\"num_hidden_layers\":34,"
                    "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"vocab_size\":262208,\"sliding_window\":1024}", "gemma3", 3880.26 },
    { "GLM-4-9B-hf", TYPE("glm") DIMS(4096, 13696, 40, 32, 2, 151552), "glm", 9399.95 },
    { "GLM-4-9B-0414", TYPE("glm4") DIMS(4096, 13696, 40, 32, 2, 151552), "glm4", 9400.28 },
    { "glm-4-9b-chat", TYPE("chatglm") "\"hidden_size\":4096,\"ffn_hidden_size\":13696,\"num_layers\":40,\"num_attention_heads\":32,\"multi_query_group_num\":2,"
                       "\"kv_channels\":128,\"padded_vocab_size\":151552,\"add_qkv_bias\":true,\"add_bias_linear\":false,\"rope_ratio\":500", "chatglm", 9399.95 },
    { "internlm2-7b", TYPE("internlm2") DIMS(4096, 14336, 32, 32, 8, 92544) ",\"bias\":false", "internlm2", 7737.71 },
    { "internlm2_5-1_8b", TYPE("internlm2") DIMS(2048, 8192, 24, 16, 8, 92544) ",\"bias\":false", "internlm2", 1889.11 },
    { "Baichuan-7B", TYPE("baichuan") DIMS(4096, 11008, 32, 32, 32, 64000) ",\"max_position_embeddings\":4096", "baichuan", 7000.56 },
    { "Baichuan-13B", TYPE("baichuan") DIMS(5120, 13696, 40, 40, 40, 64000) ",\"model_max_length\":4096", "baichuan", 13264.90 },
    { "OLMo-2-7B", TYPE("olmo2") DIMS(4096, 11008, 32, 32, 32, 100352), "olmo2", 7298.62 },
    { "OLMo-2-13B", TYPE("olmo2") DIMS(5120, 13824, 40, 40, 40, 100352), "olmo2", 13716.20 },
    { "granite-3.1-8b", TYPE("granite") DIMS(4096, 12800, 40, 32, 8, 49155) ",\"tie_word_embeddings\":true,\"attention_multiplier\":0.0078125", "granite", 8170.86 },
    { "SmolLM3-3B", TYPE("smollm3") DIMS(2048, 11008, 36, 16, 4, 128256), "smollm3", 3075.10 },
    { "EXAONE-4.0-32B", TYPE("exaone4") DIMS(5120, 27392, 64, 40, 8, 102400) ",\"sliding_window_pattern\":\"LLLG\"", "exaone4", 32003.22 },
    { "ERNIE-4.5-0.3B", TYPE("ernie4_5") DIMS(1024, 3072, 18, 16, 2, 103424), "ernie4_5", 360.75 },
    { "Seed-OSS-36B", TYPE("seed_oss") DIMS(5120, 27648, 64, 80, 8, 155136) ",\"head_dim\":128", "seed_oss", 36151.10 },
    { "Minitron-4B", TYPE("nemotron") DIMS(3072, 9216, 32, 24, 8, 256000) ",\"head_dim\":128", "nemotron", 4190.93 },
    { "c4ai-command-r-v01", TYPE("cohere") DIMS(8192, 22528, 40, 64, 64, 256000), "cohere", 34980.83 },
    { "command-r7b", TYPE("cohere2") DIMS(4096, 14336, 32, 32, 8, 256000) ",\"logit_scale\":0.25", "cohere2", 8027.90 },
    { "starcoder2-3b", TYPE("starcoder2") DIMS(3072, 12288, 30, 24, 2, 49152) ",\"sliding_window\":4096", "starcoder2", 3030.37 },
    { "starcoder2-7b", TYPE("starcoder2") DIMS(4608, 18432, 32, 36, 4, 49152), "starcoder2", 7173.92 },
    { "stablelm-2-1_6b", TYPE("stablelm") DIMS(2048, 5632, 24, 32, 32, 100352) ",\"use_qkv_bias\":true", "stablelm", 1644.52 },
    { "stablelm-3b-4e1t", TYPE("stablelm") DIMS(2560, 6912, 32, 32, 32, 50304), "stablelm", 2795.44 },
    { "phi-2", TYPE("phi") DIMS(2560, 10240, 32, 32, 32, 51200) ",\"partial_rotary_factor\":0.4", "phi", 2779.68 },
    { "phi-1_5", TYPE("phi") DIMS(2048, 8192, 24, 32, 32, 51200), "phi", 1418.27 },
    { "pythia-70m", TYPE("gpt_neox") "\"hidden_size\":512,\"intermediate_size\":2048,\"num_hidden_layers\":6,\"num_attention_heads\":8,\"vocab_size\":50304", "gpt_neox", 70.43 },
    { "pythia-6.9b", TYPE("gpt_neox") "\"hidden_size\":4096,\"intermediate_size\":16384,\"num_hidden_layers\":32,\"num_attention_heads\":32,\"vocab_size\":50432", "gpt_neox", 6857.30 },
    { "gpt-neox-20b", TYPE("gpt_neox") "\"hidden_size\":6144,\"intermediate_size\":24576,\"num_hidden_layers\":44,\"num_attention_heads\":64,\"vocab_size\":50432", "gpt_neox", 20554.57 },
    { "falcon-7b", TYPE("falcon") "\"hidden_size\":4544,\"num_hidden_layers\":32,\"num_attention_heads\":71,\"num_kv_heads\":71,\"vocab_size\":65024,\"multi_query\":true", "falcon", 6921.72 },
    { "falcon-40b", TYPE("falcon") "\"hidden_size\":8192,\"num_hidden_layers\":60,\"num_attention_heads\":128,\"num_kv_heads\":8,\"vocab_size\":65024,"
                    "\"new_decoder_architecture\":true", "falcon", 41303.29 },
    { "gpt2", TYPE("gpt2") "\"n_embd\":768,\"n_layer\":12,\"n_head\":12,\"n_positions\":1024,\"vocab_size\":50257", "gpt2", 124.44 },
    { "gpt2-xl", TYPE("gpt2") "\"n_embd\":1600,\"n_layer\":48,\"n_head\":25,\"n_positions\":1024,\"vocab_size\":50257", "gpt2", 1557.61 },
};

static void published_models_are_known_and_have_their_size(void **state)
{
    (void)state;
    bool ok = true;
    for (size_t i = 0; i < MT_COUNT(published); i++) {
        mt_err err = { 0 };
        mt_config *c;
        mt_model *m;
        char text[1024];
        int n = snprintf(text, sizeof text, "{%s}", published[i].config);
        assert_ok(mt_config_parse(&c, text, (size_t)n, published[i].name, &err));
        assert_ok(mt_model_create(&m, c, NULL, &err));
        assert_string_equal(c->family->name, published[i].family);
        assert_int_equal(c->n_assumptions, 0);
        double millions = (double)m->n_params / 1e6;
        if (fabs(millions / published[i].params - 1) > 5e-3) {
            print_error("%s: %.2f million parameters, documented %.2f\n", published[i].name, millions, published[i].params);
            ok = false;
        }
        mt_model_free(m);
        mt_config_close(c);
    }
    assert_true(ok);
}

MT_TEST_MAIN(cmocka_unit_test(published_models_are_known_and_have_their_size))
