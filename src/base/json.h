/* json.h - whole JSON documents, and typed getters that name file and key.
 *
 *     const mt_value *doc;
 *     MT_TRY(mt_json_read(&doc, path, err));                       64 MiB, 4 million values, 512 levels at most
 *     rc = mt_json_i64(doc, "hidden_size", 0, &D, path, err);
 *     mt_json_free(doc);                                           and all that it holds
 *
 * A getter distinguishes three cases: the key is absent or null (the default is used), it has the right
 * type (its value is used), anything else is an error that says what was expected.
 *
 * What Python reads is read (value.h).  NaN and Infinity are values, which a getter of numbers refuses by name.  Strings and keys
 * of a document end with a NUL. */
#ifndef MT_BASE_JSON_H
#define MT_BASE_JSON_H

#include "base/value.h"

/* `what` names the document in messages: a path, or "header of x.safetensors". */
mt_rc mt_json_parse(const mt_value **out, const char *text, size_t n, const char *what, mt_err *err);
mt_rc mt_json_read(const mt_value **out, const char *path, mt_err *err);
void mt_json_free(const mt_value *doc); /* accepts NULL */
/* Gives a map in the document (which may be all of it) another value at key, which is copied; NULL: takes the key away. */
mt_rc mt_json_set(const mt_value *doc, const mt_value *map, const char *key, const mt_value *value, mt_err *err);
/* A value that borrows the text. */
mt_value mt_json_text(const char *text);

mt_rc mt_json_i64(const mt_value *obj, const char *key, int64_t fallback, int64_t *out, const char *what, mt_err *err);
/* Fails unless the number, or the fallback, is one of least to most. */
mt_rc mt_json_i64_in(const mt_value *obj, const char *key, int64_t fallback, int64_t least, int64_t most, int64_t *out,
                     const char *what, mt_err *err);
mt_rc mt_json_f64(const mt_value *obj, const char *key, double fallback, double *out, const char *what, mt_err *err);
mt_rc mt_json_bool(const mt_value *obj, const char *key, bool fallback, bool *out, const char *what, mt_err *err);
/* *out points into the document (or is the fallback). */
mt_rc mt_json_str(const mt_value *obj, const char *key, const char *fallback, const char **out, const char *what, mt_err *err);

/* A string of a document; NULL: it is none. */
static inline const char *mt_json_string(const mt_value *v) { return mt_value_has(v, MT_VALUE_STR) ? v->str.s : NULL; }
/* Absent and null are the same thing to us. */
static inline bool mt_json_missing(const mt_value *v) { return !v || v->type == MT_VALUE_NULL; }

#endif
