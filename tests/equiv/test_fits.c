/* The plan's word, on real engines: for random models, device limits and lengths of samples,
 *   - what is allocated is what was planned, name by name and byte by byte;
 *   - the largest batch that is said to fit runs, and nothing runs out;
 *   - no placement drawn at random makes room for a batch a ninth larger: at least 90% of what is possible is used.
 * MT_DRAWS sets how many cases there are. */
#include "draw.h"

#include "engine/internal.h"
#include "plan/advise.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RUN = 512 }; /* tokens of a step that is really run */

/* -- a device that writes down what it hands out --------------------------------------------------- */

static struct {
    mt_buffer *got;
    size_t n, cap;
    pthread_mutex_t lock; /* host memory is taken by several threads at once */
} record = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void note(mt_place place, size_t bytes, const char *name)
{
    mt_err err = { 0 };
    pthread_mutex_lock(&record.lock);
    assert_ok(mt_grow(&record.got, &record.cap, record.n + 1, sizeof *record.got, &err));
    record.got[record.n] = (mt_buffer){ .place = place, .bytes = bytes };
    snprintf(record.got[record.n++].name, sizeof record.got->name, "%s", name);
    pthread_mutex_unlock(&record.lock);
}

static mt_rc noted_alloc(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err)
{
    note(MT_DEVICE, bytes, name);
    return mt_device_cpu.alloc(dev, out, bytes, name, err);
}

static mt_rc noted_host_alloc(mt_device *dev, void **out, size_t bytes, const char *name, mt_err *err)
{
    note(MT_HOST, bytes, name);
    return mt_device_cpu.host_alloc(dev, out, bytes, name, err);
}

static int by_name(const void *a, const void *b) { return strcmp(((const mt_buffer *)a)->name, ((const mt_buffer *)b)->name); }

/* Of one place, name by name and byte by byte. */
static void compare_place(const mt_plan *p, mt_place place, size_t bytes)
{
    mt_buffer *planned = mt_calloc(p->n_buffers, sizeof *planned), *got = mt_calloc(record.n, sizeof *got);
    size_t n_planned = 0, n_got = 0, sum = 0;
    for (size_t i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].place == place) planned[n_planned++] = p->buffers[i];
    for (size_t i = 0; i < record.n; i++)
        if (record.got[i].place == place) got[n_got++] = record.got[i];
    qsort(planned, n_planned, sizeof *planned, by_name);
    qsort(got, n_got, sizeof *got, by_name);
    assert_int_equal(n_got, n_planned);
    for (size_t i = 0; i < n_got; i++) {
        assert_string_equal(got[i].name, planned[i].name);
        assert_int_equal(got[i].bytes, planned[i].bytes);
        sum += got[i].bytes;
    }
    assert_true(sum == bytes);
    mt_free(planned);
    mt_free(got);
}

static int by_place(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return x < y ? -1 : x > y;
}

/* In pools: as many bytes, few allocations, every buffer in one of them, aligned, and none over another. */
static void compare_pools(const mt_engine *e, size_t most)
{
    const mt_plan *p = e->plan;
    char **ends = mt_calloc(2 * p->n_buffers, sizeof *ends);
    size_t n = 0, sum = 0, pools = 0, largest = 0;
    for (size_t i = 0; i < record.n; i++)
        if (record.got[i].place == MT_HOST) sum += record.got[i].bytes, pools++;
    for (size_t i = 0; i < p->n_buffers; i++) {
        if (p->buffers[i].place != MT_HOST) continue;
        char *at = e->memory.buffers[i];
        assert_true((uintptr_t)at % 64 == 0);
        if (p->buffers[i].bytes > largest) largest = p->buffers[i].bytes;
        ends[n++] = at;
        ends[n++] = at + p->buffers[i].bytes - 1;
    }
    assert_true(sum == p->host_bytes && pools == e->memory.n_pools);
    assert_true(pools <= 2 * (sum / (most < sum / 4 + 1 ? most : sum / 4 + 1)) + 2);
    for (size_t i = 0; i < e->memory.n_pools; i++) assert_true(e->memory.pools[i].bytes <= (most > largest ? most : largest));
    char **sorted = mt_calloc(n, sizeof *sorted);
    memcpy(sorted, ends, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_place);
    for (size_t i = 0; i < n; i += 2) { /* a first byte, then the same buffer's last */
        char **first = bsearch(&ends[i], sorted, n, sizeof *sorted, by_place);
        assert_non_null(first);
        assert_ptr_equal(first[1], ends[i + 1]);
    }
    mt_free(sorted);
    mt_free(ends);
}

