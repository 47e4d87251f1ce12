/* A whole model on the GPU in bf16, by each implementation of attention, against the CPU in fp32; and, where repeatable is
 * promised, against itself.  The tiny golden models have heads too narrow for cuDNN, so these are their own: two layers with
 * heads of 64, 128 and 256. */
#include "rig.h"

#include "base/rng.h"
#include "plan/search.h"

#include <math.h>

enum {
    PLAIN = 1 << MT_ATTENTION_PLAIN,
    FLASH = 1 << MT_ATTENTION_FLASH,
    CUDNN = 1 << MT_ATTENTION_CUDNN,
    FAST = 1 << MT_ATTENTION_CUDNN_FAST
};

static const char *const configs[] = {
    "{\"model_type\": \"qwen3\", \"architectures\": [\"Qwen3ForCausalLM\"], \"hidden_size\": 256, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 2,"
    " \"head_dim\": 64, \"num_hidden_layers\": 2, \"intermediate_size\": 384, \"vocab_size\": 300, \"max_position_embeddings\": "
    "8192,"
    " \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}",
    "{\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], \"hidden_size\": 256, \"num_attention_heads\": "
    "4, \"num_key_value_heads\": 4,"
    " \"head_dim\": 128, \"num_hidden_layers\": 2, \"intermediate_size\": 384, \"vocab_size\": 300, \"max_position_embeddings\": "
    "8192,"
    " \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, "
    "\"sliding_window\": 200}",
    /* Scores about as large as their cap, and a window in the first layer. */
    "{\"model_type\": \"gemma2\", \"architectures\": [\"Gemma2ForCausalLM\"], \"hidden_size\": 256, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2,"
    " \"head_dim\": 256, \"num_hidden_layers\": 2, \"intermediate_size\": 384, \"vocab_size\": 300, \"max_position_embeddings\": "
    "8192,"
    " \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, \"hidden_activation\": \"gelu_pytorch_tanh\", \"tie_word_embeddings\": "
    "true, \"sliding_window\": 200,"
    " \"query_pre_attn_scalar\": 1, \"attn_logit_softcapping\": 2.0, \"final_logit_softcapping\": 30.0}",
};

static mt_device *gpu, *cpu; /* open throughout: cuDNN's kernels are compiled once for each */
static mt_attention_use has; /* what the GPU has */

enum { LONGEST = 5003 };

static const int short_docs[] = { 700, 1, 260, 33, 1024, 2, 129, 64 }, long_docs[] = { 4096, 1, LONGEST, 700 };

static void open_model_with(rig *r, const char *config, const int *lengths, size_t n_docs)
{
    mt_err err = { 0 };
    int32_t ids[LONGEST];
    *r = (rig){ 0 };
    assert_ok(mt_config_parse(&r->config, config, strlen(config), "config", &err));
    assert_ok(mt_model_create(&r->model, r->config, NULL, &err));
    for (size_t d = 0; d < n_docs; d++) {
        for (int i = 0; i < lengths[d]; i++) ids[i] = (int32_t)(mt_rng_u64(3, d, (uint64_t)i) % (uint64_t)r->config->V);
        assert_ok(mt_batch_add(&r->batch, ids, NULL, lengths[d], r->config->V, &err));
    }
}

static void open_model(rig *r, const char *config) { open_model_with(r, config, short_docs, MT_COUNT(short_docs)); }

static void close_model(rig *r)
{
    mt_batch_free(&r->batch);
    mt_model_free(r->model);
    mt_config_close(r->config);
}

static mt_arithmetic arithmetic_of(mt_dtype t, mt_attention_use use, int64_t micro)
{
    return (mt_arithmetic){
        .compute = t, .grad = MT_DTYPE_F32, .micro_tokens = micro, .mlp_rows = 4096, .head_rows = 4096, .attention = use
    };
}

/* `room`: bytes of device memory that the plan may use; 0: any. */
static void start_within(rig *r, mt_device *dev, mt_dtype t, mt_attention_use use, int64_t micro, size_t room)
{
    mt_err err = { 0 };
    mt_job job = rig_job(r, true);
    mt_arithmetic a = arithmetic_of(t, use, micro);
    assert_ok(mt_plan_choose(&r->plan, r->model, &job, &a, room, &err));
    assert_ok(mt_engine_create(&r->engine, dev, r->plan, NULL, &err));
    assert_ok(mt_engine_init(r->engine, r->model, 11, &err));
}

static void start(rig *r, mt_device *dev, mt_dtype t, mt_attention_use use, int64_t micro)
{
    start_within(r, dev, t, use, micro, 0);
}

static size_t n_trained(const rig *r)
{
    size_t n = 0;
    for (int u = 0; u < r->model->n_units; u++) n += (size_t)r->model->units[u].layout->n_train;
    return n;
}

static float *gradient(rig *r, mt_device *dev, mt_dtype t, mt_attention_use use, int64_t micro)
{
    mt_err err = { 0 };
    mt_step_result result;
    float *g = mt_calloc(n_trained(r), sizeof *g), *at = g;
    assert_non_null(g);
    start(r, dev, t, use, micro);
    assert_ok(mt_engine_gradients(r->engine, &r->batch, &result, &err));
    for (int u = 0; u < r->model->n_units; at += r->model->units[u].layout->n_train, u++)
        assert_ok(mt_engine_read_grad(r->engine, u, at, &err));
    rig_stop(r);
    return g;
}

static double distance(const float *a, const float *b, size_t n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]), size += (double)b[i] * b[i];
    return sqrt(error / size);
}

