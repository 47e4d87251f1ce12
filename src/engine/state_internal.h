/* state_internal.h - shared by the files of the state: state.c (homes, reading and writing), homes.c (homes on a device),
 * updater.c (updates on the host), fold.c (sums of lanes), exchange*.c and reads.c (other machines), locks.c. */
#ifndef MT_ENGINE_STATE_INTERNAL_H
#define MT_ENGINE_STATE_INTERNAL_H

#include "base/mem.h"
#include "base/pool.h"
#include "engine/state.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct state_unit {
    mt_home home;
    mt_event *at_home;      /* after it a device's newest update of the unit is at home; NULL: only the host updates it */
    int64_t pushed;         /* version after the newest update that was pushed */
    int64_t updated;        /* gate: version after the newest update that is done */
    int64_t unlocked;       /* gate: locks that are over for this unit */
    int64_t locked_version; /* event that readers of the locked unit wait for */
} state_unit;

typedef struct update_job {
    mt_host_update at;
    mt_update op;  /* the addresses of the state are filled in when it runs */
    int64_t locks; /* locks that must end first */
} update_job;

/* The thread that updates on the host, in the order of its jobs. */
typedef struct updater {
    pthread_t thread;
    bool started;
    mt_pool *pool;
    bool pins;        /* its threads are bound to cores */
    update_job *jobs; /* ring of cap; guarded by the watch, like the next line */
    int cap;
    int64_t pushed, done; /* gates */
} updater;

typedef struct exchange exchange; /* exchange.c */

/* Sums of several lanes on their way to finished gradients (fold.c); guarded by the watch, except what only the updater's thread
 * uses. */
typedef struct fold_lane {
    mt_share_sum parts[MT_LAND_SLOTS]; /* part i in i mod MT_LAND_SLOTS */
    int64_t pushed, folded;            /* gates */
} fold_lane;

typedef struct fold_unit {
    float *totals[4]; /* step's, bundle's (several machines: bundle's only), then the lookup's.  NULL: add to the first part */
    void *gradient;   /* the finished gradient while it waits for its update; NULL: in a slab */
    int round;        /* the next part to add */
} fold_unit;

typedef struct folder {
    int n_lanes; /* 0: one lane on one machine, so nothing is added here */
    fold_lane *lanes;
    fold_unit *units;      /* [n_units] */
    double *norms;         /* [n_units] */
    double *chunk_norms;   /* scratch of the largest unit */
    void *slab;            /* a finished gradient that is applied at once */
    mt_peers *peers;       /* add on the devices; NULL: the sums land in host memory */
    mt_event **job_landed; /* [n_lanes] for these, of the current fold */
    const mt_deal *deal;
    bool early;
    int *job_lanes, *job_shares; /* [n_lanes] of the current fold, */
    mt_share_sum *job_parts;     /* [n_lanes] like these */
    int64_t finished, expected;  /* gate: finished gradients, counted from the start of the run; and those of all passes begun */
} folder;

/* The current update. */
typedef struct update_step {
    mt_update_coef coef, coef_no_decay;
    uint64_t seed; /* seed of its random bits, and */
    int64_t t;     /* the update's number */
} update_step;

/* A piece of the buffer through which threads reach homes on the device. */
typedef struct home_slot {
    pthread_mutex_t busy;
    char *bounce;
} home_slot;

/* Access to one device; with several lanes, each has its slices there. */
typedef struct home_lane {
    mt_device *dev;
    mt_stream *stream;
    mt_event *done[MT_STATE_SLOTS]; /* the piece is there */
} home_lane;

typedef struct home_channel {
    home_lane *lanes;     /* [n_lanes] */
    int n_lanes;          /* 0: no home is on a device */
    bool has_locks;       /* the locks are initialized */
    pthread_mutex_t lock; /* guards queueing */
    home_slot slots[MT_STATE_SLOTS];
    size_t piece_bytes; /* of each */
    atomic_uint turn;
} home_channel;

