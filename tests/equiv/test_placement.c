/* Placement never changes a bit.  For one arithmetic, random placements (sweeps, ring depth, keep levels and places, checkpoint
 * intervals, homes, residency, update sites, pieces, slots, lanes, machines; device memory limited to exactly what the plan asks for)
 * end with equal checksums of hi, lo, m, v after three steps.  MT_DRAWS sets how many placements are drawn per arithmetic. */
#include "lenders.h"
#include "machines.h"
#include "wide.h"

#include "device/trace.h"
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"

typedef struct arithmetic_case {
    const char *model;
    mt_dtype compute, grad;
    bool clip;
    const char *freeze[2];
} arithmetic_case;

static const arithmetic_case cases[] = {
    { "qwen3", MT_DTYPE_F32, MT_DTYPE_F32, true, { 0 } },
    { "qwen3_tied", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "qwen2_window", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "llama_tied", MT_DTYPE_F32, MT_DTYPE_BF16, false, { 0 } },
    { "llama_bias", MT_DTYPE_BF16, MT_DTYPE_F32, false, { 0 } },
    { "qwen2_window", MT_DTYPE_F32, MT_DTYPE_F32, true, { "model.layers.1.self_attn.k_proj.*", "model.embed_tokens.weight" } },
    { "llama_default", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { "model.layers.0.*", "model.embed_tokens.weight" } },
    { "qwen3_tied", MT_DTYPE_F32, MT_DTYPE_F32, false, { "*norm*", "*.1.mlp.up_proj.weight" } },
    { "gemma2", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "qwen3_moe", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "mixtral", MT_DTYPE_F32, MT_DTYPE_F32, true, { "*.experts.*", "model.embed_tokens.weight" } },
    { "glm4_moe", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "qwen2_moe", MT_DTYPE_F32, MT_DTYPE_F32, false, { 0 } },
    { "deepseek_v3", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "deepseek_v2", MT_DTYPE_F32, MT_DTYPE_F32, true, { "*.q_proj.weight", "*.kv_b_proj.weight" } },
    { "glm4_moe_lite", MT_DTYPE_BF16, MT_DTYPE_F32, false, { "*.q_a_proj.weight", "*_a_layernorm.weight" } },
    { "mixtral_fused", MT_DTYPE_F32, MT_DTYPE_BF16, false, { "*.mlp.gate.weight", "*norm*" } },
    { "gemma3", MT_DTYPE_F32, MT_DTYPE_F32, true, { "*post_attention_layernorm*", "*.0.mlp.*" } },
    { "olmo3", MT_DTYPE_BF16, MT_DTYPE_F32, true, { 0 } },
    { "cohere2", MT_DTYPE_F32, MT_DTYPE_F32, false, { 0 } },
    { "gpt_neox", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "gpt2", MT_DTYPE_F32, MT_DTYPE_BF16, true, { 0 } },
    { "phi", MT_DTYPE_BF16, MT_DTYPE_BF16, false, { 0 } },
    { "baichuan_alibi", MT_DTYPE_F32, MT_DTYPE_F32, true, { 0 } },
    { "baichuan2", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "stablelm_qk_norm", MT_DTYPE_BF16, MT_DTYPE_F32, true, { "*.q_layernorm.*", "*.mlp.up_proj.weight" } },
    { "qwen3_5_tied", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "qwen3_5_vl", MT_DTYPE_F32, MT_DTYPE_F32, true, { "*.in_proj_b.weight", "*.A_log" } },
    { "qwen3_5_vl", MT_DTYPE_BF16, MT_DTYPE_BF16, false, { "*.in_proj_qkv.weight", "*.dt_bias" } },
    { "qwen3_next", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "qwen3_5_moe_vl", MT_DTYPE_F32, MT_DTYPE_F32, true, { "*.in_proj_z.weight", "*.shared_expert.*" } },
    { "gpt_oss", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "gpt_oss", MT_DTYPE_F32, MT_DTYPE_F32, false, { "*.sinks", "*_bias" } },
    { "llama4", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } },
    { "llama4_vl", MT_DTYPE_F32, MT_DTYPE_F32, true, { "*.experts.down_proj", "*.shared_expert.*" } },
    /* Little is trained, so that a staged layer's state fits into what few rows keep: these two borrow. */
    { "qwen2_window", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { "*_proj.weight", "lm_head.weight" } },
    { "llama_bias", MT_DTYPE_F32, MT_DTYPE_F32, false, { "*_proj.weight", "lm_head.weight" } },
    /* Of the tied unit the final norm is trained, so backward ends before it gets to some layers: their memory is never lent. */
    { "qwen3_tied", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { "model.layers.0.*", "model.embed_tokens.weight" } },
    { "qwen3_tied", MT_DTYPE_F32, MT_DTYPE_F32, true, { "model.layers.*", "model.embed_tokens.weight" } },
};