static void every_way_is_as_near_the_cpu(void **state)
{
    (void)state;
    static const struct {
        uint32_t ways;
        uint64_t workspace; /* 0: as the GPU has */
    } asks[] = { { PLAIN, 0 },         { FLASH, 0 },
                 { FLASH | CUDNN, 0 }, { FLASH | CUDNN | FAST, 0 },
                 { FLASH | FAST, 0 },  { PLAIN | CUDNN, (uint64_t)4 << 20 } }; /* the longest document's heads two at a time */
    for (size_t m = 0; m < MT_COUNT(configs); m++) {
        rig r;
        double plain = 0;
        open_model(&r, configs[m]);
        float *truth = gradient(&r, cpu, MT_DTYPE_F32, (mt_attention_use){ 0 }, r.batch.n_tokens);
        for (size_t w = 0; w < MT_COUNT(asks); w++) {
            mt_attention_use use = has;
            use.ways &= asks[w].ways;
            if (asks[w].workspace) use.workspace = asks[w].workspace, use.parts = true;
            float *g = gradient(&r, gpu, MT_DTYPE_BF16, use, r.batch.n_tokens);
            double d = distance(g, truth, n_trained(&r));
            printf("    model %zu, ways %x, workspace %llu: gradients %.2e from the CPU's\n", m, use.ways,
                   (unsigned long long)use.workspace, d);
            if (w == 0) plain = d;
            assert_true(d > 1e-5 && d < 0.05 && d < 1.1 * plain);
            mt_free(g);
        }
        mt_free(truth);
        close_model(&r);
    }
}

static uint64_t checksum_after(rig *r, int n_steps)
{
    const mt_hyper h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .max_grad_norm = 1.0 };
    mt_err err = { 0 };
    uint64_t sum;
    for (int i = 0; i < n_steps; i++) {
        mt_step_result result;
        assert_ok(mt_engine_step(r->engine, &r->batch, &h, &result, &err));
        assert_true(isfinite(result.loss));
    }
    assert_ok(mt_engine_checksum(r->engine, &sum, &err));
    return sum;
}

/* Five steps whose micro-batches differ in documents and lengths, twice: the same bits. */
static uint64_t checksum_of_steps(const char *config, mt_attention_use use)
{
    rig r;
    open_model(&r, config);
    start(&r, gpu, MT_DTYPE_BF16, use, 1100);
    uint64_t sum = checksum_after(&r, 5);
    rig_stop(&r);
    close_model(&r);
    return sum;
}

static void what_is_called_repeatable_is(void **state)
{
    (void)state;
    mt_attention_use use = has;
    use.ways &= ~(uint32_t)FAST;
    for (size_t m = 0; m < MT_COUNT(configs); m++) {
        uint64_t first = checksum_of_steps(configs[m], use);
        for (int i = 0; i < 3; i++) assert_true(checksum_of_steps(configs[m], use) == first);
        mt_attention_use ours = use;
        ours.ways &= ~(uint32_t)CUDNN;
        if (use.ways & CUDNN) assert_true(checksum_of_steps(configs[m], ours) != first); /* it really was another way */
    }
}

/* The least device memory that long documents can be planned for, to a sixteenth. */
static size_t least_memory(const rig *r, mt_attention_use use)
{
    mt_job job = rig_job(r, true);
    mt_arithmetic a = arithmetic_of(MT_DTYPE_BF16, use, LONGEST);
    size_t lo = 0, hi = (size_t)64 << 30;
    while (hi - lo > hi / 16) {
        mt_err err = { 0 };
        size_t mid = lo + (hi - lo) / 2;
        mt_plan *plan = NULL;
        *(mt_plan_choose(&plan, r->model, &job, &a, mid, &err) ? &lo : &hi) = mid;
        mt_plan_free(plan);
    }
    return hi;
}

/* Whole steps over documents of 4096 rows and more, again and again, every other time in as little memory as a plan can be made
 * for: races that short documents hide, and work that is recomputed instead of kept. */
static void long_steps_repeat_their_bits(void **state)
{
    (void)state;
    enum { REPEATS = 20, STEPS = 2, WHOLE = 0, OURS, BY_HEADS, HOWS };
    for (size_t m = 0; m < MT_COUNT(configs); m++)
        for (int how = 0; how < HOWS; how++) {
            rig r;
            uint64_t first = 0;
            mt_attention_use use = has;
            use.ways &= how == OURS ? PLAIN | FLASH : ~(uint32_t)FAST;
            if (how == BY_HEADS && m) continue; /* cuDNN has no windows */
            /* Heads of the longest documents one at a time. */
            if (how == BY_HEADS) use.ways &= ~(uint32_t)FLASH, use.workspace = (uint64_t)64 << 20, use.parts = true;
            open_model_with(&r, configs[m], long_docs, MT_COUNT(long_docs));
            size_t least = least_memory(&r, use);
            for (int i = 0; i < REPEATS; i++) {
                start_within(&r, gpu, MT_DTYPE_BF16, use, LONGEST, i % 2 ? least : 0);
                uint64_t sum = checksum_after(&r, STEPS);
                rig_stop(&r);
                if (i == 0) first = sum;
                if (sum != first) fail_msg("model %zu, ways %x: run %d differs from the first", m, use.ways, i);
            }
            close_model(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_way_is_as_near_the_cpu),
                                        cmocka_unit_test(what_is_called_repeatable_is),
                                        cmocka_unit_test(long_steps_repeat_their_bits) };
    mt_err err = { 0 };
    if (mt_device_open(&gpu, "cuda", NULL, &err)) {
        printf("skipped: %s\n", err.msg);
        return RIG_SKIPPED;
    }
    if (mt_device_open(&cpu, "cpu", NULL, &err)) return 1;
    has = mt_attention_use_of(gpu, false, false, (size_t)64 << 30); /* a workspace that holds the squares of long documents */
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    mt_device_close(gpu);
    mt_device_close(cpu);
    return n_failed;
}
