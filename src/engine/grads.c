/* grads.c - gradients: the memory of sums and finished gradients, and the copies between them. schedule/sequence_sums.c decides which
 * slot, and when.
 *
 * Sums are fp32.  After the last sweep they are rounded to the gradient dtype, squared and summed, and then wait on the host, go
 * into a slab, or stay on the device, depending on the update site.
 *
 * A tied embedding has two sums, the head's and the lookup's, which are added only at the end: the number of sweeps must not
 * change the order of additions (P2). */
#include "engine/lane_internal.h"

static size_t sum_bytes(const mt_lane *lane, int u) { return mt_plan_acc_bytes(lane->plan, mt__layout(lane, u)->n_train); }

/* The finished gradient: in an outgoing slot, or on the device. */
static void *finished(const mt_lane *lane, const mt_action *a)
{
    return a->to < 0 ? lane->units[a->unit].grad_dev : lane->outs[a->to];
}

/* The first weight at or after `from` whose gradient backward writes; NULL: none. */
static const mt_weight *next_written(const mt_lane *lane, int u, int64_t from)
{
    const mt_layout *l = mt__layout(lane, u);
    const mt_weight *next = NULL;
    for (int i = 0; i < l->n_weights; i++) {
        const mt_weight *w = &l->weights[i];
        if (w->offset < from || !mt_plan_writes_sum(lane->plan, u, w)) continue;
        if (!next || w->offset < next->offset) next = w;
    }
    return next;
}

/* Clears what backward adds to, gaps included; most of a dense layer it writes. */
static mt_rc clear_others(mt_lane *lane, int u, float *sums, mt_err *err)
{
    const int64_t n = mt__layout(lane, u)->n_train;
    for (int64_t from = 0; from < n;) {
        const mt_weight *w = next_written(lane, u, from);
        const int64_t to = w ? w->offset : n;
        if (from < to) MT_TRY(mt_fill(lane->compute, sums + from, 0, (size_t)(to - from) * sizeof *sums, err));
        from = w ? w->offset + w->n : n;
    }
    return MT_OK;
}

mt_rc mt__grads_clear(mt_lane *lane, const mt_action *a, mt_err *err)
{
    float *sums = lane->sums[a->slot];
    lane->fresh[a->slot] = !a->share && next_written(lane, a->unit, 0);
    return lane->fresh[a->slot] ? clear_others(lane, a->unit, sums, err)
                                : mt_fill(lane->compute, sums, 0, sum_bytes(lane, a->unit), err);
}

mt_grads mt__grads_take(mt_lane *lane, int u, float *sums)
{
    if (!sums) return (mt_grads){ 0 };
    bool *fresh = &lane->fresh[mt_sequence_sum(lane->sequence, u)];
    const mt_grads g = { sums, *fresh };
    *fresh = false;
    return g;
}

mt_rc mt__grads_copy(mt_lane *lane, const mt_action *a, mt_copy_dir dir, mt_err *err)
{
    void *on_host = lane->units[a->unit].acc_host[a->share], *on_device = lane->sums[a->slot];
    mt_stream *stream = dir == MT_COPY_OUT ? lane->copy_out : lane->copy_in;
    return mt_copy_between(stream, on_host, on_device, sum_bytes(lane, a->unit), dir, err);
}

/* The landing slot of the unit's next part. */
static int landing_slot(const mt_lane *lane, int u)
{
    return lane->model->units[u].layer >= 0 ? (int)(lane->n_turns % MT_LAND_TURNS) : MT_LAND_ENDS;
}

/* Copies sums to the lane's landing slot in host memory, or in slices to the slots of all lanes. */
static mt_rc send_part(mt_lane *lane, const mt_action *a, int slot, mt_err *err)
{
    void *const sum = lane->sums[a->slot];
    if (lane->peers) return mt_peers_send(lane->peers, lane->index, lane->copy_out, a->unit, a->share, slot, sum, err);
    void *to =
        a->share ? mt_memory_find(lane->memory, MT_BUF_LAND_TIED, -1, -1) : mt_memory_find(lane->memory, MT_BUF_LAND, slot, -1);
    return mt_copy(lane->copy_out, to, sum, sum_bytes(lane, a->unit), MT_COPY_OUT, err);
}

