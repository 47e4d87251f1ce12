/* The CPU device keeps the contract of device.h: order within a stream, events between them, limits, sticky failure. */
#include "test.h"

#include "base/fault.h"
#include "device/blas.h"
#include "device/device_cpu.h"
#include "ops/ops.h"

#include <stdatomic.h>
#include <unistd.h>

typedef struct fixture {
    mt_device *dev;
    mt_stream *a, *b;
    mt_event *e;
} fixture;

static void open_fixture(fixture *f, size_t limit)
{
    mt_err err = { 0 };
    assert_ok(mt_device_open(&f->dev, "cpu", &(mt_device_options){ .memory_limit = limit, .n_threads = 2 }, &err));
    assert_ok(mt_device_cpu.stream_create(f->dev, &f->a, "a", &err));
    assert_ok(mt_device_cpu.stream_create(f->dev, &f->b, "b", &err));
    assert_ok(mt_device_cpu.event_create(f->dev, &f->e, &err));
}

static void close_fixture(fixture *f)
{
    mt_device_cpu.stream_free(f->a);
    mt_device_cpu.stream_free(f->b);
    mt_device_cpu.event_free(f->e);
    mt_device_close(f->dev);
}

/* A number that is counted up once the gate is open. */
typedef struct gated {
    int n;
    atomic_bool open;
} gated;

static mt_rc gated_increment(mt_pool *pool, const void *args, mt_err *err)
{
    (void)pool, (void)err;
    gated *g = *(gated *const *)args;
    while (!g->open) usleep(100);
    __atomic_add_fetch(&g->n, 1, __ATOMIC_RELAXED); /* the test peeks while it runs */
    return MT_OK;
}

static void streams_keep_order_and_events_join_them(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fixture f;
    int seen = -1;
    gated g = { 0 }, *p = &g;
    open_fixture(&f, 0);
    for (int i = 0; i < 10; i++) assert_ok(mt_cpu_enqueue(f.a, gated_increment, &p, sizeof p, &err));
    assert_int_equal(__atomic_load_n(&g.n, __ATOMIC_RELAXED), 0); /* it really is queued */
    assert_ok(mt_record(f.a, f.e, &err));
    assert_ok(mt_wait(f.b, f.e, &err));
    assert_ok(mt_copy(f.b, &seen, &g.n, sizeof g.n, MT_COPY_IN, &err));
    g.open = true;
    assert_ok(mt_record(f.b, f.e, &err));
    assert_ok(mt_sync(f.e, &err));
    assert_int_equal(seen, 10);
    close_fixture(&f);
}

/* Of two devices: a copy from one to the other, in the order of events of both. */
static void devices_copy_to_each_other(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fixture f, g;
    gated counted = { 0 }, *p = &counted;
    int *far, n = 0;
    open_fixture(&f, 0);
    open_fixture(&g, 0);
    assert_true(f.dev->api->reaches(f.dev, g.dev));
    assert_ok(mt_device_alloc(g.dev, (void **)&far, sizeof *far, "a number", &err));
    for (int i = 0; i < 10; i++) assert_ok(mt_cpu_enqueue(f.a, gated_increment, &p, sizeof p, &err));
    assert_ok(mt_copy_peer(f.a, far, g.dev, &counted.n, f.dev, sizeof n, &err));
    assert_ok(mt_record(f.a, f.e, &err));
    assert_ok(mt_wait(g.a, f.e, &err)); /* another device's */
    assert_ok(mt_copy(g.a, &n, far, sizeof n, MT_COPY_OUT, &err));
    counted.open = true; /* all of it is queued */
    assert_ok(mt_record(g.a, g.e, &err));
    assert_ok(mt_sync(g.e, &err));
    assert_int_equal(n, 10);
    g.dev->api->free(g.dev, far);
    close_fixture(&f);
    close_fixture(&g);
}

static void an_event_never_recorded_is_complete(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fixture f;
    open_fixture(&f, 0);
    assert_ok(mt_wait(f.a, f.e, &err));
    assert_ok(mt_sync(f.e, &err));
    close_fixture(&f);
}

