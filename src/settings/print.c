/* print.c - the resolved settings for people (columns) and for files (YAML). */
#include "settings/table.h"

#include <string.h>

enum { VALUE_WIDTH = 36, VALUE_CUT = 60 };

static void put_source(mt_str *out, const mt_setting_source *from)
{
    if (from->origin == MT_ORIGIN_DEFAULT)
        mt_str_puts(out, from->name && *from->name ? from->name : "default");
    else if (from->origin == MT_ORIGIN_FLAG)
        mt_str_puts(out, from->name);
    else
        mt_str_printf(out, "%s:%d", from->name, from->line);
}

void mt_settings_where(const mt_settings *s, const char *key, mt_str *out)
{
    for (size_t i = 0; i < mt__n_settings; i++)
        if (strcmp(mt__setting_key(&mt__settings[i]).s, key) == 0) {
            put_source(out, &s->sources[i]);
            return;
        }
}

static int key_width(void)
{
    int widest = 0;
    for (size_t i = 0; i < mt__n_settings; i++)
        widest = (int)mt_max_i64(widest, (int64_t)strlen(mt__setting_key(&mt__settings[i]).s));
    return widest;
}

/* One value, padded to its column, cut where it would push everything off the screen.  A code point counts as
 * one column, which is near enough here. */
static void put_value(mt_str *out, const char *text)
{
    int n = 0;
    for (; *text && n < VALUE_CUT; n++) {
        size_t bytes = 1;
        while (((unsigned char)text[bytes] & 0xc0) == 0x80) bytes++;
        mt_str_add(out, text, bytes);
        text += bytes;
    }
    if (*text) mt_str_puts(out, "..."), n += 3;
    for (; n < VALUE_WIDTH; n++) mt_str_putc(out, ' ');
}

static void put_rows(const mt_settings *s, const mt_settings *defaults, bool all, mt_str *out)
{
    mt_str value = { 0 }, usual = { 0 };
    int width = key_width();
    const char *section = NULL;
    for (size_t i = 0; i < mt__n_settings; i++) {
        const mt_setting *row = &mt__settings[i];
        mt_str_clear(&usual);
        mt__setting_format(&usual, defaults, row);
        mt_str_clear(&value);
        mt__setting_format(&value, s, row);
        bool is_usual = value.s && usual.s && strcmp(value.s, usual.s) == 0;
        if (row->flag_only || (is_usual && !all)) continue;
        if (section && strcmp(row->section, section) != 0) mt_str_putc(out, '\n');
        section = row->section;
        mt_str_printf(out, "%-*s  ", width, mt__setting_key(row).s);
        put_value(out, value.s ? value.s : "");
        mt_str_puts(out, "  ");
        put_source(out, &s->sources[i]);
        mt_str_putc(out, '\n');
    }
    if (value.failed || usual.failed) out->failed = true;
    mt_str_free(&value);
    mt_str_free(&usual);
}

void mt_settings_print(const mt_settings *s, bool all, mt_str *out)
{
    mt_settings defaults;
    if (mt_settings_init(&defaults, &(mt_err){ 0 })) {
        out->failed = true;
        return;
    }
    put_rows(s, &defaults, all, out);
    mt_settings_deinit(&defaults);
}

void mt_settings_write_yaml(const mt_settings *s, mt_str *out)
{
    const char *section = "";
    for (size_t i = 0; i < mt__n_settings; i++) {
        const mt_setting *row = &mt__settings[i];
        if (row->flag_only) continue;
        if (strcmp(row->section, section) != 0) mt_str_printf(out, "%s%s:\n", *section ? "\n" : "", row->section);
        section = row->section;
        mt_str_printf(out, "  %s: ", row->key);
        mt__setting_format(out, s, row);
        mt_str_putc(out, '\n');
    }
}

mt_origin mt_settings_origin(const mt_settings *s, const char *key)
{
    for (size_t i = 0; i < mt__n_settings; i++)
        if (strcmp(mt__setting_key(&mt__settings[i]).s, key) == 0) return s->sources[i].origin;
    return MT_ORIGIN_DEFAULT;
}

bool mt_settings_given(const mt_settings *s, const char *key) { return mt_settings_origin(s, key) != MT_ORIGIN_DEFAULT; }

void mt_settings_write_some(const mt_settings *s, bool (*wanted)(const mt_settings *, const char *key), int indent, mt_str *out)
{
    const char *section = "";
    for (size_t i = 0; i < mt__n_settings; i++) {
        const mt_setting *row = &mt__settings[i];
        if (row->flag_only || !wanted(s, mt__setting_key(row).s)) continue;
        if (strcmp(row->section, section) != 0) mt_str_printf(out, "%*s%s:\n", indent, "", row->section);
        section = row->section;
        mt_str_printf(out, "%*s  %s: ", indent, "", row->key);
        mt__setting_format(out, s, row);
        mt_str_putc(out, '\n');
    }
}
