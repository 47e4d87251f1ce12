/* step.c - a training step, forward-only passes, and the verdict on a step's loss and norm. */
#include "base/clock.h"
#include "device/trace.h"
#include "engine/internal.h"
#include "optim/clip.h"
#include "schedule/deal.h"

#include <math.h>

/* The current step. */
typedef struct step {
    mt_engine *e;
    const mt_batch *batch;
    const mt_hyper *hyper; /* NULL: nothing is updated */
    mt_step_result *result;
    bool train, updates_early;
    int64_t judged_ns; /* time at which loss and norm were known */
} step;

/* -- the verdict ----------------------------------------------------------------------------------- */

/* Without clipping, a non-finite loss must be known before anything is updated from it (U5). */
static mt_rc check_loss(double loss, mt_err *err)
{
    if (isfinite(loss)) return MT_OK;
    return mt_fail(
        err, MT_ENUMERIC,
        "the loss is not finite (%g) and clipping is off, so the step cannot be skipped.  Resume from the last checkpoint "
        "with a lower learning rate, or set max_grad_norm",
        loss);
}

/* The same for each unit's gradient, which its update has checked. */
static mt_rc check_norms(const mt_model *m, const double *norms, mt_err *err)
{
    char name[MT_NAME_BYTES];
    for (int u = 0; u < m->n_units; u++)
        if (m->units[u].layout->n_train && !isfinite(norms[u])) {
            mt_unit_name(m, u, name);
            return mt_fail(err, MT_ENUMERIC,
                           "the gradient of the %s is not finite; nothing of it was applied.  Resume from the last checkpoint",
                           name);
        }
    return MT_OK;
}

/* Over units in order, in double (A3). */
static double sum_of_squares(const mt_model *m, const double *norms)
{
    double sum = 0;
    for (int u = 0; u < m->n_units; u++)
        if (m->units[u].layout->n_train) sum += norms[u];
    return sum;
}

/* Clip, or skip a step that is not finite (U4). */
static bool clip_step(step *s, double squares)
{
    mt_clip clip = mt_clip_of(squares, s->hyper->max_grad_norm);
    s->result->clip_scale = clip.scale;
    s->result->skipped = !isfinite(s->result->loss) || !clip.finite;
    if (!s->result->skipped) mt_state_begin_update(s->e->state, s->hyper, clip.scale);
    s->judged_ns = mt_now_ns();
    return !s->result->skipped;
}

static mt_rc step_judge(void *self, const mt_lane_sums *sums, bool all, bool *go, mt_err *err)
{
    step *s = self;
    const mt_batch *b = s->batch;
    const mt_arithmetic *a = &s->e->plan->arithmetic;
    const mt_loss_sum loss = mt_fold_losses(sums->losses, mt_arithmetic_bundles(a), mt_arithmetic_shares(a));
    const double weight = mt_lane_weight(s->e->plan, b, s->train);
    if (!all) return check_loss(loss.loss, err);
    if (s->train) mt_trace_turn(s->e->trace);
    *s->result =
        (mt_step_result){ .loss = weight > 0 ? loss.loss / weight : 0,
                          .router_loss = mt_fold_numbers(sums->router_losses, mt_arithmetic_bundles(a), mt_arithmetic_shares(a)),
                          .clip_scale = 1,
                          .n_tokens = b->n_tokens,
                          .n_trained = b->n_trained,
                          .n_correct = loss.correct,
                          .wait_update_ns = mt_lane_waited(s->e->lane).update_ns };
    if (!s->train) return MT_OK;
    if (mt_plan_loads(s->e->plan)) s->result->loads = sums->loads;
    double squares = sum_of_squares(s->e->model, sums->norms);
    s->result->grad_norm = sqrt(squares);
    if (s->updates_early) return check_norms(s->e->model, sums->norms, err);
    if (s->hyper) *go = clip_step(s, squares);
    return MT_OK;
}

/* -- passes ---------------------------------------------------------------------------------------- */

/* A failure here ends the whole run: record it and wake every thread.  The exception is a batch that is refused before anything
 * is queued: the caller may try another. */
static mt_rc run_pass(mt_engine *e, const mt_lane_pass *pass, mt_err *err)
{
    MT_TRY(mt_watch_check(&e->watch, err));
    MT_TRY(mt_lane_check(e->lane, pass->batch, err));
    e->in_flight = true;
    if (mt_plan_by_shares(e->plan) && (pass->mode == MT_MODE_TRAIN || pass->mode == MT_MODE_EVALUATE))
        return mt__lanes_run(e, pass, err);
    mt_rc rc = mt_lane_run(e->lane, pass, err);
    if (rc) mt_watch_fail(&e->watch, err);
    return rc;
}

static mt_rc run_step(step *s, mt_err *err)
{
    return run_pass(s->e,
                    &(mt_lane_pass){ .mode = s->train ? MT_MODE_TRAIN : MT_MODE_EVALUATE,
                                     .batch = s->batch,
                                     .updates_early = s->updates_early,
                                     .judge = step_judge,
                                     .self = s },
                    err);
}

mt_rc mt_engine_step(mt_engine *e, const mt_batch *b, const mt_hyper *h, mt_step_result *out, mt_err *err)
{
    step s = { .e = e, .batch = b, .hyper = h, .result = out, .train = true, .updates_early = !e->plan->job.clip };
    if (!e->plan->job.train || e->plan->job.only_gradients) return mt_fail(err, MT_EINVAL, "this plan is for evaluation only");
    if (mt_lane_weight(e->plan, b, true) == 0) { /* weight decay alone would still be a step (U9) */
        *out = (mt_step_result){ .loss = NAN, .clip_scale = 1, .n_tokens = b->n_tokens, .empty = true };
        return mt_watch_check(&e->watch, err);
    }
    if (s.updates_early) mt_state_begin_update(e->state, h, 1.0);
    MT_TRY(run_step(&s, err));
    out->wait_save_ns = mt_lane_waited(e->lane).save_ns;
    if (e->n_more) {
        out->wait_lanes_ns = e->pact.wait_ns;
        out->lane_seconds = e->pact.seconds;
    }
    if (out->skipped) return MT_OK;
    if (e->trace && s.judged_ns) mt_trace_host(e->trace, "engine", "queue the updates", s.judged_ns, mt_now_ns());
    mt_state_set_updates(e->state, mt_state_updates(e->state) + 1);
    return MT_OK;
}

mt_rc mt_engine_gradients(mt_engine *e, const mt_batch *b, mt_step_result *out, mt_err *err)
{
    if (!e->plan->job.train || !e->plan->job.clip)
        return mt_fail(err, MT_EINVAL, "gradients can be read only under a plan that trains and clips");
    return run_step(&(step){ .e = e, .batch = b, .result = out, .train = true }, err);
}

mt_rc mt_engine_evaluate(mt_engine *e, const mt_batch *b, mt_step_result *out, mt_err *err)
{
    return run_step(&(step){ .e = e, .batch = b, .result = out }, err);
}

mt_rc mt_engine_logits(mt_engine *e, const mt_batch *b, float *out, mt_err *err)
{
    return run_pass(e, &(mt_lane_pass){ .mode = MT_MODE_LOGITS, .batch = b, .logits = out }, err);
}

mt_rc mt__engine_continue(mt_engine *e, const mt_batch *b, const mt_continued *at, mt_err *err)
{
    return run_pass(e, &(mt_lane_pass){ .mode = MT_MODE_CONTINUE, .batch = b, .at = at }, err);
}
