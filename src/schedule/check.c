/* check.c - refuses a plan whose job, arithmetic and placement contradict each other.
 *
 * The order matters: each check relies on those before it.  A plan is settled halfway, once slots and kept layers are known to
 * make sense, because the checks of segments and units need what follows from the placement. */
#include "schedule/deal.h"
#include "schedule/plan_internal.h"
#include "schedule/slices.h"

/* True if a document may take several passes: a cached sequence does. */
static bool splits_documents(const mt_job *j) { return j->cache_slots > 0 && !j->train; }

static mt_rc check_slots(const mt_plan *p, mt_err *err)
{
    const mt_placement *q = &p->place;
    int fewest = mt_min_int(mt_min_int(q->keep_slots, q->staging_slots), mt_min_int(q->piece_slots, q->n_slabs));
    for (int g = 0; g < p->model->n_groups; g++) {
        const mt_group_place *at = &q->groups[g];
        fewest = mt_min_int(fewest, mt_min_int(at->ring_slots, mt_min_int(at->sum_slots, at->out_slots)));
    }
    return fewest >= 0 ? MT_OK : mt_fail(err, MT_ERANGE, "a plan with %d slots of a kind", fewest);
}

static mt_rc check_keeps(const mt_plan *p, mt_err *err)
{
    const mt_placement *q = &p->place;
    const int L = (int)p->model->config->L, start = mt_plan_backward_end(p);
    bool offloads = false;
    for (int l = 0; l < L; l++) {
        const mt_layer_place *at = &q->layers[l];
        if (at->keep < MT_KEEP_NOTHING || at->keep >= MT_KEEPS) return mt_fail(err, MT_EINVAL, "layer %d: unknown keep level", l);
        offloads |= at->keep != MT_KEEP_NOTHING && at->place == MT_HOST;
        if (l < start) continue;
        const bool after_experts = l > 0 && mt_layer_has_experts(p->model, l - 1);
        if (at->keep == MT_KEEP_NOTHING && (mt_layer_has_experts(p->model, l) || after_experts))
            return mt_fail(err, MT_EINVAL, "layer %d must keep its input: a layer with experts is recomputed alone", l);
    }
    if (start < L && q->layers[start].keep == MT_KEEP_NOTHING)
        return mt_fail(err, MT_EINVAL, "layer %d must keep its input: backward ends with it", start);
    if (p->job.train && offloads && q->keep_slots < 2)
        return mt_fail(err, MT_EINVAL, "kept activations in host memory need two slots to pass through");
    return MT_OK;
}

/* Every unit of a segment is on the device at once, so each needs its own slot. */
static mt_rc check_segments(const mt_plan *p, mt_err *err)
{
    if (p->longest_segment > MT_MAX_SEGMENT)
        return mt_fail(err, MT_ERANGE, "%d layers would be recomputed from one kept input; at most %d", p->longest_segment,
                       MT_MAX_SEGMENT);
    for (int g = 0; g < p->model->n_groups; g++) {
        const mt_group_place *at = &p->place.groups[g];
        bool trains = p->job.train && p->model->layouts[g].n_train > 0;
        if (at->streamed && at->ring_slots < at->together)
            return mt_fail(err, MT_EINVAL, "a ring of %d slots for segments of %d layers", at->ring_slots, at->together);
        if (trains && plan_sums_pass_through(p) && at->sum_slots < at->together)
            return mt_fail(err, MT_EINVAL, "%d slots for gradient sums of segments of %d layers", at->sum_slots, at->together);
    }
    return MT_OK;
}

/* Checks a unit's update in pieces, if it has any. */
static mt_rc check_pieces(const mt_plan *p, int u, mt_err *err)
{
    const mt_unit_place *at = &p->place.units[u];
    if (!at->in_pieces) return MT_OK;
    const int64_t n = p->model->units[u].layout->n_train, host_share = n - at->in_pieces;
    const bool updates = p->job.train && !p->job.only_gradients;
    if (at->site != MT_SITE_HOST || !updates || at->in_pieces < 0 || host_share < 0)
        return mt_fail(err, MT_EINVAL, "unit %d: %lld of its %lld trained elements cannot be updated in pieces", u,
                       (long long)at->in_pieces, (long long)n);
    if (host_share % MT_MOMENT_BLOCK || p->place.piece_elems < 1 || p->place.piece_elems % MT_MOMENT_BLOCK)
        return mt_fail(err, MT_EINVAL, "unit %d: pieces of %lld elements after the first %lld cut a block of moments", u,
                       (long long)p->place.piece_elems, (long long)host_share);
    if (mt_optimizer_of(p->arithmetic.optimizer)->granularity != MT_BY_ELEMENT)
        return mt_fail(err, MT_EINVAL, "unit %d: this optimizer updates whole matrices, not pieces", u);
    if (p->place.piece_slots < 1) return mt_fail(err, MT_EINVAL, "updates in pieces need a slot");
    return MT_OK;
}

