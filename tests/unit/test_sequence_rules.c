/* The order in which the sequencer issues things keeps the rules of docs/invariants.md: random placements, several steps with
 * random verdicts, and evaluations, generation, snapshots and outside writes between them, all through a port that checks
 * (checker.h).  And the checker finds mistakes: each of those below makes it fail with the rule it should.  MT_DRAWS sets how
 * many placements are drawn. */
#include "checker.h"

#include <stdlib.h>

enum { TOKENS = 12 * 32, DOC = 32, DENSE = 10, MODELS = 14 };

typedef struct models {
    mt_config *config[MODELS];
    mt_model *model[MODELS];
} models;

/* Two units of experts a layer, which the dense layer between them has not; all of it trained, the experts frozen, all but the
 * experts, and units of single experts. */
static void open_expert_models(models *m)
{
    static const char text[] =
        "{\"model_type\":\"qwen3_moe\",\"hidden_size\":16,\"intermediate_size\":48,\"moe_intermediate_size\":8,"
        "\"num_hidden_layers\":4,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,\"vocab_size\":40,"
        "\"max_position_embeddings\":64,\"num_experts\":4,\"num_experts_per_tok\":2,\"mlp_only_layers\":[1],"
        "\"tie_word_embeddings\":%s}";
    static const char *const freeze[][4] = { { "*.experts.*" },
                                             { "*self_attn*", "*norm*", "model.embed_tokens.weight", "*.gate.weight" } };
    mt_err err = { 0 };
    char config[640];
    for (int i = DENSE; i < MODELS; i++) {
        const int kind = i - DENSE;
        const bool frozen = kind == 1 || kind == 2;
        int n = snprintf(config, sizeof config, text, kind % 2 ? "true" : "false");
        mt_model_options o = { .freeze = frozen ? freeze[kind - 1] : NULL,
                               .n_freeze = kind == 1   ? 1
                                           : kind == 2 ? 4
                                                       : 0,
                               .unit_experts = kind == 3 ? 1 : 2 };
        assert_ok(mt_config_parse(&m->config[i], config, (size_t)n, "a config", &err));
        assert_ok(mt_model_create(&m->model[i], m->config[i], &o, &err));
        assert_int_equal(mt_layer_expert_units(m->model[i], 0), kind == 3 ? 4 : 2);
        assert_int_equal(mt_layer_expert_units(m->model[i], 1), 0);
    }
}

/* Tied and not; all of it trained, the lower half frozen, all but the head, all but the norms, the head frozen. */
static void open_models(models *m)
{
    static const char text[] =
        "{\"model_type\":\"qwen2\",\"hidden_size\":16,\"intermediate_size\":48,\"num_hidden_layers\":5,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":1,\"vocab_size\":40,\"max_position_embeddings\":64,\"tie_word_embeddings\":%s}";
    static const char *const freeze[][2] = { { "nothing", "at all" },
                                             { "model.layers.[01].*", "model.embed_tokens.weight" },
                                             { "model.layers.*", "model.embed_tokens.weight" },
                                             { "*_proj.*", "lm_head.weight" },
                                             { "model.norm.weight", "lm_head.weight" } };
    mt_err err = { 0 };
    char config[512];
    for (int i = 0; i < DENSE; i++) {
        int n = snprintf(config, sizeof config, text, i % 2 ? "true" : "false");
        /* A tied embedding is the head, and has no other name. */
        mt_model_options o = { .freeze = freeze[i / 2], .n_freeze = i < 2 ? 0 : i > 4 && i % 2 ? 1 : 2 };
        assert_ok(mt_config_parse(&m->config[i], config, (size_t)n, "a config", &err));
        assert_ok(mt_model_create(&m->model[i], m->config[i], &o, &err));
    }
    open_expert_models(m);
}

static void close_models(models *m)
{
    for (int i = 0; i < MODELS; i++) {
        mt_model_free(m->model[i]);
        mt_config_close(m->config[i]);
    }
}

static mt_plan *draw_plan(const models *m, dice *d, int lanes)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    const mt_model *model = m->model[roll(d, MODELS)];
    const mt_dtype t = roll(d, 3) ? MT_DTYPE_BF16 : MT_DTYPE_F32;
    const mt_job job = {
        .train = true, .clip = roll(d, 3) > 0, .lanes = lanes, .step_tokens = TOKENS, .step_docs = TOKENS / DOC, .longest = DOC
    };
    const mt_arithmetic a = {
        .compute = t, .grad = t, .micro_tokens = 2 * DOC, .mlp_rows = DOC, .head_rows = DOC, .shares = lanes
    };
    assert_ok(mt_placement_init(&p, model, &err));
    draw(&p, model, &job, &a, d);
    assert_ok(mt_plan_create(&plan, model, &job, &a, &p, &err));
    mt_placement_free(&p);
    return plan;
}

