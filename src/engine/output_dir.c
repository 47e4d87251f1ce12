#include "engine/output_dir.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/units.h"
#include "ckpt/outdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* What runs leave; a name that ends in - stands for all that go on with a number. */
static const struct left_name {
    const char *name;
    bool says_so; /* nobody else would call a file that: a run was here */
} left_by_runs[] = {
    { "checkpoint-", true }, { "final", true },     { "final.tmp", true },    { "plan.json", true }, { "metrics.jsonl", true },
    { "config.yaml", false }, { "log.txt", false }, { "report.html", false }, { "tensorboard", false },
};

#define ON_ITS_WAY ".old.tmp" /* what mt_dir_discard renames to, and a kill may leave */

static const struct left_name *left_by_run(const char *name)
{
    for (size_t i = 0; i < MT_COUNT(left_by_runs); i++) {
        const char *known = left_by_runs[i].name;
        size_t n = strlen(known);
        bool begins = strncmp(name, known, n) == 0;
        bool is =
            begins && (known[n - 1] == '-' ? name[n] >= '0' && name[n] <= '9' : !name[n] || strcmp(name + n, ON_ITS_WAY) == 0);
        if (is) return &left_by_runs[i];
    }
    return NULL;
}

static mt_rc in_use(const mt_output_dir *d, mt_err *err)
{
    char who[32] = "";
    ssize_t n = pread(d->lock, who, sizeof who - 1, 0);
    if (n > 0) who[strcspn(who, "\n")] = '\0';
    return mt_fail(err, MT_EBUSY, "%s is in use by another run (process %s); wait for it, or choose another --output-dir",
                   d->path, *who ? who : "unknown");
}

/* Lustre mounted without them, some network file systems. */
static bool no_locks(int code) { return code == ENOSYS || code == EOPNOTSUPP || code == ENOLCK; }

static mt_rc lock(mt_output_dir *d, mt_err *err)
{
    char *file = mt_path_join(d->path, ".lock"), pid[32];
    if (!file) return mt_fail(err, MT_ENOMEM, "no host memory to lock %s", d->path);
    d->lock = mt_fault(MT_FAULT_FILE) ? (errno = EIO, -1) : open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    mt_free(file);
    if (d->lock < 0) return mt_fail_errno(err, MT_EIO, "locking %s", d->path);
    d->locked = true;
    int code = flock(d->lock, LOCK_EX | LOCK_NB) ? errno : 0;
    if (code == EWOULDBLOCK) return in_use(d, err);
    if (code && !no_locks(code)) return mt_fail_errno(err, MT_EIO, "locking %s", d->path);
    if (code) mt_warn("%s is on a file system without locks: see to it that no other run uses it", d->path);
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(d->lock, 0) || pwrite(d->lock, pid, (size_t)n, 0) != n)
        return mt_fail_errno(err, MT_EIO, "writing the lock of %s", d->path);
    return MT_OK;
}

mt_rc mt_output_dir_open(mt_output_dir *d, const char *path, mt_err *err)
{
    *d = (mt_output_dir){ .path = mt_strdup(path) };
    mt_rc rc = d->path ? mt_dir_make(path, err) : mt_fail(err, MT_ENOMEM, "no host memory to open %s", path);
    if (!rc) rc = lock(d, err);
    if (rc) mt_output_dir_close(d);
    return rc;
}

void mt_output_dir_close(mt_output_dir *d)
{
    if (d->locked) close(d->lock);
    mt_free(d->path);
    *d = (mt_output_dir){ 0 };
}

mt_rc mt_output_dir_holds_run(const mt_output_dir *d, bool *yes, mt_err *err)
{
    mt_dir_names names;
    *yes = false;
    MT_TRY(mt_dir_list(&names, d->path, err));
    for (size_t i = 0; i < names.n; i++) {
        const struct left_name *left = left_by_run(names.items[i]);
        *yes = *yes || (left && left->says_so);
    }
    mt_dir_names_free(&names);
    return MT_OK;
}

