#include "base/spread.h"

#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct spread {
    mt_spread_fn fn;
    void *arg;
    atomic_int_least64_t failed; /* the smallest i that did; INT64_MAX: none.  Those before it are still wanted */
    pthread_mutex_t lock;        /* guards err */
    mt_err err;
} spread;

static void part(void *arg, int64_t i)
{
    spread *s = arg;
    mt_err err = { 0 };
    if (i > atomic_load(&s->failed)) return;
    mt_rc rc = s->fn(s->arg, i, &err);
    if (!rc) return;
    err.rc = rc;
    pthread_mutex_lock(&s->lock);
    if (i < atomic_load(&s->failed)) {
        s->err = err;
        atomic_store(&s->failed, i);
    }
    pthread_mutex_unlock(&s->lock);
}

mt_rc mt_spread(int n_threads, int64_t n, mt_spread_fn fn, void *arg, mt_err *err)
{
    spread s = { .fn = fn, .arg = arg, .failed = INT64_MAX, .lock = PTHREAD_MUTEX_INITIALIZER };
    mt_pool *pool = NULL;
    if (n_threads > n) n_threads = (int)n;
    if (n_threads > 1 && mt_pool_create(&pool, n_threads, &(mt_err){ 0 })) pool = NULL;
    if (pool)
        mt_pool_for(pool, n, part, &s);
    else
        for (int64_t i = 0; i < n; i++) part(&s, i);
    mt_pool_free(pool);
    pthread_mutex_destroy(&s.lock);
    if (s.err.rc) *err = s.err;
    return s.err.rc;
}
