/* model.c - units, layouts, groups. */
#include "model/model.h"

#include "base/mem.h"
#include "model/part.h"
#include "model/select.h"
#include "model/walk.h"

#include <stdio.h>
#include <string.h>

static mt_unit_kind kind_of(mt_role role)
{
    switch (role) {
    case MT_W_EMBED:
    case MT_W_POS: return MT_UNIT_EMBED;
    case MT_W_FINAL_NORM:
    case MT_B_FINAL_NORM:
    case MT_W_HEAD:
    case MT_B_HEAD: return MT_UNIT_HEAD;
    case MT_W_E_GATE:
    case MT_W_E_UP:
    case MT_W_E_DOWN:
    case MT_B_E_GATE:
    case MT_B_E_UP:
    case MT_B_E_DOWN: return MT_UNIT_EXPERTS;
    default: return MT_UNIT_LAYER;
    }
}

/* The parts of a layer that have weights. */
typedef struct layer_parts {
    const mt_part *p[3];
} layer_parts;
static layer_parts parts_of(const mt_layer_spec *s) { return (layer_parts){ { &mt_frame, &s->mixer->part, &s->ffn->part } }; }

/* True if the model has a tensor of this role; s: the spec of its layer, NULL outside of layers. */
static bool has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    switch (role) {
    case MT_B_HEAD: return c->head_bias;
    case MT_W_POS: return c->learned_positions;
    case MT_W_FINAL_NORM: return !c->norm_bare;
    case MT_B_FINAL_NORM: return c->norm_bias;
    default: break;
    }
    if (!s) return true;
    const layer_parts parts = parts_of(s);
    for (size_t i = 0; i < MT_COUNT(parts.p); i++)
        if (parts.p[i]->has_role(c, s, role)) return true;
    return false;
}

/* True if this unit holds tensors of this role.  A tied embedding holds the head's, too, but for the head itself. */
static bool unit_holds(const mt_model *m, const mt_unit *u, mt_role role)
{
    mt_unit_kind kind = kind_of(role);
    if (m->tied && role == MT_W_HEAD) return false;
    return u->kind == kind || (m->tied && u->kind == MT_UNIT_EMBED && kind == MT_UNIT_HEAD);
}

/* s: as above; what layers may differ in is only asked of them. */
static int64_t dim_of(const mt_config *c, const mt_layer_spec *s, mt_dim d)
{
    switch (d) {
    case MT_D: return c->D;
    case MT_F: return s->F;
    case MT_V: return c->V;
    case MT_DH: return s->Dh;
    case MT_H: return s->H;
    case MT_K: return s->K;
    case MT_H_DH: return s->H * s->Dh;
    case MT_K_DH: return s->K * s->Dh;
    case MT_POSITIONS: return c->position_rows;
    case MT_DELTA_H: return c->delta.H;
    case MT_DELTA_DV: return c->delta.Dv;
    case MT_DELTA_KEYS: return c->delta.K * c->delta.Dk;
    case MT_DELTA_VALUES: return c->delta.H * c->delta.Dv;
    case MT_DELTA_CHANNELS: return 2 * c->delta.K * c->delta.Dk + c->delta.H * c->delta.Dv;
    case MT_DELTA_WIDTH: return c->delta.width;
    case MT_Q_RANK: return c->latent.q_rank;
    case MT_KV_RANK: return c->latent.kv_rank;
    case MT_DR: return c->latent.dr;
    case MT_H_DN: return s->H * c->latent.dn;
    case MT_H_DV: return s->H * c->latent.dv;
    case MT_E: return s->E;
    case MT_I: return s->I;
    case MT_IS: return s->Is;
    case MT_ONE:
    case MT_NONE: break;
    }
    return 1;
}

/* The name with a number for its mark, if it has that mark. */
static void fill_in(char out[MT_NAME_BYTES], const char *name, const char *mark, int number)
{
    const char *at = strstr(name, mark);
    if (!at)
        snprintf(out, MT_NAME_BYTES, "%s", name);
    else
        snprintf(out, MT_NAME_BYTES, "%.*s%d%s", (int)(at - name), name, number, at + strlen(mark));
}

