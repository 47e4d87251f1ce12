/* One truth: whether a run fits, the largest, the safe and the recommended batch, what it needs and what would help never
 * contradict each other, for random models, machines and settings; most of them near the limit.  MT_DRAWS=1000 tries more,
 * MT_SEED others. */
#include "test.h"

#include "base/rng.h"
#include "plan/advise.h"
#include "plan/gpus.h"
#include "plan/knobs.h"
#include "plan/shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dice {
    uint64_t seed, n;
} dice;

static int roll(dice *d, int sides) { return (int)mt_rng_below(d->seed, 7, d->n++, (uint64_t)sides); }
static bool one_in(dice *d, int n) { return roll(d, n) == 0; }

typedef struct draw {
    char words[512]; /* what was drawn, for the message */
    mt_config *config;
    mt_model *model;
    mt_question q;
} draw;

/* -- drawing --------------------------------------------------------------------------------------- */

static void draw_settings(draw *out, dice *d)
{
    static const int64_t lengths[] = { 128, 512, 1024, 2048, 4096, 16384, 32768 }, batches[] = { 1, 4, 16, 32, 64, 256 };
    mt_question *q = &out->q;
    q->form = (mt_arithmetic){ .compute = one_in(d, 10) ? MT_DTYPE_F32 : MT_DTYPE_BF16,
                               .grad = one_in(d, 7) ? MT_DTYPE_F32 : MT_DTYPE_BF16 };
    q->form.moments = one_in(d, 5) ? MT_MOMENTS_BF16 + roll(d, 2) : MT_MOMENTS_F32;
    q->form.attention = mt_attention_use_typical(!one_in(d, 8), one_in(d, 12), q->machine.device_bytes);
    q->clip = !one_in(d, 4);
    q->seq_len = one_in(d, 2) ? 1024 : lengths[roll(d, MT_COUNT(lengths))];
    q->batch = batches[roll(d, MT_COUNT(batches))];
    q->machine.home_host = one_in(d, 7);
    q->machine.limits = (mt_limits){ .interval = one_in(d, 8) ? 1 + roll(d, 12) : 0,
                                     .exact = one_in(d, 16),
                                     .offload = one_in(d, 12) ? MT_MUST + roll(d, 2) : MT_MAY };
    if (out->model->unit_experts && q->machine.limits.exact) q->machine.limits.interval = 1; /* more is refused, as it must be */
}

/* Host memory from half to one and a half times what the state takes, or as machines have it. */
static size_t draw_ram(const draw *w, dice *d)
{
    double each = 12 + 2 * w->q.clip - (double[]){ 0, 4, 6 }[w->q.form.moments], share = 0.5 + roll(d, 1000) / 1000.0;
    return one_in(d, 4) ? (size_t)16000000000 << roll(d, 9)
                        : (size_t)(each * share * (double)w->model->n_params) + ((size_t)4 << 30);
}

static void draw_case(draw *out, uint64_t seed)
{
    dice d = { seed, 0 };
    mt_err err = { 0 };
    const mt_shape *shape = &mt_shapes[roll(&d, (int)mt_n_shapes)];
    const mt_gpu *gpu = &mt_gpus[roll(&d, (int)mt_n_gpus)];
    *out = (draw){ .q.machine = mt_machine_of_gpu(gpu, 1 << roll(&d, 7)) };
    assert_ok(mt_shape_model(&out->config, &out->model, shape, NULL, &err));
    out->q.model = out->model;
    draw_settings(out, &d);
    out->q.machine.host_bytes = draw_ram(out, &d);
    const mt_question *q = &out->q;
    snprintf(out->words, sizeof out->words,
             "case %llu: %s on %s, %.2f GiB of RAM, %lld samples of %lld, clip %d, moments %d, home_host %d, grad %d, compute "
             "%d, interval %d%s, offload %d",
             (unsigned long long)seed, shape->name, gpu->name, (double)q->machine.host_bytes / 1073741824.0, (long long)q->batch,
             (long long)q->seq_len, q->clip, q->form.moments, q->machine.home_host, q->form.grad, q->form.compute,
             q->machine.limits.interval, q->machine.limits.exact ? " exactly" : "", q->machine.limits.offload);
}

