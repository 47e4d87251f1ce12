/* A tokenizer.json, then (after a NUL byte, if there is one) a text to encode with it and decode again. */
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual_text[] =
    "Hello, wörld! 你好 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb it's 12345 <s> e\xcc\x81\n\n  x\t";

static void use(const mt_tokenizer *tok, const char *text, size_t n)
{
    mt_err err = { 0 };
    mt_tok_scratch *sc = NULL;
    mt_tokens out = { 0 };
    mt_str decoded = { 0 };
    if (!mt_tok_scratch_create(&sc, tok, &err) &&
        !mt_tokenizer_encode(tok, sc, text, n, MT_ENCODE_SPECIAL | MT_ENCODE_RANGES, &out, &err)) {
        for (size_t i = 0; i < out.n; i++)
            if (out.ranges[i].start > out.ranges[i].end || out.ranges[i].end > n) __builtin_trap();
        if (!mt_tokenizer_decode(tok, out.ids, out.n, false, &decoded, &err) && decoded.n &&
            !mt_utf8_valid(decoded.s, decoded.n, NULL))
            __builtin_trap();
        out.n = 0;
        mt_tokenizer_encode(tok, sc, text, n, 0, &out, &err);
    }
    mt_str_free(&decoded);
    mt_tokens_free(&out);
    mt_tok_scratch_free(sc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_err err = { 0 };
    mt_tokenizer *tok;
    const char *json = (const char *)data, *split = size ? memchr(json, 0, size) : NULL;
    size_t n = split ? (size_t)(split - json) : size;
    if (mt_tokenizer_open_json(&tok, json, n, "fuzz.json", &err)) return 0;
    if (split && size - n - 1 < 4096) use(tok, split + 1, size - n - 1);
    use(tok, usual_text, sizeof usual_text - 1);
    mt_tokenizer_close(tok);
    return 0;
}
