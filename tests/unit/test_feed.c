/* A run's data from its settings: the real sampler on several threads, the same samples whatever their number. */
#include "tempdir.h"

#include "base/log.h"
#include "run/feed.h"

#include <sys/stat.h>

#define DATASETS                                                                                                                 \
    "metamathqa,open_platypus,mathinstruct,codealpaca,alpaca,sharegpt4,ultrachat_200k,openthoughts_114k,openr1_math_94k"

static void set(mt_settings *s, const char *key, const char *value)
{
    mt_err err = { 0 };
    assert_ok(mt_settings_set(s, key, value, "test", &err));
}

static void settings_of(mt_settings *s, const char *dir, const char *datasets, const char *workers)
{
    mt_err err = { 0 };
    assert_ok(mt_settings_init(s, &err));
    set(s, "model.name", MT_TESTS_DIR "/golden/samples/tokenizer");
    set(s, "dataset.dataset_dir", MT_TESTS_DIR "/golden/samples/fixtures");
    set(s, "dataset.name", datasets);
    set(s, "dataset.cache_dir", dir);
    set(s, "dataset.num_workers", workers);
    set(s, "dataset.max_bad_share", "1");
    set(s, "training.batch_size", "4");
    assert_ok(mt_settings_check(s, MT_NEED_MODEL | MT_NEED_DATA, &err));
}

static void empty(const char *dir)
{
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
}

static void threads_make_the_same_samples(void **state)
{
    static const char *const workers[] = { "1", "2", "4" };
    uint64_t first = 0;
    for (size_t w = 0; w < MT_COUNT(workers); w++) {
        mt_err err = { 0 };
        mt_settings s;
        mt_feed *f;
        mt_source *source;
        mt_source_info info;
        settings_of(&s, *state, DATASETS, workers[w]);
        assert_ok(mt_feed_open(&f, &s, &(mt_feed_options){ 0 }, &err));
        assert_int_equal(mt_pipeline_stores(mt_feed_pipeline(f)), 9);
        assert_false(mt_feed_packs(f));
        assert_true(mt_feed_end_id(f) >= 0);
        assert_ok(mt_feed_source(f, &source, &err));
        source->api->info(source, &info);
        mt_batch b = { 0 };
        for (int64_t k = 0; k < info.steps_per_epoch; k++) {
            assert_ok(source->api->step(source, k, &b, &err));
            assert_true(b.n_trained > 0);
        }
        if (w == 0) first = info.fingerprint;
        assert_int_equal(info.fingerprint, first);
        mt_batch_free(&b);
        mt_source_close(source);
        mt_settings_deinit(&s);
        empty(*state); /* the next one tokenizes again */
    }
}

static void datasets_to_evaluate_on_come_by_name(void **state)
{
    mt_err err = { 0 };
    mt_settings s;
    mt_feed *f;
    mt_pipeline_facts facts;
    settings_of(&s, *state, "alpaca", "1");
    set(&s, "eval.dataset", "metamathqa");
    assert_ok(mt_feed_open(&f, &s, &(mt_feed_options){ 0 }, &err));
    mt_pipeline_facts_of(mt_feed_pipeline(f), &facts);
    assert_int_equal(facts.n_train, 10);
    assert_int_equal(facts.n_eval, 10);
    mt_feed_close(f);
    mt_settings_deinit(&s);
}

static void what_lint_stops_is_refused(void **state)
{
    mt_err err = { 0 };
    mt_settings s;
    mt_feed *f;
    mt_source *source;
    settings_of(&s, *state, "alpaca", "1");
    assert_ok(mt_feed_open(&f, &s, &(mt_feed_options){ .max_positions = 512 }, &err));
    assert_int_equal(mt_feed_source(f, &source, &err), MT_ERANGE);
    assert_says("max_seq_len is 1024 and the model knows 512 positions");
    mt_feed_close(f);
    assert_int_equal(mt_feed_open(&f, &s, &(mt_feed_options){ .vocab = 100 }, &err), MT_ERANGE);
    assert_says("alpaca.json, line 2, record 1: the token \"");
    assert_says("and the model's embedding ends at id 99 (vocab_size in config.json)");
    assert_says("take the tokenizer files that were published with the model");
    mt_settings_deinit(&s);
}

/* How many samples the settings lead to. */
static int64_t samples_of(mt_settings *s)
{
    mt_err err = { 0 };
    mt_feed *f;
    mt_pipeline_facts facts;
    assert_ok(mt_feed_open(&f, s, &(mt_feed_options){ 0 }, &err));
    mt_pipeline_facts_of(mt_feed_pipeline(f), &facts);
    mt_feed_close(f);
    return facts.n_train;
}

static void settings_of_path(mt_settings *s, const char *dir, const char *path)
{
    settings_of(s, dir, "alpaca", "1");
    set(s, "dataset.name", "");
    set(s, "dataset.path", path);
    set(s, "dataset.query_field", "question");
    set(s, "dataset.response_field", "answer");
}

