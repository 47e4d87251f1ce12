#include "base/rng.h"

#include <math.h>
#include <string.h>

/* The finaliser of splitmix64: a bijection with good avalanche. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t mt_rng_u64(uint64_t seed, uint64_t stream, uint64_t i)
{
    uint64_t key = mix(mix(seed + 0x9e3779b97f4a7c15u) ^ stream);
    return mix(key + (i + 1) * 0x9e3779b97f4a7c15u);
}

double mt_rng_uniform(uint64_t seed, uint64_t stream, uint64_t i)
{
    return (double)(mt_rng_u64(seed, stream, i) >> 11) * 0x1p-53;
}

float mt_rng_normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    uint64_t u = mt_rng_u64(seed, stream, i);
    double a = ((double)(u >> 32) + 0.5) * 0x1p-32, b = (double)(u & 0xffffffffu) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(a)) * cos(6.283185307179586 * b));
}

uint64_t mt_rng_below(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)mt_rng_u64(seed, stream, i) * n) >> 64);
}

uint64_t mt_hash(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t h = mix(seed ^ (uint64_t)n * 0x9e3779b97f4a7c15u), w;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = mix(h ^ w) + 0x9e3779b97f4a7c15u;
    }
    w = 0;
    memcpy(&w, p, n);
    return mix(h ^ w ^ (uint64_t)n << 56);
}
