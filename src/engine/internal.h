/* internal.h - the engine's parts and what they share.  Only engine/ includes it.
 *
 *     memory   the plan's buffers              ring     weights on the device
 *     keeps    kept activations                grads    accumulators, finished gradients
 *     updates  the three update sites          updater  the thread of the one on the host
 *     step     forward, backward, in order */
#ifndef MT_ENGINE_INTERNAL_H
#define MT_ENGINE_INTERNAL_H

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/watch.h"
#include "device/trace.h"
#include "engine/engine.h"
#include "plan/buffer_index.h"

#include <pthread.h>
#include <stdatomic.h>

/* A buffer that is used, handed to another stream, and used again. */
typedef struct slot {
    void *p;
    mt_event *ready; /* what it was filled for may read it */
    mt_event *free;  /* may be overwritten */
} slot;

/* Slots that are used in turn. */
typedef struct slot_ring {
    slot *slots;
    int n, turn;
} slot_ring;

typedef struct ring_slot {
    slot s;              /* s.p: weights in the compute dtype */
    uint16_t *halves_hi; /* fp32 only: hi and lo land here and are joined into s.p */
    int16_t *halves_lo;
    float *exact;       /* bf16 only: the unit's exact numbers; NULL: it has none */
    uint16_t *exact_hi; /* their halves on the way there from the host */
    int16_t *exact_lo;
    int unit;            /* whose weights; -1: none */
    int64_t version;     /* after how many updates */
    int lent;
} ring_slot;

/* A piece of the buffer through which threads reach state on the device. */
typedef struct state_slot {
    pthread_mutex_t busy;
    char *bounce;
    mt_event *done; /* the piece is there */
} state_slot;

typedef struct unit_state {
    uint16_t *hi; /* at home; NULL where it is mapped */
    const void **mapped; /* [layout's weights] where each lies in a mapped file; NULL: hi is in memory */
    int16_t *lo;         /* as many as have low halves */
    uint16_t *exact_home; /* where nothing is updated: halves of the exact numbers, hi and then lo; NULL: there are none, or lo
                           * has them */
    void *m, *v; /* as the arithmetic's form of moments has them */
    int64_t version;         /* updates issued */
    int64_t updated;         /* gate: host updates finished */
    int64_t let_go;          /* gate: holds that are over for this unit */
    int64_t held_version;    /* what the saver waits for */
    mt_event *written;       /* staged: the newest state is back in host memory */
    mt_event *kept_free;     /* staged: what it borrowed of its layer's kept activations is back, the accumulator may not be */
    mt_event *device_updated;
    mt_event *landed;        /* the finished gradient has reached the host */
    void *parked;            /* host, or NULL */
    void *grad_dev;          /* device, or NULL */
    slot *sum;               /* what its gradient is summed in, from begin to end of its backward */
    float *acc_host[2];      /* host accumulators: own, and the embedding's share when tied */
    mt_event *acc_saved[2];
    int first_slot, n_slots; /* the ring slots it may use */
    int slot;                /* the ring slot it was last fetched into; -1: none */
    int first_use, n_uses;   /* of the step's order of visits: which of e->uses are its */
    struct stage_slot *stage; /* staged: the slot that is its own; NULL: it has none */
    struct stage_slot *staged_in; /* the slot it was last staged in */
    int next_borrower[2];         /* of the lists of its two lenders, see layer_state */
} unit_state;

typedef struct layer_state {
    int carving;     /* of the engine's: how its kept block is carved */
    void *cache;     /* of generation, or NULL */
    char *kept;      /* device block, or NULL */
    char *kept_host; /* host block, or NULL */
    int slot;        /* keep slot when kept on the host */
    mt_event *saved; /* the host block is complete */
    int borrowers; /* loans whose staged state lies in `kept` between steps: a list of 2 * unit + (which of its lenders); -1: none
                    */
    mt_event *lent; /* the last backward has read it: they may have it */
} layer_state;

typedef struct keep_slot {
    slot s;
    int layer; /* whose activations; -1: none */
} keep_slot;

typedef struct stage_slot {
    slot s;         /* s.p: NULL where the unit borrows its memory */
    mt_event *done; /* updated: may be written back */
    int unit;       /* staged in for it; -1: none */
    int64_t version; /* of a unit's own: after how many updates its state lies there; -1: it does not */
} stage_slot;

typedef struct update_job {
    int unit;
    mt_adamw op;     /* g: host; where the state is, is filled in when it runs */
    bool check_norm; /* clipping is off: look before updating */
    int64_t version; /* the unit's, once this is done */
    int64_t holds;   /* those that must be over first */
} update_job;

