/* The CUDA device keeps the contract of device.h: memory by name under a limit, events, copies, errors that say what to do. */
#define _GNU_SOURCE
#include "test.h"

#include "base/fault.h"
#include "base/log.h"
#include "device/device.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, MIB = 1 << 20 };

static mt_device *open_as(mt_device_options options)
{
    mt_err err = { 0 };
    mt_device *dev = NULL;
    assert_ok(mt_device_open(&dev, "cuda", &options, &err));
    return dev;
}

static mt_device *open_with(size_t limit) { return open_as((mt_device_options){ .memory_limit = limit }); }

static void memory_past_the_limit_is_refused_by_name(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_device *dev = open_with(64 * MIB);
    void *a, *b, *c;
    assert_ok(mt_device_alloc(dev, &a, 40 * MIB, "weights", &err));
    assert_int_equal(mt_device_alloc(dev, &b, 40 * MIB, "activations", &err), MT_ENOMEM);
    assert_null(b);
    assert_says("activations");
    assert_says("40.0 MiB");
    assert_ok(mt_device_alloc(dev, &b, 20 * MIB, "activations", &err));
    dev->api->free(dev, a);
    assert_ok(mt_device_alloc(dev, &a, 30 * MIB, "first half", &err)); /* the gap is used again */
    assert_ok(mt_device_alloc(dev, &c, 10 * MIB, "second half", &err));
    mt_device_info info;
    dev->api->info(dev, &info);
    assert_int_equal(info.memory_used, 60 * MIB);
    assert_int_equal(info.memory_limit, 64 * MIB);
    assert_int_equal(info.memory_peak, 60 * MIB);
    mt_device_close(dev); /* what is still out is released too */
}

static void more_memory_than_the_gpu_has_is_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_device *dev = NULL;
    assert_int_equal(mt_device_open(&dev, "cuda", &(mt_device_options){ .memory_limit = (size_t)1 << 46 }, &err), MT_ENOMEM);
    assert_null(dev);
    assert_says("--device-memory");
}

static void a_device_that_is_not_there_is_named(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_device *dev = NULL;
    assert_int_equal(mt_device_open(&dev, "cuda:77", NULL, &err), MT_EINVAL);
    assert_says("cuda:77");
}

static void check_copies(mt_device *dev, int n_rounds)
{
    mt_err err = { 0 };
    mt_stream *in, *out;
    mt_event *there, *never;
    enum { N = 40 * MIB + 12345 };
    unsigned char *from, *to;
    void *on_device;
    assert_ok(dev->api->stream_create(dev, &in, "in", &err));
    assert_ok(dev->api->stream_create(dev, &out, "out", &err));
    assert_ok(dev->api->event_create(dev, &there, &err));
    assert_ok(dev->api->event_create(dev, &never, &err));
    assert_ok(dev->api->host_alloc(dev, (void **)&from, N, "from", &err));
    assert_ok(dev->api->host_alloc(dev, (void **)&to, N, "to", &err));
    assert_ok(mt_device_alloc(dev, &on_device, N, "buffer", &err));
    assert_int_equal(from[0] | from[N - 1] | from[N / 2], 0);
    assert_ok(mt_sync(never, &err)); /* never recorded: complete */
    for (int round = 1; round <= n_rounds; round++) {
        for (size_t i = 0; i < N; i++) from[i] = (unsigned char)(i + (i >> 12) * 7 + (size_t)round); /* no two pieces alike */
        assert_ok(mt_copy(in, on_device, from, N, MT_COPY_IN, &err));
        assert_ok(mt_record(in, there, &err));
        assert_ok(mt_wait(out, there, &err));
        assert_ok(mt_copy(out, to, on_device, N, MT_COPY_OUT, &err));
        assert_ok(mt_record(out, there, &err));
        assert_ok(mt_sync(there, &err));
        assert_memory_equal(from, to, N);
    }
    /* Of many sizes, at odd places and even ones. */
    for (size_t at = 0, n = 1, k = 0; at + n < N; at += 5000 * n, n = n * 3 + 1, k++) {
        size_t from_at = at + k % 3, n_small = n < MIB ? n : MIB;
        memset(to, 0, N);
        assert_ok(mt_copy_small(in, (char *)on_device + at, from + from_at, n_small, MT_COPY_IN, &err));
        assert_ok(mt_copy_small(in, to + at, (char *)on_device + at, n_small, MT_COPY_OUT, &err));
        assert_ok(mt_record(in, there, &err));
        assert_ok(mt_sync(there, &err));
        assert_memory_equal(from + from_at, to + at, n_small);
        assert_int_equal(to[at + n_small] | (at ? to[at - 1] : 0), 0);
    }
    assert_ok(mt_fill(in, on_device, 0x5a, N, &err));
    assert_ok(mt_copy(in, to, on_device, N, MT_COPY_OUT, &err));
    assert_ok(mt_record(in, there, &err));
    assert_ok(mt_sync(there, &err));
    assert_int_equal(to[N - 1], 0x5a);
    dev->api->stream_free(in);
    dev->api->stream_free(out);
    dev->api->event_free(there);
    dev->api->event_free(never);
    mt_device_close(dev);
}

