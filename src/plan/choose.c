/* choose.c - finds the fastest placement that fits.
 *
 * A placement is made of a dozen knobs (how many units have their home on the device, how many layers keep everything, ...).  The
 * search tries a coarse grid of them, takes the best of each kind and turns one knob or two at a time, in ever smaller steps down
 * to a single layer, while that helps and the kind keeps up with the others.  Candidates that do not fit are compared by how much
 * memory they lack, so the same walk leads to one that fits. least.c decides whether any fits, and its placement is among the
 * starts.  Ties go to the earlier candidate, which moves less.  The search lists no buffers: it counts sizes, times only what
 * could win, and judges nothing twice. */
#include "base/mem.h"
#include "base/rng.h"
#include "plan/knobs.h"
#include "plan/merge.h"
#include "plan/step_time.h"

#include <math.h>
#include <string.h>

/* How good a candidate is: fitting ones first, then by seconds or by missing bytes. */
typedef struct merit {
    bool fits;
    double cost;
} merit;

enum {
    KEEPS = 5,
    LEAST = 3 * KEEPS,
    STARTS
}; /* kinds of starts: by what layers keep, in one sweep, several, or staged; and the smallest */
enum { KNOWN = 1 << 12, ROUGH_STARTS = 4, ROUGH_LEVELS = 2, DEAREST = 6 };
#define HIDDEN_COST 0.02 /* overlapped work is not quite free: it can be late */
/* Host updates above all: the forward of their units waits for them, and cores have other work. */
#define ADAM_COST 0.1
#define NEAR      1.02 /* starts within this of the best may become the best in smaller steps */
/* Fraction of a step that another slot must save, and that pieces must save.  Pieces must save PIECES_LEAN even if host memory is
 * slower than measured (LEAN of it): on an H200 a predicted gain of 4% was a loss of 18% where Adam and copies shared the last of
 * the bandwidth, and a predicted gain of 25% was 23% where the cores were the limit (docs/notebook). */
#define SLOT_WORTH   0.01
#define PIECES_WORTH 0.06
#define PIECES_LEAN  0.03
#define LEAN         0.7
#define NO_WAITS     1e6
#define FAR_OFF      1.25 /* starts this much slower than the best are not worth a walk */

typedef struct search {
    mt_plan_inputs in;
    bool rough;     /* short search, for comparisons: only the most promising starts walk, in large steps */
    bool gather;    /* several lanes: gather weights from slices */
    double give_up; /* seconds: slower candidates are useless */
    knob_ranges range;
    mt_plan trial; /* its placement is the current candidate's */
    mt_step_model timing;
    struct { /* for a model with many units: the merged model that is timed instead */
        mt_merged m;
        mt_plan trial;
        mt_step_model timing;
    } merged;
    bool merges;
    struct start {
        candidate c; /* all 0: none */
        merit m;
        bool dropped;
    } starts[STARTS];
    struct known {
        candidate c;
        merit m;
        bool bound; /* m.cost is only a lower bound */
    } * known;      /* [KNOWN] recently judged candidates, by hash */
    mt_least least;
    int64_t left; /* budget: units of candidates that may still be measured */
} search;

/* Mixtures of experts have hundreds or thousands of units, and a candidate takes time for each.  So the search times them with
 * equal layers merged (merge.h), uses a coarser grid and limits the walks; the last walk uses all layers.  No other model reaches
 * these limits. */
enum { MANY_UNITS = 512, MOST_MEASURED = 3000000, MOST_ROUGHLY = 500000, MOST_UNMERGED = 200000 };
static bool has_many_units(const search *s) { return s->in.model->n_units > MANY_UNITS; }
static bool is_spent(const search *s) { return has_many_units(s) && s->left < 0; }

static bool better(merit a, merit b) { return a.fits != b.fits ? a.fits : a.cost < b.cost; }

/* -- merit ----------------------------------------------------------------------------------------- */

static double lack(size_t need, size_t have) { return need <= have ? 0 : (double)(need - have) / (double)(have ? have : 1); }

/* The trial's step time by the merged model.  The change of compute from rounding to its layers is known exactly. */
static mt_rc time_merged(search *s, const candidate *c, double give_up, mt_times *out, bool *simulated, mt_err *err)
{
    mt_plan *t = &s->merged.trial;
    const candidate less = mt_merged_candidate(&s->merged.m, c);
    mt__knobs_fill(t, &less);
    if (!mt_plan_settle(t))
        return mt_fail(err, MT_EINTERNAL, "more units reuse memory for their updates than there are merged layers to reuse");
    double off = mt_step_compute(&s->timing, &s->trial, s->in.machine) - mt_step_compute(&s->merged.timing, t, s->in.machine);
    MT_TRY(mt_step_time(&s->merged.timing, t, s->in.machine, give_up - off, out, simulated, err));
    out->step += off;
    out->compute += off;
    return MT_OK;
}

