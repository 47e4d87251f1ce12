#include "plan/step_time.h"

#include "base/mem.h"
#include "plan/costs.h"

#include <math.h>
#include <string.h>

enum { NONE = -1, SHOWN = 3, STEPS = 2 };

/* Numbers of the latest tasks of each kind. */
struct unit_drawn {
    int updated;         /* fetching may begin */
    int fetched;         /* resident: the newest weights are on their way */
    bool current;        /* resident: they were fetched, or updated where they lie */
    int staged, written; /* written: all of it */
    bool ahead;          /* staged into a slot before the norm was known */
    bool stays;          /* its state stays in a slot of its own */
    int kept_free;       /* what it borrowed of a layer's kept memory is back */
    int borrowers;       /* its layer's: a list of 2 * unit + (which of its lenders); -1: none */
    int next_borrower[2];
    int landed;   /* gradient on the host */
    int acc_saved;
    int kept_saved;
    int keep_slot; /* its layer's: what is kept in host memory passes through; -1: none */
};

/* A group's slots, the one used longest ago first. */
struct ring_drawn {
    int n, *unit, *fetched, *freed;
    int out_turn, n_outs, *out_free;
    int acc_free; /* sums that pass through host memory share one slot */
};

typedef struct drawing {
    const mt_plan *p;
    const mt_machine *m;
    mt_costs *costs;
    mt_queues *q;
    struct unit_drawn *units;
    struct ring_drawn *rings;
    int *keep_free, *keep_layer; /* slots kept activations pass through */
    int *slab_done;              /* the update that frees a slab */
    int n_slab_jobs;
    int norm;                   /* the step before is known to be finite */
    int n_late, late, returned; /* write-backs that keep pace with the step: how many, the next unit, and how many are drawn */
    int visit, visits;
    double rows, micros;
    double scale;           /* how often the sweep at hand happens */
    double work[MT_QUEUES]; /* of one step */
    bool counts;            /* this step's work is what is asked for */
} drawing;

static int add(drawing *d, mt_queue queue, double work, int a, int b, int c)
{
    if (d->counts) d->work[queue] += work * d->scale;
    return mt_queues_add(d->q, queue, work, a, b, c);
}

static const mt_unit *unit_of(const drawing *d, int u) { return &d->p->model->units[u]; }
static int layer_unit(const drawing *d, int layer) { return mt_layer_first_unit(d->p->model, layer); }
static double params(const drawing *d, int u) { return (double)unit_of(d, u)->layout->n_train; }
static const mt_unit_place *place_of(const drawing *d, int u) { return &d->p->place.units[u]; }
static bool is_f32(const drawing *d) { return d->p->arithmetic.compute == MT_DTYPE_F32; }
static double grad_bytes(const drawing *d) { return (double)mt_dtype_bytes(d->p->arithmetic.grad); }
static bool acc_via_host(const drawing *d) { return mt_plan_many_sweeps(d->p) && d->p->place.accumulators == MT_HOST; }

/* -- weights --------------------------------------------------------------------------------------- */

static double fetch_bytes(const drawing *d, int u)
{
    const mt_layout *l = unit_of(d, u)->layout;
    return 2.0 * (double)(l->n_elems + (is_f32(d) ? l->n_low : l->n_exact));
}

/* The task that brings unit u's weights, or NONE when they are there. */
static int acquire(drawing *d, int u)
{
    struct unit_drawn *s = &d->units[u];
    if (place_of(d, u)->home == MT_DEVICE) return NONE;
    if (place_of(d, u)->resident) {
        if (!s->current) s->fetched = add(d, MT_Q_IN, fetch_bytes(d, u), s->updated, NONE, NONE);
        s->current = true;
        return s->fetched;
    }
    struct ring_drawn *r = &d->rings[unit_of(d, u)->group];
    int at = 0;
    while (at < r->n && r->unit[at] != u) at++;
    bool held = at < r->n;
    if (!held) at = 0;
    int fetched = held ? r->fetched[at] : add(d, MT_Q_IN, fetch_bytes(d, u), s->updated, r->freed[at], NONE);
    for (int i = at; i + 1 < r->n; i++)
        r->unit[i] = r->unit[i + 1], r->fetched[i] = r->fetched[i + 1], r->freed[i] = r->freed[i + 1];
    r->unit[r->n - 1] = u;
    r->fetched[r->n - 1] = fetched;
    return fetched;
}

