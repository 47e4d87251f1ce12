/* What a plan refuses, and sizes that must agree with what the engine carves. */
#include "test.h"

#include "base/rng.h"
#include "plan/search.h"

#include "base/mem.h"
#include "model/flops.h"
#include "plan/shapes.h"
#include "schedule/plan.h"

#include <stdio.h>
#include <string.h>

static void open_model(mt_config **c, mt_model **m, int layers)
{
    mt_err err = { 0 };
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": %d, \"num_attention_heads\": 2, "
             "\"intermediate_size\": 16, "
             "\"vocab_size\": 32}",
             layers);
    assert_ok(mt_config_parse(c, text, strlen(text), "text", &err));
    assert_ok(mt_model_create(m, *c, NULL, &err));
}

/* With every unit resident the ring sets no bound, and the engine's tables of a segment have one. */
static void a_segment_longer_than_the_engine_can_redo_is_refused(void **state)
{
    (void)state;
    for (int layers = MT_MAX_SEGMENT; layers <= MT_MAX_SEGMENT + 1; layers++) {
        mt_err err = { 0 };
        mt_config *c;
        mt_model *m;
        mt_placement p;
        mt_plan *plan;
        open_model(&c, &m, layers);
        assert_ok(mt_placement_init(&p, m, &err));
        p.sweep_tokens = 8;
        mt_placement_set_slots(&p, m, 0, layers, 0);
        for (int u = 0; u < m->n_units; u++)
            p.units[u] = (mt_unit_place){ .resident = true, .home = MT_DEVICE, .site = MT_SITE_DEVICE };
        for (int l = 0; l < layers; l++) p.layers[l] = (mt_layer_place){ l ? MT_KEEP_NOTHING : MT_KEEP_INPUT, MT_DEVICE };
        const mt_job job = { .train = true, .clip = true, .step_tokens = 8, .step_docs = 1, .longest = 8 };
        const mt_arithmetic a = {
            .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8
        };
        mt_rc rc = mt_plan_create(&plan, m, &job, &a, &p, &err);
        assert_int_equal(rc, layers <= MT_MAX_SEGMENT ? MT_OK : MT_ERANGE);
        if (rc) assert_says("recomputed from one kept input");
        mt_plan_free(plan);
        mt_placement_free(&p);
        mt_model_free(m);
        mt_config_close(c);
    }
}

/* What is on its way between the device and a caller passes through pieces of at most 1 MiB, of a small model the largest unit. */
static void bounce_buffers_are_no_larger_than_the_largest_unit(void **state)
{
    (void)state;
    for (int large = 0; large <= 1; large++) {
        mt_err err = { 0 };
        mt_config *c;
        mt_model *m;
        mt_plan *plan;
        char text[512];
        size_t largest = 0, bounce = 0;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
                 "\"intermediate_size\": %d, \"vocab_size\": 320}",
                 large ? 8192 : 192);
        assert_ok(mt_config_parse(&c, text, strlen(text), "text", &err));
        assert_ok(mt_model_create(&m, c, NULL, &err));
        const mt_job job = { .train = true, .clip = true, .step_tokens = 8, .step_docs = 1, .longest = 8 };
        const mt_arithmetic a = {
            .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8
        };
        assert_ok(mt_plan_choose(&plan, m, &job, &a, 0, &err));
        for (int u = 0; u < m->n_units; u++)
            if ((size_t)m->units[u].layout->n_elems > largest) largest = (size_t)m->units[u].layout->n_elems;
        for (size_t i = 0; i < plan->n_buffers; i++)
            if (plan->buffers[i].kind == MT_BUF_BOUNCE) bounce = plan->buffers[i].bytes;
        assert_true(bounce == mt_plan_bounce_bytes(plan) && bounce % 4096 == 0);
        assert_true(large ? bounce == MT_BOUNCE_BYTES : bounce >= largest * sizeof(float) && bounce < MT_BOUNCE_BYTES / 2);
        mt_plan_free(plan);
        mt_model_free(m);
        mt_config_close(c);
    }
}

