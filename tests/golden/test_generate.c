/* Generation with a cache, for every golden model: the tokens and logits are those of computing every row anew at each step;
 * prompts together = each alone; streamed through the least memory = resident; and prompts that wait for a slot. */
#include "golden.h"
#include "packed_model.h"
#include "rig.h"
#include "workspace.h"

#include "base/json.h"
#include "ckpt/convert.h"
#include "engine/generate.h"
#include "plan/search.h"

enum { NEW = 12, MAX_PROMPTS = 8, MAX_V = 128, LONGEST = 40 };

/* Everything a generation said. */
typedef struct record {
    int32_t ids[MAX_PROMPTS][NEW];
    float logits[MAX_PROMPTS][NEW][MAX_V];
    int n[MAX_PROMPTS], n_last;
    int64_t V;
    mt_generate_stats stats;
} record;

static mt_rc keep(void *user, const mt_generated *t, mt_err *err)
{
    (void)err;
    record *r = user;
    assert_int_equal(t->i, r->n[t->prompt]);
    assert_true(t->i < NEW);
    r->ids[t->prompt][t->i] = t->id;
    memcpy(r->logits[t->prompt][t->i], t->logits, (size_t)r->V * sizeof(float));
    r->n[t->prompt]++;
    r->n_last += t->last;
    return MT_OK;
}

/* device_bytes: 0: no limit. */
static mt_rc plan_within(mt_plan **out, const mt_model *model, const mt_generation *g, size_t device_bytes, mt_err *err)
{
    mt_machine machine = mt_machine_typical();
    machine.device_bytes = device_bytes ? device_bytes : SIZE_MAX;
    return mt_plan_generation(out, model, g, &machine, err);
}

static void open_model(rig *r, const char *name)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s%s", GOLDEN_DIR, name);
    rig_open_model(r, dir, &(mt_model_options){ .forward_only = true });
    assert_true(r->config->V <= MAX_V);
}

/* The rows of tokens.json as prompts, as far as there is room for what follows. */
static size_t prompts_of(const rig *r, mt_prompt *out)
{
    for (int64_t d = 0; d < r->batch.n_docs && d < MAX_PROMPTS; d++) {
        const int32_t *start = r->batch.doc_start + d;
        out[d] = (mt_prompt){ .ids = r->batch.ids + start[0],
                              .n = mt_min_i64(start[1] - start[0], LONGEST - NEW),
                              .stream = (uint64_t)d };
    }
    return (size_t)mt_min_i64(r->batch.n_docs, MAX_PROMPTS);
}

typedef struct setup {
    mt_dtype compute;
    int64_t slots, pass_tokens;
    size_t device_bytes; /* 0: no limit */
    mt_sampling sampling;
    bool mapped;
} setup;

static void generate(rig *r, const setup *s, const mt_prompt *prompts, size_t n, record *out)
{
    mt_err err = { 0 };
    mt_plan *plan;
    mt_generate_stats stats;
    *out = (record){ .V = r->config->V };
    assert_ok(plan_within(&plan, r->model,
                          &(mt_generation){ .compute = s->compute,
                                            .n_prompts = s->slots,
                                            .longest = LONGEST,
                                            .pass_tokens = s->pass_tokens,
                                            .mapped = s->mapped },
                          s->device_bytes, &err));
    for (size_t i = 0; s->mapped && i < plan->n_buffers; i++)
        assert_false(plan->buffers[i].kind == MT_BUF_HI && plan->buffers[i].place == MT_HOST);
    rig_start(r, plan, 2);
    assert_ok(mt_generate(r->engine, prompts, n,
                          &(mt_generate_options){ .sampling = s->sampling, .max_new_tokens = NEW, .on_token = keep, .user = out },
                          &stats, &err));
    assert_int_equal(stats.n_new_tokens, (int)n * NEW);
    assert_int_equal(out->n_last, (int)n);
    out->stats = stats;
    rig_stop(r);
}

