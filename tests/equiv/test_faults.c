/* Every allocation, device buffer, copy, queue operation and thread made to fail once, through a whole run: a message comes
 * back within a second, and nothing is leaked (AddressSanitizer's share of make test looks, at every MT_FAULT_STRIDE-th point).
 * Also: a clean run twice gives the same bits, and non-finite steps. */
#include "wide.h"

#include "base/fault.h"
#include "base/split.h"
#include "plan/search.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"

static const mt_hyper hyper = {
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.0
};

/* A placement with something of everything: both homes, all sites, kept on both sides, two sweeps. */
static mt_rc mixed_plan(mt_plan **out, const rig *r, bool clip, mt_err *err)
{
    mt_placement p;
    mt_job job = rig_job(r, clip);
    mt_arithmetic a = {
        .compute = MT_DTYPE_F32, .grad = MT_DTYPE_BF16, .micro_tokens = r->batch.longest, .mlp_rows = 8, .head_rows = 8
    };
    MT_TRY(mt_placement_init(&p, r->model, err));
    p.sweep_tokens = r->batch.longest;
    if (r->model->unit_experts) { /* two micro-batches pass experts together */
        p.sweep_tokens = a.moe_tokens = r->batch.n_tokens - 1;
        job.router_loss = 0.05;
    }
    p.accumulators = MT_HOST;
    mt_placement_set_slots(&p, r->model, 2, 1, 1);
    p.keep_slots = 2, p.staging_slots = 1, p.n_slabs = 1;
    for (int u = 0; u < r->model->n_units; u++) {
        mt_site site = (mt_site)(u % 3);
        p.units[u] = (mt_unit_place){ .site = site,
                                      .home = site == MT_SITE_DEVICE ? MT_DEVICE : MT_HOST,
                                      .resident = site == MT_SITE_DEVICE };
    }
    for (int l = 0; l < r->config->L; l++)
        p.layers[l] = (mt_layer_place){ l % 2 ? MT_KEEP_MIXER : MT_KEEP_INPUT, l % 2 ? MT_DEVICE : MT_HOST };
    mt_rc rc = mt_plan_create(out, r->model, &job, &a, &p, err);
    mt_placement_free(&p);
    return rc;
}

/* Everything resident and layers updated in what their last backward frees, as on a large GPU. */
static mt_rc borrowing_plan(mt_plan **out, const rig *r, bool clip, mt_err *err)
{
    mt_placement p;
    mt_job job = rig_job(r, clip);
    mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = r->batch.longest, .mlp_rows = 8, .head_rows = 8
    };
    MT_TRY(mt_placement_init(&p, r->model, err));
    p.sweep_tokens = r->batch.longest;
    p.accumulators = MT_DEVICE;
    mt_placement_set_slots(&p, r->model, 1, 1, 1);
    p.n_slabs = 1;
    for (int l = 0; l < r->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_ALL, MT_DEVICE };
    for (int u = 0; u < r->model->n_units; u++) {
        bool layer = r->model->units[u].kind == MT_UNIT_LAYER;
        p.units[u] = (mt_unit_place){ .resident = true, .site = layer ? MT_SITE_STAGED : MT_SITE_HOST, .reuses = layer };
    }
    mt_rc rc = mt_plan_create(out, r->model, &job, &a, &p, err);
    mt_placement_free(&p);
    return rc;
}

/* Everything resident and updated in slots of units' own, whose write-backs last through the next step. */
static mt_rc private_slots_plan(mt_plan **out, const rig *r, bool clip, mt_err *err)
{
    mt_placement p;
    mt_job job = rig_job(r, clip);
    mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = r->batch.longest, .mlp_rows = 8, .head_rows = 8
    };
    MT_TRY(mt_placement_init(&p, r->model, err));
    p.sweep_tokens = r->batch.n_tokens;
    mt_placement_set_slots(&p, r->model, 1, 1, 1);
    p.staging_slots = r->model->n_units;
    for (int l = 0; l < r->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    for (int u = 0; u < r->model->n_units; u++)
        p.units[u] = (mt_unit_place){ .resident = true, .site = u == 1 ? MT_SITE_HOST : MT_SITE_STAGED };
    mt_rc rc = mt_plan_create(out, r->model, &job, &a, &p, err);
    mt_placement_free(&p);
    return rc;
}

