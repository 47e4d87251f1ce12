/* What a run leaves does not depend on the number of machines: checkpoints, metrics and the finished model, byte for byte, also when
 * each part of the run has another number of them.  Machines are threads of one process here, each with a trainer. */
#include "machines.h"
#include "workspace.h"

#include "base/fault.h"
#include "run/train.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>

typedef struct part {
    int machines;
    int64_t stop_at; /* the last machine is asked to stop after this step; 0: none is */
    const char *resume;
    const char *(*settings)[2]; /* keys and values; ends with NULL */
} part;

typedef struct rank {
    mt_settings s;
    mt_comm *comm;
    int64_t stop_at;
    atomic_llong step;
    mt_train_result result;
    mt_err err; /* .rc: how it ended */
    pthread_t thread;
} rank;

static void after_step(void *user, const mt_train_step *step) { atomic_store(&((rank *)user)->step, step->step); }

static int stop(void *user)
{
    rank *r = user;
    return r->stop_at && atomic_load(&r->step) >= r->stop_at ? SIGUSR2 : 0;
}

static void *rank_main(void *arg)
{
    rank *r = arg;
    mt_trainer *t = NULL;
    const mt_train_hooks hooks = { .user = r, .step = after_step, .stop = stop, .comm = r->comm };
    mt_rc rc = mt_settings_check(&r->s, MT_NEED_MODEL | MT_NEED_DATA, &r->err);
    if (!rc) rc = mt_trainer_open(&t, &r->s, &hooks, &r->err);
    if (!rc) rc = mt_trainer_run(t, &r->result, &r->err);
    if (!rc) r->err = (mt_err){ 0 };
    mt_trainer_close(t);
    mt_comm_close(r->comm);
    return NULL;
}

static void set(rank *r, const char *key, const char *value)
{
    mt_err err = { 0 };
    assert_ok(mt_settings_set(&r->s, key, value, "test", &err));
}

static void set_up(rank *r, const char *root, const part *p)
{
    mt_err err = { 0 };
    assert_ok(mt_settings_init(&r->s, &err));
    set(r, "model.name", workspace_path("%s/model", root).s);
    set(r, "model.device", "cpu");
    set(r, "dataset.path", workspace_path("%s/rows.json", root).s);
    set(r, "training.from_scratch", "true");
    set(r, "training.num_steps", "5");
    set(r, "training.batch_size", "8");
    set(r, "training.bundles", "3");
    set(r, "training.learning_rate", "3e-3");
    set(r, "eval.val_size", "0.1");
    set(r, "save.save_steps", "2");
    set(r, "save.output_dir", workspace_path("%s/out", root).s);
    set(r, "logging.enable_timing", "false");
    if (p->resume) set(r, "save.resume", p->resume);
    for (int i = 0; p->settings && p->settings[i][0]; i++) set(r, p->settings[i][0], p->settings[i][1]);
}

/* In ROOT/out. */
static void run_part(const char *root, const part *p, rank *ranks)
{
    mt_err err = { 0 };
    mt_comm *comms[MOST_MACHINES] = { NULL };
    if (p->machines > 1) assert_ok(mt_comm_threads(comms, p->machines, &(mt_comm_options){ .dawdle_us = 100 }, &err));
    for (int i = 0; i < p->machines; i++) {
        ranks[i] = (rank){ .comm = comms[i], .stop_at = i + 1 == p->machines ? p->stop_at : 0 };
        set_up(&ranks[i], root, p);
    }
    for (int i = 0; i < p->machines; i++) assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    for (int i = 0; i < p->machines; i++) pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < p->machines; i++) mt_settings_deinit(&ranks[i].s);
}

static void run_ok(const char *root, const part *p)
{
    rank ranks[MOST_MACHINES];
    run_part(root, p, ranks);
    for (int i = 0; i < p->machines; i++) {
        if (ranks[i].err.rc) fail_msg("rank %d of %d: %s", i, p->machines, ranks[i].err.msg);
        assert_int_equal(ranks[i].result.stopped, p->stop_at > 0 ? SIGUSR2 : 0); /* every rank knows why */
        assert_int_equal(ranks[i].result.step, p->stop_at ? p->stop_at : 5);
    }
}

