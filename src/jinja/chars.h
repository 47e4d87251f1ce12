/* chars.h - characters as Python's str sees them: code points, their classes and their case. */
#ifndef MT_JINJA_CHARS_H
#define MT_JINJA_CHARS_H

#include "base/str.h"

/* Of 'x', 'o' and 'b', as in 0x1f: 16, 8, 2; of others 0. */
int mt__j_base_of(char letter);

bool mt__j_is_space(uint32_t cp); /* str.isspace, and \s of a regular expression */
bool mt__j_is_break(uint32_t cp); /* where str.splitlines splits */
bool mt__j_is_word(uint32_t cp);  /* \w of a regular expression */
bool mt__j_is_alpha(uint32_t cp);
bool mt__j_is_decimal(uint32_t cp);
bool mt__j_is_digit(uint32_t cp);
bool mt__j_is_numeric(uint32_t cp);
bool mt__j_is_upper(uint32_t cp);
bool mt__j_is_lower(uint32_t cp);
bool mt__j_is_title(uint32_t cp);
bool mt__j_is_printable(uint32_t cp); /* what repr() leaves as it is */

size_t mt__j_space_prefix(const char *s, size_t n);      /* bytes of white space at the start */
size_t mt__j_rstrip(const char *s, size_t n);            /* bytes left without white space at the end */
size_t mt__j_identifier_prefix(const char *s, size_t n); /* bytes of a name at the start, 0 if none */

size_t mt__j_count(const char *s, size_t n); /* code points */
/* The byte where code point k starts, n if there are fewer. */
size_t mt__j_offset(const char *s, size_t n, size_t k);
bool mt__j_ascii(const char *s, size_t n);
/* The first (or last) place of what[0..m) in s[0..n), or NULL. */
const char *mt__j_find(const char *s, size_t n, const char *what, size_t m);
const char *mt__j_rfind(const char *s, size_t n, const char *what, size_t m);

/* The code point at s, which is valid UTF-8; *len bytes. */
uint32_t mt__j_cp(const char *s, size_t n, size_t *len);

typedef enum jcase { CASE_UPPER, CASE_LOWER, CASE_TITLE } jcase;
/* Append one code point in another case, with the few that become several. */
void mt__j_put_case(mt_str *out, uint32_t cp, jcase to);
/* Append the code point at byte `at` of a string in lower case, and return its bytes: as Python does it, a capital sigma at the end
 * of a word becomes the final one. */
size_t mt__j_put_lower_at(mt_str *out, const char *s, size_t n, size_t at);
/* Append a whole string. */
void mt__j_put_lower(mt_str *out, const char *s, size_t n);
void mt__j_put_upper(mt_str *out, const char *s, size_t n);
void mt__j_put_cp(mt_str *out, uint32_t cp);
void mt__j_put_escape(mt_str *out, char letter, uint32_t value, int digits); /* backslash, x or u or U, hexadecimal digits */

#endif
