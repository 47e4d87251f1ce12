/* Bytes between machines (src/comm), with machines as threads: what was sent arrives, whatever the order, and whatever goes wrong
 * ends every rank with the same words.  test_comm_mpi.c has the same cases as an MPI job. */
#include "comm_cases.h"

#include <pthread.h>

enum { MOST_RANKS = 5 };

typedef struct one_rank {
    mt_comm *c;
    const comm_case *is;
    const char *ended;
    mt_err err;
} one_rank;

static void *rank_main(void *arg)
{
    one_rank *r = arg;
    r->ended = r->is->run(r->c, &r->err);
    mt_comm_close(r->c);
    return NULL;
}

static void run_case(const comm_case *k, int n, const mt_comm_options *o)
{
    mt_err err = { 0 };
    mt_comm *comms[MOST_RANKS];
    one_rank ranks[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    assert_ok(mt_comm_threads(comms, n, o, &err));
    for (int r = 0; r < n; r++) {
        ranks[r] = (one_rank){ .c = comms[r], .is = k };
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    mt_fault_disarm();
    for (int r = 0; r < n; r++) {
        const char *wrong = case_verdict(k, ranks[r].ended, &ranks[r].err);
        if (wrong) fail_msg("%s, rank %d of %d: %s (%s)", k->name, r, n, wrong, ranks[r].err.msg);
    }
}

static void every_case_holds_for_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(comm_cases); i++)
        run_case(&comm_cases[i], 3 + (int)(i % 3), &(mt_comm_options){ .timeout_s = 10, .piece_bytes = CASE_PIECE_BYTES });
}

static void dawdling_changes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        run_case(&comm_cases[i], 2 + (int)i,
                 &(mt_comm_options){ .timeout_s = 30, .piece_bytes = CASE_PIECE_BYTES, .dawdle_us = 300 });
}

/* -- silence -- */

static const char *case_silent(mt_comm *c, mt_err *err)
{
    if (c->rank != 1) return c->rank == 0 ? waits(c, 1, err) : until_it_fails(c, err);
    case_sleep_ms(1500);
    return until_it_fails(c, err);
}

static void a_silent_rank_is_named_with_what_was_waited_for(void **state)
{
    (void)state;
    const comm_case silent = { "silent",
                               case_silent,
                               { "rank 0 (machine0): waited ", "s for the gradient of layer 12 from rank 1 (machine1)",
                                 ", which is silent: its process, its machine or its network is down" } };
    run_case(&silent, 3, &(mt_comm_options){ .timeout_s = 0.4 });
}

/* -- everything that can fail -- */

static const char *case_small(mt_comm *c, mt_err *err) { return trade(c, 77, err); }

/* One message of the exchange fails: some rank says which, and all end. */
static void every_message_may_fail(void **state)
{
    (void)state;
    const char *stride = getenv("MT_FAULT_STRIDE");
    for (int n = 0;; n += stride ? atoi(stride) : 7) {
        mt_err err = { 0 };
        mt_comm *comms[3];
        one_rank ranks[3];
        pthread_t threads[3];
        const comm_case small = { "small", case_small, { NULL } };
        assert_ok(mt_comm_threads(comms, 3,
                                  &(mt_comm_options){ .timeout_s = 30, .piece_bytes = CASE_PIECE_BYTES, .dawdle_us = 50 }, &err));
        mt_fault_arm(MT_FAULT_PARCEL, n);
        for (int r = 0; r < 3; r++) {
            ranks[r] = (one_rank){ .c = comms[r], .is = &small };
            assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
        }
        for (int r = 0; r < 3; r++) pthread_join(threads[r], NULL);
        const bool failed = mt_fault_disarm();
        for (int r = 0; r < 3; r++) {
            if (!ranks[r].ended) continue; /* it had all it needed before */
            assert_true(failed);
            assert_string_equal(ranks[r].ended, "failed");
            assert_non_null(strstr(ranks[r].err.msg, "a ware"));
        }
        if (!failed) break;
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int n = 0;; n++) {
        mt_err err = { 0 };
        mt_comm *comms[2] = { NULL };
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = mt_comm_threads(comms, 2, NULL, &err);
        const bool failed = mt_fault_disarm();
        if (!rc) {
            for (int r = 0; r < 2; r++) mt_comm_close(comms[r]);
            assert_false(failed);
            break;
        }
        assert_int_equal(rc, MT_ENOMEM);
        assert_null(comms[0]);
        assert_null(comms[1]);
    }
}

