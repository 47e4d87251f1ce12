/* Any bytes are a model whose tensors can be read and whose files can be written, or an error; a config and a tokenizer
 * that are written go through our own readers. */
#include "ckpt/gguf.h"
#include "forge.h"
#include "harness.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_tensors(const mt_gguf *g)
{
    for (size_t i = 0; i < mt_gguf_count(g); i++) {
        const mt_st_tensor *t = mt_gguf_at(g, i);
        float x[64];
        for (size_t at = 0; at < t->n && at < 4096; at += 64) mt_st_read(t, at, t->n - at < 64 ? t->n - at : 64, x);
        if (t->n) mt_st_read(t, t->n - 1, 1, x);
    }
}

static void read_files(const mt_gguf *g)
{
    mt_err err = { 0 };
    mt_str config = { 0 }, tokenizer = { 0 }, tokenizer_config = { 0 }, generation = { 0 };
    mt_config *c;
    mt_tokenizer *tok;
    if (!mt_gguf_config(g, &config, &err) && !mt_config_parse(&c, config.s, config.n, "config.json", &err)) mt_config_close(c);
    if (!mt_gguf_tokenizer(g, &tokenizer, &err) && !mt_gguf_tokenizer_config(g, &tokenizer_config, &err) &&
        !mt_tokenizer_open_texts(&tok, tokenizer.s, tokenizer.n, tokenizer_config.s, tokenizer_config.n, "tokenizer.json", &err))
        mt_tokenizer_close(tok);
    (void)mt_gguf_generation_config(g, &generation, &err);
    mt_str_free(&config);
    mt_str_free(&tokenizer);
    mt_str_free(&tokenizer_config);
    mt_str_free(&generation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_err err = { 0 };
    mt_gguf *g;
    if (mt_gguf_open_memory(&g, data, size, "fuzz.gguf", &err)) return err.msg[0] ? 0 : (abort(), 0);
    read_tensors(g);
    read_files(g);
    mt_gguf_close(g);
    return 0;
}

/* Keys that are read, with values of the kind they have or another. */
static void put_number(fuzz_rng *r, mt_str *s, const char *key, uint64_t usual, size_t *n)
{
    ++*n;
    if (!fuzz_once_in(r, 10)) return forge_gg_u32(s, key, fuzz_odd(r, usual));
    static const int widths[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    int type = (int)fuzz_below(r, 13);
    if (widths[type] && fuzz_once_in(r, 2)) {
        size_t items = fuzz_below(r, 5);
        forge_gg_array(s, key, type, fuzz_odd(r, items));
        for (size_t i = 0; i < items; i++) forge_le(s, fuzz_odd(r, usual), widths[type]);
    } else if (widths[type]) {
        forge_gg_key(s, key, type);
        forge_le(s, fuzz_odd(r, usual), widths[type]);
    } else
        forge_gg_str(s, key, "text");
}

static void put_tokenizer(fuzz_rng *r, mt_str *s, size_t *n)
{
    static const char *const words[] = { "<unk>",
                                         "<s>",
                                         "</s>",
                                         "a",
                                         "b",
                                         "ab",
                                         "aab",
                                         "\xe2\x96\x81",
                                         "\xe2\x96\x81"
                                         "a",
                                         "<0x0A>",
                                         "",
                                         "a b" };
    bool spm = fuzz_once_in(r, 2);
    size_t n_tokens = fuzz_below(r, 14);
    forge_gg_str(s, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    forge_gg_array(s, "tokenizer.ggml.tokens", 8, fuzz_odd(r, n_tokens));
    for (size_t i = 0; i < n_tokens; i++) {
        const char *word = FUZZ_PICK(r, words);
        forge_gg_text(s, word, strlen(word) + fuzz_once_in(r, 20)); /* now and then with its NUL */
    }
    forge_gg_array(s, "tokenizer.ggml.scores", 6, fuzz_odd(r, n_tokens));
    for (size_t i = 0; i < n_tokens; i++) forge_le(s, fuzz_below(r, 4) ? 0xc0000000u + fuzz_below(r, 9) : fuzz_u64(r), 4);
    forge_gg_array(s, "tokenizer.ggml.token_type", 5, fuzz_odd(r, n_tokens));
    for (size_t i = 0; i < n_tokens; i++) forge_le(s, fuzz_odd(r, 1 + fuzz_below(r, 6)), 4);
    forge_gg_array(s, "tokenizer.ggml.merges", 8, 1);
    forge_gg_text(s, "a b", 3);
    *n += 5;
    put_number(r, s, "tokenizer.ggml.bos_token_id", fuzz_below(r, 4), n);
    put_number(r, s, "tokenizer.ggml.eos_token_id", fuzz_below(r, 4), n);
    put_number(r, s, "tokenizer.ggml.unknown_token_id", 0, n);
}

void fuzz_generate(fuzz_rng *r, mt_str *out)
{
    static const char *const archs[] = { "llama",  "llama", "qwen2",   "qwen3",   "gemma", "gemma2",
                                         "gemma3", "phi3",  "granite", "smollm3", "olmo2", "x" };
    static const char *const keys[] = { "embedding_length",
                                        "attention.head_count",
                                        "attention.head_count_kv",
                                        "feed_forward_length",
                                        "block_count",
                                        "context_length",
                                        "attention.layer_norm_rms_epsilon",
                                        "rope.freq_base",
                                        "attention.key_length",
                                        "attention.sliding_window",
                                        "rope.dimension_count",
                                        "expert_count",
                                        "vocab_size" };
    static const char *const tensors[] = {
        "token_embd.weight",      "output.weight",         "output_norm.weight",    "rope_freqs.weight",
        "blk.0.attn_q.weight",    "blk.0.attn_k.weight",   "blk.0.attn_v.weight",   "blk.0.attn_output.weight",
        "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "blk.0.ffn_up.weight",   "blk.0.ffn_gate.weight",
        "blk.0.ffn_down.weight",  "blk.0.attn_q.bias",     "blk.0.attn_qkv.weight", "blk.0.x.weight"
    };
    const char *arch = FUZZ_PICK(r, archs);
    mt_str kvs = { 0 }, list = { 0 };
    char key[64];
    size_t n_kvs = 1, n_tensors = fuzz_below(r, 6);
    forge_gg_str(&kvs, "general.architecture", arch);
    for (size_t i = 0; i < MT_COUNT(keys); i++) {
        if (i > 5 && fuzz_once_in(r, 2)) continue;
        snprintf(key, sizeof key, "%s.%s", arch, keys[i]);
        put_number(r, &kvs, key, i == 0 ? 64 : 4, &n_kvs);
    }
    if (fuzz_once_in(r, 8)) put_number(r, &kvs, "general.alignment", 32, &n_kvs);
    if (fuzz_once_in(r, 2)) put_tokenizer(r, &kvs, &n_kvs);
    for (size_t i = 0; i < n_tensors; i++) {
        const char *name = FUZZ_PICK(r, tensors);
        size_t n_dims = fuzz_odd(r, 2);
        forge_gg_text(&list, name, strlen(name));
        forge_le(&list, n_dims, 4);
        for (size_t k = 0; k < n_dims && k < 4; k++) forge_le(&list, fuzz_odd(r, 64), 8);
        forge_le(&list, fuzz_odd(r, fuzz_below(r, 15)), 4);
        forge_le(&list, fuzz_odd(r, 0), 8);
    }
    forge_gg_file(out, &kvs, fuzz_odd(r, n_kvs), &list, fuzz_odd(r, n_tensors), fuzz_once_in(r, 2) ? 64 * 64 * 4 : 64);
    mt_str_free(&kvs);
    mt_str_free(&list);
    if (fuzz_once_in(r, 3)) fuzz_damage(r, out, 4);
}
