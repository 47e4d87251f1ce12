/* Memory that is not pinned passes through two slots: the same bytes, in the stream's order, the host at work while the device
 * copies.  On the CPU device, whose streams dawdle. */
#include "test.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/rng.h"
#include "device/device_cpu.h"
#include "device/slots.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { SLOT = 4096, SLOTS = 2 * SLOT };

static atomic_int n_moves;
static _Atomic int64_t moved_ns[64]; /* when each move was done */

typedef struct call {
    void (*fn)(void *arg);
    void *arg;
} call;

static mt_rc run_call(mt_pool *pool, const void *args, mt_err *err)
{
    (void)pool, (void)err;
    const call *c = args;
    c->fn(c->arg);
    int i = n_moves++;
    if (i < 64) moved_ns[i] = mt_now_ns();
    return MT_OK;
}

static mt_rc call_on_cpu(mt_stream *s, void (*fn)(void *), void *arg, mt_err *err)
{
    return mt_cpu_enqueue(s, run_call, &(call){ fn, arg }, sizeof(call), err);
}
static mt_rc alloc_on_cpu(mt_device *dev, void **out, size_t bytes, mt_err *err)
{
    return dev->api->host_alloc(dev, out, bytes, "a slot", err);
}
static void free_on_cpu(mt_device *dev, void *p)
{
    if (p) dev->api->host_free(dev, p);
}
static const mt_slots_how how = { alloc_on_cpu, free_on_cpu, call_on_cpu };

typedef struct rig {
    mt_device *dev;
    mt_stream *s, *other;
    mt_event *done, *written;
    mt_slots *slots;
} rig;

static rig open_rig(int dawdle_us, const char *slow)
{
    mt_err err = { 0 };
    rig r = { 0 };
    n_moves = 0;
    assert_ok(
        mt_device_open(&r.dev, "cpu", &(mt_device_options){ .n_threads = 1, .dawdle_us = dawdle_us, .slow_stream = slow }, &err));
    assert_ok(r.dev->api->stream_create(r.dev, &r.s, "copies", &err));
    assert_ok(r.dev->api->stream_create(r.dev, &r.other, "other", &err));
    assert_ok(r.dev->api->event_create(r.dev, &r.done, &err));
    assert_ok(r.dev->api->event_create(r.dev, &r.written, &err));
    assert_ok(mt_slots_create(&r.slots, r.dev, &how, SLOTS, &err));
    return r;
}

static void settle(rig *r)
{
    mt_err err = { 0 };
    assert_ok(mt_record(r->s, r->done, &err));
    assert_ok(mt_sync(r->done, &err));
}

static void close_rig(rig *r)
{
    settle(r);
    mt_slots_free(r->slots);
    r->dev->api->stream_free(r->s);
    r->dev->api->stream_free(r->other);
    r->dev->api->event_free(r->done);
    r->dev->api->event_free(r->written);
    mt_device_close(r->dev);
}

static void draw(unsigned char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)mt_rng_u64(seed, 1, i);
}

static void copies_of_any_size_arrive_whole(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r = open_rig(50, NULL);
    const size_t sizes[] = { 1, SLOT - 1, SLOT, SLOT + 1, 2 * SLOT, 2 * SLOT + 1, 7 * SLOT + 77 };
    for (size_t i = 0; i < MT_COUNT(sizes); i++) {
        size_t n = sizes[i];
        unsigned char *from = malloc(n), *there = calloc(1, n + 1), *back = calloc(1, n + 1);
        draw(from, n, i);
        assert_ok(mt_slots_copy(r.slots, r.s, there, from, n, MT_COPY_IN, &err));
        assert_ok(mt_slots_copy(r.slots, r.s, back, there, n, MT_COPY_OUT, &err));
        settle(&r);
        assert_memory_equal(from, there, n);
        assert_memory_equal(from, back, n);
        assert_int_equal(there[n] | back[n], 0);
        free(from);
        free(there);
        free(back);
    }
    close_rig(&r);
}

