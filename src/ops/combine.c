/* combine.c - the expert rows of each token, gathered and added in ascending order of the experts. */
#include "ops/ops_cpu.h"

#include "base/mem.h"
#include "device/device_cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

size_t mt_combine_scratch(const mt_combine *a)
{
    (void)a;
    return 0;
}

typedef struct gathering {
    const mt_combine *a;
    atomic_bool no_memory;
} gathering;

/* One fused multiply-add per element, on every device: the same bits for any split into units. */
static void add_row(float *sum, const mt_combine *a, int64_t row, float w)
{
    for (int64_t d = 0; d < a->D; d++) sum[d] = fmaf(w, mt_get(a->y, a->t, row * a->D + d), sum[d]);
}

static void combine_row(void *arg, int64_t n)
{
    gathering *g = arg;
    const mt_combine *a = g->a;
    float *sum = a->sum ? a->sum + n * a->D : mt_cpu_thread_scratch((size_t)a->D * sizeof *sum);
    if (!sum) {
        atomic_store(&g->no_memory, true);
        return;
    }
    if (a->start) memset(sum, 0, (size_t)a->D * sizeof *sum);
    for (int64_t k = n * a->T; k < (n + 1) * a->T; k++)
        if (a->experts[k] >= a->e0 && a->experts[k] < a->e0 + a->c)
            add_row(sum, a, a->place[k] - a->offsets[a->e0], a->weights ? a->weights[k] : 1.0f);
    for (int64_t d = 0; a->out && d < a->D; d++) {
        float add = a->add ? mt_get(a->add, a->t, n * a->D + d) : 0.0f;
        mt_put(a->out, a->t, n * a->D + d, sum[d] + add);
    }
}

mt_rc mt__combine_run(mt_pool *pool, const mt_combine *a, mt_err *err)
{
    gathering g = { .a = a };
    mt_pool_for(pool, a->N, combine_row, &g);
    return g.no_memory ? mt_no_memory(err, "summing the rows of experts") : MT_OK;
}
