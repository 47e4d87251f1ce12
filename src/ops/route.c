/* route.c - the experts of each row, their weights, and the gradient of the router logits.
 *
 * A row is a few hundred numbers: everything is done row by row in fp32, one row per task.  What a router kind means is in ops.h;
 * the formulas of the gradients are beside the code that computes them. */
#include "ops/ops_cpu.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Partial sums of the probabilities and partial counts, one of each per block of rows. */
size_t mt_route_scratch(const mt_route *a) { return a->aux_counts ? 2 * mt_sum_scratch(a->N, a->E) : 0; }

size_t mt_router_loss_scratch(const mt_router_loss *a)
{
    (void)a;
    return 0;
}

static float scale_of(const mt_route *a) { return a->scale != 0 ? a->scale : 1.0f; }
static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* -- choosing -------------------------------------------------------------------------------------- */

/* The eligible expert with the largest value, the lowest of equal ones; -1: none is eligible. */
static int64_t largest(const float *value, const bool *eligible, int64_t from, int64_t to)
{
    int64_t best = -1;
    float top = -INFINITY;
    for (int64_t e = from; e < to; e++) {
        float v = isnan(value[e]) ? -INFINITY : value[e];
        if (!eligible[e] || (best >= 0 && !(v > top))) continue;
        best = e;
        top = v;
    }
    return best;
}

/* chosen[e] for the T largest of the eligible experts. */
static void choose(bool *chosen, const float *value, bool *eligible, int64_t E, int64_t T)
{
    for (int64_t e = 0; e < E; e++) chosen[e] = false;
    for (int64_t k = 0; k < T; k++) {
        int64_t e = largest(value, eligible, 0, E);
        chosen[e] = true;
        eligible[e] = false;
    }
}

/* Leaves only experts of the best groups eligible. */
static void limit_to_groups(const mt_route *a, const float *value, bool *eligible)
{
    bool group_free[MT_ROUTE_EXPERTS];
    float score[MT_ROUTE_EXPERTS];
    int64_t per_group = a->E / a->n_group;
    for (int64_t g = 0; g < a->n_group; g++) {
        int64_t from = g * per_group, to = from + per_group, first = largest(value, eligible, from, to);
        group_free[g] = true;
        score[g] = value[first];
        if (a->kind != MT_ROUTE_SIGMOID) continue;
        eligible[first] = false;
        int64_t second = largest(value, eligible, from, to);
        eligible[first] = true;
        if (second >= 0) score[g] += value[second];
    }
    memset(eligible, 0, (size_t)a->E * sizeof *eligible);
    for (int64_t k = 0; k < a->topk_group; k++) {
        int64_t g = largest(score, group_free, 0, a->n_group);
        group_free[g] = false;
        for (int64_t e = g * per_group; e < (g + 1) * per_group; e++) eligible[e] = true;
    }
}

/* p = softmax of the logits of experts with in[e] (NULL: of all); 0 elsewhere. */
static void softmax(float *p, const float *logits, const bool *in, int64_t E)
{
    float top = -INFINITY, sum = 0;
    for (int64_t e = 0; e < E; e++)
        if (!in || in[e]) top = fmaxf(top, logits[e]);
    for (int64_t e = 0; e < E; e++) {
        p[e] = !in || in[e] ? expf(logits[e] - top) : 0.0f;
        sum += p[e];
    }
    for (int64_t e = 0; e < E; e++) p[e] /= sum;
}

/* The experts that the sparse mixer compares with the largest of those that are left. */
static void mixer_set(const mt_route *a, const float *logits, const bool *left, int64_t first, bool *in)
{
    float top = logits[first];
    for (int64_t e = 0; e < a->E; e++) {
        float ratio = (top - logits[e]) / fmaxf(fabsf(logits[e]), top);
        in[e] = left[e] && !(ratio > 2 * a->jitter);
    }
}

/* The scores of all experts, from which weights are computed.  MIXER has none. */
static void scores_of(const mt_route *a, const float *logits, const bool *chosen, float *score)
{
    if (a->kind == MT_ROUTE_SOFTMAX) softmax(score, logits, NULL, a->E);
    if (a->kind == MT_ROUTE_CHOSEN) softmax(score, logits, chosen, a->E);
    if (a->kind == MT_ROUTE_SIGMOID || a->kind == MT_ROUTE_LOGIT_SIGMOID)
        for (int64_t e = 0; e < a->E; e++) score[e] = sigmoid(logits[e]);
}

/* The scores by which experts are chosen. */
static void choice_of(const mt_route *a, const float *logits, float *value)
{
    bool by_score = a->kind == MT_ROUTE_SIGMOID || (a->kind == MT_ROUTE_SOFTMAX && a->bias);
    if (by_score)
        scores_of(a, logits, NULL, value);
    else
        memcpy(value, logits, (size_t)a->E * sizeof *value);
    for (int64_t e = 0; by_score && a->bias && e < a->E; e++) value[e] += a->bias[e];
}

