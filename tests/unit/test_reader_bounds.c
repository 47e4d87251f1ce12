/* Files made to cost much: each is read, or refused with a reason, before it has.  (What reading costs as files grow:
 * tests/cost.) */
#include "test.h"

#include "forge.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/rng.h"
#include "ckpt/gguf.h"
#include "ckpt/pickle.h"
#include "data/formats.h"
#include "hub/internal.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- hashes -------------------------------------------------------------------------------------------- */

/* Must run first: the child draws its key before the parent has one. */
static void every_process_has_its_own_hash(void **state)
{
    (void)state;
    int ends[2];
    uint64_t theirs = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        uint64_t h = mt_hash_keyed("name", 4);
        _exit(write(ends[1], &h, sizeof h) == (ssize_t)sizeof h ? 0 : 1);
    }
    assert_int_equal(read(ends[0], &theirs, sizeof theirs), sizeof theirs);
    waitpid(child, NULL, 0);
    close(ends[0]), close(ends[1]);
    assert_int_not_equal(theirs, mt_hash_keyed("name", 4));
    assert_int_equal(mt_hash_keyed("name", 4), mt_hash_keyed("name", 4));
    assert_int_equal(mt_hash_factor() & 1, 1);
}

static void keys_chosen_to_collide_spread(void **state)
{
    (void)state;
    enum { N = 4096 };
    static uint16_t load[N];
    char key[17];
    uint64_t turn = 0, known = 0;
    size_t most = 0;
    for (size_t i = 0; i < N; i++) {
        forge_colliding_key(&turn, key);
        if (i) assert_int_equal(mt_hash(key, 16, 0), known); /* without a key they collide */
        known = mt_hash(key, 16, 0);
        size_t at = mt_hash_keyed(key, 16) % N;
        if (++load[at] > most) most = load[at];
    }
    assert_in_range(most, 2, 16); /* by chance 6 or 7 */
}

static void bytes_of_any_length_count(void **state)
{
    (void)state;
    static const char zeros[40] = { 0 };
    for (size_t a = 0; a < sizeof zeros; a++)
        for (size_t b = 0; b < a; b++) assert_int_not_equal(mt_hash_keyed(zeros, a), mt_hash_keyed(zeros, b));
}

/* -- weights ------------------------------------------------------------------------------------------- */

static void zip_of(mt_str *out, const mt_str *list, const float *numbers, size_t n)
{
    forge_zip z = { .out = out };
    forge_entry(&z, "archive/data.pkl", list->s, list->n);
    forge_entry(&z, "archive/data/0", (const char *)numbers, 4 * n);
    forge_zip_end(&z);
}

static void open_view(mt_pickle **out, mt_str *file, int n_dims, const int64_t *shape, const int64_t *stride, mt_rc *rc,
                      mt_err *err)
{
    static const float numbers[64] = { [3] = 3, [6] = 6, [9] = 9 };
    mt_str list = { 0 };
    mt_str_puts(&list, "\x80\x02}(");
    forge_pk_text(&list, "w");
    forge_pk_tensor(&list, "0", 64, n_dims, shape, stride);
    mt_str_puts(&list, "u.");
    zip_of(file, &list, numbers, 64);
    mt_str_free(&list);
    *rc = mt_pickle_open_memory(out, file->s, file->n, "x.bin", err);
}

static void strides_that_are_never_taken_may_be_any(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_rc rc;
    mt_pickle *p;
    mt_str file = { 0 };
    float out[4];
    open_view(&p, &file, 2, (int64_t[]){ 4, 1 }, (int64_t[]){ 3, INT64_MAX }, &rc, &err);
    assert_ok(rc);
    mt_st_read(mt_pickle_at(p, 0), 0, 4, out);
    for (int i = 0; i < 4; i++) assert_float_equal(out[i], 3 * i, 0);
    mt_pickle_close(p);
    mt_str_free(&file);
}

static void views_that_repeat_numbers_without_end_are_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_rc rc;
    mt_pickle *p = NULL;
    mt_str file = { 0 };
    open_view(&p, &file, 2, (int64_t[]){ 1 << 20, 1 << 14 }, (int64_t[]){ 0, 0 }, &rc, &err);
    assert_int_equal(rc, MT_EUNSUPPORTED);
    assert_says("\"w\" is a view that repeats its numbers: [1048576, 16384] of 64");
    mt_str_clear(&file);
    open_view(&p, &file, 2, (int64_t[]){ 4, 4 }, (int64_t[]){ 0, 1 }, &rc, &err); /* a few times is nothing */
    assert_ok(rc);
    mt_pickle_close(p);
    mt_str_free(&file);
}

