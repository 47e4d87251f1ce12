/* record_files.c - see record_files.h.
 *
 * A folder is one of three things.  state.json makes it a data set of save_to_disk, which names its Arrow
 * files.  dataset_dict.json makes it several of those, one folder per split.  Otherwise it is a heap of data
 * files, as repositories on the hub are: those whose names carry the split, or all of them; text only where
 * there is nothing else.  A subset is a folder in it, which then is one of the three, or a word that the names of
 * a heap's files carry. */
#include "data/record_files.h"

#include "base/file.h"
#include "base/json.h"

#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FOLDER_DEPTH = 4 };

/* A folder's files as they are found.  The folder may be a stranger's, so its links lead out of it only if the user allows it. */
typedef struct lister {
    mt_name_list *out;
    const char *root; /* the folder */
    bool outside;     /* they may */
} lister;

static mt_rc stay_inside(const lister *l, const char *path, mt_err *err)
{
    char *real = NULL;
    mt_rc rc = l->outside ? MT_OK : mt_path_outside(&real, l->root, path, err);
    if (real)
        rc = mt_fail(err, MT_EINVAL,
                     "%s leads to %s, outside the folder of the dataset (%s), which may not be yours.  Copy what it leads to, or "
                     "allow it with dataset.allow_outside_files: true (--allow-outside-files)",
                     path, real, l->root);
    mt_free(real);
    return rc;
}

/* The same for what is in a folder that is inside. */
static mt_rc check_link(const lister *l, const char *path, mt_err *err)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? stay_inside(l, path, err) : MT_OK;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static mt_rc add_joined(lister *l, const char *dir, const char *name, mt_err *err)
{
    char *path = mt_path_join(dir, name);
    if (!path) return mt_no_memory(err, "a path");
    mt_rc rc = check_link(l, path, err);
    if (!rc) rc = mt__name_list_add(l->out, path, strlen(path), err);
    mt_free(path);
    return rc;
}

static mt_rc has_file(bool *out, const char *dir, const char *name, mt_err *err)
{
    char *path = mt_path_join(dir, name);
    if (!path) return mt_no_memory(err, "a path");
    *out = mt_file_exists(path);
    mt_free(path);
    return MT_OK;
}

static mt_rc read_json_in(const lister *l, const mt_value **out, const char *dir, const char *name, mt_err *err)
{
    char *path = mt_path_join(dir, name);
    if (!path) return mt_no_memory(err, "a path");
    mt_rc rc = check_link(l, path, err);
    if (!rc) rc = mt_json_read(out, path, err);
    mt_free(path);
    return rc;
}

/* save_to_disk: {"_data_files": [{"filename": "data-00000-of-00002.arrow"}, ...]} */
static mt_rc list_saved(lister *l, const char *dir, mt_err *err)
{
    const mt_value *state = NULL;
    MT_TRY(read_json_in(l, &state, dir, "state.json", err));
    const mt_value *files = mt_value_get(state, "_data_files");
    mt_rc rc = MT_OK;
    if (mt_value_items(mt_value_get(state, "_indices_data_files")) > 0) /* versions of before 2021 */
        rc = mt_fail(err, MT_EUNSUPPORTED, "%s picks its rows by a table of indices; save it again with flatten_indices()", dir);
    for (size_t i = 0; !rc && i < mt_value_items(files); i++) {
        const char *name = mt_json_string(mt_value_get(mt_value_at(files, i), "filename"));
        if (!name || strchr(name, '/'))
            rc = mt_fail(err, MT_EFORMAT, "%s/state.json: _data_files[%zu] has no plain file name", dir, i);
        else
            rc = add_joined(l, dir, name, err);
    }
    mt_json_free(state);
    if (rc) return rc;
    if (l->out->n == 0) return mt_fail(err, MT_EFORMAT, "%s/state.json names no data files", dir);
    return MT_OK;
}

