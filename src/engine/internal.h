/* internal.h - the engine's parts and what they share.  Only engine/ includes it.
 *
 *     memory   the plan's buffers              port     the sequencer's actions, events and questions
 *     ring     weights on the device           keeps    kept activations
 *     grads    sums, finished gradients        updates  the three update sites
 *     step     forward, backward               updater  the thread that updates on the host
 *
 * What is issued when is the sequencer's to decide (plan/sequence.h); the parts here only know where things are. */
#ifndef MT_ENGINE_INTERNAL_H
#define MT_ENGINE_INTERNAL_H

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/watch.h"
#include "device/trace.h"
#include "engine/engine.h"
#include "plan/buffer_index.h"
#include "plan/sequence.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ring_slot {
    void *p;             /* weights in the compute dtype */
    uint16_t *halves_hi; /* fp32 only: hi and lo land here and are joined into p */
    int16_t *halves_lo;
    float *exact;       /* bf16 only: the unit's exact numbers; NULL: it has none */
    uint16_t *exact_hi; /* their halves on the way there from the host */
    int16_t *exact_lo;
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
    void *m, *v;          /* as the arithmetic's form of moments has them */
    int64_t updated;         /* gate: host updates finished */
    int64_t let_go;          /* gate: holds that are over for this unit */
    int64_t held_version;    /* what the saver waits for */
    void *parked;            /* host, or NULL */
    void *grad_dev;          /* device, or NULL */
    float *acc_host[2];      /* host accumulators: own, and the embedding's share when tied */
} unit_state;

typedef struct layer_state {
    int carving;     /* of the engine's: how its kept block is carved */
    void *cache;     /* of generation, or NULL */
    char *kept;      /* device block, or NULL */
    char *kept_host; /* host block, or NULL */
} layer_state;

typedef struct update_job {
    int unit;
    mt_event *landed; /* the gradient is there */
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
    mt_event *after;      /* what the next job waits for */
    mt_adamw_coef coef, coef_no_decay; /* of the step at hand */
    uint64_t seed; /* of random bits, and */
    int64_t t;     /* the update's number */
} updater;

/* One allocation of host memory, for those of the plan's buffers [first, end) that are there. */
typedef struct host_pool {
    void *p;
    size_t first, end, bytes;
} host_pool;

/* Some of a step's micro-batches, and how many rows they have. */
typedef struct sweep {
    int64_t first, end; /* micro-batches */
    int64_t rows;
} sweep;

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
    mt_sequence *sequence;
    mt_event **events; /* the sequencer's, by number */
    int n_events;
    ring_slot *ring;              /* by the sequencer's numbers, like the next four */
    void **keeps, **sums, **outs; /* kept activations, gradient sums, finished gradients, on their way */
    void **stages;                /* NULL where the unit reuses memory */
    mt_carving *carvings;      /* [kind][level] of kept blocks */
    mt_carving *work_carvings; /* [kind][own, shared] of workspace */
    char **layer_work;         /* [longest_segment] a layer's own workspace */
    char *shared_work;         /* what all layers share */
    void *x_pass[2];           /* inputs that are not kept */
    updater updater;

    /* the step at hand */
    mt_cut *cuts;
    sweep sweep;      /* the one at hand */
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
    bool updating; /* this step's gradients are applied as they come (clipping off) */
    bool only_gradients; /* nothing is updated from them */
    const mt_batch *batch;
    const mt_hyper *hyper;
    mt_step_result *result;
    float *logits;     /* where those of the next rows go */
    int64_t judged_ns; /* when loss and norm were known */
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
/* To or from the device and wait, through memory of our own: a failed stream must never hold a caller's. */
mt_rc mt__bounce(mt_engine *e, char *device, char *host, size_t bytes, mt_copy_dir dir, mt_err *err);

/* -- ring.c -- */
mt_rc mt__ring_create(mt_engine *e, mt_err *err);
void mt__ring_free(mt_engine *e);
mt_rc mt__ring_fetch(mt_engine *e, int u, int slot, mt_err *err);
/* The weights that the sequencer lends. */
mt_weights mt__ring_weights(const mt_engine *e, int u);
/* Weights were just updated in place, with low halves that lie at `lo`: what the device has of exact numbers follows. */
mt_rc mt__ring_rejoin(mt_engine *e, int u, const int16_t *lo, mt_err *err);

