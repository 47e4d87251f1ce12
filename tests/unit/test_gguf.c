/* GGUF files that cannot be read: a message that says what and never a crash.  Files are built here, piece by piece. */
#include "forge.h"
#include "test.h"

#include "base/fault.h"
#include "base/file.h"
#include "ckpt/gguf.h"

#include <stdlib.h>

#define DIR MT_TESTS_DIR "/golden/weights/"

static void put_u32(mt_str *b, uint32_t v) { forge_le(b, v, 4); }
static void put_u64(mt_str *b, uint64_t v) { forge_le(b, v, 8); }

static void put_text(mt_str *b, const char *s)
{
    put_u64(b, strlen(s));
    mt_str_puts(b, s);
}

static void put_kv_text(mt_str *b, const char *key, const char *value)
{
    put_text(b, key);
    put_u32(b, 8);
    put_text(b, value);
}

static void put_kv_u32(mt_str *b, const char *key, uint32_t value)
{
    put_text(b, key);
    put_u32(b, 4);
    put_u32(b, value);
}

static void put_head(mt_str *b, uint32_t version, uint64_t n_tensors, uint64_t n_kvs)
{
    mt_str_puts(b, "GGUF");
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_kvs);
}

static void put_tensor(mt_str *b, const char *name, uint32_t n_dims, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset)
{
    put_text(b, name);
    put_u32(b, n_dims);
    put_u64(b, d0);
    if (n_dims > 1) put_u64(b, d1);
    put_u32(b, type);
    put_u64(b, offset);
}

static void put_padding(mt_str *b, size_t n)
{
    while (n--) mt_str_putc(b, '\0');
}

/* The bytes fail with this; they are released. */
static void fails_with(mt_str *b, mt_rc rc, const char *says)
{
    mt_err err = { 0 };
    mt_gguf *g = NULL;
    assert_true(mt_str_ok(b));
    mt_rc got = mt_gguf_open_memory(&g, b->s, b->n, "x.gguf", &err);
    if (got != rc) fail_msg("%s instead of %s: %s", mt_rc_name(got), mt_rc_name(rc), err.msg);
    assert_says(says);
    assert_says("x.gguf");
    mt_str_free(b);
}

/* One tensor of a llama file with 4 heads (2 for keys) of 8, then 4096 zero bytes. */
static mt_str one_tensor(const char *name, uint32_t n_dims, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset)
{
    mt_str b = { 0 };
    put_head(&b, 3, 1, 4);
    put_kv_text(&b, "general.architecture", "llama");
    put_kv_u32(&b, "llama.embedding_length", 32);
    put_kv_u32(&b, "llama.attention.head_count", 4);
    put_kv_u32(&b, "llama.attention.head_count_kv", 2);
    put_tensor(&b, name, n_dims, d0, d1, type, offset);
    put_padding(&b, 4096);
    return b;
}

static void headers_are_checked(void **state)
{
    (void)state;
    mt_str b = { 0 };
    mt_str_puts(&b, "GGML");
    fails_with(&b, MT_EFORMAT, "not a GGUF file");
    put_head(&b, 1, 0, 0);
    fails_with(&b, MT_EUNSUPPORTED, "GGUF version 1; 2 and 3 are read");
    put_head(&b, 0x03000000, 0, 0);
    fails_with(&b, MT_EUNSUPPORTED, "big-endian");
    put_head(&b, 3, UINT64_MAX, 0);
    fails_with(&b, MT_EFORMAT, "more entries than it has room for");
    put_head(&b, 3, 0, UINT64_MAX);
    fails_with(&b, MT_EFORMAT, "more entries than it has room for");
    put_head(&b, 3, 0, 0);
    fails_with(&b, MT_EFORMAT, "no general.architecture");
}

