/* The hub as a user meets it: get, killed at every file operation and at random moments; train, data, inspect, convert and
 * generate by name. */
#include "hub_rig.h"
#include "process.h"

#include <time.h>

static program p;

#define START(r, ...) PROGRAM_WORDS(&p, (r)->dir, __VA_ARGS__)

#define GET "get", "acme/tiny", "--piece-size", "4096", "--connections", "3"

static void is_complete(const rig *r)
{
    static const char *const needed[] = { "config.json",
                                          "model.safetensors.index.json",
                                          "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors",
                                          "tokenizer.json",
                                          "merges.txt" };
    for (size_t i = 0; i < MT_COUNT(needed); i++) holds(r, r->tiny, needed[i]);
}

/* Either there is no snapshot, or everything in it is whole. */
static void nothing_is_torn(const rig *r)
{
    no_blob_is_torn(r, "models--acme--tiny");
    if (mt_file_exists(in_cache(r, "models--acme--tiny/refs/main").s)) is_complete(r);
}

static void get_prints_where_it_is(void **state)
{
    rig *r = *state;
    START(r, GET);
    assert_int_equal(program_run(&p), 0);
    assert_printed(&p, "/hub/models--acme--tiny/snapshots/");
    is_complete(r);
    START(r, "get", "acme/tinny");
    assert_int_equal(program_run(&p), 1);
    assert_printed(&p, "did you mean acme/tiny?");
    START(r, "get", "acme/tiny", "--split", "train");
    assert_int_equal(program_run(&p), 2);
    START(r, "get", "--help");
    assert_int_equal(program_run(&p), 0);
    assert_printed(&p, "--revision");
}

static void killed_at_any_file_operation_the_next_call_goes_on(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    int n_kills = 0;
    for (int n = 0;; n += 1 + n / 6) {
        char fault[32];
        snprintf(fault, sizeof fault, "kill:file:%d", n);
        START(r, GET);
        p.fault = fault;
        program_run(&p);
        nothing_is_torn(r);
        if (p.status == 0) break; /* it was never reached */
        assert_int_equal(p.status, -SIGKILL);
        n_kills++;
        if (n % 3 == 0) assert_ok(mt_dir_remove(in_cache(r, "").s, &err)); /* the others continue from what is there */
    }
    assert_true(n_kills > 12);
    START(r, GET);
    assert_int_equal(program_run(&p), 0);
    is_complete(r);
}

static void killed_at_random_moments_it_goes_on(void **state)
{
    rig *r = *state;
    hub_add_rule(r->s, (hub_rule){ .match = "/lfs/", .slow_ms = 12 });
    for (int i = 0; i < 6; i++) {
        START(r, GET);
        program_start(&p);
        nanosleep(&(struct timespec){ 0, 25000000L + 5000000L * i }, NULL);
        kill(p.pid, SIGKILL);
        program_wait(&p);
        nothing_is_torn(r);
    }
    START(r, GET);
    assert_int_equal(program_run(&p), 0);
    is_complete(r);
    assert_int_equal(tempdir_count(in_cache(r, "models--acme--tiny/blobs").s, ".incomplete"), 0);
    assert_true(hub_count(r->s, "GET cdn") <= 7 + 6 * 3); /* the pieces, and for each kill at most one a connection */
}

/* -- a run by name --------------------------------------------------------------------------------- */

static void add_from(hub_repo *repo, const char *path, const char *from, bool lfs)
{
    mt_err err = { 0 };
    char *text;
    size_t n;
    assert_ok(mt_file_read(&text, &n, from, 1 << 26, &err));
    hub_add_file(repo, path, text, n, lfs);
    mt_free(text);
}

#define DEMO MT_TESTS_DIR "/../data/"