/* Logits after a prompt and the first n_new generated tokens, every row computed anew.  Generation turns all sequences by
 * longrope's list for the longest there is room for: later rows, which no row sees, make a document as long. */
static void last_logits(rig *r, const mt_prompt *p, const int32_t *generated, int n_new, float *out)
{
    mt_err err = { 0 };
    mt_batch b = { 0 };
    int32_t ids[LONGEST] = { 0 };
    int64_t n = p->n + n_new, V = r->config->V, rows = mt_rope_short_rows(r->config, LONGEST) ? LONGEST : n;
    float *all = mt_calloc((size_t)(rows * V), sizeof *all);
    memcpy(ids, p->ids, (size_t)p->n * sizeof *ids);
    memcpy(ids + p->n, generated, (size_t)n_new * sizeof *ids);
    assert_ok(mt_batch_add(&b, ids, NULL, rows, V, &err));
    assert_ok(mt_engine_logits(r->engine, &b, all, &err));
    memcpy(out, all + (n - 1) * V, (size_t)V * sizeof *out);
    mt_free(all);
    mt_batch_free(&b);
}

static int32_t likeliest(const float *z, int64_t V)
{
    int32_t best = 0;
    for (int32_t i = 1; i < V; i++)
        if (z[i] > z[best]) best = i;
    return best;
}

/* Every token of `got` against what a model without cache says after the same tokens. */
static void compare_with_recomputing(rig *r, const char *name, mt_dtype t, const mt_prompt *prompts, size_t n, const record *got,
                                     double allowed)
{
    mt_err err = { 0 };
    mt_plan *plan;
    mt_job job = { .step_tokens = LONGEST, .step_docs = 1, .longest = LONGEST };
    mt_arithmetic a = { .compute = t, .grad = t, .micro_tokens = LONGEST, .mlp_rows = LONGEST, .head_rows = LONGEST };
    assert_ok(mt_plan_choose(&plan, r->model, &job, &a, 0, &err));
    rig_start(r, plan, 2);
    for (size_t p = 0; p < n; p++)
        for (int i = 0; i < NEW; i++) {
            float z[MAX_V];
            last_logits(r, &prompts[p], got->ids[p], i, z);
            double d = golden_distance(got->logits[p][i], z, (size_t)r->config->V);
            if (!(d <= allowed)) fail_msg("%s, prompt %zu, token %d: logits are %.2e away", name, p, i, d);
            if (t == MT_DTYPE_F32) assert_int_equal(got->ids[p][i], likeliest(z, r->config->V));
        }
    rig_stop(r);
}

/* Cached latents are rounded in other places than expanded ones, and then a router may choose another expert: bf16 says nothing of
 * such a model.  deepseek_v3_dense has latents and no router. */
static bool rounding_decides(const mt_config *c) { return c->latent.kv_rank && c->layers[c->L - 1].E; }

static void cached_generation_is_recomputing_every_step(void **state)
{
    (void)state;
    record *got = mt_calloc(1, sizeof *got);
    for (size_t c = 0; c < MT_COUNT(golden_cases); c++) {
        rig r;
        mt_prompt prompts[MAX_PROMPTS];
        open_model(&r, golden_cases[c]);
        size_t n = prompts_of(&r, prompts);
        generate(&r, &(setup){ .compute = MT_DTYPE_F32, .slots = (int64_t)n, .pass_tokens = 64 }, prompts, n, got);
        compare_with_recomputing(&r, golden_cases[c], MT_DTYPE_F32, prompts, n, got, GOLDEN_LOGITS);
        /* Prompts in pieces. */
        generate(&r, &(setup){ .compute = MT_DTYPE_F32, .slots = (int64_t)n, .pass_tokens = 5 }, prompts, n, got);
        compare_with_recomputing(&r, golden_cases[c], MT_DTYPE_F32, prompts, n, got, GOLDEN_LOGITS);
        if (rounding_decides(r.config)) {
            rig_close(&r);
            continue;
        }
        generate(&r, &(setup){ .compute = MT_DTYPE_BF16, .slots = (int64_t)n, .pass_tokens = 64 }, prompts, n, got);
        /* A bf16 step is 4e-3: a sum rounded the other way.  Of latents, which are not expanded, more is rounded otherwise. */
        compare_with_recomputing(&r, golden_cases[c], MT_DTYPE_BF16, prompts, n, got, r.config->latent.kv_rank ? 2e-2 : 5e-3);
        rig_close(&r);
    }
    mt_free(got);
}

