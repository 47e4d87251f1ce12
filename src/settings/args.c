/* args.c - the command line onto the settings: --config, --set and one flag per row. */
#include "settings/table.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

/* One flag as typed: name without dashes, the text after '=', and the next argument. */
typedef struct flag {
    const char *typed, *name;
    size_t name_n;
    const char *inline_value; /* NULL: none */
    const char *next;         /* the following argument; NULL: none */
} flag;

static flag split_flag(const char *arg, const char *next)
{
    flag f = { .typed = arg, .name = arg + 2, .next = next };
    f.name_n = strcspn(f.name, "=");
    if (f.name[f.name_n]) f.inline_value = f.name + f.name_n + 1;
    return f;
}

static bool is_named(const flag *f, const char *name)
{
    return f->name_n == strlen(name) && strncmp(f->name, name, f->name_n) == 0;
}

/* The flag's value; *used counts the arguments it takes. */
static mt_rc need_value(const flag *f, const char **value, int *used, mt_err *err)
{
    *used = f->inline_value ? 1 : 2;
    *value = f->inline_value ? f->inline_value : f->next;
    if (!*value) return mt_fail(err, MT_EINVAL, "%s needs a value", f->typed);
    if (!f->inline_value && strncmp(*value, "--", 2) == 0)
        return mt_fail(err, MT_EINVAL, "%s needs a value, found %.60s (a value that begins with -- is written %s=VALUE)",
                       f->typed, *value, f->typed);
    return MT_OK;
}