static void release(drawing *d, int u, int reader)
{
    struct ring_drawn *r = &d->rings[unit_of(d, u)->group];
    for (int i = 0; i < r->n; i++)
        if (r->unit[i] == u) r->freed[i] = reader;
}

/* -- kept activations ------------------------------------------------------------------------------ */

static int keep_slot(const drawing *d, int layer)
{
    return layer < d->p->model->config->L ? d->units[layer_unit(d, layer)].keep_slot : -1;
}

static double kept_bytes(const drawing *d, int layer)
{
    return d->rows * (double)mt_kept_row_bytes(mt_layer_kind_of(d->p->model, layer), d->p->arithmetic.compute,
                                               d->p->place.layers[layer].keep);
}

static int next_loan(const drawing *d, int loan) { return d->units[loan / 2].next_borrower[loan % 2]; }

/* What must be done before a layer's kept memory is written. */
static int keep_open(drawing *d, int layer)
{
    if (layer >= d->p->model->config->L) return NONE;
    int u = layer_unit(d, layer), slot = keep_slot(d, layer);
    int behind = NONE;
    for (int loan = d->units[u].borrowers; loan >= 0; loan = next_loan(d, loan))
        if (d->units[loan / 2].kept_free > behind) behind = d->units[loan / 2].kept_free; /* a queue is in order */
    if (slot < 0) return behind;
    d->keep_layer[slot] = layer;
    return d->keep_free[slot];
}

static void keep_close(drawing *d, int layer, int computed)
{
    int slot = keep_slot(d, layer);
    if (slot >= 0)
        d->keep_free[slot] = d->units[layer_unit(d, layer)].kept_saved =
            add(d, MT_Q_OUT, kept_bytes(d, layer), computed, NONE, NONE);
}

/* The task that brings a layer's kept activations back, or what still holds them. */
static int keep_fetch(drawing *d, int layer)
{
    int slot = layer < 0 ? -1 : keep_slot(d, layer);
    if (slot < 0 || d->keep_layer[slot] == layer) return slot < 0 ? NONE : d->keep_free[slot];
    d->keep_layer[slot] = layer;
    return d->keep_free[slot] =
               add(d, MT_Q_IN, kept_bytes(d, layer), d->keep_free[slot], d->units[layer_unit(d, layer)].kept_saved, NONE);
}

static void keep_release(drawing *d, int layer, int computed)
{
    int slot = keep_slot(d, layer);
    if (slot < 0) return;
    d->keep_layer[slot] = -1;
    d->keep_free[slot] = computed;
}

/* -- updates --------------------------------------------------------------------------------------- */

static double state_bytes(const drawing *d) { return 4.0 + (double)mt_plan_moment_bytes(d->p); }
static bool updated_in_place(const drawing *d, int u) { return place_of(d, u)->resident && !is_f32(d); }

static double moment(const drawing *d) { return (double)mt_plan_moment_bytes(d->p) / 2; }
/* Bytes a parameter of what lies in a lender's memory, and of the accumulator's share: hi in place is read there, and written
 * back with the rest. */
static double first_bytes(const drawing *d, int u) { return moment(d) + (updated_in_place(d, u) ? 2 : 4); }

static void stage_first(drawing *d, int u, int behind)
{
    d->units[u].staged = add(d, MT_Q_IN, params(d, u) * first_bytes(d, u), behind, d->units[u].written, NONE);
}

static void stage_rest(drawing *d, int u, int behind)
{
    d->units[u].staged = add(d, MT_Q_IN, params(d, u) * moment(d), behind, d->units[u].written, NONE);
}

/* As the engine does it: updates in the order in which state arrives, then back what forward needs, then what backward needs. */
static void update_staged(drawing *d, int u, int behind)
{
    struct unit_drawn *s = &d->units[u];
    if (!place_of(d, u)->borrows && !s->ahead && !s->stays) stage_first(d, u, behind), stage_rest(d, u, behind);
    s->ahead = false;
    s->updated =
        add(d, MT_Q_COMPUTE, params(d, u) * mt_cost_adam_device(d->costs), s->staged, behind, s->stays ? s->written : NONE);
    s->current = updated_in_place(d, u);
    s->fetched = NONE;
}

