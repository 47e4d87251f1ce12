/* A signal before the first step: the program ends within a second and leaves nothing half-made.  And data that would fill the
 * disk ends before it does. */
#include "process.h"
#include "workspace.h"

#include <time.h>

#define DEMO MT_TESTS_DIR "/../data/demo_model/"

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A model whose template takes about a hundredth of a second a message, and minutes' worth of conversations. */
static void make_slow_data(const char *root)
{
    mt_str s = { 0 };
    assert_int_equal(mkdir(workspace_path("%s/slow", root).s, 0777), 0);
    assert_int_equal(mkdir(workspace_path("%s/cache", root).s, 0777), 0);
    workspace_copy(DEMO "config.json", workspace_path("%s/slow/config.json", root).s);
    workspace_copy(DEMO "tokenizer.json", workspace_path("%s/slow/tokenizer.json", root).s);
    workspace_write(
        root, "slow/tokenizer_config.json",
        "{\"eos_token\": \"<|im_end|>\", \"chat_template\": \"{% for m in messages %}{% for i in range(30000) %}{% endfor %}"
        "<|im_start|>{{ m['role'] }} {{ m['content'] }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>"
        "assistant {% endif %}\"}");
    for (int i = 0; i < 20000; i++) mt_str_printf(&s, "{\"query\": \"a %d\", \"response\": \"b %d\"}\n", i, i);
    workspace_write(root, "chat.jsonl", s.s);
    mt_str_free(&s);
}

static void set_up(program *p, const char *root, const char *command)
{
    program_init(p, root);
    const char *const args[] = { command,    "--model-name", "slow",        "--dataset-path", "chat.jsonl",
                                 "--device", "cpu",          "--cache-dir", "cache",          "--num-workers",
                                 "2",        "--output-dir", "out",         "--num-steps",    "1" };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(p, args[i]);
    if (strcmp(command, "train") == 0) program_arg(p, "--from-scratch");
}

static void wait_for_tokenizing(const char *root)
{
    test_path cache = workspace_path("%s/cache", root);
    for (int i = 0; i < 12000 && tempdir_count(cache.s, ".samples.tmp") == 0; i++)
        nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
    assert_int_equal(tempdir_count(cache.s, ".samples.tmp"), 1);
}

/* Its status, or -SIGKILL if it had to be ended after `most_s`. */
static int wait_at_most(program *p, double most_s)
{
    double until = now_s() + most_s;
    siginfo_t info = { 0 };
    while (now_s() < until && (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOWAIT | WNOHANG) || info.si_pid == 0))
        nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
    if (info.si_pid == 0) kill(p->pid, SIGKILL);
    return program_wait(p);
}

/* wait_s: after the store was begun, until the signal. */
static void a_signal_ends_tokenizing(const char *root, const char *command, int number, int wait_s)
{
    static program p;
    set_up(&p, root, command);
    program_start(&p);
    wait_for_tokenizing(root);
    nanosleep(&(struct timespec){ wait_s, 0 }, NULL);
    kill(p.pid, number);
    double asked = now_s();
    int status = wait_at_most(&p, 20);
    if (status != 128 + number) fail_msg("%s ended with %d: %s", command, status, p.text);
    if (now_s() - asked > 8)
        fail_msg("%s took %.1f s to stop", command, now_s() - asked); /* one, on a machine that is not busy */
    assert_printed(&p, "stopped on request");
    assert_int_equal(tempdir_count(workspace_path("%s/cache", root).s, ".tmp"), 0);
    assert_int_equal(tempdir_count(workspace_path("%s/cache", root).s, ".samples"), 0);
    assert_false(mt_file_exists(workspace_path("%s/out/plan.json", root).s));
}

static void a_signal_while_tokenizing_stops_and_leaves_nothing(void **state)
{
    make_slow_data(*state);
    a_signal_ends_tokenizing(*state, "train", SIGTERM, 0);
    a_signal_ends_tokenizing(*state, "data", SIGINT, 0);
}

