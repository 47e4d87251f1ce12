/* config_experts.c - mixtures of experts: which layers have them, how many, how wide, and how their router works. */
#include "model/config_read.h"

#include <string.h>

typedef mt__config_reader reader;

static const char *const count_names[] = { "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", NULL };
static const char *const active_names[] = { "num_experts_per_tok", "moe_k", "moe_topk", "num_experts_per_token",
                                            "experts_per_token",   NULL };

/* No experts at all is what a dense model may say. */
const char *mt__config_experts_key(const mt_value *doc)
{
    const char *key = mt__config_spelling(doc, count_names);
    const mt_value *v = key ? mt_value_get(doc, key) : NULL;
    return mt_value_has(v, MT_VALUE_INT) && mt_value_int(v) == 0 ? NULL : key;
}

/* -- numbers --------------------------------------------------------------------------------------- */

/* A number that some files list once per layer: all the same, or it is not supported. */
static mt_rc read_number(reader *r, const char *key, int64_t fallback, int64_t *out)
{
    const mt_value *v = mt_value_get(r->doc, key);
    if (!mt_value_has(v, MT_VALUE_LIST)) return mt_json_i64(r->doc, key, fallback, out, r->path, r->err);
    *out = mt_value_int(mt_value_at(v, 0));
    for (size_t i = 0; i < mt_value_items(v); i++)
        if (!mt_value_has(mt_value_at(v, i), MT_VALUE_INT) || mt_value_int(mt_value_at(v, i)) != *out)
            return mt_fail(r->err, MT_EUNSUPPORTED,
                           "%s: \"%s\" differs from layer to layer (entry %zu is not %lld); only one number for all layers is "
                           "supported",
                           r->path, key, i, (long long)*out);
    return MT_OK;
}

static mt_rc read_needed(reader *r, const char *key, const char *usual, int64_t most, int64_t *out)
{
    if (!key) return mt_fail(r->err, MT_EFORMAT, "%s: \"%s\" is missing; a mixture of experts needs it", r->path, usual);
    MT_TRY(read_number(r, key, 0, out));
    if (*out < 1 || *out > most)
        return mt_fail(r->err, MT_ERANGE, "%s: \"%s\" is %lld; 1 to %lld expected", r->path, key, (long long)*out,
                       (long long)most);
    return MT_OK;
}

enum { MOST_WIDE = 1 << 24 };

static mt_rc read_sizes(reader *r, mt_layer_spec *s)
{
    const mt_expert_rules *rules = r->c->family->experts;
    const char *count = mt__config_spelling(r->doc, count_names), *active = mt__config_own_spelling(r, active_names);
    MT_TRY(read_needed(r, count, count_names[0], MT_ROUTE_EXPERTS, &s->E));
    MT_TRY(read_needed(r, active, active_names[0], MOST_WIDE, &s->T));
    if (s->T > s->E)
        return mt_fail(r->err, MT_ERANGE, "%s: \"%s\" is %lld, but there are only %lld experts (\"%s\")", r->path, active,
                       (long long)s->T, (long long)s->E, count);
    s->I = r->c->F;
    if (rules->mlp_width && mt_json_missing(mt_value_get(r->doc, "moe_intermediate_size"))) return MT_OK;
    const char *width = mt__config_spelling(r->doc, MT__NAMES("moe_intermediate_size", "intermediate_size"));
    return read_needed(r, width, "moe_intermediate_size", MOST_WIDE, &s->I);
}

static mt_rc read_shared(reader *r, mt_layer_spec *s)
{
    static const char *const widths[] = { "shared_expert_intermediate_size", "shared_intermediate_size", NULL };
    static const char *const counts[] = { "n_shared_experts", "moe_num_shared_experts", "num_shared_expert", NULL };
    const mt_shared_rule rule = r->c->family->experts->shared;
    const char *const *names = rule == MT_SHARED_WIDTH ? widths : counts;
    const char *key = mt__config_spelling(r->doc, names);
    int64_t width = 1, n = rule == MT_SHARED_MLP ? 1 : r->c->family->experts->default_shared;
    if (rule == MT_SHARED_NONE) return MT_OK;
    if (rule == MT_SHARED_COUNT) width = s->I;
    if (rule == MT_SHARED_MLP) width = r->c->F;
    if (key) MT_TRY(read_number(r, key, 0, &n));
    if (n < 0 || n > MOST_WIDE / width)
        return mt_fail(r->err, MT_ERANGE, "%s: \"%s\" is %lld; a shared expert of 0 to %d columns expected", r->path,
                       key ? key : names[0], (long long)n, MOST_WIDE);
    s->Is = n * width;
    return MT_OK;
}

