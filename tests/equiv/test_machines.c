/* The number of machines never changes a bit.  Machines are threads of one process here, each with its own engine, plan and
 * lanes.  For one arithmetic, 1 to `bundles` of them end with equal checksums of hi, lo, m, v after three steps, and with equal
 * losses, norms and loads.  MT_DRAWS sets how many placements are drawn for each. */
#include "machines.h"

#include "base/fault.h"

#include <math.h>
#include <stdlib.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"

static const mt_hyper hyper = {
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1.5, .seed = 5
};

typedef struct machine_case {
    const char *model;  /* of the golden ones, or */
    const char *config; /* one whose units have several slices */
    mt_dtype compute, grad;
    mt_state_form form;
    bool clip;
    const char *freeze[2];
    int64_t bundles, shares;
    bool reduce_bf16;
} machine_case;

#define DENSE "\"model_type\":\"qwen3\",\"head_dim\":32,\"tie_word_embeddings\":%s"
#define EXPERTS                                                                                                                  \
    "\"model_type\":\"qwen3_moe\",\"head_dim\":32,\"num_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":64,"     \
    "\"tie_word_embeddings\":%s"

/* Units of several chunks of the norm, so that slices cut them. */
static void open_wide(rig *r, const char *config, bool tied, const mt_model_options *o)
{
    static const char rest[] = "\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
                               "\"num_key_value_heads\":1,\"vocab_size\":300,\"max_position_embeddings\":64";
    enum { DOCS = 7 };
    char text[1024], more[512];
    int32_t ids[16];
    mt_err err = { 0 };
    *r = (rig){ 0 };
    snprintf(more, sizeof more, config, tied ? "true" : "false");
    int n = snprintf(text, sizeof text, "{%s,%s}", more, rest);
    assert_ok(mt_config_parse(&r->config, text, (size_t)n, "a config", &err));
    mt_model_options options = *o;
    options.unit_experts = rig_unit_experts(r->config);
    assert_ok(mt_model_create(&r->model, r->config, &options, &err));
    for (int i = 0; i < DOCS; i++) {
        const int length = 4 + (int)mt_rng_below(5, 1, (uint64_t)i, 12);
        for (int k = 0; k < length; k++) ids[k] = (int32_t)mt_rng_below(5, 2 + (uint64_t)i, (uint64_t)k, 300);
        assert_ok(mt_batch_add(&r->batch, ids, ids, length, 300, &err));
    }
}

static void open_case(rig *r, const machine_case *c)
{
    const mt_model_options o = { .freeze = c->freeze, .n_freeze = c->freeze[0] ? c->freeze[1] ? 2 : 1 : 0 };
    char dir[512];
    if (c->config) {
        open_wide(r, c->config, strstr(c->model, "tied") != NULL, &o);
        return;
    }
    snprintf(dir, sizeof dir, GOLDEN_DIR "%s", c->model);
    rig_open_model(r, dir, &o);
}

static mt_arithmetic arithmetic_of(const rig *r, const machine_case *c)
{
    return (mt_arithmetic){ .compute = c->compute,
                            .grad = c->grad,
                            .optimizer = c->form.optimizer,
                            .moments = c->form.moments,
                            .micro_tokens = r->batch.longest,
                            .mlp_rows = 5,
                            .head_rows = 4,
                            .bundles = c->bundles,
                            .shares = c->shares,
                            .reduce_bf16 = c->reduce_bf16 };
}

static void prepare_case(const rig *r, const machine_case *c, int machines, script *s, machine *all)
{
    const mt_arithmetic a = arithmetic_of(r, c);
    mt_job job = rig_job(r, c->clip);
    job.router_loss = 0.05;
    machines_prepare(all, machines, r, job, &a, s);
}

static void run_case(const rig *r, const machine_case *c, int machines, script *s, machine *all)
{
    prepare_case(r, c, machines, s, all);
    machines_go(all, machines);
}

