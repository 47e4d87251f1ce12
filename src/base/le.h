/* le.h - little-endian numbers at any address, as files have them: one load where the machine is little-endian too. */
#ifndef MT_BASE_LE_H
#define MT_BASE_LE_H

#include <stdint.h>
#include <string.h>

#define MT__BIG_ENDIAN (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

static inline uint16_t mt__le16(const void *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return MT__BIG_ENDIAN ? __builtin_bswap16(x) : x;
}

static inline uint32_t mt__le32(const void *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return MT__BIG_ENDIAN ? __builtin_bswap32(x) : x;
}

static inline uint64_t mt__le64(const void *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return MT__BIG_ENDIAN ? __builtin_bswap64(x) : x;
}

static inline float mt__le_f32(const void *p)
{
    uint32_t bits = mt__le32(p);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline double mt__le_f64(const void *p)
{
    uint64_t bits = mt__le64(p);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
