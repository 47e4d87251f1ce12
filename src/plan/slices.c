#include "plan/slices.h"

#include "ops/sqnorm.h"

_Static_assert(MT_SQNORM_CHUNK % MT_MOMENT_BLOCK == 0, "no block of moments is cut");

static int64_t chunks_of(int64_t n) { return (int64_t)mt_sqnorm_n_chunks((size_t)n); }

mt_lane_slice mt_plan_lane_slice(const mt_plan *p, int unit, int lane)
{
    const int64_t n = p->model->units[unit].layout->n_train, chunks = chunks_of(n), lanes = mt_plan_lanes(p),
                  first = mt_min_i64(chunks * lane / lanes * MT_SQNORM_CHUNK, n),
                  end = mt_min_i64(chunks * (lane + 1) / lanes * MT_SQNORM_CHUNK, n);
    return (mt_lane_slice){ .first = first, .n = end - first };
}

int64_t mt_plan_most_slice(const mt_plan *p, int64_t n)
{
    const int64_t lanes = mt_plan_lanes(p);
    return mt_min_i64((chunks_of(n) + lanes - 1) / lanes * MT_SQNORM_CHUNK, n);
}