static void check_case(const machine_case *c, int draws, uint64_t seed)
{
    rig r;
    script first = { .seed = seed, .h = hyper };
    machine all[MOST_MACHINES];
    open_case(&r, c);
    run_case(&r, c, 1, &first, all);
    assert_string_equal(all[0].err.msg, "");
    for (int i = 0; i < draws; i++) {
        const int machines = 1 + (i + 1) % ((int)c->bundles + 1); /* one more than there are bundles computes nothing */
        script s = { .seed = seed + 1 + (uint64_t)i, .h = hyper };
        run_case(&r, c, machines, &s, all);
        for (int m = 0; m < machines; m++) {
            if (all[m].err.rc) fail_msg("%s, draw %d: machine %d of %d: %s", c->model, i, m, machines, all[m].err.msg);
            if (memcmp(&s.out[m], &first.out[0], sizeof first.out[0]) != 0)
                fail_msg(
                    "%s, draw %d: machine %d of %d has losses %.9g %.9g %.9g, norms %.9g %.9g %.9g; one machine %.9g %.9g %.9g, "
                    "%.9g %.9g %.9g",
                    c->model, i, m, machines, s.out[m].loss[0], s.out[m].loss[1], s.out[m].loss[2], s.out[m].norm[0],
                    s.out[m].norm[1], s.out[m].norm[2], first.out[0].loss[0], first.out[0].loss[1], first.out[0].loss[2],
                    first.out[0].norm[0], first.out[0].norm[1], first.out[0].norm[2]);
        }
    }
    rig_close(&r);
}

static const machine_case cases[] = {
    { "wide", DENSE, MT_DTYPE_BF16, MT_DTYPE_BF16, { .moments = MT_MOMENTS_F32 }, true, { 0 }, 4, 1, false },
    { "wide", DENSE, MT_DTYPE_F32, MT_DTYPE_F32, { .moments = MT_MOMENTS_BF16 }, true, { "*.0.mlp.*" }, 3, 2, false },
    { "wide, tied", DENSE, MT_DTYPE_BF16, MT_DTYPE_F32, { .moments = MT_MOMENTS_8BIT }, true, { 0 }, 2, 3, false },
    { "wide, tied",
      DENSE,
      MT_DTYPE_BF16,
      MT_DTYPE_BF16,
      { .moments = MT_MOMENTS_F32 },
      false,
      { "*norm*", "*.1.mlp.up_proj.weight" },
      4,
      2,
      false },
    { "wide experts", EXPERTS, MT_DTYPE_BF16, MT_DTYPE_BF16, { .moments = MT_MOMENTS_F32 }, true, { 0 }, 2, 2, false },
    { "wide experts",
      EXPERTS,
      MT_DTYPE_F32,
      MT_DTYPE_BF16,
      { .moments = MT_MOMENTS_8BIT },
      false,
      { "*.mlp.gate.weight" },
      3,
      1,
      false },
    { "qwen3_tied", NULL, MT_DTYPE_BF16, MT_DTYPE_BF16, { .moments = MT_MOMENTS_F32 }, true, { 0 }, 3, 2, false },
    { "llama_bias",
      NULL,
      MT_DTYPE_BF16,
      MT_DTYPE_F32,
      { .moments = MT_MOMENTS_F32 },
      false,
      { "*.1.mlp.up_proj.weight", "*norm*" },
      5,
      1,
      false },
    { "llama_default",
      NULL,
      MT_DTYPE_BF16,
      MT_DTYPE_BF16,
      { .moments = MT_MOMENTS_F32 },
      true,
      { "model.layers.0.*", "model.embed_tokens.weight" },
      2,
      1,
      false },
    { "qwen3_next", NULL, MT_DTYPE_BF16, MT_DTYPE_BF16, { .moments = MT_MOMENTS_F32 }, true, { 0 }, 2, 2, false },
    { "qwen3_5_tied", NULL, MT_DTYPE_F32, MT_DTYPE_F32, { .moments = MT_MOMENTS_BF16 }, true, { 0 }, 3, 1, false },
    { "gpt_oss", NULL, MT_DTYPE_BF16, MT_DTYPE_BF16, { .moments = MT_MOMENTS_F32 }, false, { 0 }, 2, 2, false },
    { "wide", DENSE, MT_DTYPE_BF16, MT_DTYPE_BF16, { MT_OPTIMIZER_LION, MT_MOMENTS_F32 }, true, { 0 }, 3, 2, false },
    { "wide, tied", DENSE, MT_DTYPE_F32, MT_DTYPE_BF16, { MT_OPTIMIZER_LION, MT_MOMENTS_BF16 }, false, { 0 }, 2, 1, false },
};

