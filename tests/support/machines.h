/* machines.h - several machines as threads of one process: an engine each, which exchange by mt_comm_threads. */
#ifndef MT_TEST_MACHINES_H
#define MT_TEST_MACHINES_H

#include "rig.h"

#include <pthread.h>

enum { MOST_MACHINES = 6 };

typedef struct machine {
    int index, n;
    const rig *r;  /* model and batch, which all share */
    mt_plan *plan; /* taken over */
    mt_comm *comm; /* NULL: there is one machine */
    int n_threads, dawdle_us;
    mt_rc (*body)(struct machine *m, mt_err *err); /* on a thread of its own: nothing may be asserted there */
    void *arg;
    mt_device *dev, *more[RIG_MOST_LANES - 1];
    mt_engine *engine;
    mt_err err; /* .rc: how it ended */
    pthread_t thread;
} machine;

static inline mt_rc machine_start(machine *m, mt_err *err)
{
    const mt_device_options how = { .memory_limit = m->plan->device_bytes, .n_threads = m->n_threads, .dawdle_us = m->dawdle_us };
    MT_TRY(mt_device_open(&m->dev, "cpu", &how, err));
    for (int i = 1; i < mt_plan_lanes(m->plan); i++) MT_TRY(mt_device_open(&m->more[i - 1], "cpu", &how, err));
    const mt_engine_options o = { .n_workers = m->n_threads, .more = m->more, .comm = m->comm };
    MT_TRY(mt_engine_create(&m->engine, m->dev, m->plan, &o, err));
    return m->r->shards ? mt_engine_load(m->engine, m->r->model, m->r->shards, err)
                        : mt_engine_init(m->engine, m->r->model, 3, err);
}

static inline void *machine_main(void *arg)
{
    machine *m = arg;
    mt_rc rc = machine_start(m, &m->err);
    if (!rc) rc = m->body(m, &m->err);
    if (!rc) m->err = (mt_err){ 0 };
    if (rc && m->comm) (m->comm->api->fail)(m->comm, &m->err); /* cmocka has a macro of that name */
    mt_engine_free(m->engine);
    mt_comm_close(m->comm);
    mt_device_close(m->dev);
    for (int i = 0; i < RIG_MOST_LANES - 1; i++) mt_device_close(m->more[i]);
    mt_plan_free(m->plan);
    return NULL;
}

/* n of them, filled in but for `comm`. */
static inline void machines_connect(machine *all, int n, const mt_comm_options *o)
{
    mt_err err = { 0 };
    mt_comm *comms[MOST_MACHINES] = { NULL };
    if (n > 1) assert_ok(mt_comm_threads(comms, n, o, &err));
    for (int i = 0; i < n; i++) all[i].comm = comms[i];
}

/* Returns when all have ended. */
static inline void machines_go(machine *all, int n)
{
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&all[i].thread, NULL, machine_main, &all[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(all[i].thread, NULL);
}

#endif
