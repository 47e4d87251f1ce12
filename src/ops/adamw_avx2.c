/* adamw_avx2.c - the lanes of adamw_lanes.h: eight. */
#include "base/cpuid.h"

#if MT_X86
#include <immintrin.h>

enum { LANES = 8 };
typedef __m256 floats;
typedef __m256i ints, lanes; /* lanes: all ones where set */

#define ALL                _mm256_set1_ps
#define ALL_INTS(x)        _mm256_set1_epi32((int)(x))
#define ADD                _mm256_add_ps
#define SUB                _mm256_sub_ps
#define MUL                _mm256_mul_ps
#define DIV                _mm256_div_ps
#define SQRT               _mm256_sqrt_ps
#define INT_ADD            _mm256_add_epi32
#define INT_AND            _mm256_and_si256
#define SHIFT_UP(x)        _mm256_slli_epi32(x, 16)
#define SHIFT_DOWN(x)      _mm256_srli_epi32(x, 16)
#define LOAD               _mm256_loadu_ps
#define STORE              _mm256_storeu_ps
#define WIDE_U(p)          _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p)))
#define WIDE_S(p)          _mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)(p)))
#define AS_INTS            _mm256_castps_si256
#define AS_FLOATS          _mm256_castsi256_ps
#define AT_LEAST(x, limit) _mm256_cmpgt_epi32(x, ALL_INTS((limit)-1)) /* signed, and so are magnitudes without a sign bit */
#define SELECT(at, a, b)   _mm256_blendv_epi8(b, a, at)
#define EITHER             _mm256_or_si256
#define COUNT(at)          (size_t) __builtin_popcount((unsigned)_mm256_movemask_ps(AS_FLOATS(at)))

static inline void narrow(void *dst, ints x)
{
    x = INT_AND(x, ALL_INTS(0xffff)); /* packing saturates */
    _mm_storeu_si128(dst, _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}

#include "ops/adamw_lanes.h"

size_t mt__adamw_avx2(const mt_adamw_args *args) { return adamw_update(args); }
#endif
