/* sample.h - chooses the next token from a row of logits.
 *
 * Temperature 0 takes the likeliest (the lowest id among equals).  Otherwise logits are divided by the temperature, the top_k
 * likeliest stay, then the fewest of those whose probabilities reach top_p, and one of them is drawn in proportion: the order of
 * transformers.  The draw is number i of a stream (base/rng.h), so a token depends only on its logits, seed, stream and i. */
#ifndef MT_ENGINE_SAMPLE_H
#define MT_ENGINE_SAMPLE_H

#include "base/mem.h"

typedef struct mt_sampling {
    double temperature; /* 0: the likeliest token */
    double top_p;       /* 0 or 1: no limit */
    int64_t top_k;      /* 0: no limit */
    uint64_t seed;
} mt_sampling;

typedef struct mt_candidate {
    float p; /* not normalized: the likeliest has 1 */
    int32_t id;
} mt_candidate;

mt_rc mt_sampling_check(const mt_sampling *s, mt_err *err);

/* Fills in the remaining candidates, likeliest first if top_k or top_p limits them; space has room for V. Returns their
 * number. */
int64_t mt_sample_candidates(const mt_sampling *s, const float *logits, int64_t V, mt_candidate *space);

int32_t mt_sample_token(const mt_sampling *s, const float *logits, int64_t V, uint64_t stream, uint64_t i, mt_candidate *space);

#endif
