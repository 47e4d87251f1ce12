/* watch.h - the state that all threads of a run share: one lock, one condition, one sticky error.
 *
 * Gates are plain numbers that only grow, guarded by the watch: one thread raises a gate (mt_watch_raise), others wait for it
 * (mt_watch_reach).  The first failure anywhere wakes everyone, and every wait returns it from then on. */
#ifndef MT_BASE_WATCH_H
#define MT_BASE_WATCH_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct mt_watch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool failed, closing;
    mt_err error; /* the first one */
} mt_watch;

void mt_watch_init(mt_watch *w);
void mt_watch_deinit(mt_watch *w);

/* Keep the first error and wake everyone. */
void mt_watch_fail(mt_watch *w, const mt_err *error);
/* The sticky error, or MT_OK. */
mt_rc mt_watch_check(mt_watch *w, mt_err *err);

void mt_watch_raise(mt_watch *w, int64_t *gate, int64_t value);
/* Wait until *gate >= value, or a failure. */
mt_rc mt_watch_reach(mt_watch *w, const int64_t *gate, int64_t value, mt_err *err);
/* True if *gate >= value now. */
bool mt_watch_reached(mt_watch *w, const int64_t *gate, int64_t value);

#endif
