#include "data/sampler_impl.h"

#include "base/log.h"
#include "data/thoughts.h"

#include <string.h>

const char *mt_reason_text(mt_reason r)
{
    static const char *const texts[MT_REASONS] = {
#define MT_REASON_TEXT(name, text) [MT_REASON_##name] = text,
        MT_REASON_LIST(MT_REASON_TEXT)
#undef MT_REASON_TEXT
    };
    return (unsigned)r < MT_REASONS ? texts[r] : "?";
}

/* ---- the scratch ---- */

mt_rc mt_sampler_scratch_create(mt_sampler_scratch **out, const mt_sampler *s, mt_err *err)
{
    *out = NULL;
    mt_sampler_scratch *w = mt_calloc(1, sizeof *w);
    if (!w) return mt_no_memory(err, "the samples of a record");
    mt_rc rc = mt_tok_scratch_create(&w->tok, s->tok, err);
    w->context = rc ? NULL : mt_calloc(s->n_variables + 4, sizeof *w->context);
    if (!rc && !w->context) rc = mt_no_memory(err, "the samples of a record");
    if (rc) {
        mt_sampler_scratch_free(w);
        return rc;
    }
    *out = w;
    return MT_OK;
}

void mt_sampler_scratch_free(mt_sampler_scratch *w)
{
    if (!w) return;
    mt_arena_free(&w->arena);
    mt_arena_free(&w->render);
    mt_str_free(&w->full);
    mt_str_free(&w->prompt);
    mt_str_free(&w->turn);
    mt_str_free(&w->text);
    mt_str_free(&w->texts);
    mt_jinja_spans_free(&w->blocks);
    mt_tok_scratch_free(w->tok);
    mt_tokens_free(&w->tokens);
    mt_tokens_free(&w->part);
    mt_tokens_free(&w->kept);
    mt_free(w->spans);
    mt_free(w->context);
    mt_free(w->ids);
    mt_free(w->labels);
    mt_free(w->places);
    mt_free(w->samples);
    mt_free(w);
}

void mt_sampler_scratch_heed(mt_sampler_scratch *w, const atomic_bool *stop) { mt_tok_scratch_heed(w->tok, stop); }

/* ---- rendering ---- */

static mt_value list_of(const mt_value *items, size_t n)
{
    mt_value v = { .type = MT_VALUE_LIST };
    v.list.items = items;
    v.list.n = n;
    return v;
}

static void sampler_put(mt_value *map, mt_pair *pairs, const char *key, mt_value v)
{
    pairs[map->map.n++] = (mt_pair){ .key = key, .key_n = strlen(key), .value = v };
}

mt_rc mt__chat_render(const mt_sampler *s, mt_sampler_scratch *w, const mt_chat *chat, size_t n, bool generation_prompt,
                      mt_str *out, mt_reason *reason, mt_err *err)
{
    const mt_jinja *t = s->tool_use && chat->tools.type == MT_VALUE_LIST ? s->tool_use : s->chat;
    mt_value context = { .type = MT_VALUE_MAP }, yes = { .type = MT_VALUE_BOOL };
    yes.b = generation_prompt;
    context.map.pairs = w->context;
    sampler_put(&context, w->context, "messages", list_of(chat->maps, n));
    sampler_put(&context, w->context, "tools", chat->tools);
    sampler_put(&context, w->context, "documents", (mt_value){ .type = MT_VALUE_NULL });
    sampler_put(&context, w->context, "add_generation_prompt", yes);
    memcpy(w->context + context.map.n, s->variables, s->n_variables * sizeof *s->variables);
    context.map.n += s->n_variables;
    mt_str_clear(out);
    w->blocks.n = 0;
    mt_jinja_options options = { .now = &s->now, .scratch = &w->render, .max_steps = s->config.max_steps };
    mt_rc rc = mt_jinja_render(t, &context, &options, out, &w->blocks, err);
    if (rc == MT_EINVAL || rc == MT_ERANGE) *reason = MT_REASON_TEMPLATE;
    if (!rc && generation_prompt) mt_str_add(out, s->header, s->n_header);
    return rc;
}

