/* help.c - --help from the table: flags on the left, sentences on the right, 80 columns. */
#include "settings/table.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, INDENT = 28 };

static const char *meta(const mt_setting *row)
{
    if (row->meta) return row->meta;
    switch (row->type) {
    case MT_SETTING_INT: return "N";
    case MT_SETTING_FLOAT: return "X";
    case MT_SETTING_BYTES: return "SIZE";
    case MT_SETTING_DTYPE: return "DTYPE";
    case MT_SETTING_ENUM: return "CHOICE";
    default: return "VALUE";
    }
}

static void put_usage(mt_str *out, const mt_setting *row)
{
    mt_flag_text flag = mt__setting_flag(row);
    bool is_switch = row->type == MT_SETTING_BOOL || (row->bare && strcmp(row->bare, "true") == 0);
    if (row->type == MT_SETTING_BOOL && row->flag_only)
        mt_str_puts(out, flag.s);
    else if (is_switch)
        mt_str_printf(out, "--[no-]%s", flag.s + 2);
    else
        mt_str_printf(out, row->bare ? "%s [%s]" : "%s %s", flag.s, meta(row));
}

/* `text` from column `at` on, broken at spaces; continuation lines start at INDENT. */
static void put_wrapped(mt_str *out, const char *text, size_t at)
{
    while (*text) {
        size_t n = strcspn(text, " ");
        if (at > INDENT && at + 1 + n > WIDTH) {
            mt_str_printf(out, "\n%*s", INDENT, "");
            at = INDENT;
        } else if (at > INDENT) {
            mt_str_putc(out, ' ');
            at++;
        }
        mt_str_add(out, text, n);
        at += n;
        text += n;
        while (*text == ' ') text++;
    }
    mt_str_putc(out, '\n');
}

static void put_row(mt_str *out, const mt_setting *row)
{
    mt_str left = { 0 }, right = { 0 };
    put_usage(&left, row);
    mt_str_puts(&right, row->help);
    if (row->choices) {
        mt_str_puts(&right, " One of ");
        mt__setting_expected(&right, row);
        mt_str_putc(&right, '.');
    }
    const char *fallback = row->shown_default ? row->shown_default : row->fallback;
    bool nothing = !*fallback || strcmp(fallback, "[]") == 0 || strcmp(fallback, "{}") == 0;
    if (!nothing && !row->flag_only) mt_str_printf(&right, " (default: %s)", fallback);
    mt_str_printf(out, "  %s", left.s ? left.s : "");
    if (left.n + 4 > INDENT)
        mt_str_printf(out, "\n%*s", INDENT, "");
    else
        mt_str_printf(out, "%*s", (int)(INDENT - left.n - 2), "");
    put_wrapped(out, right.s ? right.s : "", INDENT);
    if (left.failed || right.failed) out->failed = true;
    mt_str_free(&left);
    mt_str_free(&right);
}

static bool is_shown(const mt_setting *row, const char *section, bool all)
{
    return strcmp(row->section, section) == 0 && (all || row->common);
}

void mt_settings_help(mt_str *out, bool all)
{
    mt_str_puts(out, "Settings come from a YAML file; each flag below overrides its key there.\n\n"
                     "  --config FILE             The YAML file; may also be given without --config.\n"
                     "  --set SECTION.KEY=VALUE   Set any key of the file.\n");
    for (size_t i = 0; i < mt__n_sections; i++) {
        const char *section = mt__sections[i].name;
        size_t n = 0;
        for (size_t j = 0; j < mt__n_settings; j++) n += is_shown(&mt__settings[j], section, all);
        if (n) mt_str_printf(out, "\n%s: %s\n", section, mt__sections[i].help);
        for (size_t j = 0; j < mt__n_settings; j++)
            if (is_shown(&mt__settings[j], section, all)) put_row(out, &mt__settings[j]);
    }
}

void mt_settings_values(mt_str *out, const char *flag)
{
    size_t n = strlen(flag);
    const mt_setting *row = n > 2 ? mt__setting_by_flag(flag + 2, n - 2) : NULL;
    if (!row) return;
    if (row->type == MT_SETTING_BOOL) mt_str_puts(out, "true\nfalse\n");
    for (const char *const *c = row->choices; c && *c; c++) mt_str_printf(out, "%s\n", *c);
    if (row->word) mt_str_printf(out, "%s\n", row->word);
    if (row->type == MT_SETTING_DEVICE) mt_str_puts(out, "auto\ncpu\ncuda\n");
}
