/* qk_prepare.c - rotary positions, with the optional norm of heads that comes before or after them.
 *
 * A head (a, b) at angle p*theta becomes (a cos - b sin, b cos + a sin) for each pair; backward rotates the
 * gradient the other way.  cos and sin carry the scaling's attention factor, so it is in both directions. */
#include "ops/ops_cpu.h"

#include <math.h>
#include <string.h>

enum { MAX_HEAD = 512 };

/* Norm weights of q, and of q and k together. */
static bool of_each_head(const mt_qk_prepare *a) { return a->whole || a->own_weights; }
static int64_t n_q_weights(const mt_qk_prepare *a) { return (of_each_head(a) ? a->H : 1) * a->Dh; }
static int64_t n_weights(const mt_qk_prepare *a) { return (of_each_head(a) ? a->H + a->K : 2) * a->Dh; }

size_t mt_qk_prepare_scratch(const mt_qk_prepare *a) { return a->dwq || a->dwk ? mt_sum_scratch(a->N, n_weights(a)) : 0; }

/* In place; direction -1 is the inverse rotation. */
static void rotate(const mt_qk_prepare *a, float *x, int64_t pos, float direction)
{
    const int64_t at = pos * (a->dr / 2);
    mt_rotate(x, a->style, a->dr, a->cos + at, a->sin + at, direction);
}

/* The heads that are normed together with head h: itself, or all of its kind. */
typedef struct span {
    int64_t first, n;
} span;

static span normed_with(const mt_qk_prepare *a, int64_t h)
{
    if (!a->whole) return (span){ h, 1 };
    return h < a->H ? (span){ 0, a->H } : (span){ a->H, a->K };
}

static bool leads(const mt_qk_prepare *a, int64_t h) { return normed_with(a, h).first == h; }

static bool is_normed(const mt_qk_prepare *a, int64_t h) { return a->bare || (h < a->H ? a->wq : a->wk); }

/* Element d of head h's norm weight. */
static float weight(const mt_qk_prepare *a, int64_t h, int64_t d)
{
    const void *w = h < a->H ? a->wq : a->wk;
    if (!w) return 1.0f;
    int64_t at = d;
    if (of_each_head(a)) at += (h < a->H ? h : h - a->H) * a->Dh;
    return mt_get(w, a->t, at) + (a->one_plus ? 1.0f : 0.0f);
}

/* Multiplies a query head of a row by its factor, after the rotation. */
static void scale_query(const mt_qk_prepare *a, float *x, int64_t h, int64_t pos)
{
    if (a->q_beta == 0 || h >= a->H) return;
    float scale = 1.0f + a->q_beta * logf((float)(1 + (pos + a->q_shift) / a->q_period));
    for (int64_t d = 0; d < a->Dh; d++) x[d] *= scale;
}

static void qk_prepare_load(const mt_qk_prepare *a, float *x, const void *row, int64_t head)
{
    mt_to_f32(x, mt_at(row, a->t, head * a->Dh), a->t, (size_t)a->Dh);
}
static void store(const mt_qk_prepare *a, void *row, int64_t head, const float *x)
{
    mt_from_f32(mt_at_mut(row, a->t, head * a->Dh), a->t, x, (size_t)a->Dh);
}

/* The input of a head's norm. */
static void load_input(const mt_qk_prepare *a, float *x, const void *row, int64_t head, int64_t pos)
{
    qk_prepare_load(a, x, row, head);
    if (a->norm_last) rotate(a, x, pos, 1.0f);
}

/* The gradient of what it writes; without a norm, of what forward read. */
static void load_gradient(const mt_qk_prepare *a, float *dx, const void *row, int64_t head, int64_t pos)
{
    qk_prepare_load(a, dx, row, head);
    scale_query(a, dx, head, pos);
    if (!a->norm_last) rotate(a, dx, pos, -1.0f);
}

/* What x becomes xh by: xh = (x - c) r. */
typedef struct stats {
    float c, r;
} stats;

static stats stats_of(const mt_qk_prepare *a, const void *row, int64_t h, int64_t pos)
{
    span s = normed_with(a, h);
    int64_t n = s.n * a->Dh;
    float in[MAX_HEAD];
    double mean = 0, sum = 0;
    for (int64_t k = s.first; a->centered && k < s.first + s.n; k++) {
        load_input(a, in, row, k, pos);
        for (int64_t d = 0; d < a->Dh; d++) mean += (double)in[d];
    }
    float c = (float)(mean / (double)n);
    for (int64_t k = s.first; k < s.first + s.n; k++) {
        load_input(a, in, row, k, pos);
        for (int64_t d = 0; d < a->Dh; d++) {
            float x = in[d] - c;
            sum += (double)x * x;
        }
    }
    return (stats){ c, (float)(1.0 / sqrt(sum / (double)n + (double)a->eps)) };
}