static void a_list_becomes_a_dict_once(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_pickle *p;
    for (int times = 1; times <= 400; times += 399) {
        mt_str list = { 0 }, file = { 0 };
        mt_str_puts(&list, "\x80\x02");
        forge_pk_text(&list, "a");
        mt_str_puts(&list, "N\x86q\x01"
                           "0](");
        forge_repeat(&list, "h\x01", 1000);
        mt_str_puts(&list, "e\x85q\x02"
                           "0ccollections\nOrderedDict\nq\x03"
                           "0");
        forge_repeat(&list, "h\x03h\x02R0", (size_t)times);
        mt_str_puts(&list, "}(");
        forge_pk_text(&list, "w");
        forge_pk_tensor(&list, "0", 4, 1, (int64_t[]){ 4 }, (int64_t[]){ 1 });
        mt_str_puts(&list, "u.");
        zip_of(&file, &list, (float[4]){ 0 }, 4);
        mt_rc rc = mt_pickle_open_memory(&p, file.s, file.n, "x.bin", &err);
        if (times == 1) {
            assert_ok(rc);
            mt_pickle_close(p);
        } else {
            assert_int_equal(rc, MT_EFORMAT);
            assert_says("OrderedDict is called on the same list over and over");
        }
        mt_str_free(&list);
        mt_str_free(&file);
    }
}

static void gguf_of(mt_str *out, const mt_str *tokens, size_t n)
{
    mt_str kvs = { 0 };
    forge_gg_str(&kvs, "general.architecture", "llama");
    forge_gg_str(&kvs, "tokenizer.ggml.model", "llama");
    forge_gg_array(&kvs, "tokenizer.ggml.tokens", 8, n);
    mt_str_add(&kvs, tokens->s, tokens->n);
    forge_gg_array(&kvs, "tokenizer.ggml.scores", 6, n);
    forge_zeros(&kvs, 4 * n);
    forge_gg_file(out, &kvs, 4, &(mt_str){ 0 }, 0, 0);
    mt_str_free(&kvs);
}

/* "a\0..." is known as "a" nowhere, and a piece that comes again makes no merges again. */
static void tokens_with_a_nul_or_a_twin_make_no_merges(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_gguf *g;
    mt_str tokens = { 0 }, file = { 0 }, out = { 0 };
    static const char *const texts[] = { "b", "ab", "x", "y", "xy", "xy" };
    forge_gg_text(&tokens, "a\0zz", 4);
    for (size_t i = 0; i < MT_COUNT(texts); i++) forge_gg_text(&tokens, texts[i], strlen(texts[i]));
    gguf_of(&file, &tokens, 7);
    assert_ok(mt_gguf_open_memory(&g, file.s, file.n, "x.gguf", &err));
    assert_ok(mt_gguf_tokenizer(g, &out, &err));
    assert_non_null(strstr(out.s, "\"merges\": [\n      [\"x\", \"y\"]\n    ]"));
    mt_gguf_close(g);
    mt_str_free(&tokens), mt_str_free(&file), mt_str_free(&out);
}

/* Every a^i b^j is a token, and each is made of two others in as many ways as it has characters. */
static void vocabularies_that_explode_are_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_gguf *g;
    mt_str tokens = { 0 }, file = { 0 }, out = { 0 };
    char text[256];
    size_t n = 0;
    for (int i = 0; i < 100; i++)
        for (int j = !i; j < 100; j++, n++) {
            memset(text, 'a', (size_t)i), memset(text + i, 'b', (size_t)j);
            forge_gg_text(&tokens, text, (size_t)(i + j));
        }
    gguf_of(&file, &tokens, n);
    assert_ok(mt_gguf_open_memory(&g, file.s, file.n, "x.gguf", &err));
    assert_int_equal(mt_gguf_tokenizer(g, &out, &err), MT_EFORMAT);
    assert_says("x.gguf: its tokens can be made of each other in more ways");
    mt_gguf_close(g);
    mt_str_free(&tokens), mt_str_free(&file), mt_str_free(&out);
}

/* -- data ---------------------------------------------------------------------------------------------- */