static const mt_hyper hyper = {
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5
};

/* Every row reaches all its experts; as one number. */
static uint64_t check_loads(const rig *r, const mt_step_result *s)
{
    const int64_t E = r->model->routed.E;
    assert_true((s->loads != NULL) == (E > 0));
    for (int l = 0; l < r->config->L && E; l++) {
        int64_t rows = 0;
        for (int64_t e = 0; e < E; e++) rows += s->loads[l * E + e];
        assert_int_equal(rows, r->config->layers[l].E ? s->n_tokens * r->config->layers[l].T : 0);
    }
    return hash_loads(r, s);
}

static void three_steps(rig *r, outcome *out, dice *d)
{
    mt_err err = { 0 };
    mt_trace *trace = NULL; /* looking changes nothing, either */
    if (d && roll(d, 4) == 0) {
        assert_ok(mt_trace_create(&trace, r->dev, 2000, &err));
        mt_engine_trace(r->engine, trace);
    }
    for (int i = 0; i < 3; i++) {
        mt_step_result s, look = { 0 };
        int what = d ? roll(d, 6) : 0; /* looking changes nothing */
        if (what == 1 || what == 2) assert_ok(mt_engine_evaluate(r->engine, &r->batch, &look, &err));
        if (what == 3 && r->plan->job.clip) assert_ok(mt_engine_gradients(r->engine, &r->batch, &look, &err));
        assert_ok(mt_engine_step(r->engine, &r->batch, &hyper, &s, &err));
        assert_false(s.skipped);
        out->skipped[i] = 0;
        const mt_objective_use *o = &r->plan->job.objective;
        const bool same_loss = what == 3 || (!o->of && !o->columns); /* evaluation is plain cross-entropy */
        if (look.n_tokens && same_loss) assert_memory_equal(&look.loss, &s.loss, sizeof s.loss);
        if (look.grad_norm != 0) assert_memory_equal(&look.grad_norm, &s.grad_norm, sizeof s.grad_norm);
        out->loss[i] = s.loss;
        out->norm[i] = s.grad_norm;
        assert_int_equal(s.lane_seconds != NULL, mt_plan_lanes(r->plan) > 1);
        for (int l = 0; s.lane_seconds && l < mt_plan_lanes(r->plan); l++) assert_true(s.lane_seconds[l] > 0);
        out->router[i] = s.router_loss;
        out->loads[i] = check_loads(r, &s);
        assert_true((s.router_loss > 0) == (r->plan->job.router_loss > 0 && r->model->unit_experts > 0));
    }
    assert_ok(mt_engine_checksum(r->engine, &out->checksum, &err));
    if (!trace) return;
    int n, lost;
    int64_t window;
    mt_engine_trace(r->engine, NULL);
    assert_ok(mt_trace_collect(trace, &err));
    mt_trace_spans(trace, &n, &window, &lost);
    assert_true(n > 20 && window > 0);
    mt_trace_free(trace);
}

/* One line that tells a placement from others, for the failure message. */
static void describe(const mt_plan *plan, char *out, size_t n)
{
    const mt_placement *p = &plan->place;
    int k = snprintf(out, n, "%d lanes (%s), sweep %d of %d, acc %s, keep slots %d, stage %d, slabs %d, pieces %d x %d; groups",
                     mt_plan_lanes(plan),
                     p->gather                  ? "peers, gathered"
                     : p->fold == MT_FOLD_PEERS ? "peers"
                                                : "host",
                     (int)p->sweep_tokens, (int)plan->job.step_tokens, p->accumulators == MT_HOST ? "host" : "device",
                     p->keep_slots, p->staging_slots, p->n_slabs, p->piece_slots, (int)p->piece_elems);
    for (int g = 0; g < plan->model->n_groups; g++)
        k += snprintf(out + k, n - (size_t)k, " %d/%d/%d", p->groups[g].ring_slots, p->groups[g].sum_slots,
                      p->groups[g].out_slots);
    k += snprintf(out + k, n - (size_t)k, "; layers");
    for (int l = 0; l < plan->model->config->L; l++)
        k += snprintf(out + k, n - (size_t)k, " %d%c", p->layers[l].keep, p->layers[l].place == MT_HOST ? 'h' : 'd');
    k += snprintf(out + k, n - (size_t)k, "; units");
    for (int u = 0; u < plan->model->n_units; u++)
        k += snprintf(out + k, n - (size_t)k, " %c%s%c%s%s", p->units[u].home == MT_HOST ? 'h' : 'd',
                      p->units[u].resident ? "R" : "", "HDS"[p->units[u].site], p -> units[u].reuses ? "b" : "",
                      p->units[u].in_pieces ? "p" : "");
}