static void write_back_first(drawing *d, int u, int behind)
{
    d->units[u].kept_free = add(d, MT_Q_BACK, params(d, u) * first_bytes(d, u), d->units[u].updated, behind, NONE);
}

static void write_back_rest(drawing *d, int u, int behind)
{
    d->units[u].updated = d->units[u].written =
        add(d, MT_Q_BACK, params(d, u) * (state_bytes(d) - first_bytes(d, u)), d->units[u].updated, behind, NONE);
}

static void write_back(drawing *d, int u, int behind)
{
    write_back_first(d, u, behind);
    write_back_rest(d, u, behind);
}

/* Into slots, as many as there are, once everything before is queued. */
static void stage_ahead(drawing *d)
{
    int slots = d->p->place.stage_slots;
    for (int u = 0; u < d->p->model->n_units && slots > 0; u++) {
        if (place_of(d, u)->site != MT_SITE_STAGED || place_of(d, u)->borrows || params(d, u) == 0 || d->units[u].stays) continue;
        stage_first(d, u, NONE);
        stage_rest(d, u, NONE);
        d->units[u].ahead = true;
        slots--;
    }
}

/* Behind the write-backs that free memory. */
static bool returns_late(const drawing *d, int u) { return d->units[u].stays && updated_in_place(d, u) && d->p->job.clip; }

static bool by_loan(const drawing *d, int u) { return place_of(d, u)->borrows && params(d, u) > 0; }

static void update_all_borrowed(drawing *d, int behind)
{
    int n = d->p->model->n_units;
    for (int i = 1; i <= n; i++)
        if (by_loan(d, i % n)) update_staged(d, i % n, behind);
    for (int u = 0; u < n; u++)
        if (by_loan(d, u)) write_back_first(d, u, NONE);
    if (by_loan(d, d->p->model->head)) write_back_rest(d, d->p->model->head, NONE);
    for (int u = n - 1; u >= 0; u--)
        if (by_loan(d, u) && u != d->p->model->head) write_back_rest(d, u, NONE);
    for (int u = 0; u < n && !d->n_late; u++)
        if (returns_late(d, u)) write_back(d, u, NONE);
    d->late = d->returned = d->visit = 0;
}

/* Where nobody borrows: behind a visit's compute, as many as are due by then. */
static void pace(drawing *d, int computed)
{
    int due = (d->n_late * ++d->visit + d->visits - 1) / d->visits;
    double scale = d->scale;
    d->scale = 1; /* once a step, however often the sweep happens */
    for (; d->returned < due; d->late++) {
        if (!returns_late(d, d->late)) continue;
        write_back(d, d->late, computed);
        d->returned++;
    }
    d->scale = scale;
}

static void update(drawing *d, int u, int behind)
{
    struct unit_drawn *s = &d->units[u];
    double n = params(d, u), device = n * mt_cost_adam_device(d->costs);
    switch (place_of(d, u)->site) {
    case MT_SITE_HOST:
        s->updated = add(d, MT_Q_ADAM, n, s->landed, behind, NONE);
        s->current = false;
        break;
    case MT_SITE_DEVICE: s->updated = add(d, MT_Q_COMPUTE, device, behind, NONE, NONE); break;
    case MT_SITE_STAGED:
        update_staged(d, u, behind);
        if (returns_late(d, u)) break;
        write_back(d, u, NONE);
        break;
    }
}

/* -- gradients ------------------------------------------------------------------------------------- */

/* Behind which task the unit's sums may be added to. */
static int grads_begin(drawing *d, int u, bool first_sweep)
{
    int slot = d->rings[unit_of(d, u)->group].acc_free;
    if (!acc_via_host(d)) return first_sweep && place_of(d, u)->borrows ? d->units[u].written : NONE;
    return first_sweep ? slot : add(d, MT_Q_IN, params(d, u) * 4, d->units[u].acc_saved, slot, NONE);
}

