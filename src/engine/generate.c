/* generate.c - passes over sequences that are being continued and prompts that are being read. */
#include "engine/generate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/internal.h"

/* -- sequences ------------------------------------------------------------------------------------- */

typedef struct sequence {
    size_t prompt;
    int64_t done; /* rows in the cache */
    int64_t n_new;
    int32_t last; /* the newest token, not yet in the cache */
    bool live;    /* holds its slot */
    bool wanted;  /* this pass ends with a token for it */
} sequence;

typedef struct generation {
    mt_engine *e;
    const mt_prompt *prompts;
    size_t n_prompts, n_started, n_ended;
    const mt_generate_options *o;
    sequence *slots; /* [cache_slots] */
    int64_t n_slots;
    mt_batch batch;
    int32_t *past, *slot; /* [cache_slots] of the pass's documents */
    mt_candidate *space;  /* [V] */
    mt_generate_stats stats;
} generation;

static bool reads_prompt(const generation *g, const sequence *s) { return s->done < g->prompts[s->prompt].n; }

/* Gives free slots to waiting prompts. */
static void admit(generation *g)
{
    for (int64_t i = 0; i < g->n_slots && g->n_started < g->n_prompts; i++)
        if (!g->slots[i].live) g->slots[i] = (sequence){ .prompt = g->n_started++, .live = true };
}

/* Adds the next n rows of a slot's sequence; the last row's logits are needed if it ends the prompt. */
static mt_rc add_rows(generation *g, int64_t at, int64_t n, mt_err *err)
{
    sequence *s = &g->slots[at];
    const mt_prompt *p = &g->prompts[s->prompt];
    mt_batch *b = &g->batch;
    const int32_t *ids = reads_prompt(g, s) ? p->ids + s->done : &s->last;
    int64_t first = b->n_tokens;
    g->past[b->n_docs] = (int32_t)s->done;
    g->slot[b->n_docs] = (int32_t)at;
    MT_TRY(mt_batch_add(b, ids, NULL, n, g->e->model->config->V, err));
    s->done += n;
    s->wanted = s->done >= p->n;
    for (int64_t i = first; i < b->n_tokens; i++) b->targets[i] = MT_IGNORE;
    if (s->wanted) b->targets[b->n_tokens - 1] = 0; /* marks the row; its target is unknown */
    return MT_OK;
}

/* Sequences that are being continued first: they must not wait for long prompts. */
static mt_rc fill_pass(generation *g, bool *has_prompt, mt_err *err)
{
    int64_t room = mt_min_i64(g->e->plan->arithmetic.micro_tokens, g->e->plan->job.step_tokens);
    *has_prompt = false;
    mt_batch_clear(&g->batch);
    for (int64_t i = 0; i < g->n_slots; i++) {
        sequence *s = &g->slots[i];
        s->wanted = false;
        if (!s->live || reads_prompt(g, s)) continue;
        MT_TRY(add_rows(g, i, 1, err));
        room--;
    }
    for (int64_t i = 0; i < g->n_slots && room; i++) {
        sequence *s = &g->slots[i];
        if (!s->live || !reads_prompt(g, s)) continue;
        int64_t n = mt_min_i64(mt_min_i64(room, g->e->plan->job.longest), g->prompts[s->prompt].n - s->done);
        MT_TRY(add_rows(g, i, n, err));
        g->stats.n_prompt_tokens += n;
        *has_prompt = true;
        room -= n;
    }
    return MT_OK;
}

static bool is_stop(const mt_generate_options *o, int32_t id)
{
    for (size_t i = 0; i < o->n_stop_ids; i++)
        if (o->stop_ids[i] == id) return true;
    return false;
}

static mt_rc check_logits(const float *logits, int64_t V, mt_err *err)
{
    int bad = 0;
    for (int64_t i = 0; i < V; i++) bad |= logits[i] != logits[i]; /* without a branch: it vectorizes */
    return bad ? mt_fail(err, MT_ENUMERIC, "the model's logits are NaN") : MT_OK;
}