/* Everything streamed from host memory, and of every unit a part updated in pieces: half of it, or all. */
static mt_rc pieces_plan(mt_plan **out, const rig *r, bool clip, mt_err *err)
{
    mt_placement p;
    mt_job job = rig_job(r, clip);
    mt_arithmetic a = { .compute = MT_DTYPE_BF16,
                        .grad = MT_DTYPE_BF16,
                        .moments = MT_MOMENTS_8BIT,
                        .micro_tokens = r->batch.longest,
                        .mlp_rows = 8,
                        .head_rows = 8 };
    MT_TRY(mt_placement_init(&p, r->model, err));
    p.sweep_tokens = r->batch.n_tokens;
    mt_placement_set_slots(&p, r->model, 2, 1, 1);
    p.n_slabs = 1, p.piece_slots = 2;
    for (int l = 0; l < r->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    for (int u = 0; u < r->model->n_units; u++) {
        int64_t n = r->model->units[u].layout->n_train, half = n / 2 / MT_MOMENT_BLOCK * MT_MOMENT_BLOCK;
        p.units[u].in_pieces = u % 2 ? n : n - half;
        p.piece_elems = mt_max_i64(p.piece_elems, (int64_t)mt_round_up((size_t)n / 2, MT_MOMENT_BLOCK));
    }
    mt_rc rc = mt_plan_create(out, r->model, &job, &a, &p, err);
    mt_placement_free(&p);
    return rc;
}

/* Two lanes, three shares: one lane has two, so sums wait for the second round. */
static mt_rc plan_lanes(mt_plan **out, const rig *r, bool clip, mt_fold_route fold, mt_err *err)
{
    mt_placement p;
    mt_job job = rig_job(r, clip);
    mt_arithmetic a = { .compute = MT_DTYPE_BF16,
                        .grad = MT_DTYPE_BF16,
                        .micro_tokens = r->batch.longest,
                        .mlp_rows = 8,
                        .head_rows = 8,
                        .shares = 3 };
    job.lanes = 2;
    MT_TRY(mt_placement_init(&p, r->model, err));
    p.sweep_tokens = r->batch.longest;
    p.accumulators = MT_HOST;
    mt_placement_set_slots(&p, r->model, 2, 1, 1);
    p.n_slabs = 1;
    p.fold = fold;
    p.gather = fold == MT_FOLD_PEERS;
    for (int u = 0; u < r->model->n_units && fold == MT_FOLD_PEERS; u += 2) /* every other unit's state lives in slices */
        p.units[u] = (mt_unit_place){ .resident = u % 4 == 0, .home = MT_DEVICE, .site = MT_SITE_DEVICE };
    for (int l = 0; l < r->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    mt_rc rc = mt_plan_create(out, r->model, &job, &a, &p, err);
    mt_placement_free(&p);
    return rc;
}

static mt_rc lanes_plan(mt_plan **out, const rig *r, bool clip, mt_err *err)
{
    return plan_lanes(out, r, clip, MT_FOLD_HOST, err);
}

static mt_rc peers_plan(mt_plan **out, const rig *r, bool clip, mt_err *err)
{
    return plan_lanes(out, r, clip, MT_FOLD_PEERS, err);
}

typedef struct fault_case {
    mt_rc (*plan)(mt_plan **out, const rig *r, bool clip, mt_err *err);
    const char *model;     /* NULL: wide.h's, whose units have a slice on every lane */
    const char *freeze[2]; /* little is trained, so that a layer's state fits into what few rows keep */
    bool clip;
    bool looks; /* at gradients first, so that what was staged is dropped */
    bool saves; /* a checkpoint of each step, while the next one runs */
    int stride; /* of the points after the first; 0: each */
} fault_case;

static const fault_case mixed = { .plan = mixed_plan, .model = "qwen3", .clip = true },
                        unclipped = { .plan = mixed_plan, .model = "qwen3" };
static const fault_case borrowing = {
    .plan = borrowing_plan, .model = "qwen2_window", .freeze = { "*_proj.weight", "lm_head.weight" }, .clip = true, .looks = true
};

/* Layers of several units. */
static const fault_case experts = { .plan = mixed_plan, .model = "mixtral_fused", .clip = true, .stride = 5 };

static const fault_case saving = { .plan = private_slots_plan, .model = "qwen3", .clip = true, .saves = true, .stride = 7 };
static const fault_case in_pieces = { .plan = pieces_plan, .model = "qwen3", .clip = true, .looks = true };
static const fault_case unclipped_pieces = { .plan = pieces_plan, .model = "qwen3", .stride = 7 };
static const fault_case saving_pieces = { .plan = pieces_plan, .model = "qwen3", .clip = true, .saves = true, .stride = 7 };
static const fault_case lanes = { .plan = lanes_plan, .model = "llama_tied", .clip = true, .looks = true, .stride = 5 };
static const fault_case unclipped_lanes = { .plan = lanes_plan, .model = "llama_tied", .stride = 5 };
static const fault_case saving_lanes = { .plan = lanes_plan, .model = "llama_tied", .clip = true, .saves = true, .stride = 9 };
static const fault_case peers = { .plan = peers_plan, .clip = true, .looks = true, .stride = 11 };
static const fault_case unclipped_peers = { .plan = peers_plan, .stride = 11 };
static const fault_case saving_peers = { .plan = peers_plan, .clip = true, .saves = true, .stride = 13 };
static const fault_case saving_mixed = { .plan = mixed_plan, .model = "qwen3", .clip = true, .saves = true, .stride = 7 };

/* -- a thread that saves ---------------------------------------------------------------------------- */

typedef struct saver {
    pthread_t thread;
    rig *r;
    mt_rc rc;
    mt_err err;
} saver;

static void *save(void *arg)
{
    saver *s = arg;
    const mt_model *m = s->r->model;
    char piece[256];
    for (int u = 0; u < m->n_units; u++) {
        for (int kind = 0; kind < MT_STATE_KINDS && !s->rc; kind++)
            if (m->units[u].layout->n_train >= 64)
                s->rc = mt_state_read_locked(mt_engine_state(s->r->engine), (mt_state_range){ u, (mt_state_kind)kind, 0, 64 },
                                             piece, &s->err);
        mt_state_unlock(mt_engine_state(s->r->engine), u); /* whatever happened */
    }
    return NULL;
}

static mt_rc step_beside_a_saver(rig *r, mt_step_result *result, mt_err *err)
{
    saver s = { .r = r };
    MT_TRY(mt_engine_lock(r->engine, err));
    assert_int_equal(pthread_create(&s.thread, NULL, save, &s), 0);
    mt_rc rc = mt_engine_step(r->engine, &r->batch, &hyper, result, err);
    pthread_join(s.thread, NULL);
    if (!rc && s.rc) *err = s.err;
    return rc ? rc : s.rc;
}

/* Plan, device, engine, weights, two steps, checksum: what can fail, returned. */
static mt_rc whole_run(rig *r, const fault_case *c, uint64_t *checksum, mt_err *err)
{
    mt_step_result s;
    MT_TRY(c->plan(&r->plan, r, c->clip, err));
    MT_TRY(mt_device_open(&r->dev, rig_device(), &(mt_device_options){ .n_threads = 2 }, err));
    for (int i = 1; i < mt_plan_lanes(r->plan); i++)
        MT_TRY(mt_device_open(&r->more[i - 1], rig_device(), &(mt_device_options){ .n_threads = 2 }, err));
    MT_TRY(mt_engine_create(&r->engine, r->dev, r->plan, &(mt_engine_options){ .n_workers = 2, .more = r->more }, err));
    MT_TRY(r->shards ? mt_engine_load(r->engine, r->model, r->shards, err) : rig_fill(r, err));
    for (int i = 0; i < 2; i++) {
        if (c->looks) MT_TRY(mt_engine_gradients(r->engine, &r->batch, &s, err));
        MT_TRY(c->saves ? step_beside_a_saver(r, &s, err) : mt_engine_step(r->engine, &r->batch, &hyper, &s, err));
    }
    return mt_engine_checksum(r->engine, checksum, err);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void open_case(rig *r, const fault_case *c)
{
    char dir[512];
    if (!c->model) {
        open_wide(r, WIDE_TIED, NULL);
        return;
    }
    snprintf(dir, sizeof dir, GOLDEN_DIR "%s", c->model);
    rig_open_model(r, dir, &(mt_model_options){ .freeze = c->freeze, .n_freeze = c->freeze[0] ? 2 : 0 });
}

/* What a device opened now could have. */
static size_t free_memory(void)
{
    mt_err err = { 0 };
    mt_device *dev;
    mt_device_info info;
    assert_ok(mt_device_open(&dev, rig_device(), NULL, &err));
    dev->api->info(dev, &info);
    mt_device_close(dev);
    return info.memory_limit;
}

/* A fault at each point in turn, until there is none to hit. */
static void fail_at_each_point(mt_fault_kind kind, rig *r, const fault_case *c, uint64_t good)
{
    const char *env = getenv("MT_FAULT_STRIDE");
    int n_hit = 0, stride = env ? atoi(env) : 1;
    if (c->stride > stride) stride = c->stride;
    for (long n = 0;; n += n < 40 ? 1 : stride) {
        uint64_t sum;
        mt_err err = { 0 };
        double start = seconds();
        mt_fault_arm(kind, n);
        mt_rc rc = whole_run(r, c, &sum, &err);
        bool hit = mt_fault_disarm();
        rig_stop(r);
        assert_true(seconds() - start < 60); /* nothing waits for what does not come; a busy machine takes seconds */
        if (!hit) {
            assert_int_equal(rc, MT_OK);
            assert_true(sum == good);
            break;
        }
        n_hit++;
        /* Threads that help are not needed: spread.h. */
        bool without = rc == MT_OK && sum == good && (kind == MT_FAULT_ALLOC || kind == MT_FAULT_THREAD);
        if (rc == MT_OK && !without) fail_msg("fault %d of kind %d went unnoticed", (int)n, kind);
        assert_true(without || (err.msg[0] && err.rc == rc));
    }
    assert_true(n_hit > (kind == MT_FAULT_THREAD ? 0 : 2)); /* a GPU's streams are not our threads */
}

/* Memory that is gone afterwards is a leak if it is gone again the next time: others may use the GPU too. */
static void fail_everywhere(mt_fault_kind kind, const fault_case *c)
{
    rig r;
    uint64_t good;
    mt_err err = { 0 };
    bool gone = true;
    open_case(&r, c);
    assert_ok(whole_run(&r, c, &good, &err));
    rig_stop(&r);
    for (int turn = 0; turn < 3 && gone; turn++) {
        size_t before = free_memory();
        fail_at_each_point(kind, &r, c, good);
        gone = free_memory() + ((size_t)64 << 20) < before;
    }
    assert_false(gone);
    rig_close(&r);
}

static void every_allocation_may_fail(void **state)
{
    (void)state, fail_everywhere(MT_FAULT_ALLOC, &mixed), fail_everywhere(MT_FAULT_ALLOC, &experts),
        fail_everywhere(MT_FAULT_ALLOC, &lanes), fail_everywhere(MT_FAULT_ALLOC, &peers);
}
static void every_device_buffer_may_fail(void **state)
{
    (void)state, fail_everywhere(MT_FAULT_DEVICE, &mixed), fail_everywhere(MT_FAULT_DEVICE, &borrowing),
        fail_everywhere(MT_FAULT_DEVICE, &in_pieces), fail_everywhere(MT_FAULT_DEVICE, &lanes),
        fail_everywhere(MT_FAULT_DEVICE, &peers);
}
static void every_copy_may_fail(void **state)
{
    (void)state, fail_everywhere(MT_FAULT_COPY, &mixed), fail_everywhere(MT_FAULT_COPY, &unclipped),
        fail_everywhere(MT_FAULT_COPY, &borrowing), fail_everywhere(MT_FAULT_COPY, &saving),
        fail_everywhere(MT_FAULT_COPY, &saving_mixed), fail_everywhere(MT_FAULT_COPY, &in_pieces),
        fail_everywhere(MT_FAULT_COPY, &unclipped_pieces), fail_everywhere(MT_FAULT_COPY, &saving_pieces),
        fail_everywhere(MT_FAULT_COPY, &experts), fail_everywhere(MT_FAULT_COPY, &lanes),
        fail_everywhere(MT_FAULT_COPY, &unclipped_lanes), fail_everywhere(MT_FAULT_COPY, &saving_lanes),
        fail_everywhere(MT_FAULT_COPY, &peers), fail_everywhere(MT_FAULT_COPY, &unclipped_peers),
        fail_everywhere(MT_FAULT_COPY, &saving_peers);
}
static void every_queue_may_fail(void **state)
{
    (void)state, fail_everywhere(MT_FAULT_QUEUE, &mixed), fail_everywhere(MT_FAULT_QUEUE, &unclipped),
        fail_everywhere(MT_FAULT_QUEUE, &borrowing), fail_everywhere(MT_FAULT_QUEUE, &saving),
        fail_everywhere(MT_FAULT_QUEUE, &saving_mixed), fail_everywhere(MT_FAULT_QUEUE, &in_pieces),
        fail_everywhere(MT_FAULT_QUEUE, &unclipped_pieces), fail_everywhere(MT_FAULT_QUEUE, &saving_pieces),
        fail_everywhere(MT_FAULT_QUEUE, &experts), fail_everywhere(MT_FAULT_QUEUE, &lanes),
        fail_everywhere(MT_FAULT_QUEUE, &unclipped_lanes), fail_everywhere(MT_FAULT_QUEUE, &saving_lanes),
        fail_everywhere(MT_FAULT_QUEUE, &peers), fail_everywhere(MT_FAULT_QUEUE, &unclipped_peers),
        fail_everywhere(MT_FAULT_QUEUE, &saving_peers);
}
static void every_thread_may_be_refused(void **state)
{
    (void)state, fail_everywhere(MT_FAULT_THREAD, &mixed), fail_everywhere(MT_FAULT_THREAD, &in_pieces),
        fail_everywhere(MT_FAULT_THREAD, &lanes), fail_everywhere(MT_FAULT_THREAD, &peers);
}

/* A lane that fails in a step ends it for all, by its number. */
static void a_failing_lane_is_named(void **state)
{
    (void)state;
    rig r;
    int named[2] = { 0 };
    const char *const *names = strcmp(rig_device(), "cuda") == 0 ? (const char *[]){ "GPU 0: ", "GPU 1: " }
                                                                 : (const char *[]){ "CPU lane 0: ", "CPU lane 1: " };
    open_case(&r, &lanes);
    for (long n = 0;; n += 3) {
        mt_err err = { 0 };
        uint64_t sum;
        mt_fault_arm(MT_FAULT_COPY, n);
        mt_rc rc = whole_run(&r, &unclipped_lanes, &sum, &err);
        bool hit = mt_fault_disarm();
        rig_stop(&r);
        if (!hit) break;
        assert_int_not_equal(rc, MT_OK);
        for (int lane = 0; lane < 2; lane++) named[lane] += strstr(err.msg, names[lane]) != NULL;
    }
    assert_true(named[0] > 0 && named[1] > 0);
    rig_close(&r);
}

/* -- what was staged and is not used ---------------------------------------------------------------- */

/* Looking at gradients stages a borrowing unit's state into what the next forward fills again: that forward must wait for the
 * copies, though nothing else makes it.  Copies are slow here, by more or less, so that they would land in the middle of it. */
static void gradients_before_a_step_change_no_bit(void **state)
{
    (void)state;
    static const int slow_us[] = { 0, 50, 100, 200, 400, 600, 800, 1000, 1500 };
    uint64_t first = 0, sum;
    for (size_t k = 0; k < MT_COUNT(slow_us); k++) {
        mt_err err = { 0 };
        rig r;
        mt_step_result s;
        open_case(&r, &borrowing);
        assert_ok(borrowing_plan(&r.plan, &r, true, &err));
        assert_ok(mt_device_open(
            &r.dev, "cpu", &(mt_device_options){ .n_threads = 2, .dawdle_us = slow_us[k], .slow_stream = "copy-in" }, &err));
        assert_ok(mt_engine_create(&r.engine, r.dev, r.plan, NULL, &err));
        assert_ok(mt_engine_load(r.engine, r.model, r.shards, &err));
        for (int i = 0; i < 3; i++) {
            if (k) assert_ok(mt_engine_gradients(r.engine, &r.batch, &s, &err));
            assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err));
        }
        assert_ok(mt_engine_checksum(r.engine, &sum, &err));
        if (k && sum != first) fail_msg("gradients first, copies %d us late: other bits", slow_us[k]);
        first = sum;
        rig_close(&r);
    }
}

/* -- numbers that are not ------------------------------------------------------------------------- */

static void poison(rig *r)
{
    mt_err err = { 0 };
    const uint16_t nan = 0x7fc0;
    const int16_t zero = 0;
    assert_ok(mt_engine_write(r->engine, (mt_state_range){ 1, MT_STATE_HI, 0, 1 }, &nan, &err));
    assert_ok(mt_engine_write(r->engine, (mt_state_range){ 1, MT_STATE_LO, 0, 1 }, &zero, &err));
}

static void open_rig(rig *r, bool clip)
{
    mt_err err = { 0 };
    mt_plan *plan;
    rig_open_model(r, GOLDEN_DIR "qwen3", NULL);
    assert_ok(mixed_plan(&plan, r, clip, &err));
    plan->device_bytes += 1 << 20; /* rig_start makes it the limit */
    rig_start(r, plan, 2);
}

static void with_clipping_a_broken_step_is_skipped_whole(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    uint64_t before, after;
    mt_step_result s;
    open_rig(&r, true);
    assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err));
    assert_false(s.skipped);
    poison(&r);
    assert_ok(mt_engine_checksum(r.engine, &before, &err));
    for (int i = 0; i < 3; i++) {
        assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err));
        assert_true(s.skipped);
    }
    assert_ok(mt_engine_checksum(r.engine, &after, &err));
    assert_true(before == after);
    assert_int_equal(mt_state_updates(mt_engine_state(r.engine)), 1); /* Adam's t stays */
    rig_close(&r);
}