static void a_subset_is_chosen_by_the_settings_or_by_the_registry(void **state)
{
    mt_err err = { 0 };
    mt_settings s;
    mt_feed *f;
    settings_of_path(&s, *state, MT_TESTS_DIR "/fixtures/subsets");
    set(&s, "dataset.subset", "main");
    assert_int_equal(samples_of(&s), 1);
    set(&s, "dataset.subset", "mian");
    assert_int_equal(mt_feed_open(&f, &s, &(mt_feed_options){ 0 }, &err), MT_ENOENT);
    assert_says("the subset \"mian\"");
    set(&s, "dataset.path", MT_TESTS_DIR "/fixtures/subsets/main/train.jsonl");
    assert_int_equal(mt_feed_open(&f, &s, &(mt_feed_options){ 0 }, &err), MT_EINVAL);
    assert_says("dataset.subset chooses a folder of a dataset, and train.jsonl is the single file");
    mt_settings_deinit(&s);
}

static mt_rc fetch_nothing(const mt_hub_query *q, mt_hub_dataset *out, mt_err *err)
{
    (void)out;
    return mt_fail(err, MT_EIO, "the hub was asked for %s", q->name);
}

static void write_records(const char *dir, const char *name, const char *word, int n)
{
    char *path = mt_path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < n; i++) fprintf(f, "{\"question\": \"%s %d\", \"answer\": \"yes\"}\n", word, i);
    assert_int_equal(fclose(f), 0);
    mt_free(path);
}

/* Several files are several datasets, mixed like registered ones; the same list in each of the ways it can be given. */
static void several_files_need_no_registry(void **state)
{
    const char *dir = *state;
    char *sub = mt_path_join(dir, "more"), list[4][600];
    assert_int_equal(mkdir(sub, 0700), 0);
    write_records(dir, "a.jsonl", "one", 5);
    write_records(dir, "b,c.jsonl", "two", 3); /* not two files */
    write_records(sub, "a.jsonl", "three", 4);
    snprintf(list[0], sizeof list[0], "[\"%s/a.jsonl\", \"%s/b,c.jsonl\", \"%s/a.jsonl\"]", dir, dir, sub);
    snprintf(list[1], sizeof list[1], "%s/a.jsonl,%s/a.jsonl", dir, sub);
    snprintf(list[2], sizeof list[2], "%s/b,c.jsonl", dir);
    snprintf(list[3], sizeof list[3], "%s/*.jsonl", dir);
    static const int n_sets[] = { 3, 2, 1, 1 }, n_samples[] = { 12, 9, 3, 8 };
    for (int i = 0; i < 4; i++) {
        mt_err err = { 0 };
        mt_settings s;
        mt_feed *f;
        mt_pipeline_facts facts;
        settings_of_path(&s, dir, list[i]);
        if (i == 0) set(&s, "eval.dataset", list[2]);
        assert_ok(mt_feed_open(&f, &s, &(mt_feed_options){ 0 }, &err));
        mt_pipeline_facts_of(mt_feed_pipeline(f), &facts);
        assert_int_equal(mt_pipeline_stores(mt_feed_pipeline(f)), n_sets[i] + (i == 0));
        assert_int_equal(facts.n_train, n_samples[i]);
        if (i == 0) assert_int_equal(facts.n_eval, 3); /* a file by path, without a registry */
        if (i < 2) {                                   /* files of one name in two folders go by their paths */
            assert_string_not_equal(mt_pipeline_name(mt_feed_pipeline(f), 0), "a.jsonl");
            assert_string_not_equal(mt_pipeline_name(mt_feed_pipeline(f), 0),
                                    mt_pipeline_name(mt_feed_pipeline(f), (size_t)n_sets[i] - 1));
        }
        mt_feed_close(f);
        mt_settings_deinit(&s);
    }
    static const struct {
        const char *name;
        int n_eval; /* 0: refused */
    } evals[] = { { "%s/more", 4 }, { "%s/b*.jsonl", 3 }, { "%s/gone.jsonl", 0 }, { "metamathqa", 10 } };
    for (size_t i = 0; i < MT_COUNT(evals); i++) {
        mt_err err = { 0 };
        mt_settings s;
        mt_feed *f;
        mt_pipeline_facts facts;
        char name[600];
        snprintf(name, sizeof name, evals[i].name, dir);
        settings_of_path(&s, dir, list[2]);
        set(&s, "eval.dataset", name);
        mt_rc rc = mt_feed_open(&f, &s, &(mt_feed_options){ 0 }, &err);
        assert_int_equal(rc, evals[i].n_eval ? MT_OK : MT_ENOENT);
        if (rc) assert_says("eval.dataset: no file or folder");
        if (!rc) mt_pipeline_facts_of(mt_feed_pipeline(f), &facts), assert_int_equal(facts.n_eval, evals[i].n_eval);
        if (!rc) mt_feed_close(f);
        mt_settings_deinit(&s);
    }
    empty(sub);
    assert_int_equal(rmdir(sub), 0);
    mt_free(sub);
}

