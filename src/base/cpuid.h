/* cpuid.h - which instruction sets this CPU and its operating system offer, as cmake/simd.cmake groups them: a file named
 * *_avx2.c or *_avx512.c may be called only after the function here says so. */
#ifndef MT_BASE_CPUID_H
#define MT_BASE_CPUID_H

#include <stdbool.h>

#if defined(__x86_64__)
#define MT_X86 1

/* f16c is not checked: every CPU with avx2 has it, and clang's builtin does not know the name. */
static inline bool mt_cpu_has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

static inline bool mt_cpu_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && mt_cpu_has_avx2();
}
#else
#define MT_X86 0
#endif

static inline bool mt_cpu_has_c(void) { return true; }

#endif
