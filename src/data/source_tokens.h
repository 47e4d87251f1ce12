/* source_tokens.h - a source of tokenized rows: {"input_ids": [[...], ...], "labels": [[...], ...], "weight": [...]}, all but the ids
 * optional.
 *
 * Rows are held out first, by val_seed; each epoch shuffles the rest, by seed and epoch.  A step takes the next samples_per_step
 * rows of its epoch; the last step of an epoch takes the rest.  A step is a pure function of (rows, options, number). */
#ifndef MT_DATA_SOURCE_TOKENS_H
#define MT_DATA_SOURCE_TOKENS_H

#include "data/source.h"

typedef struct mt_source_tokens_options {
    const char *path;
    int64_t vocab;
    int64_t samples_per_step; /* batch_size x gradient_accumulation_steps */
    int64_t max_seq_len;      /* longer rows are cut; 0: none are */
    int64_t max_samples;      /* only the first N rows; 0: all */
    bool shuffle;
    uint64_t seed, val_seed;
    double val_size;          /* below 1: share held out; from 1: number of rows */
    int64_t max_eval_samples; /* of those; 0: all */
} mt_source_tokens_options;

mt_rc mt_source_tokens_open(mt_source **out, const mt_source_tokens_options *o, mt_err *err);

#endif