static void metadata_are_checked(void **state)
{
    (void)state;
    mt_str b = { 0 };
    put_head(&b, 3, 0, 1);
    put_kv_text(&b, "general.architecture", "mamba");
    fails_with(&b, MT_EUNSUPPORTED, "architecture \"mamba\"");
    put_head(&b, 3, 0, 2);
    put_kv_text(&b, "general.architecture", "llama");
    put_kv_u32(&b, "llama.expert_count", 8);
    fails_with(&b, MT_EUNSUPPORTED, "a mixture of 8 experts");
    put_head(&b, 3, 0, 2);
    put_kv_text(&b, "general.architecture", "llama");
    put_kv_u32(&b, "split.count", 3);
    fails_with(&b, MT_EUNSUPPORTED, "one of 3 files");
    put_head(&b, 3, 0, 2);
    put_kv_text(&b, "general.architecture", "llama");
    put_kv_u32(&b, "general.alignment", 3);
    fails_with(&b, MT_EFORMAT, "not a power of two");
    put_head(&b, 3, 0, 1);
    put_text(&b, "k");
    put_u32(&b, 9); /* an array of arrays */
    put_u32(&b, 9);
    put_u64(&b, 1);
    fails_with(&b, MT_EUNSUPPORTED, "\"k\" is of an unknown kind");
    put_head(&b, 3, 0, 1);
    put_text(&b, "k");
    put_u32(&b, 9); /* more numbers than the file has bytes */
    put_u32(&b, 10);
    put_u64(&b, UINT64_MAX / 4);
    fails_with(&b, MT_EFORMAT, "it ends within \"k\"");
    put_head(&b, 3, 0, 1);
    put_u64(&b, UINT64_MAX);
    put_padding(&b, 16);
    fails_with(&b, MT_EFORMAT, "it ends within a name");
}

static void tensors_are_checked(void **state)
{
    (void)state;
    mt_str b;
    b = one_tensor("blk.0.ffn_up.weight", 2, 32, 4, 8, 0);
    mt_err err = { 0 };
    mt_gguf *g;
    assert_ok(mt_gguf_open_memory(&g, b.s, b.n, "x.gguf", &err)); /* the others differ from this in one thing */
    assert_string_equal(mt_gguf_at(g, 0)->name, "model.layers.0.mlp.up_proj.weight");
    assert_int_equal(mt_gguf_at(g, 0)->shape[0], 4);
    assert_int_equal(mt_gguf_at(g, 0)->shape[1], 32);
    mt_gguf_close(g);
    mt_str_free(&b);
    b = one_tensor("blk.0.ffn_up.weight", 2, 33, 4, 8, 0);
    fails_with(&b, MT_EFORMAT, "rows of 33, not a multiple of Q8_0's 32");
    b = one_tensor("blk.0.ffn_up.weight", 2, 32, 4, 20, 0);
    fails_with(&b, MT_EUNSUPPORTED, "stored as IQ4_NL, which is not read");
    b = one_tensor("blk.0.ffn_up.weight", 2, 32, 4, 99, 0);
    fails_with(&b, MT_EUNSUPPORTED, "unknown way (type 99)");
    b = one_tensor("blk.0.ffn_up.weight", 5, 32, 4, 8, 0);
    fails_with(&b, MT_EFORMAT, "5 dimensions");
    b = one_tensor("blk.0.ffn_up.weight", 2, 32, 4, 8, 7);
    fails_with(&b, MT_EFORMAT, "is not aligned");
    b = one_tensor("blk.0.ffn_up.weight", 2, 32, 4, 8, 4096);
    fails_with(&b, MT_EFORMAT, "reaches past the end of the file");
    b = one_tensor("blk.0.ffn_up.weight", 2, UINT64_MAX / 2 - 31, 64, 8, 0);
    fails_with(&b, MT_EFORMAT, "larger than any memory");
    b = one_tensor("blk.0.ffn_gate_inp.weight", 2, 32, 4, 8, 0);
    fails_with(&b, MT_EUNSUPPORTED, "has no place in a llama model");
    b = one_tensor("blk.x.ffn_up.weight", 2, 32, 4, 8, 0);
    fails_with(&b, MT_EUNSUPPORTED, "has no place in a llama model");
    b = one_tensor("blk.0.attn_q.weight", 2, 32, 31, 8, 0);
    fails_with(&b, MT_EFORMAT, "31 rows, 4 heads of 8 were expected");
    b = (mt_str){ 0 };
    put_head(&b, 2, 2, 1);
    put_kv_text(&b, "general.architecture", "qwen2");
    put_tensor(&b, "output.weight", 1, 8, 0, 0, 0);
    put_tensor(&b, "output.weight", 1, 8, 0, 0, 32);
    put_padding(&b, 256);
    fails_with(&b, MT_EFORMAT, "\"lm_head.weight\" is there twice");
}

