/* gguf_config.c - config.json and generation_config.json from a GGUF file's metadata. */
#include "ckpt/gguf_impl.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A float as a person wrote it: 1e-05 and not 9.999999747378752e-06.  The fewest digits that read back as the same float. */
static double short_number(double d)
{
    char text[40];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, d);
        if (mt_f32_bits((float)strtod(text, NULL)) == mt_f32_bits((float)d)) return strtod(text, NULL);
    }
    return d;
}

static json_t *number(double d) { return json_real(short_number(d)); }

static mt_rc get_number(const mt_gguf *g, const char *key, double fallback, double *out, mt_err *err)
{
    const mt__kv *kv = mt__gguf_find_arch(g, key);
    *out = fallback;
    if (kv && (!mt__kv_number(kv, out) || !isfinite(*out))) return mt_fail(err, MT_EFORMAT, "%s: %s.%s is not a number", g->path, g->arch, key);
    return MT_OK;
}

/* -- rope ------------------------------------------------------------------------------------------ */

enum { LLAMA3_ORIGINAL = 8192, LLAMA3_LOW = 1, LLAMA3_HIGH = 4 }; /* of every published Llama 3.x */

/* What llama 3's scaling divides frequency i by. */
static double llama3_divisor(double theta, int64_t dr, size_t i, double factor)
{
    double wave = 2 * acos(-1.0) * pow(theta, 2.0 * (double)i / (double)dr);
    if (wave < (double)LLAMA3_ORIGINAL / LLAMA3_HIGH) return 1;
    if (wave > (double)LLAMA3_ORIGINAL / LLAMA3_LOW) return factor;
    double smooth = (LLAMA3_ORIGINAL / wave - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW);
    return 1 / ((1 - smooth) / factor + smooth);
}

/* The converter writes llama 3's scaling as one divisor per frequency; the numbers it was made from are found again and
 * checked against every one. */
static mt_rc llama3_scaling(const mt_gguf *g, double theta, int64_t dr, json_t *config, mt_err *err)
{
    const mt__gguf_raw *t = mt__gguf_raw_find(g, "rope_freqs.weight");
    double factor = 1;
    float divisor;
    if (!t) return MT_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < t->n; i++) {
            mt__quant_read(t->quant, t->data, i, 1, &divisor);
            if (pass == 0 && (double)divisor > factor) factor = (double)divisor;
            if (pass == 1 && (t->n != (size_t)dr / 2 || !(fabs((double)divisor / llama3_divisor(theta, dr, i, factor) - 1) < 1e-3)))
                return mt_fail(err, MT_EUNSUPPORTED, "%s: rope_freqs.weight holds %zu divisors that are not Llama 3's scaling; use the original model", g->path, t->n);
        }
    }
    json_object_set_new(config, "rope_scaling",
                        json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", factor, "low_freq_factor", (double)LLAMA3_LOW, "high_freq_factor",
                                  (double)LLAMA3_HIGH, "original_max_position_embeddings", LLAMA3_ORIGINAL));
    return MT_OK;
}

static mt_rc stated_scaling(const mt_gguf *g, json_t *config, mt_err *err)
{
    mt__bytes type = { "none", 4 };
    double factor, linear;
    int64_t original;
    MT_TRY(get_number(g, "rope.scale_linear", 1, &linear, err));
    MT_TRY(get_number(g, "rope.scaling.factor", linear, &factor, err));
    (void)mt__kv_text(mt__gguf_find_arch(g, "rope.scaling.type"), &type);
    bool yarn = type.n == 4 && memcmp(type.s, "yarn", 4) == 0, is_linear = type.n == 6 && memcmp(type.s, "linear", 6) == 0;
    bool none = type.n == 4 && memcmp(type.s, "none", 4) == 0;
    if (!yarn && !is_linear && !none)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: rope scaling \"%.*s\"; linear and yarn are read", g->path, (int)(type.n < 40 ? type.n : 40), type.s);
    if (fabs(factor - 1) < 1e-6 || (none && fabs(linear - 1) < 1e-6)) return MT_OK;
    json_t *scaling = json_pack("{s:s, s:o}", "rope_type", yarn ? "yarn" : "linear", "factor", number(factor));
    if (yarn && mt__kv_int(mt__gguf_find_arch(g, "rope.scaling.original_context_length"), &original))
        json_object_set_new(scaling, "original_max_position_embeddings", json_integer(original));
    json_object_set_new(config, "rope_scaling", scaling);
    return MT_OK;
}

static mt_rc add_rope(const mt_gguf *g, json_t *config, int64_t Dh, mt_err *err)
{
    double theta;
    int64_t dr = Dh;
    MT_TRY(get_number(g, "rope.freq_base", 10000, &theta, err));
    if (mt__gguf_find_arch(g, "rope.dimension_count")) MT_TRY(mt__gguf_size(g, "rope.dimension_count", &dr, err));
    if (dr != Dh) return mt_fail(err, MT_EUNSUPPORTED, "%s: only %lld of a head's %lld numbers are rotated; not read from GGUF files", g->path, (long long)dr, (long long)Dh);
    if (!(theta > 0)) return mt_fail(err, MT_EFORMAT, "%s: %s.rope.freq_base is not positive", g->path, g->arch);
    json_object_set_new(config, "rope_theta", number(theta));
    MT_TRY(stated_scaling(g, config, err));
    return llama3_scaling(g, theta, dr, config, err);
}

/* -- the rest -------------------------------------------------------------------------------------- */

