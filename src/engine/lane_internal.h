/* lane_internal.h - what the files of a lane share.
 *
 *     lane     streams, one pass               port     the sequencer's actions, events and queries
 *     ring     weights on the device           keeps    kept activations
 *     grads    sums, finished gradients        updates  updates on the device, staging
 *     visit    forward, backward               input    a pass's tokens
 *     pieces   updates of pieces of units
 *
 * The sequencer decides what is issued when (schedule/sequence.h); the parts here only know where things are. */
#ifndef MT_ENGINE_LANE_INTERNAL_H
#define MT_ENGINE_LANE_INTERNAL_H

#include "base/clock.h"
#include "base/mem.h"
#include "engine/lane.h"
#include "schedule/deal.h"
#include "schedule/slices.h"

typedef struct ring_slot {
    void *p;             /* weights in the compute dtype */
    uint16_t *halves_hi; /* fp32 only: hi and lo land here and are joined into p */
    int16_t *halves_lo;
    float *exact;       /* bf16 only: the unit's exact numbers; NULL: it has none */
    uint16_t *exact_hi; /* their halves on the way there from the host */
    int16_t *exact_lo;
} ring_slot;

/* A unit's gradient. */
typedef struct lane_unit {
    void *parked;       /* finished, host, or NULL */
    void *grad_dev;     /* finished, device, or NULL */
    float *acc_host[2]; /* host sums: the unit's own, and the lookup's if tied */
} lane_unit;

typedef struct lane_layer {
    int carving;     /* index into the lane's layouts of kept blocks */
    void *cache;     /* for generation, or NULL */
    char *kept;      /* device block, or NULL */
    char *kept_host; /* host block, or NULL */
} lane_layer;

/* A pass's tokens, cut into micro-batches. */
typedef struct lane_input {
    mt_deal deal;
    mt_cut *cuts;        /* rows count from the first one of the first share */
    int *share;          /* of each micro-batch */
    mt_micro *micros;    /* pointers into the device copy */
    mt_cut_pass *passes; /* micro-batches that pass experts together */
    int64_t n_cuts, n_passes;
    int64_t *sweep_end; /* [n_sweeps] the pass after the last of each */
    bool *ends_part;    /* [n_sweeps] with several lanes: whether a share ends there */
    int64_t n_sweeps;
    int32_t *sort_a, *sort_b;
    mt_event *read; /* event: the host's copy may be overwritten */
} lane_input;

/* Loss and norms. */
typedef struct lane_sums {
    int64_t *n_bad;        /* device, like the next four, which follow it */
    mt_loss_sum *losses;   /* one a share */
    double *router_losses; /* one a share */
    double *norms;         /* one a unit */
    int32_t *loads;        /* [L, E] rows of each expert counted so far */
    size_t bytes;          /* bytes of all of these */
    int64_t *host;         /* a copy of them, once `ready` */
    mt_lane_sums copied;   /* layout of that copy */
    double *landed_norms;  /* host, one per unit: arrives with the gradient if updates are early, and the updater checks it */
    mt_event *ready;
} lane_sums;

/* Router results of each micro-batch, for the load-balancing loss: [micros, E] each; NULL: no such loss. */
typedef struct lane_router {
    int32_t *counts;
    float *probs;
    mt_routed over;
} lane_router;

/* Generation: the experts that the rows of a pass have chosen in the newest layer. */
typedef struct lane_chosen {
    int32_t *routes;   /* [rows of a pass, T]; NULL: the plan has no cache, or there are no experts */
    bool *experts;     /* [E] */
    int64_t n_fetched; /* experts whose weights were copied so far */
} lane_chosen;

/* A wait for a host update: compute has done all that was queued, and gets more. */
typedef struct lane_wait {
    mt_event *dry, *resumed;
} lane_wait;

enum { LANE_STREAMS = 7, PIECE_STREAMS = 3 }; /* the last few exist only if units are updated in pieces */