/* Merit of the trial, which was filled from the candidate and measured. */
static mt_rc time_trial(search *s, const candidate *c, double give_up, mt_times *out, bool *simulated, mt_err *err)
{
    if (s->merges) return time_merged(s, c, give_up, out, simulated, err);
    return mt_step_time(&s->timing, &s->trial, s->in.machine, give_up, out, simulated, err);
}

static mt_rc choose_measure(search *s, const candidate *c, merit than, struct known *out, mt_err *err)
{
    mt_plan *t = &s->trial;
    bool simulated = true;
    mt__knobs_fill(t, c);
    MT_TRY(mt_plan_measure(t, err));
    double missing = lack(t->device_bytes, s->in.machine->device_bytes) +
                     lack(mt_plan_host_total(t, s->in.machine), s->in.machine->host_bytes);
    *out = (struct known){ .c = *c, .m = { missing == 0, missing } };
    s->left -= t->model->n_units;
    if (!out->m.fits) return MT_OK;
    MT_TRY(time_trial(s, c, fmin(s->give_up, than.fits ? than.cost : INFINITY), &t->times, &simulated, err));
    out->m.cost = t->times.step + HIDDEN_COST * (t->times.copy_in + t->times.copy_out) + ADAM_COST * t->times.adam_host;
    out->bound = !simulated;
    return MT_OK;
}

static struct known *known_at(const search *s, const candidate *c) { return &s->known[mt_hash(c->k, sizeof c->k, 0) % KNOWN]; }

/* Merit of a candidate.  For one that cannot beat `than`, the cost may be too low, but never below `than`.  Walks cross their own
 * paths and each other's, so half of all candidates have been judged before. */
static mt_rc choose_judge(search *s, const candidate *c, merit than, merit *out, mt_err *err)
{
    struct known *k = known_at(s, c);
    bool same = memcmp(&k->c, c, sizeof *c) == 0,
         enough = !k->bound || k->m.cost >= fmin(s->give_up, than.fits ? than.cost : INFINITY);
    if (!same || !enough) MT_TRY(choose_measure(s, c, than, k, err));
    *out = k->m;
    return MT_OK;
}

/* Clamps a knob to its range; true if that changed it. */
static bool turn(const search *s, candidate *c, int k, int by)
{
    int before = c->k[k];
    c->k[k] = (int)mt_clamp_i64(before + by, s->range.lowest[k], s->range.highest[k]);
    return c->k[k] != before;
}

/* -- the grid -------------------------------------------------------------------------------------- */

/* Keeps the best of each kind. */
static mt_rc offer(search *s, int kind, const candidate *c, mt_err *err)
{
    struct start new = { .c = *c };
    for (int k = 0; k < KNOBS; k++) turn(s, &new.c, k, 0);
    MT_TRY(choose_judge(s, &new.c, s->starts[kind].m, &new.m, err));
    if (better(new.m, s->starts[kind].m)) s->starts[kind] = new;
    return MT_OK;
}

static candidate candidate_of(const search *s)
{
    candidate c;
    memcpy(c.k, s->range.lowest, sizeof c.k);
    c.k[MICROS] = s->range.highest[MICROS];
    c.k[ENDS_RESIDENT] = 1;
    c.k[RING] = c.k[GRAD_SLOTS] = 2;
    c.k[SLABS] = 4; /* offer() brings all of them into range */
    return c;
}

/* True if the plan fits with no resident layer; otherwise no number of resident layers fits. */
static mt_rc fits_plainly(search *s, int kind, candidate c, bool *out, mt_err *err)
{
    merit m;
    c.k[RESIDENT] = c.k[STAGED] = c.k[OWN] = 0;
    for (int k = 0; k < KNOBS; k++) turn(s, &c, k, 0);
    MT_TRY(choose_judge(s, &c, s->starts[kind].m, &m, err));
    *out = m.fits;
    return MT_OK;
}

