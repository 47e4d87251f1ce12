#include "plan/knobs.h"

#include "base/mem.h"

/* -- ranges ---------------------------------------------------------------------------------------- */

enum { MOST_SLABS = 8 };
/* Piece slots: one is being filled, one updated, one written back, and one is spare for whatever is late.  They take at most a
 * 64th of the device's memory.  A copy of 2^20 elements still reaches the link's speed; more than 2^25 gains nothing. */
enum { PIECE_SLOTS = 4, SMALLEST_PIECE = 20, LARGEST_PIECE = 25, PIECE_MEMORY = 64 };

static void set_range(knob_ranges *r, knob k, int64_t lowest, int64_t highest)
{
    r->lowest[k] = (int)lowest;
    r->highest[k] = (int)mt_max_i64(mt_min_i64(highest, INT32_MAX), lowest);
}

static int piece_size(const mt_plan *trial, const mt_machine *m)
{
    int size = SMALLEST_PIECE;
    while (size < LARGEST_PIECE &&
           mt_plan_lay_out(trial, (int64_t)2 << size, MT_PIECE_PARTS).bytes * PIECE_SLOTS <= m->device_bytes / PIECE_MEMORY)
        size++;
    return size;
}

static int units_of_layers(const mt_model *m) { return m->n_units - (m->embed == m->head ? 1 : 2); }

/* Sweeps are multiples of this many rows. */
static int64_t sweep_unit(const mt_plan *trial)
{
    return trial->model->unit_experts ? mt_pass_rows_at_most(&trial->arithmetic) : trial->arithmetic.micro_tokens;
}

bool mt__knobs_may_use_peers(const mt_job *j, const mt_arithmetic *a, const mt_machine *m)
{
    return j->train && j->lanes > 1 && j->machines <= 1 && !mt_arithmetic_rounds(a) && m->peer > 0;
}

mt_rc mt__knobs_ranges(knob_ranges *r, const mt_plan *trial, const mt_machine *m, mt_err *err)
{
    /* If nothing is kept, there is nothing to limit. */
    const mt_limits none = { 0 }, *l = trial->job.train ? &m->limits : &none;
    const mt_model *model = trial->model;
    /* For models with experts, the micro-batches of a pass count as one here. */
    int64_t L = model->config->L, micro = sweep_unit(trial), micros = (mt_plan_part_tokens(trial) + micro - 1) / micro;
    const bool several = mt_plan_by_shares(trial), peers = mt__knobs_may_use_peers(&trial->job, &trial->arithmetic, m);
    const bool on_host = several && !peers; /* lanes and machines share state in host memory; with peers it may be in slices */
    const bool train = trial->job.train, more = train && !l->exact; /* more: layers may keep more than their input */
    MT_TRY(mt_limits_check(l, model, err));
    const int longest = train ? mt_limits_longest(l, model) : 1;
    const int64_t read = L - mt_plan_lowest_layer(trial); /* layers with a backward */
    set_range(r, MICROS, 1, micros);
    set_range(r, INTERVAL, l->exact ? longest : 1, longest);
    set_range(r, KEEP_ALL, 0, more ? read : 0);
    set_range(r, KEEP_CHEAP, 0, 0); /* until the rest is settled: choose.c, spend_the_rest */
    set_range(r, KEEP_MIXER, 0, more ? read : 0);
    set_range(r, OFFLOADED, l->offload == MT_MUST ? read : 0, train && l->offload != MT_MUST_NOT ? read : 0);
    set_range(r, HOMES, 0, m->home_host || on_host ? 0 : model->n_units);
    set_range(r, HOMES_SKIP, 0, !m->home_host && !on_host);
    set_range(r, STAGED, 0, train && !trial->job.only_gradients && !several ? model->n_units : 0);
    set_range(r, PEERS, peers, peers);
    set_range(r, GATHER, 0, 0); /* choose.c, search_routes */
    set_range(r, OWN, 0, r->highest[STAGED]);
    set_range(r, PIECES, 0, 0); /* this and KEEP_SLOTS: choose_waits.c */
    set_range(r, PIECE_SIZE, piece_size(trial, m), piece_size(trial, m));
    set_range(r, KEEP_SLOTS, 2, 2);
    set_range(r, RESIDENT, 0, units_of_layers(model));
    set_range(r, ENDS_RESIDENT, 0, 1);
    set_range(r, ACC_HOST, 0, train && micros > 1);
    set_range(r, RING, 1, 3);
    set_range(r, GRAD_SLOTS, 1, 3);
    set_range(r, SLABS, 1, l->n_slabs ? mt_min_i64(l->n_slabs, MOST_SLABS) : MOST_SLABS);
    return MT_OK;
}

/* -- from knobs to a placement --------------------------------------------------------------------- */

/* True if i is one of `take` numbers spread evenly over [0, n). */
static bool spread(int i, int take, int n)
{
    if (take <= 0 || take >= n) return take > 0; /* the common case, and this is called millions of times */
    return (int64_t)(i + 1) * take / n > (int64_t)i * take / n;
}

/* What the n-th (from 1) of `all` layers that keep everything on the device keeps, given KEEP_CHEAP. */
static mt_keep keep_on_device(int n, int all, int cheap)
{
    if (n + all <= cheap) return MT_KEEP_ACT;
    return n <= cheap ? MT_KEEP_NORMS : MT_KEEP_ALL;
}

/* Layers from the lowest one with a backward on keep something, one in each interval.  Activations kept in host memory cost the
 * device nothing, so those layers are the first to keep everything.  They are spread evenly, because the link needs the time of the
 * layers between them. */
