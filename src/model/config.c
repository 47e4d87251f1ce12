/* config.c - config.json in, mt_config out: which family, its shape and traits.  What layers differ in is config_layers.c. */
#include "model/config_read.h"
#include "model/part.h"

#include "base/file.h"
#include "base/nearest.h"
#include "base/str.h"
#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DIM = 1 << 24, MAX_LAYERS = 4096, MAX_HEADS = 4096 };

typedef mt__config_reader reader;

mt_rc mt__config_assume(reader *r, const char *fmt, ...)
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
    return mt_no_memory(r->err, "the model's description");
}

const char *mt__config_spelling(const mt_value *doc, const char *const *names)
{
    for (; *names; names++)
        if (!mt_json_missing(mt_value_get(doc, *names))) return *names;
    return NULL;
}

static const char *spelling(const reader *r, const char *const *names) { return mt__config_spelling(r->doc, names); }

static bool listed(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0) names++;
    return *names;
}

const char *mt__config_own_spelling(const reader *r, const char *const *names)
{
    bool usual = true;
    for (const char *const *own = r->c->family->own_keys; *own; own++) {
        if (!listed(names, *own)) continue;
        if (!mt_json_missing(mt_value_get(r->doc, *own))) return *own;
        usual = false;
    }
    if (usual && !mt_json_missing(mt_value_get(r->doc, names[0]))) return names[0];
    return r->c->type_known ? NULL : spelling(r, names);
}

mt_rc mt__config_own_number(const reader *r, const char *const *names, double fallback, double *out)
{
    const char *key = mt__config_own_spelling(r, names);
    *out = fallback;
    return key ? mt_json_f64(r->doc, key, fallback, out, r->path, r->err) : MT_OK;
}

static mt_rc dimension(reader *r, int64_t *out, int64_t fallback, const char *const *names)
{
    const char *key = spelling(r, names);
    if (!key && fallback < 0 && r->guessed && *r->c->model_type)
        return mt_fail(r->err, MT_EUNSUPPORTED,
                       "%s: model_type \"%s\" is not known here (see megatrain families), and without \"%s\" it is not like any "
                       "model that is",
                       r->path, r->c->model_type, names[0]);
    if (!key && fallback < 0)
        return mt_fail(r->err, MT_EFORMAT, "%s: \"%s\" is missing; it is needed to know the model's shape", r->path, names[0]);
    if (!key) {
        *out = fallback;
        return MT_OK;
    }
    return mt_json_i64_in(r->doc, key, 0, 1, MAX_DIM, out, r->path, r->err);
}

/* A family's own number, or none. */
static int64_t or_needed(int64_t own) { return own ? own : -1; }

/* The class's own number where the key is absent, unless these heads cannot share that many; null: a pair for each head. */
static int64_t kv_heads(const reader *r)
{
    int64_t own = r->c->family->shape.K;
    return own && r->c->H % own == 0 && !mt_value_get(r->doc, "num_key_value_heads") ? own : r->c->H;
}

