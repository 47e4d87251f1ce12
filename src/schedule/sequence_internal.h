/* sequence_internal.h - the sequencer's parts.  Only schedule/sequence*.c and their tests include it.
 *
 *     ring     weights on the device           keeps    kept activations
 *     sums     gradient sums, finished ones    updates  update sites, staging slots, write-backs
 *     pieces   updates of pieces of units */
#ifndef MT_SCHEDULE_SEQUENCE_INTERNAL_H
#define MT_SCHEDULE_SEQUENCE_INTERNAL_H

#include "schedule/sequence.h"
#include "schedule/slices.h"

/* Events of a slot, a unit, a layer. */
enum { READY, FREE, SLOT_EVENTS };
enum { STAGE_READY, STAGE_FREE, STAGE_DONE, STAGE_EVENTS };
enum { WRITTEN, KEPT_WRITTEN, DEVICE_UPDATED, LANDED, SUM_SAVED, SUM_SAVED_TIED, UNIT_EVENTS };
enum { KEEP_SAVED, BACKWARD_DONE, LAYER_EVENTS };

typedef struct seq_unit {
    int64_t version;         /* updates issued */
    int first_slot, n_slots; /* the ring slots it may use */
    int slot;                /* the ring slot it was last fetched into; -1: none */
    int next;                /* the visit that uses it next; -1: none does */
    int sum;                 /* the slot of its gradient sums, from the start to the end of its backward */
    int private_stage;       /* its private staging slot; -1: none */
    int staged_in;           /* the staging slot it was last staged in; -1: none */
    int next_reuser[2];      /* in the lists of the two layers whose memory it reuses */
    bool trains, reuses;     /* staged in memory that backward has freed */
} seq_unit;

typedef struct seq_ring_slot {
    int unit;  /* whose weights; -1: none */
    int users; /* visits that use it now */
    int64_t version;
    bool in_part; /* holds only the chosen experts of the unit */
} seq_ring_slot;

typedef struct seq_stage {
    int unit;        /* staged in for it; -1: none */
    int64_t version; /* of a private slot: the version of the state in it; -1: none */
} seq_stage;

typedef struct seq_layer {
    int keep_slot; /* -1: not kept on the host */
    bool stays;    /* stays in its slot from forward to backward, because no later layer uses that slot */
    int reusers;   /* units whose staged state reuses its kept memory: a list of 2 * unit + (which of its lenders); -1: none */
} seq_layer;

/* A group's slots, used in turn. */
typedef struct seq_turn {
    int first, n, turn;
} seq_turn;

typedef struct seq_group {
    int first_ring, n_ring;
    seq_turn sums, outs;
} seq_group;

struct mt_sequence {
    const mt_model *model;
    const mt_plan *plan;
    const mt_port *port;
    void *self;
    seq_unit *units;     /* [n_units] */
    seq_layer *layers;   /* [L] */
    seq_group *groups;   /* [n_groups] */
    seq_ring_slot *ring; /* [n_units], at most one for each */
    seq_stage *stages;   /* [2 * n_units] */
    int *keeps;          /* [L] whose activations a keep slot holds; -1: none */
    int *late;           /* [n_units] units whose write-back only their own next update waits for */
    int *visits;         /* [2 * n_units + 2] units in the order of visits */
    int *following;      /* and the next visit of the same unit */
    int n_ring, n_sums, n_outs, n_keeps, n_stages, n_late;
    int layer_events, ring_events, keep_events, sum_events, out_events, stage_events, piece_events, slab_events,
        n_events; /* the first of each */
    bool bf16, any_reuses, many_sweeps, sums_on_host;

    int n_visits, visit;
    int routed;  /* generation: the layer whose routes the host knows; -1: none */
    int ahead;   /* the next n visits have their weights on the device or on the way */
    int visited; /* event: compute has finished the newest visit */
    int stage_turn;
    int written, written_sums, written_late; /* write-back cursors for reused memory, sums, private slots */
    int64_t slab_jobs;                       /* host updates that have used a slab so far */
    int n_pieces, piece_turn;                /* piece slots, and the next to be filled */
    int pieces_ahead;                        /* filled before the norm is known: the slots before piece_turn */
    int pieces_done;                         /* units whose pieces are issued; n_units: all are */
    int64_t pieces_early, most_early;        /* pieces issued for units not visited yet: their number, and the most allowed */
    int64_t sweep, n_sweeps;
    mt_mode mode;
    bool first_sweep, last_sweep;
    const bool *part_ends;          /* with several lanes: the sweeps after which sums go to the host */
    bool first_of_sum, last_of_sum; /* the sweep is the first or last that adds to the current sums */
    bool wraps;                     /* the ring may fetch across the end of the visits */
    bool at_once;                   /* gradients are applied as they come (clipping is off) */
    int64_t looks;
};

