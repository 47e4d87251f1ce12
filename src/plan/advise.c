/* advise.c - batch sizes, and updates that the step waits for.  remedies.c has the changes that make a run fit. */
#include "plan/advise.h"

#include "base/mem.h"
#include "plan/step_time.h"

#include <math.h>
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

bool mt_advise_fits(const mt_question *q, int64_t batch)
{
    const mt_job job = mt_question_job(q, batch);
    return mt_plan_auto_fits(inputs(q, &job));
}

/* -- batch sizes ----------------------------------------------------------------------------------- */

/* The largest batch that fits, by bisection: more samples never need less. */
int64_t mt_advise_largest(const mt_question *q)
{
    int64_t most = mt_max_i64(MT_MOST_TOKENS / q->seq_len, 1), lo = 0, hi = most + 1;
    if (mt_advise_fits(q, most)) return most;
    while (hi - lo > 1 && hi - lo > lo / 64) { /* to the last one, or two percent */
        int64_t mid = lo ? lo + (hi - lo) / 2 : (int64_t)ceil(sqrt((double)hi));
        if (mid >= hi) mid = hi - 1;
        if (mt_advise_fits(q, mid))
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

mt_rc mt_advise_need(mt_need *out, const mt_question *q, mt_err *err)
{
    const mt_job job = mt_question_job(q, q->batch);
    mt_arithmetic a = mt_plan_smallest(inputs(q, &job));
    return mt_plan_need(out, (mt_plan_inputs){ q->model, &job, &a, &q->machine }, err);
}

/* Approximate tokens a second of a batch that fits. */
static mt_rc quick_speed(const mt_question *q, int64_t batch, int64_t *hint, double *tokens_s, mt_err *err)
{
    const mt_job job = mt_question_job(q, batch);
    double seconds;
    MT_TRY(mt_plan_quick(&seconds, inputs(q, &job), hint, err));
    *tokens_s = (double)job.step_tokens / seconds;
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

int64_t mt_advise_auto(const mt_batch_advice *a, int64_t accumulation)
{
    return mt_max_i64(a->recommended / accumulation, 1) * accumulation;
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
        if (!mt_advise_fits(q, batch)) return MT_OK;
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
