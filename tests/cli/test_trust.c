/* What the program may not do with files that others have made: remove what no run has written, follow links out of a model's
 * directory or through an output directory, publish a file that a run's own files name. */
#include "process.h"
#include "program.h"
#include "workspace.h"

#include "base/json.h"
#include "ckpt/checksum.h"
#include "cli/train_screen.h"

static void set_up(program *p, const char *root, const char *out)
{
    program_init(p, root);
    const char *const args[] = { "train",          "--model-name",
                                 "model",          "--from-scratch",
                                 "--dataset-path", "rows.json",
                                 "--output-dir",   out,
                                 "--num-steps",    "2",
                                 "--save-steps",   "1",
                                 "--batch-size",   "8",
                                 "--device",       "cpu" };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(p, args[i]);
}

static void make_dir(const char *root, const char *name)
{
    assert_int_equal(mkdir(workspace_path("%s/%s", root, name).s, 0777), 0);
}
static bool is_there(const char *root, const char *name) { return access(workspace_path("%s/%s", root, name).s, F_OK) == 0; }

static void link_to(const char *root, const char *name, const char *to)
{
    assert_int_equal(symlink(to, workspace_path("%s/%s", root, name).s), 0);
}

static void run_ok(program *p)
{
    if (program_run(p) != 0) fail_msg("status %d: %s", p->status, p->text);
}

/* -- --overwrite ----------------------------------------------------------------------------------- */

static void overwrite_removes_nothing_that_no_run_has_written(void **state)
{
    const char *root = *state;
    static program p;
    make_dir(root, "out");
    make_dir(root, "out/final");
    make_dir(root, "out/checkpoint-2024-notes");
    workspace_write(root, "out/final/thesis.tex", "years of work");
    workspace_write(root, "out/checkpoint-2024-notes/a", "notes");
    set_up(&p, root, "out");
    program_arg(&p, "--overwrite");
    assert_int_equal(program_run(&p), 2);
    assert_printed(&p, "--overwrite removes only what is listed");
    assert_printed(&p, "choose another --output-dir");
    assert_true(is_there(root, "out/final/thesis.tex"));
    assert_true(is_there(root, "out/checkpoint-2024-notes/a"));
}

static void overwrite_removes_a_run_and_keeps_the_rest(void **state)
{
    const char *root = *state;
    static program p;
    set_up(&p, root, "out");
    program_arg(&p, "--tensorboard");
    run_ok(&p);
    make_dir(root, "out/checkpoint-2024-notes");
    workspace_write(root, "out/checkpoint-2024-notes/a", "notes");
    workspace_write(root, "out/notes.txt", "notes");
    set_up(&p, root, "out");
    program_arg(&p, "--overwrite");
    program_arg(&p, "--save-steps");
    program_arg(&p, "2");
    run_ok(&p);
    assert_false(is_there(root, "out/checkpoint-1"));
    assert_false(is_there(root, "out/tensorboard"));
    assert_true(is_there(root, "out/checkpoint-2/checksums.json"));
    assert_true(is_there(root, "out/notes.txt"));
    assert_true(is_there(root, "out/checkpoint-2024-notes/a"));
}

static void a_file_that_was_put_into_a_run_stops_overwrite(void **state)
{
    const char *root = *state;
    static const char *const names[] = { "out/final/thesis.tex", "out/checkpoint-1/resume/a", "out/tensorboard" };
    static program p;
    set_up(&p, root, "out");
    run_ok(&p);
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        workspace_write(root, names[i], "work");
        set_up(&p, root, "out");
        program_arg(&p, "--overwrite");
        assert_int_equal(program_run(&p), 2);
        assert_printed(&p, names[i]);
        assert_printed(&p, "move it elsewhere");
        assert_true(is_there(root, names[i]));
        assert_true(is_there(root, "out/checkpoint-2/checksums.json")); /* nothing else went either */
        assert_int_equal(unlink(workspace_path("%s/%s", root, names[i]).s), 0);
    }
}