/* An odd number of rows and heads: the row sums of attention come first and must not push what follows off its alignment. */
static void kept_arrays_have_room_to_be_aligned(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    const char *text = "{\"model_type\": \"llama\", \"hidden_size\": 48, \"num_hidden_layers\": 1, \"num_attention_heads\": 3, "
                       "\"intermediate_size\": 16, \"vocab_size\": 32}";
    assert_ok(mt_config_parse(&c, text, strlen(text), "text", &err));
    assert_ok(mt_model_create(&m, c, NULL, &err));
    const mt_layer_kind *k = mt_layer_kind_of(m, 0);
    const int64_t rows = 7;
    const size_t widths[] = { 3 * 4, 48 * 2, 3 * 48 * 2, 48 * 2, 48 * 2, 2 * 16 * 2 }; /* lse, x, qkv, attn, xmid, gate and up */
    size_t need = 0;
    for (size_t i = 0; i < MT_COUNT(widths); i++) need = mt_round_up(need, MT_ARRAY_ALIGN) + (size_t)rows * widths[i];
    assert_true(mt_kept_bytes(k, MT_DTYPE_BF16, MT_KEEP_ALL, rows) >= need);
    const size_t cheap[] = { 4, 48 * 2, 4, 48 * 2, 16 * 2 }; /* 1/rms and norm, twice; act */
    for (size_t i = 0; i < MT_COUNT(cheap); i++) need = mt_round_up(need, MT_ARRAY_ALIGN) + (size_t)rows * cheap[i];
    assert_true(mt_kept_bytes(k, MT_DTYPE_BF16, MT_KEEP_ACT, rows) >= need);
    assert_int_equal(mt_kept_bytes(k, MT_DTYPE_BF16, MT_KEEP_NOTHING, rows), 0);
    mt_model_free(m);
    mt_config_close(c);
}

/* A pair of slots for the stream that copies weights from mapped files to a GPU. */
static void a_gpu_s_copies_of_mapped_files_are_counted(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    mt_plan *plan;
    const mt_job jobs[] = { { .step_tokens = 64, .step_docs = 1, .longest = 64, .mapped = true },
                            { .train = true, .step_tokens = 64, .step_docs = 1, .longest = 64 } };
    const size_t slots[] = { MT_DEVICE_SLOTS_BYTES, 0 };
    const mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 64, .mlp_rows = 64, .head_rows = 64
    };
    mt_machine gpu = mt_machine_typical(), cpu = gpu;
    cpu.shared = true;
    open_model(&c, &m, 2);
    for (size_t i = 0; i < MT_COUNT(jobs); i++) {
        assert_ok(mt_plan_search(&plan, (mt_plan_inputs){ m, &jobs[i], &a, &gpu }, &err));
        assert_int_equal(mt_plan_base_host(plan, &gpu) - mt_plan_base_host(plan, &cpu), slots[i]);
        mt_plan_free(plan);
    }
    mt_model_free(m);
    mt_config_close(c);
}

/* -- limits ---------------------------------------------------------------------------------------- */

static const mt_job long_job = { .train = true, .clip = true, .step_tokens = 4096, .step_docs = 64, .longest = 64 };

static mt_rc search(mt_plan **plan, const mt_model *m, const mt_limits *limits, size_t device_bytes, const mt_job *job,
                    mt_err *err)
{
    const mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 64, .mlp_rows = 64, .head_rows = 64
    };
    mt_machine machine = mt_machine_typical();
    machine.device_bytes = device_bytes;
    machine.limits = *limits;
    return mt_plan_search(plan, (mt_plan_inputs){ m, job, &a, &machine }, err);
}

static void more_than_the_interval_is_kept_when_it_fits(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    mt_plan *plan;
    char text[256];
    const mt_limits limits = { .interval = 4 };
    open_model(&c, &m, 8);
    assert_ok(search(&plan, m, &limits, SIZE_MAX, &long_job, &err));
    for (int l = 0; l < 8; l++) assert_int_equal(plan->place.layers[l].keep, MT_KEEP_ACT);
    mt_plan_describe_kept(plan, &limits, text, sizeof text);
    assert_string_equal(text, "every layer keeps everything, more than checkpoint_interval 4 requires, because it fits");
    mt_plan_free(plan);
    mt_model_free(m);
    mt_config_close(c);
}

/* Memory for everything expensive to recompute, and for some norms and activations: norms first, which gain more for their
 * bytes. */
