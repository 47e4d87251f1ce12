/* A run that is killed continues and ends as if nothing had happened: weights, lo, m, v, metrics and all, byte for byte.
 *
 * Killed at file operations (every write, sync and rename of a checkpoint is one) and at random moments; one run in three is
 * killed again while it resumes.  The same with operations that fail instead, and with all of it mixed: a disk that is slow or
 * full, signals that ask and signals that do not.  MT_KILLS sets how many of each of the four (20; `make soak`: 2,500).
 * MT_KILL_SHARE=3/16 does only every 16th of them, from the third on: 16 processes share the work.
 * MT_KILL_ROUND=n draws other places and moments than every other round (0).  MT_KILL_SECONDS=n ends each of the four after n
 * seconds, wherever it is.  MT_KILL_LOG=FILE appends a line for each disturbance and each end, which scripts/kills.sh counts;
 * MT_KILL_KEEP=DIR keeps the directories that differ. */
#include "process.h"
#include "workspace.h"

#include "ckpt/manifest.h"

#include <math.h>
#include <sys/ioctl.h>
#include <time.h>

#ifndef F_SETPIPE_SZ
#define F_SETPIPE_SZ 1031 /* Linux's own */
#endif

/* Everything a run leaves is below DIR/out; DIR differs, what is written may not. */
static void set_up(program *p, const char *root, const char *dir, bool resume)
{
    static test_path model, rows;
    model = workspace_path("%s/model", root);
    rows = workspace_path("%s/rows.json", root);
    program_init(p, dir);
    const char *const args[] = { "train",           "--model-name",
                                 model.s,           "--from-scratch",
                                 "--dataset-path",  rows.s,
                                 "--output-dir",    "out",
                                 "--num-steps",     "12",
                                 "--save-steps",    "3",
                                 "--batch-size",    "8",
                                 "--learning-rate", "3e-3",
                                 "--lr-scheduler",  "cosine",
                                 "--device",        "cpu",
                                 "--device-memory", "600K",
                                 "--val-size",      "0.2",
                                 "--eval-steps",    "4",
                                 "--log-interval",  "2",
                                 "--set",           "logging.enable_timing=false" };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(p, args[i]);
    if (resume) program_arg(p, "--resume");
}

static int n_kills(void)
{
    const char *env = getenv("MT_KILLS");
    return env && atoi(env) > 0 ? atoi(env) : 20;
}

/* The number that the i-th place or moment is drawn with: no two rounds have one in common. */
static uint64_t draw_of(int i)
{
    const char *round = getenv("MT_KILL_ROUND");
    return (round ? strtoull(round, NULL, 10) << 20 : 0) + (uint64_t)i;
}

/* A place in [0, n).  However many draws in a row spread evenly over it: multiples of the golden ratio, without the whole part. */
static int place_of(uint64_t draw, int n) { return (int)((draw * 0x9e3779b97f4a7c15u >> 32) * (uint64_t)n >> 32); }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* True if this process does the i-th of a kind that began at `start`. */
static bool is_mine(int i, double start)
{
    int which = 0, of = 1;
    const char *limit = getenv("MT_KILL_SECONDS");
    if (limit && now() - start > atof(limit)) return false;
    const char *env = getenv("MT_KILL_SHARE");
    if (env) assert_true(sscanf(env, "%d/%d", &which, &of) == 2 && of > 0);
    return i % of == which % of;
}

/* "KIND <tab> EVENT <tab> STATUS": what was done to a run or what became of it, and the status of the program. */
static void log_event(const char *kind, const char *event, int status)
{
    const char *path = getenv("MT_KILL_LOG");
    if (!path) return;
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fprintf(f, "%s\t%s\t%d\n", kind, event, status);
    assert_int_equal(fclose(f), 0);
}

/* Keep both directories for a look, then fail. */
static void fail_with(const program *p, const char *root, const char *dir, const char *kind, const char *what, const char *why)
{
    const char *keep = getenv("MT_KILL_KEEP");
    log_event(kind, "mismatch", p->status);
    if (keep) {
        test_path command = workspace_path("d=$(mktemp -d '%s/XXXXXX') && cp -a '%s' '%s/reference' \"$d\"", keep, dir, root);
        if (system(command.s)) print_message("could not keep %s\n", dir);
    }
    fail_msg("%s: %s: status %d: %s", what, why, p->status, p->text);
}

