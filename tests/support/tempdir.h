/* tempdir.h - a directory of its own for a test: cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove).
 * `*state` is its path.  Only plain files are removed with it: a test that makes directories removes them itself. */
#ifndef MT_TEST_TEMPDIR_H
#define MT_TEST_TEMPDIR_H

#include "test.h"

#include "base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* In memory hundreds of syncs cost nothing; a container may have 64 MB of it. */
static inline bool tempdir_in_memory(void)
{
    struct statvfs fs;
    return access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &fs) == 0 && fs.f_bavail >= ((uint64_t)1 << 30) / fs.f_frsize;
}

static inline int tempdir_make(void **state)
{
    const char *base = getenv("TMPDIR");
    if (!base && tempdir_in_memory()) base = "/dev/shm";
    char *path = mt_path_join(base ? base : "/tmp", "mt-test-XXXXXX");
    *state = path;
    return path && mkdtemp(path) ? 0 : -1;
}

static inline int tempdir_remove(void **state)
{
    DIR *d = opendir(*state);
    for (const struct dirent *e; d && (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    int rc = rmdir(*state);
    mt_free(*state);
    return rc;
}

/* A text in a file of it. */
static inline void tempdir_write(const char *dir, const char *name, const char *text)
{
    char *path = mt_path_join(dir, name);
    assert_non_null(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    mt_free(path);
}

/* How many files in it have names that end with `tail` (NULL: all of them). */
static inline size_t tempdir_count(const char *dir, const char *tail)
{
    size_t n = 0, k = tail ? strlen(tail) : 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (e->d_name[0] != '.' && len >= k && (!tail || strcmp(e->d_name + len - k, tail) == 0)) n++;
    }
    closedir(d);
    return n;
}

#endif
