/* choose.c - the fastest placement that fits, by trying them all.
 *
 * There are a few hundred candidates (what lives on the device, what stays there, what is kept, how many sweeps); a plan is made of
 * each, those that fit are timed by a model of the step, and the fastest wins.  Ties go to the earlier candidate, which moves less.
 * The model: compute, copies in and copies out overlap, and the slowest of them is the step; Adam on the host hides behind the
 * first sweep's forward, and what does not fit there is waited for. */
#include "base/mem.h"
#include "base/units.h"
#include "plan/flops.h"
#include "plan/plan.h"

#include <math.h>

typedef struct candidate {
    int device_layers; /* layers (from the last) whose masters and state live on the device; ends too when it is all of them */
    bool resident;
    mt_keep keep;
    mt_place kept;
    int segment; /* layers redone from one kept input */
    int sweeps;
    mt_place accumulators;
    int staged_layers; /* layers (from the first, which are needed first) that are updated on the device in memory they borrow */
} candidate;

static int at_most(int n, int bound) { return bound && bound < n ? bound : n; }

static void fill(mt_placement *p, const mt_model *m, const mt_job *j, const mt_arithmetic *a, const mt_limits *limits, const candidate *c)
{
    int L = (int)m->config->L;
    bool all = c->device_layers > L;
    p->sweep_tokens = mt_max_i64((j->step_tokens + c->sweeps - 1) / c->sweeps, a->micro_tokens);
    p->ring_slots = at_most(c->segment + 1, MT_MAX_SEGMENT); /* a segment's weights are lent together */
    p->accumulators = c->accumulators;
    p->keep_slots = c->kept == MT_HOST ? 2 : 0;
    p->grad_slots = all ? 0 : 2;
    p->n_slabs = j->clip || all ? 0 : at_most(4, limits->n_slabs);
    for (int u = 0; u < m->n_units; u++) {
        bool on_device = all || (m->units[u].kind == MT_UNIT_LAYER && m->units[u].layer >= L - c->device_layers);
        p->units[u] = (mt_unit_place){ .resident = on_device || c->resident, .home = on_device ? MT_DEVICE : MT_HOST,
                                       .site = on_device ? MT_SITE_DEVICE : MT_SITE_HOST };
    }
    for (int l = 0; l < L; l++) p->layers[l] = (mt_layer_place){ l % c->segment ? MT_KEEP_NOTHING : c->keep, c->kept };
    const mt_plan trial = { .model = m, .job = *j, .arithmetic = *a, .place = *p };
    for (int l = 0; l < c->staged_layers && !j->only_gradients; l++) {
        mt_unit_place *at = &p->units[mt_layer_unit(l)];
        if (at->home == MT_HOST && m->units[mt_layer_unit(l)].layout->n_train && mt_plan_can_borrow(&trial, mt_layer_unit(l)))
            at->site = MT_SITE_STAGED, at->borrows = true;
    }
}

/* Smallest slots for everything: what is left when nothing else fits. */
static void squeeze(mt_placement *p, const mt_job *j, const candidate *c)
{
    p->ring_slots = c->segment;
    p->grad_slots = 1;
    p->n_slabs = j->clip ? 0 : 1;
}

/* -- how long a step takes ------------------------------------------------------------------------- */

/* Share of a layer's forward products that backward must redo; of a segment only the last does without its output. */
static double redo_share(const mt_config *c, mt_keep keep, int segment)
{
    double qkv = (double)(c->D * (c->H + 2 * c->K) * c->Dh), o = (double)(c->H * c->Dh * c->D), gate_up = (double)(c->D * mt_config_gu(c));
    double all = qkv + o + gate_up + (double)(c->D * c->F);
    double one = keep == MT_KEEP_ALL ? 0 : keep == MT_KEEP_ATTENTION ? (o + gate_up) / all : (qkv + o + gate_up) / all;
    return (one + segment - 1) / segment;
}

