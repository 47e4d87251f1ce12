/* chat_end.c - how a template opens and ends an answer and how it writes calls, found by rendering samples.
 *
 * A two-turn conversation is rendered once, and the text after the answer is examined.  The first special token there, with white
 * space before it, is the end of turn, with special tokens right after it if they are there between turns, too (Cohere2).  What
 * else follows (a line break, an eos after the last turn) is not trained.  Templates in which only the next turn's header ends an
 * answer (GLM-4) get that header's token; those that end nothing get eos, with a notice.
 *
 * Templates without a generation prompt open an answer, too ("<|im_start|>assistant\n").  That opening is added to prompts;
 * otherwise trained answers would lack it.
 *
 * Models that think open a thought in the generation prompt, or show an empty one before an answer that has none: this file also
 * finds what such an answer needs, and what a template cannot show (a system turn, tools, calls).
 *
 * Calls are answers, too, and some templates forget to end them.  DeepSeek V3's ends two calls but not one: its text after the
 * second is how calls end.  If headers end answers, calls end with the header of a tool's result. */
#include "data/sampler_impl.h"
#include "data/slice.h"
#include "data/templates.h"
#include "data/thoughts.h"

static const char sentinel[] = "QUITE-UNLIKELY-ANSWER";

/* The special token at text[at], as its end; 0: none.  A window is tokenized: special tokens are found in any context. */
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

/* Render into w->full; *shown false: the template refuses such a conversation. */
static mt_rc chat_end_show(const mt_sampler *s, mt_sampler_scratch *w, const mt_value *maps, size_t n, bool *shown, mt_err *err)
{
    mt_reason reason = MT_REASON_NONE;
    mt_chat chat = { .maps = maps, .n = n };
    mt_rc rc = mt__chat_render(s, w, &chat, n, false, &w->full, &reason, err);
    *shown = !rc;
    return reason == MT_REASON_NONE ? rc : MT_OK;
}

/* One turn after the other, as a template wants them. */
typedef struct probe_turn {
    const char *role, *content;
} probe_turn;

enum { MOST_TURNS = 4 };

static mt_rc show_turns(const mt_sampler *s, mt_sampler_scratch *w, const probe_turn *turns, size_t n, bool *shown, mt_err *err)
{
    mt_pair pairs[MOST_TURNS][2];
    mt_value maps[MOST_TURNS];
    for (size_t i = 0; i < n; i++) {
        pairs[i][0] = (mt_pair){ .key = "role", .key_n = 4, .value = mt__text_value(turns[i].role, strlen(turns[i].role)) };
        pairs[i][1] =
            (mt_pair){ .key = "content", .key_n = 7, .value = mt__text_value(turns[i].content, strlen(turns[i].content)) };
        maps[i] = mt__map_of(pairs[i], 2);
    }
    return chat_end_show(s, w, maps, n, shown, err);
}

/* Render questions and answers in turn, n of them; *at is the end of the first answer; 0: not found. */
static mt_rc probe(const mt_sampler *s, mt_sampler_scratch *w, size_t n, size_t *at, mt_err *err)
{
    static const probe_turn turns[] = { { "user", "Hello." }, { "assistant", sentinel }, { "user", "Hello." } };
    bool shown;
    *at = 0;
    MT_TRY(show_turns(s, w, turns, n, &shown, err));
    size_t found = shown ? mt_slice_find(mt_slice_of(&w->full), (mt_slice){ sentinel, sizeof sentinel - 1 }) : SIZE_MAX;
    if (found != SIZE_MAX) *at = found + sizeof sentinel - 1;
    return MT_OK;
}

static mt_rc keep_end(mt_sampler *s, const char *text, size_t n, mt_err *err)
{
    s->end = mt_arena_strndup(&s->arena, text, n);
    s->n_end = n;
    return s->end ? MT_OK : mt_no_memory(err, "the chat template");
}

