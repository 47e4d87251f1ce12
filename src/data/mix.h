/* mix.h - several datasets as one: place i of the mixture is sample k of dataset d.
 *
 *     concat   one after the other
 *     under    drawn in turn until the first is used up
 *     over     drawn in turn until the last is used up; the others begin again
 * With probabilities "in turn" is a seeded draw at every place, without them it is round and round.  Any place is found without
 * walking there: counts are kept for every MT_MIX_STRIDE draws. */
#ifndef MT_DATA_MIX_H
#define MT_DATA_MIX_H

#include "base/choices.h"
#include "base/mem.h"

enum { MT_MIX_STRIDE = 512 };

typedef struct mt_mix {
    mt_mix_strategy strategy;
    size_t n_sets;
    int64_t n;      /* places */
    int64_t *sizes; /* [n_sets] */
    double *upto;   /* [n_sets] sums of the probabilities; NULL: round and round */
    uint64_t seed;
    int64_t *counts; /* with probabilities: [n / MT_MIX_STRIDE + 1][n_sets] draws of each before */
    size_t n_counts, cap_counts;
} mt_mix;

/* probs: [n_sets], or NULL; they are scaled to sum to 1.  Every size must be above 0 unless datasets are concatenated. */
mt_rc mt_mix_init(mt_mix *m, mt_mix_strategy strategy, const int64_t *sizes, const double *probs, size_t n_sets, uint64_t seed,
                  mt_err *err);
void mt_mix_at(const mt_mix *m, int64_t i, size_t *set, int64_t *k);
void mt_mix_deinit(mt_mix *m); /* accepts a zeroed one */

#endif
