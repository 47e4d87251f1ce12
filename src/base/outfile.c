#include "base/outfile.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* True, with errno set, if this call is the one a test wants to fail. */
static bool faulted(int code)
{
    if (!mt_fault(MT_FAULT_FILE)) return false;
    errno = code;
    return true;
}

static mt_rc reserve(const mt_outfile *f, size_t bytes, mt_err *err)
{
    if (bytes == 0) return MT_OK;
    int code;
    do code = faulted(ENOSPC) ? ENOSPC : posix_fallocate(f->fd, 0, (off_t)bytes);
    while (code == EINTR); /* tmpfs stops for any signal: a Ctrl-Z, a debugger */
    if (code == EOPNOTSUPP || code == EINVAL) return MT_OK; /* a file system that cannot: it will grow as it is written */
    if (code == 0) return MT_OK;
    errno = code;
    return mt_fail_errno(err, MT_EIO, "no room for %s, which needs %s (free some space, or write somewhere else)", f->path,
                         mt_bytes_text(bytes).s);
}

/* Renaming over a device or a pipe would take it away from everybody. */
static mt_rc refuse_what_is_no_file(const char *path, mt_err *err)
{
    struct stat st;
    if (stat(path, &st) || S_ISREG(st.st_mode)) return MT_OK;
    return mt_fail(err, MT_EINVAL, "%s is no plain file; name one to write, new or to be replaced", path);
}

mt_rc mt_outfile_open(mt_outfile *f, const char *path, size_t bytes, mt_err *err)
{
    *f = (mt_outfile){ 0 };
    MT_TRY(refuse_what_is_no_file(path, err));
    *f = (mt_outfile){ .path = mt_strdup(path), .tmp = mt_asprintf("%s.tmp", path) };
    if (!f->path || !f->tmp) {
        mt_outfile_close(f);
        return mt_fail(err, MT_ENOMEM, "no host memory to write %s", path);
    }
    f->fd = faulted(EIO) ? -1 : open(f->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    mt_rc rc = f->fd < 0 ? mt_fail_errno(err, MT_EIO, "creating %s", f->tmp) : MT_OK;
    f->opened = !rc;
    if (!rc) rc = reserve(f, bytes, err);
    if (rc) mt_outfile_close(f);
    return rc;
}

mt_rc mt_outfile_write(const mt_outfile *f, size_t offset, const void *data, size_t n, mt_err *err)
{
    const uint8_t *p = data;
    while (n > 0) {
        ssize_t got = faulted(ENOSPC) ? -1 : pwrite(f->fd, p, n, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return mt_fail_errno(err, MT_EIO, "writing %s", f->tmp);
        p += got;
        n -= (size_t)got;
        offset += (size_t)got;
    }
    return MT_OK;
}

mt_rc mt_outfile_seal(mt_outfile *f, mt_err *err)
{
    if (faulted(EIO) || fsync(f->fd)) return mt_fail_errno(err, MT_EIO, "syncing %s", f->tmp);
    f->sealed = true; /* whatever close() says, the descriptor is gone */
    bool failed = close(f->fd) != 0;
    if (failed || faulted(EIO)) return mt_fail_errno(err, MT_EIO, "closing %s", f->tmp);
    return MT_OK;
}

/* A rename lasts only once its directory is synced. */
static mt_rc sync_parent(const char *path, mt_err *err)
{
    size_t n = (size_t)(mt_path_base(path) - path);
    char *dir = n ? mt_strndup(path, n) : mt_strdup(".");
    if (!dir) return mt_fail(err, MT_ENOMEM, "no host memory to sync the directory of %s", path);
    int fd = faulted(EIO) ? -1 : open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && !faulted(EIO) && (fsync(fd) == 0 || errno == EINVAL); /* EINVAL: it has no such notion */
    mt_rc rc = ok ? MT_OK : mt_fail_errno(err, MT_EIO, "syncing the directory %s", dir);
    if (fd >= 0) close(fd);
    mt_free(dir);
    return rc;
}

mt_rc mt_outfile_publish(mt_outfile *f, mt_err *err)
{
    if (faulted(EIO) || rename(f->tmp, f->path)) return mt_fail_errno(err, MT_EIO, "renaming %s to %s", f->tmp, f->path);
    f->published = true;
    return sync_parent(f->path, err);
}

void mt_outfile_withdraw(mt_outfile *f)
{
    if (f->published) unlink(f->path);
}

void mt_outfile_close(mt_outfile *f)
{
    if (f->opened && !f->sealed) close(f->fd);
    if (f->opened && !f->published) unlink(f->tmp);
    mt_free(f->path);
    mt_free(f->tmp);
    *f = (mt_outfile){ 0 };
}

mt_rc mt_dir_make(const char *path, mt_err *err)
{
    char *p = mt_strdup(path);
    if (!p) return mt_fail(err, MT_ENOMEM, "no host memory for a path");
    mt_rc rc = MT_OK;
    for (char *slash = strchr(p + 1, '/'); !rc; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = '\0';
        int code = faulted(EIO) || mkdir(p, 0777) ? errno : 0;
        if (code == EIO || (code && !mt_dir_exists(p))) {
            errno = code;
            rc = mt_fail_errno(err, MT_EIO, "creating %s", p);
        }
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
