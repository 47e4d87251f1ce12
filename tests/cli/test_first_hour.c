/* The first hour of a new user: files as arguments, short help, --dry-run, --quiet and --verbose, JSON for scripts, exit
 * statuses, a machine without a home directory or a GPU. */
#include "process.h"
#include "workspace.h"

#include "base/json.h"

#define ROOT MT_TESTS_DIR "/.."

static program p; /* large; one at a time */

#define RUN(dir, ...)                                                                                                            \
    do {                                                                                                                         \
        PROGRAM_WORDS(&p, dir, __VA_ARGS__);                                                                                     \
        program_run(&p);                                                                                                         \
    } while (0)

static void expect(int status, const char *says)
{
    if (p.status != status || !strstr(p.text, says))
        fail_msg("status %d (expected %d), expected \"%s\" in:\n%s", p.status, status, says, p.text);
}

static bool printed(const char *words) { return strstr(p.text, words) != NULL; }

/* The demo's model and data, from scratch, a few steps. */
static int make_demo(void **state)
{
    if (tempdir_make(state)) return -1;
    const char *dir = *state;
    mt_str s = { 0 };
    mt_str_printf(&s,
                  "model: {name: %s/data/demo_model, device: cpu, dtype: float32}\n"
                  "dataset: {name: demo_test, dataset_dir: %s/data, max_seq_len: 64, cache_dir: cache}\n"
                  "training: {from_scratch: true, batch_size: 4, num_steps: 2, learning_rate: 1e-3, weight_decay: 0.01}\n"
                  "save: {save_only_model: true}\n",
                  ROOT, ROOT);
    workspace_write(dir, "my.yaml", s.s);
    mt_str_free(&s);
    return 0;
}

/* -- files and help -------------------------------------------------------------------------------- */

static void train_plan_and_data_take_a_file(void **state)
{
    const char *dir = *state;
    RUN(dir, "train", "my.yaml");
    expect(0, "the model is in runs/my/final");
    assert_printed(&p, workspace_path("to try it: %s generate runs/my/final --chat", p.args[0]).s); /* as it was typed */
    RUN(dir, "plan", "my.yaml", "--ram", "4G");
    expect(0, "FITS");
    RUN(dir, "data", "my.yaml", "--show", "0");
    expect(0, "704 to train on");
    RUN(dir, "train");
    expect(2, "megatrain train FILE.yaml");
    RUN(dir, "train", "my.txt");
    expect(2, "\"my.txt\" is not a .yaml or .yml file");
    RUN(dir, "data", "chat.jsonl");
    expect(2, "data: \"chat.jsonl\" is not a .yaml or .yml file");
    expect(2, "the data as --dataset-path (several files with a comma between them)");
}

static void help_is_short_first(void **state)
{
    (void)state;
    RUN("/", "train", "--help");
    expect(0, "--learning-rate");
    size_t n = strlen(p.text);
    assert_false(printed("--max-bad-steps"));
    RUN("/", "train", "--help-all");
    expect(0, "--max-bad-steps");
    assert_true(strlen(p.text) > 2 * n);
    RUN("/", "plan", "--help-all");
    expect(0, "--max-bad-steps");
    RUN("/", "inspect", "--help-all");
    expect(0, "--tensors");
}

/* -- --dry-run, --quiet, --verbose ----------------------------------------------------------------- */

static void a_dry_run_shows_what_differs_the_plan_and_a_sample_as_text(void **state)
{
    const char *dir = *state;
    RUN(dir, "train", "my.yaml", "--dry-run");
    expect(0, "training.learning_rate");
    assert_printed(&p, "[[");
    assert_printed(&p, "<|im_start|>user");
    assert_printed(&p, "Adam's moments");
    assert_printed(&p, "one step: loss");
    assert_false(printed("training.weight_decay")); /* as it is anyway */
    assert_false(printed("dataset.shuffle"));
    assert_false(printed("optimizer.beta1"));
    RUN(dir, "train", "my.yaml", "--dry-run", "--verbose");
    expect(0, "dataset.shuffle");
    assert_printed(&p, "training.weight_decay");
    assert_printed(&p, "the plan's memory:\n"); /* buffer by buffer */
}

static void a_refused_dry_run_leaves_nothing(void **state)
{
    RUN(*state, "train", "my.yaml", "--dry-run", "--freeze", "nothing*");
    expect(2, "matches none of the model's");
    assert_false(mt_dir_exists(workspace_path("%s/runs/my.dry-run", (const char *)*state).s));
}

static void a_dry_run_prints_a_note_once(void **state)
{
    RUN(*state, "train", "my.yaml", "--dry-run", "--set", "model.trust_remote_code=true");
    expect(0, "no code from a model repository ever runs");
    const char *first = strstr(p.text, "no code from a model repository");
    assert_null(strstr(first + 1, "no code from a model repository"));
}

