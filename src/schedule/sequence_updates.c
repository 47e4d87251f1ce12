/* sequence_updates.c - when each unit is updated, at its site.
 *
 *   host    a job for the workers; the next fetch waits for it (U1).  Part of the unit may be updated on the device, in pieces
 *           (sequence_pieces.c)
 *   device  issued after the gradient
 *   staged  the state (without hi if the weights stay on the device as bf16) is copied in, updated and written back; the next
 *           fetch and the next staging wait for the write-back (U2).  They pass through a staging slot, or reuse memory that the last
 *           backward has freed: the unit's sums, and what its layer or a later one kept (U7).  A private slot still has the state
 *           of the update before, so nothing needs to be copied in
 *
 * With clipping, write-backs from reused memory are issued as the next step needs that memory, and those from private slots at
 * the pace of the step. */
#include "schedule/sequence_internal.h"

#include "base/mem.h"

/* -- staging --------------------------------------------------------------------------------------- */

static mt_rc stage(mt_sequence *s, int k, int u, unsigned parts, mt_err *err)
{
    return parts ? seq_issue(s, &(mt_action){ .kind = MT_DO_STAGE, .unit = u, .slot = k, .parts = parts }, err) : MT_OK;
}

/* Stages state into a layer's memory, once event `after` has freed it; with two lenders, the part in each. */
static mt_rc stage_first(mt_sequence *s, int k, int u, bool others, bool rest, int after, mt_err *err)
{
    unsigned hi = mt__seq_ring_in_place(s, u) < 0 ? MT_PART_HI : 0;
    MT_TRY(seq_wait(s, MT_Q_IN, after, err));
    MT_TRY(seq_wait(s, MT_Q_IN, unit_event(u, WRITTEN), err)); /* U2 */
    return stage(s, k, u, (others ? MT_PART_OTHERS : 0) | (rest ? MT_PART_LO | hi : 0), err);
}

/* Stages the part that takes the place of the sums. */
static mt_rc stage_rest(mt_sequence *s, int k, int u, mt_err *err)
{
    s->stages[k].unit = u;
    s->units[u].staged_in = k;
    MT_TRY(seq_wait(s, MT_Q_IN, stage_event(s, k, STAGE_FREE), err));
    MT_TRY(seq_wait(s, MT_Q_IN, unit_event(u, WRITTEN), err)); /* U2 */
    MT_TRY(stage(s, k, u, MT_PART_FIRST, err));
    return seq_record(s, MT_Q_IN, stage_event(s, k, STAGE_READY), err); /* the first half came before on the same queue */
}

static mt_rc stage_in(mt_sequence *s, int k, int u, mt_err *err)
{
    bool is_private = s->units[u].private_stage == k;
    if (is_private && s->stages[k].version == s->units[u].version) {
        s->stages[k].unit = u; /* the private slot still has the state */
        s->units[u].staged_in = k;
        return MT_OK;
    }
    if (is_private) s->stages[k].version = s->units[u].version;
    MT_TRY(stage_first(s, k, u, true, true, stage_event(s, k, STAGE_FREE), err));
    return stage_rest(s, k, u, err);
}

/* The staging slot for unit u: its private one, or the next shared one. */
static int slot_for(mt_sequence *s, int u)
{
    if (s->units[u].private_stage >= 0) return s->units[u].private_stage;
    int k = s->stage_turn;
    s->stage_turn = s->stage_turn + 1 == s->n_stages ? 0 : s->stage_turn + 1;
    return k;
}

static int reused_slot(const mt_sequence *s, int u) { return s->n_stages + u; }

mt_rc mt__seq_updates_stage_rest(mt_sequence *s, int u, mt_err *err) { return stage_rest(s, reused_slot(s, u), u, err); }