/* The finished gradient goes where its update is. */
static void grads_finish(drawing *d, int u, int computed)
{
    struct unit_drawn *s = &d->units[u];
    double n = params(d, u), round = n * mt_cost_finish_grad(d->costs);
    bool clip = d->p->job.clip;
    if (place_of(d, u)->site != MT_SITE_HOST) {
        int rounded = add(d, MT_Q_COMPUTE, round, computed, NONE, NONE);
        if (place_of(d, u)->borrows) stage_rest(d, u, rounded);
        if (!clip) update(d, u, rounded);
        return;
    }
    struct ring_drawn *r = &d->rings[unit_of(d, u)->group];
    int *slot = &r->out_free[r->out_turn], *slab = clip ? NULL : &d->slab_done[d->n_slab_jobs++ % d->p->place.n_slabs];
    r->out_turn = (r->out_turn + 1) % r->n_outs;
    int rounded = add(d, MT_Q_COMPUTE, round, computed, *slot, NONE);
    *slot = s->landed = add(d, MT_Q_OUT, n * grad_bytes(d), rounded, slab ? *slab : NONE, NONE);
    if (clip) return;
    update(d, u, NONE);
    *slab = s->updated;
}

static void grads_end(drawing *d, int u, int computed, bool last_sweep)
{
    if (params(d, u) == 0) return;
    if (last_sweep)
        grads_finish(d, u, computed);
    else if (acc_via_host(d))
        d->rings[unit_of(d, u)->group].acc_free = d->units[u].acc_saved =
            add(d, MT_Q_OUT, params(d, u) * 4, computed, NONE, NONE);
}

/* -- a sweep --------------------------------------------------------------------------------------- */

static void forward(drawing *d)
{
    const mt_config *c = d->p->model->config;
    int opened = d->p->job.train ? keep_open(d, 0) : NONE;
    int embedded = add(d, MT_Q_COMPUTE, d->rows * d->costs->embed_forward, acquire(d, d->p->model->embed), opened, NONE);
    release(d, d->p->model->embed, embedded);
    pace(d, embedded);
    for (int l = 0; l < c->L; l++) {
        int fetched = acquire(d, layer_unit(d, l));
        opened = d->p->job.train ? keep_open(d, l + 1) : NONE;
        int computed = add(d, MT_Q_COMPUTE, mt_cost_forward(d->costs, l, d->rows, d->micros), fetched, opened, NONE);
        if (d->p->job.train) keep_close(d, l, computed);
        release(d, layer_unit(d, l), computed);
        pace(d, computed);
    }
}

static void head(drawing *d, bool first, bool last)
{
    int u = d->p->model->head;
    bool train = d->p->job.train;
    int sums = train ? grads_begin(d, u, first) : NONE;
    double seconds = d->rows * (d->costs->head_forward + (train ? d->costs->head_backward : 0));
    int computed = add(d, MT_Q_COMPUTE, seconds, acquire(d, u), sums, NONE);
    release(d, u, computed);
    pace(d, computed);
    if (train && !mt_unit_is_tied(d->p->model, u)) grads_end(d, u, computed, last);
}

static void backward_segment(drawing *d, int from, int end, bool first, bool last)
{
    int fetched = NONE, sums = NONE;
    double seconds = 0;
    for (int l = from; l < end; l++) {
        int task = acquire(d, layer_unit(d, l)), sum = grads_begin(d, layer_unit(d, l), first);
        mt_keep keep = l == from ? d->p->place.layers[l].keep : MT_KEEP_NOTHING;
        fetched = task > fetched ? task : fetched; /* a queue is in order: the newest is the last */
        sums = sum > sums ? sum : sums;
        seconds +=
            mt_cost_redo(d->costs, l, keep, l + 1 < end, d->rows, d->micros) + mt_cost_backward(d->costs, l, d->rows, d->micros);
    }
    int kept = keep_fetch(d, from);
    if (from > 0) keep_fetch(d, mt_plan_segment_start(d->p, from - 1));
    int computed = add(d, MT_Q_COMPUTE, seconds, fetched, sums, kept);
    keep_release(d, from, computed);
    for (int l = from; l < end; l++) release(d, layer_unit(d, l), computed);
    for (int l = from; l < end; l++) pace(d, computed);
    /* If a unit has two lenders, the one whose backward is later counts. */
    for (int loan = d->units[layer_unit(d, from)].borrowers; last && loan >= 0; loan = next_loan(d, loan))
        if (loan % 2) stage_first(d, loan / 2, computed);
    for (int l = end - 1; l >= from; l--) grads_end(d, layer_unit(d, l), computed, last);
}

