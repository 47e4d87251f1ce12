/* What happens around a run: the reader of its output goes away, limits, files and folders that vanish or move, another day.
 * None of it loses the run. */
#include "process.h"
#include "program.h"
#include "workspace.h"

#include <sys/resource.h>
#include <time.h>

#define MODEL MT_TESTS_DIR "/../data/demo_model"

static program p; /* large; one at a time */

static void set_up(const char *root, const char *n_steps, const char *save_steps)
{
    program_init(&p, root);
    const char *const args[] = { "train",           "--model-name",
                                 "model",           "--from-scratch",
                                 "--dataset-path",  "rows.json",
                                 "--output-dir",    "out",
                                 "--num-steps",     n_steps,
                                 "--save-steps",    save_steps,
                                 "--batch-size",    "8",
                                 "--device",        "cpu",
                                 "--learning-rate", "1e-3",
                                 "--log-interval",  "1",
                                 "--set",           "logging.enable_timing=false" };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
}

static void run_ok(void)
{
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
}

/* Until a file has something in it, or ten seconds are over. */
static void wait_for(const char *path)
{
    struct stat st;
    for (int i = 0; i < 5000 && !(stat(path, &st) == 0 && st.st_size > 0); i++) nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
}

/* -- what it prints -------------------------------------------------------------------------------- */

/* `| head` has seen enough. */
static void stop_reading(void)
{
    close(p.out);
    p.out = open("/dev/null", O_RDONLY);
}

/* That not all was printed is said by the status. */
static void nobody_reading_is_no_end(void **state)
{
    const char *root = *state;
    set_up(root, "6", "2");
    program_start(&p);
    stop_reading();
    assert_int_equal(program_wait(&p), 1);
    assert_true(mt_file_exists(workspace_path("%s/out/final/model.safetensors", root).s));
}

/* A run that would never end, taken its first steps. */
static void start_long(const char *root)
{
    set_up(root, "1000000", "1000000");
    program_start(&p);
    wait_for(workspace_path("%s/out/metrics.jsonl", root).s);
}

/* Asked to stop, it has left one checkpoint. */
static test_path saved_by(const char *root)
{
    mt_err err = { 0 };
    mt_dir_names names;
    test_path found = { "" };
    assert_ok(mt_dir_list(&names, workspace_path("%s/out", root).s, &err));
    for (size_t i = 0; i < names.n; i++)
        if (strncmp(names.items[i], "checkpoint-", 11) == 0) found = workspace_path("%s/out/%s", root, names.items[i]);
    mt_dir_names_free(&names);
    assert_true(found.s[0]);
    return found;
}

/* Ctrl-C ends `| tee` too. */
static void it_saves_though_its_reader_is_gone(void **state)
{
    const char *root = *state;
    start_long(root);
    stop_reading();
    kill(p.pid, SIGINT);
    assert_int_equal(program_wait(&p), 128 + SIGINT);
    saved_by(root);
}

/* -- limits ---------------------------------------------------------------------------------------- */

