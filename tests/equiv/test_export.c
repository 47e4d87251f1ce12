/* Saving an untrained model gives back every tensor it came with, byte for byte, under the same names and in the same shapes and
 * dtypes: for every golden model, whether it came as one safetensors file, as shards, or as a pickle. */
#include "mxfp4_file.h"
#include "rig.h"
#include "torch_file.h"
#include "workspace.h"

#include "base/json.h"
#include "base/log.h"
#include "ckpt/export.h"
#include "plan/search.h"

#include <dirent.h>

#define GOLDEN_DIR MT_TESTS_DIR "/golden/models/"

static mt_rc read_engine(void *user, mt_state_range r, void *dst, mt_err *err) { return mt_engine_read(user, r, dst, err); }

/* Load a directory into an engine and save it from there. */
static void pass_through(const char *from, const char *to, mt_dtype dtype, size_t max_shard_bytes)
{
    mt_err err = { 0 };
    rig r;
    mt_plan *plan;
    rig_open_model(&r, from, NULL);
    mt_job job = rig_job(&r, true);
    mt_arithmetic a = rig_arithmetic(&r, MT_DTYPE_BF16);
    assert_ok(mt_weights_check(r.model, r.shards, NULL, &err));
    assert_ok(mt_plan_choose(&plan, r.model, &job, &a, 0, &err));
    rig_start(&r, plan, 1);
    const mt_state_io io = { .user = r.engine, .read = read_engine };
    mt_side_files files;
    assert_ok(mt_side_files_read(&files, from, &err));
    const mt_export x = { .model = r.model,
                          .files = &files,
                          .source = r.shards,
                          .dtype = dtype,
                          .max_shard_bytes = max_shard_bytes,
                          .end_of_turn = -1 };
    assert_ok(mt_dir_make(to, &err));
    assert_ok(mt_export_write(&x, &io, to, &err));
    mt_shards *written;
    assert_ok(mt_shards_open(&written, to, &err));
    assert_int_equal(mt_shards_bytes(written), mt_export_bytes(&x));
    mt_shards_close(written);
    mt_side_files_free(&files);
    rig_close(&r);
}

static void copy_beside(const char *from, const char *to, const char *name)
{
    mt_err err = { 0 };
    mt_map map;
    assert_ok(mt_map_open(&map, workspace_path("%s/%s", from, name).s, &err));
    assert_ok(mt_outfile_save(workspace_path("%s/%s", to, name).s, map.data, map.size, &err));
    mt_map_close(&map);
}

/* Every tensor of one is in the other, to the byte, and there are no others. */
static void same_tensors(const char *a_dir, const char *b_dir)
{
    mt_err err = { 0 };
    mt_shards *a, *b;
    assert_ok(mt_shards_open(&a, a_dir, &err));
    assert_ok(mt_shards_open(&b, b_dir, &err));
    if (mt_shards_count(a) != mt_shards_count(b))
        fail_msg("%s: %zu tensors, saved as %zu", a_dir, mt_shards_count(a), mt_shards_count(b));
    for (size_t i = 0; i < mt_shards_count(a); i++) {
        const mt_st_tensor *x = mt_shards_at(a, i), *y = mt_shards_find(b, x->name);
        if (!y) fail_msg("%s: %s was not saved", a_dir, x->name);
        bool same = x->dtype == y->dtype && x->n_dims == y->n_dims &&
                    memcmp(x->shape, y->shape, (size_t)x->n_dims * sizeof *x->shape) == 0 && x->bytes == y->bytes &&
                    memcmp(x->data, y->data, x->bytes) == 0;
        if (!same) fail_msg("%s: %s is not what it was", a_dir, x->name);
    }
    mt_shards_close(a);
    mt_shards_close(b);
}

/* Calls fn with the directory of every golden model. */
static void for_every_model(void (*fn)(const char *source, const char *root, const char *name), const char *root)
{
    DIR *d = opendir(GOLDEN_DIR);
    int n = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        test_path source = workspace_path(GOLDEN_DIR "%s", e->d_name);
        if (e->d_name[0] == '.' || !mt_file_exists(workspace_path("%s/config.json", source.s).s)) continue;
        fn(source.s, root, e->d_name);
        n++;
    }
    closedir(d);
    assert_true(n >= 58);
}

static void save_one_file(const char *source, const char *root, const char *name)
{
    test_path out = workspace_path("%s/%s", root, name);
    pass_through(source, out.s, MT_DTYPE_COUNT, 0);
    same_tensors(source, out.s);
    assert_true(workspace_same_file(workspace_path("%s/config.json", source).s, workspace_path("%s/config.json", out.s).s));
}

static void a_file_comes_back_byte_for_byte(void **state) { for_every_model(save_one_file, *state); }

