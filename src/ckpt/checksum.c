/* checksum.c - four lanes of multiply and rotate, so that four multiplications are in flight at once.  Each step is a bijection
 * of the lane and of the word, which is why one changed word cannot go unnoticed. */
#include "ckpt/checksum.h"

#include "base/file.h"
#include "base/rng.h"

#include <string.h>

enum { LANES = 4, BLOCK = LANES * 8, PIECE = 1 << 21 };

static uint64_t turn(uint64_t x) { return x << 29 | x >> 35; }

typedef struct sums {
    uint64_t lane[LANES];
    unsigned char tail[BLOCK];
} sums;

static void add_blocks(sums *s, const unsigned char *p, size_t n_blocks)
{
    static const uint64_t factor[LANES] = { 0x9fb21c651e98df25u, 0xd6e8feb86659fd93u, 0xe7037ed1a0b428dbu, 0xa0761d6478bd642fu };
    for (size_t i = 0; i < n_blocks; i++, p += BLOCK) {
        uint64_t w[LANES];
        memcpy(w, p, sizeof w);
        for (int k = 0; k < LANES; k++) s->lane[k] = turn((s->lane[k] ^ w[k]) * factor[k]);
    }
}

static void checksum_begin(sums *s) { *s = (sums){ .lane = { 1, 2, 3, 4 } }; }

/* The bytes that fill no block. */
static uint64_t end(sums *s, const unsigned char *p, size_t n)
{
    if (n % BLOCK) memcpy(s->tail, p + n / BLOCK * BLOCK, n % BLOCK);
    return mt_hash(s, sizeof *s, n);
}

uint64_t mt_checksum(const void *data, size_t n)
{
    sums s;
    checksum_begin(&s);
    add_blocks(&s, data, n / BLOCK);
    return end(&s, data, n);
}

/* Release pages after reading them, so that the file does not count as this process's memory. */
static mt_rc add_map(sums *s, const mt_map *map, const char *path, mt_err *err)
{
    for (size_t at = 0, some; at < map->size; at += some) {
        some = map->size - at < PIECE ? map->size - at : PIECE;
        if (!mt_map_fetch(map, map->data + at, some))
            return mt_fail(err, MT_EIO, "%s cannot be read: the disk has failed, or the file has become shorter", path);
        add_blocks(s, map->data + at, some / BLOCK);
        if (some == PIECE) mt_map_release(map, map->data + at, some);
    }
    return MT_OK;
}

mt_rc mt_checksum_file(uint64_t *sum, uint64_t *bytes, const char *path, mt_err *err)
{
    sums s;
    mt_map map;
    MT_TRY(mt_map_open(&map, path, err));
    checksum_begin(&s);
    mt_rc rc = add_map(&s, &map, path, err);
    if (!rc) *sum = end(&s, map.data, map.size);
    if (!rc) *bytes = map.size;
    mt_map_close(&map);
    return rc;
}