/* Homes, resident weights, staging. */
static mt_rc offer_units(search *s, int kind, candidate c, mt_err *err)
{
    const int step = has_many_units(s) ? 2 : 1;
    for (int home = 4; home >= 0; home -= step) {
        bool fits;
        c.k[HOMES] = s->range.highest[HOMES] * home / 4;
        if (home && !c.k[HOMES]) continue;
        MT_TRY(fits_plainly(s, kind, c, &fits, err));
        for (int resident = fits ? 2 : 0; resident >= 0; resident -= step) {
            c.k[RESIDENT] = s->range.highest[RESIDENT] * resident / 2;
            for (int staged = 0; staged <= (c.k[KEEP_ALL] && s->in.job->train && !c.k[ACC_HOST] ? 4 : 0); staged += step) {
                c.k[STAGED] = s->range.highest[STAGED] * ((staged + 1) / 2) / 2;
                c.k[OWN] = staged % 2 ? 0 : c.k[STAGED]; /* none, or all */
                MT_TRY(offer(s, staged ? 2 * KEEPS + kind / 2 : kind, &c, err));
            }
        }
        if (home == 4) c.k[RESIDENT] = 0; /* every home is the device */
    }
    return MT_OK;
}

static mt_rc offer_sweeps(search *s, int keep, candidate c, mt_err *err)
{
    for (int micros = s->range.highest[MICROS];; micros = (micros + 1) / 2) {
        c.k[MICROS] = micros;
        for (int host = 0; host <= (micros < s->range.highest[MICROS] && s->in.job->train); host++) {
            c.k[ACC_HOST] = host;
            MT_TRY(offer_units(s, 2 * keep + (micros < s->range.highest[MICROS]), c, err));
        }
        if (micros <= 1) return MT_OK;
    }
}

static mt_rc offer_all(search *s, mt_err *err)
{
    int L = (int)s->in.model->config->L;
    /* All, attention, offloaded, interval. */
    const int keeps[KEEPS][4] = { { L, 0, 0, 1 }, { 0, L, 0, 1 }, { 0, 0, 0, 1 }, { 0, 0, L, 1 }, { 0, 0, 0, 4 } };
    for (size_t i = 0; i < (s->in.job->train ? KEEPS : 1); i++) {
        candidate c = candidate_of(s);
        c.k[KEEP_ALL] = keeps[i][0];
        c.k[KEEP_MIXER] = keeps[i][1];
        c.k[OFFLOADED] = keeps[i][2];
        c.k[INTERVAL] = keeps[i][3];
        MT_TRY(offer_sweeps(s, (int)i, c, err));
    }
    return MT_OK;
}

/* True if it fits the device; the host. */
static mt_rc find_room(search *s, const candidate *c, bool room[2], mt_err *err)
{
    mt__knobs_fill(&s->trial, c);
    MT_TRY(mt_plan_measure(&s->trial, err));
    room[MT_DEVICE] = s->trial.device_bytes <= s->in.machine->device_bytes;
    room[MT_HOST] = mt_plan_host_total(&s->trial, s->in.machine) <= s->in.machine->host_bytes;
    return MT_OK;
}

/* The fewest device homes that host memory allows. */
static mt_rc turn_homes(search *s, candidate *c, mt_err *err)
{
    bool room[2];
    int lo = s->range.lowest[HOMES] - 1, hi = s->range.highest[HOMES];
    while (hi - lo > 1) {
        c->k[HOMES] = lo + (hi - lo) / 2;
        MT_TRY(find_room(s, c, room, err));
        *(room[MT_HOST] ? &hi : &lo) = c->k[HOMES];
    }
    c->k[HOMES] = hi;
    return MT_OK;
}

/* The longest sweeps that fit in memory; 0: none. */
static mt_rc turn_micros(search *s, candidate *c, mt_err *err)
{
    bool room[2];
    int lo = 0, hi = s->range.highest[MICROS] + 1;
    while (hi - lo > 1) {
        c->k[MICROS] = lo + (hi - lo) / 2;
        MT_TRY(find_room(s, c, room, err));
        *(room[MT_HOST] && room[MT_DEVICE] ? &lo : &hi) = c->k[MICROS];
    }
    c->k[MICROS] = lo;
    return MT_OK;
}

/* If memory is short, the grid is too coarse.  Then try the longest sweeps of each kind, with one of each slot and only what must
 * be on the device. */
