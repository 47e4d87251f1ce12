/* What the goldens do not show: ranges, configuration files, errors that name file and key, failing allocations, threads. */
#include "test.h"

#include "base/fault.h"
#include "base/file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES_MODEL                                                                                                              \
    "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"\xc4\xa0\":2,\"\xc3\xa3\":3,\"\xc2\xa3\":4,\"ab\":5,\"\xc4\xa0"              \
    "ab\":6,\"\xc3\x83\":7,\"\xc2\xa9\":8},"                                                                                     \
    "\"merges\":[\"a b\",[\"\xc4\xa0\",\"ab\"]]}"
#define BYTES_JSON                                                                                                               \
    "{\"model\":" BYTES_MODEL                                                                                                    \
    ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"},"               \
    "\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\":[{\"content\":\"<e>\",\"special\":true},{\"content\":\"<x>\"}],"         \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<e>\"}},{\"Sequence\":{\"id\":" \
    "\"A\"}}],"                                                                                                                  \
    "\"special_tokens\":{\"<e>\":{\"ids\":[9]}}}}"

static mt_tokenizer *open_json(const char *json)
{
    mt_err err = { 0 };
    mt_tokenizer *tok;
    assert_ok(mt_tokenizer_open_json(&tok, json, strlen(json), "t.json", &err));
    return tok;
}

static void encode(const mt_tokenizer *tok, const char *text, unsigned flags, mt_tokens *out)
{
    mt_err err = { 0 };
    mt_tok_scratch *sc;
    assert_ok(mt_tok_scratch_create(&sc, tok, &err));
    assert_ok(mt_tokenizer_encode(tok, sc, text, strlen(text), flags, out, &err));
    mt_tok_scratch_free(sc);
}

static void ranges_say_where_each_token_came_from(void **state)
{
    (void)state;
    static const struct {
        int id;
        uint32_t start, end;
    } want[] = {
        { 9, 0, 0 }, { 5, 0, 2 }, { 6, 2, 5 }, { 10, 5, 8 }, { 7, 8, 11 }, { 8, 8, 11 }, { 9, 11, 14 }, { 0, 14, 15 },
    };
    mt_tokenizer *tok = open_json(BYTES_JSON);
    mt_tokens t = { 0 };
    encode(tok, "ab ab<x>e\xcc\x81<e>a", MT_ENCODE_SPECIAL | MT_ENCODE_RANGES,
           &t); /* e + accent becomes one character, two bytes */
    assert_int_equal(t.n, MT_COUNT(want));
    for (size_t i = 0; i < t.n; i++) {
        assert_int_equal(t.ids[i], want[i].id);
        assert_int_equal(t.ranges[i].start, want[i].start);
        assert_int_equal(t.ranges[i].end, want[i].end);
    }
    mt_tokens_free(&t);
    mt_tokenizer_close(tok);
}

static void ids_are_appended(void **state)
{
    (void)state;
    mt_tokenizer *tok = open_json(BYTES_JSON);
    mt_tokens t = { 0 };
    encode(tok, "a", 0, &t);
    encode(tok, "b", MT_ENCODE_SPECIAL, &t);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.ids[0], 0);
    assert_int_equal(t.ids[1], 9);
    assert_int_equal(t.ids[2], 1);
    mt_tokens_free(&t);
    mt_tokenizer_close(tok);
}

static void the_vocabulary_answers_questions(void **state)
{
    (void)state;
    mt_tokenizer *tok = open_json(BYTES_JSON);
    size_t n;
    assert_int_equal(mt_tokenizer_vocab_size(tok), 11);
    assert_int_equal(mt_tokenizer_token_id(tok, "ab", 2), 5);
    assert_int_equal(mt_tokenizer_token_id(tok, "<x>", 3), 10);
    assert_int_equal(mt_tokenizer_token_id(tok, "nope", 4), -1);
    assert_string_equal(mt_tokenizer_token(tok, 9, &n), "<e>");
    assert_int_equal(n, 3);
    assert_null(mt_tokenizer_token(tok, 99, &n));
    assert_true(mt_tokenizer_is_special(tok, 9));
    assert_false(mt_tokenizer_is_special(tok, 10));
    mt_tokenizer_close(tok);
}