static mt_rc read_all(const char *format, const mt_str *file, int64_t *n_good, mt_err *err)
{
    mt_records *r = NULL;
    mt_arena arena = { 0 };
    mt_value v;
    mt_record_place where = { 0 };
    mt_rc rc =
        mt__records_open_bytes(&r, format, (const uint8_t *)file->s, file->n, &(mt_records_options){ .format = format }, err);
    *n_good = 0;
    while (!rc && where.state != MT_RECORD_END) {
        mt_arena_reset(&arena);
        rc = mt_records_next(r, &arena, &v, &where, err);
        *n_good += !rc && where.state == MT_RECORD_OK;
    }
    mt_records_close(r);
    mt_arena_free(&arena);
    return rc;
}

static void a_stream_of_cut_records_is_not_read_hundreds_of_times(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_str file = { 0 };
    int64_t n;
    forge_repeat(&file, "{\"a\":\n", 100000);
    assert_int_equal(read_all("json", &file, &n, &err), MT_ERANGE);
    assert_says("too many records that are not valid JSON");
    mt_str_clear(&file); /* some among good ones are passed over */
    for (int i = 0; i < 2000; i++) mt_str_puts(&file, i % 100 ? "{\"a\":\n 1}\n" : "{\"a\":\n");
    assert_ok(read_all("json", &file, &n, &err));
    assert_true(n > 1900);
    mt_str_free(&file);
}

static void columns_cannot_share_one_long_name(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_str file = { 0 }, name = { 0 };
    int64_t n;
    forge_write_arrow(&file, &(forge_arrow){ .n_columns = 3, .n_batches = 2, .rows = 5, .type = 2 });
    assert_ok(read_all("arrow", &file, &n, &err)); /* the forged file is one that is read */
    assert_int_equal(n, 10);
    mt_str_clear(&file);
    forge_repeat(&name, "0123456789abcdef", 10000);
    forge_write_arrow(&file, &(forge_arrow){ .n_columns = 5000, .n_batches = 1, .rows = 1, .type = 2, .shared_name = name.s });
    assert_int_equal(read_all("arrow", &file, &n, &err), MT_EFORMAT);
    assert_says("longer names than the schema");
    mt_str_free(&file), mt_str_free(&name);
}

static void forged_parquet_is_read(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_str file = { 0 };
    int64_t n;
    forge_write_parquet(&file, &(forge_parquet){ .n_columns = 3, .n_groups = 2, .rows = 5, .text = "hello", .encoding = 8 });
    assert_ok(read_all("parquet", &file, &n, &err));
    assert_int_equal(n, 10);
    mt_str_free(&file);
}

static void patterns_that_take_too_long_are_an_error(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt__files files = { 0 };
    mt_str readme = { 0 }, path = { 0 };
    mt__repo repo = { .name = "a/b", .dataset = true };
    for (int i = 0; i < 40; i++) {
        mt_str_clear(&path);
        mt_str_printf(&path, "%d", i);
        forge_repeat(&path, "a", 980);
        mt_str_puts(&path, ".parquet");
        assert_ok(mt__files_add(&files, path.s, 1, "", &err));
    }
    mt_str_puts(&readme, "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path:\n    - &a '");
    forge_repeat(&readme, "*a", 1000);
    mt_str_puts(&readme, "*b'\n");
    forge_repeat(&readme, "    - *a\n", 500);
    mt_str_puts(&readme, "---\n");
    assert_int_equal(mt__choose_data(&files, &repo, readme.s, readme.n, "", "train", "", &err), MT_ERANGE);
    assert_says("dataset a/b: the file patterns in its README take too long to match with its 40 files");
    mt_str_free(&readme), mt_str_free(&path);
    mt__files_free(&files);
}

/* -- configurations, tokenizers --------------------------------------------------------------------------- */

static void documents_have_bounded_depth_and_size(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *doc = NULL;
    mt_str text = { 0 };
    forge_repeat(&text, "[", 600), forge_repeat(&text, "]", 600);
    assert_int_equal(mt_json_parse(&doc, text.s, text.n, "config.json", &err), MT_EFORMAT);
    assert_says("config.json: ");
    assert_says("nested deeper than 512 levels");
    mt_str_clear(&text);
    mt_str_puts(&text, "[0"), forge_repeat(&text, ",0", 5000000), mt_str_puts(&text, "]");
    assert_int_equal(mt_json_parse(&doc, text.s, text.n, "config.json", &err), MT_ERANGE);
    assert_says("config.json: more than 4194304 values");
    mt_str_clear(&text);
    mt_str_puts(&text, "[\""), forge_repeat(&text, "[\\\",", 1000), mt_str_puts(&text, "\"]"); /* brackets in a string are text */
    assert_ok(mt_json_parse(&doc, text.s, text.n, "config.json", &err));
    mt_json_free(doc);
    mt_str_free(&text);
}

