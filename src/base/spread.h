/* spread.h - a loop whose parts can fail, over several threads. */
#ifndef MT_BASE_SPREAD_H
#define MT_BASE_SPREAD_H

#include "base/err.h"

#include <stdint.h>

typedef mt_rc (*mt_spread_fn)(void *arg, int64_t i, mt_err *err);

/* fn(arg, i) for i in [0, n), begun in this order.  After a failure nothing more is begun; of several the one with the smallest i
 * is the answer.  n_threads counts the caller, who does it all where the system refuses others. */
mt_rc mt_spread(int n_threads, int64_t n, mt_spread_fn fn, void *arg, mt_err *err);

#endif
