/* harness.h - how a fuzz target runs, and random numbers for its generator.
 *
 * A target defines LLVMFuzzerTestOneInput, and harness.c calls it (CMakeLists.txt renames the target's function).  One input
 * in 32, chosen by its content, runs on a thread with a small stack and with `fuzz_production` set: then the target uses the limits
 * that users have.  If a target defines fuzz_generate, some inputs come from it instead of from mutation. */
#ifndef MT_FUZZ_HARNESS_H
#define MT_FUZZ_HARNESS_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern bool fuzz_production;

typedef struct fuzz_rng {
    uint64_t state;
} fuzz_rng;

/* A whole input, right in its structure and wrong here and there. */
void fuzz_generate(fuzz_rng *r, mt_str *out) __attribute__((weak));

static inline uint64_t fuzz_u64(fuzz_rng *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline size_t fuzz_below(fuzz_rng *r, size_t n) { return n ? (size_t)(fuzz_u64(r) % n) : 0; }
static inline bool fuzz_once_in(fuzz_rng *r, size_t n) { return fuzz_below(r, n) == 0; }

#define FUZZ_PICK(r, list)       FUZZ_PICK_OF(r, list, sizeof(list) / sizeof((list)[0]))
#define FUZZ_PICK_OF(r, list, n) ((list)[fuzz_below((r), (n))])

/* The usual number, or now and then one at which something changes. */
static inline uint64_t fuzz_odd(fuzz_rng *r, uint64_t usual)
{
    static const uint64_t edges[] = { 0,           1,          2,
                                      3,           7,          8,
                                      9,           31,         32,
                                      63,          64,         65,
                                      127,         128,        255,
                                      256,         1000,       4095,
                                      4096,        65535,      65536,
                                      1u << 20,    0x7fffffff, 0x80000000u,
                                      0xffffffffu, 1ull << 32, 1ull << 40,
                                      1ull << 48,  1ull << 62, INT64_MAX,
                                      1ull << 63,  UINT64_MAX, UINT64_MAX - 1 };
    if (!fuzz_once_in(r, 12)) return usual;
    return fuzz_once_in(r, 4) ? fuzz_u64(r) >> fuzz_below(r, 64) : FUZZ_PICK(r, edges);
}

/* A few numbers of the finished input put to something else, at places where numbers are. */
static inline void fuzz_damage(fuzz_rng *r, mt_str *s, size_t alignment)
{
    size_t times = fuzz_once_in(r, 2) ? 0 : 1 + fuzz_below(r, 3);
    for (size_t i = 0; i < times && s->n >= alignment; i++) {
        size_t at = fuzz_below(r, s->n / alignment) * alignment;
        uint64_t x = fuzz_once_in(r, 2) ? fuzz_odd(r, fuzz_below(r, 64)) : fuzz_u64(r);
        for (size_t k = 0; k < alignment; k++) s->s[at + k] = (char)(x >> 8 * k & 0xff);
    }
}

#endif