static void what_is_left_keeps_norms_then_activations(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    mt_plan *plan, *whole;
    char text[256];
    /* No larger one could be as good. */
    const mt_job one_sweep = { .train = true, .clip = true, .step_tokens = 1024, .step_docs = 16, .longest = 64 };
    open_model(&c, &m, 8);
    assert_ok(search(&whole, m, &(mt_limits){ 0 }, SIZE_MAX, &one_sweep, &err));
    int64_t rows = whole->place.sweep_tokens;
    const mt_layer_kind *k = mt_layer_kind_of(m, 0);
    size_t all = mt_kept_bytes(k, MT_DTYPE_BF16, MT_KEEP_ALL, rows),
           norms = mt_kept_bytes(k, MT_DTYPE_BF16, MT_KEEP_NORMS, rows) - all;
    size_t act = mt_kept_bytes(k, MT_DTYPE_BF16, MT_KEEP_ACT, rows) - all - norms,
           least = whole->device_bytes - 8 * (norms + act);
    const struct {
        size_t room;
        int norms, acts;
        const char *said;
    } cases[] = { { 0, 0, 0, "every layer keeps all except norms and activations" },
                  { 3 * norms, 3, 0, "layers keep: 3 all except activations, 5 all except norms and activations" },
                  { 8 * norms, 8, 0, "every layer keeps all except activations" },
                  { 8 * norms + 2 * act, 8, 2, "layers keep: 2 everything, 6 all except activations" },
                  { 8 * norms + 8 * act, 8, 8, "every layer keeps everything" } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        /* Each block is rounded up. */
        assert_ok(search(&plan, m, &(mt_limits){ 0 }, least + cases[i].room + 8 * MT_DEVICE_ALIGN, &one_sweep, &err));
        /* Nothing else made room. */
        assert_memory_equal(plan->place.units, whole->place.units, (size_t)m->n_units * sizeof *plan->place.units);
        assert_int_equal(plan->place.sweep_tokens, rows);
        for (int l = 0; l < 8; l++)
            assert_int_equal(plan->place.layers[l].keep, l < cases[i].acts    ? MT_KEEP_ACT
                                                         : l < cases[i].norms ? MT_KEEP_NORMS
                                                                              : MT_KEEP_ALL);
        mt_plan_describe_kept(plan, &(mt_limits){ 0 }, text, sizeof text);
        assert_string_equal(text, cases[i].said);
        mt_plan_free(plan);
    }
    mt_plan_free(whole);
    mt_model_free(m);
    mt_config_close(c);
}

static void a_strict_interval_is_held_exactly(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    mt_plan *plan;
    char text[256];
    const mt_limits limits = { .interval = 3, .exact = true };
    open_model(&c, &m, 8);
    assert_ok(search(&plan, m, &limits, SIZE_MAX, &long_job, &err));
    for (int l = 0; l < 8; l++) assert_int_equal(plan->place.layers[l].keep, l % 3 ? MT_KEEP_NOTHING : MT_KEEP_INPUT);
    mt_plan_describe_kept(plan, &limits, text, sizeof text);
    assert_string_equal(text, "one in 3 layers keeps its input, as set by checkpoint_interval 3 (strict_checkpointing)");
    mt_plan_free(plan);
    assert_int_equal(search(&plan, m, &limits, 4096, &long_job, &err), MT_ENOMEM);
    assert_says("strict_checkpointing");
    mt_model_free(m);
    mt_config_close(c);
    open_model(&c, &m, MT_MAX_SEGMENT + 1);
    assert_int_equal(search(&plan, m, &(mt_limits){ .interval = 1000, .exact = true }, SIZE_MAX, &long_job, &err), MT_ERANGE);
    assert_says("checkpoint_interval 1000");
    mt_model_free(m);
    mt_config_close(c);
}

/* One sweep (host accumulators cost extra memory) on a device too small for every input: with a longer interval it works. */
static size_t least_device(const mt_model *m, const mt_limits *limits)
{
    mt_err err = { 0 };
    size_t lo = 0, hi = (size_t)1 << 30;
    const mt_job job = { .train = true, .clip = true, .step_tokens = 64, .step_docs = 1, .longest = 64 };
    while (hi - lo > 64) {
        mt_plan *plan;
        size_t mid = lo + (hi - lo) / 2;
        mt_rc rc = search(&plan, m, limits, mid, &job, &err);
        if (!rc) mt_plan_free(plan);
        *(rc ? &lo : &hi) = mid;
    }
    return hi;
}

