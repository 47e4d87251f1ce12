/* plan.c - the life of a plan: made from its two halves, checked (check.c), settled (settle.c), and given its list of buffers
 * (buffers.c). */
#include "base/mem.h"
#include "base/rng.h"
#include "schedule/deal.h"
#include "schedule/plan_internal.h"

#include <string.h>

mt_rc mt_placement_init(mt_placement *p, const mt_model *model, mt_err *err)
{
    *p = (mt_placement){ 0 };
    p->units = mt_calloc((size_t)model->n_units, sizeof *p->units);
    p->groups = mt_calloc((size_t)model->n_groups, sizeof *p->groups);
    p->layers = mt_calloc((size_t)model->config->L, sizeof *p->layers);
    if (p->units && p->groups && p->layers) return MT_OK;
    mt_placement_free(p);
    return mt_no_memory(err, "a plan");
}

void mt_placement_free(mt_placement *p)
{
    mt_free(p->units);
    mt_free(p->groups);
    mt_free(p->layers);
    *p = (mt_placement){ 0 };
}

void mt_placement_set_slots(mt_placement *p, const mt_model *model, int ring, int sums, int outs)
{
    for (int g = 0; g < model->n_groups; g++) {
        p->groups[g].ring_slots = ring;
        p->groups[g].sum_slots = sums;
        p->groups[g].out_slots = outs;
    }
}

int mt_placement_ring(const mt_placement *p, const mt_model *model)
{
    int most = 0;
    for (int g = 0; g < model->n_groups; g++)
        if (p->groups[g].ring_slots > most) most = p->groups[g].ring_slots;
    return most;
}

static mt_rc copy_placement(mt_placement *to, const mt_placement *from, const mt_model *model, mt_err *err)
{
    MT_TRY(mt_placement_init(to, model, err));
    mt_unit_place *units = to->units;
    mt_group_place *groups = to->groups;
    mt_layer_place *layers = to->layers;
    *to = *from;
    to->groups = memcpy(groups, from->groups, (size_t)model->n_groups * sizeof *groups);
    to->units = memcpy(units, from->units, (size_t)model->n_units * sizeof *units);
    to->layers = memcpy(layers, from->layers, (size_t)model->config->L * sizeof *layers);
    return MT_OK;
}

mt_rc mt_plan_create(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, const mt_placement *place,
                     mt_err *err)
{
    *out = NULL;
    mt_plan *p = mt_calloc(1, sizeof *p);
    if (!p) return mt_no_memory(err, "a plan");
    p->model = model;
    p->job = *job;
    p->arithmetic = *a;
    mt_rc rc = copy_placement(&p->place, place, model, err);
    if (!rc) rc = mt__plan_check(p, err);
    if (!rc) rc = mt__plan_list_buffers(p, err);
    if (rc)
        mt_plan_free(p);
    else
        *out = p;
    return rc;
}

mt_rc mt_plan_measure(mt_plan *p, mt_err *err)
{
    p->counting = true;
    p->device_bytes = p->host_bytes = 0;
    MT_TRY(mt__plan_check(p, err));
    return mt__plan_list_buffers(p, err);
}

void mt_plan_free(mt_plan *p)
{
    if (!p) return;
    mt_placement_free(&p->place);
    mt_free(p->buffers);
    mt_free(p);
}

uint64_t mt_arithmetic_hash(const mt_arithmetic *a)
{
    enum { MOST = 18 };
    const int64_t all[] = { a->compute,
                            a->grad,
                            a->moments,
                            a->micro_tokens,
                            a->mlp_rows,
                            a->head_rows,
                            a->attention.ways,
                            a->attention.cudnn_head,
                            (int64_t)a->attention.workspace,
                            a->attention.parts,
                            a->attention.caps };
    const int64_t of_experts[] = { a->unit_experts, a->moe_tokens },
                  of_shares[] = { mt_arithmetic_bundles(a), mt_arithmetic_shares(a), MT_DEAL_VERSION };
    int64_t fields[MOST];
    size_t n = MT_COUNT(all);
    memcpy(fields, all, sizeof all);
    if (a->unit_experts) memcpy(fields + n, of_experts, sizeof of_experts), n += MT_COUNT(of_experts);
    if (mt_arithmetic_parts(a) > 1) memcpy(fields + n, of_shares, sizeof of_shares), n += MT_COUNT(of_shares);
    if (a->optimizer != MT_OPTIMIZER_ADAMW) fields[n++] = (INT64_C(1) << 32) + a->optimizer; /* unlike any field before */
    if (mt_arithmetic_rounds(a)) fields[n++] = MT_DTYPE_BF16;
    return mt_hash(fields, n * sizeof *fields, 1);
}