static mt_rc offer_tight(search *s, mt_err *err)
{
    int L = (int)s->in.model->config->L;
    const int keeps[][5] = { { L, 0, 0, 1, 0 }, { 0, L, 0, 1, 1 }, { 0, 0, 0, 1, 2 }, { 0, 0, L, 1, 3 },
                             { 0, 0, 0, 4, 4 }, { 0, 0, L, 4, 4 }, { 0, 0, L, 8, 4 } }; /* as above; kind */
    for (size_t i = 0; i < (s->in.job->train ? MT_COUNT(keeps) : 0); i++)
        for (int host = 0; host <= s->range.highest[ACC_HOST]; host++) {
            candidate c;
            memcpy(c.k, s->range.lowest, sizeof c.k);
            c.k[KEEP_ALL] = keeps[i][0];
            c.k[KEEP_MIXER] = keeps[i][1];
            c.k[OFFLOADED] = keeps[i][2];
            c.k[INTERVAL] = keeps[i][3];
            c.k[ACC_HOST] = host;
            for (int k = 0; k < KNOBS; k++) turn(s, &c, k, 0);
            MT_TRY(turn_homes(s, &c, err));
            MT_TRY(turn_micros(s, &c, err));
            if (c.k[MICROS]) MT_TRY(offer(s, 2 * keeps[i][4] + (c.k[MICROS] < s->range.highest[MICROS]), &c, err));
        }
    return MT_OK;
}

/* -- the walk -------------------------------------------------------------------------------------- */

static mt_rc try_turn(search *s, struct start *at, const candidate *c, bool *moved, mt_err *err)
{
    merit m;
    MT_TRY(choose_judge(s, c, at->m, &m, err));
    if (!better(m, at->m)) return MT_OK;
    /* A tiny gain is not worth a walk. */
    *moved |= !(m.fits && at->m.fits && m.cost > 0.9999 * at->m.cost);
    at->c = *c;
    at->m = m;
    return MT_OK;
}

/* Step sizes of a knob: `part` of its range, at least one. */
static int stride(const search *s, int k, int part)
{
    return (int)mt_max_i64((s->range.highest[k] - s->range.lowest[k]) / part, 1);
}

static mt_rc turn_one(search *s, struct start *at, int part, bool *moved, mt_err *err)
{
    for (int k = 0; k < KNOBS; k++)
        for (int sign = -1; sign <= 1; sign += 2) {
            candidate c = at->c;
            if (turn(s, &c, k, sign * stride(s, k, part))) MT_TRY(try_turn(s, at, &c, moved, err));
        }
    return MT_OK;
}

/* Trades one step of knob `to` for as many steps of knob `from` as its memory needs: a unit's state is worth several layers' kept
 * inputs. */
static mt_rc trade(search *s, struct start *at, int from, int step, int to, int part, bool *moved, mt_err *err)
{
    candidate c = at->c;
    merit m;
    if (!turn(s, &c, from, step) || !turn(s, &c, to, stride(s, to, part))) return MT_OK;
    for (int i = 1; i < (s->rough ? 2 : DEAREST); i++) {
        MT_TRY(choose_judge(s, &c, at->m, &m, err));
        if (m.fits || !at->m.fits || !turn(s, &c, from, step)) break;
    }
    return try_turn(s, at, &c, moved, err);
}

/* Memory taken from one use and given to another. */
static mt_rc turn_two(search *s, struct start *at, int part, bool *moved, mt_err *err)
{
    static const int memory[] = { MICROS,   KEEP_ALL,  KEEP_MIXER, HOMES, STAGED,    OWN,
                                  RESIDENT, OFFLOADED, INTERVAL,   RING,  GRAD_SLOTS };
    for (size_t i = 0; i < MT_COUNT(memory); i++)
        for (size_t j = 0; j < MT_COUNT(memory); j++)
            for (int sign = -1; sign <= 1 && i != j && !is_spent(s); sign += 2) {
                bool frees = memory[i] == OFFLOADED || memory[i] == STAGED || memory[i] == INTERVAL; /* by more of it */
                if (sign < 0 || frees)
                    MT_TRY(trade(s, at, memory[i], sign * stride(s, memory[i], part), memory[j], part, moved, err));
            }
    return MT_OK;
}

