/* format.c - a field as one line of YAML, and what a row accepts in words. */
#include "settings/table.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text that YAML 1.1 and 1.2 both read as the same string without quotes. */
static bool is_plain(const char *s, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char others[] = "0123456789_-./+";
    bool b;
    if (!n || !memchr(letters, s[0], sizeof letters - 1)) return false;
    for (size_t i = 0; i < n; i++)
        if (!memchr(letters, s[i], sizeof letters - 1) && !memchr(others, s[i], sizeof others - 1)) return false;
    char word[8] = "";
    if (n < sizeof word) memcpy(word, s, n);
    mt_yaml node = { .kind = MT_YAML_SCALAR, .text = word };
    return n >= sizeof word || !(mt_yaml_bool(word, &b) || mt_yaml_is_null(&node) || n == 1);
}

/* Code points that YAML cannot carry as they are, or would fold. */
static bool needs_escape(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp <= 0x9f) || cp == 0x2028 || cp == 0x2029 || cp == 0xfeff || cp == 0xfffe ||
           cp == 0xffff;
}

static void put_text(mt_str *out, const char *s, size_t n, bool quote)
{
    if (!quote && is_plain(s, n)) {
        mt_str_add(out, s, n);
        return;
    }
    mt_str_putc(out, '"');
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = mt_utf8_decode(s + i, n - i, &cp);
        if (!len) cp = 0xfffd, len = 1;
        if (cp == '"' || cp == '\\')
            mt_str_printf(out, "\\%c", (char)cp);
        else if (cp == '\n')
            mt_str_puts(out, "\\n");
        else if (cp == '\t')
            mt_str_puts(out, "\\t");
        else if (needs_escape(cp))
            mt_str_printf(out, "\\u%04" PRIX32, cp);
        else
            mt_str_add(out, s + i, (size_t)len);
        i += (size_t)len;
    }
    mt_str_putc(out, '"');
}

/* The shortest decimal that reads back equal, with a point, so that every YAML reader takes it for a number. */
static void put_float(mt_str *out, double v)
{
    char digits[40];
    if (isinf(v)) {
        mt_str_puts(out, v < 0 ? "-.inf" : ".inf");
        return;
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, v);
        if (strtod(digits, NULL) == v) break;
    }
    size_t mantissa = strcspn(digits, "e");
    mt_str_add(out, digits, mantissa);
    if (!memchr(digits, '.', mantissa)) mt_str_puts(out, ".0");
    mt_str_puts(out, digits + mantissa);
}

static void put_value(mt_str *out, const mt_value *v)
{
    switch (v->type) {
    case MT_VALUE_NULL: mt_str_puts(out, "null"); break;
    case MT_VALUE_BOOL: mt_str_puts(out, v->b ? "true" : "false"); break;
    case MT_VALUE_INT: mt_str_printf(out, "%" PRId64, v->i); break;
    case MT_VALUE_FLOAT: put_float(out, v->f); break;
    case MT_VALUE_STR: put_text(out, v->str.s, v->str.n, true); break;
    case MT_VALUE_LIST:
        mt_str_putc(out, '[');
        for (size_t i = 0; i < v->list.n; i++) {
            if (i) mt_str_puts(out, ", ");
            put_value(out, &v->list.items[i]);
        }
        mt_str_putc(out, ']');
        break;
    case MT_VALUE_MAP:
        mt_str_putc(out, '{');
        for (size_t i = 0; i < v->map.n; i++) {
            if (i) mt_str_puts(out, ", ");
            put_text(out, v->map.pairs[i].key, v->map.pairs[i].key_n, true); /* quoted: "<<" stays a key */
            mt_str_puts(out, ": ");
            put_value(out, &v->map.pairs[i].value);
        }
        mt_str_putc(out, '}');
        break;
    }
}

/* 5G rather than 5000000000, where nothing is lost. */
static void put_bytes(mt_str *out, uint64_t v)
{
    static const struct {
        uint64_t unit;
        const char *name;
    } units[] = {
        { UINT64_C(1) << 40, "Ti" }, { UINT64_C(1000000000000), "T" },
        { 1 << 30, "Gi" },           { 1000000000, "G" },
        { 1 << 20, "Mi" },           { 1000000, "M" },
    };
    for (size_t i = 0; i < MT_COUNT(units); i++)
        if (v && v % units[i].unit == 0) {
            mt_str_printf(out, "%" PRIu64 "%s", v / units[i].unit, units[i].name);
            return;
        }
    if (v && v < 1 << 20) /* with a unit, for a plain number so small is refused where it is memory */
        mt_str_printf(out, "%.*fK", v % 1000 ? 3 : 0, (double)v / 1000);
    else
        mt_str_printf(out, "%" PRIu64, v);
}

static void put_device(mt_str *out, const mt_set_device *d)
{
    if (d->kind == MT_SET_DEVICE_CUDA)
        mt_str_printf(out, "cuda:%d", d->index);
    else
        mt_str_puts(out, d->kind == MT_SET_DEVICE_CPU ? "cpu" : "auto");
}

static bool is_word(const mt_setting *row, double v) { return row->word && v == row->word_value; }

static void put_int(mt_str *out, const mt_setting *row, int64_t v)
{
    if (is_word(row, (double)v))
        mt_str_puts(out, row->word);
    else
        mt_str_printf(out, "%" PRId64, v);
}

