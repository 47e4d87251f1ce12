/* The number of ranks changes nothing: MPI jobs of the program leave the same bytes, also when ranks are killed and the run is resumed
 * on another number of them.  MT_KILLS=200 draws more kills. */
#include "draw.h"
#include "mpirun.h"
#include "workspace.h"

#define DATA MT_TESTS_DIR "/../data"

static program p;

static const char *program_path(void)
{
    const char *elsewhere = getenv("MT_PROGRAM");
    return elsewhere ? elsewhere : MT_BINARY;
}

static void add_words(const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) program_arg(&p, words[i]);
}

/* The demo's model: 20 steps, a checkpoint after 8 and after 16, an evaluation. */
static void add_demo(void)
{
    const char *const words[] = { "train",
                                  "--model-name",
                                  DATA "/demo_model",
                                  "--dataset-dir",
                                  DATA,
                                  "--set",
                                  "dataset.name=demo",
                                  "--eval-dataset",
                                  "demo_test",
                                  "--eval-max-samples",
                                  "16",
                                  "--max-seq-len",
                                  "64",
                                  "--from-scratch",
                                  "--device",
                                  "cpu",
                                  "--batch-size",
                                  "8",
                                  "--num-steps",
                                  "20",
                                  "--save-steps",
                                  "8",
                                  "--set",
                                  "save.max_shard_size=2M",
                                  "--bundles",
                                  "4",
                                  "--enable-timing",
                                  "false",
                                  "--cache-dir",
                                  "../cache",
                                  "--output-dir",
                                  "out" };
    add_words(words, MT_COUNT(words));
}

static void one_to_four_ranks_leave_the_same_bytes(void **state)
{
    const char *root = *state;
    MPIRUN_OR_SKIP();
    for (int n = 1; n <= 4; n++) {
        test_path dir = workspace_path("%s/ranks%d", root, n);
        assert_int_equal(mkdir(dir.s, 0777), 0);
        mpirun_init(&p, dir.s, n, program_path());
        add_demo();
        if (program_run(&p)) fail_msg("%d ranks: %s", n, p.text);
        char *what = workspace_difference(workspace_path("%s/ranks1/out", root).s, workspace_path("%s/out", dir.s).s);
        if (what) fail_msg("%d ranks: %s", n, what);
    }
}

/* -- kills ----------------------------------------------------------------------------------------- */

static void write_small(const char *root)
{
    workspace_write(root, "small.yaml",
                    "model: {name: ../model, device: cpu}\n"
                    "dataset: {path: ../rows.json}\n"
                    "training: {from_scratch: true, batch_size: 8, num_steps: 12, bundles: 4}\n"
                    "save: {output_dir: out, save_steps: 3}\n"
                    "logging: {enable_timing: false}\n");
}

/* This many ranks; fault: "MT_FAULT=..." for them, or NULL. */
static void add_ranks(int n, const char *fault)
{
    static char counts[4][16];
    static int at;
    char *count = counts[at++ % 4];
    if (!n) return;
    snprintf(count, sizeof counts[0], "%d", n);
    if (p.n_args > 4) program_arg(&p, ":");
    add_words((const char *const[]){ "-n", count }, 2);
    if (fault) add_words((const char *const[]){ "-x", fault }, 2);
    add_words((const char *const[]){ program_path(), "train", "../small.yaml", "--resume" }, 4);
}

/* n ranks, of which one dies at some message or some operation on a file; fault NULL: none. */
static void run_small(const char *dir, int n, int victim, const char *fault)
{
    mpirun_init(&p, dir, 0, NULL);
    add_ranks(victim, NULL);
    add_ranks(1, fault);
    add_ranks(n - victim - 1, NULL);
    program_run(&p);
}

static void killed_ranks_resumed_by_other_numbers_end_equal(void **state)
{
    const char *root = *state, *kills = getenv("MT_KILLS");
    const int most = kills ? atoi(kills) : 4;
    MPIRUN_OR_SKIP();
    dice d = { .seed = kills ? (uint64_t)time(NULL) : 5 };
    write_small(root);
    test_path whole = workspace_case(root, "whole"), dir = workspace_case(root, "killed");
    run_small(whole.s, 1, 0, NULL);
    if (p.status) fail_msg("%s", p.text);
    int n_killed = 0;
    for (int i = 0; i < most; i++) {
        const int n = 2 + roll(&d, 3), victim = roll(&d, n);
        char fault[64];
        if (roll(&d, 2))
            snprintf(fault, sizeof fault, "MT_FAULT=kill:file:%d", roll(&d, victim ? 100 : 150));
        else
            snprintf(fault, sizeof fault, "MT_FAULT=kill:parcel:%d", roll(&d, 3000));
        run_small(dir.s, n, victim, fault);
        n_killed += p.status != 0;
        if (p.status && !strstr(p.text, "mpirun noticed that process rank"))
            fail_msg("seed %d, kill %d: %s", (int)d.seed, i, p.text);
        const bool last = i + 1 == most;
        if (p.status && !last) continue;
        if (p.status) run_small(dir.s, 1 + roll(&d, 4), 0, NULL);
        if (p.status) fail_msg("seed %d, kill %d: %s", (int)d.seed, i, p.text);
        char *what = workspace_difference(workspace_path("%s/out", whole.s).s, workspace_path("%s/out", dir.s).s);
        if (what) fail_msg("seed %d, after %d kills: %s", (int)d.seed, n_killed, what);
        dir = workspace_case(root, "killed");
    }
    print_message("%d of %d jobs were killed\n", n_killed, most);
    assert_true(n_killed > 0);
}

#define IN_WORKSPACE(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)
MT_TEST_MAIN(IN_WORKSPACE(one_to_four_ranks_leave_the_same_bytes), IN_WORKSPACE(killed_ranks_resumed_by_other_numbers_end_equal))
