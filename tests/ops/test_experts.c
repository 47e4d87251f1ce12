/* A whole layer of experts made of the ops, forward and backward as ops.h writes it down: against plain loops in double, in units
 * of every size, again and again. */
#include "test.h"

#include "base/dtype.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "rig.h"

#include <math.h>
#include <stdlib.h>

enum { BUFFERS = 24 };

typedef struct shape {
    int64_t N, T, E, D, I;
    mt_dtype t;
    double x_scale; /* 0: 1 */
} shape;

static const shape shapes[] = {
    { 40, 2, 6, 24, 16, MT_DTYPE_F32, 0 },   { 40, 2, 6, 24, 16, MT_DTYPE_BF16, 0 },    { 33, 1, 4, 7, 5, MT_DTYPE_F32, 0 },
    { 150, 3, 12, 72, 40, MT_DTYPE_F32, 0 }, { 300, 4, 12, 136, 72, MT_DTYPE_BF16, 0 }, { 9, 4, 4, 16, 8, MT_DTYPE_BF16, 0 },
};

static mt_device *dev;

/* -- memory ---------------------------------------------------------------------------------------- */

/* Device memory of a layer, with what is read from it. */
typedef struct layer {
    shape s;
    mt_stream *stream;
    mt_event *done;
    void *taken[BUFFERS];
    int n_taken;
    float *logits, *weights, *dweights, *dlogits, *sum, *dsum, *dw_gu, *dw_down;
    int32_t *experts, *offsets, *order, *rows, *place;
    char *x, *w_gu, *w_down, *gu, *act, *y, *out, *dy, *dx, *sort_scratch, *dact;
} layer;

static void *take(layer *l, size_t bytes)
{
    mt_err err = { 0 };
    void *p = NULL;
    assert_true(l->n_taken < BUFFERS);
    assert_ok(mt_device_alloc(dev, &p, bytes + 16, "a test", &err));
    assert_ok(mt_fill(l->stream, p, 0xff, bytes, &err));
    return l->taken[l->n_taken++] = p;
}

static void *take_t(layer *l, int64_t n) { return take(l, (size_t)n * mt_dtype_bytes(l->s.t)); }

/* Random numbers of a tensor, as the device has them. */
static double number(mt_dtype t, uint64_t tensor, int64_t i, double deviation)
{
    float x = (float)(deviation * (double)mt_rng_normal(11, tensor, (uint64_t)i));
    return t == MT_DTYPE_BF16 ? mt_bf16_to_f32(mt_f32_to_bf16(x)) : x;
}

enum { X = 1, W_GU, W_DOWN, DY, LOGITS };

static double deviation_of(const shape *s, uint64_t tensor)
{
    if (tensor == X && s->x_scale > 0) return s->x_scale;
    return tensor == W_GU ? 1 / sqrt((double)s->D) : tensor == W_DOWN ? 1 / sqrt((double)s->I) : 1;
}
static double value(const shape *s, uint64_t tensor, int64_t i)
{
    /* the last expert is never chosen; of the others some are crowded */
    if (tensor == LOGITS && s->E > s->T && i % s->E == s->E - 1) return -30;
    return number(tensor == LOGITS ? MT_DTYPE_F32 : s->t, tensor, i, deviation_of(s, tensor)) +
           (tensor == LOGITS ? 0.2 * (double)(i % s->E) : 0);
}

static void *random_tensor(layer *l, uint64_t tensor, int64_t n)
{
    mt_err err = { 0 };
    mt_dtype t = tensor == LOGITS ? MT_DTYPE_F32 : l->s.t;
    size_t bytes = (size_t)n * mt_dtype_bytes(t);
    void *p = take(l, bytes);
    char *host = malloc(bytes + 1);
    assert_non_null(host);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)value(&l->s, tensor, i);
        mt_from_f32(host + (size_t)i * mt_dtype_bytes(t), t, &x, 1);
    }
    assert_ok(mt_copy(l->stream, p, host, bytes, MT_COPY_IN, &err));
    assert_ok(mt_record(l->stream, l->done, &err));
    assert_ok(mt_sync(l->done, &err));
    free(host);
    return p;
}