static void a_longer_interval_needs_less_device_memory(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    mt_plan *plan;
    open_model(&c, &m, 48);
    size_t each = least_device(m, &(mt_limits){ .interval = 1, .offload = MT_MUST_NOT });
    const mt_limits four = { .interval = 4, .offload = MT_MUST_NOT };
    size_t fourth = least_device(m, &four);
    assert_true(fourth < each);
    assert_ok(search(&plan, m, &four, fourth,
                     &(mt_job){ .train = true, .clip = true, .step_tokens = 64, .step_docs = 1, .longest = 64 }, &err));
    assert_true(plan->longest_segment > 1 && plan->longest_segment <= 4);
    mt_plan_free(plan);
    mt_model_free(m);
    mt_config_close(c);
}

/* How many micro-batches of at most `most` rows documents fall into when each takes what it can. */
static int64_t fewest_micros(const int32_t *starts, int64_t n_docs, int64_t most)
{
    int64_t n = 0;
    for (int64_t d = 0, from = 0; d < n_docs; d++)
        if (n == 0 || starts[d + 1] - starts[from] > most) n++, from = d;
    return n;
}

static void micro_batches_are_few_and_of_equal_size(void **state)
{
    (void)state;
    int32_t starts[129] = { 0 };
    mt_cut cuts[128];
    for (int d = 0; d < 128; d++) starts[d + 1] = starts[d] + 1024;
    assert_int_equal(mt_cut_micro(cuts, starts, 128, 22528), 6);
    for (int i = 0; i < 6; i++) assert_true(cuts[i].n_docs == 21 || cuts[i].n_docs == 22); /* not five of 22 and one of 18 */
    for (uint64_t seed = 0; seed < 200; seed++) {
        int n_docs = 1 + (int)mt_rng_below(seed, 0, 0, 128);
        int64_t most = 10 + (int64_t)mt_rng_below(seed, 0, 1, 200), doc = 0;
        for (int d = 0; d < n_docs; d++) starts[d + 1] = starts[d] + 1 + (int32_t)mt_rng_below(seed, 1, (uint64_t)d, 40);
        int64_t n = mt_cut_micro(cuts, starts, n_docs, most);
        assert_int_equal(n, fewest_micros(starts, n_docs, most));
        for (int64_t i = 0; i < n; doc += cuts[i++].n_docs) {
            assert_true(cuts[i].first_doc == doc && cuts[i].n_docs >= 1 && cuts[i].first_row == starts[doc]);
            assert_int_equal(cuts[i].n_rows, starts[doc + cuts[i].n_docs] - starts[doc]);
            assert_true(cuts[i].n_rows <= most || cuts[i].n_docs == 1);
        }
        assert_int_equal(doc, n_docs);
    }
}

/* Sweeps of n micro-batches of these rows, at most `most` rows each, as sizes in rows. */
static int sweeps_of(const int64_t *rows, int n, int64_t most, int64_t *sizes)
{
    mt_cut cuts[32] = { 0 };
    mt_cut_pass passes[32];
    int count = 0;
    for (int i = 0; i < n; i++)
        cuts[i] = (mt_cut){ .first_row = i ? cuts[i - 1].first_row + cuts[i - 1].n_rows : 0, .n_rows = rows[i] };
    assert_int_equal(mt_cut_passes(passes, cuts, n, 0), n); /* each micro-batch alone */
    for (int64_t first = 0, end; first < n; first = end, count++) {
        end = mt_cut_sweep(passes, n, first, most);
        assert_true(end > first && end <= n);
        sizes[count] = passes[end - 1].first_row + passes[end - 1].n_rows - passes[first].first_row;
        assert_true(sizes[count] <= most || end == first + 1);
    }
    return count;
}

