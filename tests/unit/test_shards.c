/* Model directories: which files are opened, and what is said about those that cannot be. */
#include "tempdir.h"

#include "base/fault.h"
#include "ckpt/safetensors_write.h"
#include "ckpt/shards.h"
#include "ops/forms.h"

static const char first[] = "model-00001-of-00002.safetensors", second[] = "model-00002-of-00002.safetensors";
static const char index_file[] = "model.safetensors.index.json";

static const char *dir; /* a fresh one for each test */

static int make_dir(void **state)
{
    int rc = tempdir_make(state);
    dir = *state;
    return rc;
}

static void put(const char *name, const char *bytes, size_t n)
{
    char *path = mt_path_join(dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    mt_free(path);
}

static void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

/* One of the committed files under a name of our choice. */
static void put_fixture(const char *name, const char *fixture)
{
    mt_err err = { 0 };
    char *from = mt_path_join(MT_FIXTURE("safetensors/sharded"), fixture), *bytes;
    size_t n;
    assert_ok(mt_file_read(&bytes, &n, from, 1 << 20, &err));
    put(name, bytes, n);
    mt_free(bytes);
    mt_free(from);
}

static void opens_with(size_t n_files, size_t n_tensors)
{
    mt_err err = { 0 };
    mt_shards *s;
    assert_ok(mt_shards_open(&s, dir, &err));
    assert_int_equal(mt_shards_file_count(s), n_files);
    assert_int_equal(mt_shards_count(s), n_tensors);
    for (size_t i = 0; i < n_tensors; i++) assert_ptr_equal(mt_shards_find(s, mt_shards_at(s, i)->name), mt_shards_at(s, i));
    mt_shards_close(s);
}

static void fails_with(mt_rc rc, const char *says)
{
    mt_err err = { 0 };
    mt_shards *s = NULL;
    assert_int_equal(mt_shards_open(&s, dir, &err), rc);
    assert_says(says);
    assert_says(dir);
    assert_null(s);
}

static void a_sharded_model_reads_as_one(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_shards *s;
    assert_ok(mt_shards_open(&s, MT_FIXTURE("safetensors/sharded"), &err));
    assert_int_equal(mt_shards_count(s), 3);
    assert_int_equal(mt_shards_bytes(s), 108);
    assert_string_equal(mt_shards_find(s, "lm_head.weight")->file, second);
    assert_string_equal(mt_shards_find(s, "model.embed_tokens.weight")->file, first);
    assert_string_equal(mt_path_base(mt_shards_path(s, 1)), second);
    assert_null(mt_shards_find(s, "absent"));
    mt_shards_close(s);
}

static void a_single_file_opens_under_any_name(void **state)
{
    (void)state;
    put_fixture("weights.safetensors", second);
    opens_with(1, 2);
    put_fixture("model.safetensors", first); /* this name comes first */
    opens_with(1, 1);
    put_text(index_file, "not even JSON"); /* and its index is not looked at */
    opens_with(1, 1);
}

static void files_beside_the_index_are_left_alone(void **state)
{
    (void)state;
    put_fixture(first, first);
    put_fixture(second, second);
    put_fixture(index_file, index_file);
    put_fixture("consolidated.safetensors", first);
    put_text("pytorch_model.bin", "");
    opens_with(2, 3);
}

static void a_missing_shard_is_named(void **state)
{
    (void)state;
    put_fixture(index_file, index_file);
    put_fixture(first, first);
    fails_with(MT_ENOENT, "model-00002-of-00002.safetensors is missing (1 of the 2 files");
    fails_with(MT_ENOENT, "download the model again");
}

static void a_tensor_missing_from_its_shard_is_named(void **state)
{
    (void)state;
    put_fixture(index_file, index_file);
    put_fixture(first, first);
    put_fixture(second, first); /* the wrong content */
    fails_with(MT_EFORMAT, "\"lm_head.weight\" is listed in model.safetensors.index.json and is not in model-00002");
}

static void a_tensor_in_two_files_is_taken_where_the_index_says(void **state)
{
    (void)state;
    put_fixture("a.safetensors", first);
    put_fixture("b.safetensors", first);
    put_fixture("c.safetensors", second);
    put_text(index_file,
             "{\"weight_map\": {\"model.embed_tokens.weight\": \"b.safetensors\", \"lm_head.weight\": \"c.safetensors\"}}");
    mt_err err = { 0 };
    mt_shards *s;
    assert_ok(mt_shards_open(&s, dir, &err));
    assert_string_equal(mt_shards_find(s, "model.embed_tokens.weight")->file, "b.safetensors");
    assert_non_null(mt_shards_find(s, "model.norm.weight")); /* in a file, not in the index: still there */
    mt_shards_close(s);

    put_fixture("b.safetensors", second);
    put_text(index_file, "{\"weight_map\": {\"model.norm.weight\": \"b.safetensors\", \"lm_head.weight\": \"c.safetensors\"}}");
    opens_with(2, 2); /* each name has one home */
    put_text(index_file, "{\"weight_map\": {\"lm_head.weight\": \"c.safetensors\"}}");
    opens_with(1, 2);
}

static void a_tensor_in_two_files_that_the_index_does_not_list_is_refused(void **state)
{
    (void)state;
    put_fixture("b.safetensors", second);
    put_fixture("c.safetensors", second);
    put_text("extra", "");
    put_text(index_file, "{\"weight_map\": {\"lm_head.weight\": \"c.safetensors\", \"none\": \"b.safetensors\"}}");
    fails_with(MT_EFORMAT, "\"model.norm.weight\" is in b.safetensors and in c.safetensors");
}

static void an_index_cannot_point_outside(void **state)
{
    (void)state;
    static const char *const names[] = { "../x.safetensors",
                                         "/etc/x.safetensors",
                                         "sub/x.safetensors",
                                         "..\\\\x.safetensors",
                                         "..",
                                         ".",
                                         "",
                                         "a\\nb.safetensors",
                                         "passwd" };
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        char *text = mt_asprintf("{\"weight_map\": {\"w\": \"%s\"}}", names[i]);
        put_text(index_file, text);
        fails_with(MT_EFORMAT, "not the name of a .safetensors file");
        mt_free(text);
    }
    put_text(index_file, "{\"weight_map\": {\"w\": 3}}");
    fails_with(MT_EFORMAT, "(no string)");
}

