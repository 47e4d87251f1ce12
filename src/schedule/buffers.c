/* buffers.c - lists every buffer that a plan needs, by name, size and place (MT_BUFFER_LIST in plan.h).
 *
 *     add_unit          weights, moments and gradients of one unit
 *     add_group         slots that units of the same shape take turns in: ring, sums, finished gradients
 *     add_update_slots  slots that units of all shapes take turns in: landing, exchange, staging, pieces
 *     add_kept          kept activations
 *     add_cache         keys and values of generated sequences
 *     add_work          workspace, scratch, input and results
 *
 * The search only counts bytes (mt_plan_measure), through the same code. */
#include "base/mem.h"
#include "ops/sqnorm.h"
#include "schedule/plan_internal.h"
#include "schedule/slices.h"

#include <stdio.h>

static const char *const kind_names[] = {
#define MT_BUFFER_NAME(kind, name) name,
    MT_BUFFER_LIST(MT_BUFFER_NAME)
#undef MT_BUFFER_NAME
};

bool mt_buffer_of_lane(mt_buffer_kind kind, mt_place place)
{
    switch (kind) {
    case MT_BUF_LAND:
    case MT_BUF_LAND_TIED:
    case MT_BUF_ACC_HOST:
    case MT_BUF_KEEP_HOST:
    case MT_BUF_INPUT_HOST:
    case MT_BUF_SUMS_HOST:
    case MT_BUF_LOGITS_HOST:
    case MT_BUF_BOUNCE: return true;
    default: return place == MT_DEVICE;
    }
}

/* Adds a buffer: i and j are its index (see the list), -1 for none. */
static mt_rc plan_add(mt_plan *p, mt_buffer_kind kind, int i, int j, mt_place place, size_t bytes, mt_err *err)
{
    if (bytes == 0) return MT_OK;
    const size_t rounded = mt_round_up(bytes, MT_DEVICE_ALIGN);
    if (place == MT_DEVICE)
        p->device_bytes += rounded;
    else
        p->host_bytes += rounded * (mt_buffer_of_lane(kind, place) ? (size_t)mt_plan_lanes(p) : 1);
    if (p->counting) return MT_OK;
    MT_TRY(mt_grow(&p->buffers, &p->cap_buffers, p->n_buffers + 1, sizeof *p->buffers, err));
    mt_buffer *b = &p->buffers[p->n_buffers++];
    *b = (mt_buffer){ .kind = kind, .i = i, .j = j, .place = place, .bytes = rounded };
    int n = snprintf(b->name, sizeof b->name, "%s", kind_names[kind]);
    if (i >= 0) n += snprintf(b->name + n, sizeof b->name - (size_t)n, " %d", i);
    if (j >= 0) snprintf(b->name + n, sizeof b->name - (size_t)n, ".%d", j);
    return MT_OK;
}

/* A unit's own buffer at its home; in host memory, layers may share it (alias). */
static mt_rc add_at_home(mt_plan *p, mt_buffer_kind kind, int u, int array, size_t bytes, mt_err *err)
{
    return mt_plan_alias(p, u) == u ? plan_add(p, kind, u, array, p->place.units[u].home, bytes, err) : MT_OK;
}

/* Where sums of shares are added. */
static mt_place place_of_sums(const mt_plan *p) { return plan_folds_by_peers(p) ? MT_DEVICE : MT_HOST; }

/* Bytes of a sum of n numbers there: all of it on the host, the lane's slice on a device. */
static size_t sum_bytes(const mt_plan *p, int64_t n)
{
    return (size_t)(plan_folds_by_peers(p) ? mt_plan_most_slice(p, n) : n) * sizeof(float);
}

/* Bytes of a landing slot for a sum of n numbers: one sum on the host, every lane's sum of the slice on a device. */
static size_t landing_bytes(const mt_plan *p, int64_t n)
{
    if (!plan_folds_by_peers(p)) return sum_bytes(p, n);
    return (size_t)(mt_plan_lanes(p) * mt_plan_acc_stride(mt_plan_most_slice(p, n))) * sizeof(float);
}

