/* Prompts of `megatrain generate --chat`: as training shows them, whatever the template. */
#include "template_model.h"

#include "cli/prompts.h"

#define TURNS "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"

static void expect_prompt(const char *dir, const char *system, const char *want)
{
    mt_err err = { 0 };
    mt_tokenizer *tok;
    mt_asks asks = { 0 };
    mt_str text = { 0 };
    assert_ok(mt_tokenizer_open(&tok, dir, &err));
    assert_ok(mt_asks_add(&asks, "Q", &err));
    assert_ok(mt_asks_encode(&asks, &(mt_asks_encoding){ tok, true, system }, &err));
    assert_ok(mt_tokenizer_decode(tok, asks.items[0].ids, asks.items[0].n_ids, false, &text, &err));
    assert_string_equal(text.s, want);
    mt_str_free(&text);
    mt_asks_free(&asks);
    mt_tokenizer_close(tok);
}

static void an_answer_is_opened_by_the_template(void **state)
{
    static const char *const templates[] = { TURNS "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", TURNS };
    for (size_t i = 0; i < MT_COUNT(templates); i++) {
        template_model_write(*state, templates[i]);
        expect_prompt(*state, NULL, "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
        expect_prompt(*state, "S", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
    }
}

static void a_model_without_a_template_says_so(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_tokenizer *tok;
    mt_asks asks = { 0 };
    assert_ok(mt_tokenizer_open(&tok, TOKENIZER, &err));
    assert_ok(mt_asks_add(&asks, "Q", &err));
    assert_int_equal(mt_asks_encode(&asks, &(mt_asks_encoding){ tok, true, NULL }, &err), MT_ENOENT);
    assert_says("this model has no chat template");
    mt_asks_free(&asks);
    mt_tokenizer_close(tok);
}

static void a_template_that_refuses_is_quoted(void **state)
{
    mt_err err = { 0 };
    mt_tokenizer *tok;
    mt_asks asks = { 0 };
    template_model_write(*state, "{% for m in messages %}{% if m.content == 'Q' %}{{ raise_exception('not that') }}{% endif %}"
                                 "<|im_start|>{{ m.content }}<|im_end|>{% endfor %}");
    assert_ok(mt_tokenizer_open(&tok, *state, &err));
    assert_ok(mt_asks_add(&asks, "Q", &err));
    assert_true(mt_asks_encode(&asks, &(mt_asks_encoding){ tok, true, NULL }, &err) != MT_OK);
    assert_says("not that");
    assert_says("prompt 1");
    mt_asks_free(&asks);
    mt_tokenizer_close(tok);
}

static mt_rc read_file(mt_asks *asks, const char *dir, const char *name, const char *text, mt_err *err)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    tempdir_write(dir, name, text);
    return mt_asks_read(asks, path, err);
}

static void a_line_of_a_jsonl_file_is_a_text_or_a_record(void **state)
{
    mt_err err = { 0 };
    mt_asks asks = { 0 };
    assert_ok(read_file(&asks, *state, "q.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\r\n\n\"c\"\n", &err));
    assert_int_equal(asks.n, 2);
    assert_string_equal(asks.items[0].text, "a");
    assert_string_equal(asks.items[0].expected, "b");
    assert_string_equal(asks.items[1].text, "c");
    assert_int_equal(read_file(&asks, *state, "r.jsonl", "\"a\"\n{\"b\": 1}\n", &err), MT_EFORMAT);
    assert_says("r.jsonl, line 2: neither a text nor a record");
    assert_int_equal(read_file(&asks, *state, "s.jsonl", "plain text\n", &err), MT_EFORMAT);
    assert_says("s.jsonl, line 1");
    mt_asks_free(&asks);
}

/* What a prompt with its turns becomes, as text. */
static void expect_encoded(const char *dir, mt_asks *asks, size_t i, const char *system, const char *want)
{
    mt_err err = { 0 };
    mt_tokenizer *tok;
    mt_str text = { 0 };
    assert_ok(mt_tokenizer_open(&tok, dir, &err));
    assert_ok(mt_asks_encode(asks, &(mt_asks_encoding){ tok, true, system }, &err));
    assert_ok(mt_tokenizer_decode(tok, asks->items[i].ids, asks->items[i].n_ids, false, &text, &err));
    assert_string_equal(text.s, want);
    mt_str_free(&text);
    mt_tokenizer_close(tok);
}

/* The records that one trains on: the last answer is expected, and all before it is the prompt. */
static void conversations_are_prompts_up_to_their_last_answer(void **state)
{
#define USER(text)        "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ANSWER(text)      "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define OPEN              "<|im_start|>assistant\n"
#define SHOWN(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
    static const struct {
        const char *record, *text, *expected, *prompt;
    } cases[] = {
        { "{\"messages\":[" USER("Q") "," ANSWER("A") "]}", "Q", "A", SHOWN("user", "Q") OPEN },
        { "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"}," USER("Q") "," ANSWER("A") "," USER("R") "," ANSWER("B") "]}",
          "R", "B", SHOWN("system", "S") SHOWN("user", "Q") SHOWN("assistant", "A") SHOWN("user", "R") OPEN },
        { "{\"messages\":[" USER("Q") "," ANSWER("A") "," USER("R") "]}", "R", NULL,
          SHOWN("user", "Q") SHOWN("assistant", "A") SHOWN("user", "R") OPEN },
        { "{\"conversations\":[{\"from\":\"human\",\"value\":\"Q\"},{\"from\":\"gpt\",\"value\":\"A\"}]}", "Q", "A",
          SHOWN("user", "Q") OPEN },
        { "{\"instruction\":\"Q\",\"input\":\"I\",\"output\":\"A\",\"history\":[[\"P\",\"O\"]],\"system\":\"S\"}", "Q\nI", "A",
          SHOWN("system", "S") SHOWN("user", "P") SHOWN("assistant", "O") SHOWN("user", "Q\nI") OPEN },
        { "{\"query\":\"Q\",\"response\":\"A\"}", "Q", "A", SHOWN("user", "Q") OPEN },
        { "{\"question\":\"Q\",\"answer\":7}", "Q", NULL, SHOWN("user", "Q") OPEN },
        { "{\"prompt\":\"Q\",\"history\":[[\"P\",\"O\"]]}", "Q", NULL,
          SHOWN("user", "P") SHOWN("assistant", "O") SHOWN("user", "Q") OPEN },
        { "{\"input\":\"Q\",\"output\":\"A\"}", "Q", "A", SHOWN("user", "Q") OPEN },
        { "{\"text\":\"Q\"}", "Q", NULL, SHOWN("user", "Q") OPEN },
    };
    template_model_write(*state, TURNS "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    static const char *const names[] = { "q.jsonl", "q.json" }; /* a line, and a document */
    for (size_t i = 0; i < 2 * MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_asks asks = { 0 };
        const size_t k = i / 2;
        assert_ok(read_file(&asks, *state, names[i % 2], cases[k].record, &err));
        assert_int_equal(asks.n, 1);
        assert_string_equal(asks.items[0].text, cases[k].text);
        if (cases[k].expected)
            assert_string_equal(asks.items[0].expected, cases[k].expected);
        else
            assert_null(asks.items[0].expected);
        expect_encoded(*state, &asks, 0, NULL, cases[k].prompt);
        mt_asks_free(&asks);
    }
    mt_err err = { 0 };
    mt_asks asks = { 0 };
    assert_ok(read_file(&asks, *state, "q.jsonl", cases[1].record, &err));
    expect_encoded(*state, &asks, 0, "T",
                   SHOWN("system", "T") SHOWN("user", "Q") SHOWN("assistant", "A") SHOWN("user", "R") OPEN);
    mt_tokenizer *tok;
    assert_ok(mt_tokenizer_open(&tok, *state, &err));
    assert_int_equal(mt_asks_encode(&asks, &(mt_asks_encoding){ tok, false, NULL }, &err), MT_EINVAL);
    assert_says("prompt 1: it has several turns, a system message or tools; give --chat");
    mt_tokenizer_close(tok);
    mt_asks_free(&asks);
}

