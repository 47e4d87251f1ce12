/* Mixtures of experts at their edges.
 *
 * If all experts of a layer are the same and their weights sum to 1, the layer is a dense one whatever the router does: logits
 * are the dense model's, and the experts' gradients add up to its mlp's.  That holds for any number of experts and any number of
 * them for a row.  A router of zeros makes every row a tie: the first experts get all rows, the others none. */
#include "golden.h"
#include "rig.h"
#include "tempdir.h"

#include "base/rng.h"
#include "ckpt/safetensors_write.h"
#include "plan/search.h"

#include <math.h>

enum { D = 8, I = 6, L = 2, V = 13 };

typedef struct mixture {
    int E, T; /* E is 0: the dense model */
    bool zero_router;
    bool same; /* experts are copies of each other */
    const char *freeze;
    double router_loss; /* its coefficient */
} mixture;

/* Numbers of a tensor: by its name less the expert, so that copies are equal and the dense model's are the same. */
static void fill(float *out, int64_t n, const char *role, int layer, int expert)
{
    uint64_t stream = 100 * (uint64_t)layer + 10000 * (uint64_t)expert;
    for (const char *p = role; *p; p++) stream = stream * 31 + (unsigned char)*p;
    bool norm = strstr(role, "norm");
    for (int64_t i = 0; i < n; i++) out[i] = (norm ? 1.0f : 0.0f) + 0.3f * mt_rng_normal(7, stream, (uint64_t)i);
}

/* What a weight of the model is made of, whatever its family calls it. */
static const char *role_name(mt_role role)
{
    switch (role) {
    case MT_W_GATE:
    case MT_W_E_GATE: return "gate";
    case MT_W_UP:
    case MT_W_E_UP: return "up";
    case MT_W_DOWN:
    case MT_W_E_DOWN: return "down";
    case MT_W_NORM1: return "norm1";
    case MT_W_NORM2: return "norm2";
    case MT_W_FINAL_NORM: return "norm";
    case MT_W_Q: return "q";
    case MT_W_K: return "k";
    case MT_W_V: return "v";
    case MT_W_O: return "o";
    case MT_W_ROUTER: return "router";
    case MT_W_HEAD: return "head";
    default: return "embed";
    }
}

static void write_model(const char *dir, const mixture *x)
{
    mt_err err = { 0 };
    char text[512], path[512];
    mt_config *c;
    mt_model *m;
    mt_safetensors_writer *w;
    int n = snprintf(text, sizeof text,
                     "{\"model_type\":\"%s\",\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":%d,"
                     "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"vocab_size\":%d,\"rms_norm_eps\":1e-5",
                     x->E ? "mixtral" : "mistral", D, I, L, V);
    if (x->E)
        n += snprintf(text + n, sizeof text - (size_t)n, ",\"num_local_experts\":%d,\"num_experts_per_tok\":%d", x->E, x->T);
    snprintf(text + n, sizeof text - (size_t)n, ",\"sliding_window\":null,\"rope_theta\":10000.0}");
    tempdir_write(dir, "config.json", text);
    tempdir_write(dir, "tokens.json",
                  "{\"input_ids\": [[1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 0, 1, 2, 3, 4, 5, 5, 5], [3, 3]]}");
    assert_ok(mt_config_open(&c, dir, &err));
    assert_ok(mt_model_create(&m, c, NULL, &err));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    for (int pass = 0; pass < 2; pass++) {
        for (int u = 0; u < m->n_units; u++)
            for (int k = 0; k < m->units[u].layout->n_weights; k++) {
                const mt_weight *t = &m->units[u].layout->weights[k];
                char name[MT_NAME_BYTES];
                mt_weight_name(&m->units[u], t, name);
                if (pass == 0) {
                    assert_ok(mt_safetensors_writer_add(w, name, MT_DTYPE_F32, t->slice.n_dims, t->slice.shape, &err));
                    continue;
                }
                float *f = mt_calloc((size_t)t->n, sizeof *f);
                if (t->role != MT_W_ROUTER || !x->zero_router)
                    fill(f, t->n, role_name(t->role), m->units[u].layer, x->same ? 0 : m->units[u].first_expert + t->expert);
                assert_ok(mt_safetensors_writer_put(w, name, 0, f, (size_t)t->n * sizeof *f, &err));
                mt_free(f);
            }
        if (pass == 0) assert_ok(mt_safetensors_writer_start(w, &err));
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_model_free(m);
    mt_config_close(c);
}

static void open_mixture(rig *r, const char *dir, const mixture *x)
{
    mt_err err = { 0 };
    mt_plan *plan;
    write_model(dir, x);
    rig_open_model(r, dir, &(mt_model_options){ .freeze = &x->freeze, .n_freeze = x->freeze ? 1 : 0 });
    mt_job job = rig_job(r, true);
    job.router_loss = x->router_loss;
    mt_arithmetic a = rig_arithmetic(r, MT_DTYPE_F32);
    assert_ok(mt_plan_choose(&plan, r->model, &job, &a, 0, &err));
    rig_start(r, plan, 2);
}

/* The gradient of a role in a layer, summed over experts [first, end). */
static void gradient(rig *r, int layer, mt_role role, int first, int end, float *sum, int64_t n)
{
    mt_err err = { 0 };
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int u = r->model->layers[layer].first; u < r->model->layers[layer].first + r->model->layers[layer].n; u++) {
        const mt_unit *unit = &r->model->units[u];
        if (!unit->layout->n_train) continue;
        float *g = mt_calloc((size_t)unit->layout->n_elems, sizeof *g);
        assert_ok(mt_engine_read_grad(r->engine, u, g, &err));
        for (int k = 0; k < unit->layout->n_weights; k++) {
            const mt_weight *w = &unit->layout->weights[k];
            const int e = unit->first_expert + w->expert;
            if (w->role != role || e < first || e >= end) continue;
            assert_int_equal(w->n, n);
            for (int64_t i = 0; i < n; i++) sum[i] += g[w->offset + i];
        }
        mt_free(g);
    }
}