static void text_that_is_not_utf8_is_refused_with_its_place(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_tokenizer *tok = open_json(BYTES_JSON);
    mt_tok_scratch *sc;
    mt_tokens t = { 0 };
    assert_ok(mt_tok_scratch_create(&sc, tok, &err));
    assert_int_equal(mt_tokenizer_encode(tok, sc, "ab\xff", 3, 0, &t, &err), MT_EFORMAT);
    assert_says("byte 2");
    assert_int_equal(t.n, 0);
    mt_tok_scratch_free(sc);
    mt_tokenizer_close(tok);
}

static void malformed_files_are_refused_by_name_and_key(void **state)
{
    (void)state;
#define MODEL "\"model\":" BYTES_MODEL
    static const struct {
        const char *json, *says;
    } cases[] = {
        { "{", "t.json" },
        { "[]", "an object with \"model\"" },
        { "{}", "\"model\" is missing" },
        { "{\"model\":{\"type\":\"Markov\"}}", "\"Markov\" is not known" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", "\"vocab\" should be" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", "the id of token \"a\"" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "-1" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1000000000},\"merges\":[]}}", "only 1 tokens" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merge 0 (\"a\" and \"b\")" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[3]}}", "merge 0 is neither" },
        { "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "entry 0 is not" },
        { "{\"model\":{\"type\":\"Unigram\",\"unk_id\":4,\"vocab\":[[\"a\",0.0]]}}", "\"unk_id\" is 4" },
        { "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "\"unk_token\" is missing" },
        { "{" MODEL ",\"normalizer\":{\"type\":\"Upside\"}}", "normalizer \"Upside\" is not known" },
        { "{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}}",
          "regular expression" },
        { "{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!!\"}}", "not base64" },
        { "{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////w==\"}}", "its trie has" },
        { "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Sideways\"}}",
          "\"behavior\" is \"Sideways\"" },
        { "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"often\"}}", "\"prepend_scheme\"" },
        { "{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}}", "the text 0 times" },
        { "{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":3}}",
          "\"sep\" should be a list" },
        { "{" MODEL ",\"decoder\":{\"type\":\"Enigma\"}}", "decoder \"Enigma\" is not known" },
        { "{" MODEL ",\"added_tokens\":[{\"id\":3}]}", "added token 0" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_tokenizer *tok;
        assert_int_not_equal(mt_tokenizer_open_json(&tok, cases[i].json, strlen(cases[i].json), "t.json", &err), MT_OK);
        assert_null(tok);
        assert_says(cases[i].says);
        assert_says("t.json");
    }
}

static void damaged_model_files_are_refused(void **state)
{
    (void)state;
    size_t n;
    char *bytes;
    mt_err err = { 0 };
    assert_ok(mt_file_read(&bytes, &n, MT_TESTS_DIR "/golden/tokenizer/files/spm_bpe_bytes.model", 1 << 20, &err));
    for (size_t cut = 0; cut < n; cut += 97) {
        mt_tokenizer *tok;
        mt_rc rc = mt_tokenizer_open_model(&tok, bytes, cut, "cut.model", &err);
        if (rc) assert_says("cut.model");
        mt_tokenizer_close(tok);
    }
    mt_free(bytes);
    mt_tokenizer *tok;
    static const char lines[] = "YQ== 0\nYg== one\n";
    assert_int_equal(mt_tokenizer_open_model(&tok, lines, sizeof lines - 1, "x.tiktoken", &err), MT_EFORMAT);
    assert_says("line 2");
    assert_int_equal(mt_tokenizer_open_model(&tok, "YQ== 0\n", 7, "x.tiktoken", &err), MT_EFORMAT);
    assert_says("byte 0x00 has no token");
}

/* Rules that each double the text: 200 of them must end in an error, not in all the memory there is. */
static void rules_that_grow_without_end_are_stopped(void **state)
{
    (void)state;
    static const char rule[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}";
    for (int in_decoder = 0; in_decoder < 2; in_decoder++) {
        mt_err err = { 0 };
        mt_str json = { 0 }, text = { 0 };
        mt_tokens t = { 0 };
        mt_tok_scratch *sc;
        mt_str_printf(&json, "{\"model\":" BYTES_MODEL ",\"%s\":{\"type\":\"Sequence\",\"%s\":[",
                      in_decoder ? "decoder" : "normalizer", in_decoder ? "decoders" : "normalizers");
        for (int i = 0; i < 200; i++) mt_str_printf(&json, "%s%s", i ? "," : "", rule);
        mt_str_puts(&json, "]}}");
        mt_tokenizer *tok = open_json(json.s);
        assert_ok(mt_tok_scratch_create(&sc, tok, &err));
        mt_rc rc = mt_tokenizer_encode(tok, sc, "aaa", 3, 0, &t, &err);
        if (in_decoder) rc = mt_tokenizer_decode(tok, t.ids, t.n, false, &text, &err);
        assert_int_equal(rc, MT_ENOMEM);
        assert_says("grows too much");
        mt_tok_scratch_free(sc);
        mt_tokenizer_close(tok);
        mt_tokens_free(&t);
        mt_str_free(&text);
        mt_str_free(&json);
    }
}

