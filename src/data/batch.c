#include "data/batch.h"

#include <string.h>

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

mt_rc mt_batch_add(mt_batch *b, const int32_t *ids, const int32_t *labels, int64_t n, int64_t vocab, mt_err *err)
{
    MT_TRY(batch_check(ids, labels, n, vocab, err));
    if (b->n_tokens + n > INT32_MAX) return mt_fail(err, MT_ERANGE, "a step of more than %d tokens", INT32_MAX);
    MT_TRY(mt_grow(&b->ids, &b->cap_ids, (size_t)(b->n_tokens + n), sizeof *b->ids, err));
    MT_TRY(mt_grow(&b->targets, &b->cap_targets, (size_t)(b->n_tokens + n), sizeof *b->targets, err));
    MT_TRY(mt_grow(&b->doc_start, &b->cap_docs, (size_t)(b->n_docs + 2), sizeof *b->doc_start, err));
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

void mt_batch_clear(mt_batch *b) { b->n_tokens = b->n_docs = b->n_trained = b->longest = 0; }

void mt_batch_free(mt_batch *b)
{
    mt_free(b->ids);
    mt_free(b->targets);
    mt_free(b->doc_start);
    *b = (mt_batch){ 0 };
}
