/* checksum.c - four lanes of multiply and rotate, so that four multiplications are in flight at once.  Each step is a bijection
 * of the lane and of the word, which is why one changed word cannot go unnoticed. */
#include "ckpt/checksum.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/rng.h"

#include <string.h>

enum { LANES = 4, BLOCK = LANES * 8 };

static uint64_t turn(uint64_t x) { return x << 29 | x >> 35; }

uint64_t mt_checksum(const void *data, size_t n)
{
    static const uint64_t factor[LANES] = { 0x9fb21c651e98df25u, 0xd6e8feb86659fd93u, 0xe7037ed1a0b428dbu, 0xa0761d6478bd642fu };
    struct {
        uint64_t lane[LANES];
        unsigned char tail[BLOCK];
    } end = { { 1, 2, 3, 4 }, { 0 } };
    const unsigned char *p = data;
    size_t whole = n / BLOCK;
    for (size_t i = 0; i < whole; i++, p += BLOCK) {
        uint64_t w[LANES];
        memcpy(w, p, sizeof w);
        for (int k = 0; k < LANES; k++) end.lane[k] = turn((end.lane[k] ^ w[k]) * factor[k]);
    }
    if (n % BLOCK) memcpy(end.tail, p, n % BLOCK);
    return mt_hash(&end, sizeof end, n);
}

mt_rc mt_checksum_file(uint64_t *sum, uint64_t *bytes, const char *path, mt_err *err)
{
    mt_map map;
    MT_TRY(mt_map_open(&map, path, err));
    *sum = mt_checksum(map.data, map.size);
    *bytes = map.size;
    mt_map_close(&map);
    return MT_OK;
}
