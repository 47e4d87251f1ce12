/* read.c - a YAML file onto the settings.  A value is converted by its row; this part finds the row, or says
 * which one was meant. */
#include "settings/flat.h"
#include "settings/foreign.h"
#include "settings/problems.h"

#include "base/file.h"
#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

static bool is_section(const char *name)
{
    for (size_t i = 0; i < mt__n_sections; i++)
        if (strcmp(mt__sections[i].name, name) == 0) return true;
    return false;
}

/* The section other than `not_in` that has such a key; NULL: none. */
static const char *home_of(const char *key, const char *not_in)
{
    for (size_t i = 0; i < mt__n_settings; i++)
        if (strcmp(mt__settings[i].key, key) == 0 && strcmp(mt__settings[i].section, not_in) != 0) return mt__settings[i].section;
    return NULL;
}

static mt_rc unknown_key(const char *section, const mt_yaml *key, const char *name, mt_err *err)
{
    mt_nearest search = { .word = key->text };
    for (size_t i = 0; i < mt__n_settings; i++)
        if (strcmp(mt__settings[i].section, section) == 0 && !mt__settings[i].flag_only)
            mt_nearest_offer(&search, mt__settings[i].key);
    const char *home = home_of(key->text, section);
    if (home)
        return mt_fail(err, MT_EINVAL, "%s:%d: %s has no key \"%.60s\"; it belongs under %s:", name, key->line, section,
                       key->text, home);
    if (*search.best)
        return mt_fail(err, MT_EINVAL, "%s:%d: %s has no key \"%.60s\"; did you mean %s?", name, key->line, section, key->text,
                       search.best);
    return mt_fail(err, MT_EINVAL, "%s:%d: %s has no key \"%.60s\"; docs/configuration.md lists them all", name, key->line,
                   section, key->text);
}

static mt_rc unknown_section(const mt_yaml *key, const char *name, mt_err *err)
{
    mt_nearest search = { .word = key->text };
    for (size_t i = 0; i < mt__n_sections; i++) mt_nearest_offer(&search, mt__sections[i].name);
    const char *home = home_of(key->text, "");
    if (home) return mt_fail(err, MT_EINVAL, "%s:%d: \"%.60s\" belongs under a section: %s:", name, key->line, key->text, home);
    if (*search.best)
        return mt_fail(err, MT_EINVAL, "%s:%d: no section \"%.60s\"; did you mean %s?", name, key->line, key->text, search.best);
    mt_str list = { 0 };
    for (size_t i = 0; i < mt__n_sections; i++) mt_str_printf(&list, "%s%s", i ? ", " : "", mt__sections[i].name);
    mt_rc rc = mt_fail(err, MT_EINVAL, "%s:%d: no section \"%.60s\"; sections are %s", name, key->line, key->text,
                       list.s ? list.s : "in docs/configuration.md");
    mt_str_free(&list);
    return rc;
}

static mt_rc read_value(mt_settings *s, const char *section, const mt_yaml_item *item, const char *name, mt_err *err)
{
    const mt_setting *row = mt__setting_find(section, item->key->text);
    if (!row) return unknown_key(section, item->key, name, err);
    if (row->flag_only)
        return mt_fail(err, MT_EINVAL, "%s:%d: %s is not for files; give %s on the command line", name, item->key->line, row->key,
                       mt__setting_flag(row).s);
    if (mt_yaml_is_null(item->value)) return mt__setting_default(s, row, err);
    char *where = mt_asprintf("%s:%d: %s.%s", name, item->value->line, section, row->key);
    if (!where) return mt_no_memory(err, "%s", name);
    mt_rc rc = mt__setting_convert(s, row, item->value, where, err);
    mt_free(where);
    if (!rc) s->sources[row - mt__settings] = (mt_setting_source){ MT_ORIGIN_FILE, s->config_path, item->key->line };
    return rc;
}

/* A key that the section has, as an example. */
static const char *first_key(const char *section)
{
    size_t i = 0;
    while (i < mt__n_settings && strcmp(mt__settings[i].section, section) != 0) i++;
    return i < mt__n_settings ? mt__settings[i].key : "";
}