/* In and out, over each other and over what another stream writes: always what a stream would have done. */
static void copies_keep_the_stream_s_order(void **state)
{
    (void)state;
    enum { N = 5 * SLOT + 123, ROUNDS = 60 };
    mt_err err = { 0 };
    rig r = open_rig(60, NULL);
    unsigned char *host = malloc(N), *device = malloc(N), *fresh = malloc((size_t)ROUNDS * N), *want_host = malloc(N),
                  *want_device = malloc(N);
    draw(host, N, 1);
    draw(device, N, 2);
    memcpy(want_host, host, N);
    memcpy(want_device, device, N);
    for (uint64_t k = 0; k < ROUNDS; k++) {
        size_t n = 1 + mt_rng_u64(3, 4, k) % N;
        switch (mt_rng_u64(5, 6, k) % 4) {
        case 0:
            assert_ok(mt_slots_copy(r.slots, r.s, device, host, n, MT_COPY_IN, &err));
            memcpy(want_device, want_host, n);
            break;
        case 1:
            assert_ok(mt_slots_copy(r.slots, r.s, host, device, n, MT_COPY_OUT, &err));
            memcpy(want_host, want_device, n);
            break;
        case 2: /* the device's own work between */
            assert_ok(mt_fill(r.s, device, (int)k, n, &err));
            memset(want_device, (int)k, n);
            break;
        default: /* another stream writes host memory after all so far, and this one waits for it */
            draw(fresh + k * N, N, k);
            assert_ok(mt_record(r.s, r.done, &err));
            assert_ok(mt_wait(r.other, r.done, &err));
            assert_ok(mt_copy(r.other, host, fresh + k * N, n, MT_COPY_OUT, &err));
            assert_ok(mt_record(r.other, r.written, &err));
            assert_ok(mt_wait(r.s, r.written, &err));
            mt_slots_waited(r.slots);
            memcpy(want_host, fresh + k * N, n);
        }
    }
    settle(&r);
    assert_memory_equal(host, want_host, N);
    assert_memory_equal(device, want_device, N);
    close_rig(&r);
    free(host);
    free(device);
    free(fresh);
    free(want_host);
    free(want_device);
}

/* What the stream waits for is there before the mover reads it, however long that takes. */
static void the_mover_waits_for_whom_the_stream_waits_for(void **state)
{
    (void)state;
    mt_err err = { 0 };
    unsigned char host[SLOT], device[SLOT], fresh[SLOT];
    rig r = open_rig(20000, "other");
    for (uint64_t k = 0; k < 3; k++) { /* the first time the slots are new: nothing to report */
        draw(fresh, SLOT, k);
        memset(host, 0, SLOT);
        assert_ok(mt_copy(r.other, host, fresh, SLOT, MT_COPY_OUT, &err));
        assert_ok(mt_record(r.other, r.written, &err));
        assert_ok(mt_wait(r.s, r.written, &err));
        if (k) mt_slots_waited(r.slots);
        assert_ok(mt_slots_copy(r.slots, r.s, device, host, SLOT, MT_COPY_IN, &err));
        settle(&r);
        assert_memory_equal(device, fresh, SLOT);
    }
    close_rig(&r);
}

/* The stream takes DAWDLE for each copy, the mover none: with one slot the second piece could not be moved before the first is
 * copied. */
static void the_host_moves_while_the_device_copies(void **state)
{
    (void)state;
    enum { DAWDLE_MS = 200 };
    mt_err err = { 0 };
    unsigned char from[3 * SLOT], to[3 * SLOT];
    draw(from, sizeof from, 9);
    for (int apart = 0; apart < 2; apart++) { /* three pieces of one copy; three copies of one piece */
        rig r = open_rig(DAWDLE_MS * 1000, "copies");
        for (int i = 0; i < (apart ? 3 : 1); i++)
            assert_ok(mt_slots_copy(r.slots, r.s, to + (size_t)i * SLOT, from + (size_t)i * SLOT, apart ? SLOT : sizeof from,
                                    MT_COPY_IN, &err));
        settle(&r);
        assert_memory_equal(from, to, sizeof from);
        assert_int_equal(n_moves, 3);
        assert_true(moved_ns[1] - moved_ns[0] < (int64_t)DAWDLE_MS * 900000);
        assert_true(moved_ns[2] - moved_ns[0] >= (int64_t)DAWDLE_MS * 900000); /* there are two slots, not three */
        close_rig(&r);
    }
}

static void what_cannot_be_had_is_an_error_and_nothing_stays(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_device *dev;
    mt_slots *slots;
    assert_ok(mt_device_open(&dev, "cpu", &(mt_device_options){ .n_threads = 1 }, &err));
    for (long n = 0;; n++) {
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = mt_slots_create(&slots, dev, &how, SLOTS, &err);
        if (!mt_fault_disarm()) {
            assert_ok(rc);
            mt_slots_free(slots);
            break;
        }
        assert_int_equal(rc, MT_ENOMEM);
        assert_null(slots);
    }
    mt_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_any_size_arrive_whole),
        cmocka_unit_test(copies_keep_the_stream_s_order),
        cmocka_unit_test(the_mover_waits_for_whom_the_stream_waits_for),
        cmocka_unit_test(the_host_moves_while_the_device_copies),
        cmocka_unit_test(what_cannot_be_had_is_an_error_and_nothing_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