typedef struct seen {
    double loss;
    float logits[32 * V];
    float gate[L][I * D], up[L][I * D], down[L][I * D], q[L][D * D];
} seen;

static void look(rig *r, seen *s, int E)
{
    mt_err err = { 0 };
    mt_step_result result;
    *s = (seen){ 0 };
    assert_ok(mt_engine_logits(r->engine, &r->batch, s->logits, &err));
    assert_ok(mt_engine_gradients(r->engine, &r->batch, &result, &err));
    s->loss = result.loss;
    for (int l = 0; l < L; l++) {
        gradient(r, l, E ? MT_W_E_GATE : MT_W_GATE, 0, E ? E : 1, s->gate[l], I * D);
        gradient(r, l, E ? MT_W_E_UP : MT_W_UP, 0, E ? E : 1, s->up[l], I * D);
        gradient(r, l, E ? MT_W_E_DOWN : MT_W_DOWN, 0, E ? E : 1, s->down[l], I * D);
        gradient(r, l, MT_W_Q, 0, 1, s->q[l], D * D);
    }
}

static void equal_experts_are_a_dense_layer(void **state)
{
    static const mixture mixtures[] = { { 1, 1, .same = true },    { 2, 2, .same = true },   { 3, 1, .same = true },
                                        { 60, 4, .same = true },   { 160, 6, .same = true }, { 384, 8, .same = true },
                                        { 512, 10, .same = true }, { 7, 7, .same = true },   { 5, 3, true, .same = true } };
    static seen dense, now;
    rig r;
    open_mixture(&r, *state, &(mixture){ .E = 0, .same = true });
    look(&r, &dense, 0);
    rig_close(&r);
    for (size_t i = 0; i < MT_COUNT(mixtures); i++) {
        const mixture *x = &mixtures[i];
        open_mixture(&r, *state, x);
        look(&r, &now, x->E);
        double far[] = { fabs(now.loss / dense.loss - 1), golden_distance(now.logits, dense.logits, 22 * V), 0 };
        for (int l = 0; l < L; l++) {
            far[2] = fmax(far[2], golden_distance(now.gate[l], dense.gate[l], I * D));
            far[2] = fmax(far[2], golden_distance(now.up[l], dense.up[l], I * D));
            far[2] = fmax(far[2], golden_distance(now.down[l], dense.down[l], I * D));
            far[2] = fmax(far[2], golden_distance(now.q[l], dense.q[l], D * D));
        }
        rig_close(&r);
        if (!(far[0] < 1e-6 && far[1] < 1e-5 && far[2] < 3e-5))
            fail_msg("%d of %d experts: loss %.1e, logits %.1e, gradients %.1e away from the dense model", x->T, x->E, far[0],
                     far[1], far[2]);
    }
}

