/* Plans for several devices: what they may contain, and that their predicted times respect what no order of things can beat. */
#include "published.h"

#include "plan/advise.h"
#include "schedule/slices.h"

#include <math.h>

static mt_plan *plan_of(const subject *s, const mt_machine *m, bool clip, int64_t batch, int64_t shares, int lanes)
{
    mt_err err = { 0 };
    mt_plan *plan;
    const mt_arithmetic form = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .shares = shares };
    const mt_job job = {
        .train = true, .clip = clip, .lanes = lanes, .step_tokens = batch * 1024, .step_docs = batch, .longest = 1024
    };
    assert_ok(mt_plan_auto(&plan, (mt_plan_inputs){ s->model, &job, &form, m }, &err));
    return plan;
}

/* Everything that lanes share is in host memory, and the memory of each lane counts. */
static void several_devices_share_what_is_in_host_memory(void **state)
{
    (void)state;
    subject s = open_shape("qwen2.5-7b");
    const mt_machine m = machine("h200", 1e12, 64);
    for (int lanes = 2; lanes <= 8; lanes *= 2) {
        mt_plan *p = plan_of(&s, &m, lanes != 4, 64, 8, lanes);
        size_t host = 0, device = 0;
        for (int u = 0; u < s.model->n_units; u++) {
            assert_int_equal(p->place.units[u].home, MT_HOST);
            assert_int_equal(p->place.units[u].site, MT_SITE_HOST);
            assert_int_equal(p->place.units[u].in_pieces, 0);
        }
        for (size_t i = 0; i < p->n_buffers; i++) {
            const mt_buffer *b = &p->buffers[i];
            if (b->place == MT_DEVICE)
                device += b->bytes;
            else
                host += b->bytes * (mt_buffer_of_lane(b->kind, b->place) ? (size_t)lanes : 1);
        }
        assert_int_equal(p->device_bytes, device);
        assert_int_equal(p->host_bytes, host);
        mt_plan_free(p);
    }
    close_shape(&s);
}

/* How many devices there are decides no bit: the arithmetic is the same. */
static void the_number_of_devices_does_not_change_the_arithmetic(void **state)
{
    (void)state;
    static const char *const shapes[] = { "qwen2.5-7b", "qwen3-30b-a3b", "qwen3-0.6b" };
    const mt_machine m = machine("h200", 2e12, 64);
    for (size_t i = 0; i < MT_COUNT(shapes); i++) {
        subject s = open_shape(shapes[i]);
        mt_plan *one = plan_of(&s, &m, true, 96, 8, 1);
        for (int lanes = 2; lanes <= 8; lanes += 3) {
            mt_plan *p = plan_of(&s, &m, true, 96, 8, lanes);
            assert_true(mt_arithmetic_hash(&p->arithmetic) == mt_arithmetic_hash(&one->arithmetic));
            mt_plan_free(p);
        }
        mt_plan_free(one);
        close_shape(&s);
    }
}

/* Kernels of attention follow from the documents of a step, however many devices deal them. */
static void attention_is_chosen_from_the_whole_step(void **state)
{
    (void)state;
    subject s = open_shape("qwen2.5-7b");
    const mt_machine m = machine("h200", 1e12, 64);
    mt_attention_use first = { 0 };
    for (int lanes = 1; lanes <= 8; lanes *= 2) {
        mt_plan *p = plan_of(&s, &m, true, 64, 8, lanes);
        const mt_attention_use use = mt_plan_attention(p);
        assert_int_equal(use.docs, 64);
        assert_int_equal(use.longest, 1024);
        if (lanes == 1) first = use;
        assert_memory_equal(&use, &first, sizeof use);
        mt_plan_free(p);
    }
    close_shape(&s);
}

/* Never faster than compute, than weights over a link, than Adam, than host memory for all of them; near compute where that is by
 * far the largest, and near host memory's limit where that is. */
static void predictions_respect_what_limits_them(void **state)
{
    (void)state;
    subject s = open_shape("qwen2.5-7b");
    const double n = (double)s.model->n_params;
    for (int slow = 0; slow < 2; slow++)
        for (int lanes = 2; lanes <= 8; lanes *= 2)
            for (int64_t batch = 8 * lanes; batch <= 64 * lanes; batch *= 8) {
                mt_machine m = machine("h200", 1e12, 64);
                if (slow) m.host_bandwidth /= 8;
                mt_plan *p = plan_of(&s, &m, true, batch, lanes, lanes);
                const double weights = 2 * n / m.copy_in, adam = n / m.adam_host[MT_MOMENTS_F32],
                             memory =
                                 (lanes * (2 + 4) * n + mt_machine_update_bytes((mt_state_form){ 0 }) * n) / m.host_bandwidth,
                             floor_s = fmax(fmax(weights, adam), fmax(memory, p->times.compute));
                assert_true(p->predicted_seconds >= 0.95 * floor_s);
                if (p->times.compute > 8 * fmax(fmax(weights, adam), memory))
                    assert_true(p->predicted_seconds < 1.1 * p->times.compute);
                mt_plan_free(p);
            }
    close_shape(&s);
}

