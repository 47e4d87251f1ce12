/* engine.h - executes a plan: weights stream in, gradients stream out, updates run at the plan's update sites.
 *
 *     create    allocates every buffer of the plan, starts the streams and the updater
 *     write     fill in the masters (a loader does)
 *     step      forward, backward, clip, update.  Returns when loss and norm are known; updates may still run and are
 *               waited for unit by unit by whatever needs them next
 *     settle    wait until nothing is in flight; then read() sees the state after the last step
 *
 * With several machines, each has an engine, and all of them must make the same calls: create, step, gradients, evaluate,
 * checksum, tell and free.
 *
 * One thread calls the engine.  With several lanes, the first runs on that thread, and each further lane has its own thread.  The
 * engine keeps the first failure and returns it from every later call; after it the engine can only be freed.  Rules of ring,
 * updates and placements are numbered in docs/invariants.md. */
#ifndef MT_ENGINE_ENGINE_H
#define MT_ENGINE_ENGINE_H

#include "data/batch.h"
#include "engine/state.h"

typedef struct mt_engine mt_engine;

typedef struct mt_engine_options {
    mt_device *const *more; /* [plan's lanes - 1] further devices, borrowed; NULL: none */
    const int *numbers;     /* [plan's lanes] names of the devices in messages, borrowed; NULL: 0, 1, ... */
    mt_comm *comm;          /* with several machines: connects them, borrowed.  Nothing else may use it until free */
    int n_workers; /* threads that update on the host; 0: one per core (one fewer beside a GPU), each bound to its core */
} mt_engine_options;

typedef struct mt_step_result {
    double loss;        /* mean over trained tokens */
    double router_loss; /* the load-balancing loss without its coefficient, if the plan has one; otherwise 0 */
    double grad_norm;   /* before clipping; 0 for evaluation */
    double clip_scale;  /* 1: not clipped */
    int64_t n_tokens, n_trained, n_correct;
    const int32_t *loads;   /* [L, model->routed.E] rows of each expert in a training step, until the next pass; NULL: none */
    bool skipped;           /* loss or norm was not finite: nothing was updated */
    bool empty;             /* no token to train on, so the mean is undefined: nothing was computed or updated */
    int64_t wait_update_ns; /* how long compute had nothing to do because an update of the step before was not done */
    int64_t wait_lanes_ns;  /* several lanes: seconds the first waited for the others, and for the sum of all gradients */
    const double
        *lane_seconds;    /* [plan's lanes] seconds each lane took for its shares, valid until the next pass; NULL: one lane */
    int64_t wait_save_ns; /* seconds its device updates waited for a checkpoint to copy their units' state */
} mt_step_result;

mt_rc mt_engine_create(mt_engine **out, mt_device *dev, const mt_plan *plan, const mt_engine_options *options, mt_err *err);
void mt_engine_free(mt_engine *e); /* accepts NULL and broken engines */

/* Numbers of a unit's state, at its home: uint16 hi, int16 lo, m and v as mt_moments_type says.  Reading waits for updates in
 * flight.  Several threads may write at once if no other call is in progress; 8-bit moments of a unit only one at a time, because
 * numbers share blocks. */
mt_rc mt_engine_write(mt_engine *e, mt_state_range r, const void *src, mt_err *err);
mt_rc mt_engine_read(mt_engine *e, mt_state_range r, void *dst, mt_err *err);
/* True if this machine stores some of the range. */
bool mt_engine_stores(const mt_engine *e, mt_state_range r);
/* Calls fn after each write from now on, on the writing thread; NULL: no more calls. */
void mt_engine_watch_writes(mt_engine *e, void (*fn)(void *user, size_t bytes), void *user);

mt_rc mt_engine_step(mt_engine *e, const mt_batch *batch, const mt_hyper *hyper, mt_step_result *out, mt_err *err);
/* Forward and backward only; mt_engine_read_grad then gives a unit's finished gradient (n_train numbers as fp32).  Needs a plan
 * that clips; without clipping, gradients do not outlive the updates. */
mt_rc mt_engine_gradients(mt_engine *e, const mt_batch *batch, mt_step_result *out, mt_err *err);
mt_rc mt_engine_read_grad(mt_engine *e, int unit, float *dst, mt_err *err);
/* Loss and accuracy; changes nothing. */
mt_rc mt_engine_evaluate(mt_engine *e, const mt_batch *batch, mt_step_result *out, mt_err *err);
/* Logits of every row, [n_tokens, V] fp32. */
mt_rc mt_engine_logits(mt_engine *e, const mt_batch *batch, float *out, mt_err *err);

mt_rc mt_engine_settle(mt_engine *e, mt_err *err);

/* Records a trace of the next steps; NULL: stop.  The trace must outlive the recording. */
void mt_engine_trace(mt_engine *e, mt_trace *trace);

/* Locks the state after the updates so far, for a thread that saves it while the engine continues (state.h: snapshot locks).  The
 * engine may step and evaluate meanwhile; its next update of a locked unit waits. */
mt_rc mt_engine_lock(mt_engine *e, mt_err *err);
/* The state that the engine trains.  Borrowed. */
mt_state *mt_engine_state(mt_engine *e);

/* Exchanges a record of n bytes per machine, in order of machines.  All machines must call it, between passes.  n: at most
 * MT_ENGINE_RECORD. */
enum { MT_ENGINE_RECORD = 256 };
mt_rc mt_engine_tell(mt_engine *e, const void *mine, size_t n, void *all, const char *what, mt_err *err);

/* One number for all of hi, lo, m, v: equal states have equal checksums. */
mt_rc mt_engine_checksum(mt_engine *e, uint64_t *out, mt_err *err);

#endif