static void without_clipping_a_broken_loss_stops_the_run(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    mt_step_result s;
    open_rig(&r, false);
    assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err));
    poison(&r);
    assert_int_equal(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err), MT_ENUMERIC);
    assert_says("the loss is not finite");
    assert_says("max_grad_norm");
    assert_int_equal(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err), MT_ENUMERIC); /* sticky */
    rig_close(&r);
}

/* Device updates are queued, not waited for: what went wrong in them must be known before the state is read or used again. */
static void weights_that_leave_the_finite_range_on_the_device_stop_the_run(void **state)
{
    (void)state;
    mt_hyper wild = hyper;
    wild.lr = 1e39;
    for (int i = 0; i < 2; i++) {
        mt_err err = { 0 };
        rig r;
        mt_plan *plan;
        mt_step_result s;
        uint64_t sum;
        rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
        mt_job job = rig_job(&r, true);
        mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_BF16);
        assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
        for (int u = 0; u < r.model->n_units; u++) assert_int_equal(plan->place.units[u].site, MT_SITE_DEVICE);
        rig_start(&r, plan, 2);
        assert_ok(mt_engine_step(r.engine, &r.batch, &wild, &s, &err));
        assert_int_equal(i ? mt_engine_checksum(r.engine, &sum, &err) : mt_engine_step(r.engine, &r.batch, &hyper, &s, &err),
                         MT_ENUMERIC);
        assert_says("became non-finite");
        assert_int_equal(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err), MT_ENUMERIC); /* sticky */
        rig_close(&r);
    }
}

