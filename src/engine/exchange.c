/* exchange.c - the thread that speaks to the other machines: it posts parcels, waits for them, and tells all machines of a failure.
 * exchange_units.c hands it what a step exchanges, reads.c what one machine reads of another. */
#include "engine/exchange.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"
#include "engine/engine.h"

#include <assert.h>
#include <string.h>
#include <time.h>

/* -- the thread ------------------------------------------------------------------------------------ */

enum { AT_ONCE = 64 };
static const int64_t LOOK_EVERY_NS = 500000, LISTEN_EVERY_NS = 250000000;

void mt__exchange_post(mt_state *s, const mt_parcel *p)
{
    exchange *x = s->exchange;
    assert(x->queued - x->posted < (int64_t)x->cap); /* most_parcels */
    mt_parcel *to = &x->queue[(size_t)x->queued++ % x->cap];
    *to = *p;
    to->self = s;
    pthread_cond_broadcast(&s->watch->changed);
}

static int64_t under_way(const exchange *x) { return x->posted - x->done; }

/* Waits for parcels to post, with the lock held, but not for long: a failure of another machine only shows by listening, also
 * while nothing is under way. */
static void await_parcels(mt_state *s)
{
    exchange *x = s->exchange;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const int64_t ns = until.tv_nsec + LISTEN_EVERY_NS;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    while (x->queued == x->posted && !x->stopping && !s->watch->failed)
        if (pthread_cond_timedwait(&s->watch->changed, &s->watch->lock, &until)) return;
}

/* Takes some parcels of the queue.  False: the thread ends, because everything has arrived and nothing more will come, or because
 * the run has failed. */
static bool take_parcels(mt_state *s, mt_parcel *out, int *n)
{
    exchange *x = s->exchange;
    pthread_mutex_lock(&s->watch->lock);
    if (!under_way(x)) await_parcels(s);
    for (*n = 0; *n < AT_ONCE && x->posted < x->queued; ++*n) out[*n] = x->queue[(size_t)x->posted++ % x->cap];
    const bool more = !s->watch->failed && !(x->stopping && !under_way(x));
    pthread_mutex_unlock(&s->watch->lock);
    return more;
}

static mt_rc move_parcels(mt_state *s, const mt_parcel *parcels, int n, mt_err *err)
{
    exchange *x = s->exchange;
    const mt_comm_api *api = x->comm->api;
    for (int i = 0; i < n; i++) {
        if (mt_fault(MT_FAULT_QUEUE)) return mt_fail(err, MT_EDEVICE, "posting %s failed (injected fault)", parcels[i].what);
        MT_TRY(api->post(x->comm, &parcels[i], err));
    }
    return api->advance(x->comm, under_way(x) ? mt_now_ns() + LOOK_EVERY_NS : 0, err);
}

