/* sequence_sums.c - a unit's gradient, from the first addition until it waits for its update.
 *
 * Sums are cleared in the step's first sweep.  Between sweeps they stay on the device or pass through host memory.  After the
 * last sweep they are rounded, and the finished gradient goes to the update site: to the host, or it stays on the device.  With
 * several lanes the unrounded sums go to the host, part by part of the step (mt_sequence_parts).
 *
 * A tied embedding has two sums, the head's and the lookup's, which are added only when they are rounded (P2). */
#include "schedule/sequence_internal.h"

static int next_slot(seq_turn *t)
{
    int slot = t->first + t->turn;
    t->turn = t->turn + 1 == t->n ? 0 : t->turn + 1;
    return slot;
}

static bool stay_on_device(const mt_sequence *s) { return s->many_sweeps && !s->sums_on_host; }

/* A group has as many slots as one segment uses at once, so the next one is never still in use. */
static int sum_slot(mt_sequence *s, int u)
{
    return stay_on_device(s) ? u : next_slot(&s->groups[s->model->units[u].group].sums);
}

/* share 0: the unit's own sums; 1: the lookup's sums of a tied embedding. */
static mt_rc sequence_sums_begin(mt_sequence *s, int u, int slot, int share, mt_err *err)
{
    if (s->first_of_sum) {
        if (s->units[u].reuses) MT_TRY(mt__seq_updates_return_sums(s, u, err)); /* U7: its m may still be there */
        MT_TRY(seq_wait(s, MT_Q_COMPUTE, sum_event(s, slot, FREE), err));
        return seq_issue(s, &(mt_action){ .kind = MT_DO_SUM_CLEAR, .unit = u, .slot = slot, .share = share }, err);
    }
    if (!s->sums_on_host) return MT_OK;
    MT_TRY(seq_wait(s, MT_Q_IN, sum_event(s, slot, FREE), err));
    MT_TRY(seq_wait(s, MT_Q_IN, unit_event(u, SUM_SAVED + share), err));
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_SUM_IN, .unit = u, .slot = slot, .share = share }, err));
    MT_TRY(seq_record(s, MT_Q_IN, sum_event(s, slot, READY), err));
    return seq_wait(s, MT_Q_COMPUTE, sum_event(s, slot, READY), err);
}

/* To the host: between sweeps, or for good. */
static mt_rc send_sums(mt_sequence *s, mt_action_kind kind, int u, int slot, int share, mt_err *err)
{
    MT_TRY(seq_record(s, MT_Q_COMPUTE, sum_event(s, slot, READY), err));
    MT_TRY(seq_wait(s, MT_Q_OUT, sum_event(s, slot, READY), err));
    MT_TRY(seq_issue(s, &(mt_action){ .kind = kind, .unit = u, .slot = slot, .share = share }, err));
    MT_TRY(seq_record(s, MT_Q_OUT, unit_event(u, SUM_SAVED + share), err));
    return seq_record(s, MT_Q_OUT, sum_event(s, slot, FREE), err);
}

mt_rc mt__seq_sums_begin(mt_sequence *s, int u, bool tied, mt_err *err)
{
    if (!s->units[u].trains) return MT_OK;
    if (tied) return sequence_sums_begin(s, u, mt_sequence_tied_slot(s), 1, err);
    s->units[u].sum = sum_slot(s, u);
    return sequence_sums_begin(s, u, s->units[u].sum, 0, err);
}

/* The rounded gradient, in outgoing slot `to` or on the device, and its sum of squares. */
static mt_rc round_sums(mt_sequence *s, int u, int to, mt_err *err)
{
    int sum = s->units[u].sum;
    bool tied = mt_unit_is_tied(s->model, u);
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_ROUND, .unit = u, .slot = sum, .to = to }, err));
    MT_TRY(seq_record(s, MT_Q_COMPUTE, sum_event(s, sum, FREE), err));
    if (tied) MT_TRY(seq_record(s, MT_Q_COMPUTE, sum_event(s, mt_sequence_tied_slot(s), FREE), err));
    return seq_issue(s, &(mt_action){ .kind = MT_DO_NORM, .unit = u, .to = to }, err);
}