/* A run removes what a kill has left half-made; these only have such an end. */
static void names_that_end_in_tmp_are_not_all_ours(void **state)
{
    const char *root = *state;
    static const char *const names[] = { "out/final-draft.tmp", "out/checkpoint-notes.tmp", "out/checkpoint-3-old.tmp" };
    static const char *const again[] = { "--resume", "--overwrite" };
    static program p;
    set_up(&p, root, "out");
    run_ok(&p);
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        make_dir(root, names[i]);
        workspace_write(root, workspace_path("%s/a", names[i]).s, "work");
    }
    for (size_t k = 0; k < MT_COUNT(again); k++) {
        set_up(&p, root, "out");
        program_arg(&p, again[k]);
        run_ok(&p);
        for (size_t i = 0; i < MT_COUNT(names); i++) assert_true(is_there(root, workspace_path("%s/a", names[i]).s));
    }
}

static void a_new_run_writes_over_no_file_of_others(void **state)
{
    const char *root = *state;
    static const char *const names[] = { "config.yaml", "report.html", "log.txt" };
    static program p;
    make_dir(root, "out");
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        test_path path = workspace_path("out/%s", names[i]);
        workspace_write(root, path.s, "work");
        set_up(&p, root, "out");
        assert_int_equal(program_run(&p), 2);
        assert_printed(&p, names[i]);
        assert_true(is_there(root, path.s));
        assert_int_equal(unlink(workspace_path("%s/%s", root, path.s).s), 0);
    }
}

/* -- links in a model's directory ------------------------------------------------------------------ */

static void a_link_out_of_a_model_directory_is_refused(void **state)
{
    const char *root = *state;
    static const char *const names[] = { "modeling_extra.py", "merges.txt", "generation_config.json", "chat_template.jinja" };
    static program p;
    workspace_write(root, "secret", "a private key");
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        test_path path = workspace_path("model/%s", names[i]);
        link_to(root, path.s, "../secret");
        set_up(&p, root, "out");
        assert_int_equal(program_run(&p), 2);
        assert_printed(&p, names[i]);
        assert_printed(&p, "outside model");
        assert_false(is_there(root, "out/final"));
        assert_int_equal(unlink(workspace_path("%s/%s", root, path.s).s), 0);
    }
}

static void links_inside_a_model_directory_are_followed(void **state)
{
    const char *root = *state;
    static program p;
    workspace_write(root, "model/code.txt", "# code\n");
    link_to(root, "model/modeling_extra.py", "code.txt");
    set_up(&p, root, "out");
    run_ok(&p);
    assert_true(is_there(root, "out/final/modeling_extra.py"));
}

/* What huggingface_hub's cache looks like: a snapshot's files are links to blobs beside it. */
static void the_hubs_own_links_are_followed_and_no_others(void **state)
{
    const char *root = *state;
    static const char *const dirs[] = { "hub", "hub/models--a--b", "hub/models--a--b/blobs", "hub/models--a--b/snapshots",
                                        "hub/models--a--b/snapshots/c" };
    static program p;
    for (size_t i = 0; i < MT_COUNT(dirs); i++) make_dir(root, dirs[i]);
    workspace_copy(workspace_path("%s/model/config.json", root).s, workspace_path("%s/hub/models--a--b/blobs/h", root).s);
    link_to(root, "hub/models--a--b/snapshots/c/config.json", "../../blobs/h");
    set_up(&p, root, "out");
    p.args[3] = "hub/models--a--b/snapshots/c";
    run_ok(&p);
    workspace_write(root, "hub/models--a--b/secret", "a private key");
    link_to(root, "hub/models--a--b/snapshots/c/modeling_extra.py", "../../secret");
    set_up(&p, root, "other");
    p.args[3] = "hub/models--a--b/snapshots/c";
    assert_int_equal(program_run(&p), 2);
    assert_printed(&p, "modeling_extra.py is a link");
}

