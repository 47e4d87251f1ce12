/* card.c - which files of a dataset repository make a split.
 *
 * The front matter of its README lists them, if it has any:
 *
 *     configs:
 *     - config_name: main
 *       default: true
 *       data_files:                      a pattern, a list of them, or
 *       - split: train
 *         path: main/train-*             a pattern or a list
 *
 * Otherwise file names decide, in the order of the datasets library: data/SPLIT-00000-of-00003.parquet, folders named after a
 * split, files named after one; else everything is train. */
#include "base/yaml.h"
#include "hub/internal.h"

#include <ctype.h>
#include <string.h>

/* Readers prefer them in this order; a split is made of one kind. */
static const char *const data_endings[] = { ".parquet", ".jsonl", ".json", ".csv", ".tsv", ".arrow", ".txt" };

static int ending_of(const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < MT_COUNT(data_endings); i++) {
        size_t k = strlen(data_endings[i]);
        if (n > k && strcmp(path + n - k, data_endings[i]) == 0) return (int)i;
    }
    return -1;
}

/* Files beside the data that look like data. */
static bool is_data(const char *path)
{
    static const char *const others[] = { "dataset_info.json", "dataset_infos.json", "requirements.txt",  "LICENSE.txt",
                                          "README.txt",        "state.json",         "dataset_dict.json", "croissant.json" };
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < MT_COUNT(others); i++)
        if (strcmp(name, others[i]) == 0) return false;
    return name[0] != '.' && ending_of(path) >= 0;
}

/* -- patterns -------------------------------------------------------------------------------------- */

enum { MAX_PATH = 1024, MAX_PATTERN = 4096, MAX_MATCHING = 200 << 20 };

/* A README can name many patterns for many files, so the work of matching them is counted. */
typedef struct matching {
    mt__files *files;
    size_t work_left; /* bytes of a pattern times places in a path; 0: it took too long */
} matching;

/* Whether c is in the set that begins at pattern ("[a-z]", "[!0-9]").  Returns the rest of the pattern; NULL: the set does not
 * end. */
static const char *match_set(const char *pattern, char c, bool *in)
{
    bool inverted = pattern[1] == '!' || pattern[1] == '^';
    const char *first = pattern + 1 + inverted, *p = first;
    *in = false;
    for (; *p && (*p != ']' || p == first); p++)
        if (p[1] == '-' && p[2] && p[2] != ']') {
            *in = *in || (c >= p[0] && c <= p[2]);
            p += 2;
        } else {
            *in = *in || *p == c;
        }
    *in = *in != inverted;
    return *p ? p + 1 : NULL;
}

static bool count_work(size_t *left, size_t n)
{
    *left = n < *left ? *left - n : 0;
    return *left > 0;
}

/* '*' and '?' stay within a folder; "**" does not.  at[j]: the pattern so far fits the first j bytes of the path.  One pass over
 * both, for any pattern; it ends as soon as no place fits. */
static bool card_fits(const char *pattern, const char *path, size_t *work_left)
{
    bool at[MAX_PATH + 2] = { true }, any = true;
    size_t n = strlen(path);
    if (n > MAX_PATH) return false;
    while (*pattern && any) {
        if (!count_work(work_left, n + 1)) return false;
        bool star = *pattern == '*', deep = star && pattern[1] == '*', folders = deep && pattern[2] == '/';
        const char *behind = pattern + 1 + deep + folders;
        bool before = false; /* a place at or before j was reached */
        for (size_t j = 0; star && j <= n; j++) {
            bool here = at[j];
            if (folders)
                at[j] = here || (before && path[j - 1] == '/');
            else if (deep)
                at[j] = here || before;
            else
                at[j] = here || (j && at[j - 1] && path[j - 1] != '/');
            before = before || here;
        }
        for (size_t j = n + 1; !star && j-- > 0;) { /* backwards: at[j] is read before it is written */
            bool in = j > 0 && at[j - 1];
            if (in && *pattern == '[') {
                behind = match_set(pattern, path[j - 1], &in);
                if (!behind || !count_work(work_left, (size_t)(behind - pattern))) return false;
            } else if (in) {
                in = *pattern == '?' ? path[j - 1] != '/' : *pattern == path[j - 1];
            }
            at[j] = in;
        }
        if (*pattern == '[' && !(behind = match_set(pattern, '/', &(bool){ false }))) return false;
        pattern = behind;
        any = memchr(at, true, n + 1) != NULL;
    }
    return !*pattern && at[n];
}

