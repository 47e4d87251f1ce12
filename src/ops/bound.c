/* bound.c - x between -limit and limit, in place.  Clipping a second time changes nothing, so a layer may be recomputed.
 * Backward knows a clipped number by its size: one that came in at exactly the limit has no gradient either. */
#include "ops/ops_cpu.h"

#include <math.h>

size_t mt_bound_scratch(const mt_bound *a)
{
    (void)a;
    return 0;
}

static void forward_row(void *arg, int64_t i)
{
    const mt_bound *a = arg;
    for (int64_t d = 0; d < a->D; d++) {
        float x = mt_get(a->x, a->t, i * a->ldx + d);
        if (fabsf(x) > a->limit) mt_put(a->x, a->t, i * a->ldx + d, copysignf(a->limit, x));
    }
}

mt_rc mt__bound_fwd_run(mt_pool *pool, const mt_bound *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->N, forward_row, (void *)a);
    return MT_OK;
}

/* The limit as x holds it. */
static float stored_limit(const mt_bound *a)
{
    return a->t == MT_DTYPE_BF16 ? mt_bf16_to_f32(mt_f32_to_bf16(a->limit)) : a->limit;
}

static void backward_row(void *arg, int64_t i)
{
    const mt_bound *a = arg;
    for (int64_t d = 0; d < a->D; d++)
        if (fabsf(mt_get(a->x, a->t, i * a->ldx + d)) >= stored_limit(a)) mt_put(a->dx, a->t, i * a->ld_dx + d, 0.0f);
}

mt_rc mt__bound_bwd_run(mt_pool *pool, const mt_bound *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->N, backward_row, (void *)a);
    return MT_OK;
}
