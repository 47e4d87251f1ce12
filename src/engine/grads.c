/* grads.c - a unit's gradient from its first accumulation to the place where it waits for its update.
 *
 * Sums are fp32, zeroed at the step's first sweep.  Between sweeps they stay on the device or pass through host memory; both
 * keep every bit.  After the last sweep: rounded to the gradient dtype, squared and summed, then parked on the host, put
 * into a slab, or left on the device, as the update site wants it.
 *
 * A tied embedding has two sums, the head's and the lookup's, which meet only at the end: how many sweeps there are must not
 * change the order of additions (P2). */
#include "engine/internal.h"

static bool stays_on_device(const mt_engine *e)
{
    return mt_plan_many_sweeps(e->plan) && e->plan->place.accumulators == MT_DEVICE;
}
static bool via_host(const mt_engine *e) { return mt_plan_many_sweeps(e->plan) && e->plan->place.accumulators == MT_HOST; }

static slot *next_slot(slot_ring *r)
{
    slot *s = &r->slots[r->turn];
    r->turn = (r->turn + 1) % r->n;
    return s;
}

/* A group has as many as one segment uses at once, so the next is never one that is still added to. */
static slot *sum_slot(mt_engine *e, int u)
{
    return stays_on_device(e) ? &e->unit_accs[u] : next_slot(&e->sums[e->model->units[u].group]);
}

static size_t acc_bytes(const mt_engine *e, int u) { return (size_t)mt__layout(e, u)->n_train * sizeof(float); }

/* share 0: the unit's own sum; 1: the lookup's of a tied embedding. */
static mt_rc begin(mt_engine *e, int u, slot *s, int share, bool first_sweep, mt_err *err)
{
    unit_state *st = &e->units[u];
    if (first_sweep) {
        if (mt__place(e, u)->borrows) MT_TRY(mt__updates_return_acc(e, u, err)); /* U7: its m may still lie there */
        MT_TRY(mt_wait(e->compute, s->free, err));
        return mt_fill(e->compute, s->p, 0, acc_bytes(e, u), err);
    }
    if (!via_host(e)) return MT_OK;
    MT_TRY(mt_wait(e->copy_in, s->free, err));
    MT_TRY(mt_wait(e->copy_in, st->acc_saved[share], err));
    MT_TRY(mt_copy(e->copy_in, s->p, st->acc_host[share], acc_bytes(e, u), MT_COPY_IN, err));
    MT_TRY(mt_record(e->copy_in, s->ready, err));
    return mt_wait(e->compute, s->ready, err);
}

static mt_rc save(mt_engine *e, int u, slot *s, int share, mt_err *err)
{
    unit_state *st = &e->units[u];
    MT_TRY(mt_record(e->compute, s->ready, err));
    MT_TRY(mt_wait(e->copy_out, s->ready, err));
    MT_TRY(mt_copy(e->copy_out, st->acc_host[share], s->p, acc_bytes(e, u), MT_COPY_OUT, err));
    MT_TRY(mt_record(e->copy_out, st->acc_saved[share], err));
    return mt_record(e->copy_out, s->free, err);
}

mt_rc mt__grads_begin(mt_engine *e, int u, bool first_sweep, float **acc, mt_err *err)
{
    *acc = NULL;
    if (!mt__layout(e, u)->n_train) return MT_OK;
    slot *s = e->units[u].sum = sum_slot(e, u);
    *acc = s->p;
    return begin(e, u, s, 0, first_sweep, err);
}

mt_rc mt__grads_begin_tied(mt_engine *e, bool first_sweep, float **acc, mt_err *err)
{
    *acc = NULL;
    int u = e->model->embed;
    if (!mt__layout(e, u)->n_train) return MT_OK;
    *acc = e->acc_tied.p;
    return begin(e, u, &e->acc_tied, 1, first_sweep, err);
}

/* The rounded gradient and its sum of squares, at g. */
static mt_rc round_and_measure(mt_engine *e, int u, slot *acc, void *g, mt_err *err)
{
    const mt_arithmetic *a = &e->plan->arithmetic;
    int64_t n = mt__layout(e, u)->n_train;
    bool tied = mt_unit_is_tied(e->model, u);
    MT_TRY(e->ops->round_grad(e->compute, &(mt_round_grad){ .t = a->grad, .n = n, .acc = acc->p,
                                                            .acc2 = tied ? e->acc_tied.p : NULL, .g = g }, err));
    MT_TRY(mt_record(e->compute, acc->free, err));
    if (tied) MT_TRY(mt_record(e->compute, e->acc_tied.free, err));
    return e->ops->grad_norm(e->compute, &(mt_grad_norm){ .t = a->grad, .n = n, .g = g, .sum = &e->norms[u],
                                                          .scratch = e->run.scratch }, err);
}

