/* The planner's promises for machines that are not here: what fits, how fast it is said to be, what is advised. */
#include "published.h"

#include "plan/advise.h"
#include "plan/merge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const mt_arithmetic bf16 = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16 };

static mt_question question(const subject *s, mt_machine m, bool clip, int64_t seq, int64_t batch)
{
    return (mt_question){ .model = s->model, .machine = m, .form = bf16, .clip = clip, .seq_len = seq, .batch = batch };
}

static mt_rc plan_of(mt_plan **out, const mt_question *q, mt_err *err)
{
    const mt_job job = mt_question_job(q, q->batch);
    return mt_plan_auto(out, (mt_plan_inputs){ q->model, &job, &q->form, &q->machine }, err);
}

/* -- seed numbers ---------------------------------------------------------------------------------- */

/* All state in host memory: 12 bytes a parameter, and with clipping 14 of those whose gradients wait there for the norm. */
static void a_32b_takes_twelve_or_fourteen_bytes_a_parameter(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-32b");
    for (int clip = 0; clip <= 1; clip++) {
        mt_question q = question(&s, machine("h200", 1e12, 32), clip, 1024, 64);
        mt_plan *plan;
        double state_bytes = 0, parked = 0;
        q.machine.home_host = true;
        assert_ok(plan_of(&plan, &q, &err));
        for (size_t i = 0; i < plan->n_buffers; i++) {
            const mt_buffer *b = &plan->buffers[i];
            bool counts = b->kind <= MT_BUF_PARKED; /* hi, lo, m, v, parked gradients */
            if (counts && b->place == MT_HOST) state_bytes += (double)b->bytes;
        }
        for (int u = 0; u < s.model->n_units; u++)
            parked += clip && plan->place.units[u].site == MT_SITE_HOST ? (double)s.model->units[u].layout->n_train : 0;
        assert_true(fabs(state_bytes / (12.0 * (double)s.model->n_params + 2 * parked) - 1) < 1e-3);
        if (clip) assert_true(parked > 0.5 * (double)s.model->n_params); /* few are staged */
        mt_plan_free(plan);
    }
    close_shape(&s);
}

static void a_120b_fits_one_h200_and_1500_gb_without_clipping(void **state)
{
    (void)state;
    mt_err err = { 0 };
    if (!test_tries(0, 32)) return; /* dozens of plans of a large model, made by code that smaller ones run too */
    subject s = open_shape("gpt-oss-120b");
    mt_question q = question(&s, machine("h200", 1.5e12, 64), false, 1024, 64);
    mt_plan *plan;
    q.machine.home_host = true;
    assert_ok(plan_of(&plan, &q, &err));
    assert_true(plan->host_bytes < 1.5e12);
    mt_plan_free(plan);
    q.clip = true;
    assert_int_equal(plan_of(&plan, &q, &err), MT_ENOMEM); /* 14 bytes do not */
    mt_remedy r[MT_REMEDIES];
    int n;
    assert_ok(mt_advise_remedies(r, &n, &q, NULL, &err));
    bool clipping = false;
    for (int i = 0; i < n; i++) clipping |= strstr(r[i].change, "max_grad_norm: 0") != NULL;
    assert_true(clipping);
    close_shape(&s);
}

static void a_7b_fits_an_rtx4090_beside_128_gb(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-7b");
    mt_question q = question(&s, machine("rtx4090", 128e9, 16), true, 1024, 32);
    mt_plan *plan;
    mt_batch_advice advice;
    assert_ok(plan_of(&plan, &q, &err));
    assert_true(plan->device_bytes <= q.machine.device_bytes && plan->host_bytes <= q.machine.host_bytes);
    mt_plan_free(plan);
    assert_ok(mt_advise_batch(&advice, &q, &err));
    assert_true(advice.recommended >= 16 && advice.recommended <= 256);
    assert_true(advice.safe <= advice.largest && advice.recommended <= advice.largest);
    q.batch = advice.recommended;
    assert_ok(plan_of(&plan, &q, &err)); /* what is recommended fits */
    mt_plan_free(plan);
    close_shape(&s);
}

