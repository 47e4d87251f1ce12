/* The demo's files: nothing that is asked was trained on, and the tokenizer is what the README says it is. */
#include "test.h"

#include "base/json.h"
#include "tokenizer/tokenizer.h"

#define DATA MT_TESTS_DIR "/../data/"

static json_t *read_list(const char *path)
{
    mt_err err = { 0 };
    json_t *doc = NULL;
    assert_ok(mt_json_read(&doc, path, &err));
    assert_true(json_is_array(doc));
    return doc;
}

static const char *field(const json_t *record, const char *key)
{
    const char *s = json_string_value(json_object_get(record, key));
    assert_non_null(s);
    return s;
}

/* An answer names its value (a date, time, number or word), except for the count of letters: so held out by value means that no
 * answer of the test is an answer of the training, in any phrasing. */
static void what_is_asked_was_not_trained_on(void **state)
{
    (void)state;
    json_t *train = read_list(DATA "demo_train.json"), *test = read_list(DATA "demo_test.json"), *answers = json_object(),
           *asked = json_object();
    for (size_t i = 0; i < json_array_size(train); i++) {
        const json_t *r = json_array_get(train, i);
        char question[512];
        snprintf(question, sizeof question, "%s\n%s", field(r, "instruction"), field(r, "input"));
        json_object_set_new(answers, field(r, "output"), json_true());
        json_object_set_new(asked, question, json_true());
    }
    for (size_t i = 0; i < json_array_size(test); i++) {
        const json_t *r = json_array_get(test, i);
        char question[512];
        snprintf(question, sizeof question, "%s\n%s", field(r, "instruction"), field(r, "input"));
        if (json_object_get(asked, question)) fail_msg("trained on: %s", question);
        if (strcmp(field(r, "task"), "letters") != 0 && json_object_get(answers, field(r, "output")))
            fail_msg("%s: the answer %s is an answer of the training too", question, field(r, "output"));
    }
    assert_true(json_array_size(test) >= 700);
    json_decref(train), json_decref(test), json_decref(answers), json_decref(asked);
}

static size_t n_tokens(const mt_tokenizer *tok, mt_tok_scratch *scratch, const char *text)
{
    mt_err err = { 0 };
    mt_tokens t = { 0 };
    mt_str back = { 0 };
    assert_ok(mt_tokenizer_encode(tok, scratch, text, strlen(text), 0, &t, &err));
    assert_ok(mt_tokenizer_decode(tok, t.ids, t.n, false, &back, &err));
    assert_string_equal(back.n ? back.s : "", text);
    size_t n = t.n;
    mt_tokens_free(&t);
    mt_str_free(&back);
    return n;
}

static void letters_and_digits_are_single_tokens_and_words_of_requests_too(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_tokenizer *tok = NULL;
    mt_tok_scratch *scratch = NULL;
    assert_ok(mt_tokenizer_open(&tok, DATA "demo_model", &err));
    assert_ok(mt_tok_scratch_create(&scratch, tok, &err));
    assert_true(mt_tokenizer_vocab_size(tok) <= 448);
    assert_int_equal(n_tokens(tok, scratch, "garden"), 6);
    assert_int_equal(n_tokens(tok, scratch, "2019"), 4);
    assert_int_equal(n_tokens(tok, scratch, "CCXLVI"), 6);
    assert_int_equal(n_tokens(tok, scratch, "Write this word in capitals."), 6);
    assert_int_equal(n_tokens(tok, scratch, "six hundred and forty-two"), 6);
    assert_int_equal(n_tokens(tok, scratch, "na\xc3\xafve \xe2\x82\xac"), 10); /* bytes: whatever people type can be read */
    assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_EOS), mt_tokenizer_token_id(tok, "<|im_end|>", 10));
    mt_tok_scratch_free(scratch);
    mt_tokenizer_close(tok);
}

MT_TEST_MAIN(cmocka_unit_test(what_is_asked_was_not_trained_on),
             cmocka_unit_test(letters_and_digits_are_single_tokens_and_words_of_requests_too))
