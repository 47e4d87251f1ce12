/* text.c - a model's tokenizer: texts to tokens and back. */
#include "api/api.h"
#include "api/chat.h"
#include "ckpt/model_files.h"

#include <string.h>

mt_rc mt__model_tokenizer(megatrain_model *m, mt_err *err)
{
    if (m->tok) return MT_OK;
    return mt_model_files_tokenizer(&m->tok, mt_settings_model_dir(&m->o.s), err);
}

/* If the caller's buffer is too small, fails and leaves the size in *n_out. */
static mt_rc copy_tokens(const mt_tokens *from, int32_t *tokens, size_t room, size_t *n_out, mt_err *err)
{
    *n_out = from->n;
    if (from->n > room) return mt_fail(err, MT_ERANGE, "%zu tokens, and room for %zu", from->n, room);
    if (!from->n) return MT_OK;
    MT_TRY(mt__api_need(tokens, "tokens", err));
    memcpy(tokens, from->ids, from->n * sizeof *tokens);
    return MT_OK;
}

static mt_rc encode_text(megatrain_model *m, const char *text, mt_tokens *out, mt_err *err)
{
    MT_TRY(mt__api_need(m, "model", err));
    MT_TRY(mt__api_need(text, "text", err));
    MT_TRY(mt__model_tokenizer(m, err));
    if (!m->scratch) MT_TRY(mt_tok_scratch_create(&m->scratch, m->tok, err));
    return mt_tokenizer_encode(m->tok, m->scratch, text, strlen(text), MT_ENCODE_SPECIAL, out, err);
}

static mt_rc encode_question(megatrain_model *m, const char *system_text, const char *user_text, mt_tokens *out, mt_err *err)
{
    MT_TRY(mt__api_need(m, "model", err));
    MT_TRY(mt__api_need(user_text, "user_text", err));
    MT_TRY(mt__model_tokenizer(m, err));
    if (!m->chat) MT_TRY(mt_chat_open(&m->chat, m->tok, "use megatrain_model_encode", err));
    return mt_chat_encode(m->chat, system_text, user_text, out, err);
}

megatrain_status megatrain_model_encode(megatrain_model *model, const char *text, int32_t *tokens, size_t room, size_t *n_out,
                                        megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    mt_tokens found = { 0 };
    mt_rc rc = mt__api_need(n_out, "n_out", &call.err);
    if (n_out) *n_out = 0;
    if (!rc) rc = encode_text(model, text, &found, &call.err);
    if (!rc) rc = copy_tokens(&found, tokens, room, n_out, &call.err);
    mt_tokens_free(&found);
    return mt__api_end(&call, error, rc);
}

megatrain_status megatrain_model_encode_chat(megatrain_model *model, const char *system_text, const char *user_text,
                                             int32_t *tokens, size_t room, size_t *n_out, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    mt_tokens found = { 0 };
    mt_rc rc = mt__api_need(n_out, "n_out", &call.err);
    if (n_out) *n_out = 0;
    if (!rc) rc = encode_question(model, system_text, user_text, &found, &call.err);
    if (!rc) rc = copy_tokens(&found, tokens, room, n_out, &call.err);
    mt_tokens_free(&found);
    return mt__api_end(&call, error, rc);
}

static mt_rc decode_tokens(megatrain_model *m, const int32_t *tokens, size_t n, mt_str *out, mt_err *err)
{
    MT_TRY(mt__api_need(m, "model", err));
    MT_TRY(mt__api_need(tokens, "tokens", err));
    MT_TRY(mt__model_tokenizer(m, err));
    const int64_t most = mt_max_i64(m->o.config->V, (int64_t)mt_tokenizer_vocab_size(m->tok));
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= most)
            return mt_fail(err, MT_ERANGE, "tokens[%zu] is %ld; the model has tokens 0 to %lld", i, (long)tokens[i],
                           (long long)most - 1);
    MT_TRY(mt_tokenizer_decode(m->tok, tokens, n, true, out, err));
    return mt_str_ok(out) ? MT_OK : mt_no_memory(err, "the text of %zu tokens", n);
}

static mt_rc copy_text(const mt_str *from, char *text, size_t room, size_t *n_out, mt_err *err)
{
    *n_out = from->n;
    if (from->n + 1 > room)
        return mt_fail(err, MT_ERANGE, "a text of %zu bytes and a final 0 byte, and room for %zu", from->n, room);
    MT_TRY(mt__api_need(text, "text", err));
    if (from->n) memcpy(text, from->s, from->n);
    text[from->n] = '\0';
    return MT_OK;
}

megatrain_status megatrain_model_decode(megatrain_model *model, const int32_t *tokens, size_t n_tokens, char *text, size_t room,
                                        size_t *n_out, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    mt_str found = { 0 };
    mt_rc rc = mt__api_need(n_out, "n_out", &call.err);
    if (n_out) *n_out = 0;
    if (!rc) rc = decode_tokens(model, tokens, n_tokens, &found, &call.err);
    if (!rc) rc = copy_text(&found, text, room, n_out, &call.err);
    mt_str_free(&found);
    return mt__api_end(&call, error, rc);
}
