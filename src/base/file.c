#include "base/file.h"

#include "base/disk.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older C libraries do not name it */
#endif

/* Open a regular file for reading; *size is its length now. */
static mt_rc open_regular(int *fd, size_t *size, const char *path, int flags, mt_err *err)
{
    MT_TRY(mt_disk_open(fd, path, O_RDONLY | flags, err));
    off_t end = lseek(*fd, 0, SEEK_END);
    *size = end > 0 ? (size_t)end : 0;
    return MT_OK;
}

mt_rc mt_map_open(mt_map *out, const char *path, mt_err *err)
{
    int fd = -1;
    size_t size = 0;
    *out = (mt_map){ 0 };
    MT_TRY(open_regular(&fd, &size, path, 0, err));
    if (size == 0) {
        close(fd);
        out->data = (const uint8_t *)"";
        return MT_OK;
    }
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    int saved = errno;
    close(fd);
    errno = saved;
    if (p == MAP_FAILED) return mt_fail_errno(err, MT_EIO, "mapping %s", path);
    *out = (mt_map){ p, size };
    return MT_OK;
}

/* Whole pages around n bytes from `from` on, and whole multiples of `around`, as far as the map goes. */
static int advise(const mt_map *map, const void *from, size_t n, size_t around, int advice)
{
    uintptr_t first = (uintptr_t)map->data, last = first + map->size, begin = (uintptr_t)from / around * around,
              end = mt_round_up((uintptr_t)from + n, around);
    if (begin < first) begin = first;
    if (end > last) end = last;
    return n && begin < end ? madvise((void *)begin, end - begin, advice) : 0;
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void mt_map_release(const mt_map *map, const void *from, size_t n)
{
    enum {
        AROUND = 2 << 20
    }; /* one fault brings in an aligned 64 KiB, and since Linux 6.18 all that the cache holds in one
                                * piece, which is this at most */
    (void)advise(map, from, n, AROUND, MADV_DONTNEED);
}

void mt_map_expect(const mt_map *map, const void *from, size_t n) { (void)advise(map, from, n, page_bytes(), MADV_WILLNEED); }

bool mt_map_fetch(const mt_map *map, const void *from, size_t n)
{
    if (mt_fault(MT_FAULT_FILE)) return false;
    /* Any other error: the kernel is too old for the advice, and a look at the pages must do. */
    return advise(map, from, n, page_bytes(), MADV_POPULATE_READ) == 0 || (errno != EFAULT && errno != EIO && errno != EHWPOISON);
}

void mt_map_close(mt_map *map)
{
    if (map->size) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (mt_map){ 0 };
}

static mt_rc read_whole(char **out, size_t *n_bytes, const char *path, int flags, size_t max_bytes, mt_err *err)
{
    int fd = -1;
    size_t size = 0;
    *out = NULL;
    MT_TRY(open_regular(&fd, &size, path, flags, err));
    if (size > max_bytes) {
        close(fd);
        return mt_fail(err, MT_EFORMAT, "%s has %zu bytes, at most %zu expected", path, size, max_bytes);
    }
    char *s = mt_malloc(size + 1);
    if (!s) {
        close(fd);
        return mt_no_memory(err, "reading %s", path);
    }
    ssize_t got = mt_disk_read(fd, s, size, 0); /* fewer than size: the file shrank meanwhile, so return what is left */
    mt_rc rc = got < 0 ? mt_fail_errno(err, MT_EIO, "reading %s", path) : MT_OK;
    close(fd);
    if (rc) {
        mt_free(s);
        return rc;
    }
    s[got] = '\0';
    *out = s;
    if (n_bytes) *n_bytes = (size_t)got;
    return MT_OK;
}

mt_rc mt_file_read(char **out, size_t *n_bytes, const char *path, size_t max_bytes, mt_err *err)
{
    return read_whole(out, n_bytes, path, 0, max_bytes, err);
}

mt_rc mt_file_read_own(char **out, size_t *n_bytes, const char *path, size_t max_bytes, mt_err *err)
{
    return read_whole(out, n_bytes, path, O_NOFOLLOW, max_bytes, err);
}

bool mt_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool mt_dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool mt_path_is_below(const char *name)
{
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (strncmp(p, "..", 2) == 0 && (!p[2] || p[2] == '/')) return false;
    }
    return *name && *name != '/';
}

static bool is_below(const char *path, const char *dir, size_t n) { return strncmp(path, dir, n) == 0 && path[n] == '/'; }

/* Both paths are free of links. */
static bool is_own_blob(const char *path, const char *dir)
{
    const char *snapshot = NULL;
    for (const char *p = dir; (p = strstr(p, "/snapshots/")); p++) snapshot = p;
    if (!snapshot) return false;
    const char *repo = snapshot;
    while (repo > dir && repo[-1] != '/') repo--;
    if (strncmp(repo, "models--", 8) != 0 && strncmp(repo, "datasets--", 10) != 0) return false;
    size_t of_repo = (size_t)(snapshot - dir), of_cache = (size_t)(repo - dir) - 1; /* the cache's are shared by repositories */
    return (is_below(path, dir, of_repo) && strncmp(path + of_repo, "/blobs/", 7) == 0) ||
           (is_below(path, dir, of_cache) && strncmp(path + of_cache, "/blobs/", 7) == 0);
}

mt_rc mt_path_outside(char **real, const char *dir, const char *path, mt_err *err)
{
    char root[PATH_MAX], at[PATH_MAX];
    *real = NULL;
    if (!realpath(path, at)) return errno == ENOENT ? MT_OK : mt_fail_errno(err, MT_EIO, "%s", path);
    if (!realpath(dir, root)) return mt_fail_errno(err, MT_EIO, "%s", dir);
    const size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strcmp(at, root) == 0 || is_below(at, root, n) || is_own_blob(at, root)) return MT_OK;
    *real = mt_strdup(at);
    return *real ? MT_OK : mt_no_memory(err, "a path");
}

mt_rc mt_path_stays_inside(const char *dir, const char *name, mt_err *err)
{
    struct stat st;
    char *path = mt_path_join(dir, name), *real = NULL;
    if (!path) return mt_no_memory(err, "a path");
    bool plain = !strchr(name, '/') && (lstat(path, &st) || !S_ISLNK(st.st_mode));
    mt_rc rc = plain ? MT_OK : mt_path_outside(&real, dir, path, err);
    if (real)
        rc = mt_fail(err, MT_EINVAL,
                     "%s is a link to %s, outside %s: links there may lead only inside it, or into the hub cache it is part of.  "
                     "Copy the file into the directory, or remove the link",
                     path, real, dir);
    mt_free(real);
    mt_free(path);
    return rc;
}

char *mt_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    const char *slash = n && dir[n - 1] == '/' ? "" : "/";
    return mt_asprintf("%s%s%s", dir, slash, name);
}

const char *mt_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

mt_rc mt_user_cache(char **out, mt_err *err)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *out = NULL;
    if (xdg && xdg[0] == '/') /* a relative one is to be ignored, the specification says */
        *out = mt_path_join(xdg, "megatrain");
    else if (home && home[0])
        *out = mt_path_join(home, ".cache/megatrain");
    else
        return mt_fail(err, MT_EINVAL,
                       "neither HOME nor XDG_CACHE_HOME is set: set one, so that there is a folder to keep things in");
    return *out ? MT_OK : mt_no_memory(err, "a path");
}
