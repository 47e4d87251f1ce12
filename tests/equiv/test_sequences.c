/* Whatever comes between two steps, on whatever placement, changes no bit: evaluations, answers to prompts, a look at gradients,
 * a step with nothing to train on, a step that is not finite, a checkpoint taken beside the next steps, continuing in another
 * engine.  A random sequence of such things is done on the plainest placement, then on others whose streams dawdle, with updates
 * and write-backs of the step before still in flight; what each leaves to be seen must be equal.  MT_DRAWS sets how many
 * placements are drawn. */
#include "draw.h"
#include "lenders.h"

#include "engine/generate.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

enum { LENGTH = 14, SEEN = 64, PLACEMENTS = 3 };

/* What can be seen of a run, a number each. */
typedef struct seen {
    uint64_t what[SEEN];
    int n;
} seen;

static void see(seen *s, const void *what, size_t bytes)
{
    assert_true(s->n < SEEN);
    s->what[s->n++] = mt_hash(what, bytes, 1);
}

static void see_result(seen *s, const mt_step_result *r)
{
    const double numbers[] = { r->loss, r->router_loss, r->grad_norm, r->clip_scale, (double)r->n_correct, r->skipped, r->empty };
    see(s, numbers, sizeof numbers);
}

static size_t bytes_of(rig *r, mt_state_range range)
{
    return (size_t)range.n * mt_state_number_bytes(mt_engine_state(r->engine), range.kind);
}

/* -- a saver beside the steps ---------------------------------------------------------------------- */

typedef struct saver {
    pthread_t thread;
    bool running;
    rig *r;
    dice d;
    uint64_t sum;
    mt_rc rc;
    mt_err err;
} saver;

static void *save(void *arg)
{
    saver *s = arg;
    for (int u = 0; u < s->r->model->n_units; u++) {
        for (mt_state_kind kind = 0; kind < MT_STATE_KINDS && !s->rc; kind++) {
            const mt_state_range all = mt_unit_state(s->r->model, u, kind);
            size_t bytes = bytes_of(s->r, all);
            char *copy = mt_malloc(bytes + 1);
            if (roll(&s->d, 3) == 0) nanosleep(&(struct timespec){ 0, 1000L * roll(&s->d, 400) }, NULL);
            s->rc = copy ? mt_state_read_locked(mt_engine_state(s->r->engine), all, copy, &s->err)
                         : mt_fail(&s->err, MT_ENOMEM, "a copy");
            if (!s->rc) s->sum = mt_hash(copy, bytes, s->sum);
            mt_free(copy);
        }
        mt_state_unlock(mt_engine_state(s->r->engine), u);
    }
    return NULL;
}

static void join(saver *s, seen *log)
{
    if (!s->running) return;
    pthread_join(s->thread, NULL);
    s->running = false;
    if (s->rc) fail_msg("the saver: %s", s->err.msg);
    see(log, &s->sum, sizeof s->sum);
}

/* -- what may happen ------------------------------------------------------------------------------- */

typedef struct course {
    rig r;
    mt_batch middle, small, masked; /* fewer micro-batches, and sweeps, than r.batch */
    mt_arithmetic a;
    bool clip, plain;
    dice places; /* of this course alone; what happens is drawn by all alike */
    saver saver;
    seen seen;
} course;

static const mt_hyper hyper = {
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5
};

static void step(course *c, const mt_batch *b)
{
    mt_err err = { 0 };
    mt_step_result s;
    assert_ok(mt_engine_step(c->r.engine, b, &hyper, &s, &err));
    see_result(&c->seen, &s);
}

static void step_full(course *c) { step(c, &c->r.batch); }
static void step_middle(course *c) { step(c, &c->middle); }
static void step_small(course *c) { step(c, &c->small); }
static void step_masked(course *c) { step(c, &c->masked); }

static void evaluate(course *c)
{
    mt_err err = { 0 };
    mt_step_result s;
    assert_ok(mt_engine_evaluate(c->r.engine, &c->middle, &s, &err));
    see_result(&c->seen, &s);
}

static void gradients(course *c)
{
    mt_err err = { 0 };
    mt_step_result s;
    if (!c->clip) return;
    assert_ok(mt_engine_gradients(c->r.engine, &c->r.batch, &s, &err));
    see_result(&c->seen, &s);
}

static void logits(course *c)
{
    mt_err err = { 0 };
    size_t bytes = (size_t)(c->middle.n_tokens * c->r.config->V) * sizeof(float);
    float *out = mt_malloc(bytes);
    assert_ok(mt_engine_logits(c->r.engine, &c->middle, out, &err));
    see(&c->seen, out, bytes);
    mt_free(out);
}

static mt_rc on_token(void *user, const mt_generated *g, mt_err *err)
{
    (void)err;
    int32_t *all = user;
    all[++all[0]] = g->id;
    return MT_OK;
}

