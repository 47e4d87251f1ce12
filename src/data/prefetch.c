#include "data/prefetch.h"
#include "base/thread.h"

#include "base/watch.h"

#include <pthread.h>

enum { NOTHING = -1 };

typedef struct prefetch {
    mt_source base;
    mt_source *inner;
    pthread_mutex_t inner_lock; /* held by the thread that is inside the inner source */
    mt_watch watch;             /* guards what follows */
    int64_t wanted;             /* the step to prepare next, or NOTHING */
    int64_t busy_with;          /* the step being prepared, or NOTHING */
    int64_t ready;              /* the step in `batch`, or NOTHING */
    mt_batch batch;
    mt_err error; /* rc != 0: step `ready` failed with it */
    pthread_t thread;
} prefetch;

static prefetch *of(mt_source *s) { return (prefetch *)s; }

static void *prefetch_prepare(void *arg)
{
    prefetch *p = arg;
    pthread_mutex_lock(&p->watch.lock);
    while (!p->watch.closing) {
        if (p->wanted == NOTHING) {
            pthread_cond_wait(&p->watch.changed, &p->watch.lock);
            continue;
        }
        int64_t step = p->busy_with = p->wanted;
        mt_err err = { 0 };
        p->wanted = p->ready = NOTHING;
        pthread_mutex_unlock(&p->watch.lock);
        pthread_mutex_lock(&p->inner_lock);
        mt_rc rc = p->inner->api->step(p->inner, step, &p->batch, &err);
        pthread_mutex_unlock(&p->inner_lock);
        pthread_mutex_lock(&p->watch.lock);
        p->error = err;
        p->error.rc = rc;
        p->ready = step;
        p->busy_with = NOTHING;
        pthread_cond_broadcast(&p->watch.changed);
    }
    pthread_mutex_unlock(&p->watch.lock);
    return NULL;
}

/* Take the prepared step, if it is the one; false: it is not, and the thread is idle. */
static bool prefetch_take(prefetch *p, int64_t number, mt_batch *out, mt_err *err)
{
    pthread_mutex_lock(&p->watch.lock);
    while (p->busy_with != NOTHING || p->wanted == number) pthread_cond_wait(&p->watch.changed, &p->watch.lock);
    bool found = p->ready == number;
    p->wanted = NOTHING;
    if (found) {
        if (p->error.rc && err) *err = p->error;
        mt_batch prepared = p->batch;
        p->batch = *out;
        *out = prepared;
        p->ready = NOTHING;
    }
    pthread_mutex_unlock(&p->watch.lock);
    return found;
}

static void ask_for(prefetch *p, int64_t number)
{
    pthread_mutex_lock(&p->watch.lock);
    p->wanted = number;
    pthread_cond_broadcast(&p->watch.changed);
    pthread_mutex_unlock(&p->watch.lock);
}

static mt_rc step(mt_source *s, int64_t number, mt_batch *out, mt_err *err)
{
    prefetch *p = of(s);
    mt_err local = { 0 };
    if (!prefetch_take(p, number, out, &local)) {
        pthread_mutex_lock(&p->inner_lock);
        local.rc = p->inner->api->step(p->inner, number, out, &local);
        pthread_mutex_unlock(&p->inner_lock);
    }
    if (local.rc) {
        if (err) *err = local;
        return local.rc;
    }
    ask_for(p, number + 1);
    return MT_OK;
}

static mt_rc eval(mt_source *s, int64_t index, mt_batch *out, mt_err *err)
{
    prefetch *p = of(s);
    pthread_mutex_lock(&p->inner_lock);
    mt_rc rc = p->inner->api->eval(p->inner, index, out, err);
    pthread_mutex_unlock(&p->inner_lock);
    return rc;
}

static void info(mt_source *s, mt_source_info *out) { of(s)->inner->api->info(of(s)->inner, out); }

static void prefetch_deinit(prefetch *p)
{
    mt_batch_free(&p->batch);
    pthread_mutex_destroy(&p->inner_lock);
    mt_watch_deinit(&p->watch);
    mt_free(p);
}

static void close_prefetch(mt_source *s)
{
    prefetch *p = of(s);
    pthread_mutex_lock(&p->watch.lock);
    p->watch.closing = true;
    pthread_cond_broadcast(&p->watch.changed);
    pthread_mutex_unlock(&p->watch.lock);
    pthread_join(p->thread, NULL);
    mt_source_close(p->inner);
    prefetch_deinit(p);
}

static const mt_source_api api = { .info = info, .step = step, .eval = eval, .close = close_prefetch };

/* Room for the largest step, so that preparing one allocates nothing. */
static mt_rc prefetch_reserve(prefetch *p, mt_err *err)
{
    mt_source_info i;
    mt_batch *b = &p->batch;
    info(&p->base, &i);
    MT_TRY(mt_grow(&b->ids, &b->cap_ids, (size_t)i.max_tokens, sizeof *b->ids, err));
    MT_TRY(mt_grow(&b->targets, &b->cap_targets, (size_t)i.max_tokens, sizeof *b->targets, err));
    return mt_grow(&b->doc_start, &b->cap_docs, (size_t)i.max_docs + 1, sizeof *b->doc_start, err);
}

mt_rc mt_prefetch_open(mt_source **out, mt_source *inner, mt_err *err)
{
    *out = NULL;
    prefetch *p = mt_calloc(1, sizeof *p);
    if (!p) return mt_no_memory(err, "preparing steps ahead");
    *p = (prefetch){ .base = { &api }, .inner = inner, .wanted = NOTHING, .busy_with = NOTHING, .ready = NOTHING };
    pthread_mutex_init(&p->inner_lock, NULL);
    mt_watch_init(&p->watch);
    mt_rc rc = prefetch_reserve(p, err);
    if (!rc && !mt_thread_start(&p->thread, prefetch_prepare, p))
        rc = mt_fail(err, MT_ENOMEM, "the system refused a thread for preparing data; see ulimit -u");
    if (rc) {
        prefetch_deinit(p);
        return rc;
    }
    *out = &p->base;
    return MT_OK;
}
