/* trace.h - a recording of what the streams and threads of one step did, and when.
 *
 *     create   the timed events that spans begin and end with, all at once: a step that is traced allocates nothing
 *     attach   from now on what is queued on a stream is a span of its track: ops through their table (ops/ops_traced.c), copies,
 *              fills and waits through the calls of device.h
 *     turn     called at each moment that ends a step (the norm is known): the first turn starts the recording, the second ends
 *              it
 *     collect  once the device is idle: reads the time of every event
 *
 * Off, it costs one pointer check.  On, it puts two events around every piece of work, a microsecond or two of GPU time. */
#ifndef MT_DEVICE_TRACE_H
#define MT_DEVICE_TRACE_H

#include "device/device.h"

enum { MT_TRACE_NAME = 48 };

typedef enum mt_trace_kind { MT_TRACE_OP, MT_TRACE_COPY, MT_TRACE_WAIT, MT_TRACE_HOST } mt_trace_kind;

typedef struct mt_trace_span {
    mt_trace_kind kind;
    const char *track;        /* of a stream or a thread; a literal */
    char name[MT_TRACE_NAME]; /* "linear dw 4608x3584", "in", "wait weights" */
    int64_t from, to;         /* nanoseconds since the window began */
    double flops;             /* of products; 0: not counted */
    int64_t bytes;            /* of copies */
} mt_trace_span;

mt_rc mt_trace_create(mt_trace **out, mt_device *dev, int max_spans, mt_err *err);
void mt_trace_free(mt_trace *t); /* accepts NULL; after detaching */

/* track: a literal, or NULL to detach. */
void mt_trace_attach(mt_trace *t, mt_stream *s, const char *track);
void mt_trace_turn(mt_trace *t);
/* Around work on a stream that may have a trace. */
mt_rc mt_trace_begin(mt_stream *s, mt_trace_kind kind, const char *name, double flops, int64_t bytes, mt_err *err);
mt_rc mt_trace_end(mt_stream *s, mt_err *err);
/* Something a thread did, by the clock of base/clock.h; accepts NULL. */
void mt_trace_host(mt_trace *t, const char *track, const char *name, int64_t from_ns, int64_t to_ns);

mt_rc mt_trace_collect(mt_trace *t, mt_err *err);
/* After collect: the spans in the order they were queued, the window's length, and how many spans found no room. */
const mt_trace_span *mt_trace_spans(const mt_trace *t, int *n, int64_t *window_ns, int *lost);
/* A Chrome trace (chrome://tracing, ui.perfetto.dev). */
mt_rc mt_trace_write(const mt_trace *t, const char *path, mt_err *err);

#endif