static void drop(draw *w)
{
    mt_model_free(w->model);
    mt_config_close(w->config);
}

/* -- what a plan says ------------------------------------------------------------------------------ */

typedef struct said {
    bool fits;
    size_t device, host;
    double tokens_s;
} said;

static said ask(const mt_question *q, int64_t batch)
{
    mt_err err = { 0 };
    const mt_job job = mt_question_job(q, batch);
    mt_plan *plan = NULL;
    said s = { 0 };
    mt_rc rc = mt_plan_auto(&plan, (mt_plan_inputs){ q->model, &job, &q->form, &q->machine }, &err);
    if (rc && rc != MT_ENOMEM) fail_msg("%s", err.msg);
    if (!rc)
        s = (said){ true, plan->device_bytes, mt_plan_host_total(plan, &q->machine),
                    (double)job.step_tokens / plan->predicted_seconds };
    mt_plan_free(plan);
    return s;
}

#define HOLDS(w, claim, ...)                                                                                                     \
    do {                                                                                                                         \
        char what[256];                                                                                                          \
        snprintf(what, sizeof what, __VA_ARGS__);                                                                                \
        if (!(claim)) fail_msg("%s: %s (%s)", (w)->words, what, #claim);                                                         \
    } while (0)

/* -- the plan, its needs, its batches --------------------------------------------------------------- */

static said check_plan(const draw *w)
{
    const mt_question *q = &w->q;
    mt_err err = { 0 };
    mt_need need;
    assert_ok(mt_advise_need(&need, q, &err));
    said s = ask(q, q->batch);
    const mt_job job = mt_question_job(q, q->batch);
    HOLDS(w, s.fits == mt_plan_auto_fits((mt_plan_inputs){ q->model, &job, &q->form, &q->machine }),
          "a plan and whether there is one");
    HOLDS(w, s.fits == (need.device <= q->machine.device_bytes && need.host <= q->machine.host_bytes),
          "what it needs, %zu and %zu", need.device, need.host);
    if (s.fits) {
        HOLDS(w, s.device <= q->machine.device_bytes && s.host <= q->machine.host_bytes, "it takes %zu and %zu", s.device,
              s.host);
        HOLDS(w, need.device <= s.device && need.host <= s.host, "it takes %zu and %zu, and needs %zu and %zu", s.device, s.host,
              need.device, need.host);
    }
    return s;
}

static void check_batches(const draw *w, const said *asked, const mt_batch_advice *b)
{
    const mt_question *q = &w->q;
    HOLDS(w, asked->fits == (q->batch <= b->largest) || (q->batch > b->largest && q->batch <= b->largest + b->largest / 64 + 1),
          "the largest is %lld", (long long)b->largest);
    HOLDS(w, b->safe <= b->largest && b->recommended <= b->largest && !b->recommended == !b->largest,
          "safe %lld, recommended %lld, largest %lld", (long long)b->safe, (long long)b->recommended, (long long)b->largest);
    HOLDS(w, b->recommended >= mt_min_i64(8, b->largest), "recommended %lld, largest %lld", (long long)b->recommended,
          (long long)b->largest);
    if (!b->largest) return;
    HOLDS(w, ask(q, b->largest).fits, "the largest, %lld", (long long)b->largest);
    if (b->safe) HOLDS(w, ask(q, b->safe).fits, "the safe one, %lld", (long long)b->safe);
    if (b->largest < MT_MOST_TOKENS / q->seq_len)
        HOLDS(w, !ask(q, b->largest + b->largest / 64 + 1).fits, "more than the largest, %lld", (long long)b->largest);
}

/* No batch size of as many samples as a step should have is much faster than the recommended one.  (Both are compared by a quick
 * look in the advice, here by their plans.) */
static void check_speed(const draw *w, const mt_batch_advice *b, double tokens_s, dice *d)
{
    const mt_question *q = &w->q;
    int64_t others[] = { b->largest, b->recommended * 2, b->recommended / 2, (1 << (10 + roll(d, 9))) / q->seq_len };
    HOLDS(w, fabs(b->tokens_s / tokens_s - 1) < 0.3, "recommended %lld with %.0f tokens/s, its plan has %.0f",
          (long long)b->recommended, b->tokens_s, tokens_s);
    for (size_t i = 0; i < MT_COUNT(others); i++) {
        int64_t other = mt_min_i64(mt_max_i64(others[i], 8), mt_min_i64(b->largest, mt_max_i64((1 << 18) / q->seq_len, 8)));
        double speed = ask(q, other).tokens_s;
        HOLDS(w, tokens_s >= 0.88 * speed, "%lld recommended with %.0f tokens/s, %lld has %.0f", (long long)b->recommended,
              tokens_s, (long long)other, speed);
    }
}

/* -- more memory is never worse -------------------------------------------------------------------- */

static void check_larger(const draw *w, const mt_batch_advice *b, double tokens_s, dice *d)
{
    mt_err err = { 0 };
    draw more = *w;
    mt_machine *m = &more.q.machine;
    mt_batch_advice now;
    if (one_in(d, 2))
        m->host_bytes += m->host_bytes / (size_t)(1 << (1 + roll(d, 9)));
    else
        m->device_bytes += m->device_bytes / (size_t)(1 << (1 + roll(d, 9)));
    more.q.form.attention.workspace = mt_attention_workspace(&more.q.form.attention, m->device_bytes);
    assert_ok(mt_advise_batch(&now, &more.q, &err));
    HOLDS(w, now.largest + now.largest / 32 >= b->largest, "largest %lld, with %zu and %zu %lld", (long long)b->largest,
          m->device_bytes, m->host_bytes, (long long)now.largest);
    HOLDS(w, now.safe + now.safe / 32 >= b->safe, "safe %lld, with %zu and %zu %lld", (long long)b->safe, m->device_bytes,
          m->host_bytes, (long long)now.safe);
    if (!b->recommended) return;
    double speed = ask(&more.q, now.recommended).tokens_s;
    HOLDS(w, speed >= 0.88 * tokens_s, "recommended %lld with %.0f tokens/s, with %zu and %zu %lld with %.0f",
          (long long)b->recommended, tokens_s, m->device_bytes, m->host_bytes, (long long)now.recommended, speed);
}

/* The n-th of what a machine can have more of. */
static void give_more(mt_question *q, int n, double times)
{
    mt_machine *m = &q->machine;
    if (n == 0) m->host_bytes = (size_t)((double)m->host_bytes * times);
    if (n == 1) m->device_bytes = (size_t)((double)m->device_bytes * times);
    if (n == 2) m->copy_in *= times, m->copy_out *= times, m->copy_both *= times;
    if (n == 3) { /* cores */
        m->host_bandwidth *= times;
        for (int form = 0; form < MT_MOMENTS_FORMS; form++) m->adam_host[form] *= times;
    }
    q->form.attention.workspace = mt_attention_workspace(&q->form.attention, m->device_bytes);
}

/* The same step on a larger or faster machine fits, and is not slower by more than the tenth a steady micro-batch may cost
 * (auto.c). */
static void more_of_anything_is_never_worse(void **state)
{
    (void)state;
    static const char *const kinds[] = { "RAM", "GPU memory", "link", "cores" };
    const char *draws = getenv("MT_DRAWS"), *seed = getenv("MT_SEED");
    for (int i = 0; i < (draws ? atoi(draws) : 8); i++) {
        draw w;
        draw_case(&w, (seed ? strtoull(seed, NULL, 10) : 40000) + (uint64_t)i);
        dice d = { 40000 + (uint64_t)i, 3000 };
        said before = ask(&w.q, w.q.batch);
        for (int n = 0; n < 4 && before.fits; n++) {
            mt_question more = w.q;
            double times = 1 + (1 + roll(&d, 100)) / 100.0;
            give_more(&more, n, times);
            said after = ask(&more, more.batch);
            HOLDS(&w, after.fits, "not with %.2f times the %s", times, kinds[n]);
            HOLDS(&w, after.tokens_s >= 0.88 * before.tokens_s, "%.0f tokens/s, with %.2f times the %s %.0f", before.tokens_s,
                  times, kinds[n], after.tokens_s);
        }
        drop(&w);
    }
}

/* -- remedies -------------------------------------------------------------------------------------- */

static void follow_machine(mt_question *q, const char *text)
{
    const char *gpu = strstr(text, "a GPU with "), *ram = strstr(text, " GiB of RAM free");
    if (gpu) {
        q->machine.device_bytes = ((size_t)strtoull(gpu + 11, NULL, 10) << 30) - q->machine.base_device;
        q->form.attention.workspace = mt_attention_workspace(&q->form.attention, q->machine.device_bytes);
    }
    while (ram && ram > text && ram[-1] >= '0' && ram[-1] <= '9') ram--;
    if (ram) q->machine.host_bytes = (size_t)strtoull(ram, NULL, 10) << 30;
}

/* As a reader would. */
static mt_question follow(const mt_question *asked, const char *text)
{
    mt_question q = *asked;
    const char *batch = strstr(text, "batch_size: "), *parts = strstr(text, "gradient_accumulation_steps: "),
               *length = strstr(text, "max_seq_len: ");
    if (parts) q.accumulation = strtoll(parts + 29, NULL, 10);
    if (batch) q.batch = strtoll(batch + 12, NULL, 10) * mt_max_i64(q.accumulation, 1);
    if (length) q.seq_len = strtoll(length + 13, NULL, 10);
    if (strstr(text, "max_grad_norm: 0")) q.clip = false;
    if (strstr(text, "adam_state: bf16")) q.form.moments = MT_MOMENTS_BF16;
    if (strstr(text, "adam_state: 8bit")) q.form.moments = MT_MOMENTS_8BIT;
    if (strstr(text, "grad_dtype: bfloat16")) q.form.grad = MT_DTYPE_BF16;
    if (strstr(text, "home: auto")) q.machine.home_host = false;
    if (strstr(text, "host_memory: auto")) q.machine.host_bytes = q.host_there;
    if (strstr(text, "device_memory: auto")) q.machine.device_bytes = q.device_there;
    if (strstr(text, "device_memory: auto"))
        q.form.attention.workspace = mt_attention_workspace(&q.form.attention, q.device_there);
    if (strstr(text, "strict_checkpointing: false")) q.machine.limits.exact = false;
    if (strstr(text, "offload_inputs: auto")) q.machine.limits.offload = MT_MAY;
    follow_machine(&q, text);
    return q;
}

static int bytes_each(const mt_question *q)
{
    return (q->form.moments == MT_MOMENTS_F32    ? 8
            : q->form.moments == MT_MOMENTS_BF16 ? 4
                                                 : 2) +
           (!q->clip                       ? 0
            : q->form.grad == MT_DTYPE_F32 ? 4
                                           : 2);
}

/* What is lost with clipping and with smaller moments is said, and what that saves. */
static void check_cost(const draw *w, const mt_remedy *r, const mt_question *followed)
{
    bool clip = followed->clip != w->q.clip, moments = followed->form.moments != w->q.form.moments;
    const char *saves = strstr(r->cost, "saves ");
    HOLDS(w, clip == (strstr(r->cost, "no clipping") != NULL), "\"%.96s\" costs \"%.140s\"", r->change, r->cost);
    HOLDS(w, moments == (strstr(r->cost, "m and v") != NULL), "\"%.96s\" costs \"%.140s\"", r->change, r->cost);
    if (clip || moments)
        HOLDS(w, saves && atoi(saves + 6) == bytes_each(&w->q) - bytes_each(followed) && strstr(saves, " bytes a parameter"),
              "\"%.96s\" costs \"%.140s\"", r->change, r->cost);
}

static void check_remedies(const draw *w, const mt_batch_advice *b)
{
    mt_err err = { 0 };
    mt_remedy r[MT_REMEDIES];
    int n;
    assert_ok(mt_advise_remedies(r, &n, &w->q, b, &err));
    HOLDS(w, n > 0, "nothing helps");
    if (b->recommended)
        HOLDS(w, strstr(r[0].change, "batch_size: ") == r[0].change, "a smaller batch helps and is not said to: %.96s",
              r[0].change);
    for (int i = 0; i < n; i++) {
        mt_question q = follow(&w->q, r[i].change);
        said s = ask(&q, q.batch);
        HOLDS(w, s.fits, "\"%.96s\" does not help", r[i].change);
        check_cost(w, &r[i], &q);
        HOLDS(w, fabs(r[i].tokens_s / s.tokens_s - 1) < 1e-6, "\"%.96s\" would make %.0f tokens/s and makes %.0f", r[i].change,
              r[i].tokens_s, s.tokens_s);
    }
}

static void check_case(uint64_t seed)
{
    mt_err err = { 0 };
    dice d = { seed, 1000 };
    draw w;
    mt_batch_advice b;
    draw_case(&w, seed);
    w.q.accumulation = one_in(&d, 6) && w.q.batch % 4 == 0 ? 4 : 1;
    assert_ok(mt_advise_batch(&b, &w.q, &err));
    said asked = check_plan(&w);
    double tokens_s = b.recommended ? ask(&w.q, b.recommended).tokens_s : 0;
    check_batches(&w, &asked, &b);
    if (b.recommended) check_speed(&w, &b, tokens_s, &d);
    check_larger(&w, &b, tokens_s, &d);
    if (!asked.fits) check_remedies(&w, &b);
    drop(&w);
}

static void all_answers_agree(void **state)
{
    (void)state;
    const char *draws = getenv("MT_DRAWS"), *seed = getenv("MT_SEED");
    int n = draws ? (atoi(draws) + 2) / 3 : 12; /* each asks for dozens of plans */
    for (int i = 0; i < n; i++) check_case((seed ? strtoull(seed, NULL, 10) : 100) + (uint64_t)i);
}

/* -- nothing is smaller ---------------------------------------------------------------------------- */

/* A placement with mostly the least of everything. */
static candidate draw_small(const knob_ranges *r, dice *d)
{
    static const int trades[] = { MICROS, INTERVAL, OFFLOADED, HOMES, HOMES_SKIP, STAGED, ACC_HOST };
    candidate c;
    memcpy(c.k, r->lowest, sizeof c.k);
    for (size_t i = 0; i < MT_COUNT(trades); i++) {
        int k = trades[i], width = r->highest[k] - r->lowest[k];
        c.k[k] += one_in(d, 3) ? 0 : one_in(d, 2) ? width : roll(d, width + 1);
    }
    c.k[STAGED] = one_in(d, 3) ? c.k[STAGED] : 0;
    c.k[OWN] = one_in(d, 2) ? c.k[STAGED] : 0;
    if (one_in(d, 4)) c.k[KEEP_ALL] = r->highest[KEEP_ALL];
    return c;
}

static void no_random_placement_needs_less(void **state)
{
    (void)state;
    const char *draws = getenv("MT_DRAWS");
    mt_err err = { 0 };
    for (int i = 0; i < (draws ? atoi(draws) : 60); i++) {
        draw w;
        knob_ranges range;
        mt_need need;
        draw_case(&w, 20000 + (uint64_t)i);
        const mt_question *q = &w.q;
        dice d = { 20000 + (uint64_t)i, 2000 };
        mt_plan t = { .model = q->model, .job = mt_question_job(q, q->batch) };
        t.arithmetic = mt_plan_smallest((mt_plan_inputs){ q->model, &t.job, &q->form, &q->machine });
        assert_ok(mt_advise_need(&need, q, &err));
        assert_ok(mt__knobs_ranges(&range, &t, &q->machine, &err));
        assert_ok(mt_placement_init(&t.place, q->model, &err));
        for (int n = 0; n < 300; n++) {
            candidate c = draw_small(&range, &d);
            mt__knobs_fill(&t, &c);
            assert_ok(mt_plan_measure(&t, &err));
            size_t host = mt_plan_host_total(&t, &q->machine);
            HOLDS(&w, t.device_bytes >= need.device, "%zu on the device, said to need %zu", t.device_bytes, need.device);
            if (t.device_bytes <= q->machine.device_bytes)
                HOLDS(&w, host >= need.host, "%zu on the host, said to need %zu", host, need.host);
        }
        mt_placement_free(&t.place);
        drop(&w);
    }
}

/* -- what went wrong once -------------------------------------------------------------------------- */

static draw known(const char *name, const char *card, double ram, int64_t batch)
{
    mt_err err = { 0 };
    const mt_shape *shape;
    const mt_gpu *gpu;
    draw w = { 0 };
    assert_ok(mt_shape_find(&shape, name, &err));
    assert_ok(mt_gpu_find(&gpu, card, &err));
    assert_ok(mt_shape_model(&w.config, &w.model, shape, NULL, &err));
    w.q = (mt_question){ .model = w.model,
                         .machine = mt_machine_of_gpu(gpu, 16),
                         .form = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16 },
                         .clip = true,
                         .seq_len = 1024,
                         .batch = batch };
    w.q.form.attention = mt_attention_use_typical(true, false, w.q.machine.device_bytes);
    w.q.machine.host_bytes = (size_t)ram;
    snprintf(w.words, sizeof w.words, "%s on %s", name, card);
    return w;
}