/* ---- samples ---- */

/* Keep tokens [begin, end) as a sample. */
static mt_rc sampler_keep(const mt_sampler *s, mt_sampler_scratch *w, const mt_str *text, size_t begin, size_t end,
                          const mt__span *spans, size_t n_spans, mt_err *err)
{
    size_t n = end - begin;
    MT_TRY(mt_grow(&w->ids, &w->cap_ids, w->n_ids + n, sizeof *w->ids, err));
    MT_TRY(mt_grow(&w->labels, &w->cap_labels, w->n_ids + n, sizeof *w->labels, err));
    MT_TRY(mt_grow(&w->places, &w->cap_places, w->n_places + 1, sizeof *w->places, err));
    int32_t *labels = w->labels + w->n_ids;
    if (n) memcpy(w->ids + w->n_ids, w->tokens.ids + begin, n * sizeof *w->ids);
    for (size_t i = 0; i < n; i++) labels[i] = s->config.train_on_prompt ? w->tokens.ids[begin + i] : -100;
    for (size_t k = 0; k < n_spans; k++)
        for (size_t i = spans[k].begin > begin ? spans[k].begin : begin; i < spans[k].end && i < end; i++)
            labels[i - begin] = w->tokens.ids[i];
    w->places[w->n_places++] = (struct mt__sample_place){ w->n_ids, n, w->texts.n, s->config.keep_text ? text->n : 0, 0 };
    w->n_ids += n;
    if (s->config.keep_text) mt_str_add(&w->texts, text->n ? text->s : "", text->n);
    return mt_str_ok(&w->texts) ? MT_OK : mt_no_memory(err, "the samples of a record");
}

/* Tokens that are learned in [begin, end): the first of a row is never predicted. */
static size_t n_trained(const mt_sampler *s, size_t begin, size_t end, const mt__span *spans, size_t n_spans)
{
    size_t n = 0;
    begin++;
    if (s->config.train_on_prompt) return end > begin ? end - begin : 0;
    for (size_t k = 0; k < n_spans; k++) {
        size_t from = spans[k].begin > begin ? spans[k].begin : begin, to = spans[k].end < end ? spans[k].end : end;
        if (to > from) n += to - from;
    }
    return n;
}

mt_rc mt__sample_add(const mt_sampler *s, mt_sampler_scratch *w, const mt_str *text, const mt__span *spans, size_t n_spans,
                     mt_overlong overlong, bool *fits, mt_oddities *odd, mt_err *err)
{
    size_t n = w->tokens.n, limit = s->config.max_seq_len > 0 ? (size_t)s->config.max_seq_len : SIZE_MAX;
    *fits = false;
    if (n <= limit || overlong == MT_OVERLONG_SKIP) {
        *fits = n <= limit && (s->config.as_is || n_trained(s, 0, n, spans, n_spans));
        return *fits ? sampler_keep(s, w, text, 0, n, spans, n_spans, err) : MT_OK;
    }
    if (overlong != MT_OVERLONG_SPLIT) {
        size_t learned = n_trained(s, 0, limit, spans, n_spans);
        *fits = learned > 0;
        if (!*fits) return MT_OK;
        odd->truncated++;
        odd->answers_cut += learned < n_trained(s, 0, n, spans, n_spans);
        MT_TRY(sampler_keep(s, w, text, 0, limit, spans, n_spans, err));
        w->places[w->n_places - 1].n_uncut = n;
        return MT_OK;
    }
    for (size_t at = 0; at < n; at += limit) {
        size_t end = n - at > limit ? at + limit : n;
        if (!n_trained(s, at, end, spans, n_spans)) continue;
        *fits = true;
        MT_TRY(sampler_keep(s, w, text, at, end, spans, n_spans, err));
    }
    return MT_OK;
}