void mt_weight_name(const mt_unit *unit, const mt_weight *w, char out[MT_NAME_BYTES])
{
    char of_expert[MT_NAME_BYTES];
    fill_in(of_expert, w->name, "%e", unit->first_expert + w->expert);
    fill_in(out, of_expert, "%d", unit->layer);
}

bool mt_weight_leads(const mt_unit *unit, const mt_weight *w) { return mt_weight_first_row(unit, w) == 0; }

void mt_unit_name(const mt_model *m, int unit, char out[MT_NAME_BYTES])
{
    const mt_unit *u = &m->units[unit];
    if (u->kind == MT_UNIT_LAYER)
        snprintf(out, MT_NAME_BYTES, "layer %d", u->layer);
    else if (u->kind == MT_UNIT_EXPERTS)
        snprintf(out, MT_NAME_BYTES, "layer %d, experts %d to %d", u->layer, u->first_expert, u->first_expert + u->n_experts - 1);
    else if (u->kind == MT_UNIT_HEAD)
        snprintf(out, MT_NAME_BYTES, "head");
    else
        snprintf(out, MT_NAME_BYTES, m->tied ? "embedding and head" : "embedding");
}

/* -- one unit's layout ----------------------------------------------------------------------------- */

static const char *family_prefix(const mt_config *c) { return c->family->prefix ? c->family->prefix : "model."; }

mt_file_names mt_file_names_of(const mt_config *c)
{
    mt_file_names n = { .tied = c->tied, .tensors = c->family->tensors };
    snprintf(n.prefix, sizeof n.prefix, "%s", family_prefix(c));
    return n;
}

/* The row's name as the files have it. */
static void file_name(const mt_config *c, const mt_file_names *names, const mt_tensor_row *row, char out[MT_NAME_BYTES])
{
    const char *prefix = family_prefix(c), *name = row->role == MT_W_HEAD && names->head ? names->head : row->name;
    bool has = strncmp(name, prefix, strlen(prefix)) == 0;
    snprintf(out, MT_NAME_BYTES, "%s%s", has ? names->prefix : names->head_prefix, has ? name + strlen(prefix) : name);
}

bool mt_role_name(const mt_config *c, const mt_file_names *names, mt_role role, char out[MT_NAME_BYTES])
{
    for (const mt_tensor_row *row = names->tensors; row->name; row++)
        if (row->role == role) return file_name(c, names, row, out), true;
    out[0] = '\0';
    return false;
}

/* Groups of rows that a packed tensor has, each with rows of every role in it. */
static int64_t n_groups_of(const mt_config *c, const mt_layer_spec *s, mt_pack pack)
{
    switch (pack) {
    case MT_PACK_HEADS: return s->K;
    case MT_PACK_QUERY_HEADS: return s->H;
    case MT_PACK_DELTA_HEADS: return c->delta.K;
    case MT_PACK_EXPERTS_IN_TURN: return s->I;
    default: return 1;
    }
}

static bool in_one_tensor(const mt_tensor_row *row)
{
    return row->pack == MT_PACK_EXPERTS || row->pack == MT_PACK_EXPERTS_IN_TURN;
}

/* The offset of a table row in its tensor: after the earlier rows with the same name that exist. */
static mt_tensor_slice slice_of(const mt_model *m, const mt_layer_spec *spec, const mt_tensor_row *row)
{
    const mt_config *c = m->config;
    int64_t rows = dim_of(c, spec, row->shape[0]), columns = dim_of(c, spec, row->shape[1]), before = 0, all = 0;
    int64_t groups = n_groups_of(c, spec, row->pack);
    for (const mt_tensor_row *r = m->names.tensors; r->name; r++) {
        if (strcmp(r->name, row->name) != 0 || !has_role(c, spec, r->role)) continue;
        if (r < row) before += dim_of(c, spec, r->shape[0]);
        all += dim_of(c, spec, r->shape[0]);
    }
    mt_tensor_slice s = { .n_dims = row->shape[1] ? 2 : 1,
                          .shape = { all, columns, 1 },
                          .slab = { all, columns },
                          .run = rows / groups,
                          .stride = all / groups,
                          .first = before / groups,
                          .transposed = row->transposed,
                          .experts = in_one_tensor(row) };
    if (row->transposed) s.shape[0] = s.slab[0] = columns, s.shape[1] = s.slab[1] = all;
    if (s.experts || row->pack == MT_PACK_CHANNELS) {
        s.n_dims = row->shape[1] ? 3 : 2;
        s.shape[0] = s.experts ? spec->E : s.slab[0];
        s.shape[1] = s.experts ? s.slab[0] : 1;
        s.shape[2] = s.slab[1];
    }
    return s;
}

