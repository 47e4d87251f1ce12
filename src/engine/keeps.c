/* keeps.c - activations from forward to backward: kept on the device, kept in host memory, or not kept.
 *
 * What is kept of a layer is one block of arrays over the sweep's rows: lse, x, qkv, attn, xmid, gu, with post norms mixed and
 * mlped, then norms and act, as far as the level says.  A block in host memory passes through a device slot: layer l uses slot
 * (number of its kind) mod keep_slots, on the way out and back, so the last layers of forward are still there when backward
 * begins. */
#include "engine/internal.h"

typedef enum array_id {
    A_LSE, A_X, A_QKV, A_ATTN, A_XMID, A_GU, A_MIXED, A_MLPED, A_RSTD1, A_H1, A_RSTD2, A_H2, A_ACT, /* as they lie in a block */
    ARRAYS
} array_id;
_Static_assert((int)ARRAYS == (int)MT_KEEP_ARRAYS, "the plan makes room for the gaps between them");

/* The least level that keeps it. */
static const mt_keep level_of[ARRAYS] = {
    [A_X] = MT_KEEP_INPUT,      [A_LSE] = MT_KEEP_ATTENTION, [A_QKV] = MT_KEEP_ATTENTION, [A_ATTN] = MT_KEEP_ATTENTION,
    [A_XMID] = MT_KEEP_ALL,     [A_GU] = MT_KEEP_ALL,        [A_MIXED] = MT_KEEP_ALL,     [A_MLPED] = MT_KEEP_ALL,
    [A_RSTD1] = MT_KEEP_NORMS,  [A_H1] = MT_KEEP_NORMS,      [A_RSTD2] = MT_KEEP_NORMS,   [A_H2] = MT_KEEP_NORMS,
    [A_ACT] = MT_KEEP_ACT,
};

static size_t row_bytes(const mt_engine *e, array_id a)
{
    const mt_config *c = e->model->config;
    size_t w = mt_dtype_bytes(e->plan->arithmetic.compute);
    switch (a) {
    case A_LSE: return (size_t)c->H * sizeof(float);
    case A_X:
    case A_XMID: return (size_t)c->D * w;
    case A_QKV: return (size_t)((c->H + 2 * c->K) * c->Dh) * w;
    case A_ATTN: return (size_t)(c->H * c->Dh) * w;
    case A_MIXED:
    case A_MLPED: return mt_config_post_norms(c) ? (size_t)c->D * w : 0;
    case A_GU: return (size_t)mt_config_gu(c) * w;
    case A_RSTD1: return mt_keep_norms(c) > 0 ? sizeof(float) : 0;
    case A_H1: return mt_keep_norms(c) > 0 ? (size_t)c->D * w : 0;
    case A_RSTD2: return mt_keep_norms(c) > 1 ? sizeof(float) : 0;
    case A_H2: return mt_keep_norms(c) > 1 ? (size_t)c->D * w : 0;
    case A_ACT: return (size_t)c->F * w;
    case ARRAYS: break;
    }
    return 0;
}

/* Where array a of a kept block begins. */
static size_t array_offset(const mt_engine *e, mt_keep keep, array_id a)
{
    size_t at = 0;
    for (int b = 0; b < (int)a; b++)
        if (keep >= level_of[b])
            at += mt_round_up(row_bytes(e, (array_id)b) * (size_t)e->plan->place.sweep_tokens, MT_KEEP_ALIGN);
    return at;
}

static char *block_of(mt_engine *e, int layer)
{
    layer_state *l = &e->layers[layer];
    return l->kept_host ? e->keeps[l->slot].s.p : l->kept;
}

/* Array a of a layer from `row` on, or NULL if it is not kept or the family has none. */
static void *kept_array(mt_engine *e, int layer, bool train, array_id a, int64_t row)
{
    mt_keep keep = e->plan->place.layers[layer].keep;
    if (!train || keep < level_of[a] || row_bytes(e, a) == 0) return NULL;
    return block_of(e, layer) + array_offset(e, keep, a) + (size_t)row * row_bytes(e, a);
}

static void *take(char **p, size_t bytes)
{
    void *here = *p;
    *p += mt_round_up(bytes, 256);
    return here;
}

void *mt__keeps_x(mt_engine *e, int layer, bool train, int64_t row)
{
    void *x = layer < e->model->config->L ? kept_array(e, layer, train, A_X, row) : NULL;
    if (x) return x;
    char *pass = mt__buffer(e, MT_BUF_X_PASS, layer & 1, -1);
    return pass + (size_t)row * row_bytes(e, A_X);
}

/* Array a from `row` on: in the layer's kept block or, where it is not kept, in workspace.  *work moves on either way. */
static void *kept_or_work(mt_engine *e, int layer, bool train, array_id a, int64_t row, char **work)
{
    void *own = take(work, (size_t)e->plan->arithmetic.micro_tokens * row_bytes(e, a)),
         *kept = kept_array(e, layer, train, a, row);
    return kept ? kept : own;
}

