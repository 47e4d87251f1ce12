#include "plan/advise.h"

#include "base/mem.h"
#include "base/units.h"
#include "plan/step_time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void mt_question_set_lanes(mt_question *q, int lanes)
{
    if (!q->form.shares) q->form.shares = lanes;
    const int most = q->machines > 1 ? mt_arithmetic_shares(&q->form) : mt_arithmetic_parts(&q->form);
    q->lanes = lanes < most ? lanes : most;
}

mt_job mt_question_job(const mt_question *q, int64_t batch)
{
    return (mt_job){ .train = true,
                     .clip = q->clip,
                     .lanes = q->lanes,
                     .machines = q->machines,
                     .machine = q->rank,
                     .step_tokens = batch * q->seq_len,
                     .step_docs = batch,
                     .longest = q->seq_len };
}

static mt_plan_inputs inputs(const mt_question *q, const mt_job *job)
{
    return (mt_plan_inputs){ q->model, job, &q->form, &q->machine };
}

static bool advise_fits(const mt_question *q, int64_t batch)
{
    const mt_job job = mt_question_job(q, batch);
    return mt_plan_auto_fits(inputs(q, &job));
}

/* -- batch sizes ----------------------------------------------------------------------------------- */

/* The largest batch that fits, by bisection: more samples never need less. */
int64_t mt_advise_largest(const mt_question *q)
{
    int64_t most = mt_max_i64(MT_MOST_TOKENS / q->seq_len, 1), lo = 0, hi = most + 1;
    if (advise_fits(q, most)) return most;
    while (hi - lo > 1 && hi - lo > lo / 64) { /* to the last one, or two percent */
        int64_t mid = lo ? lo + (hi - lo) / 2 : (int64_t)ceil(sqrt((double)hi));
        if (mid >= hi) mid = hi - 1;
        *(advise_fits(q, mid) ? &lo : &hi) = mid;
    }
    return lo;
}

mt_rc mt_advise_need(mt_need *out, const mt_question *q, mt_err *err)
{
    const mt_job job = mt_question_job(q, q->batch);
    mt_arithmetic a = mt_plan_smallest(inputs(q, &job));
    return mt_plan_need(out, (mt_plan_inputs){ q->model, &job, &a, &q->machine }, err);
}

/* Tokens a second of a batch that fits: about, and by its plan. */
static mt_rc quick_speed(const mt_question *q, int64_t batch, int64_t *hint, double *tokens_s, mt_err *err)
{
    const mt_job job = mt_question_job(q, batch);
    double seconds;
    MT_TRY(mt_plan_quick(&seconds, inputs(q, &job), hint, err));
    *tokens_s = (double)job.step_tokens / seconds;
    return MT_OK;
}

static mt_rc plan_speed(const mt_question *q, int64_t batch, double *tokens_s, mt_err *err)
{
    const mt_job job = mt_question_job(q, batch);
    mt_plan *plan;
    MT_TRY(mt_plan_auto(&plan, inputs(q, &job), err));
    *tokens_s = (double)job.step_tokens / plan->predicted_seconds;
    mt_plan_free(plan);
    return MT_OK;
}

/* Host memory of the state if all of it has its home there. */
static mt_rc state_bytes(const mt_question *q, size_t *out, mt_err *err)
{
    mt_question all = *q;
    mt_need need;
    all.batch = 1;
    all.machine.device_bytes = SIZE_MAX;
    all.machine.home_host = true;
    MT_TRY(mt_advise_need(&need, &all, err));
    *out = need.host;
    return MT_OK;
}

/* Leaves a fifth of device memory free, and a fifth of the host memory that the state leaves. */
static mt_rc safe_batch(const mt_question *q, int64_t *out, mt_err *err)
{
    mt_question spare = *q;
    size_t state;
    MT_TRY(state_bytes(q, &state, err));
    spare.machine.device_bytes -= q->machine.device_bytes / 5;
    if (state < q->machine.host_bytes) spare.machine.host_bytes -= (q->machine.host_bytes - state) / 5;
    *out = mt_advise_largest(&spare);
    return MT_OK;
}

#define FAR_OFF 0.85         /* if it is this much slower, half as many samples will not be faster */
enum { FEWEST_SAMPLES = 8 }; /* samples of a recommended step: with fewer, the gradient is mostly noise */

