/* scan.h - the regular expressions that published tokenizers cut text with, written out by hand.
 *
 * Nearly every byte-level model uses one of a handful of patterns.  Recognised by their exact text, they run
 * as plain loops over characters, ten times faster than a regular-expression engine; test_scan.c checks each
 * against that engine on random text.  To add one: write its finder, add a row to the table in scan.c. */
#ifndef MT_TOKENIZER_SCAN_H
#define MT_TOKENIZER_SCAN_H

#include "tokenizer/unicode.h"

/* The first match at or after `from` is s[*start, return value); none: *start = n and n is returned. */
typedef size_t (*mt_scan_fn)(const mt_unicode *uc, const char *s, size_t n, size_t from, size_t *start);

/* NULL if the pattern is not one we know. */
mt_scan_fn mt_scan_for(const char *pattern, size_t n);
/* The i-th known pattern, NULL past the last. */
const char *mt_scan_pattern(size_t i);

#define MT_PATTERN_GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define MT_PATTERN_TAIL_  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define MT_PATTERN_HEAD_  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
#define MT_PATTERN_QWEN2  MT_PATTERN_HEAD_ MT_PATTERN_TAIL_
#define MT_PATTERN_CL100K MT_PATTERN_HEAD_ "{1,3}" MT_PATTERN_TAIL_ /* also Llama 3 and GLM-4 */

#endif