/* Tells all machines of a failure, and advances until no parcel touches our memory any more. */
static void tell_failure(mt_state *s)
{
    mt_comm *c = s->exchange->comm;
    mt_err err = { 0 };
    (void)mt_watch_check(s->watch, &err);
    c->api->fail(c, &err);
    for (int i = 0; i < 2000 && !c->api->advance(c, 0, &err); i++) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void *exchange_main(void *arg)
{
    mt_state *s = arg;
    mt_parcel parcels[AT_ONCE];
    mt_err err = { 0 };
    int n;
    while (take_parcels(s, parcels, &n))
        if (move_parcels(s, parcels, n, &err)) mt_watch_fail(s->watch, &err);
    if (mt_watch_check(s->watch, NULL)) tell_failure(s);
    return NULL;
}

/* -- records --------------------------------------------------------------------------------------- */

static void record_moved(void *self, void *mark)
{
    mt_state *s = self;
    (void)mark;
    pthread_mutex_lock(&s->watch->lock);
    s->exchange->done++;
    s->exchange->record.left--;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
}

static void move_record(mt_state *s, size_t n, int peer, bool sends, const char *what)
{
    exchange *x = s->exchange;
    x->record.left++;
    mt__exchange_post(s, &(mt_parcel){ .peer = peer,
                                       .sends = sends,
                                       .tag = TAG_RECORD,
                                       .data = sends ? x->record.mine : x->record.all + (size_t)peer * n,
                                       .bytes = n,
                                       .what = what,
                                       .done = record_moved });
}

mt_rc mt_state_tell(mt_state *s, const void *mine, size_t n, void *all, const char *what, mt_err *err)
{
    exchange *x = s->exchange;
    if (n > x->record.most) return mt_fail(err, MT_EINTERNAL, "a record of %zu bytes; at most %zu", n, x->record.most);
    pthread_mutex_lock(&s->watch->lock);
    memcpy(x->record.mine, mine, n);
    memcpy(x->record.all + (size_t)x->me * n, mine, n);
    for (int k = 1; k < x->machines; k++) {
        move_record(s, n, mt__exchange_peer(x, k), true, what);
        move_record(s, n, mt__exchange_peer(x, k), false, what);
    }
    while (x->record.left && !s->watch->failed) pthread_cond_wait(&s->watch->changed, &s->watch->lock);
    if (!s->watch->failed) memcpy(all, x->record.all, (size_t)x->machines * n);
    pthread_mutex_unlock(&s->watch->lock);
    return mt_watch_check(s->watch, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

/* The most parcels that can be queued at a time: of every unit its norm and weights, of every slot its sums, a record, and reads. */
static size_t most_parcels(const mt_state *s)
{
    const size_t others = (size_t)s->exchange->machines - 1;
    return others * (6 * (size_t)s->model->n_units + 4 * MT_LAND_SLOTS + 2 + 4 * MT_READERS + 4);
}

static mt_rc exchange_allocate(mt_state *s, mt_err *err)
{
    exchange *x = s->exchange;
    const mt_arithmetic *a = &s->plan->arithmetic;
    const size_t n = (size_t)s->model->n_units, parts = (size_t)mt_arithmetic_parts(a);
    x->cap = most_parcels(s);
    x->record.most =
        MT_ENGINE_RECORD + parts * (sizeof(mt_loss_sum) + sizeof(double)) + (size_t)mt_plan_loads(s->plan) * sizeof(int32_t);
    x->queue = mt_calloc(x->cap, sizeof *x->queue);
    x->order = mt_calloc(n, sizeof *x->order);
    x->layer_rank = mt_calloc(n, sizeof *x->layer_rank);
    x->units = mt_calloc(n, sizeof *x->units);
    x->applies = mt_calloc(n, sizeof *x->applies);
    x->record.mine = mt_calloc(1, x->record.most);
    x->record.all = mt_calloc((size_t)x->machines, x->record.most);
    if (x->queue && x->order && x->layer_rank && x->units && x->applies && x->record.mine && x->record.all) return MT_OK;
    return mt_no_memory(err, "the exchange with other machines");
}

static mt_rc open_exchange(mt_state *s, const mt_memory *memory, mt_err *err)
{
    exchange *x = s->exchange;
    MT_TRY(exchange_allocate(s, err));
    MT_TRY(mt__reads_create(s, err));
    mt__exchange_open_units(s, memory);
    if (!mt_thread_start(&x->thread, exchange_main, s))
        return mt_fail(err, MT_ENOMEM, "the system refused a thread for the other machines; see ulimit -u");
    x->started = true;
    return MT_OK;
}

mt_rc mt_state_join(mt_state *s, const mt_memory *memory, mt_comm *comm, mt_err *err)
{
    const int machines = mt_plan_machines(s->plan);
    if (comm->n_ranks != machines || comm->rank != s->plan->job.machine)
        return mt_fail(err, MT_EINVAL, "a plan for machine %d of %d, and this is rank %d of %d", s->plan->job.machine, machines,
                       comm->rank, comm->n_ranks);
    exchange *x = mt_calloc(1, sizeof *x);
    if (!x) return mt_no_memory(err, "the exchange with other machines");
    *x = (exchange){ .comm = comm, .me = comm->rank, .machines = machines };
    pthread_mutex_lock(&s->watch->lock);
    s->exchange = x;
    pthread_mutex_unlock(&s->watch->lock);
    return open_exchange(s, memory, err);
}

void mt__exchange_stop(mt_state *s)
{
    exchange *x = s->exchange;
    if (!x || !x->started) return;
    pthread_mutex_lock(&s->watch->lock);
    x->stopping = true;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
    pthread_join(x->thread, NULL);
    x->started = false;
}

void mt__exchange_free(mt_state *s)
{
    exchange *x = s->exchange;
    if (!x) return;
    mt__reads_free(s);
    mt_free(x->queue);
    mt_free(x->order);
    mt_free(x->layer_rank);
    mt_free(x->units);
    mt_free(x->applies);
    mt_free(x->record.mine);
    mt_free(x->record.all);
    mt_free(x);
}