static mt_rc encode(const char *json, const char *text, size_t *n, mt_err *err)
{
    mt_tokenizer *tok;
    mt_tok_scratch *scratch;
    mt_tokens out = { 0 };
    MT_TRY(mt_tokenizer_open_json(&tok, json, strlen(json), "tokenizer.json", err));
    assert_int_equal(mt_tok_scratch_create(&scratch, tok, err), MT_OK);
    mt_rc rc = mt_tokenizer_encode(tok, scratch, text, strlen(text), 0, &out, err);
    *n = out.n;
    mt_tokens_free(&out);
    mt_tok_scratch_free(scratch);
    mt_tokenizer_close(tok);
    return rc;
}

#define SPLIT_BY(pattern)                                                                                                        \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern                                                   \
    "\"},\"behavior\":\"Isolated\",\"invert\":false},"                                                                           \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}"

static void regular_expressions_share_one_bound_for_a_text(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t n;
    char text[2001] = { 0 };
    memset(text, 'a', 380);
    assert_int_equal(encode(SPLIT_BY(".*.*.*\\\\x00|."), text, &n, &err), MT_ERANGE);
    assert_says("takes too many steps on a text of 380 bytes");
    memset(text, 'a', 2000); /* one that looks at all that follows, at each of 2,000 places: 2 million attempts are allowed */
    assert_ok(encode(SPLIT_BY("a*\\\\x00|."), text, &n, &err));
    assert_int_equal(n, 2000);
}

static void tokens_that_no_tokenizer_has_are_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t n;
    mt_str json = { 0 };
    mt_str_puts(&json, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"");
    forge_repeat(&json, "a", 1025);
    mt_str_puts(&json, "\",-1]]}}");
    assert_int_equal(encode(json.s, "a", &n, &err), MT_ERANGE);
    assert_says("a token of 1025 bytes; a Unigram model's have at most 1024");
    mt_str_clear(&json);
    mt_str_puts(&json, "{\"added_tokens\":[{\"id\":1,\"content\":\"");
    forge_repeat(&json, "a", 1025);
    mt_str_puts(&json, "\"}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    assert_int_equal(encode(json.s, "a", &n, &err), MT_ERANGE);
    assert_says("an added token of 1025 bytes");
    mt_str_free(&json);
}

/* Word pieces by a trie: the longest first, with the prefix inside a word. */
static void word_pieces_are_the_longest_that_fit(void **state)
{
    (void)state;
    static const char json[] = "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"ab\":2,\"##"
                               "b\":3,\"##bc\":4,\"##\xc3\xa9\":5}},"
                               "\"pre_tokenizer\":{\"type\":\"Whitespace\"}}";
    static const struct {
        const char *text;
        size_t n;
    } cases[] = { { "a", 1 },   { "abb", 2 }, { "abbc", 2 },  { "ab\xc3\xa9", 2 },
                  { "abx", 1 }, { "b", 1 },   { "abbcb", 3 }, { "ab abc", 2 } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        size_t n;
        assert_ok(encode(json, cases[i].text, &n, &err));
        assert_int_equal(n, cases[i].n);
    }
}

MT_TEST_MAIN(cmocka_unit_test(every_process_has_its_own_hash), cmocka_unit_test(keys_chosen_to_collide_spread),
             cmocka_unit_test(bytes_of_any_length_count), cmocka_unit_test(strides_that_are_never_taken_may_be_any),
             cmocka_unit_test(views_that_repeat_numbers_without_end_are_refused), cmocka_unit_test(a_list_becomes_a_dict_once),
             cmocka_unit_test(tokens_with_a_nul_or_a_twin_make_no_merges),
             cmocka_unit_test(vocabularies_that_explode_are_refused),
             cmocka_unit_test(a_stream_of_cut_records_is_not_read_hundreds_of_times),
             cmocka_unit_test(columns_cannot_share_one_long_name), cmocka_unit_test(forged_parquet_is_read),
             cmocka_unit_test(patterns_that_take_too_long_are_an_error), cmocka_unit_test(documents_have_bounded_depth_and_size),
             cmocka_unit_test(regular_expressions_share_one_bound_for_a_text),
             cmocka_unit_test(tokens_that_no_tokenizer_has_are_refused), cmocka_unit_test(word_pieces_are_the_longest_that_fit))
