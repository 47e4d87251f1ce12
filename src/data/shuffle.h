/* shuffle.h - a seeded order of n things in which any place is found at once, without storing it. */
#ifndef MT_DATA_SHUFFLE_H
#define MT_DATA_SHUFFLE_H

#include <stdint.h>

/* What the random numbers are for: a stream each, so that one does not follow from another. */
enum { MT_SHUFFLE_SPLIT = 1, MT_SHUFFLE_CHOICE = 2, MT_SHUFFLE_PACK = 3, MT_SHUFFLE_MIX = 4, MT_SHUFFLE_EPOCH = 1 << 20 };

typedef struct mt_shuffle {
    uint64_t n, seed, stream;
    uint64_t rows, columns; /* rows x columns >= n, and less than n + rows */
} mt_shuffle;

/* An epoch's stream is MT_SHUFFLE_EPOCH + epoch. */
mt_shuffle mt_shuffle_of(int64_t n, uint64_t seed, uint64_t stream);
/* A bijection of [0, n). */
int64_t mt_shuffle_at(const mt_shuffle *s, int64_t i);

#endif
