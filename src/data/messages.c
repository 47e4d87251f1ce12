#include "data/messages.h"

#include "data/slice.h"
#include "data/thoughts.h"

#define TEXT_ARGS(v) (int)(v)->str.n, (v)->str.s

typedef struct reader {
    mt_chat_reader base;
    const mt_record_layout *layout;
    const mt_chat_rules *rules;
    const mt_value *record;
    mt_chat *chat;
    size_t cap;      /* room in chat->items */
    mt_value system; /* a string; empty: none */
} reader;

static bool present(const mt_value *v) { return v && v->type != MT_VALUE_NULL; }
static bool messages_given(const char *s) { return s && *s; }

/* ---- contents ---- */

/* Text, or a list of text parts that are joined.  Pictures and sound are refused for good: they must not be lost silently. */
static mt_rc read_content(const reader *r, const mt_value *v, mt_reason why, const char *what, mt_value *out)
{
    if (v && v->type == MT_VALUE_STR) {
        *out = *v;
        return MT_OK;
    }
    if (!v || v->type != MT_VALUE_LIST)
        return mt__chat_bad(&r->base, why, "%s should be text and is %s", what, v ? mt_value_type_name(v) : "missing");
    mt_str joined = { 0 };
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < v->list.n; i++) {
        const mt_value *part = &v->list.items[i], *type = mt_value_get(part, "type"),
                       *text = part->type == MT_VALUE_STR ? part : mt_value_get(part, "text");
        if (text && text->type == MT_VALUE_STR)
            mt_str_add(&joined, text->str.s, text->str.n);
        else if (type && type->type == MT_VALUE_STR && !mt_value_is(type, "text"))
            rc = mt_fail(r->base.err, MT_EUNSUPPORTED, "%s has a part of type \"%.*s\": only text is trained on", what,
                         TEXT_ARGS(type));
        else
            rc = mt__chat_bad(&r->base, why, "part %zu of %s has no text", i + 1, what);
    }
    if (!rc) *out = mt_value_str(r->base.a, joined.n ? joined.s : "", joined.n);
    if (!rc && (!mt_str_ok(&joined) || out->type != MT_VALUE_STR)) rc = mt_no_memory(r->base.err, "a record");
    mt_str_free(&joined);
    return rc;
}

/* ---- turns ---- */

static mt_message *messages_add(reader *r, mt_chat_role role)
{
    mt_message *m = &r->chat->items[r->chat->n++];
    *m = (mt_message){ .role = role, .trained = role == MT_ROLE_ASSISTANT, .content = mt__text_value("", 0) };
    return m;
}

static mt_rc make_room(reader *r, size_t n)
{
    r->cap = n + 1; /* and the system turn */
    r->chat->items = mt_arena_calloc(r->base.a, r->cap, sizeof *r->chat->items);
    return r->chat->items ? MT_OK : mt_no_memory(r->base.err, "a record");
}

static bool is_role(const mt_record_layout *l, const mt_value *role, const char *tag, const char *const *usual)
{
    bool is = mt_value_is(role, tag);
    for (; l->usual_roles && *usual && !is; usual++) is = mt_value_is(role, *usual);
    return is;
}