static void layer_init(layer *l, shape s)
{
    mt_err err = { 0 };
    *l = (layer){ .s = s };
    int64_t pairs = s.N * s.T, weights = s.E * s.I * s.D;
    assert_ok(dev->api->stream_create(dev, &l->stream, "test", &err));
    assert_ok(dev->api->event_create(dev, &l->done, &err));
    l->logits = random_tensor(l, LOGITS, s.N * s.E);
    l->x = random_tensor(l, X, s.N * s.D);
    l->w_gu = random_tensor(l, W_GU, 2 * weights);
    l->w_down = random_tensor(l, W_DOWN, weights);
    l->dy = random_tensor(l, DY, s.N * s.D);
    l->experts = take(l, (size_t)pairs * 4), l->weights = take(l, (size_t)pairs * 4), l->dweights = take(l, (size_t)pairs * 4);
    l->offsets = take(l, (size_t)(s.E + 1) * 4), l->order = take(l, (size_t)pairs * 4);
    l->rows = take(l, (size_t)pairs * 4), l->place = take(l, (size_t)pairs * 4);
    l->sort_scratch = take(l, mt_expert_sort_scratch(&(mt_expert_sort){ .N = s.N, .T = s.T, .E = s.E }));
    l->gu = take_t(l, pairs * 2 * s.I), l->act = take_t(l, pairs * s.I), l->dact = take_t(l, pairs * s.I);
    l->y = take_t(l, pairs * s.D), l->out = take_t(l, s.N * s.D), l->dx = take_t(l, s.N * s.D);
    l->sum = take(l, (size_t)(s.N * s.D) * 4), l->dsum = take(l, (size_t)(s.N * s.D) * 4);
    l->dw_gu = take(l, (size_t)(2 * weights) * 4), l->dw_down = take(l, (size_t)weights * 4);
    l->dlogits = take_t(l, s.N * s.E);
}

static void layer_deinit(layer *l)
{
    for (int i = 0; i < l->n_taken; i++) dev->api->free(dev, l->taken[i]);
    dev->api->event_free(l->done);
    dev->api->stream_free(l->stream);
}

/* -- the layer ------------------------------------------------------------------------------------- */

static mt_route route_of(const layer *l)
{
    return (mt_route){ .t = l->s.t,
                       .kind = MT_ROUTE_SOFTMAX,
                       .N = l->s.N,
                       .E = l->s.E,
                       .T = l->s.T,
                       .norm = true,
                       .logits = l->logits,
                       .experts = l->experts,
                       .weights = l->weights,
                       .dweights = l->dweights,
                       .dlogits = l->dlogits };
}

/* The products of the unit of c experts from e0 on; tokens: x and dy have a row per token. */
static mt_grouped_linear gate_up_of(const layer *l, int64_t e0, int64_t c)
{
    size_t each = (size_t)(2 * l->s.I * l->s.D);
    return (mt_grouped_linear){ .t = l->s.t,
                                .M = l->s.N * mt_min_i64(l->s.T, c),
                                .N = 2 * l->s.I,
                                .K = l->s.D,
                                .e0 = e0,
                                .c = c,
                                .offsets = l->offsets,
                                .rows = l->rows,
                                .gather_x = true,
                                .dw_set = true,
                                .x = l->x,
                                .w = l->w_gu + (size_t)e0 * each * mt_dtype_bytes(l->s.t) };
}
static mt_grouped_linear down_of(const layer *l, int64_t e0, int64_t c)
{
    size_t each = (size_t)(l->s.I * l->s.D);
    return (mt_grouped_linear){ .t = l->s.t,
                                .M = l->s.N * mt_min_i64(l->s.T, c),
                                .N = l->s.D,
                                .K = l->s.I,
                                .e0 = e0,
                                .c = c,
                                .offsets = l->offsets,
                                .rows = l->rows,
                                .dw_set = true,
                                .x = l->act,
                                .w = l->w_down + (size_t)e0 * each * mt_dtype_bytes(l->s.t) };
}
static mt_activation activation_of(const layer *l, int64_t e0, int64_t c)
{
    return (mt_activation){ .t = l->s.t,
                            .act = MT_ACT_SILU,
                            .N = l->s.N * mt_min_i64(l->s.T, c),
                            .F = l->s.I,
                            .gu = l->gu,
                            .y = l->act,
                            .first = l->offsets + e0,
                            .last = l->offsets + e0 + c,
                            .order = l->order };
}
static mt_combine combine_of(const layer *l, int64_t e0, int64_t c, float *sum, void *out)
{
    return (mt_combine){ .t = l->s.t,
                         .N = l->s.N,
                         .D = l->s.D,
                         .T = l->s.T,
                         .e0 = e0,
                         .c = c,
                         .start = e0 == 0,
                         .experts = l->experts,
                         .place = l->place,
                         .offsets = l->offsets,
                         .y = l->y,
                         .sum = sum,
                         .out = e0 + c == l->s.E ? out : NULL };
}

