#include "data/registry.h"

#include "base/file.h"
#include "base/log.h"
#include "base/nearest.h"
#include "data/formats.h"
#include "data/record_files.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 26 };

static const char info_name[] = "dataset_info.json";

struct mt_registry {
    mt_arena arena;  /* owns everything handed out */
    const char *dir; /* where files are looked for */
    bool outside;    /* and they may be elsewhere */
    mt_value info;   /* the document: a map of maps */
    char **names;
};

/* ---- the file ---- */

/* Copies of the names with a NUL: the document's keys need not have one. */
static mt_rc index_names(mt_registry *r, mt_err *err)
{
    r->names = mt_arena_calloc(&r->arena, r->info.map.n + 1, sizeof *r->names);
    if (!r->names) return mt_no_memory(err, "the dataset registry");
    for (size_t i = 0; i < r->info.map.n; i++) {
        const mt_pair *p = &r->info.map.pairs[i];
        r->names[i] = mt_arena_strndup(&r->arena, p->key, p->key_n);
        if (!r->names[i]) return mt_no_memory(err, "the dataset registry");
        if (p->value.type != MT_VALUE_MAP)
            return mt_fail(err, MT_EFORMAT, "%s: \"%s\" should be an object that describes a dataset and is %s", info_name,
                           r->names[i], mt_value_type_name(&p->value));
    }
    return MT_OK;
}

static mt_rc registry_fill(mt_registry *r, const char *text, size_t n, const char *dir, mt_err *err)
{
    r->dir = mt_arena_strndup(&r->arena, dir, strlen(dir));
    char *kept = mt_arena_strndup(&r->arena, text, n); /* values may point into the text */
    if (!r->dir || !kept) return mt_no_memory(err, "the dataset registry");
    MT_TRY(mt_value_parse_json(&r->info, &r->arena, kept, n, NULL, info_name, err));
    if (r->info.type != MT_VALUE_MAP)
        return mt_fail(err, MT_EFORMAT, "%s: an object with a dataset under each name was expected, it is %s", info_name,
                       mt_value_type_name(&r->info));
    return index_names(r, err);
}

mt_rc mt_registry_parse(mt_registry **out, const char *text, size_t n, const char *dir, mt_err *err)
{
    *out = NULL;
    mt_registry *r = mt_calloc(1, sizeof *r);
    if (!r) return mt_no_memory(err, "the dataset registry");
    mt_rc rc = registry_fill(r, text, n, dir, err);
    if (rc) {
        mt_registry_close(r);
        return rc;
    }
    *out = r;
    return MT_OK;
}

void mt_registry_close(mt_registry *r)
{
    if (!r) return;
    mt_arena_free(&r->arena);
    mt_free(r);
}

/* The folder may be a stranger's, so what leads out of it is read only if the user allows it. */
static mt_rc registry_stay(const char *dir, const char *what, const char *path, mt_err *err)
{
    char *folder = strpbrk(path, "*?[") ? mt__pattern_folder(path) : mt_strdup(path), *real = NULL;
    mt_rc rc = folder ? mt_path_outside(&real, dir, folder, err) : mt_no_memory(err, "a path");
    if (real)
        rc =
            mt_fail(err, MT_EINVAL,
                    "%s leads to %s, outside the folder of %s (%s), which may not be yours.  Copy the files into it, or allow it "
                    "with dataset.allow_outside_files: true (--allow-outside-files)",
                    what, real, info_name, dir);
    mt_free(real);
    mt_free(folder);
    return rc;
}

static mt_rc open_in(mt_registry **out, const char *dir, bool outside, bool *found, mt_err *err)
{
    char *path = mt_path_join(dir, info_name), *text = NULL;
    size_t n = 0;
    if (!path) return mt_no_memory(err, "the dataset registry");
    *found = mt_file_exists(path);
    mt_rc rc = *found && !outside ? registry_stay(dir, info_name, path, err) : MT_OK;
    if (!rc && *found) rc = mt_file_read(&text, &n, path, MAX_FILE_BYTES, err);
    if (!rc && *found) rc = mt_registry_parse(out, text, n, dir, err);
    if (!rc && *found) (*out)->outside = outside;
    if (rc) mt_note(err, "in %s", dir);
    mt_free(text);
    mt_free(path);
    return rc;
}