static mt_rc check_units(const mt_plan *p, mt_err *err)
{
    const mt_placement *q = &p->place;
    for (int u = 0; u < p->model->n_units; u++) {
        const mt_unit_place *at = &q->units[u];
        bool trains = p->job.train && p->model->units[u].layout->n_train > 0;
        if (at->home == MT_DEVICE && !at->resident && !mt_plan_is_sliced(p, u))
            return mt_fail(err, MT_EINVAL, "unit %d has its home on the device and is not resident", u);
        MT_TRY(check_pieces(p, u, err));
        if (!trains) continue;
        if ((at->site == MT_SITE_DEVICE) != (at->home == MT_DEVICE))
            return mt_fail(err, MT_EINVAL, "unit %d: the update site is the device if and only if the home is", u);
        if (at->site == MT_SITE_STAGED && p->job.only_gradients) return mt_fail(err, MT_EINVAL, "unit %d: no state to stage", u);
        if (at->reuses && (at->site != MT_SITE_STAGED || !mt__plan_may_reuse(p, u)))
            return mt_fail(err, MT_EINVAL, "unit %d cannot reuse memory for its update", u);
        if (at->site == MT_SITE_STAGED && !at->reuses && q->staging_slots < 1)
            return mt_fail(err, MT_EINVAL, "staged updates need a slot");
        if (at->site == MT_SITE_HOST && q->groups[p->model->units[u].group].out_slots < 1)
            return mt_fail(err, MT_EINVAL, "gradients on their way to the host need a slot");
        if (at->site == MT_SITE_HOST && !p->job.clip && q->n_slabs < 1)
            return mt_fail(err, MT_EINVAL, "without clipping gradients need a slab");
    }
    return MT_OK;
}

/* Several lanes share host memory, and several machines exchange what is in it.  So a unit's home and update site are the host; or,
 * on one machine whose devices add the sums, the devices in slices. */
static mt_rc check_lanes(const mt_plan *p, mt_err *err)
{
    const mt_arithmetic *a = &p->arithmetic;
    const int lanes = mt_plan_lanes(p), machines = mt_plan_machines(p),
              parts = machines > 1 ? mt_arithmetic_shares(a) : mt_arithmetic_parts(a);
    if (!mt_plan_by_shares(p)) return MT_OK;
    if (!p->job.train || p->job.alias_layers)
        return mt_fail(err, MT_EINVAL, "%d lanes and %d machines for a pass that one lane makes", lanes, machines);
    if (mt_optimizer_of(a->optimizer)->granularity != MT_BY_ELEMENT)
        return mt_fail(err, MT_EINVAL, "this optimizer updates whole matrices, not the slices of %d lanes and %d machines", lanes,
                       machines);
    if (lanes > parts) return mt_fail(err, MT_EINVAL, "%d lanes for a step of %d shares", lanes, parts);
    if ((machines > 1 || mt_arithmetic_rounds(a)) && p->place.fold != MT_FOLD_HOST)
        return mt_fail(err, MT_EINVAL, "sums of bundles that are rounded, or leave for other machines, meet in host memory");
    if (p->job.machine < 0 || p->job.machine >= machines)
        return mt_fail(err, MT_EINVAL, "machine %d of %d", p->job.machine, machines);
    if (p->place.gather && (!plan_folds_by_peers(p) || p->job.only_gradients))
        return mt_fail(err, MT_EINVAL, "weights are gathered from devices whose sums do not meet there");
    for (int u = 0; u < p->model->n_units; u++) {
        const mt_unit_place *at = &p->place.units[u];
        if (at->home == MT_DEVICE && at->site == MT_SITE_DEVICE && plan_folds_by_peers(p) && !p->job.only_gradients) continue;
        if (at->home != MT_HOST || at->site != MT_SITE_HOST || at->in_pieces)
            return mt_fail(err, MT_EINVAL,
                           "unit %d is updated neither on the host nor in slices, and there are %d lanes and %d machines", u,
                           lanes, machines);
    }
    return MT_OK;
}

