#include "device/trace.h"

#include "base/clock.h"
#include "base/json_write.h"
#include "base/mem.h"
#include "base/outfile.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef enum window { BEFORE, OPEN, OVER } window;

struct mt_trace {
    mt_device *dev;
    mt_event **events; /* two a span */
    mt_trace_span *spans;
    int max, n, lost; /* n and lost guarded by the lock: the updater's thread writes spans too */
    int open_span;    /* the one the engine's thread has begun; -1: none */
    int64_t queueing_since;
    window window;
    int64_t start_ns, end_ns;
    pthread_mutex_t lock;
};

mt_rc mt_trace_create(mt_trace **out, mt_device *dev, int max_spans, mt_err *err)
{
    *out = NULL;
    mt_trace *t = mt_calloc(1, sizeof *t);
    if (!t) return mt_no_memory(err, "a trace");
    pthread_mutex_init(&t->lock, NULL);
    t->dev = dev;
    t->max = max_spans;
    t->open_span = -1;
    t->spans = mt_calloc((size_t)max_spans, sizeof *t->spans);
    t->events = mt_calloc((size_t)max_spans * 2, sizeof *t->events);
    mt_rc rc = t->spans && t->events ? MT_OK : mt_no_memory(err, "a trace of %d spans", max_spans);
    for (int i = 0; !rc && i < 2 * max_spans; i++) rc = dev->api->timed_event_create(dev, &t->events[i], err);
    if (rc)
        mt_trace_free(t);
    else
        *out = t;
    return rc;
}

void mt_trace_free(mt_trace *t)
{
    if (!t) return;
    for (int i = 0; t->events && i < 2 * t->max; i++) t->dev->api->event_free(t->events[i]);
    mt_free(t->events);
    mt_free(t->spans);
    pthread_mutex_destroy(&t->lock);
    mt_free(t);
}

void mt_trace_attach(mt_trace *t, mt_stream *s, const char *track)
{
    s->trace = track ? t : NULL;
    s->track = track;
}

void mt_trace_turn(mt_trace *t)
{
    if (!t || t->window == OVER) return;
    pthread_mutex_lock(&t->lock);
    if (t->window == BEFORE)
        t->start_ns = mt_now_ns();
    else
        t->end_ns = mt_now_ns();
    t->window++;
    pthread_mutex_unlock(&t->lock);
}

/* Room for one more span, or -1. */
static int take_span(mt_trace *t)
{
    pthread_mutex_lock(&t->lock);
    int i = t->window == OPEN && t->n < t->max ? t->n++ : -1;
    t->lost += t->window == OPEN && i < 0;
    pthread_mutex_unlock(&t->lock);
    return i;
}

mt_rc mt_trace_begin(mt_stream *s, mt_trace_kind kind, const char *name, double flops, int64_t bytes, mt_err *err)
{
    mt_trace *t = s->trace;
    if (!t) return MT_OK;
    int i = t->open_span = take_span(t);
    t->queueing_since = mt_now_ns();
    if (i < 0) return MT_OK;
    mt_trace_span *span = &t->spans[i];
    span->kind = kind;
    span->track = s->track;
    span->flops = flops;
    span->bytes = bytes;
    snprintf(span->name, sizeof span->name, "%s", name);
    return s->api->record(s, t->events[2 * i], err);
}

/* Queueing takes microseconds, unless the device's queue is full: then the engine's thread waits, and so does the work it would
 * queue next. */
static void show_wait(mt_trace *t, const mt_trace_span *span)
{
    enum { LONG_NS = 500000 };
    char name[MT_TRACE_NAME];
    int64_t now = mt_now_ns();
    if (now - t->queueing_since < LONG_NS) return;
    snprintf(name, sizeof name, "queue on %s", span->track);
    mt_trace_host(t, "engine", name, t->queueing_since, now);
}

mt_rc mt_trace_end(mt_stream *s, mt_err *err)
{
    mt_trace *t = s->trace;
    if (!t || t->open_span < 0) return MT_OK;
    int i = t->open_span;
    t->open_span = -1;
    MT_TRY(s->api->record(s, t->events[2 * i + 1], err));
    show_wait(t, &t->spans[i]);
    return MT_OK;
}

void mt_trace_host(mt_trace *t, const char *track, const char *name, int64_t from_ns, int64_t to_ns)
{
    int i = t ? take_span(t) : -1;
    if (i < 0) return;
    mt_trace_span *span = &t->spans[i];
    span->kind = MT_TRACE_HOST;
    span->track = track;
    snprintf(span->name, sizeof span->name, "%s", name);
    span->from = from_ns;
    span->to = to_ns;
}

/* -- the calls of device.h on a stream that has a trace -------------------------------------------- */

mt_rc mt__traced_wait(mt_stream *s, mt_event *e, mt_err *err)
{
    char name[MT_TRACE_NAME];
    snprintf(name, sizeof name, "wait %s", e->name ? e->name : "event");
    MT_TRY(mt_trace_begin(s, MT_TRACE_WAIT, name, 0, 0, err));
    MT_TRY(s->api->wait(s, e, err));
    return mt_trace_end(s, err);
}