/* Whatever opens can be read and asked for its files. */
static void try_bytes(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_gguf *g;
    char *exact = malloc(n ? n : 1);
    memcpy(exact, bytes, n);
    if (mt_gguf_open_memory(&g, exact, n, "x.gguf", &err) == MT_OK) {
        mt_rc (*const texts[])(const mt_gguf *, mt_str *, mt_err *) = { mt_gguf_config, mt_gguf_generation_config,
                                                                        mt_gguf_tokenizer, mt_gguf_tokenizer_config };
        for (size_t i = 0; i < mt_gguf_count(g); i++) {
            const mt_st_tensor *t = mt_gguf_at(g, i);
            float x;
            if (t->n) mt_st_read(t, 0, 1, &x), mt_st_read(t, t->n - 1, 1, &x);
        }
        for (size_t i = 0; i < MT_COUNT(texts); i++) {
            mt_str text = { 0 };
            (void)texts[i](g, &text, &err);
            mt_str_free(&text);
        }
        mt_gguf_close(g);
    } else
        assert_true(err.msg[0]);
    free(exact);
}

static void damage_never_crashes(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char *bytes;
    size_t n, head = 9000; /* of the file with a tokenizer: its metadata and the list of tensors */
    assert_ok(mt_file_read(&bytes, &n, DIR "gguf_llama_q8/model.gguf", 1 << 20, &err));
    if (head > n) head = n;
    for (size_t i = 0; i < n; i += i < head ? 1 : 97) try_bytes(bytes, i);
    for (size_t i = 0; i < head; i++) {
        bytes[i] = (char)~bytes[i];
        try_bytes(bytes, n);
        bytes[i] = (char)~bytes[i];
    }
    mt_free(bytes);
}

static void every_allocation_and_file_call_may_fail(void **state)
{
    (void)state;
    static const struct {
        mt_fault_kind kind;
        mt_rc rc;
    } kinds[] = { { MT_FAULT_ALLOC, MT_ENOMEM }, { MT_FAULT_FILE, MT_EIO } };
    for (size_t k = 0; k < MT_COUNT(kinds); k++) {
        for (long n = 0;; n++) {
            mt_err err = { 0 };
            mt_gguf *g = NULL;
            mt_str text = { 0 };
            mt_fault_arm(kinds[k].kind, n);
            mt_rc rc = mt_gguf_open(&g, DIR "gguf_llama/model.gguf", &err);
            if (!rc) rc = mt_gguf_config(g, &text, &err);
            if (!rc) rc = mt_gguf_generation_config(g, &text, &err);
            if (!rc) rc = mt_gguf_tokenizer(g, &text, &err);
            if (!rc) rc = mt_gguf_tokenizer_config(g, &text, &err);
            bool hit = mt_fault_disarm();
            mt_str_free(&text);
            mt_gguf_close(g);
            if (!hit) break;
            assert_int_equal(rc, kinds[k].rc);
        }
    }
}

MT_TEST_MAIN(cmocka_unit_test(headers_are_checked), cmocka_unit_test(metadata_are_checked), cmocka_unit_test(tensors_are_checked),
             cmocka_unit_test(damage_never_crashes), cmocka_unit_test(every_allocation_and_file_call_may_fail))
