#include "base/file.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older C libraries do not name it */
#endif

/* Open a regular file for reading; *size is its length now. */
static mt_rc open_regular(int *fd, size_t *size, const char *path, mt_err *err)
{
    struct stat st;
    if (mt_fault(MT_FAULT_FILE)) return mt_fail(err, MT_EIO, "%s: input/output error", path);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return mt_fail_errno(err, errno == ENOENT ? MT_ENOENT : MT_EIO, "%s", path);
    if (fstat(*fd, &st) || !S_ISREG(st.st_mode)) {
        close(*fd);
        return mt_fail(err, MT_EIO, "%s is not a regular file", path);
    }
    *size = (size_t)st.st_size;
    return MT_OK;
}

mt_rc mt_map_open(mt_map *out, const char *path, mt_err *err)
{
    int fd = -1;
    size_t size = 0;
    *out = (mt_map){ 0 };
    MT_TRY(open_regular(&fd, &size, path, err));
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
    enum { AROUND = 2 << 20 }; /* one fault brings in an aligned 64 KiB, and since Linux 6.18 all that the cache holds in one
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

mt_rc mt_file_read(char **out, size_t *n_bytes, const char *path, size_t max_bytes, mt_err *err)
{
    int fd = -1;
    size_t size = 0, got = 0;
    *out = NULL;
    MT_TRY(open_regular(&fd, &size, path, err));
    if (size > max_bytes) {
        close(fd);
        return mt_fail(err, MT_EFORMAT, "%s has %zu bytes, at most %zu expected", path, size, max_bytes);
    }
    char *s = mt_malloc(size + 1);
    if (!s) {
        close(fd);
        return mt_fail(err, MT_ENOMEM, "no host memory to read %s (%zu bytes)", path, size);
    }
    while (got < size) {
        ssize_t n = mt_fault(MT_FAULT_FILE) ? (errno = EIO, -1) : read(fd, s + got, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            mt_rc rc = mt_fail_errno(err, MT_EIO, "reading %s", path);
            close(fd);
            mt_free(s);
            return rc;
        }
        if (n == 0) break; /* it shrank under us: what is there is what we give */
        got += (size_t)n;
    }
    close(fd);
    s[got] = '\0';
    *out = s;
    if (n_bytes) *n_bytes = got;
    return MT_OK;
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
    return *out ? MT_OK : mt_fail(err, MT_ENOMEM, "no host memory for a path");
}
