/* A mixer and an ffn that the tree does not know, made in this file with their own ops and weights, train through every
 * placement: planner and engine loop over the lists of parts and know none of them by name.  docs/adding-a-mixer.md walks through
 * this file. */
#include "draw.h"

#include "base/split.h"
#include "device/device_cpu.h"
#include "model/family_rows.h"
#include "model/part.h"
#include "ops/ops_cpu.h"
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- two ops --------------------------------------------------------------------------------------- */

/* y[i] = w * (mean of x over the rows of i's document up to i).  Backward: dx, and dw added up in row order. */
typedef struct average {
    mt_dtype t;
    int64_t D, n_docs;
    const int32_t *doc_start;
    const void *x, *w;
    void *y;
    const void *dy;
    void *dx;
    bool dx_add;
    float *dw;
} average;

static mt_rc average_fwd(mt_pool *pool, const void *args, mt_err *err)
{
    const average *a = args;
    (void)pool, (void)err;
    for (int64_t d = 0; d < a->n_docs; d++)
        for (int64_t k = 0; k < a->D; k++) {
            float sum = 0;
            for (int64_t i = a->doc_start[d]; i < a->doc_start[d + 1]; i++) {
                sum += mt_get(a->x, a->t, i * a->D + k);
                mt_put(a->y, a->t, i * a->D + k, mt_get(a->w, a->t, k) * sum / (float)(i - a->doc_start[d] + 1));
            }
        }
    return MT_OK;
}

static mt_rc average_bwd(mt_pool *pool, const void *args, mt_err *err)
{
    const average *a = args;
    (void)pool, (void)err;
    for (int64_t k = 0; k < a->D; k++) {
        float w = mt_get(a->w, a->t, k), dw = 0;
        for (int64_t d = 0; d < a->n_docs; d++) {
            float sum = 0, dsum = 0;
            for (int64_t i = a->doc_start[d]; i < a->doc_start[d + 1]; i++) {
                sum += mt_get(a->x, a->t, i * a->D + k);
                dw += mt_get(a->dy, a->t, i * a->D + k) * sum / (float)(i - a->doc_start[d] + 1);
            }
            for (int64_t i = a->doc_start[d + 1] - 1; i >= a->doc_start[d]; i--) {
                dsum += w * mt_get(a->dy, a->t, i * a->D + k) / (float)(i - a->doc_start[d] + 1);
                mt_put(a->dx, a->t, i * a->D + k, dsum + (a->dx_add ? mt_get(a->dx, a->t, i * a->D + k) : 0));
            }
        }
        if (a->dw) a->dw[k] += dw;
    }
    return MT_OK;
}

/* y = w * x * x, element by element; dx may be added to. */
typedef struct square {
    mt_dtype t;
    int64_t n, D;
    const void *x, *w;
    void *y;
    const void *dy;
    void *dx;
    bool dx_add;
    float *dw;
} square;

static mt_rc square_fwd(mt_pool *pool, const void *args, mt_err *err)
{
    const square *a = args;
    (void)pool, (void)err;
    for (int64_t i = 0; i < a->n * a->D; i++) {
        float x = mt_get(a->x, a->t, i);
        mt_put(a->y, a->t, i, mt_get(a->w, a->t, i % a->D) * x * x);
    }
    return MT_OK;
}

static mt_rc square_bwd(mt_pool *pool, const void *args, mt_err *err)
{
    const square *a = args;
    (void)pool, (void)err;
    for (int64_t i = 0; i < a->n * a->D; i++) {
        float x = mt_get(a->x, a->t, i), dy = mt_get(a->dy, a->t, i);
        if (a->dw) a->dw[i % a->D] += dy * x * x;
        mt_put(a->dx, a->t, i, 2 * mt_get(a->w, a->t, i % a->D) * x * dy + (a->dx_add ? mt_get(a->dx, a->t, i) : 0));
    }
    return MT_OK;
}

/* -- the mixer: a weighted average of the rows so far, and an output projection --------------------- */

enum { MEAN, D_MEAN, MIXER_ARRAYS };
enum { W_O, MIXER_PRODUCTS };

static bool average_has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    (void)c, (void)s;
    return role == MT_W_EXTRA_MIXER || role == MT_W_O;
}

static int average_products(const mt_config *c, const mt_layer_spec *s, mt_product *out)
{
    (void)s;
    out[W_O] = (mt_product){ .k = c->D, .of = { { MT_W_O, MT_ROLES, c->D } } };
    return MIXER_PRODUCTS;
}

