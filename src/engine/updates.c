/* updates.c - Adam at its three sites: where state and gradient are.  Which unit, and when: plan/sequence_updates.c.
 *
 *   host    jobs go to the updater's thread (updater.c)
 *   device  on the compute stream, where the state lives
 *   staged  lo, m, v (and hi, unless the weights stay on the device as bf16) are copied in, updated on the compute stream and
 *           written back
 *
 * All three run the one expression of ops/adamw.h on the same rounded gradient: the site cannot change a bit. */
#include "base/rng.h"
#include "engine/internal.h"

static size_t moment_bytes(const mt_engine *e, int u)
{
    return mt_moments_bytes(e->plan->arithmetic.moments, (size_t)mt__layout(e, u)->n_train);
}

mt_adamw mt__update_of(const mt_engine *e, int u)
{
    enum { STREAM = 0x6d6f6d << 8 }; /* "mom": no other use of the seed */
    const mt_layout *l = mt__layout(e, u);
    return (mt_adamw){ .t = e->plan->arithmetic.grad, .moments = e->plan->arithmetic.moments, .n = l->n_train,
                       .n_decay = l->n_decay, .key = mt_rng_u64(e->updater.seed, STREAM + (uint64_t)u, (uint64_t)e->updater.t),
                       .coef = e->updater.coef, .coef_no_decay = e->updater.coef_no_decay };
}

void mt__updates_coef(mt_engine *e, const mt_hyper *h, double grad_scale)
{
    mt_adamw_step s = { .lr = h->lr, .beta1 = h->beta1, .beta2 = h->beta2, .eps = h->eps, .weight_decay = h->weight_decay,
                        .grad_scale = grad_scale, .t = e->t + 1 };
    e->updater.seed = h->seed;
    e->updater.t = s.t;
    e->updater.coef = mt_adamw_coef_of(&s);
    s.weight_decay = 0;
    e->updater.coef_no_decay = mt_adamw_coef_of(&s);
}

/* -- on the device --------------------------------------------------------------------------------- */

static mt_rc queue_adamw(mt_engine *e, int u, uint16_t *hi, int16_t *lo, void *m, void *v, mt_err *err)
{
    mt_adamw op = mt__update_of(e, u);
    op.hi = hi, op.lo = lo, op.m = m, op.v = v, op.g = e->units[u].grad_dev;
    op.guard = e->updating ? &e->norms[u] : NULL;
    op.n_bad = e->n_bad;
    return e->ops->adamw(e->compute, &op, err);
}

mt_rc mt__updates_on_device(mt_engine *e, int u, bool in_place, mt_err *err)
{
    unit_state *s = &e->units[u];
    MT_TRY(queue_adamw(e, u, s->hi, s->lo, s->m, s->v, err));
    return in_place ? mt__ring_rejoin(e, u, s->lo, err) : MT_OK;
}

mt_rc mt__updates_check(const mt_engine *e, mt_err *err)
{
    if (!e->host->n_bad) return MT_OK;
    return mt_fail(err, MT_ENUMERIC,
                   "%lld weights left the finite range in an update on the device.  Resume from the last checkpoint with a lower "
                   "learning rate",
                   (long long)e->host->n_bad);
}

/* -- staged ---------------------------------------------------------------------------------------- */

typedef struct staged {
    uint16_t *hi;
    int16_t *lo;
    void *m, *v;
} staged;

static staged carve(const mt_engine *e, int slot, int u)
{
    if (!mt__place(e, u)->borrows) {
        mt_stage_layout at = mt_plan_stage(e->plan, u);
        char *m = e->stages[slot];
        return (staged){ .m = m, .v = m + at.v, .hi = (uint16_t *)(void *)(m + at.hi), .lo = (int16_t *)(void *)(m + at.lo) };
    }
    mt_loan at = mt_plan_loan(e->plan, u);
    const int *lender = mt__place(e, u)->lender;
    char *first = e->layers[lender[0]].kept, *rest = e->layers[lender[1]].kept;
    return (staged){
        .m = e->sums[u], .v = first + at.v, .lo = (int16_t *)(void *)(rest + at.lo), .hi = (uint16_t *)(void *)(rest + at.hi)
    };
}