/* dir/dataset_dir, where dir is the folder of the configuration file; NULL if it does not exist. */
static char *beside(const mt_registry_places *p)
{
    if (!p->config_path || !*p->config_path || p->dataset_dir[0] == '/') return NULL;
    size_t n = (size_t)(mt_path_base(p->config_path) - p->config_path);
    return n ? mt_asprintf("%.*s%s", (int)n, p->config_path, p->dataset_dir) : NULL;
}

/* LLaMA-Factory's words for registries that are in no folder. */
static mt_rc check_dir(const char *dir, mt_err *err)
{
    if (strcmp(dir, "ONLINE") == 0)
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "dataset_dir ONLINE means datasets of the hub to LLaMA-Factory; here leave it out, and name the dataset as the "
            "hub does (owner/name)");
    if (strncmp(dir, "REMOTE:", 7) == 0)
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "dataset_dir %s means the dataset_info.json of that dataset on the hub to LLaMA-Factory; here download the "
            "dataset, and set dataset_dir to its folder",
            dir);
    return MT_OK;
}

mt_rc mt_registry_open(mt_registry **out, const mt_registry_places *places, mt_err *err)
{
    *out = NULL;
    mt_registry_places p = *places;
    if (!p.dataset_dir || !*p.dataset_dir) p.dataset_dir = "data";
    MT_TRY(check_dir(p.dataset_dir, err));
    char *near_config = beside(&p);
    const char *const tries[] = { p.dataset_dir, near_config, p.installed };
    bool found = false;
    mt_rc rc = MT_OK;
    for (size_t i = 0; i < MT_COUNT(tries) && !found && !rc; i++)
        if (tries[i] && *tries[i]) rc = open_in(out, tries[i], p.outside, &found, err);
    if (!rc && !found)
        rc = mt_fail(
            err, MT_ENOENT,
            "no %s in %s%s%s%s%s: set dataset.dataset_dir to the folder that has it, or read a file directly with dataset.path",
            info_name, p.dataset_dir, near_config ? ", " : "", near_config ? near_config : "",
            p.installed && *p.installed ? ", " : "", p.installed && *p.installed ? p.installed : "");
    mt_free(near_config);
    return rc;
}

const char *mt_registry_dir(const mt_registry *r) { return r->dir; }
size_t mt_registry_count(const mt_registry *r) { return r->info.map.n; }
const char *mt_registry_name(const mt_registry *r, size_t i) { return r->names[i]; }

/* ---- reading one entry ---- */

typedef struct entry_reader {
    mt_registry *r;
    const char *name;
    const mt_value *map;
} entry_reader;

/* A string of `from` by key; NULL if absent, null or empty. */
static mt_rc get_text(const entry_reader *e, const mt_value *from, const char *key, const char **out, mt_err *err)
{
    const mt_value *v = mt_value_get(from, key);
    *out = NULL;
    if (!v || v->type == MT_VALUE_NULL) return MT_OK;
    if (v->type != MT_VALUE_STR)
        return mt_fail(err, MT_EFORMAT, "%s: \"%s\" of dataset \"%s\" should be text and is %s", info_name, key, e->name,
                       mt_value_type_name(v));
    if (!v->str.n) return MT_OK;
    *out = mt_arena_strndup(&e->r->arena, v->str.s, v->str.n);
    return *out ? MT_OK : mt_no_memory(err, "the dataset registry");
}

static bool is_true(const mt_value *v) { return v && ((v->type == MT_VALUE_BOOL && v->b) || (v->type == MT_VALUE_INT && v->i)); }

static mt_rc get_map(const entry_reader *e, const char *key, const mt_value **out, mt_err *err)
{
    const mt_value *v = mt_value_get(e->map, key);
    *out = v && v->type != MT_VALUE_NULL ? v : NULL;
    if (*out && v->type != MT_VALUE_MAP)
        return mt_fail(err, MT_EFORMAT, "%s: \"%s\" of dataset \"%s\" should be an object and is %s", info_name, key, e->name,
                       mt_value_type_name(v));
    return MT_OK;
}

typedef struct named_field {
    const char *key;
    size_t offset; /* of a const char * in mt_record_layout */
} named_field;

#define FIELD(key, member)                                                                                                       \
    {                                                                                                                            \
        key, offsetof(mt_record_layout, member)                                                                                  \
    }

static const named_field column_fields[] = { FIELD("prompt", prompt),   FIELD("query", query),   FIELD("response", response),
                                             FIELD("history", history), FIELD("system", system), FIELD("messages", messages),
                                             FIELD("tools", tools) };