static int average_arrays(const mt_config *c, const mt_layer_spec *s, mt_dtype t, mt_array *out)
{
    const size_t row = (size_t)c->D * mt_dtype_bytes(t);
    (void)s;
    out[MEAN] = (mt_array){ "mean", row, MT_KEEP_MIXER, MT_EXTENT_MICRO, false, 0, 0 };
    out[D_MEAN] = (mt_array){ "dmean", row, MT_KEEPS, MT_EXTENT_MICRO, true, 0, 0 };
    return MIXER_ARRAYS;
}

static int average_work(const mt_config *c, const mt_layer_spec *s, mt_work_item *out)
{
    (void)s;
    const double D = (double)c->D;
    out[0] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEP_MIXER, .n = 2 * D };
    out[1] = (mt_work_item){ .name = "o", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = D, .k = D };
    out[2] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_BACKWARD, .n = 3 * D };
    return 3;
}

static average average_args(const mt_pass *p, const void *h)
{
    return (average){ .t = p->r->t,
                      .D = p->c->D,
                      .n_docs = p->mb->n_docs,
                      .doc_start = p->mb->doc_start,
                      .x = h,
                      .w = mt_pass_weight(p, MT_W_EXTRA_MIXER),
                      .y = mt_pass_array(p, MEAN) };
}

static mt_rc average_forward(const mt_pass *p, const void *h, mt_err *err)
{
    const average a = average_args(p, h);
    return mt_cpu_enqueue(p->r->stream, average_fwd, &a, sizeof a, err);
}

static mt_rc average_output(const mt_pass *p, void *y, const void *add, mt_err *err)
{
    return mt_product_forward(p, W_O, &(mt_product_io){ .n = p->mb->n, .x = mt_pass_array(p, MEAN), .y = y, .add = add }, err);
}

static mt_rc average_backward_output(const mt_pass *p, const void *dy, mt_err *err)
{
    const mt_product_io o = { .n = p->mb->n, .x = mt_pass_array(p, MEAN), .dy = dy, .dx = mt_pass_array(p, D_MEAN) };
    return mt_product_backward(p, W_O, &o, err);
}

static mt_rc average_backward(const mt_pass *p, const void *h, void *dh, bool dh_add, mt_err *err)
{
    average a = average_args(p, h);
    a.dy = mt_pass_array(p, D_MEAN);
    a.dx = dh;
    a.dx_add = dh_add;
    a.dw = mt_pass_grad(p, MT_W_EXTRA_MIXER);
    return mt_cpu_enqueue(p->r->stream, average_bwd, &a, sizeof a, err);
}

static const mt_mixer average_mixer = {
    .part = { .name = "average",
              .has_role = average_has_role,
              .products = average_products,
              .arrays = average_arrays,
              .work = average_work,
              .forward_kernels = 2,
              .backward_kernels = 3 },
    .forward = average_forward,
    .output = average_output,
    .backward_output = average_backward_output,
    .backward = average_backward,
};

/* -- the ffn: squares, and a projection ------------------------------------------------------------- */

enum { SQUARES, D_SQUARES, FFN_ARRAYS };
enum { W_DOWN, FFN_PRODUCTS };

static bool square_has_role(const mt_config *c, const mt_layer_spec *s, mt_role role)
{
    (void)c, (void)s;
    return role == MT_W_EXTRA_FFN || role == MT_W_DOWN;
}

static int square_products(const mt_config *c, const mt_layer_spec *s, mt_product *out)
{
    (void)s;
    out[W_DOWN] = (mt_product){ .k = c->D, .rows = MT_EXTENT_CHUNK, .of = { { MT_W_DOWN, MT_ROLES, c->D } } };
    return FFN_PRODUCTS;
}

static int square_arrays(const mt_config *c, const mt_layer_spec *s, mt_dtype t, mt_array *out)
{
    const size_t row = (size_t)c->D * mt_dtype_bytes(t);
    (void)s;
    out[SQUARES] = (mt_array){ "squares", row, MT_KEEP_ALL, MT_EXTENT_SEGMENT, false, 0, 0 };
    out[D_SQUARES] = (mt_array){ "dsquares", row, MT_KEEPS, MT_EXTENT_CHUNK, true, 0, 0 };
    return FFN_ARRAYS;
}

