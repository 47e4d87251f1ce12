/* lane.h - one device at work on a plan: streams, weights passing through the ring, kept activations, gradient sums, staging
 * slots.  A lane owns no training state: that belongs to the machine (state.h), and lanes share it.
 *
 *     create   finds its memory, opens its streams, and follows the plan through the sequencer (schedule/sequence.h)
 *     run      a training step, or a forward-only pass.  Returns when all work is queued and the verdict is known
 *     settle   waits for everything queued
 *     free     after mt_state_stop()
 *
 * Lane l of n computes shares l, l + n, ... of a training or evaluating pass, and passes their gradients to the state
 * (mt_state_push_part).  Only the first lane runs other passes and pushes host updates.
 *
 * One thread at a time calls a lane.  Errors of run() and settle() end the whole run: the caller puts them into the watch. */
#ifndef MT_ENGINE_LANE_H
#define MT_ENGINE_LANE_H

#include "data/batch.h"
#include "engine/state.h"
#include "schedule/sequence.h"

typedef struct mt_lane mt_lane;

/* Where the documents of a pass continue. */
typedef struct mt_continued {
    const int32_t *past; /* [n_docs] rows already in the cache */
    const int32_t *slot; /* [n_docs] cache slot */
} mt_continued;

/* The sums of a lane in a pass. */
typedef struct mt_lane_sums {
    int64_t n_bad;               /* total number of weights that became non-finite in device updates */
    const mt_loss_sum *losses;   /* [bundles * shares] loss of each share; zero for one without documents */
    const double *router_losses; /* [bundles * shares] the load-balancing loss, without its coefficient */
    const double *norms;         /* [n_units] sums of squares of finished gradients */
    const int32_t *loads;        /* [L, E] the rows of each expert */
} mt_lane_sums;

typedef struct mt_lane_pass {
    mt_mode mode;
    const mt_batch *batch;
    const mt_continued *at; /* MT_MODE_CONTINUE: where its documents continue */
    float *logits;          /* MT_MODE_LOGITS: of every row, [n_tokens, V] */
    bool updates_early;     /* MT_MODE_TRAIN: apply gradients as they finish, before the global norm is known */
    /* MT_MODE_TRAIN and MT_MODE_EVALUATE, as in mt_port: sums are ready. all: they include the norm, and *go is set to whether to
     * update. */
    mt_rc (*judge)(void *self, const mt_lane_sums *sums, bool all, bool *go, mt_err *err);
    void *self;
} mt_lane_pass;

/* How long compute of the newest pass has waited for host updates, once its sums are ready, and the lane for snapshot locks so far. */
typedef struct mt_lane_waits {
    int64_t update_ns, save_ns;
} mt_lane_waits;

/* index: the lane's number in the plan.  All arguments except out and err are borrowed. */
mt_rc mt_lane_create(mt_lane **out, mt_device *dev, const mt_plan *plan, const mt_memory *memory, mt_state *state, int index,
                     mt_err *err);
/* Sets the name of its device in messages; borrowed. */
void mt_lane_set_name(mt_lane *l, const char *name);
/* Lanes add their sums on the devices. */
void mt_lane_set_peers(mt_lane *l, mt_peers *peers);
void mt_lane_free(mt_lane *l);                   /* accepts NULL */
void mt_lane_trace(mt_lane *l, mt_trace *trace); /* NULL: stop tracing */

/* Fails if the batch does not fit the plan; nothing was queued then, so the caller may try another. */
mt_rc mt_lane_check(const mt_lane *l, const mt_batch *b, mt_err *err);
/* What the sum of the losses of a batch's rows is divided by: their weights in training, if the plan has that column; otherwise
 * their number. */
double mt_lane_weight(const mt_plan *plan, const mt_batch *b, bool train);
mt_rc mt_lane_run(mt_lane *l, const mt_lane_pass *pass, mt_err *err);
mt_lane_waits mt_lane_waited(const mt_lane *l);
/* After MT_MODE_CONTINUE: logits of the rows that have a target, in order; at most one per cache slot. */
const float *mt_lane_logits(const mt_lane *l);

/* Number of expert copies to the device for passes of MT_MODE_CONTINUE so far; resident units are not counted. */
int64_t mt_lane_experts_fetched(const mt_lane *l);

/* Issues every write-back that is still due. */
mt_rc mt_lane_write_back(mt_lane *l, mt_err *err);
/* Waits for everything it has queued, write-backs included, and then checks that its updates were finite. */
mt_rc mt_lane_settle(mt_lane *l, mt_err *err);
/* The unit's state at home was changed from outside: device copies of it are out of date. */
void mt_lane_forget(mt_lane *l, int unit);
/* Reads a unit's finished gradient.  The lane must be settled, after gradients under a plan that clips. */
mt_rc mt_lane_read_grad(mt_lane *l, int unit, float *dst, mt_err *err);

#endif
