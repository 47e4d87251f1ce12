#include "plan/step_work.h"

#include "schedule/slices.h"

static const mt_unit *unit_of(const mt_step_work *w, int u) { return &w->p->model->units[u]; }
static double params(const mt_step_work *w, int u) { return (double)unit_of(w, u)->layout->n_train; }

/* Packed weights are expanded where they were copied to, before the next copy begins.  In bytes that could cross in that time. */
static double expand_bytes(const mt_step_work *w, const mt_layout *l)
{
    const mt_machine *m = w->costs->m;
    const double moved = (double)l->packed_bytes + (double)(l->n_elems - l->n_hi) * w->costs->e;
    return l->packed_bytes ? moved / m->device_bandwidth * m->copy_in : 0;
}

static double fetch_bytes(const mt_step_work *w, int u)
{
    const mt_layout *l = unit_of(w, u)->layout;
    const bool f32 = w->p->arithmetic.compute == MT_DTYPE_F32;
    if (w->p->place.units[u].home == MT_DEVICE && !mt_plan_is_sliced(w->p, u)) return 0; /* packed weights: once a run */
    return 2.0 * (double)(l->n_hi + (f32 ? l->n_low : l->n_exact)) + (double)l->packed_bytes + expand_bytes(w, l);
}

static double kept_bytes(const mt_step_work *w, int layer)
{
    return w->rows * (double)mt_kept_row_bytes(mt_layer_kind_of(w->p->model, layer), w->p->arithmetic.compute,
                                               w->p->place.layers[layer].keep);
}

static double staged_bytes(const mt_step_work *w, int u, unsigned parts)
{
    return params(w, u) * (double)mt_plan_number_bytes(w->p, parts);
}

/* Bytes of a piece's state; on the way in, with its gradient. */
static double piece_bytes(const mt_step_work *w, const mt_action *a)
{
    const unsigned parts = a->kind == MT_DO_PIECE_IN ? MT_PIECE_PARTS : MT_PIECE_PARTS & ~MT_PART_GRADIENT;
    return (double)a->n * (double)mt_plan_number_bytes(w->p, parts);
}

double mt__step_times_of(const mt_step_work *w, int layer) { return w->stands_for && layer >= 0 ? w->stands_for[layer] : 1; }

static double backward_seconds(const mt_step_work *w, int first, int end)
{
    double seconds = 0;
    for (int l = first; l < end; l++) {
        mt_keep keep = l == first ? w->p->place.layers[l].keep : MT_KEEP_NOTHING;
        seconds += mt__step_times_of(w, l) * (mt_cost_redo(w->costs, l, keep, l + 1 < end, w->rows, w->micros) +
                                              mt_cost_backward(w->costs, l, w->rows, w->micros));
    }
    return seconds;
}

static double head_seconds(const mt_step_work *w)
{
    return w->rows * (w->costs->head_forward + (w->p->job.train ? w->costs->head_backward : 0));
}

/* A private staging slot is filled in a run's first step.  Every later step finds the state of the previous update there. */
static double stage_bytes(const mt_step_work *w, const mt_action *a)
{
    return mt_plan_private_slot(w->p, a->unit) >= 0 ? 0 : staged_bytes(w, a->unit, a->parts);
}

/* Seconds for a trained parameter's finished sums, once a step. */
static double finish_seconds(const mt_step_work *w)
{
    return mt_cost_finish_grad(w->costs) + (mt_arithmetic_parts(&w->p->arithmetic) - 1) * mt_cost_fold(w->costs);
}

