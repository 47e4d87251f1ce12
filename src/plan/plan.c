/* plan.c - every buffer a placement needs. */
#include "plan/plan.h"

#include "base/mem.h"
#include "base/rng.h"
#include "ops/sqnorm.h"
#include "plan/deal.h"
#include "plan/slices.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {
#define MT_BUFFER_NAME(kind, name) name,
    MT_BUFFER_LIST(MT_BUFFER_NAME)
#undef MT_BUFFER_NAME
};

static size_t size_of(mt_dtype t) { return mt_dtype_bytes(t); }

mt_work_rows mt_plan_work_rows(const mt_plan *p)
{
    const mt_arithmetic *a = &p->arithmetic;
    return (mt_work_rows){ .micro = a->micro_tokens,
                           .chunk = mt_min_i64(a->mlp_rows, a->micro_tokens),
                           .pass = mt_pass_rows_at_most(a),
                           .sweep = p->place.sweep_tokens,
                           .segments = p->longest_segment > 1,
                           .router_loss = mt_plan_balances(p) };
}

/* Micro-batches are as few as possible, so two neighbors in a share do not fit in one. */
int64_t mt_plan_most_micros(const mt_plan *p)
{
    const int64_t parts = mt_arithmetic_parts(&p->arithmetic);
    return mt_min_i64(p->job.step_docs, 2 * p->job.step_tokens / p->arithmetic.micro_tokens + parts);
}

int64_t mt_plan_loads(const mt_plan *p) { return p->job.train ? p->model->config->L * p->model->routed.E : 0; }

size_t mt_plan_sums_bytes(const mt_plan *p)
{
    const size_t loads = mt_round_up((size_t)mt_plan_loads(p) * sizeof(int32_t), sizeof(double));
    const size_t of_shares = (size_t)mt_arithmetic_parts(&p->arithmetic) * (sizeof(mt_loss_sum) + sizeof(double));
    return sizeof(int64_t) + of_shares + (size_t)p->model->n_units * sizeof(double) + loads;
}

size_t mt_plan_bounce_bytes(const mt_plan *p)
{
    int64_t largest = 1;
    for (int g = 0; g < p->model->n_groups; g++) largest = mt_max_i64(largest, p->model->layouts[g].n_elems);
    return (size_t)mt_min_i64((int64_t)mt_round_up((size_t)largest * sizeof(float), 1 << 16), MT_BOUNCE_BYTES);
}

size_t mt_plan_kept_bytes(const mt_plan *p, int layer, mt_keep keep)
{
    return mt_kept_bytes(mt_layer_kind_of(p->model, layer), p->arithmetic.compute, keep, p->place.sweep_tokens);
}

int64_t mt_plan_acc_stride(int64_t n)
{
    return (int64_t)(mt_round_up((size_t)n * sizeof(float), MT_DEVICE_ALIGN) / sizeof(float));
}

size_t mt_plan_acc_bytes(const mt_plan *p, int64_t n)
{
    return (size_t)((mt_plan_acc_count(p) - 1) * mt_plan_acc_stride(n) + n) * sizeof(float);
}

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

int mt_plan_share(const mt_plan *p, int round, int lane)
{
    const mt_arithmetic *a = &p->arithmetic;
    const int lanes = mt_plan_lanes(p), machines = mt_plan_machines(p), of_bundle = mt_plan_bundle_rounds(p);
    if (machines == 1) return round * lanes + lane < mt_arithmetic_parts(a) ? round * lanes + lane : -1;
    const int bundle = round / of_bundle * machines + p->job.machine, share = round % of_bundle * lanes + lane;
    return bundle < mt_arithmetic_bundles(a) && share < mt_arithmetic_shares(a) ? bundle * mt_arithmetic_shares(a) + share : -1;
}

bool mt_plan_low_is_whole(const mt_plan *p, int unit)
{
    return mt_plan_machines(p) == 1 || p->arithmetic.compute == MT_DTYPE_F32 || p->model->units[unit].layout->n_exact > 0;
}

int mt_plan_runs(const mt_plan *p, int unit, mt_state_kind kind, mt_stretch out[2])
{
    const mt_layout *l = p->model->units[unit].layout;
    const bool whole = kind == MT_STATE_HI || (kind == MT_STATE_LO && mt_plan_low_is_whole(p, unit));
    out[0] = mt_plan_own_slice(p, unit);
    out[1] = (mt_stretch){ l->n_train, l->n_low - l->n_train }; /* frozen parameters do not change: every machine has them */
    if (whole) out[0] = (mt_stretch){ 0, kind == MT_STATE_HI ? l->n_elems : l->n_low };
    return kind == MT_STATE_LO && !whole ? 2 : 1;
}

bool mt_plan_stores(const mt_plan *p, mt_state_range r)
{
    mt_stretch runs[2];
    bool any = false;
    for (int i = mt_plan_runs(p, r.unit, r.kind, runs) - 1; i >= 0; i--)
        any |= r.first < runs[i].first + runs[i].n && runs[i].first < r.first + r.n;
    return any;
}

int64_t mt_plan_stored(const mt_plan *p, int unit, mt_state_kind kind)
{
    mt_stretch runs[2];
    return mt_plan_runs(p, unit, kind, runs) == 2 ? runs[0].n + runs[1].n : runs[0].n;
}

int64_t mt_plan_part_tokens(const mt_plan *p)
{
    if (!mt_plan_by_shares(p)) return p->job.step_tokens;
    return mt_deal_most_rows(p->model, &p->arithmetic, p->job.step_tokens, p->job.longest);
}

/* The widest row that a product makes. */
static size_t widest_row(const mt_model *m)
{
    double widest = (double)m->config->V;
    for (int k = 0; k < m->n_kinds; k++)
        for (int i = 0; i < m->kinds[k].n_work; i++) {
            const mt_work_item *w = &m->kinds[k].work[i];
            double n = w->T ? w->n / w->T : w->n;
            if (w->kind == MT_WORK_PRODUCT && n > widest) widest = n;
        }
    return (size_t)widest;
}