/* With several machines: what this machine's slice of unit u needs. */
static mt_rc add_exchanged(mt_plan *p, int u, mt_err *err)
{
    const int64_t n_train = p->model->units[u].layout->n_train;
    const size_t bytes = (size_t)mt_plan_own_slice(p, u).n * sizeof(float);
    const bool apart = mt_plan_turns(p) > 1 || mt_arithmetic_rounds(&p->arithmetic); /* else add to the first bundle */
    for (int i = 0; apart && i < (mt_unit_is_tied(p->model, u) ? 2 : 1); i++)
        MT_TRY(plan_add(p, MT_BUF_SLICE_TOTAL, u, i, MT_HOST, bytes, err));
    return plan_add(p, MT_BUF_UNIT_CHUNKS, u, -1, MT_HOST, mt_sqnorm_n_chunks((size_t)n_train) * sizeof(double), err);
}

/* Unit u's sums of several lanes or machines. */
static mt_rc add_totals(mt_plan *p, int u, mt_err *err)
{
    const int64_t n = p->model->units[u].layout->n_train;
    const bool tied = mt_unit_is_tied(p->model, u);
    for (int i = 0; i < mt_plan_total_count(p) * (tied ? 2 : 1); i++)
        MT_TRY(plan_add(p, MT_BUF_TOTAL, u, i, place_of_sums(p), sum_bytes(p, n), err));
    if (mt_plan_machines(p) > 1) MT_TRY(add_exchanged(p, u, err));
    return tied ? plan_add(p, MT_BUF_LAND_TIED, -1, -1, place_of_sums(p), landing_bytes(p, n), err) : MT_OK;
}

/* A unit's weights at their home.  With several lanes, a device home is the lane's slice. */
static mt_rc add_masters(mt_plan *p, int u, mt_err *err)
{
    const mt_layout *l = p->model->units[u].layout;
    const bool f32 = p->arithmetic.compute == MT_DTYPE_F32, updates = p->job.train && !p->job.only_gradients;
    int64_t n_hi = l->n_hi, n_lo = mt_plan_stored(p, u, MT_STATE_LO);
    if (mt_plan_is_sliced(p, u)) {
        n_hi = mt_plan_slice_elems(p, u, MT_STATE_HI);
        n_lo = mt_plan_slice_elems(p, u, MT_STATE_LO);
    } else if (p->place.units[u].home == MT_DEVICE && !f32) {
        n_hi = l->n_elems; /* the device computes with weights at this home: packed ones are expanded there */
    }
    if (mt_plan_alias(p, u) == u) MT_TRY(plan_add(p, MT_BUF_PACKED_HOME, u, -1, MT_HOST, l->packed_bytes, err));
    if (p->place.units[u].home == MT_DEVICE || !p->job.mapped) MT_TRY(add_at_home(p, MT_BUF_HI, u, -1, 2 * (size_t)n_hi, err));
    if (updates || f32) return add_at_home(p, MT_BUF_LO, u, -1, 2 * (size_t)n_lo, err);
    return add_at_home(p, MT_BUF_EXACT_HOME, u, -1, 4 * (size_t)l->n_exact, err);
}

/* A resident unit's weights in the form that the device computes with, and the lane's slice of weights whose home is the host. */
static mt_rc add_resident(mt_plan *p, int u, mt_err *err)
{
    const mt_layout *l = p->model->units[u].layout;
    const mt_unit_place *at = &p->place.units[u];
    const bool f32 = p->arithmetic.compute == MT_DTYPE_F32;
    const bool apart = at->home == MT_HOST || mt_plan_is_sliced(p, u); /* the device does not compute with weights at this home */
    const size_t n = (size_t)l->n_elems, n_exact = f32 ? 0 : (size_t)l->n_exact; /* fp32 weights are exact */
    if (at->resident) MT_TRY(plan_add(p, MT_BUF_EXACT, u, -1, MT_DEVICE, n_exact * (apart ? 8 : 4), err));
    if (at->resident && (f32 || apart)) /* in bf16, weights at a device home already have this form */
        MT_TRY(plan_add(p, MT_BUF_RESIDENT, u, -1, MT_DEVICE, n * mt_dtype_bytes(p->arithmetic.compute), err));
    if (at->resident && f32 && apart) MT_TRY(plan_add(p, MT_BUF_HALVES, -1, u, MT_DEVICE, (size_t)(l->n_hi + l->n_low) * 2, err));
    for (mt_state_kind k = 0; k <= MT_STATE_LO; k++)
        if (mt_plan_mirrors(p, u, k))
            MT_TRY(plan_add(p, MT_BUF_WEIGHT_SLICE, u, (int)k, MT_DEVICE, 2 * (size_t)mt_plan_slice_elems(p, u, k), err));
    return MT_OK;
}

