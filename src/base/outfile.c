#include "base/outfile.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static mt_rc outfile_reserve(const mt_outfile *f, size_t bytes, mt_err *err)
{
    if (bytes == 0 || mt_disk_reserve(f->fd, bytes) == 0) return MT_OK;
    return mt_fail_errno(err, MT_EIO, "no room for %s, which needs %s (free some space, or write somewhere else)", f->path,
                         mt_bytes_text(bytes).s);
}

/* Renaming over a device or a pipe would take it away from everybody. */
static mt_rc refuse_what_is_no_file(const char *path, mt_err *err)
{
    struct stat st;
    if (stat(path, &st) || S_ISREG(st.st_mode)) return MT_OK;
    return mt_fail(err, MT_EINVAL, "%s is not a regular file; name a new file or one to replace", path);
}

mt_rc mt_outfile_open(mt_outfile *f, const char *path, size_t bytes, mt_err *err)
{
    *f = (mt_outfile){ 0 };
    MT_TRY(refuse_what_is_no_file(path, err));
    *f = (mt_outfile){ .path = mt_strdup(path), .tmp = mt_asprintf("%s.tmp", path) };
    if (!f->path || !f->tmp) {
        mt_outfile_close(f);
        return mt_no_memory(err, "writing %s", path);
    }
    mt_rc rc = mt_disk_open(&f->fd, f->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, err);
    if (rc == MT_ENOENT) rc = mt_fail_errno(err, MT_EIO, "creating %s", f->tmp); /* its folder is not there */
    f->opened = !rc;
    if (!rc) rc = outfile_reserve(f, bytes, err);
    if (rc) mt_outfile_close(f);
    return rc;
}

mt_rc mt_outfile_write(const mt_outfile *f, size_t offset, const void *data, size_t n, mt_err *err)
{
    return mt_disk_write(f->fd, data, n, offset) ? mt_fail_errno(err, MT_EIO, "writing %s", f->tmp) : MT_OK;
}

mt_rc mt_outfile_seal(mt_outfile *f, mt_err *err)
{
    if (mt_disk_sync(f->fd)) return mt_fail_errno(err, MT_EIO, "syncing %s", f->tmp);
    f->sealed = true; /* the descriptor is gone, even if close() fails */
    bool failed = close(f->fd) != 0;
    if (failed || mt_disk_faulted(EIO)) return mt_fail_errno(err, MT_EIO, "closing %s", f->tmp);
    return MT_OK;
}

mt_rc mt_outfile_publish(mt_outfile *f, mt_err *err)
{
    if (mt_disk_rename(f->tmp, f->path)) return mt_fail_errno(err, MT_EIO, "renaming %s to %s", f->tmp, f->path);
    f->published = true;
    return mt_disk_sync_parent(f->path, err);
}

void mt_outfile_withdraw(mt_outfile *f)
{
    if (f->published) mt_disk_remove(f->path, false);
}

void mt_outfile_close(mt_outfile *f)
{
    if (f->opened && !f->sealed) close(f->fd);
    if (f->opened && !f->published) mt_disk_remove(f->tmp, false);
    mt_free(f->path);
    mt_free(f->tmp);
    *f = (mt_outfile){ 0 };
}

/* One directory.  Its entry is synced, so that files put into it are not lost with it. */
static mt_rc make_one(const char *path, mt_err *err)
{
    if (mt_disk_mkdir(path, 0777) == 0) return mt_disk_sync_parent(path, err);
    int code = errno;
    if (code != EIO && mt_dir_exists(path)) return MT_OK;
    if (code == EEXIST) return mt_fail(err, MT_EIO, "creating %s: it exists and is not a directory", path);
    errno = code;
    return mt_fail_errno(err, MT_EIO, "creating %s", path);
}

mt_rc mt_dir_make(const char *path, mt_err *err)
{
    char *p = mt_strdup(path);
    if (!p) return mt_no_memory(err, "a path");
    mt_rc rc = MT_OK;
    for (char *slash = strchr(p + 1, '/'); !rc; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = '\0';
        rc = make_one(p, err);
        if (!slash) break;
        *slash = '/';
    }
    mt_free(p);
    return rc;
}

mt_rc mt_outfile_save(const char *path, const void *data, size_t n, mt_err *err)
{
    mt_outfile f;
    mt_rc rc = mt_outfile_open(&f, path, n, err);
    if (!rc) rc = mt_outfile_write(&f, 0, data, n, err);
    if (!rc) rc = mt_outfile_seal(&f, err);
    if (!rc) rc = mt_outfile_publish(&f, err);
    mt_outfile_close(&f);
    return rc;
}