/* Bundles that are rounded before they meet. */
static const machine_case rounded[] = {
    { "wide", DENSE, MT_DTYPE_BF16, MT_DTYPE_BF16, { .moments = MT_MOMENTS_F32 }, true, { 0 }, 4, 1, true },
    { "wide, tied", DENSE, MT_DTYPE_F32, MT_DTYPE_F32, { .moments = MT_MOMENTS_BF16 }, false, { 0 }, 3, 2, true },
    { "qwen3_tied", NULL, MT_DTYPE_BF16, MT_DTYPE_F32, { .moments = MT_MOMENTS_F32 }, true, { 0 }, 2, 2, true },
    { "qwen3_moe", NULL, MT_DTYPE_F32, MT_DTYPE_F32, { .moments = MT_MOMENTS_F32 }, false, { 0 }, 5, 1, true },
};

static void so_it_is_with_rounded_bundles(void **state)
{
    (void)state;
    const char *env = getenv("MT_DRAWS");
    const int draws = env ? atoi(env) : 6;
    for (size_t i = 0; i < MT_COUNT(rounded); i++) check_case(&rounded[i], draws, 500 + 1000 * (i + 1));
}

/* Rounding is another arithmetic, unless there is one bundle. */
static void rounded_bundles_are_noticed(void **state)
{
    (void)state;
    for (int64_t bundles = 1; bundles <= 2; bundles++) {
        rig r;
        machine all[1];
        script s[2] = { { .seed = 2, .h = hyper }, { .seed = 2, .h = hyper } };
        machine_case c = rounded[1];
        uint64_t hash[2];
        c.bundles = bundles;
        open_case(&r, &c);
        for (int i = 0; i < 2; i++) {
            c.reduce_bf16 = i;
            const mt_arithmetic a = arithmetic_of(&r, &c);
            hash[i] = mt_arithmetic_hash(&a);
            run_case(&r, &c, 1, &s[i], all);
            assert_string_equal(all[0].err.msg, "");
        }
        assert_int_equal(s[0].out[0].checksum == s[1].out[0].checksum, bundles == 1);
        assert_int_equal(hash[0] == hash[1], bundles == 1);
        rig_close(&r);
    }
}

static void the_number_of_machines_changes_no_bit(void **state)
{
    (void)state;
    const char *env = getenv("MT_DRAWS");
    const int draws = env ? atoi(env) : 5;
    for (size_t i = 0; i < MT_COUNT(cases); i++) check_case(&cases[i], draws, 1000 * (i + 1));
}

/* -- steps that are not finite --------------------------------------------------------------------- */

static void a_step_that_is_not_finite_is_skipped_by_all(void **state)
{
    (void)state;
    rig r;
    machine all[MOST_MACHINES];
    script one = { .seed = 4, .h = hyper, .spoil = true };
    open_case(&r, &cases[0]);
    run_case(&r, &cases[0], 1, &one, all);
    assert_string_equal(all[0].err.msg, "");
    assert_true(!one.out[0].skipped[0] && one.out[0].skipped[1] && !one.out[0].skipped[2]);
    for (int machines = 2; machines <= 4; machines += 2) {
        script s = { .seed = 5, .h = hyper, .spoil = true };
        run_case(&r, &cases[0], machines, &s, all);
        for (int m = 0; m < machines; m++) {
            assert_string_equal(all[m].err.msg, "");
            assert_int_equal(s.out[m].checksum, one.out[0].checksum);
            assert_memory_equal(s.out[m].skipped, one.out[0].skipped, sizeof one.out[0].skipped);
        }
    }
    rig_close(&r);
}

