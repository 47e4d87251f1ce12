/* split.h - "train", "train[:1000]", "train[5%:]", "train[-100:]": a split and, perhaps, some of its rows.
 *
 * The meaning is the datasets library's: numbers are rows, or shares of all rows when either has a % (rounded to the nearest row,
 * halves to the even one); negative ones count from the end. */
#ifndef MT_DATA_SPLIT_H
#define MT_DATA_SPLIT_H

#include "data/records.h"

typedef struct mt_split {
    char name[96]; /* "": not said */
    bool sliced, percent;
    bool has_from, has_to;
    int64_t from, to;
} mt_split;

mt_rc mt_split_parse(mt_split *out, const char *text, mt_err *err); /* NULL and "" say nothing */

/* Rows [*first, *end) of n_rows. */
void mt_split_rows(const mt_split *s, int64_t n_rows, int64_t *first, int64_t *end);

/* The same onto the options of a reader; counts the rows of `path` where the slice needs to know them. */
mt_rc mt_split_apply(const mt_split *s, const char *path, mt_records_options *options, mt_err *err);

#endif
