#include "plan/step_time.h"

#include "base/mem.h"
#include "plan/costs.h"
#include "plan/slices.h"

#include <math.h>

enum { NONE = -1, SHOWN = 3, STEPS = 2, DRAWN_PIECES = 512 };

/* Compute tasks that end a step, and its sweeps except the last. */
typedef struct marks {
    int sweep[SHOWN - 1], end;
} marks;

/* A port of the sequencer whose actions become tasks. */
typedef struct drawing {
    const mt_plan *p;
    const mt_machine *m;
    mt_costs *costs;
    mt_queues *q;
    mt_step_drawing *shared;
    /* For each queue, the newest task of each other queue it has waited for, and which of these its next task must still get. */
    int after[MT_QUEUES][MT_QUEUES];
    unsigned fresh[MT_QUEUES];
    double rows, micros, passes;
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
} drawing;

/* -- tasks ----------------------------------------------------------------------------------------- */

/* Tasks of all queues are numbered together, so an event also records its queue. */
enum { QUEUE_BITS = 4 };
static int event_of(int task, mt_queue queue) { return task << QUEUE_BITS | (int)queue; }

/* The next task of `queue` starts after an event.  A queue is in order, so only the newest task of another queue counts. */
static void depend(drawing *d, mt_queue queue, int event)
{
    if (event < 0) return;
    int task = event >> QUEUE_BITS, other = event & ((1 << QUEUE_BITS) - 1);
    if (other == (int)queue || task <= d->after[queue][other]) return;
    d->after[queue][other] = task;
    d->fresh[queue] |= 1u << other;
}

static void step_time_add(drawing *d, mt_queue queue, double work)
{
    if (work <= 0) return; /* nothing to do: the next task waits instead */
    /* Write-backs and pieces happen once a step, however often the current sweep counts. */
    bool once = queue == MT_Q_BACK || (queue >= MT_Q_PIECE_IN && queue <= MT_Q_PIECE_BACK);
    if (d->counts) d->work[queue] += work * (once ? 1 : d->scale);
    int task = mt_queues_add(d->q, queue, work, NONE, NONE, NONE);
    for (int i = 0; task >= 0 && d->fresh[queue]; i++, d->fresh[queue] >>= 1)
        if (d->fresh[queue] & 1) mt_queues_after(d->q, task, d->after[queue][i]);
}

static int newest(const drawing *d, mt_queue queue) { return d->q->last[queue] < 0 ? NONE : event_of(d->q->last[queue], queue); }

/* The engine's thread waits: everything issued from now on starts after the event. */
static void host_wait(drawing *d, int event)
{
    for (mt_queue i = 0; i < MT_QUEUES; i++) depend(d, i, event);
}

/* -- the cost of an action -------------------------------------------------------------------------- */

static const mt_unit *unit_of(const drawing *d, int u) { return &d->p->model->units[u]; }
static double params(const drawing *d, int u) { return (double)unit_of(d, u)->layout->n_train; }

static double fetch_bytes(const drawing *d, int u)
{
    const mt_layout *l = unit_of(d, u)->layout;
    bool f32 = d->p->arithmetic.compute == MT_DTYPE_F32;
    const bool apart = d->p->place.units[u].home == MT_HOST || mt_plan_is_sliced(d->p, u);
    return apart ? 2.0 * (double)(l->n_elems + (f32 ? l->n_low : l->n_exact)) : 0;
}

/* With several lanes, the part that comes from the others. */
static double of_others(const drawing *d, double bytes) { return bytes * (1 - 1.0 / mt_plan_lanes(d->p)); }
static bool folds_by_peers(const drawing *d) { return mt_plan_lanes(d->p) > 1 && d->p->place.fold == MT_FOLD_PEERS; }

static double kept_bytes(const drawing *d, int layer)
{
    return d->rows * (double)mt_kept_row_bytes(mt_layer_kind_of(d->p->model, layer), d->p->arithmetic.compute,
                                               d->p->place.layers[layer].keep);
}

