/* machines.h - several machines as threads of one process: an engine each, which exchange by mt_comm_threads. */
#ifndef MT_TEST_MACHINES_H
#define MT_TEST_MACHINES_H

#include "draw.h"

#include <pthread.h>

enum { MOST_MACHINES = 6 };

typedef struct machine {
    int index, n;
    const rig *r;  /* model and batch, which all share */
    mt_plan *plan; /* taken over */
    mt_comm *comm; /* NULL: there is one machine */
    int n_threads, dawdle_us;
    mt_rc (*body)(struct machine *m, mt_err *err); /* on a separate thread: nothing may be asserted there */
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
    rig own = *m->r;
    own.engine = m->engine;
    return own.shards ? mt_engine_load(m->engine, own.model, own.shards, err) : rig_fill(&own, err);
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
    for (int i = 0; i < n && n > 1 && !o->piece_bytes; i++) comms[i]->window_bytes = 1e9; /* else one after the other */
}

/* Returns when all have ended. */
static inline void machines_go(machine *all, int n)
{
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&all[i].thread, NULL, machine_main, &all[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(all[i].thread, NULL);
}

/* -- three steps ----------------------------------------------------------------------------------- */

enum { MACHINE_STEPS = 3 };

/* No padding: outcomes are compared as bytes. */
typedef struct outcome {
    uint64_t checksum, loads[MACHINE_STEPS];
    double loss[MACHINE_STEPS], norm[MACHINE_STEPS], router[MACHINE_STEPS];
    int64_t skipped[MACHINE_STEPS];
} outcome;

typedef struct script {
    uint64_t seed; /* of what is looked at between steps */
    mt_hyper h;
    bool spoil; /* a weight is not a number during the second step */
    outcome out[MOST_MACHINES];
} script;

static inline uint64_t hash_loads(const rig *r, const mt_step_result *s)
{
    const size_t n = (size_t)(r->config->L * r->model->routed.E);
    return n ? mt_hash(s->loads, n * sizeof *s->loads, 1) : 0;
}

/* The first weight of the head, on every machine. */
static inline mt_rc machine_spoil(machine *m, uint16_t *was, mt_err *err)
{
    const uint16_t nan = 0x7fc0;
    MT_TRY(mt_engine_read(m->engine, (mt_state_range){ m->r->model->head, MT_STATE_HI, 0, 1 }, was, err));
    return mt_engine_write(m->engine, (mt_state_range){ m->r->model->head, MT_STATE_HI, 0, 1 }, &nan, err);
}

/* Every machine tells the others a number. */
static inline mt_rc machine_tell(machine *m, mt_err *err)
{
    uint64_t told[MOST_MACHINES], mine = 100 + (uint64_t)m->index;
    MT_TRY(mt_engine_tell(m->engine, &mine, sizeof mine, told, "a number", err));
    for (int k = 0; k < m->n; k++)
        if (told[k] != 100 + (uint64_t)k) return mt_fail(err, MT_EINTERNAL, "machine %d has told %d", k, (int)told[k]);
    return MT_OK;
}

/* A body; m->arg is the script, the same for all machines, which therefore look at the same things between steps. */
static inline mt_rc machine_three_steps(machine *m, mt_err *err)
{
    script *s = m->arg;
    outcome *out = &s->out[m->index];
    dice d = { s->seed, 0 };
    for (int i = 0; i < MACHINE_STEPS; i++) {
        mt_step_result r, look;
        const int what = s->spoil ? 0 : roll(&d, 4);
        uint16_t was;
        if (s->spoil && i == 1) MT_TRY(machine_spoil(m, &was, err));
        if (what == 1) MT_TRY(mt_engine_evaluate(m->engine, &m->r->batch, &look, err));
        if (what == 2 && m->plan->job.clip) MT_TRY(mt_engine_gradients(m->engine, &m->r->batch, &look, err));
        MT_TRY(mt_engine_step(m->engine, &m->r->batch, &s->h, &r, err));
        const bool compares =
            (what == 1 && !m->plan->job.objective.of && !m->plan->job.objective.columns) || (what == 2 && m->plan->job.clip);
        if (compares && memcmp(&look.loss, &r.loss, sizeof r.loss) != 0)
            return mt_fail(err, MT_EINTERNAL, "looking gives a loss of %.17g, a step %.17g", look.loss, r.loss);
        out->loss[i] = r.loss;
        out->norm[i] = r.grad_norm;
        out->router[i] = r.router_loss;
        out->loads[i] = hash_loads(m->r, &r);
        out->skipped[i] = r.skipped;
        if (s->spoil && i == 1)
            MT_TRY(mt_engine_write(m->engine, (mt_state_range){ m->r->model->head, MT_STATE_HI, 0, 1 }, &was, err));
        MT_TRY(machine_tell(m, err));
    }
    return mt_engine_checksum(m->engine, &out->checksum, err);
}

/* Machine `me` of several draws a placement and lanes for itself: no two need be alike. */
static inline mt_plan *machine_draw_plan(const rig *r, mt_job job, const mt_arithmetic *a, int me, int machines, dice *d)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    job.machines = machines;
    job.machine = me;
    job.lanes = 1 + roll(d, machines > 1 ? mt_arithmetic_shares(a) : mt_arithmetic_parts(a));
    assert_ok(mt_placement_init(&p, r->model, &err));
    draw(&p, r->model, &job, a, d);
    assert_ok(mt_plan_create(&plan, r->model, &job, a, &p, &err));
    mt_placement_free(&p);
    return plan;
}

/* Machines with their own plans, ready to take three steps. */
static inline void machines_prepare(machine *all, int machines, const rig *r, mt_job job, const mt_arithmetic *a, script *s)
{
    for (int m = 0; m < machines; m++) {
        dice d = { s->seed + 17 * (uint64_t)m, 0 };
        all[m] = (machine){ .index = m,
                            .n = machines,
                            .r = r,
                            .n_threads = 1 + (int)(s->seed + (uint64_t)m) % 3,
                            .dawdle_us = s->seed % 2 ? 200 : 0,
                            .body = machine_three_steps,
                            .arg = s };
        all[m].plan = machine_draw_plan(r, job, a, m, machines, &d);
    }
    machines_connect(all, machines,
                     &(mt_comm_options){ .piece_bytes = s->seed % 3 ? 0 : 4096, .dawdle_us = s->seed % 2 ? 300 : 0 });
}

#endif
