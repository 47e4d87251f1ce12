#include "cli/prompts.h"

#include "api/chat.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "data/messages.h"
#include "data/records.h"
#include "data/registry.h"

#include <stdio.h>
#include <string.h>

static const size_t MAX_FILE_BYTES = (size_t)1 << 30;

/* -- where they come from -------------------------------------------------------------------------- */

static mt_rc prompts_add(mt_asks *a, const mt_ask *ask, mt_err *err)
{
    MT_TRY(mt_grow(&a->items, &a->cap, a->n + 1, sizeof *a->items, err));
    a->items[a->n++] = *ask;
    return MT_OK;
}

static mt_rc add_text(mt_asks *a, const char *text, size_t n, mt_err *err)
{
    mt_ask ask = { .text = mt_arena_strndup(&a->arena, text, n) };
    return ask.text ? prompts_add(a, &ask, err) : mt_no_memory(err, "the prompts");
}

mt_rc mt_asks_add(mt_asks *a, const char *text, mt_err *err) { return add_text(a, text, strlen(text), err); }

static char *copy(mt_asks *a, const mt_value *v) { return mt_arena_strndup(&a->arena, v->str.s, v->str.n); }

/* -- records --------------------------------------------------------------------------------------- */

/* The first of the keys under which the record has a text; NULL: none of them. */
static const char *first_of(const mt_value *record, const char *const *keys)
{
    for (; *keys; keys++) {
        const mt_value *v = mt_value_get(record, *keys);
        if (v && v->type == MT_VALUE_STR) return *keys;
    }
    return NULL;
}

/* Of a kept value, all in the arena. */
static mt_rc keep_value(mt_asks *a, mt_value v, const mt_value **out, mt_err *err)
{
    mt_value *kept = mt_arena_calloc(&a->arena, 1, sizeof *kept);
    *out = kept;
    return kept && mt_value_copy(kept, &a->arena, &v) ? MT_OK : mt_no_memory(err, "the prompts");
}

/* The conversation up to its last answer, which is expected.  A question alone is a text. */
static mt_rc add_chat(mt_asks *a, const mt_chat *chat, bool answered, const char *task, mt_err *err)
{
    size_t n = chat->n, asked = n;
    mt_ask ask = { .task = task };
    const mt_message *last = n ? &chat->items[n - 1] : NULL;
    if (last && last->role == MT_ROLE_ASSISTANT) {
        const bool text = answered && (last->content.str.n || last->calls.type != MT_VALUE_LIST);
        if (text && !(ask.expected = copy(a, &last->content))) return mt_no_memory(err, "the prompts");
        n--;
    }
    while (asked && (asked > n || chat->items[asked - 1].role != MT_ROLE_USER)) asked--;
    if (!asked) return mt_fail(err, MT_EFORMAT, "nothing is asked in it");
    if (!(ask.text = copy(a, &chat->items[asked - 1].content))) return mt_no_memory(err, "the prompts");
    mt_value turns = { .type = MT_VALUE_LIST };
    turns.list.items = chat->maps;
    turns.list.n = n;
    if (n > 1 || chat->tools.type == MT_VALUE_LIST) MT_TRY(keep_value(a, turns, &ask.turns, err));
    if (chat->tools.type == MT_VALUE_LIST) MT_TRY(keep_value(a, chat->tools, &ask.tools, err));
    return prompts_add(a, &ask, err);
}

/* A record of a question, read like those to train on; one without an answer is given an empty one for that. */
static mt_rc question_layout(mt_record_layout *l, mt_value *record, bool *answered, mt_pair *pairs, mt_err *err)
{
    static const char *const questions[] = { "instruction", "prompt", "query", "question", "problem", "input", "text", NULL };
    static const char *const answers[] = { "output", "completion", "response", "answer", "solution", NULL };
    static const char no_answer[] = "(none)";
    const char *question = first_of(record, questions), *answer = question ? first_of(record, answers) : NULL;
    if (!question)
        return mt_fail(err, MT_EFORMAT,
                       "neither a text nor a record with \"messages\" or \"conversations\", or with \"instruction\" (and "
                       "\"input\"), \"prompt\", \"query\", \"question\", \"problem\", \"input\" or \"text\"");
    *answered = answer;
    *l = mt_record_layout_direct(question, answer ? answer : no_answer);
    l->query = strcmp(question, "input") != 0 ? "input" : NULL;
    l->history = "history";
    if (answer) return MT_OK;
    memcpy(pairs, record->map.pairs, record->map.n * sizeof *pairs);
    pairs[record->map.n] = (mt_pair){ no_answer, sizeof no_answer - 1, mt__text_value("", 0) };
    *record = mt__map_of(pairs, record->map.n + 1);
    return MT_OK;
}