static size_t want_pattern(matching *m, const char *pattern)
{
    size_t n = 0;
    if (strncmp(pattern, "./", 2) == 0) pattern += 2;
    if (strnlen(pattern, MAX_PATTERN + 1) > MAX_PATTERN) return 0; /* longer than any path */
    for (size_t i = 0; i < m->files->n && m->work_left; i++) {
        mt__file *f = &m->files->items[i];
        if (is_data(f->path) && card_fits(pattern, f->path, &m->work_left)) f->wanted = true, n++;
    }
    return n;
}

/* -- the README ------------------------------------------------------------------------------------ */

static const mt_yaml *get(const mt_yaml *map, const char *key)
{
    if (!map || map->kind != MT_YAML_MAP) return NULL;
    for (const mt_yaml_item *it = map->items; it; it = it->next)
        if (strcmp(it->key->text, key) == 0) return it->value;
    return NULL;
}

static const char *get_text(const mt_yaml *map, const char *key)
{
    const mt_yaml *v = get(map, key);
    return v && v->kind == MT_YAML_SCALAR ? v->text : NULL;
}

/* The lines between the first two "---"; what cannot be read says nothing. */
static const mt_yaml *read_front(const char *readme, size_t n, mt_arena *arena)
{
    const mt_yaml *root = NULL;
    mt_err ignored = { 0 };
    if (n < 4 || strncmp(readme, "---", 3) != 0) return NULL;
    const char *start = memchr(readme, '\n', n), *end = start ? strstr(start, "\n---") : NULL;
    if (!end || mt_yaml_parse(&root, arena, start, (size_t)(end - start), "README.md", &ignored)) return NULL;
    return get(root, "configs");
}

static bool is_default(const mt_yaml *config)
{
    const char *name = get_text(config, "config_name"), *said = get_text(config, "default");
    bool yes = false;
    return (said && mt_yaml_bool(said, &yes) && yes) || (name && strcmp(name, "default") == 0);
}

/* The configuration a subset names, or the default one; NULL: none of that name. */
static const mt_yaml *find_config(const mt_yaml *configs, const char *subset)
{
    const mt_yaml *found = NULL;
    size_t n = 0;
    for (const mt_yaml_item *it = configs->items; it; it = it->next, n++) {
        const char *name = get_text(it->value, "config_name");
        if (*subset ? name && strcmp(name, subset) == 0 : is_default(it->value)) found = it->value;
    }
    return found || *subset || n != 1 ? found : configs->items->value;
}

static mt_rc which_config(const mt_yaml *configs, const mt__repo *repo, const char *subset, mt_err *err)
{
    mt_str names = { 0 };
    for (const mt_yaml_item *it = configs->items; it; it = it->next) {
        const char *name = get_text(it->value, "config_name");
        if (name && names.n < 400) mt_str_printf(&names, "%s%s", names.n ? ", " : "", name);
    }
    mt_rc rc = *subset ? mt_fail(err, MT_ENOENT, "dataset %s has no configuration \"%s\"; it has %s", repo->name, subset,
                                 names.s ? names.s : "none")
                       : mt_fail(err, MT_EINVAL, "dataset %s has several configurations: set dataset.subset to one of %s",
                                 repo->name, names.s ? names.s : "them");
    mt_str_free(&names);
    return rc;
}

/* A pattern, or a list of them. */
static size_t want_paths(matching *m, const mt_yaml *paths)
{
    size_t n = 0;
    if (paths && paths->kind == MT_YAML_SCALAR) return want_pattern(m, paths->text);
    if (!paths || paths->kind != MT_YAML_LIST) return 0;
    for (const mt_yaml_item *it = paths->items; it; it = it->next)
        if (it->value->kind == MT_YAML_SCALAR) n += want_pattern(m, it->value->text);
    return n;
}

static void note_split(mt_str *splits, const char *name, size_t n)
{
    char *word = splits->n < 400 ? mt_strndup(name, n < 100 ? n : 100) : NULL; /* for a message */
    if (word && !(splits->s && strstr(splits->s, word)) && *word) mt_str_printf(splits, "%s%s", splits->n ? ", " : "", word);
    mt_free(word);
}

