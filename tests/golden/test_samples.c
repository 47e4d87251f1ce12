/* Ids and labels equal to what transformers gives (golden/samples/make_goldens.py): records of nine published layouts, one
 * conversation for every kind of mask, and published tokenizers that are at hand.  Every trained span decodes back to the
 * record's answer and the end of turn. */
#include "archives.h"
#include "tempdir.h"

#include "data/messages.h"
#include "data/records.h"
#include "data/registry.h"
#include "data/sampler.h"
#include "data/slice.h"

#include <unistd.h>

#define GOLDEN MT_TESTS_DIR "/golden/samples/"

/* ---- comparing ---- */

static void put_numbers(mt_str *s, const char *what, const int32_t *got, size_t n)
{
    mt_str_puts(s, what);
    for (size_t i = 0; i < n; i++) mt_str_printf(s, " %d", got[i]);
}

static void assert_numbers(const char *name, const char *what, const mt_value *want, const int32_t *got, size_t n)
{
    bool same = want->list.n == n;
    for (size_t i = 0; same && i < n; i++) same = want->list.items[i].i == got[i];
    if (same) return;
    mt_str s = { 0 };
    mt_str_printf(&s, "%s: %s\n  want ", name, what);
    mt_value_write_json(&s, want);
    put_numbers(&s, "\n  got ", got, n);
    fail_msg("%s", s.s);
}

static void assert_samples(const char *name, const mt_value *want, const mt_sample *got, size_t n)
{
    if (want->list.n != n)
        fail_msg("%s: %zu samples were expected, there are %zu; the first is \"%.*s\"", name, want->list.n, n,
                 n ? (int)got[0].n_text : 0, n ? got[0].text : "");
    for (size_t i = 0; i < n; i++) {
        assert_numbers(name, "ids", mt_value_get(&want->list.items[i], "ids"), got[i].ids, (size_t)got[i].n);
        assert_numbers(name, "labels", mt_value_get(&want->list.items[i], "labels"), got[i].labels, (size_t)got[i].n);
    }
}

/* ---- what is trained, decoded ---- */

/* `said` (a decoded span) is what message m says, and the end. */
static void assert_says_answer(const char *name, const mt_sampler *s, mt_slice said, const mt_message *m)
{
    static const mt_slice opener = { "<think>\n", 8 };
    static const mt_slice channel = { "<|channel|>", 11 }, header = { "<|message|>", 11 };
    static const mt_slice next_header = { "<|observation|>", 15 }; /* ends calls where "<|user|>" ends answers */
    mt_slice end = { mt_sampler_end(s), strlen(mt_sampler_end(s)) }, answer = { m->content.str.s, m->content.str.n };
    if (m->calls.type == MT_VALUE_LIST && strcmp(end.s, "<|user|>") == 0) end = next_header;
    if (!mt_slice_ends(said, end) && !mt_slice_ends(mt_slice_trim_end(said), end))
        fail_msg("%s: \"%.*s\" has no \"%s\" at its end", name, (int)said.n, said.s, end.s);
    if (m->calls.type == MT_VALUE_LIST) {
        const mt_value *f = mt_value_get(&m->calls.list.items[0], "function"), *called = mt_value_get(f, "name");
        assert_true(mt_slice_has(said, (mt_slice){ called->str.s, called->str.n }));
        return;
    }
    said = mt_slice_upto(said, mt_slice_find_last(said, end));
    if (mt_slice_starts(said, channel)) { /* its header is learned, and a thought before it */
        assert_true(m->thought.type == MT_VALUE_NULL || mt_slice_has(said, (mt_slice){ m->thought.str.s, m->thought.str.n }));
        said = mt_slice_from(said, mt_slice_find_last(said, header) + header.n);
    }
    mt_slice inner = mt_slice_starts(answer, opener) ? mt_slice_from(answer, opener.n) : answer;
    bool same = mt_slice_ends(said, answer) || mt_slice_ends(said, inner) || mt_slice_ends(said, mt_slice_skip_space(answer));
    size_t n_before = same && said.n > answer.n ? said.n - answer.n : 0;
    same = same && !mt_slice_trim_end(mt_slice_upto(said, n_before)).n;
    if (!same) fail_msg("%s: trained is \"%.*s\", the record says \"%.*s\"", name, (int)said.n, said.s, (int)answer.n, answer.s);
}

