/* snapshot.c - the cache's layout, which is huggingface_hub's:
 *
 *     CACHE/models--ORG--NAME/refs/main                          the commit of a branch or tag
 *                            /blobs/HASH                         content, by the hash the hub names it with
 *                            /snapshots/COMMIT/PATH              a relative symbolic link to a blob
 *     CACHE/.locks/models--ORG--NAME/HASH.lock                   flock()ed while a blob is being made
 *
 * Blobs come first, links when all blobs are there, the ref last: what a ref leads to is complete. */
#include "base/disk.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/outfile.h"
#include "hub/internal.h"
#include "hub/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 8, MAX_REF_BYTES = 4096 };

char *mt__snapshot_dir(const mt__repo *repo) { return mt_asprintf("%s/snapshots/%s", repo->folder, repo->commit); }
char *mt__snapshot_file(const mt__repo *repo, const char *path)
{
    return mt_asprintf("%s/snapshots/%s/%s", repo->folder, repo->commit, path);
}
char *mt__blob_path(const mt__repo *repo, const char *hash) { return mt_asprintf("%s/blobs/%s", repo->folder, hash); }

mt_rc mt__make_dirs(const char *path, mt_err *err)
{
    return mt_dir_make(path, err) ? mt_note(err, "the hub's cache (HF_HUB_CACHE chooses another place)") : MT_OK;
}

static mt_rc make_parents(const char *path, mt_err *err)
{
    char *dir = mt_strndup(path, (size_t)(mt_path_base(path) - path - 1));
    mt_rc rc = dir ? mt__make_dirs(dir, err) : mt_no_memory(err, "a path");
    mt_free(dir);
    return rc;
}

/* -- finding --------------------------------------------------------------------------------------- */

static bool snapshot_exists(const mt__repo *repo)
{
    char *dir = mt__snapshot_dir(repo);
    bool yes = dir && mt_dir_exists(dir);
    mt_free(dir);
    return yes;
}

mt_rc mt__snapshot_find(mt__repo *repo, mt_err *err)
{
    char *ref = mt_asprintf("%s/refs/%s", repo->folder, repo->revision), *text = NULL;
    mt_rc rc = ref ? MT_OK : mt_no_memory(err, "a path");
    repo->commit[0] = '\0';
    if (mt__hub_is_commit(repo->revision))
        memcpy(repo->commit, repo->revision, sizeof repo->commit);
    else if (!rc && mt_file_exists(ref))
        rc = mt_file_read(&text, NULL, ref, MAX_REF_BYTES, err);
    if (text) text[strcspn(text, " \r\n\t")] = '\0'; /* huggingface_hub writes no line end; people do */
    if (text && mt__hub_is_commit(text)) memcpy(repo->commit, text, sizeof repo->commit);
    if (*repo->commit && !snapshot_exists(repo)) repo->commit[0] = '\0';
    mt_free(text);
    mt_free(ref);
    return rc;
}

static mt_rc snapshot_walk(mt__files *out, const char *dir, const char *below, int depth, mt_err *err)
{
    DIR *d = opendir(dir);
    if (!d) return mt_fail_errno(err, MT_EIO, "%s", dir);
    mt_rc rc = MT_OK;
    for (struct dirent *e; !rc && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *path = mt_path_join(dir, e->d_name), *name = *below ? mt_path_join(below, e->d_name) : mt_strdup(e->d_name);
        struct stat st;
        if (!path || !name)
            rc = mt_no_memory(err, "a path");
        else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            rc = depth < MAX_DEPTH ? snapshot_walk(out, path, name, depth + 1, err) : MT_OK;
        else if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
            rc = mt__files_add(out, name, (uint64_t)st.st_size, "", err);
        mt_free(path);
        mt_free(name);
    }
    closedir(d);
    return rc;
}

mt_rc mt__snapshot_list(const mt__repo *repo, mt__files *out, mt_err *err)
{
    *out = (mt__files){ 0 };
    char *dir = mt__snapshot_dir(repo);
    mt_rc rc = dir ? snapshot_walk(out, dir, "", 0, err) : mt_no_memory(err, "a path");
    mt_free(dir);
    if (rc) mt__files_free(out);
    return rc;
}

