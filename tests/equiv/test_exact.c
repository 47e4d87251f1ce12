/* Numbers that a family calls exact reach the device in fp32, whatever it computes in: for random placements, what every norm of
 * every step finds beside its weights is the master of that moment, bit for bit.  The norms of a family made for this test are
 * exact, trained with and without decay or frozen, and so is a whole matrix. */
#include "draw.h"
#include "tempdir.h"

#include "base/split.h"
#include "ckpt/export.h"
#include "device/device_cpu.h"
#include "engine/internal.h"
#include "engine/lane_internal.h"
#include "plan/search.h"
#include "schedule/sequence_internal.h"

#include <stdatomic.h>
#include <string.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"
enum { STEPS = 3, MOST_ROWS = 64 };

/* -- a family with exact tensors ------------------------------------------------------------------- */

static mt_family family;
static mt_tensor_row rows[MOST_ROWS];

static bool is_exact(mt_role role)
{
    return role == MT_W_NORM1 || role == MT_W_NORM2 || role == MT_W_FINAL_NORM || role == MT_W_DOWN || role == MT_B_Q;
}

static void open_exact(rig *r, const char *model, const mt_model_options *o)
{
    mt_err err = { 0 };
    char dir[512];
    snprintf(dir, sizeof dir, GOLDEN_DIR "%s", model);
    rig_open_model(r, dir, NULL);
    mt_model_free(r->model);
    family = *r->config->family;
    for (int i = 0; i == 0 || rows[i - 1].name; i++) {
        assert_true(i < MOST_ROWS);
        rows[i] = family.tensors[i];
        rows[i].exact = rows[i].name && is_exact(rows[i].role);
    }
    family.tensors = rows;
    r->config->family = &family;
    assert_ok(mt_model_create(&r->model, r->config, o, &err));
}

/* -- masters as they were after each update --------------------------------------------------------- */

typedef struct masters {
    float *of[STEPS + 1]; /* after this many updates: exact numbers of all units, one after the other */
    int64_t *first;       /* [n_units] where a unit's begin */
} masters;

static masters open_masters(const mt_model *m)
{
    masters k = { .first = mt_calloc((size_t)m->n_units, sizeof *k.first) };
    int64_t n = 0;
    for (int u = 0; u < m->n_units; u++) {
        k.first[u] = n;
        n += m->units[u].layout->n_exact;
    }
    assert_true(n > 0);
    for (int i = 0; i <= STEPS; i++) k.of[i] = mt_calloc((size_t)n, sizeof **k.of);
    return k;
}

static void close_masters(masters *k)
{
    for (int i = 0; i <= STEPS; i++) mt_free(k->of[i]);
    mt_free(k->first);
}

static void read_masters(const rig *r, masters *k, int updates)
{
    mt_err err = { 0 };
    for (int u = 0; u < r->model->n_units; u++)
        for (int i = 0; i < MT_EXACT_RUNS; i++) {
            const mt_exact_run *x = &r->model->units[u].layout->exact[i];
            uint16_t *hi = mt_calloc((size_t)x->n + 1, sizeof *hi);
            int16_t *lo = mt_calloc((size_t)x->n + 1, sizeof *lo);
            assert_ok(mt_engine_read(r->engine, (mt_state_range){ u, MT_STATE_HI, x->first, x->n }, hi, &err));
            assert_ok(mt_engine_read(r->engine, (mt_state_range){ u, MT_STATE_LO, x->first, x->n }, lo, &err));
            mt_join_array(k->of[updates] + k->first[u] + x->at, hi, lo, (size_t)x->n);
            mt_free(hi), mt_free(lo);
        }
}

/* Numbers with low halves, whatever the files have. */
static void write_random(const rig *r, masters *k)
{
    mt_err err = { 0 };
    for (int u = 0; u < r->model->n_units; u++)
        for (int i = 0; i < r->model->units[u].layout->n_weights; i++) {
            const mt_layout *l = r->model->units[u].layout;
            const mt_weight *w = &l->weights[i];
            for (int64_t j = 0; w->exact && j < w->n; j++) {
                uint16_t hi;
                int16_t lo;
                float x = 1 + 0.1f * mt_rng_normal(3, (uint64_t)(100 * u + i), (uint64_t)j);
                mt_split(x, &hi, &lo);
                assert_ok(mt_engine_write(r->engine, (mt_state_range){ u, MT_STATE_HI, w->offset + j, 1 }, &hi, &err));
                assert_ok(mt_engine_write(r->engine, (mt_state_range){ u, MT_STATE_LO, w->offset + j, 1 }, &lo, &err));
                k->of[0][k->first[u] + l->exact_at[w->role] + j] = x;
            }
        }
}

