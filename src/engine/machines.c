/* machines.c - records that machines exchange in a pass besides gradients: the losses of their shares and the loads of their
 * experts.
 *
 * Every machine has the whole step's batch (D3), computes its shares of it and gets the losses of all.  So all machines add the
 * same numbers in the same order and reach the same verdict (N5). */
#include "engine/internal.h"

#include <string.h>

/* A record: losses of all shares, router losses of all shares, loads.  Only the machine's own entries count. */
static mt_loss_sum *losses_in(char *record) { return (mt_loss_sum *)(void *)record; }
static double *router_losses_in(const mt_engine *e, char *record)
{
    return (double *)(void *)(losses_in(record) + mt_arithmetic_parts(&e->plan->arithmetic));
}
static int32_t *loads_in(const mt_engine *e, char *record)
{
    return (int32_t *)(void *)(router_losses_in(e, record) + mt_arithmetic_parts(&e->plan->arithmetic));
}

static void fill_record(const mt_engine *e, char *to)
{
    const lane_pact *p = &e->pact;
    const size_t parts = (size_t)mt_arithmetic_parts(&e->plan->arithmetic);
    memcpy(losses_in(to), p->losses, parts * sizeof *p->losses);
    memcpy(router_losses_in(e, to), p->router_losses, parts * sizeof *p->router_losses);
    memcpy(loads_in(e, to), p->loads, (size_t)mt_plan_loads(e->plan) * sizeof *p->loads);
}

/* Copies them into the pact, beside this machine's own. */
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
    fill_record(e, m->mine);
    MT_TRY(mt_state_tell(e->state, m->mine, m->bytes, m->records, "the losses of a step", err));
    for (int k = 0; k < mt_plan_machines(e->plan); k++)
        if (k != e->plan->job.machine) take_record(e, m->records + (size_t)k * m->bytes, k);
    return MT_OK;
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
    if (!comm) return mt_fail(err, MT_EINVAL, "a plan for %d machines, but no connection to the others", n);
    MT_TRY(mt_state_join(e->state, &e->memory, comm, err));
    m->bytes = (size_t)mt_arithmetic_parts(&e->plan->arithmetic) * (sizeof(mt_loss_sum) + sizeof(double)) +
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