/* Where backward ends: below are frozen layers. */
static int lowest_layer(const drawing *d)
{
    const mt_model *m = d->p->model;
    return mt_plan_segment_start(d->p, (int)mt_min_i64(mt_model_lowest_layer(m), m->config->L - 1));
}

static void backward(drawing *d, bool first, bool last)
{
    for (int lowest = lowest_layer(d), end = (int)d->p->model->config->L; end > lowest;) {
        int from = mt_plan_segment_start(d->p, end - 1);
        backward_segment(d, from, end, first, last);
        end = from;
    }
    int u = d->p->model->embed;
    if (params(d, u) == 0) return;
    int computed = add(d, MT_Q_COMPUTE, d->rows * d->costs->embed_backward, grads_begin(d, u, first), NONE, NONE);
    grads_end(d, u, computed, last);
}

/* -- a step ---------------------------------------------------------------------------------------- */

/* The task at which the first sweep ends, and the one in the middle. */
typedef struct marks {
    int first, middle, end;
} marks;

static void begin_step(drawing *d)
{
    for (int g = 0; g < d->p->model->n_groups; g++)
        for (int i = 0; i < d->rings[g].n; i++) d->rings[g].unit[i] = NONE; /* what the slots hold is out of date */
    d->scale = 1;
    d->norm = add(d, MT_Q_COMPUTE, d->m->sync, NONE, NONE, NONE);
    if (!d->p->job.train || !d->p->job.clip) return;
    for (int u = 0; u < d->p->model->n_units; u++)
        if (params(d, u) > 0 && !place_of(d, u)->borrows) update(d, u, d->norm);
    update_all_borrowed(d, d->norm);
}

static marks draw_step(drawing *d, int64_t n_sweeps)
{
    int shown = n_sweeps < SHOWN ? (int)n_sweeps : SHOWN;
    int ends[SHOWN] = { NONE, NONE, NONE };
    d->visits = shown * (2 * (int)d->p->model->config->L + 2);
    begin_step(d);
    for (int s = 0; s < shown; s++) {
        d->scale = s == 1 && shown == SHOWN ? (double)(n_sweeps - 2) : 1;
        forward(d);
        head(d, s == 0, s == shown - 1);
        if (d->p->job.train) backward(d, s == 0, s == shown - 1);
        ends[s] = d->q->last[MT_Q_COMPUTE];
    }
    if (d->p->job.train && d->p->job.clip) stage_ahead(d);
    return (marks){ ends[0], ends[1], ends[shown - 1] };
}

/* At the head of its lenders' lists; once, where both are the same. */
static void list_loans(drawing *d, int u)
{
    const mt_unit_place *at = place_of(d, u);
    for (int i = at->borrows && at->lender[0] == at->lender[1] ? 1 : 0; i < 2 && at->borrows; i++) {
        struct unit_drawn *lender = &d->units[layer_unit(d, at->lender[i])];
        d->units[u].next_borrower[i] = lender->borrowers;
        lender->borrowers = 2 * u + i;
    }
}

static void open_units(drawing *d)
{
    const mt_placement *q = &d->p->place;
    for (int u = 0, n = 0; u < d->p->model->n_units; u++) {
        bool in_place = updated_in_place(d, u) && q->units[u].site != MT_SITE_HOST;
        d->units[u] = (struct unit_drawn){ .updated = NONE,
                                           .fetched = NONE,
                                           .current = in_place,
                                           .staged = NONE,
                                           .written = NONE,
                                           .kept_free = NONE,
                                           .borrowers = -1,
                                           .landed = NONE,
                                           .acc_saved = NONE,
                                           .kept_saved = NONE,
                                           .keep_slot = -1 };
        d->units[u].stays = mt_plan_own_slot(d->p, u) >= 0;
        const mt_layer_place *at = unit_of(d, u)->kind == MT_UNIT_LAYER ? &q->layers[unit_of(d, u)->layer] : NULL;
        if (at && d->p->job.train && at->place == MT_HOST && at->keep != MT_KEEP_NOTHING)
            d->units[u].keep_slot = n++ % q->keep_slots;
    }
    bool any = false;
    for (int u = 0; u < d->p->model->n_units; u++) {
        any |= q->units[u].borrows;
        d->n_late += returns_late(d, u);
    }
    for (int u = d->p->model->n_units - 1; u >= 0; u--) list_loans(d, u);
    if (any) d->n_late = 0; /* all at once, behind what frees memory */
}

