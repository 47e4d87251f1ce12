/* sequence.h - the order of a step, written once.
 *
 * The sequencer owns everything that decides what is issued when: ring slots and what they hold, kept activations, gradient sums,
 * staging slots, write-backs and their pace.  It knows no device, no address and no time.  It talks to a port:
 *
 *     issue         one action of a visit (a unit, all micro-batches of a sweep), on the action's queue
 *     record, wait  events between queues.  Waiting for an event that was never recorded returns at once
 *     the oracle    answers known only at run time: whether an update is finished, a unit is locked for a snapshot, loss and norm are finite
 *
 * The engine's port (engine/port.c) turns actions into copies and kernels on streams; the planner's (step_time.c) into tasks with
 * a duration; a checker's (tests/support/checker.h) proves the rules of docs/invariants.md.  So what the planner times is what
 * the engine runs.
 *
 *     create   for a model; allocates
 *     open     for a plan of that model: resets all state.  Call it again for another plan
 *     run      a training step, or a forward-only pass
 *     free     accepts NULL */
#ifndef MT_SCHEDULE_SEQUENCE_H
#define MT_SCHEDULE_SEQUENCE_H

#include "schedule/plan.h"

/* The queues that actions are issued on; each does its work in order.  BACK: write-backs of staged state, beside OUT.  Updates in
 * pieces have three separate queues, so that neither weights nor activations wait for them: PIECE_IN, PIECE (the update) and
 * PIECE_BACK.  PEER: bytes between devices, which do not use host memory. */
typedef enum mt_queue {
    MT_Q_COMPUTE,
    MT_Q_IN,
    MT_Q_OUT,
    MT_Q_BACK,
    MT_Q_ADAM,
    MT_Q_PIECE_IN,
    MT_Q_PIECE,
    MT_Q_PIECE_BACK,
    MT_Q_PEER,
    MT_QUEUES
} mt_queue;

/* The actions, and the queue of each.  A layer with experts is alone in BACKWARD, after its experts.  UPDATE_HOST of a unit
 * whose state is in slices runs on the devices, from their slices of the gradient. */
#define MT_DO_LIST(X)                                                                                                            \
    X(SWEEP, COMPUTE)            /* sweep `sweep` begins: nothing is queued */                                                   \
    X(FETCH, IN)                 /* weights of `unit` into ring slot `slot`; after ROUTES only those of chosen experts */        \
    X(EMBED, COMPUTE)            /* ids to the first layer's input */                                                            \
    X(FORWARD, COMPUTE)          /* layer `layer`, without its experts if it has any */                                          \
    X(ROUTES, COMPUTE)           /* the experts that layer `layer` has chosen, to the host, which waits for them */              \
    X(EXPERTS, COMPUTE)          /* the experts of `unit`, of layer `layer` */                                                   \
    X(CLOSE, COMPUTE)            /* the experts' sum to the output of layer `layer` */                                           \
    X(HEAD, COMPUTE)             /* loss, in training with its gradients; or logits */                                           \
    X(REOPEN, COMPUTE)           /* recompute the experts' input in layer `layer` */                                             \
    X(EXPERTS_BACKWARD, COMPUTE) /* the experts of `unit`, of layer `layer` */                                                   \
    X(BACKWARD, COMPUTE)         /* layers [layer, end), recomputed from the first one's kept activations */                     \
    X(EMBED_BACKWARD, COMPUTE)                                                                                                   \
    X(KEEP_OUT, OUT)      /* kept activations of `layer` from keep slot `slot` to the host */                                    \
    X(KEEP_IN, IN)        /* and back */                                                                                         \
    X(SUM_CLEAR, COMPUTE) /* gradient sums of `unit` in sum slot `slot` */                                                       \
    X(SUM_IN, IN)         /* share `share` of the sums of `unit` from the host into sum slot `slot` */                           \
    X(SUM_OUT, OUT)                                                                                                              \
    X(PART_OUT, OUT)     /* share `share` of the sums of `unit`, of a part of the step, from sum slot `slot` to the host's */    \
    X(ROUND, COMPUTE)    /* sums in `slot` to the finished gradient: in outgoing slot `to`, or (-1) on the device */             \
    X(NORM, COMPUTE)     /* its sum of squares */                                                                                \
    X(GRADIENT_OUT, OUT) /* from outgoing slot `slot` to host slab `to`, or (-1) to the unit's own gradient buffer */            \
    X(STAGE, IN)         /* `parts` of the state of `unit` into staging slot `slot` */                                           \
    X(UPDATE_HOST, ADAM) /* elements [0, n), from slab `to` or (-1) from the unit's buffer; then `version` */                    \
    X(UPDATE_DEVICE, COMPUTE)                                                                                                    \
    X(UPDATE_STAGED, COMPUTE) /* in staging slot `slot` */                                                                       \
    X(WRITE_BACK, BACK)       /* `parts` of the state of `unit` from staging slot `slot` */                                      \
    X(PIECE_IN, PIECE_IN)     /* state and gradient of elements [first, first + n) into piece slot `slot`; gradient: as above */ \
    X(PIECE_UPDATE, PIECE)    /* in piece slot `slot` */                                                                         \
    X(PIECE_BACK, PIECE_BACK) /* the piece's state from piece slot `slot` */                                                     \
    X(READ_SUMS, COMPUTE)     /* loss and norms to the host */

