/* json.h - jansson with our errors.  Documents are read whole; the typed getters name file and key.
 *
 * A getter distinguishes three cases: the key is absent or null (the default is used), it has the right
 * type (its value is used), anything else is an error that says what was expected.
 *
 * What Python reads is read: integers past 64 bits become reals, half a surrogate pair U+FFFD, and NaN, Infinity and -Infinity
 * (1e400 too) strings of that name, which jansson has no number for: a getter of numbers refuses them by name. */
#ifndef MT_BASE_JSON_H
#define MT_BASE_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* `what` names the document in messages: a path, or "header of x.safetensors".  Release with json_decref. */
mt_rc mt_json_parse(json_t **out, const char *text, size_t n, const char *what, mt_err *err);
mt_rc mt_json_read(json_t **out, const char *path, mt_err *err);
/* json_dumps, where NaN and Infinity are numbers again.  Release with free; NULL: no memory. */
char *mt_json_text(const json_t *doc, size_t flags);

mt_rc mt_json_i64(const json_t *obj, const char *key, int64_t fallback, int64_t *out, const char *what, mt_err *err);
mt_rc mt_json_f64(const json_t *obj, const char *key, double fallback, double *out, const char *what, mt_err *err);
mt_rc mt_json_bool(const json_t *obj, const char *key, bool fallback, bool *out, const char *what, mt_err *err);
/* *out points into the document (or is the fallback). */
mt_rc mt_json_str(const json_t *obj, const char *key, const char *fallback, const char **out, const char *what, mt_err *err);

/* Absent and null are the same thing to us. */
static inline bool mt_json_missing(const json_t *v) { return !v || json_is_null(v); }

#endif
