/* cache.h - the store of a dataset: mapped if an earlier run has made it, made otherwise.
 *
 * A store is named by its key: the data files (path, size, times of change, content), the maker's fingerprint (tokenizer,
 * template, settings), what the job says, and the code that makes samples (mt_sample_code).  Anything else leads to another name, so nothing stale is ever used.  A file that is
 * damaged is made anew.  Two runs that need the same store do not both make it: the second waits for the first.
 *
 * The first 256 MiB of a dataset's files are hashed as a whole; of larger files 16 blocks are hashed, and their times identify the
 * rest.  Clocks of file systems are coarse: two changes within a tick leave the same time.  So the key of a large file that has
 * just changed waits until the clock has moved on.  If that cannot be known, the file is hashed as a whole, too. */
#ifndef MT_DATA_CACHE_H
#define MT_DATA_CACHE_H

#include "data/store_build.h"

#include <sys/stat.h>
#include <time.h>

/* The folder: `dir`, or with "" or NULL $XDG_CACHE_HOME/megatrain, else ~/.cache/megatrain.  Newly allocated. */
mt_rc mt_cache_dir(char **out, const char *dir, mt_err *err);

mt_rc mt_cache_key(uint64_t *out, const mt_store_job *job, mt_err *err);

#define MT__CACHE_WHOLE (INT64_C(256) << 20)
/* mt_cache_key, which hashes this many bytes of files as a whole. */
mt_rc mt__cache_key(uint64_t *out, const mt_store_job *job, int64_t whole_bytes, mt_err *err);
/* One file's part of it. */
mt_rc mt__cache_hash_file(uint64_t *h, int fd, const char *path, const struct stat *st, bool whole, const mt_store_job *job,
                          mt_err *err);
/* Nanoseconds after `now` until no further change of a file can leave the time `changed`; 0: that is so already.  Times are
 * multiples of a tick (at most 10 ms), or of up to 2 s where they are whole seconds (ext3, FAT). */
int64_t mt__cache_unsettled(struct timespec changed, struct timespec now);

/* *built (may be NULL) says whether it had to be made. */
mt_rc mt_cache_open(mt_store **out, const char *dir, const mt_store_job *job, bool *built, mt_err *err);

#endif