static const named_field tag_fields[] = {
    FIELD("role_tag", role_tag),           FIELD("content_tag", content_tag),         FIELD("user_tag", user_tag),
    FIELD("assistant_tag", assistant_tag), FIELD("observation_tag", observation_tag), FIELD("function_tag", function_tag),
    FIELD("system_tag", system_tag)
};

static const char **field_of(mt_record_layout *l, const named_field *f) { return (const char **)((char *)l + f->offset); }

static mt_rc unknown_key(const entry_reader *e, const char *where, const mt_pair *p, const named_field *fields, size_t n,
                         mt_err *err)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)p->key_n, p->key);
    mt_nearest near = { .word = word };
    for (size_t i = 0; i < n; i++) mt_nearest_offer(&near, fields[i].key);
    return mt_fail(err, MT_EINVAL, "%s: dataset \"%s\" has an unknown entry \"%s\" in \"%s\"%s%s%s", info_name, e->name, word,
                   where, *near.best ? "; did you mean \"" : "", near.best, *near.best ? "\"?" : "");
}

static bool known_key(const mt_pair *p, const named_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(fields[i].key) == p->key_n && !memcmp(fields[i].key, p->key, p->key_n)) return true;
    return false;
}

/* With "columns" given, those it does not name are unset. */
static mt_rc read_columns(const entry_reader *e, mt_record_layout *l, mt_err *err)
{
    const mt_value *columns;
    MT_TRY(get_map(e, "columns", &columns, err));
    if (!columns) return MT_OK;
    l->named = true;
    for (size_t i = 0; i < mt_n_untrained_columns; i++) {
        const mt_value *v = mt_value_get(columns, mt_untrained_columns[i].name);
        if (v && v->type != MT_VALUE_NULL)
            return mt_fail(err, MT_EUNSUPPORTED, "dataset \"%s\" has a column of %s: %s", e->name, mt_untrained_columns[i].name,
                           mt_untrained_columns[i].why);
    }
    for (size_t i = 0; i < columns->map.n; i++) {
        const mt_pair *p = &columns->map.pairs[i];
        if (p->value.type != MT_VALUE_NULL && !known_key(p, column_fields, MT_COUNT(column_fields)))
            return unknown_key(e, "columns", p, column_fields, MT_COUNT(column_fields), err);
    }
    for (size_t i = 0; i < MT_COUNT(column_fields); i++)
        MT_TRY(get_text(e, columns, column_fields[i].key, field_of(l, &column_fields[i]), err));
    l->messages_too = l->text = NULL;
    if (l->formatting != MT_FORMATTING_ALPACA) {
        if (l->messages) return MT_OK;
        return mt_fail(err, MT_EINVAL, "%s: dataset \"%s\" names its columns but not \"messages\", which this formatting reads",
                       info_name, e->name);
    }
    if (!l->prompt) return mt_fail(err, MT_EINVAL, "%s: dataset \"%s\" names its columns but not \"prompt\"", info_name, e->name);
    l->text_only = !l->response;
    if (l->text_only) l->text = l->prompt;
    return MT_OK;
}

/* Tags that are not named keep their defaults. */
static mt_rc read_tags(const entry_reader *e, mt_record_layout *l, mt_err *err)
{
    const mt_value *tags;
    MT_TRY(get_map(e, "tags", &tags, err));
    if (!tags) return MT_OK;
    for (size_t i = 0; i < tags->map.n; i++)
        if (!known_key(&tags->map.pairs[i], tag_fields, MT_COUNT(tag_fields)))
            return unknown_key(e, "tags", &tags->map.pairs[i], tag_fields, MT_COUNT(tag_fields), err);
    for (size_t i = 0; i < MT_COUNT(tag_fields); i++) {
        const char *given;
        MT_TRY(get_text(e, tags, tag_fields[i].key, &given, err));
        if (given) *field_of(l, &tag_fields[i]) = given;
    }
    return MT_OK;
}

static mt_rc read_formatting(const entry_reader *e, mt_formatting *out, mt_err *err)
{
    static const char *const names[MT_FORMATTINGS] = { "alpaca", "sharegpt", "openai" };
    const char *given;
    MT_TRY(get_text(e, e->map, "formatting", &given, err));
    *out = MT_FORMATTING_ALPACA;
    for (int i = 0; given && i < MT_FORMATTINGS; i++)
        if (!strcmp(given, names[i])) {
            *out = (mt_formatting)i;
            return MT_OK;
        }
    if (!given) return MT_OK;
    return mt_fail(err, MT_EINVAL, "%s: dataset \"%s\" has the formatting \"%s\"; alpaca, sharegpt and openai are known",
                   info_name, e->name, given);
}

