/* passes.c - what a model computes for its caller: steps, evaluations, logits, generations. */
#include "api/api.h"

#include <math.h>

/* -- documents ------------------------------------------------------------------------------------- */

static mt_rc take_document(megatrain_model *m, const megatrain_document *d, mt_err *err)
{
    MT_TRY(mt__api_need(d->tokens, "tokens", err));
    if (d->n_tokens < 1 || d->n_tokens > (size_t)m->o.q.seq_len)
        return mt_fail(err, MT_ERANGE, "%zu tokens; the model was opened for 1 to %lld (dataset.max_seq_len)", d->n_tokens,
                       (long long)m->o.q.seq_len);
    return mt_batch_add(&m->batch, d->tokens, d->labels, (int64_t)d->n_tokens, m->o.config->V, err);
}

static mt_rc take_documents(megatrain_model *m, const megatrain_document *documents, size_t n, mt_err *err)
{
    MT_TRY(mt__api_need(m, "model", err));
    MT_TRY(mt__api_need(documents, "documents", err));
    if (n < 1 || n > (size_t)m->o.q.batch)
        return mt_fail(err, MT_ERANGE,
                       "%zu documents; the model was opened for 1 to %lld (training.batch_size times "
                       "training.gradient_accumulation_steps)",
                       n, (long long)m->o.q.batch);
    mt_batch_clear(&m->batch);
    for (size_t i = 0; i < n; i++)
        if (take_document(m, &documents[i], err)) return mt_note(err, "document %zu of %zu", i + 1, n);
    return MT_OK;
}

static megatrain_result result_of(const mt_step_result *r, double lr)
{
    return (megatrain_result){ .loss = r->loss,
                               .grad_norm = r->grad_norm,
                               .learning_rate = lr,
                               .n_tokens = r->n_tokens,
                               .n_trained = r->n_trained,
                               .n_correct = r->n_correct,
                               .skipped = r->skipped,
                               .empty = r->empty };
}

/* -- steps and evaluations ------------------------------------------------------------------------- */

static mt_rc model_step(megatrain_model *m, const megatrain_document *documents, size_t n, megatrain_result *out, mt_err *err)
{
    mt_step_result r;
    MT_TRY(take_documents(m, documents, n, err));
    if (!(m->uses & MEGATRAIN_TRAIN))
        return mt_fail(err, MT_EINVAL, "the model was opened without MEGATRAIN_TRAIN: it cannot take steps");
    const mt_hyper h = mt_train_hyper(&m->o.s, mt__model_learning_rate(m));
    MT_TRY(mt_engine_step(m->engine, &m->batch, &h, &r, err));
    m->n_steps++;
    if (out) *out = result_of(&r, h.lr);
    return MT_OK;
}

static mt_rc model_evaluate(megatrain_model *m, const megatrain_document *documents, size_t n, megatrain_result *out, mt_err *err)
{
    mt_step_result r;
    MT_TRY(mt__api_need(out, "out", err));
    MT_TRY(take_documents(m, documents, n, err));
    MT_TRY(mt_engine_evaluate(m->engine, &m->batch, &r, err));
    r.empty = !r.n_trained;
    if (r.empty) r.loss = NAN;
    *out = result_of(&r, 0);
    return MT_OK;
}

megatrain_status megatrain_model_step(megatrain_model *model, const megatrain_document *documents, size_t n_documents,
                                      megatrain_result *out, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    if (out) *out = (megatrain_result){ 0 };
    return mt__api_end(&call, error, model_step(model, documents, n_documents, out, &call.err));
}

megatrain_status megatrain_model_evaluate(megatrain_model *model, const megatrain_document *documents, size_t n_documents,
                                          megatrain_result *out, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    if (out) *out = (megatrain_result){ 0 };
    return mt__api_end(&call, error, model_evaluate(model, documents, n_documents, out, &call.err));
}

/* -- logits ---------------------------------------------------------------------------------------- */

