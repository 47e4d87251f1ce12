/* sizes.c - numbers and bytes that follow from a plan: rows, sums, kept activations, and the contents of staging slots.  buffers.c
 * makes the list of buffers from them. */
#include "schedule/deal.h"
#include "schedule/plan_internal.h"

mt_work_rows mt_plan_work_rows(const mt_plan *p)
{
    const mt_arithmetic *a = &p->arithmetic;
    return (mt_work_rows){ .micro = a->micro_tokens,
                           .chunk = mt_min_i64(a->mlp_rows, a->micro_tokens),
                           .pass = mt_pass_rows_at_most(a),
                           .sweep = p->place.sweep_tokens,
                           .segments = p->longest_segment > 1,
                           .router_loss = mt_plan_balances(p) };
}

mt_attention_use mt_plan_attention(const mt_plan *p)
{
    mt_attention_use use = p->arithmetic.attention;
    use.docs = mt_min_i64(p->job.step_docs, p->arithmetic.micro_tokens);
    use.longest = mt_min_i64(p->job.longest, p->arithmetic.micro_tokens);
    return use;
}

/* Micro-batches are as few as possible, so two neighbors in a share do not fit in one. */
int64_t mt_plan_most_micros(const mt_plan *p)
{
    const int64_t parts = mt_arithmetic_parts(&p->arithmetic);
    return mt_min_i64(p->job.step_docs, 2 * p->job.step_tokens / p->arithmetic.micro_tokens + parts);
}

int64_t mt_plan_part_tokens(const mt_plan *p)
{
    if (!mt_plan_by_shares(p)) return p->job.step_tokens;
    return mt_deal_most_rows(p->model, &p->arithmetic, p->job.step_tokens, p->job.longest);
}

int64_t mt_plan_loads(const mt_plan *p) { return p->job.train ? p->model->config->L * p->model->routed.E : 0; }

size_t mt_plan_sums_bytes(const mt_plan *p)
{
    const size_t loads = mt_round_up((size_t)mt_plan_loads(p) * sizeof(int32_t), sizeof(double));
    const size_t of_shares = (size_t)mt_arithmetic_parts(&p->arithmetic) * (sizeof(mt_loss_sum) + sizeof(double));
    return sizeof(int64_t) + of_shares + (size_t)p->model->n_units * sizeof(double) + loads;
}

size_t mt_plan_bounce_bytes(const mt_plan *p)
{
    int64_t largest = 1;
    for (int g = 0; g < p->model->n_groups; g++) largest = mt_max_i64(largest, p->model->layouts[g].n_elems);
    return (size_t)mt_min_i64((int64_t)mt_round_up((size_t)largest * sizeof(float), 1 << 16), MT_BOUNCE_BYTES);
}

size_t mt_plan_kept_bytes(const mt_plan *p, int layer, mt_keep keep)
{
    return mt_kept_bytes(mt_layer_kind_of(p->model, layer), p->arithmetic.compute, keep, p->place.sweep_tokens);
}

int64_t mt_plan_acc_stride(int64_t n)
{
    return (int64_t)(mt_round_up((size_t)n * sizeof(float), MT_DEVICE_ALIGN) / sizeof(float));
}

size_t mt_plan_acc_bytes(const mt_plan *p, int64_t n)
{
    return (size_t)((mt_plan_acc_count(p) - 1) * mt_plan_acc_stride(n) + n) * sizeof(float);
}

/* Experts, and layers with them, add to all of their sums. */
static bool may_write_sums(const mt_plan *p, int unit)
{
    const mt_unit *u = &p->model->units[unit];
    return u->kind == MT_UNIT_LAYER && !mt_layer_has_experts(p->model, u->layer) && mt_plan_acc_count(p) == 1;
}

bool mt_plan_writes_sum(const mt_plan *p, int unit, const mt_weight *w)
{
    return may_write_sums(p, unit) && !w->frozen && mt_layer_kind_of(p->model, p->model->units[unit].layer)->writes[w->role];
}

int64_t mt_plan_cleared(const mt_plan *p, int unit, bool tied)
{
    const mt_layout *l = p->model->units[unit].layout;
    int64_t n = mt_plan_acc_count(p) * l->n_train;
    if (tied || !may_write_sums(p, unit)) return n;
    for (int i = 0; i < l->n_weights; i++)
        if (mt_plan_writes_sum(p, unit, &l->weights[i])) n -= l->weights[i].n;
    return n;
}

/* A unit's sums on the host.  One machine: the step's and a bundle's, unless each lane has at most one share; then the first to
 * land is added to.  Several machines: a bundle's, which is then sent. */
int mt_plan_total_count(const mt_plan *p)
{
    if (mt_plan_machines(p) > 1) return mt_plan_bundle_rounds(p) > 1;
    return mt_plan_rounds(p) == 1 ? 0 : 1 + (mt_arithmetic_bundles(&p->arithmetic) > 1);
}

size_t mt_plan_moment_bytes(const mt_plan *p)
{
    return 2 * mt_moments_bytes(p->arithmetic.moments, MT_MOMENT_BLOCK) / MT_MOMENT_BLOCK;
}

mt_staging_layout mt_plan_staging(const mt_plan *p, int unit)
{
    size_t n = (size_t)p->model->units[unit].layout->n_train;
    mt_staging_layout s = { .v = mt_round_up(plan_moments_bytes(p, n), MT_ARRAY_ALIGN) };
    s.hi = 2 * s.v;
    s.lo = s.hi + (plan_updates_in_place(p, unit) ? 0 : mt_round_up(n * 2, MT_ARRAY_ALIGN));
    s.bytes = s.lo + n * 2;
    return s;
}

mt_piece_layout mt_plan_piece(const mt_plan *p, int64_t elems)
{
    size_t n = (size_t)elems;
    mt_piece_layout s = { .v = mt_round_up(plan_moments_bytes(p, n), MT_ARRAY_ALIGN) };
    s.hi = 2 * s.v;
    s.lo = s.hi + mt_round_up(n * 2, MT_ARRAY_ALIGN);
    s.g = s.lo + mt_round_up(n * 2, MT_ARRAY_ALIGN);
    s.bytes = s.g + n * mt_dtype_bytes(p->arithmetic.grad);
    return s;
}