static void check_same(const char *name, const char *what, const outcome *now, const outcome *first)
{
    if (memcmp(now, first, sizeof *now) != 0)
        fail_msg("%s (%s): losses %.9g %.9g %.9g and norms %.9g %.9g %.9g; the first had %.9g %.9g %.9g, %.9g %.9g %.9g", name,
                 what, now->loss[0], now->loss[1], now->loss[2], now->norm[0], now->norm[1], now->norm[2], first->loss[0],
                 first->loss[1], first->loss[2], first->norm[0], first->norm[1], first->norm[2]);
}

/* One device, or one for each lane. */
static void place_lanes(rig *r, const char *name, int i, mt_job job, const mt_arithmetic *a, dice *d, outcome *first)
{
    mt_err err = { 0 };
    mt_placement p;
    mt_plan *plan;
    outcome now;
    char what[512], which[64];
    assert_ok(mt_placement_init(&p, r->model, &err));
    if (i && mt_arithmetic_parts(a) > 1) job.lanes = 1 + roll(d, mt_arithmetic_parts(a));
    draw(&p, r->model, &job, a, d);
    assert_ok(mt_plan_create(&plan, r->model, &job, a, &p, &err));
    mt_placement_free(&p);
    describe(plan, what, sizeof what);
    rig_start_dawdling(r, plan, 1 + i % 3, i % 2 ? 300 : 0);
    three_steps(r, &now, d);
    rig_stop(r);
    if (i == 0) *first = now;
    snprintf(which, sizeof which, "%s, placement %d", name, i);
    check_same(which, what, &now, first);
}

/* Machines as threads, each with its own placement and lanes. */
static void place_machines(const rig *r, const char *name, int machines, mt_job job, const mt_arithmetic *a, uint64_t seed,
                           const outcome *first)
{
    machine all[MOST_MACHINES];
    script s = { .seed = seed, .h = hyper };
    char what[MOST_MACHINES][512], which[64];
    machines_prepare(all, machines, r, job, a, &s);
    for (int m = 0; m < machines; m++) describe(all[m].plan, what[m], sizeof what[m]);
    machines_go(all, machines);
    for (int m = 0; m < machines; m++) {
        snprintf(which, sizeof which, "%s, seed %d, machine %d of %d", name, (int)seed, m, machines);
        if (all[m].err.rc) fail_msg("%s: %s", which, all[m].err.msg);
        check_same(which, what[m], &s.out[m], first);
    }
}

/* Random placements of one arithmetic: on 1 to as many lanes as there are shares, on 1 to as many machines as there are bundles.  A
 * GPU is not shared among machines here. */
static void compare_draws(rig *r, const char *name, mt_job job, const mt_arithmetic *a, int draws, uint64_t seed)
{
    const int most = strcmp(rig_device(), "cpu") == 0 ? mt_arithmetic_bundles(a) : 1;
    outcome first = { 0 };
    for (int i = 0; i < draws; i++) {
        dice d = { seed + (uint64_t)i, 0 };
        const int machines = i && most > 1 ? 1 + roll(&d, most) : 1;
        if (machines > 1)
            place_machines(r, name, machines, job, a, seed + (uint64_t)i, &first);
        else
            place_lanes(r, name, i, job, a, &d, &first);
    }
}

/* Two cases in three train for something else than plain cross-entropy. */
static mt_objective_use objective_of(uint64_t n)
{
    static const mt_objective_use uses[] = { { 0 },
                                             { .of = &mt_objective_dft },
                                             { .of = &mt_objective_cross_entropy, .smoothing = 0.1f, .z_loss = 1e-3f },
                                             { 0 },
                                             { .of = &mt_objective_eaft, .alpha = 0.5f },
                                             { .of = &mt_objective_dft, .z_loss = 1e-2f } };
    return uses[n % MT_COUNT(uses)];
}

/* Random weights of documents, some of them 0. */
static void give_weights(mt_batch *b, uint64_t seed)
{
    float *weights = mt_calloc((size_t)b->n_docs, sizeof *weights);
    assert_non_null(weights);
    for (int64_t d = 0; d < b->n_docs; d++) weights[d] = 0.5f * (float)mt_rng_below(seed, 7, (uint64_t)d, 5);
    weights[0] += 0.25f;
    b->asked = MT_COLUMN_BIT(MT_COLUMN_WEIGHT);
    b->columns[MT_COLUMN_WEIGHT] = weights;
}