static void a_limit_on_files_is_an_error_that_says_so(void **state)
{
    const char *root = *state;
    struct rlimit was, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = (struct rlimit){ .rlim_cur = 20000, .rlim_max = was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    set_up(root, "6", "2");
    program_run(&p);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(p.status, 1);
    assert_printed(&p, "File too large");
}

/* -- TensorBoard ----------------------------------------------------------------------------------- */

/* What a run says that begins, or begins again, also replaces the evaluation before step 1. */
static void events_begin_with_step_0(void **state)
{
    static const char from_0[] = "\x10\x00\x3a\x02\x08\x01"; /* step 0, a session starts: what is there of it and later is void */
    const char *root = *state;
    mt_err err = { 0 };
    mt_dir_names names;
    char *text;
    size_t n;
    set_up(root, "1", "1");
    program_arg(&p, "--set");
    program_arg(&p, "logging.tensorboard=true");
    run_ok();
    test_path dir = workspace_path("%s/out/tensorboard", root);
    assert_ok(mt_dir_list(&names, dir.s, &err));
    assert_int_equal(names.n, 1);
    assert_ok(mt_file_read(&text, &n, workspace_path("%s/%s", dir.s, names.items[0]).s, 1 << 20, &err));
    bool found = false;
    for (size_t i = 0; i + sizeof from_0 - 1 <= n; i++) found |= memcmp(text + i, from_0, sizeof from_0 - 1) == 0;
    assert_true(found);
    mt_free(text);
    mt_dir_names_free(&names);
}

/* -- a smaller machine ----------------------------------------------------------------------------- */

/* What was settled for a larger one does not fit: other bits, which is said, and no lost run. */
static void on_a_smaller_machine_it_goes_on(void **state)
{
    const char *root = *state;
    set_up(root, "2", "2");
    run_ok();
    set_up(root, "4", "2");
    program_arg(&p, "--resume");
    program_arg(&p, "--device-memory=250K");
    run_ok();
    assert_printed(&p, "which do not fit in the memory here");
    assert_printed(&p, "not be bit-identical");
    assert_printed(&p, "resumes      out/checkpoint-2");
}

/* Neither its sizes nor its host memory fit, and smaller sizes would: --force is offered, and starts it. */
static void on_a_machine_smaller_in_both_ways_it_is_forced(void **state)
{
    const char *root = *state;
    set_up(root, "2", "2");
    run_ok();
    for (int force = 0; force < 2; force++) {
        set_up(root, "4", "2");
        program_arg(&p, "--resume");
        program_arg(&p, "--device-memory=250K");
        program_arg(&p, "--host-memory=30M");
        if (force) program_arg(&p, "--force");
        assert_int_equal(program_run(&p) == 0, force);
        assert_printed(&p, force ? "started anyway (--force)" : "--force starts it anyway");
    }
    assert_printed(&p, "which do not fit in the memory here");
    assert_printed(&p, "resumes      out/checkpoint-2");
}

/* -- other samples to evaluate on ------------------------------------------------------------------ */

static void write_records(const char *root, const char *name, int n_words)
{
    mt_str s = { 0 };
    for (int i = 0; i < 8; i++) {
        mt_str_puts(&s, "{\"instruction\": \"");
        for (int k = 0; k < n_words; k++) mt_str_puts(&s, "red ");
        mt_str_puts(&s, "\", \"output\": \"blue\"}\n");
    }
    workspace_write(root, name, s.s);
    mt_str_free(&s);
}

static void set_up_records(const char *root, const char *n_steps, const char *evaluated)
{
    program_init(&p, root);
    const char *const args[] = { "train",
                                 "--model-name",
                                 MODEL,
                                 "--from-scratch",
                                 "--dataset-dir",
                                 ".",
                                 "--set",
                                 "dataset.name=short",
                                 "--max-seq-len",
                                 "256",
                                 "--cache-dir",
                                 "cache",
                                 "--output-dir",
                                 "out",
                                 "--num-steps",
                                 n_steps,
                                 "--batch-size",
                                 "1",
                                 "--device",
                                 "cpu",
                                 "--eval-dataset",
                                 evaluated };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
}

/* They are longer than the micro-batches that were settled for the run: other bits, which is said, and no lost run. */
static void it_may_evaluate_on_longer_samples(void **state)
{
    const char *root = *state;
    write_records(root, "short.jsonl", 1);
    write_records(root, "long.jsonl", 40);
    workspace_write(root, "dataset_info.json",
                    "{\"short\": {\"file_name\": \"short.jsonl\"}, \"long\": {\"file_name\": \"long.jsonl\"}}");
    set_up_records(root, "2", "short");
    run_ok();
    set_up_records(root, "4", "long");
    program_arg(&p, "--resume");
    run_ok();
    assert_printed(&p, "the longest sample");
    assert_printed(&p, "not be bit-identical");
    assert_printed(&p, "done: 4 steps");
    set_up_records(root, "6", "short"); /* and what holds long ones holds short ones */
    program_arg(&p, "--resume");
    run_ok();
    assert_null(strstr(p.text, "not be bit-identical"));
}

static char *arithmetic_of(const char *root)
{
    char *text = NULL;
    mt_err err = { 0 };
    assert_ok(mt_file_read(&text, NULL, workspace_path("%s/out/plan.json", root).s, 1 << 24, &err));
    char *line = strstr(text, "\"arithmetic\""), *end = line ? strchr(line, '\n') : NULL;
    assert_non_null(end);
    char *out = mt_strndup(line, (size_t)(end - line));
    mt_free(text);
    return out;
}

/* What a run trains with is chosen for its training alone, so that other samples to evaluate on change no bit. */
static void what_it_evaluates_on_does_not_choose_the_arithmetic(void **state)
{
    const char *root = *state;
    write_records(root, "short.jsonl", 1);
    write_records(root, "longer.jsonl", 8);
    write_records(root, "longest.jsonl", 40);
    workspace_write(root, "dataset_info.json",
                    "{\"short\": {\"file_name\": \"short.jsonl\"}, \"longer\": {\"file_name\": \"longer.jsonl\"}, "
                    "\"longest\": {\"file_name\": \"longest.jsonl\"}}");
    char *chosen[2];
    for (int i = 0; i < 2; i++) {
        set_up_records(root, "1", i ? "longer" : "short");
        program_arg(&p, "--batch-size=4");
        program_arg(&p, "--overwrite");
        run_ok();
        chosen[i] = arithmetic_of(root);
    }
    assert_string_equal(chosen[0], chosen[1]);
    for (int i = 0; i < 2; i++) mt_free(chosen[i]);
    /* A sample that no micro-batch would hold makes them larger, which changes no bit of a step that is one micro-batch. */
    set_up_records(root, "1", "longest");
    program_arg(&p, "--overwrite");
    run_ok();
    assert_null(strstr(p.text, "bit-identical"));
}

/* -- files that vanish ----------------------------------------------------------------------------- */

/* What is saved with the weights was taken when the run began. */
static void a_model_directory_that_is_gone_is_saved_all_the_same(void **state)
{
    const char *root = *state;
    start_long(root);
    assert_int_equal(rename(workspace_path("%s/model", root).s, workspace_path("%s/elsewhere", root).s), 0);
    kill(p.pid, SIGTERM);
    if (program_wait(&p) != 128 + SIGTERM) fail_msg("status %d: %s", p.status, p.text);
    test_path saved = saved_by(root);
    assert_true(
        workspace_same_file(workspace_path("%s/elsewhere/config.json", root).s, workspace_path("%s/config.json", saved.s).s));
}

/* Another mount, another machine: the same model and the same data are elsewhere. */
static void what_has_moved_is_found_there(void **state)
{
    const char *root = *state;
    test_path rows = workspace_path("%s/moved.json", root);
    set_up(root, "2", "2");
    run_ok();
    assert_int_equal(rename(workspace_path("%s/model", root).s, workspace_path("%s/elsewhere", root).s), 0);
    assert_int_equal(rename(workspace_path("%s/rows.json", root).s, rows.s), 0);
    set_up(root, "4", "2");
    const char *const more[] = { "--resume", "--model-name", "elsewhere", "--dataset-path", rows.s };
    for (size_t i = 0; i < MT_COUNT(more); i++) program_arg(&p, more[i]);
    run_ok();
    assert_printed(&p, "model.name was model and is");
    assert_printed(&p, "resumes      out/checkpoint-2");
}

/* -- beginning from a checkpoint elsewhere --------------------------------------------------------- */

static void set_up_branch(const char *root, const char *n_steps, const char *resume)
{
    set_up(root, n_steps, n_steps);
    const char *const more[] = { "--output-dir", "branch", "--resume", resume };
    for (size_t i = 0; i < MT_COUNT(more); i++) program_arg(&p, more[i]);
}

/* Killed before its first checkpoint: it is not begun from nothing, and not refused as if there were something to lose. */
static void a_branch_without_a_checkpoint_begins_where_it_did(void **state)
{
    const char *root = *state;
    set_up(root, "2", "2");
    run_ok();
    set_up_branch(root, "1000000", "out/checkpoint-2");
    program_start(&p);
    wait_for(workspace_path("%s/branch/metrics.jsonl", root).s);
    kill(p.pid, SIGKILL);
    program_wait(&p);
    set_up_branch(root, "6", "latest");
    assert_int_not_equal(program_run(&p), 0);
    assert_printed(&p, "--resume out/checkpoint-2 starts there again");
    set_up_branch(root, "6", "out/checkpoint-2");
    run_ok();
    assert_printed(&p, "resumes      out/checkpoint-2");
    set_up_branch(root, "6", "out/checkpoint-2");
    assert_int_not_equal(program_run(&p), 0);
    assert_printed(&p, "already holds a run");
}

/* Resuming cuts the lines that will be made again, of the file that the run has written and of no other. */
static void a_metrics_file_of_others_is_not_cut(void **state)
{
    const char *root = *state;
    test_path file = workspace_path("%s/all.jsonl", root), same = workspace_path("%s/same.jsonl", root),
              set = workspace_path("logging.metrics_file=%s", file.s);
    workspace_write(root, "all.jsonl", "{}\n{}\n");
    workspace_write(root, "same.jsonl", "{}\n{}\n");
    set_up(root, "2", "2");
    run_ok();
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        if (elsewhere)
            set_up_branch(root, "6", "out/checkpoint-2");
        else
            set_up(root, "4", "2"), program_arg(&p, "--resume");
        program_arg(&p, "--set");
        program_arg(&p, set.s);
        assert_int_not_equal(program_run(&p), 0);
        assert_printed(&p, "already has content");
        assert_true(workspace_same_file(file.s, same.s));
    }
}

