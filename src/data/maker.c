#include "data/maker.h"

#include "base/rng.h"

#include <oniguruma.h>
#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

static mt_rc scratch_create(const void *ctx, void **out, mt_err *err)
{
    mt_sampler_scratch *scratch;
    *out = NULL;
    MT_TRY(mt_sampler_scratch_create(&scratch, ctx, err));
    *out = scratch;
    return MT_OK;
}

static void scratch_free(void *scratch) { mt_sampler_scratch_free(scratch); }

static void heed(void *scratch, const atomic_bool *stop) { mt_sampler_scratch_heed(scratch, stop); }

static mt_rc maker_run(const void *ctx, void *scratch, const mt_value *record, const mt_sample **samples, size_t *n,
                       mt_reason *reason, mt_oddities *odd, mt_err *err)
{
    return mt_sampler_run(ctx, scratch, record, samples, n, reason, odd, err);
}

static const char *spell(const void *ctx, int32_t id, size_t *n) { return mt_sampler_spell(ctx, id, n); }

mt_sample_maker mt_sample_maker_of(const mt_sampler *s)
{
    return (mt_sample_maker){ .ctx = s,
                              .scratch_create = scratch_create,
                              .scratch_free = scratch_free,
                              .heed = heed,
                              .run = maker_run,
                              .spell = spell,
                              .fingerprint = mt_sampler_fingerprint(s) };
}

static uint64_t sample_code;

/* Once: onig_version() writes its text into memory that all threads share, every time it is called. */
static void find_sample_code(void)
{
    uint64_t h = mt__sample_sources;
    h = mt_hash(onig_version(), strlen(onig_version()), h); /* classes of characters */
    sample_code = mt_hash(utf8proc_version(), strlen(utf8proc_version()), h);
}

uint64_t mt_sample_code(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_sample_code);
    return sample_code;
}