static void more_ram_or_a_larger_card_takes_no_batch_away(void **state)
{
    (void)state;
    mt_err err = { 0 };
    for (int card = 0; card <= 1; card++) {
        draw w = known("qwen2.5-7b", "rtx4090", 100.0 * 1073741824, 64);
        int64_t last = 0, last_safe = 0;
        for (int i = 0; i < 14; i++) {
            mt_batch_advice b;
            if (card)
                w.q.machine.device_bytes = (size_t)(14 + 2 * i) << 30; /* past 32 GiB attention's workspace doubles */
            else
                w.q.machine.host_bytes = (size_t)(84 + 2 * i) << 30;
            w.q.form.attention = mt_attention_use_typical(true, false, w.q.machine.device_bytes);
            assert_ok(mt_advise_batch(&b, &w.q, &err));
            HOLDS(&w, b.largest + b.largest / 64 >= last && b.safe + b.safe / 64 >= last_safe,
                  "at %d: %lld and %lld, before %lld and %lld", i, (long long)b.largest, (long long)b.safe, (long long)last,
                  (long long)last_safe);
            last = b.largest;
            last_safe = b.safe;
        }
        assert_true(last > 100 && last_safe > 30);
        drop(&w);
    }
}

/* The embedding goes to the device, and all kept inputs to host memory to make room for it. */
static void a_step_that_takes_two_trades_fits(void **state)
{
    (void)state;
    draw w = known("qwen2.5-7b", "rtx4090", 102.0 * 1073741824, 126);
    assert_true(ask(&w.q, 126).fits);
    drop(&w);
}

