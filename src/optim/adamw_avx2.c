/* adamw_avx2.c - adamw_lanes.h, eight elements at a time. */
#include "base/cpuid.h"

#if MT_X86
#include "optim/adamw_lanes.h"

size_t mt__adamw_avx2(const mt_update_args *args) { return adamw_update(args); }
size_t mt__adamw_block_avx2(const mt_update_args *args, const mt_moments_chunk *block) { return update_block(args, block); }
#endif