/* A number of one stream arrives while another's copy is under way, in either direction. */
static void a_small_copy_stands_behind_no_large_one(void **state)
{
    (void)state;
    enum { LARGE = 512 * MIB, N_LARGE = 4 };
    mt_err err = { 0 };
    mt_device *dev = open_with(0);
    mt_stream *busy, *other;
    mt_event *large_done, *small_done;
    void *host, *host_small, *on_device, *small;
    assert_ok(dev->api->stream_create(dev, &busy, "busy", &err));
    assert_ok(dev->api->stream_create(dev, &other, "other", &err));
    assert_ok(dev->api->host_alloc(dev, &host, LARGE, "large", &err));
    assert_ok(dev->api->host_alloc(dev, &host_small, 64, "small", &err));
    assert_ok(mt_device_alloc(dev, &on_device, LARGE, "large", &err));
    assert_ok(mt_device_alloc(dev, &small, 64, "small", &err));
    assert_ok(dev->api->timed_event_create(dev, &large_done, &err));
    assert_ok(dev->api->timed_event_create(dev, &small_done, &err));
    for (int warm = 1; warm >= 0; warm--) /* a kernel's first launch loads it, after everything that runs */
        for (int out = 0; out < 2; out++) {
            for (int i = 0; i < (warm ? 0 : N_LARGE); i++)
                assert_ok(
                    mt_copy(busy, out ? host : on_device, out ? on_device : host, LARGE, out ? MT_COPY_OUT : MT_COPY_IN, &err));
            assert_ok(mt_record(busy, large_done, &err));
            assert_ok(mt_copy_small(other, out ? host_small : small, out ? small : host_small, 40, out ? MT_COPY_OUT : MT_COPY_IN,
                                    &err));
            assert_ok(mt_record(other, small_done, &err));
            assert_ok(mt_sync(small_done, &err));
            assert_ok(mt_sync(large_done, &err));
            if (warm) continue;
            assert_true(dev->api->event_time(small_done) < dev->api->event_time(large_done));
            assert_true(dev->api->event_span(small_done, large_done) > 0);
        }
    dev->api->stream_free(busy);
    dev->api->stream_free(other);
    dev->api->event_free(large_done);
    dev->api->event_free(small_done);
    mt_device_close(dev);
}

static void copies_and_events_keep_order(void **state)
{
    (void)state;
    check_copies(open_with(0), 20);
}

static void take_note(void *user, mt_log_level level, const char *text)
{
    (void)level;
    snprintf(user, 512, "%s", text);
}

static void memory_that_cannot_be_pinned_is_copied_all_the_same(void **state)
{
    (void)state;
    char said[512] = "";
    mt_log_set_sink(take_note, said);
    check_copies(open_as((mt_device_options){ .pin_nothing = true }), 5);
    mt_log_set_sink(NULL, NULL);
    assert_non_null(strstr(said, "ulimit -l"));
}

/* What a device had is there again when it is closed, however far it got. */
static void a_closed_device_has_given_everything_back(void **state)
{
    (void)state;
    mt_device_info before, after;
    mt_device *dev = open_with(0);
    dev->api->info(dev, &before);
    mt_device_close(dev);
    for (long n = 0; n < 4; n++) {
        mt_err err = { 0 };
        void *p[4];
        dev = open_with((size_t)1 << 30);
        mt_fault_arm(MT_FAULT_DEVICE, n);
        for (int i = 0; i < 4; i++)
            if (mt_device_alloc(dev, &p[i], 100 * MIB, "a buffer", &err)) break;
        assert_true(mt_fault_disarm());
        assert_int_equal(err.rc, MT_ENOMEM);
        assert_says("a buffer");
        mt_device_close(dev);
    }
    dev = open_with(0);
    dev->api->info(dev, &after);
    mt_device_close(dev);
    /* What is free, less a fixed reserve; others may use the GPU too. */
    assert_true(after.memory_limit + 64 * MIB >= before.memory_limit);
}

/* The GPU itself refuses: two that each believe in all of its memory, and the second comes too late. */
static void memory_that_somebody_else_took_is_refused_by_name(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_device_info info, after;
    void *p, *half, *rest;
    mt_device *first = open_with(0), *second = open_with(0);
    second->api->info(second, &info);
    assert_ok(mt_device_alloc(second, &half, info.memory_limit / 4, "the first half", &err));
    assert_ok(mt_device_alloc(first, &p, info.memory_limit / 2, "somebody else's", &err));
    assert_int_equal(mt_device_alloc(second, &rest, info.memory_limit / 2, "the second half", &err), MT_ENOMEM);
    assert_null(rest);
    assert_says("the second half");
    assert_says("something else has taken the rest; end it (nvidia-smi shows it)");
    mt_device_close(second);
    mt_device_close(first);
    first = open_with(0);
    first->api->info(first, &after);
    mt_device_close(first);
    assert_true(after.memory_limit + 64 * MIB >= info.memory_limit);
}