size_t mt_plan_base_host(const mt_plan *p, const mt_machine *m)
{
    enum { TILE_ROWS = 512, TILE_COLS = 128 }; /* ops/linear.c */
    enum { CUDNN_HOST = 153 << 20 };           /* for its libraries and compiled kernels */
    size_t rows = (size_t)mt_min_i64(p->arithmetic.micro_tokens, TILE_ROWS);
    size_t widened = p->arithmetic.compute == MT_DTYPE_F32 ? 0 : (rows + TILE_COLS) * widest_row(p->model);
    size_t pools = p->host_bytes / MT_HOST_POOL_BYTES + 4; /* engine/memory.c: each is half a page too large on average */
    bool cudnn = p->arithmetic.attention.ways >> MT_ATTENTION_CUDNN & 1;
    return m->base_host + (cudnn ? CUDNN_HOST : 0) + (!m->shared && p->job.mapped ? MT_DEVICE_SLOTS_BYTES : 0) +
           pools * m->host_page / 2 + (size_t)m->threads * (TILE_ROWS * TILE_COLS + widened) * sizeof(float);
}

size_t mt_plan_host_total(const mt_plan *p, const mt_machine *m)
{
    return p->host_bytes + mt_plan_base_host(p, m) + (m->shared ? p->device_bytes * (size_t)mt_plan_lanes(p) : 0);
}

size_t mt_plan_moment_bytes(const mt_plan *p)
{
    return 2 * mt_moments_bytes(p->arithmetic.moments, MT_MOMENT_BLOCK) / MT_MOMENT_BLOCK;
}

static size_t moment_bytes(const mt_plan *p, size_t n) { return mt_moments_bytes(p->arithmetic.moments, n); }

/* True if hi is updated in its resident slot. */
static bool in_place(const mt_plan *p, int unit)
{
    return p->place.units[unit].resident && p->arithmetic.compute == MT_DTYPE_BF16;
}

mt_staging_layout mt_plan_staging(const mt_plan *p, int unit)
{
    size_t n = (size_t)p->model->units[unit].layout->n_train;
    mt_staging_layout s = { .v = mt_round_up(moment_bytes(p, n), MT_ARRAY_ALIGN) };
    s.hi = 2 * s.v;
    s.lo = s.hi + (in_place(p, unit) ? 0 : mt_round_up(n * 2, MT_ARRAY_ALIGN));
    s.bytes = s.lo + n * 2;
    return s;
}

mt_piece_layout mt_plan_piece(const mt_plan *p, int64_t elems)
{
    size_t n = (size_t)elems;
    mt_piece_layout s = { .v = mt_round_up(moment_bytes(p, n), MT_ARRAY_ALIGN) };
    s.hi = 2 * s.v;
    s.lo = s.hi + mt_round_up(n * 2, MT_ARRAY_ALIGN);
    s.g = s.lo + mt_round_up(n * 2, MT_ARRAY_ALIGN);
    s.bytes = s.g + n * size_of(p->arithmetic.grad);
    return s;
}

static bool takes_slot(const mt_plan *p, int unit)
{
    const mt_unit_place *at = &p->place.units[unit];
    return at->site == MT_SITE_STAGED && !at->reuses && p->model->units[unit].layout->n_train;
}

int mt_plan_segment_start(const mt_plan *p, int layer)
{
    while (layer > 0 && p->place.layers[layer].keep == MT_KEEP_NOTHING) layer--;
    return layer;
}

mt_reuse_layout mt_plan_reuse(const mt_plan *p, int unit)
{
    size_t n = (size_t)p->model->units[unit].layout->n_train;
    bool one = p->model->units[unit].kind == MT_UNIT_LAYER;
    size_t v = mt_round_up(moment_bytes(p, n), MT_ARRAY_ALIGN);
    mt_reuse_layout l = { .v = 0, .lo = one ? v : 0 };
    l.g = l.lo + mt_round_up(n * 2, MT_ARRAY_ALIGN);
    l.hi = l.g + mt_round_up(n * size_of(p->arithmetic.grad), MT_ARRAY_ALIGN);
    l.bytes[0] = v;
    l.bytes[1] = l.hi + (in_place(p, unit) ? 0 : n * 2);
    return l;
}

/* Bytes that layer `layer` keeps on the device, which a unit may reuse. */
static size_t reusable(const mt_plan *p, int layer)
{
    const mt_layer_place *at = &p->place.layers[layer];
    return at->place == MT_DEVICE ? mt_plan_kept_bytes(p, layer, at->keep) : 0;
}

/* The last layer from `from` down to `to` that keeps this much; -1: none. */
static int find_reusable(const mt_plan *p, int from, int to, size_t bytes)
{
    while (from >= to && reusable(p, from) < bytes) from--;
    return from >= to ? from : -1;
}

/* Finds lenders for all units that reuse memory. */
static bool assign_reused(mt_plan *p)
{
    int next = (int)p->model->config->L - 1; /* later layers are taken or keep too little */
    for (int u = p->model->n_units - 1; u >= 0; u--) {
        mt_unit_place *at = &p->place.units[u];
        if (!at->reuses) continue;
        mt_reuse_layout need = mt_plan_reuse(p, u);
        bool layer = p->model->units[u].kind == MT_UNIT_LAYER;
        int lowest = layer ? p->model->units[u].layer : 0, first = next, second = next;
        if (!layer) next = first = find_reusable(p, next, lowest, need.bytes[0]), next--;
        next = second = next < lowest ? -1 : find_reusable(p, next, lowest, need.bytes[1]);
        if (second < 0) return false;
        next--;
        at->reused[0] = layer ? second : first;
        at->reused[1] = second;
    }
    return true;
}

/* True if, regardless of other units, this one has sums to reuse, and layers may keep enough. */
static bool may_reuse(const mt_plan *p, int unit)
{
    bool can = p->model->units[unit].kind == MT_UNIT_LAYER || unit == p->model->embed;
    return can && mt_plan_many_sweeps(p) && p->place.accumulators == MT_DEVICE;
}

/* Takes the first layer from l->next on that keeps this much; false: there is none. */
static bool take_reusable(const mt_plan *p, mt_reuse_search *l, size_t bytes)
{
    int L = (int)p->model->config->L, at = l->next;
    if (l->refused && bytes >= l->refused) return false;
    while (at < L && reusable(p, at) < bytes) at++;
    if (at == L) return l->refused = bytes, false;
    l->next = at + 1;
    return true;
}

/* Lenders keep the order of the units they serve.  So taking the first that is large enough in ascending order succeeds if and
 * only if taking the last in descending order (assign_reused) does, and units granted before need no second look. */