typedef mt_rc (*entry_fn)(void *user, const char *path, mt_err *err);

/* Each that a run left, of those that say so or of the others. */
static mt_rc for_each_left(const mt_output_dir *d, bool says_so, entry_fn fn, void *user, mt_err *err)
{
    mt_dir_names names;
    MT_TRY(mt_dir_list(&names, d->path, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < names.n; i++) {
        const struct left_name *left = left_by_run(names.items[i]);
        if (!left || left->says_so != says_so) continue;
        char *path = mt_path_join(d->path, names.items[i]);
        rc = path ? fn(user, path, err) : mt_fail(err, MT_ENOMEM, "no host memory to look through %s", d->path);
        mt_free(path);
    }
    mt_dir_names_free(&names);
    return rc;
}

static mt_rc add_bytes(void *user, const char *path, mt_err *err)
{
    (void)err;
    *(uint64_t *)user += mt_dir_bytes(path);
    return MT_OK;
}

mt_rc mt_output_dir_will_clear(mt_output_dir *d, mt_err *err)
{
    d->to_come = 0;
    MT_TRY(for_each_left(d, false, add_bytes, &d->to_come, err));
    return for_each_left(d, true, add_bytes, &d->to_come, err);
}

static mt_rc discard(void *user, const char *path, mt_err *err)
{
    size_t n = strlen(path), k = strlen(ON_ITS_WAY);
    (void)user;
    return n > k && strcmp(path + n - k, ON_ITS_WAY) == 0 ? mt_dir_remove(path, err) : mt_dir_discard(path, err);
}

mt_rc mt_output_dir_sweep(const mt_output_dir *d, mt_err *err)
{
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < MT_COUNT(left_by_runs); i++) {
        char *name = mt_asprintf("%s" ON_ITS_WAY, left_by_runs[i].name);
        rc = name ? mt_dir_sweep(d->path, name, err) : mt_fail(err, MT_ENOMEM, "no host memory to look through %s", d->path);
        mt_free(name);
    }
    return rc;
}

mt_rc mt_output_dir_clear(mt_output_dir *d, mt_err *err)
{
    bool held;
    d->to_come = 0;
    MT_TRY(mt_output_dir_holds_run(d, &held, err));
    if (!held) return MT_OK; /* a config.yaml without a run is somebody's own */
    MT_TRY(for_each_left(d, false, discard, NULL, err));
    return for_each_left(d, true, discard, NULL, err); /* last: killed in between, it is still a run's */
}

mt_rc mt_output_dir_only_runs(const char *path, mt_err *err)
{
    mt_dir_names names;
    if (!mt_dir_exists(path)) return MT_OK;
    MT_TRY(mt_dir_list(&names, path, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < names.n; i++)
        if (!left_by_run(names.items[i]) && strcmp(names.items[i], ".lock") != 0)
            rc = mt_fail(err, MT_EINVAL,
                         "%s holds %s, which would be removed with it: rename that directory, or choose another --output-dir",
                         path, names.items[i]);
    mt_dir_names_free(&names);
    return rc;
}

mt_rc mt_output_dir_save(const mt_output_dir *d, const char *name, const char *text, size_t n, mt_err *err)
{
    char *path = mt_path_join(d->path, name);
    mt_rc rc = path ? mt_outfile_save(path, text, n, err) : mt_fail(err, MT_ENOMEM, "no host memory to write %s", name);
    mt_free(path);
    return rc;
}

mt_rc mt_output_dir_need(const mt_output_dir *d, uint64_t need, const char *what, mt_err *err)
{
    struct statvfs v;
    if (statvfs(d->path, &v)) return MT_OK; /* a file system that does not say */
    uint64_t left = (uint64_t)v.f_bavail * v.f_frsize + d->to_come;
    if (left >= need) return MT_OK;
    return mt_fail(err, MT_EIO, "no room in %s: %s takes %s and %s is free; free some space, or choose another --output-dir",
                   d->path, what, mt_bytes_text(need).s, mt_bytes_text(left).s);
}
