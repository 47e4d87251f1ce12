/* updater.c - the thread that updates on the host, and folds the gradients of several lanes there (fold.c).
 *
 * Jobs run in order (U1).  A job waits for its unit's gradient to land, then for the saver to unlock the unit, and is split over
 * the cores.  Then the unit's gate is raised; the next fetch of the unit waits for it. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/rng.h"
#include "base/thread.h"
#include "device/trace.h"
#include "engine/state_internal.h"
#include "schedule/slices.h"

#include <math.h>

enum { PIECE = 1 << 16 }; /* elements a worker takes at a time: whole blocks of moments */

/* -- a job ----------------------------------------------------------------------------------------- */

typedef struct host_update {
    const mt_optimizer *optimizer;
    mt_update op;
    int64_t n;    /* elements, from the first on */
    size_t n_bad; /* atomically added to */
} host_update;

static void update_piece(void *arg, int64_t piece)
{
    host_update *h = arg;
    size_t bad = h->optimizer->on_host(&h->op, piece * PIECE, mt_min_i64((piece + 1) * PIECE, h->n));
    if (bad) __atomic_add_fetch(&h->n_bad, bad, __ATOMIC_RELAXED);
}

/* Addresses of this machine's slice of the state; with one machine this is the whole unit. */
static void find_slice(const mt_state *s, const update_job *job, mt_update *op)
{
    mt_home h = s->units[job->at.unit].home;
    const int64_t first = mt_plan_own_slice(s->plan, job->at.unit).first;
    h.hi += first;
    if (mt_plan_low_is_whole(s->plan, job->at.unit)) h.lo += first;
    mt_home_address(op, &h, job->at.g);
}

static mt_rc run_job(mt_state *s, const update_job *job, mt_err *err)
{
    char name[MT_NAME_BYTES];
    const state_unit *u = &s->units[job->at.unit];
    host_update h = { .optimizer = mt_state_optimizer(s), .op = job->op, .n = mt_min_i64(job->at.n, job->op.n) };
    if (h.n) find_slice(s, job, &h.op);
    mt_unit_name(s->model, job->at.unit, name);
    if (job->at.landed) MT_TRY(mt_sync(job->at.landed, err));
    if (mt_fault(MT_FAULT_QUEUE)) return mt_fail(err, MT_EDEVICE, "the updater failed (injected fault)");
    if (job->at.norm && !isfinite(*job->at.norm))
        return mt_fail(
            err, MT_ENUMERIC,
            "the gradient of the %s is not finite; nothing of it was applied.  Resume from the last checkpoint with a lower "
            "learning rate, or set max_grad_norm, which skips such steps",
            name);
    if (s->exchange) MT_TRY(mt_watch_reach(s->watch, &u->updated, job->at.version - 1, err)); /* its weights have been sent */
    MT_TRY(mt_watch_reach(s->watch, &u->unlocked, job->locks, err));                          /* H1 */
    if (mt_plan_is_sliced(s->plan, job->at.unit))
        return mt_peers_update(s->folder.peers, job->at.unit, mt_state_optimizer(s), &job->op, err);
    int64_t start = mt_now_ns();
    mt_pool_for(s->updater.pool, (h.n + PIECE - 1) / PIECE, update_piece, &h);
    if (s->trace) mt_trace_host(s->trace, "updater", name, start, mt_now_ns());
    if (!h.n_bad)
        return mt_plan_is_mirrored(s->plan, job->at.unit) ? mt_peers_refresh(s->folder.peers, job->at.unit, &u->home, err)
                                                          : MT_OK;
    return mt_fail(err, MT_ENUMERIC,
                   "%zu weights of the %s became non-finite in this update.  Resume from the last checkpoint with a lower "
                   "learning rate",
                   h.n_bad, name);
}

/* -- the thread ------------------------------------------------------------------------------------ */

typedef enum next_work { WORK_NONE, WORK_UPDATE, WORK_EXCHANGE, WORK_FOLD } next_work;