/* -- the port -- */
static inline mt_rc seq_issue(mt_sequence *s, const mt_action *a, mt_err *err) { return s->port->issue(s->self, a, err); }
static inline mt_rc seq_record(mt_sequence *s, mt_queue q, int event, mt_err *err)
{
    return s->port->record(s->self, q, event, err);
}
static inline mt_rc seq_wait(mt_sequence *s, mt_queue q, int event, mt_err *err) { return s->port->wait(s->self, q, event, err); }

/* -- events -- */
static inline int unit_event(int unit, int which) { return unit * UNIT_EVENTS + which; }
static inline int layer_event(const mt_sequence *s, int layer, int which)
{
    return s->layer_events + layer * LAYER_EVENTS + which;
}
static inline int ring_event(const mt_sequence *s, int slot, int which) { return s->ring_events + slot * SLOT_EVENTS + which; }
static inline int keep_event(const mt_sequence *s, int slot, int which) { return s->keep_events + slot * SLOT_EVENTS + which; }
static inline int sum_event(const mt_sequence *s, int slot, int which) { return s->sum_events + slot * SLOT_EVENTS + which; }
static inline int out_event(const mt_sequence *s, int slot, int which) { return s->out_events + slot * SLOT_EVENTS + which; }
static inline int stage_event(const mt_sequence *s, int slot, int which)
{
    /* A unit that reuses memory keeps its m in place of its sums. */
    if (which == STAGE_FREE && slot >= s->n_stages) return sum_event(s, slot - s->n_stages, FREE);
    return s->stage_events + slot * STAGE_EVENTS + which;
}

static inline int piece_event(const mt_sequence *s, int slot, int which) { return s->piece_events + slot * STAGE_EVENTS + which; }
/* The pieces updated from a slab have been copied out of it. */
static inline int slab_event(const mt_sequence *s, int slab) { return s->slab_events + slab; }

static inline const mt_unit_place *seq_place(const mt_sequence *s, int unit) { return &s->plan->place.units[unit]; }
/* The updater's thread updates it, or has each device update its slice. */
static inline bool seq_by_updater(const mt_sequence *s, int unit)
{
    return seq_place(s, unit)->site == MT_SITE_HOST || mt_plan_is_sliced(s->plan, unit);
}

/* -- sequence_ring.c -- */
void mt__seq_ring_open(mt_sequence *s);
/* The order of visits is known: start with the first. */
void mt__seq_ring_begin(mt_sequence *s);
/* Compute issued from now on may use the unit's weights; the unit must be the one of this visit. */
mt_rc mt__seq_ring_acquire(mt_sequence *s, int unit, mt_err *err);
/* Compute issued from now on no longer uses them. */
mt_rc mt__seq_ring_release(mt_sequence *s, int unit, mt_err *err);
/* Start copies for coming visits while slots and updates allow it without waiting. */
mt_rc mt__seq_ring_prefetch(mt_sequence *s, mt_err *err);
/* The layer's routes are known: its experts may be fetched. */
void mt__seq_ring_routed(mt_sequence *s, int layer);
/* The visit is over. */
void mt__seq_ring_next(mt_sequence *s);
/* The ring slot with the unit's newest weights, if an update changes them in place; -1: none. */
int mt__seq_ring_in_place(const mt_sequence *s, int unit);
/* The unit is updated by the compute issued last. */
void mt__seq_ring_updated(mt_sequence *s, int unit);

