/* comm_threads.c - machines as threads of one process: for tests, which see every exchange under the sanitizers.
 *
 * All ranks share a hub with the messages that were started.  A rank that polls looks for one of its receives whose send is there,
 * and copies it itself, outside the lock.  The sender's memory is its own again when that is done. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "comm/wire.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct letter {
    mt_wire_message m;
    int owner;
    bool busy, done; /* being copied; copied */
    size_t got;
    struct letter *next;
} letter;

typedef struct hub {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a copy has ended, a rank has closed */
    int n, n_open, dawdle_us;
    bool failed;
    mt_err error;
    letter *first, *last; /* of all ranks, in the order they were started */
    mt_wire_peer *peers;
    char (*hosts)[MT_COMM_NAME_BYTES];
} hub;

typedef struct thread_wire {
    mt_wire base;
    hub *hub;
    uint64_t dice;
} thread_wire;

static hub *hub_of(mt_wire *w) { return ((thread_wire *)w)->hub; }

static mt_rc threads_start(mt_wire *w, const mt_wire_message *m, mt_err *err)
{
    hub *h = hub_of(w);
    letter *l = mt_calloc(1, sizeof *l);
    if (!l) return mt_no_memory(err, "a message");
    *l = (letter){ .m = *m, .owner = w->rank };
    pthread_mutex_lock(&h->lock);
    if (h->last)
        h->last->next = l;
    else
        h->first = l;
    h->last = l;
    pthread_mutex_unlock(&h->lock);
    return MT_OK;
}

/* With the lock held. */
static void drop(hub *h, letter *l)
{
    letter *prev = NULL;
    for (letter *o = h->first; o != l; o = o->next) prev = o;
    if (prev)
        prev->next = l->next;
    else
        h->first = l->next;
    if (h->last == l) h->last = prev;
    mt_free(l);
}

/* The first matching message that no rank has taken.  With the lock held. */
static letter *first_of(const hub *h, int owner, int peer, int tag, bool sends)
{
    for (letter *l = h->first; l; l = l->next)
        if (l->owner == owner && l->m.peer == peer && l->m.tag == tag && l->m.sends == sends && !l->done && !l->busy) return l;
    return NULL;
}

/* A receive of this rank whose send is there; the first, or with dawdling any.  With the lock held. */
static letter *ready(thread_wire *t, letter **from)
{
    const hub *h = t->hub;
    letter *found = NULL;
    for (letter *l = h->first; l; l = l->next) {
        if (l->owner != t->base.rank || l->m.sends || l->done || l->busy) continue;
        letter *send = first_of(h, l->m.peer, t->base.rank, l->m.tag, true);
        if (!send || first_of(h, t->base.rank, l->m.peer, l->m.tag, false) != l) continue;
        found = l;
        *from = send;
        if (!h->dawdle_us || mt_rng_below(7, (uint64_t)t->base.rank, t->dice++, 2) == 0) break;
    }
    return found;
}

static void dawdle_before_copy(thread_wire *t)
{
    const uint64_t most = (uint64_t)t->hub->dawdle_us;
    if (!most) return;
    const uint64_t roll = mt_rng_u64(most, (uint64_t)t->base.rank, t->dice++);
    if (roll % 4 == 0) nanosleep(&(struct timespec){ .tv_nsec = (long)(roll / 4 % most) * 1000 }, NULL);
}

/* With the lock held, which is released meanwhile. */
static void copy_letter(thread_wire *t, letter *to, letter *from)
{
    hub *h = t->hub;
    to->busy = from->busy = true;
    pthread_mutex_unlock(&h->lock);
    const size_t n = from->m.bytes < to->m.bytes ? from->m.bytes : to->m.bytes;
    dawdle_before_copy(t);
    if (n) memcpy(to->m.data, from->m.data, n);
    pthread_mutex_lock(&h->lock);
    to->got = from->m.bytes > to->m.bytes ? SIZE_MAX : n;
    from->got = from->m.bytes;
    to->busy = from->busy = false;
    to->done = from->done = true;
    pthread_cond_broadcast(&h->changed);
}

static mt_rc threads_poll(mt_wire *w, mt_landed out[MT_WIRE_LANDED], int *n, mt_err *err)
{
    thread_wire *t = (thread_wire *)w;
    hub *h = t->hub;
    (void)err;
    atomic_store(&w->peers[w->rank].heard_ns, mt_now_ns());
    pthread_mutex_lock(&h->lock);
    letter *from, *to = h->failed ? NULL : ready(t, &from);
    if (to) copy_letter(t, to, from);
    for (letter *l = h->first, *next; l && *n < MT_WIRE_LANDED; l = next) {
        next = l->next;
        if (l->owner != w->rank || !l->done) continue;
        out[(*n)++] = (mt_landed){ l->m.mark, l->got };
        drop(h, l);
    }
    pthread_mutex_unlock(&h->lock);
    return MT_OK;
}