/* Starts at 262,144 tokens a step, beyond which hardly anything gets faster, and goes down while little is lost. */
static mt_rc recommend(mt_batch_advice *out, const mt_question *q, mt_err *err)
{
    const int64_t fewest = mt_min_i64(FEWEST_SAMPLES, out->largest);
    double best = 0, speed;
    int64_t hint = 0;
    for (int64_t tokens = 1 << 18, last = 0; out->largest && tokens >= 1024; tokens /= 2) {
        int64_t batch = mt_min_i64(mt_max_i64(tokens / q->seq_len, fewest), out->largest);
        if (batch == last) continue;
        last = batch;
        MT_TRY(quick_speed(q, batch, &hint, &speed, err));
        best = fmax(best, speed);
        if (speed < FAR_OFF * best) break;
        if (speed < 0.97 * best) continue; /* a batch that fits in a single sweep can be faster than a larger one in several */
        out->recommended = batch;
        out->tokens_s = speed;
    }
    return MT_OK;
}

mt_rc mt_advise_batch(mt_batch_advice *out, const mt_question *q, mt_err *err)
{
    *out = (mt_batch_advice){ .largest = mt_advise_largest(q) };
    MT_TRY(recommend(out, q, err));
    return out->recommended ? safe_batch(q, &out->safe, err) : MT_OK;
}

/* -- updates that are not hidden ------------------------------------------------------------------- */

#define HIDDEN 0.05 /* fraction of a step: a shorter wait is not worth reporting */

/* Seconds the plan's step would save if host updates took no time.  Pieces count as host updates, copies leave host memory to
 * Adam only while Adam runs, and kept activations get one more slot: with two, they leave no faster than layers are updated. */
static mt_rc update_wait(const mt_plan *plan, const mt_machine *machine, double *out, mt_err *err)
{
    mt_machine fast = *machine;
    mt_placement place = plan->place;
    mt_step_model timing;
    mt_times times;
    mt_plan *other = NULL;
    bool simulated;
    size_t n = (size_t)plan->model->n_units;
    fast.host_bandwidth = 1e18;
    for (int form = 0; form < MT_MOMENTS_FORMS; form++) fast.adam_host[form] = 1e15;
    place.units = mt_calloc(n, sizeof *place.units);
    if (!place.units) return mt_no_memory(err, "a plan");
    memcpy(place.units, plan->place.units, n * sizeof *place.units);
    for (size_t u = 0; u < n; u++) place.units[u].in_pieces = 0;
    if (place.keep_slots) place.keep_slots++;
    mt_rc rc = mt_plan_create(&other, plan->model, &plan->job, &plan->arithmetic, &place, err);
    if (!rc) rc = mt_step_model_init(&timing, plan->model, err);
    if (!rc) {
        rc = mt_step_time(&timing, other, &fast, INFINITY, &times, &simulated, err);
        mt_step_model_free(&timing);
    }
    if (!rc) *out = fmax(plan->predicted_seconds - times.step, 0);
    mt_plan_free(other);
    mt_free(place.units);
    return rc;
}

/* The question with this batch or these moments: tokens/s, and the fraction of a step that waits for updates. */
static mt_rc waits_of(const mt_question *q, int64_t batch, double *tokens_s, double *share, mt_err *err)
{
    const mt_job job = mt_question_job(q, batch);
    mt_plan *plan;
    double wait = 0;
    MT_TRY(mt_plan_auto(&plan, inputs(q, &job), err));
    mt_rc rc = update_wait(plan, &q->machine, &wait, err);
    *tokens_s = (double)job.step_tokens / plan->predicted_seconds;
    *share = wait / plan->predicted_seconds;
    mt_plan_free(plan);
    return rc;
}

static mt_rc try_hidden(mt_update_advice *out, const mt_question *q, int64_t batch, bool *is_hidden, mt_err *err)
{
    double share, tokens_s;
    MT_TRY(waits_of(q, batch, &tokens_s, &share, err));
    *is_hidden = share < HIDDEN;
    if (batch > out->tried) out->tried = batch;
    if (!*is_hidden) return MT_OK;
    out->batch = batch;
    out->batch_tokens_s = tokens_s;
    return MT_OK;
}