static int square_work(const mt_config *c, const mt_layer_spec *s, mt_work_item *out)
{
    (void)s;
    const double D = (double)c->D;
    out[0] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_FORWARD, .keep = MT_KEEP_ALL, .n = 2 * D };
    out[1] = (mt_work_item){ .name = "down", .kind = MT_WORK_PRODUCT, .when = MT_IN_FORWARD, .keep = MT_KEEPS, .n = D, .k = D };
    out[2] = (mt_work_item){ .kind = MT_WORK_MOVED, .when = MT_IN_BACKWARD, .n = 3 * D };
    return 3;
}

static void *squares_of(const mt_pass *p, mt_row_range s)
{
    void *all = mt_pass_array(p, SQUARES);
    return p->a->whole ? mt_pass_rows(p, all, s.first, p->c->D) : all;
}

static square square_args(const mt_pass *p, mt_row_range s, const void *h)
{
    return (square){ .t = p->r->t,
                     .n = s.n,
                     .D = p->c->D,
                     .x = mt_pass_rows(p, h, s.first, p->c->D),
                     .w = mt_pass_weight(p, MT_W_EXTRA_FFN),
                     .y = squares_of(p, s) };
}

static mt_rc square_forward(const mt_pass *p, mt_row_range s, const void *h, mt_err *err)
{
    const square a = square_args(p, s, h);
    return mt_cpu_enqueue(p->r->stream, square_fwd, &a, sizeof a, err);
}

static mt_rc square_output(const mt_pass *p, mt_row_range s, void *y, const void *add, mt_err *err)
{
    mt_product_io d = { .n = s.n, .x = squares_of(p, s), .y = mt_pass_rows(p, y, s.first, p->c->D) };
    if (add) d.add = mt_pass_rows(p, add, s.first, p->c->D);
    return mt_product_forward(p, W_DOWN, &d, err);
}

static mt_rc square_backward(const mt_pass *p, mt_row_range s, const void *h, const void *dy, void *dh, bool dh_add, mt_err *err)
{
    const mt_product_io d = { .n = s.n, .x = squares_of(p, s), .dy = dy, .dx = mt_pass_array(p, D_SQUARES) };
    MT_TRY(mt_product_backward(p, W_DOWN, &d, err));
    square a = square_args(p, s, h);
    a.dy = d.dx;
    a.dx = dh;
    a.dx_add = dh_add;
    a.dw = mt_pass_grad(p, MT_W_EXTRA_FFN);
    return mt_cpu_enqueue(p->r->stream, square_bwd, &a, sizeof a, err);
}

static const mt_ffn square_ffn = {
    .part = { .name = "squares",
              .has_role = square_has_role,
              .products = square_products,
              .arrays = square_arrays,
              .work = square_work,
              .forward_kernels = 2,
              .backward_kernels = 3 },
    .forward = square_forward,
    .output = square_output,
    .backward = square_backward,
};

/* -- a family that uses them ------------------------------------------------------------------------ */

#define LAYER "model.layers.%d."

static const mt_tensor_row rows[] = {
    MT_ROWS_EMBED,
    MT_ROWS_NORM1(LAYER),
    MT_ROWS_QKV(LAYER "self_attn."),
    MT_ROW(MT_W_EXTRA_MIXER, LAYER "mixer.weight", MT_D),
    MT_ROW(MT_W_O, LAYER "mixer.o_proj.weight", MT_D, MT_D),
    MT_ROW(MT_W_POST1, LAYER "mixer_norm.weight", MT_D),
    MT_ROWS_NORM2(LAYER),
    MT_ROWS_GATE_UP(LAYER "mlp."),
    MT_ROW(MT_W_EXTRA_FFN, LAYER "ffn.weight", MT_D),
    MT_ROW(MT_W_DOWN, LAYER "ffn.down_proj.weight", MT_D, MT_D),
    MT_ROW(MT_W_POST2, LAYER "ffn_norm.weight", MT_D),
    MT_ROWS_FINAL_NORM("model.norm"),
    MT_ROWS_HEAD("lm_head"),
    MT_ROWS_END,
};

/* Layers differ: the first has attention and squares, the second the average and an mlp, the others both toys. */
static mt_rc read_layers(mt_config *c, const mt_keys *k)
{
    (void)k;
    for (int64_t l = 0; l < c->L; l++) {
        if (l != 0) c->layers[l].mixer = &average_mixer;
        if (l != 1) c->layers[l].ffn = &square_ffn;
    }
    return MT_OK;
}

static const mt_family toy_family = { .name = "toy",
                                      .model_types = { "toy" },
                                      .default_act = MT_ACT_SILU,
                                      .default_eps = 1e-6,
                                      .default_theta = 10000,
                                      .rope = MT_ROPE_HALF,
                                      .tensors = rows,
                                      .read = read_layers };

