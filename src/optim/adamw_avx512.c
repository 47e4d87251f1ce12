/* adamw_avx512.c - adamw_lanes.h, sixteen elements at a time. */
#include "base/cpuid.h"

#if MT_X86
#include "optim/adamw_lanes.h"

size_t mt__adamw_avx512(const mt_update_args *args) { return adamw_update(args); }
size_t mt__adamw_block_avx512(const mt_update_args *args, const mt_moments_chunk *block) { return update_block(args, block); }
#endif
