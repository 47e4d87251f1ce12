#include "hub/partial.h"

#include "base/disk.h"
#include "base/units.h"
#include "hub/sha.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "MTPARTS1";
enum { HEAD_BYTES = 16, VERIFY_BYTES = 1 << 20 };

static mt_rc write_at(const mt__partial *p, uint64_t at, const void *data, size_t n, mt_err *err)
{
    return mt_disk_write(p->fd, data, n, at) ? mt_fail_errno(err, MT_EIO, "writing %s", p->path) : MT_OK;
}

mt_rc mt__partial_write(const mt__partial *p, uint64_t at, const void *data, size_t n, mt_err *err)
{
    return write_at(p, at, data, n, err);
}

/* -- the trailer ----------------------------------------------------------------------------------- */

static mt_rc write_trailer(const mt__partial *p, mt_err *err)
{
    MT_TRY(write_at(p, p->size, magic, sizeof magic, err));
    MT_TRY(write_at(p, p->size + sizeof magic, &p->piece_bytes, sizeof p->piece_bytes, err));
    return write_at(p, p->size + HEAD_BYTES, p->done, p->n_pieces, err);
}

/* What an earlier run has left; false: nothing of use. */
static bool read_trailer(mt__partial *p, uint64_t bytes)
{
    char head[HEAD_BYTES];
    if (bytes == p->size) { /* it was whole already */
        memset(p->done, 1, p->n_pieces);
        return p->size > 0;
    }
    if (bytes != p->size + HEAD_BYTES + p->n_pieces) return false;
    if (mt_disk_read(p->fd, head, sizeof head, p->size) != sizeof head || memcmp(head, magic, sizeof magic) != 0) return false;
    if (memcmp(head + sizeof magic, &p->piece_bytes, sizeof p->piece_bytes) != 0) return false;
    return mt_disk_read(p->fd, p->done, p->n_pieces, p->size + HEAD_BYTES) == (ssize_t)p->n_pieces;
}

mt_rc mt__partial_mark(const mt__partial *p, uint64_t piece, mt_err *err)
{
    return write_at(p, p->size + HEAD_BYTES + piece, &(const uint8_t){ 1 }, 1, err);
}

/* -- opening --------------------------------------------------------------------------------------- */

static mt_rc partial_reserve(const mt__partial *p, mt_err *err)
{
    uint64_t bytes = p->size + HEAD_BYTES + p->n_pieces;
    if (mt_disk_reserve(p->fd, bytes) == 0 && mt_disk_truncate(p->fd, bytes) == 0) return MT_OK;
    return mt_fail_errno(err, MT_EIO, "no room for %s, which needs %s (free some space, or set HF_HUB_CACHE to a larger disk)",
                         p->blob, mt_bytes_text(p->size).s);
}

mt_rc mt__partial_restart(mt__partial *p, mt_err *err)
{
    memset(p->done, 0, p->n_pieces);
    p->n_done = 0;
    p->resumed = false;
    if (mt_disk_truncate(p->fd, 0)) return mt_fail_errno(err, MT_EIO, "emptying %s", p->path);
    MT_TRY(partial_reserve(p, err));
    return write_trailer(p, err);
}

/* The file that is open is the one of that name: it may have been renamed between open and flock. */
static bool still_named(const mt__partial *p, struct stat *st)
{
    struct stat named;
    return fstat(p->fd, st) == 0 && stat(p->path, &named) == 0 && named.st_ino == st->st_ino && named.st_dev == st->st_dev;
}

static mt_rc open_file(mt__partial *p, struct stat *st, bool *busy, mt_err *err)
{
    if (mt_disk_open(&p->fd, p->path, O_RDWR | O_CREAT | O_NOFOLLOW, err)) return mt_note(err, "creating a download");
    bool held = flock(p->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    *busy = held || !still_named(p, st);
    return MT_OK;
}

mt_rc mt__partial_open(mt__partial *p, const mt__repo *repo, const mt__file *f, uint64_t piece_bytes, bool alone, bool *busy,
                       mt_err *err)
{
    struct stat st;
    *p = (mt__partial){ .blob = mt__blob_path(repo, f->hash), .fd = -1, .size = f->size, .piece_bytes = piece_bytes };
    p->n_pieces = f->size / piece_bytes + (f->size % piece_bytes != 0);
    p->done = mt_calloc(p->n_pieces + 1, 1);
    if (p->blob)
        p->path =
            alone ? mt_asprintf("%s.parts.incomplete", p->blob) : mt_asprintf("%s.%ld.parts.incomplete", p->blob, (long)getpid());
    mt_rc rc = p->path && p->done ? open_file(p, &st, busy, err) : mt_no_memory(err, "a download");
    if (!rc && !*busy) {
        p->resumed = read_trailer(p, (uint64_t)st.st_size);
        if (!p->resumed) rc = mt__partial_restart(p, err);
        for (uint64_t i = 0; i < p->n_pieces; i++) {
            p->done[i] = p->done[i] == 1; /* any other byte is not ours: that piece is fetched again */
            p->n_done += p->done[i];
        }
    }
    if (rc || *busy) mt__partial_close(p);
    return rc;
}

void mt__partial_close(mt__partial *p)
{
    if (p->path && p->fd >= 0) close(p->fd);
    mt_free(p->blob);
    mt_free(p->path);
    mt_free(p->done);
    *p = (mt__partial){ .fd = -1 };
}

void mt__partial_discard(mt__partial *p)
{
    if (p->path) mt_disk_remove(p->path, false);
    mt__partial_close(p);
}

/* -- the end --------------------------------------------------------------------------------------- */

mt_rc mt__partial_verify(const mt__partial *p, const char *hash, bool *right, const atomic_bool *stop, mt_err *err)
{
    uint8_t *buffer = mt_malloc(VERIFY_BYTES);
    if (!buffer) return mt_no_memory(err, "verifying %s", p->path);
    mt_sha h;
    char found[MT_SHA_HEX_BYTES];
    if (strlen(hash) == 64)
        mt_sha_init(&h, MT_SHA256);
    else
        mt_sha_init_git(&h, p->size);
    mt_rc rc = MT_OK;
    for (uint64_t at = 0; !rc && at < p->size;) {
        size_t want = (size_t)(p->size - at < VERIFY_BYTES ? p->size - at : VERIFY_BYTES);
        ssize_t n = mt_disk_read(p->fd, buffer, want, at);
        if (n <= 0)
            rc = mt_fail_errno(err, MT_EIO, "reading %s", p->path);
        else if (stop && atomic_load(stop))
            rc = mt_fail(err, MT_ESTOPPED, "the download was stopped");
        else
            mt_sha_add(&h, buffer, (size_t)n), at += (uint64_t)n;
    }
    mt_sha_hex(&h, found);
    *right = !rc && strcmp(found, hash) == 0;
    mt_free(buffer);
    return rc;
}

mt_rc mt__partial_publish(mt__partial *p, mt_err *err)
{
    if (mt_disk_truncate(p->fd, p->size)) return mt_fail_errno(err, MT_EIO, "ending %s", p->path);
    if (mt_disk_sync(p->fd)) return mt_fail_errno(err, MT_EIO, "syncing %s", p->path);
    if (mt_disk_rename(p->path, p->blob)) return mt_fail_errno(err, MT_EIO, "renaming %s", p->path);
    return mt_disk_sync_parent(p->blob, err);
}
