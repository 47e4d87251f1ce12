/* checksum.c - four lanes of multiply and rotate, so that four multiplications are in flight at once.  Each step is a bijection
 * of the lane and of the word, which is why one changed word cannot go unnoticed. */
#include "ckpt/checksum.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/rng.h"

#include <string.h>

enum { LANES = 4, BLOCK = LANES * 8, PIECE = 1 << 20 };

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

/* release: pages of a mapped file are let go behind the reading, or all of it would count as this process's memory. */
static uint64_t sum_of(const unsigned char *p, size_t n, bool release)
{
    sums s = { { 1, 2, 3, 4 }, { 0 } };
    size_t whole = n / BLOCK * BLOCK;
    for (size_t at = 0, some; at < whole; at += some) {
        some = whole - at < PIECE ? whole - at : PIECE;
        add_blocks(&s, p + at, some / BLOCK);
        if (release) mt_map_release(p + at, some);
    }
    if (n % BLOCK) memcpy(s.tail, p + whole, n % BLOCK);
    return mt_hash(&s, sizeof s, n);
}

uint64_t mt_checksum(const void *data, size_t n) { return sum_of(data, n, false); }

mt_rc mt_checksum_file(uint64_t *sum, uint64_t *bytes, const char *path, mt_err *err)
{
    mt_map map;
    MT_TRY(mt_map_open(&map, path, err));
    *sum = sum_of(map.data, map.size, true);
    *bytes = map.size;
    mt_map_close(&map);
    return MT_OK;
}