/* Whatever `data` reads; a file of no format has a prompt on each line. */
static void files_are_read_like_those_to_train_on(void **state)
{
    mt_err err = { 0 };
    mt_asks asks = { 0 };
    assert_ok(read_file(&asks, *state, "q.csv", "question,answer\r\n\"one, two\",3\r\nfour,5\r\n", &err));
    assert_int_equal(asks.n, 2);
    assert_string_equal(asks.items[0].text, "one, two");
    assert_string_equal(asks.items[1].expected, "5");
    mt_asks_free(&asks);
    assert_ok(read_file(&asks, *state, "q.tsv", "prompt\ttask\na\tb\n", &err));
    assert_string_equal(asks.items[0].text, "a");
    assert_string_equal(asks.items[0].task, "b");
    mt_asks_free(&asks);
    /* its second row is bad: read as rows, then, and not as bytes */
    static const char *const columnar[] = { "chat_zstd_v2.parquet", "arrow_file_lz4_chat.arrow",
                                            "arrow_stream_plain_chat.arrow" };
    for (size_t i = 0; i < MT_COUNT(columnar); i++) {
        char path[512];
        snprintf(path, sizeof path, MT_TESTS_DIR "/golden/formats/files/%s", columnar[i]);
        assert_int_equal(mt_asks_read(&asks, path, &err), MT_EFORMAT);
        assert_says(", row 2: ");
        assert_int_equal(asks.n, 1);
        assert_string_equal(asks.items[0].text, "Hi \xf0\x9f\x91\x8b");
        assert_string_equal(asks.items[0].expected, "Gr\xc3\xbc\xc3\x9f"
                                                    "e, \xe4\xbd\xa0\xe5\xa5\xbd");
        mt_asks_free(&asks);
    }
    static const char *const lines[] = { "q.txt", "q.md", "questions" };
    for (size_t i = 0; i < MT_COUNT(lines); i++) {
        assert_ok(read_file(&asks, *state, lines[i], "one\r\n\ntwo, \"three\"\n", &err));
        assert_int_equal(asks.n, 2);
        assert_string_equal(asks.items[1].text, "two, \"three\"");
        mt_asks_free(&asks);
    }
    assert_int_equal(read_file(&asks, *state, "q.parquet", "PAR1 and no more", &err), MT_EFORMAT);
    assert_says("q.parquet");
    assert_int_equal(read_file(&asks, *state, "q.csv", "a,b\n1,2\n", &err), MT_EFORMAT);
    assert_says("q.csv, line 2: neither a text nor a record");
    mt_asks_free(&asks);
}

MT_TEST_MAIN(cmocka_unit_test_setup_teardown(an_answer_is_opened_by_the_template, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(a_line_of_a_jsonl_file_is_a_text_or_a_record, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(conversations_are_prompts_up_to_their_last_answer, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(files_are_read_like_those_to_train_on, tempdir_make, tempdir_remove),
             cmocka_unit_test(a_model_without_a_template_says_so),
             cmocka_unit_test_setup_teardown(a_template_that_refuses_is_quoted, tempdir_make, tempdir_remove))
