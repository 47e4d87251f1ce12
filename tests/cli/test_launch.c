/* megatrain train under a launcher: ranks that are not alike, or not launched as they should be, end with one sentence, which one
 * rank prints.  So is how a run ended on which one of them fails, stands still or is asked to stop. */
#include "mpirun.h"
#include "workspace.h"

#include <time.h>

static program p;

/* Words of one rank's command; NULL ends them. */
static void add_train(const char *out, const char *const *more)
{
    const char *const usual[] = {
        "train", "--model-name", "model", "--dataset-path", "rows.json", "--from-scratch", "--device", "cpu", "--num-steps",
        "4",     "--batch-size", "8",     "--output-dir",   out,         "--comm-timeout", "20"
    };
    for (size_t i = 0; i < MT_COUNT(usual); i++) program_arg(&p, usual[i]);
    for (; more && *more; more++) program_arg(&p, *more);
}

/* Two ranks alike, and a third with other words. */
static void run_third(const char *root, const char *out, const char *third_out, const char *const *more)
{
    mpirun_init(&p, root, 2, MT_BINARY);
    add_train(out, NULL);
    const char *const then[] = { ":", "-n", "1", MT_BINARY };
    for (size_t i = 0; i < MT_COUNT(then); i++) program_arg(&p, then[i]);
    add_train(third_out, more);
    program_run(&p);
}

static int count(const char *text, const char *words)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, words)); at++) n++;
    return n;
}

/* It failed with one sentence, once. */
static void assert_one_error(int status, const char *words)
{
    assert_printed(&p, words);
    assert_int_equal(count(p.text, "error:"), 1);
    assert_int_equal(p.status, status);
}

static void ranks_with_other_settings_are_refused(void **state)
{
    MPIRUN_OR_SKIP();
    run_third(*state, "out", "out", (const char *const[]){ "--learning-rate", "0.5", NULL });
    assert_printed(&p, "error: rank 2 (");
    assert_printed(&p, "training.learning_rate is ");
    assert_one_error(2, "and 0.5 on rank 2 (");
}

static void ranks_with_other_data_are_refused(void **state)
{
    MPIRUN_OR_SKIP();
    workspace_write_rows(*state, "other.json", 40, 8);
    run_third(*state, "out", "out", (const char *const[]){ "--dataset-path", "other.json", NULL });
    assert_one_error(2, "the fingerprint of the data is ");
}

static void ranks_with_another_model_are_refused(void **state)
{
    MPIRUN_OR_SKIP();
    assert_int_equal(mkdir(workspace_path("%s/larger", (char *)*state).s, 0777), 0);
    workspace_write_config(*state, "larger/config.json", WORKSPACE_LAYERS + 1);
    run_third(*state, "out", "out", (const char *const[]){ "--model-name", "larger", NULL });
    assert_one_error(2, "the fingerprint of the model (config.json) is ");
}

static void an_output_directory_of_ones_own_is_refused(void **state)
{
    MPIRUN_OR_SKIP();
    run_third(*state, "out", "elsewhere", NULL);
    assert_one_error(2, "the output directory elsewhere is not the same one on rank 2 (");
}

static void a_failure_before_the_ranks_know_each_other_is_printed_once(void **state)
{
    MPIRUN_OR_SKIP();
    mpirun_init(&p, *state, 3, MT_BINARY);
    add_train("out", (const char *const[]){ "--no-such-flag", NULL });
    program_run(&p);
    assert_one_error(2, "train: --no-such-flag is not known");
}

/* The other ranks are connected already, or wait for it. */
static void a_rank_that_cannot_read_its_settings_prints_why(void **state)
{
    static const char *const bad[][2] = { { "--no-such-flag", "train: --no-such-flag is not known" },
                                          { "missing.yaml", "no file missing.yaml" } };
    MPIRUN_OR_SKIP();
    for (size_t i = 0; i < MT_COUNT(bad); i++) {
        run_third(*state, "out", "out", (const char *const[]){ bad[i][0], NULL });
        assert_printed(&p, "error: rank 2 (");
        assert_one_error(2, bad[i][1]);
    }
}

static void a_failure_of_one_rank_ends_all(void **state)
{
    MPIRUN_OR_SKIP();
    run_third(*state, "out", "out", (const char *const[]){ "--dataset-path", "missing.json", NULL });
    assert_printed(&p, "error: rank 2 (");
    assert_one_error(1, "missing.json");
}

static void a_dry_run_is_for_one_machine(void **state)
{
    MPIRUN_OR_SKIP();
    mpirun_init(&p, *state, 2, MT_BINARY);
    add_train("out", (const char *const[]){ "--dry-run", NULL });
    program_run(&p);
    assert_one_error(2, "--dry-run rehearses on one machine");
}

static void one_rank_under_mpirun_is_a_run_like_any_other(void **state)
{
    MPIRUN_OR_SKIP();
    mpirun_init(&p, *state, 1, MT_BINARY);
    add_train("out", NULL);
    if (program_run(&p)) fail_msg("%s", p.text);
    PROGRAM_WORDS(&p, *state, "train", "--model-name", "model", "--dataset-path", "rows.json", "--from-scratch", "--device",
                  "cpu", "--num-steps", "4", "--batch-size", "8", "--output-dir", "alone", "--comm-timeout", "20");
    assert_int_equal(program_run(&p), 0);
    assert_true(workspace_same_file(workspace_path("%s/out/final/model.safetensors", (char *)*state).s,
                                    workspace_path("%s/alone/final/model.safetensors", (char *)*state).s));
}

/* -- while it runs --------------------------------------------------------------------------------- */

static const char *const endless[] = { "--num-steps", "1000000", "--save-steps", "5", "--keep-last", "1", "--comm-timeout",
                                       "3",           NULL };