/* In steps of a part of each knob's range, while that helps. */
static mt_rc choose_walk(search *s, struct start *at, int part, mt_err *err)
{
    bool moved = true;
    for (int round = 0; moved && round < 12 && !is_spent(s); round++) {
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

/* True if a start is not worth another walk: it is as good as an earlier one and so probably the same but for knobs that do not
 * matter; it still does not fit while others do; or it is slower than the best by more than finer steps are likely to gain. */
static bool left_behind(const search *s, int i, double far)
{
    const merit *at = &s->starts[i].m, *best = &best_start(s)->m;
    for (int j = 0; j < i; j++)
        if (s->starts[j].m.fits == at->fits && fabs(s->starts[j].m.cost - at->cost) <= 1e-4 * at->cost) return true;
    return best->fits && (at->fits ? at->cost > far * fmin(best->cost, s->give_up) : far < FAR_OFF);
}

/* Drops all but the best few starts. */
static void thin_out(search *s, int left)
{
    for (int i = 0; i < STARTS; i++) {
        int ahead = 0;
        for (int j = 0; j < STARTS; j++)
            ahead += s->starts[j].c.k[INTERVAL] &&
                     (better(s->starts[j].m, s->starts[i].m) || (j < i && !better(s->starts[i].m, s->starts[j].m)));
        if (ahead >= left) s->starts[i].dropped = true;
    }
}

/* Step sizes, getting smaller, and how much slower than the best a start may be to continue. */
static const struct {
    int part;
    double far;
} levels[] = { { 4, FAR_OFF }, { 8, 1.06 }, { 16, 1.03 }, { 32, 1.02 }, { 64, 1.01 }, { 128, 1.005 } };
enum { LEVELS = MT_COUNT(levels) };

/* All starts, at levels [from, to). */
static mt_rc walk_levels(search *s, int from, int to, mt_err *err)
{
    bool finest = false;
    for (int l = from; l < to && !finest; l++) {
        for (int i = 0; i < STARTS; i++)
            if (s->starts[i].c.k[INTERVAL] && !s->starts[i].dropped && !left_behind(s, i, levels[l].far))
                MT_TRY(choose_walk(s, &s->starts[i], levels[l].part, err));
        finest = stride(s, HOMES, levels[l].part) == 1 && stride(s, KEEP_ALL, levels[l].part) == 1 &&
                 stride(s, MICROS, levels[l].part) == 1;
    }
    return MT_OK;
}

static mt_rc walk_all(search *s, mt_err *err)
{
    if (s->rough) thin_out(s, ROUGH_STARTS);
    return walk_levels(s, 0, s->rough ? ROUGH_LEVELS : LEVELS, err);
}

/* -- the search ------------------------------------------------------------------------------------ */

/* Not even with everything kept, in one sweep, would these micro-batches be fast enough. */
static bool hopeless(search *s)
{
    candidate c = candidate_of(s);
    c.k[KEEP_ALL] = s->range.highest[KEEP_ALL];
    for (int k = 0; k < KNOBS; k++) turn(s, &c, k, 0);
    if (!s->rough && !s->in.machine->shared) c.k[KEEP_CHEAP] = 2 * c.k[KEEP_ALL]; /* as spend_the_rest may */
    mt__knobs_fill(&s->trial, &c);
    return mt_step_compute(&s->timing, &s->trial, s->in.machine) >= s->give_up;
}

/* Keeping what is cheap to recompute gains little for its memory (norms twice as much as activations).  So it gets only the
 * memory that nothing else uses, on a device with separate memory. */
static mt_rc spend_the_rest(search *s, mt_err *err)
{
    struct start *at = &s->starts[0];
    for (int least = 0, most = 2 * at->c.k[KEEP_ALL]; least < most;) {
        candidate c = at->c;
        merit m;
        c.k[KEEP_CHEAP] = (least + most + 1) / 2;
        MT_TRY(choose_judge(s, &c, at->m, &m, err));
        if (better(m, at->m)) {
            *at = (struct start){ .c = c, .m = m };
            least = c.k[KEEP_CHEAP];
        } else {
            most = c.k[KEEP_CHEAP] - 1;
        }
    }
    return MT_OK;
}

/* -- waits ----------------------------------------------------------------------------------------- */

/* A start again with part of each unit updated in pieces, if that is allowed: beside its staged updates, and instead of them. */
static mt_rc offer_without_waits(search *s, int kind, const candidate *from, mt_err *err)
{
    int step = PIECE_SHARES / 4;
    for (int shares = 0; shares < (s->range.highest[PIECES] ? 4 * step : 1); shares += step)
        for (int instead = 0; instead < 2; instead++) {
            candidate c = *from;
            c.k[PIECES] = shares;
            if (instead) c.k[STAGED] = c.k[OWN] = 0;
            MT_TRY(offer(s, kind, &c, err));
        }
    return MT_OK;
}

/* Step time with this fraction of host memory's bandwidth; NO_WAITS: with host updates in no time. */
static mt_rc time_of(search *s, const candidate *c, double share, mt_times *out, mt_err *err)
{
    bool simulated;
    const mt_machine *usual = s->in.machine;
    mt_machine lean = *usual;
    lean.host_bandwidth *= share;
    for (int form = 0; form < MT_MOMENTS_FORMS && share == NO_WAITS; form++) lean.adam_host[form] *= NO_WAITS;
    mt__knobs_fill(&s->trial, c);
    MT_TRY(mt_plan_measure(&s->trial, err));
    s->in.machine = &lean;
    s->timing.every_piece = s->merged.timing.every_piece = true;
    mt_rc rc = time_trial(s, c, INFINITY, out, &simulated, err);
    s->timing.every_piece = s->merged.timing.every_piece = false;
    s->in.machine = usual;
    return rc;
}

static void forget_starts(search *s)
{
    for (int i = 0; i < STARTS; i++) s->starts[i] = (struct start){ .m = { false, INFINITY } };
}

/* With updates in pieces or without, and this many slots for kept activations. */
static void allow(search *s, bool pieces, int slots)
{
    s->range.lowest[PIECES] = pieces;
    s->range.highest[PIECES] = pieces ? PIECE_SHARES : 0;
    s->range.lowest[KEEP_SLOTS] = s->range.highest[KEEP_SLOTS] = slots;
}

/* The best from these starts, in large steps. */
static mt_rc walk_without_waits(search *s, const struct start from[STARTS], struct start *best, mt_err *err)
{
    int L = (int)s->in.model->config->L;
    forget_starts(s);
    for (int i = 0; i < STARTS; i++)
        if (from[i].c.k[INTERVAL]) MT_TRY(offer_without_waits(s, i, &from[i].c, err));
    candidate c = best_start(s)->c;
    c.k[KEEP_MIXER] = c.k[RESIDENT] = 0;                /* memory for the slot */
    for (int quarters = 4; quarters >= 2; quarters--) { /* all of the layers, or most, keep everything, in host memory */
        c.k[KEEP_ALL] = c.k[OFFLOADED] = L * quarters / 4;
        MT_TRY(offer_without_waits(s, LEAST - (4 - quarters), &c, err));
    }
    thin_out(s, 2 * ROUGH_STARTS);
    MT_TRY(walk_levels(s, 0, ROUGH_LEVELS, err));
    if (better(best_start(s)->m, best->m)) *best = *best_start(s);
    return MT_OK;
}

/* And from that one in small steps. */
static mt_rc walk_on(search *s, struct start *at, mt_err *err)
{
    forget_starts(s);
    allow(s, at->c.k[PIECES] > 0, at->c.k[KEEP_SLOTS]);
    s->starts[0] = *at;
    MT_TRY(walk_levels(s, ROUGH_LEVELS, LEVELS, err));
    *at = s->starts[0];
    return MT_OK;
}

/* True if host updates lengthen the step enough for pieces to be worth it. */
static mt_rc waits_for_updates(search *s, const struct start *at, bool *out, mt_err *err)
{
    mt_times now, then;
    *out = false;
    if (!at->m.fits) return MT_OK;
    MT_TRY(time_of(s, &at->c, 1, &now, err));
    MT_TRY(time_of(s, &at->c, NO_WAITS, &then, err));
    *out = then.step < now.step * (1 - PIECES_WORTH);
    return MT_OK;
}

/* True if the step is shorter by the required amount; with pieces, also if host memory is slower. */
static mt_rc is_worth(search *s, const candidate *c, const candidate *plain, bool *out, mt_err *err)
{
    const bool pieces = c->k[PIECES] > 0;
    *out = true;
    for (int lean = 0; *out && lean <= pieces; lean++) {
        mt_times with, without;
        MT_TRY(time_of(s, c, lean ? LEAN : 1, &with, err));
        MT_TRY(time_of(s, plain, lean ? LEAN : 1, &without, err));
        const double worth = !pieces ? SLOT_WORTH : lean ? PIECES_LEAN : PIECES_WORTH;
        *out = with.step < without.step * (1 - worth);
    }
    return MT_OK;
}

/* True if no step could be shorter: everything is kept, and nothing waits. */
static double least_seconds(search *s, const candidate *best)
{
    candidate c = *best;
    c.k[KEEP_ALL] = s->range.highest[KEEP_ALL];
    c.k[KEEP_CHEAP] = 2 * c.k[KEEP_ALL];
    c.k[OFFLOADED] = s->range.lowest[OFFLOADED];
    mt__knobs_fill(&s->trial, &c);
    return mt_step_compute(&s->timing, &s->trial, s->in.machine);
}

/* others[0]: with one more slot. others[1], if the step waits for updates: with pieces, with and without the slot. */
static mt_rc find_others(search *s, const struct start *best, struct start others[2], mt_err *err)
{
    struct start from[STARTS];
    int slots = s->range.lowest[KEEP_SLOTS];
    bool waits;
    memcpy(from, s->starts, sizeof from);
    for (int i = 0; i < 2; i++) others[i] = (struct start){ .m = { false, INFINITY } };
    allow(s, false, slots + 1);
    MT_TRY(walk_without_waits(s, from, &others[0], err));
    MT_TRY(waits_for_updates(s, better(others[0].m, best->m) ? &others[0] : best, &waits, err));
    for (int slot = 1; slot >= 0 && waits; slot--) {
        allow(s, true, slots + slot);
        MT_TRY(walk_without_waits(s, from, &others[1], err));
        waits = better(others[1].m, others[0].m); /* otherwise pieces gain nothing beyond the slot */
    }
    allow(s, false, slots);
    return MT_OK;
}

/* If compute waits for updates, pieces may shorten that.  If it waits for kept activations to leave, another slot may: with two,
 * a layer cannot begin before the activations of the layer before it have left.  Both are tried last, and the plan uses them only
 * if they are worth it. */
static mt_rc shorten_waits(search *s, mt_err *err)
{
    struct start best = *best_start(s), others[2];
    mt_times plain = { 0 };
    bool may = s->in.job->train && !s->in.job->only_gradients && !s->in.machine->shared && !s->in.machine->limits.whole_units &&
               s->in.job->lanes <= 1 && s->in.job->machines <= 1, /* several lanes update whole units or slices, on the host */
        found = false;
    int slots = s->range.lowest[KEEP_SLOTS];
    if (may && best.m.fits) MT_TRY(time_of(s, &best.c, 1, &plain, err));
    if (plain.step * (1 - SLOT_WORTH) > least_seconds(s, &best.c)) { /* otherwise there is too little to gain */
        MT_TRY(find_others(s, &best, others, err));
        const int first = better(others[1].m, others[0].m);
        for (int i = 0; i < 2 && !found; i++) {
            struct start *other = &others[i ? !first : first];
            if (!other->m.fits || other->m.cost > NEAR * (1 - SLOT_WORTH) * best.m.cost) continue;
            MT_TRY(walk_on(s, other, err));
            MT_TRY(is_worth(s, &other->c, &best.c, &found, err));
            if (found) best = *other;
        }
        allow(s, false, slots);
    }
    s->starts[0] = best;
    return MT_OK;
}

/* The best was found with merged layers: continue from it in small steps with all layers. */
static mt_rc walk_unmerged(search *s, mt_err *err)
{
    struct start at = *best_start(s);
    s->merges = false;
    s->left = MOST_UNMERGED;
    s->timing.every_piece = true;
    memset(s->known, 0, KNOWN * sizeof *s->known);
    MT_TRY(choose_judge(s, &at.c, (merit){ false, INFINITY }, &at.m, err));
    MT_TRY(walk_on(s, &at, err));
    s->starts[0] = at;
    return MT_OK;
}

/* A placement that is known to fit is one of the starts, so the search always finds one. */
static mt_rc choose_find(search *s, mt_err *err)
{
    MT_TRY(mt__least_find(&s->least, &s->trial, &s->range, s->in.machine, false, err));
    if (!s->least.fits) return mt__least_refuse(&s->least, &s->trial, s->in.machine, err);
    if (s->give_up < INFINITY && hopeless(s)) return MT_OK;
    MT_TRY(offer(s, LEAST, &s->least.c, err));
    MT_TRY(offer_tight(s, err));
    MT_TRY(offer_all(s, err));
    MT_TRY(walk_all(s, err));
    if (s->rough) {
        s->starts[0] = *best_start(s);
        return MT_OK;
    }
    MT_TRY(shorten_waits(s, err));
    if (s->merges) MT_TRY(walk_unmerged(s, err));
    return s->in.machine->shared ? MT_OK : spend_the_rest(s, err);
}

static mt_rc make(search *s, mt_plan **out, mt_err *err)
{
    bool simulated;
    mt_times times, searched = { 0 };
    if (!s->starts[0].m.fits) return MT_OK;
    mt__knobs_fill(&s->trial, &s->starts[0].c);
    MT_TRY(mt_plan_measure(&s->trial, err));
    s->timing.every_piece = s->merged.timing.every_piece = true;
    if (s->merged.m.whole) MT_TRY(time_merged(s, &s->starts[0].c, INFINITY, &searched, &simulated, err));
    MT_TRY(mt_step_time(&s->timing, &s->trial, s->in.machine, INFINITY, &times, &simulated, err));
    if (times.step >= s->give_up) return MT_OK;
    MT_TRY(mt_plan_create(out, s->in.model, s->in.job, s->in.arithmetic, &s->trial.place, err));
    (*out)->times = times;
    (*out)->base_host = mt_plan_base_host(&s->trial, s->in.machine);
    (*out)->base_device = s->in.machine->base_device;
    (*out)->predicted_seconds = times.step;
    (*out)->searched_seconds = searched.step;
    return MT_OK;
}

/* Prepares what timing needs for a model with many units. */
static mt_rc open_merged(search *s, mt_err *err)
{
    const int most = mt_merge_how_many(s->in.model);
    s->merges = s->in.model->unit_experts && most > 1;
    if (!s->merges) return MT_OK;
    MT_TRY(mt_merged_init(&s->merged.m, s->in.model, most, err));
    s->merged.trial = s->trial;
    s->merged.trial.model = &s->merged.m.model;
    s->merged.trial.place = (mt_placement){ 0 };
    MT_TRY(mt_placement_init(&s->merged.trial.place, &s->merged.m.model, err));
    MT_TRY(mt_step_model_init(&s->merged.timing, &s->merged.m.model, err));
    s->merged.timing.stands_for = s->merged.m.stands_for;
    return MT_OK;
}

static void close_merged(search *s)
{
    mt_step_model_free(&s->merged.timing);
    mt_placement_free(&s->merged.trial.place);
    mt_merged_free(&s->merged.m);
}

static mt_rc search_with(mt_plan **out, search *s, mt_err *err)
{
    *out = NULL;
    s->trial = (mt_plan){ .model = s->in.model, .job = *s->in.job, .arithmetic = *s->in.arithmetic };
    for (int i = 0; i < STARTS; i++) s->starts[i].m = (merit){ false, INFINITY };
    MT_TRY(mt__knobs_ranges(&s->range, &s->trial, s->in.machine, err));
    s->range.lowest[GATHER] = s->range.highest[GATHER] = s->gather;
    mt_rc rc = mt_placement_init(&s->trial.place, s->in.model, err);
    if (!rc) rc = mt_step_model_init(&s->timing, s->in.model, err);
    if (!rc) rc = open_merged(s, err);
    s->known = mt_calloc(KNOWN, sizeof *s->known);
    if (!rc && !s->known) rc = mt_no_memory(err, "searching for a plan");
    if (!rc) rc = choose_find(s, err);
    if (!rc) rc = make(s, out, err);
    mt_free(s->known);
    close_merged(s);
    mt_step_model_free(&s->timing);
    mt_placement_free(&s->trial.place);
    return rc;
}

/* Keeps the faster of two plans, of which either may be NULL. */
static void keep_faster(mt_plan **best, mt_plan *other)
{
    const bool better = other && (!*best || other->predicted_seconds < (*best)->predicted_seconds);
    mt_plan_free(better ? *best : other);
    if (better) *best = other;
}

/* Several lanes whose devices reach each other: search each route, which have little in common.  If none fits, report the error
 * of the route through host memory. */
static mt_rc search_routes(mt_plan **out, const search *how, mt_err *err)
{
    mt_machine apart = *how->in.machine;
    apart.peer = 0;
    for (int gather = 0; gather <= 1; gather++) {
        search s = *how;
        mt_plan *plan;
        mt_err why = { 0 };
        s.gather = gather;
        mt_rc rc = search_with(&plan, &s, &why);
        if (rc && rc != MT_ENOMEM) return *err = why, rc;
        keep_faster(out, plan);
    }
    search s = *how;
    mt_plan *plan;
    s.in.machine = &apart;
    mt_rc rc = search_with(&plan, &s, err);
    keep_faster(out, plan);
    return *out ? MT_OK : rc;
}

static mt_rc search_all(mt_plan **out, search *s, mt_err *err)
{
    *out = NULL;
    const bool routes = mt__knobs_may_use_peers(s->in.job, s->in.arithmetic, s->in.machine);
    return routes ? search_routes(out, s, err) : search_with(out, s, err);
}

mt_rc mt_plan_search_faster(mt_plan **out, mt_plan_inputs in, double seconds, mt_err *err)
{
    search s = { .in = in, .rough = true, .give_up = seconds, .left = MOST_ROUGHLY };
    return search_all(out, &s, err);
}

mt_rc mt_plan_search(mt_plan **out, mt_plan_inputs in, mt_err *err)
{
    search s = { .in = in, .give_up = INFINITY, .left = MOST_MEASURED };
    return search_all(out, &s, err);
}

mt_rc mt_plan_choose(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, size_t device_bytes,
                     mt_err *err)
{
    mt_machine machine = mt_machine_typical();
    machine.device_bytes = device_bytes ? device_bytes : SIZE_MAX;
    return mt_plan_search(out, (mt_plan_inputs){ model, job, a, &machine }, err);
}