/* Trained spans and trained answers are the same in number and text. */
static void assert_spans(const char *name, const mt_sampler *s, const mt_tokenizer *tok, const mt_chat *chat,
                         const mt_sample *samples, size_t n, bool last_only)
{
    mt_err err = { 0 };
    size_t k = 0;
    mt_str said = { 0 };
    if (last_only) k = chat->n - 1;
    for (size_t i = 0; i < n; i++) {
        const mt_sample *x = &samples[i];
        for (int64_t a = 0, b; a < x->n; a = b) {
            for (b = a; b < x->n && x->labels[b] == -100;) b++;
            for (a = b; b < x->n && x->labels[b] != -100;) b++;
            if (a == b) break;
            while (k < chat->n && !chat->items[k].trained) k++;
            assert_true(k < chat->n);
            mt_str_clear(&said);
            assert_ok(mt_tokenizer_decode(tok, x->ids + a, (size_t)(b - a), false, &said, &err));
            assert_says_answer(name, s, mt_slice_of(&said), &chat->items[k++]);
        }
    }
    while (k < chat->n && !chat->items[k].trained) k++;
    if (k != chat->n) fail_msg("%s: answer %zu is not trained", name, k + 1);
    mt_str_free(&said);
}

static void check_spans(const char *name, const mt_sampler *s, const mt_tokenizer *tok, const mt_record_layout *layout,
                        const mt_sampler_config *c, const mt_value *record, const mt_sample *samples, size_t n)
{
    mt_err err = { 0 };
    mt_arena arena = { 0 };
    mt_chat chat;
    mt_reason reason;
    mt_chat_rules rules = { .mask_history = c->mask_history };
    if (c->train_on_prompt || c->max_seq_len) return;
    assert_ok(mt_chat_read(&chat, &arena, layout, &rules, record, &reason, &err));
    assert_int_equal(reason, MT_REASON_NONE);
    assert_spans(name, s, tok, &chat, samples, n, c->history == MT_HISTORY_LAST);
    mt_arena_free(&arena);
}

/* ---- golden lines ---- */

static void for_each_line(const char *path, void (*each)(const mt_value *line, void *arg), void *arg)
{
    size_t n, at = 0, used;
    char *text;
    mt_err err = { 0 };
    assert_ok(mt_file_read(&text, &n, path, (size_t)1 << 28, &err));
    while (at < n) {
        mt_arena arena = { 0 };
        mt_value v;
        assert_ok(mt_value_parse_json(&v, &arena, text + at, n - at, &used, path, &err));
        each(&v, arg);
        mt_arena_free(&arena);
        for (at += used; at < n && text[at] == '\n';) at++;
    }
    mt_free(text);
}

static bool flag(const mt_value *config, const char *key)
{
    const mt_value *v = mt_value_get(config, key);
    return v && v->b;
}

static mt_sampler_config read_config(const mt_value *line, char template[64])
{
    const mt_value *c = mt_value_get(line, "config"), *max = mt_value_get(c, "max_seq_len"),
                   *overlong = mt_value_get(c, "overlong");
    const mt_value *history = mt_value_get(c, "history"), *name = mt_value_get(c, "template");
    snprintf(template, 64, "%.*s", name ? (int)name->str.n : 0, name ? name->str.s : "");
    mt_sampler_config out = { .template = template,
                              .keep_text = true,
                              .max_seq_len = max ? max->i : 0,
                              .train_on_prompt = flag(c, "train_on_prompt"),
                              .mask_history = flag(c, "mask_history"),
                              .template_kwargs = mt_value_get(line, "kwargs") };
    if (history && mt_value_is(history, "last")) out.history = MT_HISTORY_LAST;
    if (overlong) out.overlong = mt_value_is(overlong, "skip") ? MT_OVERLONG_SKIP : MT_OVERLONG_SPLIT;
    return out;
}

