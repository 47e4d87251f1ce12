/* Ids and decoded text equal to the reference's: small tokenizers of every kind, SentencePiece and tiktoken files, and a
 * sample for each published tokenizer that is at hand (see golden/tokenizer/make_goldens.py). */
#include "archives.h"

#include "base/file.h"
#include "base/value.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN MT_TESTS_DIR "/golden/tokenizer/"

static char *read_text(const char *path, size_t *n)
{
    mt_err err = { 0 };
    char *text;
    assert_ok(mt_file_read(&text, n, path, (size_t)1 << 30, &err));
    return text;
}

/* Prints what differs, so that a failure can be understood without a debugger. */
static void assert_ids(const char *name, const mt_value *in, const mt_value *want, const mt_tokens *got)
{
    bool same = want->list.n == got->n;
    for (size_t i = 0; same && i < got->n; i++) same = want->list.items[i].i == got->ids[i];
    if (same) return;
    mt_str s = { 0 };
    mt_str_printf(&s, "%s: ", name);
    mt_value_write_json(&s, in);
    mt_str_puts(&s, "\n  want ");
    mt_value_write_json(&s, want);
    mt_str_puts(&s, "\n  got  ");
    for (size_t i = 0; i < got->n; i++) mt_str_printf(&s, " %d", got->ids[i]);
    fail_msg("%s", s.s);
}

static void assert_text(const char *name, const mt_value *want, const mt_str *got)
{
    if (want->str.n == got->n && !memcmp(want->str.s, got->n ? got->s : "", got->n)) return;
    fail_msg("%s: decoded\n  want \"%.*s\"\n  got  \"%.*s\"", name, (int)want->str.n, want->str.s, (int)got->n,
             got->n ? got->s : "");
}

static void assert_ranges_make_sense(const char *name, const mt_tokens *t, size_t n)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->ranges[i].start > t->ranges[i].end || t->ranges[i].end > n) fail_msg("%s: range %zu is outside the text", name, i);
}

static void check_case(const char *name, const mt_tokenizer *tok, mt_tok_scratch *sc, const mt_value *c)
{
    mt_err err = { 0 };
    mt_tokens t = { 0 }, r = { 0 };
    mt_str out = { 0 };
    const mt_value *in = mt_value_get(c, "in"), *ids = mt_value_get(c, "ids"), *plain = mt_value_get(c, "plain");
    const mt_value *skipped = mt_value_get(c, "skipped");
    assert_ok(mt_tokenizer_encode(tok, sc, in->str.s, in->str.n, MT_ENCODE_SPECIAL, &t, &err));
    assert_ids(name, in, ids, &t);
    assert_ok(mt_tokenizer_decode(tok, t.ids, t.n, false, &out, &err));
    assert_text(name, mt_value_get(c, "out"), &out);
    mt_str_clear(&out);
    assert_ok(mt_tokenizer_decode(tok, t.ids, t.n, true, &out, &err));
    assert_text(name, skipped ? skipped : mt_value_get(c, "out"), &out);
    assert_ok(mt_tokenizer_encode(tok, sc, in->str.s, in->str.n, MT_ENCODE_RANGES, &r, &err));
    assert_ids(name, in, plain ? plain : ids, &r);
    assert_ranges_make_sense(name, &r, in->str.n);
    mt_str_free(&out);
    mt_tokens_free(&t);
    mt_tokens_free(&r);
}

static void check_cases(const char *name, const mt_tokenizer *tok, const mt_value *cases)
{
    mt_err err = { 0 };
    mt_tok_scratch *sc;
    assert_ok(mt_tok_scratch_create(&sc, tok, &err));
    for (int round = 0; round < 2; round++) /* the second time words come from the cache */
        for (size_t i = 0; i < cases->list.n; i++) check_case(name, tok, sc, &cases->list.items[i]);
    mt_tok_scratch_free(sc);
}

