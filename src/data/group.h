/* group.h - the samples of several stores that are used for one purpose, training or evaluation, in an order. */
#ifndef MT_DATA_GROUP_H
#define MT_DATA_GROUP_H

#include "data/mix.h"
#include "data/packing.h"
#include "data/shuffle.h"
#include "data/store.h"
#include "data/subset.h"

typedef struct mt__group {
    mt_store *const *stores; /* [n]; borrowed */
    size_t n;
    mt_subset *sets; /* [n] which samples of each */
    mt_mix mix;
    int64_t n_samples;
    bool shuffle;
    uint64_t seed;
    mt_shuffle pack_order; /* which samples are packed together */
    mt_packing *packing;   /* NULL: off */
    int64_t n_units;       /* samples, or rows */
} mt__group;

/* First the subsets are filled, then the group is ordered. */
mt_rc mt__group_init(mt__group *g, mt_store *const *stores, size_t n, mt_err *err);
mt_rc mt__group_order(mt__group *g, mt_mix_strategy strategy, const double *probs, bool shuffle, uint64_t seed,
                      const atomic_bool *stop, mt_err *err);
mt_rc mt__group_pack(mt__group *g, int64_t row_tokens, const atomic_bool *stop, mt_err *err);
void mt__group_deinit(mt__group *g); /* accepts a zeroed one */

/* Place i of the mixture. */
void mt__group_at(const mt__group *g, int64_t i, size_t *store, int64_t *sample);
/* Places that make up the u-th unit of an epoch: *one if it is a single sample. */
void mt__group_unit(mt__group *g, int64_t epoch, int64_t u, int64_t *one, const int64_t **places, int64_t *n);
/* The most tokens that `per` samples can have. */
mt_rc mt__group_most_tokens(const mt__group *g, int64_t per, int64_t *out, mt_err *err);
int64_t mt__group_longest(const mt__group *g);
int64_t mt__group_tokens(const mt__group *g); /* of an epoch */

#endif