static double staged_bytes(const drawing *d, int u, unsigned parts)
{
    double moment = (double)mt_plan_moment_bytes(d->p) / 2, each = 0;
    if (parts & MT_PART_HI) each += 2;
    if (parts & MT_PART_LO) each += 2;
    if (parts & MT_PART_M) each += moment;
    if (parts & MT_PART_V) each += moment;
    return params(d, u) * each;
}

/* Bytes of a piece's state; on the way in, with its gradient. */
static double piece_bytes(const drawing *d, const mt_action *a)
{
    double each = 4 + (double)mt_plan_moment_bytes(d->p);
    if (a->kind == MT_DO_PIECE_IN) each += (double)mt_dtype_bytes(d->p->arithmetic.grad);
    return (double)a->n * each;
}

/* Layers that this one stands for. */
static double times_of(const drawing *d, int layer)
{
    return d->shared->stands_for && layer >= 0 ? d->shared->stands_for[layer] : 1;
}

static double backward_seconds(const drawing *d, int first, int end)
{
    double seconds = 0;
    for (int l = first; l < end; l++) {
        mt_keep keep = l == first ? d->p->place.layers[l].keep : MT_KEEP_NOTHING;
        seconds += times_of(d, l) * (mt_cost_redo(d->costs, l, keep, l + 1 < end, d->rows, d->micros) +
                                     mt_cost_backward(d->costs, l, d->rows, d->micros));
    }
    return seconds;
}

static double head_seconds(const drawing *d)
{
    return d->rows * (d->costs->head_forward + (d->p->job.train ? d->costs->head_backward : 0));
}

/* A private staging slot is filled in a run's first step.  Every later step finds the state of the previous update there. */
static bool is_filled(const drawing *d, int u) { return mt_plan_private_slot(d->p, u) >= 0; }

/* Seconds for a trained parameter's sums, once a step. */
static double finish_seconds(const drawing *d)
{
    return mt_cost_finish_grad(d->costs) + (mt_arithmetic_parts(&d->p->arithmetic) - 1) * mt_cost_fold(d->costs);
}

/* Work of an action for one layer, in the unit of its queue. */
static double work_of_one(const drawing *d, const mt_action *a)
{
    switch (a->kind) {
    case MT_DO_FETCH: return fetch_bytes(d, a->unit);
    case MT_DO_EMBED: return d->rows * d->costs->embed_forward;
    case MT_DO_FORWARD: return mt_cost_forward(d->costs, a->layer, d->rows, d->micros);
    case MT_DO_EXPERTS: return mt_cost_experts(d->costs, a->unit, false, d->rows, d->passes);
    case MT_DO_CLOSE: return mt_cost_close(d->costs, a->layer, d->rows);
    case MT_DO_HEAD: return head_seconds(d);
    case MT_DO_REOPEN: return mt_cost_reopen(d->costs, a->layer, d->rows);
    case MT_DO_EXPERTS_BACKWARD: return mt_cost_experts(d->costs, a->unit, true, d->rows, d->passes);
    case MT_DO_BACKWARD: return backward_seconds(d, a->layer, a->end);
    case MT_DO_EMBED_BACKWARD: return d->rows * d->costs->embed_backward;
    case MT_DO_KEEP_OUT:
    case MT_DO_KEEP_IN: return kept_bytes(d, a->layer);
    case MT_DO_SUM_IN:
    case MT_DO_SUM_OUT: return params(d, a->unit) * 4 * mt_plan_acc_count(d->p);
    case MT_DO_PART_OUT: return params(d, a->unit) * 4;
    case MT_DO_ROUND: return params(d, a->unit) * finish_seconds(d); /* cleared, folded and squared, too */
    case MT_DO_GRADIENT_OUT: return params(d, a->unit) * (double)mt_dtype_bytes(d->p->arithmetic.grad);
    case MT_DO_STAGE: return is_filled(d, a->unit) ? 0 : staged_bytes(d, a->unit, a->parts);
    case MT_DO_WRITE_BACK: return staged_bytes(d, a->unit, a->parts);
    case MT_DO_UPDATE_HOST: return (double)a->n / mt_plan_machines(d->p); /* each updates its slice */
    case MT_DO_UPDATE_DEVICE:
    case MT_DO_UPDATE_STAGED: return params(d, a->unit) * mt_cost_adam_device(d->costs);
    case MT_DO_PIECE_IN:
    case MT_DO_PIECE_BACK: return piece_bytes(d, a);
    case MT_DO_PIECE_UPDATE: return (double)a->n * mt_cost_adam_device(d->costs);
    case MT_DO_SWEEP:
    case MT_DO_ROUTES:
    case MT_DO_SUM_CLEAR:
    case MT_DO_NORM:
    case MT_DO_READ_SUMS:
    case MT_DO_COUNT: break;
    }
    return 0;
}