static mt_normed kept_norm(mt_engine *e, int layer, bool train, array_id h, array_id rstd, int64_t row)
{
    return (mt_normed){ kept_array(e, layer, train, h, row), kept_array(e, layer, train, rstd, row) };
}

mt_acts mt__keeps_acts(mt_engine *e, int layer, bool train, int set, int64_t row)
{
    const mt_config *c = e->model->config;
    const mt_arithmetic *a = &e->plan->arithmetic;
    size_t w = mt_dtype_bytes(a->compute);
    char *work = mt__buffer(e, MT_BUF_LAYER_WORK, set, -1);
    mt_acts acts = { 0 };
    acts.lse = kept_or_work(e, layer, train, A_LSE, row, &work);
    acts.x = kept_or_work(e, layer, train, A_X, row, &work);
    acts.qkv = kept_or_work(e, layer, train, A_QKV, row, &work);
    void *qk = take(&work, (size_t)(a->micro_tokens * (c->H + c->K) * c->Dh) * w);
    acts.qk = c->qk_norm ? qk : acts.qkv;
    acts.attn = kept_or_work(e, layer, train, A_ATTN, row, &work);
    acts.xmid = kept_or_work(e, layer, train, A_XMID, row, &work);
    acts.mixed = kept_or_work(e, layer, train, A_MIXED, row, &work);
    acts.mlped = kept_or_work(e, layer, train, A_MLPED, row, &work);
    void *kept_gu = kept_array(e, layer, train, A_GU, row);
    acts.gu = kept_gu ? kept_gu : work;
    acts.gu_whole = kept_gu || (train && e->plan->longest_segment > 1);
    acts.norm1 = kept_norm(e, layer, train, A_H1, A_RSTD1, row);
    acts.norm2 = kept_norm(e, layer, train, A_H2, A_RSTD2, row);
    acts.act = kept_array(e, layer, train, A_ACT, row);
    acts.cache_k = train ? NULL : mt__buffer(e, MT_BUF_CACHE, layer, -1);
    size_t cache_bytes = (size_t)(e->plan->job.cache_slots * e->plan->job.longest * c->K * c->Dh) * w;
    if (acts.cache_k) acts.cache_v = (char *)acts.cache_k + cache_bytes;
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
    int borrower = e->layers[layer].borrower;
    if (borrower >= 0) {
        MT_TRY(mt__updates_return(e, borrower, err));
        return mt_wait(e->compute, e->units[borrower].kept_free, err); /* U7: its state still lies here */
    }
    keep_slot *k = host_slot(e, layer);
    if (!k) return MT_OK;
    k->layer = layer;
    return mt_wait(e->compute, k->s.free, err);
}

/* The used rows of each kept array, one copy each. */
static mt_rc copy_arrays(mt_engine *e, mt_stream *s, int layer, int64_t rows, mt_copy_dir dir, mt_err *err)
{
    mt_keep keep = e->plan->place.layers[layer].keep;
    char *on_device = block_of(e, layer), *on_host = e->layers[layer].kept_host;
    for (int a = 0; a < ARRAYS; a++) {
        if (keep < level_of[a] || row_bytes(e, (array_id)a) == 0) continue;
        size_t at = array_offset(e, keep, (array_id)a), bytes = (size_t)rows * row_bytes(e, (array_id)a);
        bool out = dir == MT_COPY_OUT;
        MT_TRY(mt_copy(s, (out ? on_host : on_device) + at, (out ? on_device : on_host) + at, bytes, dir, err));
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

mt_rc mt__keeps_create(mt_engine *e, mt_err *err)
{
    int n_slots = e->plan->place.keep_slots, n_hosted = 0;
    e->layers = mt_calloc((size_t)e->model->config->L, sizeof *e->layers);
    e->keeps = mt_calloc((size_t)n_slots, sizeof *e->keeps);
    if (!e->layers || !e->keeps) return mt_fail(err, MT_ENOMEM, "no host memory for the table of layers");
    for (int s = 0; s < n_slots; s++) {
        e->keeps[s].layer = -1;
        e->keeps[s].s.p = mt__buffer(e, MT_BUF_KEEP_SLOT, s, -1);
        MT_TRY(mt__slot_events(e, &e->keeps[s].s, "kept activations", "kept activations sent", err));
    }
    for (int l = 0; l < e->model->config->L; l++) {
        layer_state *s = &e->layers[l];
        s->kept = mt__buffer(e, MT_BUF_KEEP, l, -1);
        s->kept_host = e->plan->place.layers[l].place == MT_HOST
                           ? mt__buffer(e, MT_BUF_KEEP_HOST, mt_plan_alias_kept(e->plan, l), -1)
                           : NULL;
        if (s->kept_host) s->slot = n_hosted++ % n_slots;
        s->borrower = -1;
        MT_TRY(mt__event(e, &s->saved, "kept activations sent", err));
        MT_TRY(mt__event(e, &s->lent, "last backward", err));
    }
    for (int u = 0; u < e->model->n_units; u++)
        for (int i = 0; i < 2 && mt__place(e, u)->borrows; i++) e->layers[mt__place(e, u)->lender[i]].borrower = u;
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
}
