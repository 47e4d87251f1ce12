/* choose_grid.c - where the search starts: the best candidate of each kind on a coarse grid of knobs. */
#include "plan/choose_internal.h"

#include <string.h>

/* The kind of a start without staged updates. */
static int start_kind(const search *s, int keep, int micros)
{
    const bool several_sweeps = micros < s->range.highest[MICROS];
    return 2 * keep + several_sweeps;
}

mt_rc mt__choose_offer(search *s, int kind, const candidate *c, mt_err *err)
{
    start new = { .c = *c };
    mt__choose_clamp(s, &new.c);
    MT_TRY(mt__choose_judge(s, &new.c, s->starts[kind].m, &new.m, err));
    if (merit_better(new.m, s->starts[kind].m)) s->starts[kind] = new;
    return MT_OK;
}

candidate mt__choose_plain(const search *s)
{
    candidate c;
    memcpy(c.k, s->range.lowest, sizeof c.k);
    c.k[MICROS] = s->range.highest[MICROS];
    c.k[ENDS_RESIDENT] = 1;
    c.k[RING] = c.k[GRAD_SLOTS] = 2;
    c.k[SLABS] = 4;
    return c;
}

/* True if the candidate fits with no resident layer; otherwise no number of resident layers fits. */
static mt_rc fits_plainly(search *s, int kind, candidate c, bool *out, mt_err *err)
{
    merit m;
    c.k[RESIDENT] = c.k[STAGED] = c.k[OWN] = 0;
    mt__choose_clamp(s, &c);
    MT_TRY(mt__choose_judge(s, &c, s->starts[kind].m, &m, err));
    *out = m.fits;
    return MT_OK;
}

/* Varies homes, resident weights and staged updates: of each all, none, and steps between. */
static mt_rc offer_units(search *s, int kind, candidate c, mt_err *err)
{
    const int step = search_has_many_units(s) ? 2 : 1;
    const bool may_stage = c.k[KEEP_ALL] && s->in.job->train && !c.k[ACC_HOST];
    for (int home = 4; home >= 0; home -= step) {
        bool fits;
        c.k[HOMES] = s->range.highest[HOMES] * home / 4;
        if (home && !c.k[HOMES]) continue;
        MT_TRY(fits_plainly(s, kind, c, &fits, err));
        for (int resident = fits ? 2 : 0; resident >= 0; resident -= step) {
            c.k[RESIDENT] = s->range.highest[RESIDENT] * resident / 2;
            for (int staged = 0; staged <= (may_stage ? 4 : 0); staged += step) {
                c.k[STAGED] = s->range.highest[STAGED] * ((staged + 1) / 2) / 2;
                c.k[OWN] = staged % 2 ? 0 : c.k[STAGED]; /* none, or all */
                MT_TRY(mt__choose_offer(s, staged ? STAGED_STARTS + kind / 2 : kind, &c, err));
            }
        }
    }
    return MT_OK;
}

static mt_rc offer_sweeps(search *s, int keep, candidate c, mt_err *err)
{
    for (int micros = s->range.highest[MICROS];; micros = (micros + 1) / 2) {
        const bool sums_wait = micros < s->range.highest[MICROS] && s->in.job->train; /* between sweeps */
        c.k[MICROS] = micros;
        for (int host = 0; host <= sums_wait; host++) {
            c.k[ACC_HOST] = host;
            MT_TRY(offer_units(s, start_kind(s, keep, micros), c, err));
        }
        if (micros <= 1) return MT_OK;
    }
}

/* What the layers of a start keep, all of them alike, and the kind of that start.  The last two are only tried where memory is
 * tight. */
static const struct keeps {
    bool all, mixer, offloaded;
    int interval, kind;
} keeps[] = {
    { .all = true, .interval = 1, .kind = 0 },
    { .mixer = true, .interval = 1, .kind = 1 },
    { .interval = 1, .kind = 2 },
    { .offloaded = true, .interval = 1, .kind = 3 },
    { .interval = 4, .kind = 4 },
    { .offloaded = true, .interval = 4, .kind = 4 },
    { .offloaded = true, .interval = 8, .kind = 4 },
};

static void set_keeps(const search *s, candidate *c, const struct keeps *at)
{
    const int read = (int)s->in.model->config->L - mt_plan_lowest_layer(&s->trial); /* layers with a backward */
    c->k[KEEP_ALL] = at->all ? read : 0;
    c->k[KEEP_MIXER] = at->mixer ? read : 0;
    c->k[OFFLOADED] = at->offloaded ? read : 0;
    c->k[INTERVAL] = at->interval;
}

mt_rc mt__choose_offer_grid(search *s, mt_err *err)
{
    for (int i = 0; i < (s->in.job->train ? KEEPS : 1); i++) {
        candidate c = mt__choose_plain(s);
        set_keeps(s, &c, &keeps[i]);
        MT_TRY(offer_sweeps(s, keeps[i].kind, c, err));
    }
    return MT_OK;
}

/* Whether a candidate fits in the memory of each place. */
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
        if (room[MT_HOST])
            hi = c->k[HOMES];
        else
            lo = c->k[HOMES];
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
        if (room[MT_HOST] && room[MT_DEVICE])
            lo = c->k[MICROS];
        else
            hi = c->k[MICROS];
    }
    c->k[MICROS] = lo;
    return MT_OK;
}

mt_rc mt__choose_offer_tight(search *s, mt_err *err)
{
    if (!s->in.job->train) return MT_OK;
    for (size_t i = 0; i < MT_COUNT(keeps); i++)
        for (int host = 0; host <= s->range.highest[ACC_HOST]; host++) {
            candidate c;
            memcpy(c.k, s->range.lowest, sizeof c.k);
            set_keeps(s, &c, &keeps[i]);
            c.k[ACC_HOST] = host;
            mt__choose_clamp(s, &c);
            MT_TRY(turn_homes(s, &c, err));
            MT_TRY(turn_micros(s, &c, err));
            if (c.k[MICROS]) MT_TRY(mt__choose_offer(s, start_kind(s, keeps[i].kind, c.k[MICROS]), &c, err));
        }
    return MT_OK;
}
