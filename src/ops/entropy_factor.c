/* entropy_factor.c - factors[i] = (H / 3)^alpha, H the entropy of the softmax over a row's 20 largest logits. */
#include "ops/ops_cpu.h"
#include "ops/row_terms.h"

size_t mt_entropy_factor_scratch(const mt_entropy_factor *a)
{
    (void)a;
    return 0;
}

static float factor_of(const float *logits, int64_t V, float softcap, float alpha)
{
    float most[MT_ENTROPY_LOGITS]; /* the largest so far, in descending order */
    int n = 0;
    for (int64_t j = 0; j < V; j++) {
        const float z = softcap != 0 ? softcap * tanhf(logits[j] / softcap) : logits[j];
        if (n == MT_ENTROPY_LOGITS && !(z > most[n - 1])) continue;
        if (n < MT_ENTROPY_LOGITS) n++;
        int at = n - 1;
        for (; at > 0 && z > most[at - 1]; at--) most[at] = most[at - 1];
        most[at] = z;
    }
    return mt_entropy_power(most, n, alpha);
}

static void entropy_row(void *arg, int64_t i)
{
    const mt_entropy_factor *a = arg;
    a->factors[i] = factor_of(a->logits + i * a->V, a->V, a->softcap, a->alpha);
}

mt_rc mt__entropy_factor_run(mt_pool *pool, const mt_entropy_factor *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->N, entropy_row, (void *)a);
    return MT_OK;
}
