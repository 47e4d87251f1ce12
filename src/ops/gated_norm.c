/* gated_norm.c - y = w * xh * silu(z), xh = x * r, r = 1 / sqrt(mean(x^2) + eps), per row and head.
 * Backward, with u = dy * silu(z) and v = w * u:  dx = r * (v - xh * mean(v * xh)),  dw += sum over rows and heads of u * xh,
 * dz = dy * w * xh * silu'(z). */
#include "base/mem.h"
#include "ops/ops_cpu.h"

#include <math.h>
#include <string.h>

size_t mt_gated_norm_scratch(const mt_gated_norm *a) { return (size_t)(mt_sum_blocks(a->N * a->H) * a->D) * sizeof(float); }

static float rstd_of(const mt_gated_norm *a, int64_t base)
{
    double sum = 0;
    for (int64_t d = 0; d < a->D; d++) {
        float x = mt_get(a->x, a->t, base + d);
        sum += (double)x * x;
    }
    return (float)(1.0 / sqrt(sum / (double)a->D + (double)a->eps));
}

static float silu(float z, float *slope)
{
    float s = 1.0f / (1.0f + expf(-z));
    *slope = s * (1.0f + z * (1.0f - s));
    return z * s;
}

/* Item `at` is a row and a head. */
static void forward_item(const mt_gated_norm *a, int64_t at)
{
    int64_t i = at / a->H, head = at % a->H * a->D, x = i * a->ldx + head, z = i * a->ld_gate + head, y = i * a->ldy + head;
    float r = rstd_of(a, x), slope;
    for (int64_t d = 0; d < a->D; d++)
        mt_put(a->y, a->t, y + d,
               mt_get(a->x, a->t, x + d) * r * mt_get(a->w, a->t, d) * silu(mt_get(a->gate, a->t, z + d), &slope));
}

static void forward_row(void *arg, int64_t i)
{
    const mt_gated_norm *a = arg;
    for (int64_t h = 0; h < a->H; h++) forward_item(a, i * a->H + h);
}

mt_rc mt__gated_norm_fwd_run(mt_pool *pool, const mt_gated_norm *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, a->N, forward_row, (void *)a);
    return MT_OK;
}

/* All inputs of an element are read before its outputs are written; the mean was taken before that. */
static void backward_item(const mt_gated_norm *a, int64_t at, float *dw)
{
    int64_t i = at / a->H, head = at % a->H * a->D, x = i * a->ldx + head, z = i * a->ld_gate + head, y = i * a->ldy + head;
    float r = rstd_of(a, x), slope, mean;
    double sum = 0;
    for (int64_t d = 0; d < a->D; d++) {
        float u = mt_get(a->dy, a->t, y + d) * silu(mt_get(a->gate, a->t, z + d), &slope), xh = mt_get(a->x, a->t, x + d) * r;
        sum += (double)(mt_get(a->w, a->t, d) * u * xh);
        dw[d] += u * xh;
    }
    mean = (float)(sum / (double)a->D);
    for (int64_t d = 0; d < a->D; d++) {
        float dy = mt_get(a->dy, a->t, y + d), w = mt_get(a->w, a->t, d), xh = mt_get(a->x, a->t, x + d) * r;
        float act = silu(mt_get(a->gate, a->t, z + d), &slope);
        mt_put(a->dx, a->t, i * a->ld_dx + head + d, r * (w * dy * act - xh * mean));
        mt_put(a->dgate, a->t, i * a->ld_dgate + head + d, dy * w * xh * slope);
        if (a->y) mt_put(a->y, a->t, y + d, xh * w * act);
    }
}

static void backward_block(void *arg, int64_t block)
{
    const mt_gated_norm *a = arg;
    float *dw = (float *)a->scratch + block * a->D;
    memset(dw, 0, (size_t)a->D * sizeof *dw);
    int64_t to = mt_min_i64(a->N * a->H, (block + 1) * MT_SUM_ROWS);
    for (int64_t at = block * MT_SUM_ROWS; at < to; at++) backward_item(a, at, dw);
}

mt_rc mt__gated_norm_bwd_run(mt_pool *pool, const mt_gated_norm *a, mt_err *err)
{
    (void)err;
    int64_t blocks = mt_sum_blocks(a->N * a->H);
    mt_pool_for(pool, blocks, backward_block, (void *)a);
    for (int64_t b = 0; a->dw && b < blocks; b++) mt_axpy(a->dw, 1.0f, (const float *)a->scratch + b * a->D, a->D);
    return MT_OK;
}