bool mt_plan_grant_reuse(const mt_plan *p, mt_reuse_search *l, int unit)
{
    const mt_unit *u = &p->model->units[unit];
    if (!may_reuse(p, unit)) return false;
    mt_reuse_layout need = mt_plan_reuse(p, unit);
    mt_reuse_search with = *l;
    if (u->kind == MT_UNIT_LAYER && u->layer > with.next) with.next = u->layer;
    bool granted = take_reusable(p, &with, need.bytes[1]) && (u->kind == MT_UNIT_LAYER || take_reusable(p, &with, need.bytes[0]));
    if (granted)
        *l = with;
    else if (u->kind == MT_UNIT_LAYER)
        l->refused = with.refused; /* later units start no earlier */
    return granted;
}

int mt_plan_alias(const mt_plan *p, int unit)
{
    const mt_unit *u = &p->model->units[unit];
    bool shares = p->job.alias_layers && u->layer >= 0 && p->place.units[unit].home == MT_HOST;
    return shares ? p->place.groups[u->group].alias : unit;
}

int mt_plan_alias_kept(const mt_plan *p, int layer)
{
    const mt_layer_place *at = &p->place.layers[layer];
    return p->job.alias_layers && at->place == MT_HOST ? p->shared_keep[at->keep] : layer;
}

/* -- what follows from the placement ---------------------------------------------------------------------- */

static void count_groups(mt_plan *p)
{
    p->has_pieces = false;
    for (int g = 0; g < p->model->n_groups; g++) {
        mt_group_place *at = &p->place.groups[g];
        at->members = at->streamed = at->hosted = 0;
        at->together = 1;
        at->alias = -1;
    }
    for (int u = 0; u < p->model->n_units; u++) {
        mt_group_place *g = &p->place.groups[p->model->units[u].group];
        const mt_unit_place *at = &p->place.units[u];
        g->members++;
        g->streamed += !at->resident;
        g->hosted += at->site == MT_SITE_HOST;
        if (g->alias < 0 && at->home == MT_HOST) g->alias = u;
        p->has_pieces |= at->in_pieces > 0;
    }
}

/* Units of each group in layers [first, end), which one segment uses at once. */
static void count_segment(mt_plan *p, int first, int end)
{
    const mt_model *m = p->model;
    mt_group_place *groups = p->place.groups;
    int from = m->layers[first].first, to = m->layers[end - 1].first + m->layers[end - 1].n;
    for (int u = from; u < to; u++) groups[m->units[u].group].in_segment = 0;
    for (int u = from; u < to; u++) {
        mt_group_place *g = &groups[m->units[u].group];
        if (m->units[u].kind == MT_UNIT_EXPERTS) continue; /* one at a time */
        if (++g->in_segment > g->together) g->together = g->in_segment;
    }
    if (end - first > p->longest_segment) p->longest_segment = end - first;
}

static void count_layers(mt_plan *p)
{
    const mt_layer_place *at = p->place.layers;
    int L = (int)p->model->config->L;
    p->longest_segment = 1;
    for (int keep = 0; keep < MT_KEEPS; keep++) p->shared_keep[keep] = -1;
    for (int l = 0, first = 0; l < L; l++) {
        if (at[l].place == MT_HOST && p->shared_keep[at[l].keep] < 0) p->shared_keep[at[l].keep] = l;
        if (l + 1 < L && at[l + 1].keep == MT_KEEP_NOTHING) continue;
        count_segment(p, first, l + 1);
        first = l + 1;
    }
}

/* Gives each unit that needs one a private slot, if there are enough. */
static void number_stage_slots(mt_plan *p)
{
    int n = 0;
    for (int u = 0; u < p->model->n_units; u++) p->place.units[u].private_slot = takes_slot(p, u) ? n++ : -1;
    p->private_slots = n <= p->place.staging_slots;
    for (int u = 0; u < p->model->n_units && !p->private_slots; u++) p->place.units[u].private_slot = -1;
}

bool mt_plan_settle(mt_plan *p)
{
    count_groups(p);
    count_layers(p);
    number_stage_slots(p);
    return assign_reused(p);
}

/* -- checks ---------------------------------------------------------------------------------------- */

static mt_rc check_count(int n, mt_err *err)
{
    return n >= 0 ? MT_OK : mt_fail(err, MT_ERANGE, "a plan with %d slots of a kind", n);
}

static mt_rc check_slots(const mt_plan *p, mt_err *err)
{
    const mt_placement *q = &p->place;
    MT_TRY(check_count(q->keep_slots, err));
    MT_TRY(check_count(q->staging_slots, err));
    MT_TRY(check_count(q->piece_slots, err));
    MT_TRY(check_count(q->n_slabs, err));
    for (int g = 0; g < p->model->n_groups; g++) {
        MT_TRY(check_count(q->groups[g].ring_slots, err));
        MT_TRY(check_count(q->groups[g].sum_slots, err));
        MT_TRY(check_count(q->groups[g].out_slots, err));
    }
    return MT_OK;
}

static mt_rc check_keeps(const mt_plan *p, mt_err *err)
{
    const mt_placement *q = &p->place;
    bool offloads = false;
    for (int l = 0; l < p->model->config->L; l++) {
        const mt_layer_place *at = &q->layers[l];
        if (at->keep < MT_KEEP_NOTHING || at->keep >= MT_KEEPS) return mt_fail(err, MT_EINVAL, "layer %d: unknown keep level", l);
        bool apart = mt_layer_has_experts(p->model, l) || (l > 0 && mt_layer_has_experts(p->model, l - 1));
        if (apart && at->keep == MT_KEEP_NOTHING)
            return mt_fail(err, MT_EINVAL, "layer %d must keep its input: a layer with experts is recomputed alone", l);
        offloads |= at->keep != MT_KEEP_NOTHING && at->place == MT_HOST;
    }
    if (q->layers[0].keep == MT_KEEP_NOTHING) return mt_fail(err, MT_EINVAL, "layer 0 must keep its input");
    if (p->job.train && offloads && q->keep_slots < 2)
        return mt_fail(err, MT_EINVAL, "kept activations in host memory need two slots to pass through");
    return MT_OK;
}

static bool sums_pass_through(const mt_plan *p) { return !(mt_plan_many_sweeps(p) && p->place.accumulators == MT_DEVICE); }

