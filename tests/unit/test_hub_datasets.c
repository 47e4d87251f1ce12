/* Datasets of the hub: which files make a split, and where they come from. */
#include "hub_rig.h"

#include <fcntl.h>
#include <sys/stat.h>

static hub_repo *add_rows(rig *r, const char *branch, const char *const *paths)
{
    hub_repo *repo = hub_add_repo(r->s, "acme/rows", true);
    repo->branch = branch;
    for (; *paths; paths++) hub_add_file(repo, *paths, *paths, strlen(*paths), strstr(*paths, ".parquet") != NULL);
    return repo;
}

static void add_readme(hub_repo *repo, const char *text) { hub_add_file(repo, "README.md", text, strlen(text), false); }

/* The files of a split, as paths below the snapshot with a blank between; or the error. */
static mt_rc files_of(rig *r, const mt_hub_query *q, char *out, size_t n, mt_err *err)
{
    mt_hub_dataset d;
    out[0] = '\0';
    MT_TRY(mt_hub_dataset_open(r->hub, q, &d, err));
    for (size_t i = 0; i < d.n; i++) {
        assert_true(mt_file_exists(d.files[i]));
        assert_memory_equal(d.files[i], d.dir, strlen(d.dir));
        size_t used = strlen(out);
        snprintf(out + used, n - used, "%s%s", i ? " " : "", d.files[i] + strlen(d.dir) + 1);
    }
    assert_null(d.files[d.n]);
    mt_hub_dataset_close(&d);
    return MT_OK;
}

static void expect(rig *r, const char *subset, const char *split, const char *files)
{
    mt_err err = { 0 };
    char found[1024];
    assert_ok(files_of(r, &(mt_hub_query){ .name = "acme/rows", .subset = subset, .split = split }, found, sizeof found, &err));
    assert_string_equal(found, files);
}

static void expect_error(rig *r, const char *subset, const char *split, mt_rc rc, const char *says)
{
    mt_err err = { 0 };
    char found[1024];
    assert_int_equal(
        files_of(r, &(mt_hub_query){ .name = "acme/rows", .subset = subset, .split = split }, found, sizeof found, &err), rc);
    assert_says(says);
}

static const char *const own_files[] = { "data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
                                         "data/test_sft-00000-of-00001.parquet", "rows.py", NULL };

static void the_conversion_is_taken_where_it_is_complete(void **state)
{
    rig *r = *state;
    static const char *const converted[] = { "default/train/0001.parquet", "default/train/0000.parquet",
                                             "default/test/0000.parquet", "default/partial-extra/0000.parquet", NULL };
    add_rows(r, "main", own_files);
    add_rows(r, "refs/convert/parquet", converted);
    expect(r, NULL, NULL, "default/train/0000.parquet default/train/0001.parquet");
    assert_true(hub_count(r->s, "/tree/") > 0);
    expect(r, "default", "test", "default/test/0000.parquet");
    expect(r, NULL, "test_sft", "data/test_sft-00000-of-00001.parquet"); /* the conversion lacks it */
    expect_error(r, NULL, "extra", MT_ENOENT, "has no split \"extra\"; it has train, test_sft");
    hub_clear_log(r->s);
    expect(r, NULL, NULL, "default/train/0000.parquet default/train/0001.parquet");
    setenv("HF_DATASETS_OFFLINE", "1", 1);
    open_hub(r);
    expect(r, NULL, "test_sft", "data/test_sft-00000-of-00001.parquet");
    assert_int_equal(hub_count(r->s, "GET"), 0); /* all of it was here */
    expect_error(r, NULL, "nothing", MT_ENOENT, "HF_DATASETS_OFFLINE forbids the network");
    unsetenv("HF_DATASETS_OFFLINE");
}

static void a_partial_conversion_is_not(void **state)
{
    rig *r = *state;
    static const char *const converted[] = { "default/partial-train/0000.parquet", "default/train/0000.parquet", NULL };
    add_rows(r, "main", own_files);
    add_rows(r, "refs/convert/parquet", converted);
    expect(r, NULL, "train", "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet");
}

