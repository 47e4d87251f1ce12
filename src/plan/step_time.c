/* step_time.c - the step time model: a port of the sequencer whose actions become tasks in queues.
 *
 *     sequencer   issue(action)          sim_issue: its work (step_work.h), in its queue
 *                 record, wait           sim_record, sim_wait: the next task of a queue starts after a task of another
 *     queues.c    start and end of every task, given what the machine can do at once
 *
 * Compute is known without simulating and is a lower bound, so most candidates of a search end there. */
#include "plan/step_time.h"

#include "base/mem.h"
#include "plan/step_work.h"
#include "schedule/slices.h"

#include <math.h>

enum { NONE = -1, SHOWN = 3, STEPS = 2, SHOWN_PIECES = 512 };

/* A long step is simulated in short: SHOWN of its sweeps (the first, one that stands for all in the middle, the last), and at most
 * SHOWN_PIECES pieces. */

/* Compute tasks that end a step, and its sweeps except the last. */
typedef struct marks {
    int sweep[SHOWN - 1], end;
} marks;

/* A port of the sequencer whose actions become tasks. */
typedef struct simulation {
    const mt_plan *p;
    const mt_machine *m;
    mt_queues *q;
    mt_step_model *shared;
    /* For each queue, the newest task of each other queue it has waited for, and which of these its next task must still get. */
    int after[MT_QUEUES][MT_QUEUES];
    unsigned fresh[MT_QUEUES];
    mt_step_work w;
    int64_t n_sweeps, piece_elems; /* of the plan; simulated pieces may be larger */
    int64_t splits;                /* several lanes: sweeps of a share */
    bool ends_part[SHOWN];         /* of the simulated sweeps */
    int shown;                     /* simulated sweeps */
    double scale;                  /* how often the current sweep counts */
    double work[MT_QUEUES];        /* of one step */
    bool counts;                   /* this step is the one to report */
    bool skips;                    /* simulate nothing */
    int step;
    marks at[STEPS];
} simulation;

/* -- tasks ----------------------------------------------------------------------------------------- */

/* Tasks of all queues are numbered together, so an event also records its queue. */
enum { QUEUE_BITS = 4 };
static int event_of(int task, mt_queue queue) { return task << QUEUE_BITS | (int)queue; }

/* The next task of `queue` starts after an event.  A queue is in order, so only the newest task of another queue counts. */
static void depend(simulation *sim, mt_queue queue, int event)
{
    if (event < 0) return;
    int task = event >> QUEUE_BITS, other = event & ((1 << QUEUE_BITS) - 1);
    if (other == (int)queue || task <= sim->after[queue][other]) return;
    sim->after[queue][other] = task;
    sim->fresh[queue] |= 1u << other;
}

static void sim_add(simulation *sim, mt_queue queue, double work)
{
    if (work <= 0) return; /* nothing to do: the next task waits instead */
    /* Write-backs and pieces happen once a step, however often the current sweep counts. */
    bool once = queue == MT_Q_BACK || (queue >= MT_Q_PIECE_IN && queue <= MT_Q_PIECE_BACK);
    if (sim->counts) sim->work[queue] += work * (once ? 1 : sim->scale);
    int task = mt_queues_add(sim->q, queue, work, NONE, NONE, NONE);
    for (int i = 0; task >= 0 && sim->fresh[queue]; i++, sim->fresh[queue] >>= 1)
        if (sim->fresh[queue] & 1) mt_queues_after(sim->q, task, sim->after[queue][i]);
}

static int newest(const simulation *sim, mt_queue queue)
{
    return sim->q->last[queue] < 0 ? NONE : event_of(sim->q->last[queue], queue);
}

/* The engine's thread waits: everything issued from now on starts after the event. */
static void host_wait(simulation *sim, int event)
{
    for (mt_queue i = 0; i < MT_QUEUES; i++) depend(sim, i, event);
}

/* With several lanes, the part that comes from the others. */
static double of_others(const simulation *sim, double bytes) { return bytes * (1 - 1.0 / mt_plan_lanes(sim->p)); }
static bool folds_by_peers(const simulation *sim) { return mt_plan_lanes(sim->p) > 1 && sim->p->place.fold == MT_FOLD_PEERS; }

/* -- the port -------------------------------------------------------------------------------------- */

static void begin_sweep(simulation *sim, int sweep)
{
    sim->skips = sim->step == 0 && sim->p->job.train; /* only that step's backward and later work affect the next step */
    if (sweep) sim->at[sim->step].sweep[sweep - 1] = sim->q->last[MT_Q_COMPUTE];
    sim->scale = sweep == 1 && sim->shown == SHOWN ? (double)(sim->n_sweeps - 2) : 1;
}

