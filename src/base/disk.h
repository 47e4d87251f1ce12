/* disk.h - every call that changes a file or a directory, and every loop over read and write, in one place.
 *
 * Each call repeats what a signal interrupted (EINTR), completes short reads and writes, and is a point that a test can make fail
 * (fault.h, MT_FAULT_FILE).  They return 0, or -1 with errno set, so that the caller's message can name its purpose.
 *
 * With MT_DISK_LOG=FILE in the environment every change is also appended to FILE.  tests/cli/test_power_loss.c rebuilds from it
 * the directories that a power failure could leave.  A record is a mt_disk_record, the two paths, then the data. */
#ifndef MT_BASE_DISK_H
#define MT_BASE_DISK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Open a regular file.  Never waits for the other end of a FIFO or for a device.  `flags` are open(2)'s; with O_CREAT a new file
 * gets mode 0666.  O_NOFOLLOW: links are refused by name.  MT_ENOENT: the file does not exist. */
mt_rc mt_disk_open(int *fd, const char *path, int flags, mt_err *err);

/* n bytes at `at`, fewer only where the file ends; -1: errno. */
ssize_t mt_disk_read(int fd, void *to, size_t n, uint64_t at);
/* All n bytes at `at`. */
int mt_disk_write(int fd, const void *from, size_t n, uint64_t at);
/* All n bytes at the end of a file that was opened with O_APPEND. */
int mt_disk_append(int fd, const void *from, size_t n);
int mt_disk_truncate(int fd, uint64_t bytes);
/* Reserve room for `bytes`.  Success, too, on a file system that cannot. */
int mt_disk_reserve(int fd, uint64_t bytes);
int mt_disk_sync(int fd);

int mt_disk_mkdir(const char *path, mode_t mode);
int mt_disk_rename(const char *from, const char *to);
/* A file, a link or an empty directory.  Not a point that fails: it cleans up after those that did. */
int mt_disk_remove(const char *path, bool dir);

/* Entries of a directory last only once it is synced.  The second: of the directory that `path` is in. */
mt_rc mt_disk_sync_dir(const char *path, mt_err *err);
mt_rc mt_disk_sync_parent(const char *path, mt_err *err);

/* True, with errno set, if this call is the one a test wants to fail. */
bool mt_disk_faulted(int code);

typedef enum mt_disk_op {
    MT_DISK_CREATE, /* path, file; `bytes` is 1 if it was emptied */
    MT_DISK_WRITE,  /* file, at, data */
    MT_DISK_TRUNCATE,
    MT_DISK_RESERVE, /* file, bytes: at least so long */
    MT_DISK_SYNC,    /* file */
    MT_DISK_MKDIR,
    MT_DISK_RENAME,
    MT_DISK_REMOVE,
    MT_DISK_SYNC_DIR, /* path */
} mt_disk_op;

typedef struct mt_disk_record {
    uint64_t op, n_path, n_to, n_data; /* bytes of the two paths, without a NUL, and of the data */
    uint64_t file;                     /* its inode: what it is called may change */
    uint64_t at, bytes;
} mt_disk_record;

#endif
