/* gguf_config.c - config.json and generation_config.json from a GGUF file's metadata. */
#include "ckpt/gguf_impl.h"

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

void mt__config_number(mt_json_out *out, const char *key, double d)
{
    const mt_value v = { .type = MT_VALUE_FLOAT, .f = short_number(d) };
    mt_json_put_value(out, key, &v, MT_JSON_FLAT);
}

static mt_rc get_number(const mt_gguf *g, const char *key, double fallback, double *out, mt_err *err)
{
    const mt__kv *kv = mt__gguf_find_arch(g, key);
    *out = fallback;
    if (kv && (!mt__kv_number(kv, out) || !isfinite(*out)))
        return mt_fail(err, MT_EFORMAT, "%s: %s.%s is not a number", g->base.path, g->arch, key);
    return MT_OK;
}

/* -- rope ------------------------------------------------------------------------------------------ */

enum { LLAMA3_ORIGINAL = 8192, LLAMA3_LOW = 1, LLAMA3_HIGH = 4 }; /* of every published Llama 3.x */

/* The divisor of frequency i in llama 3's scaling. */
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
static mt_rc llama3_scaling(const mt_gguf *g, double theta, int64_t dr, mt_json_out *out, mt_err *err)
{
    const mt__gguf_raw *t = mt__gguf_raw_find(g, "rope_freqs.weight");
    double factor = 1;
    float divisor;
    if (!t) return MT_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < t->n; i++) {
            mt__quant_read(t->quant, t->data, i, 1, &divisor);
            if (pass == 0 && (double)divisor > factor) factor = (double)divisor;
            if (pass == 1 &&
                (t->n != (size_t)dr / 2 || !(fabs((double)divisor / llama3_divisor(theta, dr, i, factor) - 1) < 1e-3)))
                return mt_fail(err, MT_EUNSUPPORTED,
                               "%s: rope_freqs.weight holds %zu divisors that are not Llama 3's scaling; use the original model",
                               g->base.path, t->n);
        }
    }
    mt_json_map(out, "rope_scaling", MT_JSON_LINES);
    mt_json_put_str(out, "rope_type", "llama3");
    mt__config_number(out, "factor", factor);
    mt__config_number(out, "low_freq_factor", LLAMA3_LOW);
    mt__config_number(out, "high_freq_factor", LLAMA3_HIGH);
    mt_json_put_int(out, "original_max_position_embeddings", LLAMA3_ORIGINAL);
    mt_json_end(out);
    return MT_OK;
}

static mt_rc stated_scaling(const mt_gguf *g, mt_json_out *out, mt_err *err)
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
        return mt_fail(err, MT_EUNSUPPORTED, "%s: rope scaling \"%.*s\"; linear and yarn are read", g->base.path,
                       (int)(type.n < 40 ? type.n : 40), type.s);
    if (fabs(factor - 1) < 1e-6 || (none && fabs(linear - 1) < 1e-6)) return MT_OK;
    mt_json_map(out, "rope_scaling", MT_JSON_LINES);
    mt_json_put_str(out, "rope_type", yarn ? "yarn" : "linear");
    mt__config_number(out, "factor", factor);
    if (yarn && mt__kv_int(mt__gguf_find_arch(g, "rope.scaling.original_context_length"), &original))
        mt_json_put_int(out, "original_max_position_embeddings", original);
    mt_json_end(out);
    return MT_OK;
}

static mt_rc put_rope(const mt_gguf *g, mt_json_out *out, int64_t Dh, mt_err *err)
{
    double theta;
    int64_t dr = Dh;
    MT_TRY(get_number(g, "rope.freq_base", 10000, &theta, err));
    if (mt__gguf_find_arch(g, "rope.dimension_count")) MT_TRY(mt__gguf_size(g, "rope.dimension_count", &dr, err));
    if (dr != Dh && !(mt__gguf_arch_of(g)->partial_rotary && dr < Dh))
        return mt_fail(err, MT_EUNSUPPORTED,
                       "%s: only %lld of a head's %lld numbers are rotated; not read from GGUF files of this architecture",
                       g->base.path, (long long)dr, (long long)Dh);
    if (dr != Dh) mt__config_number(out, "partial_rotary_factor", (double)dr / (double)Dh);
    if (!(theta > 0)) return mt_fail(err, MT_EFORMAT, "%s: %s.rope.freq_base is not positive", g->base.path, g->arch);
    mt__config_number(out, "rope_theta", theta);
    MT_TRY(stated_scaling(g, out, err));
    return llama3_scaling(g, theta, dr, out, err);
}

