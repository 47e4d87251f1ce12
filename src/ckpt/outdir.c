#include "ckpt/outdir.h"

#include "base/disk.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- names ----------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static mt_rc add_name(mt_dir_names *out, const char *name, const char *dir, mt_err *err)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return MT_OK;
    MT_TRY(mt_grow(&out->items, &out->cap, out->n + 1, sizeof *out->items, err));
    out->items[out->n] = mt_strdup(name);
    if (!out->items[out->n]) return mt_no_memory(err, "names in %s", dir);
    out->n++;
    return MT_OK;
}

mt_rc mt_dir_list(mt_dir_names *out, const char *dir, mt_err *err)
{
    *out = (mt_dir_names){ 0 };
    DIR *d = mt_disk_faulted(EIO) ? NULL : opendir(dir);
    if (!d) return mt_fail_errno(err, errno == ENOENT ? MT_ENOENT : MT_EIO, "looking into %s", dir);
    mt_rc rc = MT_OK;
    for (const struct dirent *e; !rc && (e = readdir(d));) rc = add_name(out, e->d_name, dir, err);
    closedir(d);
    if (rc)
        mt_dir_names_free(out);
    else if (out->n)
        qsort(out->items, out->n, sizeof *out->items, by_text);
    return rc;
}

void mt_dir_names_free(mt_dir_names *names)
{
    for (size_t i = 0; i < names->n; i++) mt_free(names->items[i]);
    mt_free(names->items);
    *names = (mt_dir_names){ 0 };
}

/* -- make, remove, sync ---------------------------------------------------------------------------- */

static mt_rc remove_entries(const char *path, mt_err *err)
{
    mt_dir_names names;
    MT_TRY(mt_dir_list(&names, path, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < names.n; i++) {
        char *child = mt_path_join(path, names.items[i]);
        rc = child ? mt_dir_remove(child, err) : mt_no_memory(err, "names in %s", path);
        mt_free(child);
    }
    mt_dir_names_free(&names);
    return rc;
}

uint64_t mt_dir_bytes(const char *path)
{
    struct stat st;
    mt_dir_names names;
    mt_err ignored = { 0 };
    if (lstat(path, &st)) return 0;
    uint64_t sum = (uint64_t)st.st_blocks * 512;
    if (!S_ISDIR(st.st_mode) || mt_dir_list(&names, path, &ignored)) return sum;
    for (size_t i = 0; i < names.n; i++) {
        char *inside = mt_path_join(path, names.items[i]);
        if (inside) sum += mt_dir_bytes(inside);
        mt_free(inside);
    }
    mt_dir_names_free(&names);
    return sum;
}

mt_rc mt_dir_remove(const char *path, mt_err *err)
{
    struct stat st;
    if (lstat(path, &st)) return errno == ENOENT ? MT_OK : mt_fail_errno(err, MT_EIO, "removing %s", path);
    bool dir = S_ISDIR(st.st_mode);
    if (dir) MT_TRY(remove_entries(path, err));
    if (mt_disk_faulted(EIO) || mt_disk_remove(path, dir)) return mt_fail_errno(err, MT_EIO, "removing %s", path);
    return MT_OK;
}

static mt_rc move(const char *from, const char *to, mt_err *err)
{
    if (mt_disk_rename(from, to)) return mt_fail_errno(err, MT_EIO, "renaming %s to %s", from, to);
    return MT_OK;
}

mt_rc mt_dir_discard(const char *path, mt_err *err)
{
    char *tmp = mt_asprintf("%s.old.tmp", path);
    if (!tmp) return mt_no_memory(err, "names in %s", path);
    mt_rc rc = mt_dir_remove(tmp, err);
    if (!rc) rc = move(path, tmp, err);
    if (!rc) rc = mt_dir_remove(tmp, err);
    mt_free(tmp);
    return rc;
}

/* -- whole or not at all --------------------------------------------------------------------------- */

enum { MARK_DIGITS = 16 };

char *mt_outdir_tmp_name(const char *path, uint64_t mark)
{
    return mark ? mt_asprintf("%s.%016" PRIx64 ".tmp", path, mark) : mt_asprintf("%s.tmp", path);
}

size_t mt_outdir_plain_length(const char *name, size_t n)
{
    if (n <= MARK_DIGITS + 1 || name[n - MARK_DIGITS - 1] != '.') return n;
    return strspn(name + n - MARK_DIGITS, "0123456789abcdef") >= MARK_DIGITS ? n - MARK_DIGITS - 1 : n;
}

mt_rc mt_outdir_open(mt_outdir *d, const char *path, mt_err *err) { return mt_outdir_open_marked(d, path, 0, err); }

mt_rc mt_outdir_open_marked(mt_outdir *d, const char *path, uint64_t mark, mt_err *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--; /* "my-model/": the other names are beside it, not inside */
    *d = (mt_outdir){ .path = mt_strndup(path, n) };
    if (d->path) {
        d->tmp = mt_outdir_tmp_name(d->path, mark);
        d->old = mt_asprintf("%s.old.tmp", d->path);
    }
    mt_rc rc = d->path && d->tmp && d->old ? MT_OK : mt_no_memory(err, "names in %s", path);
    if (!rc) rc = mt_dir_remove(d->tmp, err);
    if (!rc) rc = mt_dir_make(d->tmp, err);
    d->opened = !rc;
    if (rc) mt_outdir_close(d);
    return rc;
}

/* Directories in it, then itself: their entries must last before the rename makes them count. */
static mt_rc sync_tree(const char *dir, mt_err *err)
{
    mt_dir_names names;
    MT_TRY(mt_dir_list(&names, dir, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < names.n; i++) {
        char *child = mt_path_join(dir, names.items[i]);
        if (!child) rc = mt_no_memory(err, "names in %s", dir);
        if (!rc && mt_dir_exists(child)) rc = sync_tree(child, err);
        mt_free(child);
    }
    mt_dir_names_free(&names);
    return rc ? rc : mt_disk_sync_dir(dir, err);
}

mt_rc mt_outdir_publish(mt_outdir *d, mt_err *err)
{
    MT_TRY(sync_tree(d->tmp, err));
    if (d->before_publish) MT_TRY(d->before_publish(d->user, d->tmp, d->path, err));
    bool replaces = mt_dir_exists(d->path);
    if (replaces) {
        MT_TRY(mt_dir_remove(d->old, err));
        MT_TRY(move(d->path, d->old, err));
    }
    mt_rc rc = move(d->tmp, d->path, err);
    if (rc && replaces && mt_disk_rename(d->old, d->path) == 0) return rc; /* what was there is there again */
    MT_TRY(rc);
    d->published = true;
    MT_TRY(mt_disk_sync_parent(d->path, err));
    return replaces ? mt_dir_remove(d->old, err) : MT_OK;
}

void mt_outdir_close(mt_outdir *d)
{
    mt_err ignored;
    if (d->opened && !d->published) (void)mt_dir_remove(d->tmp, &ignored);
    mt_free(d->path);
    mt_free(d->tmp);
    mt_free(d->old);
    *d = (mt_outdir){ 0 };
}