/* Resume until it ends; then it must be equal to the run that was never touched. */
static void ends_equal(program *p, const char *root, const char *dir, const char *kind, const char *what)
{
    set_up(p, root, dir, true);
    if (program_run(p) != 0) fail_with(p, root, dir, kind, what, "resuming failed");
    char *difference = workspace_difference(workspace_path("%s/reference/out", root).s, workspace_path("%s/out", dir).s);
    if (difference) fail_with(p, root, dir, kind, what, difference);
    log_event(kind, "ended equal", 0);
}

static void make_reference(program *p, const char *root, double *seconds)
{
    test_path dir = workspace_case(root, "reference");
    set_up(p, root, dir.s, false);
    double start = now();
    if (program_run(p) != 0) fail_msg("the reference ended with %d: %s", p->status, p->text);
    *seconds = now() - start;
}

/* One run with a fault; true if it was delivered (killed, or failed). */
static bool faulted_run(program *p, const char *root, const char *dir, bool resume, const char *fault)
{
    set_up(p, root, dir, resume);
    p->fault = fault;
    program_run(p);
    if (p->status > 0 && !strstr(p->text, "error:")) fail_msg("%s: status %d without an error: %s", fault, p->status, p->text);
    return p->status != 0;
}

/* How many file operations a run has: about the smallest n at which it is not killed.  All runs here have the same. */
static int count_points(program *p, const char *root)
{
    static int low;
    int high = low ? low : 4096;
    while (high - low > 8) {
        char fault[32];
        int n = (low + high) / 2;
        test_path dir = workspace_case(root, "probe");
        snprintf(fault, sizeof fault, "kill:file:%d", n);
        if (faulted_run(p, root, dir.s, false, fault))
            low = n;
        else
            high = n;
    }
    return low;
}

static void killed_at_file_operations_it_ends_equal(void **state)
{
    const char *root = *state;
    static program p;
    double seconds;
    int kills = n_kills();
    make_reference(&p, root, &seconds);
    int points = count_points(&p, root);
    assert_true(points > 100); /* four checkpoints: there are many */
    double start = now();
    for (int i = 0; i < kills; i++) {
        char fault[32], what[64];
        int at = place_of(draw_of(i), points);
        if (!is_mine(i, start)) continue;
        test_path dir = workspace_case(root, "case");
        snprintf(fault, sizeof fault, "kill:file:%d", at);
        snprintf(what, sizeof what, "killed at operation %d of %d", at, points);
        assert_true(faulted_run(&p, root, dir.s, false, fault));
        assert_int_equal(p.status, -SIGKILL);
        log_event("operations", "killed", p.status);
        if (i % 3 == 0) {
            snprintf(fault, sizeof fault, "kill:file:%d", (int)mt_rng_below(11, 1, draw_of(i), (uint64_t)points));
            faulted_run(&p, root, dir.s, true, fault);
            log_event("operations", "resuming, killed", p.status);
        }
        ends_equal(&p, root, dir.s, "operations", what);
    }
}

static void killed_at_random_moments_it_ends_equal(void **state)
{
    const char *root = *state;
    static program p;
    double seconds;
    make_reference(&p, root, &seconds);
    double start = now();
    for (int i = 0; i < n_kills(); i++) {
        char what[64];
        if (!is_mine(i, start)) continue;
        double wait = seconds * mt_rng_uniform(5, 3, draw_of(i));
        struct timespec t = { (time_t)wait, (long)((wait - floor(wait)) * 1e9) };
        test_path dir = workspace_case(root, "case");
        set_up(&p, root, dir.s, false);
        program_start(&p);
        nanosleep(&t, NULL);
        kill(p.pid, SIGKILL);
        program_wait(&p);
        log_event("moments", "killed", p.status);
        snprintf(what, sizeof what, "killed after %.3f s", wait);
        ends_equal(&p, root, dir.s, "moments", what);
    }
}