/* "role" or the tag of the layout, as a role; a function tag is an answer made of calls. */
static mt_rc read_role(const reader *r, const mt_value *item, size_t i, mt_chat_role *out, bool *is_function)
{
    const mt_record_layout *l = r->layout;
    const mt_value *role = mt_value_get(item, l->role_tag);
    *is_function = false;
    if (!role || role->type != MT_VALUE_STR)
        return mt__chat_bad(&r->base, item->type == MT_VALUE_MAP && role ? MT_REASON_UNKNOWN_ROLE : MT_REASON_MISSING_COLUMN,
                            "message %zu has no \"%s\" that is text", i + 1, l->role_tag);
    bool openai = l->formatting == MT_FORMATTING_OPENAI;
    if (is_role(l, role, l->user_tag, mt_user_names))
        *out = MT_ROLE_USER;
    else if (is_role(l, role, l->assistant_tag, mt_assistant_names))
        *out = MT_ROLE_ASSISTANT;
    else if (is_role(l, role, l->observation_tag, mt_tool_names))
        *out = MT_ROLE_TOOL;
    else if (mt_value_is(role, l->system_tag) || (openai && mt_value_is(role, "developer")))
        *out = MT_ROLE_SYSTEM;
    else if (mt_value_is(role, l->function_tag)) {
        *out = MT_ROLE_ASSISTANT;
        *is_function = true;
    } else
        return mt__chat_bad(&r->base, MT_REASON_UNKNOWN_ROLE,
                            "message %zu has the role \"%.*s\"; known are %s, %s, %s, %s and %s (\"tags\" in dataset_info.json "
                            "names others)",
                            i + 1, TEXT_ARGS(role), l->user_tag, l->assistant_tag, l->system_tag, l->observation_tag,
                            l->function_tag);
    return MT_OK;
}

/* The record's own word on whether an answer is learned: "train": false, or OpenAI's "weight": 0. */
static mt_rc read_weight(const reader *r, const mt_value *item, mt_message *m)
{
    const mt_value *train = mt_value_get(item, "train"), *weight = mt_value_get(item, "weight");
    if (present(train)) {
        if (train->type != MT_VALUE_BOOL)
            return mt__chat_bad(&r->base, MT_REASON_BAD_ANSWER, "\"train\" of a message should be true or false and is %s",
                                mt_value_type_name(train));
        m->trained = m->trained && train->b;
    }
    if (present(weight)) {
        double w = mt_value_is_number(weight) ? mt_value_number(weight) : -1;
        if (w < 0 || (w > 0 && w < 1) || w > 1)
            return mt__chat_bad(&r->base, MT_REASON_BAD_ANSWER, "\"weight\" of a message should be 0 or 1");
        m->trained = m->trained && w > 0;
    }
    return MT_OK;
}

/* Calls written as the whole text of a turn; a thought may stand in front of them. */
static mt_rc read_function_turn(const reader *r, const mt_value *content, mt_message *m)
{
    static const mt_slice opener = { "<think>", 7 }, closer = { "</think>", 8 };
    mt_value calls = *content;
    mt_slice all = { content->type == MT_VALUE_STR ? content->str.s : "", content->type == MT_VALUE_STR ? content->str.n : 0 };
    size_t at = mt_slice_starts(all, opener) ? mt_slice_find(all, closer) : SIZE_MAX;
    if (at != SIZE_MAX) {
        mt_slice rest = mt_slice_skip_space(mt_slice_from(all, at + closer.n));
        calls = mt__text_value(rest.s, rest.n);
        m->content = mt__text_value(all.s, all.n - rest.n);
    }
    if (calls.type == MT_VALUE_NULL) return mt__chat_bad(&r->base, MT_REASON_BAD_CALL, "a tool call is null");
    MT_TRY(mt__chat_calls(&r->base, &calls, &m->calls));
    return m->calls.type == MT_VALUE_LIST ? MT_OK : mt__chat_bad(&r->base, MT_REASON_BAD_CALL, "a tool call turn calls nothing");
}

/* The first of these keys that has a text, in the order in which transformers looks at them. */
static void read_thought(const mt_value *item, mt_message *m)
{
    static const char *const keys[] = { "reasoning_content", "thinking", "reasoning" };
    for (size_t i = 0; i < MT_COUNT(keys) && m->thought.type == MT_VALUE_NULL; i++) {
        const mt_value *thought = mt_value_get(item, keys[i]);
        if (!mt_value_has(thought, MT_VALUE_STR) || !thought->str.n) continue;
        m->thought = *thought;
        m->thought_key = keys[i];
    }
}

