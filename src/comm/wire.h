/* wire.h - carries messages for comm.c: between threads of this process, or by MPI.  Only src/comm includes it.
 *
 * comm.c makes parcels and records of messages, and decides who is late.  A wire knows none of that: it starts messages, reports
 * which are finished, and updates what each rank knows of the others (mt_wire_peer) even while no thread calls it. */
#ifndef MT_COMM_WIRE_H
#define MT_COMM_WIRE_H

#include "comm/comm.h"

#include <stdatomic.h>

/* What is known of a rank, including our own. */
typedef struct mt_wire_peer {
    atomic_llong heard_ns; /* its last sign of life */
    atomic_int waits_for;  /* the rank it waits for; -1: none */
    atomic_bool ended;     /* it has closed */
} mt_wire_peer;

/* Messages of one pair of ranks, one direction and one tag arrive in the order they were started. */
typedef struct mt_wire_message {
    int peer, tag;
    bool sends;
    void *data;
    size_t bytes;
    void *mark; /* the caller's */
} mt_wire_message;

enum { MT_WIRE_LANDED = 32 };
typedef struct mt_landed {
    void *mark;
    size_t got; /* bytes transferred; SIZE_MAX: more than the buffer holds */
} mt_landed;

typedef struct mt_wire mt_wire;
typedef struct mt_wire_api {
    const char *name;
    mt_rc (*start)(mt_wire *w, const mt_wire_message *m, mt_err *err);
    mt_rc (*poll)(mt_wire *w, mt_landed out[MT_WIRE_LANDED], int *n, mt_err *err); /* *n: finished, and forgotten by the wire */
    void (*fail)(mt_wire *w, const mt_err *e); /* soon after, failed() returns it on every rank; the first one counts */
    mt_rc (*failed)(mt_wire *w, mt_err *err);  /* the sticky failure, or MT_OK */
    void (*withdraw)(mt_wire *w);              /* after a failure: forget all messages; their memory is not touched again */
    void (*close)(mt_wire *w, bool speaks);
} mt_wire_api;

struct mt_wire {
    const mt_wire_api *api;
    int rank, n_ranks, local_rank, n_local;
    char (*hosts)[MT_COMM_NAME_BYTES];
    mt_wire_peer *peers;    /* [n_ranks] */
    atomic_llong failed_ns; /* time of the failure, after which ranks are no longer heard; 0: not failed */
};

/* Parcels and records over a wire, which it owns from then on, even if this fails. */
mt_rc mt__comm_over(mt_comm **out, mt_wire *w, const mt_comm_options *o, mt_err *err);
/* True if this is the first of the ranks heard within the timeout. */
bool mt__wire_speaks(const mt_wire *w, double timeout_s);

/* comm_mpi.c, if built with MPI: initializes MPI here, finalizes it in close.  Weak: see launch.c. */
mt_rc mt__wire_mpi(mt_wire **out, const mt_comm_options *o, mt_err *err) __attribute__((weak));

static inline double mt__comm_timeout(const mt_comm_options *o) { return o && o->timeout_s > 0 ? o->timeout_s : 300; }

#endif
