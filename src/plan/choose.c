/* choose.c - the fastest placement that fits.
 *
 * A placement is made of a dozen knobs (how many units live on the device, how many layers keep everything, ...).  The search tries a
 * coarse grid of them, takes the best of each kind and turns one knob or two at a time, in ever smaller steps down to a single layer, while
 * that helps and the kind keeps up with the others.  What does not fit is compared by how much it lacks, so the same walk leads to a
 * placement that fits.  Ties go to the earlier candidate, which moves less.  No candidate is listed buffer by buffer: sizes are counted, only
 * what could win is timed, and nothing is judged twice. */
#include "base/mem.h"
#include "base/rng.h"
#include "base/units.h"
#include "plan/plan.h"
#include "plan/step_time.h"

#include <math.h>
#include <string.h>

typedef enum knob {
    MICROS,         /* micro-batches of a sweep */
    INTERVAL,       /* layers redone from one kept input */
    KEEP_ALL,       /* layers that keep everything: of those in host memory, then from the first */
    KEEP_CHEAP,     /* of those of them that keep it on the device, from the first, so many their norms; beyond all of them, activations again from the
                       first; not searched for */
    KEEP_ATTENTION, /* the next so many keep input and attention, the rest their input */
    OFFLOADED,      /* layers whose kept activations go to host memory, spread */
    HOMES,          /* units, from the first (needed first, ready last), whose masters and state live on the device */
    HOMES_SKIP,     /* ... but not the embedding, which may be too large */
    STAGED,         /* the next so many are updated through the device, in memory they borrow */
    OWN,            /* ... but for the first so many of them, whose state would arrive last: they have memory of their own there */
    RESIDENT,       /* of the other layers, spread, weights that stay on the device through the step */
    ENDS_RESIDENT,  /* embedding and head too */
    ACC_HOST,       /* gradients wait in host memory between sweeps */
    RING, GRAD_SLOTS, SLABS,
    KNOBS
} knob;

typedef struct candidate {
    int k[KNOBS];
} candidate;

/* How good: what fits comes before what does not, then seconds or what is missing. */
typedef struct merit {
    bool fits;
    double cost;
} merit;

enum { KEEPS = 5, LEAST = 3 * KEEPS, STARTS }; /* kinds of starts: what layers keep, in one sweep or several, or staged; and the smallest */
enum { MOST_SLABS = 8, KNOWN = 1 << 12, ROUGH_STARTS = 4, ROUGH_LEVELS = 2, DEAREST = 6 };
#define HIDDEN_COST 0.02 /* what runs behind something else is not quite free: it can be late, */
#define ADAM_COST 0.1    /* updates on the host above all: the forward of their units stands behind them, and cores have other work */
#define FAR_OFF 1.25     /* starts this much slower than the best are not worth a walk */

typedef struct search {
    const mt_model *model;
    const mt_job *job;
    const mt_arithmetic *a;
    const mt_machine *machine;
    const mt_limits *limits;
    bool rough;     /* near enough to compare by: only the most promising starts walk, and in large steps */
    double give_up; /* seconds: what takes longer is of no use; 0: only whether something fits is asked */
    int lowest[KNOBS], highest[KNOBS];
    mt_plan trial; /* its placement is the one being looked at */
    mt_step_drawing drawing;
    struct start {
        candidate c; /* all 0: none */
        merit m;
        bool dropped;
    } starts[STARTS];
    struct known {
        candidate c;
        merit m;
        bool bound; /* m.cost is not the candidate's but less */
    } *known; /* [KNOWN] what was judged lately, by its hash */
    size_t least_device; /* of any candidate, for the message when nothing fits */
    size_t least_host;   /* of those whose device memory fits */
} search;

static bool better(merit a, merit b) { return a.fits != b.fits ? a.fits : a.cost < b.cost; }

/* -- from knobs to a placement --------------------------------------------------------------------- */

/* Is i one of `take` that are spread over [0, n)? */
static bool spread(int i, int take, int n) { return n > 0 && (int64_t)(i + 1) * take / n > (int64_t)i * take / n; }

/* What a layer keeps costs the device nothing where it goes to host memory, so those layers are the first to keep everything; they are
 * spread, because the link needs the time of the layers between them. */
