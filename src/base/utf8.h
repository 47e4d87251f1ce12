/* utf8.h - strict UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF. */
#ifndef MT_BASE_UTF8_H
#define MT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decode one code point; bytes used (1 to 4), or 0 if s does not start with a valid one. */
int mt_utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Encode; bytes written to out[4], 0 if cp is not a scalar value. */
int mt_utf8_encode(uint32_t cp, char *out);
/* True if all n bytes are valid; else *bad_at (if given) is the first offending byte. */
bool mt_utf8_valid(const char *s, size_t n, size_t *bad_at);
/* Bytes of the byte order mark with which s starts, as files from Windows do: 3, or 0 without one. */
size_t mt_utf8_mark(const char *s, size_t n);
/* '?' for every control character but newline and tab, those of U+0080..U+009F too: names come from strangers' files, and a
 * terminal obeys what it is shown.  Also for every byte that is not UTF-8, such as what is left of a character that a message
 * cuts: logs and scripts read these texts. */
void mt_utf8_tame(char *s);

#endif