/* dataset_dict.json: {"splits": ["train", "test"]}, each a folder of save_to_disk */
static mt_rc list_saved_split(lister *l, const char *dir, const char *split, mt_err *err)
{
    const mt_value *dict = NULL;
    MT_TRY(read_json_in(l, &dict, dir, "dataset_dict.json", err));
    const mt_value *splits = mt_value_get(dict, "splits");
    mt_str known = { 0 };
    bool found = false;
    for (size_t i = 0; i < mt_value_items(splits); i++) {
        const char *name = mt_json_string(mt_value_at(splits, i));
        if (name && strcmp(name, split) == 0) found = true;
        mt_str_printf(&known, "%s%s", i ? ", " : "", name ? name : "?");
    }
    mt_rc rc = MT_OK;
    if (!found || strchr(split, '/'))
        rc = mt_fail(err, MT_ENOENT, "%s has no split \"%s\"; it has %s", dir, split, known.s ? known.s : "none");
    mt_str_free(&known);
    mt_json_free(dict);
    if (rc) return rc;
    char *sub = mt_path_join(dir, split);
    rc = sub ? stay_inside(l, sub, err) : mt_no_memory(err, "a path");
    if (!rc) rc = list_saved(l, sub, err);
    mt_free(sub);
    return rc;
}

/* Files beside the data that look like data. */
static bool is_description(const char *name)
{
    static const char *const names[] = { "dataset_info.json", "dataset_infos.json", "state.json",      "dataset_dict.json",
                                         "README.md",         "LICENSE.txt",        "requirements.txt" };
    for (size_t i = 0; i < MT_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static mt_rc record_files_walk(lister *l, const char *dir, int depth, mt_err *err)
{
    DIR *d = opendir(dir);
    if (!d) return mt_fail_errno(err, MT_EIO, "%s", dir);
    mt_rc rc = MT_OK;
    for (struct dirent *e; !rc && (e = readdir(d));) {
        if (e->d_name[0] == '.' || is_description(e->d_name)) continue;
        char *path = mt_path_join(dir, e->d_name);
        const bool dir_too = path && mt_dir_exists(path);
        if (!path)
            rc = mt_no_memory(err, "a path");
        else if (dir_too || mt__format_by_extension(path))
            rc = check_link(l, path, err);
        if (!rc && dir_too)
            rc = depth < MAX_FOLDER_DEPTH ? record_files_walk(l, path, depth + 1, err) : MT_OK;
        else if (!rc && mt__format_by_extension(path))
            rc = mt__name_list_add(l->out, path, strlen(path), err);
        mt_free(path);
    }
    closedir(d);
    return rc;
}

/* A split or subset as a whole word of the path below the folder: train-00000.parquet, data/train.jsonl, my_train_1.csv. */
static bool has_word(const char *path, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = path; (p = strstr(p, word)); p++) {
        bool starts = p == path || strchr("/-_.", p[-1]);
        if (starts && (p[n] == '\0' || strchr("/-_.", p[n]))) return true;
    }
    return false;
}

static void drop_others(mt_name_list *files, bool (*keeps)(const char *path, const void *arg), const void *arg)
{
    size_t kept = 0;
    for (size_t i = 0; i < files->n; i++) {
        if (keeps(files->items[i], arg))
            files->items[kept++] = files->items[i];
        else
            mt_free((void *)(uintptr_t)files->items[i]);
    }
    files->n = kept;
}

static bool any(const mt_name_list *files, bool (*is)(const char *path, const void *arg), const void *arg)
{
    for (size_t i = 0; i < files->n; i++)
        if (is(files->items[i], arg)) return true;
    return false;
}

typedef struct word_below {
    size_t dir_n; /* the folder's own name does not count */
    const char *word;
} word_below;

static bool has_word_below(const char *path, const void *arg)
{
    const word_below *w = arg;
    return has_word(path + w->dir_n, w->word);
}

static bool is_no_text(const char *path, const void *arg)
{
    (void)arg;
    return mt__format_by_extension(path) != &mt__format_text;
}

/* The folders in dir, for a message. */
static void name_folders(mt_str *out, const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && n < 12 && (e = readdir(d));) {
        char *path = e->d_name[0] == '.' ? NULL : mt_path_join(dir, e->d_name);
        if (path && mt_dir_exists(path)) mt_str_printf(out, "%s%s", n++ ? ", " : "", e->d_name);
        mt_free(path);
    }
    if (d) closedir(d);
}

