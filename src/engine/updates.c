/* updates.c - Adam at its three sites.
 *
 *   host    jobs go to the updater's thread (updater.c); whoever fetches the unit next waits for its gate (U1)
 *   device  queued on the compute stream behind the gradient
 *   staged  lo, m, v (and hi, unless the weights stay on the device as bf16) are copied in, updated on the compute stream and
 *           written back; the next fetch and the next staging wait for the write-back's event (U2).  They lie in a stage slot, or
 *           borrow what the last backward has freed: the unit's accumulator, and what its layer or a later one kept (U7).  A slot
 *           that is the unit's own still has its state from the update before, so nothing needs to be copied in
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

static void new_version(mt_engine *e, int u)
{
    ring_slot *in_place = mt__ring_in_place(e, u);
    bool current = in_place && in_place->unit == u && in_place->version == e->units[u].version;
    e->units[u].version++;
    if (current) in_place->version++; /* updated where it lies: still the newest */
}

static mt_rc update_on_device(mt_engine *e, int u, mt_err *err)
{
    unit_state *s = &e->units[u];
    MT_TRY(mt__hold_wait(e, u, err)); /* H1 */
    MT_TRY(queue_adamw(e, u, s->hi, s->lo, s->m, s->v, err));
    MT_TRY(mt__ring_rejoin(e, u, s->lo, err));
    new_version(e, u);
    return mt_record(e->compute, s->device_updated, err);
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

static staged carve(const mt_engine *e, const stage_slot *k, int u)
{
    if (!mt__place(e, u)->borrows) {
        mt_stage_layout at = mt_plan_stage(e->plan, u);
        char *m = k->s.p;
        return (staged){ .m = m, .v = m + at.v, .hi = (uint16_t *)(void *)(m + at.hi), .lo = (int16_t *)(void *)(m + at.lo) };
    }
    mt_loan at = mt_plan_loan(e->plan, u);
    const int *lender = mt__place(e, u)->lender;
    char *first = e->layers[lender[0]].kept, *rest = e->layers[lender[1]].kept;
    return (staged){ .m = e->unit_accs[u].p, .v = first + at.v, .lo = (int16_t *)(void *)(rest + at.lo),
                     .hi = (uint16_t *)(void *)(rest + at.hi) };
}

/* The in-place copy can be used only if it holds the newest weights. */
static uint16_t *hi_in_place(mt_engine *e, int u)
{
    ring_slot *r = mt__ring_in_place(e, u);
    return r && r->unit == u && r->version == e->units[u].version ? r->s.p : NULL;
}

/* What lies in a lender's memory, once that is free; with two lenders, what lies in either. */
static mt_rc stage_first(mt_engine *e, stage_slot *k, int u, bool v, bool rest, mt_event *behind, mt_err *err)
{
    const unit_state *s = &e->units[u];
    size_t n = (size_t)mt__layout(e, u)->n_train;
    staged to = carve(e, k, u);
    MT_TRY(mt_wait(e->copy_in, behind, err));
    MT_TRY(mt_wait(e->copy_in, s->written, err)); /* U2 */
    if (v) MT_TRY(mt_copy(e->copy_in, to.v, s->v, moment_bytes(e, u), MT_COPY_IN, err));
    if (rest) MT_TRY(mt_copy(e->copy_in, to.lo, s->lo, n * 2, MT_COPY_IN, err));
    return !rest || hi_in_place(e, u) ? MT_OK : mt_copy(e->copy_in, to.hi, s->hi, n * 2, MT_COPY_IN, err);
}

/* And what takes the accumulator's place. */
static mt_rc stage_rest(mt_engine *e, stage_slot *k, int u, mt_err *err)
{
    unit_state *s = &e->units[u];
    k->unit = u;
    s->staged_in = k;
    MT_TRY(mt_wait(e->copy_in, k->s.free, err));
    MT_TRY(mt_wait(e->copy_in, s->written, err)); /* U2 */
    MT_TRY(mt_copy(e->copy_in, carve(e, k, u).m, s->m, moment_bytes(e, u), MT_COPY_IN, err));
    return mt_record(e->copy_in, k->s.ready, err); /* the first half came before on the same stream */
}

static mt_rc stage_in(mt_engine *e, stage_slot *k, int u, mt_err *err)
{
    bool own = e->units[u].stage == k;
    if (own && k->version == e->units[u].version) {
        k->unit = u; /* still there */
        e->units[u].staged_in = k;
        return MT_OK;
    }
    if (own) k->version = e->units[u].version;
    MT_TRY(stage_first(e, k, u, true, true, k->s.free, err));
    return stage_rest(e, k, u, err);
}

/* Back to host memory in two halves.  Forward needs a layer's kept activations long before backward needs its accumulator: so
 * first what lies in the former, of all units, and then the rest. */
static mt_rc write_back_first(mt_engine *e, stage_slot *k, int u, const staged *from, mt_err *err)
{
    unit_state *s = &e->units[u];
    size_t n = (size_t)mt__layout(e, u)->n_train;
    MT_TRY(mt__hold_wait(e, u, err)); /* H1: the copies below overwrite what is being saved */
    MT_TRY(mt_wait(e->write_back, k->done, err));
    MT_TRY(mt_copy(e->write_back, s->v, from->v, moment_bytes(e, u), MT_COPY_OUT, err));
    MT_TRY(mt_copy(e->write_back, s->lo, from->lo, n * 2, MT_COPY_OUT, err));
    if (!hi_in_place(e, u)) MT_TRY(mt_copy(e->write_back, s->hi, from->hi, n * 2, MT_COPY_OUT, err));
    return mt_record(e->write_back, s->kept_free, err);
}

static mt_rc write_back_rest(mt_engine *e, stage_slot *k, int u, mt_err *err)
{
    unit_state *s = &e->units[u];
    size_t n = (size_t)mt__layout(e, u)->n_train;
    const uint16_t *in_place = hi_in_place(e, u);
    MT_TRY(mt_copy(e->write_back, s->m, carve(e, k, u).m, moment_bytes(e, u), MT_COPY_OUT, err));
    if (in_place) MT_TRY(mt_copy(e->write_back, s->hi, in_place, n * 2, MT_COPY_OUT, err));
    MT_TRY(mt_record(e->write_back, s->written, err));
    return mt_record(e->write_back, k->s.free, err);
}

static stage_slot *slot_staged_for(mt_engine *e, int u)
{
    stage_slot *k = mt__place(e, u)->borrows ? &e->own_stages[u] : e->units[u].staged_in;
    e->looks++;
    return k && (mt__place(e, u)->borrows || k->unit == u) ? k : NULL;
}

/* Queue the update itself; *at: where the new state lies. */
static mt_rc queue_update(mt_engine *e, stage_slot *k, int u, staged *at, mt_err *err)
{
    uint16_t *in_place = hi_in_place(e, u);
    *at = carve(e, k, u);
    if (in_place) at->hi = in_place;
    /* U3: the write-back may still read what stays on the device; it changes again only behind it.  Other weights were fetched
     * behind it. */
    if (in_place) MT_TRY(mt_wait(e->compute, e->units[u].written, err));
    MT_TRY(mt_wait(e->compute, k->s.ready, err));
    MT_TRY(queue_adamw(e, u, at->hi, at->lo, at->m, at->v, err));
    if (in_place) MT_TRY(mt__ring_rejoin(e, u, at->lo, err));
    new_version(e, u);
    k->unit = -1;
    if (e->units[u].stage) k->version = e->units[u].version;
    return mt_record(e->compute, k->done, err);
}

/* The slot to stage unit u in: its own, or the next. */
static stage_slot *slot_for(mt_engine *e, int u)
{
    if (e->units[u].stage) return e->units[u].stage;
    stage_slot *k = &e->stages[e->stage_turn];
    e->stage_turn = (e->stage_turn + 1) % e->plan->place.stage_slots;
    return k;
}

static mt_rc write_back(mt_engine *e, stage_slot *k, int u, mt_err *err)
{
    staged at = carve(e, k, u);
    MT_TRY(write_back_first(e, k, u, &at, err));
    return write_back_rest(e, k, u, err);
}

/* Does nobody wait for its write-back but its own next update?  Its state stays in its slot, its weights in theirs. */
static bool returns_late(const mt_engine *e, int u) { return e->units[u].stage && mt__place(e, u)->resident && !mt__is_f32(e); }

/* A unit at a time: without clipping, or in a stage slot. */
static mt_rc update_staged(mt_engine *e, int u, mt_err *err)
{
    stage_slot *k = slot_staged_for(e, u);
    staged at;
    if (!k) {
        k = slot_for(e, u);
        MT_TRY(stage_in(e, k, u, err));
    }
    MT_TRY(queue_update(e, k, u, &at, err));
    return returns_late(e, u) && !e->updating ? MT_OK : write_back(e, k, u, err);
}

static bool updates_by_loan(const mt_engine *e, int u) { return mt__place(e, u)->borrows && mt__layout(e, u)->n_train; }

/* All units that borrow, in the order in which their state arrives at the latest (the embedding's last).  Their write-backs are
 * queued as the step goes on, in the order in which it needs their memory, and those of slots that are units' own behind them
 * all. */
static mt_rc update_all_borrowed(mt_engine *e, mt_err *err)
{
    int n = e->model->n_units;
    staged at;
    for (int i = 1; i <= n; i++)
        if (updates_by_loan(e, i % n)) MT_TRY(queue_update(e, &e->own_stages[i % n], i % n, &at, err));
    e->returned = e->returned_acc = e->returned_own = 0;
    return MT_OK;
}

bool mt__updates_may_return(mt_engine *e, int u)
{
    for (int i = e->returned; i <= u; i++)
        if (updates_by_loan(e, i) && mt__hold_is_on(e, i)) return false;
    return true;
}

/* What lies in lenders' memory, in the order in which forward needs that. */
mt_rc mt__updates_return(mt_engine *e, int u, mt_err *err)
{
    for (; e->returned <= u; e->returned++) {
        stage_slot *k = &e->own_stages[e->returned];
        if (!updates_by_loan(e, e->returned)) continue;
        staged at = carve(e, k, e->returned);
        MT_TRY(write_back_first(e, k, e->returned, &at, err));
    }
    return MT_OK;
}

/* What lies in accumulators, of `turns` units in the order of backward: the head, which may be the embedding, too, then
 * downward. */
static mt_rc return_accs(mt_engine *e, int turns, mt_err *err)
{
    int n = e->model->n_units;
    MT_TRY(mt__updates_return(e, n - 1, err));
    for (; e->returned_acc < turns; e->returned_acc++) {
        int u = (e->model->head + n - e->returned_acc) % n;
        if (updates_by_loan(e, u)) MT_TRY(write_back_rest(e, &e->own_stages[u], u, err));
    }
    return MT_OK;
}

mt_rc mt__updates_return_acc(mt_engine *e, int u, mt_err *err)
{
    int n = e->model->n_units;
    return return_accs(e, (e->model->head + n - u) % n + 1, err);
}

/* Of those that return late, so many. */
static mt_rc return_own(mt_engine *e, int64_t n, mt_err *err)
{
    for (; e->returned_own < n; e->returned_own++) {
        int u = e->late[e->returned_own];
        MT_TRY(write_back(e, e->units[u].stage, u, err));
    }
    return MT_OK;
}

mt_rc mt__updates_return_all(mt_engine *e, mt_err *err)
{
    MT_TRY(return_accs(e, e->model->n_units, err));
    return return_own(e, e->n_late, err);
}

/* The link does copies out in the order in which they become possible, whatever their stream: all of these at once would hold up
 * the gradients of the whole step.  So each waits for compute to get so far.  One that is being saved is left for later: nobody
 * needs it yet. */
mt_rc mt__updates_pace(mt_engine *e, mt_err *err)
{
    if (e->any_borrows || e->returned_own == e->n_late) return MT_OK;
    int64_t visits = e->n_sweeps * e->n_visits, now = e->sweep * e->n_visits + e->visit + 1;
    int64_t due = mt_min_i64((e->n_late * now + visits - 1) / visits, e->n_late);
    for (int64_t i = e->returned_own; i < due; i++)
        if (mt__hold_is_on(e, e->late[i])) due = i;
    if (due <= e->returned_own) return MT_OK;
    MT_TRY(mt_wait(e->write_back, e->visited, err));
    return return_own(e, due, err);
}

mt_rc mt__updates_stage_own(mt_engine *e, int u, mt_err *err) { return stage_rest(e, &e->own_stages[u], u, err); }

mt_rc mt__updates_lend(mt_engine *e, int layer, mt_err *err)
{
    layer_state *l = &e->layers[layer];
    if (l->borrowers < 0) return MT_OK;
    MT_TRY(mt_record(e->compute, l->lent, err));
    for (int loan = l->borrowers; loan >= 0; loan = mt__next_loan(e, loan)) {
        int u = loan / 2;
        const int *lender = mt__place(e, u)->lender;
        MT_TRY(stage_first(e, &e->own_stages[u], u, lender[0] == layer, lender[1] == layer, l->lent, err));
    }
    return MT_OK;
}

mt_rc mt__updates_stage_ahead(mt_engine *e, mt_err *err)
{
    int n = e->plan->place.stage_slots, used = 0;
    for (int u = 0; u < e->model->n_units && used < n; u++) {
        if (mt__place(e, u)->site != MT_SITE_STAGED || mt__place(e, u)->borrows || !mt__layout(e, u)->n_train) continue;
        MT_TRY(stage_in(e, slot_for(e, u), u, err));
        used++;
    }
    return MT_OK;
}

/* -- which site ------------------------------------------------------------------------------------ */

static mt_rc update_unit(mt_engine *e, int u, void *g, mt_err *err)
{
    switch (mt__place(e, u)->site) {
    case MT_SITE_HOST: return mt__updater_push(e, u, g, err);
    case MT_SITE_DEVICE: return update_on_device(e, u, err);
    case MT_SITE_STAGED: return update_staged(e, u, err);
    }
    return MT_OK;
}

mt_rc mt__updates_now(mt_engine *e, int u, void *g, mt_err *err) { return update_unit(e, u, g, err); }

mt_rc mt__updates_all(mt_engine *e, mt_err *err)
{
    for (int on_host = 1; on_host >= 0; on_host--) /* the workers first: queueing the rest takes a while */
        for (int u = 0; u < e->model->n_units; u++) {
            const mt_unit_place *at = mt__place(e, u);
            if (!mt__layout(e, u)->n_train || at->borrows || (at->site == MT_SITE_HOST) != on_host) continue;
            MT_TRY(update_unit(e, u, e->units[u].parked, err));
        }
    return update_all_borrowed(e, err);
}

/* What was staged is not used: its memory is free behind the copy that filled it (a slot of a unit's own also behind its
 * write-back: stage_in). */
static mt_rc drop(mt_engine *e, stage_slot *k, mt_err *err)
{
    if (k->unit < 0) return MT_OK;
    k->unit = -1;
    MT_TRY(mt_wait(e->compute, k->s.ready, err));
    return mt_record(e->compute, k->s.free, err);
}

mt_rc mt__updates_drop(mt_engine *e, mt_err *err)
{
    for (int i = 0; i < e->plan->place.stage_slots; i++) MT_TRY(drop(e, &e->stages[i], err));
    for (int u = 0; u < e->model->n_units; u++) MT_TRY(drop(e, &e->own_stages[u], err));
    return MT_OK;
}

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc open_units(mt_engine *e, mt_err *err)
{
    for (int u = 0; u < e->model->n_units; u++) {
        unit_state *s = &e->units[u];
        s->parked = mt__place(e, u)->site == MT_SITE_HOST ? mt__buffer(e, MT_BUF_PARKED, mt_plan_alias(e->plan, u), -1) : NULL;
        s->grad_dev = mt__place(e, u)->borrows ? e->layers[mt__place(e, u)->lender[1]].kept + mt_plan_loan(e->plan, u).g
                                               : mt__buffer(e, MT_BUF_GRAD_DEV, u, -1);
        MT_TRY(mt__event(e, &s->landed, "gradient sent", err));
        int own = mt_plan_own_slot(e->plan, u);
        if (own >= 0) s->stage = &e->stages[own];
        e->any_borrows |= mt__place(e, u)->borrows;
        if (returns_late(e, u)) e->late[e->n_late++] = u;
    }
    return MT_OK;
}

mt_rc mt__updates_create(mt_engine *e, mt_err *err)
{
    int n_stages = e->plan->place.stage_slots;
    e->returned = e->returned_acc = e->model->n_units;
    e->stages = mt_calloc((size_t)n_stages, sizeof *e->stages);
    e->own_stages = mt_calloc((size_t)e->model->n_units, sizeof *e->own_stages);
    e->late = mt_calloc((size_t)e->model->n_units, sizeof *e->late);
    if (!e->stages || !e->own_stages || !e->late)
        return mt_fail(err, MT_ENOMEM, "no host memory for the slots of staged updates");
    MT_TRY(open_units(e, err));
    e->returned_own = e->n_late;
    for (int i = 0; i < n_stages; i++) {
        e->stages[i].unit = -1;
        e->stages[i].version = -1;
        e->stages[i].s.p = mt__buffer(e, MT_BUF_STAGE, i, -1);
        MT_TRY(mt__slot_events(e, &e->stages[i].s, "staged state", "write-back", err));
        MT_TRY(mt__event(e, &e->stages[i].done, "update on the device", err));
    }
    for (int u = 0; u < e->model->n_units; u++) {
        e->own_stages[u].unit = -1;
        e->own_stages[u].s.free = e->unit_accs[u].free; /* borrowed, like the memory */
        MT_TRY(mt__event(e, &e->own_stages[u].s.ready, "staged state", err));
        MT_TRY(mt__event(e, &e->own_stages[u].done, "update on the device", err));
    }
    return MT_OK;
}

void mt__updates_free(mt_engine *e)
{
    for (int i = 0; e->stages && i < e->plan->place.stage_slots; i++) {
        mt__slot_free(e, &e->stages[i].s);
        e->dev->api->event_free(e->stages[i].done);
    }
    for (int u = 0; e->own_stages && u < e->model->n_units; u++) {
        e->dev->api->event_free(e->own_stages[u].s.ready);
        e->dev->api->event_free(e->own_stages[u].done);
    }
    for (int u = 0; e->units && u < e->model->n_units; u++) e->dev->api->event_free(e->units[u].landed);
    mt_free(e->stages);
    mt_free(e->own_stages);
    mt_free(e->late);
}