static mt_rc read_turn(reader *r, const mt_value *item, size_t i)
{
    mt_chat_role role;
    bool is_function;
    MT_TRY(read_role(r, item, i, &role, &is_function));
    const mt_value *content = mt_value_get(item, r->layout->content_tag), *calls = mt_value_get(item, "tool_calls");
    if (role == MT_ROLE_SYSTEM && (i == 0 || !r->rules->as_is)) {
        if (i > 0)
            return mt__chat_bad(&r->base, MT_REASON_UNKNOWN_ROLE, "message %zu is a system message; only the first may be one",
                                i + 1);
        if (content && content->type == MT_VALUE_NULL) return MT_OK; /* without text: none */
        return read_content(r, content, MT_REASON_MISSING_COLUMN, "the system message", &r->system);
    }
    mt_message *m = messages_add(r, role);
    if (role != MT_ROLE_ASSISTANT) {
        const mt_value *id = mt_value_get(item, "tool_call_id"), *name = mt_value_get(item, "name");
        if (present(id)) m->id = *id;
        if (present(name) && role == MT_ROLE_TOOL) m->name = *name;
        return read_content(r, content, MT_REASON_MISSING_COLUMN,
                            role == MT_ROLE_USER ? "what the user says" : "what a tool returned", &m->content);
    }
    MT_TRY(read_weight(r, item, m));
    if (is_function) return read_function_turn(r, content ? content : &(mt_value){ .type = MT_VALUE_NULL }, m);
    read_thought(item, m);
    if (present(calls)) MT_TRY(mt__chat_calls(&r->base, calls, &m->calls));
    if (m->calls.type == MT_VALUE_LIST && !present(content)) return MT_OK;
    return read_content(r, content, MT_REASON_BAD_ANSWER, "the answer", &m->content);
}

/* ---- layouts ---- */

static mt_rc missing_column(const reader *r, const char *column)
{
    mt_str have = { 0 };
    mt_record_layout found;
    char words[MT_LAYOUT_WORDS];
    for (size_t i = 0; r->record->type == MT_VALUE_MAP && i < r->record->map.n && i < 12; i++)
        mt_str_printf(&have, "%s%.*s", i ? ", " : "", (int)r->record->map.pairs[i].key_n, r->record->map.pairs[i].key);
    bool clear = !r->layout->direct && !mt_record_layout_detect(&found, words, r->record, &(mt_err){ 0 });
    const char *advice = "";
    if (r->layout->direct) advice = "; name yours with query_field and response_field, or describe the data in dataset_info.json";
    if (clear) advice = ": describe that in dataset_info.json";
    mt_rc rc = mt__chat_bad(&r->base, MT_REASON_MISSING_COLUMN, "no column \"%s\" (it has: %s)%s%s%s", column,
                            have.n ? have.s : "none", clear ? "; by its columns it is " : "", clear ? words : "", advice);
    mt_str_free(&have);
    return rc;
}

/* A column that must be there. */
static mt_rc need(const reader *r, const char *column, const mt_value **out)
{
    *out = column ? mt_value_get(r->record, column) : NULL;
    return *out ? MT_OK : missing_column(r, column ? column : "?");
}

static mt_rc read_history(reader *r, const mt_value *history)
{
    for (size_t i = 0; i < history->list.n; i++) {
        const mt_value *pair = &history->list.items[i];
        if (pair->type != MT_VALUE_LIST || pair->list.n != 2)
            return mt__chat_bad(&r->base, MT_REASON_NOT_JSON, "entry %zu of \"%s\" should be a pair of question and answer",
                                i + 1, r->layout->history);
        mt_message *user = messages_add(r, MT_ROLE_USER), *answer = messages_add(r, MT_ROLE_ASSISTANT);
        MT_TRY(read_content(r, &pair->list.items[0], MT_REASON_MISSING_COLUMN, "a question in the history", &user->content));
        MT_TRY(read_content(r, &pair->list.items[1], MT_REASON_BAD_ANSWER, "an answer in the history", &answer->content));
    }
    return MT_OK;
}