static void a_larger_card_needs_no_more_of_itself(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_need need[2];
    draw w = known("qwen2.5-7b", "rtx4090", 256e9, 64);
    for (int i = 0; i < 2; i++) {
        w.q.machine.device_bytes = ((size_t)32 << 30) - 1 + (size_t)i; /* where attention's workspace doubles */
        w.q.form.attention = mt_attention_use_typical(true, false, w.q.machine.device_bytes);
        assert_ok(mt_advise_need(&need[i], &w.q, &err));
    }
    assert_true(need[1].device <= need[0].device && need[1].host <= need[0].host);
    drop(&w);
}

/* At the limit as far from it, not one sample. */
static void a_72b_beside_a_terabyte_is_recommended_what_is_fast(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_batch_advice b;
    draw w = known("qwen2.5-72b", "h200", 1e12, 64);
    assert_ok(mt_advise_batch(&b, &w.q, &err));
    assert_true(b.recommended >= 16 && b.tokens_s > 500);
    assert_true(ask(&w.q, b.largest).fits);
    drop(&w);
}

static void a_remedy_names_nothing_that_does_not_help(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_remedy r[MT_REMEDIES];
    int n;
    draw w = known("qwen2.5-72b", "rtx4090", 2e12, 64);
    for (int clip = 0; clip <= 1; clip++) {
        w.q.clip = clip;
        assert_ok(mt_advise_remedies(r, &n, &w.q, NULL, &err));
        assert_int_equal(n, 1); /* with any settings the card is too small */
        assert_true(strncmp(r[0].change, "a GPU with ", 11) == 0);
    }
    w.q.machine.host_bytes = (size_t)256e9;
    w.q.clip = false;
    assert_ok(mt_advise_remedies(r, &n, &w.q, NULL, &err));
    assert_int_equal(n, 2);
    assert_true(strncmp(r[0].change, "adam_state: 8bit, a GPU with ", 29) == 0);
    assert_null(strstr(r[1].change, "max_grad_norm"));
    drop(&w);
}

