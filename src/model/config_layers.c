/* config_layers.c - what layers differ in: how far they look back, and how positions turn them. */
#include "model/config_read.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

typedef mt__config_reader reader;

/* -- windows --------------------------------------------------------------------------------------- */

/* transformers' classes with these rules put the window on every layer, whatever layer_types says. */
static bool layer_types_count(const reader *r)
{
    const mt_family *f = r->c->family;
    if (f->window != MT_WINDOW_ALL && f->window != MT_WINDOW_USED) return true;
    return !r->c->type_known || (f->typed_windows && strcmp(f->typed_windows, r->c->model_type) == 0);
}

static mt_rc window_from_layer_types(reader *r, const mt_value *types, int64_t width)
{
    mt_config *c = r->c;
    const bool ignored = !layer_types_count(r);
    bool full = false;
    if (!mt_value_has(types, MT_VALUE_LIST) || mt_value_items(types) < (size_t)c->L)
        return mt_fail(r->err, MT_EFORMAT, "%s: \"layer_types\" should list all %lld layers", r->path, (long long)c->L);
    for (int64_t i = 0; i < c->L; i++) {
        const mt_value *v = mt_value_at(types, (size_t)i);
        const char *name = mt_value_has(v, MT_VALUE_STR) ? mt_json_string(v) : "";
        const bool slides = strcmp(name, "sliding_attention") == 0;
        full |= !slides;
        if (slides || ignored) c->layers[i].window = width;
        if (!slides && strcmp(name, "full_attention") != 0 && strcmp(name, "attention") != 0)
            return mt_fail(r->err, MT_EUNSUPPORTED,
                           "%s: layer %lld is of type \"%s\"; only full and sliding attention are supported", r->path,
                           (long long)i, name);
    }
    if (!ignored || !full) return MT_OK;
    return mt__config_assume(r,
                             "\"layer_types\" says that some layers have no window; transformers ignores it in a %s model, so "
                             "all have sliding_window=%lld",
                             c->family->name, (long long)width);
}

/* Every how many layers one is full: a number, or a string with a letter a layer ("LLLG"), the last of which is. */
static mt_rc window_pattern(reader *r, int64_t fallback, int64_t *out)
{
    const mt_value *v = mt_value_get(r->doc, "sliding_window_pattern");
    *out = fallback;
    if (mt_value_has(v, MT_VALUE_STR))
        *out = (int64_t)v->str.n;
    else
        MT_TRY(mt_json_i64(r->doc, "sliding_window_pattern", fallback, out, r->path, r->err));
    if (*out < 1) return mt_fail(r->err, MT_ERANGE, "%s: \"sliding_window_pattern\" of %lld layers", r->path, (long long)*out);
    return MT_OK;
}

mt_rc mt__config_read_windows(mt__config_reader *r)
{
    mt_config *c = r->c;
    const mt_family *f = c->family;
    const mt_value *key = mt_value_get(r->doc, "sliding_window"), *types = mt_value_get(r->doc, "layer_types");
    int64_t width = 0, first = 0, pattern = 0;
    bool used = f->window == MT_WINDOW_ALL;
    if (f->window == MT_WINDOW_NEVER) return MT_OK;
    MT_TRY(mt_json_i64(r->doc, "sliding_window", key ? 0 : f->default_window, &width, r->path, r->err)); /* null: full */
    if (f->window == MT_WINDOW_LATE || f->window == MT_WINDOW_USED || f->window == MT_WINDOW_EARLY)
        MT_TRY(mt_json_bool(r->doc, "use_sliding_window", false, &used, r->path, r->err));
    used |= f->window == MT_WINDOW_FROM;
    if (f->window == MT_WINDOW_LATE || f->window == MT_WINDOW_EARLY || f->window == MT_WINDOW_FROM)
        MT_TRY(mt_json_i64(r->doc, "max_window_layers", f->window == MT_WINDOW_FROM ? 62 : 28, &first, r->path, r->err));
    if (width < 0) return mt_fail(r->err, MT_ERANGE, "%s: \"sliding_window\" is %lld", r->path, (long long)width);
    if (first < 0)
        return mt_fail(r->err, MT_ERANGE, "%s: \"max_window_layers\" is %lld; 0 or more expected", r->path, (long long)first);
    if (f->window == MT_WINDOW_PATTERN) {
        used = true;
        MT_TRY(window_pattern(r, f->window_pattern, &pattern));
    }
    if (!used || width == 0) return MT_OK;
    if (!mt_json_missing(types)) return window_from_layer_types(r, types, width);
    if (f->window == MT_WINDOW_EARLY) {
        for (int64_t i = 0; i < c->L && i < first; i += 2) c->layers[i].window = width;
        return MT_OK;
    }
    for (int64_t i = first; i < c->L; i++) c->layers[i].window = pattern && (i + 1) % pattern == 0 ? 0 : width;
    return MT_OK;
}