static void expect_count(const char *name, const mt_value *line, const char *key, int64_t got)
{
    const mt_value *want = mt_value_get(line, key);
    if (want && want->i != got) fail_msg("%s: %s is %lld, expected %lld", name, key, (long long)got, (long long)want->i);
}

static void check_line(const mt_value *line, const mt_tokenizer *tok)
{
    mt_err err = { 0 };
    mt_sampler *s;
    mt_sampler_scratch *w;
    mt_oddities odd = { 0 };
    mt_reason reason;
    const mt_sample *samples;
    size_t n;
    char name[128], template[64];
    const mt_value *given = mt_value_get(line, "name"), *want_reason = mt_value_get(line, "reason");
    snprintf(name, sizeof name, "%.*s", (int)given->str.n, given->str.s);
    mt_record_layout layout = mt_record_layout_default(MT_FORMATTING_OPENAI);
    mt_sampler_config config = read_config(line, template);
    assert_ok(mt_sampler_open(&s, tok, &layout, &config, &err));
    assert_ok(mt_sampler_scratch_create(&w, s, &err));
    for (int round = 0; round < 2; round++) { /* the second time with memory that has been used */
        odd = (mt_oddities){ 0 };
        assert_ok(mt_sampler_run(s, w, line, &samples, &n, &reason, &odd, &err));
        if (want_reason)
            assert_true(mt_value_is(want_reason, mt_reason_text(reason)));
        else if (reason != MT_REASON_NONE)
            fail_msg("%s: %s: %s", name, mt_reason_text(reason), err.msg);
        assert_samples(name, mt_value_get(line, "samples"), samples, n);
        expect_count(name, line, "truncated", odd.truncated);
        expect_count(name, line, "answers_cut", odd.answers_cut);
        if (!want_reason) check_spans(name, s, tok, &layout, &config, line, samples, n);
    }
    mt_sampler_scratch_free(w);
    mt_sampler_close(s);
}

/* The small tokenizer with a template of the test's own, in dir. */
static mt_tokenizer *with_template(const char *dir, const mt_value *template)
{
    mt_err err = { 0 };
    char path[512];
    mt_tokenizer *tok;
    static const char *const files[] = { "tokenizer.json", "tokenizer_config.json" };
    for (size_t i = 0; i < MT_COUNT(files); i++) {
        char from[512];
        snprintf(from, sizeof from, GOLDEN "tokenizer/%s", files[i]);
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        if (access(path, F_OK) != 0) assert_int_equal(symlink(from, path), 0);
    }
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(template->str.s, 1, template->str.n, f), template->str.n);
    assert_int_equal(fclose(f), 0);
    assert_ok(mt_tokenizer_open(&tok, dir, &err));
    return tok;
}

static void check_mask(const mt_value *line, void *arg)
{
    mt_tokenizer *tok = with_template(arg, mt_value_get(line, "template"));
    check_line(line, tok);
    mt_tokenizer_close(tok);
}

static void masks_are_what_the_model_sees_and_says(void **state) { for_each_line(GOLDEN "masks.jsonl", check_mask, *state); }

/* ---- datasets ---- */

typedef struct dataset {
    mt_tokenizer *tok;
    mt_registry *registry;
    mt_dataset_entry entry;
    mt_records *records;
    mt_sampler *s;
    mt_sampler_scratch *w;
    mt_arena arena;
    bool installed; /* rows of data/dataset_info.json */
    int64_t n_checked;
} dataset;