/* -- sequence_keeps.c -- */
void mt__seq_keeps_open(mt_sequence *s);
/* Compute is about to write the layer's kept memory (layer L has none). */
mt_rc mt__seq_keeps_begin(mt_sequence *s, int layer, mt_err *err);
/* Forward of the layer is issued. */
mt_rc mt__seq_keeps_end(mt_sequence *s, int layer, mt_err *err);
/* Copy back what the layer's backward needs; acquire: before its compute; release: after it. */
mt_rc mt__seq_keeps_fetch(mt_sequence *s, int layer, mt_err *err);
mt_rc mt__seq_keeps_acquire(mt_sequence *s, int layer, mt_err *err);
mt_rc mt__seq_keeps_release(mt_sequence *s, int layer, mt_err *err);

/* -- sequence_sums.c -- */
void mt__seq_sums_open(mt_sequence *s);
/* Take the unit's sums for this sweep; tied: the lookup's sums of a tied embedding. */
mt_rc mt__seq_sums_begin(mt_sequence *s, int unit, bool tied, mt_err *err);
/* The unit's backward in this sweep is over: save its sums for the next sweep, or finish them. */
mt_rc mt__seq_sums_end(mt_sequence *s, int unit, mt_err *err);

/* -- sequence_updates.c -- */
void mt__seq_updates_open(mt_sequence *s);
/* The unit's gradient is finished and clipping is off; slab: for a host update. */
mt_rc mt__seq_updates_now(mt_sequence *s, int unit, int slab, mt_err *err);
/* The last backward of the layer is issued: stage the units that reuse its memory. */
mt_rc mt__seq_updates_stage_reused(mt_sequence *s, int layer, mt_err *err);
/* The unit's sums are rounded, so the rest of its state may overwrite them. */
mt_rc mt__seq_updates_stage_rest(mt_sequence *s, int unit, mt_err *err);
/* Stage as many units as there are slots before the norm is known. */
mt_rc mt__seq_updates_stage_ahead(mt_sequence *s, mt_err *err);
mt_rc mt__seq_updates_all(mt_sequence *s, mt_err *err);
/* The host has updated every unit. */
void mt__seq_updates_elsewhere(mt_sequence *s);
/* The step is skipped: update no unit. */
mt_rc mt__seq_updates_drop(mt_sequence *s, mt_err *err);
/* Write back what updates_all left for later: reused memory of units up to this one, whose weights or lender layers are needed
 * next; sums in the order of backward, up to this unit's. */
mt_rc mt__seq_updates_return(mt_sequence *s, int unit, mt_err *err);
bool mt__seq_updates_may_return(mt_sequence *s, int unit); /* without waiting for a lock */
mt_rc mt__seq_updates_return_sums(mt_sequence *s, int unit, mt_err *err);
mt_rc mt__seq_updates_return_all(mt_sequence *s, mt_err *err);
/* A visit is over: write back enough late units to keep pace with the step. */
mt_rc mt__seq_updates_pace(mt_sequence *s, mt_err *err);

/* -- sequence_pieces.c -- */
void mt__seq_pieces_open(mt_sequence *s);
/* Fill the slots with the first pieces before the norm is known. */
mt_rc mt__seq_pieces_stage_ahead(mt_sequence *s, mt_err *err);
/* The step is skipped: the slots filled ahead are not used. */
mt_rc mt__seq_pieces_drop(mt_sequence *s, mt_err *err);
/* Updates may be issued: all pieces are due, in the order of forward. */
mt_rc mt__seq_pieces_due(mt_sequence *s, mt_err *err);
/* Issue pieces of units up to this one, which is needed next; waits for locks. */
mt_rc mt__seq_pieces_until(mt_sequence *s, int unit, mt_err *err);
/* Pieces of the unit are issued; a visit of it is over. */
bool mt__seq_pieces_issued(const mt_sequence *s, int unit);
mt_rc mt__seq_pieces_leave(mt_sequence *s, int unit, mt_err *err);
/* Make compute wait for the updates of pieces: they count the weights that became non-finite (U8).  With clipping it waits
 * anyway. */
mt_rc mt__seq_pieces_counted(mt_sequence *s, mt_err *err);
/* The unit's gradient is in a slab and clipping is off. */
mt_rc mt__seq_pieces_now(mt_sequence *s, int unit, int slab, mt_err *err);

static inline int seq_next_reuser(const mt_sequence *s, int reuser) { return s->units[reuser / 2].next_reuser[reuser % 2]; }

#endif