/* data_files of a configuration; `splits` collects what there is. */
static size_t want_split(matching *m, const mt_yaml *data_files, const char *split, mt_str *splits)
{
    bool plain = data_files && (data_files->kind == MT_YAML_SCALAR || (data_files->kind == MT_YAML_LIST && data_files->items &&
                                                                       data_files->items->value->kind == MT_YAML_SCALAR));
    size_t n = 0;
    if (plain) {
        mt_str_puts(splits, "train");
        return strcmp(split, "train") == 0 ? want_paths(m, data_files) : 0;
    }
    for (const mt_yaml_item *it = data_files ? data_files->items : NULL; it; it = it->next) {
        bool map = data_files->kind == MT_YAML_MAP; /* {train: pattern} */
        const char *name = map ? it->key->text : get_text(it->value, "split");
        if (!name) name = "train";
        note_split(splits, name, strnlen(name, 100));
        if (strcmp(name, split) == 0) n += want_paths(m, map ? it->value : get(it->value, "path"));
    }
    return n;
}

/* -- names ----------------------------------------------------------------------------------------- */

static const struct {
    const char *split, *word;
} split_words[] = {
    { "train", "train" },      { "train", "training" }, { "validation", "validation" },
    { "validation", "valid" }, { "validation", "dev" }, { "validation", "val" },
    { "test", "test" },        { "test", "testing" },   { "test", "eval" },
    { "test", "evaluation" },
};

/* data/NAME-00000-of-00003...: the split's name and its length; NULL: not of that form. */
static const char *sharded_split(const char *path, size_t *n)
{
    if (strncmp(path, "data/", 5) != 0) return NULL;
    size_t work_left = SIZE_MAX; /* the pattern is our own and short */
    for (const char *p = path + 5; (p = strchr(p, '-')); p++)
        if (card_fits("-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]**", p, &work_left)) {
            *n = (size_t)(p - path - 5);
            return path + 5;
        }
    return NULL;
}

static bool is_break(char c) { return !c || strchr("-._ /", c) || isdigit((unsigned char)c); }

/* The split one of whose words stands alone in [from, to); NULL: none. */
static const char *split_in(const char *from, const char *to)
{
    for (const char *p = from; p < to; p++)
        for (size_t i = 0; (p == from || is_break(p[-1])) && i < MT_COUNT(split_words); i++) {
            size_t n = strlen(split_words[i].word);
            if ((size_t)(to - p) >= n && strncmp(p, split_words[i].word, n) == 0 && (p + n == to || is_break(p[n])))
                return split_words[i].split;
        }
    return NULL;
}

static const char *split_of_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? split_in(path, slash) : NULL;
}

static const char *split_of_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return split_in(name, name + strlen(name));
}

static const char *always_train(const char *path)
{
    (void)path;
    return "train";
}

static bool is_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return !n || (strncmp(path, folder, n) == 0 && path[n] == '/');
}

static size_t want_sharded(mt__files *f, const char *split, mt_str *splits)
{
    size_t n_wanted = 0, n;
    for (size_t i = 0; i < f->n; i++) {
        const char *name = is_data(f->items[i].path) ? sharded_split(f->items[i].path, &n) : NULL;
        if (name) note_split(splits, name, n);
        if (!name || strlen(split) != n || strncmp(name, split, n) != 0) continue;
        f->items[i].wanted = true;
        n_wanted++;
    }
    return n_wanted;
}

static size_t want_by_name(mt__files *f, const char *folder, const char *split, mt_str *splits)
{
    static const char *(*const ways[])(const char *path) = { split_of_folder, split_of_file, always_train };
    size_t n = *folder ? 0 : want_sharded(f, split, splits);
    for (size_t w = 0; w < MT_COUNT(ways) && !splits->n; w++)
        for (size_t i = 0; i < f->n; i++) {
            mt__file *file = &f->items[i];
            const char *found = is_data(file->path) && is_below(file->path, folder) ? ways[w](file->path) : NULL;
            if (found) note_split(splits, found, strlen(found));
            if (found && strcmp(found, split) == 0) file->wanted = true, n++;
        }
    return n;
}

/* -- the choice ------------------------------------------------------------------------------------ */

/* Of several kinds of files the one that is read best. */
static void keep_one_kind(mt__files *f)
{
    int best = (int)MT_COUNT(data_endings);
    for (size_t i = 0; i < f->n; i++)
        if (f->items[i].wanted && ending_of(f->items[i].path) < best) best = ending_of(f->items[i].path);
    for (size_t i = 0; i < f->n; i++)
        if (ending_of(f->items[i].path) != best) f->items[i].wanted = false;
}