struct mt_state {
    mt_device *dev;
    const mt_plan *plan;
    const mt_model *model;
    mt_watch *watch;
    mt_trace *trace; /* NULL: not tracing */
    state_unit *units;
    home_channel channel;
    updater updater;
    folder folder;
    exchange *exchange; /* NULL: there is one machine */
    mt_reads reads;     /* answers other machines' requests for what is stored here */
    update_step step;
    int64_t t;                         /* updates so far */
    int64_t n_locks;                   /* changed only while nothing is locked */
    atomic_int_least64_t written_lock; /* the newest lock whose write-backs are all known to have ended */
};

/* -- homes.c -- */
mt_rc mt__homes_create(mt_state *s, const mt_memory *memory, mt_err *err);
void mt__homes_stop(mt_state *s);
void mt__homes_free(mt_state *s);
/* Fills device homes with zeros and waits for that. */
mt_rc mt__homes_clear(mt_state *s, mt_err *err);
/* Adds the other lanes' devices, if they have slices of the state. */
mt_rc mt__homes_add_lanes(mt_state *s, mt_err *err);
/* Copies bytes of a unit's state between host memory and `home`, which is on the device of `lane`, or (-1) in host memory.
 * COPY_OUT waits for the unit's newest update on a device; COPY_IN is for a state with nothing in flight. */
mt_rc mt__home_move(mt_state *s, int lane, int unit, void *home, char *host, size_t bytes, mt_copy_dir dir, mt_err *err);

/* -- updater.c -- */
mt_rc mt__updater_create(mt_state *s, int n_workers, mt_err *err); /* starts its thread, as the last step */
void mt__updater_stop(mt_state *s);
void mt__updater_free(mt_state *s);

/* Apply a finished gradient on the updater's thread. */
mt_rc mt__updater_apply(mt_state *s, int unit, mt_err *err);

/* -- fold.c -- */
mt_rc mt__folds_create(mt_state *s, const mt_memory *memory, mt_err *err);
void mt__folds_free(mt_state *s);
bool mt__folds_ready(const mt_state *s); /* with the watch's lock held: true if the next parts of all lanes are queued */
mt_rc mt__folds_run(mt_state *s, mt_err *err);
/* On the updater's thread: a finished gradient waits for the global norm or, if early, is applied. */
mt_rc mt__folds_finished(mt_state *s, int unit, mt_err *err);
enum { MT_FOLD_PIECE = 16 * 4096 }; /* elements a worker takes at a time: whole chunks of the norm */

/* -- exchange.c, exchange_units.c; ready, slot and owes with the watch's lock held -- */
void mt__exchange_begin(mt_state *s); /* a training pass, after the folder knows its deal; with the lock held */
/* The slot in which the bundle's sum that is folded next leaves; NULL: it is not free yet. */
void *mt__exchange_slot(const mt_state *s, int *unit);
void mt__exchange_folded(mt_state *s); /* it is there */
typedef enum exchange_work { EXCHANGE_NOTHING, EXCHANGE_REDUCE, EXCHANGE_APPLY } exchange_work;
/* The work that the updater's thread can do now. */
exchange_work mt__exchange_ready(const mt_state *s);
mt_rc mt__exchange_run(mt_state *s, exchange_work what, mt_err *err);
/* This machine's slice of the unit has this version: the others get its weights, and when theirs are here the gate opens. */
void mt__exchange_weights(mt_state *s, int unit, int64_t version);
bool mt__exchange_owes(const mt_state *s); /* weights are on their way */
void mt__exchange_stop(mt_state *s);       /* after the updater: what is on its way arrives */
void mt__exchange_free(mt_state *s);

static inline const mt_layout *mt__state_layout(const mt_state *s, int u) { return s->model->units[u].layout; }
static inline bool mt__lives_on_device(const mt_state *s, int u) { return s->plan->place.units[u].home == MT_DEVICE; }

#endif
