/* keeps.c - activations from forward to backward: kept on the device, kept in host memory, or not kept.
 *
 * What is kept of a layer is one block of arrays over the sweep's rows, carved by the lists of its kind (model/layer.h) as far as
 * the keep level says.  A block in host memory passes through a device slot: layer l uses slot (number of its kind) mod
 * keep_slots, on the way out and back, so the last layers of forward are still there when backward begins. */
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
    return l->kept_host ? e->keeps[l->slot].s.p : l->kept;
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

static keep_slot *host_slot(mt_engine *e, int layer)
{
    return layer < e->model->config->L && e->layers[layer].kept_host ? &e->keeps[e->layers[layer].slot] : NULL;
}

mt_rc mt__keeps_open(mt_engine *e, int layer, bool train, mt_err *err)
{
    if (!train || layer >= e->model->config->L) return MT_OK;
    for (int loan = e->layers[layer].borrowers; loan >= 0; loan = mt__next_loan(e, loan)) {
        MT_TRY(mt__updates_return(e, loan / 2, err));
        MT_TRY(mt_wait(e->compute, e->units[loan / 2].kept_free, err)); /* U7: its state still lies here */
    }
    keep_slot *k = host_slot(e, layer);
    if (!k) return MT_OK;
    k->layer = layer;
    return mt_wait(e->compute, k->s.free, err);
}

/* The used rows of each kept array, one copy each. */
static mt_rc copy_arrays(mt_engine *e, mt_stream *s, int layer, int64_t rows, mt_copy_dir dir, mt_err *err)
{
    const mt_carving *c = carving_of(e, layer);
    const mt_array *a = arrays_of(e, layer);
    char *on_device = block_of(e, layer), *on_host = e->layers[layer].kept_host;
    for (int i = 0; i < mt_layer_kind_of(e->model, layer)->n_arrays; i++) {
        const size_t at = c->at[i];
        const bool out = dir == MT_COPY_OUT;
        if (at == SIZE_MAX) continue;
        MT_TRY(mt_copy(s, (out ? on_host : on_device) + at, (out ? on_device : on_host) + at, (size_t)rows * a[i].row_bytes, dir,
                       err));
    }
    return MT_OK;
}

mt_rc mt__keeps_close(mt_engine *e, int layer, int64_t sweep_rows, mt_err *err)
{
    keep_slot *k = host_slot(e, layer);
    if (!k) return MT_OK;
    MT_TRY(mt_record(e->compute, k->s.ready, err));
    MT_TRY(mt_wait(e->copy_out, k->s.ready, err));
    MT_TRY(copy_arrays(e, e->copy_out, layer, sweep_rows, MT_COPY_OUT, err));
    MT_TRY(mt_record(e->copy_out, e->layers[layer].saved, err));
    return mt_record(e->copy_out, k->s.free, err);
}

mt_rc mt__keeps_fetch(mt_engine *e, int layer, int64_t sweep_rows, mt_err *err)
{
    keep_slot *k = layer < 0 ? NULL : host_slot(e, layer);
    if (!k || k->layer == layer) return MT_OK; /* still there from forward, or on its way */
    k->layer = layer;
    MT_TRY(mt_wait(e->copy_in, k->s.free, err));
    MT_TRY(mt_wait(e->copy_in, e->layers[layer].saved, err));
    MT_TRY(copy_arrays(e, e->copy_in, layer, sweep_rows, MT_COPY_IN, err));
    return mt_record(e->copy_in, k->s.ready, err);
}

mt_rc mt__keeps_acquire(mt_engine *e, int layer, mt_err *err)
{
    keep_slot *k = host_slot(e, layer);
    if (!k) return MT_OK;
    MT_TRY(mt_wait(e->compute, k->s.ready, err));
    return mt_wait(e->compute, k->s.free, err); /* still there from forward: the copy out must be done before we write */
}

mt_rc mt__keeps_release(mt_engine *e, int layer, mt_err *err)
{
    keep_slot *k = host_slot(e, layer);
    if (!k) return MT_OK;
    k->layer = -1; /* backward overwrites part of it: it is not what was saved any more */
    return mt_record(e->compute, k->s.free, err);
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
    if (!e->carvings || !e->work_carvings || !e->layer_work)
        return mt_fail(err, MT_ENOMEM, "no host memory for the table of arrays");
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

/* At the head of its lenders' lists; once, where both are the same. */
static void list_loans(mt_engine *e, int u)
{
    const mt_unit_place *at = mt__place(e, u);
    for (int i = at->borrows && at->lender[0] == at->lender[1] ? 1 : 0; i < 2 && at->borrows; i++) {
        layer_state *l = &e->layers[at->lender[i]];
        e->units[u].next_borrower[i] = l->borrowers;
        l->borrowers = 2 * u + i;
    }
}

mt_rc mt__keeps_create(mt_engine *e, mt_err *err)
{
    int n_slots = e->plan->place.keep_slots, n_hosted = 0;
    e->layers = mt_calloc((size_t)e->model->config->L, sizeof *e->layers);
    e->keeps = mt_calloc((size_t)n_slots, sizeof *e->keeps);
    if (!e->layers || !e->keeps) return mt_fail(err, MT_ENOMEM, "no host memory for the table of layers");
    MT_TRY(open_carvings(e, err));
    for (int s = 0; s < n_slots; s++) {
        e->keeps[s].layer = -1;
        e->keeps[s].s.p = mt__buffer(e, MT_BUF_KEEP_SLOT, s, -1);
        MT_TRY(mt__slot_events(e, &e->keeps[s].s, "kept activations", "kept activations sent", err));
    }
    for (int l = 0; l < e->model->config->L; l++) {
        layer_state *s = &e->layers[l];
        s->kept = mt__buffer(e, MT_BUF_KEEP, l, -1);
        s->cache = mt__buffer(e, MT_BUF_CACHE, l, -1);
        s->kept_host = e->plan->place.layers[l].place == MT_HOST
                           ? mt__buffer(e, MT_BUF_KEEP_HOST, mt_plan_alias_kept(e->plan, l), -1)
                           : NULL;
        if (s->kept_host) s->slot = n_hosted++ % n_slots;
        s->borrowers = -1;
        MT_TRY(mt__event(e, &s->saved, "kept activations sent", err));
        MT_TRY(mt__event(e, &s->lent, "last backward", err));
    }
    for (int u = e->model->n_units - 1; u >= 0; u--) list_loans(e, u);
    return MT_OK;
}

void mt__keeps_free(mt_engine *e)
{
    for (int l = 0; e->layers && l < e->model->config->L; l++) {
        e->dev->api->event_free(e->layers[l].saved);
        e->dev->api->event_free(e->layers[l].lent);
    }
    for (int s = 0; e->keeps && s < e->plan->place.keep_slots; s++) mt__slot_free(e, &e->keeps[s].s);
    mt_free(e->layers);
    mt_free(e->keeps);
    mt_free(e->carvings);
    mt_free(e->work_carvings);
    mt_free(e->layer_work);
}
