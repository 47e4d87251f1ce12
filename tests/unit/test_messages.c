/* Records of every layout, good, odd and bad, as messages. */
#include "test.h"

#include "data/messages.h"

static mt_record_layout alpaca(void) { return mt_record_layout_default(MT_FORMATTING_ALPACA); }
static mt_record_layout sharegpt(void) { return mt_record_layout_default(MT_FORMATTING_SHAREGPT); }
static mt_record_layout openai(void) { return mt_record_layout_default(MT_FORMATTING_OPENAI); }

/* The messages of a record as JSON, or "REASON: message". */
static char *read_as(mt_record_layout layout, mt_chat_rules rules, const char *json)
{
    mt_err err = { 0 };
    mt_arena arena = { 0 };
    mt_value record;
    mt_chat chat;
    mt_reason reason;
    mt_str out = { 0 };
    char *text;
    assert_ok(mt_value_parse_json(&record, &arena, json, strlen(json), NULL, "record", &err));
    mt_rc rc = mt_chat_read(&chat, &arena, &layout, &rules, &record, &reason, &err);
    if (rc)
        mt_str_printf(&out, "%s: %s", mt_rc_name(rc), err.msg);
    else if (reason != MT_REASON_NONE)
        mt_str_printf(&out, "%s: %s", mt_reason_text(reason), err.msg);
    else {
        for (size_t i = 0; i < chat.n; i++) {
            mt_str_puts(&out, i ? " " : "");
            mt_value_write_json(&out, &chat.maps[i]);
            if (chat.items[i].trained) mt_str_puts(&out, "*");
        }
        if (chat.tools.type != MT_VALUE_NULL) {
            mt_str_puts(&out, " tools ");
            mt_value_write_json(&out, &chat.tools);
        }
        if (chat.cut_at_end) mt_str_puts(&out, " cut");
    }
    assert_ok(mt_str_done(&out, &text, &err));
    mt_arena_free(&arena);
    return text;
}

static void expect_with(mt_record_layout layout, mt_chat_rules rules, const char *json, const char *want)
{
    char *got = read_as(layout, rules, json);
    if (strcmp(got, want) != 0) fail_msg("%s\n  want %s\n  got  %s", json, want, got);
    mt_free(got);
}

static void expect(mt_record_layout layout, const char *json, const char *want)
{
    expect_with(layout, (mt_chat_rules){ 0 }, json, want);
}

#define U(text)    "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text)    "{\"role\": \"assistant\", \"content\": \"" text "\"}*"
#define S(text)    "{\"role\": \"system\", \"content\": \"" text "\"}"
#define FROM(a, b) "{\"from\":\"" a "\",\"value\":\"" b "\"}"

static void alpaca_records_are_read(void **state)
{
    (void)state;
    mt_record_layout l = alpaca();
    expect(l, "{\"instruction\":\"Q\",\"input\":\"I\",\"output\":\"A\"}", U("Q\\nI") " " A("A"));
    expect(l, "{\"instruction\":\"Q\",\"input\":\"\",\"output\":\"A\"}", U("Q") " " A("A")); /* an empty input adds no newline */
    expect(l, "{\"instruction\":\"Q\",\"input\":null,\"output\":\"A\"}", U("Q") " " A("A"));
    expect(l, "{\"instruction\":\"Q\",\"output\":\"A\"}", U("Q") " " A("A"));
    expect(l, "{\"instruction\":\"\",\"input\":\"I\",\"output\":\"A\"}", U("I") " " A("A"));
    expect(l, "{\"instruction\":\"Q\",\"output\":\"\"}", U("Q") " " A(""));
    expect(l, "{\"instruction\":\"Q\",\"output\":\"A\",\"system\":\"S\",\"tools\":\"unread\"}", S("S") " " U("Q") " " A("A"));
    l.history = "history";
    expect(l, "{\"instruction\":\"Q\",\"output\":\"A\",\"history\":[[\"a\",\"b\"],[\"c\",\"d\"]]}",
           U("a") " " A("b") " " U("c") " " A("d") " " U("Q") " " A("A"));
    expect(l, "{\"instruction\":\"Q\",\"output\":\"A\",\"history\":null}", U("Q") " " A("A"));
    expect(l, "{\"instruction\":\"Q\",\"output\":\"A\",\"history\":[[\"a\"]]}",
           "malformed record: entry 1 of \"history\" should be a pair of question and answer");
}