/* -- looking, while a step runs --------------------------------------------------------------------- */

static struct {
    const mt_lane *lane;
    const masters *masters;
    const mt_ops *ops;
    atomic_int n_looks, n_wrong;
} watched;

typedef struct look {
    const float *there, *expected;
    int64_t n;
} look;

static mt_rc look_task(mt_pool *pool, const void *args, mt_err *err)
{
    const look *l = args;
    (void)pool, (void)err;
    if (memcmp(l->there, l->expected, (size_t)l->n * sizeof *l->there) != 0) atomic_fetch_add(&watched.n_wrong, 1);
    atomic_fetch_add(&watched.n_looks, 1);
    return MT_OK;
}

/* The exact numbers of the role whose bf16 weights are at w. */
static mt_rc queue_look(mt_stream *s, const void *w, mt_err *err)
{
    const mt_lane *e = watched.lane;
    for (int i = 0; i < e->sequence->n_ring; i++) {
        const ring_slot *r = &e->ring[i];
        const seq_ring_slot *holds = &e->sequence->ring[i];
        const mt_layout *l = holds->unit < 0 ? NULL : mt__layout(e, holds->unit);
        int64_t at = l ? ((const char *)w - (const char *)r->p) / 2 : -1;
        if (!l || at < 0 || at >= l->n_elems) continue;
        for (const mt_weight *k = l->weights; k < l->weights + l->n_weights; k++) {
            if (!k->exact || k->offset != at) continue;
            mt_weights both = { r->p, r->exact };
            const float *expected =
                watched.masters->of[holds->version] + watched.masters->first[holds->unit] + l->exact_at[k->role];
            look task = { mt_exact_weight(&both, l, MT_DTYPE_BF16, k->role), expected, k->n };
            return mt_cpu_enqueue(s, look_task, &task, sizeof task, err);
        }
    }
    return MT_OK;
}

static mt_rc watched_norm(mt_stream *s, const mt_norm *a, mt_err *err)
{
    MT_TRY(queue_look(s, a->w, err));
    return watched.ops->norm_fwd(s, a, err);
}

static void watch(const rig *r, const masters *k, mt_ops *ops)
{
    *ops = *r->engine->lane->ops;
    ops->norm_fwd = watched_norm;
    watched.lane = r->engine->lane;
    watched.masters = k;
    watched.ops = r->engine->lane->ops;
    watched.n_looks = watched.n_wrong = 0;
    r->engine->lane->ops = r->engine->lane->run.ops = ops;
}

static void check_looks(int least)
{
    assert_true(watched.n_looks >= least);
    assert_int_equal(watched.n_wrong, 0);
}

/* -- training --------------------------------------------------------------------------------------- */

typedef struct exact_case {
    const char *model;
    mt_dtype grad;
    mt_moments moments;
    bool clip, decay_all;
    const char *freeze[2];
} exact_case;

static const exact_case cases[] = {
    { "qwen3", MT_DTYPE_F32, MT_MOMENTS_F32, true, false, { 0 } },
    { "qwen3_tied", MT_DTYPE_BF16, MT_MOMENTS_BF16, true, true, { 0 } },
    { "qwen2_window", MT_DTYPE_BF16, MT_MOMENTS_F32, false, false, { "*post_attention_layernorm*", "*.1.mlp.*" } },
    /* Little is trained: these borrow. */
    { "qwen2_window", MT_DTYPE_BF16, MT_MOMENTS_8BIT, true, false, { "*_proj.weight", "lm_head.weight" } },
};