/* Special tokens that follow the end of an answer at once, and do so before another question, too, are a part of it: Cohere2
 * closes a response and then the turn.  What follows only the last answer ends the text. */
static mt_rc extend_end(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    size_t at, end, next, n = s->n_end;
    bool shown;
    MT_TRY(probe(s, w, 2, &at, err));
    end = at + s->n_end;
    do {
        n = end - at;
        MT_TRY(special_at(s, w, &w->full, end, &next, err));
        if (next) end = next;
    } while (next);
    if (n == s->n_end) return MT_OK;
    mt_str_clear(&w->turn);
    mt_str_add(&w->turn, w->full.s + at, n);
    if (!mt_str_ok(&w->turn)) return mt_no_memory(err, "the chat template");
    MT_TRY(probe(s, w, 3, &at, err));
    shown = at && mt_slice_starts(mt_slice_from(mt_slice_of(&w->full), at), mt_slice_of(&w->turn));
    return shown ? keep_end(s, w->turn.s, n, err) : MT_OK;
}

mt_rc mt__chat_find_end(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    size_t at, end;
    s->end = "";
    MT_TRY(probe(s, w, 2, &at, err));
    if (at) {
        MT_TRY(mt__chat_end_after(s, w, &w->full, at, &end, err));
        if (end) {
            MT_TRY(keep_end(s, w->full.s + at, end - at, err));
            return extend_end(s, w, err);
        }
        size_t n = w->full.n; /* an end mark spelled in ordinary tokens */
        while (n > at && mt_is_space(w->full.s[n - 1])) n--;
        if (n > at) return keep_end(s, w->full.s + at, n - at, err);
        MT_TRY(probe(s, w, 3, &at, err));
        if (at) {
            MT_TRY(mt__chat_end_after(s, w, &w->full, at, &end, err));
            s->ended_by_next = end > 0;
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
    mt_str_printf(&s->notice, "%sthe template puts no end-of-turn token after an answer: %s is added", s->notice.n ? "; " : "",
                  eos);
    return keep_end(s, eos, strlen(eos), err);
}

/* Render one question into `out`; *shown false: the template refuses it. */
static mt_rc chat_end_ask(const mt_sampler *s, mt_sampler_scratch *w, bool generation_prompt, mt_str *out, bool *shown,
                          mt_err *err)
{
    mt_pair asked[] = { { "role", 4, mt__text_value("user", 4) }, { "content", 7, mt__text_value("Hello.", 6) } };
    mt_value maps[] = { mt__map_of(asked, 2) };
    mt_reason reason = MT_REASON_NONE;
    mt_chat chat = { .maps = maps, .n = 1 };
    mt_rc rc = mt__chat_render(s, w, &chat, 1, generation_prompt, out, &reason, err);
    *shown = !rc;
    return reason == MT_REASON_NONE ? rc : MT_OK;
}

mt_rc mt__chat_find_header(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    bool shown, prompted = false;
    size_t at;
    MT_TRY(chat_end_ask(s, w, false, &w->prompt, &shown, err));
    if (shown) MT_TRY(chat_end_ask(s, w, true, &w->turn, &prompted, err));
    mt_slice plain = mt_slice_of(&w->prompt), prompt = mt_slice_of(&w->turn);
    if (!prompted || plain.n != prompt.n || !mt_slice_starts(prompt, plain)) return MT_OK;
    MT_TRY(probe(s, w, 2, &at, err));
    if (!at || w->blocks.n) return MT_OK; /* {% generation %} blocks say themselves where an answer begins */
    mt_slice before = mt_slice_upto(mt_slice_of(&w->full), at - (sizeof sentinel - 1));
    if (!mt_slice_starts(before, plain)) return MT_OK;
    mt_slice header = mt_slice_from(before, plain.n);
    if (!mt_slice_trim_end(header).n) return MT_OK;
    while (header.s[header.n - 1] == ' ') header.n--; /* a space is a part of the answer's first word */
    s->header = mt_arena_strndup(&s->arena, header.s, header.n);
    if (!s->header) return mt_no_memory(err, "the chat template");
    s->n_header = header.n;
    mt_str_printf(
        &s->notice,
        "%sthe template ignores add_generation_prompt: what it puts before an answer (\"%.*s\") is added to prompts here; "
        "other programs will not add it, so correct the template before the model is used",
        s->notice.n ? "; " : "", (int)mt_slice_trim_end(header).n, header.s);
    return MT_OK;
}

/* A question, and n (1 or 2) equal calls with these arguments, and with `returned` what a tool gave; *taken: the template
 * accepts it. */
static mt_rc show_calls(const mt_sampler *s, mt_sampler_scratch *w, mt_value arguments, size_t n, bool returned, bool *taken,
                        mt_err *err)
{
    mt_pair function[] = { { "name", 4, mt__text_value("f", 1) }, { "arguments", 9, arguments } };
    mt_pair call[] = { { "type", 4, mt__text_value("function", 8) },
                       { "id", 2, mt__text_value("abcdef123", 9) },
                       { "function", 8, mt__map_of(function, 2) } };
    mt_value calls[] = { mt__map_of(call, 3), mt__map_of(call, 3) }, list = { .type = MT_VALUE_LIST };
    list.list.items = calls;
    list.list.n = n;
    mt_pair asked[] = { { "role", 4, mt__text_value("user", 4) }, { "content", 7, mt__text_value("Hello.", 6) } };
    mt_pair called[] = { { "role", 4, mt__text_value("assistant", 9) },
                         { "content", 7,
                           s->rules.calls_beside_null ? (mt_value){ .type = MT_VALUE_NULL } : mt__text_value("", 0) },
                         { "tool_calls", 10, list } };
    mt_pair gave[] = { { "role", 4, mt__text_value("tool", 4) },
                       { "content", 7, mt__text_value("7", 1) },
                       { "tool_call_id", 12, mt__text_value("abcdef123", 9) } };
    mt_value maps[] = { mt__map_of(asked, 2), mt__map_of(called, 3), mt__map_of(gave, 3) };
    return chat_end_show(s, w, maps, returned ? 3 : 2, taken, err);
}

/* The template's text after the arguments of the last of n calls, a part of w->full; *shown false: it shows no calls. */
static mt_rc behind_calls(const mt_sampler *s, mt_sampler_scratch *w, size_t n, bool returned, mt_slice *out, bool *accepted,
                          bool *shown, mt_err *err)
{
    static const char text[] = "{\"x\": \"QUITE-UNLIKELY-ANSWER\"}";
    mt_pair pair = { "x", 1, mt__text_value(sentinel, sizeof sentinel - 1) };
    mt_value arguments = s->rules.calls_as_text ? mt__text_value(text, sizeof text - 1) : mt__map_of(&pair, 1);
    MT_TRY(show_calls(s, w, arguments, n, returned, accepted, err));
    mt_slice full = mt_slice_of(&w->full);
    size_t at = *accepted ? mt_slice_find_last(full, (mt_slice){ sentinel, sizeof sentinel - 1 }) : SIZE_MAX;
    *shown = at != SIZE_MAX;
    if (*shown) *out = mt_slice_from(full, at + sizeof sentinel - 1);
    return MT_OK;
}

/* The first form in which the template shows a call; none: the first that it accepts. */
mt_rc mt__chat_find_call_form(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    static const struct {
        bool text, null;
    } forms[] = { { false, false }, { true, false }, { false, true }, { true, true } };
    bool shown = false, accepted;
    mt_slice behind;
    int first = -1;
    for (int i = 0; !shown && i < (int)MT_COUNT(forms); i++) {
        s->rules.calls_as_text = forms[i].text;
        s->rules.calls_beside_null = forms[i].null;
        MT_TRY(behind_calls(s, w, 1, false, &behind, &accepted, &shown, err));
        if (accepted && first < 0) first = i;
    }
    if (shown) return MT_OK;
    s->rules.calls_as_text = first >= 0 && forms[first].text;
    s->rules.calls_beside_null = first >= 0 && forms[first].null;
    return MT_OK;
}

mt_rc mt__chat_find_calls_end(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    mt_slice one, more, end = { s->end, s->n_end };
    bool accepted, found;
    MT_TRY(behind_calls(s, w, 1, false, &one, &accepted, &found, err));
    if (!found || !end.n || mt_slice_has(one, end)) return MT_OK;
    mt_str_clear(&w->turn); /* the next rendering takes the place of this one */
    mt_str_add(&w->turn, one.s, mt_slice_trim_end(one).n);
    if (!mt_str_ok(&w->turn)) return mt_no_memory(err, "the chat template");
    one = mt_slice_of(&w->turn);
    MT_TRY(behind_calls(s, w, s->ended_by_next ? 1 : 2, s->ended_by_next, &more, &accepted, &found, err));
    if (!found || !mt_slice_starts(more, one)) return MT_OK;
    more = mt_slice_from(more, one.n);
    size_t at = mt_slice_find(more, end), n = at == SIZE_MAX ? 0 : at + end.n;
    if (s->ended_by_next) {
        size_t from = (size_t)(more.s - w->full.s), to;
        MT_TRY(mt__chat_end_after(s, w, &w->full, from, &to, err));
        n = to ? to - from : 0;
    }
    s->calls_end = mt_arena_strndup(&s->arena, more.s, n);
    s->n_calls_end = n;
    return s->calls_end ? MT_OK : mt_no_memory(err, "the chat template");
}

/* What s->chat writes from the first question to the second, without white space, into `out`; empty: it does not show both. */
static mt_rc write_form(const mt_sampler *s, mt_sampler_scratch *w, mt_str *out, mt_err *err)
{
    static const char first[] = "FIRST-QUESTION", second[] = "SECOND-QUESTION";
    static const probe_turn turns[] = {
        { "user", first }, { "assistant", sentinel }, { "user", second }, { "assistant", sentinel }
    };
    bool shown;
    mt_str_clear(out);
    MT_TRY(show_turns(s, w, turns, MT_COUNT(turns), &shown, err));
    mt_slice t = shown ? mt_slice_of(&w->full) : (mt_slice){ "", 0 };
    size_t from = mt_slice_find(t, (mt_slice){ first, sizeof first - 1 }),
           to = mt_slice_find(t, (mt_slice){ second, sizeof second - 1 });
    if (from == SIZE_MAX || to == SIZE_MAX) return MT_OK;
    for (size_t i = from; i < to; i++)
        if (!mt_is_space(t.s[i])) mt_str_putc(out, t.s[i]);
    return mt_str_ok(out) ? MT_OK : mt_no_memory(err, "the chat template");
}

mt_rc mt__chat_same_form(const mt_sampler *s, mt_sampler_scratch *w, const char *other, bool *same, mt_err *err)
{
    mt_sampler as_other = *s;
    *same = false;
    MT_TRY(mt_jinja_parse(&as_other.chat, other, strlen(other), "chat_template", err));
    mt_rc rc = write_form(s, w, &w->prompt, err);
    if (!rc) rc = write_form(&as_other, w, &w->turn, err);
    mt_slice a = mt_slice_of(&w->prompt), b = mt_slice_of(&w->turn);
    if (!rc) *same = a.n && a.n == b.n && mt_slice_starts(a, b);
    mt_jinja_free(as_other.chat);
    return rc;
}

/* An answer whose thought is under the keys that templates read. */
static mt_rc find_shown_thought(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    const mt_value hello = mt__text_value("Hello.", 6), thought = mt__text_value(sentinel, sizeof sentinel - 1);
    mt_pair asked[] = { { "role", 4, mt__text_value("user", 4) }, { "content", 7, hello } };
    mt_pair answered[] = { { "role", 4, mt__text_value("assistant", 9) },
                           { "content", 7, hello },
                           { "thinking", 8, thought },
                           { "reasoning_content", 17, thought },
                           { "reasoning", 9, thought } };
    mt_value maps[] = { mt__map_of(asked, MT_COUNT(asked)), mt__map_of(answered, MT_COUNT(answered)) };
    bool shown;
    MT_TRY(chat_end_show(s, w, maps, MT_COUNT(maps), &shown, err));
    s->rules.no_thoughts = !shown || !mt_slice_has(mt_slice_of(&w->full), (mt_slice){ sentinel, sizeof sentinel - 1 });
    return MT_OK;
}

mt_rc mt__chat_find_places(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    static const probe_turn turns[] = { { "system", sentinel }, { "user", "Hello." } };
    bool reads = s->tool_use || mt_jinja_reads(s->chat, "tools"), accepted, found, shown;
    mt_slice behind;
    MT_TRY(behind_calls(s, w, 1, false, &behind, &accepted, &found, err));
    s->rules.tools_as_text = !reads;
    s->rules.calls_as_actions = !reads && !found;
    MT_TRY(show_turns(s, w, turns, MT_COUNT(turns), &shown, err));
    s->rules.no_system = !shown || !mt_slice_has(mt_slice_of(&w->full), (mt_slice){ sentinel, sizeof sentinel - 1 });
    s->rules.merge_system = s->named && s->own_template; /* who names a family expects what LLaMA-Factory does there */
    return find_shown_thought(s, w, err);
}

/* ---- thoughts ---- */

/* The template variable enable_thinking; *given false: it is not set. */
static bool thinking(const mt_sampler *s, bool *given)
{
    mt_value variables = mt__map_of(s->variables, s->n_variables);
    const mt_value *v = mt_value_get(&variables, "enable_thinking");
    *given = v && v->type == MT_VALUE_BOOL;
    return *given && v->b;
}

/* The tag of thoughts that the template knows: the named family's, or that of the empty thought it shows. */
static mt_rc find_tag(const mt_sampler *s, mt_sampler_scratch *w, const char **out, mt_err *err)
{
    size_t at;
    *out = s->named ? s->named->thought : NULL;
    if (s->named) return MT_OK;
    MT_TRY(probe(s, w, 2, &at, err));
    if (at) *out = mt__empty_thought_at_end(mt_slice_upto(mt_slice_of(&w->full), at - (sizeof sentinel - 1)));
    return MT_OK;
}

/* The template's text between the generation prompt in w->prompt and the answer in w->full, if it closes a thought, into w->turn;
 * `said`, what a thought in it says, is left out. */
static void take_thought(mt_sampler_scratch *w, size_t at, const char *said)
{
    mt_slice before = mt_slice_upto(mt_slice_of(&w->full), at), prompt = mt_slice_of(&w->prompt);
    if (!mt_slice_starts(before, prompt)) return;
    mt_slice shown = mt_slice_from(before, prompt.n);
    if (!mt__closes_thought_at_end(shown)) return;
    size_t n_said = strlen(said), found = n_said ? mt_slice_find(shown, (mt_slice){ said, n_said }) : 0;
    if (found == SIZE_MAX) return;
    mt_str_clear(&w->turn);
    mt_str_add(&w->turn, shown.s, found);
    mt_str_add(&w->turn, shown.s + found + n_said, shown.n - found - n_said);
}

static bool has_space(mt_slice t)
{
    bool any = false;
    for (size_t i = 0; i < t.n; i++) any |= mt_is_space(t.s[i]);
    return any;
}

/* An empty thought in the template's own spelling, if it shows one: before an answer without a thought, else around one. */
static mt_rc learn_empty_thought(const mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    static const char thought[] = "UNLIKELY-THOUGHT";
    const mt_value t = mt__text_value(thought, sizeof thought - 1), said = mt__text_value(sentinel, sizeof sentinel - 1);
    mt_pair asked[] = { { "role", 4, mt__text_value("user", 4) }, { "content", 7, mt__text_value("Hello.", 6) } };
    mt_pair answered[] = { { "role", 4, mt__text_value("assistant", 9) },
                           { "content", 7, said },
                           { "thinking", 8, t },
                           { "reasoning_content", 17, t } };
    mt_value maps[] = { mt__map_of(asked, MT_COUNT(asked)), mt__map_of(answered, MT_COUNT(answered)) };
    size_t at, n_fallback = w->turn.n;
    bool shown;
    MT_TRY(probe(s, w, 2, &at, err));
    if (at) take_thought(w, at - (sizeof sentinel - 1), "");
    if (w->turn.n != n_fallback) return MT_OK;
    MT_TRY(chat_end_show(s, w, maps, MT_COUNT(maps), &shown, err));
    at = shown ? mt_slice_find_last(mt_slice_of(&w->full), (mt_slice){ sentinel, sizeof sentinel - 1 }) : SIZE_MAX;
    if (at != SIZE_MAX) take_thought(w, at, thought);
    return MT_OK;
}

mt_rc mt__chat_find_thought(mt_sampler *s, mt_sampler_scratch *w, mt_err *err)
{
    bool shown, given, on = thinking(s, &given);
    const char *tag = NULL;
    mt_empty_thought mode = s->config.empty_thought;
    if (mode == MT_THOUGHT_AUTO && given) mode = on ? MT_THOUGHT_TRAINED : MT_THOUGHT_PROMPT;
    MT_TRY(chat_end_ask(s, w, true, &w->prompt, &shown, err));
    if (!shown) return MT_OK;
    mt_slice prompt = mt_slice_of(&w->prompt);
    s->rules.thought_tag = mt__thought_open_at_end(prompt);
    s->opens_thought = s->rules.thought_tag != NULL;
    s->rules.thought_bare = mt__thought_open_is_bare(prompt);
    if (!s->opens_thought) MT_TRY(find_tag(s, w, &s->rules.thought_tag, err));
    if (given || mode != MT_THOUGHT_AUTO) MT_TRY(find_tag(s, w, &tag, err));
    size_t at;
    mt_str_clear(&w->turn);
    MT_TRY(probe(s, w, 2, &at, err));
    if (at) take_thought(w, at - (sizeof sentinel - 1), "");
    s->rules.shows_empty = s->rules.no_thoughts && w->turn.n && !s->opens_thought;
    s->rules.thought_bare |= s->rules.shows_empty && !has_space(mt_slice_of(&w->turn));
    bool closed = mt__closes_thought_at_end(prompt); /* the model is never asked to think, so no answer may */
    s->rules.prompt_closes_thought = closed && !(given && !on);
    s->rules.drop_thoughts = closed || (given && !on && (tag || s->opens_thought));
    if (mode == MT_THOUGHT_NONE || closed) return MT_OK;
    mt_str_clear(&w->turn);
    mt__write_empty_thought(&w->turn, prompt, tag);
    if (w->turn.n) MT_TRY(learn_empty_thought(s, w, err));
    if (!mt_str_ok(&w->turn)) return mt_no_memory(err, "the chat template");
    s->n_thought = w->turn.n;
    s->thought = mt_arena_strndup(&s->arena, w->turn.n ? w->turn.s : "", w->turn.n);
    s->thought_in_prompt = s->n_thought && mode == MT_THOUGHT_PROMPT;
    return s->thought ? MT_OK : mt_no_memory(err, "the chat template");
}

bool mt__chat_owes_thought(const mt_sampler *s, const mt_message *m)
{
    mt_slice said = { m->content.str.s, m->content.str.n };
    return s->n_thought && m->thought.type == MT_VALUE_NULL && !mt__opens_thought(said) && !mt__closes_thought(said);
}