/* prompt, or prompt and query on separate lines; an empty one adds no line. */
static mt_rc join_query(const reader *r, const mt_value *prompt, const mt_value *query, mt_value *out)
{
    *out = *prompt;
    if (!query || query->type == MT_VALUE_NULL) return MT_OK;
    mt_value q;
    MT_TRY(read_content(r, query, MT_REASON_MISSING_COLUMN, "the input", &q));
    if (!q.str.n) return MT_OK;
    if (!prompt->str.n) {
        *out = q;
        return MT_OK;
    }
    char *s = mt_arena_alloc(r->base.a, prompt->str.n + q.str.n + 2);
    if (!s) return mt_no_memory(r->base.err, "a record");
    memcpy(s, prompt->str.s, prompt->str.n);
    s[prompt->str.n] = '\n';
    memcpy(s + prompt->str.n + 1, q.str.s, q.str.n);
    *out = mt__text_value(s, prompt->str.n + q.str.n + 1);
    return MT_OK;
}

static mt_rc read_alpaca(reader *r)
{
    const mt_record_layout *l = r->layout;
    const mt_value *prompt, *response, *history = l->history ? mt_value_get(r->record, l->history) : NULL;
    MT_TRY(need(r, l->prompt, &prompt));
    MT_TRY(need(r, l->response, &response));
    if (history && history->type == MT_VALUE_STR && !history->str.n) history = NULL; /* an empty field of a CSV file */
    if (present(history) && history->type != MT_VALUE_LIST)
        return mt__chat_bad(&r->base, MT_REASON_NOT_JSON, "\"%s\" should be a list of pairs and is %s%s", l->history,
                            mt_value_type_name(history),
                            l->direct ? "; to leave it out, name the other columns with query_field and response_field" : "");
    size_t n_history = present(history) ? history->list.n : 0;
    MT_TRY(make_room(r, 2 * n_history + 2));
    if (n_history) MT_TRY(read_history(r, history));
    mt_value text;
    MT_TRY(read_content(r, prompt, MT_REASON_MISSING_COLUMN, l->prompt, &text));
    MT_TRY(join_query(r, &text, l->query ? mt_value_get(r->record, l->query) : NULL, &messages_add(r, MT_ROLE_USER)->content));
    return read_content(r, response, MT_REASON_BAD_ANSWER, "the answer", &messages_add(r, MT_ROLE_ASSISTANT)->content);
}

static mt_rc read_messages(reader *r)
{
    const mt_record_layout *l = r->layout;
    const mt_value *list = mt_value_get(r->record, l->messages);
    if (!list && l->messages_too) list = mt_value_get(r->record, l->messages_too);
    if (!list) MT_TRY(need(r, l->messages, &list));
    if (list->type != MT_VALUE_LIST)
        return mt__chat_bad(&r->base, MT_REASON_MISSING_COLUMN, "\"%s\" should be a list of messages and is %s", l->messages,
                            mt_value_type_name(list));
    if (!list->list.n) return mt__chat_bad(&r->base, MT_REASON_NO_ANSWER, "\"%s\" is empty", l->messages);
    MT_TRY(make_room(r, list->list.n));
    for (size_t i = 0; i < list->list.n; i++) MT_TRY(read_turn(r, &list->list.items[i], i));
    return MT_OK;
}

static mt_rc read_system(reader *r)
{
    const mt_value *v = r->layout->system ? mt_value_get(r->record, r->layout->system) : NULL;
    if (!r->system.str.n && present(v)) MT_TRY(read_content(r, v, MT_REASON_MISSING_COLUMN, "the system message", &r->system));
    if (messages_given(r->rules->system_prompt))
        r->system = mt__text_value(r->rules->system_prompt, strlen(r->rules->system_prompt));
    else if (!r->system.str.n && messages_given(r->rules->default_system))
        r->system = mt__text_value(r->rules->default_system, strlen(r->rules->default_system));
    return MT_OK;
}

/* ---- the rules of a conversation ---- */