/* A configuration file is recognized by its name and needs no --config. */
static bool is_file(const char *word)
{
    const char *dot = strrchr(word, '.');
    return word[0] != '-' && dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

/* Rows whose flag may stand alone take the next argument only if it can be nothing else. */
static bool next_is_value(const mt_setting *row, const char *next)
{
    bool b;
    double d;
    if (!next || strncmp(next, "--", 2) == 0) return false;
    if (row->type == MT_SETTING_BOOL || row->type == MT_SETTING_ENUM) return mt_yaml_bool(next, &b) || strcmp(next, "auto") == 0;
    if (row->type == MT_SETTING_INT) return mt_yaml_number(next, &d) || (row->word && strcmp(next, row->word) == 0);
    return !is_file(next);
}

static mt_rc row_value(const mt_setting *row, const flag *f, const char **value, int *used, mt_err *err)
{
    const char *bare = row->type == MT_SETTING_BOOL ? "true" : row->bare;
    if (!bare || f->inline_value) return need_value(f, value, used, err);
    bool takes = next_is_value(row, f->next);
    *used = takes ? 2 : 1;
    *value = takes ? f->next : bare;
    return MT_OK;
}

/* The settings, and what this command line has given each of them so far. */
typedef struct line {
    mt_settings *s;
    struct {
        const char *by, *value; /* the flag, or "--set"; NULL: not given */
    } given[MT_SETTINGS_MAX];
} line;

/* A list that is given again grows.  Of two other values one would be ignored. */
static mt_rc line_set(line *l, const mt_setting *row, const char *value, const char *by, mt_err *err)
{
    const size_t i = (size_t)(row - mt__settings);
    const mt_flag_text key = mt__setting_key(row);
    const bool again = l->given[i].by, grows = again && mt__setting_is_list(row);
    if (again && !grows && strcmp(l->given[i].value, value) != 0)
        return mt_fail(err, MT_EINVAL, "%s is given twice, as %.80s (%s) and as %.80s (%s); give it once", key.s,
                       l->given[i].value, l->given[i].by, value, by);
    const mt__setting_list before = grows ? mt__setting_list_of(l->s, row) : (mt__setting_list){ 0 };
    MT_TRY(mt_settings_set(l->s, key.s, value, by, err));
    if (grows) MT_TRY(mt__setting_prepend(l->s, row, &before, err));
    l->given[i].by = l->s->sources[i].origin == MT_ORIGIN_FLAG ? l->s->sources[i].name : "--set";
    l->given[i].value = value;
    return MT_OK;
}

static mt_rc set_pair(line *l, const char *pair, mt_err *err)
{
    const char *eq = strchr(pair, '=');
    if (!eq) return mt_fail(err, MT_EINVAL, "--set %.80s: write --set section.key=value", pair);
    char *key = mt_strndup(pair, (size_t)(eq - pair));
    if (!key) return mt_no_memory(err, "--set");
    const mt_setting *row = NULL;
    for (size_t i = 0; i < mt__n_settings && !row; i++)
        if (strcmp(mt__setting_key(&mt__settings[i]).s, key) == 0) row = &mt__settings[i];
    mt_rc rc = row ? line_set(l, row, eq + 1, "--set", err) : mt_settings_set(l->s, key, eq + 1, "--set", err);
    mt_free(key);
    return rc;
}

/* A setting's flag, or --no-... of a switch; *used = 0: not one of ours. */
static mt_rc take_row(line *l, const flag *f, int *used, mt_err *err)
{
    const mt_setting *row = mt__setting_by_flag(f->name, f->name_n);
    const char *value = "false";
    *used = 0;
    if (row) {
        MT_TRY(row_value(row, f, &value, used, err));
    } else {
        if (f->name_n < 4 || strncmp(f->name, "no-", 3) != 0 || f->inline_value) return MT_OK;
        row = mt__setting_by_flag(f->name + 3, f->name_n - 3);
        bool is_switch = row && (row->type == MT_SETTING_BOOL || (row->bare && strcmp(row->bare, "true") == 0));
        if (!is_switch) return MT_OK;
        *used = 1;
    }
    char typed[64];
    snprintf(typed, sizeof typed, "--%.*s", (int)mt_min_i64((int64_t)f->name_n, 60), f->name);
    return line_set(l, row, value, typed, err);
}

static mt_rc take_flag(line *l, const flag *f, int *used, mt_err *err)
{
    const char *value;
    if (is_named(f, "config")) return need_value(f, &value, used, err); /* read before all others */
    if (is_named(f, "set")) {
        MT_TRY(need_value(f, &value, used, err));
        return set_pair(l, value, err);
    }
    return take_row(l, f, used, err);
}

/* Arguments that a flag takes, itself included; 1 for flags of the command. */
static mt_rc flag_width(const flag *f, const char **value, int *used, mt_err *err)
{
    const mt_setting *row = mt__setting_by_flag(f->name, f->name_n);
    *used = 1;
    if (is_named(f, "config") || is_named(f, "set")) return need_value(f, value, used, err);
    return row ? row_value(row, f, value, used, err) : MT_OK;
}

/* The configuration file: the value of --config, or a word alone. */
static mt_rc find_config(int argc, char **argv, const char **path, mt_err *err)
{
    *path = NULL;
    for (int i = 1, used; i < argc && strcmp(argv[i], "--") != 0; i += used) {
        const char *value = NULL;
        flag f = split_flag(argv[i], i + 1 < argc ? argv[i + 1] : NULL);
        bool is_flag = strncmp(argv[i], "--", 2) == 0;
        used = 1;
        if (is_flag) MT_TRY(flag_width(&f, &value, &used, err));
        const char *found = is_file(argv[i]) ? argv[i] : NULL;
        if (is_flag && is_named(&f, "config")) found = value;
        if (found && *path)
            return mt_fail(err, MT_EINVAL, "a second configuration file, %s besides %s; one file describes a run", found, *path);
        if (found) *path = found;
    }
    return MT_OK;
}

mt_rc mt_settings_args(mt_settings *s, int *argc, char **argv, mt_err *err)
{
    const char *path;
    line l = { .s = s };
    MT_TRY(find_config(*argc, argv, &path, err));
    if (path) MT_TRY(mt_settings_read(s, path, err));
    int kept = *argc > 0;
    for (int i = 1; i < *argc;) {
        int used = 0;
        if (strcmp(argv[i], "--") == 0) {
            while (i < *argc) argv[kept++] = argv[i++];
            break;
        }
        if (strncmp(argv[i], "--", 2) == 0) {
            flag f = split_flag(argv[i], i + 1 < *argc ? argv[i + 1] : NULL);
            MT_TRY(take_flag(&l, &f, &used, err));
        }
        if (argv[i] == path) used = 1;
        if (used)
            i += used;
        else
            argv[kept++] = argv[i++];
    }
    argv[kept] = NULL;
    *argc = kept;
    return MT_OK;
}

void mt_settings_nearest_flag(const char *typed, char out[48])
{
    mt_nearest search = { .word = typed };
    for (size_t i = 0; i < mt__n_settings; i++) mt_nearest_offer(&search, mt__setting_flag(&mt__settings[i]).s);
    mt_nearest_offer(&search, "--config");
    mt_nearest_offer(&search, "--set");
    snprintf(out, 48, "%.47s", search.best);
}