/* To the host: parked until the norm is known, or into a slab that is updated from at once. */
static mt_rc send_out(mt_engine *e, int u, slot *out, mt_err *err)
{
    unit_state *st = &e->units[u];
    void *to = st->parked;
    size_t bytes = (size_t)mt__layout(e, u)->n_train * mt_dtype_bytes(e->plan->arithmetic.grad);
    MT_TRY(mt_record(e->compute, out->ready, err));
    if (!to) MT_TRY(mt__updater_slab(e, &to, err));
    MT_TRY(mt_wait(e->copy_out, out->ready, err));
    MT_TRY(mt_copy(e->copy_out, to, out->p, bytes, MT_COPY_OUT, err));
    if (!st->parked) MT_TRY(mt_copy(e->copy_out, &e->landed_norms[u], &e->norms[u], sizeof(double), MT_COPY_OUT, err));
    MT_TRY(mt_record(e->copy_out, st->landed, err));
    MT_TRY(mt_record(e->copy_out, out->free, err));
    return st->parked ? MT_OK : mt__updates_now(e, u, to, err);
}

static mt_rc finish(mt_engine *e, int u, slot *acc, mt_err *err)
{
    if (mt__place(e, u)->site != MT_SITE_HOST) {
        void *g = e->units[u].grad_dev;
        MT_TRY(round_and_measure(e, u, acc, g, err));
        if (mt__place(e, u)->borrows) MT_TRY(mt__updates_stage_own(e, u, err));
        return e->updating ? mt__updates_now(e, u, g, err) : MT_OK;
    }
    slot *out = next_slot(&e->outs[e->model->units[u].group]);
    MT_TRY(mt_wait(e->compute, out->free, err));
    MT_TRY(round_and_measure(e, u, acc, out->p, err));
    return send_out(e, u, out, err);
}

mt_rc mt__grads_end(mt_engine *e, int u, bool last_sweep, mt_err *err)
{
    if (!mt__layout(e, u)->n_train) return MT_OK;
    slot *s = e->units[u].sum;
    if (last_sweep) return finish(e, u, s, err);
    if (!via_host(e)) return MT_OK;
    if (mt_unit_is_tied(e->model, u)) MT_TRY(save(e, u, &e->acc_tied, 1, err));
    return save(e, u, s, 0, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

/* As many as the plan has for the group. */
static mt_rc open_slots(mt_engine *e, slot_ring *r, mt_buffer_kind kind, int group, mt_err *err)
{
    int n = 0;
    while (mt__buffer(e, kind, group, n)) n++;
    r->slots = mt_calloc((size_t)n, sizeof *r->slots);
    if (!r->slots) return mt_fail(err, MT_ENOMEM, "no host memory for the gradient slots");
    r->n = n;
    for (int s = 0; s < n; s++) {
        r->slots[s].p = mt__buffer(e, kind, group, s);
        MT_TRY(
            mt__slot_events(e, &r->slots[s], "gradient sums", kind == MT_BUF_ACC ? "gradient sums read" : "gradient sent", err));
    }
    return MT_OK;
}

static void close_slots(mt_engine *e, slot_ring *rings)
{
    for (int g = 0; rings && g < e->model->n_groups; g++) {
        for (int s = 0; s < rings[g].n; s++) mt__slot_free(e, &rings[g].slots[s]);
        mt_free(rings[g].slots);
    }
    mt_free(rings);
}

mt_rc mt__grads_create(mt_engine *e, mt_err *err)
{
    int groups = e->model->n_groups;
    e->sums = mt_calloc((size_t)groups, sizeof *e->sums);
    e->outs = mt_calloc((size_t)groups, sizeof *e->outs);
    e->unit_accs = mt_calloc((size_t)e->model->n_units, sizeof *e->unit_accs);
    if (!e->sums || !e->outs || !e->unit_accs) return mt_fail(err, MT_ENOMEM, "no host memory for the gradient slots");
    for (int g = 0; g < groups; g++) {
        if (!stays_on_device(e)) MT_TRY(open_slots(e, &e->sums[g], MT_BUF_ACC, g, err)); /* else i is a unit */
        MT_TRY(open_slots(e, &e->outs[g], MT_BUF_GRAD, g, err));
    }
    e->acc_tied.p = mt__buffer(e, MT_BUF_ACC_TIED, e->model->embed, -1);
    MT_TRY(mt__slot_events(e, &e->acc_tied, "gradient sums", "gradient sums read", err));
    for (int u = 0; u < e->model->n_units; u++) {
        unit_state *st = &e->units[u];
        e->unit_accs[u].p = mt__buffer(e, MT_BUF_ACC, u, -1);
        MT_TRY(mt__slot_events(e, &e->unit_accs[u], "gradient sums", "gradient sums read", err));
        for (int share = 0; share < 2; share++) {
            st->acc_host[share] = mt__buffer(e, MT_BUF_ACC_HOST, mt_plan_alias(e->plan, u), share);
            MT_TRY(mt__event(e, &st->acc_saved[share], "gradient sums saved", err));
        }
    }
    return MT_OK;
}

void mt__grads_free(mt_engine *e)
{
    close_slots(e, e->sums);
    close_slots(e, e->outs);
    for (int u = 0; e->unit_accs && u < e->model->n_units; u++) {
        mt__slot_free(e, &e->unit_accs[u]);
        for (int share = 0; share < 2; share++) e->dev->api->event_free(e->units[u].acc_saved[share]);
    }
    mt__slot_free(e, &e->acc_tied);
    mt_free(e->unit_accs);
}
