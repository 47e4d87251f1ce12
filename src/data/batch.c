#include "data/batch.h"

#include <math.h>
#include <string.h>

const mt_column_info mt_columns[MT_COLUMNS] = { [MT_COLUMN_WEIGHT] = { .name = "weight", .fallback = 1 } };

#define FOR_COLUMNS(b, c)                                                                                                        \
    for (mt_column c = 0; c < MT_COLUMNS; c++)                                                                                   \
        if ((b)->asked & MT_COLUMN_BIT(c))

static mt_rc batch_check(const int32_t *ids, const int32_t *labels, int64_t n, int64_t vocab, mt_err *err)
{
    if (n < 1) return mt_fail(err, MT_EINVAL, "an empty row of tokens");
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= vocab)
            return mt_fail(err, MT_ERANGE, "token id %d at position %lld; the model's vocabulary has %lld", ids[i], (long long)i,
                           (long long)vocab);
        if (labels && labels[i] != MT_IGNORE && (labels[i] < 0 || labels[i] >= vocab))
            return mt_fail(err, MT_ERANGE, "label %d at position %lld; an id below %lld or %d (ignored) expected", labels[i],
                           (long long)i, (long long)vocab, MT_IGNORE);
    }
    return MT_OK;
}

/* Makes room for a document of n rows, and gives it the fallbacks. */
static mt_rc add_columns(mt_batch *b, int64_t n, mt_err *err)
{
    FOR_COLUMNS(b, c)
    {
        const int64_t at = mt_columns[c].per_row ? b->n_tokens : b->n_docs, more = mt_columns[c].per_row ? n : 1;
        MT_TRY(mt_grow(&b->columns[c], &b->cap_columns[c], (size_t)(at + more), sizeof *b->columns[c], err));
        for (int64_t i = at; i < at + more; i++) b->columns[c][i] = mt_columns[c].fallback;
    }
    return MT_OK;
}

mt_rc mt_batch_add(mt_batch *b, const int32_t *ids, const int32_t *labels, int64_t n, int64_t vocab, mt_err *err)
{
    MT_TRY(batch_check(ids, labels, n, vocab, err));
    if (b->n_tokens + n > INT32_MAX) return mt_fail(err, MT_ERANGE, "a step of more than %d tokens", INT32_MAX);
    MT_TRY(mt_grow(&b->ids, &b->cap_ids, (size_t)(b->n_tokens + n), sizeof *b->ids, err));
    MT_TRY(mt_grow(&b->targets, &b->cap_targets, (size_t)(b->n_tokens + n), sizeof *b->targets, err));
    MT_TRY(mt_grow(&b->doc_start, &b->cap_docs, (size_t)(b->n_docs + 2), sizeof *b->doc_start, err));
    MT_TRY(add_columns(b, n, err));
    memcpy(b->ids + b->n_tokens, ids, (size_t)n * sizeof *ids);
    int32_t *targets = b->targets + b->n_tokens;
    for (int64_t i = 0; i < n; i++) {
        targets[i] = MT_IGNORE; /* the last row has nothing to predict */
        if (i + 1 < n) targets[i] = labels ? labels[i + 1] : ids[i + 1];
        b->n_trained += targets[i] != MT_IGNORE;
    }
    b->doc_start[b->n_docs] = (int32_t)b->n_tokens;
    b->n_tokens += n;
    b->doc_start[++b->n_docs] = (int32_t)b->n_tokens;
    if (n > b->longest) b->longest = n;
    return MT_OK;
}

void mt_batch_ask(mt_batch *b, uint32_t columns) { b->asked |= columns; }

/* Where a column has the numbers of a document; *n: how many. */
static float *numbers_of(const mt_batch *b, mt_column c, int64_t doc, int64_t *n)
{
    *n = mt_columns[c].per_row ? b->doc_start[doc + 1] - b->doc_start[doc] : 1;
    return b->columns[c] + (mt_columns[c].per_row ? b->doc_start[doc] : doc);
}

mt_rc mt_batch_set(mt_batch *b, mt_column column, const float *values, mt_err *err)
{
    int64_t n;
    float *to = numbers_of(b, column, b->n_docs - 1, &n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]) || (column == MT_COLUMN_WEIGHT && values[i] < 0))
            return mt_fail(err, MT_ERANGE, "a %s of %g; a finite number%s expected", mt_columns[column].name, (double)values[i],
                           column == MT_COLUMN_WEIGHT ? " of 0 or more" : "");
    memcpy(to, values, (size_t)n * sizeof *to);
    return MT_OK;
}

void mt_batch_set_from(mt_batch *b, const mt_batch *from, int64_t doc)
{
    FOR_COLUMNS(b, c)
    {
        int64_t n, longer;
        float *to = numbers_of(b, c, b->n_docs - 1, &n);
        if (from->asked & MT_COLUMN_BIT(c)) memcpy(to, numbers_of(from, c, doc, &longer), (size_t)n * sizeof *to);
    }
}

double mt_batch_weight(const mt_batch *b)
{
    const float *weights = b->columns[MT_COLUMN_WEIGHT];
    double sum = 0;
    if (!weights) return (double)b->n_trained;
    for (int64_t d = 0; d < b->n_docs; d++) {
        int64_t n = 0;
        for (int32_t i = b->doc_start[d]; i < b->doc_start[d + 1]; i++) n += b->targets[i] != MT_IGNORE;
        sum += (double)weights[d] * (double)n;
    }
    return sum;
}

void mt_batch_clear(mt_batch *b) { b->n_tokens = b->n_docs = b->n_trained = b->longest = 0; }

void mt_batch_free(mt_batch *b)
{
    mt_free(b->ids);
    mt_free(b->targets);
    mt_free(b->doc_start);
    for (int c = 0; c < MT_COLUMNS; c++) mt_free(b->columns[c]);
    *b = (mt_batch){ 0 };
}