static bool of_experts(const mt_tensor_row *row) { return row->pack == MT_PACK_EXPERT || in_one_tensor(row); }

/* Weights of the row in a unit. */
static int64_t n_weights_of(const mt_config *c, const mt_layer_spec *s, const mt_unit *u, const mt_tensor_row *row)
{
    if (of_experts(row)) return u->n_experts;
    return row->pack == MT_PACK_APART ? dim_of(c, s, row->shape[0]) / s->Dh : 1;
}

static bool is_in(const mt_model *m, const mt_layer_spec *s, const mt_unit *u, const mt_tensor_row *row)
{
    return unit_holds(m, u, row->role) && has_role(m->config, s, row->role);
}

static mt_weight whole_weight(const mt_model *m, const mt_layer_spec *s, const mt_tensor_row *row)
{
    const mt_config *c = m->config;
    mt_weight w = {
        .role = row->role, .n_dims = row->shape[1] ? 2 : 1, .slice = slice_of(m, s, row), .exact = row->exact, .fixed = row->fixed
    };
    file_name(c, &m->names, row, w.name);
    w.shape[0] = dim_of(c, s, row->shape[0]);
    w.shape[1] = dim_of(c, s, row->shape[1]);
    w.n = w.shape[0] * w.shape[1]; /* dimensions are at most 2^24 */
    return w;
}

/* The share of one head in a role whose heads have separate tensors. */
static mt_weight head_weight(const mt_model *m, const mt_layer_spec *s, const mt_tensor_row *row, int64_t head)
{
    mt_weight w = { .role = row->role, .n_dims = 1, .shape = { s->Dh, 1 }, .n = s->Dh, .exact = row->exact };
    char name[MT_NAME_BYTES];
    w.slice = (mt_tensor_slice){ .n_dims = 1, .shape = { s->Dh, 1, 1 }, .slab = { s->Dh, 1 }, .run = s->Dh, .stride = s->Dh };
    file_name(m->config, &m->names, row, name);
    fill_in(w.name, name, "%h", (int)head);
    return w;
}

static mt_weight weight_of(const mt_model *m, const mt_layer_spec *s, const mt_tensor_row *row, int64_t i)
{
    if (row->pack == MT_PACK_APART) return head_weight(m, s, row, i);
    mt_weight w = whole_weight(m, s, row);
    if (of_experts(row)) w.expert = (int)i;
    return w;
}

/* True if b must follow a without a gap: they are one role, or one product computes both. */
static bool side_by_side(const mt_layer_spec *s, mt_role a, mt_role b)
{
    bool beside = a == b;
    const layer_parts parts = s ? parts_of(s) : (layer_parts){ 0 };
    for (size_t i = 0; s && i < MT_COUNT(parts.p); i++) beside |= parts.p[i]->beside && parts.p[i]->beside(a, b);
    return beside;
}

/* The end of the rows that are listed together with this one, number by number: an expert's gate and up stay side by side. */
static const mt_tensor_row *end_of_run(const mt_layer_spec *s, const mt_tensor_row *row)
{
    const mt_tensor_row *end = row + 1;
    while (of_experts(row) && end->name && of_experts(end) && side_by_side(s, end[-1].role, end->role)) end++;
    return end;
}

/* NULL: of no layer. */
static const mt_layer_spec *spec_of(const mt_config *c, const mt_unit *u) { return u->layer < 0 ? NULL : &c->layers[u->layer]; }

static mt_rc list_weights(mt_layout *out, const mt_model *m, const mt_unit *u, mt_err *err)
{
    const mt_config *c = m->config;
    const mt_layer_spec *s = spec_of(c, u);
    int64_t n = 1;
    for (const mt_tensor_row *row = m->names.tensors; row->name; row++)
        if (is_in(m, s, u, row)) n += n_weights_of(c, s, u, row);
    out->weights = mt_calloc((size_t)n, sizeof *out->weights);
    if (!out->weights) return mt_no_memory(err, "the model's layout");
    for (const mt_tensor_row *row = m->names.tensors, *end; row->name; row = end) {
        end = end_of_run(s, row);
        for (int64_t i = 0; is_in(m, s, u, row) && i < n_weights_of(c, s, u, row); i++)
            for (const mt_tensor_row *r = row; r < end; r++) out->weights[out->n_weights++] = weight_of(m, s, r, i);
    }
    return MT_OK;
}