/* Without clipping the step cannot be skipped: every machine ends, and says which rank found it. */
static void without_clipping_it_ends_all_of_them(void **state)
{
    (void)state;
    rig r;
    machine all[MOST_MACHINES];
    script s = { .seed = 6, .h = hyper, .spoil = true };
    s.h.max_grad_norm = 0;
    open_case(&r, &cases[3]);
    run_case(&r, &cases[3], 3, &s, all);
    for (int m = 0; m < 3; m++) {
        assert_int_equal(all[m].err.rc, MT_ENUMERIC);
        assert_non_null(strstr(all[m].err.msg, "the loss is not finite"));
    }
    rig_close(&r);
}

/* -- failures -------------------------------------------------------------------------------------- */

/* Whatever fails on one machine ends all of them, and each knows why. */
static void check_fault(const rig *r, const machine_case *c, mt_fault_kind kind, long n, uint64_t good, bool *delivered)
{
    machine all[MOST_MACHINES];
    const int machines = (int)c->bundles;
    script s = { .seed = 2 * (uint64_t)n, .h = hyper }; /* an even one: no stream dawdles */
    int failed = 0;
    prepare_case(r, c, machines, &s, all);
    mt_fault_arm(kind, n);
    machines_go(all, machines);
    *delivered = mt_fault_disarm();
    for (int m = 0; m < machines; m++) failed += all[m].err.rc != MT_OK;
    /* Threads that help are not needed: spread.h. */
    const bool without = !failed && (kind == MT_FAULT_ALLOC || kind == MT_FAULT_THREAD);
    if (*delivered && !failed && !without) fail_msg("%s: fault %ld of kind %d went unnoticed", c->model, n, (int)kind);
    for (int m = 0; m < machines && !failed; m++) assert_true(s.out[m].checksum == good);
    assert_true(*delivered || !failed);
}

/* Every point, or every few of them unless more is requested. */
static void every_failure_ends_all_machines(void **state)
{
    (void)state;
    static const struct {
        mt_fault_kind kind;
        long stride;
    } kinds[] = { { MT_FAULT_ALLOC, 29 }, { MT_FAULT_THREAD, 3 }, { MT_FAULT_QUEUE, 97 },
                  { MT_FAULT_COPY, 61 },  { MT_FAULT_DEVICE, 9 }, { MT_FAULT_PARCEL, 53 } };
    const machine_case *of[] = { &cases[6], &cases[7] }; /* with clipping and without */
    for (size_t i = 0; i < MT_COUNT(of); i++) {
        rig r;
        machine_case c = *of[i];
        c.bundles = 2;
        open_case(&r, &c);
        machine alone[1];
        script one = { .seed = 4, .h = hyper };
        run_case(&r, &c, 1, &one, alone);
        assert_string_equal(alone[0].err.msg, "");
        for (size_t k = 0; k < MT_COUNT(kinds); k++) {
            bool delivered = true;
            const long stride = getenv("MT_THOROUGH") ? 1 : kinds[k].stride;
            for (long n = (long)i; delivered; n += stride) check_fault(&r, &c, kinds[k].kind, n, one.out[0].checksum, &delivered);
        }
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_machines_changes_no_bit), cmocka_unit_test(so_it_is_with_rounded_bundles),
        cmocka_unit_test(rounded_bundles_are_noticed),           cmocka_unit_test(a_step_that_is_not_finite_is_skipped_by_all),
        cmocka_unit_test(without_clipping_it_ends_all_of_them),  cmocka_unit_test(every_failure_ends_all_machines)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
