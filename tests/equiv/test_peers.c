/* Sums that meet on the devices (engine/peers.c): each wait between lanes is needed.  A wait that is left out, beside a stream
 * that is slow, shows in the bits. */
#include "draw.h"
#include "wide.h"

/* -- the CPU, with some waits left out -- */

static const char *left_out; /* waits for events of this name; NULL: none */
static int n_left_out;
static mt_device_api careless;

static mt_rc careless_wait(mt_stream *s, mt_event *e, mt_err *err)
{
    if (left_out && e->name && strcmp(e->name, left_out) == 0) {
        __atomic_add_fetch(&n_left_out, 1, __ATOMIC_RELAXED);
        return MT_OK;
    }
    return mt_device_cpu.wait(s, e, err);
}

static mt_rc careless_stream_create(mt_device *dev, mt_stream **out, const char *name, mt_err *err)
{
    MT_TRY(mt_device_cpu.stream_create(dev, out, name, err));
    (*out)->api = &careless;
    return MT_OK;
}

static mt_device *open_careless(const char *slow)
{
    mt_err err = { 0 };
    mt_device *dev;
    assert_ok(mt_device_open(&dev, "cpu",
                             &(mt_device_options){ .n_threads = 1, .dawdle_us = slow ? 2000 : 0, .slow_stream = slow }, &err));
    careless = mt_device_cpu;
    careless.wait = careless_wait;
    careless.stream_create = careless_stream_create;
    dev->api = &careless;
    return dev;
}

/* -- three lanes -- */

static mt_plan *plan_peers(const rig *r, int64_t shares, uint64_t seed)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    dice d = { seed, 0 };
    mt_job job = rig_job(r, true);
    job.lanes = 3;
    const mt_arithmetic a = { .compute = MT_DTYPE_BF16,
                              .grad = MT_DTYPE_BF16,
                              .micro_tokens = r->batch.longest,
                              .mlp_rows = 8,
                              .head_rows = 8,
                              .shares = shares };
    assert_ok(mt_placement_init(&p, r->model, &err));
    draw(&p, r->model, &job, &a, &d);
    p.fold = MT_FOLD_PEERS;
    p.gather = true;
    for (int u = 0; u < r->model->n_units; u++) { /* some live in slices, and of the others the weights do */
        p.units[u].home = roll(&d, 2) ? MT_DEVICE : MT_HOST;
        p.units[u].site = p.units[u].home == MT_DEVICE ? MT_SITE_DEVICE : MT_SITE_HOST;
    }
    assert_ok(mt_plan_create(&plan, r->model, &job, &a, &p, &err));
    mt_placement_free(&p);
    return plan;
}

static uint64_t two_steps(rig *r, int64_t shares, uint64_t seed, const char *wait, const char *slow)
{
    mt_err err = { 0 };
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1.5 };
    uint64_t sum;
    r->plan = plan_peers(r, shares, seed);
    r->dev = open_careless(slow);
    for (int i = 0; i < 2; i++) r->more[i] = open_careless(slow);
    assert_ok(mt_engine_create(&r->engine, r->dev, r->plan, &(mt_engine_options){ .n_workers = 1, .more = r->more }, &err));
    assert_ok(rig_fill(r, &err));
    left_out = wait;
    for (int i = 0; i < 2; i++) {
        mt_step_result s;
        assert_ok(mt_engine_step(r->engine, &r->batch, &h, &s, &err));
    }
    left_out = NULL;
    assert_ok(mt_engine_checksum(r->engine, &sum, &err));
    rig_stop(r);
    return sum;
}

typedef struct mistake {
    const char *wait, *slow;
    const char *what;
} mistake;

static void every_missing_wait_between_lanes_is_found(void **state)
{
    (void)state;
    static const mistake mistakes[] = {
        { "gradient sums sent", "copy-out", "a lane folds before the parts have landed (D8)" },
        { "gradient sums added", "fold", "a lane sends into a slot that is still being added (D8)" },
        { "update of a slice", "fold", "weights are gathered before they are updated (D8, R1)" },
    };
    enum { TRIES = 30, SHARES = 7 }; /* more shares than lanes: sums wait for later rounds, and slots are used again */
    rig r;
    open_wide(&r, WIDE_DENSE, NULL);
    const uint64_t good = two_steps(&r, SHARES, 1, NULL, NULL);
    for (size_t i = 0; i < MT_COUNT(mistakes); i++) {
        bool found = false;
        assert_true(two_steps(&r, SHARES, 2, NULL, mistakes[i].slow) == good); /* slow alone changes nothing */
        n_left_out = 0;
        for (uint64_t t = 0; t < TRIES && !found; t++)
            found = two_steps(&r, SHARES, 10 + t, mistakes[i].wait, mistakes[i].slow) != good;
        assert_true(n_left_out > 0);
        if (!found) fail_msg("went unnoticed: %s", mistakes[i].what);
    }
    rig_close(&r);
}

static float *read_gradients(rig *r, int lanes, mt_place home)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    mt_step_result s;
    int64_t n = 0, at = 0;
    mt_job job = rig_job(r, true);
    job.lanes = lanes;
    const mt_arithmetic a = { .compute = MT_DTYPE_BF16,
                              .grad = MT_DTYPE_BF16,
                              .micro_tokens = r->batch.longest,
                              .mlp_rows = 8,
                              .head_rows = 8,
                              .shares = 3 };
    dice d = { 3, 0 };
    assert_ok(mt_placement_init(&p, r->model, &err));
    draw(&p, r->model, &job, &a, &d);
    p.fold = MT_FOLD_PEERS;
    for (int u = 0; u < r->model->n_units; u++)
        p.units[u] = (mt_unit_place){ .home = home, .site = home == MT_DEVICE ? MT_SITE_DEVICE : MT_SITE_HOST };
    assert_ok(mt_plan_create(&plan, r->model, &job, &a, &p, &err));
    mt_placement_free(&p);
    rig_start(r, plan, 2);
    assert_ok(mt_engine_gradients(r->engine, &r->batch, &s, &err));
    for (int u = 0; u < r->model->n_units; u++) n += r->model->units[u].layout->n_train;
    float *all = calloc((size_t)n, sizeof *all);
    for (int u = 0; u < r->model->n_units; at += r->model->units[u++].layout->n_train)
        assert_ok(mt_engine_read_grad(r->engine, u, all + at, &err));
    rig_stop(r);
    return all;
}

static void gradients_are_read_from_slices(void **state)
{
    (void)state;
    rig r;
    int64_t n = 0;
    open_wide(&r, WIDE_TIED, NULL);
    for (int u = 0; u < r.model->n_units; u++) n += r.model->units[u].layout->n_train;
    float *one = read_gradients(&r, 1, MT_HOST), *several = read_gradients(&r, 3, MT_DEVICE);
    assert_memory_equal(one, several, (size_t)n * sizeof *one);
    free(one);
    free(several);
    rig_close(&r);
}

MT_TEST_MAIN(cmocka_unit_test(every_missing_wait_between_lanes_is_found), cmocka_unit_test(gradients_are_read_from_slices))
