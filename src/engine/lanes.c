/* lanes.c - an engine's further lanes: their threads, and the verdict that all lanes, of all machines, wait for.
 *
 * The caller starts a pass.  Every lane computes its shares, reports its losses and waits for the verdict.  The caller's thread
 * reaches the verdict when all losses and finished gradients are there, including those of other machines (machines.c).  All
 * waits are on gates of the watch, so the first failure of any lane ends them all (F1); it is kept with the number of its
 * device. */
#include "base/clock.h"
#include "base/thread.h"
#include "engine/internal.h"

#include <math.h>
#include <stdio.h>

static lane_name name_of(const mt_engine *e, int lane)
{
    const bool cpu = e->dev->api->kind == MT_DEVICE_CPU;
    lane_name name;
    snprintf(name.s, sizeof name.s, "%s %d", cpu ? "CPU lane" : "GPU", e->numbers && !cpu ? e->numbers[lane] : lane);
    return name;
}

static mt_rc name_lane(const mt_engine *e, int lane, mt_err *err)
{
    return mt_note(err, "%s", lane ? e->more[lane - 1].name.s : e->name.s);
}

/* -- the verdict ----------------------------------------------------------------------------------- */

static void hand_in(mt_engine *e, int lane, const mt_lane_sums *sums)
{
    for (int round = 0; round < mt_plan_rounds(e->plan); round++) {
        const int s = mt_plan_share(e->plan, round, lane);
        if (s < 0) continue;
        e->pact.losses[s] = sums->losses[s];
        e->pact.router_losses[s] = sums->router_losses[s];
    }
    e->pact.seconds[lane] = 1e-9 * (double)(mt_now_ns() - e->pact.ordered_ns);
}

/* Rows of each expert, of all lanes. */
static const int32_t *add_loads(mt_engine *e, const int32_t *first)
{
    for (int64_t i = 0; i < mt_plan_loads(e->plan); i++) {
        e->pact.loads[i] = first[i];
        for (int k = 0; k < e->n_more; k++) e->pact.loads[i] += e->more[k].loads[i];
    }
    return e->pact.loads;
}

/* U5: each lane checks its own losses before it adds to a gradient, so no gradient is finished from a non-finite loss. */
static mt_rc check_losses(const mt_engine *e, int lane, const mt_lane_sums *sums, mt_err *err)
{
    for (int round = 0; round < mt_plan_rounds(e->plan); round++) {
        const int s = mt_plan_share(e->plan, round, lane);
        if (s >= 0 && !isfinite(sums->losses[s].loss))
            return e->pact.pass.judge(e->pact.pass.self, sums, false, &(bool){ false }, err);
    }
    return MT_OK;
}

static mt_rc further_judge(void *self, const mt_lane_sums *sums, bool all, bool *go, mt_err *err)
{
    further_lane *l = self;
    mt_engine *e = l->e;
    const int64_t pass = l->done + 1;
    if (!all) return check_losses(e, l->index, sums, err);
    hand_in(e, l->index, sums);
    l->loads = sums->loads;
    mt_watch_raise(&e->watch, &l->arrived, pass);
    MT_TRY(mt_watch_reach(&e->watch, &e->pact.judged, pass, err));
    *go = e->pact.go;
    return MT_OK;
}

static mt_rc first_judge(void *self, const mt_lane_sums *sums, bool all, bool *go, mt_err *err)
{
    mt_engine *e = self;
    lane_pact *p = &e->pact;
    if (!all) return check_losses(e, 0, sums, err);
    hand_in(e, 0, sums);
    const int64_t start = mt_now_ns();
    for (int i = 0; i < e->n_more; i++) MT_TRY(mt_watch_reach(&e->watch, &e->more[i].arrived, p->ordered, err));
    if (p->pass.mode == MT_MODE_TRAIN) MT_TRY(mt_state_await_folds(e->state, err));
    const mt_lane_sums together = { .losses = p->losses,
                                    .router_losses = p->router_losses,
                                    .norms = mt_state_norms(e->state),
                                    .loads = add_loads(e, sums->loads) };
    if (e->machines.records) MT_TRY(mt__machines_meet(e, err));
    p->wait_ns = mt_now_ns() - start;
    MT_TRY(p->pass.judge(p->pass.self, &together, all, go, err));
    p->go = *go;
    mt_watch_raise(&e->watch, &p->judged, p->ordered);
    return MT_OK;
}