/* More devices are faster where compute limits, and never by more than their number. */
static void more_devices_are_faster_where_compute_limits(void **state)
{
    (void)state;
    subject s = open_shape("qwen2.5-7b");
    const mt_machine m = machine("h200", 1e12, 64);
    double before = 0, one = 0;
    for (int lanes = 1; lanes <= 8; lanes *= 2) {
        mt_plan *p = plan_of(&s, &m, true, 1024, 8, lanes);
        const double rate = (double)p->job.step_tokens / p->predicted_seconds;
        if (lanes == 1) one = rate;
        assert_true(rate > 1.7 * before);
        assert_true(rate < 1.05 * lanes * one);
        before = rate;
        mt_plan_free(p);
    }
    close_shape(&s);
}

/* -- devices that reach each other -- */

/* State on the devices is cut over them: nothing of it is in host memory, and all lanes together have it once. */
static void state_that_lives_on_the_devices_is_cut_over_them(void **state)
{
    (void)state;
    subject s = open_shape("qwen2.5-7b");
    mt_machine m = machine("h200", 1e12, 64);
    m.peer = 400e9;
    for (int lanes = 2; lanes <= 8; lanes *= 2) {
        mt_plan *p = plan_of(&s, &m, true, 64, 8, lanes);
        size_t moments = 0, masters = 0;
        assert_int_equal(p->place.fold, MT_FOLD_PEERS);
        for (int u = 0; u < s.model->n_units; u++) assert_true(mt_plan_is_sliced(p, u));
        for (size_t i = 0; i < p->n_buffers; i++) {
            const mt_buffer *b = &p->buffers[i];
            if (b->kind == MT_BUF_ARRAY) moments += b->bytes;
            if (b->kind == MT_BUF_HI || b->kind == MT_BUF_LO) masters += b->bytes;
            if (b->kind <= MT_BUF_ARRAY) assert_int_equal(b->place, MT_DEVICE);
        }
        const double n = (double)s.model->n_params;
        assert_true((double)moments * lanes >= 8 * n && (double)moments * lanes < 8.01 * n);
        assert_true((double)masters * lanes >= 4 * n && (double)masters * lanes < 4.01 * n);
        assert_true(p->device_bytes <= m.device_bytes);
        mt_plan_free(p);
    }
    close_shape(&s);
}

/* By peers a step is never slower than through host memory, and never faster than its copies between devices. */
static void the_faster_route_is_taken(void **state)
{
    (void)state;
    subject s = open_shape("qwen2.5-7b");
    const double n = (double)s.model->n_params;
    static const double rates[] = { 1e9, 50e9, 400e9 };
    for (int clip = 0; clip < 2; clip++)
        for (int64_t batch = 64; batch <= (clip ? 512 : 64); batch *= 8) {
            mt_machine m = machine("h200", 1e12, 64);
            mt_plan *host = plan_of(&s, &m, clip, batch, 8, 8);
            assert_int_equal(host->place.fold, MT_FOLD_HOST);
            for (size_t i = 0; i < MT_COUNT(rates); i++) {
                m.peer = rates[i];
                mt_plan *p = plan_of(&s, &m, clip, batch, 8, 8);
                assert_true(p->predicted_seconds <= 1.0001 * host->predicted_seconds);
                if (p->place.fold == MT_FOLD_PEERS) {
                    assert_true(p->times.copy_peer >= 0.99 * 4 * n * 7 / 8 / m.peer);
                    assert_true(p->predicted_seconds >= 0.99 * p->times.copy_peer);
                }
                if (rates[i] >= 400e9) assert_int_equal(p->place.fold, MT_FOLD_PEERS);
                if (rates[i] <= 1e9) assert_int_equal(p->place.fold, MT_FOLD_HOST);
                mt_plan_free(p);
            }
            mt_plan_free(host);
        }
    close_shape(&s);
}

