#include "engine/state.h"

#include "engine/state_internal.h"

static void open_homes(mt_state *s, const mt_memory *memory)
{
    for (int u = 0; u < s->model->n_units; u++) {
        int at = mt_plan_alias(s->plan, u);
        s->units[u].home = (mt_home){ .hi = mt_memory_find(memory, MT_BUF_HI, at, -1),
                                      .lo = mt_memory_find(memory, MT_BUF_LO, at, -1),
                                      .packed = mt_memory_find(memory, MT_BUF_PACKED_HOME, at, -1),
                                      .exact = mt_memory_find(memory, MT_BUF_EXACT_HOME, at, -1) };
        for (int k = 0; k < MT_MOST_ARRAYS; k++) s->units[u].home.array[k] = mt_memory_find(memory, MT_BUF_ARRAY, at, k);
    }
}

static mt_rc open_state(mt_state *s, const mt_memory *memory, int n_workers, mt_err *err)
{
    s->units = mt_calloc((size_t)s->model->n_units, sizeof *s->units);
    if (!s->units) return mt_no_memory(err, "the table of units");
    open_homes(s, memory);
    MT_TRY(mt__homes_create(s, memory, err));
    MT_TRY(mt__homes_clear(s, err));
    MT_TRY(mt__folds_create(s, memory, err));
    return mt__updater_create(s, n_workers, err);
}

mt_rc mt_state_create(mt_state **out, mt_device *dev, const mt_plan *plan, const mt_memory *memory, mt_watch *watch,
                      int n_workers, mt_err *err)
{
    *out = NULL;
    mt_state *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "the training state");
    s->dev = dev;
    s->plan = plan;
    s->model = plan->model;
    s->watch = watch;
    mt_rc rc = open_state(s, memory, n_workers, err);
    if (rc)
        mt_state_free(s);
    else
        *out = s;
    return rc;
}

void mt_state_stop(mt_state *s)
{
    if (!s) return;
    mt__updater_stop(s);
    mt__exchange_stop(s);
    mt__homes_stop(s);
}

void mt_state_free(mt_state *s)
{
    if (!s) return;
    mt_state_stop(s);
    mt__updater_free(s);
    mt__exchange_free(s);
    mt__folds_free(s);
    mt__homes_free(s);
    for (int u = 0; s->units && u < s->model->n_units; u++) mt_free(s->units[u].home.mapped);
    mt_free(s->units);
    mt_free(s);
}

void mt_state_trace(mt_state *s, mt_trace *trace) { s->trace = trace; }
mt_rc mt_state_check(mt_state *s, mt_err *err) { return mt_watch_check(s->watch, err); }
int mt_state_machines(const mt_state *s) { return mt_plan_machines(s->plan); }
int mt_state_machine(const mt_state *s) { return s->plan->job.machine; }
void mt_state_fail(mt_state *s, const mt_err *err) { mt_watch_fail(s->watch, err); }
void mt_state_follow(mt_state *s, int unit, mt_event *at_home) { s->units[unit].at_home = at_home; }
const mt_home *mt_state_home(const mt_state *s, int unit) { return &s->units[unit].home; }
const mt_optimizer *mt_state_optimizer(const mt_state *s) { return mt_optimizer_of(s->plan->arithmetic.optimizer); }
int64_t mt_state_updates(const mt_state *s) { return s->t; }
void mt_state_set_updates(mt_state *s, int64_t t) { s->t = t; }

mt_rc mt_state_map(mt_state *s, int unit, int weight, const void *data, mt_err *err)
{
    mt_home *h = &s->units[unit].home;
    if (!h->mapped) h->mapped = mt_calloc((size_t)mt__state_layout(s, unit)->n_weights, sizeof *h->mapped);
    if (!h->mapped) return mt_no_memory(err, "the places of weights");
    h->mapped[weight] = data;
    return MT_OK;
}
