/* A thread that saves the state while the engine continues sees exactly the state after the update it was held at, whatever the
 * placement; and being watched changes no bit.  MT_DRAWS sets how many placements are drawn. */
#include "draw.h"
#include "lenders.h"
#include "wide.h"

#include "base/fault.h"
#include "engine/internal.h"
#include "engine/lane_internal.h"
#include "engine/snapshot.h"
#include "plan/search.h"
#include "schedule/sequence_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"

enum { STEPS = 4, PIECE = 4096 };

typedef struct saver {
    pthread_t thread;
    rig *r;
    dice d;
    bool backwards;
    size_t room; /* for copies; 0: none */
    uint64_t sum;
    mt_rc rc;
    mt_err err;
} saver;

static void doze(dice *d)
{
    if (roll(d, 3) == 0) nanosleep(&(struct timespec){ 0, 1000L * roll(d, 300) }, NULL);
}

/* One unit as a number: as a snapshot has it, or (NULL) as the engine gives it. */
static mt_rc hash_unit(rig *r, int u, const mt_snapshot *held, dice *d, uint64_t *out, mt_err *err)
{
    static const size_t sizes[MT_STATE_KINDS] = { 2, 2, 4, 4 };
    char piece[PIECE * 4];
    uint64_t h = 0;
    for (int kind = 0; kind < MT_STATE_KINDS; kind++) {
        const mt_state_range all = mt_unit_state(r->model, u, (mt_state_kind)kind);
        for (int64_t at = 0; at < all.n; at += PIECE) {
            const mt_state_range some = mt_state_piece(all, at, PIECE);
            if (d) doze(d);
            MT_TRY(held ? mt_snapshot_read(held, some, piece, err) : mt_engine_read(r->engine, some, piece, err));
            h = mt_hash(piece, (size_t)some.n * sizes[kind], h);
        }
    }
    *out = h;
    return MT_OK;
}

static void *save(void *arg)
{
    saver *s = arg;
    int n = s->r->model->n_units;
    mt_snapshot *copies = NULL;
    const mt_snapshot_options o = { .room = s->room, .n_threads = 1 + roll(&s->d, 3), .backwards = s->backwards };
    doze(&s->d);
    s->rc = mt_snapshot_take(&copies, mt_engine_state(s->r->engine), s->r->model, &o, &s->err);
    if (!s->rc && mt_snapshot_bytes(copies) != mt_snapshot_would_take(s->r->model, &o))
        s->rc = mt_fail(&s->err, MT_EINTERNAL, "copied otherwise than planned");
    for (int i = 0; i < n; i++) {
        uint64_t h = 0;
        int u = s->backwards ? n - 1 - i : i;
        if (!s->rc) s->rc = hash_unit(s->r, u, copies, &s->d, &h, &s->err);
        s->sum += h * (uint64_t)(2 * u + 1); /* in any order */
        if (copies) mt_snapshot_drop(copies, u);
    }
    mt_snapshot_free(copies);
    return NULL;
}

static uint64_t hash_all(rig *r)
{
    mt_err err = { 0 };
    uint64_t sum = 0, h = 0;
    for (int u = 0; u < r->model->n_units; u++) {
        assert_ok(hash_unit(r, u, NULL, NULL, &h, &err));
        sum += h * (uint64_t)(2 * u + 1);
    }
    return sum;
}

static const mt_hyper hyper = {
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5
};

static void undisturbed(rig *r, uint64_t sums[STEPS])
{
    mt_err err = { 0 };
    for (int i = 0; i < STEPS; i++) {
        mt_step_result s;
        assert_ok(mt_engine_step(r->engine, &r->batch, &hyper, &s, &err));
        sums[i] = hash_all(r);
    }
}