static uint64_t steps(rig *r, masters *k, bool first, dice *d)
{
    mt_err err = { 0 };
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5 };
    uint64_t sum;
    for (int i = 0; i < STEPS; i++) {
        mt_step_result s;
        if (!first && roll(d, 3) == 0) assert_ok(mt_engine_evaluate(r->engine, &r->batch, &s, &err));
        assert_ok(mt_engine_step(r->engine, &r->batch, &h, &s, &err));
        if (first) read_masters(r, k, i + 1);
    }
    assert_ok(mt_engine_checksum(r->engine, &sum, &err));
    return sum;
}

static void check_case(const exact_case *c, int draws, uint64_t seed)
{
    mt_err err = { 0 };
    rig r;
    mt_ops ops;
    uint64_t first = 0;
    open_exact(&r, c->model,
               &(mt_model_options){ .freeze = c->freeze, .n_freeze = c->freeze[0] ? 2 : 0, .decay_all = c->decay_all });
    masters k = open_masters(r.model);
    mt_job job = rig_job(&r, c->clip);
    mt_arithmetic a = { .compute = MT_DTYPE_BF16,
                        .grad = c->grad,
                        .moments = c->moments,
                        .micro_tokens = r.batch.longest,
                        .mlp_rows = 5,
                        .head_rows = 4 };
    for (int i = 0; i < draws; i++) {
        dice d = { seed + (uint64_t)i, 0 };
        mt_placement p;
        mt_plan *plan;
        assert_ok(mt_placement_init(&p, r.model, &err));
        draw(&p, r.model, &job, &a, &d);
        assert_ok(mt_plan_create(&plan, r.model, &job, &a, &p, &err));
        mt_placement_free(&p);
        rig_start_dawdling(&r, plan, 1 + i % 3, i % 2 ? 300 : 0);
        write_random(&r, &k);
        if (i) watch(&r, &k, &ops);
        uint64_t sum = steps(&r, &k, i == 0, &d);
        if (i) check_looks(STEPS * (int)r.config->L);
        rig_stop(&r);
        if (i == 0) first = sum;
        assert_true(sum == first);
    }
    assert_true(memcmp(k.of[0], k.of[STEPS], (size_t)r.model->units[1].layout->n_exact * sizeof **k.of) != 0); /* they learn */
    close_masters(&k);
    rig_close(&r);
}

static void exact_numbers_are_the_masters_in_every_placement(void **state)
{
    (void)state;
    const char *env = getenv("MT_DRAWS");
    int draws = env ? atoi(env) : 20;
    for (size_t i = 0; i < MT_COUNT(cases); i++) check_case(&cases[i], draws + 1, 100 * (i + 1));
}

/* -- forward only ----------------------------------------------------------------------------------- */

/* As much device memory as it likes and as little as it can do with; weights in memory, or mapped. */
static void forward_plans_have_exact_numbers_too(void **state)
{
    (void)state;
    static const char *const models[] = { "qwen3", "llama_bf16" };
    for (int i = 0; i < 6; i++) {
        mt_err err = { 0 };
        rig r;
        mt_ops ops;
        mt_step_result s;
        mt_plan *plan;
        open_exact(&r, models[i / 2 > 0], NULL);
        masters k = open_masters(r.model);
        mt_job job = {
            .step_tokens = r.batch.n_tokens, .step_docs = r.batch.n_docs, .longest = r.batch.longest, .mapped = i >= 4
        };
        mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_BF16);
        assert_true(!job.mapped || mt_weights_mapped(r.model, r.shards));
        size_t least = 0;
        for (size_t step = (size_t)1 << 30; i % 2 && step > 64; step /= 2) {
            if (mt_plan_choose(&plan, r.model, &job, &a, least + step, &err) == MT_OK)
                mt_plan_free(plan);
            else
                least += step;
        }
        assert_ok(mt_plan_choose(&plan, r.model, &job, &a, i % 2 ? least + 128 : 0, &err));
        rig_start(&r, plan, 2);
        write_random(&r, &k);
        watch(&r, &k, &ops);
        for (int n = 0; n < 2; n++) assert_ok(mt_engine_evaluate(r.engine, &r.batch, &s, &err));
        check_looks(2 * (int)r.config->L);
        rig_stop(&r);
        close_masters(&k);
        rig_close(&r);
    }
}

/* -- files ------------------------------------------------------------------------------------------ */

