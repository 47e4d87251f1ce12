/* choose.c - finds the fastest placement that fits.
 *
 * A placement is made of a dozen knobs (how many units have their home on the device, how many layers keep everything, ...).  The
 * search tries a coarse grid of them, takes the best of each kind and turns one knob or two at a time, in ever smaller steps down
 * to a single layer, while that helps and the kind keeps up with the others.  Candidates that do not fit are compared by how much
 * memory they lack, so the same walk leads to one that fits. least.c decides whether any fits, and its placement is among the
 * starts.  Ties go to the earlier candidate, which moves less.  The search lists no buffers: it counts sizes, times only what
 * could win, and judges no placement twice. */
#include "base/mem.h"
#include "plan/choose_internal.h"

#include <math.h>

/* True if these micro-batches would be too slow even with everything kept, in one sweep. */
static bool is_hopeless(search *s)
{
    candidate c = mt__choose_plain(s);
    c.k[KEEP_ALL] = s->range.highest[KEEP_ALL];
    mt__choose_clamp(s, &c);
    if (!s->rough && !s->in.machine->shared) c.k[KEEP_CHEAP] = 2 * c.k[KEEP_ALL]; /* as spend_the_rest may */
    mt__knobs_fill(&s->trial, &c);
    return mt_step_compute(&s->timing, &s->trial, s->in.machine) >= s->give_up;
}

/* Keeping what is cheap to recompute gains little for its memory (norms twice as much as activations).  So it gets only the
 * memory that nothing else uses, on a device with separate memory. */
static mt_rc spend_the_rest(search *s, mt_err *err)
{
    start *at = &s->starts[0];
    for (int least = 0, most = 2 * at->c.k[KEEP_ALL]; least < most;) {
        candidate c = at->c;
        merit m;
        c.k[KEEP_CHEAP] = (least + most + 1) / 2;
        MT_TRY(mt__choose_judge(s, &c, at->m, &m, err));
        if (merit_better(m, at->m)) {
            *at = (start){ .c = c, .m = m };
            least = c.k[KEEP_CHEAP];
        } else {
            most = c.k[KEEP_CHEAP] - 1;
        }
    }
    return MT_OK;
}

/* The best was found with merged layers: continue from it in small steps with all layers. */
static mt_rc walk_unmerged(search *s, mt_err *err)
{
    start at = *mt__choose_best(s);
    s->merges = false;
    s->left = MOST_UNMERGED;
    s->timing.every_piece = true;
    mt__choose_forget(s);
    MT_TRY(mt__choose_judge(s, &at.c, (merit){ false, INFINITY }, &at.m, err));
    MT_TRY(mt__choose_walk_on(s, &at, err));
    s->starts[0] = at;
    return MT_OK;
}

/* A placement that is known to fit is one of the starts, so the search always finds one. */
static mt_rc find_best(search *s, mt_err *err)
{
    MT_TRY(mt__least_find(&s->least, &s->trial, &s->range, s->in.machine, false, err));
    if (!s->least.fits) return mt__least_refuse(&s->least, &s->trial, s->in.machine, err);
    if (s->give_up < INFINITY && is_hopeless(s)) return MT_OK;
    MT_TRY(mt__choose_offer(s, LEAST, &s->least.c, err));
    MT_TRY(mt__choose_offer_tight(s, err));
    MT_TRY(mt__choose_offer_grid(s, err));
    if (s->rough) mt__choose_thin_out(s, ROUGH_STARTS);
    MT_TRY(mt__choose_walk_levels(s, 0, s->rough ? ROUGH_LEVELS : LEVELS, err));
    if (s->rough) {
        s->starts[0] = *mt__choose_best(s);
        return MT_OK;
    }
    MT_TRY(mt__choose_shorten_waits(s, err));
    if (s->merges) MT_TRY(walk_unmerged(s, err));
    return s->in.machine->shared ? MT_OK : spend_the_rest(s, err);
}

/* Makes the plan of the best placement; none if it is too slow. */
static mt_rc make_plan(search *s, mt_plan **out, mt_err *err)
{
    bool simulated;
    mt_times times, searched = { 0 };
    if (!s->starts[0].m.fits) return MT_OK;
    mt__knobs_fill(&s->trial, &s->starts[0].c);
    MT_TRY(mt_plan_measure(&s->trial, err));
    s->timing.every_piece = s->merged.timing.every_piece = true;
    if (s->merged.m.whole) MT_TRY(mt__choose_time_merged(s, &s->starts[0].c, INFINITY, &searched, &simulated, err));
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
    s->places = mt_calloc(KNOWN_PLACES, sizeof *s->places);
    if (!rc && !(s->known && s->places)) rc = mt_no_memory(err, "searching for a plan");
    if (!rc) rc = find_best(s, err);
    if (!rc) rc = make_plan(s, out, err);
    mt_free(s->places);
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
        if (rc && rc != MT_ENOMEM) {
            mt_plan_free(*out);
            *out = NULL;
            *err = why;
            return rc;
        }
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

mt_rc mt_plan_generation(mt_plan **out, const mt_model *model, const mt_generation *g, const mt_machine *machine, mt_err *err)
{
    enum { PASS_TOKENS = 512 };
    const int64_t rows = g->pass_tokens ? g->pass_tokens : PASS_TOKENS;
    *out = NULL;
    if (g->n_prompts < 1 || g->longest < 1 || rows < 1)
        return mt_fail(err, MT_EINVAL, "generation for %lld prompts of %lld tokens", (long long)g->n_prompts,
                       (long long)g->longest);
    for (int64_t slots = mt_min_i64(g->n_prompts, rows);; slots /= 2) {
        const mt_job job = { .step_tokens = rows,
                             .step_docs = slots,
                             .longest = g->longest,
                             .prompt = g->prompt,
                             .mapped = g->mapped && g->compute == MT_DTYPE_BF16,
                             .cache_slots = slots };
        const mt_arithmetic a = {
            .compute = g->compute, .grad = g->compute, .micro_tokens = rows, .mlp_rows = rows, .head_rows = slots
        };
        mt_rc rc = mt_plan_search(out, (mt_plan_inputs){ model, &job, &a, machine }, err);
        if (rc != MT_ENOMEM || slots == 1) return rc;
    }
}
