/* settle.c - what follows from where units and layers are placed: counts of groups, segments, private staging slots, and the
 * layers whose kept memory staged updates reuse.
 *
 * Reused memory.  When the last backward of a layer is done, the memory of its kept activations is free until the next step's
 * forward writes to it.  A staged update borrows it for that time.  With 5 layers, if the
 * units of layers 1 to 3 reuse memory and layer 3 keeps too little to lend:
 *
 *     layer     0    1    2    3    4        backward goes down, so the memory of layer 4 is free first;
 *     lends to  -    1    2    -    3        forward goes up, so layer 4 needs its memory last
 *
 * A unit's lender is its own layer or a later one, and lenders keep the order of their units.  The embedding's state is larger
 * than a layer's kept activations; it takes two of the layers that are left over, one for the optimizer's second
 * array and one for the rest. */
#include "schedule/plan_internal.h"

/* Bytes that layer `layer` keeps on the device, which a unit may reuse. */
static size_t reusable(const mt_plan *p, int layer)
{
    const mt_layer_place *at = &p->place.layers[layer];
    return at->place == MT_DEVICE ? mt_plan_kept_bytes(p, layer, at->keep) : 0;
}

/* Takes the last layer from *next down to `lowest` that keeps this much, and moves *next below it; -1: there is none. */
static int take_last_reusable(const mt_plan *p, int *next, int lowest, size_t bytes)
{
    for (int layer = *next; layer >= lowest; layer--) {
        if (reusable(p, layer) < bytes) continue;
        *next = layer - 1;
        return layer;
    }
    return -1;
}

/* Finds lenders for all units that reuse memory, the last unit first. */
static bool assign_reused(mt_plan *p)
{
    int next = (int)p->model->config->L - 1; /* later layers are taken or keep too little */
    for (int u = p->model->n_units - 1; u >= 0; u--) {
        mt_unit_place *at = &p->place.units[u];
        if (!at->reuses) continue;
        const size_t first = mt_plan_lent(p, u, 0).bytes, rest = mt_plan_lent(p, u, 1).bytes;
        const int lowest = p->model->units[u].kind == MT_UNIT_LAYER ? p->model->units[u].layer : 0;
        if (!first) { /* one lender */
            at->reused[1] = take_last_reusable(p, &next, lowest, rest);
            at->reused[0] = at->reused[1];
        } else {
            at->reused[0] = take_last_reusable(p, &next, lowest, first);
            at->reused[1] = at->reused[0] < 0 ? -1 : take_last_reusable(p, &next, lowest, rest);
        }
        if (at->reused[1] < 0) return false;
    }
    return true;
}

bool mt__plan_may_reuse(const mt_plan *p, int unit)
{
    const mt_model *m = p->model;
    /* A layer without backward frees nothing, and the embedding may get any layer's memory. */
    bool can = m->units[unit].kind == MT_UNIT_LAYER || (unit == m->embed && mt_model_lowest_layer(m) == 0);
    return can && mt_plan_many_sweeps(p) && p->place.accumulators == MT_DEVICE;
}

/* Takes the first layer from l->next on that keeps this much; false: there is none. */
static bool take_first_reusable(const mt_plan *p, mt_reuse_search *l, size_t bytes)
{
    if (l->refused && bytes >= l->refused) return false;
    for (int layer = l->next; layer < p->model->config->L; layer++) {
        if (reusable(p, layer) < bytes) continue;
        l->next = layer + 1;
        return true;
    }
    l->refused = bytes;
    return false;
}

/* Taking the first large enough layer in ascending order succeeds if and only if taking the last one in descending order
 * (assign_reused) does, because lenders keep the order of their units.  So units granted before need no second look. */
bool mt_plan_grant_reuse(const mt_plan *p, mt_reuse_search *l, int unit)
{
    if (!mt__plan_may_reuse(p, unit)) return false;
    const mt_unit *u = &p->model->units[unit];
    const bool is_layer = u->kind == MT_UNIT_LAYER;
    const size_t first = mt_plan_lent(p, unit, 0).bytes, rest = mt_plan_lent(p, unit, 1).bytes;
    mt_reuse_search with = *l;
    if (is_layer && u->layer > with.next) with.next = u->layer;
    bool granted = take_first_reusable(p, &with, rest);
    if (granted && first) granted = take_first_reusable(p, &with, first);
    if (granted)
        *l = with;
    else if (is_layer)
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

int mt_plan_backward_end(const mt_plan *p)
{
    const int lowest = mt_plan_lowest_layer(p);
    return lowest < p->model->config->L ? mt_plan_segment_start(p, lowest) : lowest;
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
    const int L = (int)p->model->config->L, start = mt_plan_backward_end(p);
    p->longest_segment = 1;
    for (int keep = 0; keep < MT_KEEPS; keep++) p->shared_keep[keep] = -1;
    for (int l = 0, first = start; l < L; l++) {
        if (at[l].place == MT_HOST && p->shared_keep[at[l].keep] < 0) p->shared_keep[at[l].keep] = l;
        if (l < start || (l + 1 < L && at[l + 1].keep == MT_KEEP_NOTHING)) continue;
        count_segment(p, first, l + 1);
        first = l + 1;
    }
}

/* Gives each unit that needs one a private slot, or none at all if there are too few. */
static void number_stage_slots(mt_plan *p)
{
    int needed = 0;
    for (int u = 0; u < p->model->n_units; u++) needed += plan_needs_stage_slot(p, u);
    p->private_slots = needed <= p->place.staging_slots;
    int next = 0;
    for (int u = 0; u < p->model->n_units; u++)
        p->place.units[u].private_slot = p->private_slots && plan_needs_stage_slot(p, u) ? next++ : -1;
}

bool mt_plan_settle(mt_plan *p)
{
    count_groups(p);
    count_layers(p);
    number_stage_slots(p);
    return assign_reused(p);
}
