#include "base/value.h"

#include "base/json_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mt_value mt_value_str(mt_arena *a, const char *s, size_t n)
{
    const char *copy = mt_arena_strndup(a, s, n);
    mt_value v = { .type = copy ? MT_VALUE_STR : MT_VALUE_NULL };
    if (copy) v.str.s = copy, v.str.n = n;
    return v;
}

static bool copy_list(mt_value *out, mt_arena *a, const mt_value *v)
{
    mt_value *items = mt_arena_calloc(a, v->list.n, sizeof *items);
    for (size_t i = 0; items && i < v->list.n; i++)
        if (!mt_value_copy(&items[i], a, &v->list.items[i])) return false;
    out->list.items = items;
    return items;
}

static bool copy_map(mt_value *out, mt_arena *a, const mt_value *v)
{
    mt_pair *pairs = mt_arena_calloc(a, v->map.n, sizeof *pairs);
    for (size_t i = 0; pairs && i < v->map.n; i++) {
        const mt_pair *from = &v->map.pairs[i];
        pairs[i] = (mt_pair){ .key = mt_arena_strndup(a, from->key, from->key_n), .key_n = from->key_n };
        if (!pairs[i].key || !mt_value_copy(&pairs[i].value, a, &from->value)) return false;
    }
    out->map.pairs = pairs;
    return pairs;
}

bool mt_value_copy(mt_value *out, mt_arena *a, const mt_value *v)
{
    *out = *v;
    switch (v->type) {
    case MT_VALUE_FLOAT: return !v->digits || (out->digits = mt_arena_strndup(a, v->digits, strlen(v->digits)));
    case MT_VALUE_STR: return (out->str.s = mt_arena_strndup(a, v->str.s, v->str.n)) != NULL;
    case MT_VALUE_LIST: return copy_list(out, a, v);
    case MT_VALUE_MAP: return copy_map(out, a, v);
    default: return true;
    }
}

const mt_value *mt_value_get(const mt_value *v, const char *key)
{
    if (!v || v->type != MT_VALUE_MAP) return NULL;
    size_t n = strlen(key);
    for (size_t i = 0; i < v->map.n; i++) {
        const mt_pair *p = &v->map.pairs[i];
        if (p->key_n == n && memcmp(p->key, key, n) == 0) return &p->value;
    }
    return NULL;
}

bool mt_value_is(const mt_value *v, const char *text)
{
    return v && v->type == MT_VALUE_STR && v->str.n == strlen(text) && memcmp(v->str.s, text, v->str.n) == 0;
}

const char *mt_value_type_name(const mt_value *v)
{
    static const char *const names[] = { "null", "a boolean", "an integer", "a number", "a string", "a list", "an object" };
    return v ? names[v->type] : "missing";
}

static bool is_number(const mt_value *v) { return v->type == MT_VALUE_INT || v->type == MT_VALUE_FLOAT; }

bool mt_value_is_number(const mt_value *v)
{
    return v && (v->type == MT_VALUE_INT || (v->type == MT_VALUE_FLOAT && isfinite(v->f)));
}

double mt_value_number(const mt_value *v)
{
    if (!mt_value_is_number(v)) return 0;
    return v->type == MT_VALUE_INT ? (double)v->i : v->f;
}

static bool equal_maps(const mt_value *a, const mt_value *b)
{
    if (a->map.n != b->map.n) return false;
    for (size_t i = 0; i < a->map.n; i++) {
        const mt_pair *p = &a->map.pairs[i];
        bool found = false;
        for (size_t j = 0; j < b->map.n && !found; j++) {
            const mt_pair *q = &b->map.pairs[j];
            found = p->key_n == q->key_n && memcmp(p->key, q->key, p->key_n) == 0 && mt_value_equal(&p->value, &q->value);
        }
        if (!found) return false;
    }
    return true;
}

bool mt_value_equal(const mt_value *a, const mt_value *b)
{
    if (is_number(a) && is_number(b) && a->type != b->type)
        return (a->type == MT_VALUE_INT ? (double)a->i : a->f) == (b->type == MT_VALUE_INT ? (double)b->i : b->f);
    if (a->type != b->type) return false;
    switch (a->type) {
    case MT_VALUE_NULL: return true;
    case MT_VALUE_BOOL: return a->b == b->b;
    case MT_VALUE_INT: return a->i == b->i;
    case MT_VALUE_FLOAT: return a->digits && b->digits ? !strcmp(a->digits, b->digits) : a->f == b->f;
    case MT_VALUE_STR: return a->str.n == b->str.n && memcmp(a->str.s, b->str.s, a->str.n) == 0;
    case MT_VALUE_LIST:
        if (a->list.n != b->list.n) return false;
        for (size_t i = 0; i < a->list.n; i++)
            if (!mt_value_equal(&a->list.items[i], &b->list.items[i])) return false;
        return true;
    case MT_VALUE_MAP: return equal_maps(a, b);
    }
    return false;
}

/* Above a power of two, numbers are twice as far apart as below it.  Digits just above one may read back although the nearest
 * ones, just below it, do not.  (A last 9 stands for fewer digits, which did not read back.) */
static bool reads_back(char *s, double f)
{
    int exponent;
    char *last = strchr(s, 'e') - 1;
    if (strtod(s, NULL) == f) return true;
    if (fabs(frexp(f, &exponent)) != 0.5 || *last == '9') return false;
    ++*last;
    return strtod(s, NULL) == f;
}

void mt_value_write_float(mt_str *out, double f)
{
    char s[40];
    if (isnan(f)) return mt_str_puts(out, "NaN");
    if (isinf(f)) return mt_str_puts(out, f < 0 ? "-Infinity" : "Infinity");
    int digits = 1;
    do snprintf(s, sizeof s, "%.*e", digits - 1, f);
    while (!reads_back(s, f) && digits++ < 17);
    int exponent = atoi(strchr(s, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = digits - 1 - exponent;
        snprintf(s, sizeof s, "%.*f", decimals > 1 ? decimals : 1, f);
    }
    mt_str_puts(out, s);
}

static void write_value(mt_str *out, const mt_value *v, mt_json_layout layout)
{
    mt_json_out j = { .to = out };
    mt_json_put_value(&j, NULL, v, layout);
    if (!mt_json_ok(&j)) out->failed = true; /* deeper than anything that is read */
}

void mt_value_write_json(mt_str *out, const mt_value *v) { write_value(out, v, MT_JSON_FLAT); }
void mt_value_write_indented(mt_str *out, const mt_value *v) { write_value(out, v, MT_JSON_LINES); }