/* -- rope ------------------------------------------------------------------------------------------ */

static double yarn_mscale(double factor, double m) { return factor <= 1 ? 1.0 : 0.1 * m * log(factor) + 1.0; }

static mt_rc read_yarn(reader *r, const mt_value *d, mt_rope_spec *rope)
{
    double mscale, mscale_all, given;
    MT_TRY(mt_json_f64(d, "beta_fast", 32, &rope->beta_fast, r->path, r->err));
    MT_TRY(mt_json_f64(d, "beta_slow", 1, &rope->beta_slow, r->path, r->err));
    MT_TRY(mt_json_bool(d, "truncate", true, &rope->truncate, r->path, r->err));
    MT_TRY(mt_json_f64(d, "mscale", 0, &mscale, r->path, r->err));
    mscale_all = rope->mscale_all;
    MT_TRY(mt_json_f64(d, "attention_factor", 0, &given, r->path, r->err));
    if (given != 0)
        rope->attention_factor = given;
    else if (mscale != 0 && mscale_all != 0)
        rope->attention_factor = yarn_mscale(rope->factor, mscale) / yarn_mscale(rope->factor, mscale_all);
    else
        rope->attention_factor = yarn_mscale(rope->factor, 1);
    return MT_OK;
}

/* Ministral 3 alone scales queries.  A model of unknown type with this key belongs to no other family. */
static mt_rc read_query_scale(reader *r, const mt_value *d, mt_rope_spec *rope)
{
    const mt_value *beta = mt_value_get(d, "llama_4_scaling_beta");
    if (!r->c->family->query_scale && (!r->as || mt_json_missing(beta))) return MT_OK;
    if (!r->c->family->query_scale)
        return mt_fail(r->err, MT_EUNSUPPORTED,
                       "%s: model_type \"%s\" is not known, and taken for a %s model its \"llama_4_scaling_beta\" would be "
                       "ignored; this model is not supported",
                       r->path, r->c->model_type, r->c->family->name);
    if (mt_json_missing(beta) || mt_json_missing(mt_value_get(d, "original_max_position_embeddings")))
        return mt_fail(r->err, MT_EFORMAT,
                       "%s: the rope settings of a %s model should have \"llama_4_scaling_beta\" and "
                       "\"original_max_position_embeddings\"",
                       r->path, r->c->family->name);
    rope->q_period = (int64_t)rope->original_positions;
    return mt_json_f64(d, "llama_4_scaling_beta", 0, &rope->q_beta, r->path, r->err);
}

static mt_rc read_scaling(reader *r, const mt_value *d, mt_rope_spec *rope)
{
    static const struct {
        const char *name;
        mt_rope_type type;
    } known[] = { { "default", MT_ROPE_DEFAULT }, { "linear", MT_ROPE_LINEAR }, { "dynamic", MT_ROPE_DYNAMIC },
                  { "llama3", MT_ROPE_LLAMA3 },   { "yarn", MT_ROPE_YARN },     { "longrope", MT_ROPE_LONG },
                  { "su", MT_ROPE_LONG },         { "mrope", MT_ROPE_DEFAULT } }; /* of text, mrope's three positions are one */
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
    if (!mt_json_missing(mt_value_get(d, "short_factor"))) rope->type = MT_ROPE_LONG; /* Phi-3 called it yarn, too */
    MT_TRY(mt_json_f64(d, "rope_theta", rope->theta, &rope->theta, r->path, r->err));
    double from_top;
    MT_TRY(mt_json_f64(d, "original_max_position_embeddings", (double)r->c->max_positions, &rope->original_positions, r->path,
                       r->err));
    MT_TRY(mt_json_f64(r->doc, "original_max_position_embeddings", rope->original_positions, &from_top, r->path, r->err));
    rope->original_positions = from_top;
    double implied = (double)r->c->max_positions / rope->original_positions;
    MT_TRY(mt_json_f64(d, "factor", rope->type == MT_ROPE_YARN || rope->type == MT_ROPE_LONG ? implied : 1, &rope->factor,
                       r->path, r->err));
    MT_TRY(mt_json_f64(d, "mscale_all_dim", 0, &rope->mscale_all, r->path, r->err));
    MT_TRY(mt_json_f64(d, "low_freq_factor", 1, &rope->low_freq, r->path, r->err));
    MT_TRY(mt_json_f64(d, "high_freq_factor", 4, &rope->high_freq, r->path, r->err));
    bool logs = rope->type == MT_ROPE_LONG; /* of the positions, so one alone will not do; where they grew by less than 1 it
                                             * says nothing */
    bool counts = rope->original_positions >= (logs ? 2 : 1) && rope->original_positions < 1e15;
    if (!((rope->factor >= 1 || logs) && rope->factor < 1e6 && counts))
        return mt_fail(r->err, MT_ERANGE, "%s: rope scaling factor %g over %g positions makes no sense", r->path, rope->factor,
                       rope->original_positions);
    MT_TRY(read_query_scale(r, d, rope));
    if (rope->type == MT_ROPE_DYNAMIC) rope->original_positions = (double)r->c->max_positions;
    return rope->type == MT_ROPE_YARN ? read_yarn(r, d, rope) : MT_OK; /* the rest of longrope once dr is known */
}

