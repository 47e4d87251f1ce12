/* keeps.c - activations from forward to backward: kept on the device, kept in host memory, or not kept.
 *
 * What is kept of a layer is one block of arrays over the sweep's rows, carved by the lists of its kind (model/layer.h) as far as
 * the keep level says.  A block in host memory passes through a device slot: plan/sequence_keeps.c says which, and when. */
#include "engine/internal.h"

static const mt_array *arrays_of(const mt_engine *e, int layer)
{
    return mt_kind_arrays(mt_layer_kind_of(e->model, layer), e->plan->arithmetic.compute);
}

/* How the layer's kept block is carved. */
static const mt_carving *carving_of(const mt_engine *e, int layer) { return &e->carvings[e->layers[layer].carving]; }

static char *block_of(mt_engine *e, int layer)
{
    layer_state *l = &e->layers[layer];
    return l->kept_host ? e->keeps[mt_sequence_keep_slot(e->sequence, layer)] : l->kept;
}

/* Array i of a layer from `row` on; NULL: it is not kept. */
static void *kept_array(mt_engine *e, int layer, int i, int64_t row)
{
    size_t at = carving_of(e, layer)->at[i];
    return at == SIZE_MAX ? NULL : block_of(e, layer) + at + (size_t)row * arrays_of(e, layer)[i].row_bytes;
}

void *mt__keeps_x(mt_engine *e, int layer, bool train, int64_t row)
{
    void *x = train && layer < e->model->config->L ? kept_array(e, layer, MT_ARRAY_INPUT, row) : NULL;
    if (x) return x;
    size_t row_bytes = (size_t)e->model->config->D * mt_dtype_bytes(e->plan->arithmetic.compute);
    return (char *)e->x_pass[layer & 1] + (size_t)row * row_bytes;
}

mt_acts mt__keeps_acts(mt_engine *e, int layer, bool train, int set, int64_t row)
{
    const int kind = e->model->kind_of_layer[layer];
    const mt_array *a = arrays_of(e, layer);
    const mt_carving *own = &e->work_carvings[2 * kind], *shared = own + 1;
    mt_acts acts = { .whole = train && e->plan->longest_segment > 1 };
    for (int i = 0; i < e->model->kinds[kind].n_arrays; i++) {
        void *kept = train ? kept_array(e, layer, i, row) : NULL;
        if (kept) {
            acts.at[i] = kept;
            acts.kept |= 1u << i;
            acts.whole |= a[i].extent == MT_EXTENT_SEGMENT;
        } else if (a[i].row_bytes && a[i].instead) {
            acts.at[i] = acts.at[a[i].instead - 1];
        } else if (a[i].row_bytes) {
            acts.at[i] = a[i].shared ? e->shared_work + shared->at[i] : e->layer_work[set] + own->at[i];
        }
    }
    if (!train) acts.cache = e->layers[layer].cache;
    acts.cache_rows = e->plan->job.cache_slots * e->plan->job.longest;
    return acts;
}

/* -- through host memory --------------------------------------------------------------------------- */

/* The used rows of each kept array, one copy each. */
mt_rc mt__keeps_copy(mt_engine *e, int layer, mt_copy_dir dir, mt_err *err)
{
    mt_stream *s = dir == MT_COPY_OUT ? e->copy_out : e->copy_in;
    const mt_carving *c = carving_of(e, layer);
    const mt_array *a = arrays_of(e, layer);
    char *on_device = block_of(e, layer), *on_host = e->layers[layer].kept_host;
    for (int i = 0; i < mt_layer_kind_of(e->model, layer)->n_arrays; i++) {
        const size_t at = c->at[i];
        const bool out = dir == MT_COPY_OUT;
        if (at == SIZE_MAX) continue;
        MT_TRY(mt_copy(s, (out ? on_host : on_device) + at, (out ? on_device : on_host) + at,
                       (size_t)e->sweep.rows * a[i].row_bytes, dir, err));
    }
    return MT_OK;
}

/* -- life ------------------------------------------------------------------------------------------ */

/* Kept blocks by (kind, level); workspace by (kind, own or shared). */
static mt_rc open_carvings(mt_engine *e, mt_err *err)
{
    const mt_plan *p = e->plan;
    const int kinds = e->model->n_kinds, L = (int)e->model->config->L;
    e->carvings = mt_calloc((size_t)kinds * MT_KEEPS, sizeof *e->carvings);
    e->work_carvings = mt_calloc((size_t)kinds * 2, sizeof *e->work_carvings);
    e->layer_work = mt_calloc((size_t)p->longest_segment, sizeof *e->layer_work);
    if (!e->carvings || !e->work_carvings || !e->layer_work) return mt_no_memory(err, "the table of arrays");
    for (int k = 0; k < kinds; k++) {
        const mt_layer_kind *kind = &e->model->kinds[k];
        for (mt_keep keep = 0; keep < MT_KEEPS; keep++)
            mt_carve_kept(&e->carvings[k * MT_KEEPS + (int)keep], kind, p->arithmetic.compute, keep, p->place.sweep_tokens);
        for (int shared = 0; shared < 2; shared++)
            mt_carve_work(&e->work_carvings[2 * k + shared], kind, p->arithmetic.compute, shared, mt_plan_work_rows(p));
    }
    for (int l = 0; l < L; l++) e->layers[l].carving = e->model->kind_of_layer[l] * MT_KEEPS + (int)p->place.layers[l].keep;
    for (int s = 0; s < p->longest_segment; s++) e->layer_work[s] = mt__buffer(e, MT_BUF_LAYER_WORK, s, -1);
    for (int i = 0; i < 2; i++) e->x_pass[i] = mt__buffer(e, MT_BUF_X_PASS, i, -1);
    e->shared_work = mt__buffer(e, MT_BUF_WORK, -1, -1);
    return MT_OK;
}

mt_rc mt__keeps_create(mt_engine *e, mt_err *err)
{
    int n_slots = mt_sequence_count(e->sequence).keeps;
    e->layers = mt_calloc((size_t)e->model->config->L, sizeof *e->layers);
    e->keeps = mt_calloc((size_t)n_slots + 1, sizeof *e->keeps);
    if (!e->layers || !e->keeps) return mt_no_memory(err, "the table of layers");
    MT_TRY(open_carvings(e, err));
    for (int s = 0; s < n_slots; s++) e->keeps[s] = mt__buffer(e, MT_BUF_KEEP_SLOT, s, -1);
    for (int l = 0; l < e->model->config->L; l++) {
        layer_state *s = &e->layers[l];
        s->kept = mt__buffer(e, MT_BUF_KEEP, l, -1);
        s->cache = mt__buffer(e, MT_BUF_CACHE, l, -1);
        if (mt_sequence_keep_slot(e->sequence, l) >= 0)
            s->kept_host = mt__buffer(e, MT_BUF_KEEP_HOST, mt_plan_alias_kept(e->plan, l), -1);
    }
    return MT_OK;
}

void mt__keeps_free(mt_engine *e)
{
    mt_free(e->layers);
    mt_free(e->keeps);
    mt_free(e->carvings);
    mt_free(e->work_carvings);
    mt_free(e->layer_work);
}
