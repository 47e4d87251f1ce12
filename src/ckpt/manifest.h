/* manifest.h - the list of a directory's files with their sizes and checksums, which says whether all of it is there.
 *
 *     {"files": {"config.json": {"bytes": 557, "checksum": "9c1e..."}, "resume/unit-000.safetensors": {...}, ...}} */
#ifndef MT_CKPT_MANIFEST_H
#define MT_CKPT_MANIFEST_H

#include "base/err.h"

#include <pthread.h>
#include <stdint.h>

#define MT_MANIFEST_NAME "checksums.json"

typedef struct mt_manifest_entry {
    char *name; /* "resume/unit-000.safetensors" */
    uint64_t bytes, sum;
} mt_manifest_entry;

typedef struct mt_manifest {
    const char *dir;      /* borrowed */
    pthread_mutex_t lock; /* guards what follows */
    mt_manifest_entry *items;
    size_t n, cap;
} mt_manifest;

/* `dir` is borrowed. */
void mt_manifest_init(mt_manifest *m, const char *dir);
/* Take a large file up as soon as it is written, while the system still has it in memory, which it then need not keep.  From any thread. */
mt_rc mt_manifest_take(mt_manifest *m, const char *name, mt_err *err);
/* The same for a file that another process has written, with the size and checksum that it found.  From any thread. */
mt_rc mt_manifest_take_known(mt_manifest *m, const char *name, uint64_t bytes, uint64_t sum, mt_err *err);
/* The entry of a file, or NULL: it is not taken up.  No other thread may take one up meanwhile. */
const mt_manifest_entry *mt_manifest_find(const mt_manifest *m, const char *name);
/* Take up what else is in dir and in the directories of it, one level down, and write the list.  Comes last: it makes the
 * directory complete. */
mt_rc mt_manifest_write(mt_manifest *m, mt_err *err);
void mt_manifest_deinit(mt_manifest *m);

/* Every listed file is there, with its size and checksum.  MT_ENOENT: no list, or a file is missing; MT_EFORMAT: one
 * differs. */
mt_rc mt_manifest_verify(const char *dir, mt_err *err);

#endif
