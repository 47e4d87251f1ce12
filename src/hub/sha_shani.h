/* sha_shani.h - SHA-256 with the processor's own instructions for it.  Tens of gigabytes are verified after a download, and this
 * is several times as fast as plain C, which remains the truth. */
#ifndef MT_HUB_SHA_SHANI_H
#define MT_HUB_SHA_SHANI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const uint32_t mt__sha256_k[64];

/* n blocks of 64 bytes; sha.c. */
void mt__sha256_blocks_plain(uint32_t state[8], const uint8_t *p, size_t n);

bool mt__sha256_has_fast(void);
/* The same; only where mt__sha256_has_fast(). */
void mt__sha256_blocks_fast(uint32_t state[8], const uint8_t *p, size_t n);

#endif