/* The saver of step i works through step i + 1 (and an evaluation, sometimes). */
static void watched(rig *r, uint64_t sums[STEPS], dice *d, bool backwards)
{
    mt_err err = { 0 };
    saver s = { 0 };
    for (int i = 0; i <= STEPS; i++) {
        mt_step_result result;
        if (i && roll(d, 3) == 0) assert_ok(mt_engine_evaluate(r->engine, &r->batch, &result, &err));
        if (i < STEPS) assert_ok(mt_engine_step(r->engine, &r->batch, &hyper, &result, &err));
        if (i) {
            pthread_join(s.thread, NULL);
            if (s.rc) fail_msg("the saver: %s", s.err.msg);
            sums[i - 1] = s.sum;
        }
        if (i == STEPS) break;
        const size_t rooms[] = { 0, 12 * (size_t)r->model->n_params / 2, SIZE_MAX }; /* for none, some, all */
        s = (saver){ .r = r, .d = { d->seed + 1000 + (uint64_t)i, 0 }, .backwards = backwards, .room = rooms[roll(d, 3)] };
        assert_ok(mt_engine_lock(r->engine, &err));
        assert_int_equal(pthread_create(&s.thread, NULL, save, &s), 0);
    }
}

/* Every unit is staged, and its weights and state stay there. */
static void stage_all(mt_placement *p, const mt_model *m)
{
    p->staging_slots = m->n_units;
    for (int u = 0; u < m->n_units; u++)
        p->units[u] = (mt_unit_place){ .resident = true, .home = MT_HOST, .site = MT_SITE_STAGED };
}

static void piece_all(mt_placement *p, const mt_model *m)
{
    for (int u = 0; u < m->n_units; u++)
        p->units[u] = (mt_unit_place){ .site = MT_SITE_HOST, .in_pieces = m->units[u].layout->n_train };
}

static void check(const char *model, mt_dtype compute, bool clip, int draws, uint64_t seed)
{
    mt_err err = { 0 };
    rig r;
    char dir[512];
    uint64_t expected[STEPS], got[STEPS];
    snprintf(dir, sizeof dir, GOLDEN_DIR "%s", model);
    rig_open_model(&r, dir, NULL);
    mt_job job = rig_job(&r, clip);
    mt_arithmetic a = {
        .compute = compute, .grad = MT_DTYPE_BF16, .micro_tokens = r.batch.longest, .mlp_rows = 5, .head_rows = 4
    };
    for (int i = 0; i <= draws; i++) {
        dice d = { seed + (uint64_t)i, 0 };
        mt_placement p;
        mt_plan *plan;
        assert_ok(mt_placement_init(&p, r.model, &err));
        draw(&p, r.model, &job, &a, &d);
        bool slow = i % 3 == 2;   /* write-backs that last into the next update (U3) */
        bool pieces = i % 3 == 1; /* the same of pieces */
        if (slow) stage_all(&p, r.model);
        if (pieces) piece_all(&p, r.model);
        assert_ok(mt_plan_create(&plan, r.model, &job, &a, &p, &err));
        mt_placement_free(&p);
        rig_start_slow(&r, rig_device(), plan, 1 + i % 3, slow || pieces ? 1000 : 0,
                       slow     ? "write-back"
                       : pieces ? "piece-back"
                                : NULL);
        if (i == 0)
            undisturbed(&r, expected);
        else
            watched(&r, got, &d, roll(&d, 2));
        rig_stop(&r);
        for (int k = 0; i && k < STEPS; k++)
            if (got[k] != expected[k])
                fail_msg("%s, placement %d: what was saved at step %d is not the state after it", model, i, k + 1);
    }
    rig_close(&r);
}

static void a_saver_sees_the_state_it_was_held_at(void **state)
{
    (void)state;
    const char *env = getenv("MT_DRAWS");
    int draws = env ? atoi(env) : 12;
    check("qwen3_tied", MT_DTYPE_BF16, true, draws, 100);
    check("llama_default", MT_DTYPE_BF16, false, draws, 200);
    check("qwen3", MT_DTYPE_F32, true, draws, 300);
    check("llama_tied", MT_DTYPE_F32, false, draws, 400);
    check("qwen3_moe", MT_DTYPE_BF16, true, draws, 500);
    check("mixtral", MT_DTYPE_BF16, false, draws, 600);
}

/* -- staged updates: in reused memory, in private slots ------------------------- */

static const mt_arithmetic lent = {
    .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 64, .mlp_rows = 64, .head_rows = 64
};

