/* cross_entropy.c - loss = -log softmax(z)[target];   dlogits = (softmax - onehot) * dscale,   of z = logits,
 * or of z = softcap tanh(logits / softcap): then times 1 - (z / softcap)^2.
 * Rows are added to the step's sum in ascending order, in double. */
#include "ops/ops_cpu.h"

#include <math.h>

size_t mt_cross_entropy_scratch(const mt_cross_entropy *a)
{
    (void)a;
    return 0;
}

static float capped(const mt_cross_entropy *a, float z) { return a->softcap != 0 ? a->softcap * tanhf(z / a->softcap) : z; }

static void one_row(void *arg, int64_t i)
{
    const mt_cross_entropy *a = arg;
    const float *logits = a->logits + i * a->V;
    int32_t target = a->targets[i];
    int64_t best = 0;
    float top = capped(a, logits[0]);
    for (int64_t j = 1; j < a->V; j++) {
        float z = capped(a, logits[j]);
        if (z > top) {
            top = z;
            best = j;
        }
    }
    double sum = 0;
    for (int64_t j = 0; j < a->V; j++) sum += (double)expf(capped(a, logits[j]) - top);
    double log_sum = log(sum);
    a->row_loss[i] = (float)(log_sum - (double)(capped(a, logits[target]) - top));
    a->row_correct[i] = best == target;
    if (!a->dlogits) return;
    float inv = (float)(1.0 / sum);
    for (int64_t j = 0; j < a->V; j++) {
        float z = capped(a, logits[j]), p = expf(z - top) * inv;
        float d = (p - (j == target ? 1.0f : 0.0f)) * a->dscale;
        if (a->softcap != 0) d *= 1.0f - z / a->softcap * (z / a->softcap);
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
