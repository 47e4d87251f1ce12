/* machines.c - what machines tell each other in a pass besides gradients: which batch they have, the losses of their shares, the
 * loads of their experts, and what they have decided before.
 *
 * Every machine has the whole step's batch (D3), computes its shares of it and gets the losses of all.  So all of them fold the same
 * numbers in the same order and decide alike; that they did is compared with the next record (D7). */
#include "base/rng.h"
#include "engine/internal.h"

#include <string.h>

/* Then: losses of all shares, router losses of all shares, loads.  Of each only this machine's own count. */
typedef struct record_head {
    uint64_t batch, decided;
    int64_t mode;
} record_head;

static mt_loss_sum *losses_in(char *record) { return (mt_loss_sum *)(void *)(record + sizeof(record_head)); }
static double *router_losses_in(const mt_engine *e, char *record)
{
    return (double *)(void *)(losses_in(record) + mt_arithmetic_parts(&e->plan->arithmetic));
}
static int32_t *loads_in(const mt_engine *e, char *record)
{
    return (int32_t *)(void *)(router_losses_in(e, record) + mt_arithmetic_parts(&e->plan->arithmetic));
}

static uint64_t hash_batch(const mt_batch *b)
{
    const size_t rows = (size_t)b->n_tokens;
    uint64_t h = mt_hash(b->ids, rows * sizeof *b->ids, (uint64_t)b->n_docs);
    h = mt_hash(b->targets, rows * sizeof *b->targets, h);
    return mt_hash(b->doc_start, (size_t)(b->n_docs + 1) * sizeof *b->doc_start, h);
}

static void fill_record(const mt_engine *e, char *to)
{
    const lane_pact *p = &e->pact;
    const size_t parts = (size_t)mt_arithmetic_parts(&e->plan->arithmetic);
    const record_head head = { .batch = hash_batch(p->pass.batch), .decided = e->machines.decided, .mode = p->pass.mode };
    memcpy(to, &head, sizeof head);
    memcpy(losses_in(to), p->losses, parts * sizeof *p->losses);
    memcpy(router_losses_in(e, to), p->router_losses, parts * sizeof *p->router_losses);
    memcpy(loads_in(e, to), p->loads, (size_t)mt_plan_loads(e->plan) * sizeof *p->loads);
}

static mt_rc compare_record(const record_head *a, const record_head *b, int machine, mt_err *err)
{
    if (a->mode != b->mode || a->decided != b->decided)
        return mt_fail(err, MT_EINTERNAL,
                       "ranks 0 and %d have decided differently on a step before this one: a bug, please report it", machine);
    if (a->batch == b->batch) return MT_OK;
    return mt_fail(err, MT_EINVAL,
                   "ranks 0 and %d have different batches for the same step: their data files or tokenizers are not the same",
                   machine);
}

/* Into the pact, where this machine's own are. */
static void take_record(mt_engine *e, char *from, int machine)
{
    lane_pact *p = &e->pact;
    const mt_arithmetic *a = &e->plan->arithmetic;
    for (int s = 0; s < mt_arithmetic_parts(a); s++) {
        if (s / mt_arithmetic_shares(a) % mt_plan_machines(e->plan) != machine) continue;
        p->losses[s] = losses_in(from)[s];
        p->router_losses[s] = router_losses_in(e, from)[s];
    }
    for (int64_t i = 0; i < mt_plan_loads(e->plan); i++) p->loads[i] += loads_in(e, from)[i];
}

mt_rc mt__machines_meet(mt_engine *e, mt_err *err)
{
    machine_pact *m = &e->machines;
    record_head first, other;
    fill_record(e, m->mine);
    MT_TRY(mt_state_tell(e->state, m->mine, m->bytes, m->records, "the losses of a step", err));
    memcpy(&first, m->records, sizeof first);
    for (int k = 0; k < mt_plan_machines(e->plan); k++) {
        char *record = m->records + (size_t)k * m->bytes;
        memcpy(&other, record, sizeof other);
        MT_TRY(compare_record(&first, &other, k, err));
        if (k != e->plan->job.machine) take_record(e, record, k);
    }
    return MT_OK;
}

void mt__machines_decided(mt_engine *e, const mt_lane_sums *sums, bool go)
{
    const size_t parts = (size_t)mt_arithmetic_parts(&e->plan->arithmetic), units = (size_t)e->model->n_units;
    uint64_t h = mt_hash(sums->losses, parts * sizeof *sums->losses, e->machines.decided + go);
    if (e->pact.pass.mode == MT_MODE_TRAIN) h = mt_hash(sums->norms, units * sizeof *sums->norms, h);
    e->machines.decided = h;
}

mt_rc mt_engine_tell(mt_engine *e, const void *mine, size_t n, void *all, const char *what, mt_err *err)
{
    MT_TRY(mt_watch_check(&e->watch, err));
    if (e->machines.records) return mt_state_tell(e->state, mine, n, all, what, err);
    memcpy(all, mine, n);
    return MT_OK;
}

mt_rc mt__machines_create(mt_engine *e, mt_comm *comm, mt_err *err)
{
    machine_pact *m = &e->machines;
    const int n = mt_plan_machines(e->plan);
    if (n == 1) return MT_OK;
    if (!comm) return mt_fail(err, MT_EINVAL, "a plan for %d machines, and there is no way to the others", n);
    MT_TRY(mt_state_join(e->state, &e->memory, comm, err));
    m->bytes = sizeof(record_head) + (size_t)mt_arithmetic_parts(&e->plan->arithmetic) * (sizeof(mt_loss_sum) + sizeof(double)) +
               mt_round_up((size_t)mt_plan_loads(e->plan) * sizeof(int32_t), sizeof(double));
    m->mine = mt_calloc(1, m->bytes);
    m->records = mt_calloc((size_t)n, m->bytes);
    return m->mine && m->records ? MT_OK : mt_no_memory(err, "the records of %d machines", n);
}

void mt__machines_free(mt_engine *e)
{
    mt_free(e->machines.mine);
    mt_free(e->machines.records);
}