static mt_rc read_record(mt_asks *a, mt_arena *arena, mt_value record, mt_err *err)
{
    static const char *const tasks[] = { "task", NULL };
    mt_record_layout l;
    char words[MT_LAYOUT_WORDS], *task = NULL;
    bool answered = true;
    mt_chat chat;
    mt_reason reason;
    const char *key = first_of(&record, tasks);
    if (key && !(task = copy(a, mt_value_get(&record, key)))) return mt_no_memory(err, "the prompts");
    if (mt_record_layout_detect(&l, words, &record, &(mt_err){ 0 }) || !l.messages) {
        mt_pair *pairs = mt_arena_calloc(arena, (record.type == MT_VALUE_MAP ? record.map.n : 0) + 1, sizeof *pairs);
        if (!pairs) return mt_no_memory(err, "the prompts");
        MT_TRY(question_layout(&l, &record, &answered, pairs, err));
    }
    MT_TRY(mt_chat_read(&chat, arena, &l, &(mt_chat_rules){ .as_is = true }, &record, &reason, err));
    return reason ? err->rc : add_chat(a, &chat, answered, task, err);
}

static mt_rc add_record(mt_asks *a, const mt_value *record, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_rc rc =
        record->type == MT_VALUE_STR ? add_text(a, record->str.s, record->str.n, err) : read_record(a, &arena, *record, err);
    mt_arena_free(&arena);
    return rc;
}

/* A file or folder as it is read to train on. */
static mt_rc add_records(mt_asks *a, mt_records *r, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_value record;
    mt_record_place where = { 0 };
    mt_rc rc = MT_OK;
    while (!rc) {
        char place[500];
        mt_arena_reset(&arena);
        rc = mt_records_next(r, &arena, &record, &where, err);
        if (rc || where.state == MT_RECORD_END) break;
        if (where.state == MT_RECORD_BAD) {
            rc = err->rc ? err->rc : MT_EFORMAT;
            break;
        }
        rc = add_record(a, &record, err);
        mt_record_place_text(place, sizeof place, &where);
        if (rc) mt_note(err, "%s", place);
    }
    mt_arena_free(&arena);
    return rc;
}

static mt_rc add_json(mt_asks *a, const char *text, size_t n, const char *path, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_value list;
    mt_rc rc = mt_value_parse_json(&list, &arena, text, n, NULL, path, err);
    if (!rc && list.type != MT_VALUE_LIST)
        rc = mt_fail(err, MT_EFORMAT, "%s holds %s; a list of prompts was expected", path, mt_value_type_name(&list));
    for (size_t i = 0; !rc && i < list.list.n; i++)
        if ((rc = add_record(a, &list.list.items[i], err))) mt_note(err, "%s: entry %zu", path, i + 1);
    mt_arena_free(&arena);
    return rc;
}

/* A JSON text or record on each line. */
static mt_rc add_json_lines(mt_asks *a, const char *text, size_t n, const char *path, mt_err *err)
{
    const char *end = text + n;
    mt_rc rc = MT_OK;
    text += mt_utf8_mark(text, n);
    for (size_t line = 1; !rc && text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text)), *to = newline ? newline : end;
        size_t length = (size_t)(to - text);
        mt_arena arena = { 0 };
        mt_value record;
        if (strspn(text, " \t\r") < length) {
            rc = mt_value_parse_json(&record, &arena, text, length, NULL, "the record", err);
            if (!rc) rc = add_record(a, &record, err);
            if (rc) mt_note(err, "%s, line %zu", path, line);
        }
        mt_arena_free(&arena);
        text = to + 1;
    }
    return rc;
}

/* Lines end with LF or CRLF, as in text files to train on. */
static mt_rc add_lines(mt_asks *a, const char *text, size_t n, mt_err *err)
{
    const char *end = text + n;
    for (text += mt_utf8_mark(text, n); text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text)), *to = newline ? newline : end;
        size_t length = (size_t)(to - text);
        if (length && text[length - 1] == '\r') length--;
        if (length) MT_TRY(add_text(a, text, length, err));
        text = to + 1;
    }
    return MT_OK;
}

static mt_rc slurp_stdin(mt_str *out, mt_err *err)
{
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, stdin));) mt_str_add(out, piece, n);
    if (ferror(stdin)) return mt_fail_errno(err, MT_EIO, "reading standard input");
    return mt_str_ok(out) ? MT_OK : mt_no_memory(err, "the prompts");
}

/* JSON whose parts may be texts: a list, or a value on each line. */
static bool may_hold_texts(const char *path, const char *text, size_t n)
{
    for (text += mt_utf8_mark(text, n); *text && strchr(" \t\r\n", *text);) text++;
    return mt_ends_with(path, ".jsonl") || mt_ends_with(path, ".ndjson") || *text == '[';
}

static mt_rc read_text_file(mt_asks *a, const char *path, bool json, bool *done, mt_err *err)
{
    char *text = NULL;
    size_t n = 0;
    MT_TRY(mt_file_read(&text, &n, path, MAX_FILE_BYTES, err));
    const bool lines = mt_ends_with(path, ".jsonl") || mt_ends_with(path, ".ndjson");
    mt_rc rc = MT_OK;
    *done = !json || may_hold_texts(path, text, n);
    if (*done && !json)
        rc = add_lines(a, text, n, err);
    else if (*done)
        rc = lines ? add_json_lines(a, text, n, path, err) : add_json(a, text, n, path, err);
    mt_free(text);
    return rc;
}