/* Many buffers of a plan are in one piece, in less than whole pages each; the piece goes with the last of them. */
static void what_is_reserved_is_one_piece(void **state)
{
    (void)state;
    enum { N = 64, BYTES = MIB + 512 };
    mt_err err = { 0 };
    mt_device_info info, after;
    mt_device *dev = open_with(0), *other = NULL;
    void *p[N], *beside;
    dev->api->info(dev, &info);
    for (int again = 0; again < 2; again++) {
        assert_ok(dev->api->reserve(dev, (size_t)N * BYTES, &err));
        for (int i = 0; i < N; i++) {
            assert_ok(mt_device_alloc(dev, &p[i], BYTES, "a buffer", &err));
            assert_ptr_equal(p[i], (char *)p[0] + (size_t)i * BYTES);
        }
        assert_ok(mt_device_alloc(dev, &beside, BYTES, "one more", &err)); /* no room there: its own */
        assert_true((char *)beside < (char *)p[0] || (char *)beside >= (char *)p[0] + (size_t)N * BYTES);
        assert_ok(dev->api->reserve(dev, BYTES, &err)); /* while they live: nothing */
        for (int i = 0; i < N; i++) dev->api->free(dev, p[i]);
        dev->api->free(dev, beside);
    }
    assert_ok(dev->api->reserve(dev, SIZE_MAX, &err)); /* more than there is is left to alloc() to refuse */
    assert_int_equal(mt_device_alloc(dev, &beside, SIZE_MAX / 2, "everything", &err), MT_ENOMEM);
    assert_says("everything");
    other = open_with(0);
    other->api->info(other, &after);
    assert_true(after.memory_limit + 64 * MIB >= info.memory_limit); /* the pieces are free again */
    mt_device_close(other);
    mt_device_close(dev);
}

static void a_failed_copy_is_remembered(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_device *dev = open_with(0);
    mt_stream *s;
    mt_event *e;
    void *p;
    char byte = 1;
    assert_ok(dev->api->stream_create(dev, &s, "s", &err));
    assert_ok(dev->api->event_create(dev, &e, &err));
    assert_ok(mt_device_alloc(dev, &p, 1, "p", &err));
    mt_fault_arm(MT_FAULT_COPY, 0);
    mt_rc rc = mt_copy(s, p, &byte, 1, MT_COPY_IN, &err);
    assert_true(mt_fault_disarm());
    assert_int_equal(rc, MT_EDEVICE);
    memset(&err, 0, sizeof err);
    assert_int_equal(mt_record(s, e, &err), MT_EDEVICE);
    assert_says("copy");
    assert_int_equal(mt_sync(e, &err), MT_EDEVICE);
    dev->api->stream_free(s);
    dev->api->event_free(e);
    mt_device_close(dev);
}

/* A separate process: the variable is read once, at CUDA's start. */
static void hidden_gpus_are_explained(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
        execl("/proc/self/exe", "test", "probe", (char *)NULL);
        _exit(100);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* As a child: 0 if opening fails and the message names the variable. */
static int probe(void)
{
    mt_err err = { 0 };
    mt_device *dev = NULL;
    if (mt_device_open(&dev, "cuda", NULL, &err) != MT_ENOENT || dev) return 1;
    return strstr(err.msg, "CUDA_VISIBLE_DEVICES") && strstr(err.msg, "unset") ? 0 : 2;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_past_the_limit_is_refused_by_name),
        cmocka_unit_test(what_is_reserved_is_one_piece),
        cmocka_unit_test(more_memory_than_the_gpu_has_is_refused),
        cmocka_unit_test(a_device_that_is_not_there_is_named),
        cmocka_unit_test(copies_and_events_keep_order),
        cmocka_unit_test(a_small_copy_stands_behind_no_large_one),
        cmocka_unit_test(memory_that_cannot_be_pinned_is_copied_all_the_same),
        cmocka_unit_test(a_closed_device_has_given_everything_back),
        cmocka_unit_test(memory_that_somebody_else_took_is_refused_by_name),
        cmocka_unit_test(a_failed_copy_is_remembered),
        cmocka_unit_test(hidden_gpus_are_explained),
    };
    mt_err err = { 0 };
    mt_device *dev = NULL;
    if (argc > 1 && strcmp(argv[1], "probe") == 0) return probe();
    if (mt_device_open(&dev, "cuda", NULL, &err)) {
        printf("skipped: %s\n", err.msg);
        return SKIPPED;
    }
    mt_device_close(dev);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
