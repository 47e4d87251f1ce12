#include "plan/flops.h"

int64_t mt_flops_weights(const mt_config *c)
{
    int64_t layer = c->D * (c->H + 2 * c->K) * c->Dh + c->H * c->Dh * c->D + c->D * (mt_config_gu(c) + c->F);
    return c->L * layer + c->D * c->V;
}

/* 1 + 2 + ... capped at the window. */
double mt_flops_keys(int64_t n, int64_t window)
{
    int64_t ramp = window && window < n ? window : n;
    return (double)ramp * (double)(ramp + 1) / 2 + (double)(n - ramp) * (double)ramp;
}

double mt_flops_step(const mt_config *c, const int32_t *doc_start, int64_t n_docs, int64_t n_trained)
{
    double keys = 0, n = doc_start[n_docs] - doc_start[0], head = (double)(c->D * c->V);
    for (int64_t d = 0; d < n_docs; d++)
        for (int64_t l = 0; l < c->L; l++) keys += mt_flops_keys(doc_start[d + 1] - doc_start[d], c->window[l]);
    return 6.0 * (((double)mt_flops_weights(c) - head) * n + head * (double)n_trained) + 12.0 * (double)(c->H * c->Dh) * keys;
}