static mt_rc read_section(mt_settings *s, const mt_yaml_item *section, const char *name, mt__problems *p, mt_err *err)
{
    if (mt_yaml_is_null(section->value)) return MT_OK;
    mt_err one = { 0 };
    if (section->value->kind != MT_YAML_MAP) {
        char found[96];
        mt_yaml_describe(section->value, found);
        mt_rc rc = mt_fail(&one, MT_EINVAL, "%s:%d: %s: expected keys and values, such as %s: {%s: ...}, found %s", name,
                           section->key->line, section->key->text, section->key->text, first_key(section->key->text), found);
        return mt__problems_add(p, rc, &one, err);
    }
    for (const mt_yaml_item *it = section->value->items; it; it = it->next)
        MT_TRY(mt__problems_add(p, read_value(s, section->key->text, it, name, &one), &one, err));
    return MT_OK;
}

/* Sections of MegaTrain's files for other kinds of training. */
static const struct {
    const char *section, *why;
} refused_sections[] = {
    { "vlm", "models that see images are not trained here: give a text model, and leave this section out" },
    { "grpo",
      "GRPO, reinforcement learning, is not trained here: for fine-tuning on answers that are given, leave this section out" },
};

static const char *refusal_of(const char *section)
{
    for (size_t i = 0; i < MT_COUNT(refused_sections); i++)
        if (strcmp(refused_sections[i].section, section) == 0) return refused_sections[i].why;
    return NULL;
}

static mt_rc read_top(mt_settings *s, const mt_yaml_item *it, const char *name, mt__problems *p, mt_err *err)
{
    const char *key = it->key->text, *why = refusal_of(key);
    mt_err one = { 0 };
    if (strncmp(key, "x-", 2) == 0 || key[0] == '.') return MT_OK; /* a place for anchors, as in compose files */
    if (is_section(key)) return read_section(s, it, name, p, err);
    mt_rc rc = why ? mt_fail(&one, MT_EUNSUPPORTED, "%s:%d: %s: %s", name, it->key->line, key, why)
                   : unknown_section(it->key, name, &one);
    return mt__problems_add(p, rc, &one, err);
}

static mt_rc read_root(mt_settings *s, const mt_yaml *root, const char *name, mt_err *err)
{
    if (root->kind != MT_YAML_MAP) {
        char found[96];
        mt_yaml_describe(root, found);
        return mt_fail(err, MT_EFORMAT, "%s:%d: expected sections (model:, dataset:, training:, ...), found %s", name, root->line,
                       found);
    }
    MT_TRY(mt__foreign_check(root, name, err));
    if (mt__flat_is(root)) return mt__flat_read(s, root, name, err);
    mt__problems p = { 0 };
    mt_rc rc = MT_OK;
    for (const mt_yaml_item *it = root->items; it && !rc; it = it->next) rc = read_top(s, it, name, &p, err);
    if (rc) return mt__problems_drop(&p), rc;
    return mt__problems_end(&p, name, err);
}

mt_rc mt_settings_parse(mt_settings *s, const char *text, size_t n, const char *name, mt_err *err)
{
    mt_arena tree = { 0 };
    const mt_yaml *root = NULL;
    mt_rc rc = mt_yaml_parse(&root, &tree, text, n, name, err);
    if (!rc && !(s->config_path = mt_arena_strndup(&s->arena, name, strlen(name)))) {
        s->config_path = "";
        rc = mt_no_memory(err, "%s", name);
    }
    if (!rc && root) rc = read_root(s, root, name, err);
    mt_arena_free(&tree);
    return rc;
}

mt_rc mt_settings_read(mt_settings *s, const char *path, mt_err *err)
{
    char *text;
    size_t n;
    mt_rc rc = mt_file_read(&text, &n, path, MT_YAML_MAX_BYTES, err);
    if (rc == MT_ENOENT) {
        char near[MT_NEAREST_PATH];
        mt_nearest_path(near, path);
        return *near ? mt_fail(err, rc, "no file %s; did you mean %s?", path, near)
                     : mt_fail(err, rc, "no file %s; configs/ has ready ones", path);
    }
    if (rc) return rc;
    rc = mt_settings_parse(s, text, n, path, err);
    mt_free(text);
    return rc;
}
