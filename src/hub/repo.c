/* repo.c - what the hub knows of a repository: its commit, its files; and what its refusals mean to a person.
 *
 *     GET /api/models/NAME/revision/REV              {"sha": commit}
 *     GET /api/models/NAME/tree/COMMIT?recursive=1   [{"type": "file", "path", "size", "oid", "lfs": {"oid", "size"}}], by pages
 *     GET /NAME/resolve/COMMIT/PATH                  the file, by way of a redirect
 *
 * and the same below /api/datasets and /datasets. */
#include "base/file.h"
#include "base/json.h"
#include "base/nearest.h"
#include "hub/internal.h"
#include "hub/names.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PAGES = 1000, MAX_SUGGESTIONS = 20 };

/* " (did you mean PATH?)" if the name looks like a mistyped path of this machine, else "". */
typedef struct path_hint {
    char words[MT_NEAREST_PATH + 20];
} path_hint;

static path_hint hint_for(const char *name)
{
    path_hint hint = { "" };
    char near[MT_NEAREST_PATH];
    mt_nearest_path(near, name);
    if (*near) snprintf(hint.words, sizeof hint.words, " (did you mean %s?)", near);
    return hint;
}

mt_rc mt__repo_init(mt__repo *r, const mt_hub *hub, const char *name, const char *revision, bool dataset, mt_err *err)
{
    *r = (mt__repo){ .name = name, .revision = revision && *revision ? revision : "main", .dataset = dataset };
    if (!mt_hub_is_name(name))
        return mt_fail(err, MT_ENOENT, "%.200s is neither a directory here%s nor a name on the hub (ORG/NAME)", name,
                       hint_for(name).words);
    if (!mt__hub_safe_path(r->revision)) return mt_fail(err, MT_EINVAL, "\"%.200s\" is not a branch, tag or commit", r->revision);
    char *folder = mt__hub_folder(name, dataset);
    r->folder = folder ? mt_path_join(hub->at.cache, folder) : NULL;
    mt_free(folder);
    return r->folder ? MT_OK : mt_no_memory(err, "a repository's files");
}

void mt__repo_deinit(mt__repo *r)
{
    mt_free(r->folder);
    *r = (mt__repo){ 0 };
}

/* -- files ----------------------------------------------------------------------------------------- */

mt_rc mt__files_add(mt__files *f, const char *path, uint64_t size, const char *hash, mt_err *err)
{
    MT_TRY(mt_grow(&f->items, &f->cap, f->n + 1, sizeof *f->items, err));
    mt__file *file = &f->items[f->n];
    *file = (mt__file){ .path = mt_strdup(path), .size = size };
    snprintf(file->hash, sizeof file->hash, "%s", hash);
    if (!file->path) return mt_no_memory(err, "a repository's files");
    f->n++;
    return MT_OK;
}

mt__file *mt__files_find(const mt__files *f, const char *path)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->items[i].path, path) == 0) return &f->items[i];
    return NULL;
}

void mt__files_free(mt__files *f)
{
    for (size_t i = 0; i < f->n; i++) mt_free(f->items[i].path);
    mt_free(f->items);
    *f = (mt__files){ 0 };
}

/* -- addresses ------------------------------------------------------------------------------------- */

static const char *kind_of(const mt__repo *repo) { return repo->dataset ? "dataset" : "model"; }

/* ENDPOINT/api/models/NAME/WHAT/REVISION, newly allocated; NULL: no memory. */
static char *api_url(const mt_hub *hub, const mt__repo *repo, const char *what, const char *revision, const char *query)
{
    mt_str s = { 0 };
    char *out = NULL;
    mt_str_printf(&s, "%s/api/%ss/%s/%s/", hub->at.endpoint, kind_of(repo), repo->name, what);
    mt__hub_escape(&s, revision, "");
    mt_str_puts(&s, query);
    return mt_str_done(&s, &out, NULL) ? NULL : out;
}

char *mt__repo_file_url(const mt_hub *hub, const mt__repo *repo, const char *path)
{
    mt_str s = { 0 };
    char *out = NULL;
    mt_str_printf(&s, "%s/%s%s/resolve/%s/", hub->at.endpoint, repo->dataset ? "datasets/" : "", repo->name, repo->commit);
    mt__hub_escape(&s, path, "/");
    return mt_str_done(&s, &out, NULL) ? NULL : out;
}

/* -- refusals -------------------------------------------------------------------------------------- */

