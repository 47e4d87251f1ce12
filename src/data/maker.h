/* maker.h - the store's view of the code that turns records into samples: a context shared by threads, a scratch for each.
 *
 * In a run it is a sampler (sampler.h), bound by mt_sample_maker_of; tests bring their own. */
#ifndef MT_DATA_MAKER_H
#define MT_DATA_MAKER_H

#include "data/sampler.h"

/* As mt_sampler_run. */
typedef mt_rc (*mt_sample_fn)(const void *ctx, void *scratch, const mt_value *record, const mt_sample **samples, size_t *n,
                              mt_reason *reason, mt_oddities *odd, mt_err *err);

typedef struct mt_sample_maker {
    const void *ctx; /* borrowed; outlives all use */
    mt_rc (*scratch_create)(const void *ctx, void **out, mt_err *err);
    void (*scratch_free)(void *scratch);                  /* accepts NULL */
    void (*heed)(void *scratch, const atomic_bool *stop); /* run ends with MT_ESTOPPED soon after *stop is true; may be NULL */
    mt_sample_fn run;
    const char *(*spell)(const void *ctx, int32_t id,
                         size_t *n); /* the token's text for a message, or NULL; may be NULL itself */
    uint64_t fingerprint;            /* of all that decides the samples of a record */
} mt_sample_maker;

mt_sample_maker mt_sample_maker_of(const mt_sampler *s);

/* Of the code that makes samples of files, which includes only what is in base/, tokenizer/, jinja/ and data/: a hash of all
 * sources there (cmake/sample_code.cmake) and of the versions of the libraries that decide tokens. */
uint64_t mt_sample_code(void);
extern const uint64_t mt__sample_sources;

#endif
