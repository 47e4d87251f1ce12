/* The parts of the sequencer (schedule/sequence*.c), each alone or in a step, through a port that writes down what is issued.  No
 * device.  That their order keeps the rules, for any placement, is unit.sequence_rules. */
#include "test.h"

#include "schedule/sequence_internal.h"

enum { LAYERS = 5, UNITS = LAYERS + 2, TOKENS = 384, MOST = 4096 };

typedef struct script {
    mt_config *config;
    mt_model *model;
    mt_placement place;
    mt_plan *plan;
    mt_sequence *s;
    mt_action actions[MOST];
    int n, waits;    /* waits: for updates on the host */
    int not_updated; /* the unit whose update is not finished; -1: none */
    int locked;      /* the unit that is locked; -1: none */
    bool skip;       /* no step is finite */
    int64_t jobs_awaited;
} script;

/* -- a port that writes down ----------------------------------------------------------------------- */

static mt_rc issue(void *self, const mt_action *a, mt_err *err)
{
    script *t = self;
    (void)err;
    assert_true(t->n < MOST);
    t->actions[t->n++] = *a;
    return MT_OK;
}

static mt_rc no_event(void *self, mt_queue q, int event, mt_err *err)
{
    return (void)self, (void)q, (void)event, (void)err, MT_OK;
}
static bool is_updated(void *self, int u, int64_t version) { return (void)version, ((script *)self)->not_updated != u; }
static mt_rc await_update(void *self, int u, int64_t version, mt_err *err)
{
    return (void)u, (void)version, (void)err, ((script *)self)->waits++, MT_OK;
}
static bool is_locked(void *self, int u) { return ((script *)self)->locked == u; }
static mt_rc await_unlock(void *self, int u, mt_err *err) { return (void)self, (void)u, (void)err, MT_OK; }
static mt_rc await_jobs(void *self, int64_t jobs, mt_err *err) { return (void)err, ((script *)self)->jobs_awaited = jobs, MT_OK; }
static mt_rc judge(void *self, bool all, bool *go, mt_err *err)
{
    return (void)all, (void)err, *go = !((script *)self)->skip, MT_OK;
}

static const mt_port port = { .issue = issue,
                              .record = no_event,
                              .wait = no_event,
                              .updated = is_updated,
                              .await_update = await_update,
                              .locked = is_locked,
                              .await_unlock = await_unlock,
                              .await_jobs = await_jobs,
                              .judge = judge };

/* Actions of a kind since the script began; unit -1: of any. */
static int count(const script *t, mt_action_kind kind, int unit)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) n += t->actions[i].kind == kind && (unit < 0 || t->actions[i].unit == unit);
    return n;
}

/* -- a plan ---------------------------------------------------------------------------------------- */

/* Everything at home on the host, streamed through two slots, updated there, inputs kept on the device, one sweep. */
static void begin_model(script *t, bool tied, const char *freeze)
{
    char config[512];
    mt_err err = { 0 };
    const int n = snprintf(
        config, sizeof config,
        "{\"model_type\":\"qwen2\",\"hidden_size\":16,\"intermediate_size\":48,\"num_hidden_layers\":5,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":1,\"vocab_size\":40,\"max_position_embeddings\":64,\"tie_word_embeddings\":%s}",
        tied ? "true" : "false");
    *t = (script){ .not_updated = -1, .locked = -1 };
    assert_ok(mt_config_parse(&t->config, config, (size_t)n, "a config", &err));
    assert_ok(mt_model_create(&t->model, t->config, &(mt_model_options){ .freeze = &freeze, .n_freeze = freeze != NULL }, &err));
    assert_int_equal(t->model->n_units, tied ? UNITS - 1 : UNITS);
    assert_ok(mt_placement_init(&t->place, t->model, &err));
    t->place.sweep_tokens = TOKENS;
    t->place.n_slabs = 2;
    t->place.keep_slots = 2;
    mt_placement_set_slots(&t->place, t->model, 2, 1, 1);
    for (int l = 0; l < LAYERS; l++) t->place.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    for (int u = 0; u < t->model->n_units; u++) t->place.units[u] = (mt_unit_place){ .home = MT_HOST, .site = MT_SITE_HOST };
}