/* Passes depend on the step alone, and no sweep cuts one in two. */
static void sweeps_are_made_of_whole_passes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        mt_cut cuts[64];
        mt_cut_pass passes[64];
        int64_t n = 1 + (int64_t)mt_rng_below(seed, 0, 0, 64), row = 0, micro = 0;
        int64_t most = (int64_t)mt_rng_below(seed, 0, 1, 200), sweep = most + (int64_t)mt_rng_below(seed, 0, 2, 300);
        for (int64_t i = 0; i < n; i++) {
            cuts[i] = (mt_cut){ .first_row = row, .n_rows = 1 + (int64_t)mt_rng_below(seed, 1, (uint64_t)i, 40) };
            row += cuts[i].n_rows;
        }
        int64_t n_passes = mt_cut_passes(passes, cuts, n, most), rows = 0;
        for (int64_t i = 0; i < n_passes; i++) {
            assert_true(passes[i].first == micro && passes[i].end > micro && passes[i].first_row == rows);
            assert_true(passes[i].n_rows <= most || passes[i].end == micro + 1);
            for (; micro < passes[i].end; micro++) rows += cuts[micro].n_rows;
            assert_int_equal(passes[i].first_row + passes[i].n_rows, rows);
        }
        assert_true(micro == n && rows == row);
        for (int64_t first = 0, end; first < n_passes; first = end) {
            end = mt_cut_sweep(passes, n_passes, first, sweep);
            assert_true(end > first && end <= n_passes);
        }
    }
}

static void sweeps_are_few_and_of_equal_size(void **state)
{
    (void)state;
    int64_t rows[32], sizes[32];
    for (int i = 0; i < 32; i++) rows[i] = 10;
    assert_int_equal(sweeps_of(rows, 16, 30, sizes), 6); /* 16 tens, three at a time at most: none of ten alone */
    for (int i = 0; i < 6; i++) assert_true(sizes[i] >= 20);
    assert_int_equal(sizes[5], 30); /* the last one hides the updates that begin in it */
    assert_int_equal(sweeps_of(rows, 5, 40, sizes), 2);
    assert_true(sizes[0] == 20 && sizes[1] == 30);
    assert_int_equal(sweeps_of(rows, 4, 100, sizes), 1);
    assert_int_equal(sweeps_of(rows, 3, 5, sizes), 3); /* a micro-batch is never cut */
    for (uint64_t seed = 0; seed < 200; seed++) {
        int n = 1 + (int)mt_rng_below(seed, 0, 0, 30), fewest = 0;
        int64_t most = 10 + (int64_t)mt_rng_below(seed, 0, 1, 60), room = 0;
        for (int i = 0; i < n; i++) rows[i] = 1 + (int64_t)mt_rng_below(seed, 1, (uint64_t)i, 10);
        for (int i = 0; i < n; i++) {
            if (rows[i] > room) fewest++, room = most;
            room -= rows[i];
        }
        assert_int_equal(sweeps_of(rows, n, most, sizes), fewest);
    }
}

static void slabs_and_offloading_keep_to_their_limits(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    mt_plan *plan;
    mt_job job = long_job;
    job.clip = false;
    open_model(&c, &m, 8);
    for (int n = 1; n <= 12; n += 11) {
        mt_machine machine = mt_machine_typical();
        const mt_arithmetic a = {
            .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 64, .mlp_rows = 64, .head_rows = 64
        };
        machine.home_host = true;
        machine.limits.n_slabs = n;
        assert_ok(mt_plan_search(&plan, (mt_plan_inputs){ m, &job, &a, &machine }, &err));
        assert_true(plan->place.n_slabs >= 1 && plan->place.n_slabs <= n);
        mt_plan_free(plan);
    }
    assert_ok(search(&plan, m, &(mt_limits){ .offload = MT_MUST }, SIZE_MAX, &long_job, &err));
    for (int l = 0; l < 8; l++) assert_int_equal(plan->place.layers[l].place, MT_HOST);
    mt_plan_free(plan);
    mt_model_free(m);
    mt_config_close(c);
}

/* A model that is far too large for this device to keep everything, and a host with room: the link has time for some layers,
 * spread over the step, and those are not recomputed.  Layers that share their host memory share what they keep there. */
