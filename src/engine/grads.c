/* grads.c - gradients: where sums and finished ones are, and what moves them.  In which slot, and when: plan/sequence_sums.c.
 *
 * Sums are fp32.  After the last sweep they are rounded to the gradient dtype, squared and summed, then parked on the host, put
 * into a slab, or left on the device, as the update site wants it.
 *
 * A tied embedding has two sums, the head's and the lookup's, which meet only at the end: how many sweeps there are must not
 * change the order of additions (P2). */
#include "engine/internal.h"

static size_t sum_bytes(const mt_engine *e, int u) { return (size_t)mt__layout(e, u)->n_train * sizeof(float); }

/* The finished gradient: in an outgoing slot, or on the device. */
static void *finished(const mt_engine *e, const mt_action *a) { return a->to < 0 ? e->units[a->unit].grad_dev : e->outs[a->to]; }

mt_rc mt__grads_clear(mt_engine *e, const mt_action *a, mt_err *err)
{
    return mt_fill(e->compute, e->sums[a->slot], 0, sum_bytes(e, a->unit), err);
}

mt_rc mt__grads_copy(mt_engine *e, const mt_action *a, mt_copy_dir dir, mt_err *err)
{
    void *on_host = e->units[a->unit].acc_host[a->share], *on_device = e->sums[a->slot];
    bool out = dir == MT_COPY_OUT;
    return mt_copy(out ? e->copy_out : e->copy_in, out ? on_host : on_device, out ? on_device : on_host, sum_bytes(e, a->unit),
                   dir, err);
}

mt_rc mt__grads_round(mt_engine *e, const mt_action *a, mt_err *err)
{
    bool tied = mt_unit_is_tied(e->model, a->unit);
    return e->ops->round_grad(e->compute,
                              &(mt_round_grad){ .t = e->plan->arithmetic.grad,
                                                .n = mt__layout(e, a->unit)->n_train,
                                                .acc = e->sums[a->slot],
                                                .acc2 = tied ? e->sums[mt_sequence_tied_slot(e->sequence)] : NULL,
                                                .g = finished(e, a) },
                              err);
}

mt_rc mt__grads_norm(mt_engine *e, const mt_action *a, mt_err *err)
{
    return e->ops->grad_norm(e->compute,
                             &(mt_grad_norm){ .t = e->plan->arithmetic.grad,
                                              .n = mt__layout(e, a->unit)->n_train,
                                              .g = finished(e, a),
                                              .sum = &e->norms[a->unit],
                                              .scratch = e->run.scratch },
                             err);
}

void *mt__grads_host(const mt_engine *e, int u, int slab)
{
    return slab < 0 ? e->units[u].parked : mt__buffer(e, MT_BUF_SLAB, slab, -1);
}

/* To the host: parked until the norm is known, or into a slab that is updated from at once. */
mt_rc mt__grads_send(mt_engine *e, const mt_action *a, mt_err *err)
{
    int u = a->unit;
    size_t bytes = (size_t)mt__layout(e, u)->n_train * mt_dtype_bytes(e->plan->arithmetic.grad);
    MT_TRY(mt_copy(e->copy_out, mt__grads_host(e, u, a->to), e->outs[a->slot], bytes, MT_COPY_OUT, err));
    return a->to < 0 ? MT_OK : mt_copy(e->copy_out, &e->landed_norms[u], &e->norms[u], sizeof(double), MT_COPY_OUT, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

static void open_slots(mt_engine *e, void **slots, mt_buffer_kind kind, int group)
{
    void *p;
    for (int s = 0; (p = mt__buffer(e, kind, group, s)); s++) slots[s] = p;
}

mt_rc mt__grads_create(mt_engine *e, mt_err *err)
{
    mt_sequence_slots n = mt_sequence_count(e->sequence);
    bool stay = mt_plan_many_sweeps(e->plan) && e->plan->place.accumulators == MT_DEVICE;
    e->sums = mt_calloc((size_t)n.sums, sizeof *e->sums);
    e->outs = mt_calloc((size_t)n.outs + 1, sizeof *e->outs);
    if (!e->sums || !e->outs) return mt_no_memory(err, "the gradient slots");
    for (int g = 0; g < e->model->n_groups; g++) {
        mt_sequence_slots first = mt_sequence_group(e->sequence, g);
        if (!stay) open_slots(e, e->sums + first.sums, MT_BUF_ACC, g); /* else i is a unit */
        open_slots(e, e->outs + first.outs, MT_BUF_GRAD, g);
    }
    e->sums[mt_sequence_tied_slot(e->sequence)] = mt__buffer(e, MT_BUF_ACC_TIED, e->model->embed, -1);
    for (int u = 0; u < e->model->n_units; u++) {
        if (stay) e->sums[u] = mt__buffer(e, MT_BUF_ACC, u, -1);
        for (int share = 0; share < 2; share++)
            e->units[u].acc_host[share] = mt__buffer(e, MT_BUF_ACC_HOST, mt_plan_alias(e->plan, u), share);
    }
    return MT_OK;
}

void mt__grads_free(mt_engine *e)
{
    mt_free(e->sums);
    mt_free(e->outs);
}
