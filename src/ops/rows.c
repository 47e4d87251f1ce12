/* rows.c - the trained rows, picked out before the head and put back after it. */
#include "ops/ops_cpu.h"

#include <string.h>

size_t mt_rows_scratch(const mt_rows *a)
{
    (void)a;
    return 0;
}

static size_t row_bytes(const mt_rows *a) { return (size_t)a->D * mt_dtype_bytes(a->t); }

mt_rc mt__rows_fwd_run(mt_pool *pool, const mt_rows *a, mt_err *err)
{
    (void)pool, (void)err;
    for (int64_t i = 0; i < a->n_picked; i++)
        memcpy(mt_at_mut(a->y, a->t, i * a->D), mt_at(a->x, a->t, a->index[i] * a->D), row_bytes(a));
    return MT_OK;
}

mt_rc mt__rows_bwd_run(mt_pool *pool, const mt_rows *a, mt_err *err)
{
    (void)pool, (void)err;
    memset(a->dx, 0, (size_t)a->N * row_bytes(a));
    for (int64_t i = 0; i < a->n_picked; i++)
        memcpy(mt_at_mut(a->dx, a->t, a->index[i] * a->D), mt_at(a->dy, a->t, i * a->D), row_bytes(a));
    return MT_OK;
}