/* The job by itself. */
static mt_rc check_job(const mt_plan *p, mt_err *err)
{
    const mt_job *j = &p->job;
    if (j->step_tokens < 1 || j->step_docs < 1 || j->longest < 1 || (j->longest > j->step_tokens && !splits_documents(j)))
        return mt_fail(err, MT_EINVAL, "a step of %lld rows in %lld documents, the longest of %lld", (long long)j->step_tokens,
                       (long long)j->step_docs, (long long)j->longest);
    return MT_OK;
}

/* The arithmetic, and whether the job can use it. */
static mt_rc check_arithmetic(const mt_plan *p, mt_err *err)
{
    const mt_job *j = &p->job;
    const mt_arithmetic *a = &p->arithmetic;
    if ((a->compute != MT_DTYPE_F32 && a->compute != MT_DTYPE_BF16) || (a->grad != MT_DTYPE_F32 && a->grad != MT_DTYPE_BF16))
        return mt_fail(err, MT_EINVAL, "compute and gradients are float32 or bfloat16");
    if (a->moments < MT_MOMENTS_F32 || a->moments >= MT_MOMENTS_FORMS)
        return mt_fail(err, MT_EINVAL, "an unknown form of the optimizer's state");
    if (a->optimizer < 0 || a->optimizer >= MT_OPTIMIZERS) return mt_fail(err, MT_EINVAL, "an unknown optimizer");
    if (j->mapped && (j->train || a->compute != MT_DTYPE_BF16))
        return mt_fail(err, MT_EINVAL, "mapped weights support only the forward pass in bfloat16");
    if (j->cache_slots < 0 || j->cache_slots > mt_min_i64(j->step_docs, a->micro_tokens))
        return mt_fail(err, MT_EINVAL, "a cache for %lld sequences, with passes of %lld documents and micro-batches of %lld rows",
                       (long long)j->cache_slots, (long long)j->step_docs, (long long)a->micro_tokens);
    if (a->micro_tokens < j->longest && !splits_documents(j))
        return mt_fail(err, MT_EINVAL, "micro-batches of %lld rows cannot hold a document of %lld", (long long)a->micro_tokens,
                       (long long)j->longest);
    if (a->mlp_rows < 1 || a->head_rows < 1) return mt_fail(err, MT_EINVAL, "row chunks of 0 rows");
    if (a->bundles < 0 || a->shares < 0 || a->bundles > MT_MOST_SHARES || a->shares > MT_MOST_SHARES ||
        mt_arithmetic_parts(a) > MT_MOST_SHARES)
        return mt_fail(err, MT_ERANGE, "a step of %lld x %lld shares; at most %d", (long long)a->bundles, (long long)a->shares,
                       MT_MOST_SHARES);
    return MT_OK;
}

/* Sweeps hold whole micro-batches, and whole passes of experts.  Sets part_tokens, which needs a valid number of lanes. */
static mt_rc check_sweeps(mt_plan *p, mt_err *err)
{
    const mt_arithmetic *a = &p->arithmetic;
    if (p->place.sweep_tokens < a->micro_tokens) return mt_fail(err, MT_EINVAL, "a sweep smaller than a micro-batch");
    MT_TRY(check_lanes(p, err));
    p->part_tokens = mt_plan_part_tokens(p);
    if (p->place.sweep_tokens < mt_min_i64(a->moe_tokens, p->part_tokens))
        return mt_fail(err, MT_EINVAL, "a sweep of %lld rows is smaller than what passes an expert together (%lld)",
                       (long long)p->place.sweep_tokens, (long long)a->moe_tokens);
    return MT_OK;
}

/* An arithmetic chosen before there was a model takes the model's number. */
static mt_rc check_unit_experts(mt_plan *p, mt_err *err)
{
    mt_arithmetic *a = &p->arithmetic;
    if (!a->unit_experts) a->unit_experts = p->model->unit_experts;
    if (a->unit_experts != p->model->unit_experts)
        return mt_fail(err, MT_EINVAL, "a plan for units of %lld experts, and the model's have %lld", (long long)a->unit_experts,
                       (long long)p->model->unit_experts);
    return MT_OK;
}

mt_rc mt__plan_check(mt_plan *p, mt_err *err)
{
    MT_TRY(check_job(p, err));
    MT_TRY(check_arithmetic(p, err));
    MT_TRY(check_sweeps(p, err));
    MT_TRY(check_unit_experts(p, err));
    MT_TRY(check_slots(p, err));
    MT_TRY(check_keeps(p, err));
    const bool settled = mt_plan_settle(p);
    MT_TRY(check_segments(p, err));
    if (!settled) return mt_fail(err, MT_EINVAL, "more units reuse memory for their updates than there are layers to reuse");
    return check_units(p, err);
}
