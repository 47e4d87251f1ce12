/* engine/state.h over a fake device: updates on the host, gates, snapshot locks and homes, without a lane. */
#include "state_rig.h"

#include <math.h>

static const mt_hyper hyper = { .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };

/* A unit's gradient of ones; the caller frees it. */
static float *ones(const state_rig *s, int unit)
{
    size_t n = (size_t)s->r.model->units[unit].layout->n_train;
    float *g = mt_calloc(n, sizeof *g);
    assert_non_null(g);
    for (size_t i = 0; i < n; i++) g[i] = 1;
    return g;
}

static uint16_t first_hi(state_rig *s, int unit)
{
    mt_err err = { 0 };
    uint16_t hi;
    assert_ok(mt_state_read(s->state, (mt_state_range){ unit, MT_STATE_HI, 0, 1 }, &hi, &err));
    return hi;
}

static void push(state_rig *s, int unit, float *g, mt_event *landed, int64_t version)
{
    mt_err err = { 0 };
    const mt_host_update u = {
        .unit = unit, .n = s->r.model->units[unit].layout->n_train, .g = g, .landed = landed, .version = version
    };
    assert_ok(mt_state_push(s->state, &u, &err));
}

static mt_event *held_event(state_rig *s)
{
    mt_err err = { 0 };
    mt_event *e;
    assert_ok(mt_event_create(&s->dev.base, &e, "gradient", &err));
    fake_hold(&s->dev, e, true);
    return e;
}

/* -- updates ---------------------------------------------------------------------------------------- */

static void an_update_waits_for_its_gradient(void **state)
{
    (void)state;
    mt_err err = { 0 };
    state_rig s;
    state_rig_open(&s, MT_HOST, MT_SITE_HOST, MT_MOMENTS_F32);
    float *g = ones(&s, 0);
    mt_event *landed = held_event(&s);
    mt_state_begin_update(s.state, &hyper, 1.0);
    push(&s, 0, g, landed, 1);
    fake_await_waiter(&s.dev);
    assert_false(mt_state_is_updated(s.state, 0, 1));
    assert_int_equal(first_hi(&s, 0), 0);
    fake_hold(&s.dev, landed, false);
    assert_ok(mt_state_await_update(s.state, 0, 1, &err));
    assert_int_not_equal(first_hi(&s, 0), 0);
    assert_false(mt_state_is_updated(s.state, 0, 2));
    mt_state_stop(s.state);
    fake_event_free(landed);
    mt_free(g);
    state_rig_close(&s);
}

static void updates_finish_in_the_order_they_were_pushed(void **state)
{
    (void)state;
    mt_err err = { 0 };
    state_rig s;
    state_rig_open(&s, MT_HOST, MT_SITE_HOST, MT_MOMENTS_F32);
    float *g[2] = { ones(&s, 0), ones(&s, 1) };
    mt_event *landed = held_event(&s);
    mt_state_begin_update(s.state, &hyper, 1.0);
    push(&s, 1, g[1], landed, 1);
    push(&s, 0, g[0], NULL, 1); /* could begin at once */
    fake_await_waiter(&s.dev);
    assert_false(mt_state_is_updated(s.state, 0, 1));
    fake_hold(&s.dev, landed, false);
    assert_ok(mt_state_await_done(s.state, 1, &err));
    assert_true(mt_state_is_updated(s.state, 1, 1));
    assert_ok(mt_state_await_done(s.state, -1, &err));
    assert_true(mt_state_is_updated(s.state, 0, 1));
    mt_state_stop(s.state);
    fake_event_free(landed);
    mt_free(g[0]);
    mt_free(g[1]);
    state_rig_close(&s);
}

typedef struct pusher {
    pthread_t thread;
    state_rig *s;
    float *g;
    int unit, n;
} pusher;

static void *push_many(void *arg)
{
    pusher *p = arg;
    for (int i = 1; i <= p->n; i++) push(p->s, p->unit, p->g, NULL, i);
    return NULL;
}