/* The thread that updates on the host, in the order jobs come. */
typedef struct updater {
    pthread_t thread;
    bool started;
    mt_pool *pool;
    bool pins; /* its threads are bound to cores */
    update_job *jobs; /* ring of cap; guarded by the watch, like the next two */
    int cap;
    int64_t pushed, done; /* gates */
    mt_adamw_coef coef, coef_no_decay; /* of the step at hand */
    uint64_t seed; /* of random bits, and */
    int64_t t;     /* the update's number */
} updater;

/* One allocation of host memory, for those of the plan's buffers [first, end) that are there. */
typedef struct host_pool {
    void *p;
    size_t first, end, bytes;
} host_pool;

struct mt_engine {
    mt_device *dev;
    const mt_model *model;
    const mt_plan *plan; /* borrowed; outlives the engine */
    const mt_ops *ops;
    mt_stream *compute, *copy_in, *copy_out;
    mt_stream *write_back; /* staged state on its way home: apart from copy_out, where gradients must not wait behind gigabytes
                            * of it */
    mt_trace *trace; /* borrowed; NULL: nobody looks */
    mt_watch watch;
    mt_run run;
    void **buffers; /* parallel to plan->buffers */
    mt_buffer_index index; /* of plan->buffers */
    host_pool *pools;      /* what those in host memory are carved from */
    size_t n_pools;

    unit_state *units;
    layer_state *layers;
    ring_slot *ring;
    int n_ring;
    keep_slot *keeps;
    mt_carving *carvings;      /* [kind][level] of kept blocks */
    mt_carving *work_carvings; /* [kind][own, shared] of workspace */
    char **layer_work;         /* [longest_segment] a layer's own workspace */
    char *shared_work;         /* what all layers share */
    void *x_pass[2];           /* inputs that are not kept */
    slot_ring *sums, *outs; /* [group] of gradient sums, of finished gradients on their way out */
    slot *unit_accs;   /* [n_units], accumulators that stay on the device between sweeps */
    slot acc_tied;     /* the lookup's share of a tied embedding */
    stage_slot *stages;
    int stage_turn;
    stage_slot *own_stages; /* [n_units], of those that borrow; s.free is the accumulator's event */
    bool any_borrows;
    int *late, n_late; /* units whose write-backs only their own next updates wait for */
    updater updater;
    int64_t n_slab_jobs; /* jobs that took a slab so far */

    /* order in which units' weights are used; wraps from sweep to sweep */
    int *visits;
    int n_visits, visit;
    int *uses;     /* the same by unit: of each, its visits in ascending order */
    int ahead;     /* the next so many visits have their weights on the device or on the way */
    int64_t looks; /* slots, visits and units looked at for prefetching and staging, for tests */
    bool last_sweep;
    int64_t sweep, n_sweeps; /* of the step at hand */
    mt_event *visited;       /* compute has left the unit of the newest visit */

    /* the step at hand */
    mt_cut *cuts;
    mt_micro *micros; /* pointers into the device copy of the input */
    int64_t n_cuts;
    int32_t *sort_a, *sort_b;
    mt_event *input_read, *sums_ready, *settled[4];
    mt_loss_sum *sum;   /* device */
    int64_t *n_bad;     /* device */
    double *norms;      /* device, one a unit */
    struct host_sums {
        mt_loss_sum sum;
        int64_t n_bad;
        double norms[];
    } *host;
    double *landed_norms; /* host, one a unit: arrives with the gradient when clipping is off, for the updater to look at */
    float dscale;
    bool in_flight; /* work was queued since the last settle */
    bool refused;   /* the newest batch was, before anything of it was queued */
    /* how many write-backs are queued: of what lies in lenders' memory, in accumulators, in slots of their own (of n_late) */
    int returned, returned_acc, returned_own;
    bool updating; /* this step's gradients are applied as they come (clipping off) */
    int64_t t;     /* updates so far */
    int64_t wait_update_ns, wait_save_ns;

    pthread_mutex_t write_lock; /* of threads that write state, see state.c */
    void (*wrote)(void *user, size_t bytes); /* NULL: nobody wants to know */
    void *wrote_user;

    /* holding still for the thread that saves; see hold.c */
    int64_t n_holds; /* changed only while nothing is held */
    atomic_int_least64_t held_there; /* the hold whose write-backs have all been seen to end */

