/* moments_avx512.c - the chunks of moments.h, compiled for this instruction set. */
#include "ops/moments_lanes.h"

void mt__moments_load_avx512(const mt_moments_chunk *c) { moments_load(c); }
void mt__moments_store_avx512(const mt_moments_chunk *c) { moments_store(c); }
