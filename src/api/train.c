/* train.c - a whole run from a configuration. */
#include "api/api.h"

#include <stdio.h>

typedef struct api_run {
    mt_settings s;
    const megatrain_hooks *hooks;
} api_run;

/* -- hooks ----------------------------------------------------------------------------------------- */

static mt_rc on_weights(void *user, mt_err *err) { return mt_prepare_weights(&((api_run *)user)->s, &mt__api_finder, err); }

static void on_loading(void *user, size_t done, size_t total)
{
    const megatrain_hooks *h = ((api_run *)user)->hooks;
    h->loading(h->user, done, total);
}

static void on_step(void *user, const mt_train_step *s)
{
    const megatrain_hooks *h = ((api_run *)user)->hooks;
    const megatrain_progress p = { .step = s->step,
                                   .n_steps = s->n_steps,
                                   .epoch = s->epoch,
                                   .loss = s->loss,
                                   .learning_rate = s->learning_rate,
                                   .grad_norm = s->grad_norm,
                                   .seconds = s->seconds,
                                   .tokens_per_second = s->tokens_s,
                                   .skipped = s->skipped || s->empty };
    h->step(h->user, &p);
}

static void on_eval(void *user, const mt_train_eval *e)
{
    const megatrain_hooks *h = ((api_run *)user)->hooks;
    const megatrain_evaluation x = {
        .step = e->step, .loss = e->loss, .perplexity = e->perplexity, .accuracy = e->accuracy, .n_trained = e->n_trained
    };
    h->evaluated(h->user, &x);
}

static void on_saved(void *user, const char *path, double seconds)
{
    const megatrain_hooks *h = ((api_run *)user)->hooks;
    (void)seconds;
    h->saved(h->user, path);
}

static int on_stop(void *user)
{
    const megatrain_hooks *h = ((api_run *)user)->hooks;
    return h->stop(h->user);
}

static mt_train_hooks hooks_of(api_run *r)
{
    mt_train_hooks own = { .user = r, .data = { .fetch = mt__api_finder.dataset }, .weights = on_weights };
    const megatrain_hooks *h = r->hooks;
    if (h && h->loading) own.loading = on_loading;
    if (h && h->step) own.step = on_step;
    if (h && h->evaluated) own.eval = on_eval;
    if (h && h->saved) own.saved = on_saved;
    if (h && h->stop) own.stop = on_stop;
    return own;
}

/* -- the run --------------------------------------------------------------------------------------- */

static void outcome_of(const mt_train_result *r, megatrain_outcome *out)
{
    out->step = r->step;
    out->n_skipped = r->n_skipped;
    out->stopped = r->stopped != 0;
    out->loss = r->loss;
    snprintf(out->checkpoint, sizeof out->checkpoint, "%s", r->checkpoint);
    snprintf(out->model_dir, sizeof out->model_dir, "%s", r->model_dir);
}

static mt_rc run_config(api_run *r, const megatrain_config *config, megatrain_outcome *out, mt_err *err)
{
    mt_trainer *t = NULL;
    mt_train_result result;
    mt_train_hooks hooks = hooks_of(r);
    MT_TRY(mt__api_settings(&r->s, config, MT_NEED_MODEL | MT_NEED_DATA, err));
    MT_TRY(mt_trainer_check_output(&r->s, err)); /* before a model is downloaded */
    MT_TRY(mt_prepare_run(&r->s, &mt__api_finder, &hooks, err));
    mt_rc rc = mt_trainer_open(&t, &r->s, &hooks, err);
    if (!rc) rc = mt_trainer_run(t, &result, err);
    if (!rc && out) outcome_of(&result, out);
    mt_trainer_close(t);
    return rc;
}

megatrain_status megatrain_train(const megatrain_config *config, const megatrain_hooks *hooks, megatrain_outcome *out,
                                 megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    api_run r = { .hooks = hooks };
    if (out) *out = (megatrain_outcome){ 0 };
    mt_rc rc = run_config(&r, config, out, &call.err);
    mt_settings_deinit(&r.s);
    return mt__api_end(&call, error, rc);
}