/* The sum over the chosen that normalized scores are divided by; *free: it follows the scores (the floor does not hold it). */
static float divisor_of(const mt_route *a, const float *score, const bool *chosen, bool *is_free)
{
    float sum = 0;
    for (int64_t e = 0; e < a->E; e++)
        if (chosen[e]) sum += score[e];
    sum += a->norm_eps;
    *is_free = sum >= a->norm_floor;
    return *is_free ? sum : a->norm_floor;
}

/* The two experts of the mixer one after the other; the weight of each in w[e]. */
static void mix(const mt_route *a, const float *logits, bool *chosen, float *w)
{
    bool left[MT_ROUTE_EXPERTS], in[MT_ROUTE_EXPERTS];
    float p[MT_ROUTE_EXPERTS];
    for (int64_t e = 0; e < a->E; e++) left[e] = true, chosen[e] = false;
    for (int64_t k = 0; k < a->T; k++) {
        int64_t e = largest(logits, left, 0, a->E);
        mixer_set(a, logits, left, e, in);
        softmax(p, logits, in, a->E);
        w[e] = p[e] * scale_of(a);
        chosen[e] = true;
        left[e] = false;
    }
}

static void pick(const mt_route *a, const float *logits, bool *chosen, float *w)
{
    float value[MT_ROUTE_EXPERTS];
    bool eligible[MT_ROUTE_EXPERTS], is_free;
    for (int64_t e = 0; e < a->E; e++) eligible[e] = true;
    choice_of(a, logits, value);
    if (a->n_group > 1) limit_to_groups(a, value, eligible);
    choose(chosen, value, eligible, a->E, a->T);
    scores_of(a, logits, chosen, w);
    float by = scale_of(a), divisor = a->norm ? divisor_of(a, w, chosen, &is_free) : 1.0f;
    for (int64_t e = 0; e < a->E; e++) w[e] = w[e] / divisor * by;
}

static void forward_row(void *arg, int64_t n)
{
    const mt_route *a = arg;
    bool chosen[MT_ROUTE_EXPERTS];
    float w[MT_ROUTE_EXPERTS];
    if (a->kind == MT_ROUTE_MIXER)
        mix(a, a->logits + n * a->E, chosen, w);
    else
        pick(a, a->logits + n * a->E, chosen, w);
    for (int64_t e = 0, k = n * a->T; e < a->E; e++) {
        if (!chosen[e]) continue;
        a->experts[k] = (int32_t)e;
        a->weights[k++] = w[e];
    }
}

/* -- the auxiliary loss ---------------------------------------------------------------------------- */

static float *block_probs(const mt_route *a, int64_t block) { return (float *)a->scratch + block * a->E; }
static int32_t *block_counts(const mt_route *a, int64_t block)
{
    return (int32_t *)((char *)a->scratch + mt_sum_scratch(a->N, a->E)) + block * a->E;
}

static void aux_block(void *arg, int64_t block)
{
    const mt_route *a = arg;
    float *probs = block_probs(a, block), p[MT_ROUTE_EXPERTS];
    int32_t *counts = block_counts(a, block);
    bool chosen[MT_ROUTE_EXPERTS], eligible[MT_ROUTE_EXPERTS];
    memset(probs, 0, (size_t)a->E * sizeof *probs);
    memset(counts, 0, (size_t)a->E * sizeof *counts);
    int64_t to = (block + 1) * MT_SUM_ROWS < a->N ? (block + 1) * MT_SUM_ROWS : a->N;
    for (int64_t n = block * MT_SUM_ROWS; n < to; n++) {
        const float *logits = a->logits + n * a->E;
        for (int64_t e = 0; e < a->E; e++) eligible[e] = true;
        choose(chosen, logits, eligible, a->E, a->T);
        softmax(p, logits, NULL, a->E);
        for (int64_t e = 0; e < a->E; e++) {
            probs[e] += p[e];
            counts[e] += chosen[e];
        }
    }
}

mt_rc mt_route_check(const mt_route *a, mt_err *err)
{
    long long E = a->E, T = a->T, groups = a->n_group, kept = a->topk_group;
    if (E < 1 || E > MT_ROUTE_EXPERTS)
        return mt_fail(err, MT_EINTERNAL, "route: %lld experts, expected 1 to %d", E, MT_ROUTE_EXPERTS);
    if (T < 1 || T > E) return mt_fail(err, MT_EINTERNAL, "route: %lld experts a row, expected 1 to %lld", T, E);
    if (groups <= 1) return MT_OK;
    if (E % groups) return mt_fail(err, MT_EINTERNAL, "route: %lld experts in %lld groups, expected a multiple", E, groups);
    if (kept < 1 || kept > groups || kept * (E / groups) < T)
        return mt_fail(err, MT_EINTERNAL, "route: %lld of %lld groups of %lld experts do not hold %lld", kept, groups, E / groups,
                       T);
    return MT_OK;
}

