/* keeps.c - activations from forward to backward: kept on the device, kept in host memory, or not kept.
 *
 * A layer keeps one block of arrays over the sweep's rows.  The lists of its kind (model/layer.h) and the keep level define its
 * layout.  A block in host memory passes through a device slot: schedule/sequence_keeps.c decides which, and when. */
#include "engine/lane_internal.h"

static const mt_array *arrays_of(const mt_lane *lane, int layer)
{
    return mt_kind_arrays(mt_layer_kind_of(lane->model, layer), lane->plan->arithmetic.compute);
}

/* Layout of the layer's kept block. */
static const mt_carving *carving_of(const mt_lane *lane, int layer) { return &lane->carvings[lane->layers[layer].carving]; }

static char *block_of(mt_lane *lane, int layer)
{
    lane_layer *l = &lane->layers[layer];
    return l->kept_host ? lane->keeps[mt_sequence_keep_slot(lane->sequence, layer)] : l->kept;
}

/* Array i of a layer from `row` on; NULL: it is not kept. */
static void *kept_array(mt_lane *lane, int layer, int i, int64_t row)
{
    size_t at = carving_of(lane, layer)->at[i];
    return at == SIZE_MAX ? NULL : block_of(lane, layer) + at + (size_t)row * arrays_of(lane, layer)[i].row_bytes;
}

void *mt__keeps_x(mt_lane *lane, int layer, bool train, int64_t row)
{
    void *x = train && layer < lane->model->config->L ? kept_array(lane, layer, MT_ARRAY_INPUT, row) : NULL;
    if (x) return x;
    size_t row_bytes = (size_t)lane->model->config->D * mt_dtype_bytes(lane->plan->arithmetic.compute);
    return (char *)lane->x_pass[layer & 1] + (size_t)row * row_bytes;
}

mt_acts mt__keeps_acts(mt_lane *lane, int layer, bool train, int set, int64_t row)
{
    const int kind = lane->model->kind_of_layer[layer];
    const mt_array *a = arrays_of(lane, layer);
    const mt_carving *own = &lane->work_carvings[2 * kind], *shared = own + 1;
    mt_acts acts = { .whole = train && lane->plan->longest_segment > 1 };
    for (int i = 0; i < lane->model->kinds[kind].n_arrays; i++) {
        void *kept = train ? kept_array(lane, layer, i, row) : NULL;
        if (kept) {
            acts.at[i] = kept;
            acts.kept |= (uint64_t)1 << i;
            acts.whole |= a[i].extent == MT_EXTENT_SEGMENT;
        } else if (a[i].row_bytes && a[i].instead) {
            acts.at[i] = acts.at[a[i].instead - 1];
        } else if (a[i].row_bytes) {
            char *work = a[i].shared ? lane->shared_work + shared->at[i] : lane->layer_work[set] + own->at[i];
            acts.at[i] = work + (a[i].extent == MT_EXTENT_SWEEP ? (size_t)row * a[i].row_bytes : 0);
        }
    }
    if (!train) acts.cache = lane->layers[layer].cache;
    acts.cache_slots = lane->plan->job.cache_slots;
    acts.cache_rows = acts.cache_slots * mt_job_cache_rows(&lane->plan->job);
    return acts;
}

/* -- through host memory --------------------------------------------------------------------------- */

/* The used rows of each kept array, one copy each. */
mt_rc mt__keeps_copy(mt_lane *lane, int layer, mt_copy_dir dir, mt_err *err)
{
    mt_stream *s = dir == MT_COPY_OUT ? lane->copy_out : lane->copy_in;
    const mt_carving *c = carving_of(lane, layer);
    const mt_array *a = arrays_of(lane, layer);
    char *on_device = block_of(lane, layer), *on_host = lane->layers[layer].kept_host;
    for (int i = 0; i < mt_layer_kind_of(lane->model, layer)->n_arrays; i++) {
        const size_t at = c->at[i];
        if (at == SIZE_MAX) continue;
        MT_TRY(mt_copy_between(s, on_host + at, on_device + at, (size_t)lane->sweep.rows * a[i].row_bytes, dir, err));
    }
    return MT_OK;
}

/* -- life ------------------------------------------------------------------------------------------ */

/* Kept blocks by (kind, level); workspace by (kind, own or shared). */
static mt_rc open_carvings(mt_lane *lane, mt_err *err)
{
    const mt_plan *p = lane->plan;
    const int kinds = lane->model->n_kinds, L = (int)lane->model->config->L;
    lane->carvings = mt_calloc((size_t)kinds * MT_KEEPS, sizeof *lane->carvings);
    lane->work_carvings = mt_calloc((size_t)kinds * 2, sizeof *lane->work_carvings);
    lane->layer_work = mt_calloc((size_t)p->longest_segment, sizeof *lane->layer_work);
    if (!lane->carvings || !lane->work_carvings || !lane->layer_work) return mt_no_memory(err, "the table of arrays");
    for (int k = 0; k < kinds; k++) {
        const mt_layer_kind *kind = &lane->model->kinds[k];
        for (mt_keep keep = 0; keep < MT_KEEPS; keep++)
            mt_carve_kept(&lane->carvings[k * MT_KEEPS + (int)keep], kind, p->arithmetic.compute, keep, p->place.sweep_tokens);
        for (int shared = 0; shared < 2; shared++)
            mt_carve_work(&lane->work_carvings[2 * k + shared], kind, p->arithmetic.compute, shared, mt_plan_work_rows(p));
    }
    for (int l = 0; l < L; l++) lane->layers[l].carving = lane->model->kind_of_layer[l] * MT_KEEPS + (int)p->place.layers[l].keep;
    for (int s = 0; s < p->longest_segment; s++) lane->layer_work[s] = mt_memory_find(lane->memory, MT_BUF_LAYER_WORK, s, -1);
    for (int i = 0; i < 2; i++) lane->x_pass[i] = mt_memory_find(lane->memory, MT_BUF_X_PASS, i, -1);
    lane->shared_work = mt_memory_find(lane->memory, MT_BUF_WORK, -1, -1);
    return MT_OK;
}

mt_rc mt__keeps_create(mt_lane *lane, mt_err *err)
{
    int n_slots = mt_sequence_count(lane->sequence).keeps;
    lane->layers = mt_calloc((size_t)lane->model->config->L, sizeof *lane->layers);
    lane->keeps = mt_calloc((size_t)n_slots + 1, sizeof *lane->keeps);
    if (!lane->layers || !lane->keeps) return mt_no_memory(err, "the table of layers");
    MT_TRY(open_carvings(lane, err));
    for (int s = 0; s < n_slots; s++) lane->keeps[s] = mt_memory_find(lane->memory, MT_BUF_KEEP_SLOT, s, -1);
    for (int l = 0; l < lane->model->config->L; l++) {
        lane_layer *s = &lane->layers[l];
        s->kept = mt_memory_find(lane->memory, MT_BUF_KEEP, l, -1);
        s->cache = mt_memory_find(lane->memory, MT_BUF_CACHE, l, -1);
        if (mt_sequence_keep_slot(lane->sequence, l) >= 0)
            s->kept_host = mt_memory_find(lane->memory, MT_BUF_KEEP_HOST, mt_plan_alias_kept(lane->plan, l), -1);
    }
    return MT_OK;
}

void mt__keeps_free(mt_lane *lane)
{
    mt_free(lane->layers);
    mt_free(lane->keeps);
    mt_free(lane->carvings);
    mt_free(lane->work_carvings);
    mt_free(lane->layer_work);
}