static double work_of(const drawing *d, const mt_action *a)
{
    const bool of_layer = a->kind == MT_DO_KEEP_OUT || a->kind == MT_DO_KEEP_IN; /* these name no unit */
    const double work = work_of_one(d, a);
    if (!d->shared->stands_for || a->kind == MT_DO_BACKWARD) return work; /* which may be of several layers */
    return work * times_of(d, of_layer ? a->layer : unit_of(d, a->unit)->layer);
}

/* -- the port -------------------------------------------------------------------------------------- */

static void begin_sweep(drawing *d, int sweep)
{
    d->skips = d->step == 0 && d->p->job.train; /* only that step's backward and later work affect the next step */
    if (sweep) d->at[d->step].sweep[sweep - 1] = d->q->last[MT_Q_COMPUTE];
    d->scale = sweep == 1 && d->shown == SHOWN ? (double)(d->n_sweeps - 2) : 1;
}

/* The workers add the sums of all lanes and round them.  Without clipping they also update; simulated as a part of each round. */
static void draw_fold(drawing *d, const mt_action *a)
{
    const int machines = mt_plan_machines(d->p);
    const double n = work_of(d, a) / 4, others = machines > 1 ? 4.0 : 0, /* its slice of every machine's sum */
        bytes = 4.0 * mt_plan_lanes(d->p) + 2 + others, adam = d->p->job.clip ? 0 : n / machines / mt_plan_rounds(d->p);
    if (a->share) return; /* with the unit's own */
    depend(d, MT_Q_ADAM, newest(d, MT_Q_OUT));
    if (!d->skips) step_time_add(d, MT_Q_ADAM, n * bytes / mt_machine_adam_bytes(d->p->arithmetic.moments) + adam);
    if (adam > 0) d->shared->updates[a->unit] = newest(d, MT_Q_ADAM);
}

/* A copy between devices for an action of `queue`: it starts after what the action waits for, and ends before later tasks of that
 * queue start. */
static void draw_between(drawing *d, mt_queue queue, double bytes)
{
    const double mark = 1; /* one byte, so that waiters on the queue find this task */
    if (d->skips) return;
    step_time_add(d, queue, mark);
    depend(d, MT_Q_PEER, newest(d, queue));
    step_time_add(d, MT_Q_PEER, bytes);
    depend(d, queue, newest(d, MT_Q_PEER));
    step_time_add(d, queue, mark);
}

/* An update of all slices; it includes the lane's own. */
static void draw_sliced_update(drawing *d, int u, double n)
{
    if (!d->skips) step_time_add(d, MT_Q_COMPUTE, n / mt_plan_lanes(d->p) * mt_cost_adam_device(d->costs));
    d->shared->updates[u] = newest(d, MT_Q_COMPUTE);
}

/* The lane's slice of gathered weights is copied after their update in host memory. */
static void draw_refresh(drawing *d, int u, double n)
{
    if (!mt_plan_is_mirrored(d->p, u)) return;
    const double each = mt_plan_mirrors(d->p, u, MT_STATE_LO) ? 4 : 2;
    depend(d, MT_Q_PIECE_IN, newest(d, MT_Q_ADAM));
    if (!d->skips) step_time_add(d, MT_Q_PIECE_IN, n * each / mt_plan_lanes(d->p));
    d->shared->updates[u] = newest(d, MT_Q_PIECE_IN);
}

/* Slices go to the lanes that add them.  Finished slices go to the host, unless the state is in slices too.  Simulated as a part
 * of each round, like updates without clipping. */