static void a_70b_on_256_gb_does_not_fit_and_is_told_what_would(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("llama-3.1-70b");
    mt_question q = question(&s, machine("h100", 256e9, 32), true, 1024, 32);
    mt_plan *plan;
    mt_remedy r[MT_REMEDIES];
    int n;
    assert_int_equal(plan_of(&plan, &q, &err), MT_ENOMEM);
    assert_says("of host memory");
    assert_ok(mt_advise_remedies(r, &n, &q, NULL, &err));
    assert_true(n >= 1);
    assert_non_null(strstr(r[n - 1].change, "of RAM free"));
    /* And that is true: with so much and a hundredth more it fits, with a twentieth less it does not. */
    mt_need need;
    assert_ok(mt_advise_need(&need, &q, &err));
    q.machine.host_bytes = need.host + need.host / 100;
    assert_ok(plan_of(&plan, &q, &err));
    mt_plan_free(plan);
    q.machine.host_bytes = need.host / 20 * 19;
    assert_int_equal(plan_of(&plan, &q, &err), MT_ENOMEM);
    close_shape(&s);
}

/* 32.8 G parameters beside 300 GB: 14, 12 and 10 bytes are too many, 8 are not. */
static void a_32b_fits_300_gb_with_smaller_moments(void **state)
{
    (void)state;
    static const char *const changes[] = { "max_grad_norm: 0, adam_state: bf16", "adam_state: 8bit" };
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-32b");
    mt_question q = question(&s, machine("h100", 300e9, 32), true, 1024, 64);
    mt_plan *plan;
    mt_remedy r[MT_REMEDIES];
    int n, found = 0;
    q.machine.home_host = true;
    assert_int_equal(plan_of(&plan, &q, &err), MT_ENOMEM);
    assert_says("14 bytes a parameter");
    assert_says("max_grad_norm: 0, which saves 2");
    assert_says("adam_state: bf16 or 8bit, which save 4 and 6");
    assert_ok(mt_advise_remedies(r, &n, &q, NULL, &err));
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < MT_COUNT(changes); k++) found += strcmp(r[i].change, changes[k]) == 0;
    assert_int_equal(found, 2);
    q.form.grad = MT_DTYPE_F32; /* and what is saved is what is taken */
    q.form.moments = MT_MOMENTS_BF16;
    assert_int_equal(plan_of(&plan, &q, &err), MT_ENOMEM);
    assert_says("12 bytes a parameter");
    assert_says("grad_dtype: bfloat16, which saves 2");
    assert_says("max_grad_norm: 0, which saves 4");
    assert_says("adam_state: 8bit, which saves 2");
    q.form.grad = MT_DTYPE_BF16;
    q.form.moments = MT_MOMENTS_8BIT; /* and that is true */
    assert_ok(plan_of(&plan, &q, &err));
    mt_plan_free(plan);
    close_shape(&s);
}

/* -- fine steps ------------------------------------------------------------------------------------ */

/* 14.8 G parameters of 14 bytes are 207 GB: part of them must live on the GPU, and not much more than must. */
static void a_14b_shares_its_state_between_110_gb_and_the_gpu(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-14b");
    mt_question q = question(&s, machine("h200", 110e9, 16), true, 1024, 64);
    mt_plan *plan;
    assert_ok(plan_of(&plan, &q, &err));
    int homes = 0;
    for (int u = 0; u < s.model->n_units; u++) homes += plan->place.units[u].home == MT_DEVICE;
    assert_true(homes > 5 && homes < 45);
    assert_true(plan->host_bytes + plan->base_host <= (size_t)110e9 && plan->device_bytes <= q.machine.device_bytes);
    mt_plan_free(plan);
    close_shape(&s);
}

static void a_7b_takes_documents_of_131072_tokens(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-7b");
    mt_plan *plan;
    for (int64_t seq = 32768; seq <= 131072; seq *= 4) {
        mt_question q = question(&s, machine("h200", 115e9, 16), true, seq, 131072 / seq);
        assert_ok(plan_of(&plan, &q, &err));
        mt_plan_free(plan);
    }
    /* On a small card kept inputs of long documents go to host memory. */
    mt_question q = question(&s, machine("rtx5090", 160e9, 16), true, 32768, 4);
    assert_ok(plan_of(&plan, &q, &err));
    mt_plan_free(plan);
    close_shape(&s);
}

/* -- time ------------------------------------------------------------------------------------------ */

/* The original's settings bound memory, not speed. */
static void an_interval_of_four_and_twelve_slabs_plan_the_same_speed(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-7b");
    for (int clip = 0; clip <= 1; clip++) {
        mt_question q = question(&s, machine("h200", 115e9, 16), clip, 1024, 128);
        mt_plan *ours, *theirs;
        assert_ok(plan_of(&ours, &q, &err));
        q.machine.limits = (mt_limits){ .interval = 4, .n_slabs = 12 };
        assert_ok(plan_of(&theirs, &q, &err));
        assert_true(fabs(theirs->predicted_seconds / ours->predicted_seconds - 1) < 0.02);
        mt_plan_free(ours);
        mt_plan_free(theirs);
    }
    close_shape(&s);
}

