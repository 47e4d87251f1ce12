/* tuned.h - product kernels that were chosen by timing, by shape: kept in a file, so that later runs on this machine use the same
 * kernels and get the same bits.
 *
 * One file in a folder for each `who` (a GPU and the version of the library whose kernels they are).  A choice is a line, added
 * as it is made; of two for one shape the first counts, so that runs side by side end up agreeing. */
#ifndef MT_DEVICE_TUNED_H
#define MT_DEVICE_TUNED_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { MT_TUNED_KEY = 16, MT_TUNED_CHOICE = 8 };

typedef struct mt_tuned mt_tuned;

/* The user's cache, to be freed; "" and a warning where there is none; NULL: no memory. */
char *mt_tuned_folder(void);

/* dir "": nothing is kept.  A folder that cannot be written is a warning: choices are then this process's own. */
mt_rc mt_tuned_open(mt_tuned **out, const char *dir, const char *who, mt_err *err);
void mt_tuned_close(mt_tuned *t); /* accepts NULL */
int mt_tuned_count(const mt_tuned *t);

bool mt_tuned_find(const mt_tuned *t, const int64_t key[MT_TUNED_KEY], uint64_t choice[MT_TUNED_CHOICE]);
void mt_tuned_add(mt_tuned *t, const int64_t key[MT_TUNED_KEY], const uint64_t choice[MT_TUNED_CHOICE]);

#endif
