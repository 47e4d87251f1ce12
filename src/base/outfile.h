/* outfile.h - a file that is there whole and synced, or not there at all.
 *
 *     open      create PATH.tmp and reserve its bytes, so that a full disk is known first
 *     write     at any offset, in any order, from any thread
 *     seal      sync and close: the content is safe, under the temporary name
 *     publish   rename to PATH and sync the directory
 *     close     always last; removes the temporary file unless it was published
 *
 * Killed in between, it leaves PATH.tmp, which the next open() of the same path replaces. */
#ifndef MT_BASE_OUTFILE_H
#define MT_BASE_OUTFILE_H

#include "base/mem.h"

typedef struct mt_outfile {
    char *path, *tmp;
    int fd; /* valid while `opened` and not `sealed` */
    bool opened, sealed, published;
} mt_outfile;

mt_rc mt_outfile_open(mt_outfile *f, const char *path, size_t bytes, mt_err *err);
mt_rc mt_outfile_write(const mt_outfile *f, size_t offset, const void *data, size_t n, mt_err *err);
mt_rc mt_outfile_seal(mt_outfile *f, mt_err *err);
mt_rc mt_outfile_publish(mt_outfile *f, mt_err *err);
/* Remove a published file again: one of several that only make sense together could not be published. */
void mt_outfile_withdraw(mt_outfile *f);
void mt_outfile_close(mt_outfile *f); /* accepts a zeroed or closed one */

/* A directory and those above it, as far as they are not there. */
mt_rc mt_dir_make(const char *path, mt_err *err);

/* The whole life of a small file. */
mt_rc mt_outfile_save(const char *path, const void *data, size_t n, mt_err *err);

#endif
