/* megatrain convert as a user runs it. */
#include "program.h"
#include "tempdir.h"

#include "base/json.h"
#include "base/outfile.h"
#include "ckpt/outdir.h"
#include "ckpt/shards.h"

#include <unistd.h>

#define DIR MT_TESTS_DIR "/golden/weights/"

static char out[1024];

static int make_dir(void **state)
{
    int rc = tempdir_make(state);
    snprintf(out, sizeof out, "%s/out", (char *)*state);
    return rc;
}

static int remove_dir(void **state)
{
    void *inner = mt_strdup(out);
    if (mt_dir_exists(out))
        tempdir_remove(&inner);
    else
        mt_free(inner);
    return tempdir_remove(state);
}

static void convert(const char *in, const char *more, int status, const char *says)
{
    char args[3000];
    snprintf(args, sizeof args, "convert '" DIR "%s' '%s' %s", in, out, more);
    expect_program(args, status, says);
}

/* The numbers written are those of `expected`, rounded to what they are stored as. */
static void holds(const char *expected_name, mt_dtype dtype)
{
    mt_err err = { 0 };
    mt_shards *s;
    mt_safetensors *expected;
    char path[1200];
    snprintf(path, sizeof path, DIR "expected/%s.safetensors", expected_name);
    assert_ok(mt_safetensors_open(&expected, path, &err));
    assert_ok(mt_shards_open(&s, out, &err));
    assert_int_equal(mt_shards_count(s), mt_safetensors_count(expected));
    for (size_t i = 0; i < mt_shards_count(s); i++) {
        const mt_st_tensor *t = mt_shards_at(s, i), *e = mt_safetensors_find(expected, t->name);
        assert_int_equal(t->dtype, dtype);
        for (size_t k = 0; k < t->n; k++) {
            float got, want;
            uint32_t stored = 0;
            mt_st_read(t, k, 1, &got);
            mt_st_read(e, k, 1, &want);
            mt_from_f32(&stored, dtype, &want, 1);
            mt_to_f32(&want, &stored, dtype, 1);
            if (got < want || got > want) fail_msg("%s[%zu]: %g, expected %g", t->name, k, (double)got, (double)want);
        }
    }
    mt_shards_close(s);
    mt_safetensors_close(expected);
}

static const mt_value *config(void)
{
    mt_err err = { 0 };
    const mt_value *c;
    char path[1200];
    snprintf(path, sizeof path, "%s/config.json", out);
    assert_ok(mt_json_read(&c, path, &err));
    return c;
}

static void a_gguf_file_becomes_a_directory(void **state)
{
    (void)state;
    char args[2200];
    convert("gguf_llama_q8/model.gguf", "--dtype float32", 0, "quantized (mostly Q8_0)");
    holds("gguf_llama_q8", MT_DTYPE_F32);
    const mt_value *c = config();
    assert_string_equal(mt_json_string(mt_value_get(c, "torch_dtype")), "float32");
    assert_true(mt_value_is_true(mt_value_get(c, "tie_word_embeddings")));
    mt_json_free(c);
    snprintf(args, sizeof args, "inspect '%s'", out);
    expect_program(args, 0, "tied head, qkv bias yes");
    snprintf(args, sizeof args, "tokenize '%s' < /dev/null", out);
    expect_program(args, 0, "");
    convert("gguf_llama_q8/model.gguf", "", 2, "is not empty, and nothing is overwritten");
}

static void fp8_weights_become_bfloat16(void **state)
{
    (void)state;
    convert("fp8", "", 0, "8 tensors");
    holds("fp8", MT_DTYPE_BF16);
    const mt_value *c = config();
    assert_null(mt_value_get(c, "quantization_config"));
    assert_string_equal(mt_json_string(mt_value_get(c, "torch_dtype")), "bfloat16");
    mt_json_free(c);
}

static void mxfp4_experts_become_bfloat16(void **state)
{
    (void)state;
    convert("mxfp4", "", 0, "3 tensors");
    holds("mxfp4", MT_DTYPE_BF16);
    const mt_value *c = config();
    assert_null(mt_value_get(c, "quantization_config"));
    mt_json_free(c);
}