/* Work that the step does now, unless it is skipped. */
static void sim_do(simulation *sim, mt_queue queue, double work)
{
    if (!sim->skips) sim_add(sim, queue, work);
}

/* A copy between devices for an action of `queue`: it starts after what the action waits for, and ends before later tasks of that
 * queue start. */
static void sim_between(simulation *sim, mt_queue queue, double bytes)
{
    const double mark = 1; /* one byte, so that waiters on the queue find this task */
    if (sim->skips) return;
    sim_add(sim, queue, mark);
    depend(sim, MT_Q_PEER, newest(sim, queue));
    sim_add(sim, MT_Q_PEER, bytes);
    depend(sim, queue, newest(sim, MT_Q_PEER));
    sim_add(sim, queue, mark);
}

/* An update of n parameters on the devices, in slices. */
static void sim_update_slices(simulation *sim, int unit, double n)
{
    sim_do(sim, MT_Q_COMPUTE, n / mt_plan_lanes(sim->p) * mt_cost_update_device(sim->w.costs, sim->p->arithmetic.optimizer));
    sim->shared->updates[unit] = newest(sim, MT_Q_COMPUTE);
}

/* An update of n parameters on the host.  Then each lane copies its slice of weights that lanes gather. */
static void sim_update_host(simulation *sim, int unit, double n)
{
    sim_do(sim, MT_Q_ADAM, n);
    sim->shared->updates[unit] = newest(sim, MT_Q_ADAM);
    if (!mt_plan_is_mirrored(sim->p, unit)) return;
    const double each = mt_plan_mirrors(sim->p, unit, MT_STATE_LO) ? 4 : 2;
    depend(sim, MT_Q_PIECE_IN, newest(sim, MT_Q_ADAM));
    sim_do(sim, MT_Q_PIECE_IN, n * each / mt_plan_lanes(sim->p));
    sim->shared->updates[unit] = newest(sim, MT_Q_PIECE_IN);
}

/* A share's sum of n parameters, which the workers add to those of the other lanes and round.  Without clipping they also update;
 * simulated as a part of each round. */
static void sim_fold_on_host(simulation *sim, const mt_action *a, double n)
{
    const int machines = mt_plan_machines(sim->p);
    sim_do(sim, MT_Q_OUT, 4 * n);
    if (a->share) return;                         /* added with the unit's own sum */
    const double others = machines > 1 ? 4.0 : 0; /* bytes of the slice of another machine's sum */
    const double bytes = 4.0 * mt_plan_lanes(sim->p) + 2 + others;
    const double adam = sim->p->job.clip ? 0 : n / machines / mt_plan_rounds(sim->p);
    depend(sim, MT_Q_ADAM, newest(sim, MT_Q_OUT));
    sim_do(sim, MT_Q_ADAM, n * bytes / mt_machine_update_bytes(mt_arithmetic_form(&sim->p->arithmetic)) + adam);
    if (adam > 0) sim->shared->updates[a->unit] = newest(sim, MT_Q_ADAM);
}

/* The same on the devices: slices go to the lanes that add them.  Finished slices go to the host, unless the state is in slices
 * too. */
static void sim_fold_by_peers(simulation *sim, const mt_action *a, double n)
{
    const double each = n / mt_plan_rounds(sim->p);
    const bool sliced = mt_plan_is_sliced(sim->p, a->unit), early = !sim->p->job.clip;
    sim_between(sim, MT_Q_OUT, of_others(sim, 4 * n));
    if (a->share) return; /* added with the unit's own sum */
    if (sliced) {
        if (early) sim_update_slices(sim, a->unit, each);
        return;
    }
    sim_do(sim, MT_Q_OUT, each * (double)mt_dtype_bytes(sim->p->arithmetic.grad) / mt_plan_lanes(sim->p));
    if (!early) return;
    depend(sim, MT_Q_ADAM, newest(sim, MT_Q_OUT));
    sim_update_host(sim, a->unit, each);
}

