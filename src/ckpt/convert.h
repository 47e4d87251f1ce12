/* convert.h - any model we can read, written as a Hugging Face directory: config.json, safetensors, tokenizer.
 *
 * The output directory must not exist, or be empty.  Weights appear under their names only when all of them are
 * written; config.json comes last, so that what has one is complete. */
#ifndef MT_CKPT_CONVERT_H
#define MT_CKPT_CONVERT_H

#include "base/dtype.h"
#include "base/err.h"

typedef struct mt_convert {
    const char *in;  /* a model directory or a .gguf file */
    const char *out; /* made if need be */
    bool recast;     /* every float becomes `dtype`; else it keeps its own, and bfloat16 where it was quantized */
    mt_dtype dtype;  /* F32, BF16 or F16 */
    size_t max_shard_bytes;
    void (*progress)(void *user, size_t done_bytes, size_t total_bytes, const char *tensor); /* may be NULL; bytes as written */
    void *user;
} mt_convert;

typedef struct mt_convert_result {
    size_t n_tensors, bytes;
    size_t n_overflowed; /* numbers too large for float16 */
    bool tokenizer;      /* one was found */
} mt_convert_result;

mt_rc mt_convert_run(const mt_convert *c, mt_convert_result *result, mt_err *err);

#endif
