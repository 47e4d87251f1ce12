#include "data/cache.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/rng.h"
#include "data/cache_trim.h"
#include "data/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* -- the folder ------------------------------------------------------------------------------------ */

mt_rc mt_cache_dir(char **out, const char *dir, mt_err *err)
{
    if (!dir || !dir[0]) {
        mt_rc rc = mt_user_cache(out, err);
        return rc == MT_EINVAL
                   ? mt_fail(err, rc,
                             "neither HOME nor XDG_CACHE_HOME is set: say where tokenized data may be kept (dataset.cache_dir)")
                   : rc;
    }
    *out = mt_strdup(dir);
    return *out ? MT_OK : mt_no_memory(err, "a path");
}

/* -- the key --------------------------------------------------------------------------------------- */

enum { BLOCK = 1 << 16, BLOCKS = 16, SECOND = 1000000000 };

static uint64_t hash_text(const char *s, uint64_t h) { return s ? mt_hash(s, strlen(s), h) : mt_hash("", 0, ~h); }
static uint64_t hash_int(int64_t x, uint64_t h) { return mt_hash(&x, sizeof x, h); }

/* All blocks of the file, or BLOCKS of them: the first, the last, and others spread evenly between them. */
static mt_rc hash_blocks(int fd, const char *path, int64_t size, bool whole, const mt_store_job *job, uint64_t *h, mt_err *err)
{
    uint8_t *block = mt_malloc(BLOCK);
    if (!block) return mt_no_memory(err, "looking at %s", path);
    mt_rc rc = MT_OK;
    int64_t last = size > BLOCK ? size - BLOCK : 0, step = last / (BLOCKS - 1), n_blocks = BLOCKS;
    if (whole || last == 0) n_blocks = last / BLOCK + 1 + (last % BLOCK != 0), step = BLOCK;
    for (int64_t i = 0; !rc && i < n_blocks; i++) {
        ssize_t n = mt_disk_read(fd, block, BLOCK, (uint64_t)(i == n_blocks - 1 ? last : i * step));
        if (n < 0)
            rc = mt_fail_errno(err, MT_EIO, "reading %s", path);
        else
            *h = mt_hash(block, (size_t)n, *h);
        if (!rc && mt_store_job_stopped(job)) rc = mt_fail(err, MT_ESTOPPED, "stopped on request, reading %s", path);
    }
    mt_free(block);
    return rc;
}

int64_t mt__cache_unsettled(struct timespec changed, struct timespec now)
{
    int64_t granule = changed.tv_nsec % SECOND == 0 ? 2 * (int64_t)SECOND : 0, tick = SECOND / 10;
    if (changed.tv_sec < now.tv_sec - 10) return 0;
    if (changed.tv_sec > now.tv_sec + 10) return INT64_MAX;
    int64_t age = (int64_t)(now.tv_sec - changed.tv_sec) * SECOND + now.tv_nsec - changed.tv_nsec;
    return age > granule + tick ? 0 : granule + tick - age + 1;
}

/* Waits until no later change can leave the file's times as they are; false: that takes too long, because it changes all the
 * time or the clock of its machine is ahead of ours. */
static bool settle(int fd, struct stat *st)
{
    for (int64_t left = 3 * (int64_t)SECOND;;) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        int64_t ns = mt__cache_unsettled(st->st_ctim, now);
        if (ns == 0) return true;
        if (ns > left) return false;
        left -= ns;
        nanosleep(&(struct timespec){ ns / SECOND, ns % SECOND }, NULL);
        if (fstat(fd, st)) return false;
    }
}

mt_rc mt__cache_hash_file(uint64_t *h, int fd, const char *path, const struct stat *st, bool whole, const mt_store_job *job,
                          mt_err *err)
{
    *h = hash_text(path, *h);
    *h = hash_int(st->st_size, *h);
    *h = hash_int(st->st_mtim.tv_sec, *h);
    *h = hash_int(st->st_mtim.tv_nsec, *h);
    *h = hash_int(st->st_ctim.tv_sec, *h); /* tar and rsync set the time above to what it was; this one they cannot */
    *h = hash_int(st->st_ctim.tv_nsec, *h);
    *h = hash_int((int64_t)st->st_ino, *h);
    return hash_blocks(fd, path, st->st_size, whole, job, h, err);
}

/* *left: how many bytes of the files that follow may be hashed as a whole. */
static mt_rc hash_file(const char *path, int64_t *left, const mt_store_job *job, uint64_t *h, mt_err *err)
{
    struct stat st;
    int fd;
    MT_TRY(mt_disk_open(&fd, path, O_RDONLY, err));
    mt_rc rc = fstat(fd, &st) ? mt_fail_errno(err, MT_EIO, "reading %s", path) : MT_OK;
    if (!rc) {
        bool whole = st.st_size <= *left;
        if (whole)
            *left -= st.st_size;
        else
            whole = !settle(fd, &st);
        rc = mt__cache_hash_file(h, fd, path, &st, whole, job, err);
    }
    close(fd);
    return rc;
}

static uint64_t hash_options(const mt_records_options *o, uint64_t h)
{
    h = hash_text(o->format, h);
    h = hash_text(o->field, h);
    h = hash_text(o->split, h);
    h = hash_text(o->subset, h);
    for (const char *const *c = o->columns; c && *c; c++) h = hash_text(*c, h);
    h = hash_int(o->delimiter, h);
    return hash_int(o->sample_by, h);
}