static mt_rc activations(layer *l, const mt_ops *ops, int64_t e0, int64_t c, mt_err *err)
{
    mt_grouped_linear up = gate_up_of(l, e0, c);
    mt_activation activation = activation_of(l, e0, c);
    up.y = l->gu;
    MT_TRY(ops->grouped_linear_fwd(l->stream, &up, err));
    return ops->activation_fwd(l->stream, &activation, err);
}

static mt_rc forward_unit(layer *l, const mt_ops *ops, int64_t e0, int64_t c, mt_err *err)
{
    mt_grouped_linear down = down_of(l, e0, c);
    mt_combine sum = combine_of(l, e0, c, l->sum, l->out);
    sum.weights = l->weights;
    down.y = l->y;
    MT_TRY(activations(l, ops, e0, c, err));
    MT_TRY(ops->grouped_linear_fwd(l->stream, &down, err));
    return ops->combine(l->stream, &sum, err);
}

static mt_rc backward_unit(layer *l, const mt_ops *ops, int64_t e0, int64_t c, mt_err *err)
{
    mt_grouped_linear through = down_of(l, e0, c), down = through, up = gate_up_of(l, e0, c);
    mt_activation activation = activation_of(l, e0, c);
    mt_combine sum = combine_of(l, e0, c, l->dsum, l->dx);
    MT_TRY(activations(l, ops, e0, c, err));
    through.gather_dy = true, through.dy = l->dy, through.dx = l->dact;
    MT_TRY(ops->grouped_linear_bwd(l->stream, &through, err));
    activation.dy = activation.y = l->dact, activation.dgu = l->gu; /* in place: dact becomes the weighted activations */
    activation.weights = l->weights, activation.dweights = l->dweights;
    MT_TRY(ops->activation_bwd(l->stream, &activation, err));
    down.gather_dy = true, down.dy = l->dy, down.x = l->dact, down.dw = l->dw_down + e0 * l->s.I * l->s.D;
    MT_TRY(ops->grouped_linear_bwd(l->stream, &down, err));
    up.dy = l->gu, up.dx = l->y, up.dw = l->dw_gu + e0 * 2 * l->s.I * l->s.D;
    MT_TRY(ops->grouped_linear_bwd(l->stream, &up, err));
    return ops->combine(l->stream, &sum, err);
}

/* Forward and backward in units of c experts. */
static mt_rc run_layer(layer *l, int64_t c, mt_err *err)
{
    const mt_ops *ops = mt_ops_of(dev);
    mt_route route = route_of(l);
    mt_expert_sort sort = { .N = l->s.N,
                            .T = l->s.T,
                            .E = l->s.E,
                            .experts = l->experts,
                            .offsets = l->offsets,
                            .order = l->order,
                            .rows = l->rows,
                            .place = l->place,
                            .scratch = l->sort_scratch };
    MT_TRY(ops->route_fwd(l->stream, &route, err));
    MT_TRY(ops->expert_sort(l->stream, &sort, err));
    for (int64_t e0 = 0; e0 < l->s.E; e0 += c) MT_TRY(forward_unit(l, ops, e0, c, err));
    for (int64_t e0 = 0; e0 < l->s.E; e0 += c) MT_TRY(backward_unit(l, ops, e0, c, err));
    MT_TRY(ops->route_bwd(l->stream, &route, err));
    MT_TRY(mt_record(l->stream, l->done, err));
    return mt_sync(l->done, err);
}

/* -- results --------------------------------------------------------------------------------------- */

typedef struct result {
    const char *name;
    const void *dev;
    int64_t n;
    mt_dtype t;
} result;

