/* rope.c - rotary positions, with the optional per-head RMS norm that comes before them.
 *
 * A head (a, b) at angle p*theta becomes (a cos - b sin, b cos + a sin) for each pair; backward rotates the
 * gradient the other way.  cos and sin carry the scaling's attention factor, so it is in both directions. */
#include "ops/ops_cpu.h"

#include <math.h>
#include <string.h>

enum { MAX_HEAD = 512 };

size_t mt_rope_scratch(const mt_rope *a) { return a->dwq || a->dwk ? mt_sum_scratch(a->N, 2 * a->Dh) : 0; }

/* In place; direction -1 is the inverse rotation. */
static void rotate(const mt_rope *a, float *x, int64_t pos, float direction)
{
    int64_t half = a->dr / 2;
    const float *cos_row = a->cos + pos * half, *sin_row = a->sin + pos * half;
    if (a->style == MT_ROPE_NONE) return;
    for (int64_t j = 0; j < half; j++) {
        float *p = a->style == MT_ROPE_HALF ? &x[j] : &x[2 * j];
        float *q = a->style == MT_ROPE_HALF ? &x[j + half] : &x[2 * j + 1];
        float c = cos_row[j], s = direction * sin_row[j], u = *p, v = *q;
        *p = u * c - v * s;
        *q = v * c + u * s;
    }
}

static float head_rstd(const mt_rope *a, const float *x)
{
    double sum = 0;
    for (int64_t d = 0; d < a->Dh; d++) sum += (double)x[d] * x[d];
    return (float)(1.0 / sqrt(sum / (double)a->Dh + (double)a->eps));
}

static float weight(const mt_rope *a, const void *w, int64_t d) { return mt_get(w, a->t, d) + (a->one_plus ? 1.0f : 0.0f); }

static void load(const mt_rope *a, float *x, const void *row, int64_t head) { mt_to_f32(x, mt_at(row, a->t, head * a->Dh), a->t, (size_t)a->Dh); }
static void store(const mt_rope *a, void *row, int64_t head, const float *x)
{
    mt_from_f32(mt_at_mut(row, a->t, head * a->Dh), a->t, x, (size_t)a->Dh);
}

static void forward_row(void *arg, int64_t i)
{
    const mt_rope *a = arg;
    float x[MAX_HEAD];
    const void *in = mt_at(a->qkv, a->t, i * a->ld_qkv);
    void *out = mt_at_mut(a->qk, a->t, i * a->ld_qk);
    for (int64_t h = 0; h < a->H + a->K; h++) {
        const void *w = h < a->H ? a->wq : a->wk;
        load(a, x, in, h);
        if (w) {
            float r = head_rstd(a, x);
            for (int64_t d = 0; d < a->Dh; d++) x[d] = x[d] * r * weight(a, w, d);
        }
        rotate(a, x, a->pos[i], 1.0f);
        store(a, out, h, x);
    }
}

static mt_rc check(const mt_rope *a, mt_err *err)
{
    return a->Dh > MAX_HEAD ? mt_fail(err, MT_EUNSUPPORTED, "heads of width %d, at most %d", (int)a->Dh, MAX_HEAD) : MT_OK;
}

mt_rc mt__rope_fwd_run(mt_pool *pool, const mt_rope *a, mt_err *err)
{
    MT_TRY(check(a, err));
    mt_pool_for(pool, a->N, forward_row, (void *)a);
    return MT_OK;
}

static void norm_backward(const mt_rope *a, const float *x, float *dx, const void *w, float *dw)
{
    float r = head_rstd(a, x);
    double dot = 0;
    for (int64_t d = 0; d < a->Dh; d++) {
        float xh = x[d] * r;
        dot += (double)(weight(a, w, d) * dx[d]) * xh;
        if (dw) dw[d] += dx[d] * xh;
    }
    float mean = (float)(dot / (double)a->Dh);
    for (int64_t d = 0; d < a->Dh; d++) dx[d] = r * (weight(a, w, d) * dx[d] - x[d] * r * mean);
}

static void backward_block(void *arg, int64_t block)
{
    const mt_rope *a = arg;
    float x[MAX_HEAD], dx[MAX_HEAD];
    float *sums = a->dwq || a->dwk ? (float *)a->scratch + block * 2 * a->Dh : NULL;
    if (sums) memset(sums, 0, (size_t)(2 * a->Dh) * sizeof *sums);
    int64_t to = (block + 1) * MT_SUM_ROWS < a->N ? (block + 1) * MT_SUM_ROWS : a->N;
    for (int64_t i = block * MT_SUM_ROWS; i < to; i++) {
        void *grad = mt_at_mut(a->dqkv, a->t, i * a->ld_dqkv);
        for (int64_t h = 0; h < a->H + a->K; h++) {
            bool is_q = h < a->H;
            const void *w = is_q ? a->wq : a->wk;
            load(a, dx, grad, h);
            rotate(a, dx, a->pos[i], -1.0f);
            if (w) {
                load(a, x, mt_at(a->qkv, a->t, i * a->ld_qkv), h);
                norm_backward(a, x, dx, w, sums ? sums + (is_q ? 0 : a->Dh) : NULL);
            }
            store(a, grad, h, dx);
        }
    }
}

mt_rc mt__rope_bwd_run(mt_pool *pool, const mt_rope *a, mt_err *err)
{
    MT_TRY(check(a, err));
    mt_pool_for(pool, mt_sum_blocks(a->N), backward_block, (void *)a);
    for (int64_t b = 0; (a->dwq || a->dwk) && b < mt_sum_blocks(a->N); b++) {
        const float *sums = (const float *)a->scratch + b * 2 * a->Dh;
        if (a->dwq) mt_axpy(a->dwq, 1.0f, sums, a->Dh);
        if (a->dwk) mt_axpy(a->dwk, 1.0f, sums + a->Dh, a->Dh);
    }
    return MT_OK;
}
