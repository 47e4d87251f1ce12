/* sequence.c - a step: sweeps forward and backward, then updates.
 *
 * Layer-major: while a unit's weights are on the device, every micro-batch of the sweep passes through it.  A unit's compute is
 * issued before anything is waited for that the next one needs. */
#include "schedule/sequence.h"

#include "base/mem.h"
#include "schedule/sequence_internal.h"

const mt_queue mt_action_queue[MT_DO_COUNT] = {
#define MT_DO_QUEUE(name, queue) [MT_DO_##name] = MT_Q_##queue,
    MT_DO_LIST(MT_DO_QUEUE)
#undef MT_DO_QUEUE
};

const char *mt_action_name(mt_action_kind kind)
{
    static const char *const names[MT_DO_COUNT] = {
#define MT_DO_NAME(name, queue) [MT_DO_##name] = #name,
        MT_DO_LIST(MT_DO_NAME)
#undef MT_DO_NAME
    };
    return names[kind];
}

static bool trains(const mt_sequence *s) { return s->mode == MT_MODE_TRAIN; }
static int unit_of(const mt_sequence *s, int layer) { return mt_layer_first_unit(s->model, layer); }
static bool has_experts(const mt_sequence *s, int layer) { return mt_layer_expert_units(s->model, layer) > 0; }

/* The visit is over: look ahead. */
static mt_rc look_ahead(mt_sequence *s, mt_err *err)
{
    MT_TRY(mt__seq_ring_prefetch(s, err));
    MT_TRY(mt__seq_updates_pace(s, err));
    mt__seq_ring_next(s);
    return MT_OK;
}

static mt_rc leave(mt_sequence *s, int u, mt_err *err)
{
    MT_TRY(mt__seq_ring_release(s, u, err));
    MT_TRY(mt__seq_pieces_leave(s, u, err));
    return look_ahead(s, err);
}

/* -- forward --------------------------------------------------------------------------------------- */

static mt_rc forward_embed(mt_sequence *s, mt_err *err)
{
    int u = s->model->embed;
    MT_TRY(mt__seq_ring_acquire(s, u, err));
    MT_TRY(mt__seq_keeps_begin(s, 0, err));
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_EMBED, .unit = u }, err));
    return leave(s, u, err);
}

/* Generation computes few rows, and moves only the experts that they have chosen: the host has to know them. */
static mt_rc learn_routes(mt_sequence *s, int layer, mt_err *err)
{
    const mt_layer_units *at = &s->model->layers[layer];
    bool streams = false;
    for (int u = at->first + 1; u < at->first + at->n; u++) streams |= !seq_place(s, u)->resident;
    if (s->mode != MT_MODE_CONTINUE || !streams) return MT_OK;
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_ROUTES, .unit = at->first, .layer = layer }, err));
    mt__seq_ring_routed(s, layer);
    return MT_OK;
}

/* The layer's expert units, in order, and their sum. */
static mt_rc forward_experts(mt_sequence *s, int layer, mt_err *err)
{
    const mt_layer_units *at = &s->model->layers[layer];
    MT_TRY(learn_routes(s, layer, err));
    for (int u = at->first + 1; u < at->first + at->n; u++) {
        MT_TRY(mt__seq_ring_acquire(s, u, err));
        MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_EXPERTS, .unit = u, .layer = layer }, err));
        MT_TRY(leave(s, u, err));
    }
    s->routed = -1; /* the next sweep's will be different */
    return seq_issue(s, &(mt_action){ .kind = MT_DO_CLOSE, .unit = at->first, .layer = layer }, err);
}

static mt_rc forward_layer(mt_sequence *s, int layer, mt_err *err)
{
    int u = unit_of(s, layer);
    MT_TRY(mt__seq_ring_acquire(s, u, err));
    MT_TRY(mt__seq_keeps_begin(s, layer + 1, err));
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_FORWARD, .unit = u, .layer = layer }, err));
    if (!has_experts(s, layer)) {
        MT_TRY(mt__seq_keeps_end(s, layer, err));
        return leave(s, u, err);
    }
    MT_TRY(leave(s, u, err));
    MT_TRY(forward_experts(s, layer, err));
    return mt__seq_keeps_end(s, layer, err); /* the routes are read until the last expert is done */
}