static void compare_with(const mt_engine *e, size_t pool)
{
    compare_place(e->plan, MT_DEVICE, e->plan->device_bytes);
    if (pool)
        compare_pools(e, pool);
    else
        compare_place(e->plan, MT_HOST, e->plan->host_bytes);
}

/* -- one case -------------------------------------------------------------------------------------- */

typedef struct subject {
    mt_config *config;
    mt_model *model;
} subject;

static subject draw_model(dice *d)
{
    mt_err err = { 0 };
    subject s;
    char text[512];
    int heads = 1 + roll(d, 3), width = 16 * heads;
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
             "\"num_key_value_heads\": %d, \"head_dim\": 16,"
             "\"intermediate_size\": %d, \"vocab_size\": %d, \"tie_word_embeddings\": %s, \"max_position_embeddings\": 4096}",
             roll(d, 2) ? "llama" : "qwen3", width, 1 + roll(d, 6), heads, roll(d, 2) ? 1 : heads, 8 + 8 * roll(d, 8),
             16 + roll(d, 200), roll(d, 2) ? "true" : "false");
    assert_ok(mt_config_parse(&s.config, text, strlen(text), "drawn", &err));
    assert_ok(mt_model_create(&s.model, s.config, NULL, &err));
    return s;
}

static void draw_tokens(mt_batch *b, const mt_question *q, int64_t batch)
{
    mt_err err = { 0 };
    int32_t ids[256];
    mt_batch_clear(b);
    for (int64_t d = 0; d < batch; d++) {
        for (int64_t i = 0; i < q->seq_len; i++)
            ids[i] = (int32_t)mt_rng_below(9, (uint64_t)d, (uint64_t)i, (uint64_t)q->model->config->V);
        assert_ok(mt_batch_add(b, ids, ids, q->seq_len, q->model->config->V, &err));
    }
}

/* Two steps under exactly the limit. */
static void run_plan(const mt_question *q, const mt_plan *plan, int64_t batch)
{
    static const size_t pools[] = { 0, 1 << 12, 1 << 16, MT_HOST_POOL_BYTES };
    mt_err err = { 0 };
    mt_device *dev;
    mt_engine *e;
    mt_batch b = { 0 };
    mt_step_result r;
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1 };
    mt_device_api noted = mt_device_cpu;
    noted.alloc = noted_alloc;
    noted.host_alloc = noted_host_alloc;
    noted.host_pool = pools[batch % 4];
    record.n = 0;
    assert_ok(mt_device_open(&dev, "cpu", &(mt_device_options){ .memory_limit = q->machine.device_bytes, .n_threads = 2 }, &err));
    dev->api = &noted;
    assert_ok(mt_engine_create(&e, dev, plan, &(mt_engine_options){ .n_workers = 1 }, &err));
    compare_with(e, noted.host_pool);
    assert_ok(mt_engine_init(e, q->model, 1, &err));
    draw_tokens(&b, q, batch);
    for (int i = 0; i < 2; i++) assert_ok(mt_engine_step(e, &b, &h, &r, &err));
    size_t n = record.n;
    assert_ok(mt_engine_evaluate(e, &b, &r, &err));
    assert_int_equal(record.n, n); /* P5: steps allocate nothing */
    mt_engine_free(e);
    dev->api = &mt_device_cpu;
    mt_device_close(dev);
    mt_batch_free(&b);
}

static void run_batch(const mt_question *q, int64_t batch)
{
    mt_err err = { 0 };
    const mt_job job = mt_question_job(q, batch);
    mt_plan *plan;
    assert_ok(mt_plan_auto(&plan, (mt_plan_inputs){ q->model, &job, &q->form, &q->machine }, &err));
    assert_true(plan->device_bytes <= q->machine.device_bytes);
    run_plan(q, plan, batch);
    mt_plan_free(plan);
}

/* Does any of many random placements make room for this batch? */
static bool possible(const mt_question *q, int64_t batch, dice *d)
{
    mt_err err = { 0 };
    const mt_job job = mt_question_job(q, batch);
    mt_arithmetic a = mt_plan_smallest((mt_plan_inputs){ q->model, &job, &q->form, &q->machine });
    for (int i = 0; i < 60; i++) {
        mt_placement p;
        assert_ok(mt_placement_init(&p, q->model, &err));
        draw(&p, q->model, &job, &a, d);
        mt_plan trial = { .model = q->model, .job = job, .arithmetic = a, .place = p };
        bool fits = !mt_plan_measure(&trial, &err) && trial.device_bytes <= q->machine.device_bytes;
        mt_placement_free(&p);
        if (fits) return true;
    }
    return false;
}