/* -- which layers ---------------------------------------------------------------------------------- */

static bool is_listed(const mt_value *list, int64_t layer)
{
    for (size_t i = 0; i < mt_value_items(list); i++)
        if (mt_value_int(mt_value_at(list, i)) == layer) return true;
    return false;
}

typedef struct sparse {
    int64_t first, last, step, offset; /* layers i of [first, last] with (i + offset) % step = 0 */
    const mt_value *dense;             /* and not in this list */
    const mt_value *types;             /* "sparse" in this list, if it is there */
    const mt_value *listed;            /* or just these; NULL: no list */
} sparse;

static mt_rc read_step(reader *r, sparse *s)
{
    s->offset = 1;
    s->dense = mt_value_get(r->doc, "mlp_only_layers");
    if (!mt_json_missing(s->dense) && !mt_value_has(s->dense, MT_VALUE_LIST))
        return mt_fail(r->err, MT_EFORMAT, "%s: \"mlp_only_layers\" should list the layers without experts", r->path);
    return mt_json_i64(r->doc, "decoder_sparse_step", 1, &s->step, r->path, r->err);
}

static mt_rc read_after(reader *r, sparse *s)
{
    const mt_expert_rules *rules = r->c->family->experts;
    MT_TRY(mt_json_i64(r->doc, "first_k_dense_replace", rules->first_dense, &s->first, r->path, r->err));
    return rules->layer_freq ? mt_json_i64(r->doc, "moe_layer_freq", 1, &s->step, r->path, r->err) : MT_OK;
}

static mt_rc read_types(reader *r, sparse *s)
{
    s->types = mt_value_get(r->doc, "mlp_layer_types");
    if (mt_json_missing(s->types)) return s->types = NULL, read_after(r, s);
    const bool list = mt_value_has(s->types, MT_VALUE_LIST) && mt_value_items(s->types) >= (size_t)r->c->L;
    for (int64_t i = 0; list && i < r->c->L; i++) {
        const mt_value *v = mt_value_at(s->types, (size_t)i);
        if (mt_value_has(v, MT_VALUE_STR) && (!strcmp(mt_json_string(v), "sparse") || !strcmp(mt_json_string(v), "dense")))
            continue;
        return mt_fail(r->err, MT_EFORMAT, "%s: \"mlp_layer_types\": the entry of layer %lld is neither \"dense\" nor \"sparse\"",
                       r->path, (long long)i);
    }
    if (list) return MT_OK;
    return mt_fail(r->err, MT_EFORMAT, "%s: \"mlp_layer_types\" should list all %lld layers", r->path, (long long)r->c->L);
}

static mt_rc read_range(reader *r, sparse *s)
{
    s->offset = 1;
    MT_TRY(read_number(r, "moe_layer_start_index", 1, &s->first));
    MT_TRY(read_number(r, "moe_layer_end_index", -1, &s->last));
    if (s->last < 0) s->last = r->c->L - 1;
    return mt_json_i64(r->doc, "moe_layer_interval", 1, &s->step, r->path, r->err);
}

static mt_rc read_list(reader *r, sparse *s)
{
    const mt_value *list = mt_value_get(r->doc, "moe_layers");
    s->offset = 1;
    if (mt_json_missing(list)) return mt_json_i64(r->doc, "interleave_moe_layer_step", 1, &s->step, r->path, r->err);
    s->listed = list;
    for (size_t i = 0; i < mt_value_items(list); i++)
        if (!mt_value_has(mt_value_at(list, i), MT_VALUE_INT) || mt_value_int(mt_value_at(list, i)) >= r->c->L)
            return mt_fail(r->err, MT_EFORMAT, "%s: \"moe_layers\" should list layers below %lld; entry %zu is none", r->path,
                           (long long)r->c->L, i);
    if (mt_value_has(list, MT_VALUE_LIST)) return MT_OK;
    return mt_fail(r->err, MT_EFORMAT, "%s: \"moe_layers\" should list the layers with experts", r->path);
}

static mt_rc read_layers(reader *r, sparse *s)
{
    static mt_rc (*const rules[])(reader *, sparse *) = { [MT_SPARSE_STEP] = read_step,
                                                          [MT_SPARSE_AFTER] = read_after,
                                                          [MT_SPARSE_RANGE] = read_range,
                                                          [MT_SPARSE_TYPES] = read_types,
                                                          [MT_SPARSE_LIST] = read_list };
    const mt_sparse_rule rule = r->c->family->experts->layers;
    *s = (sparse){ .last = r->c->L - 1, .step = 1 };
    if (rule != MT_SPARSE_ALL) MT_TRY(rules[rule](r, s));
    if (s->step < 1)
        return mt_fail(r->err, MT_ERANGE, "%s: experts on every %lld-th layer; 1 or more expected", r->path, (long long)s->step);
    return MT_OK;
}