/* The next update, or work that the exchange waits for, or, if there is none, sums to add; nothing when the engine is closing or
 * has failed. */
static next_work next_job(mt_state *s, update_job *job, exchange_work *of_exchange)
{
    updater *up = &s->updater;
    mt_watch *w = s->watch;
    next_work what = WORK_NONE;
    pthread_mutex_lock(&w->lock);
    while (up->done == up->pushed && !mt__exchange_ready(s) && !mt__folds_ready(s) && !w->closing && !w->failed)
        pthread_cond_wait(&w->changed, &w->lock);
    *of_exchange = mt__exchange_ready(s);
    if (!w->failed && up->done < up->pushed)
        what = WORK_UPDATE;
    else if (!w->failed && *of_exchange)
        what = WORK_EXCHANGE;
    else if (!w->failed && mt__folds_ready(s))
        what = WORK_FOLD;
    if (what == WORK_UPDATE) *job = up->jobs[up->done % up->cap];
    pthread_mutex_unlock(&w->lock);
    return what;
}

static mt_rc do_update(mt_state *s, const update_job *job, mt_err *err)
{
    MT_TRY(run_job(s, job, err));
    if (s->exchange)
        mt__exchange_weights(s, job->at.unit, job->at.version);
    else
        mt_watch_raise(s->watch, &s->units[job->at.unit].updated, job->at.version);
    return MT_OK;
}

mt_rc mt__updater_apply(mt_state *s, int unit, mt_err *err)
{
    const folder *f = &s->folder;
    const int64_t version = s->units[unit].pushed + 1;
    const update_job job = { .at = { .unit = unit,
                                     .n = mt__state_layout(s, unit)->n_train,
                                     .g = f->units[unit].gradient ? f->units[unit].gradient : f->slab,
                                     .norm = &f->norms[unit],
                                     .version = version },
                             .op = mt_state_update_range(s, unit, mt_plan_own_slice(s->plan, unit)),
                             .locks = s->n_locks };
    s->units[unit].pushed = version;
    return do_update(s, &job, err);
}

static void *updater_main(void *arg)
{
    mt_state *s = arg;
    update_job job;
    mt_err err = { 0 };
    next_work what;
    exchange_work of_exchange;
    if (s->updater.pins) mt_pool_pin(s->updater.pool);
    while ((what = next_job(s, &job, &of_exchange)) != WORK_NONE) {
        mt_rc rc = what == WORK_FOLD       ? mt__folds_run(s, &err)
                   : what == WORK_EXCHANGE ? mt__exchange_run(s, of_exchange, &err)
                                           : do_update(s, &job, &err);
        if (rc) {
            mt_watch_fail(s->watch, &err);
            break;
        }
        if (what == WORK_UPDATE) mt_watch_raise(s->watch, &s->updater.done, s->updater.done + 1);
    }
    return NULL;
}

/* -- the lanes' side ------------------------------------------------------------------------------- */

void mt_state_begin_update(mt_state *s, const mt_hyper *h, double grad_scale)
{
    const mt_optimizer *optimizer = mt_state_optimizer(s);
    mt_update_step step = { .lr = h->lr,
                            .beta1 = h->beta1,
                            .beta2 = h->beta2,
                            .eps = h->eps,
                            .weight_decay = h->weight_decay,
                            .grad_scale = grad_scale,
                            .t = s->t + 1 };
    s->step = (update_step){ .seed = h->seed, .t = step.t, .coef = optimizer->coef(&step) };
    step.weight_decay = 0;
    s->step.coef_no_decay = optimizer->coef(&step);
}

mt_update mt_state_update_of(const mt_state *s, int unit)
{
    enum { STREAM = 0x6d6f6d << 8 }; /* "mom": different from every other use of the seed */
    const mt_layout *l = mt__state_layout(s, unit);
    return (mt_update){ .t = s->plan->arithmetic.grad,
                        .moments = s->plan->arithmetic.moments,
                        .n = l->n_train,
                        .n_decay = l->n_decay,
                        .key = mt_rng_u64(s->step.seed, STREAM + (uint64_t)unit, (uint64_t)s->step.t),
                        .coef = s->step.coef,
                        .coef_no_decay = s->step.coef_no_decay };
}

