/* le.h - little-endian numbers at any address. */
#ifndef MT_CKPT_LE_H
#define MT_CKPT_LE_H

#include <stdint.h>

static inline uint16_t mt__le16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t mt__le32(const uint8_t *p) { return (uint32_t)mt__le16(p) | (uint32_t)mt__le16(p + 2) << 16; }
static inline uint64_t mt__le64(const uint8_t *p) { return (uint64_t)mt__le32(p) | (uint64_t)mt__le32(p + 4) << 32; }

#endif