/* -- the rest -------------------------------------------------------------------------------------- */

static void put_token(const mt_gguf *g, mt_json_out *out, const char *name, const char *key)
{
    int64_t id;
    if (mt__kv_int(mt__gguf_find(g, key), &id) && id >= 0 && id <= INT32_MAX) mt_json_put_int(out, name, id);
}

static const char bos_key[] = "tokenizer.ggml.bos_token_id", eos_key[] = "tokenizer.ggml.eos_token_id",
                  pad_key[] = "tokenizer.ggml.padding_token_id";

static mt_rc put_sizes(const mt_gguf *g, mt_json_out *out, int64_t *Dh, mt_err *err)
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
        mt_json_put_int(out, sizes[i].ours, n);
    }
    MT_TRY(mt__gguf_heads(g, &H, &K, Dh, err));
    mt_json_put_int(out, "num_attention_heads", H);
    mt_json_put_int(out, "num_key_value_heads", K);
    mt_json_put_int(out, "head_dim", *Dh);
    return MT_OK;
}

static mt_rc put_class(const mt_gguf *g, mt_json_out *out, mt_err *err)
{
    const mt__gguf_arch *arch = mt__gguf_arch_of(g);
    mt_json_list(out, "architectures", MT_JSON_FLAT);
    mt_json_put_str(out, NULL, arch->class);
    mt_json_end(out);
    mt_json_put_str(out, "model_type", arch->model_type);
    if (arch->bias_key) mt_json_put_bool(out, "attention_bias", mt__gguf_raw_find(g, "blk.0.attn_q.bias") != NULL);
    return arch->put ? arch->put(g, out, err) : MT_OK;
}

static mt_rc put_config(const mt_gguf *g, mt_json_out *out, mt_err *err)
{
    int64_t Dh;
    double eps;
    const mt__gguf_raw *embed = mt__gguf_raw_find(g, "token_embd.weight");
    if (!embed || embed->n_dims != 2)
        return mt_fail(err, MT_EFORMAT, "%s: no token_embd.weight; this is not a whole model", g->base.path);
    MT_TRY(put_class(g, out, err));
    MT_TRY(put_sizes(g, out, &Dh, err));
    mt_json_put_int(out, "vocab_size", embed->shape[0]);
    mt_json_put_str(out, "hidden_act", mt__gguf_arch_of(g)->norms_plus_one ? "gelu_pytorch_tanh" : "silu"); /* Gemma's */
    MT_TRY(get_number(g, "attention.layer_norm_rms_epsilon", 1e-6, &eps, err));
    mt__config_number(out, "rms_norm_eps", eps);
    MT_TRY(put_rope(g, out, Dh, err));
    mt_json_put_bool(out, "tie_word_embeddings", !mt__gguf_raw_find(g, "output.weight"));
    mt_json_put_str(out, "torch_dtype", "bfloat16");
    put_token(g, out, "bos_token_id", bos_key);
    put_token(g, out, "eos_token_id", eos_key);
    put_token(g, out, "pad_token_id", pad_key);
    return MT_OK;
}

static mt_rc gguf_config_finish(const mt_gguf *g, mt_json_out *j, mt_err *err)
{
    mt_json_end(j);
    mt_str_putc(j->to, '\n');
    return mt_json_done(j, g->base.path, err);
}

mt_rc mt_gguf_config(const mt_gguf *g, mt_str *out, mt_err *err)
{
    mt_json_out j = { .to = out };
    mt_json_map(&j, NULL, MT_JSON_LINES);
    MT_TRY(put_config(g, &j, err));
    return gguf_config_finish(g, &j, err);
}

mt_rc mt_gguf_generation_config(const mt_gguf *g, mt_str *out, mt_err *err)
{
    int64_t eos, turn;
    mt_json_out j = { .to = out };
    bool two = mt__kv_int(mt__gguf_find(g, eos_key), &eos) &&
               mt__kv_int(mt__gguf_find(g, "tokenizer.ggml.eot_token_id"), &turn) && turn >= 0 && turn != eos;
    mt_json_map(&j, NULL, MT_JSON_LINES);
    put_token(g, &j, "bos_token_id", bos_key);
    if (two) { /* the end of a turn ends generation, too */
        mt_json_list(&j, "eos_token_id", MT_JSON_FLAT);
        mt_json_put_int(&j, NULL, eos);
        mt_json_put_int(&j, NULL, turn);
        mt_json_end(&j);
    } else
        put_token(g, &j, "eos_token_id", eos_key);
    put_token(g, &j, "pad_token_id", pad_key);
    return gguf_config_finish(g, &j, err);
}