static void check_case(uint64_t seed)
{
    dice d = { seed, 0 };
    mt_err err = { 0 };
    subject s = draw_model(&d);
    mt_dtype t = roll(&d, 2) ? MT_DTYPE_F32 : MT_DTYPE_BF16;
    mt_question q = { .model = s.model,
                      .machine = mt_machine_typical(),
                      .form = { .compute = t, .grad = t },
                      .clip = roll(&d, 2),
                      .seq_len = 2 + roll(&d, 60),
                      .batch = 1 };
    mt_need need;
    assert_ok(mt_advise_need(&need, &q, &err));
    q.machine.device_bytes = need.device + (size_t)roll(&d, (int)need.device / 2);
    int64_t largest = mt_advise_largest(&q), most_run = mt_max_i64(MOST_RUN / q.seq_len, 1);
    assert_true(largest >= 1);
    run_batch(&q, mt_min_i64(largest, most_run));
    if (seed % 16 == 0) { /* what batch_size: auto takes */
        mt_batch_advice advice;
        assert_ok(mt_advise_batch(&advice, &q, &err));
        assert_true(advice.recommended >= 1 && advice.safe <= advice.largest && advice.recommended <= advice.largest &&
                    advice.largest == largest);
        run_batch(&q, mt_min_i64(advice.recommended, most_run));
    }
    int64_t more = largest + largest / 9 + 1;
    if (more * q.seq_len < MT_MOST_TOKENS && possible(&q, more, &d))
        fail_msg("case %llu: %lld samples were said to be the most, a random placement takes %lld", (unsigned long long)seed,
                 (long long)largest, (long long)more);
    q.machine.device_bytes = need.device - 1; /* and what is said to be the least, is: the search finds nothing below */
    assert_false(mt_plan_auto_fits((mt_plan_inputs){
        q.model, &(mt_job){ .train = true, .clip = q.clip, .step_tokens = q.seq_len, .step_docs = 1, .longest = q.seq_len },
        &q.form, &q.machine }));
    mt_model_free(s.model);
    mt_config_close(s.config);
}

static void the_plan_keeps_its_word_for_random_models_and_limits(void **state)
{
    (void)state;
    const char *env = getenv("MT_DRAWS");
    int n = env ? atoi(env) : 110;
    for (int i = 0; i < n; i++) check_case(5000 + (uint64_t)i);
    mt_free(record.got);
}

/* Layers that share their host memory, and what they keep there: any placement runs, and most need less of it.  (What
 * is computed is nonsense, so only that it is something.) */
static void aliased_layers_run_in_any_placement(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    rig_open_model(&r, MT_TESTS_DIR "/golden/models/qwen3_tied", NULL);
    const mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = r.batch.longest, .mlp_rows = 5, .head_rows = 4
    };
    mt_job own = rig_job(&r, true), shared = own;
    shared.alias_layers = true;
    for (int i = 0, n_less = 0; i < 12 || n_less == 0; i++) {
        const mt_hyper h = { .lr = 1e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1 };
        dice d = { 700 + (uint64_t)i, 0 };
        mt_placement p;
        mt_plan *plan, *apart;
        mt_step_result s;
        assert_ok(mt_placement_init(&p, r.model, &err));
        draw(&p, r.model, &own, &a, &d);
        assert_ok(mt_plan_create(&apart, r.model, &own, &a, &p, &err));
        assert_ok(mt_plan_create(&plan, r.model, &shared, &a, &p, &err));
        mt_placement_free(&p);
        assert_int_equal(plan->device_bytes, apart->device_bytes);
        n_less += plan->host_bytes < apart->host_bytes;
        mt_plan_free(apart);
        rig_start(&r, plan, 2);
        for (int k = 0; k < 2; k++) assert_ok(mt_engine_step(r.engine, &r.batch, &h, &s, &err));
        if (!(s.loss > 0 && s.loss < 100)) fail_msg("placement %d: loss %g", i, s.loss);
        rig_stop(&r);
    }
    rig_close(&r);
}

MT_TEST_MAIN(cmocka_unit_test(aliased_layers_run_in_any_placement),
             cmocka_unit_test(the_plan_keeps_its_word_for_random_models_and_limits))