static void more_of_anything_is_never_slower(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-3b");
    double last = INFINITY;
    for (double gib = 10; gib <= 140; gib *= 2.4) {
        mt_question q = question(&s, machine("h200", 110e9, 16), true, 1024, 64);
        mt_plan *plan;
        q.machine.device_bytes = (size_t)(gib * 1073741824.0);
        assert_ok(plan_of(&plan, &q, &err));
        assert_true(plan->predicted_seconds < 1.02 * last);
        assert_true(plan->times.step >= 0.98 * plan->times.compute); /* nothing is faster than its parts */
        last = plan->predicted_seconds;
        mt_plan_free(plan);
    }
    close_shape(&s);
}

/* A unit's state on the device is worth several layers' kept inputs: the walk has to trade one for many. */
static void a_14b_beside_more_ram_is_not_slower(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-14b");
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        mt_question q = question(&s, machine("h200", i ? 150e9 : 84e9, 16), true, 1024, 8);
        mt_plan *plan;
        assert_ok(plan_of(&plan, &q, &err));
        seconds[i] = plan->predicted_seconds;
        mt_plan_free(plan);
    }
    close_shape(&s);
    assert_true(seconds[1] < 1.02 * seconds[0]);
}

/* -- waits ----------------------------------------------------------------------------------------- */

/* The machine's memory is what limits its updates, and copies of pieces use it as much as the cores do: measured, a step with
 * them took 4.05 s, without them 3.40. */
static void a_7b_on_22_gb_is_not_updated_in_pieces(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-7b");
    mt_question q = question(&s, machine("h200", 115e9, 16), true, 1024, 32);
    mt_plan *plan;
    q.machine.device_bytes = (size_t)22e9;
    assert_ok(plan_of(&plan, &q, &err));
    assert_false(plan->has_pieces);
    mt_plan_free(plan);
    close_shape(&s);
}

/* All that its layers keep leaves through three slots; two would make them wait.  With moments of 8 bits the cores limit updates,
 * so pieces help, too. */
static void a_123b_keeps_everything_through_a_third_slot(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("mistral-large-2407");
    mt_question q = question(&s, machine("h200", 115e9, 16), true, 1024, 64);
    double seconds[2];
    q.form.moments = MT_MOMENTS_8BIT;
    q.machine.home_host = true;
    for (int whole = 0; whole < 2; whole++) {
        mt_job job = mt_question_job(&q, q.batch);
        mt_plan *plan;
        job.alias_layers = true;
        q.machine.limits.whole_units = whole;
        assert_ok(mt_plan_auto(&plan, (mt_plan_inputs){ q.model, &job, &q.form, &q.machine }, &err));
        seconds[whole] = plan->predicted_seconds;
        assert_int_equal(plan->place.keep_slots, whole ? 2 : 3);
        for (int l = 0; l < s.config->L && !whole; l++) assert_true(plan->place.layers[l].keep >= MT_KEEP_ALL);
        mt_plan_free(plan);
    }
    assert_true(seconds[0] < 0.95 * seconds[1]);
    close_shape(&s);
}

/* What may be on the device need not be: a plan that may put homes there is not slower than one that may not. */
static void a_72b_with_free_homes_is_not_slower(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-72b");
    mt_question q = question(&s, machine("h200", 5e12, 16), true, 1024, 64);
    double seconds[2];
    q.form.moments = MT_MOMENTS_8BIT;
    q.machine.adam_host[MT_MOMENTS_8BIT] = 5.5e9;
    for (int host = 0; host < 2; host++) {
        mt_plan *plan;
        q.machine.home_host = host;
        assert_ok(plan_of(&plan, &q, &err));
        seconds[host] = plan->predicted_seconds;
        mt_plan_free(plan);
    }
    assert_true(seconds[0] < 1.01 * seconds[1]);
    close_shape(&s);
}

/* -- merged layers --------------------------------------------------------------------------------- */

static void merged_layers_stand_for_all_of_the_model(void **state)
{
    (void)state;
    mt_err err = { 0 };
    size_t merged = 0;
    for (size_t i = 0; i < mt_n_shapes; i++) {
        subject s = open_shape(mt_shapes[i].name);
        int most = mt_merge_how_many(s.model);
        mt_merged m;
        assert_true(most >= 1);
        if (s.model->unit_experts && most > 1) {
            const mt_unit *units;
            double layers = 0, params = 0, all = 0;
            assert_ok(mt_merged_init(&m, s.model, most, &err));
            units = m.model.units;
            for (int l = 0; l < m.config.L; l++) layers += m.stands_for[l];
            for (int u = 0; u < m.model.n_units; u++)
                params += (double)units[u].layout->n_train * (units[u].layer < 0 ? 1 : m.stands_for[units[u].layer]);
            for (int u = 0; u < s.model->n_units; u++) all += (double)s.model->units[u].layout->n_train;
            assert_true(layers == (double)s.config->L && params == all);
            assert_true(m.model.n_units < s.model->n_units);
            assert_int_equal(units[m.model.head].kind, s.model->units[s.model->head].kind);
            assert_int_equal(mt_model_lowest_layer(&m.model), 0);
            mt_merged_free(&m);
            merged++;
        }
        close_shape(&s);
    }
    assert_true(merged > 5);
}