mt_rc mt__seq_updates_stage_reused(mt_sequence *s, int layer, mt_err *err)
{
    const seq_layer *l = &s->layers[layer];
    int done = layer_event(s, layer, BACKWARD_DONE);
    if (l->reusers < 0) return MT_OK;
    MT_TRY(seq_record(s, MT_Q_COMPUTE, done, err));
    for (int reuser = l->reusers; reuser >= 0; reuser = seq_next_reuser(s, reuser)) {
        int u = reuser / 2;
        const int *reused = seq_place(s, u)->reused;
        MT_TRY(stage_first(s, reused_slot(s, u), u, reused[0] == layer, reused[1] == layer, done, err));
    }
    return MT_OK;
}

mt_rc mt__seq_updates_stage_ahead(mt_sequence *s, mt_err *err)
{
    int used = 0;
    MT_TRY(mt__seq_pieces_stage_ahead(s, err));
    for (int u = 0; u < s->model->n_units && used < s->n_stages; u++) {
        if (seq_place(s, u)->site != MT_SITE_STAGED || s->units[u].reuses || !s->units[u].trains) continue;
        MT_TRY(stage_in(s, slot_for(s, u), u, err));
        used++;
    }
    return MT_OK;
}

/* The staging slot that has the unit's state; -1: none has. */
static int slot_staged_for(mt_sequence *s, int u)
{
    int k = s->units[u].reuses ? reused_slot(s, u) : s->units[u].staged_in;
    s->looks++;
    return k >= 0 && (s->units[u].reuses || s->stages[k].unit == u) ? k : -1;
}

/* -- write-backs ----------------------------------------------------------------------------------- */

/* Written back in two halves: forward needs a layer's kept memory long before backward needs its sums. */
static mt_rc write_first(mt_sequence *s, int k, int u, mt_err *err)
{
    bool in_place = mt__seq_ring_in_place(s, u) >= 0;
    MT_TRY(s->port->await_unlock(s->self, u, err)); /* H1: this overwrites the state that is being saved */
    MT_TRY(seq_wait(s, MT_Q_BACK, stage_event(s, k, STAGE_DONE), err));
    MT_TRY(seq_issue(
        s,
        &(mt_action){
            .kind = MT_DO_WRITE_BACK, .unit = u, .slot = k, .parts = MT_PART_OTHERS | MT_PART_LO | (in_place ? 0 : MT_PART_HI) },
        err));
    return seq_record(s, MT_Q_BACK, unit_event(u, KEPT_WRITTEN), err);
}

static mt_rc write_rest(mt_sequence *s, int k, int u, mt_err *err)
{
    bool in_place = mt__seq_ring_in_place(s, u) >= 0;
    MT_TRY(seq_issue(s,
                     &(mt_action){ .kind = MT_DO_WRITE_BACK,
                                   .unit = u,
                                   .slot = k,
                                   .in_place = in_place,
                                   .parts = MT_PART_FIRST | (in_place ? MT_PART_HI : 0) },
                     err));
    MT_TRY(seq_record(s, MT_Q_BACK, unit_event(u, WRITTEN), err));
    return seq_record(s, MT_Q_BACK, stage_event(s, k, STAGE_FREE), err);
}

static mt_rc write_all(mt_sequence *s, int k, int u, mt_err *err)
{
    MT_TRY(write_first(s, k, u, err));
    return write_rest(s, k, u, err);
}

/* True if only the unit's own next update waits for its write-back: its state stays in its slot, its weights in theirs. */
static bool is_late(const mt_sequence *s, int u)
{
    return s->units[u].private_stage >= 0 && seq_place(s, u)->resident && s->bf16;
}

static bool updates_reused(const mt_sequence *s, int u) { return s->units[u].reuses && s->units[u].trains; }

bool mt__seq_updates_may_return(mt_sequence *s, int u)
{
    for (int i = s->written; i <= u; i++)
        if (updates_reused(s, i) && s->port->locked(s->self, i)) return false;
    return true;
}

mt_rc mt__seq_updates_return(mt_sequence *s, int u, mt_err *err)
{
    for (; s->written <= u; s->written++)
        if (updates_reused(s, s->written)) MT_TRY(write_first(s, reused_slot(s, s->written), s->written, err));
    return MT_OK;
}

