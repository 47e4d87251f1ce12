#include "data/cache_trim.h"

#include "base/disk.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_DIGITS = 16 };

typedef struct stored {
    char key[KEY_DIGITS + 1];
    int64_t used; /* seconds since 1970 */
    uint64_t bytes;
} stored;

typedef struct listing {
    const char *dir;
    stored *items;
    size_t n, cap;
    uint64_t bytes;
} listing;

int mt__cache_hold(const char *path)
{
    int fd;
    if (mt_disk_open(&fd, path, O_RDONLY | O_NOFOLLOW, NULL)) return -1;
    futimens(fd, NULL); /* a cache that others own is only read */
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) return fd;
    close(fd);
    return -1;
}

/* "0123456789abcdef.samples": the key of a store; false: something else. */
static bool key_of(const char *name, const char *tail, char key[KEY_DIGITS + 1])
{
    for (int i = 0; i < KEY_DIGITS; i++) {
        if (!isxdigit((unsigned char)name[i])) return false;
        key[i] = name[i];
    }
    key[KEY_DIGITS] = '\0';
    return strcmp(name + KEY_DIGITS, tail) == 0;
}

static void list(listing *l)
{
    DIR *d = opendir(l->dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        stored s = { 0 };
        struct stat st;
        if (!key_of(e->d_name, ".samples", s.key) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
        if (!S_ISREG(st.st_mode) || mt_grow(&l->items, &l->cap, l->n + 1, sizeof *l->items, NULL)) continue;
        s.used = st.st_mtim.tv_sec;
        s.bytes = (uint64_t)st.st_size;
        l->bytes += s.bytes;
        l->items[l->n++] = s;
    }
    if (d) closedir(d);
}

static int by_last_use(const void *a, const void *b)
{
    const stored *x = a, *y = b;
    if (x->used != y->used) return x->used < y->used ? -1 : 1;
    return strcmp(x->key, y->key);
}

static void remove_if_there(const char *dir, const char *key, const char *tail)
{
    char *path = mt_asprintf("%s/%s%s", dir, key, tail);
    if (path) mt_disk_remove(path, false);
    mt_free(path);
}

/* Removes one file, unless it is locked. */
static bool remove_unlocked(const char *dir, const char *key, const char *tail)
{
    char *path = mt_asprintf("%s/%s%s", dir, key, tail);
    int fd = -1;
    if (path) (void)mt_disk_open(&fd, path, O_RDONLY | O_NOFOLLOW, NULL);
    bool removed = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && mt_disk_remove(path, false) == 0;
    if (fd >= 0) close(fd);
    mt_free(path);
    return removed;
}

static bool remove_store(const char *dir, const char *key)
{
    if (!remove_unlocked(dir, key, ".samples")) return false;
    remove_unlocked(dir, key, ".lock"); /* a process that waits for it sees that it is gone, and makes a new one (cache.c) */
    return true;
}

/* Leftovers of a run that was killed while tokenizing: a process that makes a store holds its lock, and this lock is free. */
static void remove_leftovers(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char key[KEY_DIGITS + 1];
        if (!key_of(e->d_name, ".samples.tmp", key) && !key_of(e->d_name, ".samples.index.tmp", key)) continue;
        if (!remove_unlocked(dir, key, ".lock")) continue;
        remove_if_there(dir, key, ".samples.tmp");
        remove_if_there(dir, key, ".samples.index.tmp");
    }
    if (d) closedir(d);
}

mt_trimmed mt_cache_trim(const char *dir, uint64_t max_bytes, int64_t now)
{
    mt_trimmed out = { 0 };
    listing l = { .dir = dir };
    int64_t before = now - (int64_t)MT_CACHE_DAYS * 24 * 3600;
    list(&l);
    if (l.n) qsort(l.items, l.n, sizeof *l.items, by_last_use);
    for (size_t i = 0; i < l.n; i++) {
        bool too_old = l.items[i].used < before, too_many = max_bytes && l.bytes - out.bytes > max_bytes;
        if ((!too_old && !too_many) || !remove_store(dir, l.items[i].key)) continue;
        out.n_files++;
        out.bytes += l.items[i].bytes;
    }
    remove_leftovers(dir);
    mt_free(l.items);
    return out;
}
