/* output_dir.h - the directory of a run: locked while the run lives, and never overwritten unless asked.
 *
 * The lock is the kernel's (flock on OUTPUT/.lock), so it ends with the process however that ends; the file's text, the holder's
 * process id, only serves the message. */
#ifndef MT_RUN_OUTPUT_DIR_H
#define MT_RUN_OUTPUT_DIR_H

#include "base/mem.h"

typedef struct mt_output_dir {
    char *path;
    int lock; /* valid while `locked` */
    bool locked;
    uint64_t to_come; /* bytes that will be free once it is cleared */
} mt_output_dir;

/* Make it and lock it.  MT_EBUSY: another run has it. */
mt_rc mt_output_dir_open(mt_output_dir *d, const char *path, mt_err *err);
/* It is there, and locked by another rank of the same run. */
mt_rc mt_output_dir_join(mt_output_dir *d, const char *path, mt_err *err);
void mt_output_dir_close(mt_output_dir *d); /* accepts a zeroed or closed one */

/* True if a run was here: its plan, its metrics, a checkpoint or the finished model. */
mt_rc mt_output_dir_holds_run(const mt_output_dir *d, bool *yes, mt_err *err);
/* Remove what runs have listed as theirs (run_files.h): checkpoints, the finished model, configuration, plan, metrics.  Nothing
 * else is touched, and nothing where no run was; a file under one of those names that is not listed is an error, and nothing is
 * removed. */
mt_rc mt_output_dir_clear(mt_output_dir *d, mt_err *err);
/* Remove what a kill left half-made or half-removed.  One that ends in .old.tmp may stay, where something still uses it (on NFS,
 * a reader of its files); then a warning says so. */
mt_rc mt_output_dir_sweep(const mt_output_dir *d, mt_err *err);
/* It will be: until then what that frees counts as free.  Fails where clearing would. */
mt_rc mt_output_dir_will_clear(mt_output_dir *d, mt_err *err);
/* Fails if a file stands where a new run would write and no run has listed it. */
mt_rc mt_output_dir_check_free(const mt_output_dir *d, mt_err *err);
/* Fails if there is anything in the directory that no run has written. */
mt_rc mt_output_dir_only_runs(const char *path, mt_err *err);

/* List `name` as a run's, before it is written. */
mt_rc mt_output_dir_own(const mt_output_dir *d, const char *name, mt_err *err);
/* The same for the directory `made` and all in it, before it is renamed to `path`; user is the mt_output_dir (outdir.h). */
mt_rc mt_output_dir_own_made(void *user, const char *made, const char *path, mt_err *err);
/* A small file in it, listed and written: whole or not at all. */
mt_rc mt_output_dir_save(const mt_output_dir *d, const char *name, const char *text, size_t n, mt_err *err);

/* Fails if fewer bytes are free than `need`, which is for `what`. */
mt_rc mt_output_dir_need(const mt_output_dir *d, uint64_t need, const char *what, mt_err *err);

#endif
