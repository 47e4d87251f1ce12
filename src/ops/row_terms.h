/* row_terms.h - the loss of a row of logits, and its gradient, from four numbers: written once for host and device.
 *
 * With logits z, p = softmax(z), l = log sum exp z and the row's weight w:
 *     loss       w (f ((1 - smoothing) (l - z[target]) + smoothing (l - mean z)) + z_loss l^2)
 *     dloss/dz   w ((f + 2 z_loss l) p[j] - f (1 - smoothing) [j is the target] - f smoothing / V)
 * The factor f, which the gradient takes for a constant, is factors[i], times p[target] with by_probability. */
#ifndef MT_OPS_ROW_TERMS_H
#define MT_OPS_ROW_TERMS_H

#include "ops/ops.h"

#include <math.h>

/* True if all of it is plain cross-entropy, which has a faster way. */
MT_ANYWHERE bool mt_row_is_plain(const mt_cross_entropy *a)
{
    return a->smoothing == 0 && a->z_loss == 0 && !a->by_probability && !a->factors && !a->weights;
}

/* dlogits[j] = of_p p[j] - of_all, and of_target less at the target. */
typedef struct mt_row_terms {
    float loss, of_p, of_target, of_all;
} mt_row_terms;

/* top: the largest logit; log_sum: of exp(z - top).  mean counts only with smoothing. */
MT_ANYWHERE mt_row_terms mt_row_terms_of(const mt_cross_entropy *a, int64_t i, double top, double log_sum, double at_target,
                                         double mean)
{
    const double smoothing = a->smoothing, l = top + log_sum, w = a->weights ? a->weights[i] : 1;
    const double nll = log_sum - (at_target - top), flat = smoothing > 0 ? log_sum - (mean - top) : 0;
    const double f = (a->factors ? a->factors[i] : 1) * (a->by_probability ? exp(-nll) : 1), d = w * (double)a->dscale;
    mt_row_terms t;
    t.loss = (float)(w * (f * ((1 - smoothing) * nll + smoothing * flat) + (double)a->z_loss * l * l));
    t.of_p = (float)(d * (f + 2 * (double)a->z_loss * l));
    t.of_target = (float)(d * f * (1 - smoothing));
    t.of_all = (float)(d * f * smoothing / (double)a->V);
    return t;
}

/* (H / 3)^alpha, H the entropy of the softmax over n logits, the largest first. */
MT_ANYWHERE float mt_entropy_power(const float *z, int n, float alpha)
{
    double sum = 0, entropy = 0;
    for (int i = 0; i < n; i++) sum += exp((double)z[i] - (double)z[0]);
    for (int i = 0; i < n; i++) {
        const double log_p = (double)z[i] - (double)z[0] - log(sum);
        entropy -= exp(log_p) * log_p;
    }
    return (float)pow(entropy / 3, (double)alpha);
}

#endif