/* A unit's gradient sums between sweeps, and those of a tied unit's lookup. */
static mt_rc add_sums(mt_plan *p, int u, mt_err *err)
{
    const bool many = mt_plan_many_sweeps(p), tied = mt_unit_is_tied(p->model, u), shares = mt_plan_alias(p, u) != u;
    const size_t bytes = mt_plan_acc_bytes(p, p->model->units[u].layout->n_train);
    if (many && p->place.accumulators == MT_HOST && !shares) {
        MT_TRY(plan_add(p, MT_BUF_ACC_HOST, u, 0, MT_HOST, bytes, err));
        if (tied) MT_TRY(plan_add(p, MT_BUF_ACC_HOST, u, 1, MT_HOST, bytes, err));
    }
    if (many && p->place.accumulators == MT_DEVICE) MT_TRY(plan_add(p, MT_BUF_ACC, u, -1, MT_DEVICE, bytes, err));
    if (tied) MT_TRY(plan_add(p, MT_BUF_ACC_TIED, u, -1, MT_DEVICE, bytes, err));
    return mt_plan_by_shares(p) ? add_totals(p, u, err) : MT_OK;
}

/* The optimizer's arrays at their home, and the finished gradient while it waits for the norm: the norm of all units, or with several
 * machines at least this unit's. */
static mt_rc add_trained(mt_plan *p, int u, mt_err *err)
{
    const mt_unit_place *at = &p->place.units[u];
    const size_t n = (size_t)(mt_plan_is_sliced(p, u) ? mt_plan_slice_rest(p, u) : mt_plan_own_slice(p, u).n),
                 gradient = n * mt_dtype_bytes(p->arithmetic.grad);
    if (!p->job.only_gradients)
        for (int k = 0; k < MT_MOST_ARRAYS; k++)
            MT_TRY(add_at_home(p, MT_BUF_ARRAY, u, k, mt_plan_array_bytes(p, MT_STATE_ARRAYS + k, n), err));
    const bool waits = p->job.clip || mt_plan_machines(p) > 1;
    const bool on_host = at->site == MT_SITE_HOST || (p->job.alias_layers && at->home == MT_HOST);
    if (waits && on_host && mt_plan_alias(p, u) == u) MT_TRY(plan_add(p, MT_BUF_PARKED, u, -1, MT_HOST, gradient, err));
    if (at->site != MT_SITE_HOST && !at->reuses) MT_TRY(plan_add(p, MT_BUF_GRAD_DEV, u, -1, MT_DEVICE, gradient, err));
    return add_sums(p, u, err);
}

static mt_rc add_unit(mt_plan *p, int u, mt_err *err)
{
    MT_TRY(add_masters(p, u, err));
    MT_TRY(add_resident(p, u, err));
    return p->job.train && p->model->units[u].layout->n_train ? add_trained(p, u, err) : MT_OK;
}

/* What units take that are alike: of one layout, and placed the same way. */
typedef struct measured_unit {
    const mt_layout *layout;
    const mt_unit_place *at; /* NULL: none */
    size_t device, host;
} measured_unit;

static bool is_like(const measured_unit *m, const mt_layout *layout, const mt_unit_place *at)
{
    return m->at && m->layout == layout && m->at->resident == at->resident && m->at->home == at->home &&
           m->at->site == at->site && m->at->reuses == at->reuses && m->at->in_pieces == at->in_pieces;
}

/* If only sizes are wanted, a layer takes as much as one placed like it.  Layers take turns in few ways, so a few of the latest
 * are enough to find one. */
