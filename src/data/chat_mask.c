/* chat_mask.c - which tokens of a conversation are trained.
 *
 * For answer k let P be the rendering of the turns before it with the generation prompt, and A the answer.  The truth is P, A,
 * end of turn.  One rendering F of the whole conversation suffices for all answers if each truth is a prefix of F, and if P
 * tokenized alone is a prefix of F's tokens (the model never sees a token that straddles the end of P when it answers).  Then F
 * is one sample.  Otherwise every answer is a sample: P's tokens, then those of answer and end.  Where these begin with all
 * tokens of the sample before, the two are one again: Qwen3's template shows the last answer alone with an empty thought.
 *
 * Between P and A a template may put white space (Llama 2: " answer </s>") or a header, which is then trained with the answer.
 * An empty thought that it puts there is not, unless thoughts are requested (mt__chat_find_thought).  {% generation %} blocks
 * mark themselves what is trained.
 *
 * F shows what the template makes of A, so a template that changes answers is detected: it may trim them or omit thoughts (the
 * sample keeps them), but any other change stops the run. */
#include "data/sampler_impl.h"
#include "data/thoughts.h"
#include "jinja/chars.h"

typedef struct masker {
    const mt_sampler *s;
    mt_sampler_scratch *w;
    const mt_chat *chat;
    mt_reason *reason;
    mt_err *err;
} masker;

/* The bytes of white space in t that stand before `said`; SIZE_MAX: something else does. */
static size_t gap_before(mt_slice t, mt_slice said)
{
    for (size_t gap = 0; gap <= t.n; gap++) {
        if (mt_slice_starts(mt_slice_from(t, gap), said)) return gap;
        if (gap < t.n && !mt_is_space(t.s[gap])) break;
    }
    return SIZE_MAX;
}

/* Without the white space that a template's trim and strip take: Python's, so no-break and ideographic spaces, too. */
static mt_slice strip_end(mt_slice t) { return mt_slice_upto(t, mt__j_rstrip(t.s, t.n)); }
static mt_slice strip(mt_slice t) { return t.n ? strip_end(mt_slice_from(t, mt__j_space_prefix(t.s, t.n))) : t; }

/* ---- renderings ---- */

static mt_slice content_of(const mt_message *m) { return (mt_slice){ m->content.str.s, m->content.str.n }; }
/* An answer whose form only the template knows. */
static bool is_structured(const mt_message *m) { return m->calls.type == MT_VALUE_LIST || m->thought.type == MT_VALUE_STR; }

static mt_rc render(const masker *m, size_t n, bool generation_prompt, mt_str *out)
{
    return mt__chat_render(m->s, m->w, m->chat, n, generation_prompt, out, m->reason, m->err);
}

/* The template did something to an answer: fatal, with the example. */
static mt_rc changed(const masker *m, size_t k, mt_slice rendered)
{
    mt_slice a = content_of(&m->chat->items[k]);
    int n_a = a.n > 160 ? 160 : (int)a.n;
    mt_slice tail = rendered.n > 240 ? mt_slice_from(rendered, rendered.n - 240) : rendered;
    while (tail.n && ((unsigned char)*tail.s & 0xc0) == 0x80) tail = mt_slice_from(tail, 1);
    return mt_fail(m->err, MT_EFORMAT,
                   "the chat template changes the text of an answer, so what would be trained is not what the data says.\n  "
                   "answer:   %.*s%s\n  rendered: "
                   "...%.*s\nchoose a built-in template with dataset.template, or correct the model's",
                   n_a, a.n ? a.s : "", (size_t)n_a < a.n ? "..." : "", (int)tail.n, tail.s);
}

/* The text beside calls is in what the template wrote.  Templates may trim it, and take thoughts out of it. */
static bool shows_text(const mt_message *msg, mt_slice tail)
{
    mt_slice text = strip(content_of(msg));
    bool thinks = msg->thought.type == MT_VALUE_STR || mt__without_thought(content_of(msg)).n < msg->content.str.n;
    return !text.n || thinks || mt_slice_has(tail, text);
}

