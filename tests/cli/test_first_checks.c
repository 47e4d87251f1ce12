/* The order in which a run checks things: config.json, the family, the datasets, the tokenizer, the plan, the disk.  It requests
 * the weights, which may be tens of gigabytes, only after all of these are accepted. */
#include "hub_rig.h"
#include "process.h"

#define DEMO MT_TESTS_DIR "/../data/"

static program p;

#define START(r, ...) PROGRAM_WORDS(&p, (r)->dir, __VA_ARGS__)

__attribute__((noinline)) static char *read_text(const char *path, size_t *n)
{
    mt_err err = { 0 };
    char *text = NULL;
    assert_ok(mt_file_read(&text, n, path, 1 << 26, &err));
    return text;
}

static void add_from(hub_repo *repo, const char *path, const char *from, bool lfs)
{
    size_t n;
    char *text = read_text(from, &n);
    hub_add_file(repo, path, text, n, lfs);
    mt_free(text);
}

/* text with `was`, which it has, replaced; takes the text over. */
static char *changed(char *text, const char *was, const char *is)
{
    char *at = strstr(text, was);
    assert_non_null(at);
    char *made = mt_asprintf("%.*s%s%s", (int)(at - text), text, is, at + strlen(was));
    mt_free(text);
    return made;
}

static char *demo_config(const char *was, const char *is)
{
    char *text = read_text(DEMO "demo_model/config.json", NULL);
    return was ? changed(text, was, is) : text;
}

/* Neither its type nor its architecture is known. */
static char *wombat_config(void) { return changed(demo_config("\"qwen3\"", "\"wombat\""), "Qwen3For", "WombatFor"); }

/* The demo model under a name, with weights that cannot be loaded, unless the caller adds its own.  Takes the config over. */
static hub_repo *add_model(rig *r, const char *name, char *config, bool with_weights)
{
    static const char *const files[] = { "tokenizer.json", "tokenizer_config.json" };
    static const char weights[] = "no weights at all";
    hub_repo *repo = hub_add_repo(r->s, name, false);
    hub_add_file(repo, "config.json", config, strlen(config), false);
    for (size_t i = 0; i < MT_COUNT(files); i++)
        add_from(repo, files[i], workspace_path("%sdemo_model/%s", DEMO, files[i]).s, false);
    if (!with_weights) hub_add_file(repo, "model.safetensors", weights, sizeof weights, true);
    mt_free(config);
    return repo;
}

static void write_datasets(rig *r)
{
    size_t n;
    char *text = read_text(DEMO "demo_test.json", &n);
    workspace_write(r->dir, "mine.json", text);
    mt_free(text);
    workspace_write(
        r->dir, "dataset_info.json",
        "{\"mine\": {\"file_name\": \"mine.json\"}, \"gone\": {\"file_name\": \"gone.json\"},"
        " \"pairs\": {\"file_name\": \"mine.json\", \"ranking\": true},"
        " \"pictures\": {\"file_name\": \"mine.json\", \"columns\": {\"prompt\": \"instruction\", \"images\": \"i\"}}}");
}

#define RUN                                                                                                                      \
    "--dataset-dir", ".", "--output-dir", "out", "--device", "cpu", "--max-seq-len", "64", "--set", "dataset.cache_dir=cache"

static void refused(rig *r, int status, const char *says, bool before_the_tokenizer)
{
    if (program_run(&p) != status) fail_msg("status %d, not %d: %s", p.status, status, p.text);
    assert_printed(&p, says);
    assert_int_equal(hub_count(r->s, "/model.safetensors"), 0);
    if (before_the_tokenizer) assert_int_equal(hub_count(r->s, "/tokenizer.json"), 0);
    hub_clear_log(r->s);
}

static void weights_are_never_asked_for_when_a_check_fails(void **state)
{
    rig *r = *state;
    write_datasets(r);
    add_model(r, "acme/demo", demo_config(NULL, NULL), false);
    add_model(r, "acme/wombat", wombat_config(), false);
    add_model(r, "acme/huge", demo_config("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 4000"), false);
    START(r, "train", "--model-name", "acme/wombat", "--dataset-name", "mine", RUN);
    refused(r, 1, "model_type \"wombat\"", true);
    START(r, "train", "--model-name", "acme/demo", "--dataset-name", "mime", RUN);
    refused(r, 1, "mine", true);
    START(r, "train", "--model-name", "acme/demo", "--dataset-name", "gone", RUN);
    refused(r, 1, "gone.json", true);
    START(r, "train", "--model-name", "acme/demo", "--dataset-name", "pairs", RUN);
    refused(r, 1, "preference", true);
    START(r, "train", "--model-name", "acme/demo", "--dataset-name", "pictures", RUN);
    refused(r, 1, "images are not trained on", true);
    START(r, "train", "--model-name", "acme/demo", "--dataset-path", "nowhere.jsonl", RUN);
    refused(r, 1, "nowhere.jsonl", true);
    START(r, "train", "--model-name", "acme/demo", "--dataset-name", "mine", RUN, "--min-lr", "1");
    refused(r, 2, "min_lr", true);
    START(r, "train", "--model-name", "acme/huge", "--dataset-name", "mine", RUN, "--host-memory", "64M");
    refused(r, 1, "the run is not started", false);
    START(r, "train", "--model-name", "acme/demo", "--dataset-name", "mine", RUN, "--num-steps", "100000000", "--save-steps", "1",
          "--keep-last", "all");
    refused(r, 1, "what the run writes", false);
    START(r, "train", "--dry-run", "--model-name", "acme/demo", "--dataset-name", "mime", RUN);
    refused(r, 1, "mine", true);
    assert_false(mt_dir_exists(workspace_path("%s/out/checkpoint-1", r->dir).s));
}