enum { RESULTS = 7 };

static void results_of(const layer *l, result out[RESULTS])
{
    const shape *s = &l->s;
    const result all[RESULTS] = { { "out", l->out, s->N * s->D, s->t },
                                  { "weights", l->weights, s->N * s->T, MT_DTYPE_F32 },
                                  { "dx", l->dx, s->N * s->D, s->t },
                                  { "dw_gu", l->dw_gu, 2 * s->E * s->I * s->D, MT_DTYPE_F32 },
                                  { "dw_down", l->dw_down, s->E * s->I * s->D, MT_DTYPE_F32 },
                                  { "dweights", l->dweights, s->N * s->T, MT_DTYPE_F32 },
                                  { "dlogits", l->dlogits, s->N * s->E, s->t } };
    memcpy(out, all, sizeof all);
}

/* A copy on the host; the caller frees it. */
static unsigned char *fetch(layer *l, const void *from, size_t bytes)
{
    mt_err err = { 0 };
    unsigned char *host = malloc(bytes + 1);
    assert_non_null(host);
    assert_ok(mt_copy(l->stream, host, from, bytes, MT_COPY_OUT, &err));
    assert_ok(mt_record(l->stream, l->done, &err));
    assert_ok(mt_sync(l->done, &err));
    return host;
}

static void assert_same_results(layer *a, layer *b, const char *what, int64_t c)
{
    result ra[RESULTS], rb[RESULTS];
    results_of(a, ra);
    results_of(b, rb);
    for (int i = 0; i < RESULTS; i++) {
        size_t bytes = (size_t)ra[i].n * mt_dtype_bytes(ra[i].t);
        unsigned char *x = fetch(a, ra[i].dev, bytes), *y = fetch(b, rb[i].dev, bytes);
        if (memcmp(x, y, bytes) != 0) fail_msg("%s (%d): %s differs", what, (int)c, ra[i].name);
        free(x);
        free(y);
    }
}

static void units_of_any_size_give_the_same_bits(void **state)
{
    (void)state;
    mt_err err = { 0 };
    for (size_t i = 0; i < MT_COUNT(shapes); i++) {
        layer whole, cut;
        layer_init(&whole, shapes[i]);
        assert_ok(run_layer(&whole, shapes[i].E, &err));
        for (int64_t c = 1; c < shapes[i].E; c++) {
            if (shapes[i].E % c) continue;
            layer_init(&cut, shapes[i]);
            assert_ok(run_layer(&cut, c, &err));
            assert_same_results(&whole, &cut, "units of c experts", c);
            layer_deinit(&cut);
        }
        layer_deinit(&whole);
    }
}

static void repeats_give_the_same_bits(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const shape *s = &shapes[4];
    layer first, again;
    layer_init(&first, *s);
    layer_init(&again, *s);
    assert_ok(run_layer(&first, 4, &err));
    for (int i = 0; i < 20; i++) {
        assert_ok(run_layer(&again, 4, &err));
        assert_same_results(&first, &again, "repeat", i);
    }
    layer_deinit(&first);
    layer_deinit(&again);
}

/* Gradients of all weights, written or added to zeros, and then added to twice: from tokens and from packed rows. */
static void sum_weight_gradients(layer *l, bool write)
{
    mt_err err = { 0 };
    const mt_ops *ops = mt_ops_of(dev);
    mt_grouped_linear up = gate_up_of(l, 0, l->s.E), down = down_of(l, 0, l->s.E);
    up.dy = l->gu, up.dw = l->dw_gu;
    down.gather_dy = true, down.dy = l->dy, down.dw = l->dw_down;
    assert_ok(mt_fill(l->stream, l->dw_gu, write ? 0xff : 0, (size_t)(up.c * up.N * up.K) * 4, &err));
    assert_ok(mt_fill(l->stream, l->dw_down, write ? 0xff : 0, (size_t)(down.c * down.N * down.K) * 4, &err));
    for (int time = 0; time < 3; time++) {
        up.dw_set = down.dw_set = write && time == 0;
        assert_ok(ops->grouped_linear_bwd(l->stream, &up, &err));
        assert_ok(ops->grouped_linear_bwd(l->stream, &down, &err));
        up.gather_x = false, up.x = l->y;
    }
}

