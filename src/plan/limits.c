/* limits.c - what a plan must stay within: the limits that the memory settings put on it, and the host memory it takes. */
#include "base/mem.h"
#include "plan/search.h"

enum { USUAL_SEGMENT = 8 }; /* the default: longer segments save little more */

int mt_limits_longest(const mt_limits *l, const mt_model *m)
{
    int64_t n = l->exact ? 1 : USUAL_SEGMENT;
    if (l->interval > 0) n = l->interval;
    n = mt_min_i64(n, m->config->L);
    if (m->unit_experts && !l->exact) return 1; /* a layer with experts is recomputed alone */
    return (int)(l->exact ? n : mt_min_i64(n, MT_MAX_SEGMENT));
}

mt_rc mt_limits_check(const mt_limits *l, const mt_model *m, mt_err *err)
{
    if (m->unit_experts && l->exact && l->interval > 1)
        return mt_fail(err, MT_EINVAL,
                       "strict_checkpointing with checkpoint_interval %d: layers with experts are recomputed one at a time; set "
                       "checkpoint_interval: 1",
                       l->interval);
    if (mt_limits_longest(l, m) <= MT_MAX_SEGMENT) return MT_OK;
    return mt_fail(err, MT_ERANGE,
                   "strict_checkpointing with checkpoint_interval %d: at most %d layers can be recomputed from one kept input",
                   l->interval, MT_MAX_SEGMENT);
}

/* The widest row that a product makes. */
static size_t widest_row(const mt_model *m)
{
    double widest = (double)m->config->V;
    for (int k = 0; k < m->n_kinds; k++)
        for (int i = 0; i < m->kinds[k].n_work; i++) {
            const mt_work_item *w = &m->kinds[k].work[i];
            double n = w->T ? w->n / w->T : w->n;
            if (w->kind == MT_WORK_PRODUCT && n > widest) widest = n;
        }
    return (size_t)widest;
}

size_t mt_plan_base_host(const mt_plan *p, const mt_machine *m)
{
    enum { TILE_ROWS = 512, TILE_COLS = 128 }; /* ops/linear.c */
    enum { PACKED = 1 << 20 };                 /* OpenBLAS's copies of a product's operands: 0.7 MiB of each thread (measured) */
    enum { CUDNN_HOST = 153 << 20 };           /* for its libraries and compiled kernels */
    size_t rows = (size_t)mt_min_i64(p->arithmetic.micro_tokens, TILE_ROWS);
    size_t widened = p->arithmetic.compute == MT_DTYPE_F32 ? 0 : (rows + TILE_COLS) * widest_row(p->model);
    size_t pools = p->host_bytes / MT_HOST_POOL_BYTES + 4; /* engine/memory.c: each is half a page too large on average */
    bool cudnn = p->arithmetic.attention.ways >> MT_ATTENTION_CUDNN & 1;
    size_t bytes = m->base_host + pools * m->host_page / 2;
    if (cudnn) bytes += CUDNN_HOST;
    if (!m->shared && p->job.mapped) bytes += MT_DEVICE_SLOTS_BYTES;
    return bytes + (size_t)m->threads * (PACKED + (TILE_ROWS * TILE_COLS + widened) * sizeof(float));
}

size_t mt_plan_host_total(const mt_plan *p, const mt_machine *m)
{
    return p->host_bytes + mt_plan_base_host(p, m) + (m->shared ? p->device_bytes * (size_t)mt_plan_lanes(p) : 0);
}
