/* lane.h - one device at work on a plan: streams, weights passing through the ring, kept activations, gradient sums, staging
 * slots.  A lane has no state of the training: that is the machine's (state.h), which lanes share.
 *
 *     create   finds its memory, opens its streams; follows the plan by the sequencer (plan/sequence.h)
 *     run      a step, or a pass that only looks.  Returns when all is queued and, in training, the verdict is known
 *     settle   waits for everything queued
 *     free     after mt_state_stop()
 *
 * Lane l of n computes shares l, l + n, ... of a training or evaluating pass, and hands their gradients to the state
 * (mt_state_push_part).  The first lane alone makes every other pass, and pushes host updates.
 *
 * One thread at a time calls a lane.  Errors of run() and settle() are for the whole run: the caller puts them into the watch. */
#ifndef MT_ENGINE_LANE_H
#define MT_ENGINE_LANE_H

#include "data/batch.h"
#include "engine/state.h"
#include "plan/sequence.h"

typedef struct mt_lane mt_lane;

/* Where the documents of a pass continue. */
typedef struct mt_continued {
    const int32_t *past; /* [n_docs] rows that are cached already */
    const int32_t *slot; /* [n_docs] cache slot */
} mt_continued;

/* What a lane has summed in a pass. */
typedef struct mt_lane_sums {
    int64_t n_bad;               /* weights that left the finite range in updates on the device, in all */
    const mt_loss_sum *losses;   /* [bundles * shares] of each share of the step; zero: it has no documents */
    const double *router_losses; /* [bundles * shares] the load-balancing loss, without its coefficient */
    const double *norms;         /* [n_units] sums of squares of finished gradients */
    const int32_t *loads;        /* [L, E] the rows of each expert */
} mt_lane_sums;

typedef struct mt_lane_pass {
    mt_mode mode;
    const mt_batch *batch;
    const mt_continued *at; /* MT_MODE_CONTINUE: where its documents continue */
    float *logits;          /* MT_MODE_LOGITS: of every row, [n_tokens, V] */
    bool updates_early;     /* MT_MODE_TRAIN: gradients are applied as they come, before the norm of all of them is known */
    /* MT_MODE_TRAIN and MT_MODE_EVALUATE, as mt_port has it: sums are there.  all: the norm is among them, and *go says whether
     * to update. */
    mt_rc (*judge)(void *self, const mt_lane_sums *sums, bool all, bool *go, mt_err *err);
    void *self;
} mt_lane_pass;

/* How long the newest pass has waited so far, for host updates and for snapshot locks. */
typedef struct mt_lane_waits {
    int64_t update_ns, save_ns;
} mt_lane_waits;

/* index: which one of the plan's lanes.  All but out and err are borrowed. */
mt_rc mt_lane_create(mt_lane **out, mt_device *dev, const mt_plan *plan, const mt_memory *memory, mt_state *state, int index,
                     mt_err *err);
/* What messages call its device, borrowed. */
void mt_lane_set_name(mt_lane *l, const char *name);
/* Its sums meet those of other lanes on the devices. */
void mt_lane_set_peers(mt_lane *l, mt_peers *peers);
void mt_lane_free(mt_lane *l);                   /* accepts NULL */
void mt_lane_trace(mt_lane *l, mt_trace *trace); /* NULL: no more */

/* Refuses a batch that the plan has no room for: nothing was queued, so the caller may try another. */
mt_rc mt_lane_check(const mt_lane *l, const mt_batch *b, mt_err *err);
mt_rc mt_lane_run(mt_lane *l, const mt_lane_pass *pass, mt_err *err);
mt_lane_waits mt_lane_waited(const mt_lane *l);
/* After MT_MODE_CONTINUE: logits of the rows that have a target, in order; there may be one per cache slot. */
const float *mt_lane_logits(const mt_lane *l);

/* Experts whose weights were copied to the device for passes of MT_MODE_CONTINUE, so far; not of units that stay there. */
int64_t mt_lane_experts_fetched(const mt_lane *l);

/* Issues every write-back that is still due. */
mt_rc mt_lane_write_back(mt_lane *l, mt_err *err);
/* Waits until nothing that it queued is in flight, write-backs included; then its updates are known to be finite. */
mt_rc mt_lane_settle(mt_lane *l, mt_err *err);
/* The unit's state at home was changed from outside: copies of it on the device are old. */
void mt_lane_forget(mt_lane *l, int unit);
/* Of a settled lane, after gradients under a plan that clips: a unit's finished gradient. */
mt_rc mt_lane_read_grad(mt_lane *l, int unit, float *dst, mt_err *err);

#endif