static void draw_fold_by_peers(drawing *d, const mt_action *a)
{
    const double n = work_of(d, a) / 4, each = n / mt_plan_rounds(d->p);
    const bool sliced = mt_plan_is_sliced(d->p, a->unit), early = !d->p->job.clip;
    draw_between(d, MT_Q_OUT, of_others(d, 4 * n));
    if (a->share) return; /* with the unit's own */
    if (!d->skips && !sliced)
        step_time_add(d, MT_Q_OUT, each * (double)mt_dtype_bytes(d->p->arithmetic.grad) / mt_plan_lanes(d->p));
    if (early && sliced) draw_sliced_update(d, a->unit, each);
    if (!early || sliced) return;
    depend(d, MT_Q_ADAM, newest(d, MT_Q_OUT));
    if (!d->skips) step_time_add(d, MT_Q_ADAM, each);
    d->shared->updates[a->unit] = newest(d, MT_Q_ADAM);
    draw_refresh(d, a->unit, each);
}

static mt_rc draw_issue(void *self, const mt_action *a, mt_err *err)
{
    drawing *d = self;
    const bool sliced = mt_plan_is_sliced(d->p, a->unit);
    (void)err;
    if (a->kind == MT_DO_SWEEP) begin_sweep(d, (int)a->sweep);
    if (a->kind == MT_DO_HEAD) d->skips = false;
    if (a->kind == MT_DO_FETCH) depend(d, MT_Q_IN, d->shared->updates[a->unit]); /* R1 */
    if (a->kind == MT_DO_PART_OUT && folds_by_peers(d)) return draw_fold_by_peers(d, a), MT_OK;
    if (a->kind == MT_DO_FETCH && mt_plan_is_gathered(d->p, a->unit))
        return draw_between(d, MT_Q_IN, of_others(d, work_of(d, a))), MT_OK;
    if (a->kind == MT_DO_UPDATE_HOST && sliced) return draw_sliced_update(d, a->unit, work_of(d, a)), MT_OK;
    if (!d->skips) step_time_add(d, mt_action_queue[a->kind], work_of(d, a));
    if (a->kind == MT_DO_ROUTES) depend(d, MT_Q_IN, newest(d, MT_Q_COMPUTE)); /* the host waits before it fetches more */
    if (a->kind == MT_DO_PART_OUT) draw_fold(d, a);
    if (a->kind != MT_DO_UPDATE_HOST) return MT_OK;
    d->shared->updates[a->unit] = newest(d, MT_Q_ADAM);
    draw_refresh(d, a->unit, work_of(d, a));
    if (a->to >= 0) d->shared->slabs[a->to] = newest(d, MT_Q_ADAM);
    return MT_OK;
}

static mt_rc draw_record(void *self, mt_queue queue, int event, mt_err *err)
{
    drawing *d = self;
    (void)err;
    d->shared->events[event] = newest(d, queue);
    return MT_OK;
}

static mt_rc draw_wait(void *self, mt_queue queue, int event, mt_err *err)
{
    drawing *d = self;
    (void)err;
    depend(d, queue, d->shared->events[event]);
    return MT_OK;
}

/* Treated as finished: the fetch will wait for the update in its queue. */
static bool draw_updated(void *self, int unit, int64_t version) { return (void)self, (void)unit, (void)version, true; }
static mt_rc draw_await_update(void *self, int unit, int64_t version, mt_err *err)
{
    return (void)self, (void)unit, (void)version, (void)err, MT_OK;
}

/* No snapshot is taken. */
static bool draw_locked(void *self, int unit) { return (void)self, (void)unit, false; }
static mt_rc draw_await_unlock(void *self, int unit, mt_err *err) { return (void)self, (void)unit, (void)err, MT_OK; }

static mt_rc draw_await_jobs(void *self, int64_t jobs, mt_err *err)
{
    drawing *d = self;
    (void)err;
    if (jobs > 0) host_wait(d, d->shared->slabs[(jobs - 1) % d->p->place.n_slabs]);
    return MT_OK;
}