/* One text, and a pattern that may take minutes' worth of steps on it. */
static void a_signal_ends_a_search_of_a_regular_expression(void **state)
{
    enum { N = 60000000 };
    const char *root = *state;
    make_slow_data(root);
    workspace_write(
        root, "slow/tokenizer.json",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(?:(?=a*c)b|a)*d|a\"}},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"<|im_end|>\":1},\"merges\":[]}}");
    workspace_write(root, "slow/tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
    char *text = malloc(N + 16);
    assert_non_null(text);
    int at = sprintf(text, "{\"text\": \"");
    memset(text + at, 'a', N);
    strcpy(text + at + N, "\"}\n");
    workspace_write(root, "chat.jsonl", text);
    free(text);
    a_signal_ends_tokenizing(root, "data", SIGINT, 2); /* by then the record has been read, and the search has begun */
}

static void start_rehearsal(program *p, const char *root)
{
    set_up(p, root, "train");
    program_arg(p, "--dry-run");
    program_start(p);
}

static void a_rehearsal_that_is_stopped_leaves_no_directory(void **state)
{
    static program first, second;
    const char *root = *state;
    test_path dir = workspace_path("%s/out.dry-run", root);
    make_slow_data(root);
    start_rehearsal(&first, root);
    wait_for_tokenizing(root);
    start_rehearsal(&second, root); /* it fails, and leaves the directory to the first */
    assert_int_equal(wait_at_most(&second, 20), 1);
    assert_printed(&second, "out.dry-run is in use by another run");
    assert_true(mt_dir_exists(dir.s));
    kill(first.pid, SIGTERM);
    int status = wait_at_most(&first, 20);
    if (status != 128 + SIGTERM) fail_msg("it ended with %d: %s", status, first.text);
    assert_printed(&first, "stopped on request");
    assert_false(mt_dir_exists(dir.s));
}

/* Even if the next one fails, too. */
static void the_next_rehearsal_removes_what_a_killed_one_left(void **state)
{
    static program p;
    const char *root = *state;
    test_path dir = workspace_path("%s/out.dry-run", root);
    make_slow_data(root);
    start_rehearsal(&p, root);
    wait_for_tokenizing(root);
    kill(p.pid, SIGKILL);
    (void)wait_at_most(&p, 20);
    assert_true(mt_dir_exists(dir.s));
    workspace_write(root, "chat.jsonl", "{\"query\": \"a\", \"response\": \"b\"}\n");
    start_rehearsal(&p, root);
    assert_int_equal(wait_at_most(&p, 20), 1);
    assert_printed(&p, "set max_seq_len to 512 or less");
    assert_false(mt_dir_exists(dir.s));
}

static void a_run_that_waits_for_another_can_be_stopped(void **state)
{
    const char *root = *state;
    static program first, second;
    make_slow_data(root);
    set_up(&first, root, "data");
    program_start(&first);
    wait_for_tokenizing(root);
    kill(first.pid, SIGSTOP); /* it stays the first, however slow the second is */
    set_up(&second, root, "data");
    program_start(&second);
    program_await(&second, "another run is tokenizing");
    kill(second.pid, SIGTERM);
    int status = wait_at_most(&second, 10);
    kill(first.pid, SIGTERM);
    kill(first.pid, SIGCONT);
    (void)wait_at_most(&first, 10);
    if (status != 128 + SIGTERM) fail_msg("it ended with %d: %s", status, second.text);
    assert_printed(&second, "waiting for another run");
}

/* -- data that is larger than it looks ------------------------------------------------------------- */

/* 259 bytes that claim 10^12 rows; and an Arrow file of nulls that claims as many. */
static void rows_that_no_bytes_stand_for_end_the_reading(void **state)
{
    const char *root = *state;
    static const char *const files[] = { MT_FIXTURE("rows/claims.parquet"), MT_FIXTURE("rows/claims.arrow") };
    static program p;
    make_slow_data(root);
    for (size_t i = 0; i < MT_COUNT(files); i++) {
        set_up(&p, root, "data");
        p.args[3] = DEMO;
        p.args[5] = files[i];
        program_arg(&p, "--query-field");
        program_arg(&p, "query");
        program_start(&p);
        int status = wait_at_most(&p, 60);
        if (status != 1) fail_msg("%s ended with %d: %s", files[i], status, p.text);
        assert_printed(&p, "claims more rows than its");
        assert_int_equal(tempdir_count(workspace_path("%s/cache", root).s, ".tmp"), 0);
    }
}

static void a_store_that_outgrows_the_cache_ends_while_it_is_made(void **state)
{
    const char *root = *state;
    static program p;
    mt_str s = { 0 };
    make_slow_data(root);
    for (int i = 0; i < 20000; i++)
        mt_str_printf(&s, "{\"query\": \"a question that is no. %d\", \"response\": \"an answer, %d\"}\n", i, i);
    workspace_write(root, "chat.jsonl", s.s);
    mt_str_free(&s);
    set_up(&p, root, "data");
    p.args[3] = DEMO;
    program_arg(&p, "--cache-size");
    program_arg(&p, "100K");
    assert_int_equal(program_run(&p), 1);
    assert_printed(&p, "more than dataset.cache_size (97");
    assert_int_equal(tempdir_count(workspace_path("%s/cache", root).s, ".tmp"), 0);
    assert_int_equal(tempdir_count(workspace_path("%s/cache", root).s, ".samples"), 0);
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(a_signal_while_tokenizing_stops_and_leaves_nothing), RUNS(a_signal_ends_a_search_of_a_regular_expression),
             RUNS(a_run_that_waits_for_another_can_be_stopped), RUNS(a_rehearsal_that_is_stopped_leaves_no_directory),
             RUNS(the_next_rehearsal_removes_what_a_killed_one_left), RUNS(rows_that_no_bytes_stand_for_end_the_reading),
             RUNS(a_store_that_outgrows_the_cache_ends_while_it_is_made))