static void a_smaller_batch_comes_first_and_in_terms_of_the_settings(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_remedy r[MT_REMEDIES];
    mt_batch_advice b;
    int n;
    draw w = known("qwen2.5-7b", "rtx4090", 93.0 * 1073741824, 256);
    assert_ok(mt_advise_batch(&b, &w.q, &err));
    assert_true(b.recommended >= 8 && b.largest < 256);
    for (int64_t parts = 1; parts <= 256; parts *= 4) {
        w.q.accumulation = parts;
        assert_ok(mt_advise_remedies(r, &n, &w.q, &b, &err));
        mt_question q = follow(&w.q, r[0].change);
        HOLDS(&w, strncmp(r[0].change, "batch_size: ", 12) == 0 && q.batch <= b.recommended && 2 * q.batch > b.recommended,
              "%.96s", r[0].change);
        assert_true(ask(&q, q.batch).fits);
    }
    drop(&w);
}

/* Memory that the machine has and settings keep from the run is not to be bought. */
static void limits_of_ones_own_are_lifted_first(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double ram, ram_there, device, device_there;
        const char *first; /* remedy */
        bool enough;
    } cases[] = { { "qwen2.5-7b", 60e9, 128e9, 0, 0, "host_memory: auto", true },
                  { "qwen2.5-7b", 128e9, 0, 5e9, 24e9, "device_memory: auto", true },
                  { "qwen2.5-7b", 60e9, 128e9, 5e9, 24e9, "host_memory: auto, device_memory: auto", true },
                  { "qwen2.5-7b", 40e9, 60e9, 5e9, 24e9,
                    "host_memory: auto, device_memory: auto, max_grad_norm: 0, adam_state: 8bit", false },
                  { "qwen2.5-72b", 60e9, 228e9, 5e9, 24e9,
                    "host_memory: auto, device_memory: auto, max_grad_norm: 0, adam_state: 8bit, a GPU with ", false } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_remedy r[MT_REMEDIES];
        int n;
        draw w = known(cases[i].name, "rtx4090", cases[i].ram, 64);
        w.q.host_there = (size_t)cases[i].ram_there;
        w.q.device_there = (size_t)cases[i].device_there;
        if (cases[i].device > 0) w.q.machine.device_bytes = (size_t)cases[i].device;
        assert_ok(mt_advise_remedies(r, &n, &w.q, NULL, &err));
        HOLDS(&w, n > 0 && strncmp(r[0].change, cases[i].first, strlen(cases[i].first)) == 0, "case %zu: \"%.96s\"", i,
              r[0].change);
        for (int k = 0; k < n; k++) {
            mt_question q = follow(&w.q, r[k].change);
            HOLDS(&w, fabs(r[k].tokens_s / ask(&q, q.batch).tokens_s - 1) < 1e-6 && *r[k].cost, "case %zu: \"%.96s\"", i,
                  r[k].change);
            HOLDS(&w, !cases[i].enough || !strstr(r[k].change, "free"), "case %zu: to buy %.96s", i, r[k].change);
            HOLDS(&w, strcmp(r[k].change + strlen(r[k].change) - 2, ", "), "case %zu: \"%.96s\"", i, r[k].change);
        }
        drop(&w);
    }
}