/* -- making ---------------------------------------------------------------------------------------- */

/* "../../blobs/HASH" with one more "../" for each folder in the file's name. */
static mt_rc link_text(mt_str *out, const mt__file *f, mt_err *err)
{
    mt_str_puts(out, "../../");
    for (const char *p = f->path; (p = strchr(p, '/')); p++) mt_str_puts(out, "../");
    mt_str_printf(out, "blobs/%s", f->hash);
    return mt_str_ok(out) ? MT_OK : mt_no_memory(err, "a path");
}

/* A name beside `at` that is unique across processes. */
static char *own_name(const char *at)
{
    static atomic_uint turn;
    return mt_asprintf("%s.%ld-%u.own", at, (long)getpid(), atomic_fetch_add(&turn, 1));
}

/* A link with a unique name, renamed: the final name appears at once, also with other writers. */
static mt_rc place_link(const char *at, const char *to, const char *blob, mt_err *err)
{
    char *own = own_name(at);
    if (!own) return mt_no_memory(err, "a path");
    unlink(own);
    int failed = mt_fault(MT_FAULT_FILE) ? (errno = EIO, -1) : symlink(to, own);
    if (failed && (errno == EPERM || errno == EOPNOTSUPP)) failed = link(blob, own); /* a file system without such links */
    if (!failed) failed = mt_disk_rename(own, at);
    mt_rc rc = failed ? mt_fail_errno(err, MT_EIO, "creating %s", at) : mt_disk_sync_parent(at, err);
    if (failed) mt_disk_remove(own, false);
    mt_free(own);
    return rc;
}

mt_rc mt__snapshot_link(const mt__repo *repo, const mt__file *f, mt_err *err)
{
    char *at = mt__snapshot_file(repo, f->path), *blob = mt__blob_path(repo, f->hash);
    mt_str to = { 0 };
    mt_rc rc = at && blob ? MT_OK : mt_no_memory(err, "a path");
    if (!rc && !mt_file_exists(at)) {
        rc = make_parents(at, err);
        if (!rc) rc = link_text(&to, f, err);
        if (!rc) rc = place_link(at, to.s, blob, err);
    }
    mt_str_free(&to);
    mt_free(blob);
    mt_free(at);
    return rc;
}

mt_rc mt__snapshot_write_ref(const mt__repo *repo, mt_err *err)
{
    if (strcmp(repo->revision, repo->commit) == 0) return MT_OK;
    char *ref = mt_asprintf("%s/refs/%s", repo->folder, repo->revision);
    mt_rc rc = ref ? make_parents(ref, err) : mt_no_memory(err, "a path");
    char *own = ref ? own_name(ref) : NULL; /* two that download the same would take each other's file away */
    if (!rc) rc = own ? mt_outfile_save(own, repo->commit, strlen(repo->commit), err) : mt_no_memory(err, "a path");
    if (!rc && mt_disk_rename(own, ref)) rc = mt_fail_errno(err, MT_EIO, "creating %s", ref);
    if (rc && own) mt_disk_remove(own, false);
    if (!rc) rc = mt_disk_sync_parent(ref, err);
    mt_free(own);
    mt_free(ref);
    return rc;
}

/* -- one at a time --------------------------------------------------------------------------------- */

mt_rc mt__try_lock(const mt_hub *hub, const mt__repo *repo, const char *hash, int *fd, bool *alone, mt_err *err)
{
    *fd = -1;
    *alone = true;
    char *path = mt_asprintf("%s/.locks/%s/%s.lock", hub->at.cache, mt_path_base(repo->folder), hash);
    mt_rc rc = path ? make_parents(path, err) : mt_no_memory(err, "a path");
    if (!rc) {
        rc = mt_disk_open(fd, path, O_RDWR | O_CREAT | O_NOFOLLOW, err);
    }
    if (!rc && flock(*fd, LOCK_EX | LOCK_NB)) {
        *alone = false;
        if (errno == EWOULDBLOCK) close(*fd), *fd = -1;
    }
    mt_free(path);
    return rc;
}

void mt__unlock(int fd)
{
    if (fd >= 0) close(fd);
}