static void begin(script *t, const char *freeze) { begin_model(t, false, freeze); }

static void open_plan(script *t, bool clip)
{
    mt_err err = { 0 };
    const mt_job job = { .train = true, .clip = clip, .step_tokens = TOKENS, .step_docs = 12, .longest = 32 };
    const mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 64, .mlp_rows = 32, .head_rows = 32
    };
    assert_ok(mt_plan_create(&t->plan, t->model, &job, &a, &t->place, &err));
    assert_ok(mt_sequence_create(&t->s, t->model, &err));
    mt_sequence_open(t->s, t->plan, &port, t);
}

static void end(script *t)
{
    mt_sequence_free(t->s);
    mt_plan_free(t->plan);
    mt_placement_free(&t->place);
    mt_model_free(t->model);
    mt_config_close(t->config);
}

static void run(script *t, mt_mode mode, int64_t sweeps)
{
    mt_err err = { 0 };
    t->n = t->waits = 0;
    assert_ok(mt_sequence_run(t->s, mode, sweeps, &err));
}

/* -- the ring -------------------------------------------------------------------------------------- */

/* Units 1, 2, 3, ... visited as given; both slots of their group are free. */
static void begin_visits(script *t, const int *visits, int n)
{
    begin(t, NULL);
    open_plan(t, true);
    for (int i = 0; i < n; i++) t->s->visits[i] = visits[i];
    t->s->n_visits = n;
    mt__seq_ring_begin(t->s);
}

static void visit(script *t)
{
    mt_err err = { 0 };
    int u = t->s->visits[t->s->visit];
    assert_ok(mt__seq_ring_acquire(t->s, u, &err));
    assert_ok(mt__seq_ring_release(t->s, u, &err));
    mt__seq_ring_next(t->s);
}

static void weights_that_are_there_are_not_fetched_again(void **state)
{
    (void)state;
    script t;
    begin_visits(&t, (int[]){ 1, 2, 1, 2 }, 4);
    for (int i = 0; i < 4; i++) visit(&t);
    assert_int_equal(count(&t, MT_DO_FETCH, -1), 2);
    t.s->units[1].version++; /* updated */
    for (int i = 0; i < 4; i++) visit(&t);
    assert_int_equal(count(&t, MT_DO_FETCH, 1), 2);
    assert_int_equal(count(&t, MT_DO_FETCH, 2), 1);
    mt_sequence_forget(t.s, 2); /* written from outside */
    for (int i = 0; i < 4; i++) visit(&t);
    assert_int_equal(count(&t, MT_DO_FETCH, 2), 2);
    end(&t);
}

static void the_slot_needed_last_is_overwritten(void **state)
{
    (void)state;
    script t;
    begin_visits(&t, (int[]){ 1, 2, 3, 2, 1 }, 5);
    for (int i = 0; i < 3; i++) visit(&t);
    assert_int_equal(t.s->units[3].slot, t.s->units[1].slot); /* 2 comes before 1; the least recently used would be the same */
    end(&t);
    begin_visits(&t, (int[]){ 1, 2, 3, 1, 2 }, 5);
    for (int i = 0; i < 3; i++) visit(&t);
    assert_int_equal(t.s->units[3].slot, t.s->units[2].slot); /* here it is not */
    end(&t);
}

static void prefetching_stops_at_the_first_unit_that_must_wait(void **state)
{
    (void)state;
    mt_err err = { 0 };
    script t;
    begin_visits(&t, (int[]){ 0, 1, 2, 3, 4 }, 5);
    t.not_updated = 2;
    assert_ok(mt__seq_ring_acquire(t.s, 0, &err));
    assert_ok(mt__seq_ring_prefetch(t.s, &err));
    assert_int_equal(count(&t, MT_DO_FETCH, 1), 1);
    assert_int_equal(count(&t, MT_DO_FETCH, -1), 2);
    assert_int_equal(t.waits, 0); /* R6 */
    t.not_updated = -1;
    assert_ok(mt__seq_ring_prefetch(t.s, &err));
    assert_int_equal(count(&t, MT_DO_FETCH, 2), 1);
    assert_int_equal(count(&t, MT_DO_FETCH, 3), 0); /* R3: both slots are needed sooner */
    end(&t);
}

