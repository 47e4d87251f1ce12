/* The demo's files: nothing that is asked was trained on, and the tokenizer is what the README says it is. */
#include "test.h"

#include "base/json.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>

#define DATA MT_TESTS_DIR "/../data/"

static const mt_value *read_list(const char *path)
{
    mt_err err = { 0 };
    const mt_value *doc = NULL;
    assert_ok(mt_json_read(&doc, path, &err));
    assert_true(mt_value_has(doc, MT_VALUE_LIST));
    return doc;
}

static const char *field(const mt_value *record, const char *key)
{
    const char *s = mt_json_string(mt_value_get(record, key));
    assert_non_null(s);
    return s;
}

typedef struct texts {
    char **items;
    size_t n, cap;
} texts;

static void add_text(texts *t, const char *text)
{
    mt_err err = { 0 };
    assert_ok(mt_grow(&t->items, &t->cap, t->n + 1, sizeof *t->items, &err));
    assert_non_null(t->items[t->n++] = mt_strdup(text));
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool has_text(const texts *t, const char *text) { return bsearch(&text, t->items, t->n, sizeof *t->items, by_text); }

static void free_texts(texts *t)
{
    for (size_t i = 0; i < t->n; i++) mt_free(t->items[i]);
    mt_free(t->items);
}

/* An answer names its value (a date, time, number or word), except for the count of letters: so held out by value means that no
 * answer of the test is an answer of the training, in any phrasing. */
static void what_is_asked_was_not_trained_on(void **state)
{
    (void)state;
    const mt_value *train = read_list(DATA "demo_train.json"), *test = read_list(DATA "demo_test.json");
    texts answers = { 0 }, asked = { 0 };
    for (size_t i = 0; i < mt_value_items(train); i++) {
        const mt_value *r = mt_value_at(train, i);
        char question[512];
        snprintf(question, sizeof question, "%s\n%s", field(r, "instruction"), field(r, "input"));
        add_text(&answers, field(r, "output"));
        add_text(&asked, question);
    }
    qsort(answers.items, answers.n, sizeof *answers.items, by_text);
    qsort(asked.items, asked.n, sizeof *asked.items, by_text);
    for (size_t i = 0; i < mt_value_items(test); i++) {
        const mt_value *r = mt_value_at(test, i);
        char question[512];
        snprintf(question, sizeof question, "%s\n%s", field(r, "instruction"), field(r, "input"));
        if (has_text(&asked, question)) fail_msg("trained on: %s", question);
        if (strcmp(field(r, "task"), "letters") != 0 && has_text(&answers, field(r, "output")))
            fail_msg("%s: the answer %s is an answer of the training too", question, field(r, "output"));
    }
    assert_true(mt_value_items(test) >= 700);
    mt_json_free(train), mt_json_free(test);
    free_texts(&answers), free_texts(&asked);
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
