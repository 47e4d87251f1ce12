/* Weights are loaded by several threads, a piece at a time: every number lands where its layout says, whatever the family, the
 * home and the number of threads, and a file that cannot be read in the middle of it is an error. */
#define _GNU_SOURCE
#include "rig.h"
#include "workspace.h"

#include "base/fault.h"
#include "base/rng.h"
#include "base/split.h"
#include "ckpt/model_files.h"
#include "ckpt/safetensors_write.h"
#include "plan/search.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"

/* -- models ---------------------------------------------------------------------------------------- */

static void open_model(rig *r, const char *dir)
{
    mt_err err = { 0 };
    char notice[256];
    *r = (rig){ 0 };
    assert_ok(mt_model_files_config(&r->config, dir, &err));
    assert_ok(mt_shards_open(&r->shards, dir, &err));
    const mt_model_options o = { .unit_experts = rig_unit_experts(r->config) };
    assert_ok(mt_weights_model(&r->model, &r->config, r->shards, &o, notice, &err));
}

static float number(const char *name, int64_t i) { return mt_rng_normal(mt_hash(name, strlen(name), 1), 0, (uint64_t)i); }

static void put_tensor(mt_safetensors_writer *w, const char *name, mt_dtype t, int64_t n)
{
    enum { PART = 1 << 14 };
    mt_err err = { 0 };
    float f[PART];
    uint16_t h[PART];
    for (int64_t at = 0; at < n; at += PART) {
        int64_t some = mt_min_i64(PART, n - at);
        for (int64_t i = 0; i < some; i++) f[i] = number(name, at + i);
        if (t == MT_DTYPE_BF16) mt_from_f32(h, t, f, (size_t)some);
        assert_ok(
            mt_safetensors_writer_append(w, name, t == MT_DTYPE_BF16 ? (void *)h : f, (size_t)some * mt_dtype_bytes(t), &err));
    }
}