/* -- what leads out of a dataset's folder ----------------------------------------------------------- */

/* `data` with these words, in the workspace. */
static void look_at(program *p, const char *root, const char *const *words, bool allowed)
{
    static const char *const first[] = {
        "data",  "--model-name",           MT_TESTS_DIR "/golden/samples/tokenizer", "--max-seq-len", "64",
        "--set", "dataset.cache_dir=cache"
    };
    program_words(p, root, first, MT_COUNT(first));
    for (; *words; words++) program_arg(p, *words);
    if (allowed) program_arg(p, "--allow-outside-files");
    program_run(p);
}

static void what_leads_out_of_a_dataset_is_refused(void **state)
{
    const char *root = *state;
    static const char *const folder[] = { "--dataset-path", "ds", NULL },
                             *const pattern[] = { "--dataset-path", "ds/*.txt", NULL },
                             *const entry[] = { "--dataset-dir", "ds", "--dataset-name", "x", NULL };
    const struct {
        const char *link, *to;
        test_path info;
        const char *const *words;
    } cases[] = {
        { "ds/train.txt", "../secret.txt", { "" }, folder },
        { "ds/train.txt", "../secret.txt", { "" }, pattern },
        { "ds/more", "../elsewhere", { "" }, folder },
        { "ds/train.txt", "../secret.txt", { "{\"x\": {\"file_name\": \"train.txt\"}}" }, entry },
        { NULL, NULL, { "{\"x\": {\"file_name\": \"../secret.txt\"}}" }, entry },
        { NULL, NULL, { "{\"x\": {\"file_name\": \"../*.txt\"}}" }, entry },
        { NULL, NULL, { "{\"x\": {\"file_name\": \"../elsewhere\"}}" }, entry },
        { NULL, NULL, { "{\"x\": {\"file_name\": \".\", \"subset\": \"../elsewhere\"}}" }, entry },
        { NULL, NULL, { "{\"x\": {\"hf_hub_url\": \"../elsewhere\"}}" }, entry },
        { NULL, NULL, { "{\"x\": {\"hf_hub_url\": \"a/b\", \"folder\": \"../../../elsewhere\"}}" }, entry },
        { NULL, NULL, workspace_path("{\"x\": {\"file_name\": \"%s/secret.txt\"}}", root), entry },
        { "ds/dataset_info.json", "../info.json", { "" }, entry },
    };
    static program p;
    make_dir(root, "ds");
    make_dir(root, "ds/a");
    make_dir(root, "ds/a/b");
    make_dir(root, "elsewhere");
    workspace_write(root, "secret.txt", "a secret\n");
    workspace_write(root, "elsewhere/some.txt", "a secret\n");
    workspace_write(root, "info.json", "{\"x\": {\"file_name\": \"../secret.txt\"}}");
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        if (cases[i].link) link_to(root, cases[i].link, cases[i].to);
        if (*cases[i].info.s) workspace_write(root, "ds/dataset_info.json", cases[i].info.s);
        look_at(&p, root, cases[i].words, false);
        if (p.status != 2 || !strstr(p.text, "--allow-outside-files") || strstr(p.text, "a secret"))
            fail_msg("case %zu: status %d: %s", i, p.status, p.text);
        look_at(&p, root, cases[i].words, true);
        if (p.status != 0 || !strstr(p.text, "a secret")) fail_msg("case %zu, allowed: status %d: %s", i, p.status, p.text);
        if (cases[i].link) assert_int_equal(unlink(workspace_path("%s/%s", root, cases[i].link).s), 0);
        if (*cases[i].info.s) assert_int_equal(unlink(workspace_path("%s/ds/dataset_info.json", root).s), 0);
    }
}

