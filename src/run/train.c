/* train.c - the training loop.  One step is: data, update, metrics, evaluation if due, checkpoint if due; then a requested stop.
 * All of it is a pure function of the settings, the data and the step, so a resumed run equals one that never stopped. */
#include "base/log.h"
#include "model/flops.h"
#include "run/train_internal.h"

#include <inttypes.h>
#include <math.h>
#include <sys/resource.h>

mt_rc mt_trainer_open(mt_trainer **out, const mt_settings *s, const mt_train_hooks *hooks, mt_err *err)
{
    *out = NULL;
    mt_trainer *t = mt_calloc(1, sizeof *t);
    if (!t) return mt_no_memory(err, "the trainer");
    t->s = s;
    t->hooks = *hooks;
    t->comm = hooks->comm ? hooks->comm : mt_comm_alone();
    mt_rc rc = mt__train_open(t, err);
    if (rc) t->comm->api->fail(t->comm, err);
    if (rc)
        mt_trainer_close(t);
    else
        *out = t;
    return rc;
}

void mt_trainer_close(mt_trainer *t)
{
    if (!t) return;
    (void)mt__train_saved(t, true, &(mt_err){ 0 });
    mt_engine_free(t->exec.engine);
    mt__train_samples_close(t);
    mt_plan_free(t->exec.plan);
    mt_devices_close(&t->exec.devices);
    mt_source_close(t->data.source);
    mt_batch_free(&t->data.batch);
    mt__train_free_loads(t);
    mt_model_free(t->net.model);
    mt_shards_close(t->net.shards);
    mt_side_files_free(&t->net.side_files);
    mt_config_close(t->net.config);
    mt_metrics_close(&t->metrics);
    mt_output_dir_close(&t->dir);
    mt__train_forget_earlier(t);
    mt_free(t->resume.from);
    mt_free(t->made.checkpoint);
    mt_free(t->made.model_dir);
    mt_free(t->ranks.all);
    mt_free(t);
}

void mt_trainer_info(const mt_trainer *t, mt_train_info *out)
{
    mt_ckpt_save c = mt__train_ckpt(t);
    *out = (mt_train_info){ .config = t->net.config,
                            .model = t->net.model,
                            .plan = t->exec.plan,
                            .limits = mt_train_limits(t->s),
                            .data = t->data.info,
                            .device_kind = t->exec.dev->api->kind,
                            .first_step = t->course.first_step,
                            .n_steps = t->course.n_steps,
                            .planned_host = mt__train_planned_host(t),
                            .checkpoint_bytes = mt_ckpt_bytes(&c),
                            .output_dir = t->dir.path,
                            .resumed_from = t->resume.from ? t->resume.from : "",
                            .comm = t->comm,
                            .network = t->ranks.network,
                            .network_wait = t->ranks.network_wait };
    t->exec.dev->api->info(t->exec.dev, &out->device);
}

bool mt_trainer_has_dir(const mt_trainer *t) { return !mt_output_dir_check(&t->dir, &(mt_err){ 0 }); }

mt_engine *mt_trainer_engine(mt_trainer *t) { return t->exec.engine; }

mt_rc mt_trainer_batch(mt_trainer *t, int64_t step, mt_batch *out, mt_err *err)
{
    return t->data.source->api->step(t->data.source, step, out, err);
}

static double epoch_of(const mt_trainer *t, int64_t step) { return (double)step / (double)t->data.info.steps_per_epoch; }

/* True if something that happens every `interval` steps is due after this step. */
static bool due(const mt_trainer *t, int64_t interval)
{
    if (interval == MT_EVERY_EPOCH) interval = t->data.info.steps_per_epoch;
    return interval > 0 && t->at.step % interval == 0;
}

/* Checks again, unless other ranks must agree. */
static int stop_asked(const mt_trainer *t)
{
    if (t->ranks.stop || t->comm->n_ranks > 1 || !t->hooks.stop) return t->ranks.stop;
    return t->hooks.stop(t->hooks.user);
}

static bool save_asked(mt_trainer *t)
{
    const bool yes = t->ranks.save;
    t->ranks.save = false;
    return yes;
}

/* -- a step ---------------------------------------------------------------------------------------- */