/* D5: the event is recorded before any other thread sees it. */
mt_rc mt__grads_part(mt_lane *lane, const mt_action *a, mt_err *err)
{
    const int slot = landing_slot(lane, a->unit);
    float *tied = mt_unit_is_tied(lane->model, a->unit) ? mt_memory_find(lane->memory, MT_BUF_LAND_TIED, -1, -1) : NULL,
          *own = mt_memory_find(lane->memory, MT_BUF_LAND, slot, -1);
    MT_TRY(mt_state_await_parts(lane->state, lane->index, lane->landing[slot], err)); /* a tied unit's slots are freed together */
    MT_TRY(send_part(lane, a, slot, err));
    if (a->share) return MT_OK; /* the unit's own sum follows */
    MT_TRY(mt_record(lane->copy_out, lane->landed[slot], err));
    lane->landing[slot] = ++lane->n_parts;
    if (slot < MT_LAND_TURNS) lane->n_turns++;
    const mt_share_sum part = {
        .unit = a->unit, .slot = slot, .sum = own, .tied = tied, .landed = lane->landed[slot], .device = lane->name
    };
    return mt_state_push_part(lane->state, lane->index, &part, err);
}

mt_rc mt__grads_round(mt_lane *lane, const mt_action *a, mt_err *err)
{
    bool tied = mt_unit_is_tied(lane->model, a->unit);
    return lane->ops->round_grad(lane->compute,
                                 &(mt_round_grad){ .t = lane->plan->arithmetic.grad,
                                                   .n = mt__layout(lane, a->unit)->n_train,
                                                   .acc = lane->sums[a->slot],
                                                   .acc2 = tied ? lane->sums[mt_sequence_tied_slot(lane->sequence)] : NULL,
                                                   .g = finished(lane, a) },
                                 err);
}

mt_rc mt__grads_norm(mt_lane *lane, const mt_action *a, mt_err *err)
{
    return lane->ops->grad_norm(lane->compute,
                                &(mt_grad_norm){ .t = lane->plan->arithmetic.grad,
                                                 .n = mt__layout(lane, a->unit)->n_train,
                                                 .g = finished(lane, a),
                                                 .sum = &lane->total.norms[a->unit],
                                                 .scratch = lane->run.scratch },
                                err);
}

void *mt__grads_host(const mt_lane *lane, int u, int slab)
{
    return slab < 0 ? lane->units[u].parked : mt_memory_find(lane->memory, MT_BUF_SLAB, slab, -1);
}

/* Copies the gradient to the host: to wait until the norm is known, or into a slab for an immediate update. */
mt_rc mt__grads_send(mt_lane *lane, const mt_action *a, mt_err *err)
{
    int u = a->unit;
    size_t bytes = (size_t)mt__layout(lane, u)->n_train * mt_dtype_bytes(lane->plan->arithmetic.grad);
    MT_TRY(mt_copy(lane->copy_out, mt__grads_host(lane, u, a->to), lane->outs[a->slot], bytes, MT_COPY_OUT, err));
    return a->to < 0
               ? MT_OK
               : mt_copy(lane->copy_out, &lane->total.landed_norms[u], &lane->total.norms[u], sizeof(double), MT_COPY_OUT, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

static void open_slots(mt_lane *lane, void **slots, mt_buffer_kind kind, int group)
{
    void *p;
    for (int s = 0; (p = mt_memory_find(lane->memory, kind, group, s)); s++) slots[s] = p;
}

mt_rc mt__grads_create(mt_lane *lane, mt_err *err)
{
    mt_sequence_slots n = mt_sequence_count(lane->sequence);
    bool stay = mt_plan_many_sweeps(lane->plan) && lane->plan->place.accumulators == MT_DEVICE;
    lane->sums = mt_calloc((size_t)n.sums, sizeof *lane->sums);
    lane->fresh = mt_calloc((size_t)n.sums, sizeof *lane->fresh);
    lane->outs = mt_calloc((size_t)n.outs + 1, sizeof *lane->outs);
    if (!lane->sums || !lane->fresh || !lane->outs) return mt_no_memory(err, "the gradient slots");
    for (int g = 0; g < lane->model->n_groups; g++) {
        mt_sequence_slots first = mt_sequence_group(lane->sequence, g);
        if (!stay) open_slots(lane, lane->sums + first.sums, MT_BUF_ACC, g); /* otherwise i is a unit */
        open_slots(lane, lane->outs + first.outs, MT_BUF_GRAD, g);
    }
    lane->sums[mt_sequence_tied_slot(lane->sequence)] = mt_memory_find(lane->memory, MT_BUF_ACC_TIED, lane->model->embed, -1);
    for (int u = 0; u < lane->model->n_units; u++) {
        if (stay) lane->sums[u] = mt_memory_find(lane->memory, MT_BUF_ACC, u, -1);
        for (int share = 0; share < 2; share++)
            lane->units[u].acc_host[share] = mt_memory_find(lane->memory, MT_BUF_ACC_HOST, mt_plan_alias(lane->plan, u), share);
    }
    return MT_OK;
}
