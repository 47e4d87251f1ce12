/* updates.c - updates at their three sites: the addresses of state and gradient. schedule/sequence_updates.c decides which unit, and when.
 *
 *   host    jobs go to the updater's thread (updater.c)
 *   device  on the compute stream, at the state's home
 *   staged  the state (without hi if the weights stay on the device as bf16) is copied in, updated on the compute stream and
 *           written back
 *
 * The host may update only part of a unit; pieces of the rest pass through device slots (pieces.c).
 *
 * All sites run the one expression of the optimizer (optim/optimizer.h) on the same rounded gradient, so the site cannot change a bit. */
#include "engine/lane_internal.h"

/* -- on the host ----------------------------------------------------------------------------------- */

mt_rc mt__updates_on_host(mt_lane *lane, const mt_action *a, mt_err *err)
{
    int u = a->unit;
    if (lane->index > 0) return MT_OK; /* only the first lane: one update for all */
    return mt_state_push(lane->state,
                         &(mt_host_update){ .unit = u,
                                            .n = a->n,
                                            .g = mt__grads_host(lane, u, a->to),
                                            .landed = lane->before_update,
                                            .norm = lane->pass.updates_early ? &lane->total.landed_norms[u] : NULL,
                                            .version = a->version },
                         err);
}

/* -- on the device --------------------------------------------------------------------------------- */

static mt_rc queue_update(mt_lane *lane, int u, const mt_home *at, mt_err *err)
{
    mt_update op = mt_state_update_of(lane->state, u);
    mt_home_address(&op, at, lane->units[u].grad_dev);
    op.guard = lane->pass.updates_early ? &lane->total.norms[u] : NULL;
    op.n_bad = lane->total.n_bad;
    return mt_state_optimizer(lane->state)->on_device(lane->ops, lane->compute, &op, err);
}

mt_rc mt__updates_on_device(mt_lane *lane, int u, bool in_place, mt_err *err)
{
    const mt_home *s = mt_state_home(lane->state, u);
    MT_TRY(queue_update(lane, u, s, err));
    return in_place ? mt__ring_rejoin(lane, u, s->lo, err) : MT_OK;
}

/* -- staged ---------------------------------------------------------------------------------------- */

/* The address of an array of unit u's staged state: in its slot, or in the memory it reuses. */
static char *staged_at(const mt_lane *lane, int slot, int u, mt_state_kind kind)
{
    const unsigned part = 1u << kind;
    const int *reused = mt__place(lane, u)->reused;
    if (!mt__place(lane, u)->reuses) {
        const unsigned parts = mt_plan_staged_parts(lane->plan, u);
        return (char *)lane->stages[slot] + mt_plan_lay_out(lane->plan, mt__layout(lane, u)->n_train, parts).at[kind];
    }
    if (part == MT_PART_FIRST) return (char *)lane->sums[u];
    const int lender = mt_plan_lent_parts(lane->plan, u, 0) & part ? 0 : 1;
    return lane->layers[reused[lender]].kept + mt_plan_lent(lane->plan, u, lender).at[kind];
}

/* Where the update finds the state: hi may be updated in place. */
static mt_home staged_state(const mt_lane *lane, const mt_action *a)
{
    mt_home at = { .lo = (int16_t *)(void *)staged_at(lane, a->slot, a->unit, MT_STATE_LO) };
    void *const hi = a->in_place ? lane->ring[mt_sequence_resident_slot(lane->sequence, a->unit)].p
                                 : staged_at(lane, a->slot, a->unit, MT_STATE_HI);
    at.hi = hi;
    for (int k = 0; k < mt_state_optimizer(lane->state)->n_arrays; k++)
        at.array[k] = staged_at(lane, a->slot, a->unit, MT_STATE_ARRAYS + k);
    return at;
}

/* Copies the action's parts between home and slot, in the order in which the update needs them. */
static mt_rc copy_parts(mt_lane *lane, mt_stream *queue, const mt_action *a, mt_copy_dir dir, mt_err *err)
{
    const mt_home *home = mt_state_home(lane->state, a->unit), slot = staged_state(lane, a);
    for (int i = 0; i < MT_STATE_KINDS; i++) {
        const mt_state_kind kind = mt_state_copy_order[i];
        const size_t bytes = mt_plan_array_bytes(lane->plan, kind, (size_t)mt__layout(lane, a->unit)->n_train);
        void *const at_home = mt_home_at(home, kind), *const in_slot = mt_home_at(&slot, kind);
        if (!(a->parts >> kind & 1) || !bytes) continue;
        MT_TRY(dir == MT_COPY_IN ? mt_copy(queue, in_slot, at_home, bytes, dir, err)
                                 : mt_copy(queue, at_home, in_slot, bytes, dir, err));
    }
    return MT_OK;
}

mt_rc mt__updates_stage(mt_lane *lane, const mt_action *a, mt_err *err)
{
    return copy_parts(lane, lane->copy_in, a, MT_COPY_IN, err);
}

mt_rc mt__updates_staged(mt_lane *lane, const mt_action *a, mt_err *err)
{
    const mt_home at = staged_state(lane, a);
    MT_TRY(queue_update(lane, a->unit, &at, err));
    return a->in_place ? mt__ring_rejoin(lane, a->unit, at.lo, err) : MT_OK;
}

mt_rc mt__updates_write_back(mt_lane *lane, const mt_action *a, mt_err *err)
{
    return copy_parts(lane, lane->write_back, a, MT_COPY_OUT, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

mt_rc mt__updates_create(mt_lane *lane, mt_err *err)
{
    int n_slots = mt_sequence_count(lane->sequence).stages, n_pieces = mt_sequence_count(lane->sequence).pieces;
    lane->stages = mt_calloc((size_t)n_slots, sizeof *lane->stages);
    lane->pieces = mt_calloc((size_t)n_pieces + 1, sizeof *lane->pieces);
    if (!lane->stages || !lane->pieces) return mt_no_memory(err, "the slots of staged updates");
    for (int i = 0; i < n_slots; i++) lane->stages[i] = mt_memory_find(lane->memory, MT_BUF_STAGE, i, -1);
    for (int i = 0; i < n_pieces; i++) lane->pieces[i] = mt_memory_find(lane->memory, MT_BUF_PIECE, i, -1);
    for (int u = 0; u < lane->model->n_units; u++) {
        const mt_unit_place *at = mt__place(lane, u);
        lane_unit *s = &lane->units[u];
        s->parked =
            at->site == MT_SITE_HOST ? mt_memory_find(lane->memory, MT_BUF_PARKED, mt_plan_alias(lane->plan, u), -1) : NULL;
        s->grad_dev = at->reuses ? lane->layers[at->reused[1]].kept + mt_plan_lent(lane->plan, u, 1).at[MT_STATE_KINDS]
                                 : mt_memory_find(lane->memory, MT_BUF_GRAD_DEV, u, -1);
    }
    return MT_OK;
}
