/* events.h - metrics as TensorBoard reads them: an event file of length-prefixed, checksummed protobuf records.
 *
 * Tags are those of transformers' callback: "train/loss", "eval/loss".  Each start of a run writes a file of its own, which
 * begins by telling TensorBoard to forget what an earlier file says of later steps. */
#ifndef MT_RUN_EVENTS_H
#define MT_RUN_EVENTS_H

#include "base/str.h"

typedef struct mt_events {
    int fd; /* valid while `opened` */
    bool opened;
    int64_t step;
    mt_str values, record; /* of the event being made; of it on its way to the file */
    char *path;
} mt_events;

/* A name for a new file in `dir`, which is made if need be; newly allocated. */
mt_rc mt_events_new_path(char **out, const char *dir, mt_err *err);
/* A new file; events of steps after `done_steps` (-1: all) count from here on. */
mt_rc mt_events_open(mt_events *e, const char *path, int64_t done_steps, mt_err *err);
void mt_events_close(mt_events *e); /* accepts a zeroed or closed one */

/* An event: its step, any number of values, then end, which writes it. */
void mt_events_step(mt_events *e, int64_t step);
void mt_events_value(mt_events *e, const char *metric, double value);
mt_rc mt_events_end(mt_events *e, mt_err *err);

/* The Castagnoli polynomial, as event files want it. */
uint32_t mt_crc32c(const void *data, size_t n);

#endif