static int *take(int **slots, int n)
{
    int *here = *slots;
    *slots += n;
    return here;
}

static mt_rc open_rings(drawing *d, mt_step_drawing *shared, mt_err *err)
{
    const mt_placement *q = &d->p->place;
    size_t all = 2 * (size_t)q->keep_slots + (size_t)q->n_slabs;
    for (int g = 0; g < d->p->model->n_groups; g++) {
        const mt_group_place *at = &q->groups[g];
        struct ring_drawn *r = &d->rings[g];
        *r = (struct ring_drawn){ .n = (int)mt_min_i64(at->streamed, at->ring_slots),
                                  .n_outs = (int)mt_min_i64(at->hosted, at->out_slots),
                                  .acc_free = NONE };
        all += 3 * (size_t)r->n + (size_t)r->n_outs;
    }
    MT_TRY(mt_grow(&shared->slots, &shared->cap_slots, all + 1, sizeof *shared->slots, err));
    for (size_t i = 0; i < all; i++) shared->slots[i] = NONE;
    int *next = shared->slots;
    for (struct ring_drawn *r = d->rings; r < d->rings + d->p->model->n_groups; r++) {
        r->unit = take(&next, r->n);
        r->fetched = take(&next, r->n);
        r->freed = take(&next, r->n);
        r->out_free = take(&next, r->n_outs);
    }
    d->keep_free = take(&next, q->keep_slots);
    d->keep_layer = take(&next, q->keep_slots);
    d->slab_done = take(&next, q->n_slabs);
    return MT_OK;
}

/* What no order of things can beat: the longest part, copies both ways at once, and all that passes through host memory. */
static double least_seconds(const drawing *d, double longest)
{
    const mt_machine *m = d->m;
    double in = d->work[MT_Q_IN], out = d->work[MT_Q_OUT] + d->work[MT_Q_BACK], both = fmin(in, out);
    double copies =
        both / fmin(m->copy_both, fmin(m->copy_in, m->copy_out)) + (in - both) / m->copy_in + (out - both) / m->copy_out;
    double memory = (in + out + mt_machine_adam_bytes(d->p->arithmetic.moments) * d->work[MT_Q_ADAM]) / m->host_bandwidth;
    return fmax(longest, fmax(copies, memory));
}

/* A thread gathers the next step's tokens while this one runs; measured: 14 to 26 ns a token, with samples of 28
 * (docs/benchmarks.md). */
#define DATA_SECONDS 20e-9

static void fill_parts(const drawing *d, mt_times *out)
{
    *out = (mt_times){ .compute = d->work[MT_Q_COMPUTE],
                       .copy_in = d->work[MT_Q_IN] / d->m->copy_in,
                       .copy_out = (d->work[MT_Q_OUT] + d->work[MT_Q_BACK]) / d->m->copy_out,
                       .adam_host = d->work[MT_Q_ADAM] / d->m->adam_host[d->p->arithmetic.moments],
                       .data = DATA_SECONDS * (double)d->p->job.step_tokens };
    const struct {
        double seconds;
        const char *what;
    } parts[] = { { out->compute, "compute" },
                  { out->copy_in, "copies to the device" },
                  { out->copy_out, "copies from the device" },
                  { out->adam_host, "Adam on the host" },
                  { out->data, "data" } };
    double most = -1;
    for (size_t i = 0; i < MT_COUNT(parts); i++)
        if (parts[i].seconds > most) most = parts[i].seconds, out->bound = parts[i].what;
    out->step = least_seconds(d, most);
}

/* -- all of it ------------------------------------------------------------------------------------- */