static void assert_same(const record *a, size_t at, const record *b, size_t bt, double allowed)
{
    assert_int_equal(a->n[at], b->n[bt]);
    assert_memory_equal(a->ids[at], b->ids[bt], (size_t)a->n[at] * sizeof(int32_t));
    for (int i = 0; i < a->n[at]; i++) assert_true(golden_distance(a->logits[at][i], b->logits[bt][i], (size_t)a->V) <= allowed);
}

static const setup together = { .compute = MT_DTYPE_F32, .slots = MAX_PROMPTS, .pass_tokens = 64 };
static const mt_sampling drawn = { .temperature = 0.8, .top_p = 0.95, .top_k = 50, .seed = 3 };

static void prompts_together_are_each_alone(void **state)
{
    (void)state;
    record *all = mt_calloc(1, sizeof *all), *one = mt_calloc(1, sizeof *one);
    for (int sampled = 0; sampled < 2; sampled++) {
        rig r;
        mt_prompt prompts[MAX_PROMPTS];
        open_model(&r, "qwen2_window");
        size_t n = prompts_of(&r, prompts);
        setup s = together;
        if (sampled) s.sampling = drawn;
        generate(&r, &s, prompts, n, all);
        for (size_t p = 0; p < n; p++) {
            generate(&r, &s, &prompts[p], 1, one);
            assert_same(all, p, one, 0, GOLDEN_LOGITS);
        }
        rig_close(&r);
    }
    mt_free(all);
    mt_free(one);
}

static void prompts_that_wait_for_a_slot_come_out_the_same(void **state)
{
    (void)state;
    record *all = mt_calloc(1, sizeof *all), *waiting = mt_calloc(1, sizeof *waiting);
    rig r;
    mt_prompt prompts[MAX_PROMPTS];
    open_model(&r, "qwen3");
    size_t n = prompts_of(&r, prompts);
    for (size_t i = 0; n < MAX_PROMPTS; i++, n++)
        prompts[n] = (mt_prompt){ .ids = prompts[i].ids, .n = prompts[i].n - 2, .stream = 50 + i };
    setup s = together;
    s.sampling = drawn;
    generate(&r, &s, prompts, n, all);
    for (s.slots = 1; s.slots <= 3; s.slots++) {
        s.pass_tokens = 7;
        generate(&r, &s, prompts, n, waiting);
        for (size_t p = 0; p < n; p++) assert_same(all, p, waiting, p, GOLDEN_LOGITS);
    }
    rig_close(&r);
    mt_free(all);
    mt_free(waiting);
}

static size_t least_device_bytes(rig *r, mt_dtype t)
{
    size_t least = 1, most = (size_t)1 << 30;
    while (most - least > 256) {
        size_t middle = (least + most) / 2;
        mt_plan *plan;
        mt_rc rc =
            plan_within(&plan, r->model, &(mt_generation){ .compute = t, .n_prompts = 3, .longest = LONGEST, .pass_tokens = 16 },
                        middle, NULL);
        *(rc ? &least : &most) = middle;
        if (!rc) mt_plan_free(plan);
    }
    return most;
}