static void chats_are_read(void **state)
{
    (void)state;
    expect(sharegpt(), "{\"conversations\":[" FROM("human", "Q") "," FROM("gpt", "A") "]}", U("Q") " " A("A"));
    expect(sharegpt(),
           "{\"conversations\":[" FROM("system", "S") "," FROM("human", "Q") "," FROM("gpt", "A") "],\"system\":\"T\"}",
           S("S") " " U("Q") " " A("A"));
    expect(sharegpt(), "{\"conversations\":[{\"from\":\"system\",\"value\":null}," FROM("human", "Q") "," FROM("gpt", "A") "]}",
           U("Q") " " A("A"));
    expect(sharegpt(), "{\"conversations\":[" FROM("human", "Q") "," FROM("gpt", "A") "],\"system\":\"T\"}",
           S("T") " " U("Q") " " A("A"));
    expect(openai(),
           "{\"messages\":[{\"role\":\"developer\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Q\",\"name\":null},{"
           "\"role\":\"assistant\",\"content\":\"A\"}]}",
           S("S") " " U("Q") " " A("A"));
    expect(openai(),
           "{\"conversations\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"A\",\"tool_calls\":"
           "null}]}",
           U("Q") " " A("A"));
}

static void content_in_parts_is_joined_and_pictures_are_refused(void **state)
{
    (void)state;
    expect(openai(),
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},\"b\"]},{\"role\":\"assistant\","
           "\"content\":[]}]}",
           U("ab") " " A(""));
    expect(openai(),
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]},{\"role\":\"assistant\","
           "\"content\":\"A\"}]}",
           "MT_EUNSUPPORTED: what the user says has a part of type \"image_url\": only text is trained on");
}

static void bad_records_are_named(void **state)
{
    (void)state;
    mt_record_layout direct = mt_record_layout_direct("query", "response");
    expect(alpaca(), "[1]", "malformed record: a record should be an object and is a list");
    expect(alpaca(), "{\"instruction\":\"Q\"}", "a column is missing: no column \"output\" (it has: instruction)");
    expect(alpaca(), "{\"question\":\"Q\",\"answer\":\"A\"}",
           "a column is missing: no column \"instruction\" (it has: question, answer); by its columns it is "
           "\"question\" asks, "
           "\"answer\" answers: describe that in dataset_info.json");
    expect(direct, "{\"q\":\"Q\",\"a\":1}",
           "a column is missing: no column \"query\" (it has: q, a); name yours with query_field and response_field, or "
           "describe the data in dataset_info.json");
    expect(alpaca(), "{\"instruction\":\"Q\",\"output\":null}",
           "the answer is null or not text: the answer should be text and is null");
    expect(alpaca(), "{\"instruction\":\"Q\",\"output\":7}",
           "the answer is null or not text: the answer should be text and is an integer");
    expect(alpaca(), "{\"instruction\":null,\"output\":\"A\"}", "a column is missing: instruction should be text and is null");
    expect(sharegpt(), "{\"messages\":[]}", "a column is missing: no column \"conversations\" (it has: messages)");
    expect(sharegpt(), "{\"conversations\":\"Q\"}",
           "a column is missing: \"conversations\" should be a list of messages and is a string");
    expect(sharegpt(), "{\"conversations\":[]}", "no answer to train on: \"conversations\" is empty");
    expect(sharegpt(), "{\"conversations\":[{\"value\":\"x\"}]}", "a column is missing: message 1 has no \"from\" that is text");
    expect(sharegpt(), "{\"conversations\":[" FROM("gpt", "A") "]}",
           "the first turn is not the user's: the first turn is the assistant's, it should be the user's");
    expect(sharegpt(), "{\"conversations\":[" FROM("human", "Q") "," FROM("human", "R") "," FROM("gpt", "A") "]}",
           "two turns of one side in a row: turns 1 and 2 are both the user's (merge_turns: true joins them)");
    expect(sharegpt(), "{\"conversations\":[" FROM("human", "Q") "," FROM("bing", "A") "]}",
           "unknown role: message 2 has the role \"bing\"; known are human, gpt, system, observation and function_call "
           "(\"tags\" in dataset_info.json names others)");
    expect(sharegpt(), "{\"conversations\":[" FROM("human", "Q") "," FROM("system", "A") "]}",
           "unknown role: message 2 is a system message; only the first may be one");
    expect(sharegpt(), "{\"conversations\":[" FROM("human", "Q") ",{\"from\":\"gpt\",\"value\":null}]}",
           "the answer is null or not text: the answer should be text and is null");
    expect(sharegpt(), "{\"conversations\":[" FROM("human", "Q") ",{\"from\":\"gpt\"}]}",
           "the answer is null or not text: the answer should be text and is missing");
    expect(sharegpt(), "{\"conversations\":[" FROM("human", "Q") "]}", "no answer to train on: it has no answer");
    expect(openai(),
           "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"A\",\"train\":false}]}",
           "no answer to train on: none of its answers is to be trained");
    expect(openai(),
           "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"A\",\"weight\":0.5}]}",
           "the answer is null or not text: \"weight\" of a message should be 0 or 1");
}