static void fill_layers(mt_placement *p, const mt_model *m, const mt_job *j, const candidate *c)
{
    int L = (int)m->config->L, kept = (L + c->k[INTERVAL] - 1) / c->k[INTERVAL];
    int hosts = j->train ? (int)mt_min_i64(c->k[OFFLOADED], kept) : 0, all_there = (int)mt_min_i64(c->k[KEEP_ALL], hosts), all_here = c->k[KEEP_ALL] - all_there;
    const mt_keep cheap[] = { MT_KEEP_ALL, MT_KEEP_NORMS, MT_KEEP_ACT };
    for (int l = 0, n = 0, there = 0, here = 0, others = 0; l < L; l++) {
        p->layers[l] = (mt_layer_place){ MT_KEEP_NOTHING, MT_DEVICE };
        if (l % c->k[INTERVAL] != 0) continue;
        bool host = spread(n++, hosts, kept), all = host ? spread(there++, all_there, hosts) : here++ < all_here;
        p->layers[l].place = host ? MT_HOST : MT_DEVICE;
        p->layers[l].keep = all ? cheap[host ? 0 : (here <= c->k[KEEP_CHEAP]) + (here + all_here <= c->k[KEEP_CHEAP])] : others++ < c->k[KEEP_ATTENTION] ? MT_KEEP_ATTENTION : MT_KEEP_INPUT;
    }
}

/* Update unit u through the device: in borrowed memory if it may and can, or else in a slot of its own. */
static void stage(mt_plan *trial, int u, bool may_borrow)
{
    mt_unit_place *at = &trial->place.units[u];
    bool borrows = may_borrow && mt_plan_can_borrow(trial, u);
    if (!trial->model->units[u].layout->n_train || (!borrows && trial->place.stage_slots == MT_MAX_SLOTS)) return;
    at->site = MT_SITE_STAGED;
    at->borrows = borrows;
    trial->place.stage_slots += !borrows;
}

static void fill_units(mt_plan *trial, const candidate *c)
{
    const mt_model *m = trial->model;
    bool all = c->k[HOMES] >= m->n_units;
    int skip = all ? 0 : c->k[HOMES_SKIP], first_free = c->k[HOMES] + skip, free_layers = 0, at = 0;
    for (int u = first_free; u < m->n_units; u++) free_layers += m->units[u].kind == MT_UNIT_LAYER;
    for (int u = 0; u < m->n_units; u++) {
        bool home = u >= skip && u < first_free, layer = m->units[u].kind == MT_UNIT_LAYER;
        bool stays = home || (layer ? spread(at, c->k[RESIDENT], free_layers) : c->k[ENDS_RESIDENT] > 0);
        at += layer && !home;
        trial->place.units[u] = (mt_unit_place){ .resident = stays, .home = home ? MT_DEVICE : MT_HOST, .site = home ? MT_SITE_DEVICE : MT_SITE_HOST };
    }
    for (int u = first_free; u < m->n_units && u < first_free + c->k[STAGED]; u++) stage(trial, u, u >= first_free + c->k[OWN]);
    mt_plan_lend(trial);
}

static void fill(mt_plan *trial, const candidate *c)
{
    mt_placement *p = &trial->place;
    const mt_job *j = &trial->job;
    bool all_home = c->k[HOMES] >= trial->model->n_units;
    p->sweep_tokens = mt_min_i64(c->k[MICROS] * trial->arithmetic.micro_tokens, mt_max_i64(j->step_tokens, trial->arithmetic.micro_tokens));
    p->ring_slots = c->k[INTERVAL] > 1 ? (int)mt_max_i64(c->k[RING], c->k[INTERVAL] + (c->k[RING] > 1)) : c->k[RING];
    p->accumulators = c->k[ACC_HOST] ? MT_HOST : MT_DEVICE;
    p->keep_slots = c->k[OFFLOADED] ? 2 : 0;
    p->grad_slots = all_home ? 0 : c->k[GRAD_SLOTS];
    p->n_slabs = j->clip || all_home ? 0 : c->k[SLABS];
    p->stage_slots = 0;
    fill_layers(p, trial->model, j, c);
    fill_units(trial, c);
}

/* -- merit ----------------------------------------------------------------------------------------- */

