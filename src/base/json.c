#include "base/json.h"

#include "base/file.h"

#include <math.h>
#include <string.h>

/* The largest document we know, the index of a model with 60,000 tensors, has 10 MB. */
enum { MAX_DOCUMENT_BYTES = 64 << 20, MAX_VALUES = 4 << 20 };

/* The root is the first member, so that a document is passed around as the value that it is. */
typedef struct document {
    mt_value root;
    mt_arena arena;
} document;

/* -- documents ------------------------------------------------------------------------------------- */

/* Strings point into the document's own copy of the text, where a quote follows them, or were copied with a NUL. */
static void end_strings(const mt_value *v)
{
    if (v->type == MT_VALUE_STR) ((char *)(uintptr_t)v->str.s)[v->str.n] = '\0';
    for (size_t i = 0; i < mt_value_items(v); i++) end_strings(&v->list.items[i]);
    for (size_t i = 0; i < mt_value_pairs(v); i++) {
        const mt_pair *p = &v->map.pairs[i];
        ((char *)(uintptr_t)p->key)[p->key_n] = '\0';
        end_strings(&p->value);
    }
}

mt_rc mt_json_parse(const mt_value **out, const char *text, size_t n, const char *what, mt_err *err)
{
    mt_value_reader reader = { .max_values = MAX_VALUES };
    *out = NULL;
    document *d = mt_calloc(1, sizeof *d);
    const char *copy = d ? mt_arena_strndup(&d->arena, text, n) : NULL;
    mt_rc rc =
        copy ? mt_value_reader_parse(&reader, &d->root, &d->arena, copy, n, NULL, what, err) : mt_no_memory(err, "%s", what);
    if (reader.too_many)
        rc = mt_fail(err, MT_ERANGE, "%s: more than %d values; no such file of a model is that large", what, MAX_VALUES);
    mt_value_reader_free(&reader);
    if (rc) {
        if (d) mt_json_free(&d->root);
        return rc;
    }
    end_strings(&d->root);
    *out = &d->root;
    return MT_OK;
}

mt_rc mt_json_read(const mt_value **out, const char *path, mt_err *err)
{
    char *text;
    size_t n;
    *out = NULL;
    MT_TRY(mt_file_read(&text, &n, path, MAX_DOCUMENT_BYTES, err));
    mt_rc rc = mt_json_parse(out, text, n, path, err);
    mt_free(text);
    return rc;
}

void mt_json_free(const mt_value *doc)
{
    document *d = (document *)(uintptr_t)doc;
    if (!d) return;
    mt_arena_free(&d->arena);
    mt_free(d);
}

mt_rc mt_json_set(const mt_value *doc, const mt_value *map, const char *key, const mt_value *value, mt_err *err)
{
    document *d = (document *)(uintptr_t)doc;
    size_t n = mt_value_pairs(map), kept = 0, key_n = strlen(key);
    mt_pair *pairs = mt_arena_alloc(&d->arena, (n + 1) * sizeof *pairs), new = { .key_n = key_n };
    new.key = mt_arena_strndup(&d->arena, key, key_n);
    if (!pairs || !new.key || (value && !mt_value_copy(&new.value, &d->arena, value))) return mt_no_memory(err, "\"%s\"", key);
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        const mt_pair *p = &map->map.pairs[i];
        bool it = p->key_n == key_n && memcmp(p->key, key, key_n) == 0;
        found |= it;
        if (!it || value) pairs[kept++] = it ? new : *p;
    }
    if (!found && value) pairs[kept++] = new;
    mt_value *changed = (mt_value *)(uintptr_t)map;
    changed->map.pairs = pairs;
    changed->map.n = kept;
    return MT_OK;
}

mt_value mt_json_text(const char *text)
{
    mt_value v = { .type = MT_VALUE_STR };
    v.str.s = text;
    v.str.n = strlen(text);
    return v;
}

/* -- getters --------------------------------------------------------------------------------------- */

static const char *type_name(const mt_value *v)
{
    if (v->type == MT_VALUE_BOOL) return v->b ? "true" : "false";
    if (v->type != MT_VALUE_FLOAT || isfinite(v->f)) return mt_value_type_name(v);
    if (isnan(v->f)) return "NaN";
    return v->f > 0 ? "Infinity" : "-Infinity";
}

/* The value at key.  *out is NULL if it is absent or null; one of no accepted type is an error. */
static mt_rc get(const mt_value *obj, const char *key, bool (*accepts)(const mt_value *v), const char *expected,
                 const mt_value **out, const char *what, mt_err *err)
{
    const mt_value *v = mt_value_get(obj, key);
    *out = NULL;
    if (mt_json_missing(v)) return MT_OK;
    if (!accepts(v)) return mt_fail(err, MT_EFORMAT, "%s: \"%s\" should be %s and is %s", what, key, expected, type_name(v));
    *out = v;
    return MT_OK;
}

/* Some writers put 4096.0. */
static bool is_integer(const mt_value *v)
{
    return v->type == MT_VALUE_INT || (v->type == MT_VALUE_FLOAT && v->f == floor(v->f) && fabs(v->f) < 9e15);
}
static bool is_bool(const mt_value *v) { return v->type == MT_VALUE_BOOL; }
static bool is_string(const mt_value *v) { return v->type == MT_VALUE_STR; }

mt_rc mt_json_i64(const mt_value *obj, const char *key, int64_t fallback, int64_t *out, const char *what, mt_err *err)
{
    const mt_value *v;
    *out = fallback;
    MT_TRY(get(obj, key, is_integer, "an integer", &v, what, err));
    if (v) *out = v->type == MT_VALUE_INT ? v->i : (int64_t)v->f;
    return MT_OK;
}

mt_rc mt_json_i64_in(const mt_value *obj, const char *key, int64_t fallback, int64_t least, int64_t most, int64_t *out,
                     const char *what, mt_err *err)
{
    MT_TRY(mt_json_i64(obj, key, fallback, out, what, err));
    if (*out >= least && *out <= most) return MT_OK;
    return mt_fail(err, MT_ERANGE, "%s: \"%s\" is %lld; %lld to %lld expected", what, key, (long long)*out, (long long)least,
                   (long long)most);
}

mt_rc mt_json_f64(const mt_value *obj, const char *key, double fallback, double *out, const char *what, mt_err *err)
{
    const mt_value *v;
    *out = fallback;
    MT_TRY(get(obj, key, mt_value_is_number, "a number", &v, what, err));
    if (v) *out = mt_value_number(v);
    return MT_OK;
}

mt_rc mt_json_bool(const mt_value *obj, const char *key, bool fallback, bool *out, const char *what, mt_err *err)
{
    const mt_value *v;
    *out = fallback;
    MT_TRY(get(obj, key, is_bool, "true or false", &v, what, err));
    if (v) *out = v->b;
    return MT_OK;
}

mt_rc mt_json_str(const mt_value *obj, const char *key, const char *fallback, const char **out, const char *what, mt_err *err)
{
    const mt_value *v;
    *out = fallback;
    MT_TRY(get(obj, key, is_string, "a string", &v, what, err));
    if (v) *out = v->str.s;
    return MT_OK;
}