static void check_lenders(bool tied, bool clip, bool resident)
{
    rig r;
    uint64_t expected[STEPS], got[STEPS];
    open_lenders(&r, tied);
    start_lenders(&r, plan_loans(&r, &lent, clip, resident, -1, 0), 0);
    undisturbed(&r, expected);
    rig_stop(&r);
    for (int i = 0; i < 4; i++) {
        dice d = { 600 + (uint64_t)i, 0 };
        bool slow = i % 2;
        start_lenders_slow(&r, plan_loans(&r, &lent, clip, resident, i - 1, i == 1 ? 0 : r.model->n_units), slow ? 500 : 200,
                           slow ? "write-back" : NULL); /* 1: borrows only */
        watched(&r, got, &d, i % 2);
        rig_stop(&r);
        for (int k = 0; k < STEPS; k++)
            if (got[k] != expected[k]) fail_msg("loans %d: what was saved at step %d is not the state after it", i, k + 1);
    }
    rig_close(&r);
}

static void a_saver_sees_what_was_updated_through_the_device(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) check_lenders(i & 1, i & 2, i == 1 || i == 2);
}

/* -- state in slices on several devices ------------------------------------------------------------- */

static void check_slices(wide_kind kind, bool clip, uint64_t seed)
{
    mt_err err = { 0 };
    rig r;
    uint64_t expected[STEPS], got[STEPS];
    open_wide(&r, kind, NULL);
    mt_job job = rig_job(&r, clip);
    const mt_arithmetic a = { .compute = MT_DTYPE_BF16,
                              .grad = MT_DTYPE_BF16,
                              .micro_tokens = r.batch.longest,
                              .mlp_rows = 8,
                              .head_rows = 8,
                              .shares = 3 };
    for (int i = 0; i < 5; i++) {
        dice d = { seed + (uint64_t)i, 0 };
        mt_placement p;
        mt_plan *plan;
        job.lanes = i ? 2 + i % 2 : 1;
        assert_ok(mt_placement_init(&p, r.model, &err));
        draw(&p, r.model, &job, &a, &d);
        p.fold = MT_FOLD_PEERS;
        for (int u = 0; u < r.model->n_units && i; u++) {
            p.units[u].home = roll(&d, 4) ? MT_DEVICE : MT_HOST;
            p.units[u].site = p.units[u].home == MT_DEVICE ? MT_SITE_DEVICE : MT_SITE_HOST;
        }
        assert_ok(mt_plan_create(&plan, r.model, &job, &a, &p, &err));
        mt_placement_free(&p);
        rig_start_slow(&r, rig_device(), plan, 2, i ? 500 : 0, i % 2 ? "fold" : "state");
        if (i == 0)
            undisturbed(&r, expected);
        else
            watched(&r, got, &d, i % 2);
        rig_stop(&r);
        for (int k = 0; i && k < STEPS; k++)
            if (got[k] != expected[k]) fail_msg("slices %d: what was saved at step %d is not the state after it", i, k + 1);
    }
    rig_close(&r);
}

static void a_saver_sees_slices_as_they_were(void **state)
{
    (void)state;
    check_slices(WIDE_DENSE, true, 700);
    check_slices(WIDE_TIED, false, 800);
}

/* -- who must not wait for the saver ---------------------------------------------------------------- */

/* A saver that is done with a unit only on request or, so that the test ends, after half a minute. */
typedef struct late_saver {
    pthread_t thread;
    mt_engine *engine;
    int unit;
    atomic_bool now;
} late_saver;

static void *let_go_late(void *arg)
{
    late_saver *s = arg;
    for (int i = 0; i < 30000 && !s->now; i++) nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    mt_state_unlock(mt_engine_state(s->engine), s->unit);
    return NULL;
}

static void hold_only(rig *r, late_saver *s, int unit)
{
    mt_err err = { 0 };
    *s = (late_saver){ .engine = r->engine, .unit = unit };
    assert_ok(mt_engine_lock(r->engine, &err));
    for (int u = 0; u < r->model->n_units; u++)
        if (u != unit) mt_state_unlock(mt_engine_state(r->engine), u);
    assert_int_equal(pthread_create(&s->thread, NULL, let_go_late, s), 0);
}

/* Its state is in reused memory and its weights must be fetched from home, which the saver reads: the units before it are
 * prefetched, and nothing waits. */
static void prefetch_past(rig *r, const late_saver *s)
{
    mt_err err = { 0 };
    mt_sequence *q = r->engine->lane->sequence;
    q->visit = 0;
    assert_ok(mt__seq_ring_prefetch(q, &err));
    assert_true(mt_state_is_locked(mt_engine_state(r->engine), s->unit));
    for (int i = 0; i < q->n_ring; i++)
        if (q->ring[i].unit == s->unit) assert_true(q->ring[i].version < q->units[s->unit].version);
    bool before = false;
    for (int i = 0; i < q->n_ring; i++) before |= q->ring[i].unit == 1 && q->ring[i].version == q->units[1].version;
    assert_true(before);
}