static void the_banner_counts_the_samples_to_evaluate_on(void **state)
{
    RUN(*state, "train", "my.yaml", "--val-size", "4");
    expect(0, "700 samples, 175 steps per epoch, up to ");
    expect(0, "; 4 samples to evaluate on\n");
    RUN(*state, "train", "my.yaml", "--overwrite", "--val-size", "1", "--num-steps", "1", "--max-samples", "8", "--batch-size",
        "7");
    expect(0, "7 samples, 1 step per epoch, up to ");
    expect(0, "; 1 sample to evaluate on\n");
    expect(0, "done: 1 step; the model is in");
}

static void a_run_that_diverges_prints_nan_without_a_sign(void **state)
{
    RUN(*state, "train", "my.yaml", "--learning-rate", "1000", "--num-steps", "40", "--val-size", "4", "--eval-steps", "1");
    expect(1, "steps in a row had a loss or a gradient that is not finite");
    assert_true(printed("  loss nan") || printed("loss nan  "));
    assert_true(printed(": loss nan, perplexity nan"));
    assert_false(printed("-nan"));
}

static void quiet_leaves_results_and_warnings(void **state)
{
    const char *dir = *state;
    RUN(dir, "train", "my.yaml", "--quiet", "--max-samples", "8", "--batch-size", "9");
    expect(0, "the model is in runs/my/final");
    assert_printed(&p, "warning: a step of 9 samples");
    assert_false(printed("parameters"));
    assert_false(printed("training 2/2"));
    RUN(dir, "generate", "runs/my/final", "--prompt", "one", "--max-new-tokens", "2", "--device", "cpu", "--quiet");
    assert_int_equal(p.status, 0);
    assert_false(printed("prompt token"));
    RUN(dir, "generate", "runs/my/final", "--prompt", "one", "--max-new-tokens", "2", "--device", "cpu");
    expect(0, "prompt token");
    RUN(dir, "train", "my.yaml", "--verbose", "--overwrite");
    expect(0, "optimizer.beta1");
}

/* -- for scripts ----------------------------------------------------------------------------------- */

static const mt_value *parsed(void)
{
    mt_err err = { 0 };
    const mt_value *doc = NULL;
    if (p.status) fail_msg("status %d: %s", p.status, p.text);
    if (mt_json_parse(&doc, p.text, strlen(p.text), "the output", &err)) fail_msg("%s in: %s", err.msg, p.text);
    assert_int_equal(mt_value_int(mt_value_get(doc, "version")), 1);
    return doc;
}

static void inspect_families_data_and_generate_answer_scripts(void **state)
{
    const char *dir = *state;
    RUN(dir, "families", "--json");
    const mt_value *doc = parsed(), *list = mt_value_get(doc, "families");
    assert_true(mt_value_items(list) >= 31);
    assert_string_equal(mt_json_string(mt_value_get(mt_value_at(list, 0), "name")), "llama");
    mt_json_free(doc);
    RUN(dir, "inspect", ROOT "/data/demo_model", "--json", "--tensors");
    doc = parsed();
    assert_string_equal(mt_json_string(mt_value_get(doc, "family")), "qwen3");
    assert_int_equal(mt_value_int(mt_value_get(doc, "layers")), 4);
    assert_true(mt_value_has(mt_value_get(doc, "weights"), MT_VALUE_NULL));
    assert_true(mt_value_items(mt_value_get(doc, "tensors")) > 40);
    mt_json_free(doc);
    RUN(dir, "data", "my.yaml", "--json", "--quiet");
    doc = parsed();
    assert_int_equal(mt_value_int(mt_value_get(doc, "train_samples")), 704);
    const mt_value *sample = mt_value_at(mt_value_get(doc, "samples"), 0), *parts = mt_value_get(sample, "parts");
    assert_int_equal(mt_value_items(mt_value_get(sample, "input_ids")), mt_value_items(mt_value_get(sample, "labels")));
    assert_true(mt_value_is_false(mt_value_get(mt_value_at(parts, 0), "trained")));
    assert_true(mt_value_is_true(mt_value_get(mt_value_at(parts, 1), "trained")));
    mt_json_free(doc);
    RUN(dir, "generate", ROOT "/data/demo_model", "--from-scratch", "--device", "cpu", "--prompt", "one", "--prompt", "two \"x\"",
        "--max-new-tokens", "2", "--json", "--quiet");
    doc = parsed();
    list = mt_value_get(doc, "answers");
    assert_int_equal(mt_value_items(list), 2);
    assert_string_equal(mt_json_string(mt_value_get(mt_value_at(list, 1), "prompt")), "two \"x\"");
    assert_int_equal(mt_value_int(mt_value_get(mt_value_at(list, 0), "tokens")), 2);
    mt_json_free(doc);
}

/* -- statuses -------------------------------------------------------------------------------------- */

