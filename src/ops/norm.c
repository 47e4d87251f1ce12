/* norm.c - y = w * xh (+ b) (+ add), xh = (x - c) * r, r = 1 / sqrt(mean((x - c)^2) + eps); c is 0, or mean(x) when centered.
 * Backward, with u = w * dy:  dx = r * (u - xh * mean(u * xh) (- mean(u) when centered)),  dw += sum over rows of dy * xh,
 * db += sum over rows of dy. */
#include "ops/ops_cpu.h"

#include <math.h>
#include <string.h>

size_t mt_norm_scratch(const mt_norm *a) { return mt_sum_scratch(a->N, a->db ? 2 * a->D : a->D); }

static int64_t x_row(const mt_norm *a, int64_t i) { return i * (a->ldx ? a->ldx : a->D); }
static int64_t dx_row(const mt_norm *a, int64_t i) { return i * (a->ld_dx ? a->ld_dx : a->D); }

static float weight(const mt_norm *a, int64_t d) { return a->w ? mt_get(a->w, a->t, d) + (a->one_plus ? 1.0f : 0.0f) : 1.0f; }

static float center(const mt_norm *a, const void *x)
{
    double sum = 0;
    for (int64_t d = 0; a->centered && d < a->D; d++) sum += (double)mt_get(x, a->t, d);
    return (float)(sum / (double)a->D);
}

static void forward_row(const mt_norm *a, int64_t i)
{
    const void *x = mt_at(a->x, a->t, x_row(a, i));
    float c = center(a, x);
    double sum = 0;
    for (int64_t d = 0; d < a->D; d++) {
        float v = mt_get(x, a->t, d) - c;
        sum += (double)v * v;
    }
    float r = (float)(1.0 / sqrt(sum / (double)a->D + (double)a->eps));
    a->rstd[i] = r;
    for (int64_t d = 0; d < a->D; d++) {
        float y = (mt_get(x, a->t, d) - c) * r * weight(a, d);
        int64_t at = i * a->D + d;
        if (a->b) y += mt_get(a->b, a->t, d);
        if (a->add) y += mt_get(a->add, a->t, at);
        mt_put(a->y, a->t, at, y);
    }
}

static void forward_block(void *arg, int64_t block)
{
    const mt_norm *a = arg;
    int64_t to = (block + 1) * MT_SUM_ROWS < a->N ? (block + 1) * MT_SUM_ROWS : a->N;
    for (int64_t i = block * MT_SUM_ROWS; i < to; i++) forward_row(a, i);
}

mt_rc mt__norm_fwd_run(mt_pool *pool, const mt_norm *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, mt_sum_blocks(a->N), forward_block, (void *)a);
    return MT_OK;
}

static void backward_row(const mt_norm *a, int64_t i, float *dw, float *db)
{
    int64_t base = i * a->D, to = dx_row(a, i);
    const void *x = mt_at(a->x, a->t, x_row(a, i));
    float r = a->rstd[i], c = center(a, x);
    double dot = 0, sum = 0;
    for (int64_t d = 0; d < a->D; d++) {
        float xh = (mt_get(x, a->t, d) - c) * r, dy = mt_get(a->dy, a->t, base + d);
        dot += (double)(weight(a, d) * dy) * xh;
        sum += (double)(weight(a, d) * dy);
        if (dw) dw[d] += dy * xh;
        if (db) db[d] += dy;
    }
    float mean = (float)(dot / (double)a->D), mean_u = a->centered ? (float)(sum / (double)a->D) : 0.0f;
    for (int64_t d = 0; d < a->D; d++) {
        float xh = (mt_get(x, a->t, d) - c) * r, dy = mt_get(a->dy, a->t, base + d);
        float dx = r * (weight(a, d) * dy - xh * mean - mean_u);
        if (a->dx_add) dx += mt_get(a->dx, a->t, to + d);
        mt_put(a->dx, a->t, to + d, dx);
    }
}

static void backward_block(void *arg, int64_t block)
{
    const mt_norm *a = arg;
    float *dw = a->dw ? (float *)a->scratch + block * a->D : NULL,
          *db = a->db ? (float *)a->scratch + (mt_sum_blocks(a->N) + block) * a->D : NULL;
    if (dw) memset(dw, 0, (size_t)a->D * sizeof *dw);
    if (db) memset(db, 0, (size_t)a->D * sizeof *db);
    int64_t to = (block + 1) * MT_SUM_ROWS < a->N ? (block + 1) * MT_SUM_ROWS : a->N;
    for (int64_t i = block * MT_SUM_ROWS; i < to; i++) backward_row(a, i, dw, db);
}

mt_rc mt__norm_bwd_run(mt_pool *pool, const mt_norm *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, mt_sum_blocks(a->N), backward_block, (void *)a);
    int64_t blocks = mt_sum_blocks(a->N);
    for (int64_t b = 0; a->dw && b < blocks; b++) mt_axpy(a->dw, 1.0f, (const float *)a->scratch + b * a->D, a->D);
    for (int64_t b = 0; a->db && b < blocks; b++) mt_axpy(a->db, 1.0f, (const float *)a->scratch + (blocks + b) * a->D, a->D);
    return MT_OK;
}
