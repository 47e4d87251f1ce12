/* checksum.h - a fast 64-bit sum that detects damage: a single changed word always changes it.  It does not protect against
 * deliberate collisions. */
#ifndef MT_CKPT_CHECKSUM_H
#define MT_CKPT_CHECKSUM_H

#include "base/err.h"

#include <stdint.h>

uint64_t mt_checksum(const void *data, size_t n);
/* Of a whole file, read by mapping it. */
mt_rc mt_checksum_file(uint64_t *sum, uint64_t *bytes, const char *path, mt_err *err);

#endif