static void check_shares(const arithmetic_case *c, mt_state_form form, int64_t bundles, int64_t shares, int draws, uint64_t seed)
{
    rig r;
    char dir[512];
    size_t n_freeze = c->freeze[0] ? 2 : 0;
    snprintf(dir, sizeof dir, GOLDEN_DIR "%s", c->model);
    rig_open_model(&r, dir, &(mt_model_options){ .freeze = c->freeze, .n_freeze = n_freeze });
    mt_job job = rig_job(&r, c->clip);
    mt_arithmetic a = { .compute = c->compute,
                        .grad = c->grad,
                        .optimizer = form.optimizer,
                        .moments = form.moments,
                        .micro_tokens = r.batch.longest,
                        .mlp_rows = 5,
                        .head_rows = 4,
                        .bundles = bundles,
                        .shares = shares };
    if (r.model->unit_experts && seed / 1000 % 2) a.moe_tokens = 2 * r.batch.longest; /* else each micro-batch alone */
    job.router_loss = seed / 1000 % 3 ? 0.05 : 0;                                     /* of those with experts */
    job.objective = objective_of(seed / 1000);
    if (seed / 1000 % 4 == 1) {
        give_weights(&r.batch, seed);
        job.objective.columns = r.batch.asked;
    }
    compare_draws(&r, c->model, job, &a, draws, seed);
    rig_close(&r);
}

static void check_case(const arithmetic_case *c, mt_state_form form, int draws, uint64_t seed)
{
    check_shares(c, form, 1, 1, draws, seed);
}

static void placements_of_one_arithmetic_give_equal_bits(void **state)
{
    (void)state;
    const char *env = getenv("MT_DRAWS");
    int draws = env ? atoi(env) : 40;
    for (size_t i = 0; i < MT_COUNT(cases); i++) check_case(&cases[i], (mt_state_form){ 0 }, draws, 1000 * (i + 1));
}

/* Smaller forms of the optimizer's arrays, and an optimizer with one: their random bits and blocks must not depend on where a unit is updated, or in which pieces. */
static void placements_of_other_states_do_too(void **state)
{
    (void)state;
    static const struct {
        arithmetic_case c;
        mt_state_form form;
    } other[] = {
        { { "qwen3_tied", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } }, { .moments = MT_MOMENTS_BF16 } },
        { { "llama_bias", MT_DTYPE_F32, MT_DTYPE_BF16, false, { "*.1.mlp.up_proj.weight", "*norm*" } },
          { .moments = MT_MOMENTS_BF16 } },
        { { "llama_default", MT_DTYPE_BF16, MT_DTYPE_F32, false, { 0 } }, { .moments = MT_MOMENTS_8BIT } },
        { { "qwen2_window", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { "*_proj.weight", "lm_head.weight" } },
          { .moments = MT_MOMENTS_8BIT } }, /* borrows */
        { { "qwen3", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } }, { MT_OPTIMIZER_LION, MT_MOMENTS_F32 } },
        { { "qwen3_tied", MT_DTYPE_F32, MT_DTYPE_F32, false, { 0 } }, { MT_OPTIMIZER_LION, MT_MOMENTS_BF16 } },
        { { "llama_default", MT_DTYPE_BF16, MT_DTYPE_F32, false, { "*.1.mlp.up_proj.weight", "*norm*" } },
          { MT_OPTIMIZER_LION, MT_MOMENTS_F32 } },
        { { "qwen2_window", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { "*_proj.weight", "lm_head.weight" } },
          { MT_OPTIMIZER_LION, MT_MOMENTS_8BIT } }, /* borrows */
        { { "qwen3_moe", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } }, { MT_OPTIMIZER_LION, MT_MOMENTS_BF16 } },
    };
    const char *env = getenv("MT_DRAWS");
    int draws = env ? atoi(env) : 40;
    for (size_t i = 0; i < MT_COUNT(other); i++) check_case(&other[i].c, other[i].form, draws, 500 + 1000 * (i + 1));
}

