/* activation.c - y = act(gate) * up.   dgate = dy * up * act'(gate),   dup = dy * act(gate).   Plain: up is 1 and has no place.
 * With weights, y and the dy of dgate and dup are times the row's weight, and the weight's gradient is the sum of dy act(gate)
 * up; where they are of the input, gate and up are times the weight instead. */
#include "ops/ops_cpu.h"

#include <math.h>

size_t mt_activation_scratch(const mt_activation *a)
{
    if (a->act != MT_ACT_XIELU) return 0;
    size_t rows = mt_sum_scratch(a->N, 2), blocks = 2 * MT_XIELU_BLOCKS * sizeof(float);
    return rows > blocks ? rows : blocks;
}

/* The two numbers xIELU is made of. */
typedef struct curve {
    float p, n;
} curve;

static float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

static curve curve_of(const mt_activation *a)
{
    if (a->act != MT_ACT_XIELU) return (curve){ 0 };
    return (curve){ softplus(*a->alpha_p), MT_XIELU_BETA + softplus(*a->alpha_n) };
}

static float xielu(curve k, float x, float *slope)
{
    if (x > 0) {
        *slope = 2.0f * k.p * x + MT_XIELU_BETA;
        return k.p * x * x + MT_XIELU_BETA * x;
    }
    float e = expm1f(fminf(x, MT_XIELU_EPS));
    *slope = (x < MT_XIELU_EPS ? e : -1.0f) * k.n + MT_XIELU_BETA;
    return (e - x) * k.n + MT_XIELU_BETA * x;
}

/* act(x), and its derivative through *slope. */
static float activate(mt_act act, curve shape, float x, float *slope)
{
    if (act == MT_ACT_XIELU) return xielu(shape, x, slope);
    if (act == MT_ACT_SILU) {
        float s = 1.0f / (1.0f + expf(-x));
        *slope = s * (1.0f + x * (1.0f - s));
        return x * s;
    }
    if (act == MT_ACT_GELU_TANH) {
        const float k = 0.7978845608f, c = 0.044715f; /* sqrt(2/pi) */
        float th = tanhf(k * (x + c * x * x * x));
        *slope = 0.5f * (1.0f + th) + 0.5f * x * (1.0f - th * th) * k * (1.0f + 3.0f * c * x * x);
        return 0.5f * x * (1.0f + th);
    }
    if (act == MT_ACT_RELU || act == MT_ACT_RELU2) {
        float y = x > 0 ? x : 0.0f;
        *slope = act == MT_ACT_RELU ? (float)(x > 0) : 2.0f * y;
        return act == MT_ACT_RELU ? y : y * y;
    }
    float cdf = 0.5f * (1.0f + erff(x * 0.7071067812f));
    *slope = cdf + x * 0.3989422804f * expf(-0.5f * x * x);
    return x * cdf;
}

/* The result of a gate and its up: y = act * by, with the derivatives of both. */
typedef struct gated {
    float act, by, act_slope, by_slope;
} gated;

static gated gate_up(const mt_activation *a, curve shape, float gate, float up)
{
    gated g = { .by = up, .by_slope = 1.0f };
    if (a->act != MT_ACT_CLAMPED) {
        g.act = activate(a->act, shape, gate, &g.act_slope);
        return g;
    }
    float x = fminf(gate, a->limit), s = 1.0f / (1.0f + expf(-a->steep * x));
    g.act = x * s;
    g.act_slope = gate > a->limit ? 0.0f : s * (1.0f + a->steep * x * (1.0f - s));
    g.by = fminf(fmaxf(up, -a->limit), a->limit) + 1.0f;
    g.by_slope = up < -a->limit || up > a->limit ? 0.0f : 1.0f;
    return g;
}

static int64_t n_rows(const mt_activation *a) { return a->first ? *a->last - *a->first : a->N; }

/* The pair of packed row i; with weights. */
static int64_t pair_of(const mt_activation *a, int64_t i) { return a->order[(a->first ? *a->first : 0) + i]; }
static float weight_of(const mt_activation *a, int64_t i) { return a->weights ? a->weights[pair_of(a, i)] : 1.0f; }

static void forward_row(void *arg, int64_t i)
{
    const mt_activation *a = arg;
    float w = weight_of(a, i), in = a->weigh_input ? w : 1.0f, out = a->weigh_input ? 1.0f : w;
    const curve shape = curve_of(a);
    int64_t base = i * (a->plain ? a->F : 2 * a->F);
    for (int64_t f = 0; f < a->F; f++) {
        float gate = mt_get(a->gu, a->t, base + f) * in, up = a->plain ? 1.0f : mt_get(a->gu, a->t, base + a->F + f) * in;
        gated g = gate_up(a, shape, gate, up);
        mt_put(a->y, a->t, i * a->F + f, g.act * g.by * out);
    }
}