    /* reaching what lives on the device; see homes.c */
    mt_stream *state; /* NULL: no home is there */
    pthread_mutex_t state_lock; /* guards queueing there */
    state_slot state_slots[MT_STATE_SLOTS];
    atomic_uint state_turn;
};

/* -- memory.c -- */
mt_rc mt__memory_create(mt_engine *e, mt_err *err);
void mt__memory_free(mt_engine *e);
void *mt__buffer(const mt_engine *e, mt_buffer_kind kind, int i, int j); /* NULL: the plan has none */
/* name: what a wait for it waits for, in a trace. */
mt_rc mt__event(mt_engine *e, mt_event **out, const char *name, mt_err *err);
mt_rc mt__slot_events(mt_engine *e, slot *s, const char *ready, const char *free, mt_err *err);
void mt__slot_free(mt_engine *e, slot *s);
/* To or from the device and wait, through memory of our own: a failed stream must never hold a caller's. */
mt_rc mt__bounce(mt_engine *e, char *device, char *host, size_t bytes, mt_copy_dir dir, mt_err *err);

/* -- ring.c -- */
mt_rc mt__ring_create(mt_engine *e, mt_err *err);
void mt__ring_free(mt_engine *e);
/* Lend unit u's weights for the compute queued from now on. */
mt_rc mt__ring_acquire(mt_engine *e, int u, mt_weights *w, mt_err *err);
/* The compute queued so far was the last to use them. */
mt_rc mt__ring_release(mt_engine *e, int u, mt_err *err);
/* Start copies for the coming visits, as far as slots and updates allow without waiting. */
mt_rc mt__ring_prefetch(mt_engine *e, mt_err *err);
/* The order of visits is written: begin with its first. */
void mt__ring_begin(mt_engine *e);
/* The visit is over. */
void mt__ring_next(mt_engine *e);
/* What the device holds of unit u's weights is old. */
void mt__ring_forget(mt_engine *e, int u);
/* Weights were just updated in place, with low halves that lie at `lo`: what the device has of exact numbers follows. */
mt_rc mt__ring_rejoin(mt_engine *e, int u, const int16_t *lo, mt_err *err);
/* The slot a unit's weights are updated in, when they live or stay on the device as bf16; else NULL. */
ring_slot *mt__ring_in_place(mt_engine *e, int u);

/* -- keeps.c -- */
mt_rc mt__keeps_create(mt_engine *e, mt_err *err);
void mt__keeps_free(mt_engine *e);
/* Where layer's input goes (layer L: the head's input); row is the first row in the sweep. */
mt_rc mt__keeps_open(mt_engine *e, int layer, bool train, mt_err *err);
void *mt__keeps_x(mt_engine *e, int layer, bool train, int64_t row);
/* Activations of a layer for a micro-batch at `row`; set: which workspace takes what is not kept. */
mt_acts mt__keeps_acts(mt_engine *e, int layer, bool train, int set, int64_t row);
mt_rc mt__keeps_close(mt_engine *e, int layer, int64_t sweep_rows, mt_err *err);
mt_rc mt__keeps_fetch(mt_engine *e, int layer, int64_t sweep_rows, mt_err *err);
mt_rc mt__keeps_acquire(mt_engine *e, int layer, mt_err *err);
mt_rc mt__keeps_release(mt_engine *e, int layer, mt_err *err);

/* -- grads.c -- */
mt_rc mt__grads_create(mt_engine *e, mt_err *err);
void mt__grads_free(mt_engine *e);
/* Accumulators of unit u for this sweep. */
mt_rc mt__grads_begin(mt_engine *e, int u, bool first_sweep, float **acc, mt_err *err);
mt_rc mt__grads_begin_tied(mt_engine *e, bool first_sweep, float **acc, mt_err *err);
/* End of the unit's backward in this sweep: saved for the next, or finished. */
mt_rc mt__grads_end(mt_engine *e, int u, bool last_sweep, mt_err *err);

/* -- updater.c -- */
mt_rc mt__updater_create(mt_engine *e, int n_workers, mt_err *err); /* starts its thread: last of all */
void mt__updater_stop(mt_engine *e);                                /* joins it; before the streams go */
void mt__updater_free(mt_engine *e);
/* Unit u's update from gradient g on the host, which may still be on its way there. */
mt_rc mt__updater_push(mt_engine *e, int u, void *g, mt_err *err);
/* The host slab for the next gradient; waits until one is free. */
mt_rc mt__updater_slab(mt_engine *e, void **slab, mt_err *err);