/* Documents dealt to shares. */
static void placements_of_shares_do_too(void **state)
{
    (void)state;
    static const struct {
        arithmetic_case c;
        int64_t bundles, shares;
    } dealt[] = {
        { { "qwen3", MT_DTYPE_F32, MT_DTYPE_F32, true, { 0 } }, 1, 2 },
        { { "qwen3_tied", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } }, 1, 3 },
        { { "llama_tied", MT_DTYPE_F32, MT_DTYPE_BF16, false, { 0 } }, 2, 2 },
        { { "llama_bias", MT_DTYPE_BF16, MT_DTYPE_F32, false, { "*.1.mlp.up_proj.weight", "*norm*" } }, 3, 1 },
        { { "qwen3_moe", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } }, 1, 2 },
        { { "mixtral_fused", MT_DTYPE_F32, MT_DTYPE_BF16, false, { "*.mlp.gate.weight", "*norm*" } }, 2, 2 },
        { { "qwen3_next", MT_DTYPE_BF16, MT_DTYPE_BF16, true, { 0 } }, 1, 9 }, /* more than there are documents */
        { { "qwen3_5_tied", MT_DTYPE_F32, MT_DTYPE_F32, true, { 0 } }, 2, 3 },
    };
    const char *env = getenv("MT_DRAWS");
    int draws = env ? atoi(env) : 20;
    for (size_t i = 0; i < MT_COUNT(dealt); i++)
        check_shares(&dealt[i].c, (mt_state_form){ 0 }, dealt[i].bundles, dealt[i].shares, draws, 300 + 1000 * (i + 1));
}

/* Units that are cut into slices, of which every lane has some; in part frozen, and with moments of every form. */
static void placements_of_slices_do_too(void **state)
{
    (void)state;
    static const struct {
        wide_kind kind;
        mt_dtype compute, grad;
        mt_state_form form;
        bool clip;
        int64_t bundles, shares;
        const char *freeze[2];
    } cut[] = {
        { WIDE_DENSE, MT_DTYPE_BF16, MT_DTYPE_BF16, { .moments = MT_MOMENTS_F32 }, true, 1, 3, { 0 } },
        { WIDE_DENSE,
          MT_DTYPE_F32,
          MT_DTYPE_F32,
          { .moments = MT_MOMENTS_8BIT },
          false,
          2,
          2,
          { "*.1.mlp.up_proj.weight", "*norm*" } },
        { WIDE_TIED, MT_DTYPE_BF16, MT_DTYPE_F32, { .moments = MT_MOMENTS_BF16 }, true, 2, 2, { 0 } },
        { WIDE_TIED, MT_DTYPE_F32, MT_DTYPE_BF16, { .moments = MT_MOMENTS_F32 }, false, 1, 4, { 0 } },
        { WIDE_EXPERTS, MT_DTYPE_BF16, MT_DTYPE_BF16, { .moments = MT_MOMENTS_8BIT }, true, 1, 4, { 0 } },
        { WIDE_HYBRID, MT_DTYPE_BF16, MT_DTYPE_BF16, { .moments = MT_MOMENTS_F32 }, true, 1, 2, { 0 } },
        { WIDE_HYBRID,
          MT_DTYPE_BF16,
          MT_DTYPE_BF16,
          { .moments = MT_MOMENTS_BF16 },
          false,
          1,
          3,
          { "*.mlp.down_proj.weight", "*.A_log" } },
        { WIDE_DENSE, MT_DTYPE_BF16, MT_DTYPE_BF16, { MT_OPTIMIZER_LION, MT_MOMENTS_F32 }, true, 1, 3, { 0 } },
        { WIDE_TIED, MT_DTYPE_F32, MT_DTYPE_F32, { MT_OPTIMIZER_LION, MT_MOMENTS_8BIT }, false, 2, 2, { 0 } },
    };
    const char *env = getenv("MT_DRAWS");
    const int draws = env ? atoi(env) : 12;
    for (size_t i = 0; i < MT_COUNT(cut); i++) {
        rig r;
        char name[32];
        open_wide(&r, cut[i].kind, &(mt_model_options){ .freeze = cut[i].freeze, .n_freeze = cut[i].freeze[0] ? 2 : 0 });
        const mt_arithmetic a = { .compute = cut[i].compute,
                                  .grad = cut[i].grad,
                                  .optimizer = cut[i].form.optimizer,
                                  .moments = cut[i].form.moments,
                                  .micro_tokens = 2 * r.batch.longest,
                                  .mlp_rows = 7,
                                  .head_rows = 6,
                                  .bundles = cut[i].bundles,
                                  .shares = cut[i].shares };
        snprintf(name, sizeof name, "wide model %d", (int)i);
        compare_draws(&r, name, rig_job(&r, cut[i].clip), &a, draws, 700 + 1000 * (i + 1));
        rig_close(&r);
    }
}

/* -- borrowed memory ------------------------------------------------------------------------------- */

static int count_loans(const mt_plan *plan)
{
    int n = 0;
    for (int u = 0; u < plan->model->n_units; u++) n += plan->place.units[u].reuses;
    return n;
}

