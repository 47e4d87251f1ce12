#include "base/disk.h"

#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

bool mt_disk_faulted(int code)
{
    if (!mt_fault(MT_FAULT_FILE)) return false;
    errno = code;
    return true;
}

/* -- the journal ----------------------------------------------------------------------------------- */

static struct {
    pthread_once_t once;
    pthread_mutex_t lock; /* held over a change and its record: the journal has the order of the changes */
    int fd;               /* -1: nothing is recorded */
} journal = { PTHREAD_ONCE_INIT, PTHREAD_MUTEX_INITIALIZER, -1 };

static void open_journal(void)
{
    const char *path = getenv("MT_DISK_LOG");
    if (path && *path) journal.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Before a change.  Without a journal that is one look at a number. */
static void disk_begin(void)
{
    pthread_once(&journal.once, open_journal);
    if (journal.fd >= 0) pthread_mutex_lock(&journal.lock);
}

/* After it: `failed` is what the change returned. */
static int end(int failed, mt_disk_record r, int fd, const char *path, const char *to, const void *data)
{
    if (journal.fd < 0) return failed;
    int saved = errno;
    struct stat st;
    if (!failed) {
        r.file = fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_ino : 0;
        r.n_path = path ? strlen(path) : 0;
        r.n_to = to ? strlen(to) : 0;
        struct iovec v[] = { { &r, sizeof r },
                             { (void *)(uintptr_t)path, r.n_path },
                             { (void *)(uintptr_t)to, r.n_to },
                             { (void *)(uintptr_t)data, r.n_data } };
        if (writev(journal.fd, v, 4) < 0) close(journal.fd), journal.fd = -1;
    }
    pthread_mutex_unlock(&journal.lock);
    errno = saved;
    return failed;
}

/* -- opening --------------------------------------------------------------------------------------- */

static int open_and_record(const char *path, int flags)
{
    if ((flags & (O_CREAT | O_TRUNC)) == 0) return open(path, flags);
    disk_begin();
    int fd = open(path, flags, 0666);
    end(fd < 0 ? -1 : 0, (mt_disk_record){ .op = MT_DISK_CREATE, .bytes = (flags & O_TRUNC) != 0 }, fd, path, NULL, NULL);
    return fd;
}

static mt_rc not_opened(const char *path, int flags, mt_err *err)
{
    struct stat st;
    int code = errno;
    if (code == ELOOP && (flags & O_NOFOLLOW) && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        return mt_fail(err, MT_EIO,
                       "%s is a link, and files there are not opened through links: remove it, or put the file itself there",
                       path);
    if (code == ENXIO || code == EISDIR) return mt_fail(err, MT_EIO, "%s is not a regular file", path);
    errno = code;
    return mt_fail_errno(err, code == ENOENT ? MT_ENOENT : MT_EIO, "%s", path);
}

mt_rc mt_disk_open(int *fd, const char *path, int flags, mt_err *err)
{
    struct stat st;
    int truncate = flags & O_TRUNC; /* only once it is known to be a regular file */
    flags = (flags & ~O_TRUNC) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    do *fd = mt_disk_faulted(EIO) ? -1 : open_and_record(path, flags);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return not_opened(path, flags, err);
    if (fstat(*fd, &st) || !S_ISREG(st.st_mode)) {
        close(*fd);
        *fd = -1;
        return mt_fail(err, MT_EIO, "%s is not a regular file", path);
    }
    if (!truncate || st.st_size == 0 || mt_disk_truncate(*fd, 0) == 0) return MT_OK;
    mt_rc rc = mt_fail_errno(err, MT_EIO, "emptying %s", path);
    close(*fd);
    *fd = -1;
    return rc;
}

/* -- contents -------------------------------------------------------------------------------------- */

ssize_t mt_disk_read(int fd, void *to, size_t n, uint64_t at)
{
    size_t got = 0;
    while (got < n) {
        ssize_t k = mt_disk_faulted(EIO) ? -1 : pread(fd, (char *)to + got, n - got, (off_t)(at + got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -1;
        if (k == 0) break;
        got += (size_t)k;
    }
    return (ssize_t)got;
}

/* at < 0: at the file's end. */
static int write_all(int fd, const char *from, size_t n, int64_t at)
{
    while (n > 0) {
        ssize_t k = -1;
        if (!mt_disk_faulted(ENOSPC)) k = at < 0 ? write(fd, from, n) : pwrite(fd, from, n, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k == 0) errno = ENOSPC; /* no progress and no reason: do not try for ever */
        if (k <= 0) return -1;
        from += k;
        n -= (size_t)k;
        if (at >= 0) at += k;
    }
    return 0;
}

int mt_disk_write(int fd, const void *from, size_t n, uint64_t at)
{
    disk_begin();
    int failed = write_all(fd, from, n, (int64_t)at);
    return end(failed, (mt_disk_record){ .op = MT_DISK_WRITE, .at = at, .n_data = n }, fd, NULL, NULL, from);
}

int mt_disk_append(int fd, const void *from, size_t n)
{
    struct stat st;
    disk_begin();
    uint64_t at = journal.fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    int failed = write_all(fd, from, n, -1);
    return end(failed, (mt_disk_record){ .op = MT_DISK_WRITE, .at = at, .n_data = n }, fd, NULL, NULL, from);
}

int mt_disk_truncate(int fd, uint64_t bytes)
{
    int failed;
    disk_begin();
    do failed = mt_disk_faulted(EIO) ? -1 : ftruncate(fd, (off_t)bytes);
    while (failed && errno == EINTR);
    return end(failed, (mt_disk_record){ .op = MT_DISK_TRUNCATE, .bytes = bytes }, fd, NULL, NULL, NULL);
}

int mt_disk_reserve(int fd, uint64_t bytes)
{
    int code;
    disk_begin();
    do code = mt_disk_faulted(ENOSPC) ? ENOSPC : posix_fallocate(fd, 0, (off_t)bytes);
    while (code == EINTR);                              /* tmpfs stops for any signal: a Ctrl-Z, a debugger */
    bool cannot = code == EOPNOTSUPP || code == EINVAL; /* it will grow as it is written */
    if (code && !cannot) errno = code;
    int failed = code && !cannot ? -1 : 0;
    return end(failed, (mt_disk_record){ .op = MT_DISK_RESERVE, .bytes = cannot ? 0 : bytes }, fd, NULL, NULL, NULL);
}

int mt_disk_sync(int fd)
{
    int failed;
    disk_begin();
    do failed = mt_disk_faulted(EIO) ? -1 : fsync(fd);
    while (failed && errno == EINTR);
    return end(failed, (mt_disk_record){ .op = MT_DISK_SYNC }, fd, NULL, NULL, NULL);
}

/* -- names ----------------------------------------------------------------------------------------- */

int mt_disk_mkdir(const char *path, mode_t mode)
{
    disk_begin();
    int failed = mt_disk_faulted(EIO) ? -1 : mkdir(path, mode);
    return end(failed, (mt_disk_record){ .op = MT_DISK_MKDIR }, -1, path, NULL, NULL);
}

int mt_disk_rename(const char *from, const char *to)
{
    disk_begin();
    int failed = mt_disk_faulted(EIO) ? -1 : rename(from, to);
    return end(failed, (mt_disk_record){ .op = MT_DISK_RENAME }, -1, from, to, NULL);
}

int mt_disk_remove(const char *path, bool dir)
{
    disk_begin();
    int failed = dir ? rmdir(path) : unlink(path);
    return end(failed, (mt_disk_record){ .op = MT_DISK_REMOVE }, -1, path, NULL, NULL);
}

mt_rc mt_disk_sync_dir(const char *path, mt_err *err)
{
    disk_begin();
    int fd = mt_disk_faulted(EIO) ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = fd < 0 || mt_disk_faulted(EIO);
    if (!failed) {
        do failed = fsync(fd);
        while (failed && errno == EINTR);
    }
    if (failed && fd >= 0 && errno == EINVAL) failed = 0; /* a file system that has no such notion */
    end(failed, (mt_disk_record){ .op = MT_DISK_SYNC_DIR }, -1, path, NULL, NULL);
    mt_rc rc = failed ? mt_fail_errno(err, MT_EIO, "syncing the directory %s", path) : MT_OK;
    if (fd >= 0) close(fd);
    return rc;
}

mt_rc mt_disk_sync_parent(const char *path, mt_err *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--; /* "model/" is in the directory that "model" is in */
    while (n && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    char *dir = n ? mt_strndup(path, n) : mt_strdup(".");
    mt_rc rc = dir ? mt_disk_sync_dir(dir, err) : mt_no_memory(err, "syncing the directory of %s", path);
    mt_free(dir);
    return rc;
}
