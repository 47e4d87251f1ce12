/* A tokenizer.model of either kind, opened and used on a fixed text. */
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "  Hello, wörld!  你好 \xf0\x9f\x91\xa9 it's 12345 <mask> e\xcc\x81\n\n  x\t\xe2\x96\x81 theory ing ";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_err err = { 0 };
    mt_tokenizer *tok;
    if (mt_tokenizer_open_model(&tok, (const char *)data, size, "fuzz.model", &err)) return 0;
    mt_tok_scratch *sc = NULL;
    mt_tokens out = { 0 };
    mt_str decoded = { 0 };
    size_t n = sizeof text - 1;
    if (!mt_tok_scratch_create(&sc, tok, &err) && !mt_tokenizer_encode(tok, sc, text, n, MT_ENCODE_RANGES, &out, &err)) {
        for (size_t i = 0; i < out.n; i++)
            if (out.ranges[i].start > out.ranges[i].end || out.ranges[i].end > n) __builtin_trap();
        if (!mt_tokenizer_decode(tok, out.ids, out.n, false, &decoded, &err) && decoded.n &&
            !mt_utf8_valid(decoded.s, decoded.n, NULL))
            __builtin_trap();
    }
    mt_str_free(&decoded);
    mt_tokens_free(&out);
    mt_tok_scratch_free(sc);
    mt_tokenizer_close(tok);
    return 0;
}