static mt_rc add_units(mt_plan *p, mt_err *err)
{
    enum { LATEST = 4 };
    measured_unit latest[LATEST] = { 0 };
    for (int u = 0, n = 0; u < p->model->n_units; u++) {
        const mt_layout *layout = p->model->units[u].layout;
        const mt_unit_place *at = &p->place.units[u];
        int like = 0;
        while (like < LATEST && !is_like(&latest[like], layout, at)) like++;
        if (like < LATEST && p->model->units[u].layer >= 0 && p->counting && !p->job.alias_layers) {
            p->device_bytes += latest[like].device;
            p->host_bytes += latest[like].host;
            continue;
        }
        measured_unit *now = &latest[n++ % LATEST];
        *now = (measured_unit){ layout, at, p->device_bytes, p->host_bytes };
        MT_TRY(add_unit(p, u, err));
        now->device = p->device_bytes - now->device;
        now->host = p->host_bytes - now->host;
    }
    return MT_OK;
}

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* Buffers that the units of a group share. */
static mt_rc add_group(mt_plan *p, int g, mt_err *err)
{
    const mt_layout *l = &p->model->layouts[g];
    const mt_group_place *at = &p->place.groups[g];
    bool f32 = p->arithmetic.compute == MT_DTYPE_F32, trains = p->job.train && l->n_train > 0;
    for (int s = 0; s < mt_min_int(at->streamed, at->ring_slots); s++) {
        MT_TRY(plan_add(p, MT_BUF_RING, g, s, MT_DEVICE, (size_t)l->n_elems * mt_dtype_bytes(p->arithmetic.compute), err));
        if (f32)
            MT_TRY(plan_add(p, MT_BUF_HALVES, g, s, MT_DEVICE, (size_t)(l->n_hi + l->n_low) * 2, err));
        else
            MT_TRY(plan_add(p, MT_BUF_EXACT, g, s, MT_DEVICE, (size_t)l->n_exact * 8, err));
    }
    if (!trains) return MT_OK;
    for (int s = 0; s < mt_min_int(at->members, at->sum_slots) && plan_sums_pass_through(p); s++)
        MT_TRY(plan_add(p, MT_BUF_ACC, g, s, MT_DEVICE, mt_plan_acc_bytes(p, l->n_train), err));
    for (int s = 0; s < mt_min_int(at->hosted, at->out_slots) && !mt_plan_by_shares(p); s++)
        MT_TRY(plan_add(p, MT_BUF_GRAD, g, s, MT_DEVICE, (size_t)l->n_train * mt_dtype_bytes(p->arithmetic.grad), err));
    return MT_OK;
}

/* A slot for each unit that needs one, or slots sized for the largest. */
static mt_rc add_stage_slots(mt_plan *p, mt_err *err)
{
    size_t largest = 0;
    for (int u = 0; u < p->model->n_units; u++) {
        if (!plan_needs_stage_slot(p, u)) continue;
        size_t bytes = mt_plan_lay_out(p, p->model->units[u].layout->n_train, mt_plan_staged_parts(p, u)).bytes;
        if (p->private_slots) MT_TRY(plan_add(p, MT_BUF_STAGE, mt_plan_private_slot(p, u), -1, MT_DEVICE, bytes, err));
        if (bytes > largest) largest = bytes;
    }
    for (int s = 0; !p->private_slots && s < p->place.staging_slots; s++)
        MT_TRY(plan_add(p, MT_BUF_STAGE, s, -1, MT_DEVICE, largest, err));
    return MT_OK;
}

/* Slots for a piece, no larger than the largest. */
static mt_rc add_piece_slots(mt_plan *p, mt_err *err)
{
    int64_t largest = 0;
    for (int u = 0; u < p->model->n_units; u++)
        if (p->place.units[u].in_pieces) largest = mt_max_i64(largest, mt_plan_piece_elems(p, u, 0));
    for (int s = 0; largest && s < p->place.piece_slots; s++)
        MT_TRY(plan_add(p, MT_BUF_PIECE, s, -1, MT_DEVICE, mt_plan_lay_out(p, largest, MT_PIECE_PARTS).bytes, err));
    return MT_OK;
}

