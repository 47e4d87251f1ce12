/* choose_judge.c - how good a candidate is: whether it fits, and its step time or the memory it lacks. */
#include "base/rng.h"
#include "plan/choose_internal.h"

#include <math.h>
#include <string.h>

#define HIDDEN_COST 0.02 /* overlapped work is not quite free: it can be late */
/* Host updates above all: the forward of their units waits for them, and cores have other work. */
#define ADAM_COST 0.1

bool mt__choose_turn(const search *s, candidate *c, int k, int by)
{
    int before = c->k[k];
    c->k[k] = (int)mt_clamp_i64(before + by, s->range.lowest[k], s->range.highest[k]);
    return c->k[k] != before;
}

void mt__choose_clamp(const search *s, candidate *c)
{
    for (int k = 0; k < KNOBS; k++) mt__choose_turn(s, c, k, 0);
}

/* Missing bytes, relative to those there are. */
static double lack(size_t need, size_t have) { return need <= have ? 0 : (double)(need - have) / (double)(have ? have : 1); }

/* The merged model rounds to its own layers.  What that changes in compute is known exactly, and put right. */
mt_rc mt__choose_time_merged(search *s, const candidate *c, double give_up, mt_times *out, bool *simulated, mt_err *err)
{
    mt_plan *t = &s->merged.trial;
    const candidate less = mt_merged_candidate(&s->merged.m, c);
    mt__knobs_fill(t, &less);
    /* Dealing depends on the number of layers, so the parts of the merged model's step would have other sizes. */
    t->place.sweep_tokens = s->trial.place.sweep_tokens;
    t->part_tokens = s->trial.part_tokens;
    if (!mt_plan_settle(t))
        return mt_fail(err, MT_EINTERNAL, "more units reuse memory for their updates than there are merged layers to reuse");
    double off = mt_step_compute(&s->timing, &s->trial, s->in.machine) - mt_step_compute(&s->merged.timing, t, s->in.machine);
    MT_TRY(mt_step_time(&s->merged.timing, t, s->in.machine, give_up - off, out, simulated, err));
    out->step += off;
    out->compute += off;
    return MT_OK;
}

mt_rc mt__choose_time(search *s, const candidate *c, double give_up, mt_times *out, bool *simulated, mt_err *err)
{
    if (s->merges) return mt__choose_time_merged(s, c, give_up, out, simulated, err);
    return mt_step_time(&s->timing, &s->trial, s->in.machine, give_up, out, simulated, err);
}

/* Seconds from which on a candidate is of no use: it beats neither `than` nor the limit of the search. */
static double give_up_at(const search *s, merit than) { return fmin(s->give_up, than.fits ? than.cost : INFINITY); }

/* Judges the placement that the trial was filled with: measures it, and times it if it fits. */
static mt_rc judge_placement(search *s, const candidate *c, merit than, verdict *out, mt_err *err)
{
    mt_plan *t = &s->trial;
    bool simulated = true;
    MT_TRY(mt_plan_measure(t, err));
    double missing = lack(t->device_bytes, s->in.machine->device_bytes) +
                     lack(mt_plan_host_total(t, s->in.machine), s->in.machine->host_bytes);
    *out = (verdict){ .m = { missing == 0, missing } };
    if (!out->m.fits) return MT_OK;
    MT_TRY(mt__choose_time(s, c, give_up_at(s, than), &t->times, &simulated, err));
    out->m.cost = t->times.step + HIDDEN_COST * (t->times.copy_in + t->times.copy_out) + ADAM_COST * t->times.adam_host;
    out->bound = !simulated;
    return MT_OK;
}

/* True if a lower bound, if that is what it is, still rules the candidate out. */
static bool is_enough(const search *s, const verdict *v, merit than) { return !v->bound || v->m.cost >= give_up_at(s, than); }

static uint64_t add_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15; /* 2^64 over the golden ratio */
    return hash ^ hash >> 32;
}

/* Hashes what mt__knobs_fill filled in. */
static uint64_t hash_placement(const mt_plan *t, uint64_t hash)
{
    const mt_placement *p = &t->place;
    const int slots[] = { p->accumulators, p->keep_slots, p->staging_slots, p->piece_slots, p->n_slabs, p->fold, p->gather };
    hash = add_word(hash, (uint64_t)p->sweep_tokens);
    hash = add_word(hash, (uint64_t)p->piece_elems);
    for (size_t i = 0; i < MT_COUNT(slots); i++) hash = add_word(hash, (uint64_t)slots[i]);
    for (int g = 0; g < t->model->n_groups; g++) {
        const mt_group_place *at = &p->groups[g];
        hash = add_word(hash, (uint64_t)at->ring_slots << 32 | (uint64_t)at->sum_slots << 16 | (uint64_t)at->out_slots);
    }
    for (int l = 0; l < t->model->config->L; l++)
        hash = add_word(hash, (uint64_t)p->layers[l].keep << 1 | (uint64_t)p->layers[l].place);
    for (int u = 0; u < t->model->n_units; u++) {
        const mt_unit_place *at = &p->units[u];
        hash = add_word(hash, (uint64_t)at->in_pieces << 8 | (uint64_t)at->site << 3 | (uint64_t)at->home << 2 |
                                  (uint64_t)at->reuses << 1 | at->resident);
    }
    return hash;
}

/* Fills the trial with the candidate's placement.  Returns a hash of all that a verdict depends on: of this placement, and of the
 * merged model's, which rounds differently. */
static uint64_t place_candidate(search *s, const candidate *c)
{
    mt__knobs_fill(&s->trial, c);
    uint64_t id = hash_placement(&s->trial, 0);
    if (s->merges) {
        const candidate less = mt_merged_candidate(&s->merged.m, c);
        mt__knobs_fill(&s->merged.trial, &less);
        id = hash_placement(&s->merged.trial, id);
    }
    return id ? id : 1;
}

/* Many knobs change nothing while others are 0, such as slots that nothing uses.  So half of all candidates have the placement of
 * an earlier one.  A search judges some ten thousand placements: too few for two of them to share a hash of 64 bits. */
static mt_rc judge_candidate(search *s, const candidate *c, merit than, verdict *out, mt_err *err)
{
    const uint64_t id = place_candidate(s, c);
    judged_place *at = &s->places[id % KNOWN_PLACES];
    s->left -= s->trial.model->n_units;
    if (at->id != id || !is_enough(s, &at->v, than)) {
        at->id = 0; /* until it is judged */
        MT_TRY(judge_placement(s, c, than, &at->v, err));
        at->id = id;
    }
    *out = at->v;
    return MT_OK;
}

/* Walks cross their own paths and each other's, so half of all candidates have been judged before. */
mt_rc mt__choose_judge(search *s, const candidate *c, merit than, merit *out, mt_err *err)
{
    judged *k = &s->known[mt_hash(c->k, sizeof c->k, 0) % KNOWN];
    if (memcmp(&k->c, c, sizeof *c) != 0 || !is_enough(s, &k->v, than)) {
        MT_TRY(judge_candidate(s, c, than, &k->v, err));
        k->c = *c;
    }
    *out = k->v.m;
    return MT_OK;
}

void mt__choose_forget(search *s)
{
    memset(s->known, 0, KNOWN * sizeof *s->known);
    memset(s->places, 0, KNOWN_PLACES * sizeof *s->places);
}