static double lack(size_t need, size_t have) { return need <= have ? 0 : (double)(need - have) / (double)(have ? have : 1); }

static mt_rc measure(search *s, const candidate *c, merit than, struct known *out, mt_err *err)
{
    mt_plan *t = &s->trial;
    bool simulated = true;
    fill(t, c);
    MT_TRY(mt_plan_measure(t, err));
    size_t host = t->host_bytes + mt_plan_base_host(t, s->machine) + (s->machine->shared ? t->device_bytes : 0);
    if (t->device_bytes < s->least_device) s->least_device = t->device_bytes;
    if (t->device_bytes <= s->machine->device_bytes && host < s->least_host) s->least_host = host;
    double missing = lack(t->device_bytes, s->machine->device_bytes) + lack(host, s->machine->host_bytes);
    *out = (struct known){ .c = *c, .m = { missing == 0, missing } };
    if (!out->m.fits || s->give_up == 0) return MT_OK;
    MT_TRY(mt_step_time(&s->drawing, t, s->machine, fmin(s->give_up, than.fits ? than.cost : INFINITY), &t->times, &simulated, err));
    out->m.cost = t->times.step + HIDDEN_COST * (t->times.copy_in + t->times.copy_out) + ADAM_COST * t->times.adam_host;
    out->bound = !simulated;
    return MT_OK;
}

static struct known *known_at(const search *s, const candidate *c) { return &s->known[mt_hash(c->k, sizeof c->k, 0) % KNOWN]; }

/* Merit of a candidate; one that cannot be better than `than` may come back with less than it costs, but not less than `than`.  Walks cross
 * their own paths and each other's, so half of all candidates have been judged before. */
static mt_rc judge(search *s, const candidate *c, merit than, merit *out, mt_err *err)
{
    struct known *k = known_at(s, c);
    bool same = memcmp(&k->c, c, sizeof *c) == 0, enough = !k->bound || k->m.cost >= fmin(s->give_up, than.fits ? than.cost : INFINITY);
    if (!same || !enough) MT_TRY(measure(s, c, than, k, err));
    *out = k->m;
    return MT_OK;
}

/* Within its range; did that change it? */
static bool turn(const search *s, candidate *c, int k, int by)
{
    int before = c->k[k], to = before + by;
    c->k[k] = to < s->lowest[k] ? s->lowest[k] : to > s->highest[k] ? s->highest[k] : to;
    return c->k[k] != before;
}

/* -- the grid -------------------------------------------------------------------------------------- */

/* The best of each kind is kept. */
static mt_rc offer(search *s, int kind, const candidate *c, mt_err *err)
{
    struct start new = { .c = *c };
    for (int k = 0; k < KNOBS; k++) turn(s, &new.c, k, 0);
    MT_TRY(judge(s, &new.c, s->starts[kind].m, &new.m, err));
    if (better(new.m, s->starts[kind].m)) s->starts[kind] = new;
    return MT_OK;
}

static candidate candidate_of(const search *s)
{
    candidate c;
    memcpy(c.k, s->lowest, sizeof c.k);
    c.k[MICROS] = s->highest[MICROS];
    c.k[ENDS_RESIDENT] = 1;
    c.k[RING] = c.k[GRAD_SLOTS] = 2;
    c.k[SLABS] = 4; /* offer() brings all of them into range */
    return c;
}

/* Homes, weights that stay, staging. */
static mt_rc offer_units(search *s, int kind, candidate c, mt_err *err)
{
    for (int home = 4; home >= 0; home--) {
        c.k[HOMES] = s->highest[HOMES] * home / 4;
        if (home && !c.k[HOMES]) continue;
        for (int resident = 2; resident >= 0; resident--) {
            c.k[RESIDENT] = s->highest[RESIDENT] * resident / 2;
            for (int staged = 0; staged <= (c.k[KEEP_ALL] && s->job->train && !c.k[ACC_HOST] ? 4 : 0); staged++) {
                c.k[STAGED] = s->highest[STAGED] * ((staged + 1) / 2) / 2;
                c.k[OWN] = staged % 2 ? 0 : c.k[STAGED]; /* none, or all */
                MT_TRY(offer(s, staged ? 2 * KEEPS + kind / 2 : kind, &c, err));
            }
        }
        if (home == 4) c.k[RESIDENT] = 0; /* everything lives there */
    }
    return MT_OK;
}

