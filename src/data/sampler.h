/* sampler.h - a record of a dataset becomes samples: token ids, and which of them are trained.
 *
 * A sampler knows one dataset's layout (columns, tags, formatting), the tokenizer and the chat template.  It is immutable and
 * shared by threads; each thread has a scratch.  One record may give several samples (history: unroll), one, or none.
 *
 *     MT_TRY(mt_sampler_open(&s, tokenizer, &entry.layout, &(mt_sampler_config){ .max_seq_len = 2048 }, err));
 *     MT_TRY(mt_sampler_scratch_create(&scratch, s, err));                          // one per thread
 *     MT_TRY(mt_sampler_run(s, scratch, &record, &samples, &n, &reason, &odd, err));
 *     mt_sampler_scratch_free(scratch);  mt_sampler_close(s);
 *
 * What is trained (docs/training-samples.md has the reasons): for each answer the truth is what the model sees when it answers,
 * the turns before it rendered with the generation prompt and tokenized on their own, then the answer as the record has it, then
 * the end-of-turn token.  Where all of that is a prefix of the whole conversation's rendering, text and tokens, the conversation
 * is one sample; otherwise each answer is.
 *
 * What can be wrong with a record is an mt_reason: counted, shown, and skipped or fatal as the user set. */
#ifndef MT_DATA_SAMPLER_H
#define MT_DATA_SAMPLER_H

#include "base/choices.h"
#include "data/layout.h"
#include "tokenizer/tokenizer.h"

#include <time.h>

typedef struct mt_sampler mt_sampler;
typedef struct mt_sampler_scratch mt_sampler_scratch;

/* name, words for the summary */
#define MT_REASON_LIST(X)                                                                                                        \
    X(NONE, "fine")                                                                                                              \
    X(NOT_JSON, "malformed record")                                                                                              \
    X(MISSING_COLUMN, "a column is missing")                                                                                     \
    X(FIRST_NOT_USER, "the first turn is not the user's")                                                                        \
    X(REPEATED_SIDE, "two turns of one side in a row")                                                                           \
    X(UNKNOWN_ROLE, "unknown role")                                                                                              \
    X(BAD_ANSWER, "the answer is null or not text")                                                                              \
    X(BAD_CALL, "malformed tool call or tools")                                                                                  \
    X(NO_ANSWER, "no answer to train on")                                                                                        \
    X(NO_ROOM, "no answer token left within max_seq_len")                                                                        \
    X(TOO_LONG, "longer than max_seq_len")                                                                                       \
    X(TEMPLATE, "the chat template refused it")                                                                                  \
    X(TOKENIZER, "the tokenizer refused it")

typedef enum mt_reason {
#define MT_REASON_ENUM(name, text) MT_REASON_##name,
    MT_REASON_LIST(MT_REASON_ENUM)
#undef MT_REASON_ENUM
        MT_REASONS
} mt_reason;

const char *mt_reason_text(mt_reason r);

/* Odd but usable: counted in the summary. */
typedef struct mt_oddities {
    int64_t trailing_user_cut;  /* a last user turn without an answer was cut off */
    int64_t truncated;          /* samples cut to max_seq_len */
    int64_t answers_cut;        /* of those: an answer lost its end */
    int64_t unrolled;           /* conversations split into one sample per turn */
    int64_t turns_without_room; /* answers of such a conversation that did not fit, while others did */
    int64_t tools_as_text;      /* records whose tools and calls the template does not show: they are written as text */
    int64_t thoughts_begun;     /* answers that begin in an open thought, or open one */
    int64_t thoughts_open;      /* of those: never closed */
    int64_t thoughts_closed;    /* answers whose thought is left out, as the generation prompt has closed it */
    int64_t thoughts_lost;      /* answers whose thought has its own key, which the template does not show: they go without it */
} mt_oddities;

/* A sample as it is handed out: valid until the next call with the same scratch. */
typedef struct mt_sample {
    const int32_t *ids, *labels; /* [n]; labels as Hugging Face has them: the id itself, or -100 where nothing is trained */
    int64_t n;
    int64_t n_uncut;  /* tokens it had before it was cut to max_seq_len; 0: it was not cut */
    const char *text; /* the tokenized text, before any cut; NULL unless requested */
    size_t n_text;
} mt_sample;

