/* convert.c - a value as the user wrote it becomes a field: types, ranges, choices, and the one message that says what was
 * expected and what was found. */
#include "settings/table.h"

#include "base/file.h"
#include "base/units.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static mt_rc unexpected(const mt_setting *row, const mt_yaml *node, mt_rc rc, const char *where, mt_err *err)
{
    char found[96];
    double v;
    mt_str expected = { 0 };
    mt__setting_expected(&expected, row);
    bool too_large = node->kind == MT_YAML_SCALAR && mt_yaml_number(node->text, &v) && v > row->max;
    if (too_large && row->type == MT_SETTING_INT && row->max >= MT_SETTING_UNCAPPED) /* a bound that is otherwise not reported */
        mt_str_printf(&expected, ", and at most %.16g", row->max);                   /* 2^53 - 1 has 16 digits */
    mt_yaml_describe(node, found);
    rc = mt_fail(err, rc, "%s: expected %s, found %s", where, expected.s ? expected.s : "something else", found);
    mt_str_free(&expected);
    return rc;
}

/* A number within the row's range, or its word.  MT_EINVAL: not a number; MT_ERANGE: outside. */
static mt_rc number(const mt_setting *row, const char *text, bool whole, double *out)
{
    if (row->word && strcmp(text, row->word) == 0) return *out = row->word_value, MT_OK;
    bool on;
    double v;
    /* What may be off may be on: as the flag alone. */
    if (row->word && strcmp(row->word, "off") == 0 && mt_yaml_bool(text, &on)) {
        if (!on) return *out = row->word_value, MT_OK;
        if (row->bare) text = row->bare;
    }
    if (!mt_yaml_number(text, &v) || (whole && v != floor(v))) return MT_EINVAL;
    if (v < row->min || v > row->max || (row->above_min && v == row->min) || (row->below_max && v == row->max)) return MT_ERANGE;
    *out = v == 0 ? 0 : v; /* no -0: it would print differently */
    return MT_OK;
}

mt_rc mt_settings_check_number(const char *section, const char *key, double value, mt_err *err)
{
    const mt_setting *row = mt__setting_find(section, key);
    if (value >= row->min && value <= row->max) return MT_OK; /* which no NaN is */
    mt_str expected = { 0 };
    mt__setting_expected(&expected, row);
    mt_rc rc = mt_fail(err, MT_ERANGE, "%s: expected %s, found %g", mt__setting_key(row).s,
                       expected.s ? expected.s : "another number", value);
    mt_str_free(&expected);
    return rc;
}

static mt_rc bytes(const mt_setting *row, const char *text, uint64_t *out)
{
    double v;
    if (row->word && strcmp(text, row->word) == 0) return *out = (uint64_t)row->word_value, MT_OK;
    if (strspn(text, "0123456789") == 0 || mt_bytes_parse(text, out, NULL)) return MT_EINVAL;
    if (row->memory && mt_memory_parse(text, out, NULL)) return MT_ERANGE;
    v = (double)*out;
    return v < row->min || v > row->max ? MT_ERANGE : MT_OK;
}

static mt_rc choice(const mt_setting *row, const char *text, int *out)
{
    if (row->word && strcmp(text, row->word) == 0) return *out = (int)row->word_value, MT_OK;
    bool b;
    if (mt_yaml_bool(text, &b)) text = b ? "true" : "false"; /* choices that are true, false or auto */
    for (int i = 0; row->choices[i]; i++)
        if (strcmp(row->choices[i], text) == 0) return *out = i, MT_OK;
    return MT_EINVAL;
}

static mt_rc dtype(const mt_setting *row, const char *text, mt_dtype *out)
{
    mt_dtype t;
    if (mt_dtype_from_torch(text, &t)) text = mt_dtype_name(t);
    int i;
    MT_TRY(choice(row, text, &i));
    *out = (mt_dtype)i;
    return MT_OK;
}

