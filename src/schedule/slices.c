/* slices.c - how lanes and machines divide a plan: who computes which share, and who stores which part of a unit. */
#include "schedule/slices.h"

#include "ops/sqnorm.h"

_Static_assert(MT_SQNORM_CHUNK % MT_MOMENT_BLOCK == 0, "no block of moments is cut");

static int64_t chunks_of(int64_t n) { return (int64_t)mt_sqnorm_n_chunks((size_t)n); }

/* Part i of `parts` of unit u. */
static mt_stretch cut(const mt_plan *p, int unit, int i, int parts)
{
    const int64_t n = p->model->units[unit].layout->n_train, chunks = chunks_of(n),
                  first = mt_min_i64(chunks * i / parts * MT_SQNORM_CHUNK, n),
                  end = mt_min_i64(chunks * (i + 1) / parts * MT_SQNORM_CHUNK, n);
    return (mt_stretch){ .first = first, .n = end - first };
}

mt_stretch mt_plan_lane_slice(const mt_plan *p, int unit, int lane) { return cut(p, unit, lane, mt_plan_lanes(p)); }
mt_stretch mt_plan_slice(const mt_plan *p, int unit, int machine) { return cut(p, unit, machine, mt_plan_machines(p)); }

int64_t mt_plan_most_slice(const mt_plan *p, int64_t n)
{
    const int64_t lanes = mt_plan_lanes(p);
    return mt_min_i64((chunks_of(n) + lanes - 1) / lanes * MT_SQNORM_CHUNK, n);
}

int64_t mt_plan_slice_elems(const mt_plan *p, int unit, mt_state_kind kind)
{
    const mt_layout *l = p->model->units[unit].layout;
    const int64_t own = mt_plan_slice_rest(p, unit);
    if (mt_state_is_array(kind)) return own;
    return own + (kind == MT_STATE_HI ? l->n_hi : l->n_low) - l->n_train;
}

bool mt_plan_mirrors(const mt_plan *p, int unit, mt_state_kind kind)
{
    const mt_layout *l = p->model->units[unit].layout;
    if (!mt_plan_is_mirrored(p, unit) || mt_state_is_array(kind)) return false;
    return kind == MT_STATE_HI || p->arithmetic.compute == MT_DTYPE_F32 || l->n_exact > 0;
}

int mt_plan_share(const mt_plan *p, int round, int lane)
{
    const mt_arithmetic *a = &p->arithmetic;
    const int lanes = mt_plan_lanes(p), machines = mt_plan_machines(p), of_bundle = mt_plan_bundle_rounds(p);
    if (machines == 1) return round * lanes + lane < mt_arithmetic_parts(a) ? round * lanes + lane : -1;
    const int bundle = round / of_bundle * machines + p->job.machine, share = round % of_bundle * lanes + lane;
    return bundle < mt_arithmetic_bundles(a) && share < mt_arithmetic_shares(a) ? bundle * mt_arithmetic_shares(a) + share : -1;
}

bool mt_plan_low_is_whole(const mt_plan *p, int unit)
{
    return mt_plan_machines(p) == 1 || p->arithmetic.compute == MT_DTYPE_F32 || p->model->units[unit].layout->n_exact > 0;
}

int mt_plan_runs(const mt_plan *p, int unit, mt_state_kind kind, mt_stretch out[2])
{
    const mt_layout *l = p->model->units[unit].layout;
    const bool whole = kind == MT_STATE_HI || (kind == MT_STATE_LO && mt_plan_low_is_whole(p, unit));
    out[0] = mt_plan_own_slice(p, unit);
    out[1] = (mt_stretch){ l->n_train, l->n_low - l->n_train }; /* frozen parameters do not change: every machine has them */
    if (whole) out[0] = (mt_stretch){ 0, kind == MT_STATE_HI ? l->n_hi : l->n_low };
    if (kind == MT_STATE_PACKED) out[0] = (mt_stretch){ 0, (int64_t)l->packed_bytes };
    return kind == MT_STATE_LO && !whole ? 2 : 1;
}

bool mt_plan_stores(const mt_plan *p, mt_state_range r)
{
    mt_stretch runs[2];
    bool any = false;
    for (int i = mt_plan_runs(p, r.unit, r.kind, runs) - 1; i >= 0; i--)
        any |= r.first < runs[i].first + runs[i].n && runs[i].first < r.first + r.n;
    return any;
}

int64_t mt_plan_stored(const mt_plan *p, int unit, mt_state_kind kind)
{
    mt_stretch runs[2];
    return mt_plan_runs(p, unit, kind, runs) == 2 ? runs[0].n + runs[1].n : runs[0].n;
}