/* Of slices, some lane has counted them. */
static void weights_that_leave_the_finite_range_in_a_slice_stop_the_run(void **state)
{
    (void)state;
    mt_hyper wild = hyper;
    wild.lr = 1e39;
    for (int i = 0; i < 4; i++) {
        mt_err err = { 0 };
        rig r;
        mt_step_result s;
        mt_plan *plan, *half;
        uint64_t sum;
        open_wide(&r, WIDE_DENSE, NULL);
        assert_ok(peers_plan(&half, &r, i & 1, &err));
        for (int u = 0; u < r.model->n_units; u++)
            half->place.units[u] = (mt_unit_place){ .home = MT_DEVICE, .site = MT_SITE_DEVICE };
        assert_ok(mt_plan_create(&plan, r.model, &half->job, &half->arithmetic, &half->place, &err));
        mt_plan_free(half);
        rig_start(&r, plan, 2);
        /* Without clipping a later unit of the same step may find it. */
        const mt_rc first = mt_engine_step(r.engine, &r.batch, &wild, &s, &err);
        assert_true(first == MT_OK || (!(i & 1) && first == MT_ENUMERIC));
        assert_int_equal(i & 2 ? mt_engine_checksum(r.engine, &sum, &err) : mt_engine_step(r.engine, &r.batch, &hyper, &s, &err),
                         MT_ENUMERIC);
        assert_says("became non-finite");
        assert_int_equal(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err), MT_ENUMERIC); /* sticky */
        rig_close(&r);
    }
}

