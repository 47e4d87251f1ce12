#include "base/watch.h"

#include <string.h>

void mt_watch_init(mt_watch *w)
{
    memset(w, 0, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
}

void mt_watch_deinit(mt_watch *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

void mt_watch_fail(mt_watch *w, const mt_err *error)
{
    pthread_mutex_lock(&w->lock);
    if (!w->failed) {
        w->failed = true;
        w->error = *error;
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* With the lock held. */
static mt_rc sticky(mt_watch *w, mt_err *err)
{
    if (w->failed && err) *err = w->error;
    return w->failed ? w->error.rc : MT_OK;
}

mt_rc mt_watch_check(mt_watch *w, mt_err *err)
{
    pthread_mutex_lock(&w->lock);
    mt_rc rc = sticky(w, err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void mt_watch_raise(mt_watch *w, int64_t *gate, int64_t value)
{
    pthread_mutex_lock(&w->lock);
    if (*gate < value) *gate = value;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

mt_rc mt_watch_reach(mt_watch *w, const int64_t *gate, int64_t value, mt_err *err)
{
    pthread_mutex_lock(&w->lock);
    while (*gate < value && !w->failed) pthread_cond_wait(&w->changed, &w->lock);
    mt_rc rc = *gate < value ? sticky(w, err) : MT_OK;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

bool mt_watch_reached(mt_watch *w, const int64_t *gate, int64_t value)
{
    pthread_mutex_lock(&w->lock);
    bool yes = *gate >= value;
    pthread_mutex_unlock(&w->lock);
    return yes;
}