/* A directory with a model of this config: every tensor once, though several weights may share it. */
static void write_model(const char *dir, const char *config, mt_dtype t)
{
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    mt_safetensors_writer *w;
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(config, f);
    fclose(f);
    assert_ok(mt_config_open(&c, dir, &err));
    assert_ok(mt_model_create(&m, c, NULL, &err));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    for (int pass = 0; pass < 2; pass++) {
        for (int u = 0; u < m->n_units; u++)
            for (int k = 0; k < m->units[u].layout->n_weights; k++) {
                const mt_weight *x = &m->units[u].layout->weights[k];
                char name[MT_NAME_BYTES];
                if (!mt_weight_leads(&m->units[u], x)) continue;
                mt_weight_name(&m->units[u], x, name);
                if (pass == 0)
                    assert_ok(mt_safetensors_writer_add(w, name, t, x->slice.n_dims, x->slice.shape, &err));
                else
                    put_tensor(w, name, t, mt_slice_elems(&x->slice));
            }
        if (pass == 0) assert_ok(mt_safetensors_writer_start(w, &err));
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_model_free(m);
    mt_config_close(c);
}

/* -- loading --------------------------------------------------------------------------------------- */

/* Units live on the host, or by turns there and on the device. */
static void start(rig *r, bool by_turns)
{
    mt_err err = { 0 };
    mt_placement p;
    const mt_job job = { .train = true, .clip = true, .step_tokens = 8, .step_docs = 1, .longest = 8 };
    const mt_arithmetic a = { .compute = MT_DTYPE_F32, .grad = MT_DTYPE_BF16, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8 };
    assert_ok(mt_placement_init(&p, r->model, &err));
    p.sweep_tokens = 8;
    mt_placement_set_slots(&p, r->model, 1, 1, 1);
    p.n_slabs = 1;
    for (int l = 0; l < r->config->L; l++) p.layers[l] = (mt_layer_place){ MT_KEEP_INPUT, MT_DEVICE };
    for (int u = 0; u < r->model->n_units; u++) {
        bool there = by_turns && u % 2;
        p.units[u] = (mt_unit_place){ .site = there ? MT_SITE_DEVICE : MT_SITE_HOST,
                                      .home = there ? MT_DEVICE : MT_HOST,
                                      .resident = there };
    }
    assert_ok(mt_plan_create(&r->plan, r->model, &job, &a, &p, &err));
    mt_placement_free(&p);
    assert_ok(mt_device_open(&r->dev, rig_device(), &(mt_device_options){ .n_threads = 1 }, &err));
    assert_ok(mt_engine_create(&r->engine, r->dev, r->plan, &(mt_engine_options){ .n_workers = 1 }, &err));
}

/* As many threads as there are cores this process may use; here one. */
static mt_rc load_alone(rig *r, mt_err *err)
{
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    mt_rc rc = mt_engine_load(r->engine, r->model, r->shards, err);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    return rc;
}

static void check_weight(const rig *r, int unit, const mt_weight *w)
{
    mt_err err = { 0 };
    char name[MT_NAME_BYTES];
    uint16_t *hi = mt_malloc((size_t)w->n * 2);
    int16_t *lo = mt_malloc((size_t)w->n * 2);
    mt_weight_name(&r->model->units[unit], w, name);
    const mt_st_tensor *t = mt_shards_find(r->shards, name);
    assert_ok(mt_engine_read(r->engine, (mt_state_range){ unit, MT_STATE_HI, w->offset, w->n }, hi, &err));
    assert_ok(mt_engine_read(r->engine, (mt_state_range){ unit, MT_STATE_LO, w->offset, w->n }, lo, &err));
    for (int64_t i = 0; i < w->n; i++) {
        int64_t run, at = mt_weight_place(w, i, &run);
        float x;
        mt_st_read(t, (size_t)at, 1, &x);
        if (mt_f32_bits(mt_join(hi[i], lo[i])) != mt_f32_bits(x))
            fail_msg("%s: \"%s\", number %lld is not number %lld of the tensor", r->config->model_type, name, (long long)i,
                     (long long)at);
    }
    mt_free(hi);
    mt_free(lo);
}

static void check_all(const rig *r)
{
    for (int u = 0; u < r->model->n_units; u++)
        for (int k = 0; k < r->model->units[u].layout->n_weights; k++) check_weight(r, u, &r->model->units[u].layout->weights[k]);
}

/* However it is loaded, all of it is the same. */
static void compare_ways(const char *dir)
{
    uint64_t first = 0, sum;
    for (int way = 0; way < 4; way++) {
        mt_err err = { 0 };
        rig r;
        open_model(&r, dir);
        start(&r, way / 2);
        assert_ok(way % 2 ? mt_engine_load(r.engine, r.model, r.shards, &err) : load_alone(&r, &err));
        assert_ok(mt_engine_checksum(r.engine, &sum, &err));
        if (way == 0) check_all(&r);
        if (way && sum != first)
            fail_msg("%s: %s threads, %s: other bits", dir, way % 2 ? "many" : "one", way / 2 ? "both homes" : "on the host");
        first = sum;
        rig_close(&r);
    }
}

/* -- tests ----------------------------------------------------------------------------------------- */

static void every_family_loads_the_same_by_one_thread_and_many(void **state)
{
    (void)state;
    static const char *const models[] = { "llama_fp16", "llama_sharded",  "llama_tied", "phi3_window", "gemma3_vl",  "glm4",
                                          "chatglm",    "internlm2_bias", "baichuan",   "gpt_neox",    "falcon_40b", "falcon_rw",
                                          "gpt2",       "qwen3_5_tied",   "qwen3_5_vl", "deepseek_v2", "deepseek_v3" };
    for (size_t i = 0; i < MT_COUNT(models); i++) {
        char dir[512];
        snprintf(dir, sizeof dir, GOLDEN_DIR "%s", models[i]);
        compare_ways(dir);
    }
}

/* Roles that share a tensor are taken apart where it is FP8, too; golden_weights compares the tensors with torch. */
static void an_fp8_model_loads_the_same_by_one_thread_and_many(void **state)
{
    (void)state;
    compare_ways(MT_TESTS_DIR "/golden/weights/fp8_deepseek");
}

/* A weight of more than a piece, which is half a million numbers: as they are, fused, regrouped by head, transposed. */
static const struct {
    const char *config;
    mt_dtype t;
} large[] = {
    { "{\"model_type\": \"llama\", \"hidden_size\": 200, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"head_dim\": "
      "100, \"intermediate_size\": 301, "
      "\"vocab_size\": 6007, \"tie_word_embeddings\": true}",
      MT_DTYPE_BF16 },
    { "{\"model_type\": \"phi3\", \"hidden_size\": 512, \"num_hidden_layers\": 1, \"num_attention_heads\": 8, "
      "\"intermediate_size\": 1200, "
      "\"vocab_size\": 40, \"tie_word_embeddings\": false, \"pad_token_id\": 0}",
      MT_DTYPE_BF16 },
    { "{\"model_type\": \"gpt_neox\", \"hidden_size\": 768, \"num_hidden_layers\": 1, \"num_attention_heads\": 12, "
      "\"intermediate_size\": 70, "
      "\"vocab_size\": 40, \"tie_word_embeddings\": false, \"use_parallel_residual\": true, \"rotary_pct\": 0.25}",
      MT_DTYPE_F32 },
    { "{\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_layer\": 1, \"n_head\": 12, \"n_inner\": 90, \"vocab_size\": 40, "
      "\"n_positions\": 64}",
      MT_DTYPE_F32 },
};

static void weights_of_many_pieces_land_where_their_layout_says(void **state)
{
    for (size_t i = 0; i < MT_COUNT(large); i++) {
        write_model(*state, large[i].config, large[i].t);
        compare_ways(*state);
    }
}

static void add_bytes(void *user, size_t bytes) { atomic_fetch_add((atomic_size_t *)user, bytes); }

static void every_byte_is_told_of_once(void **state)
{
    mt_err err = { 0 };
    rig r;
    atomic_size_t told = 0;
    size_t all = 0;
    write_model(*state, large[1].config, large[1].t);
    open_model(&r, *state);
    start(&r, true);
    mt_engine_watch_writes(r.engine, add_bytes, &told);
    assert_ok(mt_engine_load(r.engine, r.model, r.shards, &err));
    for (int u = 0; u < r.model->n_units; u++)
        for (int k = 0; k < r.model->units[u].layout->n_weights; k++) all += 4 * (size_t)r.model->units[u].layout->weights[k].n;
    assert_int_equal(told, all);
    rig_close(&r);
}

/* The k-th piece cannot be read: the load ends, and says of which file and tensor. */
static void a_piece_that_cannot_be_read_ends_the_load(void **state)
{
    write_model(*state, large[0].config, large[0].t);
    for (int k = 0;; k++) {
        mt_err err = { 0 };
        rig r;
        open_model(&r, *state);
        start(&r, true);
        mt_fault_arm(MT_FAULT_FILE, k);
        mt_rc rc = mt_engine_load(r.engine, r.model, r.shards, &err);
        bool hit = mt_fault_disarm();
        rig_close(&r);
        if (!hit) {
            assert_int_equal(rc, MT_OK);
            assert_true(k > 6);
            break;
        }
        assert_int_equal(rc, MT_EIO);
        assert_says("model.safetensors: tensor \"model.");
        assert_says("cannot be read");
    }
}

static bool kernel_populates(void)
{
    void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool does = madvise(p, 4096, 22 /* MADV_POPULATE_READ */) == 0;
    munmap(p, 4096);
    return does;
}

/* Cut while the run has it open: not a signal. */
static void cut_and_load(const char *dir, const char *file, off_t to)
{
    char path[512];
    mt_err err = { 0 };
    rig r;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    open_model(&r, dir);
    start(&r, false);
    assert_int_equal(truncate(path, to), 0);
    assert_int_equal(mt_engine_load(r.engine, r.model, r.shards, &err), MT_EIO);
    assert_says("the file has become shorter");
    rig_close(&r);
}

static void a_file_that_becomes_shorter_is_an_error(void **state)
{
    if (!kernel_populates()) mt_skip("a kernel before Linux 5.14");
    for (size_t i = 0; i < MT_COUNT(large); i++) {
        write_model(*state, large[i].config, large[i].t);
        cut_and_load(*state, "model.safetensors", 1 << 20);
    }
}

static void so_it_is_where_numbers_are_decoded(void **state)
{
    static const struct {
        const char *dir, *file;
    } models[] = { { "weights/fp8_deepseek", "model.safetensors" },
                   { "weights/gguf_llama_q8", "model.gguf" },
                   { "models/gpt2", "model.safetensors" } };
    if (!kernel_populates()) mt_skip("a kernel before Linux 5.14");
    for (size_t i = 0; i < MT_COUNT(models); i++) {
        const char *const files[] = { "config.json", models[i].file };
        test_path dir = workspace_path("%s/%zu", (char *)*state, i);
        assert_int_equal(mkdir(dir.s, 0777), 0);
        for (size_t k = 0; k < MT_COUNT(files); k++) {
            test_path from = workspace_path(MT_TESTS_DIR "/golden/%s/%s", models[i].dir, files[k]);
            if (mt_file_exists(from.s)) workspace_copy(from.s, workspace_path("%s/%s", dir.s, files[k]).s);
        }
        cut_and_load(dir.s, models[i].file, 8192);
    }
}

/* Low halves are written where the plan has a home for them, and nothing is swallowed. */
static void a_plan_names_the_halves_it_takes(void **state)
{
    (void)state;
    for (int f32 = 0; f32 < 2; f32++) {
        mt_err err = { 0 };
        rig r;
        open_model(&r, GOLDEN_DIR "llama_tied");
        const mt_dtype t = f32 ? MT_DTYPE_F32 : MT_DTYPE_BF16;
        const mt_job job = { .step_tokens = 8, .step_docs = 1, .longest = 8 };
        const mt_arithmetic a = { .compute = t, .grad = t, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8 };
        mt_plan *plan;
        assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
        rig_start(&r, plan, 1);
        for (int u = 0; u < r.model->n_units; u++) {
            const int16_t low = 0;
            const mt_state_range lo = { u, MT_STATE_LO, 0, 1 };
            assert_true(mt_state_takes(mt_engine_state(r.engine), (mt_state_range){ u, MT_STATE_HI, 0, 1 }));
            assert_int_equal(mt_state_takes(mt_engine_state(r.engine), lo), f32);
            assert_int_equal(mt_engine_write(r.engine, lo, &low, &err), f32 ? MT_OK : MT_EINVAL);
        }
        rig_close(&r);
    }
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, workspace_remove)
RIG_TEST_MAIN(cmocka_unit_test(every_family_loads_the_same_by_one_thread_and_many),
              cmocka_unit_test(an_fp8_model_loads_the_same_by_one_thread_and_many),
              IN_DIR(weights_of_many_pieces_land_where_their_layout_says), IN_DIR(every_byte_is_told_of_once),
              IN_DIR(a_piece_that_cannot_be_read_ends_the_load), IN_DIR(a_file_that_becomes_shorter_is_an_error),
              IN_DIR(so_it_is_where_numbers_are_decoded), cmocka_unit_test(a_plan_names_the_halves_it_takes))
