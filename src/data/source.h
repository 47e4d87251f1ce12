/* source.h - where a run's steps come from.  Any step can be rebuilt from its number alone, so resuming costs nothing.
 *
 * A source is one struct of functions.  Step numbers count from 0 over the whole run; which samples make up step k is a pure
 * function of the data, the settings, the seed and k. */
#ifndef MT_DATA_SOURCE_H
#define MT_DATA_SOURCE_H

#include "data/batch.h"
#include "tokenizer/tokenizer.h"

typedef struct mt_source mt_source;

/* What a plan must make room for, and how much there is. */
typedef struct mt_source_info {
    int64_t n_samples;                               /* trained on, evaluation samples not counted */
    int64_t steps_per_epoch;                         /* the last one may be smaller */
    int64_t max_tokens, max_docs;                    /* of any step, evaluation batches included */
    int64_t longest;                                 /* rows of the longest sample */
    int64_t train_tokens, train_docs, train_longest; /* the same of steps that train: what their arithmetic is chosen for */
    int64_t n_eval_samples;                          /* evaluated on */
    int64_t n_eval_batches;                          /* 0: nothing to evaluate on */
    uint32_t columns;                                /* MT_COLUMN_BIT of those that steps have */
    uint64_t fingerprint;          /* of the training data and all settings that make samples of it: a resumed run compares it */
    bool shows_date;               /* samples show the date they were made for, by their template */
    const char *end_of_turn_text;  /* the token that is trained to end an answer; NULL: not known.  Lives as long as the source */
    int32_t end_of_turn;           /* its id, where the text is given */
    const mt_tokenizer *tokenizer; /* its adopted tokens are to be saved; NULL: there are none.  Lives as long as the source */
    const char *chat_template;     /* to be saved with the model, which has another or none; NULL: its own was used, or none */
} mt_source_info;

typedef struct mt_source_api {
    void (*info)(mt_source *s, mt_source_info *out);
    /* Clears `out` and fills it with step `step`. */
    mt_rc (*step)(mt_source *s, int64_t step, mt_batch *out, mt_err *err);
    mt_rc (*eval)(mt_source *s, int64_t index, mt_batch *out, mt_err *err);
    /* For looking at what was learned: a prompt's tokens as the data would begin an answer, appended; and the text of tokens,
     * appended.  NULL, both: the source knows no text. */
    mt_rc (*prompt)(mt_source *s, const char *text, mt_tokens *out, mt_err *err);
    mt_rc (*text)(mt_source *s, const int32_t *ids, size_t n, mt_str *out, mt_err *err);
    void (*close)(mt_source *s); /* accepts NULL */
} mt_source_api;

struct mt_source {
    const mt_source_api *api;
};

static inline void mt_source_close(mt_source *s)
{
    if (s) s->api->close(s);
}

#endif
