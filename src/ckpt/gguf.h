/* gguf.h - models in GGUF files (llama.cpp's format, versions 2 and 3): weights, config and tokenizer in one.
 *
 * open() maps the file, checks its whole header and gives the tensors Hugging Face's names, shapes and row order, so that
 * the rest of the program sees an ordinary checkpoint.  Quantized tensors are decoded when they are read.  What
 * config.json, tokenizer.json and tokenizer_config.json would say is made from the metadata on request.
 *
 * Read: architectures llama (Mistral's models too), qwen2, qwen3; types F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to
 * Q6_K; tokenizers "gpt2" and "llama". */
#ifndef MT_CKPT_GGUF_H
#define MT_CKPT_GGUF_H

#include "base/str.h"
#include "ckpt/tensor.h"

typedef struct mt_gguf mt_gguf;

/* The file starts as a GGUF file does; false also when it cannot be read. */
bool mt_gguf_is(const char *path);
mt_rc mt_gguf_open(mt_gguf **out, const char *path, mt_err *err);
/* The same for bytes already in memory, which must outlive it; `name` stands for the path in messages. */
mt_rc mt_gguf_open_memory(mt_gguf **out, const void *bytes, size_t n, const char *name, mt_err *err);
void mt_gguf_close(mt_gguf *g);

/* Tensors in file order, 0 <= i < count. */
size_t mt_gguf_count(const mt_gguf *g);
const mt_st_tensor *mt_gguf_at(const mt_gguf *g, size_t i);

/* Texts of files a Hugging Face directory has, appended to out. */
mt_rc mt_gguf_config(const mt_gguf *g, mt_str *out, mt_err *err);
mt_rc mt_gguf_generation_config(const mt_gguf *g, mt_str *out, mt_err *err);
mt_rc mt_gguf_tokenizer(const mt_gguf *g, mt_str *out, mt_err *err);
mt_rc mt_gguf_tokenizer_config(const mt_gguf *g, mt_str *out, mt_err *err);

#endif
