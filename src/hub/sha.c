/* sha.c - FIPS 180-4, as written there. */
#include "hub/sha.h"

#include "hub/sha_shani.h"

#include <stdio.h>
#include <string.h>

static uint32_t left(uint32_t x, int n) { return x << n | x >> (32 - n); }
static uint32_t right(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t sha_load(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

/* -- SHA-1 ----------------------------------------------------------------------------------------- */

static const uint32_t k1[4] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };

static uint32_t mix1(int quarter, uint32_t b, uint32_t c, uint32_t d)
{
    if (quarter == 0) return (b & c) | (~b & d);
    if (quarter == 2) return (b & c) | (b & d) | (c & d);
    return b ^ c ^ d;
}

static void block1(uint32_t s[8], const uint8_t *p)
{
    uint32_t w[80], a = s[0], b = s[1], c = s[2], d = s[3], e = s[4];
    for (int i = 0; i < 16; i++) w[i] = sha_load(p + 4 * i);
    for (int i = 16; i < 80; i++) w[i] = left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t t = left(a, 5) + mix1(i / 20, b, c, d) + e + k1[i / 20] + w[i];
        e = d, d = c, c = left(b, 30), b = a, a = t;
    }
    s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e;
}

static void blocks1(uint32_t s[8], const uint8_t *p, size_t n)
{
    for (; n; n--, p += 64) block1(s, p);
}

/* -- SHA-256 --------------------------------------------------------------------------------------- */

const uint32_t mt__sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* One round; the caller renames the eight variables instead of moving them. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                                                         \
    do {                                                                                                                         \
        uint32_t t1 = h + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) + ((e & f) ^ (~e & g)) + mt__sha256_k[i] + w[i];           \
        uint32_t t2 = (right(a, 2) ^ right(a, 13) ^ right(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));                               \
        d += t1;                                                                                                                 \
        h = t1 + t2;                                                                                                             \
    } while (0)

static void block256(uint32_t s[8], const uint8_t *p)
{
    uint32_t w[64], a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
    for (int i = 0; i < 16; i++) w[i] = sha_load(p + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (right(x, 7) ^ right(x, 18) ^ x >> 3) + w[i - 7] + (right(y, 17) ^ right(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i += 8) {
        ROUND(a, b, c, d, e, f, g, h, i);
        ROUND(h, a, b, c, d, e, f, g, i + 1);
        ROUND(g, h, a, b, c, d, e, f, i + 2);
        ROUND(f, g, h, a, b, c, d, e, i + 3);
        ROUND(e, f, g, h, a, b, c, d, i + 4);
        ROUND(d, e, f, g, h, a, b, c, i + 5);
        ROUND(c, d, e, f, g, h, a, b, i + 6);
        ROUND(b, c, d, e, f, g, h, a, i + 7);
    }
    s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
}

void mt__sha256_blocks_plain(uint32_t s[8], const uint8_t *p, size_t n)
{
    for (; n; n--, p += 64) block256(s, p);
}

static void blocks256(uint32_t s[8], const uint8_t *p, size_t n)
{
    (mt__sha256_has_fast() ? mt__sha256_blocks_fast : mt__sha256_blocks_plain)(s, p, n);
}

/* -- either ---------------------------------------------------------------------------------------- */

static const struct {
    uint32_t start[8];
    void (*blocks)(uint32_t s[8], const uint8_t *p, size_t n);
    int n_words;
} kinds[] = {
    [MT_SHA1] = { { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 }, blocks1, 5 },
    [MT_SHA256] = { { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 },
                    blocks256,
                    8 },
};

void mt_sha_init(mt_sha *h, mt_sha_kind kind)
{
    *h = (mt_sha){ .kind = kind };
    memcpy(h->state, kinds[kind].start, sizeof h->state);
}

void mt_sha_init_git(mt_sha *h, uint64_t n_bytes)
{
    char head[32];
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)n_bytes);
    mt_sha_init(h, MT_SHA1);
    mt_sha_add(h, head, (size_t)n + 1);
}

void mt_sha_add(mt_sha *h, const void *data, size_t n)
{
    const uint8_t *p = data;
    size_t held = h->n_bytes % 64;
    h->n_bytes += n;
    while (n) {
        if (!held && n >= 64) { /* whole blocks need no copy */
            kinds[h->kind].blocks(h->state, p, n / 64);
            p += n / 64 * 64, n %= 64;
            continue;
        }
        size_t take = n < 64 - held ? n : 64 - held;
        memcpy(h->block + held, p, take);
        p += take, n -= take, held += take;
        if (held == 64) kinds[h->kind].blocks(h->state, h->block, 1), held = 0;
    }
}

void mt_sha_hex(mt_sha *h, char out[MT_SHA_HEX_BYTES])
{
    static const uint8_t end[64] = { 0x80 };
    uint64_t bits = h->n_bytes * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    mt_sha_add(h, end, 1 + (119 - h->n_bytes % 64) % 64);
    mt_sha_add(h, length, 8);
    for (int i = 0; i < kinds[h->kind].n_words; i++) snprintf(out + 8 * i, 9, "%08x", h->state[i]);
}
