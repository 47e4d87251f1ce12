/* run/ranks.h: ranks take turns and compare what they are about to do.  Ranks are threads here; cli.launch has processes. */
#include "run/ranks.h"
#include "base/clock.h"
#include "tempdir.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

enum { RANKS = 3 };

typedef struct one {
    mt_comm *c;
    mt_rc (*body)(struct one *r, mt_err *err);
    const char *text[RANKS]; /* what each rank has of whatever is compared */
    mt_err err;
} one;

static void *rank_main(void *arg)
{
    one *r = arg;
    mt_rc rc = r->body(r, &r->err);
    if (rc) (r->c->api->fail)(r->c, &r->err);
    if (rc) (void)mt_comm_check(r->c, &r->err); /* the first failure of all, with its rank */
    if (!rc) r->err = (mt_err){ 0 };
    mt_comm_close(r->c);
    return NULL;
}

/* All ranks end well, or all with these words. */
static void run_some_ranks(int n, mt_rc (*body)(one *, mt_err *), const char *const text[RANKS], const char *says)
{
    mt_err err = { 0 };
    mt_comm *comms[RANKS];
    one ranks[RANKS];
    pthread_t threads[RANKS];
    assert_ok(mt_comm_threads(comms, n, &(mt_comm_options){ .timeout_s = 60 }, &err));
    for (int r = 0; r < n; r++) {
        ranks[r] = (one){ .c = comms[r], .body = body };
        for (int i = 0; i < RANKS; i++) ranks[r].text[i] = text[i];
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < n; r++) {
        if (!says && ranks[r].err.rc) fail_msg("rank %d: %s", r, ranks[r].err.msg);
        if (says && !strstr(ranks[r].err.msg, says)) fail_msg("rank %d: expected \"%s\" in: %s", r, says, ranks[r].err.msg);
    }
}

static void run_ranks(mt_rc (*body)(one *, mt_err *), const char *const text[RANKS], const char *says)
{
    run_some_ranks(RANKS, body, text, says);
}

/* -- settings -- */

static mt_rc compare_settings(one *r, mt_err *err)
{
    mt_settings s;
    const char *text = r->text[r->c->rank];
    const bool other = strcmp(text, "version") == 0;
    MT_TRY(mt_settings_init(&s, err));
    mt_rc rc = other ? MT_OK : mt_settings_parse(&s, text, strlen(text), "c.yaml", err);
    if (!rc) rc = mt_ranks_compare_settings(r->c, other ? "0.0.9" : "1.0.0", &s, err);
    mt_settings_deinit(&s);
    return rc;
}

static void a_setting_that_differs_is_named_with_both_ranks(void **state)
{
    (void)state;
    const char *const same[] = { "training: {batch_size: 8}", "training: {batch_size: 8}", "training: {batch_size: 8}" };
    run_ranks(compare_settings, same, NULL);
    const char *const other[] = { "training: {batch_size: 8}", "training: {batch_size: 8}", "training: {batch_size: 16}" };
    run_ranks(compare_settings, other,
              "rank 2 (machine2): training.batch_size is 8 on rank 0 (machine0) and 16 on rank 2 (machine2): every rank of a run "
              "needs the same");
    const char *const prompts[] = { "logging: {sample_steps: 8}", "logging: {sample_steps: 9}", "logging: {sample_steps: 8}" };
    run_ranks(compare_settings, prompts, "logging.sample_steps is 8 on rank 0 (machine0) and 9 on rank 1 (machine1)");
}

static void what_belongs_to_a_machine_may_differ(void **state)
{
    (void)state;
    const char *const own[] = { "model: {name: /a, device: cpu}\nmemory: {host_memory: 8G}\ndataset: {path: /a/x.json}",
                                "model: {name: /b}\nsave: {output_dir: /b/out}\nlogging: {color: true}",
                                "dataset: {num_workers: 7, cache_dir: /c}\nmemory: {optimizer_threads: 3}" };
    run_ranks(compare_settings, own, NULL);
    const char *const state_form[] = { "memory: {adam_state: bf16}", "memory: {adam_state: bf16}", "memory: {adam_state: 8bit}" };
    run_ranks(compare_settings, state_form, "memory.adam_state is bf16 on rank 0 (machine0) and 8bit on rank 2 (machine2)");
}

static void another_version_is_named_first(void **state)
{
    (void)state;
    const char *const versions[] = { "training: {batch_size: 8}", "version", "training: {batch_size: 8}" };
    run_ranks(compare_settings, versions, "megatrain's version is 1.0.0 on rank 0 (machine0) and 0.0.9 on rank 1 (machine1)");
}

/* -- facts -- */

static mt_rc compare_facts(one *r, mt_err *err)
{
    mt_rank_fact facts[2] = { { "the model", "a" }, { "the data", "" } };
    snprintf(facts[1].is, sizeof facts[1].is, "%s", r->text[r->c->rank]);
    return mt_ranks_compare(r->c, facts, 2, err);
}

static void the_first_fact_that_differs_is_named(void **state)
{
    (void)state;
    const char *const same[] = { "x", "x", "x" }, *const other[] = { "x", "y", "x" };
    run_ranks(compare_facts, same, NULL);
    run_ranks(compare_facts, other, "the data is x on rank 0 (machine0) and y on rank 1 (machine1)");
}

/* -- one directory -- */

static mt_rc share_dir(one *r, mt_err *err) { return mt_ranks_share_dir(r->c, r->text[r->c->rank], err); }