static mt_rc read_dimensions(reader *r)
{
    mt_config *c = r->c;
    const mt_family *f = c->family;
    MT_TRY(dimension(r, &c->D, or_needed(f->shape.D), MT__NAMES("hidden_size", "n_embd", "d_model", "n_embed")));
    MT_TRY(dimension(r, &c->L, or_needed(f->shape.L), MT__NAMES("num_hidden_layers", "num_layers", "n_layer", "n_layers")));
    MT_TRY(dimension(r, &c->H, or_needed(f->shape.H), MT__NAMES("num_attention_heads", "n_head", "num_heads", "n_heads")));
    MT_TRY(dimension(r, &c->K, kv_heads(r), MT__NAMES("num_key_value_heads", "multi_query_group_num", "num_kv_heads")));
    int64_t mlp = f->default_mlp_factor ? f->default_mlp_factor * c->D : or_needed(f->shape.F);
    MT_TRY(dimension(r, &c->F, mlp, MT__NAMES("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")));
    MT_TRY(dimension(r, &c->V, or_needed(f->shape.V), MT__NAMES("vocab_size", "padded_vocab_size")));
    MT_TRY(dimension(r, &c->max_positions, f->shape.positions ? f->shape.positions : 2048,
                     MT__NAMES("max_position_embeddings", "seq_length", "n_positions", "model_max_length", "max_sequence_length",
                               "max_seq_len")));
    int64_t head = f->default_head_dim && !mt_value_get(r->doc, "head_dim") ? f->default_head_dim : c->D / c->H;
    if (f->latent.kv_rank)
        MT_TRY(mt__config_read_latent(r));
    else
        MT_TRY(dimension(r, &c->Dh, head, MT__NAMES("head_dim", "kv_channels")));
    if (c->L > MAX_LAYERS) return mt_fail(r->err, MT_ERANGE, "%s: %lld layers, at most %d", r->path, (long long)c->L, MAX_LAYERS);
    if (c->H > MAX_HEADS) return mt_fail(r->err, MT_ERANGE, "%s: %lld heads, at most %d", r->path, (long long)c->H, MAX_HEADS);
    if (c->H % c->K)
        return mt_fail(r->err, MT_EFORMAT, "%s: num_attention_heads=%lld is not a multiple of num_key_value_heads=%lld", r->path,
                       (long long)c->H, (long long)c->K);
    if (c->H * c->Dh > MAX_DIM)
        return mt_fail(r->err, MT_ERANGE, "%s: %lld heads of %lld; at most %d columns in all", r->path, (long long)c->H,
                       (long long)c->Dh, MAX_DIM);
    if (c->Dh % 2 && c->family->rope != MT_ROPE_NONE && !c->latent.kv_rank)
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
                  { "relu", MT_ACT_RELU },          { "relu2", MT_ACT_RELU2 },         { "xielu", MT_ACT_XIELU } };
    const char *name;
    const char *key =
        mt__config_own_spelling(r, MT__NAMES("hidden_act", "hidden_activation", "activation_function", "activation"));
    r->c->act = r->c->family->default_act;
    if (!key) return MT_OK;
    MT_TRY(mt_json_str(r->doc, key, "", &name, r->path, r->err));
    for (size_t i = 0; i < MT_COUNT(known); i++) {
        bool foreign = known[i].act == MT_ACT_XIELU && r->c->family->default_act != MT_ACT_XIELU; /* it has weights */
        if (strcmp(known[i].name, name) == 0 && !foreign) return r->c->act = known[i].act, MT_OK;
    }
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

/* Dropout is never applied.  If config.json asks for it, the run prints a notice. */
static void read_dropout(reader *r)
{
    static const char *const keys[] = { "attention_dropout", "attn_pdrop",         "embd_pdrop",       "embed_pdrop",
                                        "resid_pdrop",       "hidden_dropout",     "residual_dropout", "embedding_dropout",
                                        "dropout",           "activation_dropout", "layerdrop",        "hidden_dropout_prob" };
    for (size_t i = 0; i < MT_COUNT(keys); i++) {
        double share = mt_value_number(mt_value_get(r->doc, keys[i])); /* 0 if not a number */
        if (share <= r->c->dropout) continue;
        r->c->dropout = share;
        r->c->dropout_key = keys[i];
    }
}