static void answer(course *c)
{
    enum { PROMPTS = 3, NEW = 4 };
    mt_err err = { 0 };
    int32_t all[1 + PROMPTS * NEW] = { 0 };
    mt_prompt prompts[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) prompts[i] = (mt_prompt){ c->r.batch.ids + 32 * i, 5 + 3 * i, (uint64_t)i };
    assert_ok(mt_generate(c->r.engine, prompts, PROMPTS,
                          &(mt_generate_options){ .max_new_tokens = NEW, .on_token = on_token, .user = all }, NULL, &err));
    see(&c->seen, all, sizeof all);
}

/* A weight that is NaN for one step; without clipping that would end the run. */
static void be_skipped(course *c)
{
    const int UNIT = mt_layer_first_unit(c->r.model, 1); /* which every row passes */
    mt_err err = { 0 };
    const uint16_t nan = 0x7fc0;
    uint16_t was;
    if (!c->clip) return;
    join(&c->saver, &c->seen); /* nothing writes what is locked */
    assert_ok(mt_engine_read(c->r.engine, (mt_state_range){ UNIT, MT_STATE_HI, 0, 1 }, &was, &err));
    assert_ok(mt_engine_write(c->r.engine, (mt_state_range){ UNIT, MT_STATE_HI, 0, 1 }, &nan, &err));
    mt_step_result s;
    assert_ok(mt_engine_step(c->r.engine, &c->r.batch, &hyper, &s, &err));
    assert_true(s.skipped);
    assert_ok(mt_engine_write(c->r.engine, (mt_state_range){ UNIT, MT_STATE_HI, 0, 1 }, &was, &err));
}

static void begin_save(course *c)
{
    mt_err err = { 0 };
    join(&c->saver, &c->seen);
    c->saver = (saver){ .r = &c->r, .d = { c->places.seed + 5, 0 }, .running = true };
    assert_ok(mt_engine_lock(c->r.engine, &err));
    assert_int_equal(pthread_create(&c->saver.thread, NULL, save, &c->saver), 0);
}

/* The plainest, or one where much is in flight. */
static mt_plan *plan_for(course *c)
{
    mt_err err = { 0 };
    mt_plan *plan;
    mt_placement p;
    mt_job job = lenders_job(&c->r, c->clip);
    dice *d = &c->places;
    int n = c->r.model->n_units, kind = roll(d, 5);
    if (c->plain) return plan_loans(&c->r, &c->a, c->clip, false, -1, 0);
    /* Private slots, written back late. */
    if (kind == 0) return plan_loans(&c->r, &c->a, c->clip, true, -1, n);
    if (kind == 1) return plan_loans(&c->r, &c->a, c->clip, roll(d, 3) > 0, -1, 1 + roll(d, 3));         /* slots they share */
    if (kind <= 3) return plan_loans(&c->r, &c->a, c->clip, roll(d, 2), roll(d, 3), roll(d, 2) ? n : 0); /* borrowed memory */
    assert_ok(mt_placement_init(&p, c->r.model, &err));
    draw(&p, c->r.model, &job, &c->a, d);
    assert_ok(mt_plan_create(&plan, c->r.model, &job, &c->a, &p, &err));
    mt_placement_free(&p);
    return plan;
}

static void start(course *c)
{
    static const struct {
        int us;
        const char *slow;
    } ways[] = { { 200, NULL },      { 100, "write-back" }, { 1000, "write-back" },
                 { 100, "copy-in" }, { 1000, "copy-out" },  { 50, "compute" } };
    int i = roll(&c->places, MT_COUNT(ways));
    start_lenders_slow(&c->r, plan_for(c), c->plain ? 0 : ways[i].us, c->plain ? NULL : ways[i].slow);
}

/* Its state into another engine, as resuming does. */
static void move(course *c)
{
    mt_err err = { 0 };
    join(&c->saver, &c->seen);
    int n = c->r.model->n_units * MT_STATE_KINDS;
    char **copies = mt_calloc((size_t)n, sizeof *copies);
    for (int i = 0; i < n; i++) {
        const mt_state_range all = mt_unit_state(c->r.model, i / MT_STATE_KINDS, i % MT_STATE_KINDS);
        copies[i] = mt_malloc(bytes_of(&c->r, all) + 1);
        assert_ok(mt_engine_read(c->r.engine, all, copies[i], &err));
    }
    int64_t t = mt_state_updates(mt_engine_state(c->r.engine));
    rig_stop(&c->r);
    start(c);
    for (int i = 0; i < n; i++) {
        const mt_state_range all = mt_unit_state(c->r.model, i / MT_STATE_KINDS, i % MT_STATE_KINDS);
        assert_ok(mt_engine_write(c->r.engine, all, copies[i], &err));
        mt_free(copies[i]);
    }
    mt_free(copies);
    mt_state_set_updates(mt_engine_state(c->r.engine), t);
}