static void odd_records_are_used(void **state)
{
    (void)state;
    expect(sharegpt(), "{\"conversations\":[" FROM("human", "Q") "," FROM("gpt", "A") "," FROM("human", "R") "]}",
           U("Q") " " A("A") " cut");
    expect_with(sharegpt(), (mt_chat_rules){ .merge_turns = true },
                "{\"conversations\":[" FROM("human", "Q") "," FROM("human", "R") "," FROM("gpt", "A") "," FROM("gpt", "B") "]}",
                U("Q\\n\\nR") " " A("A\\n\\nB"));
    expect_with(sharegpt(), (mt_chat_rules){ .merge_turns = true },
                "{\"conversations\":[" FROM("gpt", "A") "," FROM("gpt", "B") "]}",
                "the first turn is not the user's: the first turn is the assistant's, it should be the user's");
}

#define THINKS(key, text) "{\"role\":\"assistant\",\"content\":\"A\",\"" key "\":" text "}"
#define THOUGHT(text)                                                                                                            \
    "{\"role\": \"assistant\", \"content\": \"A\", \"thinking\": \"" text "\", \"reasoning_content\": \"" text "\""

/* Templates read one of two keys, whichever the record has. */
static void a_thought_under_any_key_reaches_the_template(void **state)
{
    (void)state;
#define ASKED "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},"
    expect(openai(), ASKED THINKS("reasoning_content", "\"hm\"") "]}", U("Q") " " THOUGHT("hm") "}*");
    expect(openai(), ASKED THINKS("thinking", "\"hm\"") "]}", U("Q") " " THOUGHT("hm") "}*");
    expect(openai(), ASKED THINKS("reasoning", "\"hm\"") "]}", U("Q") " " THOUGHT("hm") ", \"reasoning\": \"hm\"}*");
    expect(openai(), ASKED THINKS("reasoning_content", "null,\"thinking\":\"\",\"reasoning\":\"hm\"") "]}",
           U("Q") " " THOUGHT("hm") ", \"reasoning\": \"hm\"}*");
    expect(openai(), ASKED THINKS("reasoning", "null") "]}", U("Q") " " A("A"));
    const mt_chat_rules merge = { .merge_turns = true };
    expect_with(openai(), merge, ASKED "{\"role\":\"assistant\",\"content\":\"\"}," THINKS("thinking", "\"hm\"") "]}",
                U("Q") " " THOUGHT("hm") "}*");
    expect_with(openai(), merge,
                ASKED "{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"so\"}," THINKS("thinking", "\"hm\"") "]}",
                U("Q") " " THOUGHT("so\\n\\nhm") "}*");
}

static void system_prompts_replace_or_fill_in(void **state)
{
    (void)state;
    const char *with = "{\"instruction\":\"Q\",\"output\":\"A\",\"system\":\"S\"}",
               *without = "{\"instruction\":\"Q\",\"output\":\"A\",\"system\":\"\"}";
    expect_with(alpaca(), (mt_chat_rules){ .system_prompt = "T" }, with, S("T") " " U("Q") " " A("A"));
    expect_with(alpaca(), (mt_chat_rules){ .system_prompt = "T" }, without, S("T") " " U("Q") " " A("A"));
    expect_with(alpaca(), (mt_chat_rules){ .default_system = "D" }, with, S("S") " " U("Q") " " A("A"));
    expect_with(alpaca(), (mt_chat_rules){ .default_system = "D" }, without, S("D") " " U("Q") " " A("A"));
}

