/* Results are unchanged by speed.  After 20 steps the plainest placement (everything at home in host memory, the least device
 * memory that works) and the fastest (everything on the device) have equal checksums; one batch trained on for 50 steps halves
 * its loss and follows the CPU's fp32 losses; and both checks fail when the gradient of one weight of one layer has the wrong
 * sign.
 *
 * The wrong gradient comes from a table of ops in front of the device's: the link wraps mt_ops_of (tests/CMakeLists.txt). */
#include "rig.h"

#include "plan/search.h"

#include <math.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"

enum { PLACED_STEPS = 20, LEARNED_STEPS = 50 };

/* lr: the loss of one batch halves in 50 steps and is not near 0 yet, where shares of it mean little. */
/* bf16: how far a loss in it may be from fp32's.  Where a token is between two experts, rounding chooses. */
static const struct {
    const char *name;
    double lr, bf16;
} models[] = { { "qwen3", 5e-4, 1e-2 },     { "gpt2", 6e-4, 1e-2 },           { "olmo2", 5e-4, 1e-2 },
               { "cohere2", 2.5e-2, 1e-2 }, { "baichuan_alibi", 6e-4, 1e-2 }, { "qwen3_5_tied", 7e-4, 1e-2 },
               { "qwen3_moe", 6e-4, 2e-2 } };

/* -- a wrong gradient ------------------------------------------------------------------------------ */

const mt_ops *__real_mt_ops_of(const mt_device *dev);
const mt_ops *__wrap_mt_ops_of(const mt_device *dev);

static struct {
    bool armed;
    int64_t N, K;    /* shape of the weight */
    int64_t every;   /* how many layers have one */
    int64_t n_calls; /* products that made a gradient of this shape so far */
    mt_rc (*linear_bwd)(mt_stream *, const mt_linear *, mt_err *);
    mt_ops ops;
} wrong;

/* The last layer's comes first in backward, then the others'. */
static mt_rc wrong_linear_bwd(mt_stream *s, const mt_linear *a, mt_err *err)
{
    mt_linear b = *a;
    bool matches = wrong.armed && a->dw && a->N == wrong.N && a->K == wrong.K;
    if (matches && wrong.n_calls++ % wrong.every == 0) b.alpha = a->alpha != 0 ? -a->alpha : -1.0f;
    return wrong.linear_bwd(s, &b, err);
}

const mt_ops *__wrap_mt_ops_of(const mt_device *dev)
{
    wrong.ops = *__real_mt_ops_of(dev);
    wrong.linear_bwd = wrong.ops.linear_bwd;
    wrong.ops.linear_bwd = wrong_linear_bwd;
    return &wrong.ops;
}

/* Of the mlp's last product in the last layer. */
static void arm(const rig *r)
{
    wrong.armed = true;
    wrong.N = r->config->D, wrong.K = r->config->F, wrong.every = r->config->L, wrong.n_calls = 0;
}

/* -- runs ------------------------------------------------------------------------------------------ */

typedef struct curve {
    double loss[LEARNED_STEPS];
    uint64_t checksum;
} curve;

static void open_model(rig *r, const char *model)
{
    char dir[512];
    snprintf(dir, sizeof dir, GOLDEN_DIR "%s", model);
    rig_open_model(r, dir, NULL);
}

/* The whole batch at once: what is compared is arithmetic, not how it is cut. */
static mt_plan *plan_within(const rig *r, mt_dtype compute, mt_dtype grad, size_t device_bytes)
{
    mt_err err = { 0 };
    mt_plan *plan = NULL;
    mt_job job = rig_job(r, true);
    mt_arithmetic a = rig_arithmetic(r, compute);
    a.grad = grad;
    return mt_plan_choose(&plan, r->model, &job, &a, device_bytes, &err) ? NULL : plan;
}

/* The least device memory that a plan can be made for. */
static mt_plan *plainest(const rig *r, mt_dtype compute, mt_dtype grad)
{
    mt_plan *plan = plan_within(r, compute, grad, 0);
    size_t lo = 0, hi = plan->device_bytes;
    mt_plan_free(plan);
    while (hi - lo > 64) {
        size_t mid = lo + (hi - lo) / 2;
        plan = plan_within(r, compute, grad, mid);
        *(plan ? &hi : &lo) = mid;
        mt_plan_free(plan);
    }
    return plan_within(r, compute, grad, hi);
}

