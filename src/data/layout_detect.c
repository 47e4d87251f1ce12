/* layout_detect.c - how a file of the user's own is laid out, from one of its records.  To recognize another pair of columns, add
 * a row.  The columns that records may have or lack (history, system, tools, labels) are in the layout even if this record lacks
 * them: another one may have them. */
#include "data/layout.h"

#include "base/str.h"
#include "data/slice.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Columns of question and answer, the more telling ones first; the second one joins the question where it is there. */
static const struct {
    const char *prompt, *query, *response;
} pairs[] = {
    { "instruction", "input", "output" }, { "instruction", "input", "response" }, { "prompt", NULL, "completion" },
    { "query", NULL, "response" },        { "question", NULL, "answer" },         { "prompt", NULL, "response" },
    { "question", NULL, "response" },     { "problem", NULL, "solution" },        { "input", NULL, "output" },
};

static const char *const turn_columns[] = { "messages", "conversations", "conversation", "dialogue", "dialog", "chat" };

/* Keys of a turn, and the formatting that has them. */
static const struct {
    const char *role, *content;
    mt_formatting formatting;
} turn_keys[] = { { "role", "content", MT_FORMATTING_OPENAI }, { "from", "value", MT_FORMATTING_SHAREGPT } };

static const mt_value *get(const mt_value *record, const char *column, mt_value_type type)
{
    const mt_value *v = column ? mt_value_get(record, column) : NULL;
    return v && v->type == type ? v : NULL;
}

/* ---- conversations ---- */

const char *const mt_user_names[] = { "user", "human", NULL };
const char *const mt_assistant_names[] = { "assistant", "gpt", "model", "bot", NULL };
const char *const mt_tool_names[] = { "tool", "observation", NULL };

/* The first of the names that a turn has as its role; `fallback` if none does. */
static const char *role_among(const mt_value *turns, const char *key, const char *const *names, const char *fallback)
{
    for (; *names; names++)
        for (size_t i = 0; i < turns->list.n; i++)
            if (mt_value_is(mt_value_get(&turns->list.items[i], key), *names)) return *names;
    return fallback;
}

static void read_roles(mt_record_layout *l, const mt_value *turns)
{
    l->user_tag = role_among(turns, l->role_tag, mt_user_names, l->user_tag);
    l->assistant_tag = role_among(turns, l->role_tag, mt_assistant_names, l->assistant_tag);
    l->observation_tag = role_among(turns, l->role_tag, mt_tool_names, l->observation_tag);
    l->usual_roles = true; /* other records may have others */
}

static bool detect_turns(mt_record_layout *l, char *words, const mt_value *record)
{
    for (size_t c = 0; c < MT_COUNT(turn_columns); c++) {
        const mt_value *turns = get(record, turn_columns[c], MT_VALUE_LIST);
        for (size_t k = 0; turns && turns->list.n && k < MT_COUNT(turn_keys); k++) {
            const mt_value *first = &turns->list.items[0];
            if (first->type != MT_VALUE_MAP || !mt_value_get(first, turn_keys[k].role)) continue;
            *l = mt_record_layout_default(turn_keys[k].formatting);
            l->messages = turn_columns[c];
            l->messages_too = NULL;
            l->tools = "tools";
            read_roles(l, turns);
            snprintf(words, MT_LAYOUT_WORDS, "conversations in \"%s\", with \"%s\" (%s, %s) and \"%s\"", l->messages, l->role_tag,
                     l->user_tag, l->assistant_tag, l->content_tag);
            return true;
        }
    }
    return false;
}

/* ---- columns ---- */

static bool detect_tokens(mt_record_layout *l, char *words, const mt_value *record)
{
    if (!get(record, "input_ids", MT_VALUE_LIST)) return false;
    *l = mt_record_layout_default(MT_FORMATTING_ALPACA);
    l->ids = "input_ids";
    l->labels = "labels";
    snprintf(words, MT_LAYOUT_WORDS, "tokens in \"input_ids\", %s",
             get(record, "labels", MT_VALUE_LIST) ? "those that \"labels\" has are trained"
                                                  : "all of them trained unless a record has \"labels\"");
    return true;
}