static mt_rc offer_sweeps(search *s, int keep, candidate c, mt_err *err)
{
    for (int micros = s->highest[MICROS];; micros = (micros + 1) / 2) {
        c.k[MICROS] = micros;
        for (int host = 0; host <= (micros < s->highest[MICROS] && s->job->train); host++) {
            c.k[ACC_HOST] = host;
            MT_TRY(offer_units(s, 2 * keep + (micros < s->highest[MICROS]), c, err));
        }
        if (micros <= 1) return MT_OK;
    }
}

static mt_rc offer_all(search *s, mt_err *err)
{
    int L = (int)s->model->config->L;
    const int keeps[KEEPS][4] = { { L, 0, 0, 1 }, { 0, L, 0, 1 }, { 0, 0, 0, 1 }, { 0, 0, L, 1 }, { 0, 0, 0, 4 } }; /* all, attention, offloaded, interval */
    for (size_t i = 0; i < (s->job->train ? KEEPS : 1); i++) {
        candidate c = candidate_of(s);
        c.k[KEEP_ALL] = keeps[i][0];
        c.k[KEEP_ATTENTION] = keeps[i][1];
        c.k[OFFLOADED] = keeps[i][2];
        c.k[INTERVAL] = keeps[i][3];
        MT_TRY(offer_sweeps(s, (int)i, c, err));
    }
    return MT_OK;
}

/* Smallest slots for everything: what is left when nothing else fits. */
static mt_rc offer_least(search *s, mt_err *err)
{
    for (int variant = 0; variant < 8; variant++) {
        candidate c;
        memcpy(c.k, s->lowest, sizeof c.k);
        c.k[MICROS] = variant & 4 ? s->highest[MICROS] : 1;
        c.k[OFFLOADED] = variant & 1 ? s->highest[OFFLOADED] : 0;
        c.k[ACC_HOST] = !(variant & 4);
        c.k[HOMES] = variant & 2 ? s->highest[HOMES] : 0;
        MT_TRY(offer(s, LEAST, &c, err));
    }
    return MT_OK;
}

/* -- the walk -------------------------------------------------------------------------------------- */

static mt_rc try_turn(search *s, struct start *at, const candidate *c, bool *moved, mt_err *err)
{
    merit m;
    MT_TRY(judge(s, c, at->m, &m, err));
    if (!better(m, at->m)) return MT_OK;
    /* A bit of time is not worth a walk. */
    *moved |= !(m.fits && at->m.fits && m.cost > 0.9999 * at->m.cost);
    at->c = *c;
    at->m = m;
    return MT_OK;
}

/* Step sizes of a knob: `part` of its range, at least one. */
static int stride(const search *s, int k, int part) { return (int)mt_max_i64((s->highest[k] - s->lowest[k]) / part, 1); }

static mt_rc turn_one(search *s, struct start *at, int part, bool *moved, mt_err *err)
{
    for (int k = 0; k < KNOBS; k++)
        for (int sign = -1; sign <= 1; sign += 2) {
            candidate c = at->c;
            if (turn(s, &c, k, sign * stride(s, k, part))) MT_TRY(try_turn(s, at, &c, moved, err));
        }
    return MT_OK;
}

/* One step of knob `to`, for as many of knob `from` (by steps of this size) as its memory takes: a unit's state is worth several layers' kept
 * inputs. */
static mt_rc trade(search *s, struct start *at, int from, int step, int to, int part, bool *moved, mt_err *err)
{
    candidate c = at->c;
    merit m;
    if (!turn(s, &c, from, step) || !turn(s, &c, to, stride(s, to, part))) return MT_OK;
    for (int i = 1; i < (s->rough ? 2 : DEAREST); i++) {
        MT_TRY(judge(s, &c, at->m, &m, err));
        if (m.fits || !at->m.fits || !turn(s, &c, from, step)) break;
    }
    return try_turn(s, at, &c, moved, err);
}