mt_hyper mt_train_hyper(const mt_settings *s, double lr)
{
    const mt_optimizer_settings *o = &s->optimizer;
    return (mt_hyper){ .lr = lr,
                       .beta1 = o->beta1,
                       .beta2 = o->beta2,
                       .eps = o->eps,
                       .weight_decay = s->training.weight_decay,
                       .max_grad_norm = s->training.max_grad_norm,
                       .seed = (uint64_t)s->training.seed };
}

/* A step without a trained token computes nothing: its tokens in no time would look like speed. */
static void count_speed(mt_trainer *t, const mt_step_result *r, double seconds, double wait_data_s)
{
    window *w = &t->window;
    if (r->empty) return;
    w->n_steps++;
    w->n_tokens += r->n_tokens;
    w->n_trained += r->n_trained;
    w->flops += mt_flops_step(t->net.model, t->data.batch.doc_start, t->data.batch.n_docs, t->data.batch.n_trained);
    w->seconds += seconds;
    w->wait_data_s += wait_data_s;
    w->wait_update_s += 1e-9 * (double)r->wait_update_ns;
    w->wait_save_s += 1e-9 * (double)r->wait_save_ns;
    w->wait_devices_s += 1e-9 * (double)r->wait_lanes_ns;
    if (t->timing.steps++ > 0) t->timing.seconds += seconds, t->timing.tokens += r->n_tokens;
}

static void train_count(mt_trainer *t, const mt_step_result *r)
{
    progress *p = &t->at;
    p->step++;
    p->updates = mt_state_updates(mt_engine_state(t->exec.engine));
    p->n_tokens += r->n_tokens;
    p->n_trained += r->n_trained;
    p->n_skipped += r->skipped || r->empty;
    if (!r->empty) p->bad_in_row = r->skipped ? p->bad_in_row + 1 : 0;
    if (isfinite(r->loss)) p->window_loss += r->loss, p->window_steps++;
    t->made.loss = r->loss;
}

/* Warns once when the loss explodes.  A model that guesses has a loss of ln V: below twice that, a hundred times the first loss is
 * a small number, too. */
static void watch_loss(mt_trainer *t, const mt_step_result *r)
{
    outcome *made = &t->made;
    if (!isfinite(r->loss) || r->empty) return;
    if (!made->first_loss) made->first_loss = r->loss, made->first_at = t->at.step;
    if (made->diverged || r->loss < 100 * made->first_loss || r->loss < 2 * log((double)t->net.config->V)) return;
    made->diverged = true;
    mt_warn("step %" PRId64 " has a loss of %.4g, more than 100 times that of step %" PRId64
            " (%.4g): training diverges.  Stop it and continue from an earlier checkpoint, or begin again, with a lower "
            "learning_rate or a longer warm-up",
            t->at.step, r->loss, made->first_at, made->first_loss);
}

static void count_loads(mt_trainer *t, const mt_step_result *r)
{
    const int64_t E = t->net.model->routed.E;
    mt_train_loads *to = &t->net.loads;
    for (size_t i = 0; r->loads && i < to->n; i++) {
        const int32_t *rows = r->loads + to->layer[i] * E;
        int32_t most = 0;
        to->idle[i] = 0;
        for (int64_t e = 0; e < E; e++) {
            if (rows[e] > most) most = rows[e];
            to->idle[i] += rows[e] == 0;
        }
        to->busiest[i] = (double)most / (double)r->n_tokens;
    }
}

static mt_train_step report_of(const mt_trainer *t, const mt_step_result *r, double lr)
{
    const window *w = &t->window;
    const double n = w->n_steps ? (double)w->n_steps : 1, s = w->seconds > 0 ? w->seconds : 1e-9;
    return (mt_train_step){ .step = t->at.step,
                            .n_steps = t->course.n_steps,
                            .epoch = epoch_of(t, t->at.step),
                            .loss = t->at.window_steps ? t->at.window_loss / (double)t->at.window_steps : r->loss,
                            .learning_rate = lr,
                            .grad_norm = r->grad_norm,
                            .router_loss = t->net.router_loss > 0 && !r->empty ? r->router_loss : NAN,
                            .loads = r->loads ? t->net.loads : (mt_train_loads){ 0 },
                            .skipped = r->skipped,
                            .empty = r->empty,
                            .seconds = w->seconds / n,
                            .tokens_s = (double)w->n_tokens / s,
                            .trained_s = (double)w->n_trained / s,
                            .flops_s = w->flops / s,
                            .wait_update_s = w->wait_update_s / n,
                            .wait_save_s = w->wait_save_s / n,
                            .wait_data_s = w->wait_data_s / n,
                            .wait_devices_s = w->wait_devices_s / n,
                            .device_seconds = r->lane_seconds,
                            .n_devices = r->lane_seconds ? mt_plan_lanes(t->exec.plan) : 0 };
}

