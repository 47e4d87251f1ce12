/* chat_end.c - how a template ends an answer.
 *
 * A two-turn conversation is rendered once and looked at behind the answer.  The first special token there, with white space
 * before it, is the end of turn; what follows it (a line break, a second token) is not learned.  Templates in which only the next
 * turn's header ends an answer (GLM-4) get that header's token; those that end nothing get eos, with a notice. */
#include "data/sampler_impl.h"
#include "data/slice.h"

static const char sentinel[] = "QUITE-UNLIKELY-ANSWER";

/* The special token at text[at], as its end; 0: none.  A window is tokenized: special tokens are found whatever stands around
 * them. */
static mt_rc special_at(const mt_sampler *s, mt_sampler_scratch *w, const mt_str *text, size_t at, size_t *out, mt_err *err)
{
    size_t n = text->n - at, n_token;
    *out = 0;
    if (n > 96) n = 96;
    while (n && at + n < text->n && ((unsigned char)text->s[at + n] & 0xc0) == 0x80) n--; /* no half characters */
    if (!n) return MT_OK;
    w->part.n = 0;
    MT_TRY(mt_tokenizer_encode(s->tok, w->tok, text->s + at, n, 0, &w->part, err));
    if (!w->part.n || !mt_tokenizer_is_special(s->tok, w->part.ids[0])) return MT_OK;
    const char *token = mt_tokenizer_token(s->tok, w->part.ids[0], &n_token);
    if (token && n_token <= text->n - at && !memcmp(token, text->s + at, n_token)) *out = at + n_token;
    return MT_OK;
}

mt_rc mt__chat_end_after(const mt_sampler *s, mt_sampler_scratch *w, const mt_str *text, size_t at, size_t *out, mt_err *err)
{
    *out = 0;
    if (s->n_end && text->n - at >= s->n_end && !memcmp(text->s + at, s->end, s->n_end)) {
        *out = at + s->n_end;
        return MT_OK;
    }
    while (at < text->n && mt_is_space(text->s[at])) at++;
    return special_at(s, w, text, at, out, err);
}

/* Render questions and answers in turn, n of them; *at is behind the first answer, or nothing was found. */
static bool probe(const mt_sampler *s, mt_sampler_scratch *w, size_t n, size_t *at)
{
    mt_err ignored = { 0 };
    mt_reason reason = MT_REASON_NONE;
    mt_pair pairs[3][2];
    mt_value maps[3];
    for (size_t i = 0; i < n; i++) {
        const char *role = i == 1 ? "assistant" : "user", *content = i == 1 ? sentinel : "Hello.";
        pairs[i][0] = (mt_pair){ .key = "role", .key_n = 4, .value = mt__text_value(role, strlen(role)) };
        pairs[i][1] = (mt_pair){ .key = "content", .key_n = 7, .value = mt__text_value(content, strlen(content)) };
        maps[i] = (mt_value){ .type = MT_VALUE_MAP };
        maps[i].map.pairs = pairs[i];
        maps[i].map.n = 2;
    }
    mt_chat chat = { .maps = maps, .n = n };
    if (mt__chat_render(s, w, &chat, n, false, &w->full, &reason, &ignored) || !w->full.n) return false;
    size_t found = mt_slice_find(mt_slice_of(&w->full), (mt_slice){ sentinel, sizeof sentinel - 1 });
    *at = found + sizeof sentinel - 1;
    return found != SIZE_MAX;
}

static mt_rc keep_end(mt_sampler *s, const char *text, size_t n, mt_err *err)
{
    s->end = mt_arena_strndup(&s->arena, text, n);
    s->n_end = n;
    return s->end ? MT_OK : mt_fail(err, MT_ENOMEM, "no host memory for the chat template");
}

mt_rc mt__chat_find_end(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    size_t at, end;
    s->end = "";
    if (probe(s, w, 2, &at)) {
        MT_TRY(mt__chat_end_after(s, w, &w->full, at, &end, err));
        if (end) return keep_end(s, w->full.s + at, end - at, err);
        size_t n = w->full.n; /* an end mark spelled in ordinary tokens */
        while (n > at && mt_is_space(w->full.s[n - 1])) n--;
        if (n > at) return keep_end(s, w->full.s + at, n - at, err);
        if (probe(s, w, 3, &at)) {
            MT_TRY(mt__chat_end_after(s, w, &w->full, at, &end, err));
            if (end) return keep_end(s, w->full.s + at, end - at, err);
        }
    }
    const char *eos = mt_tokenizer_role_text(s->tok, MT_TOK_EOS);
    if (!eos) {
        mt_str_printf(
            &s->notice,
            "%sthe template ends answers with nothing and the tokenizer names no eos token: the model will not learn to stop",
            s->notice.n ? "; " : "");
        return MT_OK;
    }
    mt_str_printf(&s->notice, "%sthe template puts no end-of-turn token behind an answer: %s is added", s->notice.n ? "; " : "",
                  eos);
    return keep_end(s, eos, strlen(eos), err);
}