/* Memory taken from one use and given to another. */
static mt_rc turn_two(search *s, struct start *at, int part, bool *moved, mt_err *err)
{
    static const int memory[] = { MICROS, KEEP_ALL, KEEP_ATTENTION, HOMES, STAGED, OWN, RESIDENT, OFFLOADED, INTERVAL, RING, GRAD_SLOTS };
    for (size_t i = 0; i < MT_COUNT(memory); i++)
        for (size_t j = 0; j < MT_COUNT(memory); j++)
            for (int sign = -1; sign <= 1 && i != j; sign += 2) {
                bool frees = memory[i] == OFFLOADED || memory[i] == STAGED || memory[i] == INTERVAL; /* by more of it */
                if (sign < 0 || frees) MT_TRY(trade(s, at, memory[i], sign * stride(s, memory[i], part), memory[j], part, moved, err));
            }
    return MT_OK;
}

/* In steps of a part of each knob's range, while that helps. */
static mt_rc walk(search *s, struct start *at, int part, mt_err *err)
{
    bool moved = true;
    for (int round = 0; moved && round < 12; round++) {
        moved = false;
        MT_TRY(turn_one(s, at, part, &moved, err));
        if (!moved) MT_TRY(turn_two(s, at, part, &moved, err));
    }
    return MT_OK;
}

static const struct start *best_start(const search *s)
{
    const struct start *best = &s->starts[0];
    for (int i = 1; i < STARTS; i++)
        if (better(s->starts[i].m, best->m)) best = &s->starts[i];
    return best;
}

/* Not worth another walk: as good as an earlier one, which is then likely to be the same but for knobs that do not matter; one that still does
 * not fit where others do; or slower than the best by more than finer steps are likely to win back. */
static bool left_behind(const search *s, int i, double far)
{
    const merit *at = &s->starts[i].m, *best = &best_start(s)->m;
    for (int j = 0; j < i; j++)
        if (s->starts[j].m.fits == at->fits && fabs(s->starts[j].m.cost - at->cost) <= 1e-4 * at->cost) return true;
    return best->fits && (at->fits ? at->cost > far * fmin(best->cost, s->give_up) : far < FAR_OFF);
}

/* All but the best few starts are forgotten. */
static void thin_out(search *s, int left)
{
    for (int i = 0; i < STARTS; i++) {
        int ahead = 0;
        for (int j = 0; j < STARTS; j++) ahead += s->starts[j].c.k[INTERVAL] && (better(s->starts[j].m, s->starts[i].m) || (j < i && !better(s->starts[i].m, s->starts[j].m)));
        if (ahead >= left) s->starts[i].dropped = true;
    }
}

/* All starts, in ever smaller steps. */
static mt_rc walk_all(search *s, mt_err *err)
{
    static const struct {
        int part;
        double far;
    } levels[] = { { 4, FAR_OFF }, { 8, 1.06 }, { 16, 1.03 }, { 32, 1.02 }, { 64, 1.01 }, { 128, 1.005 } };
    bool finest = false;
    if (s->rough || s->give_up == 0) thin_out(s, ROUGH_STARTS);
    for (size_t l = 0; l < (s->rough ? ROUGH_LEVELS : MT_COUNT(levels)) && !finest; l++) {
        for (int i = 0; i < STARTS; i++)
            if (s->starts[i].c.k[INTERVAL] && !s->starts[i].dropped && !left_behind(s, i, levels[l].far)) MT_TRY(walk(s, &s->starts[i], levels[l].part, err));
        finest = stride(s, HOMES, levels[l].part) == 1 && stride(s, KEEP_ALL, levels[l].part) == 1 && stride(s, MICROS, levels[l].part) == 1;
    }
    return MT_OK;
}

/* -- the search ------------------------------------------------------------------------------------ */

static void set_range(search *s, knob k, int64_t lowest, int64_t highest)
{
    s->lowest[k] = (int)lowest;
    s->highest[k] = (int)mt_max_i64(mt_min_i64(highest, INT32_MAX), lowest);
}

