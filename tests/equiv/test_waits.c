/* What a step reports of its waits for updates on the host: the time in which compute had nothing to do. */
#include "golden.h"
#include "rig.h"

enum { LATE_US = 20000 };

static const mt_hyper hyper = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .max_grad_norm = 1.0 };

/* Everything streams, and the host updates all. */
static mt_plan *plan_on_host(const rig *r)
{
    mt_err err = { 0 };
    mt_plan *plan = NULL;
    mt_placement p;
    mt_job job = rig_job(r, true);
    mt_arithmetic a = rig_arithmetic(r, MT_DTYPE_F32);
    assert_ok(mt_placement_init(&p, r->model, &err));
    p.sweep_tokens = a.micro_tokens;
    p.accumulators = MT_HOST;
    mt_placement_set_slots(&p, r->model, 2, 1, 1);
    p.n_slabs = 1;
    for (int u = 0; u < r->model->n_units; u++) p.units[u] = (mt_unit_place){ .site = MT_SITE_HOST, .home = MT_HOST };
    for (int l = 0; l < r->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    assert_ok(mt_plan_create(&plan, r->model, &job, &a, &p, &err));
    mt_placement_free(&p);
    return plan;
}

/* The wait of the second of two steps; gradients take this long to leave the device. */
static int64_t wait_of_second(int late_us)
{
    rig r;
    mt_err err = { 0 };
    mt_step_result s;
    rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
    rig_start_slow(&r, rig_device(), plan_on_host(&r), 2, late_us, late_us ? "copy-out" : NULL);
    assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err));
    assert_int_equal(s.wait_update_ns, 0); /* of no step before */
    assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err));
    rig_close(&r);
    return s.wait_update_ns;
}

/* The unit that is updated last has the gradient that leaves last, and is the first that forward needs. */
static void compute_waits_for_late_gradients(void **state)
{
    (void)state;
    int64_t soon = wait_of_second(0), late = wait_of_second(LATE_US);
    print_message("compute waited %.3f ms, and %.3f ms for gradients %d ms late\n", 1e-6 * (double)soon, 1e-6 * (double)late,
                  LATE_US / 1000);
    assert_true(soon >= 0);
    assert_true(late >= (int64_t)LATE_US * 1000);
}

RIG_TEST_MAIN(cmocka_unit_test(compute_waits_for_late_gradients))