/* -- alone, and launchers -- */

static void one_rank_has_its_own_record_and_nobody_to_send_to(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_comm *c = mt_comm_alone();
    int mine = 7, all = 0;
    assert_int_equal(c->n_ranks, 1);
    assert_ok(c->api->tell(c, &mine, sizeof mine, &all, "a record", &err));
    assert_int_equal(all, 7);
    assert_ok(mt_comm_check(c, &err));
    assert_true(mt_comm_speaks(c));
    assert_int_equal(c->api->post(c, &(mt_parcel){ .peer = 1, .what = "a parcel" }, &err), MT_EINTERNAL);
    assert_says("has only one rank");
    mt_comm_close(c);
    mt_comm_close(NULL);
}

static void no_parcel_goes_to_oneself_or_nowhere(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_comm *c[2];
    assert_ok(mt_comm_threads(c, 2, NULL, &err));
    assert_int_equal(c[0]->api->post(c[0], &(mt_parcel){ .peer = 0, .what = "a parcel" }, &err), MT_EINTERNAL);
    assert_int_equal(c[0]->api->post(c[0], &(mt_parcel){ .peer = 2, .what = "a parcel" }, &err), MT_EINTERNAL);
    assert_int_equal(c[0]->api->post(c[0], &(mt_parcel){ .peer = 1, .tag = MT_COMM_TAGS, .what = "a parcel" }, &err),
                     MT_EINTERNAL);
    assert_says("a parcel: no parcel goes from rank 0 to rank 1 of 2 with tag 1048576");
    for (int r = 0; r < 2; r++) mt_comm_close(c[r]);
}

static void without_a_launcher_a_process_is_alone(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_comm *c = NULL;
    assert_ok(mt_comm_launched(&c, NULL, &err));
    assert_ptr_equal(c, mt_comm_alone());
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_ok(mt_comm_launched(&c, NULL, &err));
    assert_ptr_equal(c, mt_comm_alone());
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

static void torchrun_is_answered_with_the_command_to_use(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_comm *c = NULL;
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    setenv("LOCAL_WORLD_SIZE", "8", 1);
    setenv("WORLD_SIZE", "32", 1);
    assert_int_equal(mt_comm_launched(&c, NULL, &err), MT_EINVAL);
    assert_says("mpirun -n 4 --map-by ppr:1:node megatrain train FILE.yaml --devices all");
    setenv("WORLD_SIZE", "8", 1);
    assert_int_equal(mt_comm_launched(&c, NULL, &err), MT_EINVAL);
    assert_says("Start it alone, with megatrain train FILE.yaml --devices all");
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("LOCAL_WORLD_SIZE");
    unsetenv("WORLD_SIZE");
    assert_null(c);
}

MT_TEST_MAIN(cmocka_unit_test(every_case_holds_for_threads), cmocka_unit_test(dawdling_changes_nothing),
             cmocka_unit_test(a_silent_rank_is_named_with_what_was_waited_for), cmocka_unit_test(every_message_may_fail),
             cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(one_rank_has_its_own_record_and_nobody_to_send_to),
             cmocka_unit_test(no_parcel_goes_to_oneself_or_nowhere), cmocka_unit_test(without_a_launcher_a_process_is_alone),
             cmocka_unit_test(torchrun_is_answered_with_the_command_to_use))