/* -- passes ---------------------------------------------------------------------------------------- */

static mt_rc run_lane(mt_engine *e, int lane, mt_err *err)
{
    mt_lane_pass pass = e->pact.pass;
    pass.judge = lane ? further_judge : first_judge;
    pass.self = lane ? (void *)&e->more[lane - 1] : (void *)e;
    mt_rc rc = mt_lane_run(lane ? e->more[lane - 1].lane : e->lane, &pass, err);
    if (rc && e->n_more) name_lane(e, lane, err);
    return rc;
}

/* Waits until every lane has returned: they use data that the caller lends for the pass. */
static void await_lanes(mt_engine *e)
{
    mt_watch *w = &e->watch;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < e->n_more; i++)
        while (e->more[i].done < e->pact.ordered) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

mt_rc mt__lanes_run(mt_engine *e, const mt_lane_pass *pass, mt_err *err)
{
    lane_pact *p = &e->pact;
    p->pass = *pass;
    p->ordered_ns = mt_now_ns();
    mt_deal_documents(&p->deal, pass->batch->doc_start, pass->batch->n_docs);
    if (pass->mode == MT_MODE_TRAIN) mt_state_begin_parts(e->state, &p->deal, pass->updates_early);
    mt_watch_raise(&e->watch, &p->ordered, p->ordered + 1);
    if (run_lane(e, 0, err)) mt_watch_fail(&e->watch, err);
    await_lanes(e);
    return mt_watch_check(&e->watch, err);
}

/* -- threads --------------------------------------------------------------------------------------- */

