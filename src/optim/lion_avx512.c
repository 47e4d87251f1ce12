/* lion_avx512.c - lion_lanes.h, sixteen elements at a time. */
#include "base/cpuid.h"

#if MT_X86
#include "optim/lion_lanes.h"

size_t mt__lion_avx512(const mt_update_args *args) { return lion_update(args); }
size_t mt__lion_block_avx512(const mt_update_args *args, const mt_moments_chunk *block) { return update_block(args, block); }
#endif