/* The hub's search results for a similar name. */
static void suggest(const mt_hub *hub, const mt__repo *repo, mt_nearest *near)
{
    mt_str url = { 0 };
    mt_http_response r = { 0 };
    const mt_value *list = NULL;
    mt_err ignored = { 0 };
    const char *slash = strchr(repo->name, '/');
    mt_str_printf(&url, "%s/api/%ss?limit=%d&search=", hub->at.endpoint, kind_of(repo), MAX_SUGGESTIONS);
    mt__hub_escape(&url, slash ? slash + 1 : repo->name, "");
    bool ok = mt_str_ok(&url) && !mt_http_get(hub->http, &(mt_http_request){ .url = url.s, .stop = hub->o.stop }, &r, &ignored) &&
              r.status == 200 && !mt_json_parse(&list, r.body.s ? r.body.s : "", r.body.n, "suggestions", &ignored);
    for (size_t i = 0; ok && i < mt_value_items(list); i++) {
        const char *id = mt_json_string(mt_value_get(mt_value_at(list, i), "id"));
        if (id && strlen(id) < sizeof near->best && mt_hub_is_name(id)) mt_nearest_offer(near, id);
    }
    mt_json_free(list);
    mt_http_response_free(&r);
    mt_str_free(&url);
}

static mt_rc no_such(const mt_hub *hub, const mt__repo *repo, mt_err *err)
{
    mt_nearest near = { .word = repo->name };
    suggest(hub, repo, &near);
    if (*near.best && strcmp(near.best, repo->name) != 0)
        return mt_fail(err, MT_ENOENT, "no %s \"%s\" on %s; did you mean %s?", kind_of(repo), repo->name, hub->at.endpoint,
                       near.best);
    return mt_fail(err, MT_ENOENT,
                   "no directory %s here%s, and no %s of that name on %s.  Check the spelling; if it is private, set HF_TOKEN "
                   "to a token that may read it%s",
                   repo->name, hint_for(repo->name).words, kind_of(repo), hub->at.endpoint,
                   hub->at.token ? " (the current one may not)" : "");
}

static mt_rc gated(const mt_hub *hub, const mt__repo *repo, mt_err *err)
{
    const char *page = repo->dataset ? "/datasets" : "";
    if (hub->at.token)
        return mt_fail(
            err, MT_EINVAL,
            "%s is gated and the token that is set has no access: accept its license at %s%s/%s with the account the token "
            "belongs to (access may be granted by hand, later), then try again",
            repo->name, hub->at.endpoint, page, repo->name);
    return mt_fail(
        err, MT_EINVAL,
        "%s is gated: accept its license at %s%s/%s, make a token at %s/settings/tokens, then set HF_TOKEN to it and try "
        "again",
        repo->name, hub->at.endpoint, page, repo->name, hub->at.endpoint);
}

mt_rc mt__repo_refused(const mt_hub *hub, const mt__repo *repo, const char *path, const mt_http_response *r, mt_err *err)
{
    const char *code = r->error_code;
    if (strcmp(code, "GatedRepo") == 0) return gated(hub, repo, err);
    if (strcmp(code, "RevisionNotFound") == 0)
        return mt_fail(err, MT_ENOENT, "%s %s has no branch, tag or commit \"%s\"", kind_of(repo), repo->name, repo->revision);
    if (path && (strcmp(code, "EntryNotFound") == 0 || r->status == 404))
        return mt_fail(err, MT_ENOENT, "%s has no file %s any more; try again", repo->name, path);
    if (strstr(r->error_message, "is disabled"))
        return mt_fail(err, MT_EINVAL, "%s: %s has closed it (\"%s\")", repo->name, hub->at.endpoint, r->error_message);
    if (r->status == 401 && hub->at.token &&
        (strstr(r->error_message, "Invalid credentials") || strstr(r->error_message, "is expired")))
        return mt_fail(err, MT_EINVAL,
                       "%s does not know the token that is set (HF_TOKEN, or the file `hf auth login` left); make a "
                       "new one at %s/settings/tokens",
                       hub->at.endpoint, hub->at.endpoint);
    /* 401: the hub does not say which are private. */
    if (!path && (r->status == 401 || r->status == 404)) return no_such(hub, repo, err);
    if (r->status == 401 || r->status == 403)
        return mt_fail(err, MT_EINVAL, "%s: %s does not allow it%s%s.  Set HF_TOKEN to a token that may read it", repo->name,
                       hub->at.endpoint, *r->error_message ? ": " : "", r->error_message);
    if (r->status == 429)
        return mt_fail(err, MT_EIO,
                       "%s: %s asks to wait%s before asking again.  Try later; with HF_TOKEN set the limits are wider",
                       repo->name, hub->at.endpoint, r->retry_after_s > 0 ? " some minutes" : "");
    return mt_fail(err, MT_EIO, "%s%s%s: %s answers with status %ld%s%s; try again later", repo->name, path ? "/" : "",
                   path ? path : "", hub->at.endpoint, r->status, *r->error_message ? ": " : "", r->error_message);
}

