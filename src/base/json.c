#include "base/json.h"

#include "base/file.h"
#include "base/value.h"

#include <math.h>
#include <string.h>

/* The largest document we know, the index of a model with 60,000 tensors, has 10 MB.  jansson allocates 100 bytes for a value of
 * two bytes, and it recurses. */
enum { MAX_DOCUMENT_BYTES = 64 << 20, MAX_VALUES = 4 << 20, MAX_DEPTH = 512 };

/* -- what Python writes and jansson refuses -------------------------------------------------------- */

static const char *const not_finite[] = { "NaN", "Infinity", "-Infinity" };

/* jansson has no number for these: a string holds their place, which no getter of numbers takes for one. */
static json_t *from_float(double f) { return isfinite(f) ? json_real(f) : json_string(not_finite[isnan(f) ? 0 : f > 0 ? 1 : 2]); }

static json_t *from_value(const mt_value *v);

static json_t *from_list(const mt_value *v)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < v->list.n; i++) {
        if (!json_array_append_new(list, from_value(&v->list.items[i]))) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *from_map(const mt_value *v)
{
    json_t *map = json_object();
    for (size_t i = 0; map && i < v->map.n; i++) {
        const mt_pair *p = &v->map.pairs[i];
        if (!json_object_setn_new(map, p->key, p->key_n, from_value(&p->value))) continue;
        json_decref(map);
        map = NULL;
    }
    return map;
}

/* NULL: no memory. */
static json_t *from_value(const mt_value *v)
{
    switch (v->type) {
    case MT_VALUE_NULL: return json_null();
    case MT_VALUE_BOOL: return json_boolean(v->b);
    case MT_VALUE_INT: return json_integer(v->i);
    case MT_VALUE_FLOAT: return from_float(v->f);
    case MT_VALUE_STR: return json_stringn(v->str.s, v->str.n);
    case MT_VALUE_LIST: return from_list(v);
    case MT_VALUE_MAP: return from_map(v);
    }
    return NULL;
}

/* Infinity, integers of any length, 1e400, half a surrogate pair: Python reads them, so files hold them, mostly in keys that
 * nobody here reads.  Our own reader takes them too. */
static mt_rc parse_as_python(json_t **out, const char *text, size_t n, const char *what, mt_err *err)
{
    mt_value v;
    mt_arena a = { 0 };
    mt_rc rc = mt_value_parse_json(&v, &a, text, n, NULL, what, err);
    if (!rc) {
        *out = from_value(&v);
        if (!*out) rc = mt_no_memory(err, "%s", what);
    }
    mt_arena_free(&a);
    return rc;
}

/* -- documents ------------------------------------------------------------------------------------- */

static bool python_may_read_it(const json_error_t *je)
{
    enum json_error_code code = json_error_code(je);
    return code == json_error_invalid_syntax || code == json_error_numeric_overflow || code == json_error_invalid_utf8;
}

/* An upper bound on the number of values, and their depth.  Any text has them, valid JSON or not. */
static void measure(const char *text, size_t n, size_t *n_values, size_t *deepest)
{
    size_t depth = 0;
    *n_values = *deepest = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '"')
            for (i++; i < n && text[i] != '"'; i++) i += text[i] == '\\';
        else if (c == ',' || c == ':')
            ++*n_values;
        else if (c == '[' || c == '{') {
            ++*n_values;
            if (++depth > *deepest) *deepest = depth;
        } else if ((c == ']' || c == '}') && depth)
            depth--;
    }
}

static mt_rc check_size(const char *text, size_t n, const char *what, mt_err *err)
{
    size_t n_values, deepest;
    measure(text, n, &n_values, &deepest);
    if (n_values > MAX_VALUES)
        return mt_fail(err, MT_ERANGE, "%s: more than %d values; no such file of a model is that large", what, MAX_VALUES);
    if (deepest > MAX_DEPTH) return mt_fail(err, MT_EFORMAT, "%s: nested deeper than %d levels", what, MAX_DEPTH);
    return MT_OK;
}