/* Not killed: the operation fails, once.  The run says so and ends, or it did not matter; either way it continues and ends
 * equal. */
static void a_file_operation_that_fails_leaves_the_last_checkpoint_whole(void **state)
{
    const char *root = *state;
    static program p;
    double seconds;
    int tries = n_kills();
    make_reference(&p, root, &seconds);
    int points = count_points(&p, root);
    double start = now();
    for (int i = 0; i < tries; i++) {
        char fault[32], what[64];
        int at = place_of(draw_of(i), points) + 3;
        if (!is_mine(i, start)) continue;
        test_path dir = workspace_case(root, "case");
        snprintf(fault, sizeof fault, "file:%d", at);
        snprintf(what, sizeof what, "operation %d of %d failed", at, points);
        faulted_run(&p, root, dir.s, false, fault);
        log_event("failures", "one operation failed", p.status);
        ends_equal(&p, root, dir.s, "failures", what);
    }
}

/* One disturbance of a run, drawn: a slow disk or not, then a kill, a failure, a full disk, or a signal at some moment. */
static void disturb(program *p, const char *root, const char *dir, bool resume, int points, double seconds, uint64_t draw,
                    char *what, size_t cap)
{
    static const int signals[] = { SIGKILL, SIGTERM, SIGINT };
    static const char *const names[] = {
        "killed at an operation", "disk full", "one operation failed", "SIGKILL", "SIGTERM", "SIGINT"
    };
    static char fault[64];
    int kind = (int)mt_rng_below(23, 1, draw, 6), at = (int)mt_rng_below(23, 2, draw, (uint64_t)points);
    bool slow = mt_rng_below(23, 3, draw, 2);
    double wait = seconds * (slow ? 2 : 1) * mt_rng_uniform(23, 4, draw);
    const char *how = kind == 0 ? "kill:" : kind == 1 ? "full:" : "";
    snprintf(fault, sizeof fault, "%s%sfile:%d", slow ? "slow:300:" : "", how, kind < 3 ? at : 1 << 30);
    set_up(p, root, dir, resume);
    p->fault = fault;
    program_start(p);
    if (kind >= 3) {
        nanosleep(&(struct timespec){ (time_t)wait, (long)((wait - floor(wait)) * 1e9) }, NULL);
        kill(p->pid, signals[kind - 3]);
    }
    program_wait(p);
    log_event(slow ? "mixed, slow disk" : "mixed", names[kind], p->status);
    bool stopped = p->status == 128 + SIGTERM || p->status == 128 + SIGINT; /* on request: not an error */
    if (p->status > 0 && !stopped && !strstr(p->text, "error:"))
        fail_msg("%s: status %d without an error: %s", fault, p->status, p->text);
    snprintf(what + strlen(what), cap - strlen(what), "[%s signal %d after %.3f s: %d] ", fault,
             kind >= 3 ? signals[kind - 3] : 0, kind >= 3 ? wait : 0, p->status);
}

/* A stop during the last evaluation leaves checkpoint-12 before it: its state has `unfinished`, and the metrics it counts on end
 * before that evaluation's line.  The run that resumes makes the evaluation and does not write the same step again.  Both texts
 * without these two lines: */
static bool same_but_for_the_evaluation(const char *a, const char *b)
{
    char text[2][4096] = { "", "" };
    const char *const paths[] = { a, b };
    for (int i = 0; i < 2; i++) {
        char line[1024];
        FILE *f = fopen(paths[i], "r");
        assert_non_null(f);
        while (fgets(line, sizeof line, f))
            if (!strstr(line, "\"unfinished\": true,") && !strstr(line, "\"metrics_bytes\": "))
                strncat(text[i], line, sizeof text[i] - strlen(text[i]) - 1);
        fclose(f);
    }
    return *text[0] && strcmp(text[0], text[1]) == 0;
}