static void add_token(const mt_gguf *g, json_t *to, const char *name, const char *key)
{
    int64_t id;
    if (mt__kv_int(mt__gguf_find(g, key), &id) && id >= 0 && id <= INT32_MAX) json_object_set_new(to, name, json_integer(id));
}

static void add_tokens(const mt_gguf *g, json_t *to)
{
    add_token(g, to, "bos_token_id", "tokenizer.ggml.bos_token_id");
    add_token(g, to, "eos_token_id", "tokenizer.ggml.eos_token_id");
    add_token(g, to, "pad_token_id", "tokenizer.ggml.padding_token_id");
}

static mt_rc add_sizes(const mt_gguf *g, json_t *config, int64_t *Dh, mt_err *err)
{
    static const struct {
        const char *theirs, *ours;
    } sizes[] = { { "embedding_length", "hidden_size" },
                  { "feed_forward_length", "intermediate_size" },
                  { "block_count", "num_hidden_layers" },
                  { "context_length", "max_position_embeddings" } };
    int64_t n, H, K;
    for (size_t i = 0; i < MT_COUNT(sizes); i++) {
        MT_TRY(mt__gguf_size(g, sizes[i].theirs, &n, err));
        json_object_set_new(config, sizes[i].ours, json_integer(n));
    }
    MT_TRY(mt__gguf_heads(g, &H, &K, Dh, err));
    json_object_set_new(config, "num_attention_heads", json_integer(H));
    json_object_set_new(config, "num_key_value_heads", json_integer(K));
    json_object_set_new(config, "head_dim", json_integer(*Dh));
    return MT_OK;
}

/* llama and Mistral share an architecture here; what tells them apart is a window. */
static void add_class(const mt_gguf *g, json_t *config)
{
    int64_t window;
    bool llama = strcmp(g->arch, "llama") == 0, mistral = false;
    if (llama && mt__kv_int(mt__gguf_find_arch(g, "attention.sliding_window"), &window) && window > 0) {
        mistral = true;
        json_object_set_new(config, "sliding_window", json_integer(window));
    }
    const char *type = mistral ? "mistral" : g->arch;
    const char *class = mistral ? "MistralForCausalLM" : llama ? "LlamaForCausalLM" : strcmp(g->arch, "qwen2") == 0 ? "Qwen2ForCausalLM" : "Qwen3ForCausalLM";
    json_object_set_new(config, "architectures", json_pack("[s]", class));
    json_object_set_new(config, "model_type", json_string(type));
    if (strcmp(type, "qwen2") != 0 && !mistral) json_object_set_new(config, "attention_bias", json_boolean(mt__gguf_raw_find(g, "blk.0.attn_q.bias") != NULL));
    if (!llama) json_object_set_new(config, "use_sliding_window", json_false());
}

static mt_rc fill_config(const mt_gguf *g, json_t *config, mt_err *err)
{
    int64_t Dh;
    double eps;
    const mt__gguf_raw *embed = mt__gguf_raw_find(g, "token_embd.weight");
    if (!embed || embed->n_dims != 2) return mt_fail(err, MT_EFORMAT, "%s: no token_embd.weight; this is not a whole model", g->path);
    add_class(g, config);
    MT_TRY(add_sizes(g, config, &Dh, err));
    json_object_set_new(config, "vocab_size", json_integer(embed->shape[0]));
    json_object_set_new(config, "hidden_act", json_string("silu"));
    MT_TRY(get_number(g, "attention.layer_norm_rms_epsilon", 1e-6, &eps, err));
    json_object_set_new(config, "rms_norm_eps", number(eps));
    MT_TRY(add_rope(g, config, Dh, err));
    json_object_set_new(config, "tie_word_embeddings", json_boolean(!mt__gguf_raw_find(g, "output.weight")));
    json_object_set_new(config, "torch_dtype", json_string("bfloat16"));
    add_tokens(g, config);
    return MT_OK;
}

static mt_rc put_json(const mt_gguf *g, const json_t *value, mt_str *out, mt_err *err)
{
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    if (!text) return mt_fail(err, MT_ENOMEM, "%s: no host memory to write its configuration", g->path);
    mt_str_puts(out, text);
    mt_str_putc(out, '\n');
    free(text);
    return mt_str_ok(out) ? MT_OK : mt_fail(err, MT_ENOMEM, "%s: no host memory to write its configuration", g->path);
}

mt_rc mt_gguf_config(const mt_gguf *g, mt_str *out, mt_err *err)
{
    json_t *config = json_object();
    if (!config) return mt_fail(err, MT_ENOMEM, "%s: no host memory to write its configuration", g->path);
    mt_rc rc = fill_config(g, config, err);
    if (!rc) rc = put_json(g, config, out, err);
    json_decref(config);
    return rc;
}

mt_rc mt_gguf_generation_config(const mt_gguf *g, mt_str *out, mt_err *err)
{
    json_t *config = json_object();
    int64_t eos, turn;
    if (!config) return mt_fail(err, MT_ENOMEM, "%s: no host memory to write its configuration", g->path);
    add_tokens(g, config);
    bool two = mt__kv_int(mt__gguf_find(g, "tokenizer.ggml.eos_token_id"), &eos) && mt__kv_int(mt__gguf_find(g, "tokenizer.ggml.eot_token_id"), &turn) && turn >= 0;
    if (two && turn != eos) json_object_set_new(config, "eos_token_id", json_pack("[I, I]", (json_int_t)eos, (json_int_t)turn));
    mt_rc rc = put_json(g, config, out, err);
    json_decref(config);
    return rc;
}