static mt_rc activation_check(const mt_activation *a, mt_err *err)
{
    if (a->act == MT_ACT_XIELU && (!a->plain || a->first || a->weights))
        return mt_fail(err, MT_EUNSUPPORTED, "xIELU with a gate or experts is not supported");
    if (a->plain && (a->act == MT_ACT_CLAMPED || a->weigh_input))
        return mt_fail(err, MT_EUNSUPPORTED, "a clamped activation and weights of its input need a gate");
    return MT_OK;
}

mt_rc mt__activation_fwd_run(mt_pool *pool, const mt_activation *a, mt_err *err)
{
    MT_TRY(activation_check(a, err));
    mt_pool_for(pool, n_rows(a), forward_row, (void *)a);
    return MT_OK;
}

/* All inputs of an element are read before its outputs are written: dgu may be gu, y may be dy. */
static void backward_row(void *arg, int64_t i)
{
    const mt_activation *a = arg;
    float w = weight_of(a, i), in = a->weigh_input ? w : 1.0f, out = a->weigh_input ? 1.0f : w, dw = 0;
    const curve shape = curve_of(a);
    for (int64_t f = 0; f < a->F; f++) {
        int64_t at_gate = i * (a->plain ? a->F : 2 * a->F) + f, at_up = at_gate + a->F, at = i * a->F + f;
        float gate = mt_get(a->gu, a->t, at_gate), up = a->plain ? 1.0f : mt_get(a->gu, a->t, at_up),
              dy = mt_get(a->dy, a->t, at);
        gated g = gate_up(a, shape, gate * in, up * in);
        float dgate = dy * w * g.by * g.act_slope, dup = dy * w * g.act * g.by_slope; /* of what gu holds */
        dw += a->weigh_input ? dy * (g.by * g.act_slope * gate + g.act * g.by_slope * up) : dy * (g.act * g.by);
        mt_put(a->dgu, a->t, at_gate, dgate);
        if (!a->plain) mt_put(a->dgu, a->t, at_up, dup);
        if (a->y) mt_put(a->y, a->t, at, g.act * g.by * out);
    }
    if (a->dweights) a->dweights[pair_of(a, i)] = dw;
}

/* Rows of xIELU, and their share of the gradients of p and n. */
static void xielu_block(void *arg, int64_t block)
{
    const mt_activation *a = arg;
    float *sums = (float *)a->scratch + 2 * block;
    double p = 0, n = 0;
    int64_t to = (block + 1) * MT_SUM_ROWS < a->N ? (block + 1) * MT_SUM_ROWS : a->N;
    for (int64_t i = block * MT_SUM_ROWS; i < to; i++) {
        for (int64_t at = i * a->F; at < (i + 1) * a->F; at++) {
            float x = mt_get(a->gu, a->t, at), dy = mt_get(a->dy, a->t, at);
            if (x > 0)
                p += (double)(dy * x * x);
            else
                n += (double)(dy * (expm1f(fminf(x, MT_XIELU_EPS)) - x));
        }
        backward_row(arg, i);
    }
    sums[0] = (float)p;
    sums[1] = (float)n;
}

static void xielu_backward(mt_pool *pool, const mt_activation *a)
{
    int64_t blocks = mt_sum_blocks(a->N);
    double p = 0, n = 0;
    mt_pool_for(pool, blocks, xielu_block, (void *)a);
    for (int64_t b = 0; b < blocks; b++) {
        p += (double)((const float *)a->scratch)[2 * b];
        n += (double)((const float *)a->scratch)[2 * b + 1];
    }
    if (a->dalpha_p) *a->dalpha_p += (float)p / (1.0f + expf(-*a->alpha_p));
    if (a->dalpha_n) *a->dalpha_n += (float)n / (1.0f + expf(-*a->alpha_n));
}

mt_rc mt__activation_bwd_run(mt_pool *pool, const mt_activation *a, mt_err *err)
{
    MT_TRY(activation_check(a, err));
    if (a->act == MT_ACT_XIELU) {
        xielu_backward(pool, a);
        return MT_OK;
    }
    mt_pool_for(pool, n_rows(a), backward_row, (void *)a);
    return MT_OK;
}