mt_rc mt_json_parse(json_t **out, const char *text, size_t n, const char *what, mt_err *err)
{
    json_error_t je;
    *out = NULL;
    MT_TRY(check_size(text, n, what, err));
    *out = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (*out) return MT_OK;
    if (json_error_code(&je) == json_error_out_of_memory) return mt_no_memory(err, "%s", what);
    if (python_may_read_it(&je)) return parse_as_python(out, text, n, what, err);
    return mt_fail(err, MT_EFORMAT, "%s: not valid JSON at line %d, column %d: %s", what, je.line, je.column, je.text);
}

mt_rc mt_json_read(json_t **out, const char *path, mt_err *err)
{
    char *text;
    size_t n;
    *out = NULL;
    MT_TRY(mt_file_read(&text, &n, path, MAX_DOCUMENT_BYTES, err));
    mt_rc rc = mt_json_parse(out, text, n, path, err);
    mt_free(text);
    return rc;
}

/* How long the quoted NaN or Infinity is that stands here as a value; 0: none does.  Inside a string its first quote would
 * have a backslash before it or its last one. */
static size_t held_place(const char *text, const char *at)
{
    for (size_t i = 0; *at == '"' && i < MT_COUNT(not_finite); i++) {
        size_t n = strlen(not_finite[i]);
        bool here = strncmp(at + 1, not_finite[i], n) == 0 && at[1 + n] == '"';
        if (here && at[n + 2] != ':' && (at == text || at[-1] != '\\')) return n + 2;
    }
    return 0;
}

char *mt_json_text(const json_t *doc, size_t flags)
{
    char *text = json_dumps(doc, flags), *to = text;
    for (const char *from = text; text && *from;) {
        size_t n = held_place(text, from);
        if (n) {
            memmove(to, from + 1, n - 2);
            to += n - 2, from += n;
        } else {
            *to++ = *from++;
        }
    }
    if (text) *to = '\0';
    return text;
}

/* -- getters --------------------------------------------------------------------------------------- */

static const char *type_name(const json_t *v)
{
    static const char *const names[] = { "an object", "a list", "a string", "an integer", "a number", "true", "false", "null" };
    for (size_t i = 0; i < MT_COUNT(not_finite); i++)
        if (json_is_string(v) && strcmp(json_string_value(v), not_finite[i]) == 0) return not_finite[i];
    return names[json_typeof(v)];
}

static mt_rc wrong_type(const char *what, const char *key, const char *expected, const json_t *v, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: \"%s\" should be %s and is %s", what, key, expected, type_name(v));
}

mt_rc mt_json_i64(const json_t *obj, const char *key, int64_t fallback, int64_t *out, const char *what, mt_err *err)
{
    const json_t *v = json_object_get(obj, key);
    *out = fallback;
    if (mt_json_missing(v)) return MT_OK;
    if (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)) && fabs(json_real_value(v)) < 9e15)
        *out = (int64_t)json_real_value(v); /* some writers put 4096.0 */
    else if (json_is_integer(v))
        *out = json_integer_value(v);
    else
        return wrong_type(what, key, "an integer", v, err);
    return MT_OK;
}

mt_rc mt_json_f64(const json_t *obj, const char *key, double fallback, double *out, const char *what, mt_err *err)
{
    const json_t *v = json_object_get(obj, key);
    *out = fallback;
    if (mt_json_missing(v)) return MT_OK;
    if (!json_is_number(v)) return wrong_type(what, key, "a number", v, err);
    *out = json_number_value(v);
    return MT_OK;
}

mt_rc mt_json_bool(const json_t *obj, const char *key, bool fallback, bool *out, const char *what, mt_err *err)
{
    const json_t *v = json_object_get(obj, key);
    *out = fallback;
    if (mt_json_missing(v)) return MT_OK;
    if (!json_is_boolean(v)) return wrong_type(what, key, "true or false", v, err);
    *out = json_is_true(v);
    return MT_OK;
}

mt_rc mt_json_str(const json_t *obj, const char *key, const char *fallback, const char **out, const char *what, mt_err *err)
{
    const json_t *v = json_object_get(obj, key);
    *out = fallback;
    if (mt_json_missing(v)) return MT_OK;
    if (!json_is_string(v)) return wrong_type(what, key, "a string", v, err);
    *out = json_string_value(v);
    return MT_OK;
}