static void nothing_is_fetched_across_the_end_of_a_step(void **state)
{
    (void)state;
    mt_err err = { 0 };
    script t;
    begin_visits(&t, (int[]){ 1, 0, 6 }, 3);
    for (int i = 0; i < 2; i++) visit(&t);
    assert_ok(mt__seq_ring_prefetch(t.s, &err));
    assert_int_equal(count(&t, MT_DO_FETCH, 1), 1);
    mt_sequence_forget(t.s, 1);
    assert_ok(mt__seq_ring_prefetch(t.s, &err));
    assert_int_equal(count(&t, MT_DO_FETCH, 1), 1);
    t.s->wraps = true; /* another sweep follows */
    t.s->ahead = 0;
    assert_ok(mt__seq_ring_prefetch(t.s, &err));
    assert_int_equal(count(&t, MT_DO_FETCH, 1), 2);
    end(&t);
}

/* -- kept activations ------------------------------------------------------------------------------ */

static void the_last_layers_of_forward_are_still_there_in_backward(void **state)
{
    (void)state;
    script t;
    begin(&t, NULL);
    for (int l = 0; l < LAYERS; l++) t.place.layers[l].place = MT_HOST;
    open_plan(&t, true);
    run(&t, MT_MODE_TRAIN, 1);
    assert_int_equal(count(&t, MT_DO_KEEP_OUT, -1), LAYERS - 2); /* of two slots */
    assert_int_equal(count(&t, MT_DO_KEEP_IN, -1), LAYERS - 2);
    run(&t, MT_MODE_EVALUATE, 1);
    assert_int_equal(count(&t, MT_DO_KEEP_OUT, -1), 0);
    end(&t);
}

static void backward_ends_with_the_first_trained_layer(void **state)
{
    (void)state;
    static const struct {
        bool tied;
        const char *freeze;
        int backwards;
    } cases[] = { { false, NULL, LAYERS },
                  { false, "model.layers.*", LAYERS },
                  { false, "model.[el]*", 0 },
                  { true, "model.l*", LAYERS },
                  { true, "model.embed_tokens.*", LAYERS },
                  { true, "model.[el]*", 0 },
                  { true, "model.[el][ma]*[s_][.t][012o]*", LAYERS - 3 } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        script t;
        begin_model(&t, cases[i].tied, cases[i].freeze);
        open_plan(&t, true);
        run(&t, MT_MODE_TRAIN, 1);
        /* A run that trains only the head has none, nor one that trains only the final norm of a tied model. */
        assert_int_equal(count(&t, MT_DO_BACKWARD, -1), cases[i].backwards);
        assert_int_equal(count(&t, MT_DO_UPDATE_HOST, t.model->head), 1);
        end(&t);
    }
}

/* -- gradient sums --------------------------------------------------------------------------------- */

static void sums_pass_through_the_host_between_sweeps(void **state)
{
    (void)state;
    for (int on_host = 0; on_host < 2; on_host++) {
        script t;
        begin(&t, NULL);
        t.place.sweep_tokens = 128;
        t.place.accumulators = on_host ? MT_HOST : MT_DEVICE;
        open_plan(&t, true);
        run(&t, MT_MODE_TRAIN, 3);
        for (int u = 0; u < UNITS; u++) {
            assert_int_equal(count(&t, MT_DO_SUM_CLEAR, u), 1);
            assert_int_equal(count(&t, MT_DO_SUM_OUT, u), on_host ? 2 : 0);
            assert_int_equal(count(&t, MT_DO_SUM_IN, u), on_host ? 2 : 0);
            assert_int_equal(count(&t, MT_DO_ROUND, u), 1);
            assert_int_equal(count(&t, MT_DO_GRADIENT_OUT, u), 1);
            assert_int_equal(count(&t, MT_DO_UPDATE_HOST, u), 1);
        }
        end(&t);
    }
}