static bool same_side(const mt_message *a, const mt_message *b)
{
    bool answers = a->role == MT_ROLE_ASSISTANT;
    return answers == (b->role == MT_ROLE_ASSISTANT) && !(a->role == MT_ROLE_TOOL && b->role == MT_ROLE_TOOL);
}

/* a, an empty line and b. */
static mt_rc messages_join(const reader *r, const mt_value *a, const mt_value *b, mt_value *out)
{
    size_t n = a->str.n + b->str.n + 2;
    char *s = mt_arena_alloc(r->base.a, n);
    if (!s) return mt_no_memory(r->base.err, "a record");
    memcpy(s, a->str.s, a->str.n);
    memcpy(s + a->str.n, "\n\n", 2);
    memcpy(s + a->str.n + 2, b->str.s, b->str.n);
    *out = mt__text_value(s, n);
    return MT_OK;
}

/* a + empty line + b, in a, both trained or both not.  Thoughts are joined like texts; calls follow the text. */
static mt_rc merge(const reader *r, mt_message *a, const mt_message *b)
{
    if (a->thought.type == MT_VALUE_STR && b->thought.type == MT_VALUE_STR) {
        MT_TRY(messages_join(r, &a->thought, &b->thought, &a->thought));
    } else if (b->thought.type == MT_VALUE_STR) {
        a->thought = b->thought;
        a->thought_key = b->thought_key;
    }
    if (a->content.str.n && b->content.str.n)
        MT_TRY(messages_join(r, &a->content, &b->content, &a->content));
    else if (b->content.str.n)
        a->content = b->content;
    if (a->calls.type == MT_VALUE_NULL)
        a->calls = b->calls;
    else if (b->calls.type == MT_VALUE_LIST) {
        size_t n = a->calls.list.n + b->calls.list.n;
        mt_value *items = mt_arena_calloc(r->base.a, n, sizeof *items);
        if (!items) return mt_no_memory(r->base.err, "a record");
        memcpy(items, a->calls.list.items, a->calls.list.n * sizeof *items);
        memcpy(items + a->calls.list.n, b->calls.list.items, b->calls.list.n * sizeof *items);
        a->calls.list.items = items;
        a->calls.list.n = n;
    }
    return MT_OK;
}

static const char *const role_names[] = { "system", "user", "assistant", "tool" };

/* Only the last answer is trained.  Turns that will be joined are one answer. */
static void mask_history(mt_chat *c)
{
    size_t n = c->n;
    while (n && c->items[n - 1].role != MT_ROLE_ASSISTANT) n--;
    while (n && c->items[n - 1].role == MT_ROLE_ASSISTANT) n--;
    for (size_t i = 0; i < n; i++) c->items[i].trained = false;
}

static mt_rc check_order(const reader *r)
{
    mt_chat *c = r->chat;
    if (c->n && c->items[0].role != MT_ROLE_USER)
        return mt__chat_bad(&r->base, MT_REASON_FIRST_NOT_USER, "the first turn is the %s's, it should be the user's",
                            role_names[c->items[0].role]);
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!n || !same_side(&c->items[n - 1], &c->items[i])) {
            c->items[n++] = c->items[i];
            continue;
        }
        if (!r->rules->merge_turns)
            return mt__chat_bad(&r->base, MT_REASON_REPEATED_SIDE,
                                "turns %zu and %zu are both the %s's (merge_turns: true joins them)", i, i + 1,
                                role_names[c->items[i].role]);
        if (c->items[n - 1].trained != c->items[i].trained) /* the mask of an answer has no parts */
            return mt__chat_bad(&r->base, MT_REASON_REPEATED_SIDE,
                                "turns %zu and %zu are both the assistant's and only one of them is to be trained, so "
                                "merge_turns cannot join them",
                                i, i + 1);
        MT_TRY(merge(r, &c->items[n - 1], &c->items[i]));
    }
    c->n = n;
    return MT_OK;
}