static mt_rc read_stdin_lines(mt_asks *a, mt_err *err)
{
    mt_str text = { 0 };
    mt_rc rc = slurp_stdin(&text, err);
    if (!rc) rc = add_lines(a, text.s, text.n, err);
    mt_str_free(&text);
    return rc;
}

mt_rc mt_asks_read(mt_asks *a, const char *path, mt_err *err)
{
    mt_records *r = NULL;
    mt_err why = { 0 };
    bool done = false;
    if (strcmp(path, "-") == 0) return read_stdin_lines(a, err);
    mt_rc rc = mt_records_open(&r, path, NULL, &why);
    const char *format = rc ? "text" : mt_records_format(r);
    const bool unnamed = mt_file_exists(path) && !mt_dataset_is_file_name(path); /* then it holds lines */
    if (rc && !(unnamed && rc == MT_EFORMAT)) return mt_fail(err, rc, "%s", why.msg);
    rc = MT_OK;
    if (mt_file_exists(path) && (strcmp(format, "text") == 0 || strcmp(format, "json") == 0))
        rc = read_text_file(a, path, strcmp(format, "json") == 0, &done, err);
    if (!rc && !done) rc = add_records(a, r, err);
    mt_records_close(r);
    return rc;
}

mt_rc mt_asks_read_stdin(mt_asks *a, mt_err *err)
{
    mt_str text = { 0 };
    mt_rc rc = slurp_stdin(&text, err);
    if (!rc && text.n && text.s[text.n - 1] == '\n') text.n--;
    if (!rc && text.n) rc = add_text(a, text.s, text.n, err);
    mt_str_free(&text);
    return rc;
}

/* -- as token ids ---------------------------------------------------------------------------------- */

/* Equal prompts draw different random numbers, which do not depend on the other prompts. */
static void set_streams(mt_asks *a)
{
    for (size_t i = 0; i < a->n; i++) {
        uint64_t hash = mt_hash(a->items[i].ids, a->items[i].n_ids * sizeof(int32_t), 0);
        a->items[i].stream = hash;
        for (size_t j = i; j-- > 0;)
            if (a->items[j].n_ids == a->items[i].n_ids &&
                memcmp(a->items[j].ids, a->items[i].ids, a->items[i].n_ids * sizeof(int32_t)) == 0) {
                a->items[i].stream = a->items[j].stream + 1;
                break;
            }
    }
}

/* asker: NULL if the text is continued as it is. */
static mt_rc encode_one(mt_asks *a, mt_ask *ask, const mt_asks_encoding *how, const mt_sampler *asker, mt_tok_scratch *scratch,
                        mt_err *err)
{
    mt_tokens tokens = { 0 };
    mt_rc rc;
    if (asker && ask->turns)
        rc = mt_chat_encode_turns(asker, how->system, ask->turns, ask->tools, &tokens, err);
    else if (asker)
        rc = mt_chat_encode(asker, how->system, ask->text, &tokens, err);
    else if (ask->turns)
        rc = mt_fail(err, MT_EINVAL, "it has several turns, a system message or tools; give --chat to show them to the model");
    else
        rc = mt_tokenizer_encode(how->tok, scratch, ask->text, strlen(ask->text), MT_ENCODE_SPECIAL, &tokens, err);
    if (!rc && !tokens.n) rc = mt_fail(err, MT_EINVAL, "the prompt is empty");
    if (!rc && !(ask->ids = mt_arena_alloc(&a->arena, tokens.n * sizeof *ask->ids))) rc = mt_no_memory(err, "the prompts");
    if (!rc) memcpy(ask->ids, tokens.ids, (ask->n_ids = tokens.n) * sizeof *ask->ids);
    mt_tokens_free(&tokens);
    return rc;
}

mt_rc mt_asks_encode(mt_asks *a, const mt_asks_encoding *how, mt_err *err)
{
    mt_sampler *asker = NULL;
    mt_tok_scratch *scratch = NULL;
    mt_rc rc = how->chat ? mt_chat_open(&asker, how->tok, "remove --chat", err) : MT_OK;
    if (!rc) rc = mt_tok_scratch_create(&scratch, how->tok, err);
    for (size_t i = 0; !rc && i < a->n; i++)
        if ((rc = encode_one(a, &a->items[i], how, asker, scratch, err))) mt_note(err, "prompt %zu", i + 1);
    if (!rc) set_streams(a);
    mt_tok_scratch_free(scratch);
    mt_sampler_close(asker);
    return rc;
}

void mt_asks_free(mt_asks *a)
{
    mt_free(a->items);
    mt_arena_free(&a->arena);
    *a = (mt_asks){ 0 };
}