/* Work of an action for one layer, in the unit of its queue. */
static double work_of_one(const mt_step_work *w, const mt_action *a)
{
    switch (a->kind) {
    case MT_DO_FETCH: return fetch_bytes(w, a->unit);
    case MT_DO_EMBED: return w->rows * w->costs->embed_forward;
    case MT_DO_FORWARD: return mt_cost_forward(w->costs, a->layer, w->rows, w->micros);
    case MT_DO_EXPERTS: return mt_cost_experts(w->costs, a->unit, false, w->rows, w->passes);
    case MT_DO_CLOSE: return mt_cost_close(w->costs, a->layer, w->rows);
    case MT_DO_HEAD: return head_seconds(w);
    case MT_DO_REOPEN: return mt_cost_reopen(w->costs, a->layer, w->rows);
    case MT_DO_EXPERTS_BACKWARD: return mt_cost_experts(w->costs, a->unit, true, w->rows, w->passes);
    case MT_DO_BACKWARD: return backward_seconds(w, a->layer, a->end);
    case MT_DO_EMBED_BACKWARD: return w->rows * w->costs->embed_backward;
    case MT_DO_KEEP_OUT:
    case MT_DO_KEEP_IN: return kept_bytes(w, a->layer);
    case MT_DO_SUM_CLEAR: return (double)mt_plan_cleared(w->p, a->unit, a->share) * mt_cost_clear(w->costs);
    case MT_DO_SUM_IN:
    case MT_DO_SUM_OUT: return params(w, a->unit) * 4 * mt_plan_acc_count(w->p);
    case MT_DO_PART_OUT: return params(w, a->unit) * 4;
    case MT_DO_ROUND: return params(w, a->unit) * finish_seconds(w); /* folded and squared, too */
    case MT_DO_GRADIENT_OUT: return params(w, a->unit) * (double)mt_dtype_bytes(w->p->arithmetic.grad);
    case MT_DO_STAGE: return stage_bytes(w, a);
    case MT_DO_WRITE_BACK: return staged_bytes(w, a->unit, a->parts);
    case MT_DO_UPDATE_HOST: return (double)a->n / mt_plan_machines(w->p); /* each updates its slice */
    case MT_DO_UPDATE_DEVICE:
    case MT_DO_UPDATE_STAGED: return params(w, a->unit) * mt_cost_update_device(w->costs, w->p->arithmetic.optimizer);
    case MT_DO_PIECE_IN:
    case MT_DO_PIECE_BACK: return piece_bytes(w, a);
    case MT_DO_PIECE_UPDATE: return (double)a->n * mt_cost_update_device(w->costs, w->p->arithmetic.optimizer);
    case MT_DO_SWEEP:
    case MT_DO_ROUTES:
    case MT_DO_NORM:
    case MT_DO_READ_SUMS:
    case MT_DO_COUNT: break;
    }
    return 0;
}

double mt__step_action_work(const mt_step_work *w, const mt_action *a)
{
    const double work = work_of_one(w, a);
    if (!w->stands_for || a->kind == MT_DO_BACKWARD) return work; /* a backward of several layers counts each of them itself */
    const bool names_layer = a->kind == MT_DO_KEEP_OUT || a->kind == MT_DO_KEEP_IN; /* these name no unit */
    return work * mt__step_times_of(w, names_layer ? a->layer : unit_of(w, a->unit)->layer);
}

/* For all of a layer's experts and the work around them; its units are alike. */
static double experts_seconds(const mt_step_work *w, int layer, bool backward)
{
    const int n = mt_layer_expert_units(w->p->model, layer), first = mt_layer_first_unit(w->p->model, layer) + 1;
    if (!n) return 0;
    return n * mt_cost_experts(w->costs, first, backward, w->rows, w->passes) +
           (backward ? mt_cost_reopen(w->costs, layer, w->rows) : mt_cost_close(w->costs, layer, w->rows));
}

double mt__step_sweep_seconds(const mt_step_work *w)
{
    const mt_plan *p = w->p;
    const int L = (int)p->model->config->L, end = mt_plan_backward_end(p);
    double seconds = w->rows * w->costs->embed_forward + head_seconds(w);
    for (int l = 0; l < L; l++) {
        const mt_keep keep = p->place.layers[l].keep;
        bool finish = l + 1 < L && p->place.layers[l + 1].keep == MT_KEEP_NOTHING;
        seconds += mt__step_times_of(w, l) * (mt_cost_forward(w->costs, l, w->rows, w->micros) + experts_seconds(w, l, false));
        if (p->job.train && l >= end)
            seconds +=
                mt__step_times_of(w, l) * (mt_cost_redo(w->costs, l, keep, finish, w->rows, w->micros) +
                                           mt_cost_backward(w->costs, l, w->rows, w->micros) + experts_seconds(w, l, true));
    }
    return seconds;
}