/* Calls `each` for every JSON line of a golden file. */
static void for_each_line(const char *path, void (*each)(const mt_value *line, void *arg), void *arg)
{
    size_t n, at = 0, used;
    char *text = read_text(path, &n);
    while (at < n && text[at] != '\0') {
        mt_arena arena = { 0 };
        mt_err err = { 0 };
        mt_value v;
        assert_ok(mt_value_parse_json(&v, &arena, text + at, n - at, &used, path, &err));
        each(&v, arg);
        mt_arena_free(&arena);
        at += used;
        while (at < n && text[at] == '\n') at++;
    }
    mt_free(text);
}

/* {"model": M} and the parts of the line, as one tokenizer.json. */
static void check_small(const mt_value *line, void *arg)
{
    (void)arg;
    mt_err err = { 0 };
    mt_str json = { 0 };
    mt_tokenizer *tok;
    char path[512], name[128];
    size_t n;
    snprintf(name, sizeof name, "%.*s", (int)mt_value_get(line, "name")->str.n, mt_value_get(line, "name")->str.s);
    const mt_value *model = mt_value_get(line, "model"), *parts = mt_value_get(line, "parts");
    snprintf(path, sizeof path, GOLDEN "models/%.*s.json", (int)model->str.n, model->str.s);
    char *model_text = read_text(path, &n);
    mt_value_write_json(&json, parts);
    json.n--; /* reopen the object */
    mt_str_printf(&json, "%s\"model\": %s}", parts->map.n ? ", " : "", model_text);
    assert_ok(mt_tokenizer_open_json(&tok, json.s, json.n, name, &err));
    check_cases(name, tok, mt_value_get(line, "cases"));
    mt_tokenizer_close(tok);
    mt_str_free(&json);
    mt_free(model_text);
}

static void small_tokenizers_of_every_kind_agree(void **state)
{
    (void)state;
    for_each_line(GOLDEN "small.jsonl", check_small, NULL);
}

static void check_file(const mt_value *line, void *arg)
{
    (void)arg;
    mt_err err = { 0 };
    mt_tokenizer *tok;
    char path[512];
    const mt_value *file = mt_value_get(line, "file");
    snprintf(path, sizeof path, GOLDEN "files/%.*s", (int)file->str.n, file->str.s);
    assert_ok(mt_tokenizer_open_file(&tok, path, &err));
    check_cases(path, tok, mt_value_get(line, "cases"));
    mt_tokenizer_close(tok);
}

static void sentencepiece_and_tiktoken_files_agree(void **state)
{
    (void)state;
    for_each_line(GOLDEN "files.jsonl", check_file, NULL);
}

/* ---- published tokenizers ---- */

typedef struct archive {
    const char *name;
    mt_tokenizer *tok;
    mt_tok_scratch *sc;
} archive;

static void check_archive_line(const mt_value *line, void *arg)
{
    archive *a = arg;
    check_case(a->name, a->tok, a->sc, line);
}

static void published_tokenizers_agree(void **state)
{
    (void)state;
    static const char *const names[] = { "deepseek_v3", "gemma2", "llama2", "mistral_nemo", "qwen2_5" };
    char golden[512];
    archives all;
    archives_open(&all);
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        mt_err err = { 0 };
        archive a = { .name = names[i] };
        const char *path = archive_find(&all, names[i]);
        if (!path) continue;
        assert_ok(mt_tokenizer_open(&a.tok, path, &err));
        assert_ok(mt_tok_scratch_create(&a.sc, a.tok, &err));
        snprintf(golden, sizeof golden, GOLDEN "archives/%s.jsonl", names[i]);
        for_each_line(golden, check_archive_line, &a);
        mt_tok_scratch_free(a.sc);
        mt_tokenizer_close(a.tok);
    }
    if (!archives_close(&all)) skip();
}

MT_TEST_MAIN(cmocka_unit_test(small_tokenizers_of_every_kind_agree), cmocka_unit_test(sentencepiece_and_tiktoken_files_agree),
             cmocka_unit_test(published_tokenizers_agree))