mt_rc mt__cache_key(uint64_t *out, const mt_store_job *job, int64_t whole_bytes, mt_err *err)
{
    mt_records *r;
    uint64_t h = hash_int((int64_t)mt_sample_code(), job->maker.fingerprint);
    h = hash_options(&job->records, h);
    h = hash_int(job->max_records, h);
    h = hash_int(job->vocab, h);
    h = hash_int(job->specials != NULL, h);
    MT_TRY(mt_records_open(&r, job->path, &job->records, err));
    const char *const *paths;
    size_t n = mt_records_files(r, &paths);
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < n; i++) rc = hash_file(paths[i], &whole_bytes, job, &h, err);
    mt_records_close(r);
    *out = h;
    return rc;
}

mt_rc mt_cache_key(uint64_t *out, const mt_store_job *job, mt_err *err) { return mt__cache_key(out, job, MT__CACHE_WHOLE, err); }

/* -- one at a time --------------------------------------------------------------------------------- */

/* False: the file was removed from under the lock (cache_trim.c), which then guards nothing. */
static bool still_there(int fd, const char *path)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

/* *fd is the lock, or -1 if the file system has no locks: then the store has a unique name until it is complete. */
static mt_rc lock_once(int *fd, const char *path, const mt_store_job *job, mt_err *err)
{
    if (mt_disk_open(fd, path, O_RDWR | O_CREAT | O_NOFOLLOW, err))
        return mt_note(err, "locking tokenized data (dataset.cache_dir chooses another place)");
    int rc = flock(*fd, LOCK_EX | LOCK_NB);
    if (rc && errno == EWOULDBLOCK) {
        mt_info("another run is tokenizing %s; waiting for it", job->what);
        while ((rc = flock(*fd, LOCK_EX | LOCK_NB)) && (errno == EWOULDBLOCK || errno == EINTR) && !mt_store_job_stopped(job))
            nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
    }
    if (rc && mt_store_job_stopped(job)) {
        close(*fd);
        *fd = -1;
        return mt_fail(err, MT_ESTOPPED, "stopped on request, waiting for another run that tokenizes %s", job->what);
    }
    if (rc == 0) return MT_OK;
    close(*fd);
    *fd = -1;
    return MT_OK;
}

static mt_rc lock(int *fd, const char *path, const mt_store_job *job, mt_err *err)
{
    MT_TRY(lock_once(fd, path, job, err));
    while (*fd >= 0 && !still_there(*fd, path)) {
        close(*fd);
        MT_TRY(lock_once(fd, path, job, err));
    }
    return MT_OK;
}

static void unlock(int fd)
{
    if (fd >= 0) close(fd);
}

static mt_rc build_unlocked(const char *path, uint64_t key, const mt_store_job *job, mt_err *err)
{
    char *own = mt_asprintf("%s.%ld", path, (long)getpid());
    if (!own) return mt_no_memory(err, "a path");
    mt_rc rc = mt_store_build(own, key, job, err);
    if (!rc && mt_disk_rename(own, path)) rc = mt_fail_errno(err, MT_EIO, "renaming %s", own);
    mt_free(own);
    return rc;
}

static mt_rc map_or_build(mt_store **out, const char *path, uint64_t key, const mt_store_job *job, bool locked, bool *built,
                          mt_err *err)
{
    mt_err ignored = { 0 };
    if (!mt_store_map(out, path, key, &ignored)) return MT_OK;
    if (ignored.rc == MT_ENOMEM) return mt_fail(err, MT_ENOMEM, "%s", ignored.msg);
    if (mt_file_exists(path)) mt_warn("%s; it is made anew", ignored.msg);
    *built = true;
    MT_TRY(locked ? mt_store_build(path, key, job, err) : build_unlocked(path, key, job, err));
    return mt_store_map(out, path, key, err);
}

mt_rc mt_cache_open(mt_store **out, const char *dir, const mt_store_job *job, bool *built, mt_err *err)
{
    char *folder = NULL, *path = NULL, *lock_path = NULL;
    bool ignored = false;
    uint64_t key;
    int fd = -1;
    if (!built) built = &ignored;
    *built = false;
    *out = NULL;
    MT_TRY(mt_cache_key(&key, job, err));
    mt_rc rc = mt_cache_dir(&folder, dir, err);
    if (!rc && mt_dir_make(folder, err)) rc = mt_note(err, "tokenized data (dataset.cache_dir chooses another place)");
    if (!rc) {
        path = mt_asprintf("%s/%016llx.samples", folder, (unsigned long long)key);
        lock_path = mt_asprintf("%s/%016llx.lock", folder, (unsigned long long)key);
        if (!path || !lock_path) rc = mt_no_memory(err, "a path");
    }
    if (!rc && mt_store_map(out, path, key, NULL)) { /* not there yet, or damaged: find out alone */
        rc = lock(&fd, lock_path, job, err);
        if (!rc) rc = map_or_build(out, path, key, job, fd >= 0, built, err);
        unlock(fd);
    }
    if (!rc) mt_store_hold(*out, mt__cache_hold(path));
    mt_free(folder);
    mt_free(path);
    mt_free(lock_path);
    return rc;
}
