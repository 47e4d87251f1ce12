/* output_dir.h - the directory of a run: locked during the run, and never overwritten unless requested.
 *
 * The directory is written by its path, which may come to lead elsewhere while the run continues.  check() notices that; a run
 * calls it before it writes a file there, and again before a checkpoint or the finished model gets its name.
 *
 * The lock is the kernel's (flock on OUTPUT/.lock), so it ends with the process, however that ends.  The file contains the
 * holder's process id, for the message only. */
#ifndef MT_RUN_OUTPUT_DIR_H
#define MT_RUN_OUTPUT_DIR_H

#include "base/mem.h"

typedef struct mt_output_dir {
    char *path;
    int lock, dir; /* valid while `locked`: OUTPUT/.lock, and the directory itself */
    bool locked;
    uint64_t to_come; /* bytes that clearing will free */
} mt_output_dir;

/* Creates and locks it.  MT_EBUSY: another run has it.  Fails, and makes nothing, where check_place does. */
mt_rc mt_output_dir_open(mt_output_dir *d, const char *path, mt_err *err);
/* Fails if no run was there and other things are: a folder, or anything in the home directory.  Loose files are accepted: logs and
 * configurations are often put there before a run starts. */
mt_rc mt_output_dir_check_place(const char *path, mt_err *err);
/* Opens it without a lock: another rank of the same run has locked it. */
mt_rc mt_output_dir_join(mt_output_dir *d, const char *path, mt_err *err);
void mt_output_dir_close(mt_output_dir *d); /* accepts a zeroed or closed one */
/* MT_ENOENT: its path no longer leads to the directory that was opened, because that was moved, removed or replaced; says where it
 * is now.  A link in its place that leads to it is as good.  Without a lock (join): MT_OK. */
mt_rc mt_output_dir_check(const mt_output_dir *d, mt_err *err);

/* True if a run was here: its plan, its metrics, a checkpoint or the finished model. */
mt_rc mt_output_dir_holds_run(const mt_output_dir *d, bool *yes, mt_err *err);
/* Removes the files that runs have listed (run_files.h): checkpoints, the finished model, configuration, plan, metrics.  It
 * touches nothing else, and nothing in a directory without a run.  If a file under one of those names is not listed, it fails and
 * removes nothing. */
mt_rc mt_output_dir_clear(mt_output_dir *d, mt_err *err);
/* Removes what a kill left half-written or half-removed.  An entry that ends in .old.tmp may stay if something still uses it (on
 * NFS, a reader of its files); a warning reports that. */
mt_rc mt_output_dir_sweep(const mt_output_dir *d, mt_err *err);
/* Announces the clearing: from now on the space it will free counts as free.  Fails if clearing would fail. */
mt_rc mt_output_dir_will_clear(mt_output_dir *d, mt_err *err);
/* Fails if a new run would write over a file that no run has listed. */
mt_rc mt_output_dir_check_free(const mt_output_dir *d, mt_err *err);
/* Fails if there is anything in the directory that no run has written, or if it is a link. */
mt_rc mt_output_dir_only_runs(const char *path, mt_err *err);
/* Removes the directory with everything in it.  MT_EBUSY: a run has it.  Fails where only_runs does. */
mt_rc mt_output_dir_remove(const char *path, mt_err *err);

/* True if a run writes something other than its metrics under this name in its directory, or under the first folder of it. */
bool mt_output_dir_uses(const char *name);
/* Lists `name` as a run's file, before it is written. */
mt_rc mt_output_dir_own(const mt_output_dir *d, const char *name, mt_err *err);
/* The same for the directory `made` and all in it, before it is renamed to `path`; user is the mt_output_dir (outdir.h). */
mt_rc mt_output_dir_own_made(void *user, const char *made, const char *path, mt_err *err);
/* Lists and writes a small file atomically. */
mt_rc mt_output_dir_save(const mt_output_dir *d, const char *name, const char *text, size_t n, mt_err *err);

/* Fails if fewer bytes are free than `need`, which is for `what`. */
mt_rc mt_output_dir_need(const mt_output_dir *d, uint64_t need, const char *what, mt_err *err);

#endif
