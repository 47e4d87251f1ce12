#include "run/output_dir.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/units.h"
#include "ckpt/checkpoint.h"
#include "ckpt/outdir.h"
#include "run/run_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* Files that runs write, besides checkpoint-N. */
static const struct left_name {
    const char *name;
    bool says_so; /* nothing else uses that name, so it proves that a run was here */
} left_by_runs[] = {
    { "checkpoint", true },    { "final", true },        { "plan.json", true },
    { "metrics.jsonl", true }, { "config.yaml", false }, { "log.txt", false },
    { "report.html", false },  { "tensorboard", false }, { ".dashboard", false },
};

/* Suffixes: being written (outdir.h), being removed (mt_dir_discard), set aside. */
static const char *const tails[] = { ".old.tmp", ".tmp", ".damaged" };

/* "final" for final, final.tmp, final.0123456789abcdef.tmp and final.old.tmp; newly allocated, NULL: no memory. */
static char *plain_name(const char *name, const char **tail)
{
    size_t n = strlen(name);
    *tail = "";
    for (size_t i = 0; !**tail && i < MT_COUNT(tails); i++) {
        size_t k = strlen(tails[i]);
        if (n > k && strcmp(name + n - k, tails[i]) == 0) *tail = name + n - k;
    }
    n -= strlen(*tail);
    return mt_strndup(name, strcmp(*tail, ".tmp") == 0 ? mt_outdir_plain_length(name, n) : n);
}

/* The row of an entry that runs write; NULL: runs write nothing of that name. */
static const struct left_name *left_by_run(const char *plain)
{
    int64_t step;
    if (mt_ckpt_step_of(plain, &step)) return &left_by_runs[0];
    for (size_t i = 1; i < MT_COUNT(left_by_runs); i++)
        if (strcmp(plain, left_by_runs[i].name) == 0) return &left_by_runs[i];
    return NULL;
}

bool mt_output_dir_uses(const char *name)
{
    while (strncmp(name, "./", 2) == 0) name += 2;
    char *first = mt_strndup(name, strcspn(name, "/"));
    bool bookkeeping = first && (strcmp(first, ".lock") == 0 || strcmp(first, MT_RUN_FILES_NAME) == 0);
    bool used = bookkeeping || (first && strcmp(first, "metrics.jsonl") != 0 && left_by_run(first));
    mt_free(first);
    return used;
}

/* Reads the holder's process id, which it writes right after it has locked the file. */
static mt_rc in_use(const mt_output_dir *d, mt_err *err)
{
    enum { TRIES = 500, PAUSE_NS = 10000000 };
    char who[32] = "";
    for (int i = 0; i < TRIES && mt_disk_read(d->lock, who, sizeof who - 1, 0) == 0; i++)
        nanosleep(&(struct timespec){ 0, PAUSE_NS }, NULL);
    who[strcspn(who, "\n")] = '\0';
    return mt_fail(err, MT_EBUSY, "%s is in use by another run (process %s); wait for it, or choose another --output-dir",
                   d->path, *who ? who : "unknown");
}

/* Lustre mounted without them, some network file systems. */
static bool no_locks(int code) { return code == ENOSYS || code == EOPNOTSUPP || code == ENOLCK; }

static mt_rc lock(mt_output_dir *d, mt_err *err)
{
    char *file = mt_path_join(d->path, ".lock"), pid[32];
    if (!file) return mt_no_memory(err, "locking %s", d->path);
    mt_rc rc = mt_disk_open(&d->lock, file, O_RDWR | O_CREAT | O_NOFOLLOW, err);
    mt_free(file);
    if (rc) return mt_note(err, "locking %s", d->path);
    d->dir = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->dir < 0) {
        rc = mt_fail_errno(err, MT_EIO, "opening %s", d->path);
        close(d->lock);
        return rc;
    }
    d->locked = true;
    int code = flock(d->lock, LOCK_EX | LOCK_NB) ? errno : 0;
    if (code == EWOULDBLOCK) return in_use(d, err);
    if (code && !no_locks(code)) return mt_fail_errno(err, MT_EIO, "locking %s", d->path);
    if (code) mt_warn("%s is on a file system without locks; make sure that no other run uses it", d->path);
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (mt_disk_truncate(d->lock, 0) || mt_disk_write(d->lock, pid, (size_t)n, 0))
        return mt_fail_errno(err, MT_EIO, "writing the lock of %s", d->path);
    return MT_OK;
}

