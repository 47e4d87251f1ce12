/* The cases of test_comm.c as an MPI job on this machine: this program starts itself under mpirun, and each rank runs one case. */
#include "comm_cases.h"
#include "mpirun.h"

static char self[1024];

/* -- a rank ---------------------------------------------------------------------------------------- */

static void last_words(void *unused, const mt_err *e)
{
    (void)unused;
    printf("by force: %s\n", e->msg);
    fflush(stdout);
}

/* Rank 1 stops with all its threads. */
static const char *case_stopped(mt_comm *c, mt_err *err)
{
    if (c->rank == 1) raise(SIGSTOP);
    return waits(c, (c->rank + 1) % c->n_ranks, err);
}

/* Rank 0 does not come back to see that the run has failed. */
static const char *case_elsewhere(mt_comm *c, mt_err *err)
{
    if (c->rank == 1) (c->api->fail)(c, &(mt_err){ .rc = MT_EIO, .msg = "the disk is gone" });
    if (c->rank == 0) case_sleep_ms(20000);
    return until_it_fails(c, err);
}

/* Rank 1 is killed; the launcher notices. */
static const char *case_killed(mt_comm *c, mt_err *err)
{
    if (c->rank == 1) raise(SIGKILL);
    return until_it_fails(c, err);
}

static const comm_case mpi_cases[] = {
    { "stopped", case_stopped, { " rank 1 (", ", which is silent" } },
    { "elsewhere", case_elsewhere, { "the disk is gone" } },
    { "killed", case_killed, { "nothing" } },
};

static const comm_case *case_of(const char *name)
{
    for (size_t i = 0; i < MT_COUNT(comm_cases); i++)
        if (strcmp(comm_cases[i].name, name) == 0) return &comm_cases[i];
    for (size_t i = 0; i < MT_COUNT(mpi_cases); i++)
        if (strcmp(mpi_cases[i].name, name) == 0) return &mpi_cases[i];
    return NULL;
}

static int rank_main(const char *name)
{
    const comm_case *k = case_of(name);
    const mt_comm_options o = { .timeout_s = 8, .piece_bytes = CASE_PIECE_BYTES, .last = last_words };
    mt_err err = { 0 };
    mt_comm *c = NULL;
    if (!k || mt_comm_launched(&c, &o, &err)) return printf("not opened: %s\n", err.msg), 2;
    const bool forever = strcmp(name, "late_in_turn") != 0 && strcmp(name, "late") != 0;
    if (forever) c->patience_s = 0;
    const char *wrong = case_verdict(k, k->run(c, &err), &err);
    const bool speaks = mt_comm_speaks(c), failed = err.rc != MT_OK;
    if (wrong) printf("rank %d: %s (%s)\n", c->rank, wrong, err.msg);
    if (failed && speaks) printf("rank %d says: %s\n", c->rank, err.msg);
    fflush(stdout);
    mt_comm_close(c);
    return wrong ? 3 : failed;
}

/* -- the tests ------------------------------------------------------------------------------------- */

static program p;

static void run_ranks(int n, const char *name)
{
    mpirun_init(&p, "/", n, self);
    program_arg(&p, "rank");
    program_arg(&p, name);
    program_run(&p);
}

static void every_case_holds_for_mpi(void **state)
{
    (void)state;
    MPIRUN_OR_SKIP();
    setenv("MT_DRAWS", "8", 1);
    for (size_t i = 0; i < MT_COUNT(comm_cases); i++) {
        const comm_case *k = &comm_cases[i];
        run_ranks(3 + (int)(i % 2), k->name);
        if (!k->says[0] && p.status == 0) continue;
        if (!k->says[0] || p.status != 1) fail_msg("%s ended with %d: %s", k->name, p.status, p.text);
        for (size_t s = 0; s < MT_COUNT(k->says); s++)
            if (k->says[s]) assert_printed(&p, k->says[s]);
    }
}

static void a_stopped_rank_is_silent(void **state)
{
    (void)state;
    MPIRUN_OR_SKIP();
    run_ranks(3, "stopped");
    assert_int_equal(p.status, 1);
    assert_printed(&p, "rank 0 says: rank "); /* 0, which waits for its gradient, or 2, which waits to hear from it */
    assert_printed(&p, " rank 1 (");
    assert_printed(&p, ", which is silent: its process, its machine or its network is down");
}

static void a_process_that_does_not_end_is_ended_with_its_last_words(void **state)
{
    (void)state;
    MPIRUN_OR_SKIP();
    const double began = mt_now_s();
    run_ranks(2, "elsewhere");
    assert_int_equal(p.status, 1);
    assert_printed(&p, "by force: rank 1 (");
    assert_printed(&p, "the disk is gone");
    assert_true(mt_now_s() - began < 15);
}

static void a_killed_rank_ends_the_job_and_is_named(void **state)
{
    (void)state;
    MPIRUN_OR_SKIP();
    const double began = mt_now_s();
    run_ranks(3, "killed");
    assert_int_not_equal(p.status, 0);
    assert_printed(&p, "rank 1");
    assert_true(mt_now_s() - began < 15);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0) return rank_main(argv[2]);
    assert_true(realpath(argv[0], self) != NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_holds_for_mpi),
        cmocka_unit_test(a_stopped_rank_is_silent),
        cmocka_unit_test(a_process_that_does_not_end_is_ended_with_its_last_words),
        cmocka_unit_test(a_killed_rank_ends_the_job_and_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