static mt_rc take_token(generation *g, sequence *s, const float *logits, mt_err *err)
{
    const mt_generate_options *o = g->o;
    MT_TRY(check_logits(logits, g->e->model->config->V, err));
    int32_t id =
        mt_sample_token(&o->sampling, logits, g->e->model->config->V, g->prompts[s->prompt].stream, (uint64_t)s->n_new, g->space);
    mt_generated t = { .prompt = s->prompt, .i = s->n_new, .id = id, .stop = is_stop(o, id), .logits = logits };
    s->last = id;
    s->n_new++;
    g->stats.n_new_tokens++;
    t.last = t.stop || s->n_new == o->max_new_tokens || s->done == mt_job_cache_rows(&g->e->plan->job);
    if (t.last) {
        s->live = false;
        g->n_ended++;
    }
    return o->on_token ? o->on_token(o->user, &t, err) : MT_OK;
}

static mt_rc run_pass(generation *g, mt_err *err)
{
    bool has_prompt;
    int64_t start = mt_now_ns(), n_before = g->stats.n_new_tokens;
    MT_TRY(fill_pass(g, &has_prompt, err));
    MT_TRY(mt__engine_continue(g->e, &g->batch, &(mt_continued){ g->past, g->slot }, err));
    const float *logits = mt_lane_logits(g->e->lane);
    for (int64_t d = 0; d < g->batch.n_docs; d++) {
        sequence *s = &g->slots[g->slot[d]];
        if (!s->wanted) continue;
        MT_TRY(take_token(g, s, logits, err));
        logits += g->e->model->config->V;
    }
    const int64_t took = mt_now_ns() - start;
    if (has_prompt) {
        g->stats.prompt_ns += took;
    } else {
        g->stats.decode_ns += took;
        g->stats.n_decoded += g->stats.n_new_tokens - n_before;
    }
    g->stats.n_passes++;
    return MT_OK;
}

/* -- all of it ------------------------------------------------------------------------------------- */

static mt_rc generate_check(const mt_engine *e, const mt_prompt *prompts, size_t n, const mt_generate_options *o, mt_err *err)
{
    const int64_t longest = mt_job_cache_rows(&e->plan->job);
    if (!e->plan->job.cache_slots) return mt_fail(err, MT_EINVAL, "this plan has no cache to generate with");
    if (o->max_new_tokens < 1) return mt_fail(err, MT_ERANGE, "max_new_tokens of %lld; at least 1", (long long)o->max_new_tokens);
    for (size_t i = 0; i < n; i++) {
        if (prompts[i].n < 1) return mt_fail(err, MT_EINVAL, "prompt %zu has no tokens", i + 1);
        if (prompts[i].n > longest)
            return mt_fail(err, MT_ERANGE, "prompt %zu has %lld tokens; at most %lld fit", i + 1, (long long)prompts[i].n,
                           (long long)longest);
    }
    return mt_sampling_check(&o->sampling, err);
}

static mt_rc open_generation(generation *g, mt_err *err)
{
    size_t n = (size_t)g->n_slots;
    g->slots = mt_calloc(n, sizeof *g->slots);
    g->past = mt_calloc(n, sizeof *g->past);
    g->slot = mt_calloc(n, sizeof *g->slot);
    g->space = mt_calloc((size_t)g->e->model->config->V, sizeof *g->space);
    return g->slots && g->past && g->slot && g->space ? MT_OK : mt_no_memory(err, "the sequences of a generation");
}

static void close_generation(generation *g)
{
    mt_batch_free(&g->batch);
    mt_free(g->slots);
    mt_free(g->past);
    mt_free(g->slot);
    mt_free(g->space);
}

mt_rc mt_generate(mt_engine *e, const mt_prompt *prompts, size_t n_prompts, const mt_generate_options *options,
                  mt_generate_stats *stats, mt_err *err)
{
    generation g = { .e = e, .prompts = prompts, .n_prompts = n_prompts, .o = options, .n_slots = e->plan->job.cache_slots };
    MT_TRY(generate_check(e, prompts, n_prompts, options, err));
    mt_rc rc = open_generation(&g, err);
    const int64_t fetched = mt_lane_experts_fetched(e->lane);
    while (!rc && g.n_ended < n_prompts) {
        admit(&g);
        rc = run_pass(&g, err);
    }
    g.stats.n_experts = mt_lane_experts_fetched(e->lane) - fetched;
    if (stats) *stats = g.stats;
    close_generation(&g);
    return rc;
}
