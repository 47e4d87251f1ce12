/* device.h - where compute happens: memory with a limit, streams, events, copies.
 *
 * A device is one table of functions (mt_device_api); two exist, cpu and cuda, and the engine cannot distinguish them.  The model
 * is CUDA's, because it is the narrower one:
 *
 *   stream   an ordered queue of work; calls that take one return as soon as the work is queued
 *   event    a point in a stream.  record() moves it to the stream's present end; wait() makes another
 *            stream wait for the latest record; sync() makes the calling thread wait.  An event that was
 *            never recorded is complete.
 *   memory   alloc() takes device memory, under a name and a limit; host_alloc() host memory that copies
 *            run from at full speed (pinned).  Neither is called inside a training step.
 *
 * Errors of queued work are sticky: the first one is kept, later work is skipped, and every call from then on, sync() above all,
 * returns it.  No call blocks forever on a failed device.
 *
 * Threads: one thread issues the work of a stream; sync() may be called from any. */
#ifndef MT_DEVICE_DEVICE_H
#define MT_DEVICE_DEVICE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mt_device mt_device;
typedef struct mt_stream mt_stream;
typedef struct mt_event mt_event;
typedef struct mt_trace mt_trace; /* device/trace.h */

enum { MT_HOST_POOL_BYTES = 1 << 30 }; /* host_pool of devices that pin */
enum { MT_DEVICE_ALIGN = 512 };        /* no device rounds an allocation up further than to a multiple of this */

typedef enum mt_device_kind { MT_DEVICE_CPU, MT_DEVICE_CUDA } mt_device_kind;

typedef enum mt_copy_dir { MT_COPY_IN, MT_COPY_OUT, MT_COPY_ON_DEVICE } mt_copy_dir;

typedef struct mt_device_options {
    size_t memory_limit;     /* bytes of device memory this run may use; 0: what the device has free */
    int index;               /* which one, where there are several */
    int n_threads;           /* cpu: threads that compute; 0: one a core */
    int dawdle_us;           /* cpu, for tests: streams sleep before some of their work, at random, up to this long: what should
                          * have been waited for shows */
    const char *slow_stream; /* with dawdle_us: only the stream of this name sleeps, that long before all of its work; NULL:
                              * every one, at random */
    bool keep_host_memory;   /* cuda: host memory that is freed stays pinned for the next to ask, until the device is closed or
                            * memory runs short */
    bool pin_nothing;        /* cuda, for tests: as if the system refused to pin host memory */
    const char *tune; /* cuda: choose product kernels by timing them, and keep the choices in this folder (tuned.h; "": nowhere,
                         and another run may have other bits); NULL: as the library and linear_tiles.h say */
    mt_device
        *like; /* cuda: where both are of one kind, multiply by the kernels that this device chooses (choices.h); it outlives
                        the new one.  NULL: choose alone */
} mt_device_options;

typedef struct mt_device_info {
    char name[128];      /* "NVIDIA H200", "CPU, 2 threads, OpenBLAS SkylakeX" */
    size_t memory_limit; /* what alloc() may hand out in all */
    size_t memory_used;  /* handed out now */
    size_t memory_peak;  /* most handed out at once */
    int n_threads;       /* cpu: threads that compute */
    int n_processors;    /* cuda: multiprocessors */
    int64_t n_choices;   /* cuda: kernels chosen for products so far; later steps choose no more */
    int64_t n_own;       /* cuda: products by our own kernel so far (ops/matmul.h) */
} mt_device_info;

typedef struct mt_device_api {
    mt_device_kind kind;
    const char *name; /* as --device spells it */
    mt_rc (*open)(mt_device **out, const mt_device_options *options, mt_err *err);
    void (*close)(mt_device *dev); /* waits for queued work; accepts NULL */
    void (*info)(mt_device *dev, mt_device_info *out);

    /* What is allocated next takes this much in all: from one piece, which goes back with the last of it.  Advice: where there is
     * no such piece, alloc() says so. */
    mt_rc (*reserve)(mt_device *dev, size_t bytes, mt_err *err);
    mt_rc (*alloc)(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err);
    void (*free)(mt_device *dev, void *p);                                                        /* accepts NULL */
    mt_rc (*host_alloc)(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err); /* zeroed; any thread */
    void (*host_free)(mt_device *dev, void *p);

    mt_rc (*stream_create)(mt_device *dev, mt_stream **out, const char *name, mt_err *err);
    void (*stream_free)(mt_stream *s); /* waits for its work */
    mt_rc (*event_create)(mt_device *dev, mt_event **out, mt_err *err);
    void (*event_free)(mt_event *e); /* accepts NULL, like stream_free */
    /* An event that knows when it was reached, for tracing; event_time gives that moment on CLOCK_MONOTONIC once sync() has
     * returned, 0 if it was never recorded. */
    mt_rc (*timed_event_create)(mt_device *dev, mt_event **out, mt_err *err);
    int64_t (*event_time)(mt_event *e);
    /* Nanoseconds from one such event of a device to a later one, on the device's clock: after hours, too, which event_time is not
     * exact enough for.  Both were reached; 0 if either was never recorded. */
    int64_t (*event_span)(mt_event *from, mt_event *to);

    mt_rc (*record)(mt_stream *s, mt_event *e, mt_err *err);
    mt_rc (*wait)(mt_stream *s, mt_event *e, mt_err *err);
    mt_rc (*sync)(mt_event *e, mt_err *err);
    mt_rc (*copy)(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err);
    /* The same for a few numbers that the stream's kernels read or wrote.  It does not queue after large copies of other streams,
     * as copy() does if the hardware has one engine for each direction. */
    mt_rc (*copy_small)(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err);
    mt_rc (*fill)(mt_stream *s, void *dst, int byte, size_t bytes, mt_err *err);
    /* From one device's memory to another's, in the order of a stream of either.  A stream may wait for an event of another
     * device like for its own, provided that it is recorded already. */
    mt_rc (*copy_peer)(mt_stream *s, void *dst, mt_device *to, const void *src, mt_device *from, size_t bytes, mt_err *err);
    /* True if such copies need not pass through host memory.  Ask it before the first of them: it also opens the way. */
    bool (*reaches)(mt_device *dev, mt_device *other);

    /* Host memory is best taken in pieces of about this size, into which smaller buffers are carved: pinning costs by the call
     * and takes whole pages.  0: each buffer alone, where a sanitizer sees its bounds. */
    size_t host_pool;
} mt_device_api;