/* Two lanes push at once, more than the queue holds: nothing is lost, and each unit's versions rise. */
static void several_threads_may_push(void **state)
{
    (void)state;
    mt_err err = { 0 };
    state_rig s;
    state_rig_open(&s, MT_HOST, MT_SITE_HOST, MT_MOMENTS_F32);
    mt_state_begin_update(s.state, &hyper, 1.0);
    pusher p[2];
    for (int i = 0; i < 2; i++) {
        p[i] = (pusher){ .s = &s, .g = ones(&s, i), .unit = i, .n = 3 * s.r.model->n_units };
        assert_int_equal(pthread_create(&p[i].thread, NULL, push_many, &p[i]), 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(p[i].thread, NULL);
    assert_ok(mt_state_await_done(s.state, 2 * p[0].n, &err));
    for (int i = 0; i < 2; i++) {
        assert_true(mt_state_is_updated(s.state, i, p[i].n));
        assert_false(mt_state_is_updated(s.state, i, p[i].n + 1));
        mt_free(p[i].g);
    }
    state_rig_close(&s);
}

static void a_norm_that_is_not_finite_stops_everything(void **state)
{
    (void)state;
    mt_err err = { 0 };
    state_rig s;
    const double norm = NAN;
    state_rig_open(&s, MT_HOST, MT_SITE_HOST, MT_MOMENTS_F32);
    float *g = ones(&s, 0);
    mt_state_begin_update(s.state, &hyper, 1.0);
    int64_t n = s.r.model->units[0].layout->n_train;
    assert_ok(mt_state_push(s.state, &(mt_host_update){ .n = n, .g = g, .norm = &norm, .version = 1 }, &err));
    assert_int_equal(mt_state_await_update(s.state, 0, 1, &err), MT_ENUMERIC);
    assert_int_equal(first_hi(&s, 0), 0);
    assert_int_equal(mt_state_push(s.state, &(mt_host_update){ .n = n, .g = g, .version = 2 }, &err), MT_ENUMERIC);
    assert_says("not finite");
    mt_free(g);
    state_rig_close(&s);
}

/* -- snapshot locks --------------------------------------------------------------------------------- */

static void a_locked_unit_is_updated_only_after_its_unlock(void **state)
{
    (void)state;
    mt_err err = { 0 };
    state_rig s;
    uint16_t hi;
    state_rig_open(&s, MT_HOST, MT_SITE_HOST, MT_MOMENTS_F32);
    float *g = ones(&s, 0);
    mt_state_begin_update(s.state, &hyper, 1.0);
    push(&s, 0, g, NULL, 1);
    assert_ok(mt_state_lock(s.state, &err)); /* after the first update, which may still run */
    push(&s, 0, g, NULL, 2);
    assert_ok(mt_state_await_locked(s.state, &err));
    assert_ok(mt_state_read_locked(s.state, (mt_state_range){ 0, MT_STATE_HI, 0, 1 }, &hi, &err));
    assert_int_not_equal(hi, 0);
    assert_true(mt_state_is_locked(s.state, 0));
    assert_int_equal(mt_state_lock(s.state, &err), MT_EINVAL);
    assert_false(mt_state_is_updated(s.state, 0, 2));
    mt_state_unlock(s.state, 0);
    assert_ok(mt_state_await_unlock(s.state, 0, &err));
    assert_ok(mt_state_await_update(s.state, 0, 2, &err));
    assert_int_not_equal(first_hi(&s, 0), hi);
    assert_true(mt_state_is_locked(s.state, 1)); /* each unit has its own */
    mt_state_unlock_all(s.state);
    assert_ok(mt_state_lock(s.state, &err));
    mt_state_unlock_all(s.state);
    mt_free(g);
    state_rig_close(&s);
}

/* A write-back that is queued has not happened before it is waited for; once it was, a device that fails does not matter (H4). */
static void locked_state_is_read_after_its_write_back(void **state)
{
    (void)state;
    mt_err err = { 0 };
    state_rig s;
    mt_stream *back = NULL;
    mt_event *written = NULL;
    uint16_t hi = 0;
    state_rig_open(&s, MT_HOST, MT_SITE_STAGED, MT_MOMENTS_F32);
    char *stage = mt_memory_find(&s.memory, MT_BUF_STAGE, 0, -1);
    assert_non_null(stage);
    stage[0] = 0x12, stage[1] = 0x34;
    assert_ok(fake_stream_create(&s.dev.base, &back, "back", &err));
    assert_ok(mt_event_create(&s.dev.base, &written, "written", &err));
    mt_state_follow(s.state, 0, written);
    assert_ok(mt_copy(back, mt_state_home(s.state, 0)->hi, stage, 2, MT_COPY_OUT, &err));
    assert_ok(mt_record(back, written, &err));
    assert_ok(mt_state_lock(s.state, &err));
    assert_int_equal(*mt_state_home(s.state, 0)->hi, 0);
    assert_ok(mt_state_read_locked(s.state, (mt_state_range){ 0, MT_STATE_HI, 0, 1 }, &hi, &err));
    assert_int_equal(hi, 0x3412);
    assert_ok(mt_state_await_locked(s.state, &err));
    s.dev.failed = true;
    assert_ok(mt_state_read_locked(s.state, (mt_state_range){ 0, MT_STATE_HI, 0, 1 }, &hi, &err));
    mt_state_unlock_all(s.state);
    assert_ok(mt_state_lock(s.state, &err)); /* the next write-back is another one */
    assert_int_equal(mt_state_read_locked(s.state, (mt_state_range){ 0, MT_STATE_HI, 0, 1 }, &hi, &err), MT_EDEVICE);
    mt_state_unlock_all(s.state);
    mt_state_stop(s.state);
    fake_event_free(written);
    state_rig_close(&s);
}

/* -- homes ------------------------------------------------------------------------------------------ */

static void fill(uint16_t *x, int64_t n, uint16_t seed)
{
    for (int64_t i = 0; i < n; i++) x[i] = (uint16_t)(0x3f00 + (seed + i * 3) % 4 * 16); /* bf16 that 8 bits hold exactly */
}

/* Written in two parts and one number again, read in three; the neighbors stay. */
static void check_numbers(state_rig *s, int unit, mt_state_kind kind)
{
    mt_err err = { 0 };
    int64_t n = mt_unit_state(s->r.model, unit, kind).n, cut = n / 3 + 1, cuts[] = { 0, n / 2, n / 2 + 1, n };
    size_t each = mt_state_number_bytes(s->state, kind);
    char *in = mt_calloc((size_t)n, each), *out = mt_calloc((size_t)n, each);
    assert_true(in && out && n > 3);
    if (each == 2)
        fill((uint16_t *)(void *)in, n, (uint16_t)(unit * 31 + kind));
    else
        for (int64_t i = 0; i < n; i++) ((float *)(void *)in)[i] = (float)(i + kind);
    assert_ok(mt_state_write(s->state, (mt_state_range){ unit, kind, cut, n - cut }, in + (size_t)cut * each, &err));
    assert_ok(mt_state_write(s->state, (mt_state_range){ unit, kind, 0, cut }, in, &err));
    memcpy(in + (size_t)cut * each, in + (size_t)(cut + 1) * each, each);
    assert_ok(mt_state_write(s->state, (mt_state_range){ unit, kind, cut, 1 }, in + (size_t)cut * each, &err));
    for (int i = 0; i < 3; i++)
        assert_ok(mt_state_read(s->state, (mt_state_range){ unit, kind, cuts[i], cuts[i + 1] - cuts[i] },
                                out + (size_t)cuts[i] * each, &err));
    assert_memory_equal(in, out, (size_t)n * each);
    assert_int_equal(mt_state_read(s->state, (mt_state_range){ unit, kind, n, 1 }, out, &err), MT_ERANGE);
    mt_free(in);
    mt_free(out);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    const struct {
        mt_place home;
        mt_site site;
        mt_moments moments;
    } cases[] = { { MT_HOST, MT_SITE_HOST, MT_MOMENTS_F32 },
                  { MT_HOST, MT_SITE_HOST, MT_MOMENTS_8BIT },
                  { MT_DEVICE, MT_SITE_DEVICE, MT_MOMENTS_BF16 },
                  { MT_DEVICE, MT_SITE_DEVICE, MT_MOMENTS_8BIT } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        state_rig s;
        state_rig_open(&s, cases[i].home, cases[i].site, cases[i].moments);
        for (int unit = 0; unit < 2; unit++)
            for (mt_state_kind kind = 0; kind < MT_STATE_KINDS; kind++) check_numbers(&s, unit, kind);
        for (mt_state_kind kind = 0; kind < MT_STATE_KINDS; kind++) check_numbers(&s, 0, kind); /* unit 1 changed nothing of it */
        assert_int_equal(s.dev.n_stray, 0);
        state_rig_close(&s);
    }
}

static void homes_on_the_device_begin_as_zero(void **state)
{
    (void)state;
    state_rig s;
    state_rig_open(&s, MT_DEVICE, MT_SITE_DEVICE, MT_MOMENTS_F32);
    for (int u = 0; u < s.r.model->n_units; u++)
        for (mt_state_kind kind = 0; kind < MT_STATE_KINDS; kind++) {
            const mt_home *h = mt_state_home(s.state, u);
            const char *p = mt_home_at(h, kind);
            for (size_t i = 0; i < mt_state_bytes(s.state, u, kind); i++) assert_int_equal(p[i], 0);
        }
    state_rig_close(&s);
}

/* A reader does not see a unit before the newest update that a device has queued. */
static void a_home_on_the_device_is_read_after_its_update(void **state)
{
    (void)state;
    mt_err err = { 0 };
    state_rig s;
    mt_stream *compute = NULL;
    mt_event *updated = NULL;
    uint16_t hi = 0;
    state_rig_open(&s, MT_DEVICE, MT_SITE_DEVICE, MT_MOMENTS_F32);
    char *bounce = mt_memory_find(&s.memory, MT_BUF_BOUNCE, -1, -1);
    bounce[0] = 0x12, bounce[1] = 0x34;
    assert_ok(fake_stream_create(&s.dev.base, &compute, "compute", &err));
    assert_ok(mt_event_create(&s.dev.base, &updated, "updated", &err));
    mt_state_follow(s.state, 0, updated);
    assert_ok(mt_copy(compute, mt_state_home(s.state, 0)->hi, bounce, 2, MT_COPY_IN, &err)); /* stands for an update */
    assert_ok(mt_record(compute, updated, &err));
    assert_ok(mt_state_read(s.state, (mt_state_range){ 0, MT_STATE_HI, 0, 1 }, &hi, &err));
    assert_int_equal(hi, 0x3412);
    mt_state_stop(s.state);
    fake_event_free(updated);
    state_rig_close(&s);
}

/* The end of that copy is unknown: nothing may be updated any more. */
static void a_copy_that_cannot_be_waited_for_fails_the_run(void **state)
{
    (void)state;
    mt_err err = { 0 };
    state_rig s;
    uint16_t hi = 7;
    state_rig_open(&s, MT_DEVICE, MT_SITE_DEVICE, MT_MOMENTS_F32);
    s.dev.refuse = FAKE_COPY;
    assert_int_equal(mt_state_read(s.state, (mt_state_range){ 0, MT_STATE_HI, 0, 1 }, &hi, &err), MT_EDEVICE);
    assert_ok(mt_watch_check(&s.watch, &err)); /* nothing was queued */
    s.dev.refuse = FAKE_RECORD;
    assert_int_equal(mt_state_read(s.state, (mt_state_range){ 0, MT_STATE_HI, 0, 1 }, &hi, &err), MT_EDEVICE);
    assert_int_equal(mt_watch_check(&s.watch, &err), MT_EDEVICE);
    s.dev.refuse = -1;
    assert_int_equal(mt_state_write(s.state, (mt_state_range){ 0, MT_STATE_HI, 0, 1 }, &hi, &err), MT_EDEVICE);
    state_rig_close(&s);
}

MT_TEST_MAIN(cmocka_unit_test(an_update_waits_for_its_gradient), cmocka_unit_test(updates_finish_in_the_order_they_were_pushed),
             cmocka_unit_test(several_threads_may_push), cmocka_unit_test(a_norm_that_is_not_finite_stops_everything),
             cmocka_unit_test(a_locked_unit_is_updated_only_after_its_unlock),
             cmocka_unit_test(locked_state_is_read_after_its_write_back), cmocka_unit_test(what_is_written_is_read),
             cmocka_unit_test(homes_on_the_device_begin_as_zero), cmocka_unit_test(a_home_on_the_device_is_read_after_its_update),
             cmocka_unit_test(a_copy_that_cannot_be_waited_for_fails_the_run))