static mt_rc read_num_samples(const entry_reader *e, int64_t *out, mt_err *err)
{
    const mt_value *v = mt_value_get(e->map, "num_samples");
    *out = 0;
    if (!v || v->type == MT_VALUE_NULL) return MT_OK;
    if (v->type != MT_VALUE_INT || v->i < 1)
        return mt_fail(err, MT_EINVAL, "%s: \"num_samples\" of dataset \"%s\" should be a whole number from 1", info_name,
                       e->name);
    *out = v->i;
    return MT_OK;
}

/* ---- where its files are ---- */

static bool path_exists(const char *path)
{
    glob_t g;
    if (mt_file_exists(path) || mt_dir_exists(path)) return true;
    if (!strpbrk(path, "*?[")) return false;
    bool found = glob(path, GLOB_NOSORT, NULL, &g) == 0;
    globfree(&g);
    return found;
}

/* dir/a[/b] in the registry's arena, or `a` itself if it is absolute. */
static const char *registry_join(mt_registry *r, const char *a, const char *b)
{
    mt_str s = { 0 };
    if (a[0] != '/' && strcmp(r->dir, ".") != 0) mt_str_printf(&s, "%s/", r->dir);
    mt_str_puts(&s, a);
    if (b && *b) mt_str_printf(&s, "/%s", b);
    char *copy = mt_str_ok(&s) ? mt_arena_strndup(&r->arena, s.s, s.n) : NULL;
    mt_str_free(&s);
    return copy;
}

/* A dataset of a hub: a folder of its full or its last name, where the user has put it.  Not there: no path. */
static mt_rc find_hub(const entry_reader *e, const char *url, const char *folder, mt_dataset_entry *out, mt_err *err)
{
    const char *full = registry_join(e->r, url, folder), *last = registry_join(e->r, mt_path_base(url), folder);
    if (!full || !last) return mt_no_memory(err, "the dataset registry");
    out->path = path_exists(last) ? last : NULL;
    if (path_exists(full)) out->path = full;
    out->hub = url;
    out->folder = folder;
    return MT_OK;
}

static mt_rc find_path(const entry_reader *e, mt_dataset_entry *out, mt_err *err)
{
    const char *file, *hf, *ms, *om, *folder, *script, *cloud;
    MT_TRY(get_text(e, e->map, "file_name", &file, err));
    MT_TRY(get_text(e, e->map, "hf_hub_url", &hf, err));
    MT_TRY(get_text(e, e->map, "ms_hub_url", &ms, err));
    MT_TRY(get_text(e, e->map, "om_hub_url", &om, err));
    MT_TRY(get_text(e, e->map, "folder", &folder, err));
    MT_TRY(get_text(e, e->map, "cloud_file_name", &cloud, err));
    MT_TRY(get_text(e, e->map, "script_url", &script, err));
    if (file) {
        if (!(out->path = registry_join(e->r, file, NULL))) return mt_no_memory(err, "the dataset registry");
        if (path_exists(out->path)) return MT_OK;
        if (!hf && !ms && !om) {
            char near[MT_NEAREST_PATH];
            mt_nearest_path(near, out->path);
            return mt_fail(err, MT_ENOENT,
                           "dataset \"%s\": no %s (file_name in %s/%s; relative names count from that folder)%s%s%s", e->name,
                           out->path, e->r->dir, info_name, *near ? "; did you mean " : "", near, *near ? "?" : "");
        }
    }
    if (hf) return find_hub(e, hf, folder, out, err);
    if (ms || om) {
        MT_TRY(find_hub(e, ms ? ms : om, folder, out, err));
        if (out->path) return MT_OK;
        return mt_fail(err, MT_EUNSUPPORTED, "dataset \"%s\" is %s on a hub that is not asked here: put its files into %s/%s",
                       e->name, out->hub, e->r->dir, out->hub);
    }
    if (cloud)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "dataset \"%s\" is stored in a cloud (%s): copy it here and name it as \"file_name\"", e->name, cloud);
    if (script)
        return mt_fail(err, MT_EUNSUPPORTED, "dataset \"%s\" is made by a script (%s): no code from a dataset ever runs here",
                       e->name, script);
    return mt_fail(err, MT_EINVAL, "%s: dataset \"%s\" has neither \"file_name\" nor \"hf_hub_url\"", info_name, e->name);
}

