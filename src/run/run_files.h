/* run_files.h - the list of files that runs have written into an output directory: OUTPUT/.files, one JSON string per line.
 *
 * A path is listed, and the list synced, before the file gets its name.  So every file of a run is in the list, and any other
 * file belongs to someone else: --overwrite removes listed files and nothing else. */
#ifndef MT_RUN_RUN_FILES_H
#define MT_RUN_RUN_FILES_H

#include "base/mem.h"

#define MT_RUN_FILES_NAME ".files"

typedef struct mt_run_files {
    char **paths; /* below the directory, sorted; directories too */
    size_t n, cap;
    bool found; /* there is a list */
    bool torn;  /* the last line is incomplete, after a kill, a full disk or a power loss */
} mt_run_files;

/* Reads the list of `dir`; found is false if there is none. */
mt_rc mt_run_files_read(mt_run_files *out, const char *dir, mt_err *err);
void mt_run_files_free(mt_run_files *f); /* accepts a zeroed one */
bool mt_run_files_has(const mt_run_files *f, const char *path);

/* Lists one path. */
mt_rc mt_run_files_add(const char *dir, const char *path, mt_err *err);
/* Lists `path` and everything below the directory `made`, which is about to be renamed to it. */
mt_rc mt_run_files_add_tree(const char *dir, const char *path, const char *made, mt_err *err);

/* The first path at or below `name`, an entry of dir, that is not listed as `listed_as` or below it; *out NULL: all are listed.
 * Newly allocated. */
mt_rc mt_run_files_foreign(char **out, const mt_run_files *f, const char *dir, const char *name, const char *listed_as,
                           mt_err *err);

#endif