/* Seconds of a step. */
static double estimate(const mt_plan *p, const candidate *c, const mt_machine *machine)
{
    const mt_model *m = p->model;
    const mt_config *cfg = m->config;
    double tokens = (double)p->job.step_tokens, streamed = 0, updated = 0, staged = 0;
    double sweeps = ceil(tokens / (double)p->place.sweep_tokens);
    for (int u = 0; u < m->n_units; u++) {
        const mt_unit_place *at = &p->place.units[u];
        double hi = (double)m->units[u].layout->n_elems * 2, uses = m->units[u].kind == MT_UNIT_LAYER ? 2 : 1;
        bool in_place = at->site == MT_SITE_STAGED && at->resident && p->arithmetic.compute == MT_DTYPE_BF16;
        if (at->home == MT_HOST && !in_place) streamed += at->resident ? hi : hi * uses * sweeps;
        if (at->site == MT_SITE_HOST) updated += (double)m->units[u].layout->n_train;
        if (at->site == MT_SITE_STAGED) staged += (double)m->units[u].layout->n_train;
    }
    double flops = 6.0 * (double)mt_flops_weights(cfg) * tokens;
    double compute = flops * (1 + redo_share(cfg, c->keep, c->segment) / 3) / machine->flops;
    double kept = c->kept == MT_HOST ? tokens * (double)cfg->L * (double)mt_keep_row_bytes(cfg, p->arithmetic.compute, c->keep) / c->segment : 0;
    double acc = sweeps > 1 && c->accumulators == MT_HOST ? (sweeps - 1) * (double)m->n_trained * 4 : 0;
    double stage_in = staged * 10 / machine->copy_in, write_back = staged * 12 / machine->copy_out;
    double in = (streamed + kept + acc) / machine->copy_in + stage_in;
    double out = (updated * (double)mt_dtype_bytes(p->arithmetic.grad) + kept + acc) / machine->copy_out + write_back;
    double step = fmax(compute, fmax(in, out));
    /* Staging hides behind the last backward, write-backs behind the first forward, which needs the memory again. */
    double forward = compute / 3 / sweeps, backward = compute / sweeps - forward;
    double wait_staged = fmax(0, stage_in - backward) + fmax(0, write_back - forward), wait_host = fmax(0, updated / machine->adam_host - forward);
    return step + fmax(wait_staged, wait_host);
}

/* -- the search ------------------------------------------------------------------------------------ */

typedef struct search {
    const mt_model *model;
    const mt_job *job;
    const mt_arithmetic *a;
    const mt_machine *machine;
    const mt_limits *limits;
    mt_plan *best;
    double best_seconds;
    size_t least_device; /* of any candidate, for the message when nothing fits */
    size_t least_host;
} search;

static mt_rc consider(search *s, const candidate *c, bool squeezed, mt_err *err)
{
    mt_placement p;
    mt_plan *plan;
    MT_TRY(mt_placement_init(&p, s->model, err));
    fill(&p, s->model, s->job, s->a, s->limits, c);
    if (squeezed) squeeze(&p, s->job, c);
    mt_rc rc = mt_plan_create(&plan, s->model, s->job, s->a, &p, err);
    mt_placement_free(&p);
    if (rc) return rc;
    if (plan->device_bytes < s->least_device) s->least_device = plan->device_bytes;
    bool fits = plan->device_bytes <= s->machine->device_bytes && plan->host_bytes <= s->machine->host_bytes;
    if (plan->device_bytes <= s->machine->device_bytes && plan->host_bytes < s->least_host) s->least_host = plan->host_bytes;
    double seconds = fits ? estimate(plan, c, s->machine) : INFINITY;
    if (seconds < s->best_seconds) {
        mt_plan_free(s->best);
        s->best = plan;
        s->best_seconds = seconds;
    } else
        mt_plan_free(plan);
    return MT_OK;
}

/* How many layers are updated through the device; the host's workers take the others. */
static mt_rc consider_staging(search *s, candidate c, mt_err *err)
{
    int L = (int)s->model->config->L;
    for (int quarter = 1; quarter <= 4; quarter++) {
        c.staged_layers = L * quarter / 4;
        MT_TRY(consider(s, &c, false, err));
    }
    return MT_OK;
}

/* Sweeps and where gradients wait between them. */
static mt_rc consider_sweeps(search *s, candidate c, mt_err *err)
{
    int64_t most = (s->job->step_tokens + s->a->micro_tokens - 1) / s->a->micro_tokens;
    for (c.sweeps = 1; c.sweeps <= most; c.sweeps = c.sweeps < 8 ? c.sweeps + 1 : c.sweeps * 2)
        for (int acc = 0; acc < (c.sweeps > 1 && s->job->train ? 2 : 1); acc++) {
            c.accumulators = acc ? MT_HOST : MT_DEVICE;
            c.staged_layers = 0;
            MT_TRY(consider(s, &c, false, err));
            if (c.sweeps > 1 && !acc && c.resident && c.kept == MT_DEVICE) MT_TRY(consider_staging(s, c, err));
        }
    return MT_OK;
}