static void a_decoder_without_steps_joins_tokens_without_spaces(void **state)
{
    (void)state;
    static const struct {
        const char *decoder, *text;
    } cases[] = { { "null", "a b" }, { "{\"type\":\"Sequence\",\"decoders\":[]}", "ab" } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_str json = { 0 }, text = { 0 };
        mt_str_printf(&json, "{\"model\":" BYTES_MODEL ",\"decoder\":%s}", cases[i].decoder);
        mt_tokenizer *tok = open_json(json.s);
        assert_ok(mt_tokenizer_decode(tok, (const int32_t[]){ 0, 1 }, 2, false, &text, &err));
        assert_string_equal(text.s, cases[i].text);
        mt_str_free(&text);
        mt_tokenizer_close(tok);
        mt_str_free(&json);
    }
}

/* ---- directories ---- */

typedef struct folder {
    char dir[64];
} folder;

static void make_folder(folder *f)
{
    snprintf(f->dir, sizeof f->dir, "/tmp/mt-tokenizer-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
}

static void put_file(const folder *f, const char *name, const char *bytes, size_t n)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(out);
}

static void put_text(const folder *f, const char *name, const char *text) { put_file(f, name, text, strlen(text)); }

static void put_golden(const folder *f, const char *name, const char *golden)
{
    mt_err err = { 0 };
    char path[512], *bytes;
    size_t n;
    snprintf(path, sizeof path, MT_TESTS_DIR "/golden/tokenizer/files/%s", golden);
    assert_ok(mt_file_read(&bytes, &n, path, 1 << 20, &err));
    put_file(f, name, bytes, n);
    mt_free(bytes);
}

static void remove_folder(const folder *f)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
}

static void configuration_beside_a_tokenizer_json_is_read(void **state)
{
    (void)state;
    mt_err err = { 0 };
    folder f;
    mt_tokenizer *tok;
    size_t n;
    make_folder(&f);
    put_text(&f, "tokenizer.json", BYTES_JSON);
    put_text(&f, "tokenizer_config.json",
             "{\"bos_token\":{\"content\":\"<e>\"},\"eos_token\":\"<x>\",\"add_bos_token\":true,\"model_max_length\":4096,"
             "\"chat_template\":[{\"name\":\"default\",\"template\":\"old\"},{\"name\":\"tool_use\",\"template\":\"tools\"}]}");
    put_text(&f, "special_tokens_map.json", "{\"pad_token\":\"nowhere\"}");
    put_text(&f, "chat_template.jinja", "new");
    assert_ok(mt_tokenizer_open(&tok, f.dir, &err));
    assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_BOS), 9);
    assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_EOS), 10);
    assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_PAD), -1);
    assert_string_equal(mt_tokenizer_role_text(tok, MT_TOK_PAD), "nowhere");
    assert_null(mt_tokenizer_role_text(tok, MT_TOK_UNK));
    assert_true(mt_tokenizer_add_bos(tok));
    assert_false(mt_tokenizer_add_eos(tok));
    assert_int_equal(mt_tokenizer_max_length(tok), 4096);
    const mt_named_template *t = mt_tokenizer_templates(tok, &n);
    assert_int_equal(n, 2);
    assert_string_equal(t[0].name, "tool_use");
    assert_string_equal(t[1].name, "default");
    assert_string_equal(t[1].text, "new");
    mt_tokenizer_close(tok);
    char path[200];
    snprintf(path, sizeof path, "%s/additional_chat_templates", f.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    put_text(&f, "additional_chat_templates/tool_use.jinja", "new tools");
    assert_ok(mt_tokenizer_open(&tok, f.dir, &err));
    t = mt_tokenizer_templates(tok, &n);
    assert_int_equal(n, 2);
    assert_string_equal(t[1].name, "tool_use");
    assert_string_equal(t[1].text, "new tools");
    mt_tokenizer_close(tok);
    put_text(&f, "tokenizer_config.json", "{\"bos_token\":7}");
    assert_int_equal(mt_tokenizer_open(&tok, f.dir, &err), MT_EFORMAT);
    assert_says("tokenizer_config.json: \"bos_token\"");
    remove_folder(&f);
    assert_int_equal(mt_tokenizer_open(&tok, f.dir, &err), MT_ENOENT);
    assert_says("no tokenizer.json and no tokenizer.model");
}