struct mt_lane {
    mt_device *dev;
    int index;        /* of the plan's lanes */
    const char *name; /* of its device, in messages */
    const mt_model *model;
    const mt_plan *plan;
    const mt_memory *memory;
    mt_state *state;
    mt_peers *peers; /* if several lanes add their sums on the devices; otherwise NULL; borrowed */
    const mt_ops *ops;
    mt_stream *compute, *copy_in, *copy_out;
    mt_stream *write_back; /* write-backs of staged state: not on copy_out, where gradients would wait for gigabytes of it */
    mt_stream *piece_in, *piece, *piece_back;
    mt_event *settled[LANE_STREAMS];
    mt_trace *trace; /* NULL: not tracing */
    mt_run run;
    mt_sequence *sequence;
    mt_event **events; /* the sequencer's, by number */
    int n_events;
    mt_event *before_update; /* what the next host update waits for */
    lane_unit *units;
    lane_layer *layers;
    ring_slot *ring;                 /* by the sequencer's numbers, like the next four */
    void **keeps, **sums, **outs;    /* kept activations, gradient sums, finished gradients, on their way */
    bool *fresh;                     /* of sums: cleared but for what the next backward writes */
    void **stages;                   /* NULL where the unit reuses memory */
    void **pieces;                   /* slots of updates in pieces */
    mt_event *landed[MT_LAND_SLOTS]; /* several lanes: a share's sum is in the landing slot */
    int64_t n_parts, n_turns;        /* that were handed on; those of layers */
    int64_t landing[MT_LAND_SLOTS];  /* the part that was handed on from each slot last, from 1 */
    mt_carving *carvings;            /* [kind][level] of kept blocks */
    mt_carving *work_carvings;       /* [kind][own, shared] of workspace */
    char **layer_work;               /* [longest_segment] a layer's own workspace */
    char *shared_work;               /* what all layers share */
    void *x_pass[2];                 /* inputs that are not kept */
    mt_lane_pass pass;               /* the one at hand */
    lane_input input;
    lane_sums total;
    lane_router router;
    lane_chosen chosen;
    struct {
        int64_t first, end, rows;     /* micro-batches [first, end), and how many rows they have */
        int64_t first_pass, end_pass; /* the same, as they pass experts */
    } sweep;
    float dscale;
    float *logits; /* where those of the next rows go */
    mt_lane_waits waits;
    lane_wait *update_waits; /* [n_units] those of the pass at hand */
    int n_update_waits;
};

/* -- lane.c -- */
/* To or from the device and wait, through our own memory: a failed stream must never hold a caller's. */
mt_rc mt__lane_bounce(mt_lane *lane, char *device, char *host, size_t bytes, mt_copy_dir dir, mt_err *err);
/* The sums that were read last are there; weights that left the finite range are an error. */
mt_rc mt__lane_await_sums(mt_lane *lane, mt_err *err);

/* -- port.c -- */
mt_rc mt__port_create(mt_lane *lane, mt_err *err);
void mt__port_free(mt_lane *lane); /* after the streams: their queues hold its events */

/* -- ring.c -- */
mt_rc mt__ring_create(mt_lane *lane, mt_err *err);
mt_rc mt__ring_fetch(mt_lane *lane, int u, int slot, mt_err *err);
/* The weights that the sequencer lends. */
mt_weights mt__ring_weights(const mt_lane *lane, int u);
/* Weights were just updated in place, with low halves at `lo`: what the device has of exact numbers follows. */
mt_rc mt__ring_rejoin(mt_lane *lane, int u, const int16_t *lo, mt_err *err);

/* -- keeps.c -- */
mt_rc mt__keeps_create(mt_lane *lane, mt_err *err);
void mt__keeps_free(mt_lane *lane);
/* Where layer's input goes (layer L: the head's input); row is the first row in the sweep. */
void *mt__keeps_x(mt_lane *lane, int layer, bool train, int64_t row);
/* Activations of a layer for a micro-batch or a pass at `row`; set: which workspace takes what is not kept. */
mt_acts mt__keeps_acts(mt_lane *lane, int layer, bool train, int set, int64_t row);
/* The sweep's rows of a layer's kept activations, to the host or back. */
mt_rc mt__keeps_copy(mt_lane *lane, int layer, mt_copy_dir dir, mt_err *err);