static void slabs_are_used_in_turn(void **state)
{
    (void)state;
    script t;
    begin(&t, NULL);
    open_plan(&t, false);
    run(&t, MT_MODE_TRAIN, 1);
    int slab = 0;
    for (int i = 0; i < t.n; i++)
        if (t.actions[i].kind == MT_DO_UPDATE_HOST) assert_int_equal(t.actions[i].to, slab++ % 2);
    assert_int_equal(slab, UNITS);
    assert_int_equal(t.jobs_awaited, UNITS - 2); /* U6: before the last, all but two are done */
    end(&t);
}

/* -- staging --------------------------------------------------------------------------------------- */

static void begin_staged(script *t, int slots)
{
    begin(t, NULL);
    t->place.staging_slots = slots;
    for (int u = 0; u < UNITS; u++)
        t->place.units[u] = (mt_unit_place){ .home = MT_HOST, .site = MT_SITE_STAGED, .resident = true };
    open_plan(t, true);
}

static void a_private_slot_is_filled_once(void **state)
{
    (void)state;
    script t;
    begin_staged(&t, UNITS);
    run(&t, MT_MODE_TRAIN, 1);
    assert_true(count(&t, MT_DO_STAGE, 3) > 0);
    assert_int_equal(count(&t, MT_DO_UPDATE_STAGED, -1), UNITS);
    run(&t, MT_MODE_TRAIN, 1);
    assert_int_equal(count(&t, MT_DO_STAGE, -1), 0);
    assert_int_equal(count(&t, MT_DO_FETCH, -1), 0); /* updated in place */
    mt_sequence_forget(t.s, 3);
    run(&t, MT_MODE_TRAIN, 1);
    assert_true(count(&t, MT_DO_STAGE, 3) > 0); /* U10 */
    assert_int_equal(count(&t, MT_DO_STAGE, -1), count(&t, MT_DO_STAGE, 3));
    end(&t);
}

static void shared_slots_are_filled_for_each_update(void **state)
{
    (void)state;
    script t;
    begin_staged(&t, 2);
    for (int step = 0; step < 2; step++) {
        run(&t, MT_MODE_TRAIN, 1);
        for (int u = 0; u < UNITS; u++) assert_true(count(&t, MT_DO_STAGE, u) > 0);
    }
    t.skip = true;
    run(&t, MT_MODE_TRAIN, 1);
    assert_int_equal(count(&t, MT_DO_UPDATE_STAGED, -1), 0);
    for (int k = 0; k < 2; k++) assert_int_equal(t.s->stages[k].unit, -1);
    end(&t);
}

/* -- write-back cursors ---------------------------------------------------------------------------- */

static void late_write_backs_keep_pace_and_leave_locked_units(void **state)
{
    (void)state;
    mt_err err = { 0 };
    script t;
    begin_staged(&t, UNITS);
    run(&t, MT_MODE_TRAIN, 1);
    assert_int_equal(t.s->n_late, UNITS);
    assert_int_equal(t.s->written_late, 0);
    assert_int_equal(count(&t, MT_DO_WRITE_BACK, -1), 0);
    t.n = 0;
    t.s->sweep = 0;
    t.s->visit = t.s->n_visits / 2 - 1; /* half of the visits are over */
    assert_ok(mt__seq_updates_pace(t.s, &err));
    assert_int_equal(t.s->written_late, (UNITS + 1) / 2);
    t.locked = 5;
    t.s->visit = t.s->n_visits - 1;
    assert_ok(mt__seq_updates_pace(t.s, &err));
    assert_int_equal(t.s->written_late, 5);       /* R6 */
    assert_ok(mt_sequence_write_back(t.s, &err)); /* someone reads the state: this waits */
    assert_int_equal(t.s->written_late, UNITS);
    for (int u = 0; u < UNITS; u++) assert_int_equal(count(&t, MT_DO_WRITE_BACK, u), 2); /* two halves */
    end(&t);
}