/* config.json has a head and the files do not: the run builds the model again after they arrive. */
static void weights_come_after_everything_else(void **state)
{
    rig *r = *state;
    write_datasets(r);
    START(r, "train", "--model-name", DEMO "demo_model", "--from-scratch", "--dataset-name", "mine", RUN, "--num-steps", "1",
          "--batch-size", "2");
    if (program_run(&p) != 0) fail_msg("%s", p.text);
    hub_repo *model =
        add_model(r, "acme/trained", demo_config("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"), true);
    add_from(model, "model.safetensors", workspace_path("%s/out/final/model.safetensors", r->dir).s, true);
    START(r, "train", "--model-name", "acme/trained", "--dataset-name", "mine", RUN, "--num-steps", "1", "--batch-size", "2",
          "--overwrite");
    if (program_run(&p) != 0) fail_msg("%s", p.text);
    assert_printed(&p, "there is no head tensor");
    assert_int_equal(hub_count(r->s, "GET cdn"), 1);
    const char *tokenizer = strstr(r->s->log.s, "/tokenizer.json"), *weights = strstr(r->s->log.s, "/model.safetensors");
    assert_true(tokenizer && weights && tokenizer < weights);
    START(r, "train", "--model-name", "acme/trained", "--dataset-name", "mine", RUN, "--num-steps", "2", "--batch-size", "2",
          "--resume");
    if (program_run(&p) != 0) fail_msg("%s", p.text);
}

/* -- families -------------------------------------------------------------------------------------- */

static void an_unknown_family_is_trained_only_on_the_users_word(void **state)
{
    rig *r = *state;
    write_datasets(r);
    static const char *const files[] = { "tokenizer.json", "tokenizer_config.json" };
    assert_int_equal(mkdir(workspace_path("%s/wombat", r->dir).s, 0777), 0);
    char *text = wombat_config();
    workspace_write(r->dir, "wombat/config.json", text);
    mt_free(text);
    for (size_t i = 0; i < MT_COUNT(files); i++) {
        text = read_text(workspace_path("%sdemo_model/%s", DEMO, files[i]).s, NULL);
        workspace_write(r->dir, workspace_path("wombat/%s", files[i]).s, text);
        mt_free(text);
    }
#define WOMBAT                                                                                                                   \
    "train", "--model-name", "wombat", "--from-scratch", "--dataset-name", "mine", RUN, "--num-steps", "1", "--batch-size", "2"
    START(r, WOMBAT);
    assert_int_equal(program_run(&p), 1);
    assert_printed(&p, "--assume");
    START(r, WOMBAT, "--assume", "lama");
    assert_int_equal(program_run(&p), 2);
    assert_printed(&p, "did you mean llama?");
    START(r, WOMBAT, "--assume", "qwen3");
    if (program_run(&p) != 0) fail_msg("%s", p.text);
    assert_printed(&p, "it is treated as qwen3 because model.family says so");
    START(r, "generate", "out/final", "--prompt", "one", "--max-new-tokens", "2", "--device", "cpu");
    assert_int_equal(program_run(&p), 1);
    assert_printed(&p, "--assume");
    START(r, "generate", "out/final", "--prompt", "one", "--max-new-tokens", "2", "--device", "cpu", "--assume", "qwen3");
    if (program_run(&p) != 0) fail_msg("%s", p.text);
    START(r, "inspect", "wombat");
    assert_int_equal(program_run(&p), 0);
    assert_printed(&p, "refused while the family is a guess");
    START(r, "train", "--model-name", DEMO "demo_model", "--from-scratch", "--dataset-name", "mine", RUN, "--assume", "llama",
          "--overwrite");
    assert_int_equal(program_run(&p), 2);
    assert_printed(&p, "leave model.family out");
}

#define RIG(test) cmocka_unit_test_setup_teardown(test, rig_make, rig_remove)

MT_TEST_MAIN(RIG(weights_are_never_asked_for_when_a_check_fails), RIG(weights_come_after_everything_else),
             RIG(an_unknown_family_is_trained_only_on_the_users_word))
