/* rig.h - a model directory, a device and an engine, opened together for a test. */
#ifndef MT_TEST_RIG_H
#define MT_TEST_RIG_H

#include "test.h"

#include "base/dtype.h"
#include "base/rng.h"
#include "engine/load.h"

#include <stdlib.h>

/* Where the tests run: MT_TEST_ON, if the file is built for a device; or MT_TEST_DEVICE=cuda in the environment. */
#ifndef MT_TEST_ON
#define MT_TEST_ON "cpu"
#endif

static inline const char *rig_device(void)
{
    const char *device = getenv("MT_TEST_DEVICE");
    return device ? device : MT_TEST_ON;
}

enum { RIG_SKIPPED = 77 }; /* what ctest takes for "skipped" */

/* Is the device there?  Says why not. */
static inline bool rig_can_run(void)
{
    mt_err err = { 0 };
    mt_device *dev = NULL;
    bool can = !mt_device_open(&dev, rig_device(), NULL, &err);
    if (!can) printf("skipped: %s\n", err.msg);
    mt_device_close(dev);
    return can;
}

/* MT_ONLY: the tests whose name matches this pattern, such as placements_of_shares*. */
#define RIG_TEST_MAIN(...)                                                                                                       \
    int main(void)                                                                                                               \
    {                                                                                                                            \
        const struct CMUnitTest tests[] = { __VA_ARGS__ };                                                                       \
        if (getenv("MT_ONLY")) cmocka_set_test_filter(getenv("MT_ONLY"));                                                        \
        return rig_can_run() ? cmocka_run_group_tests(tests, NULL, NULL) : RIG_SKIPPED;                                          \
    }

enum { RIG_MOST_LANES = 9 };

typedef struct rig {
    mt_config *config;
    mt_shards *shards;
    mt_model *model;
    mt_device *dev;
    mt_device *more[RIG_MOST_LANES - 1]; /* of further lanes */
    mt_plan *plan;
    mt_engine *engine;
    mt_batch batch;
} rig;

/* Few enough that a layer has several units of experts: the test models' are so small that all of theirs would be in one. */
static inline int64_t rig_unit_experts(const mt_config *c)
{
    int64_t E = 0;
    for (int l = 0; l < c->L; l++)
        if (c->layers[l].E) E = c->layers[l].E;
    return E > 2 && E % 2 == 0 ? 2 : E ? 1 : 0;
}

/* config, weights, model and tokens.json of a directory. */
static inline void rig_open_model(rig *r, const char *dir, const mt_model_options *options)
{
    mt_err err = { 0 };
    char notice[256], tokens[1024];
    mt_model_options o = options ? *options : (mt_model_options){ 0 };
    *r = (rig){ 0 };
    assert_ok(mt_config_open(&r->config, dir, &err));
    assert_ok(mt_shards_open(&r->shards, dir, &err));
    if (!o.unit_experts) o.unit_experts = rig_unit_experts(r->config);
    assert_ok(mt_weights_model(&r->model, &r->config, r->shards, &o, notice, &err));
    snprintf(tokens, sizeof tokens, "%s/tokens.json", dir);
    assert_ok(mt_batch_read_json(&r->batch, tokens, r->config->V, &err));
}

static inline mt_job rig_job(const rig *r, bool clip)
{
    return (mt_job){
        .train = true, .clip = clip, .step_tokens = r->batch.n_tokens, .step_docs = r->batch.n_docs, .longest = r->batch.longest
    };
}

static inline mt_arithmetic rig_arithmetic(const rig *r, mt_dtype t)
{
    return (mt_arithmetic){ .compute = t,
                            .grad = MT_DTYPE_F32,
                            .micro_tokens = r->batch.n_tokens,
                            .mlp_rows = r->batch.n_tokens,
                            .head_rows = r->batch.n_tokens };
}

/* Random weights, of models without files. */
static inline mt_rc rig_fill(rig *r, mt_err *err)
{
    mt_rc rc = MT_OK;
    for (int u = 0; !rc && u < r->model->n_units; u++) {
        const int64_t n = r->model->units[u].layout->n_elems;
        uint16_t *hi = calloc((size_t)n, sizeof *hi); /* not counted among the allocations that may fail */
        for (int64_t i = 0; i < n; i++) hi[i] = mt_f32_to_bf16(0.1f * mt_rng_normal(9, (uint64_t)u, (uint64_t)i));
        rc = mt_engine_write(r->engine, (mt_state_range){ u, MT_STATE_HI, 0, n }, hi, err);
        free(hi);
    }
    return rc;
}

/* An engine with its weights loaded; takes the plan over. */
/* slow: the one stream that dawdles; NULL: all of them, at random. */
static inline void rig_start_slow(rig *r, const char *device, mt_plan *plan, int n_threads, int dawdle_us, const char *slow)
{
    mt_err err = { 0 };
    r->plan = plan;
    const mt_device_options how = {
        .memory_limit = plan->device_bytes, .n_threads = n_threads, .dawdle_us = dawdle_us, .slow_stream = slow
    };
    assert_ok(mt_device_open(&r->dev, device, &how, &err));
    for (int i = 1; i < mt_plan_lanes(plan); i++) assert_ok(mt_device_open(&r->more[i - 1], device, &how, &err));
    assert_ok(mt_engine_create(&r->engine, r->dev, plan, &(mt_engine_options){ .n_workers = n_threads, .more = r->more }, &err));
    if (r->shards)
        assert_ok(mt_engine_load(r->engine, r->model, r->shards, &err));
    else
        assert_ok(rig_fill(r, &err));
}

static inline void rig_start_dawdling(rig *r, mt_plan *plan, int n_threads, int dawdle_us)
{
    rig_start_slow(r, rig_device(), plan, n_threads, dawdle_us, NULL);
}
static inline void rig_start_on(rig *r, const char *device, mt_plan *plan, int n_threads)
{
    rig_start_slow(r, device, plan, n_threads, 0, NULL);
}
static inline void rig_start(rig *r, mt_plan *plan, int n_threads) { rig_start_on(r, rig_device(), plan, n_threads); }

static inline void rig_stop(rig *r)
{
    mt_engine_free(r->engine);
    mt_device_close(r->dev);
    for (int i = 0; i < RIG_MOST_LANES - 1; i++) mt_device_close(r->more[i]), r->more[i] = NULL;
    mt_plan_free(r->plan);
    r->engine = NULL;
    r->dev = NULL;
    r->plan = NULL;
}

static inline void rig_close(rig *r)
{
    rig_stop(r);
    mt_batch_free(&r->batch);
    mt_model_free(r->model);
    mt_shards_close(r->shards);
    mt_config_close(r->config);
}

#endif