/* Three ranks that do not come to an end; the last has something in its environment. */
static void start_endless(const char *root, const char *environment)
{
    mpirun_init(&p, root, 2, MT_BINARY);
    add_train("out", endless);
    const char *const then[] = { ":", "-n", "1", "-x", environment, MT_BINARY };
    for (size_t i = 0; i < MT_COUNT(then); i++) program_arg(&p, then[i]);
    add_train("out", endless);
    program_start(&p);
}

static void wait_for_checkpoint(const char *root)
{
    for (int i = 0; i < 3000 && !mt_dir_exists(workspace_path("%s/out/checkpoint-5", root).s); i++)
        nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
}

/* Process of a rank: a child of mpirun. */
static pid_t rank_pid(int rank)
{
    char text[256] = "";
    FILE *f = fopen(workspace_path("/proc/%d/task/%d/children", (int)p.pid, (int)p.pid).s, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    char *at = text;
    pid_t pid = 0;
    for (int i = 0; i <= rank; i++) pid = (pid_t)strtol(at, &at, 10);
    assert_true(pid > 0);
    return pid;
}

static void a_failure_in_the_middle_ends_all_with_the_last_checkpoint(void **state)
{
    MPIRUN_OR_SKIP();
    start_endless(*state, "MT_FAULT=parcel:20000");
    program_wait(&p);
    assert_printed(&p, "error: rank 2 (");
    assert_printed(&p, "the network failed on purpose");
    assert_one_error(1, "The last complete checkpoint is out/checkpoint-");
}

static void a_signal_on_any_rank_stops_all_after_the_same_step(void **state)
{
    MPIRUN_OR_SKIP();
    start_endless(*state, "MT_UNUSED=1");
    wait_for_checkpoint(*state);
    kill(rank_pid(1), SIGUSR2); /* the launcher may report any rank's status */
    program_wait(&p);
    assert_printed(&p, "stopped after step");
    assert_int_equal(p.status, 128 + SIGUSR2);
    start_endless(*state, "MT_UNUSED=1");
    program_wait(&p);
    assert_one_error(2, "already holds a run");
}

static void mpirun_passes_on_the_signal_that_stops(void **state)
{
    MPIRUN_OR_SKIP();
    start_endless(*state, "MT_UNUSED=1");
    wait_for_checkpoint(*state);
    kill(p.pid, SIGUSR2);
    program_wait(&p);
    assert_printed(&p, "stopped after step");
    assert_int_equal(count(p.text, "stopping after this step"), 1);
    assert_int_equal(p.status, 128 + SIGUSR2);
}

static void a_rank_that_stands_still_is_named(void **state)
{
    MPIRUN_OR_SKIP();
    start_endless(*state, "MT_UNUSED=1");
    wait_for_checkpoint(*state);
    kill(rank_pid(1), SIGSTOP);
    program_wait(&p);
    assert_printed(&p, "from rank 1 (");
    assert_printed(&p, ", which is silent: its process, its machine or its network is down.");
    assert_one_error(1, "The last complete checkpoint is out/checkpoint-");
}

static void a_killed_rank_is_named_by_the_launcher(void **state)
{
    MPIRUN_OR_SKIP();
    start_endless(*state, "MT_UNUSED=1");
    wait_for_checkpoint(*state);
    kill(rank_pid(1), SIGKILL);
    program_wait(&p);
    assert_printed(&p, "process rank 1 with PID");
    assert_int_not_equal(p.status, 0);
}

static void torchrun_is_answered_with_the_right_command(void **state)
{
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    setenv("WORLD_SIZE", "16", 1);
    setenv("LOCAL_WORLD_SIZE", "8", 1);
    PROGRAM_WORDS(&p, *state, "train", "--model-name", "model", "--dataset-path", "rows.json");
    program_run(&p);
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("WORLD_SIZE");
    unsetenv("LOCAL_WORLD_SIZE");
    assert_one_error(2, "mpirun -n 2 --map-by ppr:1:node megatrain train FILE.yaml --devices all");
}

static void without_mpi_the_message_says_how_to_build_with_it(void **state)
{
    if (MT_HAVE_MPI) mt_skip("built with MPI");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    PROGRAM_WORDS(&p, *state, "train", "--model-name", "model", "--dataset-path", "rows.json");
    program_run(&p);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    assert_one_error(1, "mpirun started 2 processes, and this program was built without MPI: install an MPI");
}

#define IN_WORKSPACE(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)
MT_TEST_MAIN(IN_WORKSPACE(ranks_with_other_settings_are_refused), IN_WORKSPACE(ranks_with_other_data_are_refused),
             IN_WORKSPACE(ranks_with_another_model_are_refused), IN_WORKSPACE(an_output_directory_of_ones_own_is_refused),
             IN_WORKSPACE(a_failure_before_the_ranks_know_each_other_is_printed_once),
             IN_WORKSPACE(a_rank_that_cannot_read_its_settings_prints_why), IN_WORKSPACE(a_failure_of_one_rank_ends_all),
             IN_WORKSPACE(a_dry_run_is_for_one_machine), IN_WORKSPACE(one_rank_under_mpirun_is_a_run_like_any_other),
             IN_WORKSPACE(a_failure_in_the_middle_ends_all_with_the_last_checkpoint),
             IN_WORKSPACE(a_signal_on_any_rank_stops_all_after_the_same_step),
             IN_WORKSPACE(mpirun_passes_on_the_signal_that_stops), IN_WORKSPACE(a_rank_that_stands_still_is_named),
             IN_WORKSPACE(a_killed_rank_is_named_by_the_launcher), IN_WORKSPACE(torchrun_is_answered_with_the_right_command),
             IN_WORKSPACE(without_mpi_the_message_says_how_to_build_with_it))