static mt_rc read_factors(reader *r, const mt_value *d, const char *key, int64_t n, double *out)
{
    const mt_value *list = mt_value_get(d, key);
    if (!mt_value_has(list, MT_VALUE_LIST) || mt_value_items(list) != (size_t)n)
        return mt_fail(r->err, MT_EFORMAT, "%s: rope scaling: \"%s\" should list %lld numbers, half of a head's rotated width",
                       r->path, key, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const mt_value *v = mt_value_at(list, (size_t)i);
        out[i] = mt_value_number(v);
        if (!mt_value_is_number(v) || !(out[i] > 0))
            return mt_fail(r->err, MT_EFORMAT, "%s: rope scaling: \"%s\" should hold positive numbers", r->path, key);
    }
    return MT_OK;
}

static mt_rc read_longrope(reader *r, const mt_value *d, mt_rope_spec *rope)
{
    double implied = rope->factor <= 1 ? 1 : sqrt(1 + log(rope->factor) / log(rope->original_positions));
    MT_TRY(mt_json_f64(d, "attention_factor", implied, &rope->attention_factor, r->path, r->err));
    rope->long_attention_factor = rope->attention_factor;
    MT_TRY(read_factors(r, d, "short_factor", rope->dr / 2, rope->short_factor));
    return read_factors(r, d, "long_factor", rope->dr / 2, rope->long_factor);
}

/* transformers rotates whole heads in most families, whatever the key says.  A model that is none of those it knows means it. */
static mt_rc refuse_partial(const reader *r, double partial)
{
    const mt_family *f = r->c->family;
    if (partial != 1 && r->c->latent.kv_rank)
        return mt_fail(
            r->err, MT_EUNSUPPORTED,
            "%s: \"partial_rotary_factor\" is %g; in latent attention all columns of \"qk_rope_head_dim\" rotate: set it "
            "to 1",
            r->path, partial);
    if (partial == 1 || f->partial || f->default_partial || r->guessed || r->as) return MT_OK;
    return mt_fail(r->err, MT_EUNSUPPORTED,
                   "%s: \"partial_rotary_factor\" is %g, but a %s model rotates whole heads, and transformers ignores the key.  "
                   "Set it to 1 if the model was trained by transformers",
                   r->path, partial, f->name);
}

/* One set of rope settings, or none (d missing): the top-level keys and the family's defaults. */
static mt_rc read_rope_spec(reader *r, const mt_value *d, double theta, mt_rope_spec *rope)
{
    const mt_config *c = r->c;
    double partial;
    *rope = (mt_rope_spec){ .style = c->family->rope, .factor = 1, .attention_factor = 1, .theta = theta };
    if (!mt_json_missing(d) && !mt_value_has(d, MT_VALUE_MAP))
        return mt_fail(r->err, MT_EFORMAT, "%s: the rope settings should be an object", r->path);
    MT_TRY(mt__config_own_number(r, MT__NAMES("partial_rotary_factor", "rotary_pct", "rope_pct"),
                                 c->family->default_partial ? c->family->default_partial : 1, &partial));
    if (!mt_json_missing(d)) {
        MT_TRY(mt_json_f64(d, "partial_rotary_factor", partial, &partial, r->path, r->err));
        MT_TRY(read_scaling(r, d, rope));
    }
    if (!(rope->theta > 1 && rope->theta < 1e15)) return mt_fail(r->err, MT_ERANGE, "%s: rope_theta is %g", r->path, rope->theta);
    if (!(partial > 0 && partial <= 1))
        return mt_fail(r->err, MT_ERANGE, "%s: partial_rotary_factor=%g is not a share of head_dim, from 0 to 1", r->path,
                       partial);
    MT_TRY(refuse_partial(r, partial));
    rope->dr = c->latent.kv_rank ? c->latent.dr : (int64_t)((double)c->Dh * partial);
    if (rope->dr < 2 || rope->dr % 2 || rope->dr > c->Dh || rope->dr / 2 > MT_MAX_PAIRS)
        return mt_fail(r->err, MT_ERANGE, "%s: partial_rotary_factor=%g of head_dim=%lld is not a number of pairs", r->path,
                       partial, (long long)c->Dh);
    return rope->type == MT_ROPE_LONG ? read_longrope(r, d, rope) : MT_OK;
}