/* The search times placements with equal layers merged, and the plan it finds in full. */
static void merged_layers_are_timed_as_all_of_them(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        double ram;
        int cores, tokens;
        mt_moments moments;
        bool clip, home_host;
        int lanes;
    } on[] = {
        { "h200", 2e12, 16, 131072, MT_MOMENTS_8BIT, true, false, 1 },
        { "h100", 12e12, 64, 131072, MT_MOMENTS_F32, false, true, 1 },
        { "rtx4090", 12e12, 16, 32768, MT_MOMENTS_BF16, true, false, 1 },
        { "rtx4090", 12e12, 64, 262144, MT_MOMENTS_8BIT, true, false, 2 }, /* several sweeps of each lane */
        { "rtx4090", 12e12, 16, 98304, MT_MOMENTS_8BIT, false, false, 2 }, /* one */
        { "h200", 12e12, 32, 524288, MT_MOMENTS_8BIT, true, false, 2 },
    };
    const bool thorough = getenv("MT_THOROUGH") != NULL;
    size_t n = 0, tried = 0, seen = 0;
    mt_err err = { 0 };
    for (size_t i = 0; i < mt_n_shapes; i++) {
        subject s = open_shape(mt_shapes[i].name);
        const bool merges = s.model->unit_experts && mt_merge_how_many(s.model) > 1;
        for (size_t k = 0; merges && k < MT_COUNT(on); k++) {
            mt_question q = question(&s, machine(on[k].gpu, on[k].ram, on[k].cores), on[k].clip, 1024, on[k].tokens / 1024);
            mt_job job = mt_question_job(&q, q.batch);
            const mt_arithmetic a = { .compute = MT_DTYPE_BF16,
                                      .grad = MT_DTYPE_BF16,
                                      .shares = on[k].lanes,
                                      .moments = on[k].moments,
                                      .micro_tokens = 8192,
                                      .mlp_rows = 8192,
                                      .head_rows = 1024 };
            mt_plan *plan;
            q.machine.home_host = on[k].home_host;
            job.lanes = on[k].lanes;
            const bool sure = job.lanes > 1 && strcmp(mt_shapes[i].name, "mixtral-8x22b-v0.1") == 0;
            if (!thorough && !sure && n++ % 5 != 0) continue; /* each takes a while */
            if (!test_tries(tried++ % 32, 32)) continue;
            mt_rc rc = mt_plan_search(&plan, (mt_plan_inputs){ s.model, &job, &a, &q.machine }, &err);
            if (rc == MT_ENOMEM) continue;
            assert_ok(rc);
            double off = plan->searched_seconds / plan->predicted_seconds - 1;
            if (fabs(off) > 0.025) fail_msg("%s on %s: %+.1f%%", mt_shapes[i].name, on[k].gpu, 100 * off);
            seen++;
            mt_plan_free(plan);
        }
        close_shape(&s);
    }
    assert_true(seen > 5 || !test_tries(0, 32));
}

/* A few percent more or less free memory must not change a run's bits. */
static void free_memory_does_not_decide_the_arithmetic(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-7b");
    uint64_t hash = 0;
    for (int i = 0; i < 4; i++) {
        mt_question q = question(&s, machine("h200", 113e9 + 0.4e9 * i, 16), true, 1024, 64);
        mt_plan *plan;
        q.machine.device_bytes -= (size_t)i << 27;
        q.machine.flops *= 1 + 0.03 * i; /* nor does what was measured */
        assert_ok(plan_of(&plan, &q, &err));
        if (i) assert_true(mt_arithmetic_hash(&plan->arithmetic) == hash);
        hash = mt_arithmetic_hash(&plan->arithmetic);
        mt_plan_free(plan);
    }
    close_shape(&s);
}

