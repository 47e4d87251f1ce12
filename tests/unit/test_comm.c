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

/* -- receives in turn -- */

enum { TURN_RANKS = 4, TURN_BYTES = 5 * CASE_PIECE_BYTES + 7 };

typedef struct turn_taking {
    unsigned char data[TURN_RANKS][TURN_BYTES];
    int n_done, order[TURN_RANKS]; /* the senders, as their parcels came */
    bool shared;                   /* one was under way while another came */
} turn_taking;

static int count_filled(const unsigned char *data)
{
    int n = 0;
    for (int i = 0; i < TURN_BYTES; i++) n += data[i] != 0;
    return n;
}

static void turn_done(void *self, void *mark)
{
    turn_taking *t = self;
    t->order[t->n_done++] = (int)(intptr_t)mark;
    for (int r = 1; r < TURN_RANKS; r++) {
        const int filled = count_filled(t->data[r]);
        t->shared |= filled > 0 && filled < TURN_BYTES;
    }
}

static const char *receive_turns(mt_comm *c, turn_taking *t, mt_err *err)
{
    memset(t, 0, sizeof *t);
    for (int r = 1; r < TURN_RANKS; r++) {
        const mt_parcel p = { .peer = r,
                              .in_turn = true,
                              .data = t->data[r],
                              .bytes = TURN_BYTES,
                              .what = "a part",
                              .done = turn_done,
                              .self = t,
                              .mark = (void *)(intptr_t)r };
        if (c->api->post(c, &p, err)) return "failed";
    }
    while (t->n_done < TURN_RANKS - 1)
        if (c->api->advance(c, mt_now_ns() + 100000000, err)) return "failed";
    for (int r = 1; r < TURN_RANKS; r++)
        if (count_filled(t->data[r]) != TURN_BYTES) return "not all of a parcel is there";
    return NULL;
}

static void one_sent(void *self, void *mark)
{
    (void)mark;
    *(bool *)self = true;
}

static const char *send_turn(mt_comm *c, mt_err *err)
{
    unsigned char data[TURN_BYTES];
    bool sent = false;
    memset(data, c->rank, sizeof data);
    const mt_parcel p = { .sends = true, .data = data, .bytes = sizeof data, .what = "a part", .done = one_sent, .self = &sent };
    if (c->api->post(c, &p, err)) return "failed";
    while (!sent)
        if (c->api->advance(c, mt_now_ns() + 100000000, err)) return "failed";
    return NULL;
}

static const char *case_turns(mt_comm *c, mt_err *err)
{
    for (int i = 0; i < 30; i++) {
        turn_taking t;
        const char *wrong = c->rank ? send_turn(c, err) : receive_turns(c, &t, err);
        if (wrong) return wrong;
        if (c->rank == 0 && t.shared) return "a rank heard from two senders at once";
    }
    return NULL;
}

/* The first in the order of posting is late, and the others do not wait for it. */
static const char *case_late_turn(mt_comm *c, mt_err *err)
{
    turn_taking t;
    if (c->rank == 1) case_sleep_ms(400);
    const char *wrong = c->rank ? send_turn(c, err) : receive_turns(c, &t, err);
    if (!wrong && c->rank == 0 && t.order[TURN_RANKS - 2] != 1) return "a late rank held up another";
    return wrong;
}

static const char *case_wide_turns(mt_comm *c, mt_err *err)
{
    bool shared = false;
    c->window_bytes = 1e9;
    for (int i = 0; i < 30; i++) {
        turn_taking t;
        const char *wrong = c->rank ? send_turn(c, err) : receive_turns(c, &t, err);
        if (wrong) return wrong;
        shared |= c->rank == 0 && t.shared;
    }
    return c->rank || shared ? NULL : "never were two under way";
}

static void receives_in_turn_come_one_after_the_other(void **state)
{
    (void)state;
    const mt_comm_options o = { .timeout_s = 30, .piece_bytes = CASE_PIECE_BYTES, .dawdle_us = 100 };
    run_case(&(comm_case){ "turns", case_turns, { NULL } }, TURN_RANKS, &o);
    run_case(&(comm_case){ "a late turn", case_late_turn, { NULL } }, TURN_RANKS, &o);
    run_case(&(comm_case){ "wide turns", case_wide_turns, { NULL } }, TURN_RANKS, &o);
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
             cmocka_unit_test(receives_in_turn_come_one_after_the_other),
             cmocka_unit_test(a_silent_rank_is_named_with_what_was_waited_for), cmocka_unit_test(every_message_may_fail),
             cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(one_rank_has_its_own_record_and_nobody_to_send_to),
             cmocka_unit_test(no_parcel_goes_to_oneself_or_nowhere), cmocka_unit_test(without_a_launcher_a_process_is_alone),
             cmocka_unit_test(torchrun_is_answered_with_the_command_to_use))