static mt_rc device(const char *text, mt_set_device *out)
{
    *out = (mt_set_device){ MT_SET_DEVICE_AUTO, 0 };
    if (strcmp(text, "auto") == 0) return MT_OK;
    if (strcmp(text, "cpu") == 0) return out->kind = MT_SET_DEVICE_CPU, MT_OK;
    out->kind = MT_SET_DEVICE_CUDA;
    if (strcmp(text, "cuda") == 0) return MT_OK;
    if (strncmp(text, "cuda:", 5) == 0) text += 5;
    size_t n = strspn(text, "0123456789");
    if (!n || text[n] || n > 4) return MT_EINVAL;
    out->index = atoi(text);
    return MT_OK;
}

/* Shells expand "~/x" in a word alone, but neither in --output-dir=~/x nor in a file. */
static const char *keep_text(mt_settings *s, const mt_setting *row, const char *text)
{
    const char *home = row->path && strncmp(text, "~/", 2) == 0 ? getenv("HOME") : NULL;
    const char *rest = home ? text + 1 : text;
    size_t n_home = home ? strlen(home) : 0, n = strlen(rest);
    char *copy = mt_arena_alloc(&s->arena, n_home + n + 1);
    if (!copy) return NULL;
    if (home) memcpy(copy, home, n_home);
    memcpy(copy + n_home, rest, n + 1);
    return copy;
}

/* Items of a list: a YAML list of scalars, or one text split at commas if the row says so. */
typedef struct items {
    const char **text;
    size_t n;
} items;