static void broken_indexes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "not valid JSON" },
        { "[]", "weight_map" },
        { "{}", "weight_map" },
        { "{\"weight_map\": {}}", "weight_map" },
        { "{\"weight_map\": []}", "weight_map" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        put_text(index_file, cases[i].text);
        fails_with(MT_EFORMAT, cases[i].says);
        fails_with(MT_EFORMAT, index_file);
    }
}

static void directories_without_usable_weights_say_what_is_there(void **state)
{
    (void)state;
    fails_with(MT_ENOENT, "no weights here");
    put_text("training_args.bin", "");
    fails_with(MT_ENOENT, "training_args.bin holds something else");
    put_text("model-q4.gguf", "");
    fails_with(MT_EFORMAT, "model-q4.gguf is not a GGUF file");
    put_text("model-q8.gguf", "");
    fails_with(MT_EINVAL, "2 .gguf files (model-q4.gguf, ...); name the one you mean");
    put_text("pytorch_model.bin", ""); /* comes before them */
    fails_with(MT_EFORMAT, "pytorch_model.bin: not a file that torch.save writes");
    put_fixture("adapter_model.safetensors", first);
    fails_with(MT_EUNSUPPORTED, "adapter");
    put_fixture("b.safetensors", first);
    fails_with(MT_ENOENT, "2 .safetensors files (adapter_model.safetensors, ...) and no model.safetensors.index.json");

    mt_err err = { 0 };
    mt_shards *s = NULL;
    assert_int_equal(mt_shards_open(&s, "/nonexistent/model", &err), MT_ENOENT);
    assert_says("/nonexistent/model");
}

/* model.safetensors with an FP8 matrix of 4 x 6 and scales of the given shape. */
static void put_fp8(mt_dtype scale, int64_t rows, int64_t columns)
{
    mt_err err = { 0 };
    mt_safetensors_writer *w;
    static const char zeros[256];
    char *path = mt_path_join(dir, "model.safetensors");
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    assert_ok(mt_safetensors_writer_add(w, "x.weight", MT_DTYPE_F8_E4M3, 2, (const int64_t[]){ 4, 6 }, &err));
    assert_ok(mt_safetensors_writer_add(w, "x.weight_scale_inv", scale, 2, (const int64_t[]){ rows, columns }, &err));
    assert_ok(mt_safetensors_writer_start(w, &err));
    assert_ok(mt_safetensors_writer_append(w, "x.weight", zeros, 24, &err));
    assert_ok(
        mt_safetensors_writer_append(w, "x.weight_scale_inv", zeros, (size_t)(rows * columns) * mt_dtype_bytes(scale), &err));
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_free(path);
}