static void what_goes_to_host_memory_is_kept_whole(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    mt_plan *plan;
    mt_machine machine = mt_machine_typical();
    const mt_job job = {
        .train = true, .clip = true, .step_tokens = 65536, .step_docs = 64, .longest = 1024, .alias_layers = true
    };
    const mt_arithmetic a = {
        .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 32768, .mlp_rows = 32768, .head_rows = 4096
    };
    machine.device_bytes = (size_t)139 << 30;
    machine.host_bytes = (size_t)100 << 30;
    machine.home_host = true;
    machine.limits.whole_units = true; /* two slots, through which not every layer's can leave in time */
    assert_ok(mt_shape_open(&c, "qwen2.5-72b", &err));
    assert_ok(mt_model_create(&m, c, NULL, &err));
    assert_ok(mt_plan_search(&plan, (mt_plan_inputs){ m, &job, &a, &machine }, &err));
    int hosts = 0, whole = 0, here = 0, longest_run = 0, run = 0, buffers = 0;
    for (int l = 0; l < c->L; l++) {
        const mt_layer_place *at = &plan->place.layers[l];
        hosts += at->place == MT_HOST;
        whole += at->place == MT_HOST && at->keep == MT_KEEP_ALL;
        here += at->place == MT_DEVICE && at->keep == MT_KEEP_ALL;
        run = at->place == MT_HOST ? run + 1 : 0;
        if (run > longest_run) longest_run = run;
    }
    for (size_t i = 0; i < plan->n_buffers; i++) buffers += plan->buffers[i].kind == MT_BUF_KEEP_HOST;
    assert_true(whole > 20 && (here == 0 || whole == hosts)); /* those in host memory first */
    assert_true(hosts < c->L && longest_run < hosts / 4);
    assert_true(buffers >= 1 && buffers <= 3); /* one a level */
    mt_plan_free(plan);
    mt_model_free(m);
    mt_config_close(c);
}

/* A small model's step in one micro-batch; where layers would have to be recomputed for that, in several. */
static void large_micro_batches_are_worth_no_redoing(void **state)
{
    (void)state;
    const struct {
        const char *shape;
        int64_t seq;
        bool whole;
    } cases[] = { { "qwen2.5-0.5b", 1024, true }, { "qwen2.5-3b", 1024, false }, { "qwen2.5-7b", 32768, false } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        mt_model *m;
        mt_plan *plan;
        mt_machine machine = mt_machine_typical();
        const mt_job job = {
            .train = true, .clip = true, .step_tokens = 65536, .step_docs = 65536 / cases[i].seq, .longest = cases[i].seq
        };
        const mt_arithmetic a = { .compute = MT_DTYPE_BF16,
                                  .grad = MT_DTYPE_BF16,
                                  .attention = mt_attention_use_typical(true, false, (size_t)139 << 30) };
        machine.device_bytes = (size_t)139 << 30;
        machine.host_bytes = (size_t)110 << 30;
        assert_ok(mt_shape_open(&c, cases[i].shape, &err));
        assert_ok(mt_model_create(&m, c, NULL, &err));
        assert_ok(mt_plan_auto(&plan, (mt_plan_inputs){ m, &job, &a, &machine }, &err));
        assert_int_equal(plan->arithmetic.micro_tokens == 65536, cases[i].whole);
        for (int l = 0; l < c->L && cases[i].whole; l++) assert_true(plan->place.layers[l].keep >= MT_KEEP_ALL);
        mt_plan_free(plan);
        mt_model_free(m);
        mt_config_close(c);
    }
}

/* D 16, 2 heads of 8, gate, up and down of 16, a head of 32 words: each weight counted by hand. */
static void flops_count_what_is_multiplied(void **state)
{
    (void)state;
    mt_config *c;
    mt_model *m;
    const int32_t docs[] = { 0, 3, 5 }; /* rows see 1 + 2 + 3 and 1 + 2 keys */
    const double layer = 4 * 16 * 16 + 3 * 16 * 16, head = 16 * 32, keys = 12.0 * 16 * (6 + 3);
    open_model(&c, &m, 3);
    assert_true(mt_flops_step(m, docs, 2, 5) == 6 * (3 * layer + head) * 5 + 3 * keys);
    assert_true(mt_flops_step(m, docs, 2, 1) == 6 * (3 * layer * 5 + head) + 3 * keys);
    mt_model_free(m);
    mt_config_close(c);
}

