/* cross_entropy.c - loss = -log softmax(z)[target];   dlogits = (softmax - onehot) * dscale,   of z = logits,
 * or of z = softcap tanh(logits / softcap): then times 1 - (z / softcap)^2.  Other terms are those of row_terms.h.
 * Rows are added to the step's sum in ascending order, in double. */
#include "ops/ops_cpu.h"
#include "ops/row_terms.h"

size_t mt_cross_entropy_scratch(const mt_cross_entropy *a)
{
    (void)a;
    return 0;
}

static float capped(const mt_cross_entropy *a, float z) { return a->softcap != 0 ? a->softcap * tanhf(z / a->softcap) : z; }

/* inv: 1 / sum of exp(z - top). */
static void row_with_terms(const mt_cross_entropy *a, int64_t i, float top, double log_sum, float inv)
{
    const float *logits = a->logits + i * a->V;
    const int32_t target = a->targets[i];
    double mean = 0;
    for (int64_t j = 0; j < a->V && a->smoothing > 0; j++) mean += (double)capped(a, logits[j]) / (double)a->V;
    const mt_row_terms t = mt_row_terms_of(a, i, (double)top, log_sum, (double)capped(a, logits[target]), mean);
    a->row_loss[i] = t.loss;
    for (int64_t j = 0; j < a->V && a->dlogits; j++) {
        const float z = capped(a, logits[j]), p = expf(z - top) * inv;
        float d = t.of_p * p - t.of_all - (j == target ? t.of_target : 0.0f);
        if (a->softcap != 0) d *= 1.0f - z / a->softcap * (z / a->softcap);
        mt_put(a->dlogits, a->t, i * a->V + j, d);
    }
}

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
    a->row_correct[i] = best == target;
    if (!mt_row_is_plain(a)) {
        row_with_terms(a, i, top, log_sum, (float)(1.0 / sum));
        return;
    }
    a->row_loss[i] = (float)(log_sum - (double)(capped(a, logits[target]) - top));
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