/* A document for pre-training: as the tokenizer wraps it, then eos, all of it learned. */
static mt_rc run_text(const mt_sampler *s, mt_sampler_scratch *w, const mt_value *record, mt_reason *reason, mt_oddities *odd,
                      mt_err *err)
{
    const mt_chat_reader r = { .a = &w->arena, .reason = reason, .err = err };
    const mt_value *v = mt_value_get(record, s->layout.text);
    int32_t eos = mt_tokenizer_role_id(s->tok, MT_TOK_EOS);
    bool fits;
    if (!v) return mt__chat_bad(&r, MT_REASON_MISSING_COLUMN, "no column \"%s\"", s->layout.text);
    if (v->type != MT_VALUE_STR)
        return mt__chat_bad(&r, MT_REASON_BAD_ANSWER, "\"%s\" should be text and is %s", s->layout.text, mt_value_type_name(v));
    if (!v->str.n) return MT_OK; /* a blank line between others is not a document, and not bad */
    w->tokens.n = 0;
    MT_TRY(mt_tokenizer_encode(s->tok, w->tok, v->str.s, v->str.n, MT_ENCODE_SPECIAL | MT_ENCODE_RANGES, &w->tokens, err));
    if (eos >= 0 && (!w->tokens.n || w->tokens.ids[w->tokens.n - 1] != eos)) {
        MT_TRY(mt_grow(&w->tokens.ids, &w->tokens.cap_ids, w->tokens.n + 1, sizeof *w->tokens.ids, err));
        w->tokens.ids[w->tokens.n++] = eos;
    }
    mt_str_clear(&w->text);
    if (s->config.keep_text) mt_str_add(&w->text, v->str.s, v->str.n);
    mt_overlong overlong = s->config.overlong == MT_OVERLONG_AUTO ? MT_OVERLONG_SPLIT : s->config.overlong;
    MT_TRY(mt__sample_add(s, w, &w->text, &(mt__span){ 0, w->tokens.n }, 1, overlong, &fits, odd, err));
    if (fits) return MT_OK;
    if (w->tokens.n < 2)
        return mt__chat_bad(&r, MT_REASON_NO_ANSWER, "\"%s\" is a single token: there is nothing to predict", s->layout.text);
    return mt__chat_bad(&r, MT_REASON_TOO_LONG, "it has %zu tokens; max_seq_len is %lld", w->tokens.n,
                        (long long)s->config.max_seq_len);
}

/* A list of whole numbers as int32 in `out`, which has room. */
static mt_rc read_numbers(const mt_chat_reader *r, const mt_value *list, const char *column, int64_t least, int32_t *out)
{
    for (size_t i = 0; i < list->list.n; i++) {
        const mt_value *v = &list->list.items[i];
        if (v->type != MT_VALUE_INT || v->i < least || v->i > INT32_MAX)
            return mt__chat_bad(r, MT_REASON_BAD_ANSWER, "entry %zu of \"%s\" should be a token id", i + 1, column);
        out[i] = (int32_t)v->i;
    }
    return MT_OK;
}

/* The runs of w->tokens that labels have, as spans. */
static mt_rc spans_of_labels(const mt_chat_reader *r, mt_sampler_scratch *w, const int32_t *labels)
{
    const int32_t *ids = w->tokens.ids;
    w->n_spans = 0;
    for (size_t i = 0, end; i < w->tokens.n; i = end) {
        for (end = i; end < w->tokens.n && labels[end] == ids[end];) end++;
        MT_TRY(mt_grow(&w->spans, &w->cap_spans, w->n_spans + 1, sizeof *w->spans, r->err));
        if (end > i) w->spans[w->n_spans++] = (mt__span){ i, end };
        for (; end < w->tokens.n && labels[end] != ids[end]; end++)
            if (labels[end] >= 0)
                return mt__chat_bad(r, MT_REASON_BAD_ANSWER, "label %zu is neither -100 nor the token itself", end + 1);
    }
    return MT_OK;
}

