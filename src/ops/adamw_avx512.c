/* adamw_avx512.c - the lanes of adamw_lanes.h: sixteen. */
#include "base/cpuid.h"

#if MT_X86
#include <immintrin.h>

enum { LANES = 16 };
typedef __m512 floats;
typedef __m512i ints;
typedef __mmask16 lanes;

#define ALL                _mm512_set1_ps
#define ALL_INTS(x)        _mm512_set1_epi32((int)(x))
#define ADD                _mm512_add_ps
#define SUB                _mm512_sub_ps
#define MUL                _mm512_mul_ps
#define DIV                _mm512_div_ps
#define SQRT               _mm512_sqrt_ps
#define INT_ADD            _mm512_add_epi32
#define INT_AND            _mm512_and_si512
#define SHIFT_UP(x)        _mm512_slli_epi32(x, 16)
#define SHIFT_DOWN(x)      _mm512_srli_epi32(x, 16)
#define LOAD               _mm512_loadu_ps
#define STORE              _mm512_storeu_ps
#define WIDE_U(p)          _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(p)))
#define WIDE_S(p)          _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)(p)))
#define AS_INTS            _mm512_castps_si512
#define AS_FLOATS          _mm512_castsi512_ps
#define AT_LEAST(x, limit) _mm512_cmpge_epi32_mask(x, ALL_INTS(limit))
#define SELECT(at, a, b)   _mm512_mask_mov_epi32(b, at, a)
#define EITHER(a, b)       (lanes)((a) | (b))
#define COUNT(at)          (size_t) __builtin_popcount((unsigned)(at))

static inline void narrow(void *dst, ints x) { _mm256_storeu_si256(dst, _mm512_cvtepi32_epi16(x)); } /* keeps the low half */

#include "ops/adamw_lanes.h"

size_t mt__adamw_avx512(const mt_adamw_args *args) { return adamw_update(args); }
#endif