/* -- killed while it clears the directory ---------------------------------------------------------- */

static void assert_nothing_half_way(const char *root, const char *when)
{
    mt_err err = { 0 };
    mt_dir_names names;
    assert_ok(mt_dir_list(&names, workspace_path("%s/out", root).s, &err));
    for (size_t i = 0; i < names.n; i++)
        if (strstr(names.items[i], ".tmp")) fail_msg("%s: %s is left", when, names.items[i]);
    mt_dir_names_free(&names);
}

/* Whichever way the run is begun after that; a finished model without its checkpoints is not gone on with. */
static void a_kill_while_clearing_leaves_nothing_behind(void **state)
{
    const char *root = *state;
    set_up(root, "2", "1");
    run_ok();
    for (int at = 12; at < 72; at += 6) {
        char fault[32];
        snprintf(fault, sizeof fault, "kill:file:%d", at);
        set_up(root, "2", "1");
        program_arg(&p, "--overwrite");
        p.fault = fault;
        assert_int_equal(program_run(&p), -SIGKILL);
        set_up(root, "2", "1");
        program_arg(&p, at % 12 ? "--resume" : "--overwrite");
        program_run(&p);
        if (p.status) assert_printed(&p, "--overwrite starts over");
        assert_nothing_half_way(root, fault);
    }
}