/* What the user has named is read, and so is what links inside the folder lead to. */
static void what_the_user_names_is_read_wherever_it_is(void **state)
{
    const char *root = *state;
    static program p;
    make_dir(root, "ds");
    make_dir(root, "ds/inner");
    workspace_write(root, "own.txt", "my words\n");
    workspace_write(root, "ds/inner/own.txt", "my words\n");
    link_to(root, "link.txt", "own.txt");
    link_to(root, "folder", "ds");
    link_to(root, "ds/train.txt", "inner/own.txt");
    workspace_write(root, "ds/dataset_info.json",
                    "{\"x\": {\"file_name\": \"train.txt\"}, \"y\": {\"file_name\": \"inner/../inner\"}}");
    static const char *const words[][5] = { { "--dataset-path", "link.txt" },
                                            { "--dataset-path", "folder" },
                                            { "--dataset-path", "ds/../own.txt" },
                                            { "--dataset-path", "folder/t*.txt" },
                                            { "--dataset-dir", "folder", "--dataset-name", "x" },
                                            { "--dataset-dir", "ds", "--dataset-name", "y" } };
    for (size_t i = 0; i < MT_COUNT(words); i++) {
        look_at(&p, root, words[i], false);
        if (p.status != 0 || !strstr(p.text, "my words")) fail_msg("case %zu: status %d: %s", i, p.status, p.text);
    }
}

/* -- links in an output directory ------------------------------------------------------------------ */

static void nothing_in_an_output_directory_is_written_through_a_link(void **state)
{
    const char *root = *state;
    static const char text[] = "a file of the user's own\n";
    static const char *const names[] = { "metrics.jsonl", "log.txt", "config.yaml", "plan.json",
                                         "plan.json.tmp", ".lock",   ".files",      "report.html" };
    static program p;
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        mt_err err = { 0 };
        char *now;
        workspace_write(root, "victim", text);
        make_dir(root, "out");
        link_to(root, workspace_path("out/%s", names[i]).s, "../victim");
        set_up(&p, root, "out");
        program_arg(&p, "--resume");
        program_run(&p);
        assert_ok(mt_file_read(&now, NULL, workspace_path("%s/victim", root).s, 1 << 20, &err));
        if (strcmp(now, text) != 0) fail_msg("%s wrote through the link: %s", names[i], p.text);
        if (p.status) assert_printed(&p, names[i]);
        mt_free(now);
        assert_ok(mt_dir_remove(workspace_path("%s/out", root).s, &err));
    }
}

static void events_are_not_written_into_a_linked_folder(void **state)
{
    const char *root = *state;
    static program p;
    make_dir(root, "elsewhere");
    make_dir(root, "out");
    link_to(root, "out/tensorboard", "../elsewhere");
    set_up(&p, root, "out");
    program_arg(&p, "--tensorboard");
    assert_int_equal(program_run(&p), 2);
    assert_printed(&p, "out/tensorboard is a link");
    assert_int_equal(tempdir_count(workspace_path("%s/elsewhere", root).s, NULL), 0);
}

/* -- a checkpoint from elsewhere ------------------------------------------------------------------- */

static void save_json(const mt_value *doc, const char *path)
{
    mt_err err = { 0 };
    mt_str text = { 0 };
    mt_value_write_json(&text, doc);
    assert_ok(mt_outfile_save(path, text.s, text.n, &err));
    mt_str_free(&text);
}

/* Sets a value in a checkpoint's state and makes its checksum right again. */
static void forge(const char *ckpt, const char *key, const mt_value *value)
{
    mt_err err = { 0 };
    const mt_value *state, *list;
    uint64_t sum, bytes;
    char text[32];
    test_path state_path = workspace_path("%s/resume/state.json", ckpt), list_path = workspace_path("%s/checksums.json", ckpt);
    assert_ok(mt_json_read(&state, state_path.s, &err));
    assert_ok(mt_json_set(state, state, key, value, &err));
    save_json(state, state_path.s);
    assert_ok(mt_checksum_file(&sum, &bytes, state_path.s, &err));
    assert_ok(mt_json_read(&list, list_path.s, &err));
    const mt_value *entry = mt_value_get(mt_value_get(list, "files"), "resume/state.json");
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    mt_value size = { .type = MT_VALUE_INT, .i = (int64_t)bytes }, checksum = mt_json_text(text);
    assert_ok(mt_json_set(list, entry, "bytes", &size, &err));
    assert_ok(mt_json_set(list, entry, "checksum", &checksum, &err));
    save_json(list, list_path.s);
    mt_json_free(state);
    mt_json_free(list);
}

