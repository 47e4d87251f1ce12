/* src/run/output_dir.c: the lock, on file systems that have one and on those that have not; the list of what runs have
 * written. */
#include "tempdir.h"

#include "base/log.h"
#include "base/outfile.h"
#include "ckpt/outdir.h"
#include "run/output_dir.h"
#include "run/run_files.h"

#include <errno.h>
#include <pthread.h>
#include <sys/file.h>
#include <time.h>

static int lock_says; /* 0: it is ours, else errno */

static bool late; /* the holder of the lock writes its id only after we were refused */
static pthread_t holder;

static void *write_id(void *arg)
{
    int *fd = arg;
    nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
    if (pwrite(*fd, "4711\n", 5, 0) != 5) abort();
    close(*fd);
    return NULL;
}

/* In the place of the system's. */
int flock(int fd, int operation)
{
    static int again;
    (void)operation;
    if (late) {
        again = dup(fd);
        if (pthread_create(&holder, NULL, write_id, &again)) abort();
    }
    errno = lock_says;
    return lock_says ? -1 : 0;
}

static void count_warnings(void *user, mt_log_level level, const char *text)
{
    (void)text;
    if (level == MT_LOG_WARN) ++*(int *)user;
}

static void a_file_system_without_locks_is_used_with_a_warning(void **state)
{
    static const struct {
        int says, warnings;
        mt_rc rc;
    } cases[] = { { 0, 0, MT_OK },      { ENOSYS, 1, MT_OK },         { EOPNOTSUPP, 1, MT_OK },
                  { ENOLCK, 1, MT_OK }, { EWOULDBLOCK, 0, MT_EBUSY }, { EIO, 0, MT_EIO } };
    char *path = mt_path_join(*state, "out");
    mt_err err = { 0 };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_output_dir d;
        int warnings = 0;
        lock_says = cases[i].says;
        mt_log_set_sink(count_warnings, &warnings);
        assert_int_equal(mt_output_dir_open(&d, path, &err), cases[i].rc);
        mt_log_set_sink(NULL, NULL);
        assert_int_equal(warnings, cases[i].warnings);
        mt_output_dir_close(&d);
    }
    assert_ok(mt_dir_remove(path, &err));
    mt_free(path);
}

static void a_run_that_has_just_begun_is_named(void **state)
{
    char *path = mt_path_join(*state, "out");
    mt_err err = { 0 };
    mt_output_dir d;
    lock_says = EWOULDBLOCK;
    late = true;
    assert_int_equal(mt_output_dir_open(&d, path, &err), MT_EBUSY);
    assert_says("in use by another run (process 4711)");
    pthread_join(holder, NULL);
    late = false;
    mt_output_dir_close(&d);
    assert_ok(mt_dir_remove(path, &err));
    mt_free(path);
}

/* A kill or a full disk came within a line of the list. */
static void a_list_that_ends_within_a_line_goes_on_with_a_whole_one(void **state)
{
    const char *dir = *state;
    char *list = mt_path_join(dir, MT_RUN_FILES_NAME);
    mt_err err = { 0 };
    mt_run_files f;
    assert_ok(mt_outfile_save(list, "\"a\"\n\"chec", 9, &err));
    assert_ok(mt_run_files_add(dir, "b", &err));
    assert_ok(mt_run_files_add(dir, "c", &err));
    assert_ok(mt_run_files_read(&f, dir, &err));
    assert_int_equal(f.n, 3);
    assert_true(mt_run_files_has(&f, "a") && mt_run_files_has(&f, "b") && mt_run_files_has(&f, "c"));
    mt_run_files_free(&f);
    mt_free(list);
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_TEMPDIR(a_file_system_without_locks_is_used_with_a_warning), IN_TEMPDIR(a_run_that_has_just_begun_is_named),
             IN_TEMPDIR(a_list_that_ends_within_a_line_goes_on_with_a_whole_one))