/* Processors make NaNs of either sign, and printf shows it: "-nan" would look like a result. */
static double without_nan_sign(double x) { return isnan(x) ? (double)NAN : x; }

static mt_rc take_step(mt_trainer *t, mt_train_step *out, mt_err *err)
{
    mt_step_result r;
    mt_hyper h = mt_train_hyper(t->s, mt_schedule_lr(&t->course.schedule, t->at.step));
    double asked = mt_now_s();
    MT_TRY(t->data.source->api->step(t->data.source, t->at.step, &t->data.batch, err));
    double got_data = mt_now_s();
    MT_TRY(mt__train_same_step(t, err));
    MT_TRY(mt_engine_step(t->exec.engine, &t->data.batch, &h, &r, err));
    r.loss = without_nan_sign(r.loss);
    r.grad_norm = without_nan_sign(r.grad_norm);
    double seconds = mt_now_s() - t->timing.clock;
    t->timing.clock += seconds;
    train_count(t, &r);
    count_speed(t, &r, seconds, got_data - asked);
    mt__train_note_result(t, &r);
    watch_loss(t, &r);
    if (r.empty) mt_warn("step %" PRId64 " has no token to train on (all are masked): nothing was updated", t->at.step);
    count_loads(t, &r);
    *out = report_of(t, &r, h.lr);
    return MT_OK;
}

static mt_rc check_bad(const mt_trainer *t, const mt_train_step *s, mt_err *err)
{
    if (t->at.bad_in_row < t->s->training.max_bad_steps) return MT_OK;
    return mt_fail(err, MT_ENUMERIC,
                   "%" PRId64 " steps in a row had a loss or a gradient that is not finite (step %" PRId64
                   ": loss %g, gradient norm %g).  None of them changed a "
                   "weight; a lower learning_rate or a longer warm-up may help",
                   t->at.bad_in_row, s->step, t->made.loss, s->grad_norm);
}

/* -- metrics --------------------------------------------------------------------------------------- */

/* Not 0 where there was no step to measure: a chart would show that as a speed. */
static double measured(const mt_train_step *s, double x) { return s->tokens_s > 0 ? x : NAN; }

static void log_timing(mt_trainer *t, const mt_train_step *s)
{
    mt_metrics *m = &t->metrics;
    mt_device_info d;
    struct rusage use;
    t->exec.dev->api->info(t->exec.dev, &d);
    mt_metrics_float(m, "step_seconds", measured(s, s->seconds));
    mt_metrics_float(m, "tokens_per_second", measured(s, s->tokens_s));
    mt_metrics_float(m, "trained_tokens_per_second", measured(s, s->trained_s));
    mt_metrics_float(m, "flops_per_second", measured(s, s->flops_s));
    mt_metrics_float(m, "wait_update_seconds", s->wait_update_s);
    mt_metrics_float(m, "wait_save_seconds", s->wait_save_s);
    mt_metrics_float(m, "wait_data_seconds", s->wait_data_s);
    if (s->n_devices) mt_metrics_float(m, "wait_devices_seconds", s->wait_devices_s);
    if (s->n_devices) mt_metrics_list(m, "device_seconds", s->device_seconds, (size_t)s->n_devices);
    mt_metrics_int(m, "device_memory_peak", (int64_t)d.memory_peak);
    if (getrusage(RUSAGE_SELF, &use) == 0) mt_metrics_int(m, "host_memory_peak", (int64_t)use.ru_maxrss * 1024);
}