static void set_ranges(search *s)
{
    const mt_limits *l = s->limits;
    int64_t L = s->model->config->L, micros = (s->job->step_tokens + s->a->micro_tokens - 1) / s->a->micro_tokens;
    bool train = s->job->train, more = train && !l->exact; /* more than inputs may be kept */
    set_range(s, MICROS, 1, micros);
    set_range(s, INTERVAL, train && l->exact ? mt_limits_longest(l, s->model) : 1, train ? mt_limits_longest(l, s->model) : 1);
    set_range(s, KEEP_ALL, 0, more ? L : 0);
    set_range(s, KEEP_CHEAP, 0, 0); /* until the rest is settled: spend_the_rest */
    set_range(s, KEEP_ATTENTION, 0, more ? L : 0);
    set_range(s, OFFLOADED, train && l->offload == MT_MUST ? L : 0, train && l->offload != MT_MUST_NOT ? L : 0);
    set_range(s, HOMES, 0, s->machine->home_host ? 0 : s->model->n_units);
    set_range(s, HOMES_SKIP, 0, !s->machine->home_host);
    set_range(s, STAGED, 0, train && !s->job->only_gradients ? s->model->n_units : 0);
    set_range(s, OWN, 0, s->highest[STAGED]);
    set_range(s, RESIDENT, 0, L);
    set_range(s, ENDS_RESIDENT, 0, 1);
    set_range(s, ACC_HOST, 0, train && micros > 1);
    set_range(s, RING, 1, 3);
    set_range(s, GRAD_SLOTS, 1, 3);
    set_range(s, SLABS, 1, l->n_slabs ? mt_min_i64(l->n_slabs, MOST_SLABS) : MOST_SLABS);
}

static mt_rc nothing_fits(const search *s, mt_err *err)
{
    if (s->least_device > s->machine->device_bytes)
        return mt_fail(err, MT_ENOMEM,
                       "this run needs at least %s of device memory and may use %s; the largest parts grow with the micro-batch (%lld rows): "
                       "lower max_seq_len%s, or allow more with --device-memory",
                       mt_bytes_text(s->least_device).s, mt_bytes_text(s->machine->device_bytes).s, (long long)s->a->micro_tokens,
                       s->limits->exact ? ", let strict_checkpointing go" : "");
    size_t each = 4 + mt_plan_moment_bytes(&s->trial) + (s->job->clip ? mt_dtype_bytes(s->a->grad) : 0);
    return mt_fail(err, MT_ENOMEM, "this run needs at least %s of host memory and %s is free (%zu bytes a parameter, %s of them); use a smaller model%s%s",
                   mt_bytes_text(s->least_host).s, mt_bytes_text(s->machine->host_bytes).s, each, mt_count_text((uint64_t)s->model->n_params).s,
                   s->job->clip ? ", or set max_grad_norm: 0, which saves 2 bytes a parameter" : "",
                   s->a->moments == MT_MOMENTS_F32 ? ", or adam_state: bf16 or 8bit, which save 4 and 6" : "");
}

/* Again, with layers for the embedding's place on the device. */
static mt_rc walk_skipping(search *s, mt_err *err)
{
    for (int i = 0; i < STARTS; i++) {
        struct start *at = &s->starts[i];
        if (!at->c.k[INTERVAL] || s->highest[HOMES_SKIP] == 0) continue;
        at->c.k[HOMES_SKIP] = 1;
        turn(s, &at->c, HOMES, 1);
        MT_TRY(judge(s, &at->c, (merit){ false, INFINITY }, &at->m, err));
    }
    return walk_all(s, err);
}

/* Not even with everything kept, in one sweep, would these micro-batches be fast enough. */
static bool hopeless(search *s)
{
    candidate c = candidate_of(s);
    c.k[KEEP_ALL] = s->highest[KEEP_ALL];
    for (int k = 0; k < KNOBS; k++) turn(s, &c, k, 0);
    fill(&s->trial, &c);
    return mt_step_compute(&s->drawing, &s->trial, s->machine) >= s->give_up;
}

/* What is cheap to redo gains little for its memory, norms twice as much as activations: it gets what nothing else has a
 * use for, on a device whose memory is its own. */
static mt_rc spend_the_rest(search *s, mt_err *err)
{
    struct start *at = &s->starts[0];
    for (int least = 0, most = 2 * at->c.k[KEEP_ALL]; least < most;) {
        candidate c = at->c;
        merit m;
        c.k[KEEP_CHEAP] = (least + most + 1) / 2;
        MT_TRY(judge(s, &c, at->m, &m, err));
        if (better(m, at->m)) {
            *at = (struct start){ .c = c, .m = m };
            least = c.k[KEEP_CHEAP];
        } else {
            most = c.k[KEEP_CHEAP] - 1;
        }
    }
    return MT_OK;
}

