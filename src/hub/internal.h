/* internal.h - what the parts of src/hub share.
 *
 *     places      which hub, which cache, whose token          http      one request
 *     repo        a repository's commit and files               choose    which of them are needed
 *     snapshot    the cache's layout                            download  files into it
 *     card        a dataset's README                            arrow_cache   what the datasets library has
 *     hub         models                                        dataset   datasets */
#ifndef MT_HUB_INTERNAL_H
#define MT_HUB_INTERNAL_H

#include "hub/http.h"
#include "hub/hub.h"
#include "hub/places.h"

struct mt_hub {
    mt_hub_places at;
    mt_hub_options o;
    mt_http *http; /* of the caller's thread */
};

/* One repository at one revision. */
typedef struct mt__repo {
    const char *name;
    const char *revision; /* branch, tag or commit as requested */
    bool dataset;
    char commit[41]; /* "" until it is known */
    char *folder;    /* CACHE/models--ORG--NAME */
} mt__repo;

mt_rc mt__repo_init(mt__repo *r, const mt_hub *hub, const char *name, const char *revision, bool dataset, mt_err *err);
void mt__repo_deinit(mt__repo *r);

/* A file of a repository. */
typedef struct mt__file {
    char *path;
    uint64_t size;
    char hash[65]; /* git's of the content, or the sha256 of a large file: the blob's name */
    bool wanted;
} mt__file;

typedef struct mt__files {
    mt__file *items;
    size_t n, cap;
} mt__files;

mt_rc mt__files_add(mt__files *f, const char *path, uint64_t size, const char *hash, mt_err *err);
mt__file *mt__files_find(const mt__files *f, const char *path); /* NULL: none */
void mt__files_free(mt__files *f);

/* repo.c: ask the hub.  The first fills in repo->commit. */
mt_rc mt__repo_resolve(mt_hub *hub, mt__repo *repo, mt_err *err);
mt_rc mt__repo_list(mt_hub *hub, const mt__repo *repo, mt__files *out, mt_err *err);
/* An error answer as a message; `path` is the requested file (from any thread), or NULL. */
mt_rc mt__repo_refused(const mt_hub *hub, const mt__repo *repo, const char *path, const mt_http_response *r, mt_err *err);
char *mt__repo_file_url(const mt_hub *hub, const mt__repo *repo, const char *path);

/* choose.c: mark the files of a model that `needs` (MT_HUB_CONFIG | ...) calls for. */
mt_rc mt__choose_model(mt__files *f, const mt__repo *repo, int needs, mt_err *err);
/* True if a model directory has all that is needed. */
mt_rc mt__model_complete(const char *dir, int needs, bool *complete, mt_err *err);

/* snapshot.c: the cache's layout.  Paths are newly allocated; NULL: no memory. */
char *mt__snapshot_dir(const mt__repo *repo);
char *mt__snapshot_file(const mt__repo *repo, const char *path);
char *mt__blob_path(const mt__repo *repo, const char *hash);
/* The commit a revision stands for in the cache into repo->commit; "" if it is not there. */
mt_rc mt__snapshot_find(mt__repo *repo, mt_err *err);
/* The files a snapshot holds (sizes, no hashes). */
mt_rc mt__snapshot_list(const mt__repo *repo, mt__files *out, mt_err *err);
/* A name for a blob in the snapshot; the commit of a branch or tag. */
mt_rc mt__snapshot_link(const mt__repo *repo, const mt__file *f, mt_err *err);
mt_rc mt__snapshot_write_ref(const mt__repo *repo, mt_err *err);
mt_rc mt__make_dirs(const char *path, mt_err *err);
/* huggingface_hub's lock of a blob.  *fd is -1 with MT_OK while another process has it; mt__unlock accepts -1.  *alone is false
 * on a file system that has no locks. */
mt_rc mt__try_lock(const mt_hub *hub, const mt__repo *repo, const char *hash, int *fd, bool *alone, mt_err *err);
void mt__unlock(int fd);

/* download.c: the wanted files become blobs, all of them, verified. */
mt_rc mt__download(mt_hub *hub, const mt__repo *repo, const mt__files *files, mt_err *err);

/* hub.c: the wanted files into the cache; links and the ref when all of them are there. */
mt_rc mt__hub_bring(mt_hub *hub, const mt__repo *repo, const mt__files *files, mt_err *err);

/* arrow_cache.c: the files of a split in *dir; none (n = 0) if it is not there. */
mt_rc mt__arrow_cache_find(const mt_hub *hub, const char *name, const char *subset, const char *split, mt__files *out, char **dir,
                           mt_err *err);

/* card.c: which files a split is made of.  A folder means its files, even against the README. */
mt_rc mt__choose_converted(mt__files *f, const char *subset, const char *split, bool *found, mt_err *err);
mt_rc mt__choose_data(mt__files *f, const mt__repo *repo, const char *readme, size_t readme_n, const char *subset,
                      const char *split, const char *folder, mt_err *err);

#endif
