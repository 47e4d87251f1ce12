/* A file that becomes shorter while it is mapped: the program says which one, and ends. */
#include "tempdir.h"

#include "cli/lost_page.h"

#include <signal.h>
#include <sys/wait.h>

enum { BYTES = 1 << 16 };

static void make_file(const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, BYTES), 0);
}

static _Noreturn void look_at_lost_page(const char *path)
{
    mt_map map;
    mt_lost_page_explain();
    if (mt_map_open(&map, path, NULL) || truncate(path, 0)) _exit(3);
    _exit(((const volatile uint8_t *)map.data)[BYTES - 1] ? 4 : 5);
}

static _Noreturn void send_signal(const char *path)
{
    (void)path;
    mt_lost_page_explain();
    raise(SIGBUS);
    _exit(3);
}

/* The status of a process that does `what`, and what it said. */
static int child(void (*what)(const char *path), const char *path, char *said, size_t cap)
{
    int ends[2], status;
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        what(path);
    }
    close(ends[1]);
    for (ssize_t got; n + 1 < cap && (got = read(ends[0], said + n, cap - 1 - n)) > 0;) n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_file_that_became_shorter_is_named(void **state)
{
    char *path = mt_path_join(*state, "a file.jsonl"), said[2048];
    make_file(path);
    int status = child(look_at_lost_page, path, said, sizeof said);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    if (!strstr(said, path) || !strstr(said, "the file has become shorter")) fail_msg("it said: %s", said);
    mt_free(path);
}

static void a_signal_that_was_sent_ends_the_process_as_ever(void **state)
{
    (void)state;
    char said[2048];
    int status = child(send_signal, "", said, sizeof said);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}

MT_TEST_MAIN(cmocka_unit_test_setup_teardown(a_file_that_became_shorter_is_named, tempdir_make, tempdir_remove),
             cmocka_unit_test(a_signal_that_was_sent_ends_the_process_as_ever))
