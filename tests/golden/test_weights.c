/* Weights in pickles, GGUF, FP8, MXFP4, NF4 and int4 hold the numbers that PyTorch and the packages which made them find. */
#include "test.h"

#include "base/log.h"
#include "ckpt/model_files.h"
#include "ckpt/shards.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#define DIR MT_TESTS_DIR "/golden/weights/"

static char warned[512];

static void keep_warning(void *user, mt_log_level level, const char *text)
{
    (void)user;
    if (level == MT_LOG_WARN) snprintf(warned, sizeof warned, "%s", text);
}

static bool same_float(float a, float b)
{
    return mt_f32_bits(a) == mt_f32_bits(b) || (isnan(a) && isnan(b)) || !(a < b || a > b);
}

/* The numbers of t read in pieces of `piece` are those of e. */
static void same_in_pieces(const mt_st_tensor *t, const mt_st_tensor *e, size_t piece)
{
    float got[512], expected[512];
    assert_true(piece <= 512);
    for (size_t at = 0; at < t->n; at += piece) {
        size_t n = t->n - at < piece ? t->n - at : piece;
        mt_st_read(t, at, n, got);
        mt_st_read(e, at, n, expected);
        for (size_t i = 0; i < n; i++)
            if (!same_float(got[i], expected[i]))
                fail_msg("%s[%zu] in pieces of %zu: %.9g, expected %.9g", t->name, at + i, piece, (double)got[i],
                         (double)expected[i]);
    }
}

/* Whole pages of the bytes that a range of numbers names. */
static void protect(const mt_st_span *s, int how)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)s->from / page * page;
    assert_true(s->from >= s->map->data && s->from + s->n <= s->map->data + s->map->size);
    assert_int_equal(mprotect((void *)from, (uintptr_t)s->from + s->n - from, how), 0);
}

/* Reading numbers touches no page but those of the bytes they name: with the others taken away, it would be a signal. */
static void reads_only_what_it_names(const mt_st_tensor *t, size_t piece)
{
    mt_st_span all[MT_ST_SPANS], some[MT_ST_SPANS];
    float got[512];
    const int n_all = mt_st_spans(t, 0, t->n, all);
    for (size_t at = 0; at < t->n; at += piece) {
        const size_t n = t->n - at < piece ? t->n - at : piece;
        const int k = mt_st_spans(t, at, n, some);
        assert_int_equal(k, n_all);
        for (int i = 0; i < k; i++) {
            assert_true(some[i].from >= all[i].from && some[i].from + some[i].n <= all[i].from + all[i].n);
            protect(&(mt_st_span){ some[i].map, some[i].map->data, some[i].map->size }, PROT_NONE);
        }
        for (int i = 0; i < k; i++) protect(&some[i], PROT_READ);
        mt_st_read(t, at, n, got);
        for (int i = 0; i < k; i++) protect(&(mt_st_span){ some[i].map, some[i].map->data, some[i].map->size }, PROT_READ);
    }
    assert_int_equal(mt_st_spans(t, 0, 0, some), 0);
}

static void holds_what_is_expected(const char *folder)
{
    mt_err err = { 0 };
    char dir[1024], file[1100];
    mt_shards *s;
    mt_safetensors *expected;
    snprintf(dir, sizeof dir, DIR "%s", folder);
    snprintf(file, sizeof file, DIR "expected/%s.safetensors", folder);
    assert_ok(mt_safetensors_open(&expected, file, &err));
    assert_ok(mt_shards_open(&s, dir, &err));
    assert_int_equal(mt_shards_count(s), mt_safetensors_count(expected));
    for (size_t i = 0; i < mt_safetensors_count(expected); i++) {
        const mt_st_tensor *e = mt_safetensors_at(expected, i), *t = mt_shards_find(s, e->name);
        if (!t) fail_msg("%s: no tensor %s", folder, e->name);
        assert_string_equal(mt_st_shape_text(t->n_dims, t->shape).s, mt_st_shape_text(e->n_dims, e->shape).s);
        assert_true(mt_st_is_float(t));
        same_in_pieces(t, e, 512);
        same_in_pieces(t, e, 7);
        same_in_pieces(t, e, 1);
        reads_only_what_it_names(t, 512);
    }
    mt_shards_close(s);
    mt_safetensors_close(expected);
}

static void every_form_reads_the_same_numbers(void **state)
{
    (void)state;
    static const char *const folders[] = { "pickle_zip",
                                           "pickle_legacy",
                                           "pickle_protocol3",
                                           "pickle_protocol4",
                                           "pickle_wrapped",
                                           "pickle_sharded",
                                           "pickle_types",
                                           "gguf_quants",
                                           "gguf_llama",
                                           "gguf_llama_q8",
                                           "gguf_qwen2",
                                           "gguf_qwen3",
                                           "fp8",
                                           "fp8_deepseek",
                                           "mxfp4",
                                           "bnb_nf4",
                                           "bnb_nf4_nested",
                                           "gptq",
                                           "gptq_v2",
                                           "awq" };
    for (size_t i = 0; i < MT_COUNT(folders); i++) holds_what_is_expected(folders[i]);
}