static void forward_row(void *arg, int64_t i)
{
    const mt_qk_prepare *a = arg;
    float x[MAX_HEAD];
    stats n = { 0 };
    const void *in = mt_at(a->qkv, a->t, i * a->ld_qkv);
    void *out = mt_at_mut(a->qk, a->t, i * a->ld_qk);
    for (int64_t h = 0; h < a->H + a->K; h++) {
        load_input(a, x, in, h, a->pos[i]);
        if (is_normed(a, h)) {
            if (leads(a, h)) n = stats_of(a, in, h, a->pos[i]);
            for (int64_t d = 0; d < a->Dh; d++) x[d] = (x[d] - n.c) * n.r * weight(a, h, d);
        }
        if (!a->norm_last) rotate(a, x, a->pos[i], 1.0f);
        scale_query(a, x, h, a->pos[i]);
        store(a, out, h, x);
    }
}

static mt_rc qk_prepare_check(const mt_qk_prepare *a, mt_err *err)
{
    if (a->Dh > MAX_HEAD) return mt_fail(err, MT_EUNSUPPORTED, "heads of width %d, at most %d", (int)a->Dh, MAX_HEAD);
    if (a->q_beta != 0 && (a->wq || a->wk || a->bare || a->norm_last))
        return mt_fail(err, MT_EUNSUPPORTED, "query heads that are scaled by position and have a norm are not supported");
    return MT_OK;
}

mt_rc mt__qk_prepare_fwd_run(mt_pool *pool, const mt_qk_prepare *a, mt_err *err)
{
    MT_TRY(qk_prepare_check(a, err));
    mt_pool_for(pool, a->N, forward_row, (void *)a);
    return MT_OK;
}

/* Means over the heads normed with h, u = w * the gradient of what the norm wrote. */
typedef struct means {
    float u_xh, u; /* of u * xh; of u, when centered */
} means;

static means means_of(const mt_qk_prepare *a, const void *row, const void *grad, int64_t pos, int64_t h, stats n)
{
    span s = normed_with(a, h);
    float x[MAX_HEAD], dx[MAX_HEAD];
    double dot = 0, sum = 0;
    for (int64_t k = s.first; k < s.first + s.n; k++) {
        load_input(a, x, row, k, pos);
        load_gradient(a, dx, grad, k, pos);
        for (int64_t d = 0; d < a->Dh; d++) {
            float u = weight(a, k, d) * dx[d];
            dot += (double)u * ((x[d] - n.c) * n.r);
            sum += (double)u;
        }
    }
    double width = (double)(s.n * a->Dh);
    return (means){ (float)(dot / width), a->centered ? (float)(sum / width) : 0.0f };
}

static void backward_row(const mt_qk_prepare *a, int64_t i, float *sums)
{
    float x[MAX_HEAD], dx[MAX_HEAD];
    stats n = { 0 };
    means m = { 0 };
    const void *row = mt_at(a->qkv, a->t, i * a->ld_qkv);
    void *grad = mt_at_mut(a->dqkv, a->t, i * a->ld_dqkv);
    for (int64_t h = 0; h < a->H + a->K; h++) {
        bool normed = is_normed(a, h);
        if (normed && leads(a, h)) {
            n = stats_of(a, row, h, a->pos[i]);
            m = means_of(a, row, grad, a->pos[i], h, n);
        }
        load_gradient(a, dx, grad, h, a->pos[i]);
        if (normed) {
            const int64_t owner = of_each_head(a) ? h : h >= a->H;
            float *dw = sums ? sums + owner * a->Dh : NULL;
            load_input(a, x, row, h, a->pos[i]);
            for (int64_t d = 0; d < a->Dh; d++) {
                float xh = (x[d] - n.c) * n.r;
                if (dw) dw[d] += dx[d] * xh;
                dx[d] = n.r * (weight(a, h, d) * dx[d] - xh * m.u_xh - m.u);
            }
        }
        if (a->norm_last) rotate(a, dx, a->pos[i], -1.0f);
        store(a, grad, h, dx);
    }
}

static void backward_block(void *arg, int64_t block)
{
    const mt_qk_prepare *a = arg;
    float *sums = a->dwq || a->dwk ? (float *)a->scratch + block * n_weights(a) : NULL;
    if (sums) memset(sums, 0, (size_t)n_weights(a) * sizeof *sums);
    int64_t to = (block + 1) * MT_SUM_ROWS < a->N ? (block + 1) * MT_SUM_ROWS : a->N;
    for (int64_t i = block * MT_SUM_ROWS; i < to; i++) backward_row(a, i, sums);
}

mt_rc mt__qk_prepare_bwd_run(mt_pool *pool, const mt_qk_prepare *a, mt_err *err)
{
    MT_TRY(qk_prepare_check(a, err));
    mt_pool_for(pool, mt_sum_blocks(a->N), backward_block, (void *)a);
    int64_t n_q = n_q_weights(a), n_k = n_weights(a) - n_q;
    for (int64_t b = 0; (a->dwq || a->dwk) && b < mt_sum_blocks(a->N); b++) {
        const float *sums = (const float *)a->scratch + b * n_weights(a);
        if (a->dwq) mt_axpy(a->dwq, 1.0f, sums, n_q);
        if (a->dwk) mt_axpy(a->dwk, 1.0f, sums + n_q, n_k);
    }
    return MT_OK;
}