/* The step is over; the next counts. */
static void end_step(drawing *d)
{
    d->at[d->step].end = d->q->last[MT_Q_COMPUTE];
    d->counts = true;
    d->scale = 1;
    if (++d->step == STEPS) return;
    step_time_add(d, MT_Q_COMPUTE, d->m->sync);
    host_wait(d, newest(d, MT_Q_COMPUTE));
}

static mt_rc draw_judge(void *self, bool all, bool *go, mt_err *err)
{
    drawing *d = self;
    (void)err;
    if (all && mt_plan_by_shares(d->p)) { /* the norm is known when everything is added */
        host_wait(d, newest(d, MT_Q_ADAM));
        if (folds_by_peers(d)) host_wait(d, newest(d, MT_Q_OUT));
    }
    if (all)
        end_step(d);
    else
        host_wait(d, newest(d, MT_Q_COMPUTE));
    *go = d->step < STEPS && !d->p->job.only_gradients; /* the last step's updates do not count */
    return MT_OK;
}

static const mt_port draws = { draw_issue,  draw_record,       draw_wait,       draw_updated, draw_await_update,
                               draw_locked, draw_await_unlock, draw_await_jobs, draw_judge };

/* -- the times ------------------------------------------------------------------------------------- */

static double bytes_in(const drawing *d) { return d->work[MT_Q_IN] + d->work[MT_Q_PIECE_IN]; }
static double bytes_out(const drawing *d) { return d->work[MT_Q_OUT] + d->work[MT_Q_BACK] + d->work[MT_Q_PIECE_BACK]; }

/* A lower bound for any order: the longest part, copies both ways at once, and all traffic through host memory. */
static double least_seconds(const drawing *d, double longest)
{
    const mt_machine *m = d->m;
    double in = bytes_in(d), out = bytes_out(d), both = fmin(in, out);
    double copies =
        both / fmin(m->copy_both, fmin(m->copy_in, m->copy_out)) + (in - both) / m->copy_in + (out - both) / m->copy_out;
    double memory = (mt_plan_lanes(d->p) * (in + out) + mt_machine_adam_bytes(d->p->arithmetic.moments) * d->work[MT_Q_ADAM]) /
                    m->host_bandwidth;
    return fmax(longest, fmax(copies, memory));
}

/* A thread gathers the next step's tokens while this one runs; measured: 14 to 26 ns a token, with samples of 28
 * (docs/notebook). */
#define DATA_SECONDS 20e-9

static void fill_parts(const drawing *d, mt_times *out)
{
    *out = (mt_times){ .compute = d->work[MT_Q_COMPUTE] + d->work[MT_Q_PIECE],
                       .copy_in = bytes_in(d) / d->m->copy_in,
                       .copy_out = bytes_out(d) / d->m->copy_out,
                       .adam_host = d->work[MT_Q_ADAM] / d->m->adam_host[d->p->arithmetic.moments],
                       .copy_peer = d->work[MT_Q_PEER] > 0 ? d->work[MT_Q_PEER] / d->m->peer : 0,
                       .data = DATA_SECONDS * (double)d->p->job.step_tokens };
    const struct {
        double seconds;
        const char *what;
    } parts[] = { { out->compute, "compute" },
                  { out->copy_in, "copies to the device" },
                  { out->copy_out, "copies from the device" },
                  { out->adam_host, "Adam on the host" },
                  { out->copy_peer, "copies between devices" },
                  { out->data, "data" } };
    double most = -1;
    for (size_t i = 0; i < MT_COUNT(parts); i++)
        if (parts[i].seconds > most) most = parts[i].seconds, out->bound = parts[i].what;
    out->step = least_seconds(d, most);
}

/* -- all of it ------------------------------------------------------------------------------------- */

/* Thousands of pieces are simulated as a few hundred larger ones: the traffic is the same, but waits for a piece are off by up to
 * a few percent of a step. */
