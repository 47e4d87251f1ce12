/* choose_internal.h - the search for the fastest placement, in its parts.  Only plan/choose*.c include it.
 *
 *     choose_judge.c   a candidate -> its merit
 *     choose_grid.c    a coarse grid of knobs -> the best start of each kind
 *     choose_walk.c    a start -> a better one, in ever smaller steps
 *     choose_waits.c   the best -> one with shorter waits, if that is worth its memory and risk
 *     choose.c         all of it, for one route or several */
#ifndef MT_PLAN_CHOOSE_INTERNAL_H
#define MT_PLAN_CHOOSE_INTERNAL_H

#include "plan/knobs.h"
#include "plan/merge.h"
#include "plan/step_time.h"

/* How good a candidate is: fitting ones first, then by seconds or by missing bytes. */
typedef struct merit {
    bool fits;
    double cost;
} merit;

static inline bool merit_better(merit a, merit b) { return a.fits != b.fits ? a.fits : a.cost < b.cost; }

/* Kinds of starts: by what layers keep, in one sweep, in several, or with staged updates; and the smallest placement. */
enum { KEEPS = 5, STAGED_STARTS = 2 * KEEPS, LEAST = 3 * KEEPS, STARTS };
enum { ROUGH_STARTS = 4, ROUGH_LEVELS = 2, LEVELS = 6 }; /* levels of step sizes; rough: in a short search */

/* The best candidate of its kind so far. */
typedef struct start {
    candidate c; /* all 0: none */
    merit m;
    bool dropped; /* no longer walked from */
} start;

static inline bool start_exists(const start *at) { return at->c.k[INTERVAL] > 0; }

typedef struct verdict {
    merit m;
    bool bound; /* m.cost is only a lower bound */
} verdict;

/* A candidate that was judged. */
typedef struct judged {
    candidate c;
    verdict v;
} judged;

/* A placement that was judged, and its hash. */
typedef struct judged_place {
    uint64_t id; /* 0: none */
    verdict v;
} judged_place;

enum { KNOWN = 1 << 12, KNOWN_PLACES = 1 << 14 };

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
    start starts[STARTS];
    judged *known;        /* [KNOWN] recently judged candidates, by hash */
    judged_place *places; /* [KNOWN_PLACES] and their placements */
    mt_least least;
    int64_t left; /* budget: units of candidates that may still be judged */
} search;

/* Mixtures of experts have hundreds or thousands of units, and a candidate takes time for each.  So the search times them with
 * equal layers merged (merge.h), uses a coarser grid and limits the walks; the last walk uses all layers.  No other model reaches
 * these limits. */
enum { MANY_UNITS = 512, MOST_MEASURED = 3000000, MOST_ROUGHLY = 500000, MOST_UNMERGED = 200000 };
static inline bool search_has_many_units(const search *s) { return s->in.model->n_units > MANY_UNITS; }
static inline bool search_is_spent(const search *s) { return search_has_many_units(s) && s->left < 0; }

/* -- choose_judge.c -- */

/* Adds `by` to a knob within its range; true if that changed it. */
bool mt__choose_turn(const search *s, candidate *c, int k, int by);
/* Brings all knobs into their ranges. */
void mt__choose_clamp(const search *s, candidate *c);
/* Merit of a candidate.  For one that cannot beat `than`, the cost may be too low, but never below `than`. */
mt_rc mt__choose_judge(search *s, const candidate *c, merit than, merit *out, mt_err *err);
/* Forgets what was judged: from now on candidates are timed in another way. */
void mt__choose_forget(search *s);
/* Step time of the trial, which was filled from the candidate and measured; by the merged model if there is one. */
mt_rc mt__choose_time(search *s, const candidate *c, double give_up, mt_times *out, bool *simulated, mt_err *err);
mt_rc mt__choose_time_merged(search *s, const candidate *c, double give_up, mt_times *out, bool *simulated, mt_err *err);

/* -- choose_grid.c -- */

/* A candidate that keeps nothing, in one sweep, with the usual slots; some knobs may be out of their ranges. */
candidate mt__choose_plain(const search *s);
/* Makes a candidate the start of its kind if it is better. */
mt_rc mt__choose_offer(search *s, int kind, const candidate *c, mt_err *err);
mt_rc mt__choose_offer_grid(search *s, mt_err *err);
/* If memory is short, the grid is too coarse.  This offers the longest sweeps of each kind, with one of each slot and only what
 * must be on the device. */
mt_rc mt__choose_offer_tight(search *s, mt_err *err);

/* -- choose_walk.c -- */

const start *mt__choose_best(const search *s);
/* Drops all but the best few starts. */
void mt__choose_thin_out(search *s, int left);
/* Walks from all starts with the step sizes of levels [from, to). */
mt_rc mt__choose_walk_levels(search *s, int from, int to, mt_err *err);

/* -- choose_waits.c -- */

/* If compute waits for updates, pieces may shorten that.  If it waits for kept activations to leave, another slot may: with two,
 * a layer cannot begin before the activations of the layer before it have left.  Both are tried last, and the plan uses them only
 * if they are worth it.  starts[0] is then the best. */
mt_rc mt__choose_shorten_waits(search *s, mt_err *err);
/* Walks from one start, in small steps. */
mt_rc mt__choose_walk_on(search *s, start *at, mt_err *err);

#endif