mt_update mt_state_update_range(const mt_state *s, int unit, mt_stretch of)
{
    const mt_update whole = mt_state_update_of(s, unit);
    return mt_update_part(&whole, of.first, of.n);
}

mt_rc mt_state_push(mt_state *s, const mt_host_update *u, mt_err *err)
{
    updater *up = &s->updater;
    mt_watch *w = s->watch;
    if (mt_fault(MT_FAULT_QUEUE)) return mt_fail(err, MT_EDEVICE, "the updater refused work (injected fault)");
    pthread_mutex_lock(&w->lock);
    while (up->pushed - up->done >= up->cap && !w->failed) pthread_cond_wait(&w->changed, &w->lock);
    bool failed = w->failed;
    if (!failed) {
        up->jobs[up->pushed++ % up->cap] = (update_job){
            .at = *u, .op = mt_state_update_range(s, u->unit, mt_plan_own_slice(s->plan, u->unit)), .locks = s->n_locks
        };
        s->units[u->unit].pushed = u->version;
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return failed ? mt_watch_check(w, err) : MT_OK;
}

bool mt_state_is_updated(mt_state *s, int unit, int64_t version)
{
    return mt_watch_reached(s->watch, &s->units[unit].updated, version);
}

mt_rc mt_state_await_update(mt_state *s, int unit, int64_t version, mt_err *err)
{
    return mt_watch_reach(s->watch, &s->units[unit].updated, version, err);
}

mt_rc mt_state_await_done(mt_state *s, int64_t n, mt_err *err)
{
    MT_TRY(mt_watch_reach(s->watch, &s->updater.done, n < 0 ? s->updater.pushed : n, err));
    if (!s->exchange || n >= 0) return MT_OK;
    pthread_mutex_lock(&s->watch->lock);
    while (mt__exchange_owes(s) && !s->watch->failed) pthread_cond_wait(&s->watch->changed, &s->watch->lock);
    pthread_mutex_unlock(&s->watch->lock);
    return mt_watch_check(s->watch, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

/* True if the device is this processor.  Then streams and products use the cores too, and the system should place all threads. */
static bool computes_on_cores(const mt_state *s) { return s->dev->api->kind == MT_DEVICE_CPU; }

/* Leaves one core to the engine's thread: if it queues late, the device starts late. */
static int usual_workers(const mt_state *s)
{
    int cores = mt_cpu_count();
    return computes_on_cores(s) || cores < 4 ? cores : cores - 1;
}

mt_rc mt__updater_create(mt_state *s, int n_workers, mt_err *err)
{
    updater *up = &s->updater;
    up->cap = s->model->n_units;
    up->jobs = mt_calloc((size_t)up->cap, sizeof *up->jobs);
    if (!up->jobs) return mt_no_memory(err, "the update queue");
    up->pins = n_workers == 0 && !computes_on_cores(s); /* a user who sets the number may have another run beside this one */
    MT_TRY(mt_pool_create(&up->pool, n_workers > 0 ? n_workers : usual_workers(s), err));
    if (!mt_thread_start(&up->thread, updater_main, s))
        return mt_fail(err, MT_ENOMEM, "the system refused a thread for the updater; see ulimit -u");
    up->started = true;
    return MT_OK;
}

void mt__updater_stop(mt_state *s)
{
    if (!s->updater.started) return;
    pthread_mutex_lock(&s->watch->lock);
    s->watch->closing = true;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
    pthread_join(s->updater.thread, NULL);
    s->updater.started = false;
}

void mt__updater_free(mt_state *s)
{
    mt_pool_free(s->updater.pool);
    mt_free(s->updater.jobs);
}