/* The output directory, or one above it, cannot be made. */
static mt_rc not_made(const char *path, mt_err *err)
{
    char why[600];
    snprintf(why, sizeof why, "%.590s", err->msg);
    return mt_fail(err, err->rc, "cannot make the output directory %.590s (%s); choose another --output-dir", path, why);
}

mt_rc mt_output_dir_join(mt_output_dir *d, const char *path, mt_err *err)
{
    *d = (mt_output_dir){ .path = mt_strdup(path) };
    return d->path ? MT_OK : mt_no_memory(err, "opening %s", path);
}

void mt_output_dir_close(mt_output_dir *d)
{
    if (d->locked) close(d->lock), close(d->dir);
    mt_free(d->path);
    *d = (mt_output_dir){ 0 };
}

static mt_rc lost(const mt_output_dir *d, bool replaced, mt_err *err)
{
    static const char gone[] = " (deleted)";
    char fd[64], now[1024];
    const char *other = replaced ? ", and something else has its name" : "";
    snprintf(fd, sizeof fd, "/proc/self/fd/%d", d->dir);
    ssize_t n = readlink(fd, now, sizeof now - 1);
    now[n > 0 ? n : 0] = '\0';
    if (n <= 0)
        return mt_fail(err, MT_ENOENT, "the output directory %s was moved or removed while the run wrote there%s", d->path,
                       other);
    if (mt_ends_with(now, gone) && access(now, F_OK))
        return mt_fail(
            err, MT_ENOENT,
            "the output directory %s was removed while the run wrote there%s: its checkpoints are gone, and nothing was "
            "written elsewhere",
            d->path, other);
    return mt_fail(err, MT_ENOENT,
                   "the output directory %s was moved while the run wrote there%s: it is now %s.  Nothing was written elsewhere; "
                   "--resume --output-dir %s continues from its newest checkpoint, if it has one",
                   d->path, other, now, now);
}

mt_rc mt_output_dir_check(const mt_output_dir *d, mt_err *err)
{
    struct stat held, named;
    if (!d->locked || fstat(d->dir, &held)) return MT_OK;
    if (stat(d->path, &named)) return errno == ENOENT || errno == ENOTDIR ? lost(d, false, err) : MT_OK;
    return held.st_dev == named.st_dev && held.st_ino == named.st_ino ? MT_OK : lost(d, true, err);
}

/* -- contents --------------------------------------------------------------------------------- */

typedef struct entry {
    const char *dir, *name, *tail; /* tail: of `tails`, or "" */
    char *plain, *path;
    const struct left_name *left; /* NULL: runs write nothing of that name */
} entry;

typedef mt_rc (*entry_fn)(void *user, const entry *e, mt_err *err);

static mt_rc with_entry(const char *dir, const char *name, entry_fn fn, void *user, mt_err *err)
{
    entry e = { .dir = dir, .name = name };
    e.plain = plain_name(name, &e.tail);
    e.path = mt_path_join(dir, name);
    e.left = e.plain ? left_by_run(e.plain) : NULL;
    mt_rc rc = e.plain && e.path ? fn(user, &e, err) : mt_no_memory(err, "looking through %s", dir);
    mt_free(e.plain);
    mt_free(e.path);
    return rc;
}