static void tied_tensors_share_their_bytes(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_shards *s;
    assert_ok(mt_shards_open(&s, DIR "pickle_zip", &err));
    const mt_st_tensor *a = mt_shards_find(s, "embed"), *b = mt_shards_find(s, "tied");
    assert_non_null(a->data);
    assert_ptr_equal(a->data, b->data);
    assert_true(mt_st_same(a, b));
    assert_false(mt_st_same(a, mt_shards_find(s, "f32")));
    assert_null(mt_shards_find(s, "transposed")->data);
    mt_shards_close(s);
}

static void quantised_weights_are_warned_about(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_shards *s;
    const char *as;
    mt_log_set_sink(keep_warning, NULL);
    assert_ok(mt_shards_open(&s, DIR "gguf_qwen2/model.gguf", &err));
    assert_string_equal(warned, "");
    assert_int_equal(mt_shards_quantised(s, &as), 0);
    mt_shards_close(s);
    assert_ok(mt_shards_open(&s, DIR "gguf_qwen3/model.gguf", &err));
    assert_non_null(strstr(warned, "quantized (mostly Q4_0)"));
    assert_string_equal(mt_st_stored_as(mt_shards_find(s, "model.layers.0.self_attn.q_proj.weight")), "Q4_0");
    mt_shards_close(s);
    mt_log_set_sink(NULL, NULL);
}

static void the_metadata_make_a_config(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_config *c;
    assert_ok(mt_model_files_config(&c, DIR "gguf_llama/model.gguf", &err));
    assert_string_equal(c->model_type, "llama");
    assert_int_equal(c->D, 32);
    assert_int_equal(c->F, 64);
    assert_int_equal(c->L, 2);
    assert_int_equal(c->H, 4);
    assert_int_equal(c->K, 2);
    assert_int_equal(c->Dh, 8);
    assert_int_equal(c->V, 40);
    assert_int_equal(c->max_positions, 64);
    assert_false(c->tied);
    assert_false(c->qkv_bias);
    assert_true(fabs(c->eps - 1e-5) < 1e-20);
    assert_true(fabs(c->rope.theta - 500000) < 1e-9);
    assert_int_equal(c->rope.type, MT_ROPE_LLAMA3);
    assert_true(fabs(c->rope.factor - 8) < 1e-9);
    mt_config_close(c);
    assert_ok(mt_model_files_config(&c, DIR "gguf_llama_q8", &err)); /* the directory serves as well */
    assert_true(c->tied);
    assert_true(c->qkv_bias);
    mt_config_close(c);
    assert_ok(mt_model_files_config(&c, DIR "gguf_qwen3/model.gguf", &err));
    assert_string_equal(c->model_type, "qwen3");
    assert_int_equal(c->Dh, 16);
    assert_true(c->qk_norm);
    mt_config_close(c);
}

static void encodes(const mt_tokenizer *tok, const char *text, const int32_t *ids, size_t n)
{
    mt_err err = { 0 };
    mt_tok_scratch *scratch;
    mt_tokens out = { 0 };
    assert_ok(mt_tok_scratch_create(&scratch, tok, &err));
    assert_ok(mt_tokenizer_encode(tok, scratch, text, strlen(text), MT_ENCODE_SPECIAL, &out, &err));
    assert_int_equal(out.n, n);
    assert_memory_equal(out.ids, ids, n * sizeof *ids);
    mt_tokens_free(&out);
    mt_tok_scratch_free(scratch);
}

/* Ids as the Rust tokenizers library gives them for the same texts (make_goldens.py's vocabularies). */
static void a_byte_level_tokenizer_comes_along(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_tokenizer *tok;
    size_t n;
    assert_ok(mt_model_files_tokenizer(&tok, DIR "gguf_llama_q8/model.gguf", &err));
    assert_int_equal(mt_tokenizer_vocab_size(tok), 265);
    assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_BOS), 1);
    assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_EOS), 0);
    assert_true(mt_tokenizer_is_special(tok, 0));
    assert_false(mt_tokenizer_is_special(tok, 264));
    assert_string_equal(mt_tokenizer_templates(tok, &n)[0].text, "{% for m in messages %}{{ m['content'] }}{% endfor %}");
    encodes(tok, " the 12<tool>in<|end|>", (const int32_t[]){ 1, 260, 34, 51, 52, 264, 261, 0 },
            8); /* digits stand alone: "1 2" never merges */
    mt_tokenizer_close(tok);
}

static void a_sentencepiece_tokenizer_comes_along(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_tokenizer *tok;
    assert_ok(mt_model_files_tokenizer(&tok, DIR "gguf_llama/model.gguf", &err));
    assert_int_equal(mt_tokenizer_role_id(tok, MT_TOK_UNK), 0);
    encodes(tok, "the in\xc3\xa9!", (const int32_t[]){ 1, 261, 263, 262, 269, 36 }, 6); /* ▁the ▁ in é <0x21> */
    mt_tokenizer_close(tok);
}

MT_TEST_MAIN(cmocka_unit_test(every_form_reads_the_same_numbers), cmocka_unit_test(tied_tensors_share_their_bytes),
             cmocka_unit_test(quantised_weights_are_warned_about), cmocka_unit_test(the_metadata_make_a_config),
             cmocka_unit_test(a_byte_level_tokenizer_comes_along), cmocka_unit_test(a_sentencepiece_tokenizer_comes_along))