static mt_rc no_subset(const char *dir, const char *subset, mt_err *err)
{
    mt_str folders = { 0 };
    name_folders(&folders, dir);
    mt_rc rc = mt_fail(err, MT_ENOENT, "%s: neither a folder nor a file name carries the subset \"%s\"%s%s", dir, subset,
                       folders.n ? "; its folders are " : "", folders.n ? folders.s : "");
    mt_str_free(&folders);
    return rc;
}

static mt_rc keep_subset(mt_name_list *files, const char *dir, const char *subset, mt_err *err)
{
    word_below wanted = { .dir_n = strlen(dir), .word = subset };
    if (!any(files, has_word_below, &wanted)) return no_subset(dir, subset, err);
    drop_others(files, has_word_below, &wanted);
    return MT_OK;
}

/* The real path of a file, through any links to its folder. */
typedef struct place {
    dev_t device;
    ino_t folder;
    const char *name;
    size_t path_n;
    size_t index; /* in the list */
} place;

static int compare_places(const void *a, const void *b)
{
    const place *p = a, *q = b;
    if (p->device != q->device) return p->device < q->device ? -1 : 1;
    if (p->folder != q->folder) return p->folder < q->folder ? -1 : 1;
    return strcmp(p->name, q->name);
}

/* Of those at one place the shortest path is first. */
static int compare_paths_to(const void *a, const void *b)
{
    const place *p = a, *q = b;
    int order = compare_places(p, q);
    if (order) return order;
    if (p->path_n != q->path_n) return p->path_n < q->path_n ? -1 : 1;
    return p->index < q->index ? -1 : p->index > q->index;
}

static mt_rc find_place(place *out, const char *path, size_t index, mt_err *err)
{
    const char *name = mt_path_base(path);
    struct stat st;
    char *folder = mt_strndup(path, (size_t)(name - path));
    if (!folder) return mt_no_memory(err, "a path");
    mt_rc rc = stat(folder, &st) ? mt_fail_errno(err, MT_EIO, "%s", folder) : MT_OK;
    mt_free(folder);
    if (!rc) *out = (place){ st.st_dev, st.st_ino, name, strlen(path), index };
    return rc;
}

static bool is_some(const char *path, const void *arg)
{
    (void)arg;
    return path != NULL;
}

/* A folder that is reached under several names, or holds a link to itself, has its records once: under the shortest
 * of them.  Files that are links themselves are not looked through: two names for one content may well be meant. */
static mt_rc drop_repeated(mt_name_list *files, mt_err *err)
{
    place *places = mt_calloc(files->n, sizeof *places);
    mt_rc rc = places ? MT_OK : mt_no_memory(err, "a list of files");
    for (size_t i = 0; !rc && i < files->n; i++) rc = find_place(&places[i], files->items[i], i, err);
    if (!rc) qsort(places, files->n, sizeof *places, compare_paths_to);
    for (size_t i = files->n; !rc && i-- > 1;) { /* from the end: names are compared before they are freed */
        if (compare_places(&places[i - 1], &places[i]) != 0) continue;
        mt_free((void *)(uintptr_t)files->items[places[i].index]);
        files->items[places[i].index] = NULL;
    }
    if (!rc) drop_others(files, is_some, NULL);
    mt_free(places);
    return rc;
}

static mt_rc list_heap(lister *l, const char *dir, const char *split, const char *subset, mt_err *err)
{
    mt_name_list *out = l->out;
    MT_TRY(record_files_walk(l, dir, 0, err));
    if (out->n == 0)
        return mt_fail(err, MT_ENOENT, "%s holds no data files (.json, .jsonl, .csv, .tsv, .txt, .parquet, .arrow)", dir);
    if (any(out, is_no_text, NULL)) drop_others(out, is_no_text, NULL); /* notes beside the data */
    if (subset) MT_TRY(keep_subset(out, dir, subset, err));
    word_below wanted = { .dir_n = strlen(dir), .word = split ? split : "train" };
    if (any(out, has_word_below, &wanted))
        drop_others(out, has_word_below, &wanted);
    else if (split && strcmp(split, "train") != 0)
        return mt_fail(err, MT_ENOENT, "%s: no file name carries the split \"%s\"", dir, split);
    qsort(out->items, out->n, sizeof *out->items, compare_names);
    return drop_repeated(out, err);
}