/* All of it in pieces, so that no worker of the host can have seen it. */
static void weights_that_leave_the_finite_range_in_a_piece_stop_the_run(void **state)
{
    (void)state;
    mt_hyper wild = hyper;
    wild.lr = 1e39;
    for (int i = 0; i < 4; i++) {
        mt_err err = { 0 };
        rig r;
        mt_step_result s;
        mt_plan *plan, *half;
        uint64_t sum;
        rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
        assert_ok(pieces_plan(&half, &r, i & 1, &err));
        for (int u = 0; u < r.model->n_units; u++) half->place.units[u].in_pieces = r.model->units[u].layout->n_train;
        assert_ok(mt_plan_create(&plan, r.model, &half->job, &half->arithmetic, &half->place, &err));
        mt_plan_free(half);
        rig_start(&r, plan, 2);
        mt_rc rc = mt_engine_step(r.engine, &r.batch, &wild, &s, &err);
        assert_int_equal(rc, i & 1 ? MT_OK : MT_ENUMERIC); /* without clipping the step itself updates */
        if (!rc) rc = i & 2 ? mt_engine_checksum(r.engine, &sum, &err) : mt_engine_step(r.engine, &r.batch, &hyper, &s, &err);
        assert_int_equal(rc, MT_ENUMERIC);
        assert_says("became non-finite");
        assert_int_equal(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err), MT_ENUMERIC); /* sticky */
        rig_close(&r);
    }
}