/* Shards of bf16 are made first, then taken as the source. */
static void save_shards(const char *source, const char *root, const char *name)
{
    test_path shards = workspace_path("%s/%s-shards", root, name), out = workspace_path("%s/%s", root, name);
    pass_through(source, shards.s, MT_DTYPE_BF16, 1500);
    assert_true(mt_file_exists(workspace_path("%s/model.safetensors.index.json", shards.s).s));
    copy_beside(source, shards.s, "tokens.json");
    pass_through(shards.s, out.s, MT_DTYPE_COUNT, 0);
    same_tensors(shards.s, out.s);
}

static void shards_come_back_byte_for_byte(void **state) { for_every_model(save_shards, *state); }

static void save_pickle(const char *source, const char *root, const char *name)
{
    mt_err err = { 0 };
    mt_shards *shards;
    test_path pickled = workspace_path("%s/%s-pickled", root, name), out = workspace_path("%s/%s", root, name);
    assert_ok(mt_dir_make(pickled.s, &err));
    assert_ok(mt_shards_open(&shards, source, &err));
    torch_file_write(workspace_path("%s/pytorch_model.bin", pickled.s).s, shards);
    mt_shards_close(shards);
    copy_beside(source, pickled.s, "tokens.json");
    copy_beside(source, pickled.s, "config.json");
    same_tensors(source, pickled.s); /* the reader finds what was put in */
    pass_through(pickled.s, out.s, MT_DTYPE_COUNT, 4000);
    same_tensors(source, out.s);
}

static void a_pickle_comes_back_byte_for_byte(void **state) { for_every_model(save_pickle, *state); }

/* A head that is tied and written all the same is written again; the goldens' tied models, which have none, get none (above). */
static void a_tied_head_is_saved_if_it_was_there(void **state)
{
    mt_err err = { 0 };
    mt_shards *shards;
    test_path twice = workspace_path("%s/twice", (char *)*state), out = workspace_path("%s/out", (char *)*state);
    const char *source = GOLDEN_DIR "llama_tied";
    assert_ok(mt_dir_make(twice.s, &err));
    assert_ok(mt_shards_open(&shards, source, &err));
    mt_shards_writer *w;
    assert_ok(mt_shards_writer_create(&w, twice.s, 0, &err));
    for (size_t i = 0; i < mt_shards_count(shards); i++) {
        const mt_st_tensor *t = mt_shards_at(shards, i);
        assert_ok(mt_shards_writer_add(w, t->name, t->dtype, t->n_dims, t->shape, &err));
    }
    const mt_st_tensor *embed = mt_shards_find(shards, "model.embed_tokens.weight");
    assert_ok(mt_shards_writer_add(w, "lm_head.weight", embed->dtype, embed->n_dims, embed->shape, &err));
    assert_ok(mt_shards_writer_start(w, &err));
    for (size_t i = 0; i < mt_shards_count(shards); i++) {
        const mt_st_tensor *t = mt_shards_at(shards, i);
        assert_ok(mt_shards_writer_append(w, t->name, t->data, t->bytes, &err));
    }
    assert_ok(mt_shards_writer_append(w, "lm_head.weight", embed->data, embed->bytes, &err));
    assert_ok(mt_shards_writer_finish(w, &err));
    mt_shards_writer_free(w);
    mt_shards_close(shards);
    copy_beside(source, twice.s, "config.json");
    copy_beside(source, twice.s, "tokens.json");
    pass_through(twice.s, out.s, MT_DTYPE_COUNT, 0);
    same_tensors(twice.s, out.s);
}

static char said[512];

static void keep_info(void *user, mt_log_level level, const char *text)
{
    (void)user;
    if (level == MT_LOG_INFO && strstr(text, "quantization_config")) snprintf(said, sizeof said, "%s", text);
}

/* FP8 comes in, bf16 goes out: the same numbers rounded, without scales; tensors that are not part of the model likewise, and
 * what was not quantized as it was. */
static void an_fp8_model_is_saved_in_bf16_and_says_so(void **state)
{
    mt_err err = { 0 };
    mt_shards *in, *out;
    const char *source = MT_TESTS_DIR "/golden/weights/fp8_deepseek";
    test_path to = workspace_path("%s/out", (char *)*state);
    mt_log_set_sink(keep_info, NULL);
    pass_through(source, to.s, MT_DTYPE_COUNT, 0);
    mt_log_set_sink(NULL, NULL);
    assert_non_null(strstr(said, "F8_E4M3 are saved as bfloat16"));
    assert_ok(mt_shards_open(&in, source, &err));
    assert_ok(mt_shards_open(&out, to.s, &err));
    assert_int_equal(mt_shards_count(in), mt_shards_count(out));
    for (size_t i = 0; i < mt_shards_count(in); i++) {
        const mt_st_tensor *x = mt_shards_at(in, i), *y = mt_shards_find(out, x->name);
        if (!y) fail_msg("%s was not saved", x->name);
        assert_int_equal(y->dtype, x->decoder ? MT_DTYPE_BF16 : x->dtype);
        for (size_t k = 0; k < x->n; k++) {
            float a, b;
            mt_st_read(x, k, 1, &a);
            mt_st_read(y, k, 1, &b);
            if (x->decoder) a = mt_bf16_to_f32(mt_f32_to_bf16(a));
            if (mt_f32_bits(a) != mt_f32_bits(b)) fail_msg("%s: number %zu is not what it was", x->name, k);
        }
    }
    const mt_value *config;
    assert_ok(mt_json_read(&config, workspace_path("%s/config.json", to.s).s, &err));
    assert_null(mt_value_get(config, "quantization_config"));
    mt_json_free(config);
    mt_shards_close(in);
    mt_shards_close(out);
}

