/* bench_unpinned - how fast host memory that is not pinned is copied to and from a GPU, and how long the caller waits for it.
 *
 *     bench_unpinned [DEVICE] [MIB]       default: cuda 2048
 *
 * `refused` is memory that the device could not pin, `mapped` memory it has never heard of, such as weights in a mapped file. */
#include "base/clock.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(mt_rc rc, const mt_err *err)
{
    if (rc) {
        fprintf(stderr, "%s\n", err->msg);
        exit(1);
    }
}

static mt_device *dev;
static mt_stream *stream;
static mt_event *done;
static void *on_device;

static void time_copies(const char *what, char *host, size_t bytes, mt_copy_dir dir)
{
    mt_err err = { 0 };
    double best = 0, queued = 0;
    for (int i = 0; i < 4; i++) { /* the first one fills the slots and touches the pages */
        bool in = dir == MT_COPY_IN;
        int64_t from = mt_now_ns();
        must(mt_copy(stream, in ? on_device : host, in ? host : on_device, bytes, dir, &err), &err);
        must(mt_record(stream, done, &err), &err);
        int64_t told = mt_now_ns();
        must(mt_sync(done, &err), &err);
        double rate = (double)bytes / (double)(mt_now_ns() - from);
        if (rate > best) best = rate, queued = 1e-6 * (double)(told - from);
    }
    printf("%-10s %-4s %6.1f GB/s, the caller waits %8.2f ms\n", what, dir == MT_COPY_IN ? "in" : "out", best, queued);
}

static void open_with(const char *word, bool pin_nothing, size_t bytes)
{
    mt_err err = { 0 };
    must(mt_device_open(&dev, word, &(mt_device_options){ .pin_nothing = pin_nothing }, &err), &err);
    must(dev->api->stream_create(dev, &stream, "copies", &err), &err);
    must(dev->api->event_create(dev, &done, &err), &err);
    must(mt_device_alloc(dev, &on_device, bytes, "copies", &err), &err);
}

static void close_all(void)
{
    dev->api->stream_free(stream);
    dev->api->event_free(done);
    mt_device_close(dev);
}

int main(int argc, char **argv)
{
    mt_err err = { 0 };
    const char *word = argc > 1 ? argv[1] : "cuda";
    size_t bytes = (argc > 2 ? (size_t)atol(argv[2]) : 2048) << 20;
    for (int refused = 0; refused < 2; refused++) {
        void *host;
        open_with(word, refused, bytes);
        must(dev->api->host_alloc(dev, &host, bytes, "copies", &err), &err);
        time_copies(refused ? "refused" : "pinned", host, bytes, MT_COPY_IN);
        time_copies(refused ? "refused" : "pinned", host, bytes, MT_COPY_OUT);
        close_all();
    }
    char *mapped = malloc(bytes);
    if (!mapped) return 1;
    memset(mapped, 1, bytes);
    open_with(word, false, bytes);
    time_copies("mapped", mapped, bytes, MT_COPY_IN);
    time_copies("mapped", mapped, bytes, MT_COPY_OUT);
    close_all();
    free(mapped);
    return 0;
}