/* Fails if a segment needs more slots at once than its group has. */
static mt_rc check_segments(const mt_plan *p, mt_err *err)
{
    if (p->longest_segment > MT_MAX_SEGMENT)
        return mt_fail(err, MT_ERANGE, "%d layers would be recomputed from one kept input; at most %d", p->longest_segment,
                       MT_MAX_SEGMENT);
    for (int g = 0; g < p->model->n_groups; g++) {
        const mt_group_place *at = &p->place.groups[g];
        bool trains = p->job.train && p->model->layouts[g].n_train > 0;
        if (at->streamed && at->ring_slots < at->together)
            return mt_fail(err, MT_EINVAL, "a ring of %d slots for segments of %d layers", at->ring_slots, at->together);
        if (trains && sums_pass_through(p) && at->sum_slots < at->together)
            return mt_fail(err, MT_EINVAL, "%d slots for gradient sums of segments of %d layers", at->sum_slots, at->together);
    }
    return MT_OK;
}

/* Checks a unit's update in pieces, if it has any. */
static mt_rc check_pieces(const mt_plan *p, int u, mt_err *err)
{
    const mt_unit_place *at = &p->place.units[u];
    int64_t n = p->model->units[u].layout->n_train, share = n - at->in_pieces;
    if (!at->in_pieces) return MT_OK;
    if (at->site != MT_SITE_HOST || !p->job.train || p->job.only_gradients || at->in_pieces < 0 || share < 0)
        return mt_fail(err, MT_EINVAL, "unit %d: %lld of its %lld trained elements cannot be updated in pieces", u,
                       (long long)at->in_pieces, (long long)n);
    if (share % MT_MOMENT_BLOCK || p->place.piece_elems < 1 || p->place.piece_elems % MT_MOMENT_BLOCK)
        return mt_fail(err, MT_EINVAL, "unit %d: pieces of %lld elements after the first %lld cut a block of moments", u,
                       (long long)p->place.piece_elems, (long long)share);
    return p->place.piece_slots >= 1 ? MT_OK : mt_fail(err, MT_EINVAL, "updates in pieces need a slot");
}

static mt_rc check_units(const mt_plan *p, mt_err *err)
{
    const mt_placement *q = &p->place;
    for (int u = 0; u < p->model->n_units; u++) {
        const mt_unit_place *at = &q->units[u];
        bool trains = p->job.train && p->model->units[u].layout->n_train > 0;
        if (at->home == MT_DEVICE && !at->resident && !mt_plan_is_sliced(p, u))
            return mt_fail(err, MT_EINVAL, "unit %d has its home on the device and is not resident", u);
        MT_TRY(check_pieces(p, u, err));
        if (!trains) continue;
        if ((at->site == MT_SITE_DEVICE) != (at->home == MT_DEVICE))
            return mt_fail(err, MT_EINVAL, "unit %d: the update site is the device if and only if the home is", u);
        if (at->site == MT_SITE_STAGED && p->job.only_gradients) return mt_fail(err, MT_EINVAL, "unit %d: no state to stage", u);
        if (at->reuses && (at->site != MT_SITE_STAGED || !may_reuse(p, u)))
            return mt_fail(err, MT_EINVAL, "unit %d cannot reuse memory for its update", u);
        if (at->site == MT_SITE_STAGED && !at->reuses && q->staging_slots < 1)
            return mt_fail(err, MT_EINVAL, "staged updates need a slot");
        if (at->site == MT_SITE_HOST && q->groups[p->model->units[u].group].out_slots < 1)
            return mt_fail(err, MT_EINVAL, "gradients on their way to the host need a slot");
        if (at->site == MT_SITE_HOST && !p->job.clip && q->n_slabs < 1)
            return mt_fail(err, MT_EINVAL, "without clipping gradients need a slab");
    }
    return MT_OK;
}

static bool folds_by_peers(const mt_plan *p) { return mt_plan_lanes(p) > 1 && p->place.fold == MT_FOLD_PEERS; }

/* Several lanes and machines share host memory.  Its home and update site is the host, or, on one machine, the devices in slices,
 * where the gradients' slices are too. */
static mt_rc check_lanes(const mt_plan *p, mt_err *err)
{
    const mt_arithmetic *a = &p->arithmetic;
    const int lanes = mt_plan_lanes(p), machines = mt_plan_machines(p),
              parts = machines > 1 ? mt_arithmetic_shares(a) : mt_arithmetic_parts(a);
    if (!mt_plan_by_shares(p)) return MT_OK;
    if (!p->job.train || p->job.alias_layers)
        return mt_fail(err, MT_EINVAL, "%d lanes and %d machines for a pass that one lane makes", lanes, machines);
    if (lanes > parts) return mt_fail(err, MT_EINVAL, "%d lanes for a step of %d shares", lanes, parts);
    if ((machines > 1 || mt_arithmetic_rounds(a)) && p->place.fold != MT_FOLD_HOST)
        return mt_fail(err, MT_EINVAL, "sums of bundles that are rounded, or leave for other machines, meet in host memory");
    if (p->job.machine < 0 || p->job.machine >= machines)
        return mt_fail(err, MT_EINVAL, "machine %d of %d", p->job.machine, machines);
    if (p->place.gather && (!folds_by_peers(p) || p->job.only_gradients))
        return mt_fail(err, MT_EINVAL, "weights are gathered from devices whose sums do not meet there");
    for (int u = 0; u < p->model->n_units; u++) {
        const mt_unit_place *at = &p->place.units[u];
        if (at->home == MT_DEVICE && at->site == MT_SITE_DEVICE && folds_by_peers(p) && !p->job.only_gradients) continue;
        if (at->home != MT_HOST || at->site != MT_SITE_HOST || at->in_pieces)
            return mt_fail(err, MT_EINVAL,
                           "unit %d is updated neither on the host nor in slices, and there are %d lanes and %d machines", u,
                           lanes, machines);
    }
    return MT_OK;
}

