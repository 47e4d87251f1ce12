/* cache_trim.h - old stores leave the cache: those unused for a month, then the least recently used beyond a number of bytes.
 *
 * Opening a store marks it used (its time of change) and holds it, by a shared lock on the file, for as long as it is mapped.  A
 * locked store is never removed, and files with other names are ignored. */
#ifndef MT_DATA_CACHE_TRIM_H
#define MT_DATA_CACHE_TRIM_H

#include "base/mem.h"

enum { MT_CACHE_DAYS = 30 };

typedef struct mt_trimmed {
    int n_files;
    uint64_t bytes;
} mt_trimmed;

/* An open file that says "in use" until it is closed; -1 where that cannot be said. */
int mt__cache_hold(const char *path);

/* Removes what it can and never fails: `max_bytes` for all stores together (0: any number), `now` in seconds since 1970. */
mt_trimmed mt_cache_trim(const char *dir, uint64_t max_bytes, int64_t now);

#endif