/* The hub gave no answer at all. */
static mt_rc refuse_unreachable(const mt_hub *hub, const mt__repo *repo, mt_err *err)
{
    char why[600];
    snprintf(why, sizeof why, "%.590s", err->msg);
    return mt_fail(err, MT_EIO,
                   "no directory %s here%s, and %s cannot be reached (%s).  Without a network: run `megatrain get %s%s` on a "
                   "machine that has one "
                   "and copy %s from its cache to this one%s; HF_ENDPOINT chooses a mirror",
                   repo->name, hint_for(repo->name).words, hub->at.endpoint, why, repo->name, repo->dataset ? " --dataset" : "",
                   repo->folder,
                   repo->dataset ? ", or give the files as dataset.path"
                                 : ", or give a directory with the model's files as its name");
}

/* -- asking ---------------------------------------------------------------------------------------- */

/* A JSON document; *next (may be NULL) is the address of the next page, or NULL. */
static mt_rc repo_ask(mt_hub *hub, const mt__repo *repo, const char *url, const mt_value **out, char **next, mt_err *err)
{
    mt_http_response r;
    mt_rc rc = mt_http_get_patiently(hub->http, &(mt_http_request){ .url = url, .stop = hub->o.stop }, hub->o.pause_s, &r, err);
    if (rc && r.cut)
        rc = refuse_unreachable(hub, repo, err);
    else if (!rc && r.status != 200)
        rc = mt__repo_refused(hub, repo, NULL, &r, err);
    if (!rc) rc = mt_json_parse(out, r.body.s ? r.body.s : "", r.body.n, url, err);
    if (next) {
        *next = r.next;
        r.next = NULL;
    }
    mt_http_response_free(&r);
    return rc;
}

mt_rc mt__repo_resolve(mt_hub *hub, mt__repo *repo, mt_err *err)
{
    const mt_value *info = NULL;
    char *url = api_url(hub, repo, "revision", repo->revision, "");
    mt_rc rc = url ? repo_ask(hub, repo, url, &info, NULL, err) : mt_no_memory(err, "a repository's files");
    const char *sha = mt_json_string(mt_value_get(info, "sha"));
    if (!rc && (!sha || !mt__hub_is_commit(sha))) rc = mt_fail(err, MT_EFORMAT, "%s: the hub names no commit", url);
    if (!rc) snprintf(repo->commit, sizeof repo->commit, "%s", sha);
    mt_json_free(info);
    mt_free(url);
    return rc;
}

static mt_rc add_entry(mt__files *out, const mt__repo *repo, const mt_value *e, mt_err *err)
{
    const char *type = mt_json_string(mt_value_get(e, "type")), *path = mt_json_string(mt_value_get(e, "path"));
    const mt_value *lfs = mt_value_get(e, "lfs"), *from = mt_value_has(lfs, MT_VALUE_MAP) ? lfs : e;
    const char *hash = mt_json_string(mt_value_get(from, "oid"));
    int64_t size = mt_value_int(mt_value_get(from, "size"));
    if (!type || strcmp(type, "file") != 0) return MT_OK;
    if (!path || !mt__hub_safe_path(path)) {
        mt_str shown = { 0 };
        mt_str_json(&shown, path ? path : "", path ? strlen(path) : 0); /* a stranger's text, made harmless */
        mt_rc rc =
            mt_fail(err, MT_EFORMAT, "%s lists a file %.100s, whose name leads out of its folder: not a repository to trust",
                    repo->name, shown.s ? shown.s : "");
        mt_str_free(&shown);
        return rc;
    }
    bool fits = hash && mt__hub_is_hash(hash) && (strlen(hash) == 64) == (from == lfs);
    if (!fits || size < 0) return mt_fail(err, MT_EFORMAT, "%s: the hub lists no hash or size for %s", repo->name, path);
    return mt__files_add(out, path, (uint64_t)size, hash, err);
}

static mt_rc add_page(mt__files *out, const mt__repo *repo, const mt_value *page, mt_err *err)
{
    if (!mt_value_has(page, MT_VALUE_LIST))
        return mt_fail(err, MT_EFORMAT, "%s: the hub's list of files is not a list", repo->name);
    for (size_t i = 0; i < mt_value_items(page); i++) MT_TRY(add_entry(out, repo, mt_value_at(page, i), err));
    return MT_OK;
}

mt_rc mt__repo_list(mt_hub *hub, const mt__repo *repo, mt__files *out, mt_err *err)
{
    *out = (mt__files){ 0 };
    char *url = api_url(hub, repo, "tree", repo->commit, "?recursive=true");
    mt_rc rc = url ? MT_OK : mt_no_memory(err, "a repository's files");
    for (int page_i = 0; !rc && url; page_i++) {
        const mt_value *page = NULL;
        char *next = NULL;
        rc = page_i < MAX_PAGES ? repo_ask(hub, repo, url, &page, &next, err)
                                : mt_fail(err, MT_EFORMAT, "%s: the hub's list of files does not end", repo->name);
        if (!rc) rc = add_page(out, repo, page, err);
        mt_json_free(page);
        mt_free(url);
        url = next;
    }
    mt_free(url);
    if (rc) mt__files_free(out);
    return rc;
}