static void what_is_trained_is_marked(void **state)
{
    (void)state;
    const char *chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{"
                       "\"role\":\"user\",\"content\":\"c\"},"
                       "{\"role\":\"assistant\",\"content\":\"d\",\"weight\":1,\"train\":true}]}";
    expect_with(openai(), (mt_chat_rules){ .mask_history = true }, chat,
                U("a") " {\"role\": \"assistant\", \"content\": \"b\"} " U("c") " " A("d"));
}

/* A joined answer has one mask, so an answer that is not to be trained is never joined to a trained one. */
static void merged_answers_are_all_trained_or_none(void **state)
{
    (void)state;
#define SAID(text, more)  "{\"role\":\"assistant\",\"content\":\"" text "\"" more "}"
#define QUIET(text)       SAID(text, ",\"train\":false")
#define UNTRAINED(text)   "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define CHAT_OF(messages) "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}," messages "]}"
#define REFUSED(a, b)                                                                                                            \
    "two turns of one side in a row: turns " a " and " b " are both the assistant's and only one of them is to be trained, so "  \
    "merge_turns cannot join them"
    const mt_chat_rules merge = { .merge_turns = true }, last = { .merge_turns = true, .mask_history = true };
    expect_with(openai(), merge, CHAT_OF(QUIET("A") "," SAID("B", "")), REFUSED("2", "3"));
    expect_with(openai(), merge, CHAT_OF(SAID("A", "") "," SAID("B", "") "," SAID("C", ",\"weight\":0")), REFUSED("3", "4"));
#define AGAIN ",{\"role\":\"user\",\"content\":\"R\"}," SAID("C", "") "," SAID("D", "")
    expect_with(openai(), merge, CHAT_OF(QUIET("A") "," QUIET("B") AGAIN),
                U("Q") " " UNTRAINED("A\\n\\nB") " " U("R") " " A("C\\n\\nD"));
    /* mask_history trains neither of the first two, and both parts of the last answer. */
    expect_with(openai(), last, CHAT_OF(QUIET("A") "," SAID("B", "") AGAIN),
                U("Q") " " UNTRAINED("A\\n\\nB") " " U("R") " " A("C\\n\\nD"));
}

#define CALL(id) "{\"type\": \"function\", \"id\": \"" id "\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}"

static void calls_and_tools_take_transformers_form(void **state)
{
    (void)state;
    mt_record_layout l = sharegpt();
    l.tools = "tools";
    char *got = read_as(
        l, (mt_chat_rules){ 0 },
        "{\"conversations\":[" FROM("human", "Q") "," FROM(
            "function_call",
            "{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{"
            "\\\"x\\\":1}}") "," FROM("observation", "O") "," FROM("gpt", "A") "],\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\"}");
    assert_non_null(
        strstr(got, "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"type\": \"function\", \"id\": \""));
    assert_non_null(strstr(got, "\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}]}* {\"role\": \"tool\", "
                                "\"content\": \"O\", \"tool_call_id\": \""));
    assert_non_null(strstr(got, "tools [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"));
    mt_free(got);
    expect(openai(),
           "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
           "\"id\":\"i\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}}]},"
           "{\"role\":\"tool\",\"content\":\"O\",\"tool_call_id\":\"i\"},{\"role\":\"tool\",\"content\":\"P\",\"name\":\"f\"},{"
           "\"role\":\"assistant\",\"content\":\"A\"}],\"tools\":\"[]\"}",
           U("Q") " {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [" CALL(
               "i") "]}* {\"role\": \"tool\", \"content\": \"O\", \"tool_call_id\": \"i\"} "
                    "{\"role\": \"tool\", \"content\": \"P\", \"name\": \"f\"} " A("A"));
}

static void malformed_calls_and_tools_are_bad(void **state)
{
    (void)state;
    mt_record_layout l = sharegpt();
    l.tools = "tools";
    static const char *const values[] = { "{oops",
                                          "3",
                                          "[]",
                                          "{\\\"arguments\\\":{}}",
                                          "{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":[1]}",
                                          "{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":\\\"{\\\"}" };
    for (size_t i = 0; i < MT_COUNT(values); i++) {
        char json[256];
        snprintf(json, sizeof json,
                 "{\"conversations\":[{\"from\":\"human\",\"value\":\"Q\"},{\"from\":\"function_call\",\"value\":\"%s\"}]}",
                 values[i]);
        char *got = read_as(l, (mt_chat_rules){ 0 }, json);
        if (strncmp(got, "malformed tool call or tools: ", 30) != 0) fail_msg("%s: %s", values[i], got);
        mt_free(got);
    }
    static const char *const tools[] = { "{oops", "[1]", "[{}]", "7" };
    for (size_t i = 0; i < MT_COUNT(tools); i++) {
        char json[256];
        snprintf(json, sizeof json,
                 "{\"conversations\":[{\"from\":\"human\",\"value\":\"Q\"},{\"from\":\"gpt\",\"value\":\"A\"}],\"tools\":\"%s\"}",
                 tools[i]);
        char *got = read_as(l, (mt_chat_rules){ 0 }, json);
        if (strncmp(got, "malformed tool call or tools: ", 30) != 0) fail_msg("%s: %s", tools[i], got);
        mt_free(got);
    }
}

MT_TEST_MAIN(cmocka_unit_test(alpaca_records_are_read), cmocka_unit_test(chats_are_read),
             cmocka_unit_test(content_in_parts_is_joined_and_pictures_are_refused), cmocka_unit_test(bad_records_are_named),
             cmocka_unit_test(odd_records_are_used), cmocka_unit_test(a_thought_under_any_key_reaches_the_template),
             cmocka_unit_test(system_prompts_replace_or_fill_in), cmocka_unit_test(what_is_trained_is_marked),
             cmocka_unit_test(merged_answers_are_all_trained_or_none), cmocka_unit_test(calls_and_tools_take_transformers_form),
             cmocka_unit_test(malformed_calls_and_tools_are_bad))
