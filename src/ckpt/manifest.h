/* manifest.h - the list of a directory's files with their sizes and checksums, which says whether all of it is there.
 *
 *     {"files": {"config.json": {"bytes": 557, "checksum": "9c1e..."}, "resume/unit-000.safetensors": {...}, ...}} */
#ifndef MT_CKPT_MANIFEST_H
#define MT_CKPT_MANIFEST_H

#include "base/err.h"

#define MT_MANIFEST_NAME "checksums.json"

/* Every file in dir and in the directories of it, one level down.  Written last: it makes the directory complete. */
mt_rc mt_manifest_write(const char *dir, mt_err *err);

/* Every listed file is there, with its size and checksum.  MT_ENOENT: no list, or a file is missing; MT_EFORMAT: a file differs. */
mt_rc mt_manifest_verify(const char *dir, mt_err *err);

#endif
