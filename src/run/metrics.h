/* metrics.h - writes a run's numbers as JSON lines, one object per line, with transformers' names where it has them.
 *
 * Each line is one write, so a reader never waits for a buffer.  A checkpoint stores the length of the file; resuming cuts the
 * file there, so no line is doubled and none is missing. */
#ifndef MT_RUN_METRICS_H
#define MT_RUN_METRICS_H

#include "base/json_write.h"
#include "run/events.h"

typedef struct mt_metrics {
    char *path;
    int fd; /* valid while `opened` */
    bool opened;
    int64_t bytes;    /* of whole lines so far */
    mt_str line;      /* the line being built, */
    mt_json_out json; /* and its writer */
    mt_events events; /* the same for TensorBoard, if opened */
} mt_metrics;

/* Keeps the first `keep` bytes of an existing file.  An unopened mt_metrics (all zero) accepts lines and drops them. */
mt_rc mt_metrics_open(mt_metrics *m, const char *path, int64_t keep, mt_err *err);
/* On disk for good. */
mt_rc mt_metrics_sync(const mt_metrics *m, mt_err *err);
void mt_metrics_close(mt_metrics *m); /* accepts a zeroed or closed one */

/* Writes a line: any number of pairs, then end.  Non-finite numbers become null. */
void mt_metrics_int(mt_metrics *m, const char *key, int64_t value);
void mt_metrics_float(mt_metrics *m, const char *key, double value);
/* A list with few digits; TensorBoard gets its largest number. */
void mt_metrics_list(mt_metrics *m, const char *key, const double *values, size_t n);
void mt_metrics_bool(mt_metrics *m, const char *key, bool value);
/* For other kinds of values: the line's map. */
mt_json_out *mt_metrics_json(mt_metrics *m);
mt_rc mt_metrics_end(mt_metrics *m, mt_err *err);

#endif
