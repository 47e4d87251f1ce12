/* generate.h - generates continuations of prompts, token by token, with a key/value cache.
 *
 * Prompts share passes: each pass takes one row of every sequence that is being continued, and fills up with rows of prompts not
 * yet read.  A sequence holds a slot of the cache from its first row to its end; prompts beyond the number of slots wait for one.
 * Works on any engine index of its prompt plan has a cache (job.cache_slots), a training run's included; weights are only read.
 *
 *     mt_plan *plan;
 *     MT_TRY(mt_plan_generation(&plan, model, &(mt_generation){ .compute = MT_DTYPE_BF16, ... }, &machine, err));
 *     ... mt_engine_create, mt_engine_load ...
 *     mt_generate_options o = { .max_new_tokens = 100, .on_token = print, ... };
 *     MT_TRY(mt_generate(engine, prompts, n, &o, &stats, err)); */
#ifndef MT_ENGINE_GENERATE_H
#define MT_ENGINE_GENERATE_H

#include "engine/engine.h"
#include "engine/sample.h"

typedef struct mt_prompt {
    const int32_t *ids; /* borrowed for the call */
    int64_t n;          /* at least 1 */
    uint64_t stream;    /* of random numbers: equal seed, stream and prompt give equal text, whatever other prompts run */
} mt_prompt;

/* One generated token. */
typedef struct mt_generated {
    size_t prompt; /* whose */
    int64_t i;     /* number of tokens generated before it */
    int32_t id;
    bool stop;           /* it is a stop id: the end of the text, not part of it */
    bool last;           /* the last one: a stop id, max_new_tokens, or a full cache */
    const float *logits; /* [V] logits it was chosen from; valid during the call */
} mt_generated;

typedef struct mt_generate_options {
    mt_sampling sampling;
    int64_t max_new_tokens; /* per prompt, at least 1 */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    /* Called for every token, in the order of passes; a failure ends the generation. */
    mt_rc (*on_token)(void *user, const mt_generated *token, mt_err *err);
    void *user;
} mt_generate_options;

typedef struct mt_generate_stats {
    int64_t n_prompt_tokens, n_new_tokens, n_passes;
    int64_t prompt_ns; /* passes that read prompts */
    int64_t decode_ns; /* passes that only continue */
    int64_t n_decoded; /* tokens those made */
    int64_t n_experts; /* number of copies of an expert's weights to the device; resident experts are not counted */
} mt_generate_stats;

/* stats may be NULL. */
mt_rc mt_generate(mt_engine *e, const mt_prompt *prompts, size_t n_prompts, const mt_generate_options *options,
                  mt_generate_stats *stats, mt_err *err);

#endif