static mt_rc for_each(const char *dir, entry_fn fn, void *user, mt_err *err)
{
    mt_dir_names names;
    MT_TRY(mt_dir_list(&names, dir, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < names.n; i++) rc = with_entry(dir, names.items[i], fn, user, err);
    mt_dir_names_free(&names);
    return rc;
}

static mt_rc look_for_run(void *user, const entry *e, mt_err *err)
{
    (void)err;
    if (e->left && e->left->says_so) *(bool *)user = true;
    return MT_OK;
}

mt_rc mt_output_dir_holds_run(const mt_output_dir *d, bool *yes, mt_err *err)
{
    *yes = false;
    return for_each(d->path, look_for_run, yes, err);
}

/* -- the place ------------------------------------------------------------------------------------- */

/* Folders in a directory that may well be meant for a run: caches.c makes the first, a new file system has the second. */
static bool may_be_beside(const char *name)
{
    return *name == '.' || strcmp(name, "cache") == 0 || strcmp(name, "lost+found") == 0;
}

static bool is_home(const char *path)
{
    struct stat st, home;
    const char *name = getenv("HOME");
    return name && *name && stat(path, &st) == 0 && stat(name, &home) == 0 && st.st_dev == home.st_dev &&
           st.st_ino == home.st_ino;
}

typedef struct strangers {
    bool files_too; /* in a home directory every file is one */
    char *found;
} strangers;

static mt_rc look_for_stranger(void *user, const entry *e, mt_err *err)
{
    strangers *s = user;
    bool ours = e->left || strcmp(e->name, ".lock") == 0 || strcmp(e->name, MT_RUN_FILES_NAME) == 0;
    if (s->found || ours || (!s->files_too && (may_be_beside(e->name) || !mt_dir_exists(e->path)))) return MT_OK;
    s->found = mt_strdup(e->name);
    return s->found ? MT_OK : mt_no_memory(err, "looking through %s", e->dir);
}

mt_rc mt_output_dir_check_place(const char *path, mt_err *err)
{
    const mt_output_dir d = { .path = (char *)(uintptr_t)path };
    bool held;
    strangers s = { .files_too = is_home(path) };
    if (!mt_dir_exists(path)) return MT_OK;
    MT_TRY(mt_output_dir_holds_run(&d, &held, err));
    if (held) return MT_OK;
    MT_TRY(for_each(path, look_for_stranger, &s, err));
    if (!s.found) return MT_OK;
    mt_rc rc =
        mt_fail(err, MT_EINVAL,
                "the output directory %s holds %s, which is not a run's, and a run would put a dozen files beside it; choose a "
                "directory for this run, such as --output-dir %s%srun",
                path, s.found, path, path[strlen(path) - 1] == '/' ? "" : "/");
    mt_free(s.found);
    return rc;
}

mt_rc mt_output_dir_open(mt_output_dir *d, const char *path, mt_err *err)
{
    *d = (mt_output_dir){ .path = mt_strdup(path) };
    mt_rc rc = d->path ? mt_output_dir_check_place(path, err) : mt_no_memory(err, "opening %s", path);
    if (!rc) rc = mt_dir_make(path, err);
    if (rc == MT_EIO) rc = not_made(path, err);
    if (!rc) rc = lock(d, err);
    if (rc) mt_output_dir_close(d);
    return rc;
}

/* -- ownership ----------------------------------------------------------------------------------- */

/* Half-written entries are in no list yet: only their names identify them.  A run begins its list before it writes anything. */
static bool left_half_made(const entry *e, const mt_run_files *listed)
{
    return e->left && listed->found && strcmp(e->tail, ".tmp") == 0;
}

static mt_rc not_listed(const entry *e, const mt_run_files *listed, const char *which, mt_err *err)
{
    if (!listed->found)
        return mt_fail(err, MT_EINVAL,
                       "%s holds %s, and no list of files (%s) shows that a run wrote it (runs of older versions left none).  "
                       "--overwrite removes only what is listed: look through %s and remove what you do not need, or choose "
                       "another --output-dir",
                       e->dir, e->name, MT_RUN_FILES_NAME, e->dir);
    return mt_fail(err, MT_EINVAL,
                   "no run has written %s, and --overwrite removes only what runs have written: move it elsewhere, or choose "
                   "another --output-dir",
                   which);
}

static mt_rc check_listed(void *user, const entry *e, mt_err *err)
{
    const mt_run_files *listed = user;
    char *foreign;
    if (!e->left || left_half_made(e, listed)) return MT_OK;
    MT_TRY(mt_run_files_foreign(&foreign, listed, e->dir, e->name, e->plain, err));
    mt_rc rc = foreign ? not_listed(e, listed, foreign, err) : MT_OK;
    mt_free(foreign);
    return rc;
}

static mt_rc with_list(const char *dir, entry_fn fn, mt_err *err)
{
    mt_run_files listed;
    MT_TRY(mt_run_files_read(&listed, dir, err));
    mt_rc rc = for_each(dir, fn, &listed, err);
    mt_run_files_free(&listed);
    return rc;
}

static mt_rc add_bytes(void *user, const entry *e, mt_err *err)
{
    (void)err;
    if (e->left) *(uint64_t *)user += mt_dir_bytes(e->path);
    return MT_OK;
}

mt_rc mt_output_dir_will_clear(mt_output_dir *d, mt_err *err)
{
    d->to_come = 0;
    MT_TRY(with_list(d->path, check_listed, err));
    return for_each(d->path, add_bytes, &d->to_come, err);
}

static mt_rc check_free(void *user, const entry *e, mt_err *err)
{
    char *foreign;
    if (!e->left || strcmp(e->plain, "tensorboard") == 0) return MT_OK; /* event files of other programs may be beside ours */
    MT_TRY(mt_run_files_foreign(&foreign, user, e->dir, e->name, e->plain, err));
    mt_rc rc = foreign ? mt_fail(err, MT_EINVAL,
                                 "no run has written %s, and this one would write over it: rename it, or choose another "
                                 "--output-dir",
                                 foreign)
                       : MT_OK;
    mt_free(foreign);
    return rc;
}

mt_rc mt_output_dir_check_free(const mt_output_dir *d, mt_err *err) { return with_list(d->path, check_free, err); }

static mt_rc check_only_runs(void *user, const entry *e, mt_err *err)
{
    const mt_run_files *listed = user;
    if (strcmp(e->name, ".lock") == 0 || strcmp(e->name, MT_RUN_FILES_NAME) == 0) return MT_OK;
    char *foreign = NULL;
    if (e->left && !left_half_made(e, listed)) MT_TRY(mt_run_files_foreign(&foreign, listed, e->dir, e->name, e->plain, err));
    bool ours = e->left && !foreign;
    mt_free(foreign);
    return ours ? MT_OK
                : mt_fail(err, MT_EINVAL,
                          "%s holds %s, which would be removed with it: rename that directory, or choose another --output-dir",
                          e->dir, e->name);
}

mt_rc mt_output_dir_only_runs(const char *path, mt_err *err)
{
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) /* what it points to would be cleared, and the link removed */
        return mt_fail(err, MT_EINVAL,
                       "%s is a link, and a directory of that name would be made and removed: remove the link, or choose another "
                       "--output-dir",
                       path);
    return mt_dir_exists(path) ? with_list(path, check_only_runs, err) : MT_OK;
}

