/* batch.h - a step's worth of tokens on the host: documents end to end, no padding.
 *
 * targets[i] is what row i should predict, or MT_IGNORE; labels come shifted already (mt_batch_add does it).
 *
 * A batch has the columns that were asked for: numbers beside the tokens, one per row or one per document.  Others have no memory
 * and cost nothing.  A document that is added gets the column's fallback until mt_batch_set(). */
#ifndef MT_DATA_BATCH_H
#define MT_DATA_BATCH_H

#include "base/columns.h"
#include "base/mem.h"

enum { MT_IGNORE = -100 };

typedef struct mt_column_info {
    const char *name; /* as files have it */
    bool per_row;     /* one number per row, not per document */
    float fallback;
} mt_column_info;
extern const mt_column_info mt_columns[MT_COLUMNS];

typedef struct mt_batch {
    int64_t n_tokens, n_docs, n_trained, longest;
    int32_t *ids;       /* [n_tokens] */
    int32_t *targets;   /* [n_tokens] */
    int32_t *doc_start; /* [n_docs + 1] */
    size_t cap_ids, cap_targets, cap_docs;
    uint32_t asked;             /* MT_COLUMN_BIT of the columns it has */
    float *columns[MT_COLUMNS]; /* [n_docs] or [n_tokens]; NULL: not asked for */
    size_t cap_columns[MT_COLUMNS];
} mt_batch;

/* Zero-initialize first.  Append one document; labels as Hugging Face has them (row i's label is token i; the shift happens
 * here), NULL: every token is trained.  Ids outside [0, vocab) are refused, as are labels that are neither ids nor MT_IGNORE. */
mt_rc mt_batch_add(mt_batch *b, const int32_t *ids, const int32_t *labels, int64_t n, int64_t vocab, mt_err *err);
/* Adds columns to a batch without documents. */
void mt_batch_ask(mt_batch *b, uint32_t columns);
/* A column of the last document: one number, or one for each of its rows.  Weights are 0 or more. */
mt_rc mt_batch_set(mt_batch *b, mt_column column, const float *values, mt_err *err);
/* The columns of the last document, from those of another batch's document; that may be longer. */
void mt_batch_set_from(mt_batch *b, const mt_batch *from, int64_t doc);
/* The weights of all trained rows; without that column their number. */
double mt_batch_weight(const mt_batch *b);
/* Append the rows of {"input_ids": [[...], ...], "labels": [[...], ...], "weight": [...]}; labels and weight may be absent.  A
 * weight is of a whole row; the batch then has that column. */
mt_rc mt_batch_read_json(mt_batch *b, const char *path, int64_t vocab, mt_err *err);
void mt_batch_clear(mt_batch *b); /* keeps the memory and the columns that were asked for */
void mt_batch_free(mt_batch *b);

#endif