static bool is_sparse(const sparse *s, int64_t layer)
{
    if (s->types) return strcmp(mt_json_string(mt_value_at(s->types, (size_t)layer)), "sparse") == 0;
    if (s->listed) return is_listed(s->listed, layer);
    return layer >= s->first && layer <= s->last && (layer + s->offset) % s->step == 0 && !is_listed(s->dense, layer);
}

/* -- the router ------------------------------------------------------------------------------------ */

static bool router_is_exact(const mt_family *f)
{
    for (const mt_tensor_row *row = f->tensors; row->name; row++)
        if (row->role == MT_W_ROUTER) return row->exact;
    return false;
}

/* Noise on what experts read, in training only: never applied, like dropout. */
static void note_noise(reader *r, const char *key)
{
    double share = mt_value_number(mt_value_get(r->doc, key));
    if (share <= r->c->dropout) return;
    r->c->dropout = share;
    r->c->dropout_key = key;
}

/* Only stored: a run balances if its user requests it. */
static mt_rc read_aux_loss(reader *r)
{
    const char *key = mt__config_spelling(r->doc, MT__NAMES("router_aux_loss_coef", "aux_loss_alpha"));
    r->c->moe.aux_loss = -1;
    return key ? mt_json_f64(r->doc, key, -1, &r->c->moe.aux_loss, r->path, r->err) : MT_OK;
}

static mt_rc read_router(reader *r, const mt_layer_spec *s)
{
    const mt_expert_rules *rules = r->c->family->experts;
    mt_moe *m = &r->c->moe;
    *m = (mt_moe){ .router = rules->router,
                   .norm_topk = rules->norm,
                   .norm_eps = rules->norm_eps,
                   .norm_floor = rules->norm_floor,
                   .scale = 1,
                   .choice_bias = rules->choice_bias,
                   .router_bias = rules->router_bias,
                   .biases = rules->biases,
                   .weigh_input = rules->weigh_input,
                   .exact_router = router_is_exact(r->c->family),
                   .shared_switch = rules->shared_switch };
    if (rules->router != MT_ROUTE_MIXER) note_noise(r, "router_jitter_noise");
    note_noise(r, "input_jitter_noise");
    MT_TRY(read_aux_loss(r));
    if (rules->norm_key) MT_TRY(mt_json_bool(r->doc, "norm_topk_prob", rules->norm, &m->norm_topk, r->path, r->err));
    if (!rules->scaled) return MT_OK;
    MT_TRY(mt_json_f64(r->doc, "routed_scaling_factor", rules->scale != 0 ? rules->scale : 1, &m->scale, r->path, r->err));
    MT_TRY(mt_json_i64(r->doc, "n_group", rules->n_group ? rules->n_group : 1, &m->n_group, r->path, r->err));
    MT_TRY(mt_json_i64(r->doc, "topk_group", rules->topk_group ? rules->topk_group : 1, &m->topk_group, r->path, r->err));
    if (m->scale == 0) return mt_fail(r->err, MT_ERANGE, "%s: \"routed_scaling_factor\" is 0", r->path);
    const mt_route a = { .E = s->E, .T = s->T, .n_group = m->n_group, .topk_group = m->topk_group };
    mt_err why = { 0 };
    if (!mt_route_check(&a, &why)) return MT_OK;
    return mt_fail(r->err, MT_ERANGE, "%s: \"n_group\" is %lld and \"topk_group\" %lld: %s", r->path, (long long)m->n_group,
                   (long long)m->topk_group, why.msg);
}

mt_rc mt__config_read_experts(mt__config_reader *r)
{
    mt_config *c = r->c;
    mt_layer_spec s = { 0 };
    sparse where;
    if (!c->family->experts) return MT_OK;
    MT_TRY(read_sizes(r, &s));
    MT_TRY(read_shared(r, &s));
    MT_TRY(read_layers(r, &where));
    MT_TRY(read_router(r, &s));
    for (int64_t i = 0; i < c->L; i++) {
        if (!is_sparse(&where, i)) continue;
        c->layers[i].E = s.E;
        c->layers[i].T = s.T;
        c->layers[i].I = s.I;
        c->layers[i].Is = s.Is;
    }
    return MT_OK;
}