/* Sums of `turns` units in the order of backward: the head, which may be the embedding, too, then downward. */
static mt_rc return_sums(mt_sequence *s, int turns, mt_err *err)
{
    int n = s->model->n_units;
    MT_TRY(mt__seq_updates_return(s, n - 1, err));
    for (; s->written_sums < turns; s->written_sums++) {
        int u = (s->model->head + n - s->written_sums) % n;
        if (updates_reused(s, u)) MT_TRY(write_rest(s, reused_slot(s, u), u, err));
    }
    return MT_OK;
}

mt_rc mt__seq_updates_return_sums(mt_sequence *s, int u, mt_err *err)
{
    int n = s->model->n_units;
    return return_sums(s, (s->model->head + n - u) % n + 1, err);
}

/* The first n late units. */
static mt_rc return_late(mt_sequence *s, int64_t n, mt_err *err)
{
    for (; s->written_late < n; s->written_late++) {
        int u = s->late[s->written_late];
        MT_TRY(write_all(s, s->units[u].private_stage, u, err));
    }
    return MT_OK;
}

mt_rc mt__seq_updates_return_all(mt_sequence *s, mt_err *err)
{
    MT_TRY(mt__seq_pieces_until(s, s->model->n_units - 1, err));
    MT_TRY(return_sums(s, s->model->n_units, err));
    return return_late(s, s->n_late, err);
}

/* The link makes copies to the host in the order in which they become ready, whatever their queue: all late write-backs at once
 * would delay the gradients of the whole step.  So each waits until compute gets there.  A locked unit is skipped for now:
 * nothing needs it yet (R6). */
mt_rc mt__seq_updates_pace(mt_sequence *s, mt_err *err)
{
    if (s->any_reuses || s->written_late == s->n_late) return MT_OK;
    int64_t visits = s->n_sweeps * s->n_visits, now = s->sweep * s->n_visits + s->visit + 1;
    int64_t due = mt_min_i64((s->n_late * now + visits - 1) / visits, s->n_late);
    for (int64_t i = s->written_late; i < due; i++)
        if (s->port->locked(s->self, s->late[i])) due = i;
    if (due <= s->written_late) return MT_OK;
    MT_TRY(seq_wait(s, MT_Q_BACK, s->visited, err));
    return return_late(s, due, err);
}

/* -- updates --------------------------------------------------------------------------------------- */

static mt_rc update_on_host(mt_sequence *s, int u, int slab, mt_err *err)
{
    int64_t version = ++s->units[u].version;
    MT_TRY(seq_wait(s, MT_Q_ADAM, unit_event(u, LANDED), err));
    mt_action job = { .kind = MT_DO_UPDATE_HOST, .unit = u, .to = slab, .version = version, .n = mt_plan_host_share(s->plan, u) };
    MT_TRY(seq_issue(s, &job, err));
    return slab < 0 ? MT_OK : mt__seq_pieces_now(s, u, slab, err);
}

static mt_rc update_on_device(mt_sequence *s, int u, mt_err *err)
{
    MT_TRY(s->port->await_unlock(s->self, u, err)); /* H1 */
    bool in_place = mt__seq_ring_in_place(s, u) >= 0;
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_UPDATE_DEVICE, .unit = u, .in_place = in_place }, err));
    mt__seq_ring_updated(s, u);
    return seq_record(s, MT_Q_COMPUTE, unit_event(u, DEVICE_UPDATED), err);
}

static mt_rc update_in_slot(mt_sequence *s, int k, int u, mt_err *err)
{
    bool in_place = mt__seq_ring_in_place(s, u) >= 0;
    /* U3: the write-back may still read weights that stay on the device.  Other weights were fetched after it. */
    if (in_place) MT_TRY(seq_wait(s, MT_Q_COMPUTE, unit_event(u, WRITTEN), err));
    MT_TRY(seq_wait(s, MT_Q_COMPUTE, stage_event(s, k, STAGE_READY), err));
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_UPDATE_STAGED, .unit = u, .slot = k, .in_place = in_place }, err));
    mt__seq_ring_updated(s, u);
    s->stages[k].unit = -1;
    if (s->units[u].private_stage >= 0) s->stages[k].version = s->units[u].version;
    return seq_record(s, MT_Q_COMPUTE, stage_event(s, k, STAGE_DONE), err);
}