/* A few steps and what may come between them. */
static mt_rc run_life(checker *c)
{
    int n = 3 + roll(&c->d, 4);
    for (int i = 0; i < n; i++) {
        int what = roll(&c->d, 12);
        mt_mode mode = what < 8 ? MT_MODE_TRAIN : what < 10 ? MT_MODE_EVALUATE : what < 11 ? MT_MODE_LOGITS : MT_MODE_CONTINUE;
        const bool several = mt_plan_many_sweeps(c->plan) || mt_plan_lanes(c->plan) > 1;
        MT_TRY(checker_run(c, mode, several ? 1 + roll(&c->d, 4) : 1));
        what = roll(&c->d, 6);
        if (what == 0) MT_TRY(checker_write(c));
        if (what == 1) MT_TRY(checker_lock(c));
    }
    return checker_write(c);
}

/* What the checker finds; an empty string: nothing. */
static void check_lanes(const models *m, int lanes, uint64_t seed, fault f, char *out, size_t n, long *actions)
{
    dice d = { seed, 0 };
    checker c;
    mt_plan *plan = draw_plan(m, &d, lanes);
    checker_open(&c, plan, seed + 1000000, f);
    mt_rc rc = run_life(&c);
    snprintf(out, n, "%s", rc && !c.failed[0] ? "failed without a reason" : c.failed);
    *actions += c.n_actions;
    checker_close(&c);
    mt_plan_free(plan);
}

static void check_draw(const models *m, uint64_t seed, fault f, char *out, size_t n, long *actions)
{
    check_lanes(m, 1, seed, f, out, n, actions);
}

static void random_placements_keep_the_rules(void **state)
{
    (void)state;
    models m;
    const char *env = getenv("MT_DRAWS");
    long draws = env ? atol(env) : 5000, actions = 0;
    open_models(&m);
    for (long i = 0; i < draws; i++) {
        char what[256];
        check_draw(&m, (uint64_t)i, (fault){ 0 }, what, sizeof what, &actions);
        if (what[0]) fail_msg("placement %ld: %s", i, what);
    }
    assert_true(actions > 100 * draws); /* something was looked at */
    close_models(&m);
}

/* The order on one of several lanes: parts of a step, each in one sweep or more. */
static void random_placements_of_lanes_keep_the_rules(void **state)
{
    (void)state;
    models m;
    const char *env = getenv("MT_DRAWS");
    long draws = env ? atol(env) : 2000, actions = 0;
    open_models(&m);
    for (long i = 0; i < draws; i++) {
        char what[256];
        check_lanes(&m, 2 + (int)(i % 3), (uint64_t)i, (fault){ 0 }, what, sizeof what, &actions);
        if (what[0]) fail_msg("placement %ld of %d lanes: %s", i, 2 + (int)(i % 3), what);
    }
    assert_true(actions > 100 * draws);
    close_models(&m);
}

#define WAITS(q, event, text)                                                                                                    \
    {                                                                                                                            \
        DROP_WAIT, event, MT_Q_##q, text                                                                                         \
    }
