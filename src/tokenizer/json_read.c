#include "tokenizer/json_read.h"

static const char *type_words(mt_value_type type)
{
    mt_value v = { .type = type };
    return mt_value_type_name(&v);
}

mt_rc mt__json_maybe(const mt_value *v, const char *key, mt_value_type type, const mt_value **out, const char *what, mt_err *err)
{
    *out = NULL;
    if (v->type != MT_VALUE_MAP)
        return mt_fail(err, MT_EFORMAT, "%s: %s where an object with \"%s\" was expected", what, mt_value_type_name(v), key);
    const mt_value *found = mt_value_get(v, key);
    if (!found || found->type == MT_VALUE_NULL) return MT_OK;
    if (found->type != type)
        return mt_fail(err, MT_EFORMAT, "%s: \"%s\" should be %s and is %s", what, key, type_words(type),
                       mt_value_type_name(found));
    *out = found;
    return MT_OK;
}

mt_rc mt__json_need(const mt_value *v, const char *key, mt_value_type type, const mt_value **out, const char *what, mt_err *err)
{
    MT_TRY(mt__json_maybe(v, key, type, out, what, err));
    return *out ? MT_OK : mt_fail(err, MT_EFORMAT, "%s: \"%s\" is missing, %s was expected", what, key, type_words(type));
}

mt_rc mt__json_bool(const mt_value *v, const char *key, bool fallback, bool *out, const char *what, mt_err *err)
{
    const mt_value *b;
    MT_TRY(mt__json_maybe(v, key, MT_VALUE_BOOL, &b, what, err));
    *out = b ? b->b : fallback;
    return MT_OK;
}

mt_rc mt__json_int(const mt_value *v, const char *key, int64_t fallback, int64_t *out, const char *what, mt_err *err)
{
    const mt_value *i;
    MT_TRY(mt__json_maybe(v, key, MT_VALUE_INT, &i, what, err));
    *out = i ? i->i : fallback;
    return MT_OK;
}

mt_rc mt__json_text(const mt_value *v, const char *key, char **out, size_t *n, const char *what, mt_err *err)
{
    const mt_value *s;
    *out = NULL;
    *n = 0;
    MT_TRY(mt__json_maybe(v, key, MT_VALUE_STR, &s, what, err));
    if (!s) return MT_OK;
    *out = mt_strndup(s->str.s, s->str.n);
    *n = s->str.n;
    return *out ? MT_OK : mt_no_memory(err, "%s", what);
}

mt_rc mt__json_pattern(const mt_value *v, char **text, size_t *n, mt_regex **re, const char *what, mt_err *err)
{
    const mt_value *pattern = mt_value_get(v, "pattern"), *regex;
    if (pattern && pattern->type == MT_VALUE_STR) return mt__json_text(v, "pattern", text, n, what, err);
    MT_TRY(mt__json_need(v, "pattern", MT_VALUE_MAP, &pattern, what, err));
    MT_TRY(mt__json_maybe(pattern, "Regex", MT_VALUE_STR, &regex, what, err));
    if (regex) return mt_regex_create(re, regex->str.s, regex->str.n, err) ? mt_note(err, "%s", what) : MT_OK;
    MT_TRY(mt__json_text(pattern, "String", text, n, what, err));
    return *text ? MT_OK : mt_fail(err, MT_EFORMAT, "%s: \"pattern\" has neither \"String\" nor \"Regex\"", what);
}
