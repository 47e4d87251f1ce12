#include "ckpt/zip.h"

#include "base/le.h"

#include <string.h>

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_COMMENT = 65535,
};

static const uint32_t end_mark = 0x06054b50, end64_mark = 0x06064b50, locator_mark = 0x07064b50;
static const uint32_t central_mark = 0x02014b50, local_mark = 0x04034b50;

/* The offset of the central directory, and how many entries it claims. */
typedef struct directory {
    uint64_t offset, bytes, n;
} directory;

static mt_rc damaged(const mt__zip *z, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: %s; the archive is damaged or incomplete, download the file again", z->path, problem);
}

bool mt__zip_is(const uint8_t *bytes, size_t n) { return n >= 4 && mt__le32(bytes) == local_mark; }

/* The end record is the last thing but a comment whose length it states. */
static const uint8_t *find_end(const mt__zip *z)
{
    if (z->n_bytes < END_BYTES) return NULL;
    size_t last = z->n_bytes - END_BYTES, first = last > MAX_COMMENT ? last - MAX_COMMENT : 0;
    for (size_t at = last + 1; at-- > first;)
        if (mt__le32(z->bytes + at) == end_mark && mt__le16(z->bytes + at + 20) == last - at) return z->bytes + at;
    return NULL;
}

static mt_rc find_directory(const mt__zip *z, directory *d, mt_err *err)
{
    const uint8_t *end = find_end(z);
    if (!end) return damaged(z, "it has no end record", err);
    *d = (directory){ .n = mt__le16(end + 10), .bytes = mt__le32(end + 12), .offset = mt__le32(end + 16) };
    size_t at = (size_t)(end - z->bytes);
    if (at >= LOCATOR_BYTES && mt__le32(end - LOCATOR_BYTES) == locator_mark) {
        uint64_t at64 = mt__le64(end - LOCATOR_BYTES + 8);
        if (at64 > at || at - at64 < END64_BYTES || mt__le32(z->bytes + at64) != end64_mark)
            return damaged(z, "its 64-bit end record is not where it should be", err);
        const uint8_t *end64 = z->bytes + at64;
        *d = (directory){ .n = mt__le64(end64 + 32), .bytes = mt__le64(end64 + 40), .offset = mt__le64(end64 + 48) };
    }
    if (d->offset > at || d->bytes > at - d->offset) return damaged(z, "its directory is outside the file", err);
    if (d->n > d->bytes / CENTRAL_BYTES) return damaged(z, "its directory is shorter than the entries it claims", err);
    return MT_OK;
}

/* Sizes and offset of a central record; those that are all ones stand in the 64-bit extra field, in this order. */
typedef struct place {
    uint64_t full, packed, offset;
} place;

static bool read_place(const uint8_t *rec, const uint8_t *extra, size_t n_extra, place *p)
{
    *p = (place){ .full = mt__le32(rec + 24), .packed = mt__le32(rec + 20), .offset = mt__le32(rec + 42) };
    uint64_t *wide[] = { &p->full, &p->packed, &p->offset };
    while (n_extra >= 4) {
        size_t id = mt__le16(extra), n = mt__le16(extra + 2);
        if (n > n_extra - 4) return false;
        if (id == 1) {
            const uint8_t *at = extra + 4, *stop = at + n;
            for (size_t i = 0; i < MT_COUNT(wide); i++) {
                if (*wide[i] != UINT32_MAX) continue;
                if (stop - at < 8) return false;
                *wide[i] = mt__le64(at);
                at += 8;
            }
        }
        extra += 4 + n;
        n_extra -= 4 + n;
    }
    return true;
}

static mt_rc locate(const mt__zip *z, mt__zip_entry *e, const place *p, mt_err *err)
{
    if (p->offset > z->n_bytes || z->n_bytes - p->offset < LOCAL_BYTES || mt__le32(z->bytes + p->offset) != local_mark)
        return mt_fail(err, MT_EFORMAT, "%s: entry \"%.200s\" is not where the directory says; download the file again", z->path,
                       e->name);
    const uint8_t *local = z->bytes + p->offset;
    size_t skip = LOCAL_BYTES + (size_t)mt__le16(local + 26) + mt__le16(local + 28), left = z->n_bytes - (size_t)p->offset;
    if (skip > left || p->full > left - skip)
        return mt_fail(err, MT_EFORMAT, "%s: entry \"%.200s\" reaches past the end of the file; download the file again", z->path,
                       e->name);
    e->data = local + skip;
    e->bytes = (size_t)p->full;
    return MT_OK;
}

static mt_rc add_entry(mt__zip *z, const uint8_t *rec, size_t left, size_t *used, mt_err *err)
{
    if (left < CENTRAL_BYTES || mt__le32(rec) != central_mark) return damaged(z, "its directory breaks off", err);
    size_t n_name = mt__le16(rec + 28), n_extra = mt__le16(rec + 30), n_comment = mt__le16(rec + 32);
    *used = CENTRAL_BYTES + n_name + n_extra + n_comment;
    if (*used > left) return damaged(z, "its directory breaks off", err);
    mt__zip_entry *e = &z->entries[z->n_entries];
    place p;
    if (memchr(rec + CENTRAL_BYTES, '\0', n_name)) return damaged(z, "an entry has a NUL in its name", err);
    e->name = mt_arena_strndup(&z->arena, (const char *)rec + CENTRAL_BYTES, n_name);
    if (!e->name) return mt_no_memory(err, "the list of entries of %s", z->path);
    if (!read_place(rec, rec + CENTRAL_BYTES + n_name, n_extra, &p)) return damaged(z, "an entry's extra field breaks off", err);
    if (mt__le16(rec + 10) != 0 || (mt__le16(rec + 8) & 1) || p.packed != p.full)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "%s: entry \"%.200s\" is compressed or encrypted, which torch.save never does; not read", z->path,
                       e->name);
    MT_TRY(locate(z, e, &p, err));
    if (mt__names_add(&z->names, e->name, z->n_entries) != z->n_entries)
        return mt_fail(err, MT_EFORMAT, "%s: entry \"%.200s\" is there twice", z->path, e->name);
    z->n_entries++;
    return MT_OK;
}

mt_rc mt__zip_init(mt__zip *z, const uint8_t *bytes, size_t n, const char *path, mt_err *err)
{
    directory d;
    *z = (mt__zip){ .bytes = bytes, .n_bytes = n, .path = path };
    MT_TRY(find_directory(z, &d, err));
    z->entries = mt_calloc((size_t)d.n, sizeof *z->entries);
    if (!z->entries || !mt__names_init(&z->names, (size_t)d.n)) return mt_no_memory(err, "the list of entries of %s", path);
    const uint8_t *rec = bytes + d.offset;
    size_t left = (size_t)d.bytes, used;
    for (uint64_t i = 0; i < d.n; i++) {
        MT_TRY(add_entry(z, rec, left, &used, err));
        rec += used;
        left -= used;
    }
    return MT_OK;
}

void mt__zip_deinit(mt__zip *z)
{
    mt__names_deinit(&z->names);
    mt_free(z->entries);
    mt_arena_free(&z->arena);
    *z = (mt__zip){ 0 };
}

const mt__zip_entry *mt__zip_find(const mt__zip *z, const char *name)
{
    size_t i;
    return mt__names_find(&z->names, name, &i) ? &z->entries[i] : NULL;
}
