/* pool.h - a fixed set of threads that split one loop at a time.
 *
 * mt_pool_for(pool, n, fn, arg) calls fn(arg, i) for i in [0, n), each once, on the caller and the pool's
 * threads, and returns when all are done.  Which thread takes which i is unspecified, so results must
 * not depend on it: callers cut their work into pieces whose size does not depend on the thread count.
 * One loop at a time per pool; loops from several threads take turns. */
#ifndef MT_BASE_POOL_H
#define MT_BASE_POOL_H

#include "base/err.h"

#include <stdint.h>

typedef struct mt_pool mt_pool;
typedef void (*mt_pool_fn)(void *arg, int64_t i);

/* n_threads counts the caller: 1 means no extra thread. */
mt_rc mt_pool_create(mt_pool **out, int n_threads, mt_err *err);
void mt_pool_for(mt_pool *pool, int64_t n, mt_pool_fn fn, void *arg);
int mt_pool_threads(const mt_pool *pool);
/* Bind the pool's threads and the calling one, each to its own core: the last cores this process may use, so that the first are
 * free for the threads that queue work.  Returns how many were bound: 0 if there are fewer cores than threads, or with
 * MT_PIN=0. */
int mt_pool_pin(mt_pool *pool);
void mt_pool_free(mt_pool *pool);

/* Cores this process may use. */
int mt_cpu_count(void);

#endif
