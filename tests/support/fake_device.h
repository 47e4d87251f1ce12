/* fake_device.h - a device that does nothing before it must.
 *
 * Whatever is queued is written down.  It runs on the thread that syncs, and only as far as that needs: the event's own stream up
 * to the record, and what that stream waits for.  So what is not waited for has not happened, every time.  A test may hold an
 * event back, and see who waits for it; or make the device fail.  Copies must be in memory that was allocated, on the right side
 * each. */
#ifndef MT_TEST_FAKE_DEVICE_H
#define MT_TEST_FAKE_DEVICE_H

#include "test.h"

#include "ops/ops.h"

#include <pthread.h>
#include <stdlib.h>

typedef enum fake_kind { FAKE_COPY, FAKE_FILL, FAKE_OP, FAKE_RECORD, FAKE_WAIT } fake_kind;

typedef struct fake_event {
    mt_event base;
    struct fake_device *dev;
    uint64_t recorded, reached; /* how often */
    bool held;                  /* by the test: a sync waits */
} fake_event;

typedef struct fake_task {
    fake_kind kind;
    const char *name; /* of an op */
    char *dst;
    const char *src;
    size_t bytes;
    mt_copy_dir dir;
    fake_event *event;
    uint64_t count;
} fake_task;

typedef struct fake_stream {
    mt_stream base;
    char name[16];
    fake_task *tasks;
    size_t n, cap, done;
} fake_stream;

typedef struct fake_range {
    char *p;
    size_t bytes;
    bool on_host;
} fake_range;

typedef struct fake_device {
    mt_device base;
    pthread_mutex_t lock; /* guards what follows, and all streams and events */
    pthread_cond_t released;
    fake_stream *streams[16];
    int n_streams, n_waiting; /* threads that wait for a held event */
    fake_range ranges[4096];
    size_t n_ranges;
    bool failed;
    int refuse;  /* queue operations of this kind fail; -1: none */
    int n_stray; /* copies outside allocated memory */
} fake_device;

/* -- running --------------------------------------------------------------------------------------- */

static inline void fake_reach(fake_device *d, fake_event *e, uint64_t count);

static inline void fake_run(fake_device *d, fake_stream *s, size_t end)
{
    while (s->done < end) {
        size_t i = s->done;
        fake_task t = s->tasks[i];
        if (t.kind == FAKE_WAIT) fake_reach(d, t.event, t.count);
        if (s->done != i) continue; /* another thread was here meanwhile */
        s->done++;
        if (t.kind == FAKE_COPY && !d->failed) memcpy(t.dst, t.src, t.bytes);
        if (t.kind == FAKE_FILL && !d->failed) memset(t.dst, 0, t.bytes);
        if (t.kind == FAKE_RECORD && t.event->reached < t.count) t.event->reached = t.count;
    }
}

static inline void fake_reach(fake_device *d, fake_event *e, uint64_t count)
{
    while (e->held) {
        d->n_waiting++;
        pthread_cond_broadcast(&d->released);
        pthread_cond_wait(&d->released, &d->lock);
        d->n_waiting--;
    }
    for (int k = 0; k < d->n_streams && e->reached < count; k++)
        for (size_t i = d->streams[k]->done; i < d->streams[k]->n && e->reached < count; i++) {
            const fake_task *t = &d->streams[k]->tasks[i];
            if (t->kind == FAKE_RECORD && t->event == e && t->count == count) fake_run(d, d->streams[k], i + 1);
        }
}

/* -- what a test does ------------------------------------------------------------------------------ */

static inline void fake_hold(fake_device *d, mt_event *e, bool held)
{
    pthread_mutex_lock(&d->lock);
    ((fake_event *)e)->held = held;
    pthread_cond_broadcast(&d->released);
    pthread_mutex_unlock(&d->lock);
}