/* As transformers does it: some classes build their steps themselves and ask tokenizer_config.json for the space; for some model
 * types it has a class that config cannot change. */
/* As transformers 5.23 loads such directories. */
static void an_older_map_of_special_tokens_wins_over_the_configuration(void **state)
{
    (void)state;
    static const struct {
        const char *decoder;
        int bos, eos, pad;
    } cases[] = { { "", -1, 9, 5 }, { ",\"added_tokens_decoder\":{}", 9, 10, 5 } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_str config = { 0 };
        folder f;
        mt_tokenizer *tok;
        make_folder(&f);
        put_text(&f, "tokenizer.json", BYTES_JSON);
        mt_str_printf(&config, "{\"bos_token\":\"<e>\",\"eos_token\":\"<x>\"%s}", cases[i].decoder);
        put_text(&f, "tokenizer_config.json", config.s);
        put_text(&f, "special_tokens_map.json", "{\"bos_token\":null,\"eos_token\":{\"content\":\"<e>\"},\"pad_token\":\"ab\"}");
        assert_ok(mt_tokenizer_open(&tok, f.dir, &err));
        assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_BOS), cases[i].bos);
        assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_EOS), cases[i].eos);
        assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_PAD), cases[i].pad);
        mt_tokenizer_close(tok);
        mt_str_free(&config);
        remove_folder(&f);
    }
}

static void the_space_in_front_of_a_text_is_that_of_the_class(void **state)
{
    (void)state;
#define WORDS(prefix) "{\"model\":" BYTES_MODEL ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix "}}"
    static const char *const files[] = { WORDS("false"), WORDS("true") };
    static const struct {
        const char *class, *model_type, *config; /* NULL: not there */
        bool space[2];                           /* with each of the files */
    } cases[] = {
        { "GPT2Tokenizer", NULL, "true", { true, true } },
        { "GPT2TokenizerFast", "starcoder2", "true", { true, true } },
        { "GPTNeoXTokenizer", "gpt_neox", "false", { false, false } },
        { "Qwen2Tokenizer", "qwen3", NULL, { false, false } },
        { "PreTrainedTokenizerFast", NULL, "true", { false, true } },
        { "LlamaTokenizerFast", "llama", "false", { false, true } },
        { "GPT2Tokenizer", "olmo2", "true", { false, true } },
        { "PreTrainedTokenizerFast", "qwen2", "true", { true, true } },
        { "PreTrainedTokenizerFast", "gpt2", "false", { false, true } },
        { NULL, "gpt2", "true", { true, true } },
        { NULL, "llama", "true", { false, true } },
        { NULL, NULL, "false", { false, true } },
    };
    for (size_t i = 0; i < 2 * MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        folder f;
        mt_tokenizer *tok;
        mt_tokens t = { 0 };
        mt_str config = { 0 };
        const char *class = cases[i / 2].class, *type = cases[i / 2].model_type, *asked = cases[i / 2].config;
        make_folder(&f);
        put_text(&f, "tokenizer.json", files[i % 2]);
        mt_str_puts(&config, "{\"x\":1");
        if (class) mt_str_printf(&config, ",\"tokenizer_class\":\"%s\"", class);
        if (asked) mt_str_printf(&config, ",\"add_prefix_space\":%s", asked);
        mt_str_puts(&config, "}");
        put_text(&f, "tokenizer_config.json", config.s);
        mt_str_free(&config);
        if (type) {
            mt_str_printf(&config, "{\"model_type\":\"%s\"}", type);
            put_text(&f, "config.json", config.s);
            mt_str_free(&config);
        }
        assert_ok(mt_tokenizer_open(&tok, f.dir, &err));
        encode(tok, "ab", 0, &t);
        assert_int_equal(t.n, 1);
        if (t.ids[0] != (cases[i / 2].space[i % 2] ? 6 : 5)) /* with a space, without one */
            fail_msg("%s, %s, %s, file %zu: token %d", class ? class : "-", type ? type : "-", asked ? asked : "-", i % 2,
                     t.ids[0]);
        mt_tokens_free(&t);
        mt_tokenizer_close(tok);
        remove_folder(&f);
    }
}