/* Runs store this hash: a choice that is added later must not change the hash of runs that did not have it. */
static void an_arithmetic_keeps_its_hash(void **state)
{
    (void)state;
    mt_arithmetic a = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8 };
    assert_true(mt_arithmetic_hash(&a) == 0x8c28256b9ecee1a7);
    a.moments = MT_MOMENTS_8BIT;
    a.unit_experts = 4, a.moe_tokens = 16;
    a.bundles = a.shares = 2;
    a.reduce_bf16 = true;
    assert_true(mt_arithmetic_hash(&a) == 0xc96108f644f4690f);
}

/* Bytes and times follow the optimizer's arrays, and an arithmetic with AdamW has another hash than with Lion. */
static void an_optimizer_with_one_array_takes_less(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    size_t bytes[MT_OPTIMIZERS] = { 0 };
    double seconds[MT_OPTIMIZERS];
    uint64_t hashes[MT_OPTIMIZERS];
    int64_t n = 0;
    open_model(&c, &m, 8);
    for (int u = 0; u < m->n_units; u++) n += m->units[u].layout->n_train;
    for (mt_optimizer_kind kind = 0; kind < MT_OPTIMIZERS; kind++) {
        const mt_job job = { .train = true, .clip = true, .step_tokens = 8, .step_docs = 1, .longest = 8 };
        const mt_arithmetic a = {
            .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .optimizer = kind, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8
        };
        const mt_state_form form = mt_arithmetic_form(&a);
        const mt_machine machine = mt_machine_typical();
        mt_plan *plan;
        assert_ok(mt_plan_choose(&plan, m, &job, &a, 0, &err));
        for (size_t i = 0; i < plan->n_buffers; i++)
            if (plan->buffers[i].kind == MT_BUF_ARRAY) bytes[kind] += plan->buffers[i].bytes;
        assert_int_equal(mt_plan_number_bytes(plan, MT_PIECE_PARTS), kind == MT_OPTIMIZER_LION ? 10 : 14);
        seconds[kind] = 1 / mt_machine_update_rate(&machine, form);
        assert_true(mt_machine_update_bytes(form) == (kind == MT_OPTIMIZER_LION ? 18 : 26));
        hashes[kind] = mt_arithmetic_hash(&a);
        mt_plan_free(plan);
    }
    assert_true(bytes[MT_OPTIMIZER_ADAMW] == 2 * bytes[MT_OPTIMIZER_LION] && bytes[MT_OPTIMIZER_LION] >= 4 * (size_t)n);
    assert_true(seconds[MT_OPTIMIZER_LION] < seconds[MT_OPTIMIZER_ADAMW]);
    assert_true(hashes[MT_OPTIMIZER_LION] != hashes[MT_OPTIMIZER_ADAMW]);
    mt_model_free(m);
    mt_config_close(c);
}

MT_TEST_MAIN(cmocka_unit_test(a_segment_longer_than_the_engine_can_redo_is_refused),
             cmocka_unit_test(bounce_buffers_are_no_larger_than_the_largest_unit),
             cmocka_unit_test(kept_arrays_have_room_to_be_aligned), cmocka_unit_test(a_gpu_s_copies_of_mapped_files_are_counted),
             cmocka_unit_test(more_than_the_interval_is_kept_when_it_fits),
             cmocka_unit_test(what_is_left_keeps_norms_then_activations), cmocka_unit_test(a_strict_interval_is_held_exactly),
             cmocka_unit_test(a_longer_interval_needs_less_device_memory),
             cmocka_unit_test(micro_batches_are_few_and_of_equal_size), cmocka_unit_test(sweeps_are_few_and_of_equal_size),
             cmocka_unit_test(sweeps_are_made_of_whole_passes), cmocka_unit_test(slabs_and_offloading_keep_to_their_limits),
             cmocka_unit_test(what_goes_to_host_memory_is_kept_whole), cmocka_unit_test(large_micro_batches_are_worth_no_redoing),
             cmocka_unit_test(flops_count_what_is_multiplied), cmocka_unit_test(an_optimizer_with_one_array_takes_less),
             cmocka_unit_test(an_arithmetic_keeps_its_hash))
