/* What happens around a run: whoever reads what it prints goes away, limits, files and folders that vanish or move, another day.  None of
 * it loses the run. */
#include "process.h"
#include "workspace.h"

#include <sys/resource.h>
#include <time.h>

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

/* Ctrl-C ends `| tee` too. */
static void it_saves_though_its_reader_is_gone(void **state)
{
    const char *root = *state;
    mt_err err = { 0 };
    mt_dir_names names;
    bool saved = false;
    set_up(root, "1000000", "1000000");
    program_start(&p);
    wait_for(workspace_path("%s/out/metrics.jsonl", root).s);
    stop_reading();
    kill(p.pid, SIGINT);
    assert_int_equal(program_wait(&p), 1);
    assert_ok(mt_dir_list(&names, workspace_path("%s/out", root).s, &err));
    for (size_t i = 0; i < names.n; i++) saved |= strncmp(names.items[i], "checkpoint-", 11) == 0;
    mt_dir_names_free(&names);
    assert_true(saved);
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

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(nobody_reading_is_no_end), RUNS(it_saves_though_its_reader_is_gone), RUNS(a_limit_on_files_is_an_error_that_says_so))