/* -- removing -------------------------------------------------------------------------------------- */

mt_rc mt_output_dir_remove(const char *path, mt_err *err)
{
    mt_output_dir d;
    if (!mt_dir_exists(path)) return MT_OK;
    MT_TRY(mt_output_dir_only_runs(path, err)); /* first: opening writes a lock, and not into a directory of others */
    MT_TRY(mt_output_dir_open(&d, path, err));
    mt_rc rc = mt_output_dir_only_runs(path, err);
    if (!rc) rc = mt_dir_remove(path, err);
    mt_output_dir_close(&d);
    return rc;
}

static mt_rc discard(const entry *e, mt_err *err)
{
    return *e->tail && strcmp(e->tail, ".damaged") != 0 ? mt_dir_remove(e->path, err) : mt_dir_discard(e->path, err);
}

static mt_rc discard_quiet(void *user, const entry *e, mt_err *err)
{
    (void)user;
    return e->left && !e->left->says_so ? discard(e, err) : MT_OK;
}

static mt_rc discard_speaking(void *user, const entry *e, mt_err *err)
{
    (void)user;
    return e->left && e->left->says_so ? discard(e, err) : MT_OK;
}

mt_rc mt_output_dir_clear(mt_output_dir *d, mt_err *err)
{
    bool held;
    d->to_come = 0;
    MT_TRY(mt_output_dir_holds_run(d, &held, err));
    if (!held) return MT_OK;                       /* a config.yaml without a run belongs to the user */
    MT_TRY(with_list(d->path, check_listed, err)); /* check again: time has passed since the first check */
    MT_TRY(for_each(d->path, discard_quiet, NULL, err));
    return for_each(d->path, discard_speaking, NULL, err); /* last, so that after a kill it still counts as a run's */
}