static void streamed_through_the_least_memory_is_resident(void **state)
{
    (void)state;
    record *resident = mt_calloc(1, sizeof *resident), *streamed = mt_calloc(1, sizeof *streamed);
    for (size_t c = 0; c < MT_COUNT(golden_cases); c++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            rig r;
            mt_prompt prompts[MAX_PROMPTS];
            open_model(&r, golden_cases[c]);
            size_t n = prompts_of(&r, prompts);
            setup s = { .compute = bf16 ? MT_DTYPE_BF16 : MT_DTYPE_F32, .slots = 3, .pass_tokens = 16 };
            size_t least = least_device_bytes(&r, s.compute);
            s.slots = 1; /* what fits there; the same passes with all the memory */
            generate(&r, &s, prompts, n, resident);
            s.slots = 3;
            s.device_bytes = least;
            generate(&r, &s, prompts, n, streamed);
            for (size_t p = 0; p < n; p++) assert_same(resident, p, streamed, p, 0);
            rig_close(&r);
        }
    mt_free(resident);
    mt_free(streamed);
}

/* One row a pass, so that each layer with experts needs T of them; alone, their weights are copied.  The ids are those of all
 * weights on the device. */
static void only_chosen_experts_are_fetched(void **state)
{
    (void)state;
    static const char *const cases[] = { "mixtral", "qwen3_moe", "glm4_moe", "qwen2_moe_fused" };
    record *resident = mt_calloc(1, sizeof *resident), *streamed = mt_calloc(1, sizeof *streamed);
    for (size_t c = 0; c < MT_COUNT(cases); c++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            rig r;
            int64_t T = 0;
            open_model(&r, cases[c]);
            const mt_prompt prompt = { .ids = r.batch.ids, .n = 1 };
            setup s = { .compute = bf16 ? MT_DTYPE_BF16 : MT_DTYPE_F32, .slots = 1, .pass_tokens = 16 };
            generate(&r, &s, &prompt, 1, resident);
            assert_int_equal(resident->stats.n_experts, 0);
            s.device_bytes = least_device_bytes(&r, s.compute);
            generate(&r, &s, &prompt, 1, streamed);
            assert_same(resident, 0, streamed, 0, 0);
            for (int l = 0; l < r.config->L; l++) T += r.config->layers[l].T;
            assert_int_equal(streamed->stats.n_passes, NEW);
            assert_int_equal(streamed->stats.n_experts, NEW * T);
            assert_true(r.model->routed.layers * r.model->routed.E > T); /* not all of them */
            rig_close(&r);
        }
    mt_free(resident);
    mt_free(streamed);
}

/* No copy of the weights in host memory, and the same logits. */
static void weights_read_where_their_file_lies_are_the_same(void **state)
{
    (void)state;
    record *copied = mt_calloc(1, sizeof *copied), *mapped = mt_calloc(1, sizeof *mapped);
    rig r;
    mt_prompt prompts[MAX_PROMPTS];
    open_model(&r, "llama_bf16");
    assert_true(mt_weights_mapped(r.model, r.shards));
    size_t n = prompts_of(&r, prompts);
    setup s = { .compute = MT_DTYPE_BF16, .slots = 3, .pass_tokens = 16, .device_bytes = least_device_bytes(&r, MT_DTYPE_BF16) };
    generate(&r, &s, prompts, n, copied);
    s.mapped = true;
    generate(&r, &s, prompts, n, mapped);
    for (size_t p = 0; p < n; p++) assert_same(copied, p, mapped, p, 0);
    rig_close(&r);
    open_model(&r, "llama_fp16"); /* has to be converted, so copied */
    assert_false(mt_weights_mapped(r.model, r.shards));
    rig_close(&r);
    open_model(&r, "gpt2"); /* fused and turned */
    assert_false(mt_weights_mapped(r.model, r.shards));
    rig_close(&r);
    mt_free(copied);
    mt_free(mapped);
}