static bool shows_calls(const mt_message *msg, mt_slice tail)
{
    for (size_t i = 0; msg->calls.type == MT_VALUE_LIST && i < msg->calls.list.n; i++) {
        const mt_value *name = mt_value_get(mt_value_get(&msg->calls.list.items[i], "function"), "name");
        if (!mt_slice_has(tail, (mt_slice){ name->str.s, name->str.n })) return false;
    }
    return true;
}

/* Every call, and the text beside it, must be seen in what the template wrote. */
static mt_rc check_calls(const masker *m, size_t k, mt_slice tail)
{
    const mt_message *msg = &m->chat->items[k];
    int n_tail = tail.n > 400 ? 400 : (int)tail.n;
    if (!shows_calls(msg, tail))
        return mt_fail(
            m->err, MT_EFORMAT,
            "the chat template does not show tool calls: this data needs a model whose template does.\n  rendered: ...%.*s",
            n_tail, tail.s);
    if (shows_text(msg, tail)) return MT_OK;
    if (msg->calls.type != MT_VALUE_LIST) return changed(m, k, tail);
    mt_slice text = content_of(msg);
    return mt_fail(
        m->err, MT_EFORMAT,
        "the chat template leaves out the text that an answer has beside its tool calls.\n  text:     %.*s\n  rendered: "
        "...%.*s\nremove such texts from the data, or choose a model whose template shows them",
        text.n > 160 ? 160 : (int)text.n, text.s, n_tail, tail.s);
}

/* Where the end of the last turn begins in its rendering; SIZE_MAX: none after the prompt. */
static size_t find_end(const masker *m, mt_slice t, size_t n_prompt)
{
    mt_slice end = { m->s->end, m->s->n_end };
    size_t at = end.n ? mt_slice_find_last(t, end) : SIZE_MAX;
    return at != SIZE_MAX && at + end.n > n_prompt ? at : SIZE_MAX;
}

/* The last turn with its end, without the template's text after it. */
static mt_slice upto_turn_end(const masker *m, mt_slice t, size_t n_prompt)
{
    size_t at = find_end(m, t, n_prompt), n = mt_slice_trim_end(t).n;
    if (at != SIZE_MAX) n = at + m->s->n_end;
    return mt_slice_upto(t, n > n_prompt ? n : n_prompt);
}

/* The text that is missing after the calls or the thought and answer of turn k, rendered as t. */
static mt_slice owed_end(const masker *m, size_t k, mt_slice t, size_t n_prompt)
{
    bool open = find_end(m, t, n_prompt) == SIZE_MAX;
    if (m->chat->items[k].calls.type == MT_VALUE_LIST) return (mt_slice){ m->s->calls_end, open ? m->s->n_calls_end : 0 };
    return (mt_slice){ m->s->end, open ? m->s->n_end : 0 };
}

/* ---- tokens ---- */