static void a_queue_longer_than_its_room_blocks_and_goes_on(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fixture f;
    int from = 7, to[1000];
    open_fixture(&f, 0);
    for (int i = 0; i < 1000; i++) assert_ok(mt_copy(f.a, &to[i], &from, sizeof from, MT_COPY_IN, &err));
    assert_ok(mt_record(f.a, f.e, &err));
    assert_ok(mt_sync(f.e, &err));
    for (int i = 0; i < 1000; i++) assert_int_equal(to[i], 7);
    close_fixture(&f);
}

static void the_memory_limit_is_kept_and_named(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fixture f;
    void *p, *q;
    mt_device_info info;
    open_fixture(&f, 4096);
    assert_ok(mt_device_alloc(f.dev, &p, 3000, "weights", &err));
    assert_int_equal(mt_device_alloc(f.dev, &q, 2000, "activations", &err), MT_ENOMEM);
    assert_null(q);
    assert_says("activations");
    assert_says("4.0 KiB");
    mt_device_cpu.free(f.dev, p);
    assert_ok(mt_device_alloc(f.dev, &q, 4096, "activations", &err));
    f.dev->api->info(f.dev, &info);
    assert_int_equal(info.memory_peak, 4096);
    mt_device_cpu.free(f.dev, q);
    close_fixture(&f);
}

static mt_rc failing(mt_pool *pool, const void *args, mt_err *err)
{
    (void)pool, (void)args;
    return mt_fail(err, MT_EDEVICE, "the third kernel failed");
}

static void the_first_failure_sticks_and_releases_every_waiter(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fixture f;
    gated g = { .open = true }, *p = &g;
    open_fixture(&f, 0);
    assert_ok(mt_cpu_enqueue(f.a, failing, &p, sizeof p, &err));
    mt_cpu_enqueue(f.a, gated_increment, &p, sizeof p, &err);
    mt_record(f.a, f.e, &err);
    assert_int_equal(mt_sync(f.e, &err), MT_EDEVICE);
    assert_says("the third kernel failed");
    assert_int_equal(mt_copy(f.b, &g.n, &g.n, sizeof g.n, MT_COPY_IN, &err), MT_EDEVICE);
    assert_int_equal(g.n, 0); /* what followed was skipped */
    close_fixture(&f);
}

static void device_words_are_checked(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_device *d;
    assert_int_equal(mt_device_open(&d, "gpu", NULL, &err), MT_EINVAL);
    assert_says("auto, cpu, cuda or cuda:N");
    assert_ok(mt_device_open(&d, "auto", NULL, &err));
    mt_device_close(d);
}

static void a_newer_cpu_gets_the_better_kernels(void **state)
{
    (void)state;
    assert_string_equal(mt_blas_better_core("Prescott", true, true), "SkylakeX");
    assert_string_equal(mt_blas_better_core("Prescott", true, false), "Haswell");
    assert_string_equal(mt_blas_better_core("Zen", true, true), "SkylakeX");
    assert_null(mt_blas_better_core("SkylakeX", true, true));
    assert_null(mt_blas_better_core("Cooperlake", true, true));
    assert_null(mt_blas_better_core("Haswell", true, false));
    assert_null(mt_blas_better_core("Prescott", false, false));
}

MT_TEST_MAIN(cmocka_unit_test(streams_keep_order_and_events_join_them), cmocka_unit_test(devices_copy_to_each_other),
             cmocka_unit_test(an_event_never_recorded_is_complete),
             cmocka_unit_test(a_queue_longer_than_its_room_blocks_and_goes_on),
             cmocka_unit_test(the_memory_limit_is_kept_and_named),
             cmocka_unit_test(the_first_failure_sticks_and_releases_every_waiter), cmocka_unit_test(device_words_are_checked),
             cmocka_unit_test(a_newer_cpu_gets_the_better_kernels))