static mt_rc find_files(const entry_reader *e, mt_dataset_entry *out, mt_err *err)
{
    char what[160];
    MT_TRY(find_path(e, out, err));
    if (!out->path || e->r->outside) return MT_OK;
    snprintf(what, sizeof what, "dataset \"%.120s\": its path", e->name);
    return registry_stay(e->r->dir, what, out->path, err);
}

bool mt_registry_has(const mt_registry *r, const char *name) { return mt_value_get(&r->info, name) != NULL; }

static mt_rc unknown_dataset(const mt_registry *r, const char *name, mt_err *err)
{
    mt_nearest near = { .word = name };
    for (size_t i = 0; i < r->info.map.n; i++) mt_nearest_offer(&near, r->names[i]);
    if (*near.best)
        return mt_fail(err, MT_ENOENT, "no dataset \"%s\" in %s/%s; did you mean \"%s\"?", name, r->dir, info_name, near.best);
    mt_str some = { 0 };
    for (size_t i = 0; i < r->info.map.n && i < 8; i++) mt_str_printf(&some, "%s%s", i ? ", " : "", r->names[i]);
    mt_rc rc = mt_fail(err, MT_ENOENT, "no dataset \"%s\" in %s/%s, which has %zu: %s%s", name, r->dir, info_name, r->info.map.n,
                       some.s ? some.s : "none", r->info.map.n > 8 ? ", ..." : "");
    mt_str_free(&some);
    return rc;
}

static const char *const entry_keys[] = { "file_name",       "hf_hub_url",  "ms_hub_url", "om_hub_url", "script_url",
                                          "cloud_file_name", "formatting",  "ranking",    "subset",     "split",
                                          "folder",          "num_samples", "columns",    "tags" };

/* Entries may hold remarks, so an unknown key is allowed.  One that is nearly a known key is probably a typo. */
void mt_registry_warn_of_typos(const mt_registry *r, const char *name)
{
    const mt_value *entry = mt_value_get(&r->info, name);
    for (size_t i = 0; entry && i < entry->map.n; i++) {
        const mt_pair *p = &entry->map.pairs[i];
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)mt_min_i64((int64_t)p->key_n, (int64_t)sizeof word - 1), p->key);
        mt_nearest near = { .word = word };
        for (size_t k = 0; k < MT_COUNT(entry_keys); k++) mt_nearest_offer(&near, entry_keys[k]);
        if (*near.best && strcmp(near.best, word) != 0)
            mt_warn("%s: dataset \"%s\" has a key \"%s\", which is not read; did you mean \"%s\"?", info_name, name, word,
                    near.best);
    }
}

mt_rc mt_registry_find(mt_registry *r, const char *name, mt_dataset_entry *out, mt_err *err)
{
    mt_formatting formatting;
    entry_reader e = { .r = r, .map = mt_value_get(&r->info, name) };
    if (!e.map) return unknown_dataset(r, name, err);
    if (!(e.name = mt_arena_strndup(&r->arena, name, strlen(name)))) return mt_no_memory(err, "the dataset registry");
    *out = (mt_dataset_entry){ .name = e.name };
    if (is_true(mt_value_get(e.map, "ranking")))
        return mt_fail(err, MT_EUNSUPPORTED,
                       "dataset \"%s\" is made of preference pairs (\"ranking\"), which are not trained on yet", name);
    MT_TRY(read_formatting(&e, &formatting, err));
    out->layout = mt_record_layout_default(formatting);
    MT_TRY(read_columns(&e, &out->layout, err));
    MT_TRY(read_tags(&e, &out->layout, err));
    MT_TRY(get_text(&e, e.map, "split", &out->split, err));
    MT_TRY(get_text(&e, e.map, "subset", &out->subset, err));
    MT_TRY(read_num_samples(&e, &out->num_samples, err));
    return find_files(&e, out, err);
}

bool mt_dataset_is_file_name(const char *path) { return mt__format_by_extension(path) != NULL; }

mt_rc mt_dataset_direct(mt_dataset_entry *out, const char *path, mt_record_layout layout, mt_err *err)
{
    const char *base = mt_path_base(path); /* "" after a trailing slash */
    *out = (mt_dataset_entry){ .name = *base ? base : path, .path = path, .layout = layout };
    if (path_exists(path)) return MT_OK;
    char near[MT_NEAREST_PATH];
    mt_nearest_path(near, path);
    if (*near) return mt_fail(err, MT_ENOENT, "no file or folder %s; did you mean %s?", path, near);
    return mt_fail(err, MT_ENOENT,
                   "no file or folder %s.  If it is the name of a dataset in dataset_info.json, give it as dataset.name", path);
}