static mt_rc log_step(mt_trainer *t, const mt_train_step *s, mt_err *err)
{
    mt_metrics *m = &t->metrics;
    if (!due(t, t->s->logging.log_interval) && s->step != t->course.n_steps) return MT_OK;
    mt_metrics_int(m, "step", s->step);
    mt_metrics_float(m, "epoch", s->epoch);
    mt_metrics_float(m, "loss", s->loss);
    mt_metrics_float(m, "learning_rate", s->learning_rate);
    mt_metrics_float(m, "grad_norm", s->grad_norm);
    if (!isnan(s->router_loss)) mt_metrics_float(m, "router_aux_loss", s->router_loss);
    if (s->loads.n) mt_metrics_list(m, "busiest_expert", s->loads.busiest, s->loads.n);
    if (s->loads.n) mt_metrics_list(m, "idle_experts", s->loads.idle, s->loads.n);
    mt_metrics_int(m, "num_input_tokens_seen", t->at.n_tokens);
    mt_metrics_int(m, "num_trained_tokens_seen", t->at.n_trained);
    if (s->skipped || s->empty) mt_metrics_bool(m, "skipped", true);
    if (t->at.n_skipped) mt_metrics_int(m, "skipped_steps", t->at.n_skipped);
    if (t->s->logging.enable_timing) log_timing(t, s);
    mt__train_watch_memory(t);
    MT_TRY(mt_output_dir_check(&t->dir, err));
    t->at.window_loss = 0;
    t->at.window_steps = 0;
    t->window = (window){ 0 };
    return mt_metrics_end(m, err);
}

/* -- evaluation ------------------------------------------------------------------------------------ */

static mt_rc log_eval(mt_trainer *t, const mt_train_eval *e, mt_err *err)
{
    mt_metrics *m = &t->metrics;
    mt_metrics_int(m, "step", e->step);
    mt_metrics_float(m, "epoch", epoch_of(t, e->step));
    mt_metrics_float(m, "eval_loss", e->loss);
    mt_metrics_float(m, "eval_perplexity", e->perplexity);
    mt_metrics_float(m, "eval_accuracy", e->accuracy);
    mt_metrics_int(m, "eval_tokens", e->n_trained);
    if (t->s->logging.enable_timing) mt_metrics_float(m, "eval_runtime", e->seconds);
    return mt_metrics_end(m, err);
}

/* A stop does not wait for a whole evaluation: the resumed run repeats it. */
static mt_rc evaluate(mt_trainer *t, mt_err *err)
{
    mt_train_eval e = { .step = t->at.step };
    double sum = 0, start = mt_now_s();
    int64_t n_correct = 0;
    for (int64_t i = 0; i < t->data.info.n_eval_batches; i++) {
        mt_step_result r;
        MT_TRY(mt__train_ask(t, err));
        t->at.unfinished = stop_asked(t) && !t->s->save.save_only_model; /* from which no run can continue */
        if (t->at.unfinished) return MT_OK;
        MT_TRY(t->data.source->api->eval(t->data.source, i, &t->data.batch, err));
        MT_TRY(mt_engine_evaluate(t->exec.engine, &t->data.batch, &r, err));
        sum += r.loss * (double)r.n_trained;
        e.n_trained += r.n_trained;
        n_correct += r.n_correct;
    }
    double n = e.n_trained ? (double)e.n_trained : NAN;
    e.loss = without_nan_sign(sum / n);
    e.perplexity = exp(e.loss);
    e.accuracy = (double)n_correct / n;
    e.seconds = mt_now_s() - start;
    if (t->hooks.eval) t->hooks.eval(t->hooks.user, &e);
    return log_eval(t, &e, err);
}

/* -- the loop -------------------------------------------------------------------------------------- */

/* Rank 0 answers, and the others wait. */
static mt_rc sample_on_first(mt_trainer *t, mt_err *err)
{
    mt__train_be_patient(t, true);
    if (t->samples.n) MT_TRY(mt__train_sample(t, err));
    MT_TRY(mt__train_ask(t, err));
    mt__train_be_patient(t, false);
    return MT_OK;
}

