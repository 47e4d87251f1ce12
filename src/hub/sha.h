/* sha.h - the two hashes a hub names content by: SHA-256 for large files (LFS), SHA-1 over git's blob header for small ones.
 *
 *     mt_sha h;
 *     mt_sha_init(&h, MT_SHA256);
 *     mt_sha_add(&h, bytes, n);
 *     mt_sha_hex(&h, text);                          // 64 digits, or 40 for MT_SHA1 */
#ifndef MT_HUB_SHA_H
#define MT_HUB_SHA_H

#include <stddef.h>
#include <stdint.h>

typedef enum mt_sha_kind { MT_SHA1, MT_SHA256 } mt_sha_kind;

enum { MT_SHA_HEX_BYTES = 65 }; /* of the longer one, NUL included */

typedef struct mt_sha {
    mt_sha_kind kind;
    uint32_t state[8];
    uint64_t n_bytes;
    uint8_t block[64];
} mt_sha;

void mt_sha_init(mt_sha *h, mt_sha_kind kind);
/* What git hashes a file of n_bytes as: "blob N", a NUL, then the content. */
void mt_sha_init_git(mt_sha *h, uint64_t n_bytes);
void mt_sha_add(mt_sha *h, const void *data, size_t n);
/* Lower-case digits; ends the hash. */
void mt_sha_hex(mt_sha *h, char out[MT_SHA_HEX_BYTES]);

#endif