static void numbers_that_no_run_counts_to_are_refused(void **state)
{
    const char *root = *state;
    static const char *const keys[] = { "step",          "updates",    "tokens",      "trained_tokens",
                                        "skipped_steps", "bad_in_row", "window_steps" };
    static program p;
    set_up(&p, root, "out");
    run_ok(&p);
    for (size_t i = 0; i <= MT_COUNT(keys); i++) {
        mt_err err = { 0 };
        char command[4096], out[256];
        assert_ok(mt_dir_remove(workspace_path("%s/forged", root).s, &err));
        snprintf(command, sizeof command, "cp -r '%s/out/checkpoint-1' '%s/forged'", root, root);
        assert_int_equal(run_shell(command, out, sizeof out), 0);
        mt_value most = { .type = MT_VALUE_INT, .i = INT64_MAX }, date = mt_json_text("-2147483648-01-01T00:00:00");
        if (i < MT_COUNT(keys))
            forge(workspace_path("%s/forged", root).s, keys[i], &most);
        else
            forge(workspace_path("%s/forged", root).s, "date", &date);
        set_up(&p, root, "other");
        program_arg(&p, "--resume");
        program_arg(&p, "forged");
        assert_int_equal(program_run(&p), 1);
        assert_printed(&p, i < MT_COUNT(keys) ? "more than any run counts to" : "is not a date");
    }
}

/* -- texts from elsewhere -------------------------------------------------------------------------- */

/* A message with line breaks in it is one entry of the log: only its first line has a time. */
static void a_message_forges_no_line_of_the_log(void **state)
{
    mt_err err = { 0 };
    mt_train_screen screen;
    char *log;
    mt_train_screen_init(&screen);
    mt_train_screen_keep(&screen, "the template says: x\n2026-01-01 00:00:00  done: all is well"); /* before there is a file */
    mt_train_screen_log_to(&screen, *state);
    mt_train_screen_keep(&screen, "the template says: y\n2026-01-01 00:00:00  done: all is well");
    mt_train_screen_sample(&screen, 3, "Who are you?", "a model\n2026-01-01 \x1b]0;title\x07");
    mt_train_screen_deinit(&screen);
    assert_ok(mt_file_read(&log, NULL, workspace_path("%s/log.txt", (char *)*state).s, 1 << 20, &err));
    assert_null(strstr(log, "\n2026-01-01"));
    assert_non_null(strstr(log, "\n                     2026-01-01"));
    assert_non_null(strstr(log, "sample at step 3: Who are you? -> a model 2026-01-01 ?]0;title?\n"));
    mt_free(log);
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(overwrite_removes_nothing_that_no_run_has_written), RUNS(overwrite_removes_a_run_and_keeps_the_rest),
             RUNS(a_file_that_was_put_into_a_run_stops_overwrite), RUNS(names_that_end_in_tmp_are_not_all_ours),
             RUNS(a_new_run_writes_over_no_file_of_others), RUNS(a_link_out_of_a_model_directory_is_refused),
             RUNS(links_inside_a_model_directory_are_followed), RUNS(the_hubs_own_links_are_followed_and_no_others),
             RUNS(what_leads_out_of_a_dataset_is_refused), RUNS(what_the_user_names_is_read_wherever_it_is),
             RUNS(nothing_in_an_output_directory_is_written_through_a_link), RUNS(events_are_not_written_into_a_linked_folder),
             RUNS(a_message_forges_no_line_of_the_log), RUNS(numbers_that_no_run_counts_to_are_refused))