/* -- little address space -------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void with_little_address_space_it_ends_or_says_so(void **state)
{
    (void)state;
    skip(); /* the sanitizers need terabytes of it */
}
#else
/* OpenBLAS asks for its buffers for ever where there is no room: neither a run nor its end may wait for that. */
static void with_little_address_space_it_ends_or_says_so(void **state)
{
    static const int limits_kb[] = { 200000, 300000, 400000, 500000, 600000, 760000, 1200000 };
    for (size_t i = 0; i < MT_COUNT(limits_kb); i++) {
        char command[4096], out[8192];
        snprintf(
            command, sizeof command,
            "cd '%s' && rm -rf out && ulimit -v %d && timeout -s KILL 60 '" MT_BINARY
            "' train --model-name model --from-scratch --dataset-path rows.json --output-dir out --num-steps 2 --batch-size 8 "
            "--device cpu 2>&1",
            (char *)*state, limits_kb[i]);
        int status = run_shell(command, out, sizeof out);
        if (strstr(out, "error while loading shared libraries")) continue; /* no room for the program itself */
        if (status == 1 ? !strstr(out, "error: ") : status != 0) fail_msg("with %d KB: status %d: %s", limits_kb[i], status, out);
        if (limits_kb[i] == 200000) assert_non_null(strstr(out, "ulimit -v")); /* room for one buffer at most */
    }
}
#endif