/* Its state is in a private slot: earlier write-backs are issued, and nothing waits. */
static void pace_past(rig *r, const late_saver *s)
{
    mt_err err = { 0 };
    mt_sequence *q = r->engine->lane->sequence;
    q->sweep = 0, q->visit = q->n_visits - 1;
    assert_true(q->n_sweeps > 1 && q->n_late == r->model->n_units && q->late[s->unit] == s->unit);
    q->n_sweeps = 1; /* so all are due */
    assert_ok(mt__seq_updates_pace(q, &err));
    assert_true(mt_state_is_locked(mt_engine_state(r->engine), s->unit));
    assert_int_equal(q->written_late, s->unit);
}

/* The second step is updated while a unit of the first is still being saved; before the third, look ahead as a visit does. */
static uint64_t steps_past(rig *r, int unit, void (*look)(rig *r, const late_saver *s))
{
    mt_err err = { 0 };
    mt_step_result result;
    late_saver s;
    assert_ok(mt_engine_step(r->engine, &r->batch, &hyper, &result, &err));
    if (look) hold_only(r, &s, unit);
    assert_ok(mt_engine_step(r->engine, &r->batch, &hyper, &result, &err));
    if (look) {
        assert_int_equal(result.wait_save_ns, 0);
        look(r, &s);
        s.now = true;
    }
    assert_ok(mt_engine_step(r->engine, &r->batch, &hyper, &result, &err));
    if (look) pthread_join(s.thread, NULL);
    return hash_all(r);
}

static void nobody_waits_for_the_saver_ahead_of_time(void **state)
{
    (void)state;
    rig r;
    open_lenders(&r, false);
    start_lenders(&r, plan_loans(&r, &lent, true, false, -1, 0), 0);
    uint64_t expected = steps_past(&r, 0, NULL);
    rig_stop(&r);
    start_lenders(&r, plan_loans(&r, &lent, true, false, 0, 0), 0);
    int unit = 2;
    while (!r.plan->place.units[unit].reuses) unit++;
    assert_int_equal(unit, 2); /* within what three slots prefetch */
    assert_true(steps_past(&r, unit, prefetch_past) == expected);
    rig_stop(&r);
    start_lenders(&r, plan_loans(&r, &lent, true, true, -1, r.model->n_units), 0);
    assert_true(steps_past(&r, 3, pace_past) == expected);
    rig_close(&r);
}

/* -- when the run ends meanwhile ------------------------------------------------------------------- */

/* All held units, read as the saver reads them, and let go. */
static mt_rc read_all_held(rig *r, mt_snapshot *copies, uint64_t *sum, mt_err *err)
{
    mt_rc rc = MT_OK;
    uint64_t h = 0;
    *sum = 0;
    for (int u = 0; !rc && u < r->model->n_units; u++) {
        rc = hash_unit(r, u, copies, NULL, &h, err);
        *sum += h * (uint64_t)(2 * u + 1);
    }
    mt_snapshot_free(copies);
    return rc;
}

/* A step that fails, or a saver that does, does not lose the checkpoint of the step before: what is held is whole.  dies: the
 * device is lost with a copy, after the saver has begun; else it refuses one call, and the saver begins after that. */
static void fail_while_held(rig *r, bool dies)
{
    mt_err err = { 0 };
    mt_step_result result;
    mt_snapshot *copies = NULL;
    const mt_snapshot_options none = { 0 };
    uint64_t sum;
    assert_ok(mt_engine_step(r->engine, &r->batch, &hyper, &result, &err));
    uint64_t expected = hash_all(r);
    assert_ok(mt_engine_lock(r->engine, &err));
    if (dies) assert_ok(mt_snapshot_take(&copies, mt_engine_state(r->engine), r->model, &none, &err));
    mt_fault_arm(dies ? MT_FAULT_COPY : MT_FAULT_QUEUE, dies ? 3 : 100);
    assert_int_equal(mt_engine_step(r->engine, &r->batch, &hyper, &result, &err), MT_EDEVICE);
    assert_true(mt_fault_disarm());
    if (!dies) assert_ok(mt_snapshot_take(&copies, mt_engine_state(r->engine), r->model, &none, &err));
    assert_ok(read_all_held(r, copies, &sum, &err));
    assert_true(sum == expected);
    assert_int_equal(mt_engine_step(r->engine, &r->batch, &hyper, &result, &err), MT_EDEVICE);
}

