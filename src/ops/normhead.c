/* normhead.c - logits z = u / |w| by column, u = x w'.   With dz given:  du = dz / |w|,   dw -= w / |w| * sum over rows of du *
 * z.  That is the whole derivative: u's own goes through linear, and d(1/|w|)/dw = -w / |w|^3. */
#include "ops/ops_cpu.h"

#include <math.h>

size_t mt_normhead_scratch(const mt_normhead *a) { return (size_t)a->V * sizeof(float); } /* a place for rnorm */

static void forward_column(void *arg, int64_t j)
{
    const mt_normhead *a = arg;
    double sum = 0;
    for (int64_t d = 0; d < a->D; d++) {
        float w = mt_get(a->w, a->t, j * a->D + d);
        sum += (double)w * w;
    }
    float r = (float)(1.0 / fmax(sqrt(sum), 1e-12));
    a->rnorm[j] = r;
    for (int64_t i = 0; i < a->N; i++) a->logits[i * a->V + j] *= r;
}

mt_rc mt__normhead_fwd_run(mt_pool *pool, const mt_normhead *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->V, forward_column, (void *)a);
    return MT_OK;
}

static void backward_column(void *arg, int64_t j)
{
    const mt_normhead *a = arg;
    float r = a->rnorm[j], sum = 0;
    for (int64_t i = 0; i < a->N; i++) {
        float du = mt_get(a->dlogits, a->t, i * a->V + j) * r;
        sum += du * a->logits[i * a->V + j];
        mt_put(a->dlogits, a->t, i * a->V + j, du);
    }
    for (int64_t d = 0; a->dw && d < a->D; d++) a->dw[j * a->D + d] -= sum * r * mt_get(a->w, a->t, j * a->D + d);
}

mt_rc mt__normhead_bwd_run(mt_pool *pool, const mt_normhead *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->V, backward_column, (void *)a);
    return MT_OK;
}