/* Tries twice, four times, ... as many samples until next to nothing waits, or at most three quarters of the wait is left. */
static mt_rc find_hidden(mt_update_advice *out, const mt_question *q, mt_err *err)
{
    bool is_hidden = false;
    for (int64_t batch = 2 * q->batch; !is_hidden && batch <= 16 * q->batch && batch * q->seq_len <= MT_MOST_TOKENS; batch *= 2) {
        if (!advise_fits(q, batch)) return MT_OK;
        MT_TRY(try_hidden(out, q, batch, &is_hidden, err));
    }
    return is_hidden && out->batch % 4 == 0 ? try_hidden(out, q, out->batch / 4 * 3, &is_hidden, err) : MT_OK;
}

static mt_rc find_form(mt_update_advice *out, const mt_question *q, double tokens_s, mt_err *err)
{
    mt_question with = *q;
    double now, share;
    out->form_tokens_s = tokens_s * (1 + HIDDEN);
    for (with.form.moments++; with.form.moments < MT_MOMENTS_FORMS; with.form.moments++) {
        MT_TRY(waits_of(&with, q->batch, &now, &share, err));
        if (now <= out->form_tokens_s) continue;
        out->form = with.form.moments;
        out->form_tokens_s = now;
    }
    return MT_OK;
}

mt_rc mt_advise_updates(mt_update_advice *out, const mt_question *q, const mt_plan *plan, mt_err *err)
{
    *out = (mt_update_advice){ .form = q->form.moments };
    MT_TRY(update_wait(plan, &q->machine, &out->wait, err));
    if (out->wait < HIDDEN * plan->predicted_seconds) {
        out->wait = 0;
        return MT_OK;
    }
    MT_TRY(find_hidden(out, q, err));
    return find_form(out, q, (double)plan->job.step_tokens / plan->predicted_seconds, err);
}

/* -- remedies -------------------------------------------------------------------------------------- */

typedef struct changes {
    mt_question q;
    mt_remedy *out;
    int n;
} changes;

/* Samples per step after the change. */
static mt_rc batch_of(const mt_question *q, int64_t *out, mt_err *err)
{
    mt_batch_advice b;
    *out = q->batch;
    if (!q->auto_batch) return MT_OK;
    MT_TRY(mt_advise_batch(&b, q, err));
    *out = mt_advise_auto(&b, mt_max_i64(q->accumulation, 1));
    return MT_OK;
}

/* Records a changed question as a remedy if it fits. */
static mt_rc try(changes *c, const mt_question *changed, const char *change, const char *cost, mt_err *err)
{
    if (c->n == MT_REMEDIES || !advise_fits(changed, changed->batch)) return MT_OK;
    mt_remedy *r = &c->out[c->n++];
    snprintf(r->change, sizeof r->change, "%s", change);
    snprintf(r->cost, sizeof r->cost, "%s", cost);
    MT_TRY(batch_of(changed, &r->batch, err));
    return plan_speed(changed, r->batch, &r->tokens_s, err);
}

/* Fewer samples per step: the recommended number, in whole batches if gradient accumulation joins several. */
static mt_rc try_batch(changes *c, const mt_batch_advice *b, mt_err *err)
{
    mt_question q = c->q;
    int64_t parts = mt_max_i64(q.accumulation, 1);
    char change[96];
    if (!b || b->recommended >= q.batch || !b->recommended) return MT_OK;
    q.auto_batch = false;
    if (b->recommended < parts) {
        q.batch = b->recommended;
        snprintf(change, sizeof change, "batch_size: 1, gradient_accumulation_steps: %lld", (long long)q.batch);
    } else {
        q.batch = b->recommended / parts * parts;
        snprintf(change, sizeof change, "batch_size: %lld", (long long)(q.batch / parts));
    }
    return try(c, &q, change, "fewer samples per step: noisier gradients", err);
}

/* Host bytes per trained parameter, without masters. */
static size_t bytes_each(const mt_question *q)
{
    return 2 * mt_moments_bytes(q->form.moments, MT_MOMENT_BLOCK) / MT_MOMENT_BLOCK +
           (q->clip ? mt_dtype_bytes(q->form.grad) : 0);
}

typedef struct cost {
    char s[152];
} cost;