/* The same of experts: of their files only the pages of chosen ones are read. */
static void chosen_experts_are_read_where_their_file_lies(void **state)
{
    mt_err err = { 0 };
    rig r;
    mt_convert_result converted;
    char tokens[1024];
    record *copied = mt_calloc(1, sizeof *copied), *mapped = mt_calloc(1, sizeof *mapped);
    const mt_convert c = {
        .in = GOLDEN_DIR "mixtral", .out = *state, .recast = true, .dtype = MT_DTYPE_BF16, .max_shard_bytes = 1 << 30
    };
    snprintf(tokens, sizeof tokens, "%s/tokens.json", (const char *)*state);
    assert_ok(mt_convert_run(&c, &converted, &err));
    workspace_copy(GOLDEN_DIR "mixtral/tokens.json", tokens);
    rig_open_model(&r, *state, NULL);
    assert_true(mt_weights_mapped(r.model, r.shards));
    const mt_prompt prompt = { .ids = r.batch.ids, .n = 3 };
    setup s = { .compute = MT_DTYPE_BF16, .slots = 1, .pass_tokens = 16, .device_bytes = least_device_bytes(&r, MT_DTYPE_BF16) };
    generate(&r, &s, &prompt, 1, copied);
    s.mapped = true;
    generate(&r, &s, &prompt, 1, mapped);
    assert_same(copied, 0, mapped, 0, 0);
    assert_true(mapped->stats.n_experts > 0 && mapped->stats.n_experts == copied->stats.n_experts);
    rig_close(&r);
    mt_free(copied);
    mt_free(mapped);
}

/* Quantized weights stay packed: streamed through the least memory, of experts only those that are chosen, and with all on the device,
 * answers are those of weights that were expanded when they were loaded. */
static void packed_weights_answer_as_expanded_ones(void **state)
{
    record *packed = mt_calloc(1, sizeof *packed), *expanded = mt_calloc(1, sizeof *expanded);
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        rig r, other;
        packed_write(*state, (packed_kind)kind);
        rig_open_model(&r, *state, &(mt_model_options){ .forward_only = true });
        rig_open_model(&other, *state, NULL);
        size_t bytes = 0;
        for (int u = 0; u < r.model->n_units; u++) bytes += r.model->units[u].layout->packed_bytes;
        assert_true(bytes > 0);
        const mt_prompt prompt = { .ids = r.batch.ids, .n = 3 };
        for (int i = 0; i < 3; i++) {
            const mt_dtype t = i == 2 ? MT_DTYPE_F32 : MT_DTYPE_BF16;
            setup s = { .compute = t, .slots = 1, .pass_tokens = 16 };
            generate(&other, &s, &prompt, 1, expanded);
            if (i) s.device_bytes = least_device_bytes(&r, t);
            generate(&r, &s, &prompt, 1, packed);
            assert_same(expanded, 0, packed, 0, 0);
            assert_true(i == 0 || !r.model->unit_experts || packed->stats.n_experts > 0);
        }
        rig_close(&r);
        rig_close(&other);
    }
    mt_free(packed);
    mt_free(expanded);
}

/* The same plan with all weights in host memory, two slots for each group. */
static mt_plan *streamed_plan(mt_plan *p)
{
    mt_err err = { 0 };
    mt_plan *out;
    for (int u = 0; u < p->model->n_units; u++) p->place.units[u] = (mt_unit_place){ .home = MT_HOST, .site = MT_SITE_HOST };
    mt_placement_set_slots(&p->place, p->model, 2, 2, 2);
    assert_ok(mt_plan_create(&out, p->model, &p->job, &p->arithmetic, &p->place, &err));
    mt_plan_free(p);
    return out;
}

/* Three steps, with answers after each or without; the checksum of what they leave. */
static uint64_t train_and_generate(const char *name, bool scarce, bool generates)
{
    mt_err err = { 0 };
    rig r;
    mt_plan *plan;
    mt_prompt prompts[MAX_PROMPTS];
    mt_step_result step;
    uint64_t sum;
    record *got = mt_calloc(1, sizeof *got);
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1 };
    open_model(&r, name);
    size_t n = prompts_of(&r, prompts);
    for (size_t i = 0; i < n; i++) prompts[i].n = mt_min_i64(prompts[i].n, 5);
    mt_job job = rig_job(&r, true);
    job.cache_slots = 2;
    mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_F32);
    assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
    if (scarce) plan = streamed_plan(plan);
    rig_start(&r, plan, 2);
    for (int i = 0; i < 3; i++) {
        assert_ok(mt_engine_step(r.engine, &r.batch, &h, &step, &err));
        *got = (record){ .V = r.config->V };
        mt_generate_options o = { .max_new_tokens = 6, .on_token = keep, .user = got };
        if (generates) assert_ok(mt_generate(r.engine, prompts, n, &o, &got->stats, &err));
        if (generates && scarce) assert_true(got->stats.n_experts > 0);
    }
    assert_ok(mt_engine_checksum(r.engine, &sum, &err));
    rig_close(&r);
    mt_free(got);
    return sum;
}