static mt_rc check_answers(const reader *r)
{
    mt_chat *c = r->chat;
    size_t n = c->n, n_trained = 0;
    while (n && c->items[n - 1].role != MT_ROLE_ASSISTANT) n--;
    if (!n) return mt__chat_bad(&r->base, MT_REASON_NO_ANSWER, "it has no answer");
    c->cut_at_end = n < c->n;
    c->n = n;
    for (size_t i = 0; i < n; i++) n_trained += c->items[i].trained;
    return n_trained ? MT_OK : mt__chat_bad(&r->base, MT_REASON_NO_ANSWER, "none of its answers is to be trained");
}

/* Tool turns without an id answer the calls before them, in order. */
static void number_tool_turns(mt_chat *c)
{
    const mt_message *asked = NULL;
    size_t next = 0;
    for (size_t i = 0; i < c->n; i++) {
        mt_message *m = &c->items[i];
        if (m->role == MT_ROLE_ASSISTANT) {
            asked = m->calls.type == MT_VALUE_LIST ? m : NULL;
            next = 0;
        } else if (m->role == MT_ROLE_TOOL && asked && next < asked->calls.list.n) {
            const mt_value *call = &asked->calls.list.items[next++], *id = mt_value_get(call, "id");
            if (m->id.type == MT_VALUE_NULL && id) m->id = *id;
        }
    }
}

static mt_rc put_system(reader *r)
{
    if (!r->system.str.n) return MT_OK;
    mt_chat *c = r->chat;
    bool merge = r->rules->no_system && (r->rules->merge_system || c->flattened);
    if (merge && c->n && c->items[0].role == MT_ROLE_USER)
        return messages_join(r, &r->system, &c->items[0].content, &c->items[0].content);
    memmove(c->items + 1, c->items, c->n * sizeof *c->items);
    c->items[0] = (mt_message){ .role = MT_ROLE_SYSTEM, .content = r->system };
    c->n++;
    return MT_OK;
}

static mt_value without_thought(const mt_message *m)
{
    mt_slice all = { m->content.str.s, m->content.str.n }, rest = mt__without_thought(all);
    while (rest.n < all.n && rest.n && *rest.s == '\n') rest = mt_slice_from(rest, 1);
    return mt__text_value(rest.s, rest.n);
}

static void drop_thoughts(mt_chat *c, bool counts)
{
    for (size_t i = 0; i < c->n; i++) {
        mt_message *m = &c->items[i];
        if (m->role != MT_ROLE_ASSISTANT) continue;
        mt_value rest = without_thought(m);
        c->n_closed += counts && m->trained && (m->thought.type == MT_VALUE_STR || rest.str.n < m->content.str.n);
        m->thought = (mt_value){ .type = MT_VALUE_NULL };
        m->content = rest;
    }
}

/* Thoughts that the template does not show become text.  Templates show calls or text, so thoughts before calls are left out. */
static mt_rc rewrite_thoughts(const reader *r)
{
    for (size_t i = 0; i < r->chat->n; i++) {
        mt_message *m = &r->chat->items[i];
        mt_slice thought = { m->thought.str.s, m->thought.str.n }, said = { m->content.str.s, m->content.str.n };
        if (m->thought.type != MT_VALUE_STR) continue;
        m->thought = (mt_value){ .type = MT_VALUE_NULL };
        if (mt__closes_thought(said)) continue; /* it is there already */
        if (!r->rules->thought_tag || m->calls.type == MT_VALUE_LIST) {
            r->chat->n_lost += m->trained;
            continue;
        }
        mt_str text = { 0 };
        mt__write_thought(&text, r->rules->thought_tag, r->rules->thought_bare, thought, said);
        m->content = mt_value_str(r->base.a, text.n ? text.s : "", text.n);
        bool ok = mt_str_ok(&text) && m->content.type == MT_VALUE_STR;
        mt_str_free(&text);
        if (!ok) return mt_no_memory(r->base.err, "a record");
    }
    return MT_OK;
}