/* Weights of experts that are stored side by side. */
static bool of_one_run(mt_role a, mt_role b)
{
    const bool weights = (a == MT_W_E_GATE || a == MT_W_E_UP) && (b == MT_W_E_GATE || b == MT_W_E_UP);
    return weights || ((a == MT_B_E_GATE || a == MT_B_E_UP) && (b == MT_B_E_GATE || b == MT_B_E_UP));
}

/* The heads of one role are contiguous, and so are the experts of a layer, so all of them are trained or none. */
static mt_rc check_alike(const mt_weight *a, const mt_weight *b, const char *name, mt_err *err)
{
    const bool experts = of_one_run(a->role, b->role);
    if ((a->role != b->role && !experts) || (a->frozen == b->frozen && a->decay == b->decay)) return MT_OK;
    if (experts || a->role == MT_W_E_DOWN || a->role == MT_B_E_DOWN)
        return mt_fail(err, MT_EINVAL,
                       "freeze: the experts of a layer are trained together, but the patterns match only some of them (first "
                       "mismatch: \"%s\"); match all of them or none",
                       name);
    return mt_fail(
        err, MT_EINVAL,
        "freeze: the per-head norms of a layer must be frozen together, but the patterns match only some of them (\"%s\" "
        "differs); match all of them or none",
        name);
}

/* True if the unit before it holds other experts of the same layer. */
static bool follows(const mt_unit *u) { return u->kind == MT_UNIT_EXPERTS && u->first_expert > 0; }

static bool came_as_bf16(const mt_config *c, const mt_model_options *o, const char *name)
{
    return o->is_bf16 ? o->is_bf16(o->files, name) : o->assume_dtype && c->dtype == MT_DTYPE_BF16;
}

/* Frozen and decayed, by name, over the whole model: a pattern must match somewhere.  The lists are the units' layouts. */
static mt_rc select_weights(const mt_model *m, mt_layout *lists, const mt_model_options *o, mt_err *err)
{
    size_t n = mt_walk_count(mt_walk_model(m)), i = 0;
    char(*text)[MT_NAME_BYTES] = mt_calloc(n, sizeof *text);
    const char **names = mt_calloc(n, sizeof *names);
    mt_selected *chosen = mt_calloc(n, sizeof *chosen);
    mt_rc rc = text && names && chosen ? MT_OK : mt_no_memory(err, "%zu tensor names", n);
    for (mt_walk at = mt_walk_model(m); !rc && mt_walk_next(&at); i++) {
        mt_weight_name(at.u, at.w, text[i]);
        names[i] = text[i];
    }
    static const mt_model_options none;
    if (!o) o = &none;
    if (!rc) rc = mt_select(chosen, names, n, &(mt_select_config){ o->freeze, o->n_freeze, o->decay_all }, err);
    i = 0;
    for (mt_walk at = mt_walk_model(m); !rc && mt_walk_next(&at); i++) {
        ptrdiff_t k = at.w - at.u->layout->weights;
        mt_weight *w = &lists[at.unit].weights[k];
        w->frozen = !chosen[i].trained || w->fixed;
        w->decay = chosen[i].decayed && !w->fixed;
        w->no_low = w->frozen && !w->exact && came_as_bf16(m->config, o, names[i]);
        if (k) rc = check_alike(&w[-1], w, names[i], err);
        if (!rc && follows(at.u)) rc = check_alike(&lists[at.unit - 1].weights[k], w, names[i], err);
    }
    mt_free(text);
    mt_free(names);
    mt_free(chosen);
    return rc;
}

/* A region's exact run follows its other numbers. */
enum { DECAYS, DECAYS_EXACT, TRAINS, TRAINS_EXACT, FROZEN, FROZEN_EXACT, FROZEN_NO_LOW, RUNS };

