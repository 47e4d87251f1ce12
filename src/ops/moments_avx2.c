/* moments_avx2.c - the chunks of moments.h, compiled for this instruction set. */
#include "ops/moments_lanes.h"

void mt__moments_load_avx2(const mt_moments_chunk *c) { moments_load(c); }
void mt__moments_store_avx2(const mt_moments_chunk *c) { moments_store(c); }
