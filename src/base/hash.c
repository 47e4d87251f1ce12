/* The coefficients of a polynomial are the length and the bytes, seven at a time.  The hash is its value at a secret point modulo
 * the prime 2^61 - 1.  Two different strings of n words agree at no more than n + 1 of the 2^61 points, so an attacker who does
 * not know the point cannot find a likely collision.  A last multiplication spreads the value over all bits; tables use the low
 * ones. */
#include "base/hash.h"

#include "base/rng.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static const uint64_t prime = (UINT64_C(1) << 61) - 1;
static uint64_t point, spread; /* below the prime; odd */
static atomic_bool drawn;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void draw_key(void)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random) {
        /* no random numbers yet (early at boot): an address and the clock are hard enough to guess */
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t seed = (uint64_t)(uintptr_t)&now ^ (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec;
        for (int i = 0; i < 2; i++) random[i] = mt_rng_u64(seed, (uint64_t)(uintptr_t)&point, (uint64_t)i);
    }
    point = random[0] % (prime - 2) + 2;
    spread = random[1] | 1;
    atomic_store_explicit(&drawn, true, memory_order_release);
}

/* x is below 2^62, the result at most a little above the prime. */
static inline uint64_t times_point(uint64_t x)
{
    unsigned __int128 p = (unsigned __int128)x * point;
    uint64_t r = (uint64_t)(p & prime) + (uint64_t)(p >> 61);
    return (r & prime) + (r >> 61);
}

uint64_t mt_hash_keyed(const void *bytes, size_t n)
{
    if (!atomic_load_explicit(&drawn, memory_order_acquire)) pthread_once(&once, draw_key);
    const unsigned char *p = bytes;
    const uint64_t seven_bytes = (UINT64_C(1) << 56) - 1;
    uint64_t h = times_point((n & seven_bytes) + 1), w;
    for (; n >= 8; n -= 7, p += 7) {
        memcpy(&w, p, 8);
        h = times_point(h + (w & seven_bytes));
    }
    w = 0;
    if (n) memcpy(&w, p, n); /* at most seven */
    h = times_point(h + w);
    unsigned __int128 wide = (unsigned __int128)h * spread;
    return (uint64_t)wide ^ (uint64_t)(wide >> 64);
}

uint64_t mt_hash_factor(void) { return mt_hash_keyed("factor", 6) | 1; }
