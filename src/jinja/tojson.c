/* tojson.c - json.dumps, as transformers' tojson filter calls it. */
#include "jinja/render.h"

#include "jinja/chars.h"

#include <math.h>

static mt_rc put_value(jrender *r, jval v, const jjson *how, int level);

static void put_escape(mt_str *out, uint32_t cp)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *hit = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (hit)
        mt_str_add(out, (const char[]){ '\\', to[hit - from] }, 2);
    else if (cp < 0x10000)
        mt__j_put_escape(out, 'u', cp, 4);
    else {
        mt__j_put_escape(out, 'u', 0xd800 + ((cp - 0x10000) >> 10), 4);
        mt__j_put_escape(out, 'u', 0xdc00 + ((cp - 0x10000) & 0x3ff), 4);
    }
}

static void put_string(mt_str *out, const char *s, size_t n, bool ensure_ascii)
{
    mt_str_putc(out, '"');
    size_t plain = 0, i = 0;
    while (i < n) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x80 || !ensure_ascii)) {
            i++;
            continue;
        }
        size_t len;
        uint32_t cp = mt__j_cp(s + i, n - i, &len);
        mt_str_add(out, s + plain, i - plain);
        put_escape(out, cp);
        plain = i += len;
    }
    mt_str_add(out, s + plain, n - plain);
    mt_str_putc(out, '"');
}

static void put_number(jrender *r, jval v)
{
    mt_str *out = r->out;
    if (mt__j_is_long(v))
        mt__j_put_digits(r, v);
    else if (v.type == JV_INT)
        mt_str_printf(out, "%lld", (long long)v.i);
    else if (isnan(v.f))
        mt_str_puts(out, "NaN");
    else if (isinf(v.f))
        mt_str_puts(out, v.f < 0 ? "-Infinity" : "Infinity");
    else
        mt__j_put_float(out, v.f);
}

static mt_rc put_newline(jrender *r, const jjson *how, int level)
{
    if (!how->pretty) return MT_OK;
    mt_str_putc(r->out, '\n');
    for (int i = 0; i < level; i++) mt_str_add(r->out, how->indent.s, how->indent.n);
    MT_TRY(mt__j_look(r, (size_t)level));
    return mt__j_check_out(r);
}

static mt_rc put_key(jrender *r, jval key, const jjson *how)
{
    switch (key.type) {
    case JV_STR: put_string(r->out, key.s, key.n, how->ensure_ascii); return mt__j_walk(r, key.n);
    case JV_NONE: mt_str_puts(r->out, "\"null\""); return MT_OK;
    case JV_BOOL: mt_str_puts(r->out, key.b ? "\"true\"" : "\"false\""); return MT_OK;
    case JV_INT:
    case JV_FLOAT:
        mt_str_putc(r->out, '"');
        put_number(r, key);
        mt_str_putc(r->out, '"');
        return MT_OK;
    default: return mt__j_fail(r, "tojson: keys must be str, int, float, bool or None, not %s", mt__j_type_name(key));
    }
}

static mt_rc put_list(jrender *r, const jlist *list, const jjson *how, int level)
{
    mt_str_putc(r->out, '[');
    for (size_t i = 0; i < list->n; i++) {
        if (i) mt_str_add(r->out, how->item_sep.s, how->item_sep.n);
        MT_TRY(mt__j_check_out(r)); /* before going deeper: separators may be long */
        MT_TRY(put_newline(r, how, level + 1));
        MT_TRY(put_value(r, list->items[i], how, level + 1));
    }
    if (list->n) MT_TRY(put_newline(r, how, level));
    mt_str_putc(r->out, ']');
    return MT_OK;
}

/* The entries in the order of their keys. */
static mt_rc sorted_entries(jrender *r, const jdict *d, const jentry **out)
{
    jval keys_list, *keys, items_list, *at;
    jentry *sorted;
    MT_TRY(mt__j_new_list(r, JV_LIST, d->n, &keys_list, &keys));
    MT_TRY(mt__j_new_list(r, JV_LIST, d->n, &items_list, &at));
    MT_TRY(mt__j_new(r, d->n * sizeof *sorted, &sorted));
    for (size_t i = 0; i < d->n; i++) keys[i] = d->entries[i].key, at[i] = mt__j_int((int64_t)i);
    MT_TRY(mt__j_sort(r, keys, at, d->n, false));
    for (size_t i = 0; i < d->n; i++) sorted[i] = d->entries[at[i].i];
    *out = sorted;
    return MT_OK;
}

static mt_rc put_dict(jrender *r, const jdict *d, const jjson *how, int level)
{
    const jentry *entries = d->entries;
    if (how->sort_keys && d->n > 1) MT_TRY(sorted_entries(r, d, &entries));
    mt_str_putc(r->out, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i) mt_str_add(r->out, how->item_sep.s, how->item_sep.n);
        MT_TRY(mt__j_check_out(r)); /* before going deeper: separators may be long */
        MT_TRY(put_newline(r, how, level + 1));
        MT_TRY(put_key(r, entries[i].key, how));
        mt_str_add(r->out, how->key_sep.s, how->key_sep.n);
        MT_TRY(put_value(r, entries[i].value, how, level + 1));
    }
    if (d->n) MT_TRY(put_newline(r, how, level));
    mt_str_putc(r->out, '}');
    return MT_OK;
}

static mt_rc put_nested(jrender *r, jval v, const jjson *how, int level)
{
    MT_TRY(mt__j_deeper(r));
    MT_TRY(v.type == JV_DICT ? put_dict(r, v.dict, how, level) : put_list(r, v.list, how, level));
    r->depth--;
    return MT_OK;
}

static mt_rc put_value(jrender *r, jval v, const jjson *how, int level)
{
    MT_TRY(mt__j_steps(r, 1));
    switch (v.type) {
    case JV_NONE: mt_str_puts(r->out, "null"); break;
    case JV_BOOL: mt_str_puts(r->out, v.b ? "true" : "false"); break;
    case JV_INT:
    case JV_FLOAT: put_number(r, v); break;
    case JV_STR:
        MT_TRY(mt__j_walk(r, v.n));
        put_string(r->out, v.s, v.n, how->ensure_ascii);
        break;
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT: MT_TRY(put_nested(r, v, how, level)); break;
    default: return mt__j_fail(r, "Object of type %s is not JSON serializable", mt__j_type_name(v));
    }
    return mt__j_check_out(r);
}

mt_rc mt__j_put_json(jrender *r, jval v, const jjson *how) { return put_value(r, v, how, 0); }
