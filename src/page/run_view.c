#include "page/run_view.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/json.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, LONGEST_LINE = 16 << 20, SMALL_FILE = 4 << 20, LOG_TAIL = 16 << 10 };

/* The part of an absolute path that is below dir; else the path itself. */
static const char *below(const char *path, const char *dir)
{
    char real[PATH_MAX];
    size_t n = *path == '/' && realpath(dir, real) ? strlen(real) : 0;
    return n && strncmp(path, real, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

static mt_rc metrics_inside(char **out, const char *dir, const char *name, mt_err *err)
{
    name = below(name, dir);
    if (!mt_path_is_below(name))
        return mt_fail(err, MT_EINVAL,
                       "the metrics of %s are in %s, outside the run, which is not read for that: name it yourself, --metrics %s",
                       dir, name, name);
    MT_TRY(mt_path_stays_inside(dir, name, err));
    *out = mt_path_join(dir, name);
    return *out ? MT_OK : mt_no_memory(err, "a name");
}

/* The plan remembers where the metrics went, when it is not the usual place. */
static mt_rc metrics_path(char **out, const mt_run_at *run, mt_err *err)
{
    mt_err ignored;
    const mt_value *plan = NULL;
    const char *name = "metrics.jsonl";
    char *text = NULL, *path = mt_path_join(run->dir, "plan.json");
    size_t n;
    *out = NULL;
    if (run->metrics) {
        mt_free(path);
        *out = mt_strdup(run->metrics);
        return *out ? MT_OK : mt_no_memory(err, "a name");
    }
    if (path && !mt_file_read_own(&text, &n, path, SMALL_FILE, &ignored) && !mt_json_parse(&plan, text, n, path, &ignored))
        (void)mt_json_str(plan, "metrics_file", name, &name, path, &ignored);
    mt_rc rc = path ? metrics_inside(out, run->dir, name, err) : mt_no_memory(err, "a name");
    mt_free(text);
    mt_free(path);
    mt_json_free(plan);
    return rc;
}

mt_rc mt_run_view_check(const mt_run_at *run, mt_err *err)
{
    char *path;
    const char *dir = run->dir;
    MT_TRY(metrics_path(&path, run, err));
    bool there = mt_file_exists(path);
    mt_free(path);
    if (there) return MT_OK;
    return mt_dir_exists(dir) ? mt_fail(err, MT_EINVAL, "%s holds no run (no metrics.jsonl); name a run's output directory", dir)
                              : mt_fail(err, MT_EINVAL, "no directory %s; name a run's output directory, such as runs/demo", dir);
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
            ssize_t got = mt_disk_read(r->fd, r->buffer, sizeof r->buffer, (uint64_t)r->at);
            if (got <= 0) return false;
            r->at += got;
            r->n = (size_t)got;
            r->used = 0;
        }
        const char *from = r->buffer + r->used, *newline = memchr(from, '\n', r->n - r->used);
        size_t n = newline ? (size_t)(newline - from) + 1 : r->n - r->used;
        if (r->line.n + n > LONGEST_LINE) return false; /* no line of a run's: what follows is not read */
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
    if (!r) return mt_no_memory(err, "reading metrics");
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
    return ok ? MT_OK : mt_no_memory(err, "reading metrics");
}

static mt_rc put_metrics(mt_json_out *j, const char *path, int64_t from, mt_err *err)
{
    mt_str text = { 0 };
    int64_t end = from;
    int fd = -1;
    mt_rc rc = mt_disk_open(&fd, path, O_RDONLY | O_NOFOLLOW, err);
    if (rc && rc != MT_ENOENT) return rc;
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (from < 0 || from > size) from = end = 0;
    rc = fd < 0 ? MT_OK : read_metrics(&text, fd, from, &end, err);
    if (fd >= 0) close(fd);
    if (!rc) {
        mt_json_put_int(j, "from", from);
        mt_json_put_int(j, "bytes", end);
        mt_json_put_bytes(j, "metrics", text.s ? text.s : "", text.n);
    }
    mt_str_free(&text);
    return rc;
}

/* -- the rest -------------------------------------------------------------------------------------- */

/* Small texts beside the metrics: not there is "". */
static void put_text(mt_json_out *j, const char *key, const char *dir, const char *name)
{
    mt_err ignored;
    char *path = mt_path_join(dir, name), *text = NULL;
    size_t n = 0;
    if (!path || mt_file_read_own(&text, &n, path, SMALL_FILE, &ignored)) n = 0;
    mt_json_put_bytes(j, key, text ? text : "", n);
    mt_free(text);
    mt_free(path);
}

/* The end of the log, from the beginning of a line on. */
static void put_log(mt_json_out *j, const char *dir)
{
    char tail[LOG_TAIL];
    char *path = mt_path_join(dir, "log.txt");
    int fd = -1;
    if (path) (void)mt_disk_open(&fd, path, O_RDONLY | O_NOFOLLOW, NULL);
    ssize_t n = 0;
    const char *from = tail;
    if (fd >= 0) {
        off_t size = lseek(fd, 0, SEEK_END), at = size > LOG_TAIL ? size - LOG_TAIL : 0;
        n = mt_disk_read(fd, tail, sizeof tail, (uint64_t)at);
        if (n < 0) n = 0;
        const char *newline = at ? memchr(tail, '\n', (size_t)n) : NULL;
        if (newline) from = newline + 1;
        close(fd);
    }
    mt_json_put_bytes(j, "log", from, (size_t)(tail + n - from));
    mt_free(path);
}

/* "demo" for runs/demo, wherever it was named from; the folder's own name for ".". */
static void put_name(mt_json_out *j, const char *dir)
{
    char *whole = realpath(dir, NULL);
    const char *name = mt_path_base(whole ? whole : dir);
    mt_json_put_str(j, "name", name);
    free(whole);
}

mt_rc mt_run_view_put(mt_json_out *j, const mt_run_at *run, int64_t from, mt_err *err)
{
    char *path;
    const char *dir = run->dir;
    MT_TRY(metrics_path(&path, run, err));
    mt_json_map(j, NULL, MT_JSON_FLAT);
    put_name(j, dir);
    mt_rc rc = put_metrics(j, path, from, err);
    mt_free(path);
    if (rc) return rc;
    put_text(j, "plan", dir, "plan.json");
    put_text(j, "config", dir, "config.yaml");
    put_log(j, dir);
    mt_json_end(j);
    return mt_str_ok(j->to) ? MT_OK : mt_no_memory(err, "the view of %s", dir);
}

mt_rc mt_run_view_write(mt_str *out, const mt_run_at *run, int64_t from, mt_err *err)
{
    mt_json_out j = { .to = out };
    return mt_run_view_put(&j, run, from, err);
}