static mt_rc consider_keeps(search *s, candidate c, mt_err *err)
{
    static const struct {
        mt_keep keep;
        mt_place place;
    } kept[] = { { MT_KEEP_ALL, MT_DEVICE }, { MT_KEEP_ATTENTION, MT_DEVICE }, { MT_KEEP_INPUT, MT_DEVICE }, { MT_KEEP_INPUT, MT_HOST } };
    for (size_t i = 0; i < (s->job->train ? MT_COUNT(kept) : 1); i++) {
        c.keep = kept[i].keep;
        c.kept = kept[i].place;
        for (int n = mt_limits_next_segment(s->limits, s->model, 0); n; n = mt_limits_next_segment(s->limits, s->model, n)) {
            c.segment = n;
            if (mt_limits_allow(s->limits, s->model, n, c.keep, c.kept)) MT_TRY(consider_sweeps(s, c, err));
        }
    }
    return MT_OK;
}

static mt_rc consider_all(search *s, mt_err *err)
{
    int L = (int)s->model->config->L;
    const int shares[] = { L + 1, 0, L / 8, L / 4, L / 2, 3 * L / 4, L };
    for (size_t i = 0; i < MT_COUNT(shares); i++) {
        if (shares[i] && s->machine->home_host) continue;
        for (int resident = 1; resident >= 0; resident--) MT_TRY(consider_keeps(s, (candidate){ .device_layers = shares[i], .resident = resident }, err));
    }
    if (s->best) return MT_OK;
    int64_t most = (s->job->step_tokens + s->a->micro_tokens - 1) / s->a->micro_tokens;
    bool on_host = s->job->train && s->limits->offload != MT_MUST_NOT;
    const candidate last = { .keep = MT_KEEP_INPUT, .kept = on_host ? MT_HOST : MT_DEVICE, .sweeps = (int)most, .accumulators = MT_HOST,
                             .segment = mt_limits_next_segment(s->limits, s->model, 0) };
    return consider(s, &last, true, err);
}

static mt_rc nothing_fits(const search *s, mt_err *err)
{
    if (s->least_device > s->machine->device_bytes)
        return mt_fail(err, MT_ENOMEM,
                       "this run needs at least %s of device memory and may use %s; the largest parts grow with the micro-batch (%lld rows): "
                       "lower max_seq_len%s, or allow more with --device-memory",
                       mt_bytes_text(s->least_device).s, mt_bytes_text(s->machine->device_bytes).s, (long long)s->a->micro_tokens,
                       s->limits->exact ? ", let strict_checkpointing go" : "");
    return mt_fail(err, MT_ENOMEM, "this run needs at least %s of host memory and %s is free (%d bytes a parameter, %s of them); use a smaller model, or "
                                   "set max_grad_norm: 0, which saves 2 bytes a parameter",
                   mt_bytes_text(s->least_host).s, mt_bytes_text(s->machine->host_bytes).s, s->job->clip ? 14 : 12,
                   mt_count_text((uint64_t)s->model->n_params).s);
}

mt_rc mt_plan_search(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, const mt_machine *machine, mt_err *err)
{
    const mt_limits none = { 0 }; /* where nothing is kept there is nothing to limit */
    search s = { .model = model, .job = job, .a = a, .machine = machine, .limits = job->train ? &machine->limits : &none, .best_seconds = INFINITY, .least_device = SIZE_MAX, .least_host = SIZE_MAX };
    *out = NULL;
    MT_TRY(mt_limits_check(s.limits, model, err));
    mt_rc rc = consider_all(&s, err);
    if (!rc && !s.best) rc = nothing_fits(&s, err);
    if (rc) {
        mt_plan_free(s.best);
        return rc;
    }
    s.best->predicted_seconds = s.best_seconds;
    *out = s.best;
    return MT_OK;
}

mt_rc mt_plan_choose(mt_plan **out, const mt_model *model, const mt_job *job, const mt_arithmetic *a, size_t device_bytes, mt_err *err)
{
    mt_machine machine = mt_machine_typical();
    machine.device_bytes = device_bytes ? device_bytes : SIZE_MAX;
    return mt_plan_search(out, model, job, a, &machine, err);
}
