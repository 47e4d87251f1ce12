/* exchange.h - what exchange.c, exchange_units.c and reads.c share.  Only they include it.
 *
 * One thread speaks to the other machines.  Every other thread hands it parcels, under the watch's lock; what follows when one is
 * done happens on that thread.  It waits only for the network, so every wait for it ends (N6). */
#ifndef MT_ENGINE_EXCHANGE_H
#define MT_ENGINE_EXCHANGE_H

#include "engine/state_internal.h"

/* Parcels of a unit, by their tags; and those that belong to none. */
enum exchange_tag {
    TAG_SUM,
    TAG_SUM_TIED,
    TAG_CHUNKS,
    TAG_HI,
    TAG_LO,
    TAGS_OF_UNIT = 8,
    TAG_RECORD = MT_COMM_TAGS - 64,
    TAG_REQUEST,
    TAG_ANSWER, /* and one for each reader */
};

/* A bundle's sums of a unit, on their way between machines. */
typedef struct exchange_slot {
    char *send,
        *receive;  /* fp32, or bf16 if bundles are rounded; receive: [others][own slice], then the same of the tied share */
    int64_t item;  /* that has it; -1: none */
    int to_reduce; /* sums that are missing: of others, and this machine's */
    int to_free;   /* sends that are not done, and the reduction */
} exchange_slot;

typedef struct exchange_unit {
    float *totals[2]; /* the slice's sum of bundles so far, and that of the tied share; NULL: there is one turn */
    double *chunks;   /* of the whole unit */
    int chunks_left, weights_left;
    int64_t version; /* of the weights that are on their way */
    char sum[MT_NAME_BYTES + 32], norm[MT_NAME_BYTES + 32], weights[MT_NAME_BYTES + 32]; /* what parcels are called */
} exchange_unit;

/* A read of state that another machine stores. */
typedef struct read_request {
    int32_t op, unit, kind, reader;
    int64_t first, n;
} read_request;

typedef struct reader {
    bool busy;
    int left;
    read_request request;
    char *data; /* the answer */
} reader;

typedef struct asking {   /* a machine that may ask */
    read_request request; /* the newest, once it is here */
    bool here, ended;
    char *answers[MT_READERS]; /* on their way to its readers, */
    bool sending[MT_READERS];  /* and whether they are */
} asking;

typedef struct reads {
    pthread_t thread;
    bool open;
    reader readers[MT_READERS];
    asking *peers;       /* [machines] */
    read_request *drops; /* [machines] words on their way to each: drops, notes, ends */
    int drops_left;
} reads;

struct exchange {
    mt_comm *comm; /* borrowed */
    int me, machines;
    pthread_t thread;
    bool started, stopping;
    mt_parcel *queue; /* ring of cap, for the thread to post */
    size_t cap;
    int64_t queued, posted; /* counted from the first */
    int64_t done;           /* only the thread's own: posted ones that have arrived */

    /* A training pass.  Item e is unit order[e mod n_order] of turn e / n_order: all machines have the same items. */
    int *order;      /* [n_order] trained units, as backward finishes them */
    int *layer_rank; /* [n_order] how many of those before it take turns in the first slots */
    int n_order, n_layers;
    int64_t pass;                    /* its first item; items are counted from the first of all */
    int turns, own_turns;            /* with a bundle that has documents; of this machine */
    int64_t opened, folded, reduced; /* items: have a slot, are summed here, are added up */
    exchange_slot slots[MT_LAND_SLOTS];
    exchange_unit *units;
    int *applies; /* ring of n_units: units whose norm is known, to be updated at once */
    int64_t applies_pushed, applies_done;
    int64_t weights_begun, weights_done;

    struct {
        char *mine, *all;
        size_t most;
        int left;
    } record;
    reads reads;
};

/* With the watch's lock held, from any thread.  `done` is called with the state and `mark`, on the exchange's thread. */
void mt__exchange_post(mt_state *s, const mt_parcel *p);
/* The k-th of the other machines.  Each machine begins with the next one, so not all send to the same one at once. */
static inline int mt__exchange_peer(const exchange *x, int k) { return (x->me + k) % x->machines; }

/* -- exchange_units.c -- */
/* Lists the trained units in the order of backward, and finds their buffers and those of the slots. */
void mt__exchange_open_units(mt_state *s, const mt_memory *memory);

/* -- reads.c -- */
mt_rc mt__reads_create(mt_state *s, mt_err *err);
void mt__reads_free(mt_state *s);

#endif
