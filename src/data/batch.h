/* batch.h - a step's worth of tokens on the host: documents end to end, no padding.
 *
 * targets[i] is what row i should predict, or MT_IGNORE; labels come shifted already (mt_batch_add does it). */
#ifndef MT_DATA_BATCH_H
#define MT_DATA_BATCH_H

#include "base/mem.h"

enum { MT_IGNORE = -100 };

typedef struct mt_batch {
    int64_t n_tokens, n_docs, n_trained, longest;
    int32_t *ids;       /* [n_tokens] */
    int32_t *targets;   /* [n_tokens] */
    int32_t *doc_start; /* [n_docs + 1] */
    size_t cap_ids, cap_targets, cap_docs;
} mt_batch;

/* Zero-initialize first.  Append one document; labels as Hugging Face has them (row i's label is token i; the shift happens
 * here), NULL: every token is trained.  Ids outside [0, vocab) are refused, as are labels that are neither ids nor MT_IGNORE. */
mt_rc mt_batch_add(mt_batch *b, const int32_t *ids, const int32_t *labels, int64_t n, int64_t vocab, mt_err *err);
/* Append the rows of {"input_ids": [[...], ...], "labels": [[...], ...]}; labels may be absent. */
mt_rc mt_batch_read_json(mt_batch *b, const char *path, int64_t vocab, mt_err *err);
void mt_batch_clear(mt_batch *b); /* keeps the memory */
void mt_batch_free(mt_batch *b);

#endif