/* Loss and norms to the host, and a wait for them. */
static mt_rc read_sums(mt_sequence *s, mt_err *err) { return seq_issue(s, &(mt_action){ .kind = MT_DO_READ_SUMS }, err); }

/* U5: without clipping a broken loss must be known before anything is updated from it, the head included. */
static mt_rc check_loss(mt_sequence *s, mt_err *err)
{
    bool go;
    MT_TRY(read_sums(s, err));
    return s->port->judge(s->self, false, &go, err);
}

/* Loss and, in training, the gradient that backward starts from. */
static mt_rc head(mt_sequence *s, mt_err *err)
{
    int u = s->model->head;
    MT_TRY(mt__seq_ring_acquire(s, u, err));
    if (trains(s)) MT_TRY(mt__seq_sums_begin(s, u, false, err));
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_HEAD, .unit = u }, err));
    MT_TRY(leave(s, u, err));
    if (s->at_once) MT_TRY(check_loss(s, err));
    return trains(s) && !mt_unit_is_tied(s->model, u) ? mt__seq_sums_end(s, u, err) : MT_OK;
}

/* -- backward -------------------------------------------------------------------------------------- */

/* Layers [first, end), recomputed from the first one's kept input: all of their weights and sums are in use at once. */
static mt_rc acquire_segment(mt_sequence *s, int first, int end, mt_err *err)
{
    for (int l = first; l < end; l++) {
        MT_TRY(mt__seq_ring_acquire(s, unit_of(s, l), err));
        if (l + 1 < end) mt__seq_ring_next(s);
        MT_TRY(mt__seq_sums_begin(s, unit_of(s, l), false, err));
    }
    MT_TRY(mt__seq_keeps_fetch(s, first, err));
    return mt__seq_keeps_acquire(s, first, err);
}

static mt_rc release_segment(mt_sequence *s, int first, int end, mt_err *err)
{
    for (int l = first; l + 1 < end; l++) MT_TRY(mt__seq_ring_release(s, unit_of(s, l), err));
    MT_TRY(mt__seq_keeps_release(s, first, err));
    MT_TRY(leave(s, unit_of(s, end - 1), err));
    if (s->last_sweep) MT_TRY(mt__seq_updates_stage_reused(s, first, err));
    for (int l = end - 1; l >= first; l--) MT_TRY(mt__seq_sums_end(s, unit_of(s, l), err));
    return MT_OK;
}

/* The experts of a layer whose first unit stays in use.  They run in ascending order, so that sums are added as in forward.  The
 * last visit stays open: the layer's own backward is part of it. */
static mt_rc backward_experts(mt_sequence *s, int layer, mt_err *err)
{
    const mt_layer_units *at = &s->model->layers[layer];
    const int end = at->first + at->n;
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_REOPEN, .unit = at->first, .layer = layer }, err));
    MT_TRY(look_ahead(s, err));
    for (int u = at->first + 1; u < end; u++) {
        MT_TRY(mt__seq_ring_acquire(s, u, err));
        MT_TRY(mt__seq_sums_begin(s, u, false, err));
        MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_EXPERTS_BACKWARD, .unit = u, .layer = layer }, err));
        MT_TRY(mt__seq_ring_release(s, u, err));
        if (u + 1 < end) MT_TRY(look_ahead(s, err));
        MT_TRY(mt__seq_sums_end(s, u, err));
    }
    return MT_OK;
}

