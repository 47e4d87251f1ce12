/* cross_entropy.c - loss = -log softmax(logits)[target];   dlogits = (softmax - onehot) * dscale.
 * Rows are added to the step's sum in ascending order, in double. */
#include "ops/ops_cpu.h"

#include <math.h>

size_t mt_cross_entropy_scratch(const mt_cross_entropy *a)
{
    (void)a;
    return 0;
}

static void one_row(void *arg, int64_t i)
{
    const mt_cross_entropy *a = arg;
    const float *z = a->logits + i * a->V;
    int32_t target = a->targets[i];
    int64_t best = 0;
    for (int64_t j = 1; j < a->V; j++)
        if (z[j] > z[best]) best = j;
    float top = z[best];
    double sum = 0;
    for (int64_t j = 0; j < a->V; j++) sum += (double)expf(z[j] - top);
    double log_sum = log(sum);
    a->row_loss[i] = (float)(log_sum - (double)(z[target] - top));
    a->row_correct[i] = best == target;
    if (!a->dlogits) return;
    float inv = (float)(1.0 / sum);
    for (int64_t j = 0; j < a->V; j++) {
        float p = expf(z[j] - top) * inv;
        float d = (p - (j == target ? 1.0f : 0.0f)) * a->dscale;
        if (a->softcap != 0) d *= 1.0f - z[j] / a->softcap * (z[j] / a->softcap);
        mt_put(a->dlogits, a->t, i * a->V + j, d);
    }
}

mt_rc mt__cross_entropy_run(mt_pool *pool, const mt_cross_entropy *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->N, one_row, (void *)a);
    for (int64_t i = 0; i < a->N; i++) {
        a->sum->loss += a->row_loss[i];
        a->sum->correct += a->row_correct[i];
    }
    return MT_OK;
}
