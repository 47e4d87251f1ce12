/* hash.h - hashing for tables that live as long as the process.
 *
 * The keys of our tables come from files of strangers.  If the hash is known, a stranger can choose keys that collide, and
 * the table becomes a list.  Each process draws the key of this hash at random on first use.  The values differ from run
 * to run: code that stores a hash in a file or lets it decide a result uses mt_hash (base/rng.h).  No code may walk a table
 * in the order of its slots. */
#ifndef MT_BASE_HASH_H
#define MT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t mt_hash_keyed(const void *bytes, size_t n);

/* A random odd number, the same for the whole process: x * factor >> (64 - bits) hashes an integer to `bits` bits. */
uint64_t mt_hash_factor(void);

#endif