/* -- updates.c -- */
mt_rc mt__updates_create(mt_engine *e, mt_err *err);
void mt__updates_free(mt_engine *e); /* after the streams: their queues hold its events */
void mt__updates_coef(mt_engine *e, const mt_hyper *h, double grad_scale);
/* The update of unit u in the step at hand, but for where its state and gradient are. */
mt_adamw mt__update_of(const mt_engine *e, int u);
/* The unit's gradient is finished and clipping is off. */
mt_rc mt__updates_now(mt_engine *e, int u, void *g, mt_err *err);
/* The last backward of `layer` is queued: start copying in the state of the unit that borrows from it. */
mt_rc mt__updates_lend(mt_engine *e, int layer, mt_err *err);
/* A unit that borrows has just freed its accumulator: the rest of its state. */
mt_rc mt__updates_stage_own(mt_engine *e, int u, mt_err *err);
/* Copy state in for staged units, as many as there are slots. */
mt_rc mt__updates_stage_ahead(mt_engine *e, mt_err *err);
/* All units, the norm being known. */
mt_rc mt__updates_all(mt_engine *e, mt_err *err);
/* Queue the write-backs that updates_all left for later: those of units up to u, whose weights or lenders' memory are needed
 * next; those that free accumulators, as far as u's; all: behind what anyone waits for, and before anyone reads the state. */
mt_rc mt__updates_return(mt_engine *e, int u, mt_err *err);
bool mt__updates_may_return(mt_engine *e, int u); /* without waiting for the saver */
mt_rc mt__updates_return_acc(mt_engine *e, int u, mt_err *err);
mt_rc mt__updates_return_all(mt_engine *e, mt_err *err);
/* A visit is over: as many of those that return late as keep pace with the step. */
mt_rc mt__updates_pace(mt_engine *e, mt_err *err);
/* None: the step is skipped. */
mt_rc mt__updates_drop(mt_engine *e, mt_err *err);
/* Did weights leave the finite range on the device, as far as host->n_bad knows?  The host's updater says so itself. */
mt_rc mt__updates_check(const mt_engine *e, mt_err *err);

/* -- hold.c -- */
/* Is the saver not done with unit u yet? */
bool mt__hold_is_on(mt_engine *e, int u);
/* On the engine's thread, before an update of unit u, or its way back to the host, is queued on the device. */
mt_rc mt__hold_wait(mt_engine *e, int u, mt_err *err);

/* -- homes.c -- */
mt_rc mt__homes_create(mt_engine *e, mt_err *err);
void mt__homes_free(mt_engine *e);
/* Bytes of a unit's state, at `home`, which is where the unit lives.  Reading waits for its newest update on the device; writing
 * is for a settled engine. */
mt_rc mt__home_read(mt_engine *e, int unit, char *home, void *dst, size_t bytes, mt_err *err);
mt_rc mt__home_write(mt_engine *e, int unit, char *home, const void *src, size_t bytes, mt_err *err);

/* -- state.c -- */
mt_rc mt__state_read(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, void *dst, mt_err *err);
/* Bytes of all of it, at its home. */
size_t mt__state_bytes(const mt_engine *e, int unit, mt_state_kind kind);

/* -- input.c -- */
/* Where the documents of a pass continue; NULL where each stands alone. */
typedef struct continued {
    const int32_t *past; /* [n_docs] rows that are cached already */
    const int32_t *slot; /* [n_docs] cache slot */
} continued;
mt_rc mt__input_check(const mt_engine *e, const mt_batch *b, mt_err *err); /* does the plan have room for it? */
mt_rc mt__input_load(mt_engine *e, const mt_batch *b, const continued *at, mt_err *err);

/* -- step.c -- */
/* One pass forward over cached sequences.  Logits of the rows that have a target, in order, are in MT_BUF_LOGITS_HOST when it
 * returns; there may be one per cache slot. */
mt_rc mt__step_continue(mt_engine *e, const mt_batch *b, const continued *at, mt_err *err);

/* The next loan in a lender's list. */
static inline int mt__next_loan(const mt_engine *e, int loan) { return e->units[loan / 2].next_borrower[loan % 2]; }
static inline bool mt__is_f32(const mt_engine *e) { return e->plan->arithmetic.compute == MT_DTYPE_F32; }
static inline const mt_unit_place *mt__place(const mt_engine *e, int u) { return &e->plan->place.units[u]; }
static inline const mt_layout *mt__layout(const mt_engine *e, int u) { return e->model->units[u].layout; }

#endif