/* Tokens as they are. */
static mt_rc run_ids(const mt_sampler *s, mt_sampler_scratch *w, const mt_value *record, mt_reason *reason, mt_oddities *odd,
                     mt_err *err)
{
    const mt_chat_reader r = { .a = &w->arena, .reason = reason, .err = err };
    const mt_record_layout *l = &s->layout;
    const mt_value *ids = mt_value_get(record, l->ids), *labels = l->labels ? mt_value_get(record, l->labels) : NULL;
    const char *labels_name = labels ? l->labels : l->ids;
    bool fits;
    if (!labels || labels->type == MT_VALUE_NULL) labels = ids;
    if (!ids || ids->type != MT_VALUE_LIST || labels->type != MT_VALUE_LIST)
        return mt__chat_bad(&r, MT_REASON_MISSING_COLUMN, "\"%s\"%s%s should be lists of token ids", l->ids,
                            l->labels ? " and " : "", l->labels ? l->labels : "");
    size_t n = ids->list.n;
    if (labels->list.n != n) return mt__chat_bad(&r, MT_REASON_BAD_ANSWER, "it has %zu tokens and %zu labels", n, labels->list.n);
    int32_t *targets = mt_arena_calloc(&w->arena, n + 1, sizeof *targets);
    if (!targets) return mt_no_memory(err, "the samples of a record");
    MT_TRY(mt_grow(&w->tokens.ids, &w->tokens.cap_ids, n + 1, sizeof *w->tokens.ids, err));
    MT_TRY(read_numbers(&r, ids, l->ids, 0, w->tokens.ids));
    MT_TRY(read_numbers(&r, labels, labels_name, INT32_MIN, targets));
    w->tokens.n = n;
    MT_TRY(spans_of_labels(&r, w, targets));
    mt_str_clear(&w->text);
    MT_TRY(mt__sample_add(s, w, &w->text, w->spans, w->n_spans, s->config.overlong, &fits, odd, err));
    if (fits) return MT_OK;
    return mt__chat_bad(&r, n > (size_t)s->config.max_seq_len && s->config.max_seq_len ? MT_REASON_TOO_LONG : MT_REASON_NO_ANSWER,
                        "of its %zu tokens none is trained within max_seq_len (%lld)", n, (long long)s->config.max_seq_len);
}

/* Thoughts that a prompt or an answer opens, and those that nothing closes. */
static void count_thoughts(const mt_sampler *s, const mt_chat *chat, mt_oddities *odd)
{
    for (size_t i = 0; i < chat->n; i++) {
        const mt_message *m = &chat->items[i];
        mt_slice said = { m->content.str.s, m->content.str.n };
        if (!m->trained || m->calls.type == MT_VALUE_LIST || m->thought.type == MT_VALUE_STR) continue;
        if (!s->opens_thought && !mt__opens_thought(said)) continue;
        odd->thoughts_begun++;
        odd->thoughts_open += !mt__closes_thought(said) && !mt__chat_owes_thought(s, m);
    }
}

static mt_rc run_chat(const mt_sampler *s, mt_sampler_scratch *w, const mt_value *record, mt_reason *reason, mt_oddities *odd,
                      mt_err *err)
{
    mt_chat chat;
    MT_TRY(mt_chat_read(&chat, &w->arena, &s->layout, &s->rules, record, reason, err));
    if (*reason != MT_REASON_NONE) return MT_OK;
    MT_TRY(mt__chat_mask(s, w, &chat, reason, odd, err));
    odd->trailing_user_cut += chat.cut_at_end;
    odd->tools_as_text += chat.flattened;
    odd->thoughts_lost += (int64_t)chat.n_lost;
    odd->thoughts_closed += (int64_t)chat.n_closed;
    count_thoughts(s, &chat, odd);
    return MT_OK;
}

static void start(mt_sampler_scratch *w)
{
    mt_arena_reset(&w->arena);
    mt_str_clear(&w->texts);
    w->n_ids = w->n_places = 0;
}

static mt_rc hand_out(const mt_sampler *s, mt_sampler_scratch *w, const mt_sample **samples, size_t *n, mt_err *err)
{
    MT_TRY(mt_grow(&w->samples, &w->cap_samples, w->n_places + 1, sizeof *w->samples, err));
    for (size_t i = 0; i < w->n_places; i++) {
        const struct mt__sample_place *p = &w->places[i];
        w->samples[i] = (mt_sample){
            .ids = w->ids + p->ids, .labels = w->labels + p->ids, .n = (int64_t)p->n, .n_uncut = (int64_t)p->n_uncut
        };
        if (s->config.keep_text) {
            w->samples[i].text = w->texts.n ? w->texts.s + p->text : "";
            w->samples[i].n_text = p->n_text;
        }
    }
    *samples = w->samples;
    *n = w->n_places;
    return MT_OK;
}