static void the_readme_decides(void **state)
{
    rig *r = *state;
    static const char *const files[] = { "main/a.jsonl",   "main/b.jsonl",   "main/deep/c.jsonl",
                                         "held/out.jsonl", "socratic/x.csv", NULL };
    add_readme(add_rows(r, "main", files), "---\n"
                                           "license: mit\n"
                                           "configs:\n"
                                           "- config_name: main\n"
                                           "  default: true\n"
                                           "  data_files:\n"
                                           "  - split: train\n"
                                           "    path: main/*.jsonl\n"
                                           "  - split: test\n"
                                           "    path: [\"held/*\", \"main/**/c.jsonl\"]\n"
                                           "  - split: odd\n"
                                           "    path: [\"**/[!ac].jsonl\", \"ma?n/b.json\"]\n"
                                           "- config_name: socratic\n"
                                           "  data_files: socratic/*\n"
                                           "---\n# Rows\n");
    expect(r, NULL, NULL, "main/a.jsonl main/b.jsonl");
    expect(r, "main", "test", "held/out.jsonl main/deep/c.jsonl");
    expect(r, "main", "odd", "main/b.jsonl");
    expect(r, "socratic", NULL, "socratic/x.csv");
    expect_error(r, "other", NULL, MT_ENOENT, "no configuration \"other\"; it has main, socratic");
    expect_error(r, NULL, "dev", MT_ENOENT, "has no split \"dev\"; it has train, test, odd");
}

/* A pattern made to be slow is not. */
static void patterns_take_no_longer_than_they_are(void **state)
{
    rig *r = *state;
    mt_str readme = { 0 };
    static const char *const files[] = { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.json",
                                         NULL };
    mt_str_puts(&readme, "---\nconfigs:\n- config_name: default\n  data_files: \"");
    for (int i = 0; i < 60; i++) mt_str_puts(&readme, "**a*");
    mt_str_puts(&readme, "b\"\n---\n");
    add_readme(add_rows(r, "main", files), readme.s);
    expect_error(r, NULL, NULL, MT_ENOENT, "has no split \"train\"");
    mt_str_free(&readme);
}

static void several_configurations_are_asked_about(void **state)
{
    rig *r = *state;
    static const char *const files[] = { "a.jsonl", "b.jsonl", NULL };
    add_readme(add_rows(r, "main", files),
               "---\nconfigs:\n- config_name: en\n  data_files: a.jsonl\n- config_name: de\n  data_files: b.jsonl\n---\n");
    expect_error(r, NULL, NULL, MT_EINVAL, "set dataset.subset to one of en, de");
    expect(r, "de", NULL, "b.jsonl");
}

static void names_tell_where_the_readme_does_not(void **state)
{
    rig *r = *state;
    static const char *const names[] = { "my_train_1.jsonl",   "my_train_2.jsonl", "test.jsonl", "dev/x.txt",
                                         "dataset_infos.json", "notes.txt",        NULL };
    hub_repo *repo = add_rows(r, "main", names);
    add_readme(repo, "no front matter");
    expect(r, NULL, "validation", "dev/x.txt"); /* a folder's name comes first, as in the datasets library */
    hub_wait(r->s);
    while (repo->n_files) free(repo->files[--repo->n_files].data);
    snprintf(repo->commit, sizeof repo->commit, "%040x", 7);
    static const char *const flat[] = { "my_train_1.jsonl",   "my_train_2.jsonl", "test.jsonl",
                                        "dataset_infos.json", "notes.txt",        NULL };
    for (const char *const *p = flat; *p; p++) hub_add_file(repo, *p, *p, strlen(*p), false);
    mt_err err = { 0 };
    assert_ok(mt_dir_remove(in_cache(r, "").s, &err));
    expect(r, NULL, "train", "my_train_1.jsonl my_train_2.jsonl");
    expect(r, NULL, "test", "test.jsonl");
}

static void without_names_everything_is_train(void **state)
{
    rig *r = *state;
    static const char *const files[] = { "MetaMathQA-395K.json", "extra.csv", "requirements.txt", NULL };
    add_rows(r, "main", files);
    expect(r, NULL, NULL, "MetaMathQA-395K.json"); /* one kind of file */
}

static void a_folder_of_the_repository(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    char found[256];
    static const char *const files[] = { "en/a.json", "de/a.json", NULL };
    add_rows(r, "main", files);
    assert_ok(files_of(r, &(mt_hub_query){ .name = "acme/rows", .folder = "de" }, found, sizeof found, &err));
    assert_string_equal(found, "de/a.json");
}