/* A config.json that is written anew keeps the numbers that only Python writes. */
static void infinity_stays_a_number(void **state)
{
    const char *in = *state;
    mt_err err = { 0 };
    char path[1200], args[3000], *text;
    snprintf(args, sizeof args, "cp '" DIR "fp8/model.safetensors' '%s'", in);
    assert_int_equal(run_shell(args, path, sizeof path), 0);
    snprintf(path, sizeof path, "%s/config.json", in);
    FILE *f = fopen(path, "w");
    fputs("{\"model_type\": \"llama\", \"time_step_limit\": [0.0, Infinity], "
          "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [4, 6]}}",
          f);
    fclose(f);
    snprintf(args, sizeof args, "convert '%s' '%s'", in, out);
    expect_program(args, 0, "8 tensors");
    snprintf(path, sizeof path, "%s/config.json", out);
    assert_ok(mt_file_read(&text, NULL, path, 1 << 20, &err));
    assert_non_null(strstr(text, "Infinity\n"));
    assert_null(strstr(text, "\"Infinity"));
    mt_free(text);
}

/* The same files as a run saves with its model, those of folders too. */
static void the_files_beside_the_weights_come_along(void **state)
{
    static const char *const names[] = { "chat_template.jinja",
                                         "additional_chat_templates/tool_use.jinja",
                                         "additional_chat_templates/rag.jinja",
                                         "video_preprocessor_config.json",
                                         "vocab.txt",
                                         "modeling_own.py",
                                         "generation_config.json" };
    const char *in = *state;
    mt_err err = { 0 };
    char path[1200], args[3000];
    snprintf(args, sizeof args, "cp '" DIR "fp8/model.safetensors' '" DIR "fp8/config.json' '%s'", in);
    assert_int_equal(run_shell(args, path, sizeof path), 0);
    snprintf(path, sizeof path, "%s/additional_chat_templates", in);
    assert_ok(mt_dir_make(path, &err));
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", in, names[i]);
        assert_ok(mt_outfile_save(path, names[i], strlen(names[i]), &err));
    }
    snprintf(path, sizeof path, "%s/additional_chat_templates/notes.txt", in);
    assert_ok(mt_outfile_save(path, "mine", 4, &err));
    snprintf(args, sizeof args, "convert '%s' '%s'", in, out);
    expect_program(args, 0, "8 tensors");
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        char *text;
        snprintf(path, sizeof path, "%s/%s", out, names[i]);
        assert_ok(mt_file_read(&text, NULL, path, 1 << 20, &err));
        assert_string_equal(text, names[i]);
        mt_free(text);
    }
    snprintf(path, sizeof path, "%s/additional_chat_templates/notes.txt", out);
    assert_false(mt_file_exists(path));
    for (int i = 0; i < 2; i++) { /* the teardown removes no folders */
        snprintf(path, sizeof path, "%s/additional_chat_templates", i ? in : out);
        assert_ok(mt_dir_remove(path, &err));
    }
}

static void shards_are_dealt(void **state)
{
    (void)state;
    char path[1200];
    convert("gguf_qwen2", "--max-shard-size 20000 --dtype float16", 0, "written to");
    holds("gguf_qwen2", MT_DTYPE_F16);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", out);
    assert_true(mt_file_exists(path));
}

/* A family whose norms and names llama.cpp's converter changed. */
static void a_gemma_is_a_gemma_again(void **state)
{
    (void)state;
    char args[2200];
    convert("gguf_family_gemma2/model.gguf", "--dtype float32", 0, "written to");
    snprintf(args, sizeof args, "inspect '%s'", out);
    expect_program(args, 0, "family       gemma2, from model_type");
    expect_program(args, 0, "scores capped at 2");
}

static void what_cannot_be_converted_says_why(void **state)
{
    (void)state;
    convert("pickle_zip", "", 1, "has no config.json");
    assert_false(mt_dir_exists(out));
    convert("gguf_qwen2", "--dtype int8", 2, "bfloat16, float32 or float16 expected");
    convert("nowhere", "", 1, "nowhere");
    expect_program("convert " MT_TESTS_DIR "/golden/models/qwen3/config.json out", 2,
                   "config.json is a file; give the model's directory");
    expect_program("convert only_one", 2, "OUT is missing");
    expect_program("convert a b c", 2, "\"c\" is an extra argument");
    expect_program("convert --help", 0, "--max-shard-size");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

MT_TEST_MAIN(CASE(a_gguf_file_becomes_a_directory), CASE(fp8_weights_become_bfloat16), CASE(mxfp4_experts_become_bfloat16),
             CASE(infinity_stays_a_number), CASE(the_files_beside_the_weights_come_along), CASE(shards_are_dealt),
             CASE(a_gemma_is_a_gemma_again), CASE(what_cannot_be_converted_says_why))
