/* Any bytes are a model whose tensors can be read and whose files can be written, or an error; a config and a tokenizer
 * that are written go through our own readers. */
#include "ckpt/gguf.h"
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
