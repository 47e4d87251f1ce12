/* json_read.h - typed reads from a parsed tokenizer file; errors name the file and the key.  Private to tokenizer/. */
#ifndef MT_TOKENIZER_JSON_READ_H
#define MT_TOKENIZER_JSON_READ_H

#include "base/value.h"
#include "tokenizer/regex.h"

/* The value at key, which must be there and have the type. */
mt_rc mt__json_need(const mt_value *v, const char *key, mt_value_type type, const mt_value **out, const char *what, mt_err *err);
/* The value at key, NULL if absent or null; another type is an error. */
mt_rc mt__json_maybe(const mt_value *v, const char *key, mt_value_type type, const mt_value **out, const char *what, mt_err *err);
mt_rc mt__json_bool(const mt_value *v, const char *key, bool fallback, bool *out, const char *what, mt_err *err);
mt_rc mt__json_int(const mt_value *v, const char *key, int64_t fallback, int64_t *out, const char *what, mt_err *err);
/* "pattern": {"String": s} gives text (newly allocated), {"Regex": r} gives re. */
mt_rc mt__json_pattern(const mt_value *v, char **text, size_t *n, mt_regex **re, const char *what, mt_err *err);
/* A copy of the string at key, NULL if absent or null. */
mt_rc mt__json_text(const mt_value *v, const char *key, char **out, size_t *n, const char *what, mt_err *err);

#endif