static bool is_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

/* Ties go to the lowest: two experts get all rows, and the others exactly nothing. */
static void experts_without_rows_have_no_gradient_at_all(void **state)
{
    mt_err err = { 0 };
    mt_step_result result;
    rig r;
    open_mixture(&r, *state, &(mixture){ .E = 6, .T = 2, .zero_router = true });
    assert_ok(mt_engine_gradients(r.engine, &r.batch, &result, &err));
    for (int e = 0; e < 6; e++) {
        float g[3][I * D];
        gradient(&r, 1, MT_W_E_GATE, e, e + 1, g[0], I * D);
        gradient(&r, 1, MT_W_E_UP, e, e + 1, g[1], I * D);
        gradient(&r, 1, MT_W_E_DOWN, e, e + 1, g[2], I * D);
        for (int k = 0; k < 3; k++) assert_int_equal(is_zero(g[k], I * D), e >= 2);
    }
    rig_close(&r);
}

/* Those two have every row in each layer.  All probabilities are equal, and so the load-balancing loss is T, however uneven the
 * choice is. */
static void loads_and_their_loss_count_every_row(void **state)
{
    enum { E = 6, T = 2 };
    mt_err err = { 0 };
    mt_step_result result;
    rig r;
    open_mixture(&r, *state, &(mixture){ .E = E, .T = T, .zero_router = true, .router_loss = 0.1 });
    assert_ok(mt_engine_gradients(r.engine, &r.batch, &result, &err));
    for (int i = 0; i < L * E; i++) assert_int_equal(result.loads[i], i % E < T ? r.batch.n_tokens : 0);
    assert_true(fabs(result.router_loss - T) < 1e-6);
    rig_close(&r);
}

/* With a load-balancing loss a frozen router still sends a gradient to what comes before it. */
static void a_frozen_router_passes_the_balance_on(void **state)
{
    static seen without, with;
    for (int i = 0; i < 2; i++) {
        rig r;
        open_mixture(&r, *state, &(mixture){ .E = 6, .T = 2, .freeze = "*.gate.weight", .router_loss = i ? 0.3 : 0 });
        look(&r, i ? &with : &without, 6);
        rig_close(&r);
    }
    assert_true(with.loss == without.loss);
    assert_true(golden_distance(with.q[1], without.q[1], D * D) > 1e-3);
    assert_memory_equal(with.down[1], without.down[1], sizeof with.down[1]); /* nothing that balances comes after it */
}

/* Freezing takes nothing away from what is still trained. */
static void frozen_experts_leave_the_router_its_gradient_and_the_other_way_round(void **state)
{
    static const char *const freezes[] = { NULL, "*.experts.*", "*.gate.weight" };
    float router[3][6 * D], gate[3][I * D];
    for (int i = 0; i < 3; i++) {
        mt_err err = { 0 };
        mt_step_result result;
        rig r;
        open_mixture(&r, *state, &(mixture){ .E = 6, .T = 2, .freeze = freezes[i] });
        assert_ok(mt_engine_gradients(r.engine, &r.batch, &result, &err));
        gradient(&r, 0, MT_W_ROUTER, 0, 1, router[i], 6 * D);
        gradient(&r, 0, MT_W_E_GATE, 0, 6, gate[i], I * D);
        rig_close(&r);
    }
    assert_memory_equal(router[1], router[0], sizeof router[0]);
    assert_memory_equal(gate[2], gate[0], sizeof gate[0]);
    assert_true(is_zero(gate[1], I * D) && is_zero(router[2], 6 * D) && !is_zero(router[0], 6 * D));
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_TEMPDIR(equal_experts_are_a_dense_layer), IN_TEMPDIR(experts_without_rows_have_no_gradient_at_all),
             IN_TEMPDIR(loads_and_their_loss_count_every_row), IN_TEMPDIR(a_frozen_router_passes_the_balance_on),
             IN_TEMPDIR(frozen_experts_leave_the_router_its_gradient_and_the_other_way_round))
