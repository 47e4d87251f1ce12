#include "model/flops.h"

#include "model/layer.h"

/* Multiplications of a row's products in forward, for a kind of layer. */
static double weights_of(const mt_layer_kind *k)
{
    double sum = 0;
    for (int i = 0; i < k->n_work; i++)
        if (k->work[i].kind == MT_WORK_PRODUCT && k->work[i].when == MT_IN_FORWARD) sum += k->work[i].n * k->work[i].k;
    return sum;
}

int64_t mt_flops_weights(const mt_model *m)
{
    double sum = (double)(m->config->D * m->config->V);
    for (int l = 0; l < m->config->L; l++) sum += weights_of(mt_layer_kind_of(m, l));
    return (int64_t)sum;
}

/* 1 + 2 + ... capped at the window. */
static double keys_in_window(int64_t n, int64_t window)
{
    int64_t ramp = window && window < n ? window : n;
    return (double)ramp * (double)(ramp + 1) / 2 + (double)(n - ramp) * (double)ramp;
}

double mt_flops_keys(int64_t n, const mt_attention *a)
{
    if (!a->chunk) return keys_in_window(n, a->window);
    return (double)(n / a->chunk) * keys_in_window(a->chunk, a->window) + keys_in_window(n % a->chunk, a->window);
}

/* Width of scores and values times keys seen, over the documents of a step. */
static double attention_of(const mt_layer_kind *k, const int32_t *doc_start, int64_t n_docs)
{
    double sum = 0;
    for (int i = 0; i < k->n_work; i++) {
        const mt_work_item *w = &k->work[i];
        double keys = 0;
        if (w->kind != MT_WORK_ATTENTION) continue;
        for (int64_t d = 0; d < n_docs; d++) keys += mt_flops_keys(doc_start[d + 1] - doc_start[d], &w->attention);
        sum += (w->n + w->k) * keys;
    }
    return sum;
}

/* Multiplications of the delta rule per row: those with its state. */
static double delta_of(const mt_layer_kind *k)
{
    double sum = 0;
    for (int i = 0; i < k->n_work; i++)
        if (k->work[i].kind == MT_WORK_DELTA) sum += 3 * k->work[i].n;
    return sum;
}

double mt_flops_step(const mt_model *m, const int32_t *doc_start, int64_t n_docs, int64_t n_trained)
{
    double attention = 0, delta = 0, n = doc_start[n_docs] - doc_start[0], head = (double)(m->config->D * m->config->V);
    for (int k = 0; k < m->n_kinds; k++) {
        int layers = 0;
        for (int l = 0; l < m->config->L; l++) layers += m->kind_of_layer[l] == k;
        attention += layers * attention_of(&m->kinds[k], doc_start, n_docs);
        delta += layers * delta_of(&m->kinds[k]);
    }
    return 6.0 * (((double)mt_flops_weights(m) - head + delta) * n + head * (double)n_trained) + 6.0 * attention;
}
