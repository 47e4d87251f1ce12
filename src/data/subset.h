/* subset.h - some of n samples: a bit each, and the k-th of them found by counting.  12.6 MB for 100 million. */
#ifndef MT_DATA_SUBSET_H
#define MT_DATA_SUBSET_H

#include "base/mem.h"

typedef struct mt_subset {
    uint64_t *bits;
    int64_t *before; /* members before each block of 512 bits */
    int64_t n, n_in; /* of all, members */
} mt_subset;

mt_rc mt_subset_init(mt_subset *s, int64_t n, mt_err *err); /* empty */
static inline void mt_subset_add(mt_subset *s, int64_t i) { s->bits[i / 64] |= UINT64_C(1) << i % 64; }
static inline bool mt_subset_has(const mt_subset *s, int64_t i) { return s->bits[i / 64] >> i % 64 & 1; }
/* Between the last add and the first at. */
void mt_subset_count(mt_subset *s);
/* The k-th member, from 0. */
int64_t mt_subset_at(const mt_subset *s, int64_t k);
void mt_subset_deinit(mt_subset *s); /* accepts a zeroed one */

#endif