/* Its speed is that of the run it leads to, not of one sample a step. */
static void with_auto_a_remedy_has_the_batch_that_auto_would_take(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_remedy r[MT_REMEDIES];
    int n;
    draw w = known("qwen2.5-7b", "rtx4090", 64e9, 1);
    w.q.auto_batch = true;
    assert_ok(mt_advise_remedies(r, &n, &w.q, NULL, &err));
    assert_true(n >= 3);
    for (int i = 0; i < n; i++) {
        mt_question q = follow(&w.q, r[i].change);
        mt_batch_advice b;
        assert_ok(mt_advise_batch(&b, &q, &err));
        HOLDS(&w, r[i].batch == mt_advise_auto(&b, 1) && r[i].batch > 1, "\"%.96s\": %lld samples", r[i].change,
              (long long)r[i].batch);
        HOLDS(&w, fabs(r[i].tokens_s / ask(&q, r[i].batch).tokens_s - 1) < 1e-6, "\"%.96s\": %.0f tokens/s", r[i].change,
              r[i].tokens_s);
    }
    drop(&w);
}

/* Few tokens a step leave the updates of a large model nothing that hides them. */
static void updates_that_are_the_limit_are_said_to_be(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_update_advice few, many;
    mt_plan *plan;
    draw w = known("mistral-large-2407", "h200", 3e12, 8);
    const mt_job job = mt_question_job(&w.q, w.q.batch);
    assert_ok(mt_plan_auto(&plan, (mt_plan_inputs){ w.q.model, &job, &w.q.form, &w.q.machine }, &err));
    assert_ok(mt_advise_updates(&few, &w.q, plan, &err));
    HOLDS(&w, few.wait > 0.1 * plan->predicted_seconds && few.batch > w.q.batch, "waits %.2f s; hidden with %lld samples",
          few.wait, (long long)few.batch);
    HOLDS(&w, few.tried >= few.batch && few.batch_tokens_s > (double)job.step_tokens / plan->predicted_seconds,
          "%.0f tokens/s with %lld samples of %lld that were tried", few.batch_tokens_s, (long long)few.batch,
          (long long)few.tried);
    HOLDS(&w, few.form != MT_MOMENTS_F32 && few.form_tokens_s > (double)job.step_tokens / plan->predicted_seconds,
          "%.0f tokens/s with other moments", few.form_tokens_s);
    mt_plan_free(plan);
    w.q.batch = few.batch;
    const mt_job larger = mt_question_job(&w.q, few.batch);
    assert_ok(mt_plan_auto(&plan, (mt_plan_inputs){ w.q.model, &larger, &w.q.form, &w.q.machine }, &err));
    assert_ok(mt_advise_updates(&many, &w.q, plan, &err));
    HOLDS(&w, many.wait == 0 && many.batch == 0 && many.form == MT_MOMENTS_F32, "waits %.2f s with %lld samples", many.wait,
          (long long)few.batch);
    mt_plan_free(plan);
    drop(&w);
}

MT_TEST_MAIN(cmocka_unit_test(all_answers_agree), cmocka_unit_test(updates_that_are_the_limit_are_said_to_be),
             cmocka_unit_test(more_of_anything_is_never_worse), cmocka_unit_test(no_random_placement_needs_less),
             cmocka_unit_test(a_step_that_takes_two_trades_fits), cmocka_unit_test(a_larger_card_needs_no_more_of_itself),
             cmocka_unit_test(more_ram_or_a_larger_card_takes_no_batch_away),
             cmocka_unit_test(a_72b_beside_a_terabyte_is_recommended_what_is_fast),
             cmocka_unit_test(a_remedy_names_nothing_that_does_not_help),
             cmocka_unit_test(a_smaller_batch_comes_first_and_in_terms_of_the_settings),
             cmocka_unit_test(limits_of_ones_own_are_lifted_first),
             cmocka_unit_test(with_auto_a_remedy_has_the_batch_that_auto_would_take))
