/* mix.h - several datasets as one: place i of the mixture is sample k of dataset d.
 *
 *     concat   one after the other
 *     under    drawn in turn until the first is used up
 *     over     drawn in turn until the last is used up; the others begin again
 * With probabilities "in turn" is a seeded draw at every place, without them it is round and round.  Any place is found without
 * walking there: counts are kept for every MT_MIX_STRIDE draws, from the start of their MT_MIX_BLOCK draws on. */
#ifndef MT_DATA_MIX_H
#define MT_DATA_MIX_H

#include "base/choices.h"
#include "base/mem.h"

#include <stdatomic.h>

enum { MT_MIX_STRIDE = 64, MT_MIX_BLOCK = 1 << 16 };

typedef struct mt_mix {
    mt_mix_strategy strategy;
    size_t n_sets;
    int64_t n;      /* places */
    int64_t *sizes; /* [n_sets] */
    double *upto;   /* [n_sets] sums of the probabilities; NULL: round and round */
    uint64_t seed;
    /* with probabilities, draws of each set: */
    int64_t *drawn;    /* [n_sets] in all */
    int64_t *blocks;   /* [n / MT_MIX_BLOCK + 1][n_sets] before each block */
    uint16_t *strides; /* [n / MT_MIX_STRIDE + 1][n_sets] before each stride, since its block began */
    size_t cap_blocks, cap_strides;
} mt_mix;

/* probs: [n_sets], or NULL; they are scaled to sum to 1.  Every size must be above 0 unless datasets are concatenated.  *stop
 * (NULL: none) becoming true ends it with MT_ESTOPPED. */
mt_rc mt_mix_init(mt_mix *m, mt_mix_strategy strategy, const int64_t *sizes, const double *probs, size_t n_sets, uint64_t seed,
                  const atomic_bool *stop, mt_err *err);
void mt_mix_at(const mt_mix *m, int64_t i, size_t *set, int64_t *k);
/* How many places a dataset has. */
int64_t mt_mix_drawn(const mt_mix *m, size_t set);
void mt_mix_deinit(mt_mix *m); /* accepts a zeroed one */

#endif
