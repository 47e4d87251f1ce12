#include "hub/hub.h"

#include "base/file.h"
#include "base/log.h"
#include "hub/internal.h"

mt_rc mt_hub_open(mt_hub **out, const mt_hub_options *o, mt_err *err)
{
    *out = NULL;
    mt_hub *hub = mt_calloc(1, sizeof *hub);
    if (!hub) return mt_no_memory(err, "the hub");
    if (o) hub->o = *o;
    if (!hub->o.piece_bytes) hub->o.piece_bytes = 64 << 20;
    if (hub->o.n_connections < 1) hub->o.n_connections = 8;
    if (!(hub->o.pause_s > 0)) hub->o.pause_s = 1;
    mt_rc rc = mt_hub_places_init(&hub->at, err);
    if (!rc) rc = mt_http_open(&hub->http, hub->at.endpoint, hub->at.token, err);
    if (rc)
        mt_hub_close(hub);
    else
        *out = hub;
    return rc;
}

void mt_hub_close(mt_hub *hub)
{
    if (!hub) return;
    mt_http_close(hub->http);
    mt_hub_places_deinit(&hub->at);
    mt_free(hub);
}

static mt_rc refuse_offline(const mt__repo *repo, const char *variable, mt_err *err)
{
    return mt_fail(err, MT_ENOENT,
                   "%s is neither a directory here nor complete in %s, and %s forbids the network: unset it, or give a directory",
                   repo->name, repo->folder, variable);
}

mt_rc mt__hub_bring(mt_hub *hub, const mt__repo *repo, const mt__files *files, mt_err *err)
{
    MT_TRY(mt__download(hub, repo, files, err));
    for (size_t i = 0; i < files->n; i++)
        if (files->items[i].wanted) MT_TRY(mt__snapshot_link(repo, &files->items[i], err));
    return mt__snapshot_write_ref(repo, err);
}

/* -- models ---------------------------------------------------------------------------------------- */

static mt_rc cached_model(mt__repo *repo, int needs, char **dir, mt_err *err)
{
    bool complete = false;
    MT_TRY(mt__snapshot_find(repo, err));
    if (!*repo->commit) return MT_OK;
    char *found = mt__snapshot_dir(repo);
    mt_rc rc = found ? mt__model_complete(found, needs, &complete, err) : mt_no_memory(err, "a path");
    if (!rc && complete)
        *dir = found;
    else
        mt_free(found);
    return rc;
}

static mt_rc fetch_model(mt_hub *hub, mt__repo *repo, int needs, char **dir, mt_err *err)
{
    mt__files files = { 0 };
    mt_rc rc = mt__repo_resolve(hub, repo, err);
    if (!rc) rc = mt__repo_list(hub, repo, &files, err);
    if (!rc) rc = mt__choose_model(&files, repo, needs, err);
    if (!rc) rc = mt__hub_bring(hub, repo, &files, err);
    if (!rc && !(*dir = mt__snapshot_dir(repo))) rc = mt_no_memory(err, "a path");
    mt__files_free(&files);
    return rc;
}

static mt_rc find_model(mt_hub *hub, mt__repo *repo, int needs, char **dir, mt_err *err)
{
    bool newest = (needs & MT_HUB_NEWEST) && !hub->at.offline;
    if (!newest) MT_TRY(cached_model(repo, needs, dir, err));
    if (*dir) return MT_OK;
    return hub->at.offline ? refuse_offline(repo, hub->at.offline, err) : fetch_model(hub, repo, needs, dir, err);
}

mt_rc mt_hub_model(mt_hub *hub, const char *name, const char *revision, int needs, char **dir, mt_err *err)
{
    *dir = NULL;
    if (mt_dir_exists(name) || mt_file_exists(name)) {
        *dir = mt_strdup(name);
        return *dir ? MT_OK : mt_no_memory(err, "a path");
    }
    mt__repo repo;
    mt_rc rc = mt__repo_init(&repo, hub, name, revision, false, err);
    if (!rc) rc = find_model(hub, &repo, needs, dir, err);
    mt__repo_deinit(&repo);
    return rc;
}