/* The pattern names a folder, and files in it by what they are called. */
static mt_rc list_glob(mt_name_list *out, const char *pattern, bool outside, mt_err *err)
{
    glob_t g = { 0 };
    char *root = mt__pattern_folder(pattern);
    lister l = { .out = out, .root = root, .outside = outside };
    int got = glob(pattern, 0, NULL, &g);
    mt_rc rc = root ? MT_OK : mt_no_memory(err, "a path");
    for (size_t i = 0; got == 0 && !rc && i < g.gl_pathc; i++) {
        if (!mt_file_exists(g.gl_pathv[i])) continue;
        rc = stay_inside(&l, g.gl_pathv[i], err);
        if (!rc) rc = mt__name_list_add(out, g.gl_pathv[i], strlen(g.gl_pathv[i]), err);
    }
    globfree(&g);
    mt_free(root);
    if (rc) return rc;
    if (got == GLOB_NOSPACE) return mt_no_memory(err, "the files of %s", pattern);
    if (out->n == 0) return mt_fail(err, MT_ENOENT, "no file fits the pattern %s", pattern);
    qsort(out->items, out->n, sizeof *out->items, compare_names);
    return MT_OK;
}

/* `subset` is NULL once its folder has been entered. */
static mt_rc list_in(lister *l, const char *dir, const char *split, const char *subset, mt_err *err)
{
    bool dict = false, saved = false;
    MT_TRY(has_file(&dict, dir, "dataset_dict.json", err));
    MT_TRY(has_file(&saved, dir, "state.json", err));
    if (subset && (dict || saved)) return no_subset(dir, subset, err);
    if (dict) return list_saved_split(l, dir, split ? split : "train", err);
    if (saved) return list_saved(l, dir, err);
    return list_heap(l, dir, split, subset, err);
}

static mt_rc list_folder(mt_name_list *out, const char *dir, const mt_records_options *opt, mt_err *err)
{
    lister l = { .out = out, .root = dir, .outside = opt->outside };
    const char *subset = opt->subset && *opt->subset ? opt->subset : NULL;
    if (!subset) return list_in(&l, dir, opt->split, NULL, err);
    char *sub = mt_path_join(dir, subset);
    if (!sub) return mt_no_memory(err, "a path");
    const bool folder = mt_dir_exists(sub);
    mt_rc rc = folder ? stay_inside(&l, sub, err) : MT_OK;
    if (!rc) rc = list_in(&l, folder ? sub : dir, opt->split, folder ? NULL : subset, err);
    mt_free(sub);
    return rc;
}

char *mt__pattern_folder(const char *pattern)
{
    size_t n = strcspn(pattern, "*?[");
    while (n && pattern[n - 1] != '/') n--;
    return n ? mt_strndup(pattern, n) : mt_strdup(".");
}

static mt_rc list_given(mt_name_list *out, const char *const *files, const char *path, mt_err *err)
{
    for (; *files; files++) MT_TRY(mt__name_list_add(out, *files, strlen(*files), err));
    return out->n ? MT_OK : mt_fail(err, MT_ENOENT, "%s: no files are named", path);
}

mt_rc mt__record_files(mt_name_list *out, const char *path, const mt_records_options *opt, mt_err *err)
{
    *out = (mt_name_list){ 0 };
    mt_rc rc;
    if (opt->files)
        rc = list_given(out, opt->files, path, err);
    else if (mt_file_exists(path))
        rc = mt__name_list_add(out, path, strlen(path), err);
    else if (mt_dir_exists(path))
        rc = list_folder(out, path, opt, err);
    else if (strpbrk(path, "*?["))
        rc = list_glob(out, path, opt->outside, err);
    else
        rc = mt_fail(err, MT_ENOENT, "%s: no such file or folder", path);
    if (rc) mt__name_list_free(out);
    return rc;
}
