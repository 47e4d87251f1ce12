/* gate.c - y = x * sigmoid(gate).   dx = dy * sigmoid(gate),   dgate = dy * x * sigmoid(gate) * (1 - sigmoid(gate)). */
#include "ops/ops_cpu.h"

#include <math.h>

size_t mt_gate_scratch(const mt_gate *a)
{
    (void)a;
    return 0;
}

static void forward_row(void *arg, int64_t i)
{
    const mt_gate *a = arg;
    for (int64_t d = 0; d < a->D; d++) {
        float x = mt_get(a->x, a->t, i * a->ldx + d), gate = mt_get(a->gate, a->t, i * a->ld_gate + d);
        mt_put(a->y, a->t, i * a->ldy + d, x * (1.0f / (1.0f + expf(-gate))));
    }
}

mt_rc mt__gate_fwd_run(mt_pool *pool, const mt_gate *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->N, forward_row, (void *)a);
    return MT_OK;
}

/* All inputs of an element are read before its outputs are written. */
static void backward_row(void *arg, int64_t i)
{
    const mt_gate *a = arg;
    for (int64_t d = 0; d < a->D; d++) {
        float x = mt_get(a->x, a->t, i * a->ldx + d), dy = mt_get(a->dy, a->t, i * a->ldy + d);
        float s = 1.0f / (1.0f + expf(-mt_get(a->gate, a->t, i * a->ld_gate + d)));
        mt_put(a->dx, a->t, i * a->ld_dx + d, dy * s);
        mt_put(a->dgate, a->t, i * a->ld_dgate + d, dy * x * s * (1.0f - s));
        if (a->y) mt_put(a->y, a->t, i * a->ldy + d, x * s);
    }
}

mt_rc mt__gate_bwd_run(mt_pool *pool, const mt_gate *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->N, backward_row, (void *)a);
    return MT_OK;
}
