/* dataset.c - the files of a dataset's split, from the nearest place that has all of them. */
#include "base/file.h"
#include "hub/internal.h"

#include <stdlib.h>
#include <string.h>

#define CONVERTED "refs/convert/parquet" /* the branch of the hub's own conversion */

enum { MAX_README = 16 << 20 };

/* What is looked for; no field is NULL. */
typedef struct search {
    mt_hub *hub;
    const char *name, *revision, *subset, *split, *folder;
    bool plain; /* neither a revision nor a folder: the conversions will do */
    mt__repo repo;
    mt__files files; /* the wanted ones are the answer */
    char *dir;       /* where they are; NULL: not found yet */
} search;

/* Start anew at another revision. */
static mt_rc turn_to(search *s, const char *revision, mt_err *err)
{
    mt__repo_deinit(&s->repo);
    mt__files_free(&s->files);
    return mt__repo_init(&s->repo, s->hub, s->name, revision, true, err);
}

static mt_rc found(search *s, mt_err *err)
{
    s->dir = mt__snapshot_dir(&s->repo);
    return s->dir ? MT_OK : mt_no_memory(err, "a dataset's files");
}

static mt_rc read_readme(const search *s, char **text, size_t *n, mt_err *err)
{
    char *path = mt__snapshot_file(&s->repo, "README.md");
    *text = NULL;
    *n = 0;
    if (!path) return mt_no_memory(err, "a dataset's files");
    mt_rc rc = mt_file_exists(path) ? mt_file_read(text, n, path, MAX_README, err) : MT_OK;
    mt_free(path);
    return rc;
}

/* -- local copies ---------------------------------------------------------------------------------- */

/* Of name-00001-of-00003 all three. */
static bool no_gaps(const mt__files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const char *of = f->items[i].wanted ? strstr(f->items[i].path, "-of-") : NULL;
        if (!of || of - f->items[i].path < 5) continue;
        long n = strtol(of + 4, NULL, 10), here = 0;
        size_t head = (size_t)(of - f->items[i].path) - 5;
        for (size_t k = 0; k < f->n; k++)
            here +=
                f->items[k].wanted && strncmp(f->items[k].path, f->items[i].path, head) == 0 && strstr(f->items[k].path, "-of-");
        if (here < n) return false;
    }
    return true;
}

static mt_rc find_converted_here(search *s, mt_err *err)
{
    bool complete = false;
    MT_TRY(turn_to(s, CONVERTED, err));
    MT_TRY(mt__snapshot_find(&s->repo, err));
    if (!*s->repo.commit) return MT_OK;
    MT_TRY(mt__snapshot_list(&s->repo, &s->files, err));
    MT_TRY(mt__choose_converted(&s->files, s->subset, s->split, &complete, err));
    return complete ? found(s, err) : MT_OK;
}

static mt_rc find_own_here(search *s, mt_err *err)
{
    char *readme;
    size_t n;
    mt_err not_here = { 0 };
    MT_TRY(turn_to(s, s->revision, err));
    MT_TRY(mt__snapshot_find(&s->repo, err));
    if (!*s->repo.commit) return MT_OK;
    MT_TRY(mt__snapshot_list(&s->repo, &s->files, err));
    MT_TRY(read_readme(s, &readme, &n, err));
    mt_rc rc = mt__choose_data(&s->files, &s->repo, readme, n, s->subset, s->split, s->folder, &not_here);
    mt_free(readme);
    return !rc && no_gaps(&s->files) ? found(s, err) : MT_OK;
}

static mt_rc find_here(search *s, mt_err *err)
{
    if (s->plain) MT_TRY(mt__arrow_cache_find(s->hub, s->name, s->subset, s->split, &s->files, &s->dir, err));
    if (s->files.n) return MT_OK;
    mt_free(s->dir);
    s->dir = NULL;
    if (s->plain) MT_TRY(find_converted_here(s, err));
    return s->dir ? MT_OK : find_own_here(s, err);
}

/* -- what the hub has ------------------------------------------------------------------------------ */

static mt_rc bring(search *s, mt_err *err)
{
    MT_TRY(mt__hub_bring(s->hub, &s->repo, &s->files, err));
    return found(s, err);
}