/* -- another day ----------------------------------------------------------------------------------- */

/* The demo's model, with a template that shows the date as those of Llama 3.2 or SmolLM3 do. */
static void make_dated_model(const char *root)
{
    static const char *const copied[] = { "config.json", "tokenizer.json" };
    test_path dir = workspace_path("%s/dated", root);
    assert_int_equal(mkdir(dir.s, 0777), 0);
    for (size_t i = 0; i < MT_COUNT(copied); i++)
        workspace_copy(workspace_path(MT_TESTS_DIR "/../data/demo_model/%s", copied[i]).s,
                       workspace_path("%s/%s", dir.s, copied[i]).s);
    workspace_write(dir.s, "tokenizer_config.json",
                    "{\"eos_token\": \"<|im_end|>\", \"chat_template\": \"{{ strftime_now('%d %b %Y') }}{% for m in messages "
                    "%}<|im_start|>{{ m['role'] }} "
                    "{{ m['content'] }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant {% endif %}\"}");
    workspace_write(root, "chat.json",
                    "[{\"query\": \"a b\", \"response\": \"b\"}, {\"query\": \"c d\", \"response\": \"d e\"}]");
}

static void train_dated(const char *root, const char *zone, const char *n_steps, const char *resume)
{
    const char *const args[] = { "train",          "--model-name",
                                 "dated",          "--from-scratch",
                                 "--dataset-path", "chat.json",
                                 "--output-dir",   "out",
                                 "--num-steps",    n_steps,
                                 "--cache-dir",    "cache",
                                 "--batch-size",   "2",
                                 "--device",       "cpu",
                                 "--max-seq-len",  "64" };
    program_init(&p, root);
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
    if (resume) program_arg(&p, resume);
    assert_int_equal(setenv("TZ", zone, 1), 0);
    run_ok();
    assert_int_equal(unsetenv("TZ"), 0);
}

/* Samples that show a date show the day the run began: on another they would be other data.  Two zones, 26 hours apart. */
static void a_run_goes_on_another_day(void **state)
{
    const char *root = *state;
    make_dated_model(root);
    train_dated(root, "WEST+12", "2", NULL);
    train_dated(root, "EAST-14", "4", "--resume");
    assert_printed(&p, "resumes      out/checkpoint-2");
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(with_little_address_space_it_ends_or_says_so), RUNS(nobody_reading_is_no_end),
             RUNS(it_saves_though_its_reader_is_gone), RUNS(a_limit_on_files_is_an_error_that_says_so),
             RUNS(events_begin_with_step_0), RUNS(on_a_smaller_machine_it_goes_on),
             RUNS(on_a_machine_smaller_in_both_ways_it_is_forced), RUNS(it_may_evaluate_on_longer_samples),
             RUNS(what_it_evaluates_on_does_not_choose_the_arithmetic),
             RUNS(a_model_directory_that_is_gone_is_saved_all_the_same), RUNS(what_has_moved_is_found_there),
             RUNS(a_branch_without_a_checkpoint_begins_where_it_did), RUNS(a_metrics_file_of_others_is_not_cut),
             RUNS(a_kill_while_clearing_leaves_nothing_behind), RUNS(a_run_goes_on_another_day))
