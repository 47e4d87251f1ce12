/* model.c - a model's units and groups: numbers the units, lists their weights (weight_list.c), selects which are trained, places
 * them (layout.c), and joins units with equal layouts into groups. */
#include "base/mem.h"
#include "model/model_internal.h"
#include "model/part.h"
#include "model/select.h"
#include "model/walk.h"

#include <stdio.h>

/* -- the weights that are trained ------------------------------------------------------------------ */

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
    size_t n_trained = 0;
    i = 0;
    for (mt_walk at = mt_walk_model(m); !rc && mt_walk_next(&at); i++) {
        ptrdiff_t k = at.w - at.u->layout->weights;
        mt_weight *w = &lists[at.unit].weights[k];
        w->frozen = !chosen[i].trained || w->fixed || o->forward_only;
        n_trained += !w->frozen;
        w->decay = chosen[i].decayed && !w->fixed && !o->forward_only;
        w->no_low = w->frozen && !w->exact && came_as_bf16(m->config, o, names[i]);
        if (!w->frozen || w->exact || w->n_dims != 2 || !o->packing || !o->packing(o->files, at.u, w, &w->packing))
            w->packing = (mt_packing){ .form = MT_FORM_NUMBERS };
        if (k) rc = check_alike(&w[-1], w, names[i], err);
        if (!rc && follows(at.u)) rc = check_alike(&lists[at.unit - 1].weights[k], w, names[i], err);
    }
    if (!rc && o->n_freeze && !n_trained)
        rc = mt_fail(
            err, MT_EINVAL,
            "freeze: the patterns match all parameters except those that are never trained, and nothing is left to train; take "
            "one away");
    mt_free(text);
    mt_free(names);
    mt_free(chosen);
    return rc;
}

/* -- units and groups ------------------------------------------------------------------------------ */

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

int mt_model_lowest_layer(const mt_model *m)
{
    const mt_unit *u = m->first_backward < m->n_units ? &m->units[m->first_backward] : NULL;
    if (!u || u->kind == MT_UNIT_HEAD) return (int)m->config->L;
    return u->kind == MT_UNIT_EMBED ? 0 : u->layer;
}

bool mt_model_needs_head_dx(const mt_model *m)
{
    const mt_layout *l = m->units[m->head].layout;
    return mt_model_lowest_layer(m) < m->config->L || l->trains[MT_W_FINAL_NORM] || l->trains[MT_B_FINAL_NORM];
}

/* The group whose layout equals *l, which is released; or a new one, which takes it over. */
static mt_rc join_group(mt_model *m, mt_unit *u, mt_layout *l, mt_err *err)
{
    for (u->group = 0; u->group < m->n_groups; u->group++)
        if (mt__layout_equal(&m->layouts[u->group], l)) {
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

static mt_rc list_units(mt_model *m, mt_layout *lists, mt_err *err)
{
    for (int i = 0; i < m->n_units; i++) {
        m->units[i].layout = &lists[i]; /* until it joins a group */
        MT_TRY(mt__weights_list(&lists[i], m, &m->units[i], err));
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
        mt__layout_place(&lists[i], unit_layer_kind(m, &m->units[i]));
        rc = join_group(m, &m->units[i], &lists[i], err); /* takes the list over or releases it */
    }
    mt_free(lists);
    for (int i = 0; !rc && i < m->n_units; i++) m->units[i].layout = &m->layouts[m->units[i].group]; /* they no longer move */
    return rc;
}

static void count_params(mt_model *m)
{
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) {
        m->n_params += at.w->n;
        if (!at.w->frozen) m->n_trained += at.w->n;
    }
    while (m->first_backward < m->n_units && !mt_unit_needs_backward(&m->units[m->first_backward])) m->first_backward++;
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
