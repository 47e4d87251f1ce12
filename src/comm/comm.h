/* comm.h - bytes between machines.
 *
 * A run on several machines has one process on each: a *rank*.  Ranks exchange two things: parcels, which are large, asynchronous
 * and go from one rank's memory to another's; and records, which are small and which all ranks exchange at once.  Nothing is
 * added up here (D1).
 *
 * One table of functions (mt_comm_api) with three implementations: alone (one rank, nothing to do), threads (ranks are threads of
 * one process, for tests) and mpi.
 *
 *   parcel   post() a send on one rank and a receive of the same size and tag on the other, in any order; advance() moves what was
 *            posted.  Parcels of one pair of ranks with the same tag arrive in the order they were posted.  The memory stays put
 *            and the sender's unchanged until done() was called.
 *   record   tell() returns once every rank has called it: all get all records, in rank order.
 *
 * Failures are sticky: the first one on any rank ends every call on every rank within a second with a message that begins with
 * the rank and host it comes from.  Ranks send signs of life even while their callers compute.  A rank that is silent for longer
 * than the timeout is a failure, detected by every rank that waits for anything.  So is a rank that is alive but late for longer
 * than the caller's patience.  The error names the rank and what was expected from it.
 *
 * Once a call has failed, nothing touches the memory of parcels any more.  A rank with an error of its own calls fail() before it
 * closes.  A rank that closes without that is a failure for ranks that wait for it.
 *
 * Threads: open, tell, post, advance and close are called by one thread at a time; fail() by any. */
#ifndef MT_COMM_COMM_H
#define MT_COMM_COMM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MT_COMM_PIECE_BYTES = 16 << 20, MT_COMM_NAME_BYTES = 64, MT_COMM_TAGS = 1 << 20 };

typedef struct mt_comm mt_comm;

typedef struct mt_comm_options {
    double timeout_s;   /* seconds of silence; 0: five minutes */
    size_t piece_bytes; /* parcels travel in pieces of this; 0: MT_COMM_PIECE_BYTES */
    int dawdle_us;      /* threads, for tests: parcels sleep at random, up to this long */
    /* mpi: called when the run has failed and its process does not end by itself, before it is killed: prints the error.  Called
     * on our thread, on the reporting rank only. */
    void (*last)(void *self, const mt_err *e);
    void *self;
} mt_comm_options;

typedef struct mt_parcel {
    int peer; /* the other rank */
    bool sends;
    bool in_turn; /* a receive that waits for others like it, see mt_comm.window_bytes */
    int tag;      /* equal on both sides; below MT_COMM_TAGS */
    void *data;
    size_t bytes;
    const char *what;                     /* for messages: "the gradient of layer 12"; borrowed until done */
    void (*done)(void *self, void *mark); /* on the thread that advances; may post */
    void *self, *mark;
} mt_parcel;

typedef struct mt_comm_api {
    const char *name;
    /* Also closes failed ones, waiting only until the reporting rank has printed the error.  Otherwise waits until all ranks have
     * closed. */
    void (*close)(mt_comm *c);
    mt_rc (*post)(mt_comm *c, const mt_parcel *p, mt_err *err);
    /* Moves parcels until one is done, nothing is in flight, or this time (base/clock.h) has come. */
    mt_rc (*advance)(mt_comm *c, int64_t until_ns, mt_err *err);
    /* Exchanges a record of n bytes with every rank, all of one size; all: [ranks][n]. what: as in a parcel.  Moves parcels too. */
    mt_rc (*tell)(mt_comm *c, const void *mine, size_t n, void *all, const char *what, mt_err *err);
    void (*fail)(mt_comm *c, const mt_err *e); /* tell all, once; returns at once */
} mt_comm_api;

struct mt_comm {
    const mt_comm_api *api;
    int rank, n_ranks;
    int local_rank, n_local;           /* among the ranks of this machine */
    char (*hosts)[MT_COMM_NAME_BYTES]; /* [n_ranks] */
    _Atomic double patience_s;         /* how late a live rank may be; 0: forever.  Any thread may change it */
    /* Receives in turn that may be under way at a time, in bytes; at least one is.  When all ranks send to all, each rank then hears
     * from one sender after the other instead of from all at once, which on a slow network with TCP takes much longer.  Only receives
     * whose sender has begun take a turn, so a late rank holds up no other.  Any thread may change it. */
    _Atomic double window_bytes;
};

static inline void mt_comm_close(mt_comm *c)
{
    if (c) c->api->close(c);
}
/* The sticky failure, or MT_OK. */
static inline mt_rc mt_comm_check(mt_comm *c, mt_err *err) { return c->api->advance(c, 0, err); }
/* True on the one rank that reports a failed run to the user: the first that is not silent. */
bool mt_comm_speaks(const mt_comm *c);

/* One rank, which needs no closing. */
mt_comm *mt_comm_alone(void);
/* Machines as threads of one process: out gets n ranks, one per thread; each is closed separately. */
mt_rc mt_comm_threads(mt_comm **out, int n, const mt_comm_options *o, mt_err *err);
/* Under a launcher (mpirun, srun, a PMIx or PMI environment) with more than one rank: initializes MPI, and fails if this program
 * was built without it.  Under torchrun: fails with the right command in the message.  Otherwise: alone.  Call it once per
 * process. */
mt_rc mt_comm_launched(mt_comm **out, const mt_comm_options *o, mt_err *err);
/* The rank that the launcher gave this process; 0 without one.  For use before MPI is initialized. */
int mt_comm_launched_rank(void);

#endif
