#include "page/run_view.h"

#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, SMALL_FILE = 4 << 20, LOG_TAIL = 16 << 10 };

/* The plan remembers where the metrics went, when it is not the usual place.  NULL: no memory. */
static char *metrics_path(const char *dir)
{
    mt_err ignored;
    json_t *plan = NULL;
    const char *name = "metrics.jsonl";
    char *path = mt_path_join(dir, "plan.json");
    if (path && mt_file_exists(path) && mt_json_read(&plan, path, &ignored) == MT_OK)
        (void)mt_json_str(plan, "metrics_file", name, &name, path, &ignored);
    mt_free(path);
    path = *name == '/' ? mt_strdup(name) : mt_path_join(dir, name);
    json_decref(plan);
    return path;
}

mt_rc mt_run_view_check(const char *dir, mt_err *err)
{
    char *path = metrics_path(dir);
    if (!path) return mt_fail(err, MT_ENOMEM, "no memory for a name");
    bool there = mt_file_exists(path);
    mt_free(path);
    if (there) return MT_OK;
    return mt_dir_exists(dir)
               ? mt_fail(err, MT_EINVAL, "%s holds no run (no metrics.jsonl); name a run's output directory", dir)
               : mt_fail(err, MT_EINVAL, "there is no directory %s; name a run's output directory, such as runs/demo", dir);
}

/* -- metrics --------------------------------------------------------------------------------------- */

/* Lines of a file, one at a time, in bounded memory.  A run may cut the file meanwhile, so it is never mapped. */
typedef struct line_reader {
    int fd;
    int64_t at, line_end; /* of the file: next byte to read, end of the last whole line */
    mt_str line;          /* the one being collected, newline included */
    char buffer[CHUNK];
    size_t used, n;
} line_reader;

/* False at the end; a last line without its newline is not whole and left alone. */
static bool next_line(line_reader *r)
{
    mt_str_clear(&r->line);
    for (;;) {
        if (r->used == r->n) {
            ssize_t got = pread(r->fd, r->buffer, sizeof r->buffer, (off_t)r->at);
            if (got <= 0) return false;
            r->at += got;
            r->n = (size_t)got;
            r->used = 0;
        }
        const char *from = r->buffer + r->used, *newline = memchr(from, '\n', r->n - r->used);
        size_t n = newline ? (size_t)(newline - from) + 1 : r->n - r->used;
        mt_str_add(&r->line, from, n);
        r->used += n;
        if (newline) return r->line_end += (int64_t)r->line.n, true;
    }
}

static void start_at(line_reader *r, int64_t from)
{
    r->at = r->line_end = from;
    r->used = r->n = 0;
}

static bool always_shown(const char *line) { return strstr(line, "\"eval_") || strstr(line, "\"sample"); }

/* Every stride-th line from `from` on; *end is where the last whole line ends. */
static mt_rc read_metrics(mt_str *text, int fd, int64_t from, int64_t *end, mt_err *err)
{
    line_reader *r = mt_calloc(1, sizeof *r);
    if (!r) return mt_fail(err, MT_ENOMEM, "no memory to read metrics");
    r->fd = fd;
    int64_t n_lines = 0;
    start_at(r, from);
    while (next_line(r)) n_lines++;
    int64_t stride = 1 + n_lines / MT_VIEW_LINES, stop = r->line_end, i = 0;
    start_at(r, from);
    while (r->line_end < stop && next_line(r)) {
        bool latest = r->line_end >= stop;
        if (i++ % stride == 0 || latest || always_shown(r->line.s)) mt_str_add(text, r->line.s, r->line.n);
    }
    *end = r->line_end;
    bool ok = mt_str_ok(&r->line) && mt_str_ok(text);
    mt_str_free(&r->line);
    mt_free(r);
    return ok ? MT_OK : mt_fail(err, MT_ENOMEM, "no memory to read metrics");
}

static mt_rc put_metrics(mt_str *out, const char *path, int64_t from, mt_err *err)
{
    mt_str text = { 0 };
    int64_t end = from;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) return mt_fail_errno(err, MT_EIO, "opening %s", path);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (from < 0 || from > size) from = end = 0;
    mt_rc rc = fd < 0 ? MT_OK : read_metrics(&text, fd, from, &end, err);
    if (fd >= 0) close(fd);
    if (!rc) {
        mt_str_printf(out, "\"from\": %lld, \"bytes\": %lld, \"metrics\": ", (long long)from, (long long)end);
        mt_str_json(out, text.s ? text.s : "", text.n);
    }
    mt_str_free(&text);
    return rc;
}

/* -- the rest -------------------------------------------------------------------------------------- */

/* Small texts beside the metrics: not there is "". */
static void put_text(mt_str *out, const char *key, const char *dir, const char *name)
{
    mt_err ignored;
    char *path = mt_path_join(dir, name), *text = NULL;
    size_t n = 0;
    if (!path || !mt_file_exists(path) || mt_file_read(&text, &n, path, SMALL_FILE, &ignored)) n = 0;
    mt_str_printf(out, ", \"%s\": ", key);
    mt_str_json(out, text ? text : "", n);
    mt_free(text);
    mt_free(path);
}

/* The end of the log, from the beginning of a line on. */
static void put_log(mt_str *out, const char *dir)
{
    char tail[LOG_TAIL];
    char *path = mt_path_join(dir, "log.txt");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = 0;
    const char *from = tail;
    if (fd >= 0) {
        off_t size = lseek(fd, 0, SEEK_END), at = size > LOG_TAIL ? size - LOG_TAIL : 0;
        n = pread(fd, tail, sizeof tail, at);
        if (n < 0) n = 0;
        const char *newline = at ? memchr(tail, '\n', (size_t)n) : NULL;
        if (newline) from = newline + 1;
        close(fd);
    }
    mt_str_puts(out, ", \"log\": ");
    mt_str_json(out, from, (size_t)(tail + n - from));
    mt_free(path);
}

/* "demo" for runs/demo, wherever it was named from; the folder's own name for ".". */
static void put_name(mt_str *out, const char *dir)
{
    char *whole = realpath(dir, NULL);
    const char *name = mt_path_base(whole ? whole : dir);
    mt_str_json(out, name, strlen(name));
    free(whole);
}

mt_rc mt_run_view_write(mt_str *out, const char *dir, int64_t from, mt_err *err)
{
    char *path = metrics_path(dir);
    if (!path) return mt_fail(err, MT_ENOMEM, "no memory for a name");
    mt_str_puts(out, "{\"name\": ");
    put_name(out, dir);
    mt_str_puts(out, ", ");
    mt_rc rc = put_metrics(out, path, from, err);
    mt_free(path);
    if (rc) return rc;
    put_text(out, "plan", dir, "plan.json");
    put_text(out, "config", dir, "config.yaml");
    put_log(out, dir);
    mt_str_puts(out, "}");
    return mt_str_ok(out) ? MT_OK : mt_fail(err, MT_ENOMEM, "no memory for the view of %s", dir);
}