static int run_of(const mt_weight *w)
{
    if (w->no_low) return FROZEN_NO_LOW;
    if (w->frozen) return FROZEN + w->exact;
    return (w->decay ? DECAYS : TRAINS) + w->exact;
}

/* Tensors of one product stay contiguous: low halves are omitted for all of them or for none. */
static void agree_on_low(mt_layout *l, const mt_layer_spec *s)
{
    for (int i = 0, end; i < l->n_weights; i = end) {
        bool all = true;
        for (end = i; end < l->n_weights && (end == i || side_by_side(s, l->weights[end - 1].role, l->weights[end].role)); end++)
            all &= l->weights[end].no_low || !l->weights[end].frozen;
        for (int k = i; k < end; k++) l->weights[k].no_low &= all;
    }
}

static int64_t place_run(mt_layout *l, const mt_layer_spec *s, int run, int64_t at)
{
    const mt_weight *before = NULL;
    for (int i = 0; i < l->n_weights; i++) {
        mt_weight *w = &l->weights[i];
        if (run_of(w) != run) continue;
        if (!before || !side_by_side(s, before->role, w->role)) at = (int64_t)mt_round_up((size_t)at, MT_BLOCK_ALIGN);
        w->offset = at;
        if (l->at[w->role] < 0) l->at[w->role] = at;
        l->trains[w->role] = !w->frozen;
        at += w->n;
        before = w;
    }
    return (int64_t)mt_round_up((size_t)at, MT_BLOCK_ALIGN);
}

static void place_exact(mt_layout *l, const int64_t ends[RUNS])
{
    for (int i = 0; i < MT_EXACT_RUNS; i++) {
        int run = DECAYS_EXACT + 2 * i;
        l->exact[i] = (mt_exact_run){ ends[run - 1], ends[run] - ends[run - 1], l->n_exact };
        l->n_exact += l->exact[i].n;
    }
    for (int i = 0; i < l->n_weights; i++) {
        const mt_weight *w = &l->weights[i];
        const mt_exact_run *run = w->exact ? &l->exact[run_of(w) / 2] : NULL;
        if (run && l->exact_at[w->role] < 0) l->exact_at[w->role] = run->at + l->at[w->role] - run->first;
    }
}

static void place_weights(mt_layout *l, const mt_layer_spec *s)
{
    int64_t ends[RUNS];
    for (int role = 0; role < MT_ROLES; role++) l->at[role] = l->exact_at[role] = -1;
    agree_on_low(l, s);
    for (int run = 0; run < RUNS; run++) ends[run] = place_run(l, s, run, run ? ends[run - 1] : 0);
    l->n_decay = ends[DECAYS_EXACT];
    l->n_train = ends[TRAINS_EXACT];
    l->n_low = ends[FROZEN_EXACT];
    l->n_elems = ends[FROZEN_NO_LOW];
    place_exact(l, ends);
}

static bool equal_layouts(const mt_layout *a, const mt_layout *b)
{
    if (a->n_weights != b->n_weights || a->n_elems != b->n_elems) return false;
    for (int i = 0; i < a->n_weights; i++) {
        const mt_weight *x = &a->weights[i], *y = &b->weights[i];
        if (x->role != y->role || x->offset != y->offset || x->n != y->n || x->frozen != y->frozen) return false;
        if (x->exact != y->exact || x->no_low != y->no_low) return false;
    }
    return true;
}

/* The group whose layout equals *l, which is released; or a new one, which takes it over. */
static mt_rc join_group(mt_model *m, mt_unit *u, mt_layout *l, mt_err *err)
{
    for (u->group = 0; u->group < m->n_groups; u->group++)
        if (equal_layouts(&m->layouts[u->group], l)) {
            mt_free(l->weights);
            return MT_OK;
        }
    mt_layout *grown = mt_realloc(m->layouts, (size_t)(m->n_groups + 1) * sizeof *grown);
    if (!grown) {
        mt_free(l->weights);
        return mt_no_memory(err, "the model's layout");
    }
    m->layouts = grown;
    m->layouts[m->n_groups++] = *l;
    return MT_OK;
}

/* -- the model ------------------------------------------------------------------------------------- */

static int add_unit(mt_model *m, mt_unit_kind kind, int layer)
{
    m->units[m->n_units] = (mt_unit){ .kind = kind, .layer = layer };
    return m->n_units++;
}