static mt_rc sim_issue(void *self, const mt_action *a, mt_err *err)
{
    simulation *sim = self;
    (void)err;
    if (a->kind == MT_DO_SWEEP) begin_sweep(sim, (int)a->sweep);
    if (a->kind == MT_DO_HEAD) sim->skips = false;
    const mt_queue queue = mt_action_queue[a->kind];
    const double work = mt__step_action_work(&sim->w, a);
    switch (a->kind) {
    case MT_DO_FETCH:
        depend(sim, queue, sim->shared->updates[a->unit]); /* R1 */
        if (mt_plan_is_gathered(sim->p, a->unit))
            sim_between(sim, queue, of_others(sim, work));
        else
            sim_do(sim, queue, work);
        break;
    case MT_DO_PART_OUT:
        if (folds_by_peers(sim))
            sim_fold_by_peers(sim, a, work / 4);
        else
            sim_fold_on_host(sim, a, work / 4);
        break;
    case MT_DO_UPDATE_HOST:
        if (mt_plan_is_sliced(sim->p, a->unit)) {
            sim_update_slices(sim, a->unit, work);
        } else {
            sim_update_host(sim, a->unit, work);
            if (a->to >= 0) sim->shared->slabs[a->to] = newest(sim, MT_Q_ADAM);
        }
        break;
    case MT_DO_ROUTES: depend(sim, MT_Q_IN, newest(sim, MT_Q_COMPUTE)); break; /* the host waits before it fetches more */
    default: sim_do(sim, queue, work); break;
    }
    return MT_OK;
}

static mt_rc sim_record(void *self, mt_queue queue, int event, mt_err *err)
{
    simulation *sim = self;
    (void)err;
    sim->shared->events[event] = newest(sim, queue);
    return MT_OK;
}

static mt_rc sim_wait(void *self, mt_queue queue, int event, mt_err *err)
{
    simulation *sim = self;
    (void)err;
    depend(sim, queue, sim->shared->events[event]);
    return MT_OK;
}

/* Treated as finished: the fetch will wait for the update in its queue. */
static bool sim_updated(void *self, int unit, int64_t version) { return (void)self, (void)unit, (void)version, true; }
static mt_rc sim_await_update(void *self, int unit, int64_t version, mt_err *err)
{
    return (void)self, (void)unit, (void)version, (void)err, MT_OK;
}

/* No snapshot is taken. */
static bool sim_locked(void *self, int unit) { return (void)self, (void)unit, false; }
static mt_rc sim_await_unlock(void *self, int unit, mt_err *err) { return (void)self, (void)unit, (void)err, MT_OK; }

static mt_rc sim_await_jobs(void *self, int64_t jobs, mt_err *err)
{
    simulation *sim = self;
    (void)err;
    if (jobs > 0) host_wait(sim, sim->shared->slabs[(jobs - 1) % sim->p->place.n_slabs]);
    return MT_OK;
}

/* The step is over; the next counts. */
static void end_step(simulation *sim)
{
    sim->at[sim->step].end = sim->q->last[MT_Q_COMPUTE];
    sim->counts = true;
    sim->scale = 1;
    if (++sim->step == STEPS) return;
    sim_add(sim, MT_Q_COMPUTE, sim->m->sync);
    host_wait(sim, newest(sim, MT_Q_COMPUTE));
}

static mt_rc sim_judge(void *self, bool all, bool *go, mt_err *err)
{
    simulation *sim = self;
    (void)err;
    if (all && mt_plan_by_shares(sim->p)) { /* the norm is known when everything is added */
        host_wait(sim, newest(sim, MT_Q_ADAM));
        if (folds_by_peers(sim)) host_wait(sim, newest(sim, MT_Q_OUT));
    }
    if (all)
        end_step(sim);
    else
        host_wait(sim, newest(sim, MT_Q_COMPUTE));
    *go = sim->step < STEPS && !sim->p->job.only_gradients; /* the last step's updates do not count */
    return MT_OK;
}

static const mt_port sim_port = { sim_issue,  sim_record,       sim_wait,       sim_updated, sim_await_update,
                                  sim_locked, sim_await_unlock, sim_await_jobs, sim_judge };

/* -- the times ------------------------------------------------------------------------------------- */

static double bytes_in(const simulation *sim) { return sim->work[MT_Q_IN] + sim->work[MT_Q_PIECE_IN]; }
static double bytes_out(const simulation *sim) { return sim->work[MT_Q_OUT] + sim->work[MT_Q_BACK] + sim->work[MT_Q_PIECE_BACK]; }

/* A lower bound for any order: the longest part, copies both ways at once, and all traffic through host memory. */
static double least_seconds(const simulation *sim, double longest)
{
    const mt_machine *m = sim->m;
    double in = bytes_in(sim), out = bytes_out(sim), both = fmin(in, out);
    double copies =
        both / fmin(m->copy_both, fmin(m->copy_in, m->copy_out)) + (in - both) / m->copy_in + (out - both) / m->copy_out;
    double memory = (mt_plan_lanes(sim->p) * (in + out) +
                     mt_machine_update_bytes(mt_arithmetic_form(&sim->p->arithmetic)) * sim->work[MT_Q_ADAM]) /
                    m->host_bandwidth;
    return fmax(longest, fmax(copies, memory));
}