static bool detect_pair(mt_record_layout *l, char *words, const mt_value *record)
{
    for (size_t i = 0; i < MT_COUNT(pairs); i++) {
        if (!get(record, pairs[i].prompt, MT_VALUE_STR) || !mt_value_get(record, pairs[i].response)) continue;
        if (get(record, pairs[i].response, MT_VALUE_LIST)) continue;
        *l = mt_record_layout_direct(pairs[i].prompt, pairs[i].response);
        l->query = pairs[i].query;
        l->history = "history";
        bool more = pairs[i].query && mt_value_get(record, pairs[i].query);
        snprintf(words, MT_LAYOUT_WORDS, "\"%s\"%s%s%s asks, \"%s\" answers", l->prompt, more ? " with \"" : "",
                 more ? l->query : "", more ? "\"" : "", l->response);
        return true;
    }
    return false;
}

static bool detect_text(mt_record_layout *l, char *words, const mt_value *record)
{
    if (!get(record, "text", MT_VALUE_STR)) return false;
    *l = mt_record_layout_default(MT_FORMATTING_ALPACA);
    l->text_only = true;
    snprintf(words, MT_LAYOUT_WORDS, "plain text in \"text\", all of it trained");
    return true;
}

/* ---- unrecognized layouts ---- */

static void list_keys(mt_str *out, const mt_value *map)
{
    for (size_t i = 0; map->type == MT_VALUE_MAP && i < map->map.n && i < 12; i++)
        mt_str_printf(out, "%s%.*s", i ? ", " : "", (int)map->map.pairs[i].key_n, map->map.pairs[i].key);
}

/* A list of objects in a column for conversations, or with roles in any column. */
static bool has_turns(const mt_pair *column)
{
    const mt_value *v = &column->value;
    if (v->type != MT_VALUE_LIST || !v->list.n || v->list.items[0].type != MT_VALUE_MAP) return false;
    for (size_t c = 0; c < MT_COUNT(turn_columns); c++)
        if (strlen(turn_columns[c]) == column->key_n && memcmp(turn_columns[c], column->key, column->key_n) == 0) return true;
    for (size_t k = 0; k < MT_COUNT(turn_keys); k++)
        if (mt_value_get(&v->list.items[0], turn_keys[k].role)) return true;
    return false;
}

/* The one column that probably holds conversations; NULL: none, or several (a prompt and a completion made of turns). */
static const mt_pair *find_turns(const mt_value *record)
{
    const mt_pair *found = NULL;
    int n = 0;
    for (size_t i = 0; record->type == MT_VALUE_MAP && i < record->map.n; i++)
        if (has_turns(&record->map.pairs[i])) found = &record->map.pairs[i], n++;
    return n == 1 ? found : NULL;
}

/* A conversation in a column, or with keys, that are not recognized. */
static mt_rc turns_not_known(const mt_pair *turns, mt_err *err)
{
    mt_str keys = { 0 };
    list_keys(&keys, &turns->value.list.items[0]);
    mt_rc rc = mt_fail(err, MT_EFORMAT,
                       "the turns in its column \"%.*s\" have the keys %s.  Recognized are the columns messages, conversations, "
                       "conversation, dialogue, dialog and chat, with turns of role and content, or of from and value.  Describe "
                       "yours in dataset_info.json: \"columns\": {\"messages\": \"%.*s\"} and \"tags\" (docs/data-files.md)",
                       (int)turns->key_n, turns->key, keys.n ? keys.s : "none", (int)turns->key_n, turns->key);
    mt_str_free(&keys);
    return rc;
}

/* A CSV file with another delimiter has one column, whose name holds all the others. */
static const char *find_delimiter(const mt_value *record)
{
    static const struct {
        char c;
        const char *name;
    } others[] = { { ';', ";" }, { '\t', "tab" }, { '|', "|" } };
    if (record->type != MT_VALUE_MAP || record->map.n != 1) return NULL;
    for (size_t i = 0; i < MT_COUNT(others); i++)
        if (memchr(record->map.pairs[0].key, others[i].c, record->map.pairs[0].key_n)) return others[i].name;
    return NULL;
}

/* The column that is a list of objects, where the whole file may be one object; NULL: none. */
static const mt_pair *find_list(const mt_value *record)
{
    for (size_t i = 0; record->type == MT_VALUE_MAP && i < record->map.n; i++) {
        const mt_value *v = &record->map.pairs[i].value;
        if (v->type == MT_VALUE_LIST && v->list.n && v->list.items[0].type == MT_VALUE_MAP) return &record->map.pairs[i];
    }
    return NULL;
}