mt_rc mt_sampler_run(const mt_sampler *s, mt_sampler_scratch *w, const mt_value *record, const mt_sample **samples, size_t *n,
                     mt_reason *reason, mt_oddities *odd, mt_err *err)
{
    *samples = NULL;
    *n = 0;
    *reason = MT_REASON_NONE;
    start(w);
    mt_rc rc = s->config.as_is ? MT_OK : mt_record_layout_check(&s->layout, record, err);
    if (rc) return rc;
    if (s->layout.ids)
        rc = run_ids(s, w, record, reason, odd, err);
    else if (mt_record_layout_is_text(&s->layout, record))
        rc = run_text(s, w, record, reason, odd, err);
    else
        rc = run_chat(s, w, record, reason, odd, err);
    if (rc == MT_ERANGE && *reason == MT_REASON_NONE) *reason = MT_REASON_TOKENIZER; /* from mt_tokenizer_encode */
    if (*reason != MT_REASON_NONE) return MT_OK;
    return rc ? rc : hand_out(s, w, samples, n, err);
}

mt_rc mt_sampler_prompt(const mt_sampler *s, mt_sampler_scratch *w, const mt_value *record, const mt_sample **sample,
                        mt_reason *reason, mt_err *err)
{
    mt_chat chat;
    mt_chat_rules rules = s->rules;
    size_t n;
    *sample = NULL;
    rules.as_is = true;
    start(w);
    MT_TRY(mt_chat_read(&chat, &w->arena, &s->layout, &rules, record, reason, err));
    if (*reason != MT_REASON_NONE) return MT_OK;
    mt_rc rc = mt__chat_render(s, w, &chat, chat.n, true, &w->full, reason, err);
    if (*reason != MT_REASON_NONE) return MT_OK;
    MT_TRY(rc);
    if (s->thought_in_prompt) mt_str_add(&w->full, s->thought, s->n_thought);
    if (!mt_str_ok(&w->full)) return mt_no_memory(err, "the samples of a record");
    w->tokens.n = 0;
    rc = mt_tokenizer_encode(s->tok, w->tok, w->full.n ? w->full.s : "", w->full.n, MT_ENCODE_RANGES, &w->tokens, err);
    if (rc == MT_ERANGE) *reason = MT_REASON_TOKENIZER;
    if (rc) return rc == MT_ERANGE ? MT_OK : rc;
    MT_TRY(sampler_keep(s, w, &w->full, 0, w->tokens.n, NULL, 0, err));
    return hand_out(s, w, sample, &n, err);
}

uint64_t mt_sampler_fingerprint(const mt_sampler *s) { return s->fingerprint; }
const char *mt_sampler_notice(const mt_sampler *s) { return s->notice.n ? s->notice.s : ""; }
const char *mt_sampler_remark(const mt_sampler *s) { return s->remark.n ? s->remark.s : ""; }
const char *mt_sampler_end(const mt_sampler *s) { return s->end; }
const char *mt_sampler_spell(const mt_sampler *s, int32_t id, size_t *n) { return mt_tokenizer_token(s->tok, id, n); }

const char *mt_sampler_template(const mt_sampler *s, const char **name)
{
    if (name) *name = s->template_name;
    return s->template_text;
}

bool mt_sampler_shows_date(const mt_sampler *s)
{
    return mt_jinja_reads(s->chat, "strftime_now") || (s->tool_use && mt_jinja_reads(s->tool_use, "strftime_now"));
}

const char *mt_sampler_new_template(const mt_sampler *s) { return s->own_template ? NULL : s->template_text; }

void mt_sampler_close(mt_sampler *s)
{
    if (!s) return;
    mt_jinja_free(s->chat);
    mt_jinja_free(s->tool_use);
    mt_str_free(&s->notice);
    mt_str_free(&s->remark);
    mt_arena_free(&s->arena);
    mt_free(s);
}
