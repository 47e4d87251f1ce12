#include "model/flops.h"

int64_t mt_flops_weights(const mt_model *m)
{
    int64_t sum = 0;
    for (int u = 0; u < m->n_units; u++)
        for (int k = 0; k < m->units[u].layout->n_weights; k++) {
            const mt_weight *w = &m->units[u].layout->weights[k];
            if (w->n_dims == 2 && (w->role != MT_W_EMBED || m->config->tied)) sum += w->n;
        }
    return sum;
}

/* Row i of a document sees min(i + 1, window) rows. */
static double visible_pairs(int64_t n, int64_t window)
{
    double all = (double)n * (double)(n + 1) / 2, beyond = window && n > window ? (double)(n - window) : 0;
    return all - beyond * (beyond + 1) / 2;
}

double mt_flops_step(const mt_model *m, const int32_t *doc_start, int64_t n_docs)
{
    const mt_config *c = m->config;
    double pairs = 0, tokens = (double)(doc_start[n_docs] - doc_start[0]);
    for (int64_t l = 0; l < c->L; l++)
        for (int64_t d = 0; d < n_docs; d++) pairs += visible_pairs(doc_start[d + 1] - doc_start[d], c->window[l]);
    return 6.0 * (double)mt_flops_weights(m) * tokens + 12.0 * (double)(c->H * c->Dh) * pairs;
}