static void a_script_does_not_run(void **state)
{
    rig *r = *state;
    static const char *const files[] = { "rows.py", NULL };
    add_rows(r, "main", files);
    expect_error(r, NULL, NULL, MT_EUNSUPPORTED, "no code from a dataset ever runs here");
}

static void an_unknown_dataset_is_answered_with_the_nearest(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    mt_hub_dataset d;
    add_rows(r, "main", own_files);
    assert_int_equal(mt_hub_dataset_open(r->hub, &(mt_hub_query){ .name = "acme/rowz" }, &d, &err), MT_ENOENT);
    assert_says("did you mean acme/rows?");
}

/* What the datasets library leaves for meta-math/MetaMathQA: its own spelling of the name, configuration, version, hash. */
static void arrow_files_of_the_datasets_library_are_found(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    char found[256];
    test_path dir = workspace_path("%s/datasets/meta-math___meta_math_qa/default/0.0.0/aa4f", r->dir);
    char make[4096];
    snprintf(make, sizeof make, "mkdir -p '%s'", dir.s);
    assert_int_equal(system(make), 0);
    workspace_write(dir.s, "meta_math_qa-train-00000-of-00002.arrow", "1");
    workspace_write(dir.s, "meta_math_qa-test.arrow", "1");
    workspace_write(dir.s, "cache-abc-train.arrow", "1");
    workspace_write(dir.s, "dataset_info.json", "{}");
    mt_hub_query q = { .name = "meta-math/MetaMathQA" };
    assert_int_equal(files_of(r, &q, found, sizeof found, &err), MT_ENOENT); /* one of two is not enough */
    workspace_write(dir.s, "meta_math_qa-train-00001-of-00002.arrow", "2");
    assert_ok(files_of(r, &q, found, sizeof found, &err));
    assert_string_equal(found, "meta_math_qa-train-00000-of-00002.arrow meta_math_qa-train-00001-of-00002.arrow");
    q.split = "test";
    assert_ok(files_of(r, &q, found, sizeof found, &err));
    assert_string_equal(found, "meta_math_qa-test.arrow");
}

static void prepared_at(const rig *r, const char *hash, time_t s, long ns)
{
    char make[4096], file[64];
    test_path dir = workspace_path("%s/datasets/acme___twice/default/0.0.0/%s", r->dir, hash);
    snprintf(make, sizeof make, "mkdir -p '%s'", dir.s);
    assert_int_equal(system(make), 0);
    snprintf(file, sizeof file, "%s-train.arrow", hash);
    workspace_write(dir.s, file, "1");
    workspace_write(dir.s, "dataset_info.json", "{}");
    const struct timespec then = { s, ns };
    assert_int_equal(utimensat(AT_FDCWD, workspace_path("%s/dataset_info.json", dir.s).s, (struct timespec[]){ then, then }, 0),
                     0);
}

static void the_newest_arrow_files_are_taken_and_of_two_equal_ones_the_later_name(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    char found[256];
    mt_hub_query q = { .name = "acme/twice" };
    prepared_at(r, "b2", 1000, 5000);
    prepared_at(r, "c3", 1000, 4000);
    prepared_at(r, "a1", 1000, 5000);
    prepared_at(r, "d4", 999, 9000);
    assert_ok(files_of(r, &q, found, sizeof found, &err));
    assert_string_equal(found, "b2-train.arrow");
    prepared_at(r, "a1", 1000, 6000); /* only a microsecond */
    assert_ok(files_of(r, &q, found, sizeof found, &err));
    assert_string_equal(found, "a1-train.arrow");
}

MT_TEST_MAIN(RIG(the_conversion_is_taken_where_it_is_complete), RIG(a_partial_conversion_is_not), RIG(the_readme_decides),
             RIG(patterns_take_no_longer_than_they_are), RIG(several_configurations_are_asked_about),
             RIG(names_tell_where_the_readme_does_not), RIG(without_names_everything_is_train), RIG(a_folder_of_the_repository),
             RIG(a_script_does_not_run), RIG(an_unknown_dataset_is_answered_with_the_nearest),
             RIG(arrow_files_of_the_datasets_library_are_found),
             RIG(the_newest_arrow_files_are_taken_and_of_two_equal_ones_the_later_name))