static mt_rc backward_layers(mt_sequence *s, mt_err *err)
{
    int lowest = mt_plan_backward_end(s->plan);
    for (int end = (int)s->model->config->L, first; end > lowest; end = first) {
        first = mt_plan_segment_start(s->plan, end - 1);
        MT_TRY(acquire_segment(s, first, end, err));
        if (first > lowest) MT_TRY(mt__seq_keeps_fetch(s, mt_plan_segment_start(s->plan, first - 1), err));
        if (has_experts(s, first)) MT_TRY(backward_experts(s, first, err));
        MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_BACKWARD, .unit = unit_of(s, first), .layer = first, .end = end }, err));
        MT_TRY(release_segment(s, first, end, err));
    }
    return MT_OK;
}

static mt_rc backward_embed(mt_sequence *s, mt_err *err)
{
    int u = s->model->embed;
    if (!s->units[u].trains) return MT_OK;
    bool tied = mt_unit_is_tied(s->model, u);
    MT_TRY(mt__seq_sums_begin(s, u, tied, err));
    int slot = tied ? mt_sequence_tied_slot(s) : s->units[u].sum;
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_EMBED_BACKWARD, .unit = u, .slot = slot }, err));
    return mt__seq_sums_end(s, u, err);
}

/* -- a step ---------------------------------------------------------------------------------------- */

static void visit_layers(mt_sequence *s, int first, int end)
{
    for (int l = first; l < end; l++)
        for (int i = 0; i < s->model->layers[l].n; i++) s->visits[s->n_visits++] = unit_of(s, l) + i;
}

static void plan_visits(mt_sequence *s)
{
    int L = (int)s->model->config->L, lowest = mt_plan_backward_end(s->plan);
    s->n_visits = 0;
    s->visits[s->n_visits++] = s->model->embed;
    visit_layers(s, 0, L);
    s->visits[s->n_visits++] = s->model->head;
    for (int end = L, first; trains(s) && end > lowest; end = first) {
        first = mt_plan_segment_start(s->plan, end - 1);
        visit_layers(s, first, end);
    }
    mt__seq_ring_begin(s);
}

static mt_rc run_sweep(mt_sequence *s, mt_err *err)
{
    MT_TRY(seq_issue(s, &(mt_action){ .kind = MT_DO_SWEEP, .sweep = s->sweep }, err));
    MT_TRY(forward_embed(s, err));
    for (int l = 0; l < s->model->config->L; l++) MT_TRY(forward_layer(s, l, err));
    MT_TRY(head(s, err));
    if (!trains(s)) return MT_OK;
    MT_TRY(backward_layers(s, err));
    MT_TRY(backward_embed(s, err));
    return s->any_reuses || s->last_sweep ? mt__seq_updates_return_all(s, err) : MT_OK;
}

static mt_rc sequence_finish(mt_sequence *s, mt_err *err)
{
    bool go = false;
    if (s->at_once) MT_TRY(mt__seq_pieces_counted(s, err));
    MT_TRY(read_sums(s, err));
    if (trains(s) && !s->at_once) MT_TRY(mt__seq_updates_stage_ahead(s, err));
    MT_TRY(s->port->judge(s->self, true, &go, err));
    if (s->part_ends && s->at_once) mt__seq_updates_elsewhere(s);
    if (!trains(s) || s->at_once) return MT_OK;
    return go ? mt__seq_updates_all(s, err) : mt__seq_updates_drop(s, err);
}

mt_rc mt_sequence_run(mt_sequence *s, mt_mode mode, int64_t n_sweeps, mt_err *err)
{
    s->mode = mode;
    s->at_once = mode == MT_MODE_TRAIN && !s->plan->job.clip;
    s->n_sweeps = n_sweeps;
    s->routed = -1;
    plan_visits(s);
    for (s->sweep = 0; s->sweep < n_sweeps; s->sweep++) {
        s->first_sweep = s->sweep == 0;
        s->last_sweep = s->sweep + 1 == n_sweeps;
        s->first_of_sum = s->part_ends ? s->sweep == 0 || s->part_ends[s->sweep - 1] : s->first_sweep;
        s->last_of_sum = s->part_ends ? s->part_ends[s->sweep] : s->last_sweep;
        s->wraps = !s->last_sweep || mode == MT_MODE_CONTINUE;
        MT_TRY(run_sweep(s, err));
    }
    return mode == MT_MODE_TRAIN || mode == MT_MODE_EVALUATE ? sequence_finish(s, err) : MT_OK;
}