static mt_rc read_traits(reader *r)
{
    static const char *const eps_names[] = {
        "rms_norm_eps", "layernorm_epsilon", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps", NULL
    };
    mt_config *c = r->c;
    const mt_family *f = c->family;
    MT_TRY(mt__config_own_number(
        r, MT__NAMES("rms_norm_eps", "layernorm_epsilon", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
        f->default_eps, &c->eps));
    if (!(c->eps >= 0 && c->eps < 1))
        return mt_fail(r->err, MT_ERANGE, "%s: the norms' eps is %g; 0 to 1 expected", r->path, c->eps);
    MT_TRY(mt_json_bool(r->top, "tie_word_embeddings", f->default_tied, &c->tied, r->path, r->err));
    MT_TRY(mt_json_bool(r->doc, "tie_word_embeddings", c->tied, &c->tied, r->path, r->err));
    MT_TRY(mt__config_own_number(r, eps_names, f->default_eps, &c->eps));
    if (!(c->eps >= 0 && c->eps < 1))
        return mt_fail(r->err, MT_ERANGE, "%s: \"%s\" is %g; 0 to 1 expected", r->path, mt__config_own_spelling(r, eps_names),
                       c->eps);
    MT_TRY(mt_json_bool(r->top, "tie_word_embeddings", f->default_tied, &c->tied, r->path, r->err));
    MT_TRY(mt_json_bool(r->doc, "tie_word_embeddings", c->tied, &c->tied, r->path, r->err));
    MT_TRY(mt__config_own_number(r, MT__NAMES("initializer_range", "init_std"), 0.02, &c->init_range));
    c->init_branch = 1;
    MT_TRY(bias_by(r, f->qkv_bias, "attention_bias", &c->qkv_bias));
    MT_TRY(bias_by(r, f->o_bias, "attention_bias", &c->o_bias));
    MT_TRY(bias_by(r, f->mlp_bias, "mlp_bias", &c->mlp_bias));
    c->qk_norm = f->qk_norm;
    c->qk_norm_whole = f->qk_norm_whole;
    c->qk_norm_last = f->qk_norm_last;
    c->layer_norm = f->layer_norm;
    c->norm_bias = f->norm_bias;
    c->norm_bare = f->norm_bare;
    c->norm_one_plus = f->norm_one_plus;
    c->norms = f->norms;
    c->form = f->form;
    c->plain_mlp = f->plain_mlp;
    c->head_bias = f->head_bias;
    c->learned_positions = f->learned_positions;
    c->position_rows = c->max_positions;
    c->embed_scale = c->residual_scale = c->logit_scale = 1;
    c->attention_scale = 1.0 / sqrt((double)c->Dh);
    int64_t pad;
    MT_TRY(mt_json_i64(r->doc, "pad_token_id", mt_value_get(r->doc, "pad_token_id") ? -1 : f->default_pad - 1, &pad, r->path,
                       r->err)); /* null: none */
    c->pad_id = pad >= 0 && pad < c->V ? (int32_t)pad : -1;
    read_dropout(r);
    const char *dtype;
    const mt_value *at = spelling(r, MT__NAMES("dtype", "torch_dtype")) ? r->doc : r->top;
    MT_TRY(mt_json_str(at, mt_json_missing(mt_value_get(at, "dtype")) ? "torch_dtype" : "dtype", "float32", &dtype, r->path,
                       r->err));
    if (!mt_dtype_from_torch(dtype, &c->dtype)) return mt_fail(r->err, MT_EFORMAT, "%s: unknown dtype \"%s\"", r->path, dtype);
    return read_activation(r);
}

/* -- which family ---------------------------------------------------------------------------------- */

/* The key or the class by which a decoder of any family becomes an encoder; NULL: none.  transformers takes null for false. */
static const char *attends_both_ways(const reader *r)
{
    static const char *const classes[] = { "Bidirectional", "BiModel", "EncoderModel" };
    const mt_value *both = mt_value_get(r->doc, "use_bidirectional_attention"), *causal = mt_value_get(r->doc, "is_causal");
    for (size_t i = 0; i < MT_COUNT(classes); i++)
        if (strstr(r->c->architecture, classes[i])) return r->c->architecture;
    if (!mt_json_missing(both) && !mt_value_is_false(both)) return "use_bidirectional_attention";
    if (!causal || mt_value_is_true(causal)) return NULL;
    return "is_causal";
}

/* Methods whose files may hold floats, which every pass of transformers rounds.  With others, floats are what it computes with. */
static mt_rc refuse_rounding(reader *r)
{
    static const char *const methods[] = { "bitnet", "fp_quant", "fouroversix" };
    const mt_value *q = mt_value_get(r->doc, "quantization_config");
    const char *method;
    if (mt_json_missing(q)) q = mt_value_get(r->top, "quantization_config");
    MT_TRY(mt_json_str(q, "quant_method", "", &method, r->path, r->err));
    snprintf(r->c->quantized, sizeof r->c->quantized, "%s", method);
    mt_utf8_tame(r->c->quantized);
    for (size_t i = 0; i < MT_COUNT(methods); i++)
        if (strcmp(method, methods[i]) == 0)
            return mt_fail(
                r->err, MT_EUNSUPPORTED,
                "%s: \"quantization_config\" is %s's: such a model computes with rounded weights, even if its files hold "
                "floats.  megatrain trains plain weights; convert the model to them and remove the key",
                r->path, method);
    return MT_OK;
}

/* Of a known type, another class than its language model's: a head or layers that are not in this family, or a draft. */
static mt_rc note_architecture(reader *r)
{
    const mt_family *f = r->c->family;
    if (r->doc != r->top || !*r->c->architecture || listed(f->architectures, r->c->architecture)) return MT_OK;
    return mt__config_assume(
        r, "config.json names the class %s, not %s: the model is trained as the latter, a causal language model",
        r->c->architecture, f->architectures[0]);
}

static mt_rc refuse_unfit(reader *r)
{
    bool enc_dec = false;
    MT_TRY(mt_json_bool(r->doc, "is_encoder_decoder", false, &enc_dec, r->path, r->err));
    if (enc_dec)
        return mt_fail(r->err, MT_EUNSUPPORTED, "%s: \"%s\" is an encoder-decoder model; megatrain trains decoder-only models",
                       r->path, r->c->model_type);
    MT_TRY(refuse_rounding(r));
    const char *both_ways = attends_both_ways(r);
    if (both_ways)
        return mt_fail(r->err, MT_EUNSUPPORTED,
                       "%s: \"%s\": this model's tokens attend to later ones, as EmbeddingGemma's do to embed texts; megatrain "
                       "trains models whose tokens attend to earlier ones",
                       r->path, both_ways);
    const mt_family *f = r->as ? r->as : mt_family_by_model_type(r->c->model_type);
    return mt__config_refuse_latent(r, f ? f : mt_family_by_architecture(r->c->architecture));
}

/* An unknown type may be anything.  Refuse types that are certainly not text decoders. */
static mt_rc refuse_other_kinds(reader *r)
{
    static const char *const senses[] = {
        "vision_config",     "audio_config",   "vision_tower",  "mm_vision_tower", "image_token_id",
        "image_token_index", "thinker_config", "speech_config", "visual",          NULL
    };
    static const char *const encoders[] = { "type_vocab_size", "classifier_pooling", "feed_forward_proj", NULL };
    const char *key = mt__config_spelling(r->top, senses), *architecture = r->c->architecture;
    bool causal = mt_ends_with(architecture, "ForCausalLM") || mt_ends_with(architecture, "LMHeadModel") || !*architecture;
    if (key || mt_ends_with(architecture, "ForConditionalGeneration"))
        return mt_fail(r->err, MT_EUNSUPPORTED,
                       "%s: \"%s\" is a multimodal model (%s%s%s) whose text part is not one megatrain knows; text models are "
                       "trained here",
                       r->path, r->c->model_type, key ? "it has \"" : "", key ? key : architecture, key ? "\"" : "");
    key = mt__config_spelling(r->doc, encoders);
    if (!causal || key)
        return mt_fail(r->err, MT_EUNSUPPORTED, "%s: \"%s\" (%s%s) is not a text decoder; megatrain trains decoder-only models",
                       r->path, r->c->model_type, causal ? "it has " : "", causal ? key : architecture);
    return MT_OK;
}

/* The text part of a multimodal model's config; its own type, where it has one, decides. */
static void find_text(reader *r)
{
    const mt_value *text = mt_value_get(r->top, "text_config");
    r->doc = mt_value_has(text, MT_VALUE_MAP) ? text : r->top;
}

/* The key is there and not switched off; for windows with a switch, the switch decides. */
static bool says(const mt_value *doc, const char *key)
{
    const mt_value *v = mt_value_get(doc, key);
    bool switched = strcmp(key, "sliding_window") == 0 && mt_value_get(doc, "use_sliding_window");
    return !mt_json_missing(v) && !mt_value_is_false(v) && !switched;
}

static int n_telling(const mt_value *doc, const mt_family *f)
{
    int n = 0;
    for (const char *const *key = f->telling; *key; key++) n += says(doc, *key);
    return n;
}

/* A key of config.json that belongs to other families and that this one would ignore.  NULL: none. */
static const char *foreign_key(const mt_value *doc, const mt_family *f)
{
    for (const mt_family *const *other = mt_families; *other; other++)
        for (const char *const *key = (*other)->telling; *key; key++)
            if (!listed(f->telling, *key) && says(doc, *key)) return *key;
    return NULL;
}

/* Experts whose rules are not known would be computed wrongly, or not at all. */
static mt_rc refuse_unknown_experts(reader *r)
{
    const mt_family *f = r->c->family;
    const char *key = mt__config_experts_key(r->doc);
    if (!key || (f && f->experts)) return MT_OK;
    return mt_fail(r->err, MT_EUNSUPPORTED,
                   "%s: \"%s\" is a mixture of experts (\"%s\") that is not supported; megatrain families lists those that are",
                   r->path, r->c->model_type, key);
}

/* The type is unknown: the family whose keys config.json has most of; llama, whose keys all others share, if there are none. */
static mt_rc guess_family(reader *r)
{
    mt_config *c = r->c;
    r->guessed = !r->as;
    MT_TRY(refuse_other_kinds(r));
    if (!r->as) MT_TRY(refuse_unknown_experts(r));
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
    c->decided_by = by_keys ? "config keys" : "nothing better";
    if (r->as) c->decided_by = r->as_told ? "model.family" : "tensor names";
    if (r->as_told)
        return mt__config_assume(r, "model_type \"%s\" is unknown; it is treated as %s because model.family says so",
                                 c->model_type, c->family->name);
    if (r->as)
        return mt__config_assume(
            r, "model_type \"%s\" is unknown; its tensors have the names and shapes of a %s model's, so it is treated as one",
            c->model_type, c->family->name);
    if (by_keys)
        return mt__config_assume(r, "model_type \"%s\" is unknown; its config has keys of %s, so it is treated as one",
                                 c->model_type, c->family->name);
    return mt__config_assume(
        r, "model_type \"%s\" is unknown; it is treated as a llama-shaped block (RMS norms before, SwiGLU, rotary halves)",
        c->model_type);
}

static mt_rc find_family(reader *r)
{
    mt_config *c = r->c;
    const char *text, *of_whole;
    MT_TRY(mt_json_str(r->top, "model_type", "", &of_whole, r->path, r->err));
    MT_TRY(mt_json_str(r->doc, "model_type", of_whole, &text, r->path, r->err));
    snprintf(c->model_type, sizeof c->model_type, "%s", text);
    const mt_value *archs = mt_value_get(r->top, "architectures"), *first = mt_value_at(archs, 0);
    snprintf(c->architecture, sizeof c->architecture, "%s", mt_value_has(first, MT_VALUE_STR) ? mt_json_string(first) : "");
    mt_utf8_tame(c->model_type); /* both are shown */
    mt_utf8_tame(c->architecture);
    MT_TRY(refuse_unfit(r));
    c->decided_by = "model_type";
    c->family = r->as ? NULL : mt_family_by_model_type(c->model_type);
    c->type_known = c->family;
    if (c->type_known) return note_architecture(r);
    c->decided_by = "architectures";
    if (!r->as && (c->family = mt_family_by_architecture(c->architecture)))
        return mt__config_assume(r, "model_type \"%s\" is unknown; architecture %s is treated as %s", c->model_type,
                                 c->architecture, c->family->name);
    return guess_family(r);
}

/* Copy the model's values into each layer that has none. */
static void complete_layers(mt_config *c)
{
    for (int64_t i = 0; i < c->L; i++) {
        mt_layer_spec *s = &c->layers[i];
        if (!s->mixer) s->mixer = c->latent.kv_rank ? &mt_mixer_latent : &mt_mixer_attention;
        if (!s->ffn) s->ffn = s->E ? &mt_ffn_experts : &mt_ffn_mlp;
        s->input_norm = i == 0 && c->family->embed_norm;
        s->norms = c->norms;
        s->form = c->form;
        s->H = c->H;
        s->K = c->K;
        s->Dh = c->Dh;
        s->F = c->F;
    }
}

static mt_rc resolve(reader *r)
{
    if (!mt_value_has(r->top, MT_VALUE_MAP)) return mt_fail(r->err, MT_EFORMAT, "%s: a JSON object was expected", r->path);
    find_text(r);
    MT_TRY(find_family(r));
    MT_TRY(read_dimensions(r));
    MT_TRY(read_traits(r));
    r->c->layers = mt_calloc((size_t)r->c->L, sizeof *r->c->layers);
    if (!r->c->layers) return mt_no_memory(r->err, "the layer table");
    MT_TRY(refuse_unknown_experts(r));
    MT_TRY(mt__config_read_experts(r));
    MT_TRY(mt__config_read_windows(r));
    MT_TRY(mt__config_read_rope(r));
    mt__config_latent_scale(r->c);
    if (r->c->family->read) MT_TRY(r->c->family->read(r->c, &(mt_keys){ r->doc, r->doc != r->top, r->path, r->err }));
    complete_layers(r->c);
    return MT_OK;
}

/* Read the reader's document into a new config. */
static mt_rc read_all(mt_config **out, reader *r)
{
    r->c = mt_calloc(1, sizeof *r->c);
    mt_rc rc = r->c ? resolve(r) : mt_no_memory(r->err, "the model's description");
    if (rc)
        mt_config_close(r->c);
    else
        *out = r->c;
    return rc;
}

/* Takes the document over.  as: NULL where the document decides. */
static mt_rc from_document(mt_config **out, const mt_value *doc, const char *what, const mt_family *as, mt_err *err)
{
    reader r = { .top = doc, .path = what, .as = as, .err = err };
    mt_rc rc = read_all(out, &r);
    if (!rc && r.guessed)
        (*out)->document = doc;
    else
        mt_json_free(doc);
    return rc;
}

mt_rc mt_config_as(mt_config **out, const mt_config *c, const mt_family *family, mt_err *err)
{
    *out = NULL;
    return read_all(out, &(reader){ .top = c->document, .path = "config.json", .as = family, .err = err });
}

/* -- the user's word ------------------------------------------------------------------------------- */

static mt_rc find_named(const mt_family **out, const char *name, mt_err *err)
{
    mt_nearest near = { .word = name };
    for (const mt_family *const *f = mt_families; *f; f++) {
        if (strcmp((*f)->name, name) == 0) return *out = *f, MT_OK;
        mt_nearest_offer(&near, (*f)->name);
    }
    return mt_fail(err, MT_EINVAL, "model.family: no family \"%.60s\"%s%s%s", name, *near.best ? "; did you mean " : "",
                   near.best, *near.best ? "?" : "; megatrain families lists them");
}

mt_rc mt_config_assume(mt_config **c, const char *family, mt_err *err)
{
    const mt_family *named = NULL;
    mt_config *again = NULL;
    if (!family || !*family) return MT_OK;
    MT_TRY(find_named(&named, family, err));
    if (!(*c)->document) {
        if ((*c)->family == named) return MT_OK;
        return mt_fail(err, MT_EINVAL, "model.family: config.json says that this is a %s model, not %s; leave model.family out",
                       (*c)->family->name, family);
    }
    MT_TRY(read_all(&again, &(reader){ .top = (*c)->document, .path = "config.json", .as = named, .as_told = true, .err = err }));
    mt_config_close(*c);
    *c = again;
    return MT_OK;
}

mt_rc mt_config_check_known(const mt_config *c, mt_err *err)
{
    if (!c->document) return MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED,
                   "config.json: model_type \"%s\"%s%s is not known here (see megatrain families), and a guess may be silently "
                   "wrong.  If it computes exactly as a %s model does, say so with model.family: %s (--assume %s)",
                   c->model_type, *c->architecture ? ", architecture " : "", c->architecture, c->family->name, c->family->name,
                   c->family->name);
}