/* Cost of turning clipping off and of smaller moments, for those that were changed; "" for none. */
static cost cost_of_less(const mt_question *was, const mt_question *now)
{
    static const char *const forms[] = { [MT_MOMENTS_F32] = "",
                                         [MT_MOMENTS_BF16] = "m and v are rounded to 8 bits of mantissa, stochastically",
                                         [MT_MOMENTS_8BIT] = "m and v keep 3 bits of mantissa, rounded stochastically" };
    cost c = { "" };
    bool clip = was->clip && !now->clip, moments = now->form.moments != was->form.moments;
    if (clip || moments)
        snprintf(c.s, sizeof c.s, "%s%s%s: saves %zu bytes a parameter",
                 clip ? "no clipping, and a non-finite step stops the run" : "", clip && moments ? "; " : "",
                 moments ? forms[now->form.moments] : "", bytes_each(was) - bytes_each(now));
    return c;
}

static void set_device(mt_question *q, size_t bytes)
{
    q->machine.device_bytes = bytes;
    q->form.attention.workspace = mt_attention_workspace(&q->form.attention, bytes);
}

/* Without the settings' memory limits: on the host, on the device, or both. */
static mt_question lifted(const mt_question *asked, bool host, bool device)
{
    mt_question q = *asked;
    if (host) q.machine.host_bytes = q.host_there;
    if (device) set_device(&q, q.device_there);
    return q;
}

static const char *limits_text(bool host, bool device)
{
    if (host && device) return "host_memory: auto, device_memory: auto";
    if (host) return "host_memory: auto";
    return device ? "device_memory: auto" : "";
}

static mt_rc try_limits(changes *c, mt_err *err)
{
    const bool host = c->q.host_there, device = c->q.device_there;
    const int before = c->n;
    for (int i = 1; i <= 3 && c->n == before; i++) { /* one of the two, then both if one is not enough */
        bool with_host = i & 1, with_device = i & 2;
        if (with_host > host || with_device > device) continue;
        mt_question q = lifted(&c->q, with_host, with_device);
        MT_TRY(try(c, &q, limits_text(with_host, with_device), "the run may use all free memory; no other cost", err));
    }
    return MT_OK;
}

static mt_rc try_settings(changes *c, mt_err *err)
{
    mt_question q = c->q;
    if (q.form.grad == MT_DTYPE_F32) {
        q.form.grad = MT_DTYPE_BF16;
        MT_TRY(try(c, &q, "grad_dtype: bfloat16", "finished gradients are rounded to 8 bits of mantissa, which is the default",
                   err));
        q = c->q;
    }
    if (q.machine.home_host) {
        q.machine.home_host = false;
        MT_TRY(try(c, &q, "home: auto", "part of the state has its home on the GPU; no other cost", err));
        q = c->q;
    }
    if (q.machine.limits.exact || q.machine.limits.offload == MT_MUST_NOT) {
        q.machine.limits.exact = false;
        q.machine.limits.offload = MT_MAY;
        MT_TRY(
            try(c, &q, "strict_checkpointing: false, offload_inputs: auto", "the plan chooses what to keep; no other cost", err));
        q = c->q;
    }
    if (q.clip) {
        q.clip = false;
        MT_TRY(try(c, &q, "max_grad_norm: 0", cost_of_less(&c->q, &q).s, err));
    }
    return MT_OK;
}

/* Adam's moments in a smaller form; also without clipping, if nothing else was found. */
static mt_rc try_moments(changes *c, mt_err *err)
{
    char change[96];
    for (mt_moments form = c->q.form.moments + 1; form < MT_MOMENTS_FORMS; form++) {
        mt_question q = c->q;
        q.form.moments = form;
        snprintf(change, sizeof change, "adam_state: %s", mt_moments_name(form));
        MT_TRY(try(c, &q, change, cost_of_less(&c->q, &q).s, err));
        q.clip = false;
        snprintf(change, sizeof change, "max_grad_norm: 0, adam_state: %s", mt_moments_name(form));
        if (c->q.clip && !c->n) MT_TRY(try(c, &q, change, cost_of_less(&c->q, &q).s, err));
    }
    return MT_OK;
}

/* The same number of shorter samples, shortened until they fit. */
static mt_rc try_shorter(changes *c, mt_err *err)
{
    mt_question q = c->q;
    char change[96];
    for (q.seq_len /= 2; q.seq_len >= 128; q.seq_len /= 2) {
        if (q.seq_len > q.model->config->max_positions || !advise_fits(&q, q.batch)) continue; /* train refuses longer ones */
        snprintf(change, sizeof change, "max_seq_len: %lld", (long long)q.seq_len);
        return try(c, &q, change, "longer samples are cut", err);
    }
    return MT_OK;
}

#define GIB ((size_t)1 << 30)