/* -- keeps.c -- */
mt_rc mt__keeps_create(mt_engine *e, mt_err *err);
void mt__keeps_free(mt_engine *e);
/* Where layer's input goes (layer L: the head's input); row is the first row in the sweep. */
void *mt__keeps_x(mt_engine *e, int layer, bool train, int64_t row);
/* Activations of a layer for a micro-batch at `row`; set: which workspace takes what is not kept. */
mt_acts mt__keeps_acts(mt_engine *e, int layer, bool train, int set, int64_t row);
/* The sweep's rows of a layer's kept activations, to the host or back. */
mt_rc mt__keeps_copy(mt_engine *e, int layer, mt_copy_dir dir, mt_err *err);

/* -- grads.c -- */
mt_rc mt__grads_create(mt_engine *e, mt_err *err);
void mt__grads_free(mt_engine *e);
mt_rc mt__grads_clear(mt_engine *e, const mt_action *a, mt_err *err);
/* Sums to host memory between sweeps, or back. */
mt_rc mt__grads_copy(mt_engine *e, const mt_action *a, mt_copy_dir dir, mt_err *err);
mt_rc mt__grads_round(mt_engine *e, const mt_action *a, mt_err *err);
mt_rc mt__grads_norm(mt_engine *e, const mt_action *a, mt_err *err);
mt_rc mt__grads_send(mt_engine *e, const mt_action *a, mt_err *err);
/* Where a finished gradient waits on the host: a slab, or (-1) the unit's. */
void *mt__grads_host(const mt_engine *e, int u, int slab);

/* -- updater.c -- */
mt_rc mt__updater_create(mt_engine *e, int n_workers, mt_err *err); /* starts its thread: last of all */
void mt__updater_stop(mt_engine *e);                                /* joins it; before the streams go */
void mt__updater_free(mt_engine *e);
/* Unit u's update from gradient g on the host, which may still be on its way there; afterwards it is of this version. */
mt_rc mt__updater_push(mt_engine *e, int u, void *g, int64_t version, mt_err *err);

/* -- updates.c -- */
mt_rc mt__updates_create(mt_engine *e, mt_err *err);
void mt__updates_free(mt_engine *e); /* after the streams: their queues hold its events */
void mt__updates_coef(mt_engine *e, const mt_hyper *h, double grad_scale);
/* The update of unit u in the step at hand, but for where its state and gradient are. */
mt_adamw mt__update_of(const mt_engine *e, int u);
mt_rc mt__updates_on_device(mt_engine *e, int u, bool in_place, mt_err *err);
mt_rc mt__updates_stage(mt_engine *e, const mt_action *a, mt_err *err);
mt_rc mt__updates_staged(mt_engine *e, const mt_action *a, mt_err *err);
mt_rc mt__updates_write_back(mt_engine *e, const mt_action *a, mt_err *err);
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
/* Compute of a visit: embed, forward, head, backward. */
void mt__step_sweep(mt_engine *e, int64_t sweep);
mt_rc mt__step_embed(mt_engine *e, mt_err *err);
mt_rc mt__step_forward(mt_engine *e, int layer, mt_err *err);
mt_rc mt__step_head(mt_engine *e, mt_err *err);
mt_rc mt__step_backward(mt_engine *e, int first, int end, mt_err *err);
mt_rc mt__step_embed_backward(mt_engine *e, int slot, mt_err *err);
mt_rc mt__step_read_sums(mt_engine *e, mt_err *err);
/* Loss, and with `all` the norm, are known: may the step be applied? */
mt_rc mt__step_judge(mt_engine *e, bool all, bool *go, mt_err *err);
/* One pass forward over cached sequences.  Logits of the rows that have a target, in order, are in MT_BUF_LOGITS_HOST when it
 * returns; there may be one per cache slot. */
mt_rc mt__step_continue(mt_engine *e, const mt_batch *b, const continued *at, mt_err *err);

/* -- port.c -- */
mt_rc mt__port_create(mt_engine *e, mt_err *err);
void mt__port_free(mt_engine *e); /* after the streams: their queues hold its events */

static inline bool mt__is_f32(const mt_engine *e) { return e->plan->arithmetic.compute == MT_DTYPE_F32; }
static inline const mt_unit_place *mt__place(const mt_engine *e, int u) { return &e->plan->place.units[u]; }
static inline const mt_layout *mt__layout(const mt_engine *e, int u) { return e->model->units[u].layout; }

#endif