/* As transformers does it: what the vocabulary has is found in text, what it lacks gets the next id. */
static void tokens_a_tokenizer_json_forgot_are_added(void **state)
{
    (void)state;
    mt_err err = { 0 };
    folder f;
    mt_tokenizer *tok;
    mt_tokens t = { 0 };
    make_folder(&f);
    put_text(&f, "tokenizer.json", BYTES_JSON);
    put_text(
        &f, "tokenizer_config.json",
        "{\"bos_token\":\"ab\",\"eos_token\":\"<none>\",\"added_tokens_decoder\":{\"9\":{\"content\":\"<e>\",\"special\":false},"
        "\"77\":{\"content\":\"<far>\",\"special\":true}}}");
    assert_ok(mt_tokenizer_open(&tok, f.dir, &err));
    assert_int_equal(mt_tokenizer_token_id(tok, "<far>", 5), 11);
    assert_true(mt_tokenizer_is_special(tok, 9)); /* the tokenizer.json said so */
    assert_true(mt_tokenizer_is_special(tok, 5));
    assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_EOS), -1);
    encode(tok, " ab<far>", 0, &t);
    assert_int_equal(t.n, 3); /* space, the bos token, <far> */
    assert_int_equal(t.ids[1], 5);
    assert_int_equal(t.ids[2], 11);
    mt_tokens_free(&t);
    mt_tokenizer_close(tok);
    remove_folder(&f);
}

static void a_sentencepiece_model_gets_its_special_tokens_from_the_config(void **state)
{
    (void)state;
    mt_err err = { 0 };
    folder f;
    mt_tokenizer *tok;
    mt_tokens t = { 0 };
    make_folder(&f);
    put_golden(&f, "tokenizer.model", "spm_bpe_bytes.model");
    put_text(&f, "tokenizer_config.json",
             "{\"add_eos_token\":true,\"added_tokens_decoder\":{\"5000\":{\"content\":\"<|im_end|>\",\"special\":true}}}");
    put_text(&f, "added_tokens.json", "{\"<|extra|>\":5001}");
    assert_ok(mt_tokenizer_open(&tok, f.dir, &err));
    encode(tok, "<|im_end|><|extra|><s>", MT_ENCODE_SPECIAL, &t);
    static const int want[] = { 1, 5000, 5001, 1, 2 }; /* <s> ... </s> around */
    assert_int_equal(t.n, MT_COUNT(want));
    for (size_t i = 0; i < t.n; i++) assert_int_equal(t.ids[i], want[i]);
    assert_int_equal(mt_tokenizer_vocab_size(tok), 5002);
    mt_tokens_free(&t);
    mt_tokenizer_close(tok);
    remove_folder(&f);
}

static void glm4_puts_its_own_tokens_in_front(void **state)
{
    (void)state;
    mt_err err = { 0 };
    folder f;
    mt_tokenizer *tok;
    mt_tokens t = { 0 };
    mt_str text = { 0 };
    make_folder(&f);
    put_golden(&f, "tokenizer.model", "tiktoken.model");
    put_text(
        &f, "tokenizer_config.json",
        "{\"tokenizer_class\":\"ChatGLM4Tokenizer\",\"added_tokens_decoder\":{\"400\":{\"content\":\"[gMASK]\",\"special\":true},"
        "\"401\":{\"content\":\"<sop>\",\"special\":true},\"402\":{\"content\":\"<|user|>\",\"special\":true}}}");
    assert_ok(mt_tokenizer_open(&tok, f.dir, &err));
    encode(tok, "<|user|>the \xc3\xa9", MT_ENCODE_SPECIAL, &t);
    assert_int_equal(t.ids[0], 400);
    assert_int_equal(t.ids[1], 401);
    assert_int_equal(t.ids[2], 402);
    assert_ok(mt_tokenizer_decode(tok, t.ids, t.n, true, &text, &err));
    assert_string_equal(text.s, "the \xc3\xa9");
    mt_str_free(&text);
    mt_tokens_free(&t);
    mt_tokenizer_close(tok);
    remove_folder(&f);
}

/* ---- failures and threads ---- */