static const mt_plan *with_large_pieces(mt_step_drawing *shared, const mt_plan *p)
{
    int64_t n = 0;
    for (int u = 0; u < p->model->n_units && p->has_pieces; u++) n += mt_plan_pieces(p, u);
    if (n <= DRAWN_PIECES || shared->every_piece) return p;
    shared->coarse = *p;
    shared->coarse.place.piece_elems *= (n + DRAWN_PIECES - 1) / DRAWN_PIECES;
    return &shared->coarse;
}

static drawing open_drawing(mt_step_drawing *shared, const mt_plan *p, const mt_machine *m)
{
    drawing d = { .p = p, .m = m, .costs = &shared->costs, .q = &shared->queues, .shared = shared, .scale = 1 };
    if (!shared->costs.m) mt_costs_fill(&shared->costs, p, m);
    const bool by_shares = mt_plan_by_shares(p);
    const int64_t parts_of_step = mt_arithmetic_parts(&p->arithmetic),
                  tokens = by_shares ? (p->job.step_tokens + parts_of_step - 1) / parts_of_step : p->job.step_tokens;
    d.splits = (tokens + p->place.sweep_tokens - 1) / p->place.sweep_tokens;
    d.n_sweeps = by_shares ? d.splits * mt_plan_rounds(p) : d.splits;
    d.shown = d.n_sweeps < SHOWN ? (int)d.n_sweeps : SHOWN;
    d.rows = (double)tokens / (double)d.splits;
    const double parts = by_shares ? 1 : ceil((double)parts_of_step / (double)d.n_sweeps); /* shares of a sweep */
    d.micros = parts * ceil(d.rows / parts / (double)p->arithmetic.micro_tokens);
    d.passes = parts * ceil(d.rows / parts / (double)mt_pass_rows_at_most(&p->arithmetic));
    return d;
}

/* For all of a layer's experts and the work around them; its units are alike. */
static double experts_seconds(const drawing *d, int layer, bool backward)
{
    const int n = mt_layer_expert_units(d->p->model, layer), first = mt_layer_first_unit(d->p->model, layer) + 1;
    if (!n) return 0;
    return n * mt_cost_experts(d->costs, first, backward, d->rows, d->passes) +
           (backward ? mt_cost_reopen(d->costs, layer, d->rows) : mt_cost_close(d->costs, layer, d->rows));
}

/* Total seconds of forward and backward of a sweep. */
static double sweep_seconds(const drawing *d)
{
    const mt_plan *p = d->p;
    int L = (int)p->model->config->L, lowest = mt_model_lowest_layer(p->model);
    double seconds = d->rows * d->costs->embed_forward + head_seconds(d);
    if (lowest < L) lowest = mt_plan_segment_start(p, lowest);
    for (int l = 0; l < L; l++) {
        const mt_keep keep = p->place.layers[l].keep;
        bool finish = l + 1 < L && p->place.layers[l + 1].keep == MT_KEEP_NOTHING;
        seconds += times_of(d, l) * (mt_cost_forward(d->costs, l, d->rows, d->micros) + experts_seconds(d, l, false));
        if (p->job.train && l >= lowest)
            seconds += times_of(d, l) * (mt_cost_redo(d->costs, l, keep, finish, d->rows, d->micros) +
                                         mt_cost_backward(d->costs, l, d->rows, d->micros) + experts_seconds(d, l, true));
    }
    return seconds;
}

double mt_step_compute(mt_step_drawing *shared, const mt_plan *p, const mt_machine *m)
{
    drawing d = open_drawing(shared, p, m);
    return (double)d.n_sweeps * sweep_seconds(&d);
}

/* The same number of elements ahead as in the engine, whose pieces are smaller than the simulated ones and span more layers. */
static int64_t early_pieces(const drawing *d)
{
    const mt_model *m = d->p->model;
    double layers = 0, L = (double)m->config->L, times = (double)mt_max_i64(d->p->place.piece_elems, 1) / (double)d->piece_elems;
    for (int l = 0; l < m->config->L; l++) layers += times_of(d, l);
    return mt_max_i64((int64_t)(MT_PIECES_EARLY * L / (layers * times)), 1);
}