/* Returns once a thread waits for an event that is held. */
static inline void fake_await_waiter(fake_device *d)
{
    pthread_mutex_lock(&d->lock);
    while (!d->n_waiting) pthread_cond_wait(&d->released, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

static inline fake_stream *fake_find(fake_device *d, const char *name)
{
    for (int i = 0; i < d->n_streams; i++)
        if (strcmp(d->streams[i]->name, name) == 0) return d->streams[i];
    return NULL;
}

/* Tasks of a kind that were queued on a stream; name: of an op, or NULL. */
static inline int fake_count(fake_device *d, const char *stream, fake_kind kind, const char *name)
{
    int n = 0;
    pthread_mutex_lock(&d->lock);
    const fake_stream *s = fake_find(d, stream);
    for (size_t i = 0; s && i < s->n; i++) n += s->tasks[i].kind == kind && (!name || strcmp(s->tasks[i].name, name) == 0);
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* Copies from this place that were queued on any stream. */
static inline int fake_copies_from(fake_device *d, const void *src)
{
    int n = 0;
    pthread_mutex_lock(&d->lock);
    for (int k = 0; k < d->n_streams; k++)
        for (size_t i = 0; i < d->streams[k]->n; i++) n += d->streams[k]->tasks[i].src == (const char *)src;
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* Tasks that were queued and have not run. */
static inline size_t fake_left(fake_device *d)
{
    size_t n = 0;
    pthread_mutex_lock(&d->lock);
    for (int k = 0; k < d->n_streams; k++) n += d->streams[k]->n - d->streams[k]->done;
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* -- the table ------------------------------------------------------------------------------------- */

static inline fake_device *fake_of(mt_device *dev) { return (fake_device *)dev; }

static inline mt_rc fake_push(mt_stream *stream, fake_task t, mt_err *err)
{
    fake_stream *s = (fake_stream *)stream;
    fake_device *d = fake_of(stream->dev);
    pthread_mutex_lock(&d->lock);
    mt_rc rc = d->failed || d->refuse == (int)t.kind ? mt_fail(err, MT_EDEVICE, "the fake device has failed") : MT_OK;
    if (t.kind == FAKE_RECORD && !rc) t.count = ++t.event->recorded;
    if (t.kind == FAKE_WAIT) t.count = t.event->recorded;
    if (!rc) rc = mt_grow(&s->tasks, &s->cap, s->n + 1, sizeof *s->tasks, err);
    if (!rc) s->tasks[s->n++] = t;
    pthread_mutex_unlock(&d->lock);
    return rc;
}

static inline bool fake_is_in(const fake_device *d, const char *p, size_t bytes, bool on_host)
{
    for (size_t i = 0; i < d->n_ranges; i++) {
        const fake_range *r = &d->ranges[i];
        if (r->on_host == on_host && p >= r->p && p + bytes <= r->p + r->bytes) return true;
    }
    return false;
}

static inline mt_rc fake_copy(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    fake_device *d = fake_of(s->dev);
    bool sound = fake_is_in(d, dst, bytes, dir == MT_COPY_OUT) && fake_is_in(d, src, bytes, dir == MT_COPY_IN);
    if (!sound) __atomic_add_fetch(&d->n_stray, 1, __ATOMIC_RELAXED);
    return fake_push(s, (fake_task){ .kind = FAKE_COPY, .dst = dst, .src = src, .bytes = bytes, .dir = dir }, err);
}

static inline mt_rc fake_fill(mt_stream *s, void *dst, int byte, size_t bytes, mt_err *err)
{
    fake_device *d = fake_of(s->dev);
    if (byte || !fake_is_in(d, dst, bytes, false)) __atomic_add_fetch(&d->n_stray, 1, __ATOMIC_RELAXED);
    return fake_push(s, (fake_task){ .kind = FAKE_FILL, .dst = dst, .bytes = bytes }, err);
}

static inline mt_rc fake_record(mt_stream *s, mt_event *e, mt_err *err)
{
    return fake_push(s, (fake_task){ .kind = FAKE_RECORD, .event = (fake_event *)e }, err);
}

static inline mt_rc fake_wait(mt_stream *s, mt_event *e, mt_err *err)
{
    return fake_push(s, (fake_task){ .kind = FAKE_WAIT, .event = (fake_event *)e }, err);
}

static inline mt_rc fake_sync(mt_event *e, mt_err *err)
{
    fake_device *d = ((fake_event *)e)->dev;
    pthread_mutex_lock(&d->lock);
    if (!d->failed) fake_reach(d, (fake_event *)e, ((fake_event *)e)->recorded);
    mt_rc rc = d->failed ? mt_fail(err, MT_EDEVICE, "the fake device has failed") : MT_OK;
    pthread_mutex_unlock(&d->lock);
    return rc;
}

static inline mt_rc fake_take(mt_device *dev, void **out, size_t bytes, bool on_host, mt_err *err)
{
    fake_device *d = fake_of(dev);
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!*out) return mt_fail(err, MT_ENOMEM, "fake memory");
    memset(*out, on_host ? 0 : 0xa5, bytes); /* what a device hands out is not zero */
    pthread_mutex_lock(&d->lock);
    assert_true(d->n_ranges < MT_COUNT(d->ranges));
    d->ranges[d->n_ranges++] = (fake_range){ *out, bytes, on_host };
    pthread_mutex_unlock(&d->lock);
    return MT_OK;
}

static inline mt_rc fake_alloc(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err)
{
    (void)name;
    return fake_take(dev, out, bytes, false, err);
}
static inline mt_rc fake_host_alloc(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err)
{
    (void)name;
    return fake_take(dev, out, bytes, true, err);
}
static inline void fake_free(mt_device *dev, void *p)
{
    (void)dev;
    free(p);
}
static inline mt_rc fake_reserve(mt_device *dev, size_t bytes, mt_err *err) { return (void)dev, (void)bytes, (void)err, MT_OK; }

static const mt_device_api fake_api;

static inline mt_rc fake_stream_create(mt_device *dev, mt_stream **out, const char *name, mt_err *err)
{
    fake_device *d = fake_of(dev);
    fake_stream *s = mt_calloc(1, sizeof *s);
    if (!s || d->n_streams == MT_COUNT(d->streams)) return mt_fail(err, MT_ENOMEM, "fake stream");
    s->base = (mt_stream){ .api = &fake_api, .dev = dev };
    snprintf(s->name, sizeof s->name, "%s", name);
    d->streams[d->n_streams++] = s;
    *out = &s->base;
    return MT_OK;
}

static inline void fake_stream_free(mt_stream *s)
{
    if (!s) return;
    fake_device *d = fake_of(s->dev);
    fake_stream *f = (fake_stream *)s;
    pthread_mutex_lock(&d->lock);
    fake_run(d, f, f->n);
    pthread_mutex_unlock(&d->lock); /* its log stays until the device is closed */
}

static inline mt_rc fake_event_create(mt_device *dev, mt_event **out, mt_err *err)
{
    fake_event *e = mt_calloc(1, sizeof *e);
    if (!e) return mt_fail(err, MT_ENOMEM, "fake event");
    e->dev = fake_of(dev);
    e->base.api = &fake_api;
    *out = &e->base;
    return MT_OK;
}
static inline void fake_event_free(mt_event *e) { mt_free(e); }
enum { FAKE_SPAN_NS = 1000003 };
static inline int64_t fake_event_span(mt_event *from, mt_event *to) { return (void)from, (void)to, FAKE_SPAN_NS; }

static const mt_device_api fake_api = { .kind = MT_DEVICE_CPU,
                                        .name = "fake",
                                        .reserve = fake_reserve,
                                        .alloc = fake_alloc,
                                        .free = fake_free,
                                        .host_alloc = fake_host_alloc,
                                        .host_free = fake_free,
                                        .stream_create = fake_stream_create,
                                        .stream_free = fake_stream_free,
                                        .event_create = fake_event_create,
                                        .timed_event_create = fake_event_create,
                                        .event_span = fake_event_span,
                                        .event_free = fake_event_free,
                                        .record = fake_record,
                                        .wait = fake_wait,
                                        .sync = fake_sync,
                                        .copy = fake_copy,
                                        .copy_small = fake_copy,
                                        .fill = fake_fill };

static inline void fake_open(fake_device *d)
{
    *d = (fake_device){ .base.api = &fake_api, .refuse = -1 };
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->released, NULL);
}

static inline void fake_close(fake_device *d)
{
    for (int i = 0; i < d->n_streams; i++) {
        mt_free(d->streams[i]->tasks);
        mt_free(d->streams[i]);
    }
    pthread_cond_destroy(&d->released);
    pthread_mutex_destroy(&d->lock);
}

#endif