/* Newly allocated; NULL: equal, or before its evaluation. */
static char *last_checkpoint_differs(const char *reference, const char *dir)
{
    static const char state[] = "resume/state.json", list[] = "checksums.json";
    mt_err err = { 0 };
    test_path a = workspace_path("%s/%s", reference, state), b = workspace_path("%s/%s", dir, state);
    assert_ok(mt_manifest_verify(dir, &err));
    if (same_but_for_the_evaluation(a.s, b.s)) {
        workspace_copy(a.s, b.s);
        workspace_copy(workspace_path("%s/%s", reference, list).s, workspace_path("%s/%s", dir, list).s);
    }
    return workspace_difference(reference, dir);
}

/* Resume until it ends.  A signal that asks leaves a checkpoint at its step, and an older one goes: which earlier ones are there
 * may differ.  The last one, the model and the metrics may not. */
static void ends_with_the_same_run(program *p, const char *root, const char *dir, const char *what)
{
    test_path ours = workspace_path("%s/out", dir), reference = workspace_path("%s/reference/out", root);
    for (int again = 0; again < 2; again++) { /* the second time everything is done, but perhaps the last evaluation */
        set_up(p, root, dir, true);
        if (program_run(p) != 0) fail_with(p, root, dir, "mixed", what, "resuming failed");
        if (!workspace_same_file(workspace_path("%s/metrics.jsonl", reference.s).s, workspace_path("%s/metrics.jsonl", ours.s).s))
            fail_with(p, root, dir, "mixed", what, "the metrics differ");
    }
    char *difference = workspace_difference(workspace_path("%s/final", reference.s).s, workspace_path("%s/final", ours.s).s);
    if (!difference)
        difference = last_checkpoint_differs(workspace_path("%s/checkpoint-12", reference.s).s,
                                             workspace_path("%s/checkpoint-12", ours.s).s);
    if (difference) fail_with(p, root, dir, "mixed", what, difference);
    log_event("mixed", "ended equal", 0);
}

static void hindered_in_all_ways_it_ends_equal(void **state)
{
    const char *root = *state;
    static program p;
    double seconds;
    make_reference(&p, root, &seconds);
    int points = count_points(&p, root);
    double start = now();
    for (int i = 0, times, n = 0, kills = n_kills(); i < kills; i += times, n++) {
        char what[512] = "";
        times = 1 + (int)mt_rng_below(23, 5, draw_of(i), 3); /* once, or again while it resumes */
        if (!is_mine(n, start)) continue;
        test_path dir = workspace_case(root, "case");
        for (int k = 0; k < times; k++)
            disturb(&p, root, dir.s, k > 0, points, seconds, 8 * draw_of(i) + (uint64_t)k, what, sizeof what);
        ends_with_the_same_run(&p, root, dir.s, what);
    }
}

/* -- signals --------------------------------------------------------------------------------------- */

/* Up to half a minute, which a busy machine may need. */
enum { TRIES = 15000 };
static void wait_a_little(void) { nanosleep(&(struct timespec){ 0, 2000000 }, NULL); }

/* Wait until the run has made its first checkpoint: it is in the middle of its steps then. */
static void wait_for_checkpoint(const char *dir)
{
    test_path path = workspace_path("%s/out/checkpoint-3", dir);
    for (int i = 0; i < TRIES && !mt_dir_exists(path.s); i++) wait_a_little();
}

/* Wait until a file has more than n bytes; returns how many it has. */
static size_t wait_for_more(const char *path, size_t n)
{
    struct stat st = { 0 };
    for (int i = 0; i < TRIES && !(stat(path, &st) == 0 && (size_t)st.st_size > n); i++) wait_a_little();
    return (size_t)st.st_size;
}

static test_path start_endless(program *p, const char *root)
{
    test_path dir = workspace_case(root, "case");
    set_up(p, root, dir.s, false);
    program_arg(p, "--num-steps=1000000");
    program_start(p);
    return dir;
}

/* The same, but no checkpoint is due before its end. */
static test_path start_rare(program *p, const char *root)
{
    test_path dir = workspace_case(root, "case");
    set_up(p, root, dir.s, false);
    program_arg(p, "--num-steps=1000000");
    program_arg(p, "--save-steps=0");
    program_start(p);
    return dir;
}