/* What was published in MXFP4 has the numbers of its bf16 twin, to the bit, and is saved as the twin is. */
static void mxfp4_is_saved_as_its_bf16_twin(void **state)
{
    mt_err err = { 0 };
    const mt_value *config;
    test_path packed = workspace_path("%s/packed", (char *)*state), twin = workspace_path("%s/twin", (char *)*state),
              out = workspace_path("%s/out", (char *)*state), again = workspace_path("%s/again", (char *)*state);
    assert_ok(mt_dir_make(packed.s, &err));
    assert_ok(mt_dir_make(twin.s, &err));
    mxfp4_write(packed.s, true);
    mxfp4_write(twin.s, false);
    mt_log_set_sink(keep_info, NULL);
    pass_through(packed.s, out.s, MT_DTYPE_COUNT, 0);
    mt_log_set_sink(NULL, NULL);
    same_tensors(twin.s, out.s);
    pass_through(twin.s, again.s, MT_DTYPE_COUNT, 0);
    same_tensors(twin.s, again.s);
    assert_non_null(strstr(said, "MXFP4 are saved as bfloat16"));
    assert_ok(mt_json_read(&config, workspace_path("%s/config.json", out.s).s, &err));
    assert_null(mt_value_get(config, "quantization_config"));
    assert_string_equal(mt_json_string(mt_value_get(config, "torch_dtype")), "bfloat16");
    mt_json_free(config);
}

/* Copies config.json with another dtype. */
static void put_config(const char *from, const char *to, const char *dtype)
{
    mt_err err = { 0 };
    const mt_value *config;
    mt_value value = mt_json_text(dtype);
    mt_str text = { 0 };
    assert_ok(mt_json_read(&config, workspace_path("%s/config.json", from).s, &err));
    assert_ok(mt_json_set(config, config, "torch_dtype", &value, &err));
    mt_value_write_indented(&text, config);
    assert_ok(mt_outfile_save(workspace_path("%s/config.json", to).s, text.s, text.n, &err));
    mt_str_free(&text);
    mt_json_free(config);
}

static void check_dtype_said(const char *dir, const char *dtype)
{
    mt_err err = { 0 };
    const mt_value *config;
    assert_ok(mt_json_read(&config, workspace_path("%s/config.json", dir).s, &err));
    assert_string_equal(mt_json_string(mt_value_get(config, "torch_dtype")), dtype);
    mt_json_free(config);
}

/* Some config.json name the dtype of the quantized weights, in which none is saved. */
static void a_dtype_that_needs_scales_is_saved_as_bf16(void **state)
{
    static const struct {
        const char *said, *saved;
    } cases[] = { { "float8_e4m3fn", "bfloat16" }, { "uint8", "bfloat16" }, { "float64", "float64" }, { "float16", "float16" } };
    const char *source = MT_TESTS_DIR "/golden/weights/fp8_deepseek";
    test_path usual = workspace_path("%s/usual", (char *)*state);
    pass_through(source, usual.s, MT_DTYPE_COUNT, 0);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        test_path from = workspace_path("%s/from%zu", (char *)*state, i), to = workspace_path("%s/to%zu", (char *)*state, i);
        assert_ok(mt_dir_make(from.s, &err));
        copy_beside(source, from.s, "model.safetensors");
        copy_beside(source, from.s, "tokens.json");
        put_config(source, from.s, cases[i].said);
        pass_through(from.s, to.s, MT_DTYPE_COUNT, 0);
        check_dtype_said(to.s, cases[i].saved);
        if (strcmp(cases[i].saved, "bfloat16") == 0) same_tensors(usual.s, to.s);
    }
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(a_file_comes_back_byte_for_byte), RUNS(shards_come_back_byte_for_byte), RUNS(a_pickle_comes_back_byte_for_byte),
             RUNS(a_tied_head_is_saved_if_it_was_there), RUNS(an_fp8_model_is_saved_in_bf16_and_says_so),
             RUNS(mxfp4_is_saved_as_its_bf16_twin), RUNS(a_dtype_that_needs_scales_is_saved_as_bf16))