static void a_run_takes_its_model_and_data_by_name(void **state)
{
    rig *r = *state;
    static const char *const files[] = { "config.json", "tokenizer.json", "tokenizer_config.json" };
    hub_repo *model = hub_add_repo(r->s, "acme/demo", false), *rows = hub_add_repo(r->s, "acme/rows", true);
    for (size_t i = 0; i < MT_COUNT(files); i++)
        add_from(model, files[i], workspace_path("%sdemo_model/%s", DEMO, files[i]).s, false);
    add_from(rows, "train.json", DEMO "demo_test.json", true);
    workspace_write(r->dir, "dataset_info.json", "{\"mine\": {\"hf_hub_url\": \"acme/rows\"}}");
    START(r, "train", "--model-name", "acme/demo", "--from-scratch", "--dataset-name", "mine", "--dataset-dir", ".", "--split",
          "train[:50%]", "--num-steps", "2", "--batch-size", "4", "--max-seq-len", "64", "--output-dir", "out", "--device", "cpu",
          "--set", "dataset.cache_dir=cache");
    if (program_run(&p) != 0) fail_msg("%s", p.text);
    assert_true(lacks(r, model, "model.safetensors"));
    holds(r, rows, "train.json");
    hub_clear_log(r->s);
    /* In its place. */
    START(r, "train", "--model-name", "acme/tiny", "--dataset-name", "mine", "--dataset-dir", ".", "--output-dir", "out");
    assert_int_equal(program_run(&p), 2);
    assert_printed(&p, "out already holds a run");
    assert_int_equal(hub_count(r->s, "GET"), 0); /* known before a byte is fetched */

    hub_wait(r->s);
    hub_repo *trained = hub_add_repo(r->s, "acme/trained", false);
    for (size_t i = 0; i < MT_COUNT(files); i++)
        add_from(trained, files[i], workspace_path("%s/out/final/%s", r->dir, files[i]).s, false);
    add_from(trained, "model.safetensors", workspace_path("%s/out/final/model.safetensors", r->dir).s, true);
    START(r, "inspect", "acme/trained"); /* looks at the config, and fetches no more */
    assert_int_equal(program_run(&p), 0);
    assert_printed(&p, "weights      none, only config.json");
    START(r, "generate", "acme/trained", "--prompt", "one", "--max-new-tokens", "2", "--device", "cpu");
    if (program_run(&p) != 0) fail_msg("%s", p.text);
    holds(r, trained, "model.safetensors");
    START(r, "inspect", "acme/trained");
    assert_int_equal(program_run(&p), 0);
    assert_printed(&p, "weights      1 file");
    START(r, "convert", "acme/trained", "converted");
    if (program_run(&p) != 0) fail_msg("%s", p.text);
    assert_true(mt_file_exists(workspace_path("%s/converted/model.safetensors", r->dir).s));

    START(r, "data", "--model-name", "acme/demo", "--dataset-name", "acme/rows", "--query-field", "instruction",
          "--response-field", "output", "--max-seq-len", "64", "--set", "dataset.cache_dir=cache"); /* an unregistered dataset */
    if (program_run(&p) != 0) fail_msg("%s", p.text);
    START(r, "data", "--model-name", "acme/demo", "--dataset-path", "acme/rows", "--max-seq-len", "64", "--set",
          "dataset.cache_dir=cache"); /* by path, as the original had it; how it is laid out is found */
    if (program_run(&p) != 0) fail_msg("%s", p.text);
    assert_printed(&p, "dataset acme/rows: \"instruction\"");
    assert_printed(&p, "asks, \"output\" answers");
    setenv("HF_HUB_OFFLINE", "1", 1);
    START(r, "data", "--model-name", "acme/trained", "--dataset-name", "acme/other");
    assert_int_equal(program_run(&p), 1);
    assert_printed(&p, "HF_HUB_OFFLINE forbids the network");
    unsetenv("HF_HUB_OFFLINE");
}

MT_TEST_MAIN(RIG(get_prints_where_it_is), RIG(killed_at_any_file_operation_the_next_call_goes_on),
             RIG(killed_at_random_moments_it_goes_on), RIG(a_run_takes_its_model_and_data_by_name))
