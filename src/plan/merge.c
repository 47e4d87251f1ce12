#include "plan/merge.h"

#include "base/mem.h"

#include <math.h>

enum { FEW_UNITS = 320, FEWEST_LAYERS = 16 };

int mt_merge_how_many(const mt_model *model)
{
    const int wanted = (model->n_units + FEW_UNITS - 1) / FEW_UNITS, most = (int)model->config->L / FEWEST_LAYERS;
    if (wanted < most) return wanted;
    return most > 1 ? most : 1;
}

static bool equal_layers(const mt_model *m, int a, int b)
{
    const mt_layer_units *x = &m->layers[a], *y = &m->layers[b];
    if (m->kind_of_layer[a] != m->kind_of_layer[b] || x->n != y->n) return false;
    for (int i = 0; i < x->n; i++)
        if (m->units[x->first + i].group != m->units[y->first + i].group) return false;
    return true;
}

static int first_equal(const mt_model *m, int layer)
{
    int first = 0;
    while (!equal_layers(m, first, layer)) first++;
    return first;
}

static void add_unit(mt_model *to, mt_unit unit, int layer)
{
    unit.layer = layer;
    if (mt_unit_needs_backward(&unit) && to->first_backward > to->n_units) to->first_backward = to->n_units;
    to->units[to->n_units++] = unit;
}

/* The next layer of the merged model is this one. */
static void add_layer(mt_merged *out, int layer, int stands_for)
{
    const mt_layer_units *from = &out->whole->layers[layer];
    mt_model *to = &out->model;
    const int l = (int)out->config.L++;
    to->kind_of_layer[l] = out->whole->kind_of_layer[layer];
    to->layers[l] = (mt_layer_units){ to->n_units, from->n };
    out->stands_for[l] = stands_for;
    for (int i = 0; i < from->n; i++) add_unit(to, out->whole->units[from->first + i], l);
}

/* Keeps every `most`-th layer of each sort, and the last.  By the first layer of a sort, waiting: layers not merged yet; left:
 * layers to come. */
static void merge_layers(mt_merged *out, int most, int *waiting, int *left)
{
    const mt_model *m = out->whole;
    const int L = (int)m->config->L;
    for (int l = 0; l < L; l++) left[first_equal(m, l)]++;
    for (int l = 0; l < L; l++) {
        const int sort = first_equal(m, l);
        waiting[sort]++;
        left[sort]--;
        if (waiting[sort] < most && left[sort] > 0) continue;
        add_layer(out, l, waiting[sort]);
        waiting[sort] = 0;
    }
}

mt_rc mt_merged_init(mt_merged *out, const mt_model *model, int most, mt_err *err)
{
    const size_t L = (size_t)model->config->L, n = (size_t)model->n_units;
    int *counts = mt_calloc(2 * L, sizeof *counts);
    *out = (mt_merged){ .model = *model, .config = *model->config, .whole = model };
    mt_model *to = &out->model;
    to->units = mt_calloc(n, sizeof *to->units);
    to->layers = mt_calloc(L, sizeof *to->layers);
    to->kind_of_layer = mt_calloc(L, sizeof *to->kind_of_layer);
    out->stands_for = mt_calloc(L, sizeof *out->stands_for);
    if (!counts || !to->units || !to->layers || !to->kind_of_layer || !out->stands_for) {
        mt_free(counts);
        mt_merged_free(out);
        return mt_no_memory(err, "searching for a plan");
    }
    out->config.L = 0;
    to->n_units = 0;
    to->first_backward = (int)n;
    add_unit(to, model->units[model->embed], -1);
    merge_layers(out, most, counts, counts + L);
    if (model->head != model->embed) add_unit(to, model->units[model->head], -1);
    to->head = model->head == model->embed ? to->embed : to->n_units - 1;
    if (to->first_backward == (int)n) to->first_backward = to->n_units;
    to->config = &out->config;
    mt_free(counts);
    return MT_OK;
}

void mt_merged_free(mt_merged *m)
{
    mt_free(m->model.units);
    mt_free(m->model.layers);
    mt_free(m->model.kind_of_layer);
    mt_free(m->stands_for);
    *m = (mt_merged){ 0 };
}

/* Zero stays zero, and all stays all. */
static int scaled(int k, double from, double to)
{
    if (k <= 0) return k;
    if (k >= (int)from) return (int)lround(to / from * k);
    return (int)fmin(round(to / from * k), to - 1);
}

/* Layers that may keep something. */
static double read_layers(const mt_model *m) { return (double)(m->config->L - mt_model_lowest_layer(m)); }

candidate mt_merged_candidate(const mt_merged *m, const candidate *c)
{
    static const knob layers[] = { KEEP_ALL, KEEP_CHEAP, KEEP_MIXER, OFFLOADED };
    static const knob units[] = { HOMES, STAGED, OWN, RESIDENT };
    candidate out = *c;
    for (size_t i = 0; i < MT_COUNT(layers); i++)
        out.k[layers[i]] = scaled(c->k[layers[i]], read_layers(m->whole), read_layers(&m->model));
    for (size_t i = 0; i < MT_COUNT(units); i++) out.k[units[i]] = scaled(c->k[units[i]], m->whole->n_units, m->model.n_units);
    return out;
}
