/* sizes.c - numbers and bytes that follow from a plan: rows, sums, kept activations, and the contents of slots that state passes through.  buffers.c
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

size_t mt_plan_array_bytes(const mt_plan *p, mt_state_kind kind, size_t n)
{
    return mt_state_stored_bytes(mt_arithmetic_form(&p->arithmetic), kind, n);
}

static size_t part_bytes(const mt_plan *p, int part, size_t n)
{
    return part == MT_STATE_KINDS ? n * mt_dtype_bytes(p->arithmetic.grad) : mt_plan_array_bytes(p, (mt_state_kind)part, n);
}

size_t mt_plan_number_bytes(const mt_plan *p, unsigned parts)
{
    size_t sum = 0;
    for (int part = 0; part < MT_STATE_PARTS; part++)
        if (parts >> part & 1) sum += part_bytes(p, part, MT_MOMENT_BLOCK) / MT_MOMENT_BLOCK;
    return sum;
}

mt_state_layout mt_plan_lay_out(const mt_plan *p, int64_t n, unsigned parts)
{
    size_t bytes[MT_STATE_PARTS];
    for (int part = 0; part < MT_STATE_PARTS; part++) bytes[part] = parts >> part & 1 ? part_bytes(p, part, (size_t)n) : 0;
    return mt_state_lay_out(bytes);
}

unsigned mt_plan_staged_parts(const mt_plan *p, int unit)
{
    return MT_PART_FIRST | MT_PART_OTHERS | MT_PART_LO | (plan_updates_in_place(p, unit) ? 0 : MT_PART_HI);
}

unsigned mt_plan_lent_parts(const mt_plan *p, int unit, int lender)
{
    const unsigned all = (mt_plan_staged_parts(p, unit) & ~(unsigned)MT_PART_FIRST) | MT_PART_GRADIENT,
                   first = p->model->units[unit].kind == MT_UNIT_LAYER ? 0 : MT_PART_OTHERS;
    return lender == 0 ? first : all & ~first;
}

mt_state_layout mt_plan_lent(const mt_plan *p, int unit, int lender)
{
    return mt_plan_lay_out(p, p->model->units[unit].layout->n_train, mt_plan_lent_parts(p, unit, lender));
}