static void a_training_run_can_generate_between_steps(void **state)
{
    (void)state;
    assert_int_equal(train_and_generate("qwen3_tied", false, false), train_and_generate("qwen3_tied", false, true));
    assert_int_equal(train_and_generate("qwen3_moe", true, false), train_and_generate("qwen3_moe", true, true));
}

/* Its documents have 4 rows, the passes of answers 8: prompts are read in pieces, and the cache has rows for all of an answer. */
static void a_training_run_answers_past_its_longest_sample(void **state)
{
    (void)state;
    static const char *const cases[] = { "qwen3", "gpt2", "llama_dynamic", "phi3_long", "deepseek_v3_dense", "qwen3_next" };
    record *want = mt_calloc(1, sizeof *want), *got = mt_calloc(1, sizeof *got);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        rig r;
        mt_plan *plan;
        mt_prompt prompts[MAX_PROMPTS];
        open_model(&r, cases[i]);
        const size_t n = prompts_of(&r, prompts);
        generate(&r, &together, prompts, n, want);
        const mt_job job = {
            .train = true, .clip = true, .step_tokens = 8, .step_docs = 2, .longest = 4, .cache_slots = 2, .cache_rows = LONGEST
        };
        const mt_arithmetic a = {
            .compute = MT_DTYPE_F32, .grad = MT_DTYPE_F32, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8
        };
        assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
        rig_start(&r, plan, 2);
        *got = (record){ .V = r.config->V };
        const mt_generate_options o = { .max_new_tokens = NEW, .on_token = keep, .user = got };
        assert_ok(mt_generate(r.engine, prompts, n, &o, &got->stats, &err));
        for (size_t p = 0; p < n; p++) assert_same(want, p, got, p, GOLDEN_LOGITS);
        rig_close(&r);
    }
    mt_free(want);
    mt_free(got);
}

static void ends_are_reported_as_they_come(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    mt_plan *plan;
    mt_prompt prompts[MAX_PROMPTS];
    record *got = mt_calloc(1, sizeof *got), *free_run = mt_calloc(1, sizeof *free_run);
    open_model(&r, "llama_default");
    size_t n = prompts_of(&r, prompts);
    generate(&r, &together, prompts, n, free_run);
    int32_t stop = free_run->ids[0][4];
    assert_ok(plan_within(&plan, r.model,
                          &(mt_generation){ .compute = MT_DTYPE_F32, .n_prompts = 1, .longest = prompts[0].n + 6 }, 0, &err));
    rig_start(&r, plan, 1);
    mt_generate_options o = { .max_new_tokens = NEW, .on_token = keep, .user = got, .stop_ids = &stop, .n_stop_ids = 1 };
    got->V = r.config->V;
    assert_ok(mt_generate(r.engine, prompts, 1, &o, NULL, &err));
    assert_true(got->n[0] <= 5 && got->ids[0][got->n[0] - 1] == stop);
    *got = (record){ .V = r.config->V };
    o.n_stop_ids = 0;
    assert_ok(mt_generate(r.engine, prompts, 1, &o, NULL, &err)); /* no room: the last token needs no further row */
    assert_int_equal(got->n[0], 7);
    assert_int_equal(mt_generate(r.engine, &(mt_prompt){ .n = 0 }, 1, &o, NULL, &err), MT_EINVAL);
    assert_says("no tokens");
    mt_prompt longer = { .ids = prompts[0].ids, .n = prompts[0].n + 7 };
    assert_int_equal(mt_generate(r.engine, &longer, 1, &o, NULL, &err), MT_ERANGE);
    assert_says("at most 13 fit");
    const int32_t bad = (int32_t)r.config->V;
    assert_int_equal(mt_generate(r.engine, &(mt_prompt){ .ids = &bad, .n = 1 }, 1, &o, NULL, &err), MT_ERANGE);
    /* Refusals break nothing. */
    assert_ok(mt_generate(r.engine, prompts, 1, &(mt_generate_options){ .max_new_tokens = 1 }, NULL, &err));
    rig_close(&r);
    mt_free(got);
    mt_free(free_run);
}