static void reused_memory_is_written_back_as_it_is_needed(void **state)
{
    (void)state;
    mt_err err = { 0 };
    script t;
    begin(&t, NULL);
    t.place.sweep_tokens = 192;
    t.place.accumulators = MT_DEVICE;
    for (int l = 0; l < LAYERS; l++) t.place.layers[l].keep = MT_KEEP_ALL;
    for (int u = 1; u <= LAYERS; u++)
        t.place.units[u] = (mt_unit_place){ .home = MT_HOST, .site = MT_SITE_STAGED, .reuses = true };
    open_plan(&t, true);
    run(&t, MT_MODE_TRAIN, 2);
    assert_int_equal(count(&t, MT_DO_UPDATE_STAGED, -1), LAYERS);
    assert_int_equal(t.s->written, 0);
    t.n = 0;
    assert_ok(mt__seq_updates_return(t.s, 2, &err)); /* layers 0 and 1 are about to be fetched */
    assert_int_equal(count(&t, MT_DO_WRITE_BACK, -1), 2);
    assert_int_equal(t.actions[0].unit, 1);
    assert_ok(mt__seq_updates_return_sums(t.s, LAYERS, &err)); /* backward begins with the last layer */
    assert_int_equal(count(&t, MT_DO_WRITE_BACK, -1), LAYERS + 1);
    assert_int_equal(t.actions[t.n - 1].unit, LAYERS);
    assert_int_equal(t.actions[t.n - 1].parts, MT_PART_FIRST);
    t.locked = 2;
    assert_true(mt__seq_updates_may_return(t.s, UNITS - 1)); /* all of it is written */
    assert_ok(mt_sequence_write_back(t.s, &err));
    assert_int_equal(count(&t, MT_DO_WRITE_BACK, -1), 2 * LAYERS);
    end(&t);
}

static void every_event_has_a_name(void **state)
{
    (void)state;
    script t;
    begin_staged(&t, 2);
    for (int i = 0; i < mt_sequence_events(t.s); i++) assert_true(strlen(mt_sequence_event_name(t.s, i)) > 4);
    assert_string_equal(mt_sequence_event_name(t.s, mt_sequence_written(t.s, 3)), "write-back");
    assert_string_equal(mt_action_name(MT_DO_WRITE_BACK), "WRITE_BACK");
    end(&t);
}

/* -- pieces ---------------------------------------------------------------------------------------- */

/* Every unit half on the host, half in pieces of a block. */
static void begin_pieces(script *t)
{
    begin(t, NULL);
    t->place.piece_slots = 2;
    t->place.piece_elems = MT_MOMENT_BLOCK;
    for (int u = 0; u < UNITS; u++) {
        int64_t n = t->model->units[u].layout->n_train;
        t->place.units[u].in_pieces = n - n / 2 / MT_MOMENT_BLOCK * MT_MOMENT_BLOCK;
    }
}

static void the_first_pieces_are_staged_before_the_norm_is_known(void **state)
{
    (void)state;
    script t;
    begin_pieces(&t);
    open_plan(&t, true);
    t.skip = true;
    run(&t, MT_MODE_TRAIN, 1);
    assert_int_equal(count(&t, MT_DO_PIECE_IN, -1), 2); /* a slot each */
    assert_int_equal(count(&t, MT_DO_PIECE_UPDATE, -1), 0);
    t.skip = false;
    run(&t, MT_MODE_TRAIN, 1);
    assert_int_equal(count(&t, MT_DO_PIECE_IN, 0), mt_plan_pieces(t.plan, 0)); /* again: they were dropped */
    end(&t);
}

static void pieces_are_issued_in_the_order_of_forward_and_each_once(void **state)
{
    (void)state;
    script t;
    begin_pieces(&t);
    for (int u = 0; u < UNITS; u++)
        t.place.units[u].in_pieces = t.model->units[u].layout->n_train; /* more than are issued early */
    open_plan(&t, true);
    run(&t, MT_MODE_TRAIN, 1);
    int issued = count(&t, MT_DO_PIECE_UPDATE, -1), before = 0, all = 0;
    for (int i = 0; i < t.n; i++) {
        if (t.actions[i].kind != MT_DO_PIECE_UPDATE) continue;
        assert_true(t.actions[i].unit >= before);
        before = t.actions[i].unit;
    }
    for (int u = 0; u < UNITS; u++) all += mt_plan_pieces(t.plan, u);
    assert_true(issued >= 64 && issued < all); /* some, and the rest as forward comes to them */
    run(&t, MT_MODE_EVALUATE, 1);
    assert_int_equal(issued + count(&t, MT_DO_PIECE_UPDATE, -1), all);
    end(&t);
}

