/* events.h - writes metrics for TensorBoard: an event file of length-prefixed, checksummed protobuf records.
 *
 * Tags are those of transformers' callback: "train/loss", "eval/loss".  Each start of a run writes a new file, which begins with
 * a record that makes TensorBoard drop later steps of earlier files. */
#ifndef MT_RUN_EVENTS_H
#define MT_RUN_EVENTS_H

#include "base/str.h"

typedef struct mt_events {
    int fd; /* valid while `opened` */
    bool opened;
    int64_t step;
    mt_str values, record; /* the event being built; its record */
    char *path;
} mt_events;

/* A name for a new file in `dir`, which is created if needed; newly allocated. */
mt_rc mt_events_new_path(char **out, const char *dir, mt_err *err);
/* Opens a new file; it replaces events of steps after `done_steps` (-1: all). */
mt_rc mt_events_open(mt_events *e, const char *path, int64_t done_steps, mt_err *err);
void mt_events_close(mt_events *e); /* accepts a zeroed or closed one */

/* Writes an event: begin with its step, any number of values, then end. */
void mt_events_step(mt_events *e, int64_t step);
void mt_events_value(mt_events *e, const char *metric, double value);
mt_rc mt_events_end(mt_events *e, mt_err *err);

/* CRC-32C (Castagnoli), as event files require. */
uint32_t mt_crc32c(const void *data, size_t n);

#endif