/* Rows of data/dataset_info.json, the file of their hub folder that a fixture stands for, and the fixture's name. */
static const struct {
    const char *name, *file, *fixture;
} published[] = {
    { "metamath", "meta-math/MetaMathQA/MetaMathQA-395K.json", "metamathqa" },
    { "open_platypus", "garage-bAInd/Open-Platypus/data/train-00000-of-00001.jsonl", "open_platypus" },
    { "mathinstruct", "TIGER-Lab/MathInstruct/MathInstruct.json", "mathinstruct" },
    { "codealpaca", "sahil2801/CodeAlpaca-20k/code_alpaca_20k.jsonl", "codealpaca" },
    { "alpaca", "tatsu-lab/alpaca/data/train-00000-of-00001.json", "alpaca" },
    { "sharegpt4", "shibing624/sharegpt_gpt4/sharegpt_gpt4.jsonl", "sharegpt4" },
    { "ultrachat_200k", "HuggingFaceH4/ultrachat_200k/data/train_sft-00000-of-00003.json", "ultrachat_200k" },
    { "open_thoughts", "llamafactory/OpenThoughts-114k/train.jsonl", "openthoughts_114k" },
    { "open_r1_math", "llamafactory/OpenR1-Math-94k/train.json", "openr1_math_94k" },
    { "gsm8k", "openai/gsm8k/main/train-00000-of-00001.jsonl", "gsm8k" },
    { "dolly_15k", "databricks/databricks-dolly-15k/databricks-dolly-15k.json", "dolly_15k" },
    { "openorca", "Open-Orca/OpenOrca/1M-GPT4-Augmented.jsonl", "openorca" },
    { "openhermes", "teknium/OpenHermes-2.5/openhermes2_5.json", "openhermes" },
    { "tulu3", "allenai/tulu-3-sft-mixture/data/train-00000-of-00006.jsonl", "tulu3" },
};

static const char *installed_name(const char *fixture)
{
    for (size_t i = 0; i < MT_COUNT(published); i++)
        if (strcmp(published[i].fixture, fixture) == 0) return published[i].name;
    return NULL;
}

static void close_dataset(dataset *d)
{
    mt_records_close(d->records);
    mt_sampler_scratch_free(d->w);
    mt_sampler_close(d->s);
    d->records = NULL;
    d->w = NULL;
    d->s = NULL;
}

static const mt_sampler_config with_chatml = { .template = "chatml", .keep_text = true };

static void open_dataset(dataset *d, const char *name)
{
    mt_err err = { 0 };
    close_dataset(d);
    assert_ok(mt_registry_find(d->registry, name, &d->entry, &err));
    mt_records_options options = { .split = d->entry.split, .subset = d->entry.subset };
    assert_ok(mt_records_open(&d->records, d->entry.path, &options, &err));
    assert_ok(mt_sampler_open(&d->s, d->tok, &d->entry.layout, &with_chatml, &err));
    assert_ok(mt_sampler_scratch_create(&d->w, d->s, &err));
}

static void check_row(const mt_value *line, void *arg)
{
    dataset *d = arg;
    mt_err err = { 0 };
    mt_value record;
    mt_record_place where;
    mt_reason reason;
    mt_oddities odd = { 0 };
    const mt_sample *samples;
    size_t n;
    char name[96];
    const mt_value *given = mt_value_get(line, "dataset");
    snprintf(name, sizeof name, "%.*s", (int)given->str.n, given->str.s);
    if (d->installed) { /* under the name it has there */
        const char *other = installed_name(name);
        if (!other) return;
        snprintf(name, sizeof name, "%s", other);
    }
    if (!d->entry.name || strcmp(d->entry.name, name) != 0) open_dataset(d, name);
    mt_arena_reset(&d->arena);
    assert_ok(mt_records_next(d->records, &d->arena, &record, &where, &err));
    assert_int_equal(where.state, MT_RECORD_OK);
    assert_int_equal(where.row, mt_value_get(line, "row")->i);
    assert_ok(mt_sampler_run(d->s, d->w, &record, &samples, &n, &reason, &odd, &err));
    if (reason != MT_REASON_NONE) fail_msg("%s, row %lld: %s", name, (long long)where.row, err.msg);
    assert_samples(name, mt_value_get(line, "samples"), samples, n);
    check_spans(name, d->s, d->tok, &d->entry.layout, &with_chatml, &record, samples, n);
    d->n_checked++;
}