static void misuse_is_status_2_everywhere(void **state)
{
    const char *dir = *state;
    static const char *const cases[][5] = {
        { "train", "--val-size", "1.5" },
        { "train", "no-such.yaml" },
        { "train", "my.yaml", "--bach-size", "3" },
        { "plan", "--batch-size", "0", "gpt2" },
        { "plan", "--shape", "nope" },
        { "plan", "gpt2", "--gpu", "nope" },
        { "data", "my.yaml", "--show", "x" },
        { "bench", "--shape", "nope" },
        { "inspect" },
        { "tokenize" },
        { "tokenize", "--what", "x" },
        { "generate", "x", "--prompt", "y", "--top-p=7" },
        { "convert", "in", "out.gguf" },
        { "get" },
        { "grad", "x" },
        { "families", "x" },
        { "report" },
        { "nonsense" },
    };
    workspace_write(dir, "refused.yaml", "model_name_or_path: a/b\nstage: dpo\nfinetuning_type: full\n");
    workspace_write(dir, "broken.yaml", "model: [\n");
    RUN(dir, "train", "refused.yaml");
    expect(2, "stages sft and pt are trained here");
    RUN(dir, "train", "broken.yaml");
    expect(2, "broken.yaml");
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        size_t n = 0;
        while (n < 5 && cases[i][n]) n++;
        program_words(&p, dir, cases[i], n);
        program_run(&p);
        if (p.status != 2) fail_msg("megatrain %s %s: status %d: %s", cases[i][0], n > 1 ? cases[i][1] : "", p.status, p.text);
        assert_printed(&p, "error:");
    }
    RUN(dir, "inspect", "/nowhere"); /* nothing is wrong with the command */
    assert_int_equal(p.status, 1);
}

static void gguf_is_read_not_written(void **state)
{
    RUN(*state, "convert", "model", "out.gguf");
    expect(2, "GGUF is read, not written");
}

/* -- machines -------------------------------------------------------------------------------------- */

static void without_a_home_caches_are_kept_with_the_run(void **state)
{
    const char *dir = *state;
    char *home = getenv("HOME") ? mt_strdup(getenv("HOME")) : NULL,
         *xdg = getenv("XDG_CACHE_HOME") ? mt_strdup(getenv("XDG_CACHE_HOME")) : NULL;
    unsetenv("XDG_CACHE_HOME");
    for (int unset = 0; unset < 2; unset++) {
        if (unset)
            unsetenv("HOME");
        else
            setenv("HOME", "/proc/nobody", 1); /* where not even root can write */
        RUN(dir, "train", "my.yaml", "--set", "dataset.cache_dir=", "--overwrite");
        expect(0, "downloads and tokenized data are kept in runs/my/cache");
        assert_true(mt_dir_exists(workspace_path("%s/runs/my/cache/megatrain", dir).s));
        RUN(dir, "data", "my.yaml", "--set", "dataset.cache_dir=", "--show", "0");
        expect(0, "704 to train on");
        RUN(dir, "train", "my.yaml", "--output-dir", "/proc/nobody");
        expect(1, "set XDG_CACHE_HOME to a folder that can be written, or choose another --output-dir");
    }
    if (home) setenv("HOME", home, 1);
    if (xdg) setenv("XDG_CACHE_HOME", xdg, 1);
    mt_free(home);
    mt_free(xdg);
}

static void an_output_directory_that_cannot_be_made_is_explained(void **state)
{
    RUN(*state, "train", "my.yaml", "--output-dir", "my.yaml/run");
    expect(1, "cannot make the output directory my.yaml/run (creating my.yaml: it exists and is not a directory)");
    expect(1, "choose another --output-dir");
    assert_int_equal(symlink("not-mounted", workspace_path("%s/disk", (const char *)*state).s), 0);
    RUN(*state, "train", "my.yaml", "--output-dir", "disk/run");
    expect(1, "(creating disk: it exists and is not a directory)");
    RUN(*state, "train", "my.yaml", "--output-dir", "/proc/nobody/run");
    expect(1, "cannot make the output directory /proc/nobody/run");
}

/* A file made for another machine names a GPU. */
static void plan_without_a_gpu_names_the_flag(void **state)
{
    const char *dir = *state;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    RUN(dir, "plan", "my.yaml", "--device", "cuda:7");
    unsetenv("CUDA_VISIBLE_DEVICES");
    expect(2, "--gpu h100 --ram 512G");
    assert_false(printed("driver"));
    assert_false(printed("toolkit"));
    RUN(dir, "plan", "my.yaml", "--device", "cuda:7", "--gpu", "h100", "--ram", "64G");
    expect(0, "FITS");
}

#define DEMO(test) cmocka_unit_test_setup_teardown(test, make_demo, workspace_remove)

MT_TEST_MAIN(DEMO(train_plan_and_data_take_a_file), cmocka_unit_test(help_is_short_first),
             DEMO(a_dry_run_shows_what_differs_the_plan_and_a_sample_as_text), DEMO(a_refused_dry_run_leaves_nothing),
             DEMO(a_dry_run_prints_a_note_once), DEMO(a_run_that_diverges_prints_nan_without_a_sign),
             DEMO(the_banner_counts_the_samples_to_evaluate_on), DEMO(quiet_leaves_results_and_warnings),
             DEMO(inspect_families_data_and_generate_answer_scripts), DEMO(misuse_is_status_2_everywhere),
             DEMO(gguf_is_read_not_written), DEMO(without_a_home_caches_are_kept_with_the_run),
             DEMO(an_output_directory_that_cannot_be_made_is_explained), DEMO(plan_without_a_gpu_names_the_flag))
