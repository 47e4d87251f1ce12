#include "base/json.h"

#include "base/file.h"

#include <math.h>

enum { MAX_DOCUMENT_BYTES = 1 << 30 }; /* the largest tokenizer.json known is 34 MB */

mt_rc mt_json_parse(json_t **out, const char *text, size_t n, const char *what, mt_err *err)
{
    json_error_t je;
    *out = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (*out) return MT_OK;
    if (json_error_code(&je) == json_error_out_of_memory) return mt_fail(err, MT_ENOMEM, "%s: no host memory", what);
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

static const char *type_name(const json_t *v)
{
    static const char *const names[] = { "an object", "a list", "a string", "an integer", "a number", "true", "false", "null" };
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