/* The columns of a question and its answer are there, but one of them is not text. */
static mt_rc check_pairs(const mt_value *record, mt_err *err)
{
    for (size_t i = 0; record->type == MT_VALUE_MAP && i < MT_COUNT(pairs); i++) {
        const mt_value *prompt = mt_value_get(record, pairs[i].prompt), *response = mt_value_get(record, pairs[i].response);
        if (!prompt || !response) continue;
        bool asks = prompt->type == MT_VALUE_STR;
        const mt_value *odd = asks ? response : prompt;
        return mt_fail(err, MT_EFORMAT, "its column \"%s\" is %s, and text was expected%s",
                       asks ? pairs[i].response : pairs[i].prompt, mt_value_type_name(odd),
                       odd->type == MT_VALUE_LIST ? ".  Write a conversation as one list of messages in a column \"messages\""
                                                  : "");
    }
    return MT_OK;
}

/* CSV files, and tables made with one, hold conversations as JSON text. */
static mt_rc check_text_turns(const mt_value *record, mt_err *err)
{
    for (size_t c = 0; record->type == MT_VALUE_MAP && c < MT_COUNT(turn_columns); c++) {
        const mt_value *text = get(record, turn_columns[c], MT_VALUE_STR);
        if (text && text->str.n && text->str.s[0] == '[')
            return mt_fail(err, MT_EFORMAT,
                           "its column \"%s\" is text, and a list of turns was expected.  Write the conversations as lists, in a "
                           "JSON or Parquet file",
                           turn_columns[c]);
    }
    return MT_OK;
}

static mt_rc not_known(const mt_value *record, mt_err *err)
{
    MT_TRY(check_pairs(record, err));
    MT_TRY(check_text_turns(record, err));
    const mt_pair *turns = find_turns(record), *list = find_list(record);
    const char *delimiter = find_delimiter(record);
    if (turns) return turns_not_known(turns, err);
    if (delimiter)
        return mt_fail(err, MT_EFORMAT,
                       "its only column is named \"%.*s\"; if that is several columns, set dataset.delimiter: \"%s\"",
                       (int)record->map.pairs[0].key_n, record->map.pairs[0].key, delimiter);
    mt_str have = { 0 };
    list_keys(&have, record);
    mt_rc rc = mt_fail(
        err, MT_EFORMAT,
        "how its records are laid out is not clear from their columns (%s).  Recognized are messages or conversations (a "
        "list of turns), instruction/input/output, prompt/completion, query/response, question/answer, text, and "
        "input_ids/labels.  Name yours with query_field and response_field, or describe the data in dataset_info.json%s%.*s%s",
        have.n ? have.s : "none", list ? ".  If the records are the list \"" : "", list ? (int)list->key_n : 0,
        list ? list->key : "", list ? "\", set dataset.field to its name" : "");
    mt_str_free(&have);
    return rc;
}

/* ---- what is not trained on yet ---- */

const mt_untrained_column mt_untrained_columns[] = {
    { "images", "images are not trained on yet", true },
    { "image", "images are not trained on yet", true },
    { "videos", "videos are not trained on yet", true },
    { "video", "videos are not trained on yet", true },
    { "audios", "sound is not trained on yet", true },
    { "audio", "sound is not trained on yet", true },
    { "chosen", "preference pairs are not trained on yet", false },
    { "rejected", "preference pairs are not trained on yet", false },
    { "kto_tag", "preference labels are not trained on yet", false },
};
const size_t mt_n_untrained_columns = MT_COUNT(mt_untrained_columns);

/* A path or bytes.  Tables have null, or an empty text, list or object, where a record has no picture; a number or a yes or no
 * is none either. */
static bool holds_media(const mt_value *v)
{
    bool found = false;
    if (!v) return false;
    if (v->type == MT_VALUE_STR) return v->str.n > 0;
    for (size_t i = 0; v->type == MT_VALUE_LIST && !found && i < v->list.n; i++) found = holds_media(&v->list.items[i]);
    for (size_t i = 0; v->type == MT_VALUE_MAP && !found && i < v->map.n; i++) found = holds_media(&v->map.pairs[i].value);
    return found;
}