/* -- grads.c -- */
mt_rc mt__grads_create(mt_lane *lane, mt_err *err);
/* Sums that begin: cleared but for what backward writes.  take: the sums of unit u, for the first micro-batch of a visit. */
mt_rc mt__grads_clear(mt_lane *lane, const mt_action *a, mt_err *err);
mt_grads mt__grads_take(mt_lane *lane, int u, float *sums);
/* Sums to host memory between sweeps, or back. */
mt_rc mt__grads_copy(mt_lane *lane, const mt_action *a, mt_copy_dir dir, mt_err *err);
mt_rc mt__grads_round(mt_lane *lane, const mt_action *a, mt_err *err);
mt_rc mt__grads_norm(mt_lane *lane, const mt_action *a, mt_err *err);
mt_rc mt__grads_send(mt_lane *lane, const mt_action *a, mt_err *err);
/* Sums over a share to a landing slot, and on to the state. */
mt_rc mt__grads_part(mt_lane *lane, const mt_action *a, mt_err *err);
/* Where a finished gradient waits on the host: a slab, or (-1) the unit's. */
void *mt__grads_host(const mt_lane *lane, int u, int slab);

/* -- updates.c -- */
mt_rc mt__updates_create(mt_lane *lane, mt_err *err); /* after keeps and grads, whose memory units reuse */
mt_rc mt__updates_on_host(mt_lane *lane, const mt_action *a, mt_err *err);
mt_rc mt__updates_on_device(mt_lane *lane, int u, bool in_place, mt_err *err);
mt_rc mt__updates_stage(mt_lane *lane, const mt_action *a, mt_err *err);
mt_rc mt__updates_staged(mt_lane *lane, const mt_action *a, mt_err *err);
mt_rc mt__updates_write_back(mt_lane *lane, const mt_action *a, mt_err *err);

/* -- pieces.c -- */
/* A piece of a unit, in its slot. */
mt_rc mt__pieces_in(mt_lane *lane, const mt_action *a, mt_err *err);
mt_rc mt__pieces_update(mt_lane *lane, const mt_action *a, mt_err *err);
mt_rc mt__pieces_back(mt_lane *lane, const mt_action *a, mt_err *err);

/* -- input.c -- */
mt_rc mt__input_create(mt_lane *lane, mt_err *err);
void mt__input_free(mt_lane *lane);
mt_rc mt__input_load(mt_lane *lane, mt_err *err);

/* -- visit.c: the compute of a visit, for all micro-batches of the sweep -- */
mt_rc mt__visit_embed(mt_lane *lane, mt_err *err);
mt_rc mt__visit_forward(mt_lane *lane, int layer, mt_err *err);
mt_rc mt__visit_routes(mt_lane *lane, int layer, mt_err *err);
mt_rc mt__visit_experts(mt_lane *lane, int unit, mt_err *err);
mt_rc mt__visit_close(mt_lane *lane, int layer, mt_err *err);
mt_rc mt__visit_head(mt_lane *lane, mt_err *err);
mt_rc mt__visit_reopen(mt_lane *lane, int layer, mt_err *err);
mt_rc mt__visit_experts_backward(mt_lane *lane, int unit, mt_err *err);
mt_rc mt__visit_backward(mt_lane *lane, int first, int end, mt_err *err);
mt_rc mt__visit_embed_backward(mt_lane *lane, int slot, mt_err *err);

static inline const mt_unit_place *mt__place(const mt_lane *lane, int u) { return &lane->plan->place.units[u]; }
static inline const mt_layout *mt__layout(const mt_lane *lane, int u) { return lane->model->units[u].layout; }

#endif
