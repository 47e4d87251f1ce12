/* sequence_keeps.c - kept activations on their way through host memory.
 *
 * A block in host memory passes through a device slot: each such layer uses slot (its number among them) mod keep_slots, on the
 * way out and back.  The last layer of forward in each slot is still there when backward begins, so it is not copied at all. */
#include "schedule/sequence_internal.h"

static int slot_of(const mt_sequence *s, int layer) { return layer < s->model->config->L ? s->layers[layer].keep_slot : -1; }

mt_rc mt__seq_keeps_begin(mt_sequence *s, int layer, mt_err *err)
{
    if (s->mode != MT_MODE_TRAIN || layer >= s->model->config->L) return MT_OK;
    for (int reuser = s->layers[layer].reusers; reuser >= 0; reuser = seq_next_reuser(s, reuser)) {
        MT_TRY(mt__seq_updates_return(s, reuser / 2, err));
        MT_TRY(seq_wait(s, MT_Q_COMPUTE, unit_event(reuser / 2, KEPT_WRITTEN),
                        err)); /* U7: a staged unit's state may still be here */
    }
    int slot = slot_of(s, layer);
    if (slot < 0) return MT_OK;
    s->keeps[slot] = layer;
    return seq_wait(s, MT_Q_COMPUTE, keep_event(s, slot, FREE), err);
}

mt_rc mt__seq_keeps_end(mt_sequence *s, int layer, mt_err *err)
{
    int slot = slot_of(s, layer);
    if (s->mode != MT_MODE_TRAIN || slot < 0) return MT_OK;
    MT_TRY(seq_record(s, MT_Q_COMPUTE, keep_event(s, slot, READY), err));
    if (s->layers[layer].stays) return MT_OK;
    MT_TRY(seq_wait(s, MT_Q_OUT, keep_event(s, slot, READY), err));
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_KEEP_OUT, .layer = layer, .slot = slot }, err));
    MT_TRY(seq_record(s, MT_Q_OUT, layer_event(s, layer, KEEP_SAVED), err));
    return seq_record(s, MT_Q_OUT, keep_event(s, slot, FREE), err);
}

mt_rc mt__seq_keeps_fetch(mt_sequence *s, int layer, mt_err *err)
{
    int slot = slot_of(s, layer);
    if (slot < 0 || s->keeps[slot] == layer) return MT_OK; /* still there from forward, or on its way */
    s->keeps[slot] = layer;
    MT_TRY(seq_wait(s, MT_Q_IN, keep_event(s, slot, FREE), err));
    MT_TRY(seq_wait(s, MT_Q_IN, layer_event(s, layer, KEEP_SAVED), err));
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_KEEP_IN, .layer = layer, .slot = slot }, err));
    return seq_record(s, MT_Q_IN, keep_event(s, slot, READY), err);
}

mt_rc mt__seq_keeps_acquire(mt_sequence *s, int layer, mt_err *err)
{
    int slot = slot_of(s, layer);
    if (slot < 0) return MT_OK;
    MT_TRY(seq_wait(s, MT_Q_COMPUTE, keep_event(s, slot, READY), err));
    /* Still there from forward: nothing else may read it when backward overwrites it. */
    return seq_wait(s, MT_Q_COMPUTE, keep_event(s, slot, FREE), err);
}

mt_rc mt__seq_keeps_release(mt_sequence *s, int layer, mt_err *err)
{
    int slot = slot_of(s, layer);
    if (slot < 0) return MT_OK;
    s->keeps[slot] = -1; /* backward overwrites part of it, so it no longer equals what was saved */
    return seq_record(s, MT_Q_COMPUTE, keep_event(s, slot, FREE), err);
}

/* Puts the unit at the head of its lenders' lists; once if both are the same. */
static void list_reusers(mt_sequence *s, int u)
{
    const mt_unit_place *at = seq_place(s, u);
    if (!s->units[u].reuses) return;
    for (int i = at->reused[0] == at->reused[1] ? 1 : 0; i < 2; i++) {
        seq_layer *l = &s->layers[at->reused[i]];
        s->units[u].next_reuser[i] = l->reusers;
        l->reusers = 2 * u + i;
    }
}

void mt__seq_keeps_open(mt_sequence *s)
{
    const mt_placement *p = &s->plan->place;
    int n = 0, L = (int)s->model->config->L;
    for (int l = 0; l < L; l++) {
        const mt_layer_place *at = &p->layers[l];
        bool on_host = s->plan->job.train && at->place == MT_HOST && at->keep != MT_KEEP_NOTHING;
        s->layers[l] = (seq_layer){ .keep_slot = on_host ? n++ % p->keep_slots : -1, .reusers = -1 };
    }
    s->n_keeps = n < p->keep_slots ? n : p->keep_slots;
    for (int l = L - 1, left = s->n_keeps; l >= 0 && left > 0; l--)
        if (s->layers[l].keep_slot >= 0) s->layers[l].stays = true, left--;
    for (int i = 0; i < s->n_keeps; i++) s->keeps[i] = -1;
    for (int u = s->model->n_units - 1; u >= 0; u--) list_reusers(s, u);
}