static mt_rc split_text(items *out, mt_arena *a, const char *text, bool split)
{
    size_t max = 1;
    for (const char *p = text; split && *p; p++) max += *p == ',';
    out->text = mt_arena_calloc(a, max, sizeof *out->text);
    if (!out->text) return MT_ENOMEM;
    for (const char *p = text; *p;) {
        size_t n = split ? strcspn(p, ",") : strlen(p);
        const char *next = p[n] ? p + n + 1 : p + n;
        while (split && n && (*p == ' ' || *p == '\t')) p++, n--;
        while (split && n && (p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
        if (n && !(out->text[out->n++] = mt_arena_strndup(a, p, n))) return MT_ENOMEM;
        p = next;
    }
    return MT_OK;
}

static bool is_file(const mt_setting *row, const char *text)
{
    return row->path && (mt_file_exists(text) || mt_dir_exists(text));
}

/* A file may have a comma in its name. */
static bool splits(const mt_setting *row, const char *text)
{
    return row->type != MT_SETTING_STRS || (row->split && !is_file(row, text));
}

static mt_rc list_items(items *out, mt_arena *a, const mt_setting *row, const mt_yaml *node)
{
    *out = (items){ 0 };
    if (node->kind == MT_YAML_MAP) return MT_EINVAL;
    if (node->kind == MT_YAML_SCALAR) return split_text(out, a, node->text, splits(row, node->text));
    size_t max = 0;
    for (const mt_yaml_item *it = node->items; it; it = it->next, max++)
        if (it->value->kind != MT_YAML_SCALAR) return MT_EINVAL;
    out->text = mt_arena_calloc(a, max ? max : 1, sizeof *out->text);
    if (!out->text) return MT_ENOMEM;
    for (const mt_yaml_item *it = node->items; it; it = it->next)
        if (!(out->text[out->n++] = mt_arena_strndup(a, it->value->text, strlen(it->value->text)))) return MT_ENOMEM;
    return MT_OK;
}

static mt_rc ints(mt_ints *out, mt_arena *a, const mt_setting *row, const items *list)
{
    int64_t *v = mt_arena_calloc(a, list->n ? list->n : 1, sizeof *v);
    if (!v) return MT_ENOMEM;
    for (size_t i = 0; i < list->n; i++) {
        double d;
        MT_TRY(number(row, list->text[i], true, &d));
        v[i] = (int64_t)d;
    }
    *out = (mt_ints){ v, list->n };
    return MT_OK;
}

static mt_rc floats(mt_floats *out, mt_arena *a, const mt_setting *row, const items *list)
{
    double *v = mt_arena_calloc(a, list->n ? list->n : 1, sizeof *v);
    if (!v) return MT_ENOMEM;
    for (size_t i = 0; i < list->n; i++) MT_TRY(number(row, list->text[i], false, &v[i]));
    *out = (mt_floats){ v, list->n };
    return MT_OK;
}

static mt_rc list(mt_settings *s, const mt_setting *row, const mt_yaml *node, void *field)
{
    items parts;
    MT_TRY(list_items(&parts, &s->arena, row, node));
    if (row->type == MT_SETTING_INTS) return ints(field, &s->arena, row, &parts);
    if (row->type == MT_SETTING_FLOATS) return floats(field, &s->arena, row, &parts);
    for (size_t i = 0; row->path && i < parts.n; i++)
        if (!(parts.text[i] = keep_text(s, row, parts.text[i]))) return MT_ENOMEM;
    *(mt_strs *)field = (mt_strs){ parts.text, parts.n };
    return MT_OK;
}

static mt_rc plain_value(mt_value *out, mt_arena *a, const mt_yaml *node)
{
    double d;
    *out = (mt_value){ .type = MT_VALUE_NULL };
    if (mt_yaml_is_null(node)) return MT_OK;
    if (!node->quoted && mt_yaml_bool(node->text, &out->b)) return out->type = MT_VALUE_BOOL, MT_OK;
    if (!node->quoted && mt_yaml_number(node->text, &d)) {
        bool whole = !strpbrk(node->text, ".eE") && fabs(d) < 9e15;
        if (whole)
            *out = (mt_value){ .type = MT_VALUE_INT, .i = (int64_t)d };
        else
            *out = (mt_value){ .type = MT_VALUE_FLOAT, .f = d }; /* and no digits */
        return MT_OK;
    }
    *out = mt_value_str(a, node->text, strlen(node->text));
    return out->type == MT_VALUE_STR ? MT_OK : MT_ENOMEM;
}

/* *budget bounds what aliases of aliases could unfold to. */
static mt_rc tree(mt_value *out, mt_arena *a, const mt_yaml *node, int *budget)
{
    if (--*budget < 0) return MT_ERANGE;
    if (node->kind == MT_YAML_SCALAR) return plain_value(out, a, node);
    size_t n = 0, i = 0;
    for (const mt_yaml_item *it = node->items; it; it = it->next) n++;
    bool map = node->kind == MT_YAML_MAP;
    mt_pair *pairs = map ? mt_arena_calloc(a, n ? n : 1, sizeof *pairs) : NULL;
    mt_value *values = map ? NULL : mt_arena_calloc(a, n ? n : 1, sizeof *values);
    if (!pairs && !values) return MT_ENOMEM;
    for (const mt_yaml_item *it = node->items; it; it = it->next, i++) {
        MT_TRY(tree(map ? &pairs[i].value : &values[i], a, it->value, budget));
        if (!map) continue;
        pairs[i].key_n = strlen(it->key->text);
        if (pairs[i].key_n > MT_SETTING_MAP_KEY) return MT_ERANGE;
        if (!(pairs[i].key = mt_arena_strndup(a, it->key->text, pairs[i].key_n))) return MT_ENOMEM;
    }
    *out = (mt_value){ .type = map ? MT_VALUE_MAP : MT_VALUE_LIST };
    if (map)
        out->map.pairs = pairs, out->map.n = n;
    else
        out->list.items = values, out->list.n = n;
    return MT_OK;
}

static mt_rc scalar(mt_settings *s, const mt_setting *row, const mt_yaml *node, void *field)
{
    double d = 0;
    int i = 0;
    mt_rc rc = MT_EINVAL;
    switch (row->type) {
    case MT_SETTING_STR: return (*(const char **)field = keep_text(s, row, node->text)) ? MT_OK : MT_ENOMEM;
    case MT_SETTING_BOOL: return mt_yaml_bool(node->text, field) ? MT_OK : MT_EINVAL;
    case MT_SETTING_INT:
        rc = number(row, node->text, true, &d);
        if (!rc) *(int64_t *)field = (int64_t)d;
        return rc;
    case MT_SETTING_FLOAT: return number(row, node->text, false, field);
    case MT_SETTING_SHARE:
        rc = number(row, node->text, false, &d);
        if (!rc && d >= 1 && d != floor(d)) rc = MT_ERANGE;
        if (!rc && d == 1 && strpbrk(node->text, ".eE")) rc = MT_ERANGE; /* ambiguous: everything, or one sample */
        if (!rc) *(double *)field = d;
        return rc;
    case MT_SETTING_BYTES: return bytes(row, node->text, field);
    case MT_SETTING_ENUM:
        rc = choice(row, node->text, &i);
        if (!rc) memcpy(field, &i, sizeof i); /* an enum is an int here; the row's type was checked in table.c */
        return rc;
    case MT_SETTING_DTYPE: return dtype(row, node->text, field);
    case MT_SETTING_DEVICE: {
        mt_set_device picked;
        rc = device(node->text, &picked);
        if (!rc) *(mt_set_device *)field = picked;
        return rc;
    }
    default: return MT_EINVAL;
    }
}

mt_rc mt__setting_convert(mt_settings *s, const mt_setting *row, const mt_yaml *node, const char *where, mt_err *err)
{
    void *field = mt__setting_field(s, row);
    mt_rc rc = MT_EINVAL;
    int budget = MT_SETTING_MAP_VALUES;
    if (mt__setting_is_list(row))
        rc = list(s, row, node, field);
    else if (row->type == MT_SETTING_MAP) {
        if (node->kind == MT_YAML_MAP) rc = tree(field, &s->arena, node, &budget);
    } else if (node->kind == MT_YAML_SCALAR)
        rc = scalar(s, row, node, field);
    if (!rc) return MT_OK;
    return rc == MT_ENOMEM ? mt_no_memory(err, "the value of %s", where) : unexpected(row, node, rc, where, err);
}

static void *joined(mt_settings *s, const void *first, size_t n_first, const void *then, size_t n_then, size_t size)
{
    char *all = mt_arena_calloc(&s->arena, n_first + n_then + 1, size);
    if (all && n_first) memcpy(all, first, n_first * size);
    if (all && n_then) memcpy(all + n_first * size, then, n_then * size);
    return all;
}

mt__setting_list mt__setting_list_of(const mt_settings *s, const mt_setting *row)
{
    const void *field = mt__setting_value(s, row);
    if (row->type == MT_SETTING_STRS) return (mt__setting_list){ .strs = *(const mt_strs *)field };
    if (row->type == MT_SETTING_INTS) return (mt__setting_list){ .ints = *(const mt_ints *)field };
    return (mt__setting_list){ .floats = *(const mt_floats *)field };
}

mt_rc mt__setting_prepend(mt_settings *s, const mt_setting *row, const mt__setting_list *before, mt_err *err)
{
    void *field = mt__setting_field(s, row), *all = NULL;
    if (row->type == MT_SETTING_STRS) {
        mt_strs *l = field;
        all = joined(s, before->strs.items, before->strs.n, l->items, l->n, sizeof *l->items);
        *l = (mt_strs){ all, before->strs.n + l->n };
    } else if (row->type == MT_SETTING_INTS) {
        mt_ints *l = field;
        all = joined(s, before->ints.items, before->ints.n, l->items, l->n, sizeof *l->items);
        *l = (mt_ints){ all, before->ints.n + l->n };
    } else {
        mt_floats *l = field;
        all = joined(s, before->floats.items, before->floats.n, l->items, l->n, sizeof *l->items);
        *l = (mt_floats){ all, before->floats.n + l->n };
    }
    return all ? MT_OK : mt_no_memory(err, "a list of settings");
}

mt_rc mt__setting_convert_text(mt_settings *s, const mt_setting *row, const char *value, const char *where, mt_err *err)
{
    if (!mt_utf8_valid(value, strlen(value), NULL)) return mt_fail(err, MT_EINVAL, "%s: the value is not valid UTF-8", where);
    bool collection = row->type >= MT_SETTING_STRS && (*value == '[' || *value == '{') && !is_file(row, value);
    if (!collection)
        return mt__setting_convert(s, row, &(mt_yaml){ .kind = MT_YAML_SCALAR, .line = 1, .text = value }, where, err);
    mt_arena a = { 0 };
    const mt_yaml *node;
    mt_rc rc = mt_yaml_parse(&node, &a, value, strlen(value), where, err);
    if (!rc) rc = mt__setting_convert(s, row, node, where, err);
    mt_arena_free(&a);
    return rc;
}