/* Buffers for a finished slice on its way to the host, and for its norm. */
static mt_rc add_slices(mt_plan *p, int64_t largest, mt_err *err)
{
    const int64_t n = mt_plan_most_slice(p, largest);
    const size_t chunks = mt_sqnorm_n_chunks((size_t)n), all = mt_sqnorm_n_chunks((size_t)largest);
    MT_TRY(plan_add(p, MT_BUF_SLICE, -1, -1, MT_DEVICE, (size_t)n * mt_dtype_bytes(p->arithmetic.grad), err));
    MT_TRY(plan_add(p, MT_BUF_CHUNKS, -1, -1, MT_DEVICE, (chunks + 2) * sizeof(double), err));
    return plan_add(p, MT_BUF_CHUNKS_HOST, -1, -1, MT_HOST, (all + (size_t)mt_plan_lanes(p)) * sizeof(double), err);
}

static mt_rc add_landing(mt_plan *p, mt_err *err)
{
    int64_t layers = 0, ends = 0;
    for (int u = 0; u < p->model->n_units; u++) {
        int64_t *most = p->model->units[u].layer >= 0 ? &layers : &ends;
        *most = mt_max_i64(*most, p->model->units[u].layout->n_train);
    }
    for (int s = 0; s < MT_LAND_TURNS; s++)
        MT_TRY(plan_add(p, MT_BUF_LAND, s, -1, place_of_sums(p), landing_bytes(p, layers), err));
    MT_TRY(plan_add(p, MT_BUF_LAND, MT_LAND_ENDS, -1, place_of_sums(p), landing_bytes(p, ends), err));
    return plan_folds_by_peers(p) ? add_slices(p, mt_max_i64(layers, ends), err) : MT_OK;
}

/* Slots for bundles' sums on their way between machines, used in turn as sums land: both sums of a tied unit, one after the
 * other. */
static mt_rc add_exchange(mt_plan *p, mt_err *err)
{
    size_t sent[MT_LAND_SLOTS] = { 0 }, received[MT_LAND_SLOTS] = { 0 };
    for (int u = 0; u < p->model->n_units; u++) {
        const size_t others = (size_t)mt_plan_machines(p) - 1,
                     each = (mt_unit_is_tied(p->model, u) ? 2 : 1) * mt_plan_sent_bytes(p); /* bytes per element */
        const int s = p->model->units[u].layer >= 0 ? 0 : MT_LAND_ENDS; /* layers: the first slot of those they take turns in */
        sent[s] = max_size(sent[s], (size_t)p->model->units[u].layout->n_train * each);
        received[s] = max_size(received[s], (size_t)mt_plan_own_slice(p, u).n * others * each);
    }
    for (int s = 0; s < MT_LAND_SLOTS; s++) {
        const int like = s < MT_LAND_TURNS ? 0 : s;
        MT_TRY(plan_add(p, MT_BUF_SEND, s, -1, MT_HOST, sent[like], err));
        MT_TRY(plan_add(p, MT_BUF_RECEIVE, s, -1, MT_HOST, received[like], err));
    }
    return MT_OK;
}

/* Slots sized for the largest unit that may use them. */
static mt_rc add_update_slots(mt_plan *p, mt_err *err)
{
    size_t slab = 0;
    bool device_home = false;
    for (int u = 0; u < p->model->n_units; u++) {
        size_t n = (size_t)p->model->units[u].layout->n_train;
        const mt_unit_place *at = &p->place.units[u];
        if (at->site == MT_SITE_HOST && n > slab) slab = n;
        device_home |= at->home == MT_DEVICE || mt_plan_is_mirrored(p, u);
    }
    if (device_home) MT_TRY(plan_add(p, MT_BUF_BOUNCE_STATE, -1, -1, MT_HOST, MT_STATE_SLOTS * mt_plan_bounce_bytes(p), err));
    if (!p->job.train) return MT_OK;
    if (mt_plan_by_shares(p)) MT_TRY(add_landing(p, err));
    if (mt_plan_machines(p) > 1) MT_TRY(add_exchange(p, err));
    for (int s = 0; s < p->place.n_slabs && !p->job.clip && mt_plan_machines(p) == 1; s++)
        MT_TRY(plan_add(p, MT_BUF_SLAB, s, -1, MT_HOST, slab * mt_dtype_bytes(p->arithmetic.grad), err));
    MT_TRY(add_stage_slots(p, err));
    return add_piece_slots(p, err);
}