static void put_list(mt_str *out, const mt_setting *row, const void *field)
{
    const mt_strs *strs = field;
    const mt_ints *ints = field;
    const mt_floats *floats = field;
    size_t n = row->type == MT_SETTING_INTS ? ints->n : floats->n;
    if (row->type == MT_SETTING_STRS) n = strs->n;
    mt_str_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i) mt_str_puts(out, ", ");
        if (row->type == MT_SETTING_STRS)
            put_text(out, strs->items[i], strlen(strs->items[i]), false);
        else if (row->type == MT_SETTING_INTS)
            put_int(out, row, ints->items[i]);
        else
            put_float(out, floats->items[i]);
    }
    mt_str_putc(out, ']');
}

void mt__setting_format(mt_str *out, const mt_settings *s, const mt_setting *row)
{
    const void *field = mt__setting_value(s, row);
    int choice = 0;
    switch (row->type) {
    case MT_SETTING_STR: put_text(out, *(const char *const *)field, strlen(*(const char *const *)field), false); break;
    case MT_SETTING_BOOL: mt_str_puts(out, *(const bool *)field ? "true" : "false"); break;
    case MT_SETTING_INT:
        if (is_word(row, (double)*(const int64_t *)field))
            mt_str_puts(out, row->word);
        else
            mt_str_printf(out, "%" PRId64, *(const int64_t *)field);
        break;
    case MT_SETTING_FLOAT:
        if (is_word(row, *(const double *)field))
            mt_str_puts(out, row->word);
        else
            put_float(out, *(const double *)field);
        break;
    case MT_SETTING_SHARE:
        if (*(const double *)field >= 1)
            mt_str_printf(out, "%.0f", *(const double *)field);
        else
            put_float(out, *(const double *)field);
        break;
    case MT_SETTING_BYTES:
        if (is_word(row, (double)*(const uint64_t *)field))
            mt_str_puts(out, row->word);
        else
            put_bytes(out, *(const uint64_t *)field);
        break;
    case MT_SETTING_ENUM:
    case MT_SETTING_DTYPE:
        memcpy(&choice, field, sizeof choice);
        mt_str_puts(out, is_word(row, choice) ? row->word : row->choices[choice]);
        break;
    case MT_SETTING_DEVICE: put_device(out, field); break;
    case MT_SETTING_STRS:
    case MT_SETTING_INTS:
    case MT_SETTING_FLOATS: put_list(out, row, field); break;
    case MT_SETTING_MAP: put_value(out, field); break;
    }
}

/* "from 1 to 4096", "of at least 1", "above 0 and below 1"; bounds that are never reached are omitted. */
static void put_range(mt_str *out, const mt_setting *row)
{
    const char *low = row->above_min ? " above " : " of at least ";
    bool capped = row->max < MT_SETTING_UNCAPPED;
    if (!capped)
        mt_str_printf(out, "%s%.15g", low, row->min);
    else if (row->above_min)
        mt_str_printf(out, " above %.15g and at most %.15g", row->min, row->max);
    else if (row->below_max)
        mt_str_printf(out, " from %.15g to below %.15g", row->min, row->max);
    else
        mt_str_printf(out, " from %.15g to %.15g", row->min, row->max);
}

static void put_choices(mt_str *out, const mt_setting *row)
{
    if (row->word) mt_str_puts(out, row->word);
    for (int i = 0; row->choices[i]; i++) {
        bool last = !row->choices[i + 1];
        if (i || row->word) mt_str_puts(out, last ? " or " : ", ");
        mt_str_puts(out, row->choices[i]);
    }
}

void mt__setting_expected(mt_str *out, const mt_setting *row)
{
    switch (row->type) {
    case MT_SETTING_STR: mt_str_puts(out, "text"); break;
    case MT_SETTING_BOOL: mt_str_puts(out, "true or false"); break;
    case MT_SETTING_INT: mt_str_puts(out, "an integer"), put_range(out, row); break;
    case MT_SETTING_FLOAT: mt_str_puts(out, "a number"), put_range(out, row); break;
    case MT_SETTING_SHARE: mt_str_puts(out, "a share below 1 or a whole number of samples (1 is one sample)"); break;
    case MT_SETTING_BYTES: mt_str_puts(out, "a size such as 64M, 1.5G or 80Gi"); break;
    case MT_SETTING_ENUM:
    case MT_SETTING_DTYPE: put_choices(out, row); return;
    case MT_SETTING_DEVICE: mt_str_puts(out, "auto, cpu, cuda, cuda:N or the number of a GPU"); break;
    case MT_SETTING_STRS: mt_str_puts(out, "text or a list of texts"); break;
    case MT_SETTING_INTS: mt_str_puts(out, "a list of integers, each"), put_range(out, row); break;
    case MT_SETTING_FLOATS: mt_str_puts(out, "a list of numbers, each"), put_range(out, row); break;
    case MT_SETTING_MAP:
        mt_str_printf(out, "up to %d values under keys of up to %d bytes", MT_SETTING_MAP_VALUES, MT_SETTING_MAP_KEY);
        break;
    }
    if (row->word) mt_str_printf(out, ", or %s", row->word);
}

const char *mt_settings_choice(const mt_settings *s, const char *key)
{
    for (size_t i = 0; i < mt__n_settings; i++) {
        const mt_setting *row = &mt__settings[i];
        if (!row->choices || strcmp(mt__setting_key(row).s, key) != 0) continue;
        int choice;
        memcpy(&choice, mt__setting_value(s, row), sizeof choice);
        return is_word(row, choice) ? row->word : row->choices[choice];
    }
    return NULL;
}