void mt_sequence_parts(mt_sequence *s, const bool *ends) { s->part_ends = ends; }
mt_rc mt_sequence_write_back(mt_sequence *s, mt_err *err) { return mt__seq_updates_return_all(s, err); }

void mt_sequence_forget(mt_sequence *s, int u)
{
    const seq_unit *at = &s->units[u];
    if (at->slot >= 0 && s->ring[at->slot].unit == u) s->ring[at->slot].unit = -1;
    if (at->private_stage >= 0) s->stages[at->private_stage].version = -1;
}

/* -- queries of a port ------------------------------------------------------------------------------ */

int mt_sequence_events(const mt_sequence *s) { return s->n_events; }
int mt_sequence_written(const mt_sequence *s, int u) { return (void)s, unit_event(u, WRITTEN); }
int mt_sequence_device_updated(const mt_sequence *s, int u) { return (void)s, unit_event(u, DEVICE_UPDATED); }
mt_mode mt_sequence_mode(const mt_sequence *s) { return s->mode; }
int mt_sequence_weights(const mt_sequence *s, int u) { return s->units[u].slot; }
int mt_sequence_sum(const mt_sequence *s, int u) { return s->units[u].trains ? s->units[u].sum : -1; }
int mt_sequence_resident_slot(const mt_sequence *s, int u) { return seq_place(s, u)->resident ? s->units[u].first_slot : -1; }
int mt_sequence_tied_slot(const mt_sequence *s) { return s->model->n_units; }
int mt_sequence_keep_slot(const mt_sequence *s, int layer) { return s->layers[layer].keep_slot; }
void mt_sequence_limit_pieces(mt_sequence *s, int64_t early) { s->most_early = early; }
int64_t mt_sequence_looks(const mt_sequence *s) { return s->looks; }

mt_sequence_slots mt_sequence_count(const mt_sequence *s)
{
    return (mt_sequence_slots){ .ring = s->n_ring,
                                .sums = s->n_sums,
                                .outs = s->n_outs,
                                .keeps = s->n_keeps,
                                .stages = s->n_stages + s->model->n_units,
                                .pieces = s->n_pieces };
}

mt_sequence_slots mt_sequence_group(const mt_sequence *s, int group)
{
    const seq_group *g = &s->groups[group];
    return (mt_sequence_slots){ .ring = g->first_ring, .sums = g->sums.first, .outs = g->outs.first };
}

const char *mt_sequence_event_name(const mt_sequence *s, int event)
{
    static const char *const units[UNIT_EVENTS] = { "write-back",    "write-back of v and lo", "update on the device",
                                                    "gradient sent", "gradient sums saved",    "gradient sums saved" };
    static const char *const layers[LAYER_EVENTS] = { "kept activations sent", "last backward" };
    static const char *const rings[SLOT_EVENTS] = { "weights", "weights read" };
    static const char *const keeps[SLOT_EVENTS] = { "kept activations", "kept activations sent" };
    static const char *const sums[SLOT_EVENTS] = { "gradient sums", "gradient sums read" };
    static const char *const outs[SLOT_EVENTS] = { "gradient sums", "gradient sent" };
    static const char *const stages[STAGE_EVENTS] = { "staged state", "write-back", "update on the device" };
    static const char *const pieces[STAGE_EVENTS] = { "piece", "write-back of a piece", "update of a piece" };
    if (event < s->layer_events) return units[event % UNIT_EVENTS];
    if (event < s->ring_events) return layers[(event - s->layer_events) % LAYER_EVENTS];
    if (event < s->keep_events) return rings[(event - s->ring_events) % SLOT_EVENTS];
    if (event < s->sum_events) return keeps[(event - s->keep_events) % SLOT_EVENTS];
    if (event < s->out_events) return sums[(event - s->sum_events) % SLOT_EVENTS];
    if (event < s->stage_events) return outs[(event - s->out_events) % SLOT_EVENTS];
    if (event < s->piece_events) return stages[(event - s->stage_events) % STAGE_EVENTS];
    return event < s->slab_events ? pieces[(event - s->piece_events) % STAGE_EVENTS] : "pieces of a slab";
}