static mt_rc add_kept(mt_plan *p, mt_err *err)
{
    const mt_config *c = p->model->config;
    size_t rows = (size_t)p->place.sweep_tokens, largest = 0;
    mt_dtype t = p->arithmetic.compute;
    const mt_layer_kind *kinds[MT_KEEPS] = { 0 }; /* of each level: the layer kind whose bytes are cached, */
    size_t kept[MT_KEEPS];                        /* and these */
    for (int l = 0; l < c->L; l++) {
        const mt_layer_place *at = &p->place.layers[l];
        if (mt_layer_kind_of(p->model, l) != kinds[at->keep]) {
            kinds[at->keep] = mt_layer_kind_of(p->model, l);
            kept[at->keep] = mt_kept_bytes(kinds[at->keep], t, at->keep, p->place.sweep_tokens);
        }
        const size_t bytes = kept[at->keep];
        if (at->place == MT_DEVICE || mt_plan_alias_kept(p, l) == l)
            MT_TRY(plan_add(p, at->place == MT_DEVICE ? MT_BUF_KEEP : MT_BUF_KEEP_HOST, l, -1, at->place, bytes, err));
        if (at->place == MT_HOST && bytes > largest) largest = bytes;
    }
    for (int s = 0; s < p->place.keep_slots && largest; s++)
        MT_TRY(plan_add(p, MT_BUF_KEEP_SLOT, s, -1, MT_DEVICE, largest, err));
    return plan_add(p, MT_BUF_DX, -1, -1, MT_DEVICE, rows * (size_t)c->D * mt_dtype_bytes(t), err);
}

/* Workspace of the kind of layer that needs the most. */
static size_t work_bytes(const mt_plan *p, bool shared)
{
    size_t most = 0;
    for (int k = 0; k < p->model->n_kinds; k++) {
        mt_carving c;
        mt_carve_work(&c, &p->model->kinds[k], p->arithmetic.compute, shared, mt_plan_work_rows(p));
        if (c.bytes > most) most = c.bytes;
    }
    return most;
}

/* Caches of the sequences being generated, and the buffer for their logits. */
static mt_rc add_cache(mt_plan *p, mt_err *err)
{
    const mt_config *c = p->model->config;
    const mt_job *j = &p->job;
    const int64_t each_rows = mt_job_cache_rows(j);
    size_t rows, bytes, fixed;
    for (int l = 0; l < c->L; l++) {
        const mt_cache_bytes each = mt_layer_cache(p->model, l, p->arithmetic.compute);
        if (!mt_mul_size((size_t)j->cache_slots, (size_t)each_rows, &rows) || rows > INT32_MAX ||
            !mt_mul_size(rows, each.row, &bytes) || !mt_mul_size((size_t)j->cache_slots, each.sequence, &fixed) ||
            fixed > SIZE_MAX - bytes)
            return mt_fail(err, MT_ERANGE, "a cache for %lld sequences of %lld tokens is larger than any memory",
                           (long long)j->cache_slots, (long long)each_rows);
        MT_TRY(plan_add(p, MT_BUF_CACHE, l, -1, MT_DEVICE, bytes + fixed, err));
    }
    return plan_add(p, MT_BUF_LOGITS_HOST, -1, -1, MT_HOST, (size_t)j->cache_slots * (size_t)c->V * sizeof(float), err);
}

/* Bytes of op scratch, which no placement changes; cached, because searches need it thousands of times. */
static size_t scratch_bytes(mt_plan *p)
{
    const mt_arithmetic *a = &p->arithmetic;
    const mt_job *j = &p->job;
    if (p->scratch) return p->scratch;
    mt_attention_use attention = mt_plan_attention(p);
    p->scratch = mt_model_scratch(p->model, a->compute, mt_plan_work_rows(p), j->step_docs, j->longest,
                                  mt_min_i64(a->head_rows, a->micro_tokens), &attention);
    for (int g = 0; g < p->model->n_groups; g++)
        p->scratch =
            max_size(p->scratch, mt_grad_norm_scratch(&(mt_grad_norm){ .t = a->grad, .n = p->model->layouts[g].n_train }));
    if (j->cache_slots)
        p->scratch = max_size(
            p->scratch, mt_model_cache_scratch(p->model, a->compute, a->micro_tokens, j->cache_slots, mt_job_cache_rows(j)));
    return p->scratch;
}

