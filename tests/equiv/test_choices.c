/* Choices that save memory (docs/memory.md): what each takes, by the plan, and what it changes, to the bit.
 *
 *     gradients as bf16 instead of fp32    those of fp32, rounded once
 *     clipping off                         the bits of clipping at infinity
 *     kept inputs in host memory           no bit
 *     Adam's moments in bf16 or 8 bits     golden.adam_states has their bits; here that a model learns alike */
#include "rig.h"

#include "base/mem.h"
#include "plan/search.h"

#include <math.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"

static mt_plan *plan_of(const rig *r, const mt_job *job, const mt_arithmetic *a, mt_whether offload)
{
    mt_err err = { 0 };
    mt_plan *plan;
    mt_machine machine = mt_machine_typical();
    machine.home_host = true;
    machine.limits.offload = offload;
    assert_ok(mt_plan_search(&plan, (mt_plan_inputs){ r->model, job, a, &machine }, &err));
    return plan;
}

/* -- what each takes ------------------------------------------------------------------------------- */

/* Host bytes of state and waiting gradients; *slack: what buffers are rounded up by, at most. */
static size_t host_state(const mt_plan *p, size_t *slack)
{
    size_t bytes = 0;
    *slack = 0;
    for (size_t i = 0; i < p->n_buffers; i++) {
        const mt_buffer *b = &p->buffers[i];
        if (b->place != MT_HOST || b->kind > MT_BUF_PARKED) continue;
        bytes += b->bytes;
        *slack += MT_DEVICE_ALIGN;
    }
    return bytes;
}

static void each_takes_the_bytes_it_says(void **state)
{
    (void)state;
    static const struct {
        mt_dtype grad;
        bool clip;
        mt_state_form form;
        double bytes; /* a parameter: master 4, moments, gradient */
    } choices[] = {
        { MT_DTYPE_F32, true, { .moments = MT_MOMENTS_F32 }, 16 },
        { MT_DTYPE_BF16, true, { .moments = MT_MOMENTS_F32 }, 14 },
        { MT_DTYPE_BF16, false, { .moments = MT_MOMENTS_F32 }, 12 },
        { MT_DTYPE_BF16, true, { .moments = MT_MOMENTS_BF16 }, 10 },
        { MT_DTYPE_BF16, false, { .moments = MT_MOMENTS_BF16 }, 8 },
        { MT_DTYPE_BF16, true, { .moments = MT_MOMENTS_8BIT }, 8 + 2.0 / MT_MOMENT_BLOCK },
        { MT_DTYPE_BF16, false, { .moments = MT_MOMENTS_8BIT }, 6 + 2.0 / MT_MOMENT_BLOCK },
        { MT_DTYPE_BF16, true, { MT_OPTIMIZER_LION, MT_MOMENTS_F32 }, 10 },
        { MT_DTYPE_BF16, true, { MT_OPTIMIZER_LION, MT_MOMENTS_BF16 }, 8 },
        { MT_DTYPE_BF16, true, { MT_OPTIMIZER_LION, MT_MOMENTS_8BIT }, 7 + 1.0 / MT_MOMENT_BLOCK },
    };
    rig r;
    int64_t n = 0; /* with the gaps between tensors, which a toy has many of */
    rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
    for (int u = 0; u < r.model->n_units; u++) n += r.model->units[u].layout->n_train;
    for (size_t i = 0; i < MT_COUNT(choices); i++) {
        mt_job job = rig_job(&r, choices[i].clip);
        mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_BF16);
        size_t slack;
        a.grad = choices[i].grad;
        a.optimizer = choices[i].form.optimizer;
        a.moments = choices[i].form.moments;
        mt_plan *plan = plan_of(&r, &job, &a, MT_MAY);
        /* Staged units keep their gradients there: they are counted as if parked. */
        double bytes = (double)host_state(plan, &slack), said = choices[i].bytes * (double)n;
        for (int u = 0; choices[i].clip && u < r.model->n_units; u++)
            if (plan->place.units[u].site != MT_SITE_HOST)
                bytes += (double)r.model->units[u].layout->n_train * (double)mt_dtype_bytes(a.grad);
        if (bytes < said || bytes > said + (double)slack)
            fail_msg("choice %zu: %.0f bytes, said %.0f and at most %zu more", i, bytes, said, slack);
        mt_plan_free(plan);
    }
    rig_close(&r);
}

/* -- what each changes ----------------------------------------------------------------------------- */

static uint64_t three_steps(rig *r, mt_plan *plan, double max_grad_norm)
{
    mt_err err = { 0 };
    uint64_t sum;
    const mt_hyper h = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = max_grad_norm
    };
    rig_start(r, plan, 2);
    for (int i = 0; i < 3; i++) {
        mt_step_result s;
        assert_ok(mt_engine_step(r->engine, &r->batch, &h, &s, &err));
    }
    assert_ok(mt_engine_checksum(r->engine, &sum, &err));
    rig_stop(r);
    return sum;
}

