/* arrow_cache.c - what the datasets library has already made of a dataset:
 *
 *     DATASETS_CACHE/ORG___name_in_snake_case/CONFIG/VERSION/HASH/name-train.arrow
 *                                                               /name-train-00000-of-00002.arrow
 *                                                               /dataset_info.json, written last */
#include "base/file.h"
#include "hub/internal.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* MetaMathQA -> meta_math_qa: an underscore where a word begins, then lower case. */
static void snake_case(mt_str *out, const char *name)
{
    for (const char *p = name; *p; p++) {
        bool upper = isupper((unsigned char)*p), before = p > name && isupper((unsigned char)p[-1]);
        bool after_word = p > name && (islower((unsigned char)p[-1]) || isdigit((unsigned char)p[-1]));
        bool begins = upper && (after_word || (before && islower((unsigned char)p[1])));
        if (begins) mt_str_putc(out, '_');
        mt_str_putc(out, (char)tolower((unsigned char)*p));
    }
}

typedef struct newest_folder {
    char *path; /* NULL: none */
    struct timespec time;
} newest_folder;

/* Of two with the same time, the later name: the order of a directory's entries is not a choice. */
static bool is_newer(const newest_folder *f, struct timespec time, const char *path)
{
    if (!f->path) return true;
    if (time.tv_sec != f->time.tv_sec) return time.tv_sec > f->time.tv_sec;
    if (time.tv_nsec != f->time.tv_nsec) return time.tv_nsec > f->time.tv_nsec;
    return strcmp(path, f->path) > 0;
}

/* The newest folder below dir, `depth` levels down, that holds a finished dataset. */
static void find_newest(const char *dir, int depth, const char *only, newest_folder *best)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        bool unfinished = n > 11 && strcmp(e->d_name + n - 11, ".incomplete") == 0;
        if (e->d_name[0] == '.' || unfinished || (only && *only && strcmp(e->d_name, only) != 0)) continue;
        char *path = mt_path_join(dir, e->d_name), *info = path ? mt_path_join(path, "dataset_info.json") : NULL;
        struct stat st;
        if (depth > 0 && path) {
            find_newest(path, depth - 1, NULL, best);
        } else if (info && stat(info, &st) == 0 && is_newer(best, st.st_mtim, path)) {
            mt_free(best->path);
            *best = (newest_folder){ path, st.st_mtim };
            path = NULL;
        }
        mt_free(info);
        mt_free(path);
    }
    if (d) closedir(d);
}

/* "name-train.arrow" or "name-train-00000-of-00002.arrow"; *of: how many there should be. */
static bool is_part(const char *file, const char *split, long *of)
{
    size_t n = strlen(file), k = strlen(split);
    if (n < 6 || strcmp(file + n - 6, ".arrow") != 0 || strncmp(file, "cache-", 6) == 0) return false;
    n -= 6;
    long parts = 1;
    if (n > 15 && strncmp(file + n - 9, "-of-", 4) == 0 && file[n - 15] == '-') {
        parts = strtol(file + n - 5, NULL, 10);
        n -= 15;
    }
    bool is = n > k + 1 && file[n - k - 1] == '-' && strncmp(file + n - k, split, k) == 0;
    if (is) *of = parts;
    return is;
}

mt_rc mt__arrow_cache_find(const mt_hub *hub, const char *name, const char *subset, const char *split, mt__files *out, char **dir,
                           mt_err *err)
{
    mt_str folder = { 0 };
    const char *slash = strchr(name, '/');
    newest_folder newest = { 0 };
    long of = 0;
    *out = (mt__files){ 0 };
    *dir = NULL;
    mt_str_printf(&folder, "%s/", hub->at.datasets_cache);
    if (slash) mt_str_printf(&folder, "%.*s___", (int)(slash - name), name);
    snake_case(&folder, slash ? slash + 1 : name);
    if (!mt_str_ok(&folder)) return mt_no_memory(err, "a path");
    find_newest(folder.s, 2, *subset ? subset : "default", &newest);
    *dir = newest.path;
    mt_str_free(&folder);
    DIR *d = *dir ? opendir(*dir) : NULL;
    mt_rc rc = MT_OK;
    for (struct dirent *e; d && !rc && (e = readdir(d));)
        if (is_part(e->d_name, split, &of)) rc = mt__files_add(out, e->d_name, 0, "", err);
    if (d) closedir(d);
    for (size_t i = 0; i < out->n; i++) out->items[i].wanted = true;
    if (rc || (long)out->n != of) mt__files_free(out); /* not all of it is there */
    return rc;
}
