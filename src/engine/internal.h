/* internal.h - an engine is one state and its lanes.  Only engine/ includes it. */
#ifndef MT_ENGINE_INTERNAL_H
#define MT_ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "engine/lane.h"

/* Name of a lane's device in messages. */
typedef struct lane_name {
    char s[24];
} lane_name;

/* A lane after the first: its device, and the thread that runs its passes (lanes.c). */
typedef struct further_lane {
    mt_engine *e;
    int index;
    lane_name name;
    mt_device *dev;
    mt_memory memory;
    mt_lane *lane;
    pthread_t thread;
    bool started;
    int64_t arrived;      /* gate: the pass whose losses it has reported */
    const int32_t *loads; /* reported with them: rows of each expert, until the next pass */
    int64_t done;         /* gate: the pass it has returned from, failed or not */
} further_lane;

/* State of a pass that lanes share; guarded by the watch. */
typedef struct lane_pact {
    int64_t ordered;             /* gate: the newest pass, which all lanes run */
    int64_t judged;              /* gate: the newest pass whose verdict is known, */
    bool go;                     /* and the verdict */
    mt_lane_pass pass;           /* the newest pass, except `judge` and `self` */
    mt_loss_sum *losses;         /* [bundles * shares] each written by the lane that computes the share, like the next */
    double *router_losses;       /* [bundles * shares] */
    int32_t *loads;              /* [L, E] rows of each expert, of all lanes */
    mt_deal deal;                /* of the pass, for folding */
    double *seconds;             /* [lanes] seconds from the start of the pass to its losses */
    int64_t ordered_ns, wait_ns; /* time of the start; seconds the first lane waited for the others */
} lane_pact;

/* Records that machines exchange in a pass (machines.c). */
typedef struct machine_pact {
    char *mine, *records; /* this machine's; [machines] all.  NULL: there is one machine */
    size_t bytes;         /* bytes of a record */
} machine_pact;

struct mt_engine {
    mt_device *dev;
    const mt_model *model;
    const mt_plan *plan; /* borrowed; outlives the engine */
    mt_memory memory;
    mt_watch watch;
    mt_state *state;
    mt_lane *lane;      /* the first */
    further_lane *more; /* [n_more] */
    const int *numbers; /* names of the devices; NULL: 0, 1, ... */
    lane_name name;     /* of the first */
    int n_more;
    mt_peers *peers; /* if lanes add their sums on the devices; otherwise NULL */
    lane_pact pact;
    machine_pact machines;
    mt_trace *trace;                         /* borrowed; NULL: not tracing */
    bool in_flight;                          /* work was queued since the last settle */
    pthread_mutex_t write_lock;              /* for threads that write state */
    void (*wrote)(void *user, size_t bytes); /* NULL: no callback */
    void *wrote_user;
};

/* -- engine.c -- */
/* The home of a unit's packed weights (NULL: it has none), which the caller fills: nothing is in flight, and no device relies on what
 * was there. */
mt_rc mt__engine_packed(mt_engine *e, int unit, uint8_t **out, mt_err *err);
/* Reports bytes that were written to the caller that watches writes. */
void mt__engine_wrote(mt_engine *e, size_t bytes);

/* -- lanes.c -- */
mt_rc mt__lanes_create(mt_engine *e, mt_device *const *more, mt_err *err);
void mt__lanes_stop(mt_engine *e); /* joins their threads: after the watch is closing or has failed */
void mt__lanes_free(mt_engine *e);
mt_rc mt__lanes_settle(mt_engine *e, mt_err *err);
/* Runs a pass on all lanes; calls pass->judge on the caller's thread, with the sums of all lanes. */
mt_rc mt__lanes_run(mt_engine *e, const mt_lane_pass *pass, mt_err *err);

/* -- machines.c -- */
mt_rc mt__machines_create(mt_engine *e, mt_comm *comm, mt_err *err); /* after the state, before the lanes */
void mt__machines_free(mt_engine *e);
/* Exchanges losses and loads of the pass with all machines; this machine's own are in the pact. */
mt_rc mt__machines_meet(mt_engine *e, mt_err *err);

/* -- step.c -- */
/* One forward pass over cached sequences; mt_lane_logits then returns the logits of the rows that have a target. */
mt_rc mt__engine_continue(mt_engine *e, const mt_batch *b, const mt_continued *at, mt_err *err);

#endif