/* The mean over no tokens is undefined, and weight decay alone is not a step. */
static void a_step_without_a_trained_token_changes_nothing(void **state)
{
    (void)state;
    for (int clip = 0; clip < 2; clip++) {
        mt_err err = { 0 };
        rig r;
        uint64_t before, after;
        mt_step_result s;
        open_rig(&r, clip);
        assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err));
        assert_ok(mt_engine_checksum(r.engine, &before, &err));
        mt_batch masked = { 0 };
        const int32_t ids[3] = { 1, 2, 3 }, labels[3] = { MT_IGNORE, MT_IGNORE, MT_IGNORE };
        assert_ok(mt_batch_add(&masked, ids, labels, 3, r.config->V, &err));
        assert_ok(mt_engine_step(r.engine, &masked, &hyper, &s, &err));
        assert_true(s.empty && !s.skipped && s.n_trained == 0 && isnan(s.loss));
        assert_ok(mt_engine_checksum(r.engine, &after, &err));
        assert_true(before == after);
        assert_int_equal(mt_state_updates(mt_engine_state(r.engine)), 1);
        assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err));
        assert_false(s.empty);
        mt_batch_free(&masked);
        rig_close(&r);
    }
}

static void a_step_larger_than_the_plan_is_refused_and_harmless(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    mt_step_result s;
    open_rig(&r, true);
    mt_batch big = { 0 };
    int32_t ids[64] = { 1, 2, 3 };
    for (int i = 0; i < 4; i++) assert_ok(mt_batch_add(&big, ids, NULL, 64, r.config->V, &err));
    assert_int_equal(mt_engine_step(r.engine, &big, &hyper, &s, &err), MT_ERANGE);
    assert_says("the plan was made for");
    assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &s, &err));
    mt_batch_free(&big);
    rig_close(&r);
}

RIG_TEST_MAIN(cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(every_device_buffer_may_fail),
              cmocka_unit_test(every_copy_may_fail), cmocka_unit_test(every_queue_may_fail),
              cmocka_unit_test(every_thread_may_be_refused), cmocka_unit_test(a_failing_lane_is_named),
              cmocka_unit_test(gradients_before_a_step_change_no_bit),
              cmocka_unit_test(with_clipping_a_broken_step_is_skipped_whole),
              cmocka_unit_test(without_clipping_a_broken_loss_stops_the_run),
              cmocka_unit_test(weights_that_leave_the_finite_range_on_the_device_stop_the_run),
              cmocka_unit_test(weights_that_leave_the_finite_range_in_a_slice_stop_the_run),
              cmocka_unit_test(weights_that_leave_the_finite_range_in_a_piece_stop_the_run),
              cmocka_unit_test(a_step_without_a_trained_token_changes_nothing),
              cmocka_unit_test(a_step_larger_than_the_plan_is_refused_and_harmless))