mt_rc mt__traced_copy(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, bool small, mt_err *err)
{
    static const char *const names[] = { "in", "out", "on the device" };
    MT_TRY(mt_trace_begin(s, MT_TRACE_COPY, names[dir], 0, (int64_t)bytes, err));
    MT_TRY((small ? s->api->copy_small : s->api->copy)(s, dst, src, bytes, dir, err));
    return mt_trace_end(s, err);
}

mt_rc mt__traced_copy_peer(mt_stream *s, void *dst, mt_device *to, const void *src, mt_device *from, size_t bytes, mt_err *err)
{
    MT_TRY(mt_trace_begin(s, MT_TRACE_COPY, "between devices", 0, (int64_t)bytes, err));
    MT_TRY(s->api->copy_peer(s, dst, to, src, from, bytes, err));
    return mt_trace_end(s, err);
}

mt_rc mt__traced_fill(mt_stream *s, void *dst, int byte, size_t bytes, mt_err *err)
{
    MT_TRY(mt_trace_begin(s, MT_TRACE_OP, "fill", 0, (int64_t)bytes, err));
    MT_TRY(s->api->fill(s, dst, byte, bytes, err));
    return mt_trace_end(s, err);
}

/* -- afterwards ------------------------------------------------------------------------------------ */

mt_rc mt_trace_collect(mt_trace *t, mt_err *err)
{
    if (t->window != OVER) return mt_fail(err, MT_EINVAL, "a trace needs two whole steps");
    for (int i = 0; i < t->n; i++) {
        mt_trace_span *span = &t->spans[i];
        if (span->kind != MT_TRACE_HOST) {
            span->from = t->dev->api->event_time(t->events[2 * i]);
            span->to = t->dev->api->event_time(t->events[2 * i + 1]);
        }
        span->from -= t->start_ns;
        span->to -= t->start_ns;
    }
    return MT_OK;
}

const mt_trace_span *mt_trace_spans(const mt_trace *t, int *n, int64_t *window_ns, int *lost)
{
    *n = t->n;
    *window_ns = t->end_ns - t->start_ns;
    *lost = t->lost;
    return t->spans;
}

/* Tracks in the order they first appear. */
static int track_number(const char *const tracks[], int n, const char *track)
{
    int i = 0;
    while (i < n && strcmp(tracks[i], track) != 0) i++;
    return i;
}

/* A name for a track, or (track -1) for the process. */
static void put_name(mt_json_out *j, const char *what, int track, const char *name)
{
    mt_json_map(j, NULL, MT_JSON_FLAT);
    mt_json_put_str(j, "ph", "M");
    mt_json_put_int(j, "pid", 0);
    if (track >= 0) mt_json_put_int(j, "tid", track);
    mt_json_put_str(j, "name", what);
    mt_json_map(j, "args", MT_JSON_FLAT);
    mt_json_put_str(j, "name", name);
    mt_json_end(j);
    mt_json_end(j);
}

static void put_span(mt_json_out *j, const mt_trace_span *s, int track)
{
    mt_json_map(j, NULL, MT_JSON_FLAT);
    mt_json_put_str(j, "ph", "X");
    mt_json_put_int(j, "pid", 0);
    mt_json_put_int(j, "tid", track);
    mt_json_put_str(j, "name", s->name);
    mt_json_put_num(j, "ts", "%.3f", 1e-3 * (double)s->from);
    mt_json_put_num(j, "dur", "%.3f", 1e-3 * (double)(s->to - s->from));
    mt_json_map(j, "args", MT_JSON_FLAT);
    mt_json_put_num(j, "gflop", "%.3f", 1e-9 * s->flops);
    mt_json_put_num(j, "mb", "%.3f", 1e-6 * (double)s->bytes);
    mt_json_end(j);
    mt_json_end(j);
}

mt_rc mt_trace_write(const mt_trace *t, const char *path, mt_err *err)
{
    enum { TRACKS = 16 };
    const char *tracks[TRACKS];
    int n_tracks = 0;
    mt_str out = { 0 };
    mt_json_out j = { .to = &out };
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_list(&j, "traceEvents", MT_JSON_LINES);
    for (int i = 0; i < t->n; i++) {
        const mt_trace_span *s = &t->spans[i];
        int track = track_number(tracks, n_tracks, s->track);
        if (s->kind == MT_TRACE_WAIT && s->to - s->from < 3000) continue; /* there was nothing to wait for */
        if (track == TRACKS) continue;
        if (track == n_tracks) {
            tracks[n_tracks++] = s->track;
            put_name(&j, "thread_name", track, s->track);
        }
        put_span(&j, s, track);
    }
    put_name(&j, "process_name", -1, "megatrain");
    mt_json_end(&j);
    mt_json_end(&j);
    mt_str_putc(&out, '\n');
    mt_rc rc = mt_json_done(&j, "the trace", err);
    if (!rc) rc = mt_outfile_save(path, out.s, out.n, err);
    mt_str_free(&out);
    return rc;
}