/* -- courses --------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*what)(course *c);
} things[] = {
    { "a step", step_full },
    { "a step", step_full },
    { "a shorter step", step_middle },
    { "a step of one document", step_small },
    { "a step without targets", step_masked },
    { "an evaluation", evaluate },
    { "gradients", gradients },
    { "logits", logits },
    { "answers", answer },
    { "a step that is skipped", be_skipped },
    { "a checkpoint", begin_save },
    { "a checkpoint", begin_save },
    { "another engine", move },
};

static void open_batches(course *c)
{
    mt_err err = { 0 };
    const int32_t ids[] = { 3, 1, 4, 1, 5, 9, 2 }, masked[] = { MT_IGNORE, MT_IGNORE, MT_IGNORE };
    for (int i = 0; i < 5; i++)
        assert_ok(mt_batch_add(&c->middle, c->r.batch.ids + 32 * i, c->r.batch.ids + 32 * i, 20 + i, 40, &err));
    assert_ok(mt_batch_add(&c->small, ids, ids, MT_COUNT(ids), 40, &err));
    assert_ok(mt_batch_add(&c->masked, ids, masked, MT_COUNT(masked), 40, &err));
}

typedef struct form {
    bool tied, clip;
    mt_dtype compute;
    mt_moments moments;
    bool experts;
    int64_t moe_tokens; /* micro-batches have 64 rows */
} form;

static void run(course *c, const form *f, uint64_t seed, char *story, size_t n)
{
    dice d = { seed, 0 };
    size_t k = 0;
    if (f->experts)
        open_lenders_experts(&c->r, f->tied);
    else
        open_lenders(&c->r, f->tied);
    open_batches(c);
    start(c);
    step_full(c); /* something is always in flight */
    for (int i = 0; i < LENGTH; i++) {
        size_t what = (size_t)roll(&d, MT_COUNT(things));
        things[what].what(c);
        k += (size_t)snprintf(story + k, n - k, "%s%s", i ? ", " : "", things[what].name);
    }
    join(&c->saver, &c->seen);
    mt_err err = { 0 };
    uint64_t sum;
    assert_ok(mt_engine_checksum(c->r.engine, &sum, &err));
    see(&c->seen, &sum, sizeof sum);
    mt_batch_free(&c->middle);
    mt_batch_free(&c->small);
    mt_batch_free(&c->masked);
    rig_close(&c->r);
}

static const form forms[] = {
    { .clip = true, .compute = MT_DTYPE_BF16 },
    { .tied = true, .clip = true, .compute = MT_DTYPE_BF16 },
    { .compute = MT_DTYPE_BF16 },
    { .clip = true, .compute = MT_DTYPE_BF16, .experts = true, .moe_tokens = 128 },
    { .tied = true, .clip = true, .compute = MT_DTYPE_F32 },
    { .tied = true, .clip = true, .compute = MT_DTYPE_BF16, .moments = MT_MOMENTS_8BIT },
    { .tied = true, .compute = MT_DTYPE_BF16 },
    { .tied = true, .compute = MT_DTYPE_F32, .moments = MT_MOMENTS_8BIT, .experts = true },
    { .clip = true, .compute = MT_DTYPE_F32, .moments = MT_MOMENTS_BF16 },
    { .clip = true, .compute = MT_DTYPE_BF16 },
};

static void check(uint64_t seed, const form *f)
{
    const mt_arithmetic a = { .compute = f->compute,
                              .grad = f->compute,
                              .moments = f->moments,
                              .micro_tokens = 64,
                              .mlp_rows = 64,
                              .head_rows = 64,
                              .moe_tokens = f->moe_tokens };
    course first = { .a = a, .clip = f->clip, .plain = true };
    char story[1024];
    run(&first, f, seed, story, sizeof story);
    for (int i = 0; i < PLACEMENTS; i++) {
        course c = { .a = a, .clip = f->clip, .places = { 100 * seed + (uint64_t)i, 0 } };
        run(&c, f, seed, story, sizeof story);
        assert_int_equal(c.seen.n, first.seen.n);
        for (int k = 0; k < c.seen.n; k++)
            if (c.seen.what[k] != first.seen.what[k])
                fail_msg("sequence %d, placement %d: what is seen at %d of %d differs (a step, %s)", (int)seed, i, k, c.seen.n,
                         story);
    }
}

static void what_comes_between_steps_changes_no_bit(void **state)
{
    (void)state;
    const char *env = getenv("MT_DRAWS");
    int draws = env ? atoi(env) : PLACEMENTS * (int)MT_COUNT(forms);
    for (int i = 0; i * PLACEMENTS < draws; i++) check((uint64_t)i + 1, &forms[i % (int)MT_COUNT(forms)]);
}

RIG_TEST_MAIN(cmocka_unit_test(what_comes_between_steps_changes_no_bit))
