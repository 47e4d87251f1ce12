/* bytes.h - three ways of writing bytes as text: GPT-2's printable alphabet, "<0x41>", and base64. */
#ifndef MT_TOKENIZER_BYTES_H
#define MT_TOKENIZER_BYTES_H

#include "base/str.h"

/* GPT-2's alphabet: a printable code point (below 0x144) for every byte. */
uint32_t mt_byte_to_cp(uint8_t byte);
/* The bytes a token in that alphabet stands for are written to out[n] (they are never more); their count,
 * or -1 if it has another character. */
int64_t mt_bytes_from_alphabet(const char *s, size_t n, char *out);

/* The byte of "<0x41>" (either case), or -1. */
int mt_byte_from_hex(const char *s, size_t n);

/* Decoded bytes are written to out[n]; their count, or -1 if s is not base64. */
int64_t mt_base64_decode(const char *s, size_t n, char *out);

/* Append bytes as text: invalid UTF-8 becomes U+FFFD, one for each maximal part. */
void mt_str_add_lossy(mt_str *out, const char *s, size_t n);

#endif
