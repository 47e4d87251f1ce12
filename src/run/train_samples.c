/* train_samples.c - logging.sample_prompts: the model's answers during training.  Greedy, so the same run has the same answers.
 * The engine only reads weights for it, and the arithmetic is chosen without regard to it: samples change no bit of training. */
#include "base/log.h"
#include "ckpt/model_files.h"
#include "engine/generate.h"
#include "plan/search.h"
#include "run/train_internal.h"

enum { NEW_TOKENS = 128 };

/* -- before the first step ------------------------------------------------------------------------- */

static mt_rc encode(mt_trainer *t, const char *text, mt_err *err)
{
    samples *s = &t->samples;
    sample *x = &s->items[s->n];
    x->prompt = text;
    mt_rc rc = t->data.source->api->prompt(t->data.source, text, &x->tokens, err);
    if (rc) return mt_note(err, "logging.sample_prompts: \"%.40s\"", text);
    if (x->tokens.n > 0 && (int64_t)x->tokens.n < t->net.config->max_positions) {
        s->n++;
        return MT_OK;
    }
    mt_warn("logging.sample_prompts: \"%.40s\" is %zu tokens long and the model has %lld positions; it is skipped", text,
            x->tokens.n, (long long)t->net.config->max_positions);
    mt_tokens_free(&x->tokens);
    return MT_OK;
}

mt_rc mt__train_samples_open(mt_trainer *t, mt_err *err)
{
    const mt_strs *prompts = &t->s->logging.sample_prompts;
    samples *s = &t->samples;
    if (!prompts->n) return MT_OK;
    if (!t->data.source->api->prompt) {
        mt_warn("logging.sample_prompts has no effect: the data comes as token ids, without a tokenizer");
        return MT_OK;
    }
    s->items = mt_calloc(prompts->n, sizeof *s->items);
    if (!s->items) return mt_no_memory(err, "sample prompts");
    for (size_t i = 0; i < prompts->n; i++) MT_TRY(encode(t, prompts->items[i], err));
    mt_stop_ids_add(&s->stops, t->data.info.end_of_turn_text ? t->data.info.end_of_turn : -1);
    return mt_model_files_stop_ids(&s->stops, mt_settings_model_dir(t->s), err);
}

/* Rows of the longest prompt and its answer. */
static int64_t sample_rows(const mt_trainer *t)
{
    int64_t n = 0;
    for (size_t i = 0; i < t->samples.n; i++) n = mt_max_i64(n, (int64_t)t->samples.items[i].tokens.n + NEW_TOKENS);
    return mt_min_i64(n, t->net.config->max_positions);
}

/* Plans again with a cache for as many prompts at a time as fit; if none fits, no prompt is answered. */
mt_rc mt__train_samples_plan(mt_trainer *t, const mt_machine *machine, mt_err *err)
{
    int64_t most =
        mt_min_i64((int64_t)t->samples.n, mt_min_i64(t->exec.plan->job.step_docs, t->exec.plan->arithmetic.micro_tokens));
    for (int64_t slots = most; slots > 0; slots /= 2) {
        mt_plan *with;
        mt_job job = t->exec.plan->job;
        job.cache_slots = slots;
        job.cache_rows = sample_rows(t);
        mt_rc rc = mt_plan_search(&with, (mt_plan_inputs){ t->net.model, &job, &t->exec.plan->arithmetic, machine }, err);
        if (!rc) {
            mt_plan_free(t->exec.plan);
            t->exec.plan = with;
        }
        if (rc != MT_ENOMEM) return rc;
    }
    if (t->samples.n) mt_warn("logging.sample_prompts: not enough device memory for a key/value cache, so no prompt is answered");
    mt__train_samples_close(t);
    return MT_OK;
}

void mt__train_samples_close(mt_trainer *t)
{
    for (size_t i = 0; i < t->samples.n; i++) {
        mt_tokens_free(&t->samples.items[i].tokens);
        mt_tokens_free(&t->samples.items[i].answer);
        mt_str_free(&t->samples.items[i].text);
    }
    mt_free(t->samples.items);
    t->samples = (samples){ 0 };
}

/* -- answers --------------------------------------------------------------------------------------- */

static mt_rc train_samples_take(void *user, const mt_generated *g, mt_err *err)
{
    mt_tokens *a = &((samples *)user)->items[g->prompt].answer;
    if (g->stop) return MT_OK;
    MT_TRY(mt_grow(&a->ids, &a->cap_ids, a->n + 1, sizeof *a->ids, err));
    a->ids[a->n++] = g->id;
    return MT_OK;
}

static mt_rc generate(mt_trainer *t, mt_err *err)
{
    samples *s = &t->samples;
    mt_prompt *prompts = mt_calloc(s->n, sizeof *prompts);
    if (!prompts) return mt_no_memory(err, "sample prompts");
    for (size_t i = 0; i < s->n; i++) {
        prompts[i] = (mt_prompt){ s->items[i].tokens.ids, (int64_t)s->items[i].tokens.n, i };
        s->items[i].answer.n = 0;
    }
    const mt_generate_options o = { .max_new_tokens = NEW_TOKENS,
                                    .stop_ids = s->stops.ids,
                                    .n_stop_ids = s->stops.n,
                                    .on_token = train_samples_take,
                                    .user = s };
    mt_rc rc = mt_generate(t->exec.engine, prompts, s->n, &o, NULL, err);
    mt_free(prompts);
    return rc;
}

/* {"step": 20, "epoch": 0.5, "samples": [{"prompt": "...", "answer": "..."}]} */
static mt_rc log_samples(mt_trainer *t, mt_err *err)
{
    mt_metrics *m = &t->metrics;
    mt_metrics_int(m, "step", t->at.step);
    mt_metrics_float(m, "epoch", (double)t->at.step / (double)t->data.info.steps_per_epoch);
    mt_json_out *j = mt_metrics_json(m);
    mt_json_list(j, "samples", MT_JSON_FLAT);
    for (size_t i = 0; i < t->samples.n; i++) {
        const sample *x = &t->samples.items[i];
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_str(j, "prompt", x->prompt);
        mt_json_put_bytes(j, "answer", x->text.s ? x->text.s : "", x->text.n);
        mt_json_end(j);
    }
    mt_json_end(j);
    return mt_metrics_end(m, err);
}

mt_rc mt__train_sample(mt_trainer *t, mt_err *err)
{
    samples *s = &t->samples;
    MT_TRY(generate(t, err));
    for (size_t i = 0; i < s->n; i++) {
        sample *x = &s->items[i];
        mt_str_clear(&x->text);
        MT_TRY(t->data.source->api->text(t->data.source, x->answer.ids, x->answer.n, &x->text, err));
        if (t->hooks.sample) t->hooks.sample(t->hooks.user, t->at.step, x->prompt, x->text.s ? x->text.s : "");
    }
    return log_samples(t, err);
}
