#define _GNU_SOURCE
#include "base/pool.h"

#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct mt_pool {
    int n_workers; /* threads besides the caller */
    pthread_t *workers;
    pthread_mutex_t turn; /* held by the caller whose loop is running */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t start, finish;
    uint64_t round; /* bumped when a loop starts */
    int busy;       /* workers still inside the loop */
    bool quit;
    mt_pool_fn fn;
    void *arg;
    int64_t n;
    atomic_int_least64_t next;
};

static void run_loop(mt_pool *p)
{
    for (;;) {
        int64_t i = atomic_fetch_add(&p->next, 1);
        if (i >= p->n) return;
        p->fn(p->arg, i);
    }
}

static void *worker(void *arg)
{
    mt_pool *p = arg;
    uint64_t seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->round == seen && !p->quit) pthread_cond_wait(&p->start, &p->lock);
        if (p->quit) break;
        seen = p->round;
        pthread_mutex_unlock(&p->lock);
        run_loop(p);
        pthread_mutex_lock(&p->lock);
        if (--p->busy == 0) pthread_cond_signal(&p->finish);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

mt_rc mt_pool_create(mt_pool **out, int n_threads, mt_err *err)
{
    *out = NULL;
    mt_pool *p = mt_calloc(1, sizeof *p);
    if (p) p->workers = mt_calloc((size_t)(n_threads > 1 ? n_threads - 1 : 1), sizeof *p->workers);
    if (!p || !p->workers) {
        mt_free(p);
        return mt_no_memory(err, "a thread pool");
    }
    pthread_mutex_init(&p->turn, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->finish, NULL);
    for (int i = 0; i < n_threads - 1; i++) {
        if (!mt_thread_start(&p->workers[i], worker, p)) {
            mt_pool_free(p);
            return mt_fail(err, MT_ENOMEM, "the system refused thread %d of %d; see ulimit -u", i + 2, n_threads);
        }
        p->n_workers++;
    }
    *out = p;
    return MT_OK;
}

void mt_pool_for(mt_pool *p, int64_t n, mt_pool_fn fn, void *arg)
{
    if (n <= 1 || p->n_workers == 0) {
        for (int64_t i = 0; i < n; i++) fn(arg, i);
        return;
    }
    pthread_mutex_lock(&p->turn);
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    atomic_store(&p->next, 0);
    p->busy = p->n_workers;
    p->round++;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    run_loop(p);
    pthread_mutex_lock(&p->lock);
    while (p->busy) pthread_cond_wait(&p->finish, &p->lock);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&p->turn);
}

int mt_pool_threads(const mt_pool *p) { return p->n_workers + 1; }

/* The n-th core of a set, counted from its end. */
static int core_from_end(const cpu_set_t *set, int n)
{
    for (int core = CPU_SETSIZE - 1; core >= 0; core--)
        if (CPU_ISSET(core, set) && n-- == 0) return core;
    return -1;
}

static bool bind_to(pthread_t thread, int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return pthread_setaffinity_np(thread, sizeof one, &one) == 0;
}

int mt_pool_pin(mt_pool *p)
{
    cpu_set_t set;
    const char *word = getenv("MT_PIN");
    int bound = 0;
    if ((word && strcmp(word, "0") == 0) || sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < p->n_workers + 1)
        return 0;
    for (int i = 0; i < p->n_workers; i++) bound += bind_to(p->workers[i], core_from_end(&set, i));
    return bound + bind_to(pthread_self(), core_from_end(&set, p->n_workers));
}

void mt_pool_free(mt_pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_workers; i++) pthread_join(p->workers[i], NULL);
    pthread_cond_destroy(&p->start);
    pthread_cond_destroy(&p->finish);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->turn);
    mt_free(p->workers);
    mt_free(p);
}

int mt_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}