static void check_loans(bool tied, mt_dtype t, bool clip, bool resident)
{
    rig r;
    outcome plain, borrowed;
    open_lenders(&r, tied);
    const mt_arithmetic a = { .compute = t, .grad = t, .micro_tokens = 64, .mlp_rows = 64, .head_rows = 64 };
    start_lenders(&r, plan_loans(&r, &a, clip, resident, -1, 0), 0);
    assert_int_equal(count_loans(r.plan), 0);
    three_steps(&r, &plain, NULL);
    rig_stop(&r);
    for (int hosted = 0; hosted < 3; hosted++) {
        dice d = { (uint64_t)hosted, 0 };
        start_lenders(&r, plan_loans(&r, &a, clip, resident, hosted, 0), 200);
        assert_true(r.plan->place.units[0].reuses); /* the embedding has two lenders, so two layers have none */
        assert_true(r.plan->place.units[0].reused[0] != r.plan->place.units[0].reused[1]);
        assert_in_range(count_loans(r.plan), 3, 4);
        three_steps(&r, &borrowed, &d);
        rig_stop(&r);
        assert_memory_equal(&borrowed, &plain, sizeof plain);
    }
    rig_close(&r);
}

static void borrowed_memory_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) check_loans(i & 1, i & 2 ? MT_DTYPE_F32 : MT_DTYPE_BF16, i & 4, i & 1);
    check_loans(false, MT_DTYPE_BF16, true, true);
}

/* -- private slots ---------------------------------------------------------------------------- */

/* Three steps, other moments for two units, three more. */
static void steps_and_a_write(rig *r, outcome *out, dice *d)
{
    mt_err err = { 0 };
    three_steps(r, out, d);
    for (int u = 0; u < 2; u++)
        for (int64_t i = 0; i < r->model->units[u].layout->n_train; i++) {
            float m = 0.01f * mt_rng_normal(11, (uint64_t)u, (uint64_t)i);
            assert_ok(mt_engine_write(r->engine, (mt_state_range){ u, MT_STATE_ARRAYS, i, 1 }, &m, &err));
        }
    three_steps(r, out, d);
}

static int count_own(const mt_plan *plan)
{
    int n = 0;
    for (int u = 0; u < plan->model->n_units; u++) n += mt_plan_private_slot(plan, u) >= 0;
    return n;
}

static void check_own(bool tied, mt_dtype t, bool clip, bool resident)
{
    rig r;
    outcome plain, own;
    open_lenders(&r, tied);
    const mt_arithmetic a = { .compute = t, .grad = t, .micro_tokens = 64, .mlp_rows = 64, .head_rows = 64 };
    start_lenders(&r, plan_loans(&r, &a, clip, resident, -1, 0), 0);
    steps_and_a_write(&r, &plain, NULL);
    rig_stop(&r);
    for (int hosted = -1; hosted < 4; hosted += 2) { /* -1: no unit reuses memory */
        dice d = { (uint64_t)(hosted + 1), 0 };
        start_lenders(&r, plan_loans(&r, &a, clip, resident, hosted, r.model->n_units), 200);
        assert_int_equal(count_own(r.plan) + count_loans(r.plan), r.model->n_units);
        assert_true(count_own(r.plan) > 0);
        steps_and_a_write(&r, &own, &d);
        rig_stop(&r);
        assert_memory_equal(&own, &plain, sizeof plain);
    }
    rig_close(&r);
}

static void slots_of_their_own_give_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) check_own(i & 1, i & 2 ? MT_DTYPE_F32 : MT_DTYPE_BF16, i & 4, !(i & 1) == !!(i & 4));
}

/* The least device memory any plan works with, found by bisection, and plenty: the same bits. */
static void the_smallest_memory_that_works_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        rig r;
        char dir[512];
        mt_plan *plan;
        outcome plenty, least;
        snprintf(dir, sizeof dir, GOLDEN_DIR "%s", cases[i].model);
        rig_open_model(&r, dir, NULL);
        mt_job job = rig_job(&r, cases[i].clip);
        mt_arithmetic a = {
            .compute = cases[i].compute, .grad = cases[i].grad, .micro_tokens = r.batch.longest, .mlp_rows = 5, .head_rows = 4
        };
        assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
        size_t lo = 0, hi = plan->device_bytes;
        rig_start(&r, plan, 2);
        three_steps(&r, &plenty, NULL);
        rig_stop(&r);
        while (hi - lo > 64) {
            size_t mid = lo + (hi - lo) / 2;
            mt_rc rc = mt_plan_choose(&plan, r.model, &job, &a, mid, &err);
            if (rc) {
                assert_int_equal(rc, MT_ENOMEM);
                lo = mid;
            } else {
                mt_plan_free(plan);
                hi = mid;
            }
        }
        assert_ok(mt_plan_choose(&plan, r.model, &job, &a, hi, &err));
        rig_start(&r, plan, 2);
        three_steps(&r, &least, NULL);
        rig_stop(&r);
        assert_memory_equal(&plenty, &least, sizeof least);
        rig_close(&r);
    }
}

