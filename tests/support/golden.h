/* golden.h - comparing with the files under tests/golden/models (their README.md says what they hold).
 *
 *     mt_safetensors *expected = golden_open("qwen3", "expected.safetensors");
 *     assert_true(golden_near(expected, "logits.0", logits, n, GOLDEN_LOGITS));
 *     mt_safetensors_close(expected);
 *
 * Arrays are compared as vectors, ||got - expected|| / ||expected||: one number per tensor, which small elements
 * next to large ones do not blow up. */
#ifndef MT_TEST_GOLDEN_H
#define MT_TEST_GOLDEN_H

#include "test.h"

#include "ckpt/safetensors.h"

#include <math.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"

/* Allowed distances; the README beside the files has their measurements. */
#define GOLDEN_LOSS    1e-5
#define GOLDEN_NORM    1e-4 /* of all gradients, step by step */
#define GOLDEN_LOGITS  1e-5
#define GOLDEN_GRAD    3e-5
#define GOLDEN_EXACT   1e-5 /* gradients, of goldens in float64 */
#define GOLDEN_UPDATE  1e-3 /* of what ten steps change in a weight, not of the weight */
#define GOLDEN_MOMENTS 1e-4

/* Every case. */
/* clang-format off */
static const char *const golden_cases[] = {
    "llama_default", "llama_tied", "llama_linear", "llama_llama3", "llama_yarn", "llama_dynamic", "llama_bias",
    "llama_sharded", "llama_bf16", "llama_fp16", "mistral_window", "mistral_full", "qwen2", "qwen2_tied", "qwen2_window",
    "qwen3", "qwen3_tied", "qwen3_bias", "phi3_window", "phi3_short", "phi3_long", "gemma", "gemma2", "gemma3", "gemma3_vl",
    "gemma3_vl_new", "glm", "glm4", "chatglm", "internlm2", "internlm2_bias", "baichuan", "baichuan_alibi", "baichuan2",
    "baichuan2_alibi", "olmo2", "olmo3", "gemma3_long", "olmo3_long", "granite", "smollm3", "exaone4", "ernie4_5", "seed_oss", "arcee", "nemotron",
    "cohere", "cohere_qk_norm", "cohere2", "starcoder2", "stablelm", "stablelm_parallel", "stablelm_qk_norm", "phi",
    "gpt_neox", "gpt_neox_serial", "falcon_7b", "falcon_40b", "falcon_rw", "gpt2", "opt", "helium", "jais2", "cwm", "vaultgemma",
    "ministral", "mixtral", "mixtral_fused", "qwen3_moe", "qwen3_moe_fused", "qwen2_moe", "qwen2_moe_fused", "olmoe",
    "deepseek", "deepseek_norm", "glm4_moe", "glm4_moe_air", "dots1", "granitemoe", "granitemoeshared", "ernie4_5_moe",
    "ernie4_5_moe_bias", "hunyuan_v1_moe", "minimax_m2", "phimoe", "phimoe_long", "ministral3", "olmo", "olmo_clip",
    "hunyuan", "nanochat", "apertus", "bloom", "gptj", "gpt_neo", "gpt_bigcode", "gpt_bigcode_heads", "mpt", "biogpt",
    "hyperclovax", "qwen3_5", "qwen3_5_tied", "qwen3_5_vl", "qwen3_5_moe_vl", "qwen3_next", "deepseek_v2",
    "deepseek_v2_groups", "deepseek_v3", "deepseek_v3_plain", "glm4_moe_lite", "deepseek_v3_dense",
    "gpt_oss", "gpt_oss_full", "llama4", "llama4_vl",
};
/* clang-format on */

/* A file of a case, to be closed by the caller; the test fails if it does not open. */
static inline mt_safetensors *golden_open(const char *case_name, const char *file)
{
    mt_err err = { 0 };
    mt_safetensors *st = NULL;
    char path[1024];
    snprintf(path, sizeof path, "%s%s/%s", GOLDEN_DIR, case_name, file);
    assert_ok(mt_safetensors_open(&st, path, &err));
    return st;
}

/* ||a - b|| / ||b||, in double; ||a|| when b is all zero. */
static inline double golden_distance(const float *a, const float *b, size_t n)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        diff += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

/* Nothing but rounding: every other gradient of the goldens has an rms above 1e-3. */
static inline bool golden_is_zero(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n) < 1e-7;
}

/* True if got[0..n) is within `allowed` of the tensor's numbers from `first` on; otherwise says which tensor and how far.  NaN is
 * never near. */
static inline bool golden_near_part(const mt_safetensors *expected, const char *name, size_t first, const float *got, size_t n,
                                    double allowed)
{
    const mt_st_tensor *t = mt_safetensors_find(expected, name);
    assert_true(t && first + n <= t->n);
    float *b = mt_malloc(n * sizeof *b);
    assert_non_null(b);
    mt_to_f32(b, (const char *)t->data + first * mt_dtype_bytes(t->dtype), t->dtype, n);
    double distance = golden_distance(got, b, n);
    bool zeros = golden_is_zero(b, n) && golden_is_zero(got, n);
    mt_free(b);
    if (zeros || distance <= allowed) return true;
    print_error("%s: %s from %zu on is %.2e away, %.0e allowed\n", mt_safetensors_path(expected), name, first, distance, allowed);
    return false;
}

/* Of the whole tensor. */
static inline bool golden_near(const mt_safetensors *expected, const char *name, const float *got, size_t n, double allowed)
{
    const mt_st_tensor *t = mt_safetensors_find(expected, name);
    if (t && t->n == n) return golden_near_part(expected, name, 0, got, n, allowed);
    print_error("%s: %s has %zu numbers, %zu were computed\n", mt_safetensors_path(expected), name, t ? t->n : 0, n);
    return false;
}

#endif
