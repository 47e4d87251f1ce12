/* settle.c - what follows from where units and layers are placed: counts of groups, segments, private staging slots, and the layers
 * whose kept memory staged updates reuse. */
#include "plan/plan_internal.h"

mt_reuse_layout mt_plan_reuse(const mt_plan *p, int unit)
{
    size_t n = (size_t)p->model->units[unit].layout->n_train;
    bool one = p->model->units[unit].kind == MT_UNIT_LAYER;
    size_t v = mt_round_up(plan_moments_bytes(p, n), MT_ARRAY_ALIGN);
    mt_reuse_layout l = { .v = 0, .lo = one ? v : 0 };
    l.g = l.lo + mt_round_up(n * 2, MT_ARRAY_ALIGN);
    l.hi = l.g + mt_round_up(n * mt_dtype_bytes(p->arithmetic.grad), MT_ARRAY_ALIGN);
    l.bytes[0] = v;
    l.bytes[1] = l.hi + (plan_updates_in_place(p, unit) ? 0 : n * 2);
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
bool mt__plan_may_reuse(const mt_plan *p, int unit)
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
    if (!mt__plan_may_reuse(p, unit)) return false;
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

int mt_plan_segment_start(const mt_plan *p, int layer)
{
    while (layer > 0 && p->place.layers[layer].keep == MT_KEEP_NOTHING) layer--;
    return layer;
}

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
    for (int u = 0; u < p->model->n_units; u++) p->place.units[u].private_slot = plan_needs_stage_slot(p, u) ? n++ : -1;
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