static mt_rc add_work(mt_plan *p, mt_err *err)
{
    const mt_config *c = p->model->config;
    const mt_arithmetic *a = &p->arithmetic;
    const mt_job *j = &p->job;
    const int64_t positions = mt_job_positions(j);
    size_t e = mt_dtype_bytes(a->compute), tokens = (size_t)j->step_tokens, docs = (size_t)j->step_docs;
    for (int x = 0; x < 2; x++)
        MT_TRY(plan_add(p, MT_BUF_X_PASS, x, -1, MT_DEVICE, (size_t)p->place.sweep_tokens * (size_t)c->D * e, err));
    const size_t layer_work = work_bytes(p, false);
    for (int s = 0; s < (j->train ? p->longest_segment : 1); s++)
        MT_TRY(plan_add(p, MT_BUF_LAYER_WORK, s, -1, MT_DEVICE, layer_work, err));
    int64_t head_rows = mt_min_i64(a->head_rows, a->micro_tokens);
    MT_TRY(plan_add(p, MT_BUF_WORK, -1, -1, MT_DEVICE, work_bytes(p, true), err));
    MT_TRY(plan_add(p, MT_BUF_ENDS, -1, -1, MT_DEVICE,
                    mt_ends_carve(NULL, NULL, p->model, a->compute, a->micro_tokens, head_rows, j->train), err));
    MT_TRY(plan_add(p, MT_BUF_SCRATCH, -1, -1, MT_DEVICE, scratch_bytes(p), err));
    size_t rope_rows = (size_t)(mt_rope_short_rows(c, positions) + positions);
    MT_TRY(plan_add(p, MT_BUF_ROPE, -1, -1, MT_DEVICE,
                    (c->has_rope_local ? 2 : 1) * rope_rows * (size_t)c->rope.dr * sizeof(float), err));
    size_t columns = 0;
    for (mt_column k = 0; k < MT_COLUMNS; k++) columns += (j->objective.columns & MT_COLUMN_BIT(k)) != 0;
    size_t input = (tokens * (5 + columns) + docs * (j->cache_slots ? 4 : 2) + 2) * sizeof(int32_t), sums = mt_plan_sums_bytes(p);
    const size_t router = (size_t)(mt_plan_most_micros(p) * p->model->routed.E) * (sizeof(int32_t) + sizeof(float));
    if (mt_plan_balances(p)) MT_TRY(plan_add(p, MT_BUF_ROUTER, -1, -1, MT_DEVICE, router, err));
    MT_TRY(plan_add(p, MT_BUF_INPUT, -1, -1, MT_DEVICE, input, err));
    MT_TRY(plan_add(p, MT_BUF_INPUT_HOST, -1, -1, MT_HOST, input, err));
    MT_TRY(plan_add(p, MT_BUF_SUMS, -1, -1, MT_DEVICE, sums, err));
    MT_TRY(plan_add(p, MT_BUF_BOUNCE, -1, -1, MT_HOST, mt_plan_bounce_bytes(p), err));
    return plan_add(p, MT_BUF_SUMS_HOST, -1, -1, MT_HOST, sums + (size_t)p->model->n_units * sizeof(double), err);
}

/* Packed weights are copied and expanded on one stream, so units take turns in one buffer. */
static mt_rc add_packed(mt_plan *p, mt_err *err)
{
    size_t most = 0;
    for (int g = 0; g < p->model->n_groups; g++) most = max_size(most, p->model->layouts[g].packed_bytes);
    return plan_add(p, MT_BUF_PACKED, -1, -1, MT_DEVICE, most, err);
}

mt_rc mt__plan_list_buffers(mt_plan *p, mt_err *err)
{
    MT_TRY(add_units(p, err));
    MT_TRY(add_packed(p, err));
    for (int g = 0; g < p->model->n_groups; g++) MT_TRY(add_group(p, g, err));
    MT_TRY(add_update_slots(p, err));
    if (p->job.train) MT_TRY(add_kept(p, err));
    if (p->job.cache_slots) MT_TRY(add_cache(p, err));
    return add_work(p, err);
}