static void train(rig *r, const char *device, mt_plan *plan, int n_steps, double lr, curve *out)
{
    mt_err err = { 0 };
    mt_step_result s;
    const mt_hyper h = { .lr = lr, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.0, .max_grad_norm = 1.0 };
    *out = (curve){ 0 };
    assert_non_null(plan);
    rig_start_on(r, device, plan, 2);
    for (int i = 0; i < n_steps; i++) {
        assert_ok(mt_engine_step(r->engine, &r->batch, &h, &s, &err));
        assert_false(s.skipped);
        out->loss[i] = s.loss;
    }
    assert_ok(mt_engine_checksum(r->engine, &out->checksum, &err));
    rig_stop(r);
}

/* -- the plainest and the fastest placement -------------------------------------------------------- */

static bool placements_agree(const char *model, mt_dtype compute, bool with_wrong_gradient)
{
    rig r;
    curve plain, fast;
    open_model(&r, model);
    train(&r, rig_device(), plainest(&r, compute, MT_DTYPE_BF16), PLACED_STEPS, 1e-3, &plain);
    if (with_wrong_gradient) arm(&r);
    train(&r, rig_device(), plan_within(&r, compute, MT_DTYPE_BF16, 0), PLACED_STEPS, 1e-3, &fast);
    wrong.armed = false;
    rig_close(&r);
    return memcmp(&plain, &fast, sizeof plain) == 0;
}

static void the_plainest_and_the_fastest_placement_learn_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(models); i++) {
        assert_true(placements_agree(models[i].name, MT_DTYPE_BF16, false));
        assert_true(placements_agree(models[i].name, MT_DTYPE_F32, false));
    }
}

static void a_wrong_gradient_shows_between_placements(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(models); i++) assert_false(placements_agree(models[i].name, MT_DTYPE_BF16, true));
}

/* -- one batch, again and again -------------------------------------------------------------------- */

/* Is the curve the CPU's in fp32, and is its end at most half its beginning?  Allowed: a share of the loss itself. */
static bool learns_as_the_cpu(const char *model, double lr, mt_dtype compute, double allowed, bool with_wrong_gradient)
{
    rig r;
    curve want, got;
    double worst = 0;
    open_model(&r, model);
    train(&r, "cpu", plan_within(&r, MT_DTYPE_F32, MT_DTYPE_F32, 0), LEARNED_STEPS, lr, &want);
    if (with_wrong_gradient) arm(&r);
    train(&r, rig_device(), plan_within(&r, compute, MT_DTYPE_F32, 0), LEARNED_STEPS, lr, &got);
    wrong.armed = false;
    for (int i = 0; i < LEARNED_STEPS; i++) worst = fmax(worst, fabs(got.loss[i] / want.loss[i] - 1));
    double left = got.loss[LEARNED_STEPS - 1] / got.loss[0];
    print_message("%s, %s%s: %.2e away at most, loss %.3f to %.3f\n", model, mt_dtype_name(compute),
                  with_wrong_gradient ? ", one gradient wrong" : "", worst, got.loss[0], got.loss[LEARNED_STEPS - 1]);
    rig_close(&r);
    return worst <= allowed && left <= 0.5;
}

static void one_batch_is_learned_along_the_cpus_curve(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(models); i++) {
        assert_true(learns_as_the_cpu(models[i].name, models[i].lr, MT_DTYPE_F32, 1e-3, false));
        assert_true(learns_as_the_cpu(models[i].name, models[i].lr, MT_DTYPE_BF16, models[i].bf16, false));
    }
}

static void a_wrong_gradient_shows_in_the_curve(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(models); i++)
        assert_false(learns_as_the_cpu(models[i].name, models[i].lr, MT_DTYPE_BF16, models[i].bf16, true));
}

RIG_TEST_MAIN(cmocka_unit_test(the_plainest_and_the_fastest_placement_learn_the_same),
              cmocka_unit_test(a_wrong_gradient_shows_between_placements),
              cmocka_unit_test(one_batch_is_learned_along_the_cpus_curve), cmocka_unit_test(a_wrong_gradient_shows_in_the_curve))
