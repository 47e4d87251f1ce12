/* charsmap.h - SentencePiece's precompiled table of replacements: a double-array trie over UTF-8 prefixes whose
 * values are offsets of NUL-terminated strings.  The blob comes from a file: every index is checked. */
#ifndef MT_TOKENIZER_CHARSMAP_H
#define MT_TOKENIZER_CHARSMAP_H

#include "tokenizer/text.h"

typedef struct mt_charsmap {
    uint32_t *units; /* the double array */
    size_t n_units;
    char *strings; /* NUL-terminated as a whole */
    size_t n_strings;
} mt_charsmap;

mt_rc mt_charsmap_init(mt_charsmap *map, const char *blob, size_t n, const char *what, mt_err *err);
void mt_charsmap_deinit(mt_charsmap *map);

/* The longest entry that s starts with: bytes used, 0 if none; *to is its replacement. */
size_t mt_charsmap_longest(const mt_charsmap *map, const char *s, size_t n, const char **to, size_t *n_to);

/* What the Precompiled normalizer of tokenizer.json does: whole grapheme clusters of up to five bytes first (by
 * the shortest entry they start with, as the reference has it), then single characters. */
void mt_charsmap_apply(const mt_charsmap *map, const mt_view *in, mt_text *out);

#endif