static int count_checkpoints(const char *dir)
{
    int n = 0;
    mt_err err = { 0 };
    mt_dir_names names;
    assert_ok(mt_dir_list(&names, workspace_path("%s/out", dir).s, &err));
    for (size_t i = 0; i < names.n; i++) n += strncmp(names.items[i], "checkpoint-", 11) == 0;
    mt_dir_names_free(&names);
    return n;
}

static void a_signal_finishes_the_step_saves_and_says_how_to_go_on(void **state)
{
    static program p;
    test_path dir = start_endless(&p, *state);
    wait_for_checkpoint(dir.s);
    kill(p.pid, SIGHUP); /* ignored */
    kill(p.pid, SIGTERM);
    assert_int_equal(program_wait(&p), 128 + SIGTERM);
    assert_printed(&p, "stopping after this step");
    assert_printed(&p, "--resume");
    const char *saved = strstr(p.text, "saved out/checkpoint-");
    assert_non_null(saved);
    for (const char *next; (next = strstr(saved + 1, "saved out/checkpoint-"));) saved = next;
    long step = strtol(saved + strlen("saved out/checkpoint-"), NULL, 10);
    assert_true(mt_file_exists(workspace_path("%s/out/checkpoint-%ld/checksums.json", dir.s, step).s));
}

static bool file_has(const char *path, const char *words)
{
    mt_err err = { 0 };
    char *text = NULL;
    bool has = !mt_file_read(&text, NULL, path, 1 << 20, &err) && strstr(text, words);
    mt_free(text);
    return has;
}

/* A run with a long evaluation at its end. */
static void start_evaluating(program *p, const char *root, const char *dir, bool resume)
{
    static test_path rows;
    rows = workspace_path("%s/many.json", root);
    set_up(p, root, dir, resume);
    const char *const more[] = { "--dataset-path", rows.s, "--val-size", "0.95", "--eval-steps", "0" };
    for (size_t i = 0; i < MT_COUNT(more); i++) program_arg(p, more[i]);
    program_start(p);
}

/* Then checkpoint-12 is from before it, and stays so: a resumed run makes the evaluation, as often as it is resumed. */
static void a_stop_in_the_last_evaluation_leaves_it_to_those_who_resume(void **state)
{
    const char *root = *state;
    static program p;
    bool stopped = false;
    workspace_write_rows(root, "many.json", 3000, 7);
    test_path reference = workspace_case(root, "reference"), dir = { 0 };
    start_evaluating(&p, root, reference.s, false);
    assert_int_equal(program_wait(&p), 0);
    for (int i = 0; i < 20 && !stopped; i++) {
        dir = workspace_case(root, "case");
        start_evaluating(&p, root, dir.s, false);
        test_path metrics = workspace_path("%s/out/metrics.jsonl", dir.s);
        for (int k = 0; k < TRIES && !file_has(metrics.s, "\"step\": 12"); k++) nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
        kill(p.pid, SIGTERM);
        program_wait(&p);
        stopped =
            file_has(workspace_path("%s/out/checkpoint-12/resume/state.json", dir.s).s, "\"unfinished\""); /* else too late */
    }
    assert_true(stopped);
    test_path ours = workspace_path("%s/out", dir.s), theirs = workspace_path("%s/out", reference.s);
    for (int again = 0; again < 2; again++) {
        start_evaluating(&p, root, dir.s, true);
        assert_int_equal(program_wait(&p), 0);
        assert_printed(&p, "evaluation loss");
        assert_true(
            workspace_same_file(workspace_path("%s/metrics.jsonl", theirs.s).s, workspace_path("%s/metrics.jsonl", ours.s).s));
    }
    assert_false(workspace_same_file(workspace_path("%s/checkpoint-12/resume/state.json", theirs.s).s,
                                     workspace_path("%s/checkpoint-12/resume/state.json", ours.s).s));
    char *difference =
        last_checkpoint_differs(workspace_path("%s/checkpoint-12", theirs.s).s, workspace_path("%s/checkpoint-12", ours.s).s);
    if (difference) fail_msg("%s", difference);
}

