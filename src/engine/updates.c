/* updates.c - Adam at its three sites: the addresses of state and gradient. schedule/sequence_updates.c decides which unit, and when.
 *
 *   host    jobs go to the updater's thread (updater.c)
 *   device  on the compute stream, at the state's home
 *   staged  lo, m, v (and hi, unless the weights stay on the device as bf16) are copied in, updated on the compute stream and
 *           written back
 *
 * The host may update only part of a unit; pieces of the rest pass through device slots (pieces.c).
 *
 * All sites run the one expression of ops/adamw.h on the same rounded gradient, so the site cannot change a bit. */
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

static mt_rc queue_adamw(mt_lane *lane, int u, uint16_t *hi, int16_t *lo, void *m, void *v, mt_err *err)
{
    mt_adamw op = mt_state_update_of(lane->state, u);
    op.hi = hi, op.lo = lo, op.m = m, op.v = v, op.g = lane->units[u].grad_dev;
    op.guard = lane->pass.updates_early ? &lane->total.norms[u] : NULL;
    op.n_bad = lane->total.n_bad;
    return lane->ops->adamw(lane->compute, &op, err);
}

mt_rc mt__updates_on_device(mt_lane *lane, int u, bool in_place, mt_err *err)
{
    const mt_home *s = mt_state_home(lane->state, u);
    MT_TRY(queue_adamw(lane, u, s->hi, s->lo, s->m, s->v, err));
    return in_place ? mt__ring_rejoin(lane, u, s->lo, err) : MT_OK;
}

/* -- staged ---------------------------------------------------------------------------------------- */

typedef struct staged {
    uint16_t *hi;
    int16_t *lo;
    void *m, *v;
} staged;

static staged carve(const mt_lane *lane, int slot, int u)
{
    if (!mt__place(lane, u)->reuses) {
        mt_staging_layout at = mt_plan_staging(lane->plan, u);
        char *m = lane->stages[slot];
        return (staged){ .m = m, .v = m + at.v, .hi = (uint16_t *)(void *)(m + at.hi), .lo = (int16_t *)(void *)(m + at.lo) };
    }
    mt_reuse_layout at = mt_plan_reuse(lane->plan, u);
    const int *reused = mt__place(lane, u)->reused;
    char *first = lane->layers[reused[0]].kept, *rest = lane->layers[reused[1]].kept;
    return (staged){
        .m = lane->sums[u], .v = first + at.v, .lo = (int16_t *)(void *)(rest + at.lo), .hi = (uint16_t *)(void *)(rest + at.hi)
    };
}

/* One part of a unit's state: its address at home, its address in the slot, its bytes. */
typedef struct part {
    unsigned bit;
    void *home, *slot;
    size_t bytes;
} part;
enum { PARTS = 4 };

/* In the order in which they are copied. */
static void list_parts(const mt_lane *lane, int u, const staged *at, part out[PARTS])
{
    const mt_home *s = mt_state_home(lane->state, u);
    size_t n = (size_t)mt__layout(lane, u)->n_train, halves = n * 2;
    size_t moment = mt_moments_bytes(lane->plan->arithmetic.moments, n);
    out[0] = (part){ MT_PART_V, s->v, at->v, moment };
    out[1] = (part){ MT_PART_LO, s->lo, at->lo, halves };
    out[2] = (part){ MT_PART_M, s->m, at->m, moment };
    out[3] = (part){ MT_PART_HI, s->hi, at->hi, halves };
}

mt_rc mt__updates_stage(mt_lane *lane, const mt_action *a, mt_err *err)
{
    part parts[PARTS];
    staged to = carve(lane, a->slot, a->unit);
    list_parts(lane, a->unit, &to, parts);
    for (const part *p = parts; p < parts + PARTS; p++)
        if (a->parts & p->bit) MT_TRY(mt_copy(lane->copy_in, p->slot, p->home, p->bytes, MT_COPY_IN, err));
    return MT_OK;
}

/* Addresses of the new state: hi may be updated in place. */
static staged state_in(const mt_lane *lane, const mt_action *a)
{
    staged at = carve(lane, a->slot, a->unit);
    if (a->in_place) at.hi = lane->ring[mt_sequence_resident_slot(lane->sequence, a->unit)].p;
    return at;
}

mt_rc mt__updates_staged(mt_lane *lane, const mt_action *a, mt_err *err)
{
    staged at = state_in(lane, a);
    MT_TRY(queue_adamw(lane, a->unit, at.hi, at.lo, at.m, at.v, err));
    return a->in_place ? mt__ring_rejoin(lane, a->unit, at.lo, err) : MT_OK;
}

mt_rc mt__updates_write_back(mt_lane *lane, const mt_action *a, mt_err *err)
{
    part parts[PARTS];
    staged from = state_in(lane, a);
    list_parts(lane, a->unit, &from, parts);
    for (const part *p = parts; p < parts + PARTS; p++)
        if (a->parts & p->bit) MT_TRY(mt_copy(lane->write_back, p->home, p->slot, p->bytes, MT_COPY_OUT, err));
    return MT_OK;
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
        s->grad_dev = at->reuses ? lane->layers[at->reused[1]].kept + mt_plan_reuse(lane->plan, u).g
                                 : mt_memory_find(lane->memory, MT_BUF_GRAD_DEV, u, -1);
    }
    return MT_OK;
}