/* ROOT/out is the run now; it gets its own name. */
static test_path keep(const char *root, const char *name)
{
    const test_path to = workspace_path("%s/%s", root, name);
    assert_int_equal(rename(workspace_path("%s/out", root).s, to.s), 0);
    return to;
}

static void assert_same(test_path a, test_path b)
{
    char *difference = workspace_difference(a.s, b.s);
    if (difference) fail_msg("%s and %s: %s", a.s, b.s, difference);
}

static void check_numbers(const char *root, const char *(*settings)[2])
{
    run_ok(root, &(part){ .machines = 1, .settings = settings });
    const test_path one = keep(root, "one");
    for (int machines = 2; machines <= 4; machines++) {
        run_ok(root, &(part){ .machines = machines, .settings = settings });
        const test_path several = keep(root, "several");
        assert_same(one, several);
        mt_err err = { 0 };
        assert_ok(mt_dir_remove(several.s, &err));
    }
    /* A stop on one of them stops all after the same step, and any number resumes. */
    run_ok(root, &(part){ .machines = 2, .stop_at = 1, .settings = settings });
    run_ok(root, &(part){ .machines = 3, .stop_at = 3, .settings = settings, .resume = "latest" });
    run_ok(root, &(part){ .machines = 1, .settings = settings, .resume = "latest" });
    const test_path parts = keep(root, "parts");
    static const char *const files[] = { "metrics.jsonl", "final", "checkpoint-5" };
    for (size_t i = 0; i < MT_COUNT(files); i++) {
        const test_path a = workspace_path("%s/%s", one.s, files[i]), b = workspace_path("%s/%s", parts.s, files[i]);
        if (i == 0)
            assert_true(workspace_same_file(a.s, b.s));
        else if (i == 1)
            assert_same(a, b);
        else
            for (int unit = 0; unit < WORKSPACE_LAYERS + 2; unit++)
                assert_true(workspace_same_file(workspace_path("%s/resume/unit-%03d.safetensors", a.s, unit).s,
                                                workspace_path("%s/resume/unit-%03d.safetensors", b.s, unit).s));
    }
}

static void the_number_of_machines_changes_no_file(void **state) { check_numbers(*state, NULL); }

static void so_it_is_without_clipping_and_with_smaller_moments(void **state)
{
    static const char *settings[][2] = {
        { "training.max_grad_norm", "0" },
        { "memory.adam_state", "8bit" },
        { "save.keep_last", "1" },
        { "save.max_shard_size", "20K" }, /* several files, which machines share out */
        { NULL, NULL },
    };
    check_numbers(*state, settings);
}

/* Whatever fails on any rank, all of them end; a resumed run leaves what an undisturbed one does. */
static void a_failed_file_ends_all_machines(void **state)
{
    const char *root = *state;
    rank ranks[MOST_MACHINES];
    run_ok(root, &(part){ .machines = 1 });
    const test_path one = keep(root, "one");
    int hits = 0;
    for (long n = 40; n < 400; n += getenv("MT_THOROUGH") ? 7 : 90) {
        const part p = { .machines = 2 };
        mt_err err = { 0 };
        mt_fault_arm(MT_FAULT_FILE, n);
        run_part(root, &p, ranks);
        if (mt_fault_disarm()) hits++;
        assert_int_equal(ranks[0].err.rc != MT_OK, ranks[1].err.rc != MT_OK);
        if (ranks[0].err.rc) {
            run_ok(root, &(part){ .machines = 3, .resume = "latest" });
            const test_path again = keep(root, "again");
            assert_same(workspace_path("%s/final", one.s), workspace_path("%s/final", again.s));
            assert_ok(mt_dir_remove(again.s, &err));
        } else {
            assert_ok(mt_dir_remove(workspace_path("%s/out", root).s, &err));
        }
    }
    assert_true(hits > 0);
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

int main(void)
{
    const struct CMUnitTest tests[] = { RUNS(the_number_of_machines_changes_no_file),
                                        RUNS(so_it_is_without_clipping_and_with_smaller_moments),
                                        RUNS(a_failed_file_ends_all_machines) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