enum { VOCAB = 24 };

static void open_toy(rig *r, mt_norms norms, mt_block_form form)
{
    static const char text[] = "{\"model_type\":\"toy\",\"hidden_size\":16,\"intermediate_size\":16,\"num_hidden_layers\":4,"
                               "\"num_attention_heads\":2,\"vocab_size\":24,\"max_position_embeddings\":64}";
    static const int lengths[] = { 5, 1, 7, 3, 4 };
    mt_family family = toy_family;
    mt_err err = { 0 };
    family.norms = norms;
    family.form = form;
    *r = (rig){ 0 };
    assert_ok(mt_config_parse_as(&r->config, text, strlen(text), "toy", &family, &err));
    r->config->family = &toy_family;
    assert_ok(mt_model_create(&r->model, r->config, NULL, &err));
    for (size_t d = 0; d < MT_COUNT(lengths); d++) {
        int32_t ids[8];
        for (int i = 0; i < lengths[d]; i++) ids[i] = (int32_t)mt_rng_below(3, d, (uint64_t)i, VOCAB);
        assert_ok(mt_batch_add(&r->batch, ids, ids, lengths[d], VOCAB, &err));
    }
}

static void fill_weights(rig *r)
{
    mt_err err = { 0 };
    for (int u = 0; u < r->model->n_units; u++)
        for (int64_t i = 0; i < r->model->units[u].layout->n_elems; i++) {
            uint16_t hi = mt_f32_to_bf16(0.3f + 0.3f * mt_rng_normal(9, (uint64_t)u, (uint64_t)i));
            assert_ok(mt_engine_write(r->engine, (mt_state_range){ u, MT_STATE_HI, i, 1 }, &hi, &err));
        }
}

static void start(rig *r, mt_plan *plan, int n_threads)
{
    mt_err err = { 0 };
    r->plan = plan;
    assert_ok(
        mt_device_open(&r->dev, "cpu", &(mt_device_options){ .memory_limit = plan->device_bytes, .n_threads = n_threads }, &err));
    assert_ok(mt_engine_create(&r->engine, r->dev, plan, &(mt_engine_options){ .n_workers = 1 }, &err));
    fill_weights(r);
}

static void placements_of_unknown_parts_give_equal_bits(void **state)
{
    (void)state;
    const mt_hyper h = { .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5 };
    static const struct {
        mt_norms norms;
        mt_block_form form;
        mt_dtype t;
    } cases[] = { { MT_NORMS_PRE, MT_BLOCK_SERIAL, MT_DTYPE_F32 },       { MT_NORMS_PRE, MT_BLOCK_SERIAL, MT_DTYPE_BF16 },
                  { MT_NORMS_PRE, MT_BLOCK_ONE_NORM, MT_DTYPE_F32 },     { MT_NORMS_PRE, MT_BLOCK_PARALLEL, MT_DTYPE_BF16 },
                  { MT_NORMS_SANDWICH, MT_BLOCK_SERIAL, MT_DTYPE_BF16 }, { MT_NORMS_POST, MT_BLOCK_SERIAL, MT_DTYPE_F32 } };
    const char *env = getenv("MT_DRAWS");
    int draws = env ? atoi(env) : 40;
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        rig r;
        uint64_t first = 0, sum;
        double first_loss = 0, last_loss = 0;
        open_toy(&r, cases[i].norms, cases[i].form);
        mt_job job = rig_job(&r, i % 2);
        mt_arithmetic a = { .compute = cases[i].t, .grad = MT_DTYPE_F32, .micro_tokens = 8, .mlp_rows = 3, .head_rows = 4 };
        for (int n = 0; n < draws; n++) {
            dice d = { 100 * i + (uint64_t)n, 0 };
            mt_placement p;
            mt_plan *plan;
            mt_step_result s;
            assert_ok(mt_placement_init(&p, r.model, &err));
            draw(&p, r.model, &job, &a, &d);
            assert_ok(mt_plan_create(&plan, r.model, &job, &a, &p, &err));
            mt_placement_free(&p);
            start(&r, plan, 1 + n % 2);
            for (int k = 0; k < 4; k++) {
                assert_ok(mt_engine_step(r.engine, &r.batch, &h, &s, &err));
                if (k == 0) first_loss = s.loss;
            }
            last_loss = s.loss;
            assert_ok(mt_engine_checksum(r.engine, &sum, &err));
            if (n == 0) first = sum;
            assert_true(sum == first);
            rig_stop(&r);
        }
        assert_true(last_loss < first_loss); /* it learns */
        rig_close(&r);
    }
}

