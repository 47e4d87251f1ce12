/* sampler.h - a record of a dataset becomes samples: token ids, and which of them are trained.
 *
 * A sampler knows one dataset's layout (columns, tags, formatting), the tokenizer and the chat template.  It is immutable and
 * shared by threads; each thread has a scratch.  One record may give several samples (history: unroll), one, or none.
 *
 * What can be wrong with a record is an mt_reason: counted, shown, and skipped or fatal as the user set. */
#ifndef MT_DATA_SAMPLER_H
#define MT_DATA_SAMPLER_H

#include "base/value.h"

typedef struct mt_sampler mt_sampler;
typedef struct mt_sampler_scratch mt_sampler_scratch;

/* name, words for the summary */
#define MT_REASON_LIST(X)                                                                                    \
    X(NONE, "fine")                                                                                          \
    X(NOT_JSON, "malformed record")                                                                          \
    X(MISSING_COLUMN, "a column is missing")                                                                 \
    X(FIRST_NOT_USER, "the first turn is not the user's")                                                    \
    X(REPEATED_SIDE, "two turns of one side in a row")                                                       \
    X(UNKNOWN_ROLE, "unknown role")                                                                          \
    X(BAD_ANSWER, "the answer is null or not text")                                                          \
    X(BAD_CALL, "malformed tool call or tools")                                                              \
    X(NO_ANSWER, "no answer to train on")                                                                    \
    X(NO_ROOM, "no answer token left within max_seq_len")                                                    \
    X(TEMPLATE, "the chat template refused it")

typedef enum mt_reason {
#define MT_REASON_ENUM(name, text) MT_REASON_##name,
    MT_REASON_LIST(MT_REASON_ENUM)
#undef MT_REASON_ENUM
    MT_REASONS
} mt_reason;

const char *mt_reason_text(mt_reason r);

/* Odd but usable: counted in the summary. */
typedef struct mt_oddities {
    int64_t trailing_user_cut; /* a last user turn without an answer was cut off */
    int64_t truncated;         /* samples cut to max_seq_len */
    int64_t answers_cut;       /* of those: an answer lost its end */
    int64_t unrolled;          /* conversations that became one sample a turn */
} mt_oddities;

/* A sample as it is handed out: valid until the next call with the same scratch. */
typedef struct mt_sample {
    const int32_t *ids, *labels; /* [n]; labels as Hugging Face has them: the id itself, or -100 where nothing is trained */
    int64_t n;
} mt_sample;

mt_rc mt_sampler_scratch_create(mt_sampler_scratch **out, const mt_sampler *s, mt_err *err);
void mt_sampler_scratch_free(mt_sampler_scratch *scratch);

/* All samples of one record: *samples points at *n of them.  MT_OK with *reason != NONE: the record is bad, *n is 0, and err->msg says why
 * (without file and line, which the caller knows).  Any other error is fatal: a template that changes answer text, no memory. */
mt_rc mt_sampler_run(const mt_sampler *s, mt_sampler_scratch *scratch, const mt_value *record, const mt_sample **samples, size_t *n,
                     mt_reason *reason, mt_oddities *odd, mt_err *err);

/* Of all that decides the samples of a record: template, tokenizer, layout, settings. */
uint64_t mt_sampler_fingerprint(const mt_sampler *s);
void mt_sampler_close(mt_sampler *s);

#endif