/* U6: without clipping every host update has a slab, and they finish in order. */
static mt_rc take_slab(mt_sequence *s, int *slab, mt_err *err)
{
    int n = s->plan->place.n_slabs;
    MT_TRY(s->port->await_jobs(s->self, s->slab_jobs - n + 1, err));
    *slab = (int)(s->slab_jobs++ % n);
    return MT_OK;
}

/* Copies the gradient to the host: to wait until the norm is known, or into a slab for an immediate update. */
static mt_rc send_out(mt_sequence *s, int u, int out, mt_err *err)
{
    int slab = -1;
    MT_TRY(seq_record(s, MT_Q_COMPUTE, out_event(s, out, READY), err));
    if (!s->plan->job.clip) MT_TRY(take_slab(s, &slab, err));
    if (slab >= 0 && s->n_pieces) MT_TRY(seq_wait(s, MT_Q_OUT, slab_event(s, slab), err)); /* U6 */
    MT_TRY(seq_wait(s, MT_Q_OUT, out_event(s, out, READY), err));
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_GRADIENT_OUT, .unit = u, .slot = out, .to = slab }, err));
    MT_TRY(seq_record(s, MT_Q_OUT, unit_event(u, LANDED), err));
    MT_TRY(seq_record(s, MT_Q_OUT, out_event(s, out, FREE), err));
    return slab < 0 ? MT_OK : mt__seq_updates_now(s, u, slab, err);
}

static mt_rc sequence_sums_finish(mt_sequence *s, int u, mt_err *err)
{
    if (seq_place(s, u)->site != MT_SITE_HOST) {
        MT_TRY(round_sums(s, u, -1, err));
        if (s->units[u].reuses) MT_TRY(mt__seq_updates_stage_rest(s, u, err));
        return s->at_once ? mt__seq_updates_now(s, u, -1, err) : MT_OK;
    }
    int out = next_slot(&s->groups[s->model->units[u].group].outs);
    MT_TRY(seq_wait(s, MT_Q_COMPUTE, out_event(s, out, FREE), err));
    MT_TRY(round_sums(s, u, out, err));
    return send_out(s, u, out, err);
}

mt_rc mt__seq_sums_end(mt_sequence *s, int u, mt_err *err)
{
    if (!s->units[u].trains) return MT_OK;
    const mt_action_kind kind = s->last_of_sum ? MT_DO_PART_OUT : MT_DO_SUM_OUT;
    if (s->last_of_sum && !s->part_ends) return sequence_sums_finish(s, u, err);
    if (!s->last_of_sum && !s->sums_on_host) return MT_OK;
    if (mt_unit_is_tied(s->model, u)) MT_TRY(send_sums(s, kind, u, mt_sequence_tied_slot(s), 1, err));
    return send_sums(s, kind, u, s->units[u].sum, 0, err);
}

void mt__seq_sums_open(mt_sequence *s)
{
    s->many_sweeps = mt_plan_many_sweeps(s->plan);
    s->sums_on_host = s->many_sweeps && s->plan->place.accumulators == MT_HOST;
    s->n_sums = s->model->n_units + 1;
    s->n_outs = 0;
    for (int g = 0; g < s->model->n_groups; g++) {
        const mt_group_place *at = &s->plan->place.groups[g];
        bool trains = s->plan->job.train && s->model->layouts[g].n_train;
        s->groups[g].sums =
            (seq_turn){ .first = s->n_sums, .n = trains && !stay_on_device(s) ? mt_min_int(at->members, at->sum_slots) : 0 };
        s->groups[g].outs = (seq_turn){ .first = s->n_outs, .n = trains ? mt_min_int(at->hosted, at->out_slots) : 0 };
        s->n_sums += s->groups[g].sums.n;
        s->n_outs += s->groups[g].outs.n;
    }
}
