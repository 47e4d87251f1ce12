/* sampler_rig.h - a sampler over the tests' small tokenizer (or a folder of the test's own), one record at a time.
 *
 *     rig r;
 *     rig_open(&r, TOKENIZER, layout, (mt_sampler_config){ .template = "chatml", .keep_text = true });
 *     assert_int_equal(rig_run(&r, "{\"instruction\": \"Q\", \"output\": \"A\"}"), MT_OK);
 *     ... r.samples[0 .. r.n - 1], r.reason, r.odd, r.err ...
 *     rig_close(&r); */
#ifndef MT_TEST_SAMPLER_RIG_H
#define MT_TEST_SAMPLER_RIG_H

#include "template_model.h"

#include "data/sampler.h"

typedef struct rig {
    mt_tokenizer *tok;
    mt_sampler *s;
    mt_sampler_scratch *w;
    mt_arena arena;
    const mt_sample *samples;
    size_t n;
    mt_reason reason;
    mt_oddities odd;
    mt_err err;
} rig;

static inline void rig_open(rig *r, const char *dir, mt_record_layout layout, mt_sampler_config config)
{
    mt_err err = { 0 };
    *r = (rig){ 0 };
    assert_ok(mt_tokenizer_open(&r->tok, dir, &err));
    assert_ok(mt_sampler_open(&r->s, r->tok, &layout, &config, &err));
    assert_ok(mt_sampler_scratch_create(&r->w, r->s, &err));
}

static inline void rig_close(rig *r)
{
    mt_sampler_scratch_free(r->w);
    mt_sampler_close(r->s);
    mt_tokenizer_close(r->tok);
    mt_arena_free(&r->arena);
}

static inline mt_rc rig_run(rig *r, const char *json)
{
    mt_err err = { 0 };
    mt_value record;
    mt_arena_reset(&r->arena);
    assert_ok(mt_value_parse_json(&record, &r->arena, json, strlen(json), NULL, "record", &err));
    return mt_sampler_run(r->s, r->w, &record, &r->samples, &r->n, &r->reason, &r->odd, &r->err);
}

/* What sample i trains, as text; the caller frees it. */
static inline mt_str rig_trained(rig *r, size_t i)
{
    mt_str text = { 0 };
    const mt_sample *x = &r->samples[i];
    for (int64_t t = 0; t < x->n; t++)
        if (x->labels[t] >= 0) assert_int_equal(mt_tokenizer_decode(r->tok, &x->labels[t], 1, false, &text, &r->err), MT_OK);
    mt_str_putc(&text, '\0'); /* a text, even where nothing is trained */
    text.n--;
    return text;
}

#endif