/* True if a text anywhere in the value has one of the marks that stand for a picture or sound. */
static bool has_media_mark(const mt_value *v)
{
    static const char *const marks[] = { "<image>", "<video>", "<audio>" };
    bool found = false;
    for (size_t m = 0; v->type == MT_VALUE_STR && !found && m < MT_COUNT(marks); m++)
        found = mt_slice_has((mt_slice){ v->str.s, v->str.n }, (mt_slice){ marks[m], strlen(marks[m]) });
    for (size_t i = 0; v->type == MT_VALUE_LIST && !found && i < v->list.n; i++) found = has_media_mark(&v->list.items[i]);
    for (size_t i = 0; v->type == MT_VALUE_MAP && !found && i < v->map.n; i++) found = has_media_mark(&v->map.pairs[i].value);
    return found;
}

/* With what trains on the better answers, as on other records. */
static mt_rc refuse_pairs(const mt_value *record, mt_err *err)
{
    const char *better = "";
    if (mt_value_get(record, "chosen")->type == MT_VALUE_LIST)
        better =
            ".  To train on the chosen conversations, describe the file in dataset_info.json with \"formatting\": \"openai\" "
            "and \"columns\": {\"messages\": \"chosen\"}";
    else if (mt_value_get(record, "chosen")->type == MT_VALUE_STR)
        better = ".  To train on the chosen answers, set query_field to the question's column and response_field to chosen";
    return mt_fail(err, MT_EUNSUPPORTED,
                   "its records are preference pairs (\"chosen\", \"rejected\"), which are not trained on yet%s", better);
}

/* A yes or no, also as CSV has it. */
static bool is_verdict(const mt_value *v)
{
    if (!v || v->type != MT_VALUE_STR) return v && v->type == MT_VALUE_BOOL;
    return (v->str.n == 4 && !strncasecmp(v->str.s, "true", 4)) || (v->str.n == 5 && !strncasecmp(v->str.s, "false", 5));
}

static mt_rc refuse_verdicts(const char *column, mt_err *err)
{
    return mt_fail(
        err, MT_EUNSUPPORTED,
        "its column \"%s\" says whether an answer is wanted (KTO), and such labels are not trained on yet: all answers "
        "would be trained alike.  Remove the records with unwanted answers and the column; or, if it means something "
        "else, name the columns to read with query_field and response_field, or in dataset_info.json (\"columns\")",
        column);
}

static mt_rc refuse_media(const mt_record_layout *l, const mt_untrained_column *c, mt_err *err)
{
    if (l->named)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "its text has a mark for what is in its column \"%s\" (<image>, <video> or <audio>): %s.  Remove such "
                       "records, or the column if the mark is only text",
                       c->name, c->why);
    return mt_fail(err, MT_EUNSUPPORTED,
                   "it has something in its column \"%s\": %s.  Remove such records; or, to train on their text alone, name the "
                   "columns to read with query_field and response_field, or in dataset_info.json (\"columns\")",
                   c->name, c->why);
}

mt_rc mt_record_layout_check(const mt_record_layout *l, const mt_value *record, mt_err *err)
{
    if (record->type != MT_VALUE_MAP) return MT_OK;
    for (size_t i = 0; i < mt_n_untrained_columns; i++) {
        const mt_untrained_column *c = &mt_untrained_columns[i];
        if (!c->media || !holds_media(mt_value_get(record, c->name))) continue;
        if (!l->named || has_media_mark(record)) return refuse_media(l, c, err);
    }
    if (l->named) return MT_OK;
    if (mt_value_get(record, "chosen") && mt_value_get(record, "rejected")) return refuse_pairs(record, err);
    if (l->ids || mt_record_layout_is_text(l, record)) return MT_OK; /* a label may be of another kind there */
    const mt_value *tag = mt_value_get(record, "kto_tag");
    if (tag && tag->type != MT_VALUE_NULL) return refuse_verdicts("kto_tag", err);
    return is_verdict(mt_value_get(record, "label")) ? refuse_verdicts("label", err) : MT_OK;
}

/* ---- the layout of a record ---- */

mt_rc mt_record_layout_detect(mt_record_layout *out, char words[MT_LAYOUT_WORDS], const mt_value *record, mt_err *err)
{
    if (record->type != MT_VALUE_MAP) return not_known(record, err);
    if (mt_value_get(record, "chosen") && mt_value_get(record, "rejected")) return refuse_pairs(record, err);
    if (detect_tokens(out, words, record) || detect_turns(out, words, record) || detect_pair(out, words, record) ||
        detect_text(out, words, record))
        return MT_OK;
    return not_known(record, err);
}