static void a_locked_unit_holds_back_its_pieces_and_no_others_before_it(void **state)
{
    (void)state;
    script t;
    begin_pieces(&t);
    open_plan(&t, true);
    t.locked = 2;
    run(&t, MT_MODE_TRAIN, 1);
    assert_int_equal(count(&t, MT_DO_PIECE_BACK, 1), mt_plan_pieces(t.plan, 1));
    assert_int_equal(count(&t, MT_DO_PIECE_BACK, 2), 0);
    mt_err err = { 0 };
    assert_ok(mt_sequence_write_back(t.s, &err)); /* readers of the state wait for it */
    for (int u = 0; u < UNITS; u++) assert_int_equal(count(&t, MT_DO_PIECE_BACK, u), mt_plan_pieces(t.plan, u));
    end(&t);
}

static void without_clipping_pieces_follow_their_gradient(void **state)
{
    (void)state;
    script t;
    begin_pieces(&t);
    open_plan(&t, false);
    run(&t, MT_MODE_TRAIN, 1);
    int sent = -1;
    for (int i = 0; i < t.n; i++) {
        if (t.actions[i].kind == MT_DO_GRADIENT_OUT) sent = t.actions[i].unit;
        if (t.actions[i].kind == MT_DO_PIECE_IN) assert_int_equal(t.actions[i].unit, sent);
    }
    for (int u = 0; u < UNITS; u++) assert_int_equal(count(&t, MT_DO_PIECE_BACK, u), mt_plan_pieces(t.plan, u));
    end(&t);
}

static void pieces_that_cut_a_block_of_moments_are_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    script t;
    mt_plan *plan;
    const mt_job job = { .train = true, .clip = true, .step_tokens = TOKENS, .step_docs = 12, .longest = 32 };
    const mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 64, .mlp_rows = 32, .head_rows = 32
    };
    begin_pieces(&t);
    t.place.units[1].in_pieces--;
    assert_int_equal(mt_plan_create(&plan, t.model, &job, &a, &t.place, &err), MT_EINVAL);
    assert_says("cut a block of moments");
    t.place.units[1].in_pieces++;
    t.place.piece_slots = 0;
    assert_int_equal(mt_plan_create(&plan, t.model, &job, &a, &t.place, &err), MT_EINVAL);
    assert_says("need a slot");
    end(&t);
}

MT_TEST_MAIN(cmocka_unit_test(the_first_pieces_are_staged_before_the_norm_is_known),
             cmocka_unit_test(pieces_are_issued_in_the_order_of_forward_and_each_once),
             cmocka_unit_test(a_locked_unit_holds_back_its_pieces_and_no_others_before_it),
             cmocka_unit_test(without_clipping_pieces_follow_their_gradient),
             cmocka_unit_test(pieces_that_cut_a_block_of_moments_are_refused),
             cmocka_unit_test(weights_that_are_there_are_not_fetched_again),
             cmocka_unit_test(the_slot_needed_last_is_overwritten),
             cmocka_unit_test(prefetching_stops_at_the_first_unit_that_must_wait),
             cmocka_unit_test(nothing_is_fetched_across_the_end_of_a_step),
             cmocka_unit_test(the_last_layers_of_forward_are_still_there_in_backward),
             cmocka_unit_test(backward_ends_with_the_first_trained_layer),
             cmocka_unit_test(sums_pass_through_the_host_between_sweeps), cmocka_unit_test(slabs_are_used_in_turn),
             cmocka_unit_test(a_private_slot_is_filled_once), cmocka_unit_test(shared_slots_are_filled_for_each_update),
             cmocka_unit_test(late_write_backs_keep_pace_and_leave_locked_units),
             cmocka_unit_test(reused_memory_is_written_back_as_it_is_needed), cmocka_unit_test(every_event_has_a_name))