static mt_rc open_and_use(const char *bytes, size_t n, mt_err *err)
{
    mt_tokenizer *tok = NULL;
    mt_tok_scratch *sc = NULL;
    mt_tokens t = { 0 };
    mt_str s = { 0 };
    static const char text[] = "the theory of e\xcc\x81 tokens <mask> and <e> more \xe4\xbd\xa0\xe5\xa5\xbd";
    mt_rc rc = mt_tokenizer_open_model(&tok, bytes, n, "t", err);
    if (!rc) rc = mt_tok_scratch_create(&sc, tok, err);
    if (!rc) rc = mt_tokenizer_encode(tok, sc, text, sizeof text - 1, MT_ENCODE_SPECIAL | MT_ENCODE_RANGES, &t, err);
    if (!rc) rc = mt_tokenizer_decode(tok, t.ids, t.n, false, &s, err);
    mt_str_free(&s);
    mt_tokens_free(&t);
    mt_tok_scratch_free(sc);
    mt_tokenizer_close(tok);
    return rc;
}

static void fail_each_allocation(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    for (int k = 0;; k += k < 300 ? 1 : 37) { /* a vocabulary has hundreds of like allocations */
        mt_fault_arm(MT_FAULT_ALLOC, k);
        mt_rc rc = open_and_use(bytes, n, &err);
        if (!mt_fault_disarm()) {
            assert_int_equal(rc, MT_OK);
            return;
        }
        if (rc != MT_ENOMEM) fail_msg("allocation %d: %s: %s", k, mt_rc_name(rc), err.msg);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const files[] = { "spm_bpe_bytes.model", "spm_unigram_rules.model", "tiktoken.model" };
    fail_each_allocation(BYTES_JSON, sizeof BYTES_JSON - 1);
    for (size_t i = 0; i < MT_COUNT(files); i++) {
        mt_err err = { 0 };
        char path[512], *bytes;
        size_t n;
        snprintf(path, sizeof path, MT_TESTS_DIR "/golden/tokenizer/files/%s", files[i]);
        assert_ok(mt_file_read(&bytes, &n, path, 1 << 20, &err));
        fail_each_allocation(bytes, n);
        mt_free(bytes);
    }
}

static void *encode_often(void *arg)
{
    const mt_tokenizer *tok = arg;
    mt_tok_scratch *sc;
    mt_tokens t = { 0 };
    if (mt_tok_scratch_create(&sc, tok, NULL)) return (void *)1;
    bool ok = true;
    for (int i = 0; i < 200 && ok; i++) {
        t.n = 0;
        ok = !mt_tokenizer_encode(tok, sc, "ab ab<x>a", 9, MT_ENCODE_RANGES, &t, NULL) && t.n == 4 && t.ids[1] == 6;
    }
    mt_tokens_free(&t);
    mt_tok_scratch_free(sc);
    return ok ? NULL : (void *)1;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    mt_tokenizer *tok = open_json(BYTES_JSON);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_often, tok), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    mt_tokenizer_close(tok);
}

static void a_refused_id_names_its_token_and_no_more(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_vocab v = { 0 };
    assert_int_equal(mt_vocab_add(&v, "abc\": -1, \"def", 3, -1, &err), MT_ERANGE); /* tokens point into their file's text */
    assert_string_equal(err.msg, "the id of \"abc\" is -1, outside 0..2^31-2");
    mt_vocab_deinit(&v);
}

MT_TEST_MAIN(cmocka_unit_test(a_refused_id_names_its_token_and_no_more), cmocka_unit_test(ranges_say_where_each_token_came_from),
             cmocka_unit_test(ids_are_appended), cmocka_unit_test(the_vocabulary_answers_questions),
             cmocka_unit_test(text_that_is_not_utf8_is_refused_with_its_place),
             cmocka_unit_test(malformed_files_are_refused_by_name_and_key), cmocka_unit_test(damaged_model_files_are_refused),
             cmocka_unit_test(rules_that_grow_without_end_are_stopped),
             cmocka_unit_test(a_decoder_without_steps_joins_tokens_without_spaces),
             cmocka_unit_test(configuration_beside_a_tokenizer_json_is_read),
             cmocka_unit_test(an_older_map_of_special_tokens_wins_over_the_configuration),
             cmocka_unit_test(the_space_in_front_of_a_text_is_that_of_the_class),
             cmocka_unit_test(tokens_a_tokenizer_json_forgot_are_added),
             cmocka_unit_test(a_sentencepiece_model_gets_its_special_tokens_from_the_config),
             cmocka_unit_test(glm4_puts_its_own_tokens_in_front), cmocka_unit_test(every_allocation_may_fail),
             cmocka_unit_test(threads_share_a_tokenizer))
