/* config.c - config.json in, mt_config out. */
#include "model/config.h"

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "model/family.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DIM = 1 << 24, MAX_LAYERS = 4096, MAX_HEADS = 4096 };

typedef struct reader {
    const json_t *doc; /* the part about text */
    const json_t *top; /* the whole file; the same unless it is of a multimodal model */
    const char *path;
    const mt_family *as; /* the family is given, not looked for */
    bool guessed;        /* neither given nor told by type or architecture */
    mt_config *c;
    mt_err *err;
} reader;

static mt_rc assume(reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static mt_rc assume(reader *r, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mt_config *c = r->c;
    char **grown = mt_realloc(c->assumptions, (c->n_assumptions + 1) * sizeof *grown);
    if (grown) {
        c->assumptions = grown;
        if ((grown[c->n_assumptions] = mt_strdup(text))) {
            c->n_assumptions++;
            return MT_OK;
        }
    }
    return mt_fail(r->err, MT_ENOMEM, "no host memory for the model's description");
}

/* The first of several spellings that is there; NULL: none. */
static const char *spelling(const reader *r, const char *const *names)
{
    for (; *names; names++)
        if (!mt_json_missing(json_object_get(r->doc, *names))) return *names;
    return NULL;
}

static mt_rc dimension(reader *r, int64_t *out, int64_t fallback, const char *const *names)
{
    const char *key = spelling(r, names);
    if (!key && fallback < 0)
        return mt_fail(r->err, MT_EFORMAT, "%s: \"%s\" is missing; it is needed to know the model's shape", r->path, names[0]);
    if (!key) return *out = fallback, MT_OK;
    MT_TRY(mt_json_i64(r->doc, key, 0, out, r->path, r->err));
    if (*out < 1 || *out > MAX_DIM)
        return mt_fail(r->err, MT_ERANGE, "%s: \"%s\" is %lld; 1 to %d expected", r->path, key, (long long)*out, MAX_DIM);
    return MT_OK;
}

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* A family's own number, or none. */
static int64_t or_needed(int64_t own) { return own ? own : -1; }

static mt_rc read_dimensions(reader *r)
{
    mt_config *c = r->c;
    const mt_family *f = c->family;
    MT_TRY(dimension(r, &c->D, or_needed(f->shape.D), NAMES("hidden_size", "n_embd", "d_model")));
    MT_TRY(dimension(r, &c->L, or_needed(f->shape.L), NAMES("num_hidden_layers", "num_layers", "n_layer")));
    MT_TRY(dimension(r, &c->H, or_needed(f->shape.H), NAMES("num_attention_heads", "n_head")));
    MT_TRY(dimension(r, &c->K, f->shape.K ? f->shape.K : c->H,
                     NAMES("num_key_value_heads", "multi_query_group_num", "num_kv_heads")));
    int64_t mlp = f->default_mlp_factor ? f->default_mlp_factor * c->D : or_needed(f->shape.F);
    MT_TRY(dimension(r, &c->F, mlp, NAMES("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")));
    MT_TRY(dimension(r, &c->V, or_needed(f->shape.V), NAMES("vocab_size", "padded_vocab_size")));
    MT_TRY(dimension(r, &c->max_positions, f->shape.positions ? f->shape.positions : 2048,
                     NAMES("max_position_embeddings", "seq_length", "n_positions", "model_max_length", "max_sequence_length")));
    int64_t head = f->default_head_dim ? f->default_head_dim : c->D / c->H;
    MT_TRY(dimension(r, &c->Dh, head, NAMES("head_dim", "kv_channels")));
    if (c->L > MAX_LAYERS) return mt_fail(r->err, MT_ERANGE, "%s: %lld layers, at most %d", r->path, (long long)c->L, MAX_LAYERS);
    if (c->H > MAX_HEADS) return mt_fail(r->err, MT_ERANGE, "%s: %lld heads, at most %d", r->path, (long long)c->H, MAX_HEADS);
    if (c->H % c->K)
        return mt_fail(r->err, MT_EFORMAT, "%s: num_attention_heads=%lld is not a multiple of num_key_value_heads=%lld", r->path,
                       (long long)c->H, (long long)c->K);
    if (c->H * c->Dh > MAX_DIM)
        return mt_fail(r->err, MT_ERANGE, "%s: %lld heads of %lld; at most %d columns in all", r->path, (long long)c->H,
                       (long long)c->Dh, MAX_DIM);
    if (c->Dh % 2 && c->family->rope != MT_ROPE_NONE)
        return mt_fail(r->err, MT_EUNSUPPORTED, "%s: head_dim=%lld is odd; rotary positions need pairs", r->path,
                       (long long)c->Dh);
    return MT_OK;
}

static mt_rc read_activation(reader *r)
{
    static const struct {
        const char *name;
        mt_act act;
    } known[] = { { "silu", MT_ACT_SILU },          { "swish", MT_ACT_SILU },          { "gelu_pytorch_tanh", MT_ACT_GELU_TANH },
                  { "gelu_new", MT_ACT_GELU_TANH }, { "gelu_fast", MT_ACT_GELU_TANH }, { "gelu", MT_ACT_GELU_ERF },
                  { "relu", MT_ACT_RELU },          { "relu2", MT_ACT_RELU2 } };
    const char *own = r->c->family->act_key, *name;
    const char *key = own ? own : spelling(r, NAMES("hidden_act", "hidden_activation", "activation_function", "activation"));
    r->c->act = r->c->family->default_act;
    if (!key || mt_json_missing(json_object_get(r->doc, key))) return MT_OK;
    MT_TRY(mt_json_str(r->doc, key, "", &name, r->path, r->err));
    for (size_t i = 0; i < MT_COUNT(known); i++)
        if (strcmp(known[i].name, name) == 0) return r->c->act = known[i].act, MT_OK;
    return mt_fail(r->err, MT_EUNSUPPORTED,
                   "%s: activation \"%s\" is not supported (silu, gelu, gelu_new, gelu_pytorch_tanh, relu and relu2 are)",
                   r->path, name);
}

static mt_rc bias_by(reader *r, mt_bias_rule rule, const char *key, bool *out)
{
    *out = rule == MT_BIAS_ALWAYS;
    if (rule != MT_BIAS_BY_KEY && rule != MT_BIAS_UNLESS_KEY) return MT_OK;
    return mt_json_bool(r->doc, r->c->family->bias_key ? r->c->family->bias_key : key, rule == MT_BIAS_UNLESS_KEY, out, r->path,
                        r->err);
}

/* Nothing is ever dropped here; a run says so where config.json asks for it. */
static void read_dropout(reader *r)
{
    static const char *const keys[] = { "attention_dropout", "attn_pdrop",          "embd_pdrop",       "embed_pdrop",     "resid_pdrop",
                                        "hidden_dropout",    "residual_dropout",    "embedding_dropout", "dropout",         "activation_dropout",
                                        "layerdrop",         "hidden_dropout_prob" };
    for (size_t i = 0; i < MT_COUNT(keys); i++) {
        double share = json_number_value(json_object_get(r->doc, keys[i])); /* 0 for what is no number */
        if (share <= r->c->dropout) continue;
        r->c->dropout = share;
        r->c->dropout_key = keys[i];
    }
}

static mt_rc read_traits(reader *r)
{
    mt_config *c = r->c;
    const mt_family *f = c->family;
    const char *eps = spelling(
        r, NAMES("rms_norm_eps", "layernorm_epsilon", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"));
    MT_TRY(mt_json_f64(r->doc, eps ? eps : "rms_norm_eps", f->default_eps, &c->eps, r->path, r->err));
    if (!(c->eps >= 0 && c->eps < 1))
        return mt_fail(r->err, MT_ERANGE, "%s: \"%s\" is %g; 0 to 1 expected", r->path, eps, c->eps);
    MT_TRY(mt_json_bool(r->top, "tie_word_embeddings", f->default_tied, &c->tied, r->path, r->err));
    MT_TRY(mt_json_bool(r->doc, "tie_word_embeddings", c->tied, &c->tied, r->path, r->err));
    const char *range = spelling(r, NAMES("initializer_range", "init_std"));
    MT_TRY(mt_json_f64(r->doc, range ? range : "initializer_range", 0.02, &c->init_range, r->path, r->err));
    c->init_branch = 1;
    MT_TRY(bias_by(r, f->qkv_bias, "attention_bias", &c->qkv_bias));
    MT_TRY(bias_by(r, f->o_bias, "attention_bias", &c->o_bias));
    MT_TRY(bias_by(r, f->mlp_bias, "mlp_bias", &c->mlp_bias));
    c->qk_norm = f->qk_norm;
    c->qk_norm_whole = f->qk_norm_whole;
    c->layer_norm = f->layer_norm;
    c->norm_bias = f->norm_bias;
    c->norm_one_plus = f->norm_one_plus;
    c->norms = f->norms;
    c->form = f->form;
    c->plain_mlp = f->plain_mlp;
    c->head_bias = f->head_bias;
    c->learned_positions = f->learned_positions;
    c->position_rows = c->max_positions;
    c->embed_scale = c->residual_scale = c->logit_scale = 1;
    c->attention_scale = 1.0 / sqrt((double)c->Dh);
    snprintf(c->prefix, sizeof c->prefix, "%s", f->prefix ? f->prefix : "model.");
    int64_t pad;
    MT_TRY(mt_json_i64(r->doc, "pad_token_id", -1, &pad, r->path, r->err));
    c->pad_id = pad >= 0 && pad < c->V ? (int32_t)pad : -1;
    read_dropout(r);
    const char *dtype;
    const json_t *at = spelling(r, NAMES("dtype", "torch_dtype")) ? r->doc : r->top;
    MT_TRY(mt_json_str(at, mt_json_missing(json_object_get(at, "dtype")) ? "torch_dtype" : "dtype", "float32", &dtype, r->path,
                       r->err));
    if (!mt_dtype_from_torch(dtype, &c->dtype)) return mt_fail(r->err, MT_EFORMAT, "%s: unknown dtype \"%s\"", r->path, dtype);
    return read_activation(r);
}

/* -- windows --------------------------------------------------------------------------------------- */

static mt_rc window_from_layer_types(reader *r, const json_t *types, int64_t width)
{
    mt_config *c = r->c;
    if (!json_is_array(types) || json_array_size(types) < (size_t)c->L)
        return mt_fail(r->err, MT_EFORMAT, "%s: \"layer_types\" should list all %lld layers", r->path, (long long)c->L);
    for (int64_t i = 0; i < c->L; i++) {
        const json_t *v = json_array_get(types, (size_t)i);
        const char *name = json_is_string(v) ? json_string_value(v) : "";
        if (strcmp(name, "sliding_attention") == 0)
            c->window[i] = width;
        else if (strcmp(name, "full_attention") != 0 && strcmp(name, "attention") != 0)
            return mt_fail(r->err, MT_EUNSUPPORTED,
                           "%s: layer %lld is of type \"%s\"; only full and sliding attention are supported", r->path,
                           (long long)i, name);
    }
    return MT_OK;
}

/* Every how many layers one is full: a number, or a string with a letter a layer ("LLLG"), the last of which is. */
static mt_rc window_pattern(reader *r, int64_t fallback, int64_t *out)
{
    const json_t *v = json_object_get(r->doc, "sliding_window_pattern");
    *out = fallback;
    if (json_is_string(v))
        *out = (int64_t)json_string_length(v);
    else
        MT_TRY(mt_json_i64(r->doc, "sliding_window_pattern", fallback, out, r->path, r->err));
    if (*out < 1) return mt_fail(r->err, MT_ERANGE, "%s: \"sliding_window_pattern\" of %lld layers", r->path, (long long)*out);
    return MT_OK;
}

static mt_rc read_windows(reader *r)
{
    mt_config *c = r->c;
    const mt_family *f = c->family;
    const json_t *key = json_object_get(r->doc, "sliding_window"), *types = json_object_get(r->doc, "layer_types");
    int64_t width = 0, first = 0, pattern = 0;
    bool used = f->window == MT_WINDOW_ALL;
    c->window = mt_calloc((size_t)c->L, sizeof *c->window);
    if (!c->window) return mt_fail(r->err, MT_ENOMEM, "no host memory for the layer table");
    if (f->window == MT_WINDOW_NEVER) return MT_OK;
    MT_TRY(mt_json_i64(r->doc, "sliding_window", key ? 0 : f->default_window, &width, r->path, r->err)); /* null: full */
    if (f->window == MT_WINDOW_LATE) {
        MT_TRY(mt_json_bool(r->doc, "use_sliding_window", false, &used, r->path, r->err));
        MT_TRY(mt_json_i64(r->doc, "max_window_layers", 28, &first, r->path, r->err));
    }
    if (width < 0) return mt_fail(r->err, MT_ERANGE, "%s: \"sliding_window\" is %lld", r->path, (long long)width);
    if (first < 0)
        return mt_fail(r->err, MT_ERANGE, "%s: \"max_window_layers\" is %lld; 0 or more expected", r->path, (long long)first);
    if (f->window == MT_WINDOW_PATTERN) {
        used = true;
        MT_TRY(window_pattern(r, f->window_pattern, &pattern));
    }
    if (!used || width == 0) return MT_OK;
    if (!mt_json_missing(types)) return window_from_layer_types(r, types, width);
    for (int64_t i = first; i < c->L; i++) c->window[i] = pattern && (i + 1) % pattern == 0 ? 0 : width;
    return MT_OK;
}

/* -- rope ------------------------------------------------------------------------------------------ */

static double yarn_mscale(double factor, double m) { return factor <= 1 ? 1.0 : 0.1 * m * log(factor) + 1.0; }

static mt_rc read_yarn(reader *r, const json_t *d, mt_rope_spec *rope)
{
    double mscale, mscale_all, given;
    MT_TRY(mt_json_f64(d, "beta_fast", 32, &rope->beta_fast, r->path, r->err));
    MT_TRY(mt_json_f64(d, "beta_slow", 1, &rope->beta_slow, r->path, r->err));
    MT_TRY(mt_json_bool(d, "truncate", true, &rope->truncate, r->path, r->err));
    MT_TRY(mt_json_f64(d, "mscale", 0, &mscale, r->path, r->err));
    MT_TRY(mt_json_f64(d, "mscale_all_dim", 0, &mscale_all, r->path, r->err));
    MT_TRY(mt_json_f64(d, "attention_factor", 0, &given, r->path, r->err));
    if (given != 0)
        rope->attention_factor = given;
    else if (mscale != 0 && mscale_all != 0)
        rope->attention_factor = yarn_mscale(rope->factor, mscale) / yarn_mscale(rope->factor, mscale_all);
    else
        rope->attention_factor = yarn_mscale(rope->factor, 1);
    return MT_OK;
}

static mt_rc read_scaling(reader *r, const json_t *d, mt_rope_spec *rope)
{
    static const struct {
        const char *name;
        mt_rope_type type;
    } known[] = { { "default", MT_ROPE_DEFAULT }, { "linear", MT_ROPE_LINEAR }, { "dynamic", MT_ROPE_DYNAMIC },
                  { "llama3", MT_ROPE_LLAMA3 },   { "yarn", MT_ROPE_YARN },     { "longrope", MT_ROPE_LONG },
                  { "su", MT_ROPE_LONG } };
    const char *name, *old_name;
    MT_TRY(mt_json_str(d, "type", "default", &old_name, r->path, r->err));
    MT_TRY(mt_json_str(d, "rope_type", old_name, &name, r->path, r->err));
    size_t i = 0;
    while (i < MT_COUNT(known) && strcmp(known[i].name, name)) i++;
    if (i == MT_COUNT(known))
        return mt_fail(r->err, MT_EUNSUPPORTED,
                       "%s: rope scaling \"%s\" is not supported (default, linear, dynamic, llama3, yarn, longrope are)", r->path,
                       name);
    rope->type = known[i].type;
    if (!mt_json_missing(json_object_get(d, "short_factor"))) rope->type = MT_ROPE_LONG; /* Phi-3 called it yarn, too */
    MT_TRY(mt_json_f64(d, "rope_theta", rope->theta, &rope->theta, r->path, r->err));
    double from_top;
    MT_TRY(mt_json_f64(d, "original_max_position_embeddings", (double)r->c->max_positions, &rope->original_positions, r->path,
                       r->err));
    MT_TRY(mt_json_f64(r->doc, "original_max_position_embeddings", rope->original_positions, &from_top, r->path, r->err));
    rope->original_positions = from_top;
    double implied = (double)r->c->max_positions / rope->original_positions;
    MT_TRY(mt_json_f64(d, "factor", rope->type == MT_ROPE_YARN || rope->type == MT_ROPE_LONG ? implied : 1, &rope->factor,
                       r->path, r->err));
    MT_TRY(mt_json_f64(d, "low_freq_factor", 1, &rope->low_freq, r->path, r->err));
    MT_TRY(mt_json_f64(d, "high_freq_factor", 4, &rope->high_freq, r->path, r->err));
    bool logs = rope->type == MT_ROPE_LONG; /* of the positions, so one alone will not do; where they grew by less than 1 it
                                             * says nothing */
    if (!((rope->factor >= 1 || logs) && rope->factor < 1e6 && rope->original_positions >= (logs ? 2 : 1)))
        return mt_fail(r->err, MT_ERANGE, "%s: rope scaling factor %g over %g positions makes no sense", r->path, rope->factor,
                       rope->original_positions);
    return rope->type == MT_ROPE_YARN ? read_yarn(r, d, rope) : MT_OK; /* the rest of longrope once dr is known */
}

static mt_rc read_factors(reader *r, const json_t *d, const char *key, int64_t n, double *out)
{
    const json_t *list = json_object_get(d, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n)
        return mt_fail(r->err, MT_EFORMAT, "%s: rope scaling: \"%s\" should list %lld numbers, half of a head's rotated width",
                       r->path, key, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        out[i] = json_number_value(v);
        if (!json_is_number(v) || !(out[i] > 0))
            return mt_fail(r->err, MT_EFORMAT, "%s: rope scaling: \"%s\" should hold positive numbers", r->path, key);
    }
    return MT_OK;
}

static mt_rc read_longrope(reader *r, const json_t *d, mt_rope_spec *rope)
{
    double implied = rope->factor <= 1 ? 1 : sqrt(1 + log(rope->factor) / log(rope->original_positions));
    MT_TRY(mt_json_f64(d, "attention_factor", implied, &rope->attention_factor, r->path, r->err));
    MT_TRY(read_factors(r, d, "short_factor", rope->dr / 2, rope->short_factor));
    return read_factors(r, d, "long_factor", rope->dr / 2, rope->long_factor);
}

/* One set of rope settings, or none (d missing): the top-level keys and the family's defaults. */
static mt_rc read_rope_spec(reader *r, const json_t *d, double theta, mt_rope_spec *rope)
{
    const mt_config *c = r->c;
    const char *partial_key = spelling(r, NAMES("partial_rotary_factor", "rotary_pct", "rope_pct"));
    double partial;
    *rope = (mt_rope_spec){ .style = c->family->rope, .factor = 1, .attention_factor = 1, .theta = theta };
    if (!mt_json_missing(d) && !json_is_object(d))
        return mt_fail(r->err, MT_EFORMAT, "%s: the rope settings should be an object", r->path);
    MT_TRY(mt_json_f64(r->doc, partial_key ? partial_key : "partial_rotary_factor",
                       c->family->default_partial ? c->family->default_partial : 1, &partial, r->path, r->err));
    if (!mt_json_missing(d)) {
        MT_TRY(mt_json_f64(d, "partial_rotary_factor", partial, &partial, r->path, r->err));
        MT_TRY(read_scaling(r, d, rope));
    }
    if (!(rope->theta > 1 && rope->theta < 1e15)) return mt_fail(r->err, MT_ERANGE, "%s: rope_theta is %g", r->path, rope->theta);
    rope->dr = (int64_t)((double)c->Dh * partial);
    if (rope->dr < 2 || rope->dr % 2 || rope->dr > c->Dh || rope->dr / 2 > MT_MAX_PAIRS)
        return mt_fail(r->err, MT_ERANGE, "%s: partial_rotary_factor=%g of head_dim=%lld is not a number of pairs", r->path,
                       partial, (long long)c->Dh);
    return rope->type == MT_ROPE_LONG ? read_longrope(r, d, rope) : MT_OK;
}

/* Layers without rotary positions, as smollm3 lists them. */
static mt_rc read_no_rope(reader *r)
{
    mt_config *c = r->c;
    const json_t *list = json_object_get(r->doc, "no_rope_layers");
    int64_t interval = 0;
    if (mt_json_missing(list)) {
        MT_TRY(mt_json_i64(r->doc, "no_rope_layer_interval", c->family->nope_interval, &interval, r->path, r->err));
        for (int64_t i = 0; interval > 0 && i < c->L; i++)
            if ((i + 1) % interval == 0) c->layer_rope[i] = MT_LAYER_NOPE;
        return MT_OK;
    }
    if (!json_is_array(list) || json_array_size(list) < (size_t)c->L)
        return mt_fail(r->err, MT_EFORMAT, "%s: \"no_rope_layers\" should list all %lld layers", r->path, (long long)c->L);
    for (int64_t i = 0; i < c->L; i++)
        if (json_integer_value(json_array_get(list, (size_t)i)) == 0) c->layer_rope[i] = MT_LAYER_NOPE;
    return MT_OK;
}

static mt_rc read_rope(reader *r)
{
    mt_config *c = r->c;
    const mt_family *f = c->family;
    double theta, local_theta;
    c->layer_rope = mt_calloc((size_t)c->L, sizeof *c->layer_rope);
    if (!c->layer_rope) return mt_fail(r->err, MT_ENOMEM, "no host memory for the layer table");
    if (f->rope == MT_ROPE_NONE) return MT_OK;
    const json_t *d = json_object_get(r->doc, "rope_scaling"), *both = json_object_get(r->doc, "rope_parameters"), *local = NULL;
    bool keyed = json_is_object(json_object_get(both, "full_attention"));
    if (keyed) local = json_object_get(both, "sliding_attention");
    if (mt_json_missing(d)) d = keyed ? json_object_get(both, "full_attention") : both;
    const char *theta_key = spelling(r, NAMES("rope_theta", "rotary_emb_base"));
    MT_TRY(mt_json_f64(r->doc, theta_key ? theta_key : "rope_theta", f->default_theta, &theta, r->path, r->err));
    MT_TRY(read_rope_spec(r, d, theta, &c->rope));
    for (int64_t i = 0; i < c->L; i++) c->layer_rope[i] = MT_LAYER_ROPE;
    if (f->local_rope) {
        MT_TRY(mt_json_f64(r->doc, "rope_local_base_freq", f->local_theta ? f->local_theta : c->rope.theta, &local_theta, r->path,
                           r->err));
        MT_TRY(read_rope_spec(r, local, local_theta, &c->rope_local));
        for (int64_t i = 0; i < c->L; i++)
            if (c->window[i]) c->layer_rope[i] = MT_LAYER_ROPE_LOCAL, c->has_rope_local = true;
    }
    return f->nope_interval ? read_no_rope(r) : MT_OK;
}

void mt_config_no_rope(mt_config *c)
{
    memset(c->layer_rope, MT_LAYER_NOPE, (size_t)c->L);
    c->rope.dr = c->rope_local.dr = 0;
}

/* -- which family ---------------------------------------------------------------------------------- */

static mt_rc refuse_unfit(reader *r)
{
    bool enc_dec = false;
    MT_TRY(mt_json_bool(r->doc, "is_encoder_decoder", false, &enc_dec, r->path, r->err));
    if (enc_dec)
        return mt_fail(r->err, MT_EUNSUPPORTED, "%s: \"%s\" is an encoder-decoder model; megatrain trains decoder-only models",
                       r->path, r->c->model_type);
    static const char *const experts[] = { "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", NULL };
    if (spelling(r, experts))
        return mt_fail(r->err, MT_EUNSUPPORTED,
                       "%s: \"%s\" is a mixture of experts (\"%s\"); only dense models are supported so far", r->path,
                       r->c->model_type, spelling(r, experts));
    if (!mt_json_missing(json_object_get(r->doc, "kv_lora_rank")))
        return mt_fail(r->err, MT_EUNSUPPORTED,
                       "%s: \"%s\" uses latent attention (\"kv_lora_rank\"), which is not supported so far", r->path,
                       r->c->model_type);
    return MT_OK;
}

/* The text part of a multimodal model's config; its own type, where it has one, decides. */
static void find_text(reader *r)
{
    const json_t *text = json_object_get(r->top, "text_config");
    r->doc = json_is_object(text) ? text : r->top;
}

/* The key is there and not switched off; of windows with a switch, the switch tells. */
static bool says(const json_t *doc, const char *key)
{
    const json_t *v = json_object_get(doc, key);
    bool switched = strcmp(key, "sliding_window") == 0 && json_object_get(doc, "use_sliding_window");
    return !mt_json_missing(v) && !json_is_false(v) && !switched;
}

static int n_telling(const json_t *doc, const mt_family *f)
{
    int n = 0;
    for (const char *const *key = f->telling; *key; key++) n += says(doc, *key);
    return n;
}

static bool listed(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0) names++;
    return *names;
}

/* A key of config.json that tells of other families and means nothing to this one: something it would not compute.  NULL:
 * none. */
static const char *foreign_key(const json_t *doc, const mt_family *f)
{
    for (const mt_family *const *other = mt_families; *other; other++)
        for (const char *const *key = (*other)->telling; *key; key++)
            if (!listed(f->telling, *key) && says(doc, *key)) return *key;
    return NULL;
}

/* Nobody knows the type: the family whose keys config.json has most of; llama, whose keys all others share, if there are none. */
static mt_rc guess_family(reader *r)
{
    mt_config *c = r->c;
    r->guessed = !r->as;
    c->family = r->as ? r->as : &mt_family_llama;
    for (const mt_family *const *f = mt_families; !r->as && *f; f++)
        if (n_telling(r->doc, *f) > n_telling(r->doc, c->family)) c->family = *f;
    const char *foreign = foreign_key(r->doc, c->family);
    if (foreign)
        return mt_fail(r->err, MT_EUNSUPPORTED,
                       "%s: model_type \"%s\" is not known, and taken for a %s model its \"%s\" would be ignored; this model is "
                       "not supported",
                       r->path, c->model_type, c->family->name, foreign);
    bool by_keys = n_telling(r->doc, c->family) > 0;
    c->decided_by = r->as ? "tensor names" : by_keys ? "config keys" : "nothing better";
    if (r->as)
        return assume(
            r, "model_type \"%s\" is unknown; its tensors have the names and shapes of a %s model's, so it is treated as one",
            c->model_type, c->family->name);
    if (by_keys)
        return assume(r, "model_type \"%s\" is unknown; its config has keys of %s, so it is treated as one", c->model_type,
                      c->family->name);
    return assume(r,
                  "model_type \"%s\" is unknown; it is treated as a llama-shaped block (RMS norms before, SwiGLU, rotary halves)",
                  c->model_type);
}

static mt_rc find_family(reader *r)
{
    mt_config *c = r->c;
    const char *text, *of_whole;
    MT_TRY(mt_json_str(r->top, "model_type", "", &of_whole, r->path, r->err));
    MT_TRY(mt_json_str(r->doc, "model_type", of_whole, &text, r->path, r->err));
    snprintf(c->model_type, sizeof c->model_type, "%s", text);
    const json_t *archs = json_object_get(r->top, "architectures"), *first = json_array_get(archs, 0);
    snprintf(c->architecture, sizeof c->architecture, "%s", json_is_string(first) ? json_string_value(first) : "");
    MT_TRY(refuse_unfit(r));
    c->decided_by = "model_type";
    if (!r->as && (c->family = mt_family_by_model_type(c->model_type))) return MT_OK;
    c->decided_by = "architectures";
    if (!r->as && (c->family = mt_family_by_architecture(c->architecture)))
        return assume(r, "model_type \"%s\" is unknown; architecture %s is treated as %s", c->model_type, c->architecture,
                      c->family->name);
    return guess_family(r);
}

static mt_rc resolve(reader *r)
{
    if (!json_is_object(r->top)) return mt_fail(r->err, MT_EFORMAT, "%s: a JSON object was expected", r->path);
    find_text(r);
    MT_TRY(find_family(r));
    MT_TRY(read_dimensions(r));
    MT_TRY(read_traits(r));
    MT_TRY(read_windows(r));
    MT_TRY(read_rope(r));
    return r->c->family->read ? r->c->family->read(r->c, &(mt_keys){ r->doc, r->path, r->err }) : MT_OK;
}

/* The reader's document into a config of its own. */
static mt_rc read_all(mt_config **out, reader *r)
{
    r->c = mt_calloc(1, sizeof *r->c);
    mt_rc rc = r->c ? resolve(r) : mt_fail(r->err, MT_ENOMEM, "no host memory for the model's description");
    if (rc)
        mt_config_close(r->c);
    else
        *out = r->c;
    return rc;
}

/* Takes the document over. */
static mt_rc from_document(mt_config **out, json_t *doc, const char *what, mt_err *err)
{
    reader r = { .top = doc, .path = what, .err = err };
    mt_rc rc = read_all(out, &r);
    if (!rc && r.guessed)
        (*out)->document = doc;
    else
        json_decref(doc);
    return rc;
}

mt_rc mt_config_as(mt_config **out, const mt_config *c, const mt_family *family, mt_err *err)
{
    *out = NULL;
    return read_all(out, &(reader){ .top = c->document, .path = "config.json", .as = family, .err = err });
}

mt_rc mt_config_parse(mt_config **out, const char *text, size_t n, const char *what, mt_err *err)
{
    json_t *doc;
    *out = NULL;
    MT_TRY(mt_json_parse(&doc, text, n, what, err));
    return from_document(out, doc, what, err);
}

mt_rc mt_config_open(mt_config **out, const char *dir_or_file, mt_err *err)
{
    *out = NULL;
    char *path = mt_dir_exists(dir_or_file) ? mt_path_join(dir_or_file, "config.json") : mt_strdup(dir_or_file);
    if (!path) return mt_fail(err, MT_ENOMEM, "no host memory for a path");
    json_t *doc;
    mt_rc rc = mt_json_read(&doc, path, err);
    if (rc == MT_ENOENT)
        rc = mt_fail(err, MT_ENOENT,
                     "%s: no such file; a model is a directory with config.json and *.safetensors, as the hub has them", path);
    if (!rc) rc = from_document(out, doc, path, err);
    mt_free(path);
    return rc;
}

void mt_config_close(mt_config *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_assumptions; i++) mt_free(c->assumptions[i]);
    mt_free(c->assumptions);
    mt_free(c->window);
    mt_free(c->layer_rope);
    json_decref(c->document);
    mt_free(c);
}