mt_rc mt_config_parse_as(mt_config **out, const char *text, size_t n, const char *what, const mt_family *family, mt_err *err)
{
    const mt_value *doc;
    *out = NULL;
    MT_TRY(mt_json_parse(&doc, text, n, what, err));
    return from_document(out, doc, what, family, err);
}

mt_rc mt_config_parse(mt_config **out, const char *text, size_t n, const char *what, mt_err *err)
{
    return mt_config_parse_as(out, text, n, what, NULL, err);
}

mt_rc mt_config_open(mt_config **out, const char *dir_or_file, mt_err *err)
{
    *out = NULL;
    char *path = mt_dir_exists(dir_or_file) ? mt_path_join(dir_or_file, "config.json") : mt_strdup(dir_or_file);
    if (!path) return mt_no_memory(err, "a path");
    const mt_value *doc;
    mt_rc rc = mt_json_read(&doc, path, err);
    char *adapter = rc == MT_ENOENT ? mt_path_join(dir_or_file, "adapter_config.json") : NULL;
    if (adapter && mt_file_exists(adapter))
        rc = mt_fail(err, MT_EUNSUPPORTED,
                     "%s: there is no config.json, only an adapter (adapter_config.json); merge it into its base model first, as "
                     "peft's merge_and_unload does, and save that",
                     dir_or_file);
    else if (rc == MT_ENOENT)
        rc = mt_fail(err, MT_ENOENT,
                     "%s: no such file; a model is a directory with config.json and *.safetensors, as the hub has them", path);
    if (!rc) rc = from_document(out, doc, path, NULL, err);
    mt_free(adapter);
    mt_free(path);
    return rc;
}

void mt_config_close(mt_config *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_assumptions; i++) mt_free(c->assumptions[i]);
    mt_free(c->assumptions);
    mt_free(c->layers);
    mt_json_free(c->document);
    mt_free(c);
}