static void every_shape_answers_to_its_name(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_shape *found;
    for (size_t i = 0; i < mt_n_shapes; i++) {
        assert_ok(mt_shape_find(&found, mt_shapes[i].name, &err));
        assert_ptr_equal(found, &mt_shapes[i]);
    }
    static const struct {
        const char *asked, *name;
    } hub[] = {
        { "meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b" },
        { "meta-llama/Llama-3.1-8B", "llama-3.1-8b" },
        { "baidu/ERNIE-4.5-0.3B-PT", "ernie-4.5-0.3b" },
        { "google/gemma-3-4b-it", "gemma-3-4b" },
        { "01-ai/Yi-1.5-9B-Chat", "yi-1.5-9b" },
        { "Qwen/Qwen3-4B-Base", "qwen3-4b" },
        { "mistralai/Mistral-Nemo-Base-2407", "mistral-nemo-2407" },
        { "nvidia/Minitron-4B-Base", "minitron-4b-base" },
        { "llama3_70b", "llama-3-70b" }, /* as the files in configs/ are called */
        { "qwen2_5_7b", "qwen2.5-7b" },
        { "phi-1.5", "phi-1_5" },
    };
    for (size_t i = 0; i < MT_COUNT(hub); i++) {
        assert_ok(mt_shape_find(&found, hub[i].asked, &err));
        assert_string_equal(found->name, hub[i].name);
    }
    assert_int_equal(mt_shape_find(&found, "opt_13b", &err), MT_ENOENT); /* or opt-1.3b? */
    subject s = open_shape("starcoder2-15b");                            /* unlike its smaller kin it has a separate head */
    assert_true(fabs((double)s.model->n_params / 15.958e9 - 1) < 1e-3);
    close_shape(&s);
}

/* What is recommended, in whole batches, one at least. */
static void auto_batches_are_whole(void **state)
{
    (void)state;
    assert_int_equal(mt_advise_auto(&(mt_batch_advice){ .recommended = 5, .largest = 5 }, 1), 5);
    assert_int_equal(mt_advise_auto(&(mt_batch_advice){ .recommended = 5, .largest = 5 }, 8), 8);
    assert_int_equal(mt_advise_auto(&(mt_batch_advice){ .recommended = 64, .largest = 512 }, 4), 64);
    assert_int_equal(mt_advise_auto(&(mt_batch_advice){ .recommended = 30, .largest = 512 }, 4), 28);
    assert_int_equal(mt_advise_auto(&(mt_batch_advice){ 0 }, 3), 3);
}

static void some_mixtures_are_planned_and_not_trained(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_int_equal(mt_shape_open(&c, "ai21labs/Jamba-v0.1", &err), MT_EINVAL);
    assert_says("jamba");
    assert_int_equal(mt_shape_open(&c, "qwen2.5-8b", &err), MT_ENOENT);
    assert_says("the nearest is qwen2.5-");
    assert_ok(mt_shape_open(&c, "Qwen/Qwen2.5-7B-Instruct", &err));
    mt_config_close(c);
    subject s = open_shape("jamba-v0.1");
    assert_true(fabs((double)s.model->n_params / 51.570e9 - 1) < 1e-3);
    close_shape(&s);
}

MT_TEST_MAIN(cmocka_unit_test(a_32b_takes_twelve_or_fourteen_bytes_a_parameter),
             cmocka_unit_test(a_120b_fits_one_h200_and_1500_gb_without_clipping),
             cmocka_unit_test(a_7b_fits_an_rtx4090_beside_128_gb),
             cmocka_unit_test(a_70b_on_256_gb_does_not_fit_and_is_told_what_would),
             cmocka_unit_test(a_32b_fits_300_gb_with_smaller_moments),
             cmocka_unit_test(a_14b_shares_its_state_between_110_gb_and_the_gpu),
             cmocka_unit_test(a_7b_takes_documents_of_131072_tokens),
             cmocka_unit_test(an_interval_of_four_and_twelve_slabs_plan_the_same_speed),
             cmocka_unit_test(more_of_anything_is_never_slower), cmocka_unit_test(a_14b_beside_more_ram_is_not_slower),
             cmocka_unit_test(a_7b_on_22_gb_is_not_updated_in_pieces),
             cmocka_unit_test(a_123b_keeps_everything_through_a_third_slot),
             cmocka_unit_test(a_72b_with_free_homes_is_not_slower), cmocka_unit_test(merged_layers_stand_for_all_of_the_model),
             cmocka_unit_test(merged_layers_are_timed_as_all_of_them),
             cmocka_unit_test(free_memory_does_not_decide_the_arithmetic), cmocka_unit_test(every_shape_answers_to_its_name),
             cmocka_unit_test(auto_batches_are_whole), cmocka_unit_test(some_mixtures_are_planned_and_not_trained))