/* The first token at or after byte `at`. */
static size_t token_at(const mt_tokens *t, size_t at)
{
    size_t lo = 0, hi = t->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (t->ranges[mid].start < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static mt_rc encode(const masker *m, mt_slice t, mt_tokens *out)
{
    out->n = 0;
    return mt_tokenizer_encode(m->s->tok, m->w->tok, t.s, t.n, MT_ENCODE_RANGES, out, m->err);
}

/* ---- long conversations ---- */

/* Each answer needs a rendering of all turns before it, so a conversation of n turns would cost n * n.  Nothing beyond
 * max_seq_len is kept, so nothing beyond it is rendered. */
enum { MANY_TURNS = 64, LOST_IN_A_ROW = 64 };

/* The first byte of the full rendering that is cut off; SIZE_MAX: none is, or it is not worth a look. */
static mt_rc find_cut(const masker *m, size_t *cut)
{
    const mt_sampler_config *c = &m->s->config;
    *cut = SIZE_MAX;
    if (m->chat->n < MANY_TURNS || c->max_seq_len <= 0 || c->overlong == MT_OVERLONG_SPLIT) return MT_OK;
    MT_TRY(encode(m, mt_slice_of(&m->w->full), &m->w->tokens));
    if (m->w->tokens.n > (size_t)c->max_seq_len) *cut = m->w->tokens.ranges[c->max_seq_len].start;
    return MT_OK;
}

/* ---- one sample for all ---- */

/* The {% generation %} block of answer k in the last rendering of n messages; NULL: blocks and answers do not pair up. */
static const mt_jinja_span *block_of(const masker *m, size_t k, size_t n)
{
    size_t n_answers = 0, ordinal = 0;
    for (size_t i = 0; i < n; i++)
        if (m->chat->items[i].role == MT_ROLE_ASSISTANT) {
            if (i == k) ordinal = n_answers;
            n_answers++;
        }
    return m->w->blocks.n == n_answers ? &m->w->blocks.items[ordinal] : NULL;
}

static bool block_holds(mt_slice t, const mt_jinja_span *b, mt_slice answer)
{
    return mt_slice_has((mt_slice){ t.s + b->begin, b->end - b->begin }, answer);
}

/* Answer k in the full rendering, after its prompt; *nested false: it is not where it should be. */
static mt_rc place_answer(const masker *m, size_t k, size_t n_prompt, mt__span *out, bool *nested)
{
    mt_str *full = &m->w->full;
    mt_slice f = mt_slice_of(full), answer = mt__undouble(mt_slice_upto(f, n_prompt), content_of(&m->chat->items[k])),
             tail = mt_slice_from(f, n_prompt);
    size_t gap = gap_before(tail, answer), at = n_prompt + gap + answer.n, end;
    *nested = gap != SIZE_MAX && !mt__chat_owes_thought(m->s, &m->chat->items[k]);
    if (!*nested) return MT_OK;
    MT_TRY(mt__chat_end_after(m->s, m->w, full, at, &end, m->err));
    if (!end && k + 1 == m->chat->n &&
        !mt_slice_trim_end(mt_slice_from(f, at)).n) { /* the last turn, and the template does not end it */
        full->n = at;
        mt_str_add(full, m->s->end, m->s->n_end);
        end = full->n;
    }
    *nested = end > 0;
    *out = (mt__span){ n_prompt, end };
    return MT_OK;
}

/* The same for calls: the turn's own rendering says where it ends. */
static mt_rc place_calls(const masker *m, size_t k, size_t n_prompt, mt__span *out, bool *nested)
{
    MT_TRY(render(m, k + 1, false, &m->w->turn));
    mt_slice f = mt_slice_of(&m->w->full), t = mt_slice_of(&m->w->turn);
    *nested = mt_slice_starts(t, mt_slice_upto(f, n_prompt));
    if (!*nested) return MT_OK;
    mt_slice owed = owed_end(m, k, t, n_prompt);
    t = upto_turn_end(m, t, n_prompt);
    MT_TRY(check_calls(m, k, mt_slice_from(t, n_prompt)));
    bool thought_added = m->chat->items[k].thought.type == MT_VALUE_NULL &&
                         mt__skip_empty_thought(mt_slice_from(t, n_prompt)).s != mt_slice_from(t, n_prompt).s;
    *nested = mt_slice_starts(f, t) && !thought_added && !mt__chat_owes_thought(m->s, &m->chat->items[k]);
    if (*nested && owed.n && k + 1 == m->chat->n) { /* the last turn, and the template does not end it */
        m->w->full.n = t.n;
        mt_str_add(&m->w->full, owed.s, owed.n);
    } else if (owed.n)
        *nested = *nested && mt_slice_starts(mt_slice_from(f, t.n), owed);
    *out = (mt__span){ n_prompt, t.n + owed.n };
    return MT_OK;
}

/* Spans of all trained answers in the full rendering; *nested false: at least one is not a prefix.  Of those that are cut off,
 * one span stands for all: *n_placed are those before. */
static mt_rc place_all(const masker *m, size_t *n_placed, bool *nested)
{
    mt_sampler_scratch *w = m->w;
    size_t cut;
    *nested = true;
    w->n_spans = 0;
    MT_TRY(mt_grow(&w->spans, &w->cap_spans, m->chat->n, sizeof *w->spans, m->err));
    MT_TRY(render(m, m->chat->n, false, &w->full));
    for (size_t k = 0; *nested && k < m->chat->n; k++) /* before other renderings replace the blocks */
        if (m->chat->items[k].trained) {
            const mt_jinja_span *b = w->blocks.n ? block_of(m, k, m->chat->n) : NULL;
            w->spans[w->n_spans++] = b && block_holds(mt_slice_of(&w->full), b, content_of(&m->chat->items[k]))
                                         ? (mt__span){ b->begin, b->end }
                                         : (mt__span){ 0, 0 };
        }
    MT_TRY(find_cut(m, &cut));
    *n_placed = w->n_spans;
    size_t i = 0;
    for (size_t k = 0; *nested && k < m->chat->n; k++) {
        if (!m->chat->items[k].trained) continue;
        mt__span *span = &w->spans[i++];
        MT_TRY(render(m, k, true, &w->prompt));
        if (w->prompt.n >= cut) {
            *n_placed = i - 1;
            *span = (mt__span){ cut, w->full.n };
            w->n_spans = i;
            return MT_OK;
        }
        *nested = mt_slice_starts(mt_slice_of(&w->full), mt_slice_of(&w->prompt)) && (!span->end || span->begin >= w->prompt.n);
        if (!*nested || span->end) continue;
        if (is_structured(&m->chat->items[k]))
            MT_TRY(place_calls(m, k, w->prompt.n, span, nested));
        else
            MT_TRY(place_answer(m, k, w->prompt.n, span, nested));
    }
    return MT_OK;
}

/* ---- tokens of a text ---- */

/* True if the text up to `at`, tokenized on its own, gives the tokens it has in the whole.  Only what follows the last special
 * token before it needs a look: no token reaches across one. */
static mt_rc splits_at(const masker *m, mt_slice t, size_t at, bool *out)
{
    mt_sampler_scratch *w = m->w;
    size_t b = token_at(&w->tokens, at), k = b;
    *out = !b || w->tokens.ranges[b - 1].end <= at;
    if (!*out) return MT_OK;
    while (k > 0 && !mt_tokenizer_is_special(m->s->tok, w->tokens.ids[k - 1])) k--;
    if (k > 0) k--;
    size_t start = k ? w->tokens.ranges[k].start : 0;
    w->part.n = 0;
    MT_TRY(mt_tokenizer_encode(m->s->tok, w->tok, t.s + start, at - start, 0, &w->part, m->err));
    *out = w->part.n == b - k && (!w->part.n || !memcmp(w->part.ids, w->tokens.ids + k, w->part.n * sizeof *w->part.ids));
    return MT_OK;
}

/* Append the tokens of the model's text.  Vocabularies that mark words by a leading space would add one at the start of a text,
 * but not after a line break. */
static mt_rc append_answer(const masker *m, mt_slice t)
{
    static const char mark[] = "\xe2\x96\x81";
    mt_sampler_scratch *w = m->w;
    size_t first = 0, n_token;
    MT_TRY(encode(m, t, &w->part));
    const char *token = w->part.n ? mt_tokenizer_token(m->s->tok, w->part.ids[0], &n_token) : NULL;
    if (token && n_token >= 3 && !memcmp(token, mark, 3) && t.n && *t.s != ' ' && (t.n < 3 || memcmp(t.s, mark, 3) != 0)) {
        mt_str line = { 0 };
        mt_str_putc(&line, '\n');
        mt_str_add(&line, t.s, t.n);
        mt_rc rc = mt_str_ok(&line) ? encode(m, mt_slice_of(&line), &w->part) : mt_no_memory(m->err, "a sample");
        mt_str_free(&line);
        MT_TRY(rc);
        first = token_at(&w->part, 1);
    }
    size_t n = w->part.n - first;
    MT_TRY(mt_grow(&w->tokens.ids, &w->tokens.cap_ids, w->tokens.n + n, sizeof *w->tokens.ids, m->err));
    if (n) memcpy(w->tokens.ids + w->tokens.n, w->part.ids + first, n * sizeof *w->part.ids);
    w->tokens.n += n;
    return MT_OK;
}

/* ---- samples ---- */

static mt_rc add_whole(const masker *m, size_t n_placed, bool *nested, bool *fits, mt_oddities *odd)
{
    mt_sampler_scratch *w = m->w;
    mt_slice f = mt_slice_of(&w->full);
    if (!mt_str_ok(&w->full)) return mt_no_memory(m->err, "a sample");
    MT_TRY(encode(m, f, &w->tokens));
    for (size_t i = 0; *nested && i < n_placed; i++) MT_TRY(splits_at(m, f, w->spans[i].begin, nested));
    if (!*nested) return MT_OK;
    for (size_t i = 0; i < w->n_spans; i++)
        w->spans[i] = (mt__span){ token_at(&w->tokens, w->spans[i].begin), token_at(&w->tokens, w->spans[i].end) };
    return mt__sample_add(m->s, w, &w->full, w->spans, w->n_spans, m->s->config.overlong, fits, odd, m->err);
}

static size_t common_prefix(mt_slice a, mt_slice b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.s[n] == b.s[n]) n++;
    return n;
}

static mt_slice space_before(mt_slice t) { return mt_slice_upto(t, t.n - mt_slice_skip_space(t).n); }

/* What the template puts between prompt and answer besides an empty thought, such as the channel of an answer or GLM-4.5's line
 * break before a thought: the model has to write it.  Nothing if the turn is not the prompt and then the answer. */
static mt_slice lead_of(mt_slice shown, mt_slice prompt, mt_slice said)
{
    static const mt_slice nothing = { "", 0 };
    if (!mt_slice_starts(shown, prompt) || !mt_slice_ends(shown, said) || shown.n < prompt.n + said.n) return nothing;
    mt_slice between = mt_slice_from(mt_slice_upto(shown, shown.n - said.n), prompt.n),
             lead = mt__skip_shown_thought(prompt, between);
    if (mt_slice_trim_end(lead).n) return lead;
    return lead.s != between.s && !mt__thought_open_at_end(prompt) ? space_before(between) : nothing;
}

/* The template's text before an answer, and the empty thought that an answer without one needs, which may begin with that text;
 * *begin moves past a thought that belongs to the prompt. */
static void write_thought(const masker *m, size_t k, mt_slice before, size_t *begin)
{
    mt_str *out = &m->w->text;
    bool owed = mt__chat_owes_thought(m->s, &m->chat->items[k]);
    if (!owed || !mt_slice_starts((mt_slice){ m->s->thought, m->s->n_thought }, before)) mt_str_add(out, before.s, before.n);
    if (!owed) return;
    mt_str_add(out, m->s->thought, m->s->n_thought);
    if (m->s->thought_in_prompt) *begin = out->n;
}

/* Append the answer, with the gap before it and the end after it, to the prompt in w->text. */
static mt_rc write_answer(const masker *m, size_t k, mt_slice prompt, mt_slice turn, size_t *begin)
{
    mt_str *out = &m->w->text;
    mt_slice answer = content_of(&m->chat->items[k]), said = mt__undouble(prompt, answer);
    size_t end = find_end(m, turn, common_prefix(prompt, turn));
    mt_slice shown = end == SIZE_MAX ? mt_slice_trim_end(turn) : mt_slice_upto(turn, end), trimmed = strip_end(shown);
    if (!mt_slice_ends(shown, said) && !mt_slice_ends(trimmed, strip(answer)) &&
        !mt_slice_ends(trimmed, strip(mt__without_thought(answer))))
        return changed(m, k, turn);
    size_t gap = mt_slice_starts(shown, prompt) ? gap_before(mt_slice_from(shown, prompt.n), strip_end(said)) : 0;
    mt_slice before = lead_of(shown, prompt, said);
    if (gap != SIZE_MAX) before = gap ? (mt_slice){ shown.s + prompt.n, gap } : (mt_slice){ "", 0 };
    write_thought(m, k, before, begin);
    mt_str_add(out, said.s, said.n);
    mt_str_add(out, m->s->end, m->s->n_end);
    return MT_OK;
}

/* Where the calls of turn k begin in its rendering, if not after the generation prompt: where a plain answer in their place begins.
 * Mistral Nemo's template shows the system prompt in the last question alone, and only until it is answered.  SIZE_MAX: unknown. */
static mt_rc find_calls(const masker *m, size_t k, mt_slice turn, size_t *at)
{
    static const char said[] = "QUITE-UNLIKELY-ANSWER";
    const mt_slice sentinel = { said, sizeof said - 1 };
    const mt_pair answer[] = { { "role", 4, mt__text_value("assistant", 9) },
                               { "content", 7, mt__text_value(sentinel.s, sentinel.n) } };
    *at = SIZE_MAX;
    if (m->chat->items[k].calls.type != MT_VALUE_LIST || m->chat->items[k].thought.type != MT_VALUE_NULL) return MT_OK;
    mt_value *maps = mt_arena_alloc(&m->w->arena, (k + 1) * sizeof *maps);
    if (!maps) return mt_no_memory(m->err, "a sample");
    memcpy(maps, m->chat->maps, k * sizeof *maps);
    maps[k] = mt__map_of(answer, 2);
    mt_chat plain = { .maps = maps, .n = k + 1, .tools = m->chat->tools };
    mt_reason refused = MT_REASON_NONE;
    mt_rc rc = mt__chat_render(m->s, m->w, &plain, k + 1, false, &m->w->full, &refused, m->err);
    if (refused != MT_REASON_NONE) return MT_OK;
    MT_TRY(rc);
    mt_slice shown = mt_slice_of(&m->w->full);
    size_t found = mt_slice_find_last(shown, sentinel);
    if (found != SIZE_MAX && common_prefix(shown, turn) >= found) *at = found;
    return MT_OK;
}

/* Where a thought begins that the generation prompt has opened, and the template, in the turn, too; SIZE_MAX: not so. */
static size_t find_thought(const masker *m, size_t k, mt_slice prompt, mt_slice turn)
{
    const char *tag = mt__thought_open_at_end(prompt);
    mt_slice opened = mt__without_opening(prompt);
    if (!tag || m->chat->items[k].thought.type != MT_VALUE_STR || !mt_slice_starts(turn, opened)) return SIZE_MAX;
    mt_slice rest = mt_slice_skip_space(mt_slice_from(turn, opened.n)), open = { tag, strlen(tag) };
    if (!mt_slice_starts(rest, open)) return SIZE_MAX;
    return (size_t)(mt_slice_skip_space(mt_slice_from(rest, open.n)).s - turn.s);
}

/* Calls as the template shows them.  It does not show a thought that only the generation prompt opens. */
static mt_rc write_calls(const masker *m, size_t k, mt_slice prompt, mt_slice turn, size_t *begin)
{
    bool owed = mt__chat_owes_thought(m->s, &m->chat->items[k]);
    if (owed && !mt_slice_starts(turn, prompt)) prompt = mt__without_opening(prompt);
    size_t at = prompt.n;
    if (!mt_slice_starts(turn, prompt)) {
        at = find_thought(m, k, prompt, turn);
        if (at == SIZE_MAX) MT_TRY(find_calls(m, k, turn, &at));
    }
    if (at == SIZE_MAX)
        return mt__chat_bad(m, MT_REASON_TEMPLATE,
                            "the chat template writes the %s of turn %zu elsewhere than after its generation prompt",
                            m->chat->items[k].thought.type == MT_VALUE_STR ? "thought" : "calls", k + 1);
    mt_slice tail = mt_slice_from(upto_turn_end(m, turn, at), at);
    MT_TRY(check_calls(m, k, tail));
    mt_slice before = { "", 0 }, shown = tail;
    if (m->chat->items[k].thought.type == MT_VALUE_NULL)
        tail = owed ? mt__skip_shown_thought(prompt, tail) : mt__skip_empty_thought(tail);
    if (tail.s != shown.s && !mt__thought_open_at_end(prompt)) before = space_before(shown);
    write_thought(m, k, before, begin);
    mt_str_add(&m->w->text, tail.s, tail.n);
    mt_slice end = owed_end(m, k, turn, at);
    mt_str_add(&m->w->text, end.s, end.n);
    return MT_OK;
}

/* w->text: prompt, answer and end of turn k; training starts at *begin. */
static mt_rc write_truth(const masker *m, size_t k, size_t *begin)
{
    mt_sampler_scratch *w = m->w;
    MT_TRY(render(m, k, true, &w->prompt));
    MT_TRY(render(m, k + 1, false, &w->turn));
    mt_slice p = mt_slice_of(&w->prompt), t = mt_slice_of(&w->turn);
    const mt_jinja_span *block = w->blocks.n ? block_of(m, k, k + 1) : NULL;
    mt_str_clear(&w->text);
    *begin = p.n;
    if (block && mt_slice_starts(t, p) && block->begin >= p.n && block_holds(t, block, content_of(&m->chat->items[k]))) {
        *begin = block->begin;
        mt_str_add(&w->text, t.s, block->end);
    } else {
        mt_str_add(&w->text, p.s, p.n);
        MT_TRY(is_structured(&m->chat->items[k]) ? write_calls(m, k, p, t, begin) : write_answer(m, k, p, t, begin));
    }
    return mt_str_ok(&w->text) ? MT_OK : mt_no_memory(m->err, "a sample");
}

/* The sample of the answers so far, while the next one may continue it: its spans are w->spans, its tokens w->kept. */
typedef struct unrolling {
    size_t n_samples;
    size_t n_places, n_ids, n_texts; /* of the scratch before it, and the oddities then: to take it back */
    mt_oddities odd;
} unrolling;

/* True if tokens of a sample that answer `span` ends are kept. */
static bool keeps_answer(const masker *m, mt__span span)
{
    const mt_sampler_config *c = &m->s->config;
    size_t n = m->w->tokens.n, limit = c->max_seq_len > 0 ? (size_t)c->max_seq_len : SIZE_MAX;
    if (n <= limit || c->overlong == MT_OVERLONG_SPLIT) return true;
    return c->overlong != MT_OVERLONG_SKIP && (c->train_on_prompt || span.begin < limit);
}

/* True if w->tokens are those of the last sample and then more: the same sample, then, with one more answer. */
static bool continues(const masker *m, const unrolling *u)
{
    const mt_tokens *kept = &m->w->kept, *t = &m->w->tokens;
    return u->n_samples && kept->n <= t->n && !memcmp(kept->ids, t->ids, kept->n * sizeof *t->ids);
}

/* Add w->tokens with the answer `span`, in place of the last sample if they continue it. */
static mt_rc add_answer(const masker *m, unrolling *u, mt__span span, bool *fits, mt_oddities *odd)
{
    mt_sampler_scratch *w = m->w;
    if (continues(m, u) && keeps_answer(m, span)) {
        w->n_places = u->n_places;
        w->n_ids = u->n_ids;
        w->texts.n = u->n_texts;
        *odd = u->odd;
    } else {
        *u = (unrolling){ u->n_samples + 1, w->n_places, w->n_ids, w->texts.n, *odd };
        w->n_spans = 0;
    }
    MT_TRY(mt_grow(&w->spans, &w->cap_spans, w->n_spans + 1, sizeof *w->spans, m->err));
    w->spans[w->n_spans++] = span;
    MT_TRY(mt_grow(&w->kept.ids, &w->kept.cap_ids, w->tokens.n, sizeof *w->kept.ids, m->err));
    w->kept.n = w->tokens.n;
    if (w->kept.n) memcpy(w->kept.ids, w->tokens.ids, w->kept.n * sizeof *w->kept.ids);
    return mt__sample_add(m->s, w, &w->text, w->spans, w->n_spans, m->s->config.overlong, fits, odd, m->err);
}

static mt_rc add_turn(const masker *m, size_t k, unrolling *u, bool *fits, mt_oddities *odd)
{
    mt_sampler_scratch *w = m->w;
    size_t begin;
    bool splits;
    MT_TRY(write_truth(m, k, &begin));
    mt_slice t = mt_slice_of(&w->text);
    MT_TRY(encode(m, t, &w->tokens));
    MT_TRY(splits_at(m, t, begin, &splits));
    mt__span span = { token_at(&w->tokens, begin), w->tokens.n };
    if (!splits) {
        MT_TRY(encode(m, mt_slice_upto(t, begin), &w->tokens));
        span.begin = w->tokens.n;
        MT_TRY(append_answer(m, mt_slice_from(t, begin)));
        span.end = w->tokens.n;
    }
    return add_answer(m, u, span, fits, odd);
}

static mt_rc add_turns(const masker *m, bool *any, mt_oddities *odd)
{
    size_t n_trained = 0, n_kept = 0, last = 0, lost_in_a_row = 0;
    unrolling u = { 0 };
    for (size_t k = 0; k < m->chat->n; k++)
        if (m->chat->items[k].trained) {
            n_trained++;
            last = k;
        }
    *any = false;
    for (size_t k = 0; k < m->chat->n && lost_in_a_row < LOST_IN_A_ROW; k++) {
        bool fits;
        if (!m->chat->items[k].trained || (m->s->config.history == MT_HISTORY_LAST && k != last)) continue;
        MT_TRY(add_turn(m, k, &u, &fits, odd));
        *any |= fits;
        n_kept += fits;
        lost_in_a_row = fits ? 0 : lost_in_a_row + 1; /* later answers have all of this before them */
    }
    bool unrolls = m->s->config.history != MT_HISTORY_LAST;
    if (*any && unrolls) odd->turns_without_room += (int64_t)(n_trained - n_kept);
    if (*any && u.n_samples > 1) odd->unrolled++;
    return MT_OK;
}

mt_rc mt__chat_mask(const mt_sampler *s, mt_sampler_scratch *w, const mt_chat *chat, mt_reason *reason, mt_oddities *odd,
                    mt_err *err)
{
    masker m = { s, w, chat, reason, err };
    bool nested, fits = false;
    size_t n_placed;
    MT_TRY(place_all(&m, &n_placed, &nested));
    if (nested) MT_TRY(add_whole(&m, n_placed, &nested, &fits, odd));
    if (!nested) MT_TRY(add_turns(&m, &fits, odd));
    if (fits) return MT_OK;
    if (s->config.overlong == MT_OVERLONG_SKIP)
        return mt__chat_bad(&m, MT_REASON_TOO_LONG, "it is longer than max_seq_len (%lld tokens)",
                            (long long)s->config.max_seq_len);
    return mt__chat_bad(&m, MT_REASON_NO_ROOM, "no answer begins within max_seq_len (%lld tokens)",
                        (long long)s->config.max_seq_len);
}