static void threads_fail(mt_wire *w, const mt_err *e)
{
    hub *h = hub_of(w);
    pthread_mutex_lock(&h->lock);
    if (!h->failed) {
        h->error = *e;
        mt_note(&h->error, "rank %d (%s)", w->rank, w->hosts[w->rank]);
        h->failed = true;
    }
    pthread_mutex_unlock(&h->lock);
}

static mt_rc threads_failed(mt_wire *w, mt_err *err)
{
    hub *h = hub_of(w);
    pthread_mutex_lock(&h->lock);
    mt_rc rc = h->failed ? h->error.rc : MT_OK;
    if (rc && err) *err = h->error;
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* With the lock held: one that is not being copied; *busy: some are. */
static letter *idle_letter(const hub *h, int owner, bool *busy)
{
    *busy = false;
    for (letter *l = h->first; l; l = l->next) {
        if (l->owner != owner) continue;
        if (!l->busy) return l;
        *busy = true;
    }
    return NULL;
}

static void threads_withdraw(mt_wire *w)
{
    hub *h = hub_of(w);
    pthread_mutex_lock(&h->lock);
    for (bool busy = true; busy;) {
        letter *l = idle_letter(h, w->rank, &busy);
        if (l) {
            drop(h, l);
            busy = true;
        } else if (busy) {
            pthread_cond_wait(&h->changed, &h->lock);
        }
    }
    pthread_mutex_unlock(&h->lock);
}

static void hub_free(hub *h)
{
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    mt_free(h->peers);
    mt_free(h->hosts);
    mt_free(h);
}

/* No rank has to wait here: no process ends before the others. */
static void threads_close(mt_wire *w, bool speaks)
{
    (void)speaks;
    hub *h = hub_of(w);
    threads_withdraw(w);
    pthread_mutex_lock(&h->lock);
    atomic_store(&w->peers[w->rank].ended, true);
    const bool last = --h->n_open == 0;
    pthread_mutex_unlock(&h->lock);
    if (last) hub_free(h);
    mt_free(w);
}

static const mt_wire_api threads_api = {
    .name = "threads",
    .start = threads_start,
    .poll = threads_poll,
    .fail = threads_fail,
    .failed = threads_failed,
    .withdraw = threads_withdraw,
    .close = threads_close,
};

static hub *hub_create(int n, const mt_comm_options *o)
{
    hub *h = mt_calloc(1, sizeof *h);
    if (!h) return NULL;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    h->n = n;
    h->dawdle_us = o ? o->dawdle_us : 0;
    h->peers = mt_calloc((size_t)n, sizeof *h->peers);
    h->hosts = mt_calloc((size_t)n, sizeof *h->hosts);
    if (h->peers && h->hosts) return h;
    hub_free(h);
    return NULL;
}

static mt_rc open_rank(mt_comm **out, hub *h, int rank, const mt_comm_options *o, mt_err *err)
{
    thread_wire *t = mt_calloc(1, sizeof *t);
    if (!t) return mt_no_memory(err, "a rank");
    t->hub = h;
    t->base = (mt_wire){ .api = &threads_api, .rank = rank, .n_ranks = h->n, .n_local = 1, .hosts = h->hosts, .peers = h->peers };
    h->n_open++;
    return mt__comm_over(out, &t->base, o, err);
}

mt_rc mt_comm_threads(mt_comm **out, int n, const mt_comm_options *o, mt_err *err)
{
    hub *h = hub_create(n, o);
    mt_rc rc = h ? MT_OK : mt_no_memory(err, "%d ranks", n);
    if (rc) return rc;
    for (int r = 0; r < n; r++) {
        out[r] = NULL;
        snprintf(h->hosts[r], sizeof h->hosts[r], "machine%d", r);
        atomic_store(&h->peers[r].heard_ns, mt_now_ns());
        atomic_store(&h->peers[r].waits_for, -1);
    }
    h->n_open = 1; /* ours, until all are there */
    for (int r = 0; !rc && r < n; r++) rc = open_rank(&out[r], h, r, o, err);
    for (int r = 0; rc && r < n; r++) {
        mt_comm_close(out[r]);
        out[r] = NULL;
    }
    if (--h->n_open == 0) hub_free(h);
    return rc;
}
