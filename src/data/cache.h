/* cache.h - the store of a dataset: mapped if an earlier run has made it, made otherwise.
 *
 * A store is named by its key: the data files (path, size, time of change, blocks of their content), the maker's fingerprint
 * (tokenizer, template, settings) and what the job says.  Anything else leads to another name, so nothing stale is ever used.  A
 * file that is damaged is made anew.  Two runs that need the same store do not both make it: the second waits for the first. */
#ifndef MT_DATA_CACHE_H
#define MT_DATA_CACHE_H

#include "data/store_build.h"

/* The folder: `dir`, or with "" or NULL $XDG_CACHE_HOME/megatrain, else ~/.cache/megatrain.  Newly allocated. */
mt_rc mt_cache_dir(char **out, const char *dir, mt_err *err);

mt_rc mt_cache_key(uint64_t *out, const mt_store_job *job, mt_err *err);

/* *built (may be NULL) says whether it had to be made. */
mt_rc mt_cache_open(mt_store **out, const char *dir, const mt_store_job *job, bool *built, mt_err *err);

#endif
