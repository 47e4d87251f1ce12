/* choose_waits.c - shortens the waits of the best placement, with updates in pieces and another slot for kept activations. */
#include "plan/choose_internal.h"

#include <math.h>
#include <string.h>

#define NEAR 1.02 /* starts within this of the best may become the best in smaller steps */
/* Fraction of a step that another slot must save, and that pieces must save.  Pieces must save PIECES_LEAN even if host memory is
 * slower than measured (LEAN of it): on an H200 a predicted gain of 4% was a loss of 18% where Adam and copies shared the last of
 * the bandwidth, and a predicted gain of 25% was 23% where the cores were the limit (docs/notebook). */
#define SLOT_WORTH   0.01
#define PIECES_WORTH 0.06
#define PIECES_LEAN  0.03
#define LEAN         0.7
#define NO_WAITS     1e6

/* A start again with part of each unit updated in pieces, if that is allowed: beside its staged updates, and instead of them. */
static mt_rc offer_without_waits(search *s, int kind, const candidate *from, mt_err *err)
{
    int step = PIECE_SHARES / 4;
    for (int shares = 0; shares < (s->range.highest[PIECES] ? 4 * step : 1); shares += step)
        for (int instead = 0; instead < 2; instead++) {
            candidate c = *from;
            c.k[PIECES] = shares;
            if (instead) c.k[STAGED] = c.k[OWN] = 0;
            MT_TRY(mt__choose_offer(s, kind, &c, err));
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
    mt_rc rc = mt__choose_time(s, c, INFINITY, out, &simulated, err);
    s->timing.every_piece = s->merged.timing.every_piece = false;
    s->in.machine = usual;
    return rc;
}

static void forget_starts(search *s)
{
    for (int i = 0; i < STARTS; i++) s->starts[i] = (start){ .m = { false, INFINITY } };
}

/* Limits the search to placements with updates in pieces or without, and with this many slots for kept activations. */
static void allow(search *s, bool pieces, int slots)
{
    s->range.lowest[PIECES] = pieces;
    s->range.highest[PIECES] = pieces ? PIECE_SHARES : 0;
    s->range.lowest[KEEP_SLOTS] = s->range.highest[KEEP_SLOTS] = slots;
}

/* Walks from these starts in large steps; *best becomes the best found, if that is better. */
static mt_rc walk_without_waits(search *s, const start from[STARTS], start *best, mt_err *err)
{
    const int read = (int)s->in.model->config->L - mt_plan_lowest_layer(&s->trial); /* layers with a backward */
    forget_starts(s);
    for (int i = 0; i < STARTS; i++)
        if (start_exists(&from[i])) MT_TRY(offer_without_waits(s, i, &from[i].c, err));
    candidate c = mt__choose_best(s)->c;
    c.k[KEEP_MIXER] = c.k[RESIDENT] = 0;                /* memory for the slot */
    for (int quarters = 4; quarters >= 2; quarters--) { /* all of the layers, or most, keep everything, in host memory */
        c.k[KEEP_ALL] = c.k[OFFLOADED] = read * quarters / 4;
        MT_TRY(offer_without_waits(s, LEAST - (4 - quarters), &c, err));
    }
    mt__choose_thin_out(s, 2 * ROUGH_STARTS);
    MT_TRY(mt__choose_walk_levels(s, 0, ROUGH_LEVELS, err));
    if (merit_better(mt__choose_best(s)->m, best->m)) *best = *mt__choose_best(s);
    return MT_OK;
}

mt_rc mt__choose_walk_on(search *s, start *at, mt_err *err)
{
    forget_starts(s);
    allow(s, at->c.k[PIECES] > 0, at->c.k[KEEP_SLOTS]);
    s->starts[0] = *at;
    MT_TRY(mt__choose_walk_levels(s, ROUGH_LEVELS, LEVELS, err));
    *at = s->starts[0];
    return MT_OK;
}

/* True if host updates lengthen the step enough for pieces to be worth it. */
static mt_rc waits_for_updates(search *s, const start *at, bool *out, mt_err *err)
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
        double worth = SLOT_WORTH;
        if (pieces) worth = lean ? PIECES_LEAN : PIECES_WORTH;
        *out = with.step < without.step * (1 - worth);
    }
    return MT_OK;
}

/* A lower bound of every step: everything is kept, and nothing waits. */
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
static mt_rc find_others(search *s, const start *best, start others[2], mt_err *err)
{
    start from[STARTS];
    int slots = s->range.lowest[KEEP_SLOTS];
    bool waits;
    memcpy(from, s->starts, sizeof from);
    for (int i = 0; i < 2; i++) others[i] = (start){ .m = { false, INFINITY } };
    allow(s, false, slots + 1);
    MT_TRY(walk_without_waits(s, from, &others[0], err));
    MT_TRY(waits_for_updates(s, merit_better(others[0].m, best->m) ? &others[0] : best, &waits, err));
    for (int slot = 1; slot >= 0 && waits; slot--) {
        allow(s, true, slots + slot);
        MT_TRY(walk_without_waits(s, from, &others[1], err));
        waits = merit_better(others[1].m, others[0].m); /* otherwise pieces gain nothing beyond the slot */
    }
    allow(s, false, slots);
    return MT_OK;
}

/* Several lanes update whole units or slices, on the host. */
static bool may_use_pieces(const search *s)
{
    const mt_job *j = s->in.job;
    return j->train && !j->only_gradients && j->lanes <= 1 && j->machines <= 1 && !s->in.machine->shared &&
           !s->in.machine->limits.whole_units;
}

mt_rc mt__choose_shorten_waits(search *s, mt_err *err)
{
    start best = *mt__choose_best(s), others[2];
    mt_times plain = { 0 };
    bool found = false;
    int slots = s->range.lowest[KEEP_SLOTS];
    if (may_use_pieces(s) && best.m.fits) MT_TRY(time_of(s, &best.c, 1, &plain, err));
    if (plain.step * (1 - SLOT_WORTH) > least_seconds(s, &best.c)) { /* otherwise there is too little to gain */
        MT_TRY(find_others(s, &best, others, err));
        const int first = merit_better(others[1].m, others[0].m);
        for (int i = 0; i < 2 && !found; i++) {
            start *other = &others[i ? !first : first];
            if (!other->m.fits || other->m.cost > NEAR * (1 - SLOT_WORTH) * best.m.cost) continue;
            MT_TRY(mt__choose_walk_on(s, other, err));
            MT_TRY(is_worth(s, &other->c, &best.c, &found, err));
            if (found) best = *other;
        }
        allow(s, false, slots);
    }
    s->starts[0] = best;
    return MT_OK;
}