/* -- units of experts ------------------------------------------------------------------------------ */

/* The state, tensor by tensor, so that it does not depend on which unit holds which: a sum over hashes of names and numbers. */
static uint64_t state_by_name(rig *r)
{
    mt_err err = { 0 };
    uint64_t sum = 0;
    for (int u = 0; u < r->model->n_units; u++) {
        const mt_layout *l = r->model->units[u].layout;
        for (int k = 0; k < l->n_weights; k++)
            for (mt_state_kind kind = 0; kind < (l->weights[k].frozen ? MT_STATE_ARRAYS : MT_STATE_KINDS); kind++) {
                const mt_weight *w = &l->weights[k];
                char name[MT_NAME_BYTES];
                float *numbers = mt_calloc((size_t)w->n, sizeof *numbers);
                mt_weight_name(&r->model->units[u], w, name);
                assert_ok(mt_engine_read(r->engine, (mt_state_range){ u, kind, w->offset, w->n }, numbers, &err));
                uint64_t seed = mt_hash(name, strlen(name), (uint64_t)mt_weight_first_row(&r->model->units[u], w));
                sum += mt_hash(numbers, (size_t)w->n * sizeof *numbers, seed + (uint64_t)kind);
                mt_free(numbers);
            }
    }
    return sum;
}

typedef struct expert_case {
    const char *model;
    int64_t units[4]; /* divisors of its number of experts */
    mt_dtype compute, grad;
    int64_t micros;     /* that pass an expert together; 0: one */
    double router_loss; /* its coefficient */
} expert_case;

/* Without clipping, and with fp32 moments: the norm's tree and blocks of moments follow units. */
static void how_experts_are_cut_into_units_changes_no_bit(void **state)
{
    (void)state;
    static const expert_case experts[] = {
        { "mixtral", { 5, 1 }, MT_DTYPE_F32, MT_DTYPE_F32, 0, 0.1 },
        { "qwen3_moe", { 6, 1, 2, 3 }, MT_DTYPE_BF16, MT_DTYPE_BF16, 2, 0.1 },
        { "qwen3_moe", { 6, 3, 2, 1 }, MT_DTYPE_F32, MT_DTYPE_BF16, 100, 0 },
        { "qwen3_moe_fused", { 4, 2, 1 }, MT_DTYPE_BF16, MT_DTYPE_F32, 0, 0 },
    };
    for (size_t i = 0; i < MT_COUNT(experts); i++) {
        uint64_t first = 0;
        for (int n = 0; n < 8; n++) {
            mt_err err = { 0 };
            dice d = { 100 * i + (uint64_t)n, 0 };
            rig r;
            char dir[512];
            mt_placement p;
            mt_plan *plan;
            outcome out;
            const int64_t c = experts[i].units[n % 4];
            if (!c) continue;
            snprintf(dir, sizeof dir, GOLDEN_DIR "%s", experts[i].model);
            rig_open_model(&r, dir, &(mt_model_options){ .unit_experts = c });
            mt_job job = rig_job(&r, false);
            job.router_loss = experts[i].router_loss;
            const mt_arithmetic a = { .compute = experts[i].compute,
                                      .grad = experts[i].grad,
                                      .micro_tokens = r.batch.longest,
                                      .mlp_rows = 5,
                                      .head_rows = 4,
                                      .moe_tokens = experts[i].micros * r.batch.longest };
            assert_ok(mt_placement_init(&p, r.model, &err));
            draw(&p, r.model, &job, &a, &d);
            assert_ok(mt_plan_create(&plan, r.model, &job, &a, &p, &err));
            mt_placement_free(&p);
            rig_start_dawdling(&r, plan, 1 + n % 3, n % 2 ? 300 : 0);
            three_steps(&r, &out, &d);
            uint64_t now = state_by_name(&r);
            if (n == 0) first = now;
            if (now != first) fail_msg("%s: units of %d experts give other bits", experts[i].model, (int)c);
            rig_stop(&r);
            rig_close(&r);
        }
    }
}

/* A different arithmetic gives different bits: the comparison above can fail. */
static void another_arithmetic_is_noticed(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    uint64_t sums[2];
    rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
    mt_job job = rig_job(&r, true);
    for (int i = 0; i < 2; i++) {
        mt_plan *plan;
        outcome now;
        mt_arithmetic a = { .compute = MT_DTYPE_F32,
                            .grad = MT_DTYPE_F32,
                            .micro_tokens = i ? r.batch.n_tokens : r.batch.longest,
                            .mlp_rows = 64,
                            .head_rows = 64 };
        assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
        rig_start(&r, plan, 2);
        three_steps(&r, &now, NULL);
        rig_stop(&r);
        sums[i] = now.checksum;
    }
    assert_true(sums[0] != sums[1]);
    rig_close(&r);
}