/* The only place that knows how units are numbered. */
static void number_units(mt_model *m)
{
    m->embed = add_unit(m, MT_UNIT_EMBED, -1);
    for (int l = 0; l < m->config->L; l++) {
        m->layers[l] = (mt_layer_units){ add_unit(m, MT_UNIT_LAYER, l), 1 };
        const mt_layer_spec *s = &mt_layer_kind_of(m, l)->spec;
        for (int64_t e = 0; e < s->E; e += s->unit_experts, m->layers[l].n++) {
            mt_unit *u = &m->units[add_unit(m, MT_UNIT_EXPERTS, l)];
            u->first_expert = (int)e;
            u->n_experts = (int)s->unit_experts;
        }
    }
    m->head = m->tied ? m->embed : add_unit(m, MT_UNIT_HEAD, -1);
}

static mt_rc list_units(mt_model *m, mt_layout *lists, mt_err *err)
{
    for (int i = 0; i < m->n_units; i++) {
        m->units[i].layout = &lists[i]; /* until it joins a group */
        MT_TRY(list_weights(&lists[i], m, &m->units[i], err));
    }
    return MT_OK;
}

static mt_rc build_units(mt_model *m, const mt_model_options *o, mt_err *err)
{
    const mt_config *c = m->config;
    size_t most = (size_t)c->L + 2;
    for (int l = 0; l < c->L; l++)
        if (c->layers[l].E) most += (size_t)(c->layers[l].E / mt_layer_kind_of(m, l)->spec.unit_experts);
    m->layers = mt_calloc((size_t)c->L, sizeof *m->layers);
    m->units = mt_calloc(most, sizeof *m->units);
    mt_layout *lists = mt_calloc(most, sizeof *lists);
    mt_rc rc = m->layers && m->units && lists ? MT_OK : mt_no_memory(err, "%zu units", most);
    if (!rc) number_units(m);
    if (!rc) rc = list_units(m, lists, err);
    if (!rc) rc = select_weights(m, lists, o, err);
    for (int i = 0; lists && i < m->n_units; i++) {
        if (rc) {
            mt_free(lists[i].weights);
            continue;
        }
        place_weights(&lists[i], spec_of(c, &m->units[i]));
        rc = join_group(m, &m->units[i], &lists[i], err); /* takes the list over or releases it */
    }
    mt_free(lists);
    for (int i = 0; !rc && i < m->n_units; i++) m->units[i].layout = &m->layouts[m->units[i].group]; /* they no longer move */
    return rc;
}

static void count_params(mt_model *m)
{
    m->first_trained = m->n_units;
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) {
        m->n_params += at.w->n;
        if (at.w->frozen) continue;
        m->n_trained += at.w->n;
        m->first_trained = (int)mt_min_i64(m->first_trained, at.unit);
    }
}

int mt_model_lowest_layer(const mt_model *m)
{
    const mt_unit *u = m->first_trained < m->n_units ? &m->units[m->first_trained] : NULL;
    if (!u || u->kind == MT_UNIT_HEAD) return (int)m->config->L;
    return u->kind == MT_UNIT_EMBED ? 0 : u->layer;
}

mt_rc mt_model_create(mt_model **out, const mt_config *config, const mt_model_options *options, mt_err *err)
{
    *out = NULL;
    mt_model *m = mt_calloc(1, sizeof *m);
    if (!m) return mt_no_memory(err, "the model");
    m->config = config;
    m->names = options && options->names ? *options->names : mt_file_names_of(config);
    m->tied = m->names.tied;
    mt_rc rc = mt_layer_kinds(m, options ? options->unit_experts : 0, err);
    if (!rc) rc = build_units(m, options, err);
    if (rc) {
        mt_model_free(m);
        return rc;
    }
    count_params(m);
    *out = m;
    return MT_OK;
}

void mt_model_free(mt_model *m)
{
    if (!m) return;
    for (int i = 0; i < m->n_groups; i++) mt_free(m->layouts[i].weights);
    mt_free(m->layouts);
    mt_free(m->kinds);
    mt_free(m->kind_of_layer);
    mt_free(m->units);
    mt_free(m->layers);
    mt_free(m);
}