/* A unit at a time: without clipping, or in a staging slot. */
static mt_rc update_staged(mt_sequence *s, int u, mt_err *err)
{
    int k = slot_staged_for(s, u);
    if (k < 0) {
        k = slot_for(s, u);
        MT_TRY(stage_in(s, k, u, err));
    }
    MT_TRY(update_in_slot(s, k, u, err));
    return is_late(s, u) && !s->at_once ? MT_OK : write_all(s, k, u, err);
}

static mt_rc update(mt_sequence *s, int u, int slab, mt_err *err)
{
    if (seq_by_updater(s, u)) return update_on_host(s, u, slab, err);
    switch (seq_place(s, u)->site) {
    case MT_SITE_HOST: return update_on_host(s, u, slab, err);
    case MT_SITE_DEVICE: return update_on_device(s, u, err);
    case MT_SITE_STAGED: return update_staged(s, u, err);
    }
    return MT_OK;
}

mt_rc mt__seq_updates_now(mt_sequence *s, int u, int slab, mt_err *err) { return update(s, u, slab, err); }

/* Updates all units that reuse memory, in the order in which their state arrives (the embedding's last).  Their write-backs are
 * issued as the next step needs the memory. */
static mt_rc update_all_reused(mt_sequence *s, mt_err *err)
{
    int n = s->model->n_units;
    for (int i = 1; i <= n; i++)
        if (updates_reused(s, i % n)) MT_TRY(update_in_slot(s, reused_slot(s, i % n), i % n, err));
    s->written = s->written_sums = s->written_late = 0;
    return MT_OK;
}

mt_rc mt__seq_updates_all(mt_sequence *s, mt_err *err)
{
    for (int on_host = 1; on_host >= 0; on_host--) /* the workers first: issuing the rest takes a while */
        for (int u = 0; u < s->model->n_units; u++) {
            if (!s->units[u].trains || s->units[u].reuses || seq_by_updater(s, u) != on_host) continue;
            MT_TRY(update(s, u, -1, err));
        }
    MT_TRY(mt__seq_pieces_due(s, err));
    return update_all_reused(s, err);
}

void mt__seq_updates_elsewhere(mt_sequence *s)
{
    for (int u = 0; u < s->model->n_units; u++) s->units[u].version += s->units[u].trains;
}

/* The staged state is not used: its memory is free once the copy that filled it is done (a private slot also after its
 * write-back, see stage_in). */
mt_rc mt__seq_updates_drop(mt_sequence *s, mt_err *err)
{
    MT_TRY(mt__seq_pieces_drop(s, err));
    for (int k = 0; k < s->n_stages + s->model->n_units; k++) {
        if (s->stages[k].unit < 0) continue;
        s->stages[k].unit = -1;
        MT_TRY(seq_wait(s, MT_Q_COMPUTE, stage_event(s, k, STAGE_READY), err));
        MT_TRY(seq_record(s, MT_Q_COMPUTE, stage_event(s, k, STAGE_FREE), err));
    }
    return MT_OK;
}

void mt__seq_updates_open(mt_sequence *s)
{
    int n = s->model->n_units;
    s->n_stages = s->plan->place.staging_slots < n ? s->plan->place.staging_slots : n;
    s->stage_turn = s->n_late = 0;
    s->any_reuses = false;
    for (int u = 0; u < n; u++) {
        seq_unit *at = &s->units[u];
        at->private_stage = mt_plan_private_slot(s->plan, u);
        at->staged_in = -1;
        s->any_reuses |= at->reuses;
        if (is_late(s, u)) s->late[s->n_late++] = u;
    }
    for (int k = 0; k < s->n_stages + n; k++) s->stages[k] = (seq_stage){ .unit = -1, .version = -1 };
    s->written = s->written_sums = n;
    s->written_late = s->n_late;
    s->slab_jobs = 0;
}
