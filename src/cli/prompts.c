#include "cli/prompts.h"

#include "api/chat.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/utf8.h"

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

/* A record's text under the first of the keys it has; NULL: none of them. */
static const mt_value *first_of(const mt_value *record, const char *const *keys)
{
    for (; *keys; keys++) {
        const mt_value *v = mt_value_get(record, *keys);
        if (v && v->type == MT_VALUE_STR) return v;
    }
    return NULL;
}

static char *copy(mt_asks *a, const mt_value *v) { return mt_arena_strndup(&a->arena, v->str.s, v->str.n); }

/* Question and input as LLaMA-Factory joins them. */
static char *prompts_join(mt_asks *a, const mt_value *question, const mt_value *input)
{
    if (!input || !input->str.n) return copy(a, question);
    char *s = mt_arena_alloc(&a->arena, question->str.n + input->str.n + 2);
    if (!s) return NULL;
    memcpy(s, question->str.s, question->str.n);
    s[question->str.n] = '\n';
    memcpy(s + question->str.n + 1, input->str.s, input->str.n);
    s[question->str.n + 1 + input->str.n] = 0;
    return s;
}

static mt_rc add_record(mt_asks *a, const mt_value *record, mt_err *err)
{
    static const char *const questions[] = { "instruction", "prompt", "query", "question", "problem", NULL }, *const inputs[] = {
        "input", NULL
    };
    static const char *const answers[] = { "output", "completion", "response", "answer", "solution", NULL }, *const tasks[] = {
        "task", NULL
    };
    if (record->type == MT_VALUE_STR) return add_text(a, record->str.s, record->str.n, err);
    const mt_value *question = first_of(record, questions), *answer = first_of(record, answers), *task = first_of(record, tasks);
    if (!question)
        return mt_fail(err, MT_EFORMAT,
                       "neither a text nor a record with \"instruction\" (and \"input\"), \"prompt\", \"query\", \"question\" or "
                       "\"problem\"");
    mt_ask ask = { .text = prompts_join(a, question, first_of(record, inputs)),
                   .expected = answer ? copy(a, answer) : NULL,
                   .task = task ? copy(a, task) : NULL };
    if (!ask.text || (answer && !ask.expected) || (task && !ask.task)) return mt_no_memory(err, "the prompts");
    return prompts_add(a, &ask, err);
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

static mt_rc add_file(mt_asks *a, const char *text, size_t n, const char *path, mt_err *err)
{
    if (mt_ends_with(path, ".json")) return add_json(a, text, n, path, err);
    if (mt_ends_with(path, ".jsonl") || mt_ends_with(path, ".ndjson")) return add_json_lines(a, text, n, path, err);
    return add_lines(a, text, n, err);
}

mt_rc mt_asks_read(mt_asks *a, const char *path, mt_err *err)
{
    mt_str text = { 0 };
    char *bytes = NULL;
    size_t n = 0;
    bool from_stdin = strcmp(path, "-") == 0;
    mt_rc rc = from_stdin ? slurp_stdin(&text, err) : mt_file_read(&bytes, &n, path, MAX_FILE_BYTES, err);
    if (!rc && from_stdin) rc = add_lines(a, text.s, text.n, err);
    if (!rc && !from_stdin) rc = add_file(a, bytes, n, path, err);
    mt_str_free(&text);
    mt_free(bytes);
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
    mt_rc rc = asker ? mt_chat_encode(asker, how->system, ask->text, &tokens, err)
                     : mt_tokenizer_encode(how->tok, scratch, ask->text, strlen(ask->text), MT_ENCODE_SPECIAL, &tokens, err);
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