static mt_rc model_logits(megatrain_model *m, const int32_t *tokens, size_t n, float *logits, size_t room, mt_err *err)
{
    const megatrain_document d = { .tokens = tokens, .n_tokens = n };
    size_t need;
    MT_TRY(mt__api_need(logits, "logits", err));
    MT_TRY(take_documents(m, &d, 1, err));
    if (!mt_mul_size(n, (size_t)m->o.config->V, &need) || need > room)
        return mt_fail(err, MT_ERANGE, "room for %zu logits; %zu tokens of a vocabulary of %lld need more", room, n,
                       (long long)m->o.config->V);
    return mt_engine_logits(m->engine, &m->batch, logits, err);
}

megatrain_status megatrain_model_logits(megatrain_model *model, const int32_t *tokens, size_t n_tokens, float *logits,
                                        size_t room, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, model_logits(model, tokens, n_tokens, logits, room, &call.err));
}

/* -- generations ----------------------------------------------------------------------------------- */

typedef struct generated_tokens {
    int32_t *tokens;
    size_t n;
} generated_tokens;

/* max_new_tokens is the room there is. */
static mt_rc take_generated(void *user, const mt_generated *g, mt_err *err)
{
    generated_tokens *to = user;
    (void)err;
    if (!g->stop) to->tokens[to->n++] = g->id;
    return MT_OK;
}

static mt_rc check_prompt(const megatrain_model *m, const int32_t *prompt, size_t n, mt_err *err)
{
    if (!(m->uses & MEGATRAIN_GENERATE))
        return mt_fail(err, MT_EINVAL, "the model was opened without MEGATRAIN_GENERATE: it cannot continue texts");
    if (n < 1 || n > (size_t)m->o.q.seq_len)
        return mt_fail(err, MT_ERANGE, "a prompt of %zu tokens; the model was opened for 1 to %lld (dataset.max_seq_len)", n,
                       (long long)m->o.q.seq_len);
    for (size_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= m->o.config->V)
            return mt_fail(err, MT_ERANGE, "token %d at position %zu of the prompt; the vocabulary has %lld", prompt[i], i,
                           (long long)m->o.config->V);
    return MT_OK;
}

static mt_rc model_generate(megatrain_model *m, const int32_t *prompt, size_t n_prompt, const megatrain_sampling *how,
                            generated_tokens *to, size_t room, mt_err *err)
{
    MT_TRY(mt__api_need(m, "model", err));
    MT_TRY(mt__api_need(prompt, "prompt", err));
    MT_TRY(mt__api_need(to->tokens, "tokens", err));
    MT_TRY(check_prompt(m, prompt, n_prompt, err));
    if (room < 1) return mt_fail(err, MT_ERANGE, "room for 0 tokens; at least 1 expected");
    const mt_prompt p = { .ids = prompt, .n = (int64_t)n_prompt };
    mt_generate_options o = { .max_new_tokens = room < INT32_MAX ? (int64_t)room : INT32_MAX,
                              .stop_ids = m->stops.ids,
                              .n_stop_ids = m->stops.n,
                              .on_token = take_generated,
                              .user = to };
    if (how) o.sampling = (mt_sampling){ how->temperature, how->top_p, how->top_k, how->seed };
    return mt_generate(m->engine, &p, 1, &o, NULL, err);
}

megatrain_status megatrain_model_generate(megatrain_model *model, const int32_t *prompt, size_t n_prompt,
                                          const megatrain_sampling *sampling, int32_t *tokens, size_t room, size_t *n_out,
                                          megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    generated_tokens to = { .tokens = tokens };
    mt_rc rc = mt__api_need(n_out, "n_out", &call.err);
    if (!rc) rc = model_generate(model, prompt, n_prompt, sampling, &to, room, &call.err);
    if (n_out) *n_out = rc ? 0 : to.n;
    return mt__api_end(&call, error, rc);
}