static void fp8_scales_must_fit_their_weights(void **state)
{
    (void)state;
    put_fp8(MT_DTYPE_F32, 1, 1); /* without a config.json blocks are 128 x 128 */
    opens_with(1, 1);
    put_fp8(MT_DTYPE_F32, 2, 3);
    fails_with(MT_EFORMAT, "\"x.weight_scale_inv\" are [2, 3], which does not fit \"x.weight\" of [4, 6] in blocks of 128 x 128");
    put_text("config.json", "{\"quantization_config\": {\"weight_block_size\": [2, 2]}}");
    opens_with(1, 1);
    put_fp8(MT_DTYPE_U8, 2, 3);
    opens_with(1, 1);
    put_fp8(MT_DTYPE_I16, 2, 3);
    fails_with(MT_EUNSUPPORTED, "are I16; floats and U8 are read");
    put_text("config.json", "{\"quantization_config\": {\"weight_block_size\": [0, 2]}}");
    fails_with(MT_EFORMAT, "weight_block_size should be two sizes");
}

typedef struct mxfp4_file {
    int64_t rows, n;      /* of the scales, beside blocks of [2, 3, 2, 16]; 0: there are none */
    mt_dtype blocks_type; /* MT_DTYPE_COUNT: there are no blocks */
    mt_dtype scales_type;
    bool twice; /* the matrix is there as bf16, too */
} mxfp4_file;

static void add_zeros(mt_safetensors_writer *w, bool declare, const char *name, mt_dtype t, int n_dims, const int64_t *shape)
{
    static const char zeros[1024];
    mt_err err = { 0 };
    size_t n = mt_dtype_bytes(t);
    for (int i = 0; i < n_dims; i++) n *= (size_t)shape[i];
    assert_true(n <= sizeof zeros);
    if (declare)
        assert_ok(mt_safetensors_writer_add(w, name, t, n_dims, shape, &err));
    else
        assert_ok(mt_safetensors_writer_append(w, name, zeros, n, &err));
}