/* What is loaded is what the file has: 32 bits of each number. */
static void exact_numbers_come_from_the_file_bit_for_bit(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    mt_plan *plan;
    open_exact(&r, "qwen3", NULL);
    masters k = open_masters(r.model);
    mt_job job = rig_job(&r, true);
    mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_BF16);
    assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
    rig_start(&r, plan, 2);
    read_masters(&r, &k, 0);
    int64_t odd = 0;
    for (int u = 0; u < r.model->n_units; u++)
        for (int i = 0; i < r.model->units[u].layout->n_weights; i++) {
            const mt_layout *l = r.model->units[u].layout;
            const mt_weight *w = &l->weights[i];
            char name[MT_NAME_BYTES];
            if (!w->exact) continue;
            float *file = mt_calloc((size_t)w->n, sizeof *file);
            mt_weight_name(&r.model->units[u], w, name);
            mt_st_read(mt_shards_find(r.shards, name), 0, (size_t)w->n, file);
            assert_memory_equal(file, k.of[0] + k.first[u] + l->exact_at[w->role], (size_t)w->n * sizeof *file);
            for (int64_t j = 0; j < w->n; j++) odd += (mt_f32_bits(file[j]) & 0xffff) != 0;
            mt_free(file);
        }
    assert_true(odd > 0);
    close_masters(&k);
    rig_close(&r);
}

static mt_rc read_engine(void *user, mt_state_range r, void *dst, mt_err *err) { return mt_engine_read(user, r, dst, err); }

/* After two updates, what is saved is the masters: 32 bits of each number. */
static void exact_numbers_go_into_the_file_bit_for_bit(void **state)
{
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5 };
    mt_err err = { 0 };
    mt_step_result step;
    rig r;
    mt_plan *plan;
    mt_shards *written;
    mt_side_files files;
    const char *out = *state;
    open_exact(&r, "qwen3", NULL);
    masters k = open_masters(r.model);
    mt_job job = rig_job(&r, true);
    mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_BF16);
    assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
    rig_start(&r, plan, 2);
    for (int i = 0; i < 2; i++) assert_ok(mt_engine_step(r.engine, &r.batch, &h, &step, &err));
    read_masters(&r, &k, 0);
    assert_ok(mt_side_files_read(&files, GOLDEN_DIR "qwen3", &err));
    const mt_export x = { .model = r.model,
                          .files = &files,
                          .source = r.shards,
                          .dtype = MT_DTYPE_F32,
                          .max_shard_bytes = (size_t)1 << 30,
                          .end_of_turn = -1 };
    assert_ok(mt_export_write(&x, &(mt_state_io){ .user = r.engine, .read = read_engine }, out, &err));
    assert_ok(mt_shards_open(&written, out, &err));
    int64_t odd = 0;
    for (int u = 0; u < r.model->n_units; u++) {
        const mt_layout *l = r.model->units[u].layout;
        for (int i = 0; i < l->n_weights; i++) {
            const mt_weight *w = &l->weights[i];
            char name[MT_NAME_BYTES];
            if (!w->exact) continue;
            float *file = mt_calloc((size_t)w->n, sizeof *file);
            mt_weight_name(&r.model->units[u], w, name);
            mt_st_read(mt_shards_find(written, name), 0, (size_t)w->n, file);
            assert_memory_equal(file, k.of[0] + k.first[u] + l->exact_at[w->role], (size_t)w->n * sizeof *file);
            for (int64_t j = 0; j < w->n; j++) odd += (mt_f32_bits(file[j]) & 0xffff) != 0;
            mt_free(file);
        }
    }
    assert_true(odd > 0); /* there were low halves to lose */
    mt_shards_close(written);
    mt_side_files_free(&files);
    close_masters(&k);
    rig_close(&r);
}

RIG_TEST_MAIN(cmocka_unit_test(exact_numbers_are_the_masters_in_every_placement),
              cmocka_unit_test(forward_plans_have_exact_numbers_too),
              cmocka_unit_test(exact_numbers_come_from_the_file_bit_for_bit),
              cmocka_unit_test_setup_teardown(exact_numbers_go_into_the_file_bit_for_bit, tempdir_make, tempdir_remove))
