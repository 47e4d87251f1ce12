/* engine/lane.h over a fake device and fake kernels: what a lane queues, and what it waits for. */
#include "draw.h"
#include "fake_device.h"

#include "engine/lane.h"

enum { DRAWS = 60 };

/* -- kernels that are written down ------------------------------------------------------------------ */

/* The device's table: tests/CMakeLists.txt wraps mt_ops_of. */
const mt_ops *__wrap_mt_ops_of(const mt_device *dev);

#define MT_OP1(n)                                                                                                                \
    static mt_rc fake_##n(mt_stream *s, const mt_##n *a, mt_err *err)                                                            \
    {                                                                                                                            \
        (void)a;                                                                                                                 \
        return fake_push(s, (fake_task){ .kind = FAKE_OP, .name = #n }, err);                                                    \
    }
#define MT_OP(n)                                                                                                                 \
    static mt_rc fake_##n##_fwd(mt_stream *s, const mt_##n *a, mt_err *err)                                                      \
    {                                                                                                                            \
        (void)a;                                                                                                                 \
        return fake_push(s, (fake_task){ .kind = FAKE_OP, .name = #n }, err);                                                    \
    }                                                                                                                            \
    static mt_rc fake_##n##_bwd(mt_stream *s, const mt_##n *a, mt_err *err)                                                      \
    {                                                                                                                            \
        (void)a;                                                                                                                 \
        return fake_push(s, (fake_task){ .kind = FAKE_OP, .name = #n " backward" }, err);                                        \
    }
#include "ops/ops.def"

static const mt_ops fake_ops = {
#define MT_OP(n)  .n##_fwd = fake_##n##_fwd, .n##_bwd = fake_##n##_bwd,
#define MT_OP1(n) .n = fake_##n,
#include "ops/ops.def"
    .traits = UINT32_MAX,
};

const mt_ops *__wrap_mt_ops_of(const mt_device *dev) { return (void)dev, &fake_ops; }

/* -- a lane ----------------------------------------------------------------------------------------- */

typedef struct lane_rig {
    rig r;
    fake_device dev;
    mt_memory memory;
    mt_watch watch;
    mt_state *state;
    mt_lane *lane;
    bool go;
    int n_judged;
} lane_rig;

static mt_rc judge(void *self, const mt_lane_sums *sums, bool all, bool *go, mt_err *err)
{
    lane_rig *l = self;
    (void)err;
    assert_int_equal(sums->n_bad, 0);
    l->n_judged++;
    *go = all && l->go;
    return MT_OK;
}

/* The placement of draw number `draw`. */
static void open_lane(lane_rig *l, int draw_number, bool clip)
{
    mt_err err = { 0 };
    mt_placement p;
    dice d = { .seed = 4711 + (uint64_t)draw_number };
    *l = (lane_rig){ .go = true };
    rig_open_model(&l->r, MT_TESTS_DIR "/golden/models/llama_default", NULL);
    mt_job job = rig_job(&l->r, clip);
    mt_arithmetic a = rig_arithmetic(&l->r, roll(&d, 2) ? MT_DTYPE_BF16 : MT_DTYPE_F32);
    a.micro_tokens = l->r.batch.longest;
    assert_ok(mt_placement_init(&p, l->r.model, &err));
    draw(&p, l->r.model, &job, &a, &d);
    assert_ok(mt_plan_create(&l->r.plan, l->r.model, &job, &a, &p, &err));
    mt_placement_free(&p);
    fake_open(&l->dev);
    mt_watch_init(&l->watch);
    assert_ok(mt_memory_init(&l->memory, &l->dev.base, l->r.plan, NULL, &err));
    assert_ok(mt_state_create(&l->state, &l->dev.base, l->r.plan, &l->memory, &l->watch, 1, &err));
    assert_ok(mt_lane_create(&l->lane, &l->dev.base, l->r.plan, &l->memory, l->state, 0, &err));
}

static void close_lane(lane_rig *l)
{
    mt_state_stop(l->state);
    mt_lane_free(l->lane);
    mt_state_free(l->state);
    mt_memory_deinit(&l->memory);
    mt_watch_deinit(&l->watch);
    fake_close(&l->dev);
    rig_close(&l->r);
}

/* The first placement drawn that suits. */
static void open_where(lane_rig *l, bool (*suits)(const mt_plan *p))
{
    for (int i = 0;; i++) {
        open_lane(l, i, true);
        if (suits(l->r.plan)) return;
        close_lane(l);
    }
}

static mt_lane_pass train_pass(lane_rig *l)
{
    return (mt_lane_pass){
        .mode = MT_MODE_TRAIN, .batch = &l->r.batch, .updates_early = !l->r.plan->job.clip, .judge = judge, .self = l
    };
}

static void train(lane_rig *l)
{
    mt_err err = { 0 };
    const mt_lane_pass pass = train_pass(l);
    mt_state_begin_update(l->state, &(mt_hyper){ .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8 }, 1.0);
    assert_ok(mt_lane_run(l->lane, &pass, &err));
}

static int updates_on_device(lane_rig *l) { return fake_count(&l->dev, "compute", FAKE_OP, "adamw"); }

static int units_updated(const lane_rig *l, mt_site site, bool same)
{
    int n = 0;
    for (int u = 0; u < l->r.model->n_units; u++)
        n += l->r.model->units[u].layout->n_train && (l->r.plan->place.units[u].site == site) == same;
    return n;
}

/* -- tests ------------------------------------------------------------------------------------------ */

/* Whatever the placement: copies stay in the plan's memory, each unit's gradient is applied once, at its site. */
static void a_step_moves_only_what_the_plan_has(void **state)
{
    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        mt_err err = { 0 };
        lane_rig l;
        open_lane(&l, i, i % 2);
        for (int step = 1; step <= 2; step++) {
            train(&l);
            assert_ok(mt_lane_settle(l.lane, &err));
            assert_ok(mt_state_await_done(l.state, (int64_t)step * units_updated(&l, MT_SITE_HOST, true), &err));
            assert_int_equal(updates_on_device(&l), step * units_updated(&l, MT_SITE_HOST, false));
        }
        assert_int_equal(l.dev.n_stray, 0);
        close_lane(&l);
    }
}

/* When settle returns, each stream has done all that was queued: nothing runs before it is waited for. */
static void settle_waits_for_every_stream(void **state)
{
    (void)state;
    for (int i = 0; i < DRAWS / 10; i++) {
        mt_err err = { 0 };
        lane_rig l;
        open_lane(&l, i, true);
        train(&l);
        assert_ok(mt_state_await_done(l.state, -1, &err));
        assert_true(fake_left(&l.dev) > 0); /* neither run() nor the host's updates wait for what they need not */
        assert_ok(mt_lane_settle(l.lane, &err));
        assert_int_equal(fake_left(&l.dev), 0);
        close_lane(&l);
    }
}

/* Not the time of the thread that queues: most of what it waits for is hidden by what it has queued. */
static void waits_for_updates_are_counted_on_the_devices_clock(void **state)
{
    (void)state;
    int64_t n_waits = 0;
    for (int i = 0; i < DRAWS; i++) {
        mt_err err = { 0 };
        lane_rig l;
        open_lane(&l, i, true);
        train(&l);
        train(&l);
        int64_t ns = mt_lane_waited(l.lane).update_ns;
        assert_int_equal(ns % FAKE_SPAN_NS, 0);
        assert_true(ns / FAKE_SPAN_NS <= units_updated(&l, MT_SITE_HOST, true));
        n_waits += ns / FAKE_SPAN_NS;
        assert_ok(mt_lane_settle(l.lane, &err));
        assert_ok(mt_state_await_done(l.state, -1, &err));
        close_lane(&l);
    }
    assert_true(n_waits > 0);
}

static void a_verdict_of_no_updates_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < DRAWS / 10; i++) {
        mt_err err = { 0 };
        lane_rig l;
        open_lane(&l, i, true);
        l.go = false;
        train(&l);
        assert_ok(mt_lane_settle(l.lane, &err));
        assert_int_equal(l.n_judged, 1);
        assert_int_equal(updates_on_device(&l), 0);
        for (int u = 0; u < l.r.model->n_units; u++) assert_false(mt_state_is_updated(l.state, u, 1));
        close_lane(&l);
    }
}

static bool is_fetched_once(const mt_plan *p, int u) { return p->place.units[u].resident && p->place.units[u].home == MT_HOST; }

static bool some_are_fetched_once(const mt_plan *p)
{
    int n = 0;
    for (int u = 0; u < p->model->n_units; u++) n += is_fetched_once(p, u);
    return n > 1 && p->arithmetic.compute == MT_DTYPE_BF16;
}

/* Resident weights are fetched once, and again after they were written from outside. */
static void forgotten_weights_are_fetched_again(void **state)
{
    (void)state;
    mt_err err = { 0 };
    lane_rig l;
    int at[4], n = 0; /* copies of each pass */
    open_where(&l, some_are_fetched_once);
    const mt_lane_pass look = { .mode = MT_MODE_EVALUATE, .batch = &l.r.batch, .judge = judge, .self = &l };
    for (int i = 0; i < 4; i++) {
        for (int u = 0; i == 3 && u < l.r.model->n_units; u++)
            if (is_fetched_once(l.r.plan, u)) mt_lane_forget(l.lane, u), n++;
        int before = fake_count(&l.dev, "copy-in", FAKE_COPY, NULL);
        assert_ok(mt_lane_run(l.lane, &look, &err));
        at[i] = fake_count(&l.dev, "copy-in", FAKE_COPY, NULL) - before;
    }
    assert_true(at[0] >= at[1] + n);
    assert_int_equal(at[1], at[2]);
    assert_int_equal(at[3], at[2] + n);
    close_lane(&l);
}

/* Any queue operation may fail; run() and settle() give its error, and the lane can be freed. */
static void a_failing_device_ends_the_pass(void **state)
{
    (void)state;
    for (int kind = FAKE_COPY; kind <= FAKE_WAIT; kind++) {
        mt_err err = { 0 };
        lane_rig l;
        open_lane(&l, 3, true);
        const mt_lane_pass pass = train_pass(&l);
        l.dev.refuse = kind;
        assert_int_equal(mt_lane_run(l.lane, &pass, &err), MT_EDEVICE);
        l.dev.refuse = -1;
        l.dev.failed = true;
        assert_int_equal(mt_lane_settle(l.lane, &err), MT_EDEVICE);
        close_lane(&l);
    }
}

static void a_batch_beyond_the_plan_is_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    lane_rig l;
    open_lane(&l, 0, true);
    mt_batch more = l.r.batch;
    assert_ok(mt_lane_check(l.lane, &more, &err));
    more.n_tokens++;
    assert_int_equal(mt_lane_check(l.lane, &more, &err), MT_ERANGE);
    assert_says("the plan was made for");
    close_lane(&l);
}

static bool all_are_updated_on_the_host(const mt_plan *p)
{
    for (int u = 0; u < p->model->n_units; u++)
        if (p->place.units[u].site != MT_SITE_HOST) return false;
    return true;
}

/* Two lanes with their own memory share one state: each fetches from the same homes. */
static void two_lanes_share_a_state(void **state)
{
    (void)state;
    mt_err err = { 0 };
    lane_rig l;
    mt_memory memory;
    mt_lane *second;
    open_where(&l, all_are_updated_on_the_host);
    assert_ok(mt_memory_init(&memory, &l.dev.base, l.r.plan, NULL, &err));
    assert_ok(mt_lane_create(&second, &l.dev.base, l.r.plan, &memory, l.state, 0, &err));
    const mt_lane_pass look = { .mode = MT_MODE_EVALUATE, .batch = &l.r.batch, .judge = judge, .self = &l };
    train(&l);
    assert_ok(mt_lane_settle(l.lane, &err));
    assert_ok(mt_state_await_done(l.state, -1, &err)); /* the second lane has not seen these updates asked for */
    assert_ok(mt_lane_run(second, &look, &err));
    const mt_home *home = mt_state_home(l.state, 0);
    assert_true(fake_copies_from(&l.dev, home->hi) >= 2);
    assert_int_equal(l.dev.n_stray, 0);
    mt_state_stop(l.state);
    mt_lane_free(second);
    mt_memory_deinit(&memory);
    close_lane(&l);
}

MT_TEST_MAIN(cmocka_unit_test(a_step_moves_only_what_the_plan_has), cmocka_unit_test(settle_waits_for_every_stream),
             cmocka_unit_test(waits_for_updates_are_counted_on_the_devices_clock),
             cmocka_unit_test(a_verdict_of_no_updates_nothing), cmocka_unit_test(forgotten_weights_are_fetched_again),
             cmocka_unit_test(a_failing_device_ends_the_pass), cmocka_unit_test(a_batch_beyond_the_plan_is_refused),
             cmocka_unit_test(two_lanes_share_a_state))
