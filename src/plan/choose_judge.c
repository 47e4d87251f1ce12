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

/* Measures a candidate, and times it if it fits. */
static mt_rc measure_candidate(search *s, const candidate *c, merit than, judged *out, mt_err *err)
{
    mt_plan *t = &s->trial;
    bool simulated = true;
    mt__knobs_fill(t, c);
    MT_TRY(mt_plan_measure(t, err));
    double missing = lack(t->device_bytes, s->in.machine->device_bytes) +
                     lack(mt_plan_host_total(t, s->in.machine), s->in.machine->host_bytes);
    *out = (judged){ .c = *c, .m = { missing == 0, missing } };
    s->left -= t->model->n_units;
    if (!out->m.fits) return MT_OK;
    MT_TRY(mt__choose_time(s, c, give_up_at(s, than), &t->times, &simulated, err));
    out->m.cost = t->times.step + HIDDEN_COST * (t->times.copy_in + t->times.copy_out) + ADAM_COST * t->times.adam_host;
    out->bound = !simulated;
    return MT_OK;
}

/* Walks cross their own paths and each other's, so half of all candidates have been judged before. */
mt_rc mt__choose_judge(search *s, const candidate *c, merit than, merit *out, mt_err *err)
{
    judged *k = &s->known[mt_hash(c->k, sizeof c->k, 0) % KNOWN];
    const bool same = memcmp(&k->c, c, sizeof *c) == 0, enough = !k->bound || k->m.cost >= give_up_at(s, than);
    if (!same || !enough) MT_TRY(measure_candidate(s, c, than, k, err));
    *out = k->m;
    return MT_OK;
}
