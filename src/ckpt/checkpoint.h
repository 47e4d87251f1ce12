/* checkpoint.h - a run's state on disk: complete and synced under its name, or not there at all.
 *
 *     OUTPUT/checkpoint-120/                  opens as a model directory (export.h)
 *         config.json  model.safetensors  tokenizer.json ...
 *         resume/unit-000.safetensors ...     hi, lo, m, v of every tensor of a unit: 12 bytes a trained parameter, 4 a frozen one
 *         resume/state.json settings.yaml     what else a run needs to continue; the caller's
 *         checksums.json                      every file with its size and checksum, written last
 *
 * The rules are numbered C1..C9 in docs/checkpoints.md. */
#ifndef MT_CKPT_CHECKPOINT_H
#define MT_CKPT_CHECKPOINT_H

#include "ckpt/export.h"
#include "ckpt/outdir.h"

typedef struct mt_ckpt_file {
    const char *name; /* in resume/ */
    const char *text;
    size_t n;
} mt_ckpt_file;

typedef struct mt_ckpt_save {
    const char *output_dir; /* exists */
    int64_t step;
    const mt_export *model;
    const mt_state_io *io;
    bool only_model; /* without resume/: no run can resume from it */
    bool backwards;  /* the last unit first: it is needed first */
    const mt_ckpt_file *files;
    size_t n_files;
    mt_outdir_fn before_publish; /* as mt_outdir's */
    void *user;
    int rank, n_ranks; /* of several processes that write it together; 0 and 0: there is one */
    uint64_t mark;     /* the same for all of them, and new each time (outdir.h); one process: 0 */
} mt_ckpt_save;

/* Write checkpoint-STEP.  On failure nothing of it is left and nothing else has changed. */
mt_rc mt_ckpt_write(const mt_ckpt_save *s, mt_err *err);

/* The same by several processes, each of which writes some of the files (writers.h).  Which ones does not show in their bytes.
 *
 *     open      rank 0 makes the directory
 *     start     when it is there: deals the files and creates those of this rank
 *     put       writes them, whole and synced; written() lists what they are
 *     take      rank 0: another rank has written a file
 *     publish   rank 0, when all have put theirs and all was taken: the list of files, then the name
 *     close     always last; what was not published goes
 *
 * Until publish() nothing has the checkpoint's name, so if any rank fails before that, the last complete checkpoint stays intact. */
typedef struct mt_ckpt_writer mt_ckpt_writer;
typedef struct mt_ckpt_written {
    int32_t file; /* by its number, the same on every rank */
    uint64_t bytes, sum;
} mt_ckpt_written;
/* All that `s` points to is borrowed until close. */
mt_rc mt_ckpt_writer_open(mt_ckpt_writer **out, const mt_ckpt_save *s, mt_err *err);
mt_rc mt_ckpt_writer_start(mt_ckpt_writer *w, mt_err *err);
/* After start(): how many ranks read the unit, and call io->done for it.  At least one. */
int mt_ckpt_writer_readers(const mt_ckpt_writer *w, int unit);
mt_rc mt_ckpt_writer_put(mt_ckpt_writer *w, mt_err *err);
/* File i of this rank; false: there are fewer. */
bool mt_ckpt_writer_written(const mt_ckpt_writer *w, int i, mt_ckpt_written *out);
mt_rc mt_ckpt_writer_take(mt_ckpt_writer *w, const mt_ckpt_written *file, mt_err *err); /* any thread */
mt_rc mt_ckpt_writer_publish(mt_ckpt_writer *w, mt_err *err);
void mt_ckpt_writer_close(mt_ckpt_writer *w); /* accepts NULL */
/* Bytes it will take, about: the weights, and what resuming needs. */
uint64_t mt_ckpt_bytes(const mt_ckpt_save *s);

/* Keep the newest `keep` (0: all).  Call after a successful write. */
mt_rc mt_ckpt_prune(const char *output_dir, int64_t keep, mt_err *err);

/* The steps of all checkpoints, oldest first. */
typedef struct mt_ckpt_list {
    int64_t *steps;
    size_t n, cap;
} mt_ckpt_list;
mt_rc mt_ckpt_list_open(mt_ckpt_list *out, const char *output_dir, mt_err *err);
void mt_ckpt_list_free(mt_ckpt_list *l);
/* "OUTPUT/checkpoint-120"; NULL: no memory. */
char *mt_ckpt_path(const char *output_dir, int64_t step);
/* True if a path ends in checkpoint-N, as mt_ckpt_path writes it. */
bool mt_ckpt_step_of(const char *path, int64_t *step);

/* All there, checksums right, and with what resuming needs. */
mt_rc mt_ckpt_verify(const char *path, mt_err *err);
/* The newest that verifies; *path is NULL when there is none.  Each that does not is moved to NAME.damaged, and said with
 * mt_warn.  MT_EINVAL: the newest holds a model only.  MT_EIO: the system would not let it be read, which says nothing of it. */
mt_rc mt_ckpt_find_newest(char **path, const char *output_dir, mt_err *err);

/* A file of resume/, whole. */
mt_rc mt_ckpt_read(char **text, size_t *n, const char *path, const char *name, mt_err *err);
/* hi, lo, m, v of every tensor.  Another model's checkpoint is refused by the tensor that differs.  Moments of tensors that were
 * frozen when it was written start at 0. */
mt_rc mt_ckpt_load(const char *path, const mt_model *model, const mt_state_io *io, mt_err *err);

#endif