/* timeout(1) sends two at a time, which are one request. */
static void two_signals_at_a_time_are_one(void **state)
{
    static program p;
    test_path dir = start_endless(&p, *state);
    wait_for_checkpoint(dir.s);
    kill(p.pid, SIGTERM);
    kill(p.pid, SIGINT); /* another, since equal ones may arrive as one */
    program_wait(&p);
    assert_true(p.status == 128 + SIGTERM || p.status == 128 + SIGINT); /* two that wait are delivered in no order of ours */
    assert_printed(&p, "stopped after step");
}

/* So that `train && generate` and a queue see that there is more to do. */
static void ctrl_c_has_a_status_of_its_own(void **state)
{
    static program p;
    test_path dir = start_endless(&p, *state);
    wait_for_checkpoint(dir.s);
    kill(p.pid, SIGINT);
    assert_int_equal(program_wait(&p), 128 + SIGINT);
    assert_printed(&p, "to continue: the same command with --resume");
}

/* mpirun passes it on, and gives no time to save after the others. */
static void sigusr2_stops_and_saves(void **state)
{
    static program p;
    test_path dir = start_endless(&p, *state);
    wait_for_checkpoint(dir.s);
    kill(p.pid, SIGUSR2);
    assert_int_equal(program_wait(&p), 128 + SIGUSR2);
    assert_printed(&p, "to continue: the same command with --resume");
}

static void sigusr1_saves_and_the_run_goes_on(void **state)
{
    static program p;
    test_path dir = start_rare(&p, *state);
    test_path metrics = workspace_path("%s/out/metrics.jsonl", dir.s);
    size_t so_far = wait_for_more(metrics.s, 0);
    assert_int_equal(count_checkpoints(dir.s), 0);
    kill(p.pid, SIGUSR1);
    for (int i = 0; i < TRIES && count_checkpoints(dir.s) == 0; i++) wait_a_little();
    for (int i = 0; i < 2; i++) so_far = wait_for_more(metrics.s, so_far); /* some steps more */
    kill(p.pid, SIGTERM);
    assert_int_equal(program_wait(&p), 128 + SIGTERM);
    assert_printed(&p, "stopped after step");
    assert_int_equal(count_checkpoints(dir.s), 2);
}

/* Until nothing reads its output any more and it waits for that: it cannot come to the end of its step then. */
static void wait_until_stuck(const program *p)
{
    for (int i = 0, n = 0; i < TRIES && n < 4000; i++) {
        wait_a_little();
        assert_int_equal(ioctl(p->out, FIONREAD, &n), 0);
    }
}

static void a_second_signal_stops_at_once(void **state)
{
    static program p;
    test_path dir = start_endless(&p, *state);
    assert_true(fcntl(p.out, F_SETPIPE_SZ, 4096) == 4096);
    wait_until_stuck(&p);
    siginfo_t ended = { 0 };
    for (int i = 0; i < 20 && ended.si_pid == 0; i++) { /* the second, unless both arrive as one */
        kill(p.pid, SIGTERM);
        nanosleep(&(struct timespec){ 0, 700000000 }, NULL);
        if (i) assert_int_equal(waitid(P_PID, (id_t)p.pid, &ended, WEXITED | WNOWAIT | WNOHANG), 0);
    }
    assert_true(program_wait(&p) < 0);
    assert_null(strstr(p.text, "stopped after step"));
    set_up(&p, *state, dir.s, true);
    assert_int_equal(program_run(&p), 0); /* already past its 12 steps, or from the checkpoint on: it ends */
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(killed_at_file_operations_it_ends_equal), RUNS(killed_at_random_moments_it_ends_equal),
             RUNS(a_file_operation_that_fails_leaves_the_last_checkpoint_whole), RUNS(hindered_in_all_ways_it_ends_equal),
             RUNS(a_signal_finishes_the_step_saves_and_says_how_to_go_on), RUNS(two_signals_at_a_time_are_one),
             RUNS(a_stop_in_the_last_evaluation_leaves_it_to_those_who_resume), RUNS(ctrl_c_has_a_status_of_its_own),
             RUNS(sigusr2_stops_and_saves), RUNS(sigusr1_saves_and_the_run_goes_on), RUNS(a_second_signal_stops_at_once))