static void fill_layers(mt_plan *trial, const candidate *c)
{
    mt_placement *p = &trial->place;
    const int L = (int)trial->model->config->L, lowest = mt_plan_lowest_layer(trial), interval = c->k[INTERVAL];
    const int kept = (L - lowest + interval - 1) / interval;
    const int on_host = trial->job.train ? mt_min_int(c->k[OFFLOADED], kept) : 0; /* of these */
    const int all_on_host = mt_min_int(c->k[KEEP_ALL], on_host), all_on_device = c->k[KEEP_ALL] - all_on_host;
    for (int l = 0, n = 0, n_host = 0, n_device = 0, others = 0; l < L; l++) {
        mt_layer_place *at = &p->layers[l];
        *at = (mt_layer_place){ MT_KEEP_NOTHING, MT_DEVICE };
        if (l < lowest || (l - lowest) % interval != 0) continue;
        at->place = spread(n++, on_host, kept) ? MT_HOST : MT_DEVICE;
        if (at->place == MT_HOST && spread(n_host++, all_on_host, on_host))
            at->keep = MT_KEEP_ALL;
        else if (at->place == MT_DEVICE && n_device++ < all_on_device)
            at->keep = keep_on_device(n_device, all_on_device, c->k[KEEP_CHEAP]);
        else
            at->keep = others++ < c->k[KEEP_MIXER] ? MT_KEEP_MIXER : MT_KEEP_INPUT;
    }
}

/* Stages unit u's updates: in reused memory if that is allowed and possible, otherwise in a staging slot. */
static void stage(mt_plan *trial, int u, mt_reuse_search *search, bool may_reuse)
{
    mt_unit_place *at = &trial->place.units[u];
    if (!trial->model->units[u].layout->n_train) return;
    bool reuses = may_reuse && mt_plan_grant_reuse(trial, search, u);
    at->site = MT_SITE_STAGED;
    at->reuses = reuses;
    trial->place.staging_slots += !reuses;
}

/* Part of n elements that starts after a whole number of blocks of moments. */
static int64_t share_in_pieces(int64_t n, int shares)
{
    int64_t workers = n / PIECE_SHARES * (PIECE_SHARES - shares);
    return n - workers / MT_MOMENT_BLOCK * MT_MOMENT_BLOCK;
}

/* Expert sums that pass through host memory: one unit's are copied in while another's are added to. */
static void pair_sums(mt_placement *p, const mt_model *m, int u)
{
    mt_group_place *g = &p->groups[m->units[u].group];
    if (m->units[u].kind == MT_UNIT_EXPERTS && g->sum_slots < 2) g->sum_slots = 2;
}

static void fill_units(mt_plan *trial, const candidate *c)
{
    const mt_model *m = trial->model;
    bool all = c->k[HOMES] >= m->n_units;
    int skip = all ? 0 : c->k[HOMES_SKIP], first_free = c->k[HOMES] + skip, free_layers = 0, at = 0;
    const bool several = mt_plan_lanes(trial) > 1; /* then device homes are in slices, and weights are resident or not */
    for (int u = several ? 0 : first_free; u < m->n_units; u++) free_layers += m->units[u].layer >= 0;
    for (int u = 0; u < m->n_units; u++) {
        bool home = u >= skip && u < first_free, layer = m->units[u].layer >= 0, there = home && !several;
        bool stays = there || (layer ? spread(at, c->k[RESIDENT], free_layers) : c->k[ENDS_RESIDENT] > 0);
        at += layer && !there;
        if (c->k[ACC_HOST] && c->k[RING] > 1) pair_sums(&trial->place, m, u);
        trial->place.units[u] = (mt_unit_place){ .resident = stays,
                                                 .home = home ? MT_DEVICE : MT_HOST,
                                                 .site = home ? MT_SITE_DEVICE : MT_SITE_HOST };
    }
    mt_reuse_search search = { 0 };
    for (int u = first_free; u < m->n_units && u < first_free + c->k[STAGED]; u++)
        stage(trial, u, &search, u >= first_free + c->k[OWN]);
    for (int u = 0; u < m->n_units && c->k[PIECES]; u++)
        if (trial->place.units[u].site == MT_SITE_HOST)
            trial->place.units[u].in_pieces = share_in_pieces(m->units[u].layout->n_train, c->k[PIECES]);
}

void mt__knobs_fill(mt_plan *trial, const candidate *c)
{
    mt_placement *p = &trial->place;
    const mt_job *j = &trial->job;
    bool all_home = c->k[HOMES] >= trial->model->n_units;
    const int64_t micro = sweep_unit(trial);
    p->sweep_tokens = mt_min_i64(c->k[MICROS] * micro, mt_max_i64(mt_plan_part_tokens(trial), trial->arithmetic.micro_tokens));
    int ring = c->k[INTERVAL] > 1 ? (int)mt_max_i64(c->k[RING], c->k[INTERVAL] + (c->k[RING] > 1)) : c->k[RING];
    mt_placement_set_slots(p, trial->model, ring, c->k[INTERVAL], all_home ? 0 : c->k[GRAD_SLOTS]);
    p->accumulators = c->k[ACC_HOST] ? MT_HOST : MT_DEVICE;
    p->fold = c->k[PEERS] ? MT_FOLD_PEERS : MT_FOLD_HOST;
    p->gather = c->k[GATHER] > 0;
    p->keep_slots = c->k[OFFLOADED] ? c->k[KEEP_SLOTS] : 0;
    p->n_slabs = j->clip || all_home ? 0 : c->k[SLABS];
    p->staging_slots = 0;
    p->piece_slots = c->k[PIECES] ? PIECE_SLOTS : 0;
    p->piece_elems = (int64_t)1 << c->k[PIECE_SIZE];
    fill_layers(trial, c);
    fill_units(trial, c);
}