static void records_of_published_layouts_become_the_right_samples(void **state)
{
    (void)state;
    mt_err err = { 0 };
    dataset d = { 0 };
    assert_ok(mt_tokenizer_open(&d.tok, GOLDEN "tokenizer", &err));
    assert_ok(mt_registry_open(&d.registry, &(mt_registry_places){ .dataset_dir = GOLDEN "fixtures" }, &err));
    for_each_line(GOLDEN "datasets.jsonl", check_row, &d);
    assert_int_equal(d.n_checked, 140);
    close_dataset(&d);
    mt_registry_close(d.registry);
    mt_tokenizer_close(d.tok);
    mt_arena_free(&d.arena);
}

/* A folder as clones of the hub's repositories would make it, with distractors: what another subset or split holds. */
static void lay_out_clones(const char *dir)
{
    static const char *const others[] = { "openai/gsm8k/main/test-00000-of-00001.jsonl",
                                          "openai/gsm8k/socratic/train-00000-of-00001.jsonl",
                                          "HuggingFaceH4/ultrachat_200k/data/train_gen-00000-of-00003.json" };
    char command[1600];
    for (size_t i = 0; i < MT_COUNT(published); i++) {
        const char *file = published[i].file, *ext = strrchr(file, '.');
        snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s/%s')\" && cp '%sfixtures/%s%s' '%s/%s'", dir, file, GOLDEN,
                 published[i].fixture, ext, dir, file);
        assert_int_equal(system(command), 0);
    }
    for (size_t i = 0; i < MT_COUNT(others); i++) {
        snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s/%s')\" && echo '{\"not\": \"this\"}' > '%s/%s'", dir,
                 others[i], dir, others[i]);
        assert_int_equal(system(command), 0);
    }
}

static void rows_of_the_installed_registry_give_the_same_samples(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t n;
    char *text, dir[] = "/tmp/mt-clones-XXXXXX", command[96];
    dataset d = { .installed = true };
    assert_non_null(mkdtemp(dir));
    lay_out_clones(dir);
    assert_ok(mt_tokenizer_open(&d.tok, GOLDEN "tokenizer", &err));
    assert_ok(mt_file_read(&text, &n, MT_TESTS_DIR "/../data/dataset_info.json", (size_t)1 << 20, &err));
    assert_ok(mt_registry_parse(&d.registry, text, n, dir, &err));
    for_each_line(GOLDEN "datasets.jsonl", check_row, &d);
    assert_int_equal(d.n_checked, 10 * MT_COUNT(published));
    close_dataset(&d);
    mt_registry_close(d.registry);
    mt_tokenizer_close(d.tok);
    mt_arena_free(&d.arena);
    mt_free(text);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* ---- published tokenizers ---- */

typedef struct archive {
    archives all;
    char name[64];
    mt_tokenizer *tok;
} archive;

static void check_archive(const mt_value *line, void *arg)
{
    archive *a = arg;
    mt_err err = { 0 };
    const mt_value *name = mt_value_get(line, "tokenizer");
    if (!mt_value_is(name, a->name)) {
        mt_tokenizer_close(a->tok);
        a->tok = NULL;
        snprintf(a->name, sizeof a->name, "%.*s", (int)name->str.n, name->str.s);
        const char *path = archive_find(&a->all, a->name);
        if (path) assert_ok(mt_tokenizer_open(&a->tok, path, &err));
    }
    if (a->tok) check_line(line, a->tok);
}

static void published_tokenizers_give_the_right_samples(void **state)
{
    (void)state;
    archive a = { 0 };
    archives_open(&a.all);
    for_each_line(GOLDEN "archives.jsonl", check_archive, &a);
    mt_tokenizer_close(a.tok);
    if (!archives_close(&a.all)) skip();
}

MT_TEST_MAIN(cmocka_unit_test_setup_teardown(masks_are_what_the_model_sees_and_says, tempdir_make, tempdir_remove),
             cmocka_unit_test(records_of_published_layouts_become_the_right_samples),
             cmocka_unit_test(rows_of_the_installed_registry_give_the_same_samples),
             cmocka_unit_test(published_tokenizers_give_the_right_samples))
