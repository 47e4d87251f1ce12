/* Checksums of every golden model after three steps, under several arithmetics and random placements, one line each: to compare
 * two trees on one machine, `equiv_bits > before` in one and `equiv_bits | diff before -` in the other.  Not a test by itself:
 * products add in an order that depends on the processor.  MT_DRAWS: placements for each line, which must agree. */
#include "draw.h"
#include "golden.h"

#include <stdlib.h>

static const struct {
    const char *name;
    mt_dtype compute, grad;
    mt_moments moments;
    bool clip;
} forms[] = {
    { "f32", MT_DTYPE_F32, MT_DTYPE_F32, MT_MOMENTS_F32, true },
    { "bf16", MT_DTYPE_BF16, MT_DTYPE_BF16, MT_MOMENTS_F32, true },
    { "bf16-noclip", MT_DTYPE_BF16, MT_DTYPE_F32, MT_MOMENTS_F32, false },
    { "f32-bf16moments", MT_DTYPE_F32, MT_DTYPE_BF16, MT_MOMENTS_BF16, true },
    { "bf16-8bit", MT_DTYPE_BF16, MT_DTYPE_BF16, MT_MOMENTS_8BIT, false },
};

static uint64_t three_steps(rig *r, const mt_job *job, const mt_arithmetic *a, uint64_t seed, double *loss)
{
    static const mt_hyper h = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5
    };
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    mt_step_result s;
    uint64_t sum;
    dice d = { seed, 0 };
    assert_ok(mt_placement_init(&p, r->model, &err));
    draw(&p, r->model, job, a, &d);
    assert_ok(mt_plan_create(&plan, r->model, job, a, &p, &err));
    mt_placement_free(&p);
    rig_start(r, plan, 1);
    for (int i = 0; i < 3; i++) assert_ok(mt_engine_step(r->engine, &r->batch, &h, &s, &err));
    assert_ok(mt_engine_checksum(r->engine, &sum, &err));
    *loss = s.loss;
    rig_stop(r);
    return sum;
}

static void every_golden_model(void **state)
{
    (void)state;
    const char *env = getenv("MT_DRAWS");
    int draws = env ? atoi(env) : 5;
    for (size_t i = 0; i < MT_COUNT(golden_cases); i++)
        for (size_t k = 0; k < MT_COUNT(forms); k++) {
            rig r;
            char dir[512];
            double loss, other;
            snprintf(dir, sizeof dir, "%s%s", GOLDEN_DIR, golden_cases[i]);
            rig_open_model(&r, dir, NULL);
            mt_job job = rig_job(&r, forms[k].clip);
            mt_arithmetic a = { .compute = forms[k].compute,
                                .grad = forms[k].grad,
                                .moments = forms[k].moments,
                                .micro_tokens = r.batch.longest,
                                .mlp_rows = 5,
                                .head_rows = 4 };
            uint64_t first = three_steps(&r, &job, &a, 1, &loss);
            for (int n = 1; n < draws; n++)
                assert_true(three_steps(&r, &job, &a, 1 + (uint64_t)n, &other) == first && other == loss);
            printf("%-20s %-16s %016llx %.9g\n", golden_cases[i], forms[k].name, (unsigned long long)first, loss);
            fflush(stdout);
            rig_close(&r);
        }
}

RIG_TEST_MAIN(cmocka_unit_test(every_golden_model))