static const struct {
    fault f;
    const char *rules; /* those that may be named: which one breaks first depends on the placement */
} mistakes[] = {
    { WAITS(IN, OF_RING + FREE, "a ring slot is overwritten before its last reader"), "R2" },
    { WAITS(COMPUTE, OF_RING + READY, "weights are read before they arrive"), "R2" },
    { WAITS(IN, OF_UNIT + WRITTEN, "state is read at home before its write-back"), "U2 U3" },
    { WAITS(IN, OF_UNIT + KEPT_WRITTEN, "weights are fetched before the first half of a write-back"), "U2" },
    { WAITS(IN, OF_UNIT + DEVICE_UPDATED, "weights are joined before the update on the device"), "U2 R2" },
    { WAITS(COMPUTE, OF_UNIT + KEPT_WRITTEN, "a lender is overwritten before its write-back"), "U7" },
    { WAITS(COMPUTE, OF_UNIT + WRITTEN, "weights change in place under their write-back"), "R2 U3" },
    { WAITS(ADAM, OF_UNIT + LANDED, "an update on the host begins before its gradient has landed"), "A2 U6 U2" },
    { WAITS(IN, OF_UNIT + SUM_SAVED, "sums come back before they were saved"), "A2" },
    { WAITS(IN, OF_LAYER + BACKWARD_DONE, "a lender is taken before its last backward"), "U7" },
    { WAITS(COMPUTE, OF_KEEP + FREE, "a keep slot is overwritten before it was sent"), "U7" },
    { WAITS(COMPUTE, OF_KEEP + READY, "kept activations are read before they are back"), "U7" },
    { WAITS(OUT, OF_KEEP + READY, "kept activations are sent before they are computed"), "U7" },
    { WAITS(COMPUTE, OF_SUM + FREE, "sums are cleared before they were read"), "U7" },
    { WAITS(IN, OF_SUM + FREE, "sums come back into a slot that is in use"), "U7" },
    { WAITS(COMPUTE, OF_SUM + READY, "sums are added to before they are back"), "U7" },
    { WAITS(OUT, OF_SUM + READY, "sums are saved before they are complete"), "U7" },
    { WAITS(COMPUTE, OF_OUT + FREE, "an outgoing slot is overwritten before it was sent"), "A2" },
    { WAITS(OUT, OF_OUT + READY, "a gradient is sent before it is rounded"), "A2" },
    { WAITS(COMPUTE, OF_STAGE + STAGE_READY, "state is updated before it is staged"), "U3 U7" },
    { WAITS(BACK, OF_STAGE + STAGE_DONE, "state is written back before it is updated"), "U3 U7 R2" },
    { WAITS(IN, OF_STAGE + STAGE_FREE, "a staging slot is overwritten before its write-back"), "U3" },
    { WAITS(PIECE_IN, OF_PIECE + STAGE_FREE, "a piece's slot is filled before the write-back of the piece before"), "U12" },
    { WAITS(PIECE_IN, OF_UNIT + LANDED, "a piece is staged before its gradient has landed"), "A2 U6 U2" },
    { WAITS(PIECE, OF_PIECE + STAGE_READY, "a piece is updated before it is staged"), "U12" },
    { WAITS(PIECE_BACK, OF_PIECE + STAGE_DONE, "a piece is written back before it is updated"), "U12" },
    { WAITS(OUT, OF_PIECE + STAGE_READY, "a gradient is overwritten while a piece that is dropped is staged"), "A2" },
    { WAITS(COMPUTE, OF_PIECE + STAGE_DONE, "the sums are read before pieces have counted broken weights"), "U8" },
    { WAITS(OUT, OF_SLAB, "a slab is overwritten before its pieces are staged"), "U6" },
    { { DROP_RECORD, OF_UNIT + WRITTEN, MT_Q_PIECE_BACK, "a gate opens before all pieces are at home" }, "U2" },
    { { DROP_ACTION, MT_DO_PIECE_IN, 0, "a piece is not staged" }, "A2 U11" },
    { { DROP_ACTION, MT_DO_PIECE_UPDATE, 0, "a piece is never updated" }, "U11" },
    { { TWICE_ACTION, MT_DO_PIECE_UPDATE, 0, "a piece is updated twice" }, "U11" },
    { { DROP_ACTION, MT_DO_PIECE_BACK, 0, "a piece is not written back" }, "R1 U2" },
    { { LIE_UNLOCKED, 1, 0, "a piece of a locked unit is overwritten" }, "H1" },
    { { DROP_RECORD, OF_RING + FREE, MT_Q_COMPUTE, "no event marks a ring slot's last reader" }, "R2" },
    { { DROP_RECORD, OF_UNIT + WRITTEN, MT_Q_BACK, "no event marks a write-back" }, "U2 R2 U3" },
    { { DROP_ACTION, MT_DO_SUM_CLEAR, 0, "sums are not cleared" }, "A2" },
    { { DROP_ACTION, MT_DO_GRADIENT_OUT, 0, "a gradient is never sent" }, "A2" },
    { { TWICE_ACTION, MT_DO_ROUND, 0, "a gradient is finished twice" }, "A2" },
    { { TWICE_ACTION, MT_DO_UPDATE_STAGED, 0, "an update is applied twice" }, "A2" },
    { { DROP_ACTION, MT_DO_UPDATE_HOST, 0, "an update is lost" }, "A2" },
    { { DROP_ACTION, MT_DO_UPDATE_STAGED, 0, "a staged update is lost" }, "A2 U7" },
    { { DROP_ACTION, MT_DO_KEEP_IN, 0, "kept activations are not brought back" }, "U7" },
    { { DROP_ACTION, MT_DO_FETCH, 0, "weights are not fetched" }, "R1" },
    { { DROP_ACTION, MT_DO_WRITE_BACK, 0, "state is not written back" }, "U2 R1" },
    { { TWICE_ACTION, MT_DO_FORWARD, 0, "a layer is computed twice in forward" }, "P4" },
    { { TWICE_ACTION, MT_DO_EXPERTS, 0, "experts are added twice" }, "E1" },
    { { DROP_ACTION, MT_DO_EXPERTS, 0, "experts are left out" }, "E1" },
    { { DROP_ACTION, MT_DO_ROUTES, 0, "experts are fetched before any row has chosen them" }, "E4" },
    { { DROP_ACTION, MT_DO_CLOSE, 0, "the next layer does not wait for the experts' sum" }, "E1" },
    { { DROP_ACTION, MT_DO_REOPEN, 0, "experts run backward from something else" }, "E1" },
    { { TWICE_ACTION, MT_DO_EXPERTS_BACKWARD, 0, "experts run backward twice" }, "E1" },
    { { DROP_ACTION, MT_DO_EXPERTS_BACKWARD, 0, "a layer runs backward before its last expert" }, "E1 A2" },
    { { UNLEND, 0, 0, "a layer's first unit is given back before its experts have run backward" }, "E2" },
    { { LIE_UPDATED, 0, 0, "weights are fetched before their update on the host" }, "U2" },
    { { LIE_UNLOCKED, 0, 0, "a locked unit is overwritten" }, "H1" },
    { { LIE_JOBS, 0, 0, "a slab is reused before its job is done" }, "U6" },
    { { LIE_JUDGE, 0, 0, "a step that is not finite is applied" }, "U4" },
    { { HASTE, 0, 0, "updates do not wait for the norm" }, "U4 A2" },
    { { FORGET, 0, 0, "state that was written from outside is not read again" }, "R1 U2 U10" },
};