/* -- life ------------------------------------------------------------------------------------------ */

static void number_events(mt_sequence *s)
{
    s->layer_events = s->model->n_units * UNIT_EVENTS;
    s->ring_events = s->layer_events + (int)s->model->config->L * LAYER_EVENTS;
    s->keep_events = s->ring_events + s->n_ring * SLOT_EVENTS;
    s->sum_events = s->keep_events + s->n_keeps * SLOT_EVENTS;
    s->out_events = s->sum_events + s->n_sums * SLOT_EVENTS;
    s->stage_events = s->out_events + s->n_outs * SLOT_EVENTS;
    s->piece_events = s->stage_events + (s->n_stages + s->model->n_units) * STAGE_EVENTS;
    s->slab_events = s->piece_events + s->n_pieces * STAGE_EVENTS;
    s->n_events = s->slab_events + (s->n_pieces ? s->plan->place.n_slabs : 0);
}

void mt_sequence_open(mt_sequence *s, const mt_plan *plan, const mt_port *port, void *self)
{
    s->plan = plan;
    s->port = port;
    s->self = self;
    s->part_ends = NULL;
    s->bf16 = plan->arithmetic.compute == MT_DTYPE_BF16;
    for (int u = 0; u < s->model->n_units; u++)
        s->units[u] = (seq_unit){ .trains = s->model->units[u].layout->n_train > 0, .reuses = plan->place.units[u].reuses };
    mt__seq_ring_open(s);
    mt__seq_keeps_open(s);
    mt__seq_sums_open(s);
    mt__seq_updates_open(s);
    mt__seq_pieces_open(s);
    number_events(s);
    s->looks = 0;
}

mt_rc mt_sequence_create(mt_sequence **out, const mt_model *model, mt_err *err)
{
    size_t n = (size_t)model->n_units, L = (size_t)model->config->L, groups = (size_t)model->n_groups;
    mt_sequence *s = mt_calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return mt_no_memory(err, "the order of a step");
    s->model = model;
    s->units = mt_calloc(n, sizeof *s->units);
    s->layers = mt_calloc(L, sizeof *s->layers);
    s->groups = mt_calloc(groups, sizeof *s->groups);
    s->ring = mt_calloc(n, sizeof *s->ring); /* a group has no more slots than units */
    s->stages = mt_calloc(2 * n, sizeof *s->stages);
    s->keeps = mt_calloc(L, sizeof *s->keeps);
    s->late = mt_calloc(n, sizeof *s->late);
    s->visits = mt_calloc(2 * n + 2, sizeof *s->visits);
    s->following = mt_calloc(2 * n + 2, sizeof *s->following);
    if (!s->units || !s->layers || !s->groups || !s->ring || !s->stages || !s->keeps || !s->late || !s->visits || !s->following) {
        mt_sequence_free(s);
        return mt_no_memory(err, "the order of a step");
    }
    *out = s;
    return MT_OK;
}

void mt_sequence_free(mt_sequence *s)
{
    if (!s) return;
    mt_free(s->units);
    mt_free(s->layers);
    mt_free(s->groups);
    mt_free(s->ring);
    mt_free(s->stages);
    mt_free(s->keeps);
    mt_free(s->late);
    mt_free(s->visits);
    mt_free(s->following);
    mt_free(s);
}