/* Zero-initialized means the defaults.  Everything is copied. */
typedef struct mt_sampler_config {
    int64_t max_seq_len;             /* 0: no limit */
    const char *system_prompt;       /* replaces a record's system turn; "" or NULL: keep it */
    const char *default_system;      /* fills in a missing one; "" or NULL: none */
    const char *template;            /* a built-in template by name; "", "auto" or NULL: the model's own */
    const char *template_text;       /* a template itself, where `template` names none; "" or NULL: the model's own */
    const mt_value *template_kwargs; /* a map for the template, or NULL */
    bool train_on_prompt;            /* every token is trained */
    bool mask_history;               /* only the last answer is */
    bool merge_turns;                /* join two turns of one side */
    mt_history history;
    mt_overlong overlong;
    mt_empty_thought empty_thought;
    const struct tm *now; /* the date templates may show; NULL: today, the same for all records */
    size_t max_steps;     /* of one rendering (jinja.h); 0: its own bound */
    bool keep_text;       /* fill mt_sample.text */
    bool as_is;           /* take turns in any order, with or without an answer at the end: to look at, not to train on */
} mt_sampler_config;

/* The tokenizer and the strings of the layout are borrowed and outlive the sampler.  MT_EINVAL: no such template, or one that
 * does not fit the tokenizer; MT_EFORMAT: the model's own is malformed. */
mt_rc mt_sampler_open(mt_sampler **out, const mt_tokenizer *tok, const mt_record_layout *layout, const mt_sampler_config *config,
                      mt_err *err);

/* The template in use, to be saved with the model, and where it is from: "the model's own" or the name of a built-in one. */
const char *mt_sampler_template(const mt_sampler *s, const char **name);
/* The same if it is not the model's own: a model trained with it needs it.  NULL: it is the model's own. */
const char *mt_sampler_new_template(const mt_sampler *s);
/* A notice for the user about that choice; "": none. */
const char *mt_sampler_notice(const mt_sampler *s);
/* What the name of a template means on this model, where that may surprise; "": nothing.  The caller shows it, once for all datasets. */
const char *mt_sampler_remark(const mt_sampler *s);
/* The text of a token of the sampler's tokenizer; NULL: it has no such id. */
const char *mt_sampler_spell(const mt_sampler *s, int32_t id, size_t *n);
/* True if the template uses the date. */
bool mt_sampler_shows_date(const mt_sampler *s);
/* How answers end: the text of the end-of-turn token with what stands before it. */
const char *mt_sampler_end(const mt_sampler *s);

mt_rc mt_sampler_scratch_create(mt_sampler_scratch **out, const mt_sampler *s, mt_err *err);
void mt_sampler_scratch_free(mt_sampler_scratch *scratch);
/* As mt_tok_scratch_heed. */
void mt_sampler_scratch_heed(mt_sampler_scratch *scratch, const atomic_bool *stop);

/* All samples of one record: *samples points at *n of them.  MT_OK with *reason != NONE: the record is bad, *n is 0, and err->msg
 * says why (without file and line, which the caller knows).  Any other error is fatal: a template that changes answer text, no
 * memory. */
mt_rc mt_sampler_run(const mt_sampler *s, mt_sampler_scratch *scratch, const mt_value *record, const mt_sample **samples,
                     size_t *n, mt_reason *reason, mt_oddities *odd, mt_err *err);

/* A conversation rendered for an answer to come, nothing trained: one sample, as mt_sampler_run hands them out. */
mt_rc mt_sampler_prompt(const mt_sampler *s, mt_sampler_scratch *scratch, const mt_value *record, const mt_sample **sample,
                        mt_reason *reason, mt_err *err);

/* One number for all that decides the samples of a record: template, tokenizer, layout, settings. */
uint64_t mt_sampler_fingerprint(const mt_sampler *s);
void mt_sampler_close(mt_sampler *s);

#endif
