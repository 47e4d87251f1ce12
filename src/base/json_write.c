#include "base/json_write.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* -- between values -------------------------------------------------------------------------------- */

static void new_line(mt_json_out *j)
{
    mt_str_putc(j->to, '\n');
    for (int i = 0; i < j->depth; i++) mt_str_puts(j->to, "  ");
}

/* The comma and line break before an item. */
static void separate(mt_json_out *j)
{
    const mt_json_layout layout = j->levels[j->depth - 1].layout;
    if (j->levels[j->depth - 1].used) mt_str_puts(j->to, layout == MT_JSON_FLAT ? ", " : ",");
    if (layout == MT_JSON_LINES) new_line(j);
    j->levels[j->depth - 1].used = true;
}

void mt_json_key(mt_json_out *j, const char *key, size_t n)
{
    if (j->depth == 0 || !j->levels[j->depth - 1].map || j->keyed) j->misused = true;
    if (j->misused) return;
    separate(j);
    mt_str_json(j->to, key, n);
    mt_str_puts(j->to, j->levels[j->depth - 1].layout == MT_JSON_TIGHT ? ":" : ": ");
    j->keyed = true;
}

/* Writes the key, or what separates list items, before a value.  False: no value may come here. */
static bool begin_value(mt_json_out *j, const char *key)
{
    if (key) mt_json_key(j, key, strlen(key));
    const bool map = j->depth && j->levels[j->depth - 1].map;
    if (map != j->keyed || (j->depth == 0 && j->complete)) j->misused = true;
    if (j->misused) return false;
    if (j->depth == 0) j->complete = true;
    if (j->depth && !map) separate(j);
    j->keyed = false;
    return true;
}

/* -- maps and lists -------------------------------------------------------------------------------- */

static void open_level(mt_json_out *j, bool map, mt_json_layout layout)
{
    if (j->depth == MT_JSON_DEPTH) {
        j->misused = true;
        return;
    }
    if (j->depth && j->levels[j->depth - 1].layout != MT_JSON_LINES) layout = j->levels[j->depth - 1].layout;
    mt_str_putc(j->to, map ? '{' : '[');
    j->levels[j->depth].map = map;
    j->levels[j->depth].layout = (uint8_t)layout;
    j->levels[j->depth].used = false;
    j->depth++;
}

void mt_json_map(mt_json_out *j, const char *key, mt_json_layout layout)
{
    if (begin_value(j, key)) open_level(j, true, layout);
}

void mt_json_list(mt_json_out *j, const char *key, mt_json_layout layout)
{
    if (begin_value(j, key)) open_level(j, false, layout);
}

void mt_json_end(mt_json_out *j)
{
    if (j->depth == 0 || j->keyed) j->misused = true;
    if (j->misused) return;
    j->depth--;
    if (j->levels[j->depth].used && j->levels[j->depth].layout == MT_JSON_LINES) new_line(j);
    mt_str_putc(j->to, j->levels[j->depth].map ? '}' : ']');
}

/* -- values ---------------------------------------------------------------------------------------- */

void mt_json_put_raw(mt_json_out *j, const char *key, const char *json)
{
    if (begin_value(j, key)) mt_str_puts(j->to, json);
}

void mt_json_put_null(mt_json_out *j, const char *key) { mt_json_put_raw(j, key, "null"); }
void mt_json_put_bool(mt_json_out *j, const char *key, bool b) { mt_json_put_raw(j, key, b ? "true" : "false"); }

void mt_json_put_int(mt_json_out *j, const char *key, int64_t i)
{
    if (begin_value(j, key)) mt_str_printf(j->to, "%lld", (long long)i);
}

void mt_json_put_size(mt_json_out *j, const char *key, size_t n)
{
    if (begin_value(j, key)) mt_str_printf(j->to, "%zu", n);
}

void mt_json_put_bytes(mt_json_out *j, const char *key, const char *text, size_t n)
{
    if (begin_value(j, key)) mt_str_json(j->to, text, n);
}

void mt_json_put_str(mt_json_out *j, const char *key, const char *text)
{
    if (text)
        mt_json_put_bytes(j, key, text, strlen(text));
    else
        mt_json_put_null(j, key);
}

void mt_json_put_strf(mt_json_out *j, const char *key, const char *format, ...)
{
    mt_str text = { 0 };
    va_list ap;
    va_start(ap, format);
    mt_str_vprintf(&text, format, ap);
    va_end(ap);
    if (!mt_str_ok(&text)) j->to->failed = true;
    mt_json_put_bytes(j, key, text.s ? text.s : "", text.n);
    mt_str_free(&text);
}

void mt_json_put_num(mt_json_out *j, const char *key, const char *format, ...)
{
    char text[512]; /* %f of the largest double has 309 digits before the point */
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    const bool number = n > 0 && (size_t)n < sizeof text && isdigit((unsigned char)text[text[0] == '-']);
    mt_json_put_raw(j, key, number ? text : "null");
}

void mt_json_put_value(mt_json_out *j, const char *key, const mt_value *v, mt_json_layout layout)
{
    if (!begin_value(j, key)) return;
    switch (v->type) {
    case MT_VALUE_NULL: mt_str_puts(j->to, "null"); return;
    case MT_VALUE_BOOL: mt_str_puts(j->to, v->b ? "true" : "false"); return;
    case MT_VALUE_INT: mt_str_printf(j->to, "%lld", (long long)v->i); return;
    case MT_VALUE_FLOAT:
        if (v->digits)
            mt_str_puts(j->to, v->digits);
        else
            mt_value_write_float(j->to, v->f);
        return;
    case MT_VALUE_STR: mt_str_json(j->to, v->str.s, v->str.n); return;
    case MT_VALUE_LIST:
    case MT_VALUE_MAP: open_level(j, v->type == MT_VALUE_MAP, layout); break;
    }
    for (size_t i = 0; i < mt_value_items(v); i++) mt_json_put_value(j, NULL, &v->list.items[i], layout);
    for (size_t i = 0; i < mt_value_pairs(v); i++) {
        mt_json_key(j, v->map.pairs[i].key, v->map.pairs[i].key_n);
        mt_json_put_value(j, NULL, &v->map.pairs[i].value, layout);
    }
    mt_json_end(j);
}

/* -- the end --------------------------------------------------------------------------------------- */

bool mt_json_ok(const mt_json_out *j) { return j->complete && !j->misused && j->depth == 0 && mt_str_ok(j->to); }

mt_rc mt_json_done(const mt_json_out *j, const char *what, mt_err *err)
{
    if (!mt_str_ok(j->to)) return mt_no_memory(err, "%s", what);
    if (mt_json_ok(j)) return MT_OK;
    return mt_fail(err, MT_EINVAL, "%s: the JSON written is not one whole document", what);
}
