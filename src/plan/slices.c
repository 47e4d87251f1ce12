#include "plan/slices.h"

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
    if (kind >= MT_STATE_M) return own;
    return own + (kind == MT_STATE_HI ? l->n_elems : l->n_low) - l->n_train;
}

bool mt_plan_mirrors(const mt_plan *p, int unit, mt_state_kind kind)
{
    const mt_layout *l = p->model->units[unit].layout;
    if (!mt_plan_is_mirrored(p, unit) || kind > MT_STATE_LO) return false;
    return kind == MT_STATE_HI || p->arithmetic.compute == MT_DTYPE_F32 || l->n_exact > 0;
}