static void a_run_that_fails_leaves_what_is_held_to_be_saved(void **state)
{
    (void)state;
    rig r;
    open_lenders(&r, false);
    for (int i = 0; i < 6; i++) {
        int where = i % 3; /* on the host, reused memory, private slots */
        start_lenders(&r, plan_loans(&r, &lent, true, where, where - 1, where == 2 ? r.model->n_units : 0), 0);
        fail_while_held(&r, i >= 3);
        rig_stop(&r);
    }
    rig_close(&r);
}

/* Whatever the system refuses while the state is copied: it fails as a whole, or what is read is the state. */
static void a_copy_that_fails_leaves_the_state_to_read(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_step_result result;
    mt_placement p;
    mt_plan *plan;
    rig r;
    rig_open_model(&r, GOLDEN_DIR "qwen3_tied", NULL);
    mt_job job = rig_job(&r, true);
    const mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = r.batch.longest, .mlp_rows = 5, .head_rows = 4
    };
    assert_ok(mt_placement_init(&p, r.model, &err));
    draw(&p, r.model, &job, &a, &(dice){ 500, 0 });
    assert_ok(mt_plan_create(&plan, r.model, &job, &a, &p, &err));
    mt_placement_free(&p);
    rig_start(&r, plan, 1);
    assert_ok(mt_engine_step(r.engine, &r.batch, &hyper, &result, &err));
    uint64_t expected = hash_all(&r);
    const mt_fault_kind kinds[] = { MT_FAULT_ALLOC, MT_FAULT_THREAD };
    for (size_t k = 0; k < MT_COUNT(kinds); k++)
        for (int n = 0, reached = 1; reached; n++) {
            mt_snapshot *copies = NULL;
            const mt_snapshot_options o = { .room = SIZE_MAX, .n_threads = 3 };
            err = (mt_err){ 0 };
            assert_ok(mt_engine_lock(r.engine, &err));
            mt_fault_arm(kinds[k], n);
            mt_rc rc = mt_snapshot_take(&copies, mt_engine_state(r.engine), r.model, &o, &err);
            reached = mt_fault_disarm();
            uint64_t sum = 0, h = 0;
            for (int u = 0; !rc && u < r.model->n_units; u++) {
                assert_ok(hash_unit(&r, u, copies, NULL, &h, &err));
                sum += h * (uint64_t)(2 * u + 1);
            }
            if (rc) assert_int_equal(rc, MT_ENOMEM);
            if (!rc && sum != expected) fail_msg("fault %zu after %d calls: what is read is not the state", k, n);
            mt_snapshot_free(copies);
            mt_state_unlock_all(mt_engine_state(r.engine));
        }
    rig_close(&r);
}

static void a_second_hold_before_the_first_is_over_is_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_plan *plan;
    rig r;
    rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
    mt_job job = rig_job(&r, true);
    mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_F32);
    assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
    rig_start(&r, plan, 1);
    assert_ok(mt_engine_lock(r.engine, &err));
    assert_int_equal(mt_engine_lock(r.engine, &err), MT_EINVAL);
    mt_state_unlock_all(mt_engine_state(r.engine));
    assert_ok(mt_engine_lock(r.engine, &err));
    mt_state_unlock_all(mt_engine_state(r.engine));
    rig_close(&r);
}

RIG_TEST_MAIN(cmocka_unit_test(a_saver_sees_the_state_it_was_held_at),
              cmocka_unit_test(a_saver_sees_what_was_updated_through_the_device),
              cmocka_unit_test(a_saver_sees_slices_as_they_were), cmocka_unit_test(nobody_waits_for_the_saver_ahead_of_time),
              cmocka_unit_test(a_run_that_fails_leaves_what_is_held_to_be_saved),
              cmocka_unit_test(a_copy_that_fails_leaves_the_state_to_read),
              cmocka_unit_test(a_second_hold_before_the_first_is_over_is_refused))