static mt_rc sweep_one(void *user, const entry *e, mt_err *err)
{
    (void)user;
    if (!e->left || !*e->tail || strcmp(e->tail, ".damaged") == 0) return MT_OK;
    mt_rc rc = mt_dir_remove(e->path, err);
    if (rc != MT_EIO || strcmp(e->tail, ".old.tmp") != 0) return rc;
    mt_warn("could not remove the rest of an old directory, which still takes disk space: %s",
            err->msg); /* its name may be kept */
    return MT_OK;
}

mt_rc mt_output_dir_sweep(const mt_output_dir *d, mt_err *err)
{
    bool held;
    MT_TRY(mt_output_dir_holds_run(d, &held, err));
    return held ? for_each(d->path, sweep_one, NULL, err) : MT_OK;
}

/* -- writing --------------------------------------------------------------------------------------- */

/* Links are refused here: a run that followed one would overwrite a file elsewhere. */
static mt_rc check_no_link(const mt_output_dir *d, const char *name, mt_err *err)
{
    struct stat st;
    char *path = mt_path_join(d->path, name);
    mt_rc rc = path ? MT_OK : mt_no_memory(err, "looking through %s", d->path);
    if (path && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        rc = mt_fail(err, MT_EINVAL,
                     "%s is a link, and a run does not write through links; remove it, or choose another --output-dir", path);
    mt_free(path);
    return rc;
}

mt_rc mt_output_dir_own(const mt_output_dir *d, const char *name, mt_err *err)
{
    MT_TRY(mt_output_dir_check(d, err));
    MT_TRY(check_no_link(d, name, err));
    return mt_run_files_add(d->path, name, err);
}

mt_rc mt_output_dir_own_made(void *user, const char *made, const char *path, mt_err *err)
{
    const mt_output_dir *d = user;
    MT_TRY(mt_output_dir_check(d, err));
    return mt_run_files_add_tree(d->path, mt_path_base(path), made, err);
}

mt_rc mt_output_dir_save(const mt_output_dir *d, const char *name, const char *text, size_t n, mt_err *err)
{
    char *path = mt_path_join(d->path, name);
    mt_rc rc = path ? mt_output_dir_own(d, name, err) : mt_no_memory(err, "writing %s", name);
    if (!rc) rc = mt_outfile_save(path, text, n, err);
    mt_free(path);
    return rc;
}

mt_rc mt_output_dir_need(const mt_output_dir *d, uint64_t need, const char *what, mt_err *err)
{
    struct statvfs v;
    if (statvfs(d->path, &v)) return MT_OK; /* the file system does not report it */
    uint64_t left = (uint64_t)v.f_bavail * v.f_frsize + d->to_come;
    if (left >= need) return MT_OK;
    return mt_fail(err, MT_EIO,
                   "not enough space in %s: %s needs %s, and %s is free; free some space, or choose another --output-dir",
                   d->path, what, mt_bytes_text(need).s, mt_bytes_text(left).s);
}