static void check_written_and_added(shape s)
{
    mt_err err = { 0 };
    layer written, added;
    layer_init(&written, s);
    layer_init(&added, s);
    assert_ok(run_layer(&written, s.E, &err));
    assert_ok(run_layer(&added, s.E, &err));
    sum_weight_gradients(&written, true);
    for (int i = 0; i < 3; i++) {
        sum_weight_gradients(&added, false);
        assert_same_results(&written, &added, "written and added", i);
    }
    layer_deinit(&written);
    layer_deinit(&added);
}

/* Also around 2^-126, below which a GPU's memory adds zeros.  On a GPU: several tiles for each block and several steps for each tile,
 * whole ones and others. */
static void weight_gradients_are_the_same_written_or_added_to_zeros(void **state)
{
    (void)state;
    check_written_and_added(shapes[0]);
    check_written_and_added(shapes[4]);
    check_written_and_added((shape){ 300, 4, 12, 136, 72, MT_DTYPE_BF16, 1e-19 });
    if (dev->api->kind == MT_DEVICE_CPU) return;
    check_written_and_added((shape){ 4000, 4, 24, 520, 264, MT_DTYPE_BF16, 0 });
    check_written_and_added((shape){ 4000, 4, 24, 520, 264, MT_DTYPE_BF16, 1e-19 });
    check_written_and_added((shape){ 3000, 4, 16, 1024, 512, MT_DTYPE_BF16, 0 });
}

/* -- in double ------------------------------------------------------------------------------------- */

typedef struct truth {
    double *out, *dx, *dw_gu, *dw_down, *dweights;
    double *x, *w_gu, *w_down, *dy; /* the operands, drawn once */
} truth;