static mt_rc fetch_converted(search *s, mt_err *err)
{
    bool complete = false;
    mt_err none = { 0 };
    MT_TRY(turn_to(s, CONVERTED, err));
    mt_rc rc = mt__repo_resolve(s->hub, &s->repo, &none);
    if (rc == MT_ENOENT) return MT_OK; /* not converted */
    if (rc) return mt_fail(err, rc, "%s", none.msg);
    MT_TRY(mt__repo_list(s->hub, &s->repo, &s->files, err));
    MT_TRY(mt__choose_converted(&s->files, s->subset, s->split, &complete, err));
    return complete ? bring(s, err) : MT_OK;
}

/* Its README first, which says what else is needed. */
static mt_rc fetch_own(search *s, mt_err *err)
{
    char *text = NULL;
    size_t n = 0;
    MT_TRY(turn_to(s, s->revision, err));
    MT_TRY(mt__repo_resolve(s->hub, &s->repo, err));
    MT_TRY(mt__repo_list(s->hub, &s->repo, &s->files, err));
    mt__file *readme = mt__files_find(&s->files, "README.md");
    if (readme && readme->size <= MAX_README) {
        readme->wanted = true;
        MT_TRY(mt__hub_bring(s->hub, &s->repo, &s->files, err));
        readme->wanted = false;
        MT_TRY(read_readme(s, &text, &n, err));
    }
    mt_rc rc = mt__choose_data(&s->files, &s->repo, text, n, s->subset, s->split, s->folder, err);
    mt_free(text);
    return rc ? rc : bring(s, err);
}

static mt_rc dataset_fetch(search *s, mt_err *err)
{
    MT_TRY(turn_to(s, s->revision, err));
    if (s->hub->at.datasets_offline)
        return mt_fail(err, MT_ENOENT,
                       "dataset %s is neither a folder here nor complete in %s or %s, and %s forbids the network: unset it, or "
                       "give its files as dataset.path",
                       s->name, s->hub->at.datasets_cache, s->repo.folder, s->hub->at.datasets_offline);
    MT_TRY(mt__repo_resolve(s->hub, &s->repo, err)); /* no such dataset: say so now */
    if (s->plain) MT_TRY(fetch_converted(s, err));
    return s->dir ? MT_OK : fetch_own(s, err);
}

/* -- the answer ------------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static mt_rc hand_out(search *s, mt_hub_dataset *out, mt_err *err)
{
    out->files = mt_calloc(s->files.n + 1, sizeof *out->files);
    if (!out->files) return mt_no_memory(err, "a dataset's files");
    for (size_t i = 0; i < s->files.n; i++) {
        if (!s->files.items[i].wanted) continue;
        if (!(out->files[out->n] = mt_path_join(s->dir, s->files.items[i].path))) return mt_no_memory(err, "a dataset's files");
        out->n++;
    }
    qsort(out->files, out->n, sizeof *out->files, compare);
    out->dir = s->dir;
    s->dir = NULL;
    return MT_OK;
}

static const char *or_else(const char *text, const char *otherwise) { return text && *text ? text : otherwise; }

mt_rc mt_hub_dataset_open(mt_hub *hub, const mt_hub_query *q, mt_hub_dataset *out, mt_err *err)
{
    *out = (mt_hub_dataset){ 0 };
    search s = { .hub = hub,
                 .name = q->name,
                 .revision = or_else(q->revision, ""),
                 .subset = or_else(q->subset, ""),
                 .split = or_else(q->split, "train"),
                 .folder = or_else(q->folder, "") };
    s.plain = !*s.revision && !*s.folder;
    mt_rc rc = turn_to(&s, s.revision, err);
    if (!rc && (!q->newest || hub->at.datasets_offline)) rc = find_here(&s, err);
    if (!rc && !s.dir) rc = dataset_fetch(&s, err);
    if (!rc) rc = hand_out(&s, out, err);
    if (rc) mt_hub_dataset_close(out);
    mt__repo_deinit(&s.repo);
    mt__files_free(&s.files);
    mt_free(s.dir);
    return rc;
}

void mt_hub_dataset_close(mt_hub_dataset *d)
{
    for (size_t i = 0; i < d->n; i++) mt_free((void *)(uintptr_t)d->files[i]);
    mt_free(d->files);
    mt_free(d->dir);
    *d = (mt_hub_dataset){ 0 };
}