typedef enum mt_action_kind {
#define MT_DO_ENUM(name, queue) MT_DO_##name,
    MT_DO_LIST(MT_DO_ENUM)
#undef MT_DO_ENUM
        MT_DO_COUNT
} mt_action_kind;

typedef struct mt_action {
    mt_action_kind kind;
    int unit, layer, end;
    int slot, to, share;
    unsigned parts;   /* a set of kinds (optim/state.h) */
    bool in_place;    /* update hi in the unit's resident slot and write it back from there */
    int64_t version;  /* for a host update */
    int64_t first, n; /* elements, for a host update and for a piece */
    int64_t sweep;
} mt_action;

/* Training; loss only; logits of every row; logits of selected rows, with another pass to follow. */
typedef enum mt_mode { MT_MODE_TRAIN, MT_MODE_EVALUATE, MT_MODE_LOGITS, MT_MODE_CONTINUE } mt_mode;

typedef struct mt_port {
    mt_rc (*issue)(void *self, const mt_action *a, mt_err *err);
    mt_rc (*record)(void *self, mt_queue queue, int event, mt_err *err);
    mt_rc (*wait)(void *self, mt_queue queue, int event, mt_err *err);
    /* True if the host update that made this version of the unit is finished; await: wait for it. */
    bool (*updated)(void *self, int unit, int64_t version);
    mt_rc (*await_update)(void *self, int unit, int64_t version, mt_err *err);
    /* True if the unit is locked: its state at home must not change; await: wait until it is unlocked. */
    bool (*locked)(void *self, int unit);
    mt_rc (*await_unlock)(void *self, int unit, mt_err *err);
    /* Returns once `jobs` host updates have finished, counted from the start of the run. */
    mt_rc (*await_jobs)(void *self, int64_t jobs, mt_err *err);
    /* Waits for the sums that were read last. all: they include the norm, and *go is set to whether to update.  Otherwise they
     * hold only the loss, and a non-finite loss is an error. */
    mt_rc (*judge)(void *self, bool all, bool *go, mt_err *err);
} mt_port;

typedef struct mt_sequence mt_sequence;

mt_rc mt_sequence_create(mt_sequence **out, const mt_model *model, mt_err *err);
void mt_sequence_free(mt_sequence *s);
/* plan: settled (mt_plan_create and mt_plan_measure do that).  Plan and port are borrowed until the next open. */
void mt_sequence_open(mt_sequence *s, const mt_plan *plan, const mt_port *port, void *self);

/* Sets the most pieces issued ahead of the current visit; open sets the default.  Use fewer if each stands for several. */
enum { MT_PIECES_EARLY = 64 };
void mt_sequence_limit_pieces(mt_sequence *s, int64_t early);

/* Runs a step or pass of n_sweeps sweeps. */
mt_rc mt_sequence_run(mt_sequence *s, mt_mode mode, int64_t n_sweeps, mt_err *err);
/* For a plan with several lanes, call this before each training pass: after the marked sweeps ([n_sweeps], borrowed for the pass)
 * a part of the step is summed.  Its sums go to the host, which adds the parts, rounds and updates.  The next part's sums start
 * at zero. */
void mt_sequence_parts(mt_sequence *s, const bool *ends);
/* Issues every write-back that is still due.  Call it before reading the state. */
mt_rc mt_sequence_write_back(mt_sequence *s, mt_err *err);
/* The unit's state at home was changed from outside: device copies of it are out of date. */
void mt_sequence_forget(mt_sequence *s, int unit);

/* -- what a port asks -- */

extern const mt_queue mt_action_queue[MT_DO_COUNT];
const char *mt_action_name(mt_action_kind kind);
int mt_sequence_events(const mt_sequence *s);
/* Name of the event, for a trace. */
const char *mt_sequence_event_name(const mt_sequence *s, int event);
/* Events for other waiters than the sequencer's caller: the unit's state is at home; the unit is updated at its home. */
int mt_sequence_written(const mt_sequence *s, int unit);
int mt_sequence_device_updated(const mt_sequence *s, int unit);

mt_mode mt_sequence_mode(const mt_sequence *s);
/* The ring slot with the unit's weights, and the slot of its gradient sums; -1: none. */
int mt_sequence_weights(const mt_sequence *s, int unit);
int mt_sequence_sum(const mt_sequence *s, int unit);
/* Order of slots.  Ring slots: by group, then those of resident units.  Sum slots: one for each unit (used if sums stay on the
 * device), then the lookup's of a tied embedding, then by group.  Staging slots: the plan's, then one for each unit, used by
 * units that reuse memory. */
typedef struct mt_sequence_slots {
    int ring, sums, outs, keeps, stages, pieces;
} mt_sequence_slots;
mt_sequence_slots mt_sequence_count(const mt_sequence *s);
/* First slot of a group, for each kind. */
mt_sequence_slots mt_sequence_group(const mt_sequence *s, int group);
int mt_sequence_resident_slot(const mt_sequence *s, int unit);
int mt_sequence_tied_slot(const mt_sequence *s);
/* The keep slot of a layer whose activations are kept on the host; -1: none. */
int mt_sequence_keep_slot(const mt_sequence *s, int layer);
/* Number of slots, visits and units examined so far, for tests. */
int64_t mt_sequence_looks(const mt_sequence *s);

#endif