static mt_rc no_files(const mt__files *f, const mt__repo *repo, const char *split, const mt_str *splits, mt_err *err)
{
    bool data = false, script = false;
    for (size_t i = 0; i < f->n; i++) {
        size_t n = strlen(f->items[i].path);
        data = data || is_data(f->items[i].path);
        script = script || (n > 3 && strcmp(f->items[i].path + n - 3, ".py") == 0);
    }
    if (!data && script)
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "dataset %s is made by a script, and no code from a dataset ever runs here; look for a copy in Parquet or JSON",
            repo->name);
    if (!data)
        return mt_fail(err, MT_ENOENT, "dataset %s holds no data files (.parquet, .jsonl, .json, .csv, .tsv, .arrow, .txt)",
                       repo->name);
    return mt_fail(err, MT_ENOENT, "dataset %s has no split \"%s\"; it has %s", repo->name, split,
                   splits->s ? splits->s : "none");
}

mt_rc mt__choose_data(mt__files *f, const mt__repo *repo, const char *readme, size_t readme_n, const char *subset,
                      const char *split, const char *folder, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_str splits = { 0 };
    mt_rc rc = MT_OK;
    const mt_yaml *configs = readme && !*folder ? read_front(readme, readme_n, &arena) : NULL, *config = NULL;
    bool said = configs && configs->kind == MT_YAML_LIST && configs->items;
    if (said && !(config = find_config(configs, subset))) rc = which_config(configs, repo, subset, err);
    const mt_yaml *data_files = get(config, "data_files");
    const char *below = config ? get_text(config, "data_dir") : subset;
    if (*folder) below = folder;
    if (!rc) {
        matching m = { f, MAX_MATCHING };
        size_t n = data_files ? want_split(&m, data_files, split, &splits) : want_by_name(f, below ? below : "", split, &splits);
        if (!m.work_left)
            rc = mt_fail(
                err, MT_ERANGE,
                "dataset %s: the file patterns in its README take too long to match with its %zu files; set \"folder\" to "
                "one of its folders in dataset_info.json",
                repo->name, f->n);
        else if (!n)
            rc = no_files(f, repo, split, &splits, err);
        keep_one_kind(f);
    }
    mt_str_free(&splits);
    mt_arena_free(&arena);
    return rc;
}

/* CONFIG/SPLIT/0000.parquet is what the hub's own conversion writes; CONFIG/partial-SPLIT/ where it gave up early. */
static bool in_converted(const char *path, const char *config, size_t config_n, const char *split)
{
    size_t n = strlen(split);
    return strncmp(path, config, config_n) == 0 && path[config_n] == '/' && strncmp(path + config_n + 1, split, n) == 0 &&
           path[config_n + 1 + n] == '/';
}

/* The configuration meant: the one that is named, "default", or the only one; NULL: not clear. */
static const char *converted_config(const mt__files *f, const char *subset, size_t *n)
{
    const char *only = NULL;
    size_t only_n = 0;
    for (size_t i = 0; i < f->n; i++) {
        const char *path = f->items[i].path;
        size_t k = strcspn(path, "/");
        if (!path[k]) continue;
        bool named = *subset ? strlen(subset) == k && strncmp(path, subset, k) == 0 : k == 7 && strncmp(path, "default", 7) == 0;
        if (named) return *n = k, path;
        bool other = only && (only_n != k || strncmp(only, path, k) != 0);
        if (other) return NULL;
        only = path, only_n = k;
    }
    *n = only_n;
    return *subset ? NULL : only;
}

mt_rc mt__choose_converted(mt__files *f, const char *subset, const char *split, bool *found, mt_err *err)
{
    size_t n, n_wanted = 0;
    const char *config = converted_config(f, subset, &n);
    char *partial = mt_asprintf("partial-%s", split);
    *found = false;
    if (!partial) return mt_no_memory(err, "a name");
    for (size_t i = 0; config && i < f->n; i++) {
        if (in_converted(f->items[i].path, config, n, partial))
            n_wanted = 0, config = NULL;
        else if (in_converted(f->items[i].path, config, n, split))
            f->items[i].wanted = true, n_wanted++;
    }
    *found = config && n_wanted;
    mt_free(partial);
    return MT_OK;
}