static mt_rc plan_check(mt_plan *p, mt_err *err)
{
    const mt_job *j = &p->job;
    const mt_arithmetic *a = &p->arithmetic;
    bool in_pieces = j->cache_slots > 0 && !j->train; /* a cached sequence may take several passes */
    if (j->step_tokens < 1 || j->step_docs < 1 || j->longest < 1 || (j->longest > j->step_tokens && !in_pieces))
        return mt_fail(err, MT_EINVAL, "a step of %lld rows in %lld documents, the longest of %lld", (long long)j->step_tokens,
                       (long long)j->step_docs, (long long)j->longest);
    if ((a->compute != MT_DTYPE_F32 && a->compute != MT_DTYPE_BF16) || (a->grad != MT_DTYPE_F32 && a->grad != MT_DTYPE_BF16))
        return mt_fail(err, MT_EINVAL, "compute and gradients are float32 or bfloat16");
    if (a->moments < MT_MOMENTS_F32 || a->moments >= MT_MOMENTS_FORMS)
        return mt_fail(err, MT_EINVAL, "an unknown form of Adam's moments");
    if (j->mapped && (j->train || a->compute != MT_DTYPE_BF16))
        return mt_fail(err, MT_EINVAL, "mapped weights support only the forward pass in bfloat16");
    if (j->cache_slots < 0 || j->cache_slots > mt_min_i64(j->step_docs, a->micro_tokens))
        return mt_fail(err, MT_EINVAL, "a cache for %lld sequences, with passes of %lld documents and micro-batches of %lld rows",
                       (long long)j->cache_slots, (long long)j->step_docs, (long long)a->micro_tokens);
    if (a->micro_tokens < j->longest && !in_pieces)
        return mt_fail(err, MT_EINVAL, "micro-batches of %lld rows cannot hold a document of %lld", (long long)a->micro_tokens,
                       (long long)j->longest);
    if (a->mlp_rows < 1 || a->head_rows < 1) return mt_fail(err, MT_EINVAL, "row chunks of 0 rows");
    if (a->bundles < 0 || a->shares < 0 || a->bundles > MT_MOST_SHARES || a->shares > MT_MOST_SHARES ||
        mt_arithmetic_parts(a) > MT_MOST_SHARES)
        return mt_fail(err, MT_ERANGE, "a step of %lld x %lld shares; at most %d", (long long)a->bundles, (long long)a->shares,
                       MT_MOST_SHARES);
    if (p->place.sweep_tokens < a->micro_tokens) return mt_fail(err, MT_EINVAL, "a sweep smaller than a micro-batch");
    MT_TRY(check_lanes(p, err));
    p->part_tokens = mt_plan_part_tokens(p);
    if (p->place.sweep_tokens < mt_min_i64(a->moe_tokens, p->part_tokens))
        return mt_fail(err, MT_EINVAL, "a sweep of %lld rows is smaller than what passes an expert together (%lld)",
                       (long long)p->place.sweep_tokens, (long long)a->moe_tokens);
    if (!a->unit_experts) p->arithmetic.unit_experts = p->model->unit_experts;
    if (a->unit_experts != p->model->unit_experts)
        return mt_fail(err, MT_EINVAL, "a plan for units of %lld experts, and the model's have %lld", (long long)a->unit_experts,
                       (long long)p->model->unit_experts);
    MT_TRY(check_slots(p, err));
    MT_TRY(check_keeps(p, err));
    bool settled = mt_plan_settle(p);
    MT_TRY(check_segments(p, err));
    if (!settled) return mt_fail(err, MT_EINVAL, "more units reuse memory for their updates than there are layers to reuse");
    return check_units(p, err);
}

/* -- buffers --------------------------------------------------------------------------------------- */

static mt_rc plan_add(mt_plan *p, mt_buffer_kind kind, int i, int j, mt_place place, size_t bytes, mt_err *err)
{
    if (bytes == 0) return MT_OK;
    const size_t of_lanes = place == MT_HOST && mt_buffer_of_lane(kind, place) ? (size_t)mt_plan_lanes(p) : 1;
    *(place == MT_DEVICE ? &p->device_bytes : &p->host_bytes) += mt_round_up(bytes, MT_DEVICE_ALIGN) * of_lanes;
    if (p->counting) return MT_OK;
    MT_TRY(mt_grow(&p->buffers, &p->cap_buffers, p->n_buffers + 1, sizeof *p->buffers, err));
    mt_buffer *b = &p->buffers[p->n_buffers++];
    *b = (mt_buffer){ .kind = kind, .i = i, .j = j, .place = place, .bytes = mt_round_up(bytes, MT_DEVICE_ALIGN) };
    int n = snprintf(b->name, sizeof b->name, "%s", kind_names[kind]);
    if (i >= 0) n += snprintf(b->name + n, sizeof b->name - (size_t)n, " %d", i);
    if (j >= 0) snprintf(b->name + n, sizeof b->name - (size_t)n, ".%d", j);
    return MT_OK;
}

/* A unit's own buffer at its home; in host memory, layers may share it (alias). */
static mt_rc add_at_home(mt_plan *p, mt_buffer_kind kind, int u, size_t bytes, mt_err *err)
{
    return mt_plan_alias(p, u) == u ? plan_add(p, kind, u, -1, p->place.units[u].home, bytes, err) : MT_OK;
}

/* Where sums of shares are added, and bytes of a lane's part of n of their numbers, in a slot. */
static mt_place place_of_sums(const mt_plan *p) { return folds_by_peers(p) ? MT_DEVICE : MT_HOST; }
static size_t sum_bytes(const mt_plan *p, int64_t n)
{
    return (size_t)(folds_by_peers(p) ? mt_plan_most_slice(p, n) : n) * sizeof(float);
}
static size_t landing_bytes(const mt_plan *p, int64_t n)
{
    if (!folds_by_peers(p)) return sum_bytes(p, n);
    return (size_t)(mt_plan_lanes(p) * mt_plan_acc_stride(mt_plan_most_slice(p, n))) * sizeof(float);
}

/* A unit's sums on the host.  One machine: the step's and a bundle's, unless each lane has at most one share; then the first to
 * land is added to.  Several machines: a bundle's, which is then sent. */
int mt_plan_total_count(const mt_plan *p)
{
    if (mt_plan_machines(p) > 1) return mt_plan_bundle_rounds(p) > 1;
    return mt_plan_rounds(p) == 1 ? 0 : 1 + (mt_arithmetic_bundles(&p->arithmetic) > 1);
}