static void put_mxfp4(mxfp4_file f)
{
    mt_err err = { 0 };
    mt_safetensors_writer *w;
    char *path = mt_path_join(dir, "model.safetensors");
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    for (int pass = 0; pass < 2; pass++) {
        if (f.blocks_type != MT_DTYPE_COUNT)
            add_zeros(w, !pass, "e.down_proj_blocks", f.blocks_type, 4, (const int64_t[]){ 2, 3, 2, 16 });
        if (f.rows) add_zeros(w, !pass, "e.down_proj_scales", f.scales_type, 3, (const int64_t[]){ 2, f.rows, f.n });
        if (f.twice) add_zeros(w, !pass, "e.down_proj", MT_DTYPE_BF16, 3, (const int64_t[]){ 2, 64, 3 });
        if (!pass) assert_ok(mt_safetensors_writer_start(w, &err));
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_free(path);
}

static void mxfp4_blocks_and_scales_must_fit(void **state)
{
    (void)state;
    const mt_dtype u8 = MT_DTYPE_U8;
    put_mxfp4((mxfp4_file){ 3, 2, u8, u8, false });
    opens_with(1, 1);
    put_mxfp4((mxfp4_file){ 0, 0, u8, u8, false });
    fails_with(MT_ENOENT, "\"e.down_proj_blocks\" is in MXFP4, but its scales (\"e.down_proj_scales\") are missing");
    put_mxfp4((mxfp4_file){ 3, 2, MT_DTYPE_COUNT, u8, false });
    fails_with(MT_ENOENT, "\"e.down_proj_scales\" has scales of MXFP4, but their blocks (\"e.down_proj_blocks\") are missing");
    put_mxfp4((mxfp4_file){ 2, 2, u8, u8, false });
    fails_with(MT_EFORMAT, "\"e.down_proj_blocks\" are [2, 3, 2, 16] and the scales \"e.down_proj_scales\" [2, 2, 2]; expected");
    put_mxfp4((mxfp4_file){ 3, 2, MT_DTYPE_I16, u8, false });
    fails_with(MT_EUNSUPPORTED, "\"e.down_proj_blocks\" is I16; blocks and scales of MXFP4 in U8 are read");
    put_mxfp4((mxfp4_file){ 3, 2, u8, MT_DTYPE_F16, false });
    fails_with(MT_EUNSUPPORTED, "\"e.down_proj_scales\" is F16; blocks and scales");
    put_mxfp4((mxfp4_file){ 3, 2, u8, u8, true });
    fails_with(MT_EFORMAT, "\"e.down_proj\" is there twice: quantized, and as it is; keep one of them");
}

/* -- 4-bit codes ----------------------------------------------------------------------------------- */

typedef struct named {
    const char *name; /* after "x."; NULL: no more */
    mt_dtype t;
    int64_t rows, columns; /* columns 0: one dimension */
    const void *bytes;     /* NULL: zeros */
} named;

static void put_tensors(const named *all)
{
    mt_err err = { 0 };
    mt_safetensors_writer *w;
    static const char zeros[2048];
    char *path = mt_path_join(dir, "model.safetensors"), name[128];
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    for (int pass = 0; pass < 2; pass++) {
        for (const named *n = all; n->name; n++) {
            const int64_t shape[] = { n->rows, n->columns ? n->columns : 1 };
            snprintf(name, sizeof name, "x.%s", n->name);
            if (!pass)
                assert_ok(mt_safetensors_writer_add(w, name, n->t, n->columns ? 2 : 1, shape, &err));
            else
                assert_ok(mt_safetensors_writer_append(w, name, n->bytes ? n->bytes : zeros,
                                                       (size_t)(shape[0] * shape[1]) * mt_dtype_bytes(n->t), &err));
        }
        if (!pass) assert_ok(mt_safetensors_writer_start(w, &err));
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_free(path);
}

enum { CODES, ABSMAX, MAP, STATE, MORE, MORE_MAP, PARTS };

/* A matrix of 4 x 64 in NF4; the named part has another dtype or another size, or is missing. */
static void put_nf4(const char *state, bool nested, int odd, mt_dtype t, int64_t n)
{
    static const float codes[16] = { MT_NF4_CODES };
    named all[PARTS + 1] = { [CODES] = { "weight", MT_DTYPE_U8, 128, 1, NULL },
                             [ABSMAX] = { "weight.absmax", nested ? MT_DTYPE_U8 : MT_DTYPE_F32, 4, 0, NULL },
                             [MAP] = { "weight.quant_map", MT_DTYPE_F32, 16, 0, codes },
                             [STATE] = { "weight.quant_state.bitsandbytes__nf4", MT_DTYPE_U8, (int64_t)strlen(state), 0, state },
                             [MORE] = { nested ? "weight.nested_absmax" : NULL, MT_DTYPE_F32, 1, 0, NULL },
                             [MORE_MAP] = { "weight.nested_quant_map", MT_DTYPE_F32, 256, 0, NULL } };
    if (odd < PARTS) all[odd].t = t, all[odd].rows = n;
    if (odd < PARTS && !n) {
        const int last = nested ? MORE_MAP : STATE; /* takes its place */
        all[odd] = all[last];
        all[last].name = NULL;
    }
    put_tensors(all);
}

#define NF4_STATE    "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [4, 64]"
#define NESTED_STATE NF4_STATE ", \"nested_blocksize\": 256, \"nested_offset\": 0.5}"

static void damaged_nf4_names_the_tensor_and_its_quantization(void **state)
{
    (void)state;
    const mt_dtype u8 = MT_DTYPE_U8;
    put_nf4(NF4_STATE "}", false, PARTS, u8, 0);
    opens_with(1, 1);
    put_nf4(NESTED_STATE, true, PARTS, u8, 0);
    opens_with(1, 1);
    static const struct {
        const char *state;
        bool nested;
        int odd;
        mt_dtype t;
        int64_t n;
        const char *says;
    } cases[] = {
        { NF4_STATE "}", false, CODES, MT_DTYPE_I8, 128, "its codes are not bytes" },
        { NF4_STATE "}", false, CODES, MT_DTYPE_U8, 127, "not as many bytes as its quant_state's \"shape\" needs" },
        { NF4_STATE "}", false, ABSMAX, MT_DTYPE_F32, 0, "its scales (absmax) are missing" },
        { NF4_STATE "}", false, ABSMAX, MT_DTYPE_F32, 3, "its absmax is not a number for each block" },
        { NF4_STATE "}", false, MAP, MT_DTYPE_F32, 0, "its quant_map is missing" },
        { NF4_STATE "}", false, STATE, MT_DTYPE_U8, 0, "its quant_state is missing" },
        { NF4_STATE, false, PARTS, MT_DTYPE_U8, 0, "its quant_state is not JSON" },
        { "{\"quant_type\": \"nf4\", \"blocksize\": 64}", false, PARTS, MT_DTYPE_U8, 0, "no \"shape\"" },
        { "{\"quant_type\": \"nf4\", \"blocksize\": 65, \"shape\": [4, 64]}", false, PARTS, MT_DTYPE_U8, 0, "\"blocksize\"" },
        { NESTED_STATE, true, ABSMAX, MT_DTYPE_F32, 4, "not a byte for each block" },
        { NESTED_STATE, true, MORE, MT_DTYPE_F32, 0, "its nested_absmax is missing" },
        { NESTED_STATE, true, MORE, MT_DTYPE_F32, 2, "its nested_absmax is missing or has another size" },
        { NESTED_STATE, true, MORE_MAP, MT_DTYPE_F32, 255, "its nested_quant_map is missing or not 256 numbers" },
        { NF4_STATE ", \"nested_blocksize\": 256}", true, PARTS, MT_DTYPE_U8, 0, "no \"nested_offset\"" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        put_nf4(cases[i].state, cases[i].nested, cases[i].odd, cases[i].t, cases[i].n);
        fails_with(MT_EFORMAT, cases[i].says);
        fails_with(MT_EFORMAT, "\"x.weight\" is in bitsandbytes' NF4");
    }
    put_nf4("{\"quant_type\": \"fp4\", \"blocksize\": 64, \"shape\": [4, 64]}", false, PARTS, u8, 0);
    fails_with(MT_EUNSUPPORTED, "\"x.weight\" was quantized by bitsandbytes with another quant_type than nf4");
    put_nf4(NF4_STATE "}", false, MAP, MT_DTYPE_F32, 16);
    opens_with(1, 1);
}

/* A matrix of 16 x 64 in groups of 32. */
static void put_int4(bool awq, int odd, mt_dtype t, int64_t rows)
{
    static int32_t order[64];
    named all[] = { { "qweight", MT_DTYPE_I32, awq ? 64 : 8, awq ? 2 : 16, NULL },
                    { "qzeros", MT_DTYPE_I32, 2, 2, NULL },
                    { "scales", MT_DTYPE_F16, 2, 16, NULL },
                    { awq ? NULL : "g_idx", MT_DTYPE_I32, 64, 0, order },
                    { NULL, MT_DTYPE_I32, 0, 0, NULL } };
    for (int c = 0; c < 64; c++) order[c] = c % 2;
    if (odd == 4) order[5] = 2;
    if (odd < 4) all[odd].t = t, all[odd].rows = rows;
    if (odd < 4 && !rows) all[odd].name = "other";
    if (odd < 4 && !rows) all[odd].rows = 1;
    put_tensors(all);
}

#define INT4_CONFIG(method, more)                                                                                                \
    "{\"quantization_config\": {\"quant_method\": \"" method "\", \"bits\": 4, \"group_size\": 32" more "}}"

static void damaged_int4_names_the_tensor_and_its_quantization(void **state)
{
    (void)state;
    static const struct {
        int odd;
        mt_dtype t;
        int64_t rows;
        const char *says;
    } cases[] = {
        { 0, MT_DTYPE_I16, 8, "its codes are not a matrix of I32" },
        { 1, MT_DTYPE_I32, 0, "its zero points (.qzeros) are missing" },
        { 1, MT_DTYPE_I32, 3, "or do not fit its groups" },
        { 1, MT_DTYPE_F32, 2, "its zero points (.qzeros) are missing or do not fit its groups" },
        { 2, MT_DTYPE_F16, 0, "its .scales are missing" },
        { 2, MT_DTYPE_F16, 4, "its .scales are missing or do not fit its groups" },
        { 2, MT_DTYPE_I16, 2, "its .scales are missing or do not fit its groups" },
        { 3, MT_DTYPE_I32, 63, "its g_idx is not an I32 for each input" },
        { 4, MT_DTYPE_I32, 0, "its g_idx names a group that is not there" },
    };
    put_int4(false, 5, MT_DTYPE_I32, 0);
    fails_with(MT_ENOENT, "config.json is missing: it says how tensors \".qweight\" are quantized");
    put_text("config.json", INT4_CONFIG("gptq", ""));
    opens_with(1, 1);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        put_int4(false, cases[i].odd, cases[i].t, cases[i].rows);
        fails_with(MT_EFORMAT, cases[i].says);
        fails_with(MT_EFORMAT, "\"x.qweight\" is in GPTQ's int4");
    }
    put_int4(false, 5, MT_DTYPE_I32, 0);
    static const char *const odd_configs[][2] = {
        { "{}", "quant_method should be \"gptq\" or \"awq\"" },
        { "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 8}}", "bits is 8; of GPTQ and AWQ, 4 bits are read" },
        { INT4_CONFIG("gptq", ", \"checkpoint_format\": \"marlin\""), "\"gptq\" and \"gptq_v2\" are read" },
        { INT4_CONFIG("awq", ", \"version\": \"gemv\""), "of AWQ, \"gemm\" is read" },
    };
    for (size_t i = 0; i < MT_COUNT(odd_configs); i++) {
        put_text("config.json", odd_configs[i][0]);
        fails_with(MT_EUNSUPPORTED, odd_configs[i][1]);
    }
    put_text("config.json", "{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 12}}");
    fails_with(MT_EFORMAT, "group_size should be -1 or a multiple of 8");
    put_text("config.json", INT4_CONFIG("awq", ", \"version\": \"gemm\""));
    fails_with(MT_EFORMAT, "\"x.qweight\" is in AWQ's int4");
    put_int4(true, 5, MT_DTYPE_I32, 0);
    opens_with(1, 1);
}

static void an_index_of_pickles_is_checked_as_any_other(void **state)
{
    (void)state;
    put_text("pytorch_model.bin.index.json", "{\"weight_map\": {\"a\": \"../a.bin\"}}");
    fails_with(MT_EFORMAT, "not the name of a .bin file");
    put_text("pytorch_model.bin.index.json", "{\"weight_map\": {\"a\": \"a.bin\"}}");
    fails_with(MT_ENOENT, "a.bin is missing (0 of the 1 files named in pytorch_model.bin.index.json are there)");
    put_text("a.bin", "hello");
    fails_with(MT_EFORMAT, "a.bin: not a file that torch.save writes");
}

static void every_allocation_and_file_call_may_fail(void **state)
{
    (void)state;
    static const struct {
        mt_fault_kind kind;
        mt_rc rc;
    } kinds[] = { { MT_FAULT_ALLOC, MT_ENOMEM }, { MT_FAULT_FILE, MT_EIO } };
    const char *dirs[] = { MT_FIXTURE("safetensors/sharded"), dir, MT_TESTS_DIR "/golden/weights/bnb_nf4_nested",
                           MT_TESTS_DIR "/golden/weights/gptq" };
    put_fixture("b.safetensors", second);
    for (size_t k = 0; k < MT_COUNT(kinds) * MT_COUNT(dirs); k++) {
        for (int n = 0;; n++) {
            mt_err err = { 0 };
            mt_shards *s = NULL;
            mt_fault_arm(kinds[k / MT_COUNT(dirs)].kind, n);
            mt_rc rc = mt_shards_open(&s, dirs[k % MT_COUNT(dirs)], &err);
            bool hit = mt_fault_disarm();
            if (!hit) {
                assert_ok(rc);
                mt_shards_close(s);
                assert_true(n > 0);
                break;
            }
            assert_int_equal(rc, kinds[k / MT_COUNT(dirs)].rc);
            assert_null(s);
        }
    }
}

#define with_dir(test) cmocka_unit_test_setup_teardown(test, make_dir, tempdir_remove)
MT_TEST_MAIN(cmocka_unit_test(a_sharded_model_reads_as_one), with_dir(a_single_file_opens_under_any_name),
             with_dir(files_beside_the_index_are_left_alone), with_dir(a_missing_shard_is_named),
             with_dir(a_tensor_missing_from_its_shard_is_named), with_dir(a_tensor_in_two_files_is_taken_where_the_index_says),
             with_dir(a_tensor_in_two_files_that_the_index_does_not_list_is_refused), with_dir(an_index_cannot_point_outside),
             with_dir(broken_indexes_are_refused), with_dir(directories_without_usable_weights_say_what_is_there),
             with_dir(fp8_scales_must_fit_their_weights), with_dir(mxfp4_blocks_and_scales_must_fit),
             with_dir(damaged_nf4_names_the_tensor_and_its_quantization),
             with_dir(damaged_int4_names_the_tensor_and_its_quantization), with_dir(an_index_of_pickles_is_checked_as_any_other),
             with_dir(every_allocation_and_file_call_may_fail))