static drawing open_drawing(mt_step_drawing *shared, const mt_plan *p, const mt_machine *m, int64_t *n_sweeps)
{
    drawing d = { .p = p, .m = m, .costs = &shared->costs, .q = &shared->queues, .units = shared->units, .rings = shared->rings };
    if (!shared->costs.m) mt_costs_fill(&shared->costs, p, m);
    *n_sweeps = (p->job.step_tokens + p->place.sweep_tokens - 1) / p->place.sweep_tokens;
    d.rows = (double)p->job.step_tokens / (double)*n_sweeps;
    d.micros = ceil(d.rows / (double)p->arithmetic.micro_tokens);
    return d;
}

/* What forward(), head() and backward() will add up to. */
static double sweep_seconds(drawing *d)
{
    const mt_plan *p = d->p;
    int L = (int)p->model->config->L, lowest = lowest_layer(d);
    bool train = p->job.train;
    double seconds = d->rows * (d->costs->embed_forward + d->costs->head_forward + (train ? d->costs->head_backward : 0));
    for (int l = 0; l < L; l++) {
        const mt_keep keep = p->place.layers[l].keep;
        bool finish = l + 1 < L && p->place.layers[l + 1].keep == MT_KEEP_NOTHING;
        seconds += mt_cost_forward(d->costs, l, d->rows, d->micros);
        if (train && l >= lowest)
            seconds +=
                mt_cost_redo(d->costs, l, keep, finish, d->rows, d->micros) + mt_cost_backward(d->costs, l, d->rows, d->micros);
    }
    return seconds;
}

double mt_step_compute(mt_step_drawing *shared, const mt_plan *p, const mt_machine *m)
{
    int64_t n_sweeps;
    drawing d = open_drawing(shared, p, m, &n_sweeps);
    return (double)n_sweeps * sweep_seconds(&d);
}

mt_rc mt_step_time(mt_step_drawing *shared, const mt_plan *p, const mt_machine *m, double give_up, mt_times *out, bool *simulated,
                   mt_err *err)
{
    int64_t n_sweeps;
    drawing d = open_drawing(shared, p, m, &n_sweeps);
    double compute = (double)n_sweeps * sweep_seconds(&d);
    *out = (mt_times){ .compute = compute, .step = compute, .bound = "compute" };
    *simulated = compute < give_up;
    if (!*simulated) return MT_OK;
    marks at[STEPS];
    mt_queues_clear(d.q);
    open_units(&d);
    MT_TRY(open_rings(&d, shared, err));
    for (int i = 0; i < STEPS; i++) {
        d.counts = i == STEPS - 1;
        at[i] = draw_step(&d, n_sweeps);
    }
    fill_parts(&d, out);
    *simulated = out->step < give_up;
    if (!*simulated) return MT_OK;
    if (!mt_queues_run(d.q, m, p->arithmetic.moments))
        return mt_fail(err, d.q->failed ? MT_ENOMEM : MT_EINTERNAL,
                       d.q->failed ? "no host memory to time a plan"
                                   : "a plan whose step waits for itself: a bug, please report it");
    const mt_task *t = d.q->tasks;
    const marks *last = &at[STEPS - 1];
    double step = t[last->end].end - t[at[0].end].end;
    if (n_sweeps > SHOWN) step += (double)(n_sweeps - SHOWN) * (t[last->middle].end - t[last->first].end);
    out->step = fmax(step, out->step); /* two steps leave copies behind that a hundred would have to wait for */
    return MT_OK;
}

mt_rc mt_step_drawing_init(mt_step_drawing *d, const mt_model *model, mt_err *err)
{
    *d = (mt_step_drawing){ .units = mt_calloc((size_t)model->n_units, sizeof *d->units),
                            .rings = mt_calloc((size_t)model->n_groups, sizeof *d->rings),
                            .costs.kinds = mt_calloc((size_t)model->n_kinds, sizeof *d->costs.kinds) };
    if (d->units && d->rings && d->costs.kinds) return MT_OK;
    mt_step_drawing_free(d);
    return mt_fail(err, MT_ENOMEM, "no host memory to time a plan");
}

void mt_step_drawing_free(mt_step_drawing *d)
{
    mt_queues_free(&d->queues);
    mt_free(d->units);
    mt_free(d->rings);
    mt_free(d->costs.kinds);
    mt_free(d->slots);
    *d = (mt_step_drawing){ 0 };
}