/* Whole gibibytes, and a little more than needed: a run does not use all memory that is free. */
static size_t enough(size_t bytes) { return (bytes + bytes / 50 + GIB - 1) / GIB * GIB; }

/* A machine that it fits, no smaller than the present one; false: there is none. */
static mt_rc enlarge(mt_question *q, bool *found, mt_err *err)
{
    mt_need need;
    MT_TRY(mt_advise_need(&need, q, err));
    if (need.device > q->machine.device_bytes) { /* the driver's share is part of a card's memory */
        set_device(q, enough(need.device + q->machine.base_device) - q->machine.base_device);
        MT_TRY(mt_advise_need(&need, q, err));
    }
    *found = need.host < SIZE_MAX;
    if (*found && need.host > q->machine.host_bytes) q->machine.host_bytes = enough(need.host);
    return MT_OK;
}

/* That machine instead of the present one, with `settings` changed ("" for none). */
static mt_rc try_machine(changes *c, const mt_question *q, const mt_machine *there, const char *settings, mt_err *err)
{
    char change[sizeof c->out->change], price[sizeof c->out->cost], gpu[40] = "", ram[40] = "";
    const cost less = cost_of_less(&c->q, q);
    bool card = q->machine.device_bytes > there->device_bytes, more = q->machine.host_bytes > there->host_bytes;
    if (card)
        snprintf(gpu, sizeof gpu, "a GPU with %zu GiB%s", (q->machine.device_bytes + q->machine.base_device) / GIB,
                 more ? " and " : " free");
    if (more) snprintf(ram, sizeof ram, "%zu GiB of RAM free", q->machine.host_bytes / GIB);
    /* Adds nothing if the settings' limits were the only obstacle. */
    const char *buy = card ? "another card" : "";
    if (more) buy = "more memory, or another machine";
    snprintf(change, sizeof change, "%s%s%s%s", settings, *settings && *buy ? ", " : "", gpu, ram);
    snprintf(price, sizeof price, "%s%s%s", buy, *buy && *less.s ? "; " : "", less.s);
    return try(c, q, change, price, err);
}

/* What to buy for the question as it is.  Before that, if no setting alone is enough but settings reduce the need, what to buy
 * together with the smallest ones.  In both cases the memory limits of the settings are lifted first. */
static mt_rc try_memories(changes *c, mt_err *err)
{
    const bool host = c->q.host_there, device = c->q.device_there;
    const mt_question there = lifted(&c->q, host, device);
    mt_question plain = there, least = there;
    const char *limits = limits_text(host, device);
    bool found;
    char settings[96];
    if ((host || device) && advise_fits(&there, there.batch)) return MT_OK; /* already listed */
    least.clip = false;
    least.form.moments = MT_MOMENTS_8BIT;
    MT_TRY(enlarge(&plain, &found, err));
    if (!found) return MT_OK;
    MT_TRY(enlarge(&least, &found, err));
    bool less = least.machine.device_bytes < plain.machine.device_bytes || least.machine.host_bytes < plain.machine.host_bytes;
    snprintf(settings, sizeof settings, "%s%s%s%s%s", limits, *limits && less ? ", " : "", c->q.clip ? "max_grad_norm: 0" : "",
             c->q.clip && c->q.form.moments != MT_MOMENTS_8BIT ? ", " : "",
             c->q.form.moments != MT_MOMENTS_8BIT ? "adam_state: 8bit" : "");
    if (!c->n && found && less) MT_TRY(try_machine(c, &least, &there.machine, settings, err));
    return try_machine(c, &plain, &there.machine, limits, err);
}

mt_rc mt_advise_remedies(mt_remedy out[MT_REMEDIES], int *n, const mt_question *q, const mt_batch_advice *batch, mt_err *err)
{
    changes c = { .q = *q, .out = out };
    MT_TRY(try_limits(&c, err));
    MT_TRY(try_batch(&c, batch, err));
    MT_TRY(try_settings(&c, err));
    MT_TRY(try_moments(&c, err));
    MT_TRY(try_shorter(&c, err));
    MT_TRY(try_memories(&c, err));
    *n = c.n;
    return MT_OK;
}

/* -- batch_size: auto ------------------------------------------------------------------------------ */

int64_t mt_advise_auto(const mt_batch_advice *a, int64_t accumulation)
{
    return mt_max_i64(a->recommended / accumulation, 1) * accumulation;
}