static double *zeros(int64_t n)
{
    double *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

static double *table(const shape *s, uint64_t tensor, int64_t n)
{
    double *p = zeros(n);
    for (int64_t i = 0; i < n; i++) p[i] = value(s, tensor, i);
    return p;
}

static truth truth_create(const shape *s)
{
    int64_t rows = s->N * s->D, weights = s->E * s->I * s->D;
    return (truth){ zeros(rows),        zeros(rows),       zeros(2 * weights),          zeros(weights),
                    zeros(s->N * s->T), table(s, X, rows), table(s, W_GU, 2 * weights), table(s, W_DOWN, weights),
                    table(s, DY, rows) };
}

static void truth_free(truth *r)
{
    double *all[] = { r->out, r->dx, r->dw_gu, r->dw_down, r->dweights, r->x, r->w_gu, r->w_down, r->dy };
    for (size_t i = 0; i < MT_COUNT(all); i++) free(all[i]);
}

/* One row and one of its experts: the formulas of a gated mlp and its gradients, written out. */
static void expert_of_row(const shape *s, truth *r, int64_t n, int64_t e, double w, double *dw)
{
    double *act = zeros(s->I), *dact = zeros(s->I), *dgate = zeros(s->I), *dup = zeros(s->I), *gate = zeros(s->I),
           *up = zeros(s->I);
    for (int64_t i = 0; i < s->I; i++) {
        for (int64_t d = 0; d < s->D; d++) {
            double x = r->x[n * s->D + d];
            gate[i] += x * r->w_gu[(e * 2 * s->I + i) * s->D + d];
            up[i] += x * r->w_gu[(e * 2 * s->I + s->I + i) * s->D + d];
            dact[i] += r->dy[n * s->D + d] * r->w_down[(e * s->D + d) * s->I + i];
        }
        double sigma = 1 / (1 + exp(-gate[i]));
        act[i] = gate[i] * sigma * up[i];
        *dw += dact[i] * act[i];
        dgate[i] = w * dact[i] * up[i] * sigma * (1 + gate[i] * (1 - sigma));
        dup[i] = w * dact[i] * gate[i] * sigma;
    }
    for (int64_t d = 0; d < s->D; d++)
        for (int64_t i = 0; i < s->I; i++) {
            int64_t g = (e * 2 * s->I + i) * s->D + d, u = g + s->I * s->D, down = (e * s->D + d) * s->I + i;
            r->out[n * s->D + d] += w * act[i] * r->w_down[down];
            r->dx[n * s->D + d] += dgate[i] * r->w_gu[g] + dup[i] * r->w_gu[u];
            r->dw_gu[g] += dgate[i] * r->x[n * s->D + d];
            r->dw_gu[u] += dup[i] * r->x[n * s->D + d];
            r->dw_down[down] += w * act[i] * r->dy[n * s->D + d];
        }
    double *all[] = { act, dact, dgate, dup, gate, up };
    for (size_t k = 0; k < MT_COUNT(all); k++) free(all[k]);
}

static void assert_close(layer *l, const char *name, const void *from, mt_dtype t, const double *want, int64_t n)
{
    double error = 0, size = 0, allowed = l->s.t == MT_DTYPE_BF16 ? 1.5e-2 : 1e-5;
    unsigned char *got = fetch(l, from, (size_t)n * mt_dtype_bytes(t));
    for (int64_t i = 0; i < n; i++) {
        float x;
        mt_to_f32(&x, got + (size_t)i * mt_dtype_bytes(t), t, 1);
        error += ((double)x - want[i]) * ((double)x - want[i]);
        size += want[i] * want[i];
    }
    free(got);
    if (!(sqrt(error) <= allowed * sqrt(size))) fail_msg("%s is %g away from %g", name, sqrt(error), sqrt(size));
}

static void a_layer_of_ops_equals_plain_loops(void **state)
{
    (void)state;
    mt_err err = { 0 };
    for (size_t i = 0; i < MT_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        layer l;
        layer_init(&l, *s);
        assert_ok(run_layer(&l, s->E / 2, &err));
        int64_t pairs = s->N * s->T, weights = s->E * s->I * s->D;
        truth r = truth_create(s);
        int32_t *experts = (int32_t *)(void *)fetch(&l, l.experts, (size_t)pairs * 4);
        float *w = (float *)(void *)fetch(&l, l.weights, (size_t)pairs * 4);
        for (int64_t p = 0; p < pairs; p++) expert_of_row(s, &r, p / s->T, experts[p], w[p], &r.dweights[p]);
        assert_close(&l, "out", l.out, s->t, r.out, s->N * s->D);
        assert_close(&l, "dx", l.dx, s->t, r.dx, s->N * s->D);
        assert_close(&l, "dw_gu", l.dw_gu, MT_DTYPE_F32, r.dw_gu, 2 * weights);
        assert_close(&l, "dw_down", l.dw_down, MT_DTYPE_F32, r.dw_down, weights);
        assert_close(&l, "dweights", l.dweights, MT_DTYPE_F32, r.dweights, pairs);
        truth_free(&r);
        free(experts);
        free(w);
        layer_deinit(&l);
    }
}

static void impossible_routes_are_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    assert_int_equal(mt_route_check(&(mt_route){ .E = 2000, .T = 2 }, &err), MT_EINTERNAL);
    assert_says("2000 experts, expected 1 to 1024");
    assert_int_equal(mt_route_check(&(mt_route){ .E = 4, .T = 5 }, &err), MT_EINTERNAL);
    assert_says("5 experts a row, expected 1 to 4");
    assert_int_equal(mt_route_check(&(mt_route){ .E = 10, .T = 2, .n_group = 4, .topk_group = 1 }, &err), MT_EINTERNAL);
    assert_says("10 experts in 4 groups");
    assert_int_equal(mt_route_check(&(mt_route){ .E = 16, .T = 5, .n_group = 4, .topk_group = 1 }, &err), MT_EINTERNAL);
    assert_says("1 of 4 groups of 4 experts do not hold 5");
}

int main(void)
{
    mt_err err = { 0 };
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_layer_of_ops_equals_plain_loops),
                                        cmocka_unit_test(units_of_any_size_give_the_same_bits),
                                        cmocka_unit_test(repeats_give_the_same_bits),
                                        cmocka_unit_test(weight_gradients_are_the_same_written_or_added_to_zeros),
                                        cmocka_unit_test(impossible_routes_are_refused) };
    if (mt_device_open(&dev, rig_device(), NULL, &err)) {
        printf("skipped: %s\n", err.msg);
        return RIG_SKIPPED;
    }
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    mt_device_close(dev);
    return n_failed ? 1 : 0;
}