/* Layers without rotary positions, as smollm3 lists them. */
static mt_rc read_no_rope(reader *r)
{
    mt_config *c = r->c;
    const mt_value *list = mt_value_get(r->doc, "no_rope_layers");
    int64_t interval = 0;
    if (mt_json_missing(list) || (mt_value_has(list, MT_VALUE_LIST) && !mt_value_items(list))) {
        MT_TRY(mt_json_i64(r->doc, "no_rope_layer_interval", c->family->nope_interval, &interval, r->path, r->err));
        for (int64_t i = 0; interval > 0 && i < c->L; i++)
            if ((i + 1) % interval == 0) c->layers[i].rope = MT_LAYER_NOPE;
        return MT_OK;
    }
    if (!mt_value_has(list, MT_VALUE_LIST) || mt_value_items(list) < (size_t)c->L)
        return mt_fail(r->err, MT_EFORMAT, "%s: \"no_rope_layers\" should list all %lld layers", r->path, (long long)c->L);
    for (int64_t i = 0; i < c->L; i++)
        if (mt_value_int(mt_value_at(list, (size_t)i)) == 0) c->layers[i].rope = MT_LAYER_NOPE;
    return MT_OK;
}

mt_rc mt__config_read_rope(mt__config_reader *r)
{
    mt_config *c = r->c;
    const mt_family *f = c->family;
    double theta, local_theta;
    if (f->rope == MT_ROPE_NONE) return MT_OK;
    const mt_value *d = mt_value_get(r->doc, "rope_scaling"), *both = mt_value_get(r->doc, "rope_parameters"), *local = NULL;
    bool keyed = mt_value_has(mt_value_get(both, "full_attention"), MT_VALUE_MAP);
    if (keyed) local = mt_value_get(both, "sliding_attention");
    if (mt_json_missing(d)) d = keyed ? mt_value_get(both, "full_attention") : both;
    MT_TRY(mt__config_own_number(r, MT__NAMES("rope_theta", "rotary_emb_base"), f->default_theta, &theta));
    MT_TRY(read_rope_spec(r, d, theta, &c->rope));
    for (int64_t i = 0; i < c->L; i++) c->layers[i].rope = MT_LAYER_ROPE;
    if (f->local_rope) {
        MT_TRY(mt_json_f64(r->doc, "rope_local_base_freq", f->local_theta ? f->local_theta : c->rope.theta, &local_theta, r->path,
                           r->err));
        MT_TRY(read_rope_spec(r, local, local_theta, &c->rope_local));
        if (c->rope_local.dr != c->rope.dr)
            return mt_fail(r->err, MT_EUNSUPPORTED,
                           "%s: %lld columns of a head rotate on layers with full attention and %lld on those with windows; only "
                           "the same number is supported",
                           r->path, (long long)c->rope.dr, (long long)c->rope_local.dr);
        if (c->rope.type == MT_ROPE_LONG && c->rope_local.type == MT_ROPE_LONG &&
            c->rope.original_positions != c->rope_local.original_positions)
            return mt_fail(r->err, MT_EUNSUPPORTED,
                           "%s: longrope with \"original_max_position_embeddings\" of %g on layers with full attention and %g on "
                           "those with windows; only the same number is supported",
                           r->path, c->rope.original_positions, c->rope_local.original_positions);
        for (int64_t i = 0; i < c->L; i++)
            if (c->layers[i].window) c->layers[i].rope = MT_LAYER_ROPE_LOCAL, c->has_rope_local = true;
    }
    return f->nope_interval ? read_no_rope(r) : MT_OK;
}

void mt_config_no_rope(mt_config *c)
{
    for (int64_t i = 0; i < c->L; i++) c->layers[i].rope = MT_LAYER_NOPE;
    c->rope.dr = c->rope_local.dr = 0;
}