static void the_hub_is_not_asked_for_a_file_name(void **state)
{
    mt_err err = { 0 };
    mt_settings s;
    mt_feed *f;
    settings_of_path(&s, *state, "folder/train.jsonl");
    assert_int_equal(mt_feed_open(&f, &s, &(mt_feed_options){ .fetch = fetch_nothing }, &err), MT_ENOENT);
    assert_says("dataset.path: no file or folder folder/train.jsonl");
    set(&s, "dataset.path", "folder/train");
    assert_int_equal(mt_feed_open(&f, &s, &(mt_feed_options){ .fetch = fetch_nothing }, &err), MT_EIO);
    assert_says("the hub was asked for folder/train");
    mt_settings_deinit(&s);
}

static void count_typos(void *user, mt_log_level level, const char *text)
{
    (void)level;
    *(int *)user += strstr(text, "did you mean \"formatting\"?") != NULL;
}

/* A run checks its datasets before it fetches a model, and opens them afterward. */
static void a_mistyped_key_of_a_registry_is_warned_of_once(void **state)
{
    mt_err err = { 0 };
    mt_settings s;
    mt_feed *f;
    int warned = 0;
    tempdir_write(*state, "a.json", "[{\"instruction\": \"a\", \"output\": \"b\"}]");
    tempdir_write(*state, "dataset_info.json",
                  "{\"x\": {\"file_name\": \"a.json\", \"formating\": \"alpaca\"},"
                  " \"gone\": {\"file_name\": \"no.json\", \"formating\": \"alpaca\"}}");
    settings_of(&s, *state, "x", "1");
    set(&s, "dataset.dataset_dir", *state);
    mt_log_set_sink(count_typos, &warned);
    assert_ok(mt_feed_check(&s, &(mt_feed_options){ 0 }, &err));
    assert_ok(mt_feed_open(&f, &s, &(mt_feed_options){ 0 }, &err));
    mt_feed_close(f);
    assert_int_equal(warned, 1);
    set(&s, "dataset.name", "gone"); /* the check is all there is */
    assert_int_equal(mt_feed_check(&s, &(mt_feed_options){ 0 }, &err), MT_ENOENT);
    mt_log_set_sink(NULL, NULL);
    assert_int_equal(warned, 2);
    mt_settings_deinit(&s);
}

static void a_part_of_a_split_is_a_part_of_the_samples(void **state)
{
    mt_err err = { 0 };
    mt_settings s;
    mt_feed *f;
    settings_of(&s, *state, "alpaca", "2");
    assert_int_equal(samples_of(&s), 10);
    set(&s, "dataset.split", "train[:30%]");
    assert_int_equal(samples_of(&s), 3);
    set(&s, "dataset.split", "train[-4:]");
    assert_int_equal(samples_of(&s), 4);
    set(&s, "dataset.split", "train[:30");
    assert_int_equal(mt_feed_open(&f, &s, &(mt_feed_options){ 0 }, &err), MT_EINVAL);
    assert_says("\"train[:30\" is not a split");
    mt_settings_deinit(&s);
}

/* `text` in a file of this name, read with one more setting. */
static int64_t samples_with(const char *dir, const char *name, const char *text, const char *key, const char *value)
{
    mt_settings s;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    tempdir_write(dir, name, text);
    settings_of_path(&s, dir, path);
    set(&s, key, value);
    int64_t n = samples_of(&s);
    mt_settings_deinit(&s);
    return n;
}

static void records_are_found_in_a_field_and_between_delimiters(void **state)
{
    const char *in_object =
        "{\"version\": 2, \"data\": [{\"question\": \"a\", \"answer\": \"b\"}, {\"question\": \"c\", \"answer\": \"d\"}]}";
    assert_int_equal(samples_with(*state, "object.json", in_object, "dataset.field", "data"), 2);
    assert_int_equal(samples_with(*state, "a.csv", "question;answer\na;b\nc;d\n", "dataset.delimiter", ";"), 2);
    assert_int_equal(samples_with(*state, "b.csv", "question\tanswer\na\tb\n", "dataset.delimiter", "tab"), 1);
}

static void text_is_cut_as_the_settings_say(void **state)
{
    static const struct {
        const char *by;
        int64_t n;
    } cases[] = { { "line", 4 }, { "paragraph", 3 }, { "document", 1 } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_settings s;
        settings_of_path(&s, *state, MT_TESTS_DIR "/golden/formats/files/poem.txt");
        set(&s, "dataset.packing", "false");
        set(&s, "dataset.sample_by", cases[i].by);
        assert_int_equal(samples_of(&s), cases[i].n);
        mt_settings_deinit(&s);
    }
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_TEMPDIR(threads_make_the_same_samples), IN_TEMPDIR(datasets_to_evaluate_on_come_by_name),
             IN_TEMPDIR(several_files_need_no_registry), IN_TEMPDIR(what_lint_stops_is_refused),
             IN_TEMPDIR(a_subset_is_chosen_by_the_settings_or_by_the_registry), IN_TEMPDIR(the_hub_is_not_asked_for_a_file_name),
             IN_TEMPDIR(a_mistyped_key_of_a_registry_is_warned_of_once), IN_TEMPDIR(a_part_of_a_split_is_a_part_of_the_samples),
             IN_TEMPDIR(text_is_cut_as_the_settings_say), IN_TEMPDIR(records_are_found_in_a_field_and_between_delimiters))
