/* outdir.h - a directory that is there whole and synced, or not there at all; outfile.h for many files that belong together.
 *
 *     open      make PATH.tmp, empty
 *     ...       fill it: every file through outfile.h, which syncs it
 *     publish   sync the directories in it, rename to PATH, sync its parent; a PATH that is there already first moves to
 *               PATH.old.tmp
 *     close     always last; removes what was not published
 *
 * Killed in between, it leaves names that end in .tmp, which the next run removes (run/output_dir.h). */
#ifndef MT_CKPT_OUTDIR_H
#define MT_CKPT_OUTDIR_H

#include "base/outfile.h" /* mt_dir_make */

/* Several processes may fill one directory.  Its temporary name then has a mark, which no other attempt at PATH has: a process of an
 * earlier run that is cut off from the others, and still writes, cannot reach the files of this one. */
typedef mt_rc (*mt_outdir_fn)(void *user, const char *made, const char *path, mt_err *err);

typedef struct mt_outdir {
    char *path, *tmp, *old;
    bool opened, published;
    mt_outdir_fn before_publish; /* NULL, or called with the finished directory before it gets its name */
    void *user;
} mt_outdir;

mt_rc mt_outdir_open(mt_outdir *d, const char *path, mt_err *err);
/* "PATH.0123456789abcdef.tmp"; to be freed.  mark 0: "PATH.tmp".  NULL: no memory. */
char *mt_outdir_tmp_name(const char *path, uint64_t mark);
/* Without the mark, if it has one: how long a name that mt_outdir_tmp_name made is without ".tmp". */
size_t mt_outdir_plain_length(const char *name, size_t n);
mt_rc mt_outdir_open_marked(mt_outdir *d, const char *path, uint64_t mark, mt_err *err);
mt_rc mt_outdir_publish(mt_outdir *d, mt_err *err);
void mt_outdir_close(mt_outdir *d); /* accepts a zeroed or closed one */

/* A file, or a directory with all that is in it; links are removed, not followed.  Absent is fine. */
mt_rc mt_dir_remove(const char *path, mt_err *err);
/* Bytes on disk of a file, or of a directory and all it holds, as far as they can be read. */
uint64_t mt_dir_bytes(const char *path);
/* Give it a name that ends in .tmp, then remove it: a half-removed directory is never taken for a complete one. */
mt_rc mt_dir_discard(const char *path, mt_err *err);

/* Names in dir, sorted, "." and ".." left out.  Release with mt_dir_names_free. */
typedef struct mt_dir_names {
    char **items;
    size_t n, cap;
} mt_dir_names;
mt_rc mt_dir_list(mt_dir_names *out, const char *dir, mt_err *err);
void mt_dir_names_free(mt_dir_names *names);

#endif