/* The search finds a plan by what the parts list, and the least memory that works gives the same bits. */
static void the_planner_plans_for_them(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    uint64_t sums[2];
    open_toy(&r, MT_NORMS_PRE, MT_BLOCK_SERIAL);
    mt_job job = rig_job(&r, true);
    mt_arithmetic a = { .compute = MT_DTYPE_F32, .grad = MT_DTYPE_F32, .micro_tokens = 8, .mlp_rows = 3, .head_rows = 4 };
    const mt_hyper h = { .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1.5 };
    mt_plan *plan;
    assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
    assert_true(plan->times.compute > 0);
    size_t room = plan->device_bytes;
    for (int i = 0; i < 2; i++) {
        mt_step_result s;
        start(&r, plan, 2);
        assert_ok(mt_engine_step(r.engine, &r.batch, &h, &s, &err));
        assert_ok(mt_engine_checksum(r.engine, &sums[i], &err));
        rig_stop(&r);
        while (i == 0 && !mt_plan_choose(&plan, r.model, &job, &a, room - 256, &err)) {
            room = plan->device_bytes;
            mt_plan_free(plan);
        }
        if (i == 0) assert_ok(mt_plan_choose(&plan, r.model, &job, &a, room, &err));
    }
    assert_true(sums[0] == sums[1]);
    rig_close(&r);
}

static float read_weight(rig *r, int u, int64_t i)
{
    mt_err err = { 0 };
    uint16_t hi;
    int16_t lo;
    assert_ok(mt_engine_read(r->engine, (mt_state_range){ u, MT_STATE_HI, i, 1 }, &hi, &err));
    assert_ok(mt_engine_read(r->engine, (mt_state_range){ u, MT_STATE_LO, i, 1 }, &lo, &err));
    return mt_join(hi, lo);
}

static void write_weight(rig *r, int u, int64_t i, float x)
{
    mt_err err = { 0 };
    uint16_t hi;
    int16_t lo;
    mt_split(x, &hi, &lo);
    assert_ok(mt_engine_write(r->engine, (mt_state_range){ u, MT_STATE_HI, i, 1 }, &hi, &err));
    assert_ok(mt_engine_write(r->engine, (mt_state_range){ u, MT_STATE_LO, i, 1 }, &lo, &err));
}

static double loss_with(rig *r, int u, int64_t i, float x)
{
    mt_err err = { 0 };
    mt_step_result s;
    write_weight(r, u, i, x);
    assert_ok(mt_engine_evaluate(r->engine, &r->batch, &s, &err));
    return s.loss;
}

/* Gradients of the parts' own weights are the slopes of the loss. */
static void their_gradients_are_slopes(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    mt_plan *plan;
    mt_step_result s;
    open_toy(&r, MT_NORMS_PRE, MT_BLOCK_SERIAL);
    mt_job job = rig_job(&r, true);
    mt_arithmetic a = { .compute = MT_DTYPE_F32, .grad = MT_DTYPE_F32, .micro_tokens = 8, .mlp_rows = 3, .head_rows = 4 };
    assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
    start(&r, plan, 1);
    assert_ok(mt_engine_gradients(r.engine, &r.batch, &s, &err));
    static const mt_role roles[] = { MT_W_EXTRA_MIXER, MT_W_EXTRA_FFN, MT_W_O, MT_W_DOWN };
    for (int u = 0; u < r.model->n_units; u++) {
        const mt_layout *l = r.model->units[u].layout;
        float *g = mt_calloc((size_t)l->n_train, sizeof *g);
        assert_non_null(g);
        for (size_t k = 0; k < MT_COUNT(roles); k++) {
            if (l->at[roles[k]] < 0) continue;
            assert_ok(mt_engine_gradients(r.engine, &r.batch, &s, &err));
            assert_ok(mt_engine_read_grad(r.engine, u, g, &err));
            for (int64_t i = l->at[roles[k]]; i < l->at[roles[k]] + 3; i++) {
                const float w = read_weight(&r, u, i), step = 2e-3f;
                double slope = (loss_with(&r, u, i, w + step) - loss_with(&r, u, i, w - step)) / (2 * (double)step);
                write_weight(&r, u, i, w);
                assert_true(fabs(slope - g[i]) < 1e-3 + 0.02 * fabs(slope));
            }
        }
        mt_free(g);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(placements_of_unknown_parts_give_equal_bits),
                                        cmocka_unit_test(the_planner_plans_for_them),
                                        cmocka_unit_test(their_gradients_are_slopes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
