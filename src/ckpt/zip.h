/* zip.h - the entries of a ZIP archive in memory: names and the places of their bytes.
 *
 * Only what torch.save makes is read: entries stored as they are (no compression, no encryption), with or without the 64-bit
 * extension.  Sizes and places are checked against the archive; checksums are not, since that would read every weight. */
#ifndef MT_CKPT_ZIP_H
#define MT_CKPT_ZIP_H

#include "base/arena.h"
#include "ckpt/names.h"

typedef struct mt__zip_entry {
    const char *name;
    const uint8_t *data; /* inside the archive */
    size_t bytes;
} mt__zip_entry;

typedef struct mt__zip {
    const uint8_t *bytes; /* borrowed; outlives it */
    size_t n_bytes;
    const char *path; /* for messages; borrowed */
    mt_arena arena;
    mt__zip_entry *entries;
    size_t n_entries;
    mt__names names;
} mt__zip;

/* A ZIP archive starts with this. */
bool mt__zip_is(const uint8_t *bytes, size_t n);
mt_rc mt__zip_init(mt__zip *z, const uint8_t *bytes, size_t n, const char *path, mt_err *err);
void mt__zip_deinit(mt__zip *z); /* accepts a zeroed or half-made one */
/* NULL: no such entry. */
const mt__zip_entry *mt__zip_find(const mt__zip *z, const char *name);

#endif