/* Those that only several lanes can make. */
static const struct {
    fault f;
    const char *rules;
} lane_mistakes[] = {
    { WAITS(OUT, OF_SUM + READY, "a share's sums leave before they are complete"), "U7" },
    { WAITS(COMPUTE, OF_SUM + FREE, "sums are cleared before they have left"), "U7" },
    { { DROP_ACTION, MT_DO_PART_OUT, 0, "a share's sums never leave" }, "A2" },
    { { TWICE_ACTION, MT_DO_PART_OUT, 0, "a share's sums leave twice" }, "A2" },
    { { DROP_ACTION, MT_DO_SUM_CLEAR, 0, "a share begins with the sums of the one before" }, "A2" },
    { { LIE_UPDATED, 0, 0, "weights are fetched before their update on the host" }, "U2" },
};

static void every_mistake_of_lanes_is_found(void **state)
{
    (void)state;
    enum { TRIES = 1000 };
    models m;
    long actions = 0;
    open_models(&m);
    for (size_t i = 0; i < MT_COUNT(lane_mistakes); i++) {
        char what[256] = "", rule[8] = "";
        for (int tries = 0; !what[0] && tries < TRIES; tries++)
            check_lanes(&m, 2 + tries % 3, (uint64_t)tries, lane_mistakes[i].f, what, sizeof what, &actions);
        if (!what[0]) fail_msg("not found in %d placements: %s", TRIES, lane_mistakes[i].f.name);
        snprintf(rule, sizeof rule, "%.*s", (int)strcspn(what, ":"), what);
        if (!strstr(lane_mistakes[i].rules, rule))
            fail_msg("%s: found as \"%s\", expected one of %s", lane_mistakes[i].f.name, what, lane_mistakes[i].rules);
    }
    close_models(&m);
}

static void every_mistake_is_found(void **state)
{
    (void)state;
    enum { TRIES = 3000 };
    models m;
    long actions = 0;
    open_models(&m);
    for (size_t i = 0; i < MT_COUNT(mistakes); i++) {
        char what[256] = "", rule[8] = "";
        int tries = 0;
        while (!what[0] && tries < TRIES) check_draw(&m, (uint64_t)tries++, mistakes[i].f, what, sizeof what, &actions);
        if (getenv("MT_SHOW")) print_message("%-75s after %4d: %s\n", mistakes[i].f.name, tries, what);
        if (!what[0]) fail_msg("not found in %d placements: %s", TRIES, mistakes[i].f.name);
        snprintf(rule, sizeof rule, "%.*s", (int)strcspn(what, ":"), what);
        if (!strstr(mistakes[i].rules, rule))
            fail_msg("%s: found as \"%s\", expected one of %s", mistakes[i].f.name, what, mistakes[i].rules);
    }
    close_models(&m);
}

MT_TEST_MAIN(cmocka_unit_test(random_placements_keep_the_rules), cmocka_unit_test(random_placements_of_lanes_keep_the_rules),
             cmocka_unit_test(every_mistake_is_found), cmocka_unit_test(every_mistake_of_lanes_is_found))
