#include "run/run_files.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "ckpt/outdir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 28, MAX_DEPTH = 8 };

/* -- reading --------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Ignores a line that is not valid: a kill may have cut the last one. */
static mt_rc take_line(mt_run_files *f, const char *line, size_t n, const char *dir, mt_err *err)
{
    const mt_value *v;
    if (mt_json_parse(&v, line, n, dir, err) == MT_ENOMEM) return MT_ENOMEM;
    const char *path = mt_json_string(v);
    mt_rc rc = path ? mt_grow(&f->paths, &f->cap, f->n + 1, sizeof *f->paths, err) : MT_OK;
    char *copy = path && !rc ? mt_strdup(path) : NULL;
    if (path && !rc && !copy) rc = mt_no_memory(err, "the list of files in %s", dir);
    if (copy) f->paths[f->n++] = copy;
    mt_json_free(v);
    return rc;
}

static mt_rc take_lines(mt_run_files *f, const char *text, size_t n, const char *dir, mt_err *err)
{
    const char *last = text + n;
    for (const char *end; (end = text < last ? memchr(text, '\n', (size_t)(last - text)) : NULL); text = end + 1)
        MT_TRY(take_line(f, text, (size_t)(end - text), dir, err));
    f->torn = text < last;
    if (f->n) qsort(f->paths, f->n, sizeof *f->paths, by_text);
    return MT_OK;
}

mt_rc mt_run_files_read(mt_run_files *out, const char *dir, mt_err *err)
{
    char *path = mt_path_join(dir, MT_RUN_FILES_NAME), *text = NULL;
    size_t n = 0;
    *out = (mt_run_files){ 0 };
    mt_rc rc = path ? mt_file_read_own(&text, &n, path, MAX_BYTES, err) : mt_no_memory(err, "the list of files in %s", dir);
    mt_free(path);
    if (rc == MT_ENOENT) return MT_OK;
    out->found = true;
    if (!rc) rc = take_lines(out, text, n, dir, err);
    mt_free(text);
    if (rc) mt_run_files_free(out);
    return rc;
}

void mt_run_files_free(mt_run_files *f)
{
    for (size_t i = 0; i < f->n; i++) mt_free(f->paths[i]);
    mt_free(f->paths);
    *f = (mt_run_files){ 0 };
}

bool mt_run_files_has(const mt_run_files *f, const char *path)
{
    return f->n && bsearch(&path, f->paths, f->n, sizeof *f->paths, by_text);
}

/* -- adding ---------------------------------------------------------------------------------------- */

static void put_path(mt_str *s, const mt_run_files *f, const char *path)
{
    if (mt_run_files_has(f, path)) return;
    if (f->torn && !s->n) mt_str_putc(s, '\n'); /* the next entry must not become part of half a line */
    mt_str_json(s, path, strlen(path));
    mt_str_putc(s, '\n');
}

/* One write at the end of the file, because the saving and the training thread may both append. */
static mt_rc run_files_append(const char *dir, const mt_str *lines, bool is_new, mt_err *err)
{
    int fd;
    if (!mt_str_ok(lines)) return mt_no_memory(err, "the list of files in %s", dir);
    if (!lines->n) return MT_OK;
    char *path = mt_path_join(dir, MT_RUN_FILES_NAME);
    mt_rc rc = path ? mt_disk_open(&fd, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, err)
                    : mt_no_memory(err, "the list of files in %s", dir);
    if (!rc) {
        if (mt_disk_append(fd, lines->s, lines->n) || mt_disk_sync(fd)) rc = mt_fail_errno(err, MT_EIO, "writing %s", path);
        close(fd);
    }
    if (!rc && is_new) rc = mt_disk_sync_parent(path, err);
    mt_free(path);
    return rc;
}

mt_rc mt_run_files_add(const char *dir, const char *path, mt_err *err)
{
    mt_run_files f;
    mt_str lines = { 0 };
    MT_TRY(mt_run_files_read(&f, dir, err));
    put_path(&lines, &f, path);
    mt_rc rc = run_files_append(dir, &lines, !f.found, err);
    mt_str_free(&lines);
    mt_run_files_free(&f);
    return rc;
}

static mt_rc put_tree(mt_str *s, const mt_run_files *f, const char *made, const char *path, int depth, mt_err *err)
{
    mt_dir_names names;
    put_path(s, f, path);
    if (!mt_dir_exists(made) || depth > MAX_DEPTH) return MT_OK;
    MT_TRY(mt_dir_list(&names, made, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < names.n; i++) {
        char *inside = mt_path_join(made, names.items[i]), *as = mt_path_join(path, names.items[i]);
        rc = inside && as ? put_tree(s, f, inside, as, depth + 1, err) : mt_no_memory(err, "the list of files in %s", made);
        mt_free(inside);
        mt_free(as);
    }
    mt_dir_names_free(&names);
    return rc;
}

mt_rc mt_run_files_add_tree(const char *dir, const char *path, const char *made, mt_err *err)
{
    mt_run_files f;
    mt_str lines = { 0 };
    MT_TRY(mt_run_files_read(&f, dir, err));
    mt_rc rc = put_tree(&lines, &f, made, path, 0, err);
    if (!rc) rc = run_files_append(dir, &lines, !f.found, err);
    mt_str_free(&lines);
    mt_run_files_free(&f);
    return rc;
}

/* -- what is not listed ---------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* `at` is a path on disk, `listed_as` what the list would call it. */
static mt_rc find_foreign(char **out, const mt_run_files *f, const char *at, const char *listed_as, int depth, mt_err *err)
{
    mt_dir_names names;
    if (!mt_run_files_has(f, listed_as) || depth > MAX_DEPTH) {
        *out = mt_strdup(at);
        return *out ? MT_OK : mt_no_memory(err, "the list of files in %s", at);
    }
    if (!is_folder(at)) return MT_OK;
    MT_TRY(mt_dir_list(&names, at, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && !*out && i < names.n; i++) {
        char *inside = mt_path_join(at, names.items[i]), *as = mt_path_join(listed_as, names.items[i]);
        rc = inside && as ? find_foreign(out, f, inside, as, depth + 1, err) : mt_no_memory(err, "the list of files in %s", at);
        mt_free(inside);
        mt_free(as);
    }
    mt_dir_names_free(&names);
    return rc;
}

mt_rc mt_run_files_foreign(char **out, const mt_run_files *f, const char *dir, const char *name, const char *listed_as,
                           mt_err *err)
{
    char *at = mt_path_join(dir, name);
    *out = NULL;
    mt_rc rc = at ? find_foreign(out, f, at, listed_as, 0, err) : mt_no_memory(err, "the list of files in %s", dir);
    mt_free(at);
    return rc;
}