/* True if the template has no place for the tools or calls of this record. */
static bool needs_flattening(const reader *r)
{
    bool calls = false;
    for (size_t i = 0; i < r->chat->n; i++)
        calls |= r->chat->items[i].calls.type == MT_VALUE_LIST || r->chat->items[i].role == MT_ROLE_TOOL;
    return (r->rules->tools_as_text && r->chat->tools.type == MT_VALUE_LIST) || (r->rules->calls_as_actions && calls);
}

static mt_rc make_map(const reader *r, const mt_message *m, mt_value *out)
{
    mt__map_maker map;
    MT_TRY(mt__map_start(&r->base, &map, 8));
    mt_value content = m->role == MT_ROLE_ASSISTANT && r->rules->shows_empty ? without_thought(m) : m->content;
    bool null = r->rules->calls_beside_null && m->calls.type == MT_VALUE_LIST && !m->content.str.n;
    mt__map_put(&map, "role", mt__text_value(role_names[m->role], strlen(role_names[m->role])));
    mt__map_put(&map, "content", null ? (mt_value){ .type = MT_VALUE_NULL } : content);
    if (m->thought.type != MT_VALUE_NULL) { /* GPT-OSS's template shows the key thinking, most others reasoning_content */
        mt__map_put(&map, "thinking", m->thought);
        mt__map_put(&map, "reasoning_content", m->thought);
        if (!strcmp(m->thought_key, "reasoning")) mt__map_put(&map, "reasoning", m->thought);
    }
    if (m->calls.type != MT_VALUE_NULL) mt__map_put(&map, "tool_calls", m->calls);
    if (m->id.type != MT_VALUE_NULL) mt__map_put(&map, "tool_call_id", m->id);
    if (m->name.type != MT_VALUE_NULL) mt__map_put(&map, "name", m->name);
    *out = mt__map_done(&map);
    return MT_OK;
}

static mt_rc make_maps(const reader *r)
{
    mt_chat *c = r->chat;
    mt_value *maps = mt_arena_calloc(r->base.a, c->n, sizeof *maps);
    if (!maps) return mt_no_memory(r->base.err, "a record");
    for (size_t i = 0; i < c->n; i++) MT_TRY(make_map(r, &c->items[i], &maps[i]));
    c->maps = maps;
    return MT_OK;
}

static mt_rc read_record(reader *r)
{
    const mt_record_layout *l = r->layout;
    const mt_value *tools = l->tools ? mt_value_get(r->record, l->tools) : NULL;
    if (r->record->type != MT_VALUE_MAP)
        return mt__chat_bad(&r->base, MT_REASON_NOT_JSON, "a record should be an object and is %s",
                            mt_value_type_name(r->record));
    MT_TRY(l->formatting == MT_FORMATTING_ALPACA ? read_alpaca(r) : read_messages(r));
    MT_TRY(read_system(r));
    if (tools) MT_TRY(mt__chat_tools(&r->base, tools, &r->chat->tools));
    if (!r->rules->as_is) {
        if (r->rules->mask_history) mask_history(r->chat);
        MT_TRY(check_order(r));
        MT_TRY(check_answers(r));
    }
    number_tool_turns(r->chat);
    if (r->rules->drop_thoughts) drop_thoughts(r->chat, r->rules->prompt_closes_thought);
    if (needs_flattening(r)) MT_TRY(mt__chat_flatten(&r->base, r->chat, &r->system));
    if (r->rules->no_thoughts) MT_TRY(rewrite_thoughts(r));
    MT_TRY(put_system(r));
    return make_maps(r);
}

mt_rc mt_chat_read(mt_chat *out, mt_arena *a, const mt_record_layout *layout, const mt_chat_rules *rules, const mt_value *record,
                   mt_reason *reason, mt_err *err)
{
    *out = (mt_chat){ 0 };
    *reason = MT_REASON_NONE;
    reader r = { .base = { a, reason, err, rules->calls_as_text },
                 .layout = layout,
                 .rules = rules,
                 .record = record,
                 .chat = out,
                 .system = mt__text_value("", 0) };
    mt_rc rc = read_record(&r);
    return *reason == MT_REASON_NONE ? rc : MT_OK;
}