static void an_output_directory_that_is_not_shared_is_refused(void **state)
{
    const char *dir = *state;
    const char *const same[] = { dir, dir, dir }, *const other[] = { dir, "/nonexistent", dir };
    run_ranks(share_dir, same, NULL);
    run_ranks(share_dir, other,
              "the output directory /nonexistent is not the same one on rank 1 (machine1) as on rank 0 (machine0)");
    assert_int_equal(tempdir_count(dir, NULL), 0);
}

/* -- turns -- */

static atomic_int n_done;

static mt_rc work(void *user, mt_err *err)
{
    const one *r = user;
    if (r->c->rank == 0) nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    if (r->c->rank && atomic_load(&n_done) == 0) return mt_fail(err, MT_EINTERNAL, "not its turn");
    atomic_fetch_add(&n_done, 1);
    return strcmp(r->text[r->c->rank], "fails") == 0 ? mt_fail(err, MT_EIO, "not enough space") : MT_OK;
}

/* However long it takes: the timeout is shorter. */
static mt_rc take_turns(one *r, mt_err *err)
{
    r->c->patience_s = 0.01;
    return mt_ranks_in_turn(r->c, work, r, "the work", err);
}

static void the_first_rank_goes_first_and_the_others_wait(void **state)
{
    (void)state;
    const char *const fine[] = { "", "", "" }, *const first[] = { "fails", "", "" };
    atomic_store(&n_done, 0);
    run_ranks(take_turns, fine, NULL);
    assert_int_equal(atomic_load(&n_done), RANKS);
    run_ranks(take_turns, first, "rank 0 (machine0): not enough space");
}

static mt_rc take_first(one *r, mt_err *err)
{
    char text[16] = "";
    snprintf(text, sizeof text, "%s", r->text[r->c->rank]);
    MT_TRY(mt_ranks_take_first(r->c, text, sizeof text, "a word", err));
    return strcmp(text, r->text[0]) == 0 ? MT_OK : mt_fail(err, MT_EINTERNAL, "another word");
}

static void what_the_first_rank_has_is_everybodys(void **state)
{
    (void)state;
    const char *const words[] = { "one", "two", "three" };
    run_ranks(take_first, words, NULL);
}

/* -- the network -- */

/* text[0]: the rate that all have to have, or "" for any that is not 12345. */
static mt_rc find_rate(one *r, mt_err *err)
{
    double rate = 0, all[RANKS];
    MT_TRY(mt_ranks_network(r->c, &rate, err));
    MT_TRY(r->c->api->tell(r->c, &rate, sizeof rate, all, "a rate", err));
    for (int i = 0; i < r->c->n_ranks; i++)
        if (!(rate > 0) || all[i] != rate) return mt_fail(err, MT_EINTERNAL, "ranks have different rates");
    if (*r->text[0] ? rate != atof(r->text[0]) : rate == 12345)
        return mt_fail(err, MT_EINTERNAL, "the rate is %.17g instead of %s", rate, *r->text[0] ? r->text[0] : "a new one");
    return MT_OK;
}

/* The one file of a network in the cache, whatever its name. */
static void replace_remembered(const char *cache, const char *text, double age_s)
{
    DIR *d = opendir(cache);
    int n = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "network-", 8) != 0) continue;
        int fd = openat(dirfd(d), e->d_name, O_WRONLY | O_TRUNC);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        const struct timespec then = { .tv_sec = time(NULL) - (time_t)age_s };
        assert_int_equal(futimens(fd, (const struct timespec[]){ then, then }), 0);
        close(fd);
        n++;
    }
    closedir(d);
    assert_int_equal(n, 1);
}

static void the_network_is_measured_once_for_a_set_of_hosts(void **state)
{
    static const char *const any[] = { "", "", "" }, *const kept[] = { "12345", "", "" };
    char *cache = mt_path_join(*state, "megatrain");
    setenv("XDG_CACHE_HOME", *state, 1);
    run_ranks(find_rate, any, NULL);
    replace_remembered(cache, "network 12345\n", 1e6);
    run_ranks(find_rate, kept, NULL);
    replace_remembered(cache, "network 12345\nbusy\n", 10);
    run_ranks(find_rate, kept, NULL);
    replace_remembered(cache, "network 12345\nbusy\n", 100); /* what was measured on busy cores holds for a minute */
    run_ranks(find_rate, any, NULL);
    replace_remembered(cache, "network nonsense\n", 0);
    run_ranks(find_rate, any, NULL);
    replace_remembered(cache, "network 12345\n", 0);
    run_some_ranks(2, find_rate, any, NULL); /* other ranks */
    run_ranks(find_rate, kept, NULL);
    assert_int_equal(tempdir_count(cache, NULL), 2);
    void *inner = cache;
    assert_int_equal(tempdir_remove(&inner), 0); /* frees the name, too */
}

MT_TEST_MAIN(cmocka_unit_test_setup_teardown(the_network_is_measured_once_for_a_set_of_hosts, tempdir_make, tempdir_remove),
             cmocka_unit_test(a_setting_that_differs_is_named_with_both_ranks),
             cmocka_unit_test(what_belongs_to_a_machine_may_differ), cmocka_unit_test(another_version_is_named_first),
             cmocka_unit_test(the_first_fact_that_differs_is_named),
             cmocka_unit_test_setup_teardown(an_output_directory_that_is_not_shared_is_refused, tempdir_make, tempdir_remove),
             cmocka_unit_test(the_first_rank_goes_first_and_the_others_wait),
             cmocka_unit_test(what_the_first_rank_has_is_everybodys))