/* Other forms of Adam's moments are other bits, and so is another seed of their rounding; in fp32 the seed decides nothing. */
static void forms_of_moments_and_their_seed_are_noticed(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    uint64_t sums[MT_MOMENTS_FORMS][2];
    rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
    mt_job job = rig_job(&r, true);
    for (mt_moments form = 0; form < MT_MOMENTS_FORMS; form++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            mt_plan *plan;
            mt_step_result s;
            mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1.5, .seed = seed };
            mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_F32);
            a.moments = form;
            assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
            rig_start(&r, plan, 2);
            for (int i = 0; i < 2; i++) assert_ok(mt_engine_step(r.engine, &r.batch, &h, &s, &err));
            assert_ok(mt_engine_checksum(r.engine, &sums[form][seed], &err));
            rig_stop(&r);
        }
    assert_true(sums[MT_MOMENTS_F32][0] == sums[MT_MOMENTS_F32][1]);
    assert_true(sums[MT_MOMENTS_BF16][0] != sums[MT_MOMENTS_BF16][1] && sums[MT_MOMENTS_8BIT][0] != sums[MT_MOMENTS_8BIT][1]);
    assert_true(sums[MT_MOMENTS_F32][0] != sums[MT_MOMENTS_BF16][0] && sums[MT_MOMENTS_BF16][0] != sums[MT_MOMENTS_8BIT][0]);
    rig_close(&r);
}

/* What is written into a moment is what is read from it: in any parts, at either home. */
static void moments_written_in_parts_are_read_whole(void **state)
{
    (void)state;
    mt_err err = { 0 };
    rig r;
    uint64_t before, after;
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .max_grad_norm = 1.5 };
    rig_open_model(&r, GOLDEN_DIR "qwen3", NULL);
    mt_job job = rig_job(&r, true);
    for (mt_moments form = 0; form < MT_MOMENTS_FORMS; form++) {
        mt_plan *plan;
        mt_step_result s;
        mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_F32);
        size_t each = mt_dtype_bytes(mt_moments_type(form));
        a.moments = form;
        assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
        rig_start(&r, plan, 2);
        for (int i = 0; i < 3; i++) assert_ok(mt_engine_step(r.engine, &r.batch, &h, &s, &err));
        assert_ok(mt_engine_checksum(r.engine, &before, &err));
        for (int u = 0; u < r.model->n_units; u++)
            for (mt_state_kind kind = MT_STATE_ARRAYS; kind <= MT_STATE_ARRAYS + 1; kind++) {
                int64_t n = r.model->units[u].layout->n_train;
                char *copy = mt_malloc((size_t)n * each), *zero = mt_calloc((size_t)n, each);
                assert_ok(mt_engine_read(r.engine, (mt_state_range){ u, kind, 0, n }, copy, &err));
                assert_ok(mt_engine_write(r.engine, (mt_state_range){ u, kind, 0, n }, zero, &err));
                for (int64_t at = 0, k; at < n; at += k) {
                    k = mt_min_i64(1 + (int64_t)mt_rng_below(5, (uint64_t)u, (uint64_t)at, 700), n - at);
                    assert_ok(mt_engine_write(r.engine, (mt_state_range){ u, kind, at, k }, copy + (size_t)at * each, &err));
                }
                mt_free(copy), mt_free(zero);
            }
        assert_ok(mt_engine_checksum(r.engine, &after, &err));
        assert_true(before == after);
        rig_stop(&r);
    }
    rig_close(&r);
}

RIG_TEST_MAIN(cmocka_unit_test(placements_of_one_arithmetic_give_equal_bits), cmocka_unit_test(placements_of_other_states_do_too),
              cmocka_unit_test(placements_of_shares_do_too), cmocka_unit_test(placements_of_slices_do_too),
              cmocka_unit_test(borrowed_memory_gives_the_same_bits), cmocka_unit_test(slots_of_their_own_give_the_same_bits),
              cmocka_unit_test(the_smallest_memory_that_works_gives_the_same_bits),
              cmocka_unit_test(how_experts_are_cut_into_units_changes_no_bit), cmocka_unit_test(another_arithmetic_is_noticed),
              cmocka_unit_test(forms_of_moments_and_their_seed_are_noticed),
              cmocka_unit_test(moments_written_in_parts_are_read_whole))