/* A row of generated.json: one prompt alone, continued by transformers. */
static void compare_with_transformers(rig *r, const mt_value *row, double allowed)
{
    mt_err err = { 0 };
    mt_plan *plan;
    int32_t ids[128];
    const mt_value *prompt = mt_value_get(row, "prompt"), *want = mt_value_get(row, "ids"), *logits = mt_value_get(row, "logits");
    const int64_t n = (int64_t)mt_value_items(prompt), n_new = (int64_t)mt_value_items(want);
    record *got = mt_calloc(1, sizeof *got);
    got->V = r->config->V;
    assert_true(n <= (int64_t)MT_COUNT(ids) && n_new <= NEW && n_new == (int64_t)mt_value_items(logits));
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)mt_value_at(prompt, (size_t)i)->i;
    assert_ok(plan_within(
        &plan, r->model,
        &(mt_generation){ .compute = MT_DTYPE_F32, .n_prompts = 1, .longest = n + n_new, .prompt = n, .pass_tokens = 16 }, 0,
        &err));
    rig_start(r, plan, 2);
    assert_ok(mt_generate(r->engine, &(mt_prompt){ .ids = ids, .n = n }, 1,
                          &(mt_generate_options){ .max_new_tokens = n_new, .on_token = keep, .user = got }, NULL, &err));
    rig_stop(r);
    for (int64_t i = 0; i < n_new; i++) {
        float z[MAX_V];
        const mt_value *step = mt_value_at(logits, (size_t)i);
        for (int64_t k = 0; k < got->V; k++) z[k] = (float)mt_value_number(mt_value_at(step, (size_t)k));
        double d = golden_distance(got->logits[0][i], z, (size_t)got->V);
        if (!(d <= allowed)) fail_msg("prompt of %d, token %d: logits are %.2e away", (int)n, (int)i, d);
        assert_int_equal(got->ids[0][i], mt_value_at(want, (size_t)i)->i);
    }
    mt_free(got);
}

/* Frequencies follow the length: of the prompt, then of all tokens so far. */
static void dynamic_scaling_past_the_positions_is_transformers(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    const mt_value *rows = NULL;
    open_model(&r, "llama_dynamic");
    assert_ok(mt_json_read(&rows, GOLDEN_DIR "llama_dynamic/generated.json", &err));
    assert_int_equal(mt_value_items(rows), 2);
    for (size_t i = 0; i < 2; i++) compare_with_transformers(&r, mt_value_at(rows, i), 2e-5);
    mt_json_free(rows);
    rig_close(&r);
}

MT_TEST_MAIN(cmocka_unit_test(cached_generation_is_recomputing_every_step), cmocka_unit_test(prompts_together_are_each_alone),
             cmocka_unit_test(prompts_that_wait_for_a_slot_come_out_the_same),
             cmocka_unit_test(streamed_through_the_least_memory_is_resident), cmocka_unit_test(only_chosen_experts_are_fetched),
             cmocka_unit_test(weights_read_where_their_file_lies_are_the_same),
             cmocka_unit_test_setup_teardown(chosen_experts_are_read_where_their_file_lies, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(packed_weights_answer_as_expanded_ones, tempdir_make, tempdir_remove),
             cmocka_unit_test(a_training_run_can_generate_between_steps),
             cmocka_unit_test(a_training_run_answers_past_its_longest_sample), cmocka_unit_test(ends_are_reported_as_they_come),
             cmocka_unit_test(dynamic_scaling_past_the_positions_is_transformers))