/* A thread gathers the next step's tokens while this one runs; measured: 14 to 26 ns a token, with samples of 28
 * (docs/notebook). */
#define DATA_SECONDS 20e-9

static void fill_parts(const simulation *sim, mt_times *out)
{
    *out =
        (mt_times){ .compute = sim->work[MT_Q_COMPUTE] + sim->work[MT_Q_PIECE],
                    .copy_in = bytes_in(sim) / sim->m->copy_in,
                    .copy_out = bytes_out(sim) / sim->m->copy_out,
                    .adam_host = sim->work[MT_Q_ADAM] / mt_machine_update_rate(sim->m, mt_arithmetic_form(&sim->p->arithmetic)),
                    .copy_peer = sim->work[MT_Q_PEER] > 0 ? sim->work[MT_Q_PEER] / sim->m->peer : 0,
                    .data = DATA_SECONDS * (double)sim->p->job.step_tokens };
    const struct {
        double seconds;
        const char *what;
    } parts[] = { { out->compute, "compute" },
                  { out->copy_in, "copies to the device" },
                  { out->copy_out, "copies from the device" },
                  { out->adam_host, mt_optimizer_of(sim->p->arithmetic.optimizer)->host_title },
                  { out->copy_peer, "copies between devices" },
                  { out->data, "data" } };
    double most = -1;
    for (size_t i = 0; i < MT_COUNT(parts); i++)
        if (parts[i].seconds > most) {
            most = parts[i].seconds;
            out->bound = parts[i].what;
        }
    out->step = least_seconds(sim, most);
}

/* -- all of it ------------------------------------------------------------------------------------- */

/* Thousands of pieces are simulated as a few hundred larger ones: the traffic is the same, but waits for a piece are off by up to
 * a few percent of a step. */
static const mt_plan *with_large_pieces(mt_step_model *shared, const mt_plan *p)
{
    int64_t n = 0;
    for (int u = 0; u < p->model->n_units && p->has_pieces; u++) n += mt_plan_pieces(p, u);
    if (n <= SHOWN_PIECES || shared->every_piece) return p;
    shared->coarse = *p;
    shared->coarse.place.piece_elems *= (n + SHOWN_PIECES - 1) / SHOWN_PIECES;
    return &shared->coarse;
}

static simulation open_simulation(mt_step_model *shared, const mt_plan *p, const mt_machine *m)
{
    simulation sim = { .p = p,
                       .m = m,
                       .w = { .p = p, .costs = &shared->costs, .stands_for = shared->stands_for },
                       .q = &shared->queues,
                       .shared = shared,
                       .scale = 1 };
    if (!shared->costs.m) mt_costs_fill(&shared->costs, p, m);
    const bool by_shares = mt_plan_by_shares(p);
    const int64_t parts_of_step = mt_arithmetic_parts(&p->arithmetic),
                  tokens = by_shares ? (p->job.step_tokens + parts_of_step - 1) / parts_of_step : p->job.step_tokens;
    sim.splits = (tokens + p->place.sweep_tokens - 1) / p->place.sweep_tokens;
    sim.n_sweeps = by_shares ? sim.splits * mt_plan_rounds(p) : sim.splits;
    sim.shown = sim.n_sweeps < SHOWN ? (int)sim.n_sweeps : SHOWN;
    sim.w.rows = (double)tokens / (double)sim.splits;
    const double parts = by_shares ? 1 : ceil((double)parts_of_step / (double)sim.n_sweeps); /* shares of a sweep */
    sim.w.micros = parts * ceil(sim.w.rows / parts / (double)p->arithmetic.micro_tokens);
    sim.w.passes = parts * ceil(sim.w.rows / parts / (double)mt_pass_rows_at_most(&p->arithmetic));
    return sim;
}

double mt_step_compute(mt_step_model *shared, const mt_plan *p, const mt_machine *m)
{
    simulation sim = open_simulation(shared, p, m);
    return (double)sim.n_sweeps * mt__step_sweep_seconds(&sim.w);
}

/* The same number of elements ahead as in the engine, whose pieces are smaller than the simulated ones and span more layers. */
static int64_t early_pieces(const simulation *sim)
{
    const mt_model *m = sim->p->model;
    double layers = 0, L = (double)m->config->L,
           times = (double)mt_max_i64(sim->p->place.piece_elems, 1) / (double)sim->piece_elems;
    for (int l = 0; l < m->config->L; l++) layers += mt__step_times_of(&sim->w, l);
    return mt_max_i64((int64_t)(MT_PIECES_EARLY * L / (layers * times)), 1);
}

