/* train_earlier.c - reads the plan.json of an earlier start in this directory: its metrics file, and the checkpoint elsewhere
 * that it began from. */
#include "base/file.h"
#include "base/json.h"
#include "run/train_internal.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 64 << 20 };

static mt_rc copy_text(const mt_value *doc, const char *key, char **out, mt_err *err)
{
    const char *text = mt_json_string(mt_value_get(doc, key));
    *out = text ? mt_strdup(text) : NULL;
    return text && !*out ? mt_no_memory(err, "a name") : MT_OK;
}

mt_rc mt__train_read_earlier(mt_trainer *t, mt_err *err)
{
    const mt_value *doc = NULL;
    char *path = mt_path_join(t->dir.path, "plan.json");
    char *text = NULL;
    size_t n;
    mt_rc rc = path ? mt_file_read_own(&text, &n, path, MAX_BYTES, err) : mt_no_memory(err, "a name");
    if (!rc) rc = mt_json_parse(&doc, text, n, path, err);
    mt_free(text);
    mt_free(path);
    if (rc == MT_ENOENT || rc == MT_EFORMAT) return MT_OK; /* losing it loses no run */
    if (!rc) rc = copy_text(doc, "metrics_file", &t->resume.metrics_file, err);
    if (!rc) rc = copy_text(doc, "began_from", &t->resume.began_from, err);
    mt_json_free(doc);
    return rc;
}

void mt__train_forget_earlier(mt_trainer *t)
{
    mt_free(t->resume.metrics_file);
    mt_free(t->resume.began_from);
}

char *mt__train_metrics_path(const mt_trainer *t)
{
    const char *name = t->s->logging.metrics_file;
    return *name == '/' ? mt_strdup(name) : mt_path_join(t->dir.path, name);
}

bool mt__train_metrics_inside(const mt_trainer *t)
{
    const char *name = t->s->logging.metrics_file;
    return *name != '/' && !strstr(name, "..");
}

/* Without an entry, only the usual name belongs to a run. */
static bool metrics_are_ours(const mt_trainer *t)
{
    const char *name = t->s->logging.metrics_file;
    if (!*t->s->save.resume) return false;
    return strcmp(name, t->resume.metrics_file ? t->resume.metrics_file : "metrics.jsonl") == 0;
}

/* Opening it comes last, when --overwrite has removed the old run: what would fail then is found now. */
static mt_rc check_can_open(const mt_trainer *t, char *path, mt_err *err)
{
    const char *name = t->s->logging.metrics_file;
    struct stat st;
    const bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode))
        return mt_fail(err, MT_EINVAL, "logging.metrics_file \"%s\": %s is not a regular file; choose another name", name, path);
    char *slash = strrchr(path, '/');
    if (slash && slash > path) *slash = '\0';
    const bool folder = !slash || slash == path || mt_dir_exists(path) || (mt__train_metrics_inside(t) && !mt_file_exists(path));
    mt_rc rc = folder
                   ? MT_OK
                   : mt_fail(err, MT_EINVAL,
                             "logging.metrics_file \"%s\": there is no folder %s; create it, or choose another name", name, path);
    if (slash) *slash = '/';
    if (!rc && there && access(path, W_OK))
        rc = mt_fail_errno(err, MT_EIO, "logging.metrics_file \"%s\": %s cannot be written", name, path);
    return rc;
}

static mt_rc check_not_taken(const mt_trainer *t, const char *path, mt_err *err)
{
    struct stat st;
    const bool taken = !metrics_are_ours(t) && !t->s->save.overwrite && stat(path, &st) == 0 && st.st_size > 0;
    return taken ? mt_fail(err, MT_EINVAL,
                           "logging.metrics_file %s already has content that this run has not written; choose another "
                           "file, or give --overwrite",
                           t->s->logging.metrics_file)
                 : MT_OK;
}

mt_rc mt__train_check_metrics(const mt_trainer *t, mt_err *err)
{
    if (mt_output_dir_uses(t->s->logging.metrics_file))
        return mt_fail(err, MT_EINVAL, "logging.metrics_file %s: the run writes another file of that name; choose another name",
                       t->s->logging.metrics_file);
    char *path = mt__train_metrics_path(t);
    if (!path) return mt_no_memory(err, "a name");
    mt_rc rc = check_can_open(t, path, err);
    if (!rc) rc = check_not_taken(t, path, err);
    mt_free(path);
    return rc;
}