static mt_rc find(search *s, mt_err *err)
{
    MT_TRY(offer_least(s, err));
    if (s->give_up == 0 && s->starts[LEAST].m.fits) return MT_OK; /* that was the question */
    if (s->give_up > 0 && s->give_up < INFINITY && hopeless(s)) return MT_OK;
    MT_TRY(offer_all(s, err));
    MT_TRY(walk_all(s, err));
    if (!best_start(s)->m.fits) MT_TRY(walk_skipping(s, err));
    s->starts[0] = *best_start(s);
    if (!s->starts[0].m.fits) return nothing_fits(s, err);
    return s->rough || s->machine->shared ? MT_OK : spend_the_rest(s, err);
}

static mt_rc make(search *s, mt_plan **out, mt_err *err)
{
    bool simulated;
    mt_times times;
    if (s->give_up == 0 || !s->starts[0].m.fits) return MT_OK;
    fill(&s->trial, &s->starts[0].c);
    MT_TRY(mt_step_time(&s->drawing, &s->trial, s->machine, INFINITY, &times, &simulated, err));
    if (times.step >= s->give_up) return MT_OK;
    MT_TRY(mt_plan_create(out, s->model, s->job, s->a, &s->trial.place, err));
    (*out)->times = times;
    (*out)->base_host = mt_plan_base_host(&s->trial, s->machine);
    (*out)->base_device = s->machine->base_device;
    (*out)->predicted_seconds = times.step;
    return MT_OK;
}

static mt_rc search_with(mt_plan **out, search *s, mt_need *need, mt_err *err)
{
    const mt_limits none = { 0 }; /* where nothing is kept there is nothing to limit */
    s->limits = s->job->train ? &s->machine->limits : &none;
    s->least_device = s->least_host = SIZE_MAX;
    *out = NULL;
    MT_TRY(mt_limits_check(s->limits, s->model, err));
    s->trial = (mt_plan){ .model = s->model, .job = *s->job, .arithmetic = *s->a };
    for (int i = 0; i < STARTS; i++) s->starts[i].m = (merit){ false, INFINITY };
    set_ranges(s);
    mt_rc rc = mt_placement_init(&s->trial.place, s->model, err);
    if (!rc) rc = mt_step_drawing_init(&s->drawing, s->model, err);
    s->known = mt_calloc(KNOWN, sizeof *s->known);
    if (!rc && !s->known) rc = mt_fail(err, MT_ENOMEM, "no host memory to search for a plan");
    if (!rc) rc = find(s, err);
    if (!rc) rc = make(s, out, err);
    if (need) *need = (mt_need){ s->least_device, s->least_host };
    mt_free(s->known);
    mt_step_drawing_free(&s->drawing);
    mt_placement_free(&s->trial.place);
    return rc;
}

mt_rc mt_plan_search_faster(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, const mt_machine *machine, double seconds, mt_need *need, mt_err *err)
{
    search s = { .model = model, .job = job, .a = a, .machine = machine, .rough = seconds > 0, .give_up = seconds };
    return search_with(out, &s, need, err);
}

mt_rc mt_plan_search(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, const mt_machine *machine, mt_err *err)
{
    search s = { .model = model, .job = job, .a = a, .machine = machine, .give_up = INFINITY };
    return search_with(out, &s, NULL, err);
}

bool mt_plan_fits(const mt_model *model, const mt_job *job, const mt_arithmetic *a, const mt_machine *machine)
{
    mt_plan *plan = NULL;
    mt_err ignored = { 0 };
    bool yes = !mt_plan_search_faster(&plan, model, job, a, machine, 0, NULL, &ignored);
    mt_plan_free(plan);
    return yes;
}

mt_rc mt_plan_choose(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, size_t device_bytes, mt_err *err)
{
    mt_machine machine = mt_machine_typical();
    machine.device_bytes = device_bytes ? device_bytes : SIZE_MAX;
    return mt_plan_search(out, model, job, a, &machine, err);
}