/* State in host memory with slow links: each device fetches its slice of the weights, and has the rest from the others. */
static void weights_are_gathered_where_links_are_slow(void **state)
{
    (void)state;
    subject s = open_shape("qwen2.5-7b");
    mt_machine m = machine("h200", 1e12, 64);
    m.home_host = true;
    m.copy_in = m.copy_out = m.copy_both = 4e9;
    m.device_bytes = (size_t)24e9; /* too little for all weights to stay */
    mt_plan *host = plan_of(&s, &m, true, 64, 8, 8);
    m.peer = 400e9;
    mt_plan *p = plan_of(&s, &m, true, 64, 8, 8);
    assert_true(p->place.gather);
    assert_true(p->predicted_seconds < 0.7 * host->predicted_seconds);
    assert_true(p->times.copy_in < 0.3 * host->times.copy_in);
    mt_plan_free(host);
    mt_plan_free(p);
    close_shape(&s);
}

/* A bundle that is rounded before bundles are added is rounded in host memory. */
static void rounded_bundles_meet_in_host_memory(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen2.5-0.5b");
    mt_plan *plan;
    mt_machine m = machine("h200", 1e12, 64);
    m.peer = 400e9;
    const mt_arithmetic form = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .bundles = 2, .shares = 2, .reduce_bf16 = true
    };
    const mt_job job = { .train = true, .clip = true, .lanes = 4, .step_tokens = 16384, .step_docs = 16, .longest = 1024 };
    assert_ok(mt_plan_auto(&plan, (mt_plan_inputs){ s.model, &job, &form, &m }, &err));
    assert_int_equal(plan->place.fold, MT_FOLD_HOST);
    mt_plan_free(plan);
    close_shape(&s);
}

/* Eight devices hold what host memory cannot. */
static void slices_fit_where_host_memory_is_short(void **state)
{
    (void)state;
    subject s = open_shape("qwen2.5-7b");
    mt_machine m = machine("h200", 24e9, 64);
    const mt_arithmetic form = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .shares = 8 };
    const mt_job job = { .train = true, .clip = true, .lanes = 8, .step_tokens = 65536, .step_docs = 64, .longest = 1024 };
    assert_false(mt_plan_auto_fits((mt_plan_inputs){ s.model, &job, &form, &m }));
    m.peer = 400e9;
    assert_true(mt_plan_auto_fits((mt_plan_inputs){ s.model, &job, &form, &m }));
    mt_plan *p = plan_of(&s, &m, true, 64, 8, 8);
    assert_true(p->host_bytes < 24e9);
    mt_plan_free(p);
    close_shape(&s);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    subject s = open_shape("qwen3-0.6b");
    mt_placement p;
    mt_plan *plan;
    mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 64, .mlp_rows = 64, .head_rows = 64, .shares = 2
    };
    mt_job job = { .train = true, .clip = true, .lanes = 3, .step_tokens = 512, .step_docs = 8, .longest = 64 };
    assert_ok(mt_placement_init(&p, s.model, &err));
    p.sweep_tokens = 512;
    mt_placement_set_slots(&p, s.model, 2, 1, 1);
    for (int l = 0; l < s.config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    assert_int_equal(mt_plan_create(&plan, s.model, &job, &a, &p, &err), MT_EINVAL);
    assert_says("3 lanes for a step of 2 shares");
    job.lanes = 2;
    p.units[1] = (mt_unit_place){ .resident = true, .home = MT_DEVICE, .site = MT_SITE_DEVICE };
    assert_int_equal(mt_plan_create(&plan, s.model, &job, &a, &p, &err), MT_EINVAL);
    assert_says("unit 1 is updated neither on the host nor in slices");
    p.units[1] = (mt_unit_place){ 0 };
    a.shares = 5000;
    assert_int_equal(mt_plan_create(&plan, s.model, &job, &a, &p, &err), MT_ERANGE);
    assert_says("5000 shares");
    a.shares = 2;
    assert_ok(mt_plan_create(&plan, s.model, &job, &a, &p, &err));
    mt_plan_free(plan);
    mt_placement_free(&p);
    close_shape(&s);
}

MT_TEST_MAIN(cmocka_unit_test(several_devices_share_what_is_in_host_memory),
             cmocka_unit_test(the_number_of_devices_does_not_change_the_arithmetic),
             cmocka_unit_test(attention_is_chosen_from_the_whole_step), cmocka_unit_test(predictions_respect_what_limits_them),
             cmocka_unit_test(more_devices_are_faster_where_compute_limits),
             cmocka_unit_test(state_that_lives_on_the_devices_is_cut_over_them), cmocka_unit_test(the_faster_route_is_taken),
             cmocka_unit_test(weights_are_gathered_where_links_are_slow), cmocka_unit_test(rounded_bundles_meet_in_host_memory),
             cmocka_unit_test(slices_fit_where_host_memory_is_short), cmocka_unit_test(contradictions_are_refused))