static mt_rc simulate_steps(simulation *sim, mt_err *err)
{
    mt_step_model *s = sim->shared;
    mt_mode mode = sim->p->job.cache_slots ? MT_MODE_CONTINUE : MT_MODE_EVALUATE;
    if (sim->p->job.train) mode = MT_MODE_TRAIN;
    mt_queues_clear(sim->q);
    mt_sequence_open(s->sequence, sim->p, &sim_port, sim);
    mt_sequence_limit_pieces(s->sequence, early_pieces(sim));
    size_t n = (size_t)mt_sequence_events(s->sequence), slabs = (size_t)sim->p->place.n_slabs;
    MT_TRY(mt_grow(&s->events, &s->cap_events, n, sizeof *s->events, err));
    MT_TRY(mt_grow(&s->slabs, &s->cap_slabs, slabs, sizeof *s->slabs, err));
    for (size_t i = 0; i < n; i++) s->events[i] = NONE;
    for (size_t i = 0; i < slabs; i++) s->slabs[i] = NONE;
    for (int u = 0; u < sim->p->model->n_units; u++) s->updates[u] = NONE;
    for (int i = 0; i < MT_QUEUES * MT_QUEUES; i++) sim->after[i / MT_QUEUES][i % MT_QUEUES] = NONE;
    for (int i = 0; i < STEPS; i++) {
        const int sweeps = i + 1 < STEPS ? 1 : sim->shown;
        for (int k = 0; k < sweeps; k++) sim->ends_part[k] = k + 1 == sweeps || (k + 1) % sim->splits == 0;
        mt_sequence_parts(s->sequence, mt_plan_by_shares(sim->p) ? sim->ends_part : NULL);
        MT_TRY(mt_sequence_run(s->sequence, mode, sweeps, err));
        if (mode == MT_MODE_CONTINUE) end_step(sim); /* nothing is reported there */
    }
    return MT_OK;
}

mt_rc mt_step_time(mt_step_model *shared, const mt_plan *p, const mt_machine *m, double give_up, mt_times *out, bool *simulated,
                   mt_err *err)
{
    simulation sim = open_simulation(shared, with_large_pieces(shared, p), m);
    sim.piece_elems = mt_max_i64(p->place.piece_elems, 1);
    double compute = (double)sim.n_sweeps * mt__step_sweep_seconds(&sim.w);
    *out = (mt_times){ .compute = compute, .step = compute, .bound = "compute" };
    *simulated = compute < give_up;
    if (!*simulated) return MT_OK;
    MT_TRY(simulate_steps(&sim, err));
    fill_parts(&sim, out);
    *simulated = out->step < give_up;
    if (!*simulated) return MT_OK;
    if (!mt_queues_run(sim.q, m, mt_arithmetic_form(&p->arithmetic)))
        return mt_fail(err, sim.q->failed ? MT_ENOMEM : MT_EINTERNAL,
                       sim.q->failed ? "no host memory to time a plan"
                                     : "a plan whose step waits for itself: a bug, please report it");
    const mt_task *t = sim.q->tasks;
    const marks *last = &sim.at[STEPS - 1];
    double step = t[last->end].end - t[sim.at[0].end].end;
    if (sim.n_sweeps > SHOWN) step += (double)(sim.n_sweeps - SHOWN) * (t[last->sweep[1]].end - t[last->sweep[0]].end);
    out->step = fmax(step, out->step); /* two steps leave copies pending that a hundred steps would have to wait for */
    return MT_OK;
}

mt_rc mt_step_model_init(mt_step_model *t, const mt_model *model, mt_err *err)
{
    *t = (mt_step_model){ .updates = mt_calloc((size_t)model->n_units, sizeof *t->updates),
                          .costs.kinds = mt_calloc((size_t)model->n_kinds, sizeof *t->costs.kinds) };
    mt_rc rc = t->updates && t->costs.kinds ? mt_sequence_create(&t->sequence, model, err) : mt_no_memory(err, "timing a plan");
    if (rc) mt_step_model_free(t);
    return rc;
}

void mt_step_model_free(mt_step_model *t)
{
    mt_queues_free(&t->queues);
    mt_sequence_free(t->sequence);
    mt_free(t->updates);
    mt_free(t->costs.kinds);
    mt_free(t->events);
    mt_free(t->slabs);
    *t = (mt_step_model){ 0 };
}
