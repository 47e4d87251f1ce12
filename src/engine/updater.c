/* updater.c - the thread that updates on the host.
 *
 * Jobs are done in the order they come (U1).  A job waits for its unit's gradient to land, then for the saver to let the unit go,
 * and is split over the cores; then the unit's gate is raised, which whoever fetches the unit next waits for. */
#include "base/fault.h"
#include "engine/internal.h"

#include <math.h>

enum { PIECE = 1 << 16 }; /* elements a worker takes at a time: whole blocks of moments */

/* -- a job ----------------------------------------------------------------------------------------- */

typedef struct host_update {
    mt_adamw op;
    size_t n_bad; /* atomically added to */
} host_update;

static void update_piece(void *arg, int64_t piece)
{
    host_update *h = arg;
    size_t bad = mt_adamw_piece(&h->op, piece * PIECE, mt_min_i64((piece + 1) * PIECE, h->op.n));
    if (bad) __atomic_add_fetch(&h->n_bad, bad, __ATOMIC_RELAXED);
}

static mt_rc run_job(mt_engine *e, const update_job *job, mt_err *err)
{
    char name[MT_NAME_BYTES];
    const unit_state *s = &e->units[job->unit];
    host_update h = { .op = job->op };
    h.op.hi = s->hi, h.op.lo = s->lo, h.op.m = s->m, h.op.v = s->v;
    mt_unit_name(e->model, job->unit, name);
    MT_TRY(mt_sync(job->landed, err));
    if (mt_fault(MT_FAULT_QUEUE)) return mt_fail(err, MT_EDEVICE, "the updater failed (injected fault)");
    if (job->check_norm && !isfinite(e->landed_norms[job->unit]))
        return mt_fail(
            err, MT_ENUMERIC,
            "the gradient of the %s is not finite; nothing of it was applied.  Resume from the last checkpoint with a lower "
            "learning rate, or set max_grad_norm, which skips such steps",
            name);
    MT_TRY(mt_watch_reach(&e->watch, &e->units[job->unit].let_go, job->holds, err)); /* H1 */
    int64_t start = mt_now_ns();
    mt_pool_for(e->updater.pool, (h.op.n + PIECE - 1) / PIECE, update_piece, &h);
    if (e->trace) mt_trace_host(e->trace, "updater", name, start, mt_now_ns());
    if (!h.n_bad) return MT_OK;
    return mt_fail(err, MT_ENUMERIC,
                   "%zu weights of the %s left the finite range in this update.  Resume from the last checkpoint with a lower "
                   "learning rate",
                   h.n_bad, name);
}

/* -- the thread ------------------------------------------------------------------------------------ */

/* The next job, or false when the engine is closing or has failed. */
static bool next_job(mt_engine *e, update_job *job)
{
    updater *up = &e->updater;
    mt_watch *w = &e->watch;
    pthread_mutex_lock(&w->lock);
    while (up->done == up->pushed && !w->closing && !w->failed) pthread_cond_wait(&w->changed, &w->lock);
    bool yes = up->done < up->pushed && !w->failed;
    if (yes) *job = up->jobs[up->done % up->cap];
    pthread_mutex_unlock(&w->lock);
    return yes;
}

static void *updater_main(void *arg)
{
    mt_engine *e = arg;
    update_job job;
    mt_err err = { 0 };
    if (e->updater.pins) mt_pool_pin(e->updater.pool);
    while (next_job(e, &job)) {
        if (run_job(e, &job, &err)) {
            mt_watch_fail(&e->watch, &err);
            break;
        }
        mt_watch_raise(&e->watch, &e->units[job.unit].updated, job.version);
        mt_watch_raise(&e->watch, &e->updater.done, e->updater.done + 1);
    }
    return NULL;
}

/* -- the engine's side ----------------------------------------------------------------------------- */

mt_rc mt__updater_push(mt_engine *e, int u, void *g, int64_t version, mt_err *err)
{
    updater *up = &e->updater;
    MT_TRY(mt_watch_reach(&e->watch, &up->done, up->pushed - up->cap + 1, err));
    if (mt_fault(MT_FAULT_QUEUE)) return mt_fail(err, MT_EDEVICE, "the updater refused work (injected fault)");
    pthread_mutex_lock(&e->watch.lock);
    mt_adamw op = mt__update_of(e, u);
    op.g = g;
    up->jobs[up->pushed % up->cap] = (update_job){
        .unit = u, .landed = up->after, .op = op, .check_norm = e->updating, .version = version, .holds = e->n_holds
    };
    pthread_mutex_unlock(&e->watch.lock);
    mt_watch_raise(&e->watch, &up->pushed, up->pushed + 1);
    return MT_OK;
}

/* -- life ------------------------------------------------------------------------------------------ */

/* Is the device this processor?  Then streams and products want the cores, too, and the system had better place everyone. */
static bool computes_on_cores(const mt_engine *e) { return e->dev->api->kind == MT_DEVICE_CPU; }

/* One core is left to the engine's thread: what it queues late, the device begins late. */
static int usual_workers(const mt_engine *e)
{
    int cores = mt_cpu_count();
    return computes_on_cores(e) || cores < 4 ? cores : cores - 1;
}

mt_rc mt__updater_create(mt_engine *e, int n_workers, mt_err *err)
{
    updater *up = &e->updater;
    up->cap = e->model->n_units;
    up->jobs = mt_calloc((size_t)up->cap, sizeof *up->jobs);
    if (!up->jobs) return mt_no_memory(err, "the update queue");
    up->pins = n_workers == 0 && !computes_on_cores(e); /* whoever says how many may have another run beside this one */
    MT_TRY(mt_pool_create(&up->pool, n_workers > 0 ? n_workers : usual_workers(e), err));
    if (mt_fault(MT_FAULT_THREAD) || pthread_create(&up->thread, NULL, updater_main, e))
        return mt_fail(err, MT_ENOMEM, "the system refused a thread for the updater; see ulimit -u");
    up->started = true;
    return MT_OK;
}

void mt__updater_stop(mt_engine *e)
{
    if (!e->updater.started) return;
    pthread_mutex_lock(&e->watch.lock);
    e->watch.closing = true;
    pthread_cond_broadcast(&e->watch.changed);
    pthread_mutex_unlock(&e->watch.lock);
    pthread_join(e->updater.thread, NULL);
    e->updater.started = false;
}

void mt__updater_free(mt_engine *e)
{
    mt_pool_free(e->updater.pool);
    mt_free(e->updater.jobs);
}