/* With several machines: what this machine's slice of unit u needs. */
static mt_rc add_exchanged(mt_plan *p, int u, mt_err *err)
{
    const int64_t n_train = p->model->units[u].layout->n_train;
    const size_t bytes = (size_t)mt_plan_own_slice(p, u).n * sizeof(float);
    const bool apart = mt_plan_turns(p) > 1 || mt_arithmetic_rounds(&p->arithmetic); /* else add to the first bundle */
    const int sums = !apart ? 0 : mt_unit_is_tied(p->model, u) ? 2 : 1;
    for (int i = 0; i < sums; i++) MT_TRY(plan_add(p, MT_BUF_SLICE_TOTAL, u, i, MT_HOST, bytes, err));
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

/* Masters and Adam's state at their home, gradients where they wait. */
static mt_rc add_unit(mt_plan *p, int u, mt_err *err)
{
    const mt_layout *l = p->model->units[u].layout;
    const mt_unit_place *at = &p->place.units[u];
    size_t n = (size_t)l->n_elems, n_train = (size_t)l->n_train, g = size_of(p->arithmetic.grad);
    bool f32 = p->arithmetic.compute == MT_DTYPE_F32, many = mt_plan_many_sweeps(p), tied = mt_unit_is_tied(p->model, u);
    bool updates = p->job.train && !p->job.only_gradients;
    const size_t n_own = (size_t)(mt_plan_is_sliced(p, u) ? mt_plan_slice_rest(p, u) : mt_plan_own_slice(p, u).n),
                 n_low_home = (size_t)mt_plan_stored(p, u, MT_STATE_LO);
    size_t n_low = (size_t)l->n_low, n_exact = f32 ? 0 : (size_t)l->n_exact; /* fp32 weights are exact */
    const bool sliced = mt_plan_is_sliced(p, u),
               apart = at->home == MT_HOST || sliced; /* the device does not compute with weights at this home */
    if (at->home == MT_DEVICE || !p->job.mapped)
        MT_TRY(add_at_home(p, MT_BUF_HI, u, 2 * (sliced ? (size_t)mt_plan_slice_elems(p, u, MT_STATE_HI) : n), err));
    if (updates || f32)
        MT_TRY(add_at_home(p, MT_BUF_LO, u, 2 * (sliced ? (size_t)mt_plan_slice_elems(p, u, MT_STATE_LO) : n_low_home), err));
    else
        MT_TRY(add_at_home(p, MT_BUF_EXACT_HOME, u, n_exact * 4, err));
    if (at->resident) MT_TRY(plan_add(p, MT_BUF_EXACT, u, -1, MT_DEVICE, n_exact * (apart ? 8 : 4), err));
    /* In bf16 a device home is itself the compute form. */
    if (at->resident && (f32 || apart))
        MT_TRY(plan_add(p, MT_BUF_RESIDENT, u, -1, MT_DEVICE, n * size_of(p->arithmetic.compute), err));
    if (at->resident && f32 && apart) MT_TRY(plan_add(p, MT_BUF_HALVES, -1, u, MT_DEVICE, (n + n_low) * 2, err));
    for (mt_state_kind k = 0; k <= MT_STATE_LO; k++)
        if (mt_plan_mirrors(p, u, k))
            MT_TRY(plan_add(p, MT_BUF_WEIGHT_SLICE, u, (int)k, MT_DEVICE, 2 * (size_t)mt_plan_slice_elems(p, u, k), err));
    if (!p->job.train || n_train == 0) return MT_OK;
    if (updates) MT_TRY(add_at_home(p, MT_BUF_M, u, moment_bytes(p, n_own), err));
    if (updates) MT_TRY(add_at_home(p, MT_BUF_V, u, moment_bytes(p, n_own), err));
    bool shares = mt_plan_alias(p, u) != u, shared = p->job.alias_layers && at->home == MT_HOST;
    const bool parks =
        p->job.clip || mt_plan_machines(p) > 1; /* until the norm is known: the norm of all units, or of this one */
    if (parks && !shares && (at->site == MT_SITE_HOST || shared))
        MT_TRY(plan_add(p, MT_BUF_PARKED, u, -1, MT_HOST, n_own * g, err));
    if (at->site != MT_SITE_HOST && !at->reuses) MT_TRY(plan_add(p, MT_BUF_GRAD_DEV, u, -1, MT_DEVICE, n_own * g, err));
    const size_t sums = mt_plan_acc_bytes(p, (int64_t)n_train);
    if (many && p->place.accumulators == MT_HOST && !shares) {
        MT_TRY(plan_add(p, MT_BUF_ACC_HOST, u, 0, MT_HOST, sums, err));
        if (tied) MT_TRY(plan_add(p, MT_BUF_ACC_HOST, u, 1, MT_HOST, sums, err));
    }
    if (many && p->place.accumulators == MT_DEVICE) MT_TRY(plan_add(p, MT_BUF_ACC, u, -1, MT_DEVICE, sums, err));
    if (tied) MT_TRY(plan_add(p, MT_BUF_ACC_TIED, u, -1, MT_DEVICE, sums, err));
    return mt_plan_by_shares(p) ? add_totals(p, u, err) : MT_OK;
}

static bool same_place(const mt_unit_place *a, const mt_unit_place *b)
{
    return a->resident == b->resident && a->home == b->home && a->site == b->site && a->reuses == b->reuses &&
           a->in_pieces == b->in_pieces;
}

/* If only sizes are wanted, a layer placed like the one before it takes the same memory. */
static mt_rc add_units(mt_plan *p, mt_err *err)
{
    size_t device = 0, host = 0; /* of the unit before */
    for (int u = 0; u < p->model->n_units; u++) {
        bool like = u > 0 && p->model->units[u].layout == p->model->units[u - 1].layout &&
                    same_place(&p->place.units[u], &p->place.units[u - 1]);
        if (like && p->counting && !p->job.alias_layers) {
            p->device_bytes += device;
            p->host_bytes += host;
            continue;
        }
        device = p->device_bytes;
        host = p->host_bytes;
        MT_TRY(add_unit(p, u, err));
        device = p->device_bytes - device;
        host = p->host_bytes - host;
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
        MT_TRY(plan_add(p, MT_BUF_RING, g, s, MT_DEVICE, (size_t)l->n_elems * size_of(p->arithmetic.compute), err));
        MT_TRY(f32 ? plan_add(p, MT_BUF_HALVES, g, s, MT_DEVICE, (size_t)(l->n_elems + l->n_low) * 2, err)
                   : plan_add(p, MT_BUF_EXACT, g, s, MT_DEVICE, (size_t)l->n_exact * 8, err));
    }
    if (!trains) return MT_OK;
    for (int s = 0; s < mt_min_int(at->members, at->sum_slots) && sums_pass_through(p); s++)
        MT_TRY(plan_add(p, MT_BUF_ACC, g, s, MT_DEVICE, mt_plan_acc_bytes(p, l->n_train), err));
    for (int s = 0; s < mt_min_int(at->hosted, at->out_slots) && !mt_plan_by_shares(p); s++)
        MT_TRY(plan_add(p, MT_BUF_GRAD, g, s, MT_DEVICE, (size_t)l->n_train * size_of(p->arithmetic.grad), err));
    return MT_OK;
}

/* A slot for each unit that needs one, or slots sized for the largest. */
static mt_rc add_stage_slots(mt_plan *p, mt_err *err)
{
    size_t largest = 0;
    for (int u = 0; u < p->model->n_units; u++) {
        if (!takes_slot(p, u)) continue;
        size_t bytes = mt_plan_staging(p, u).bytes;
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
        MT_TRY(plan_add(p, MT_BUF_PIECE, s, -1, MT_DEVICE, mt_plan_piece(p, largest).bytes, err));
    return MT_OK;
}

/* Buffers for a finished slice on its way to the host, and for its norm. */
static mt_rc add_slices(mt_plan *p, int64_t largest, mt_err *err)
{
    const int64_t n = mt_plan_most_slice(p, largest);
    const size_t chunks = mt_sqnorm_n_chunks((size_t)n), all = mt_sqnorm_n_chunks((size_t)largest);
    MT_TRY(plan_add(p, MT_BUF_SLICE, -1, -1, MT_DEVICE, (size_t)n * size_of(p->arithmetic.grad), err));
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
    return folds_by_peers(p) ? add_slices(p, mt_max_i64(layers, ends), err) : MT_OK;
}

/* Slots for bundles' sums on their way between machines, used in turn as sums land: both sums of a tied unit, one after the
 * other. */
static mt_rc add_exchange(mt_plan *p, mt_err *err)
{
    size_t sent[MT_LAND_SLOTS] = { 0 }, received[MT_LAND_SLOTS] = { 0 };
    for (int u = 0; u < p->model->n_units; u++) {
        const size_t sums = (mt_unit_is_tied(p->model, u) ? 2 : 1) * mt_plan_sent_bytes(p),
                     others = (size_t)mt_plan_machines(p) - 1;
        const bool layer = p->model->units[u].layer >= 0;
        for (int s = layer ? 0 : MT_LAND_ENDS; s < (layer ? MT_LAND_TURNS : MT_LAND_SLOTS); s++) {
            sent[s] = max_size(sent[s], (size_t)p->model->units[u].layout->n_train * sums);
            received[s] = max_size(received[s], (size_t)mt_plan_own_slice(p, u).n * others * sums);
        }
    }
    for (int s = 0; s < MT_LAND_SLOTS; s++) {
        MT_TRY(plan_add(p, MT_BUF_SEND, s, -1, MT_HOST, sent[s], err));
        MT_TRY(plan_add(p, MT_BUF_RECEIVE, s, -1, MT_HOST, received[s], err));
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
        MT_TRY(plan_add(p, MT_BUF_SLAB, s, -1, MT_HOST, slab * size_of(p->arithmetic.grad), err));
    MT_TRY(add_stage_slots(p, err));
    return add_piece_slots(p, err);
}

static mt_rc add_kept(mt_plan *p, mt_err *err)
{
    const mt_config *c = p->model->config;
    size_t rows = (size_t)p->place.sweep_tokens, largest = 0, bytes = 0;
    mt_dtype t = p->arithmetic.compute;
    const mt_layer_kind *kind = NULL; /* the layer kind whose bytes are cached, */
    mt_keep keep = MT_KEEPS;          /* and its level */
    for (int l = 0; l < c->L; l++) {
        const mt_layer_place *at = &p->place.layers[l];
        if (mt_layer_kind_of(p->model, l) != kind || at->keep != keep) {
            kind = mt_layer_kind_of(p->model, l);
            keep = at->keep;
            bytes = mt_kept_bytes(kind, t, keep, p->place.sweep_tokens);
        }
        if (at->place == MT_DEVICE || mt_plan_alias_kept(p, l) == l)
            MT_TRY(plan_add(p, at->place == MT_DEVICE ? MT_BUF_KEEP : MT_BUF_KEEP_HOST, l, -1, at->place, bytes, err));
        if (at->place == MT_HOST && bytes > largest) largest = bytes;
    }
    for (int s = 0; s < p->place.keep_slots && largest; s++)
        MT_TRY(plan_add(p, MT_BUF_KEEP_SLOT, s, -1, MT_DEVICE, largest, err));
    return plan_add(p, MT_BUF_DX, -1, -1, MT_DEVICE, rows * (size_t)c->D * size_of(t), err);
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
    size_t rows, bytes, fixed;
    for (int l = 0; l < c->L; l++) {
        const mt_cache_bytes each = mt_layer_cache(p->model, l, p->arithmetic.compute);
        if (!mt_mul_size((size_t)j->cache_slots, (size_t)j->longest, &rows) || rows > INT32_MAX ||
            !mt_mul_size(rows, each.row, &bytes) || !mt_mul_size((size_t)j->cache_slots, each.sequence, &fixed) ||
            fixed > SIZE_MAX - bytes)
            return mt_fail(err, MT_ERANGE, "a cache for %lld sequences of %lld tokens is larger than any memory",
                           (long long)j->cache_slots, (long long)j->longest);
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
        p->scratch =
            max_size(p->scratch, mt_model_cache_scratch(p->model, a->compute, a->micro_tokens, j->cache_slots, j->longest));
    return p->scratch;
}

static mt_rc add_work(mt_plan *p, mt_err *err)
{
    const mt_config *c = p->model->config;
    const mt_arithmetic *a = &p->arithmetic;
    const mt_job *j = &p->job;
    size_t e = size_of(a->compute), tokens = (size_t)j->step_tokens, docs = (size_t)j->step_docs;
    for (int x = 0; x < 2; x++)
        MT_TRY(plan_add(p, MT_BUF_X_PASS, x, -1, MT_DEVICE, (size_t)p->place.sweep_tokens * (size_t)c->D * e, err));
    for (int s = 0; s < (j->train ? p->longest_segment : 1); s++)
        MT_TRY(plan_add(p, MT_BUF_LAYER_WORK, s, -1, MT_DEVICE, work_bytes(p, false), err));
    int64_t head_rows = mt_min_i64(a->head_rows, a->micro_tokens);
    MT_TRY(plan_add(p, MT_BUF_WORK, -1, -1, MT_DEVICE, work_bytes(p, true), err));
    MT_TRY(plan_add(p, MT_BUF_ENDS, -1, -1, MT_DEVICE,
                    mt_ends_carve(NULL, NULL, p->model, a->compute, a->micro_tokens, head_rows, j->train), err));
    MT_TRY(plan_add(p, MT_BUF_SCRATCH, -1, -1, MT_DEVICE, scratch_bytes(p), err));
    size_t rope_rows = (size_t)(mt_rope_short_rows(&c->rope, j->longest) + j->longest);
    MT_TRY(plan_add(p, MT_BUF_ROPE, -1, -1, MT_DEVICE,
                    (c->has_rope_local ? 2 : 1) * rope_rows * (size_t)c->rope.dr * sizeof(float), err));
    size_t input = (tokens * 5 + docs * (j->cache_slots ? 4 : 2) + 2) * sizeof(int32_t), sums = mt_plan_sums_bytes(p);
    const size_t router = (size_t)(mt_plan_most_micros(p) * p->model->routed.E) * (sizeof(int32_t) + sizeof(float));
    if (mt_plan_balances(p)) MT_TRY(plan_add(p, MT_BUF_ROUTER, -1, -1, MT_DEVICE, router, err));
    MT_TRY(plan_add(p, MT_BUF_INPUT, -1, -1, MT_DEVICE, input, err));
    MT_TRY(plan_add(p, MT_BUF_INPUT_HOST, -1, -1, MT_HOST, input, err));
    MT_TRY(plan_add(p, MT_BUF_SUMS, -1, -1, MT_DEVICE, sums, err));
    MT_TRY(plan_add(p, MT_BUF_BOUNCE, -1, -1, MT_HOST, mt_plan_bounce_bytes(p), err));
    return plan_add(p, MT_BUF_SUMS_HOST, -1, -1, MT_HOST, sums + (size_t)p->model->n_units * sizeof(double), err);
}

static mt_rc list_buffers(mt_plan *p, mt_err *err)
{
    MT_TRY(add_units(p, err));
    for (int g = 0; g < p->model->n_groups; g++) MT_TRY(add_group(p, g, err));
    MT_TRY(add_update_slots(p, err));
    if (p->job.train) MT_TRY(add_kept(p, err));
    if (p->job.cache_slots) MT_TRY(add_cache(p, err));
    return add_work(p, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

mt_rc mt_placement_init(mt_placement *p, const mt_model *model, mt_err *err)
{
    *p = (mt_placement){ 0 };
    p->units = mt_calloc((size_t)model->n_units, sizeof *p->units);
    p->groups = mt_calloc((size_t)model->n_groups, sizeof *p->groups);
    p->layers = mt_calloc((size_t)model->config->L, sizeof *p->layers);
    if (p->units && p->groups && p->layers) return MT_OK;
    mt_placement_free(p);
    return mt_no_memory(err, "a plan");
}

void mt_placement_free(mt_placement *p)
{
    mt_free(p->units);
    mt_free(p->groups);
    mt_free(p->layers);
    *p = (mt_placement){ 0 };
}

void mt_placement_set_slots(mt_placement *p, const mt_model *model, int ring, int sums, int outs)
{
    for (int g = 0; g < model->n_groups; g++) {
        p->groups[g].ring_slots = ring;
        p->groups[g].sum_slots = sums;
        p->groups[g].out_slots = outs;
    }
}

int mt_placement_ring(const mt_placement *p, const mt_model *model)
{
    int most = 0;
    for (int g = 0; g < model->n_groups; g++)
        if (p->groups[g].ring_slots > most) most = p->groups[g].ring_slots;
    return most;
}

static mt_rc copy_placement(mt_placement *to, const mt_placement *from, const mt_model *model, mt_err *err)
{
    MT_TRY(mt_placement_init(to, model, err));
    mt_unit_place *units = to->units;
    mt_group_place *groups = to->groups;
    mt_layer_place *layers = to->layers;
    *to = *from;
    to->groups = memcpy(groups, from->groups, (size_t)model->n_groups * sizeof *groups);
    to->units = memcpy(units, from->units, (size_t)model->n_units * sizeof *units);
    to->layers = memcpy(layers, from->layers, (size_t)model->config->L * sizeof *layers);
    return MT_OK;
}

mt_rc mt_plan_create(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, const mt_placement *place,
                     mt_err *err)
{
    *out = NULL;
    mt_plan *p = mt_calloc(1, sizeof *p);
    if (!p) return mt_no_memory(err, "a plan");
    p->model = model;
    p->job = *job;
    p->arithmetic = *a;
    mt_rc rc = copy_placement(&p->place, place, model, err);
    if (!rc) rc = plan_check(p, err);
    if (!rc) rc = list_buffers(p, err);
    if (rc)
        mt_plan_free(p);
    else
        *out = p;
    return rc;
}

mt_rc mt_plan_measure(mt_plan *p, mt_err *err)
{
    p->counting = true;
    p->device_bytes = p->host_bytes = 0;
    MT_TRY(plan_check(p, err));
    return list_buffers(p, err);
}

void mt_plan_free(mt_plan *p)
{
    if (!p) return;
    mt_placement_free(&p->place);
    mt_free(p->buffers);
    mt_free(p);
}

mt_attention_use mt_plan_attention(const mt_plan *p)
{
    mt_attention_use use = p->arithmetic.attention;
    use.docs = mt_min_i64(p->job.step_docs, p->arithmetic.micro_tokens);
    use.longest = mt_min_i64(p->job.longest, p->arithmetic.micro_tokens);
    return use;
}

uint64_t mt_arithmetic_hash(const mt_arithmetic *a)
{
    enum { MOST = 17 };
    const int64_t all[] = { a->compute,
                            a->grad,
                            a->moments,
                            a->micro_tokens,
                            a->mlp_rows,
                            a->head_rows,
                            a->attention.ways,
                            a->attention.cudnn_head,
                            (int64_t)a->attention.workspace,
                            a->attention.parts,
                            a->attention.caps };
    const int64_t of_experts[] = { a->unit_experts, a->moe_tokens },
                  of_shares[] = { mt_arithmetic_bundles(a), mt_arithmetic_shares(a), MT_DEAL_VERSION };
    int64_t fields[MOST];
    size_t n = MT_COUNT(all);
    memcpy(fields, all, sizeof all);
    if (a->unit_experts) memcpy(fields + n, of_experts, sizeof of_experts), n += MT_COUNT(of_experts);
    if (mt_arithmetic_parts(a) > 1) memcpy(fields + n, of_shares, sizeof of_shares), n += MT_COUNT(of_shares);
    if (mt_arithmetic_rounds(a)) fields[n++] = MT_DTYPE_BF16;
    return mt_hash(fields, n * sizeof *fields, 1);
}
