/* Frozen weights that came as bf16 keep no low halves, and nothing else changes: random placements of a model with them and of
 * one without end with equal checksums, and a checkpoint of either resumes as the other, bit for bit.  What is not frozen gets the
 * gradient that it gets beside nothing frozen. */
#include "draw.h"
#include "lenders.h"
#include "tempdir.h"

#include "ckpt/ckpt_state.h"

#define FREEZE "*.mlp.*", "model.embed_tokens.weight"
static const char *const frozen[] = { FREEZE };

static bool yes(const void *files, const char *name) { return (void)files, (void)name, true; }

/* A model whose weights are all bf16, with some of them frozen; lean: without their low halves. */
static void open_frozen(rig *r, bool lean)
{
    mt_err err = { 0 };
    open_lenders(r, false);
    mt_model_free(r->model);
    mt_model_options o = { .freeze = frozen, .n_freeze = MT_COUNT(frozen), .is_bf16 = lean ? yes : NULL };
    assert_ok(mt_model_create(&r->model, r->config, &o, &err));
}

static mt_plan *draw_plan(const rig *r, const mt_job *job, const mt_arithmetic *a, uint64_t seed)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    dice d = { seed, 0 };
    assert_ok(mt_placement_init(&p, r->model, &err));
    draw(&p, r->model, job, a, &d);
    assert_ok(mt_plan_create(&plan, r->model, job, a, &p, &err));
    mt_placement_free(&p);
    return plan;
}

static uint64_t train(rig *r, int n)
{
    mt_err err = { 0 };
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5 };
    uint64_t sum;
    for (int i = 0; i < n; i++) {
        mt_step_result s;
        assert_ok(mt_engine_step(r->engine, &r->batch, &h, &s, &err));
        assert_false(s.skipped);
    }
    assert_ok(mt_engine_checksum(r->engine, &sum, &err));
    return sum;
}

static mt_arithmetic arithmetic_of(const rig *r, mt_dtype t)
{
    return (mt_arithmetic){ .compute = t, .grad = t, .micro_tokens = 2 * r->batch.longest, .mlp_rows = 40, .head_rows = 40 };
}

static void missing_low_halves_change_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        uint64_t full = 0;
        for (int lean = 0; lean < 2; lean++) {
            rig r;
            open_frozen(&r, lean);
            mt_job job = rig_job(&r, i / 2);
            mt_arithmetic a = arithmetic_of(&r, i % 2 ? MT_DTYPE_F32 : MT_DTYPE_BF16);
            for (uint64_t k = 0; k < (lean ? 8 : 2); k++) {
                start_lenders(&r, draw_plan(&r, &job, &a, 10 * (uint64_t)i + k), k % 2 ? 200 : 0);
                uint64_t sum = train(&r, 3);
                if (!full) full = sum;
                assert_true(sum == full);
                rig_stop(&r);
            }
            rig_close(&r);
        }
    }
}

static void they_take_two_bytes_a_parameter_less(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t bytes[2];
    int64_t n_frozen = 0;
    for (int lean = 0; lean < 2; lean++) {
        rig r;
        mt_placement p;
        mt_plan *plan;
        open_frozen(&r, lean);
        mt_job job = rig_job(&r, true);
        mt_arithmetic a = arithmetic_of(&r, MT_DTYPE_BF16);
        assert_ok(mt_placement_init(&p, r.model, &err));
        p.sweep_tokens = job.step_tokens;
        mt_placement_set_slots(&p, r.model, 1, 1, 1);
        for (int l = 0; l < r.config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
        assert_ok(mt_plan_create(&plan, r.model, &job, &a, &p, &err));
        bytes[lean] = plan->host_bytes;
        n_frozen = r.model->n_params - r.model->n_trained;
        mt_plan_free(plan);
        mt_placement_free(&p);
        rig_close(&r);
    }
    assert_true(bytes[0] - bytes[1] >= 2 * (size_t)n_frozen);
}

/* -- backward -------------------------------------------------------------------------------------- */

/* The gradients of a unit that trains something. */
static float *gradient_of(rig *r, int unit)
{
    mt_err err = { 0 };
    float *g = mt_calloc((size_t)r->model->units[unit].layout->n_train, sizeof *g);
    assert_non_null(g);
    assert_ok(mt_engine_read_grad(r->engine, unit, g, &err));
    return g;
}

static const mt_weight *same_weight(const mt_layout *l, const mt_weight *w)
{
    for (int i = 0; i < l->n_weights; i++)
        if (l->weights[i].role == w->role && l->weights[i].expert == w->expert) return &l->weights[i];
    fail_msg("no such weight");
    return NULL;
}

/* Every trained weight of the unit has the gradient that it has if all are trained. */
static void compare_unit(rig *some, rig *all, int unit)
{
    const mt_layout *l = some->model->units[unit].layout, *whole = all->model->units[unit].layout;
    if (!l->n_train) return;
    float *g = gradient_of(some, unit), *want = gradient_of(all, unit);
    for (int i = 0; i < l->n_weights; i++) {
        const mt_weight *w = &l->weights[i];
        if (!w->frozen) assert_memory_equal(g + w->offset, want + same_weight(whole, w)->offset, (size_t)w->n * sizeof *g);
    }
    mt_free(g);
    mt_free(want);
}

static void open_with_gradients(rig *r, const char *model, const char *const freeze[2], size_t n_freeze, uint64_t seed)
{
    mt_err err = { 0 };
    mt_step_result s;
    char dir[512];
    snprintf(dir, sizeof dir, MT_TESTS_DIR "/golden/models/%s", model);
    rig_open_model(r, dir, &(mt_model_options){ .freeze = freeze, .n_freeze = n_freeze });
    mt_job job = rig_job(r, true);
    mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = r->batch.longest, .mlp_rows = 5, .head_rows = 4
    };
    rig_start(r, draw_plan(r, &job, &a, seed), 2);
    assert_ok(mt_engine_gradients(r->engine, &r->batch, &s, &err));
}