static void clipping_off_is_clipping_at_infinity(void **state)
{
    (void)state;
    rig r;
    rig_open_model(&r, GOLDEN_DIR "qwen3_tied", NULL);
    for (mt_moments form = 0; form < MT_MOMENTS_FORMS; form++) {
        mt_job clips = rig_job(&r, true), never = rig_job(&r, false);
        mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_BF16);
        a.grad = MT_DTYPE_BF16;
        a.moments = form;
        uint64_t off = three_steps(&r, plan_of(&r, &never, &a, MT_MAY), 0);
        assert_true(off == three_steps(&r, plan_of(&r, &clips, &a, MT_MAY), INFINITY));
        assert_true(off != three_steps(&r, plan_of(&r, &clips, &a, MT_MAY), 0.1)); /* it would be noticed */
    }
    rig_close(&r);
}

static void gradients_in_bf16_are_those_in_fp32_rounded(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    rig_open_model(&r, GOLDEN_DIR "qwen3_tied", NULL);
    int64_t most = 0, n_rounded = 0;
    for (int u = 0; u < r.model->n_units; u++) most = mt_max_i64(most, r.model->units[u].layout->n_train);
    float *whole = mt_calloc((size_t)(most * r.model->n_units), sizeof *whole),
          *rounded = mt_calloc((size_t)most, sizeof *rounded);
    for (int k = 0; k < 2; k++) {
        mt_job job = rig_job(&r, true);
        mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_F32);
        mt_step_result s;
        a.grad = k ? MT_DTYPE_BF16 : MT_DTYPE_F32;
        rig_start(&r, plan_of(&r, &job, &a, MT_MAY), 2);
        assert_ok(mt_engine_gradients(r.engine, &r.batch, &s, &err));
        for (int u = 0; u < r.model->n_units; u++) {
            float *f32 = whole + u * most;
            assert_ok(mt_engine_read_grad(r.engine, u, k ? rounded : f32, &err));
            for (int64_t i = 0; k && i < r.model->units[u].layout->n_train; i++) {
                assert_true(rounded[i] == mt_bf16_to_f32(mt_f32_to_bf16(f32[i])));
                n_rounded += rounded[i] != f32[i];
            }
        }
        rig_stop(&r);
    }
    assert_true(n_rounded > 100);
    mt_free(whole), mt_free(rounded);
    rig_close(&r);
}

static bool offloads(const mt_plan *p)
{
    for (int l = 0; l < p->model->config->L; l++)
        if (p->place.layers[l].keep != MT_KEEP_NOTHING && p->place.layers[l].place == MT_HOST) return true;
    return false;
}

static void kept_inputs_in_host_memory_change_no_bit(void **state)
{
    (void)state;
    rig r;
    rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
    for (mt_moments form = 0; form < MT_MOMENTS_FORMS; form++) {
        mt_job job = rig_job(&r, true);
        mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_BF16);
        a.micro_tokens = r.batch.longest;
        a.moments = form;
        mt_plan *here = plan_of(&r, &job, &a, MT_MUST_NOT), *there = plan_of(&r, &job, &a, MT_MUST);
        assert_true(!offloads(here) && offloads(there));
        assert_true(three_steps(&r, here, 1) == three_steps(&r, there, 1));
    }
    rig_close(&r);
}

/* Twenty steps on one batch: a small form of moments ends where fp32's ends, within a part of how far it came. */
static void a_model_learns_alike_with_smaller_moments(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    double losses[MT_MOMENTS_FORMS] = { 0 }, start = 0;
    rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
    for (mt_moments form = 0; form < MT_MOMENTS_FORMS; form++) {
        mt_job job = rig_job(&r, true);
        mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_F32);
        mt_step_result s;
        a.moments = form;
        rig_start(&r, plan_of(&r, &job, &a, MT_MAY), 2);
        for (int i = 0; i < 20; i++) {
            const mt_hyper h = { .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1 };
            assert_ok(mt_engine_step(r.engine, &r.batch, &h, &s, &err));
            if (i == 0) start = s.loss;
        }
        losses[form] = s.loss;
        print_message("%s: %.4f to %.4f\n", mt_moments_name(form), start, s.loss);
        rig_stop(&r);
    }
    double came = start - losses[MT_MOMENTS_F32];
    assert_true(came > 0.5);
    assert_true(fabs(losses[MT_MOMENTS_BF16] - losses[MT_MOMENTS_F32]) < 0.01 * came);
    assert_true(fabs(losses[MT_MOMENTS_8BIT] - losses[MT_MOMENTS_F32]) < 0.05 * came);
    rig_close(&r);
}

RIG_TEST_MAIN(cmocka_unit_test(each_takes_the_bytes_it_says), cmocka_unit_test(clipping_off_is_clipping_at_infinity),
              cmocka_unit_test(gradients_in_bf16_are_those_in_fp32_rounded),
              cmocka_unit_test(kept_inputs_in_host_memory_change_no_bit),
              cmocka_unit_test(a_model_learns_alike_with_smaller_moments))
