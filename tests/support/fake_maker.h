/* fake_maker.h - records whose samples are known without a tokenizer, and files of them.
 *
 * A record {"id": i, "n": k} becomes one sample of k tokens: i % 1000, then k - 1 trained tokens that depend on i.  "parts": p
 * makes p such samples of it, "bad": r a record of reason r, "fatal" an error, "uncut": u a sample that once had u tokens.
 * Records may hold a text too. */
#ifndef MT_TEST_FAKE_MAKER_H
#define MT_TEST_FAKE_MAKER_H

#include "tempdir.h"

#include "base/rng.h"
#include "data/batch.h"
#include "data/maker.h"

enum { FAKE_VOCAB = 1000, FAKE_LONGEST = 4096, FAKE_PARTS = 8 };

typedef struct fake_scratch {
    int32_t ids[FAKE_PARTS][FAKE_LONGEST], labels[FAKE_PARTS][FAKE_LONGEST];
    mt_sample samples[FAKE_PARTS];
} fake_scratch;

static inline mt_rc fake_scratch_create(const void *ctx, void **out, mt_err *err)
{
    (void)ctx;
    *out = mt_calloc(1, sizeof(fake_scratch));
    return *out ? MT_OK : mt_no_memory(err, "a fake scratch");
}

static inline int64_t fake_int(const mt_value *record, const char *key, int64_t otherwise)
{
    const mt_value *v = mt_value_get(record, key);
    return v && v->type == MT_VALUE_INT ? v->i : otherwise;
}

/* Token k of part p of record id. */
static inline int32_t fake_token(int64_t id, int64_t p, int64_t k)
{
    return (int32_t)(k == 0 ? id % FAKE_VOCAB
                            : (int64_t)mt_rng_below(7, (uint64_t)id, (uint64_t)(p * FAKE_LONGEST + k), FAKE_VOCAB));
}

static inline mt_rc fake_run(const void *ctx, void *scratch, const mt_value *record, const mt_sample **samples, size_t *n,
                             mt_reason *reason, mt_oddities *odd, mt_err *err)
{
    (void)ctx;
    fake_scratch *s = scratch;
    int64_t id = fake_int(record, "id", 0), length = fake_int(record, "n", 3), uncut = fake_int(record, "uncut", 0);
    *n = 0;
    *samples = s->samples;
    *reason = (mt_reason)fake_int(record, "bad", MT_REASON_NONE);
    if (mt_value_get(record, "fatal")) return mt_fail(err, MT_EFORMAT, "the template changes the answer");
    if (*reason != MT_REASON_NONE) return mt_fail(err, MT_EFORMAT, "record %lld is bad on purpose", (long long)id), MT_OK;
    *n = (size_t)fake_int(record, "parts", 1);
    assert_true(*n <= FAKE_PARTS && length <= FAKE_LONGEST);
    bool trained = !mt_value_get(record, "untrained");
    for (size_t p = 0; p < *n; p++) {
        for (int64_t k = 0; k < length; k++) {
            s->ids[p][k] = fake_token(id, (int64_t)p, k);
            s->labels[p][k] = k && trained ? s->ids[p][k] : MT_IGNORE;
        }
        s->samples[p] = (mt_sample){ .ids = s->ids[p], .labels = s->labels[p], .n = length, .n_uncut = uncut };
    }
    odd->answers_cut += uncut > length;
    odd->truncated += uncut > length;
    odd->unrolled += *n > 1;
    return MT_OK;
}

static inline mt_sample_maker fake_maker(uint64_t fingerprint)
{
    return (mt_sample_maker){
        .scratch_create = fake_scratch_create, .scratch_free = mt_free, .run = fake_run, .fingerprint = fingerprint
    };
}

/* dir/name with `text`; the path is the caller's to free. */
static inline char *fake_file(const char *dir, const char *name, const char *text)
{
    char *path = mt_path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* n records with ids from `first` on and lengths between 2 and `longest`, drawn by id. */
static inline char *fake_records(const char *dir, const char *name, int64_t first, int64_t n, int64_t longest)
{
    mt_str text = { 0 };
    for (int64_t i = first; i < first + n; i++)
        mt_str_printf(&text, "{\"id\": %lld, \"n\": %lld}\n", (long long)i,
                      (long long)(2 + (int64_t)mt_rng_below(3, 0, (uint64_t)i, (uint64_t)longest - 1)));
    assert_true(mt_str_ok(&text));
    char *path = fake_file(dir, name, text.s ? text.s : "");
    mt_str_free(&text);
    return path;
}

#endif