/* However early backward ends. */
static void freezing_changes_no_gradient_of_the_rest(void **state)
{
    (void)state;
    static const struct {
        const char *model, *freeze[2];
    } cases[] = {
        { "qwen3", { "model.layers.0.*", "model.embed_tokens.weight" } },
        { "qwen3", { "model.layers.*", "model.[en]*" } }, /* the head alone */
        { "qwen3_tied", { "model.layers.0.*", "model.embed_tokens.weight" } },
        { "qwen3_tied", { "model.layers.*", "model.embed_tokens.weight" } },
        { "llama_tied", { "model.layers.*", "model.norm.weight" } },
        { "qwen3_moe", { "model.layers.0.*", "model.embed_tokens.weight" } },
        { "deepseek_v3", { "model.layers.[01].*", "model.embed_tokens.weight" } },
        { "qwen3_5", { "model.layers.[0-2].*", "model.embed_tokens.weight" } },
        { "gpt_oss", { "model.layers.0.*", "model.embed_tokens.weight" } },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig all, some;
        open_with_gradients(&all, cases[i].model, NULL, 0, 0);
        for (uint64_t k = 1; k < 8; k++) {
            open_with_gradients(&some, cases[i].model, cases[i].freeze, 2, 10 * i + k);
            for (int u = 0; u < some.model->n_units; u++) compare_unit(&some, &all, u);
            rig_close(&some);
        }
        rig_close(&all);
    }
}

/* -- checkpoints ------------------------------------------------------------------------------------ */

static mt_rc read_state(void *user, mt_state_range r, void *dst, mt_err *err) { return mt_engine_read(user, r, dst, err); }

static mt_rc write_state(void *user, mt_state_range r, const void *src, mt_err *err)
{
    return mt_engine_write(user, r, src, err);
}

static mt_state_io io_of(const rig *r) { return (mt_state_io){ .user = r->engine, .read = read_state, .write = write_state }; }

static void start(rig *r, bool lean, uint64_t seed)
{
    open_frozen(r, lean);
    mt_job job = rig_job(r, true);
    mt_arithmetic a = arithmetic_of(r, MT_DTYPE_BF16);
    start_lenders(r, draw_plan(r, &job, &a, seed), 0);
}

static void a_checkpoint_of_either_resumes_as_the_other(void **state)
{
    const char *dir = *state;
    for (int i = 0; i < 4; i++) {
        mt_err err = { 0 };
        rig from, to;
        start(&from, i / 2, 1);
        train(&from, 2);
        mt_state_io io = io_of(&from);
        for (int u = 0; u < mt__ckpt_files(from.model); u++) assert_ok(mt__ckpt_write_file(dir, from.model, u, &io, &err));
        start(&to, i % 2, 2);
        io = io_of(&to);
        for (int u = 0; u < mt__ckpt_files(to.model); u++) assert_ok(mt__ckpt_load_file(dir, to.model, u, &io, &err));
        mt_state_set_updates(mt_engine_state(to.engine), mt_state_updates(mt_engine_state(from.engine)));
        assert_true(train(&from, 2) == train(&to, 2));
        rig_close(&from);
        rig_close(&to);
    }
}

/* The files' weights are bf16 now and were not when the run began: their low halves have nowhere to go. */
static void low_halves_that_would_be_lost_are_refused(void **state)
{
    const char *dir = *state;
    mt_err err = { 0 };
    rig from, to;
    const int16_t low = 5;
    start(&from, false, 1);
    const mt_layout *l = from.model->units[1].layout;
    assert_ok(mt_engine_write(from.engine, (mt_state_range){ 1, MT_STATE_LO, l->n_train, 1 }, &low, &err));
    mt_state_io io = io_of(&from);
    assert_ok(mt__ckpt_write_file(dir, from.model, 1, &io, &err));
    start(&to, true, 2);
    io = io_of(&to);
    assert_int_equal(mt__ckpt_load_file(dir, to.model, 1, &io, &err), MT_EFORMAT);
    assert_says("the files that the run began with");
    rig_close(&from);
    rig_close(&to);
}

RIG_TEST_MAIN(cmocka_unit_test(missing_low_halves_change_no_bit), cmocka_unit_test(they_take_two_bytes_a_parameter_less),
              cmocka_unit_test(freezing_changes_no_gradient_of_the_rest),
              cmocka_unit_test_setup_teardown(a_checkpoint_of_either_resumes_as_the_other, tempdir_make, tempdir_remove),
              cmocka_unit_test_setup_teardown(low_halves_that_would_be_lost_are_refused, tempdir_make, tempdir_remove))
