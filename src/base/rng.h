/* rng.h - counter-based random numbers: the i-th number of a stream is a pure function of (seed, stream, i),
 * so any part of a run can be rebuilt alone, in any order, on any number of threads. */
#ifndef MT_BASE_RNG_H
#define MT_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

uint64_t mt_rng_u64(uint64_t seed, uint64_t stream, uint64_t i);
double mt_rng_uniform(uint64_t seed, uint64_t stream, uint64_t i);             /* [0, 1) */
float mt_rng_normal(uint64_t seed, uint64_t stream, uint64_t i);               /* mean 0, deviation 1 */
uint64_t mt_rng_below(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n); /* [0, n) */

/* A stable 64-bit hash, for turning names into streams and contents into keys. */
uint64_t mt_hash(const void *bytes, size_t n, uint64_t seed);

#endif