mt_rc mt__route_fwd_run(mt_pool *pool, const mt_route *a, mt_err *err)
{
    MT_TRY(mt_route_check(a, err));
    mt_pool_for(pool, a->N, forward_row, (void *)a);
    if (!a->aux_counts) return MT_OK;
    mt_pool_for(pool, mt_sum_blocks(a->N), aux_block, (void *)a);
    for (int64_t b = 0; b < mt_sum_blocks(a->N); b++)
        for (int64_t e = 0; e < a->E; e++) {
            a->aux_probs[e] += block_probs(a, b)[e];
            a->aux_counts[e] += block_counts(a, b)[e];
        }
    return MT_OK;
}

mt_rc mt__router_loss_run(mt_pool *pool, const mt_router_loss *a, mt_err *err)
{
    (void)pool, (void)err;
    double sum = 0;
    for (int64_t e = 0; e < a->E; e++) sum += (double)a->counts[e] * (double)a->probs[e];
    *a->sum += a->scale * sum;
    return MT_OK;
}

/* -- gradients ------------------------------------------------------------------------------------- */

/* Each weight is p_e of a softmax over a set: dl_j = dw p_e ([j = e] - p_j). */
static void mix_back(const mt_route *a, const float *logits, const bool *chosen, const float *dw, float *dl)
{
    bool left[MT_ROUTE_EXPERTS], in[MT_ROUTE_EXPERTS], free_choice[MT_ROUTE_EXPERTS];
    float p[MT_ROUTE_EXPERTS];
    for (int64_t e = 0; e < a->E; e++) left[e] = true, free_choice[e] = chosen[e], dl[e] = 0;
    for (int64_t k = 0; k < a->T; k++) {
        int64_t e = largest(logits, free_choice, 0, a->E);
        mixer_set(a, logits, left, e, in);
        softmax(p, logits, in, a->E);
        float d = dw[e] * p[e] * scale_of(a);
        for (int64_t j = 0; j < a->E; j++) dl[j] += d * ((float)(j == e) - p[j]);
        free_choice[e] = left[e] = false;
    }
}

/* w_e = scale s_e / n, n the sum over the chosen: ds_e = scale / n (dw_e - sum of dw_k s_k / n); without norm: scale dw_e. */
static void scores_back(const mt_route *a, const float *score, const bool *chosen, const float *dw, float *ds)
{
    bool is_free = false;
    float n = a->norm ? divisor_of(a, score, chosen, &is_free) : 1.0f, mean = 0;
    for (int64_t e = 0; is_free && e < a->E; e++)
        if (chosen[e]) mean += dw[e] * score[e] / n;
    for (int64_t e = 0; e < a->E; e++) ds[e] = chosen[e] ? scale_of(a) / n * (dw[e] - mean) : 0.0f;
}

/* A softmax's: dl_e = p_e (ds_e - sum of ds_k p_k).  A sigmoid's: ds s (1 - s). */
static void logits_back(const mt_route *a, const float *logits, const bool *chosen, const float *dw, float *dl)
{
    float score[MT_ROUTE_EXPERTS], ds[MT_ROUTE_EXPERTS], mean = 0;
    scores_of(a, logits, chosen, score);
    scores_back(a, score, chosen, dw, ds);
    bool by_softmax = a->kind == MT_ROUTE_SOFTMAX || a->kind == MT_ROUTE_CHOSEN;
    for (int64_t e = 0; e < a->E; e++) mean += ds[e] * score[e];
    for (int64_t e = 0; e < a->E; e++) dl[e] = score[e] * (by_softmax ? ds[e] - mean : ds[e] * (1.0f - score[e]));
}

static void aux_back(const mt_route *a, const float *logits, float *dl)
{
    float p[MT_ROUTE_EXPERTS], mean = 0;
    softmax(p, logits, NULL, a->E);
    for (int64_t e = 0; e < a->E; e++) mean += (float)a->aux_counts[e] * p[e];
    for (int64_t e = 0; e < a->E; e++) dl[e] += a->aux_scale * p[e] * ((float)a->aux_counts[e] - mean);
}

static void backward_row(void *arg, int64_t n)
{
    const mt_route *a = arg;
    const float *logits = a->logits + n * a->E;
    float dw[MT_ROUTE_EXPERTS] = { 0 }, dl[MT_ROUTE_EXPERTS];
    bool chosen[MT_ROUTE_EXPERTS] = { 0 };
    for (int64_t k = n * a->T; k < (n + 1) * a->T; k++) {
        chosen[a->experts[k]] = true;
        dw[a->experts[k]] = a->dweights[k];
    }
    if (a->kind == MT_ROUTE_MIXER)
        mix_back(a, logits, chosen, dw, dl);
    else
        logits_back(a, logits, chosen, dw, dl);
    if (a->aux_counts) aux_back(a, logits, dl);
    for (int64_t e = 0; e < a->E; e++) mt_put(a->dlogits, a->t, n * a->E + e, dl[e]);
}

mt_rc mt__route_bwd_run(mt_pool *pool, const mt_route *a, mt_err *err)
{
    MT_TRY(mt_route_check(a, err));
    mt_pool_for(pool, a->N, backward_row, (void *)a);
    return MT_OK;
}