static bool next_pass(further_lane *l)
{
    mt_watch *w = &l->e->watch;
    pthread_mutex_lock(&w->lock);
    /* Does not stop waiting at a failure: one between passes may come just before the caller starts the next pass and waits for
     * it. */
    while (l->e->pact.ordered == l->done && !w->closing) pthread_cond_wait(&w->changed, &w->lock);
    const bool yes = l->e->pact.ordered > l->done;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

static void *lane_main(void *arg)
{
    further_lane *l = arg;
    while (next_pass(l)) {
        mt_err err = { 0 };
        if (run_lane(l->e, l->index, &err)) mt_watch_fail(&l->e->watch, &err);
        mt_watch_raise(&l->e->watch, &l->done, l->done + 1);
    }
    return NULL;
}

mt_rc mt__lanes_settle(mt_engine *e, mt_err *err)
{
    if (mt_lane_settle(e->lane, err)) return e->n_more ? name_lane(e, 0, err) : err->rc;
    for (int i = 0; i < e->n_more; i++)
        if (mt_lane_settle(e->more[i].lane, err)) return name_lane(e, i + 1, err);
    return MT_OK;
}

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc open_lane(further_lane *l, mt_err *err)
{
    mt_engine *e = l->e;
    MT_TRY(mt_memory_init(&l->memory, l->dev, e->plan, &e->memory, err));
    MT_TRY(mt_lane_create(&l->lane, l->dev, e->plan, &l->memory, e->state, l->index, err));
    mt_lane_set_name(l->lane, l->name.s);
    if (!mt_thread_start(&l->thread, lane_main, l))
        return mt_fail(err, MT_ENOMEM, "the system refused a thread for another GPU; see ulimit -u");
    l->started = true;
    return MT_OK;
}

/* The lanes add their sums on the devices. */
static mt_rc join_lanes(mt_engine *e, mt_err *err)
{
    const int n = 1 + e->n_more;
    mt_peer *lanes = mt_calloc((size_t)n, sizeof *lanes);
    if (!lanes) return mt_no_memory(err, "the lanes");
    lanes[0] = (mt_peer){ .dev = e->dev, .memory = &e->memory, .name = e->name.s };
    for (int i = 1; i < n; i++)
        lanes[i] = (mt_peer){ .dev = e->more[i - 1].dev, .memory = &e->more[i - 1].memory, .name = e->more[i - 1].name.s };
    mt_rc rc = mt_peers_create(&e->peers, e->plan, lanes, err);
    mt_free(lanes);
    if (rc) return rc;
    MT_TRY(mt_state_set_peers(e->state, e->peers, err));
    mt_lane_set_peers(e->lane, e->peers);
    for (int i = 0; i < e->n_more; i++) mt_lane_set_peers(e->more[i].lane, e->peers);
    return MT_OK;
}

mt_rc mt__lanes_create(mt_engine *e, mt_device *const *more, mt_err *err)
{
    const mt_arithmetic *a = &e->plan->arithmetic;
    const int n = mt_plan_lanes(e->plan) - 1;
    if (!mt_plan_by_shares(e->plan)) return MT_OK;
    if (n && !more) return mt_fail(err, MT_EINVAL, "a plan for %d devices, and one is given", n + 1);
    MT_TRY(mt_deal_init(&e->pact.deal, e->model, a, e->plan->job.step_docs, err));
    e->pact.losses = mt_calloc((size_t)mt_arithmetic_parts(a), sizeof *e->pact.losses);
    e->pact.router_losses = mt_calloc((size_t)mt_arithmetic_parts(a), sizeof *e->pact.router_losses);
    e->pact.seconds = mt_calloc((size_t)n + 1, sizeof *e->pact.seconds);
    e->pact.loads = mt_calloc((size_t)mt_plan_loads(e->plan) + 1, sizeof *e->pact.loads);
    e->more = mt_calloc((size_t)n + 1, sizeof *e->more);
    if (!e->pact.losses || !e->pact.router_losses || !e->pact.seconds || !e->pact.loads || !e->more)
        return mt_no_memory(err, "the lanes");
    e->n_more = n;
    e->name = name_of(e, 0);
    if (n) mt_lane_set_name(e->lane, e->name.s);
    for (int i = 0; i < n; i++) e->more[i] = (further_lane){ .e = e, .index = i + 1, .dev = more[i], .name = name_of(e, i + 1) };
    for (int i = 0; i < n; i++)
        if (open_lane(&e->more[i], err)) return name_lane(e, i + 1, err);
    return e->plan->place.fold == MT_FOLD_PEERS ? join_lanes(e, err) : MT_OK;
}

void mt__lanes_stop(mt_engine *e)
{
    pthread_mutex_lock(&e->watch.lock);
    e->watch.closing = true;
    pthread_cond_broadcast(&e->watch.changed);
    pthread_mutex_unlock(&e->watch.lock);
    for (int i = 0; i < e->n_more; i++) {
        if (e->more[i].started) pthread_join(e->more[i].thread, NULL);
        e->more[i].started = false;
    }
}

void mt__lanes_free(mt_engine *e)
{
    for (int i = 0; i < e->n_more; i++)
        mt_lane_free(e->more[i].lane); /* all lanes, before any memory is freed: they copy into each other's memory */
    mt_peers_free(e->peers);
    for (int i = 0; i < e->n_more; i++)
        if (e->more[i].memory.plan) mt_memory_deinit(&e->more[i].memory);
    mt_free(e->more);
    mt_free(e->pact.losses);
    mt_free(e->pact.router_losses);
    mt_free(e->pact.loads);
    mt_free(e->pact.seconds);
    mt_deal_deinit(&e->pact.deal);
}