/* One part of a unit's state: at home, in its slot, and how much. */
typedef struct part {
    unsigned bit;
    void *home, *slot;
    size_t bytes;
} part;
enum { PARTS = 4 };

/* In the order in which they are copied. */
static void list_parts(const mt_engine *e, int u, const staged *at, part out[PARTS])
{
    const unit_state *s = &e->units[u];
    size_t halves = (size_t)mt__layout(e, u)->n_train * 2, moment = moment_bytes(e, u);
    out[0] = (part){ MT_PART_V, s->v, at->v, moment };
    out[1] = (part){ MT_PART_LO, s->lo, at->lo, halves };
    out[2] = (part){ MT_PART_M, s->m, at->m, moment };
    out[3] = (part){ MT_PART_HI, s->hi, at->hi, halves };
}

mt_rc mt__updates_stage(mt_engine *e, const mt_action *a, mt_err *err)
{
    part parts[PARTS];
    staged to = carve(e, a->slot, a->unit);
    list_parts(e, a->unit, &to, parts);
    for (const part *p = parts; p < parts + PARTS; p++)
        if (a->parts & p->bit) MT_TRY(mt_copy(e->copy_in, p->slot, p->home, p->bytes, MT_COPY_IN, err));
    return MT_OK;
}

/* Where the new state is: hi may be in place. */
static staged state_in(const mt_engine *e, const mt_action *a)
{
    staged at = carve(e, a->slot, a->unit);
    if (a->in_place) at.hi = e->ring[mt_sequence_resident_slot(e->sequence, a->unit)].p;
    return at;
}

mt_rc mt__updates_staged(mt_engine *e, const mt_action *a, mt_err *err)
{
    staged at = state_in(e, a);
    MT_TRY(queue_adamw(e, a->unit, at.hi, at.lo, at.m, at.v, err));
    return a->in_place ? mt__ring_rejoin(e, a->unit, at.lo, err) : MT_OK;
}

mt_rc mt__updates_write_back(mt_engine *e, const mt_action *a, mt_err *err)
{
    part parts[PARTS];
    staged from = state_in(e, a);
    list_parts(e, a->unit, &from, parts);
    for (const part *p = parts; p < parts + PARTS; p++)
        if (a->parts & p->bit) MT_TRY(mt_copy(e->write_back, p->home, p->slot, p->bytes, MT_COPY_OUT, err));
    return MT_OK;
}

/* -- life ------------------------------------------------------------------------------------------ */

mt_rc mt__updates_create(mt_engine *e, mt_err *err)
{
    int n_slots = mt_sequence_count(e->sequence).stages;
    e->stages = mt_calloc((size_t)n_slots, sizeof *e->stages);
    if (!e->stages) return mt_no_memory(err, "the slots of staged updates");
    for (int i = 0; i < n_slots; i++) e->stages[i] = mt__buffer(e, MT_BUF_STAGE, i, -1);
    for (int u = 0; u < e->model->n_units; u++) {
        const mt_unit_place *at = mt__place(e, u);
        unit_state *s = &e->units[u];
        s->parked = at->site == MT_SITE_HOST ? mt__buffer(e, MT_BUF_PARKED, mt_plan_alias(e->plan, u), -1) : NULL;
        s->grad_dev =
            at->borrows ? e->layers[at->lender[1]].kept + mt_plan_loan(e->plan, u).g : mt__buffer(e, MT_BUF_GRAD_DEV, u, -1);
    }
    return MT_OK;
}

void mt__updates_free(mt_engine *e) { mt_free(e->stages); }