/* Does what is due after a step. */
static mt_rc follow_up(mt_trainer *t, mt_err *err)
{
    bool last = t->at.step == t->course.n_steps;
    bool evaluate_now = t->data.info.n_eval_batches && (last || due(t, t->s->eval.eval_steps));
    bool sample_now = t->s->logging.sample_prompts.n && (last || due(t, t->s->logging.sample_steps));
    bool save_now = save_asked(t) || due(t, t->s->save.save_steps);
    t->at.unfinished = false;
    if (evaluate_now) MT_TRY(evaluate(t, err));
    if (t->at.unfinished) return MT_OK; /* stopping, and saved as it is */
    if (sample_now) MT_TRY(sample_on_first(t, err));
    if (evaluate_now || sample_now) t->timing.clock = mt_now_s();
    if (t->made.step == t->at.step) return MT_OK; /* the run was resumed in the middle of this */
    if (last) return t->s->save.save_only_model ? MT_OK : mt__train_save(t, false, err); /* final/ will be that model */
    return save_now ? mt__train_save(t, true, err) : MT_OK;
}

static mt_rc one_step(mt_trainer *t, mt_err *err)
{
    mt_train_step s;
    MT_TRY(take_step(t, &s, err));
    MT_TRY(mt__train_saved(t, false, err));
    if (t->hooks.step) t->hooks.step(t->hooks.user, &s);
    MT_TRY(log_step(t, &s, err));
    MT_TRY(check_bad(t, &s, err));
    MT_TRY(mt__train_ask(t, err));
    mt__train_be_patient(t, false); /* the first step is done, and with it all one-time setup */
    return follow_up(t, err);
}

static mt_rc train_run(mt_trainer *t, mt_train_result *out, mt_err *err)
{
    if (t->at.unfinished)
        MT_TRY(follow_up(t, err));
    else if (!t->resume.from && t->data.info.n_eval_batches && t->s->eval.at_start)
        MT_TRY(evaluate(t, err));
    t->timing.clock = mt_now_s();
    out->stopped = t->at.unfinished ? stop_asked(t) : 0;
    while (t->at.step < t->course.n_steps && !out->stopped) {
        MT_TRY(one_step(t, err));
        out->stopped = t->at.unfinished || t->at.step < t->course.n_steps ? stop_asked(t) : 0;
    }
    if (out->stopped && t->at.step > 0 && t->made.step != t->at.step) MT_TRY(mt__train_save(t, false, err));
    mt__train_be_patient(t, true);
    MT_TRY(mt__train_saved(t, true, err));
    return out->stopped ? MT_OK : mt__train_export(t, err);
}

mt_rc mt_trainer_run(mt_trainer *t, mt_train_result *out, mt_err *err)
{
    *out = (mt_train_result){ .checkpoint = "", .model_dir = "" };
    if (train_run(t, out, err)) {
        if (err->rc == MT_EIO) (void)mt_output_dir_check(&t->dir, err); /* why a file could not be written there */
        t->comm->api->fail(t->comm, err);
        (void)mt__train_saved(t, true, &(mt_err){ 0 }); /* a checkpoint that is being written may still become complete */
        return mt__train_note_last(t, err);
    }
    out->step = t->at.step;
    out->loss = t->made.loss;
    out->n_skipped = t->at.n_skipped;
    out->checkpoint = t->made.checkpoint ? t->made.checkpoint : "";
    out->model_dir = t->made.model_dir ? t->made.model_dir : "";
    mt__train_compare(t, &out->compared);
    return MT_OK;
}

static mt_rc rehearsal_continues(const mt_trainer *t, mt_err *err)
{
    return stop_asked(t) ? mt_fail(err, MT_ESTOPPED, "stopped on request") : MT_OK;
}

mt_rc mt_trainer_rehearse(mt_trainer *t, mt_train_step *step, double *save_s, mt_err *err)
{
    t->timing.clock = mt_now_s();
    MT_TRY(rehearsal_continues(t, err));
    MT_TRY(take_step(t, step, err));
    MT_TRY(rehearsal_continues(t, err));
    double start = mt_now_s();
    MT_TRY(mt__train_save(t, true, err));
    MT_TRY(mt__train_saved(t, true, err));
    *save_s = mt_now_s() - start;
    return t->s->save.save_only_model ? MT_OK : mt_ckpt_verify(t->made.checkpoint, err);
}