static mt_rc draw_steps(drawing *d, mt_err *err)
{
    mt_step_drawing *s = d->shared;
    mt_mode mode = d->p->job.cache_slots ? MT_MODE_CONTINUE : MT_MODE_EVALUATE;
    if (d->p->job.train) mode = MT_MODE_TRAIN;
    mt_queues_clear(d->q);
    mt_sequence_open(s->sequence, d->p, &draws, d);
    mt_sequence_limit_pieces(s->sequence, early_pieces(d));
    size_t n = (size_t)mt_sequence_events(s->sequence), slabs = (size_t)d->p->place.n_slabs;
    MT_TRY(mt_grow(&s->events, &s->cap_events, n, sizeof *s->events, err));
    MT_TRY(mt_grow(&s->slabs, &s->cap_slabs, slabs, sizeof *s->slabs, err));
    for (size_t i = 0; i < n; i++) s->events[i] = NONE;
    for (size_t i = 0; i < slabs; i++) s->slabs[i] = NONE;
    for (int u = 0; u < d->p->model->n_units; u++) s->updates[u] = NONE;
    for (int i = 0; i < MT_QUEUES * MT_QUEUES; i++) d->after[i / MT_QUEUES][i % MT_QUEUES] = NONE;
    for (int i = 0; i < STEPS; i++) {
        const int sweeps = i + 1 < STEPS ? 1 : d->shown;
        for (int k = 0; k < sweeps; k++) d->ends_part[k] = k + 1 == sweeps || (k + 1) % d->splits == 0;
        mt_sequence_parts(s->sequence, mt_plan_by_shares(d->p) ? d->ends_part : NULL);
        MT_TRY(mt_sequence_run(s->sequence, mode, sweeps, err));
        if (mode == MT_MODE_CONTINUE) end_step(d); /* nothing is reported there */
    }
    return MT_OK;
}

mt_rc mt_step_time(mt_step_drawing *shared, const mt_plan *p, const mt_machine *m, double give_up, mt_times *out, bool *simulated,
                   mt_err *err)
{
    drawing d = open_drawing(shared, with_large_pieces(shared, p), m);
    d.piece_elems = mt_max_i64(p->place.piece_elems, 1);
    double compute = (double)d.n_sweeps * sweep_seconds(&d);
    *out = (mt_times){ .compute = compute, .step = compute, .bound = "compute" };
    *simulated = compute < give_up;
    if (!*simulated) return MT_OK;
    MT_TRY(draw_steps(&d, err));
    fill_parts(&d, out);
    *simulated = out->step < give_up;
    if (!*simulated) return MT_OK;
    if (!mt_queues_run(d.q, m, p->arithmetic.moments))
        return mt_fail(err, d.q->failed ? MT_ENOMEM : MT_EINTERNAL,
                       d.q->failed ? "no host memory to time a plan"
                                   : "a plan whose step waits for itself: a bug, please report it");
    const mt_task *t = d.q->tasks;
    const marks *last = &d.at[STEPS - 1];
    double step = t[last->end].end - t[d.at[0].end].end;
    if (d.n_sweeps > SHOWN) step += (double)(d.n_sweeps - SHOWN) * (t[last->sweep[1]].end - t[last->sweep[0]].end);
    out->step = fmax(step, out->step); /* two steps leave copies pending that a hundred steps would have to wait for */
    return MT_OK;
}

mt_rc mt_step_drawing_init(mt_step_drawing *d, const mt_model *model, mt_err *err)
{
    *d = (mt_step_drawing){ .updates = mt_calloc((size_t)model->n_units, sizeof *d->updates),
                            .costs.kinds = mt_calloc((size_t)model->n_kinds, sizeof *d->costs.kinds) };
    mt_rc rc = d->updates && d->costs.kinds ? mt_sequence_create(&d->sequence, model, err) : mt_no_memory(err, "timing a plan");
    if (rc) mt_step_drawing_free(d);
    return rc;
}

void mt_step_drawing_free(mt_step_drawing *d)
{
    mt_queues_free(&d->queues);
    mt_sequence_free(d->sequence);
    mt_free(d->updates);
    mt_free(d->costs.kinds);
    mt_free(d->events);
    mt_free(d->slabs);
    *d = (mt_step_drawing){ 0 };
}
