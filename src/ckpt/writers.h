/* writers.h - which of several processes writes which file of a directory that they share.
 *
 * Each file is written by one process.  All processes deal the same files in the same order, so they agree without a message, and
 * neither the files nor their bytes depend on the number of processes.  A file goes to the process that has the fewest bytes so
 * far; the first of equals gets it. */
#ifndef MT_CKPT_WRITERS_H
#define MT_CKPT_WRITERS_H

#include "base/mem.h"

typedef struct mt_writers {
    int rank, n;
    uint64_t *bytes; /* [n] dealt so far */
} mt_writers;

/* n 0 or 1: one process, which writes everything. */
mt_rc mt_writers_init(mt_writers *w, int rank, int n, mt_err *err);
/* The rank that writes the next file. */
int mt_writers_deal(mt_writers *w, uint64_t bytes);
void mt_writers_deinit(mt_writers *w); /* accepts a zeroed one */

#endif
