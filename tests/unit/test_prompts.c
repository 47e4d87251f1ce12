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

MT_TEST_MAIN(cmocka_unit_test_setup_teardown(an_answer_is_opened_by_the_template, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(a_line_of_a_jsonl_file_is_a_text_or_a_record, tempdir_make, tempdir_remove),
             cmocka_unit_test(a_model_without_a_template_says_so),
             cmocka_unit_test_setup_teardown(a_template_that_refuses_is_quoted, tempdir_make, tempdir_remove))