/* Every device and stream begins with its table, so calls need nothing else. */
struct mt_device {
    const mt_device_api *api;
};
struct mt_stream {
    const mt_device_api *api;
    mt_device *dev;
    mt_trace *trace;   /* records what is queued here; usually NULL */
    const char *track; /* the stream's name there */
};
struct mt_event {
    const mt_device_api *api;
    const char *name; /* what a wait for it waits for, in a trace; or NULL */
};

extern const mt_device_api mt_device_cpu;
extern const mt_device_api mt_device_cuda; /* defined in builds that have it */

/* What opening a GPU takes beside its memory limit: the workspace of the product library, for the one stream that multiplies. */
enum { MT_DEVICE_WORKSPACE_BYTES = 32 << 20 };
/* Pinned host memory beside a stream of a GPU that copies host memory which is not pinned (slots.h). */
enum { MT_DEVICE_SLOTS_BYTES = 16 << 20 };

/* True if both are of one kind, so that one kernel gives the same bits on either: the same name, as many processors. */
bool mt_device_same_kind(const mt_device_info *a, const mt_device_info *b);

/* Open by the user's word: "auto" (the GPU if there is one), "cpu", "cuda", "cuda:1". */
mt_rc mt_device_open(mt_device **out, const char *word, const mt_device_options *options, mt_err *err);

static inline void mt_device_close(mt_device *d)
{
    if (d) d->api->close(d);
}
static inline mt_rc mt_device_alloc(mt_device *d, void **out, size_t bytes, const char *name, mt_err *err)
{
    return d->api->alloc(d, out, bytes, name, err);
}
/* name: what a wait for it waits for, in a trace. */
static inline mt_rc mt_event_create(mt_device *d, mt_event **out, const char *name, mt_err *err)
{
    mt_rc rc = d->api->event_create(d, out, err);
    if (!rc) (*out)->name = name;
    return rc;
}
static inline mt_rc mt_record(mt_stream *s, mt_event *e, mt_err *err) { return s->api->record(s, e, err); }
mt_rc mt__traced_wait(mt_stream *s, mt_event *e, mt_err *err);
mt_rc mt__traced_copy(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, bool small, mt_err *err);
mt_rc mt__traced_copy_peer(mt_stream *s, void *dst, mt_device *to, const void *src, mt_device *from, size_t bytes, mt_err *err);
mt_rc mt__traced_fill(mt_stream *s, void *dst, int byte, size_t bytes, mt_err *err);

static inline mt_rc mt_wait(mt_stream *s, mt_event *e, mt_err *err)
{
    return s->trace ? mt__traced_wait(s, e, err) : s->api->wait(s, e, err);
}
static inline mt_rc mt_sync(mt_event *e, mt_err *err) { return e->api->sync(e, err); }
static inline mt_rc mt_copy(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    return s->trace ? mt__traced_copy(s, dst, src, bytes, dir, false, err) : s->api->copy(s, dst, src, bytes, dir, err);
}
/* The same between host and device memory: dir decides which of the two is written. */
static inline mt_rc mt_copy_between(mt_stream *s, void *host, void *device, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    if (dir == MT_COPY_IN) return mt_copy(s, device, host, bytes, dir, err);
    return mt_copy(s, host, device, bytes, dir, err);
}
static inline mt_rc mt_copy_small(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    return s->trace ? mt__traced_copy(s, dst, src, bytes, dir, true, err) : s->api->copy_small(s, dst, src, bytes, dir, err);
}
static inline mt_rc mt_copy_peer(mt_stream *s, void *dst, mt_device *to, const void *src, mt_device *from, size_t bytes,
                                 mt_err *err)
{
    return s->trace ? mt__traced_copy_peer(s, dst, to, src, from, bytes, err)
                    : s->api->copy_peer(s, dst, to, src, from, bytes, err);
}
static inline mt_rc mt_fill(mt_stream *s, void *dst, int byte, size_t bytes, mt_err *err)
{
    return s->trace ? mt__traced_fill(s, dst, byte, bytes, err) : s->api->fill(s, dst, byte, bytes, err);
}

#endif
