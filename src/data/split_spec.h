/* split_spec.h - which part of a dataset is meant: "train", or some of its records, as Hugging Face's datasets write it.
 *
 *     train[:1000]    the first thousand             train[-1000:]   the last
 *     train[10%:20%]  the second tenth               train[5%:]      all but the first twentieth
 *
 * Percents are rounded to the nearest record. */
#ifndef MT_DATA_SPLIT_SPEC_H
#define MT_DATA_SPLIT_SPEC_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct mt_split_spec {
    char name[128]; /* without the brackets; "" where none was given */
    bool sliced, percent;
    bool has_from, has_to;
    int64_t from, to; /* negative: counted from the end */
} mt_split_spec;

/* NULL and "" are a split without a name. */
mt_rc mt_split_spec_parse(mt_split_spec *out, const char *text, mt_err *err);
/* True if mt_split_spec_range depends on the number of records. */
bool mt_split_spec_counts(const mt_split_spec *s);
/* Of n records those from *first on, and before *end. */
void mt_split_spec_range(const mt_split_spec *s, int64_t n, int64_t *first, int64_t *end);

#endif
