/* src/base/disk.c: calls that are interrupted or do half of their work, paths that are not files, links. */
#include "tempdir.h"

#include "base/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static bool moody; /* every second call is interrupted, and the others move one byte */
static int n_calls;

static bool interrupted(void)
{
    if (!moody || ++n_calls % 2) return false;
    errno = EINTR;
    return true;
}

/* In the place of the system's, as a network file system may behave. */
ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    if (interrupted()) return -1;
    return syscall(SYS_pread64, fd, to, moody && n > 1 ? 1 : n, at);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    if (interrupted()) return -1;
    return syscall(SYS_pwrite64, fd, from, moody && n > 1 ? 1 : n, at);
}

ssize_t write(int fd, const void *from, size_t n)
{
    if (interrupted()) return -1;
    return syscall(SYS_write, fd, from, moody && n > 1 ? 1 : n);
}

static ino_t synced; /* what fsync was called for last */

int fsync(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0) synced = st.st_ino;
    return interrupted() ? -1 : (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t n) { return interrupted() ? -1 : (int)syscall(SYS_ftruncate, fd, n); }

static void the_parent_is_the_same_with_a_slash_at_the_end(void **state)
{
    static const char *const names[] = { "model", "model/", "model//", "model/config.json" };
    mt_err err = { 0 };
    struct stat outer, inner;
    char *model = mt_path_join(*state, "model");
    assert_int_equal(mt_disk_mkdir(model, 0777), 0);
    assert_int_equal(stat(*state, &outer), 0);
    assert_int_equal(stat(model, &inner), 0);
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        char *path = mt_path_join(*state, names[i]);
        assert_ok(mt_disk_sync_parent(path, &err));
        assert_true(synced == (i < 3 ? outer : inner).st_ino);
        mt_free(path);
    }
    assert_ok(mt_disk_sync_parent("/", &err));
    assert_ok(mt_disk_sync_parent("a", &err));
    assert_int_equal(mt_disk_remove(model, true), 0);
    mt_free(model);
}

static void interrupted_and_short_calls_are_completed(void **state)
{
    static const char text[] = "a line that comes byte by byte";
    char *path = mt_path_join(*state, "file"), back[2 * sizeof text] = "";
    mt_err err = { 0 };
    int fd;
    moody = true;
    assert_ok(mt_disk_open(&fd, path, O_RDWR | O_CREAT | O_APPEND, &err));
    assert_int_equal(mt_disk_append(fd, text, sizeof text - 1), 0);
    assert_int_equal(mt_disk_append(fd, text, sizeof text - 1), 0);
    assert_int_equal(mt_disk_sync(fd), 0);
    assert_int_equal(mt_disk_read(fd, back, sizeof back, 0), 2 * (sizeof text - 1)); /* up to its end */
    assert_memory_equal(back, text, sizeof text - 1);
    assert_int_equal(mt_disk_truncate(fd, 3), 0);
    close(fd);
    assert_ok(mt_disk_open(&fd, path, O_RDWR, &err));
    assert_int_equal(mt_disk_write(fd, text, sizeof text - 1, 2), 0);
    close(fd);
    char *whole;
    size_t n;
    assert_ok(mt_file_read(&whole, &n, path, 100, &err));
    moody = false;
    assert_int_equal(n, sizeof text + 1);
    assert_memory_equal(whole, "a a line", 8);
    mt_free(whole);
    mt_free(path);
}

static void what_is_no_regular_file_is_refused_at_once(void **state)
{
    char *fifo = mt_path_join(*state, "fifo"), *link_path = mt_path_join(*state, "link"), *loop = mt_path_join(*state, "loop"),
         *target = mt_path_join(*state, "target");
    mt_err err = { 0 };
    int fd;
    assert_int_equal(mkfifo(fifo, 0666), 0);
    assert_int_equal(symlink("target", link_path), 0);
    assert_int_equal(symlink("loop", loop), 0);
    static const int flags[] = { O_RDONLY, O_WRONLY, O_RDWR, O_WRONLY | O_CREAT | O_TRUNC };
    for (size_t i = 0; i < MT_COUNT(flags); i++) {
        const char *const paths[] = { fifo, *state, "/dev/null", loop };
        for (size_t k = 0; k < MT_COUNT(paths); k++) {
            assert_int_equal(mt_disk_open(&fd, paths[k], flags[i], &err), MT_EIO);
            assert_says(k == 3 ? "symbolic links" : "is not a regular file");
        }
    }
    assert_int_equal(mt_disk_open(&fd, link_path, O_RDONLY, &err), MT_ENOENT);
    assert_int_equal(mt_disk_open(&fd, link_path, O_WRONLY | O_CREAT | O_NOFOLLOW, &err), MT_EIO);
    assert_says("is a link");
    assert_false(mt_file_exists(target));
    char *const all[] = { fifo, link_path, loop, target };
    for (size_t i = 0; i < MT_COUNT(all); i++) mt_free(all[i]);
}

/* A file that is emptied on opening keeps its content if it turns out to be something else. */
static void emptying_waits_until_it_is_known_to_be_a_file(void **state)
{
    char *path = mt_path_join(*state, "file");
    mt_err err = { 0 };
    int fd;
    FILE *f = fopen(path, "w");
    assert_true(f && fputs("text", f) >= 0 && fclose(f) == 0);
    assert_ok(mt_disk_open(&fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, &err));
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    close(fd);
    mt_free(path);
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_TEMPDIR(the_parent_is_the_same_with_a_slash_at_the_end), IN_TEMPDIR(interrupted_and_short_calls_are_completed),
             IN_TEMPDIR(what_is_no_regular_file_is_refused_at_once), IN_TEMPDIR(emptying_waits_until_it_is_known_to_be_a_file))
