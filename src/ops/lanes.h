/* lanes.h - names for the vector registers of a file that is compiled for AVX-512 or for AVX2, so that code over them is written
 * once.
 *
 *     LANES, floats, ints            elements of a register, and the two kinds of it
 *     ALL(x), ALL_INTS(x), COUNTED   a register full of x; of 0, 1, 2 ...
 *     ADD SUB MUL DIV SQRT           of floats
 *     INT_ADD INT_SUB INT_MUL        of ints: the low half of a product
 *     INT_AND INT_OR INT_XOR         of ints; SHIFT_LEFT(x, n), SHIFT_RIGHT(x, n): by a constant, zeros come in
 *     INT_MAX_OF, INT_MIN_OF         of two ints, without a sign; largest_of(): of all lanes
 *     LOAD, STORE                    floats in memory
 *     WIDE_U, WIDE_S, WIDE_BYTES     16-bit ones and bytes, widened; narrow(), narrow_to_bytes(): the low parts, stored
 *     AS_INTS, AS_FLOATS             the same bits; TO_INTS (cut), TO_FLOATS: the same numbers
 *     lanes, AT_LEAST(x, limit)      one bit or mask a lane: x, without a sign bit, is limit or more; BELOW(x, y): less than y
 *     SELECT(lanes, a, b), EITHER    a where a lane is set, else b; set in one of two
 *     COUNT(lanes), ANY(lanes)       how many are set, whether one is */
#ifndef MT_OPS_LANES_H
#define MT_OPS_LANES_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __AVX512F__

enum { LANES = 16 };
typedef __m512 floats;
typedef __m512i ints;
typedef __mmask16 lanes;

#define ALL                _mm512_set1_ps
#define ALL_INTS(x)        _mm512_set1_epi32((int)(x))
#define COUNTED            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define ADD                _mm512_add_ps
#define SUB                _mm512_sub_ps
#define MUL                _mm512_mul_ps
#define DIV                _mm512_div_ps
#define SQRT               _mm512_sqrt_ps
#define INT_ADD            _mm512_add_epi32
#define INT_SUB            _mm512_sub_epi32
#define INT_MUL            _mm512_mullo_epi32
#define INT_AND            _mm512_and_si512
#define INT_OR             _mm512_or_si512
#define INT_XOR            _mm512_xor_si512
#define SHIFT_LEFT         _mm512_slli_epi32
#define SHIFT_RIGHT        _mm512_srli_epi32
#define INT_MAX_OF         _mm512_max_epu32
#define INT_MIN_OF         _mm512_min_epu32
#define LOAD               _mm512_loadu_ps
#define STORE              _mm512_storeu_ps
#define WIDE_U(p)          _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(p)))
#define WIDE_S(p)          _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)(p)))
#define WIDE_BYTES(p)      _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(p)))
#define AS_INTS            _mm512_castps_si512
#define AS_FLOATS          _mm512_castsi512_ps
#define TO_INTS            _mm512_cvttps_epi32
#define TO_FLOATS          _mm512_cvtepi32_ps
#define AT_LEAST(x, limit) _mm512_cmpge_epi32_mask(x, ALL_INTS(limit))
#define BELOW(x, y)        _mm512_cmplt_epi32_mask(x, y)
#define SELECT(at, a, b)   _mm512_mask_mov_epi32(b, at, a)
#define EITHER(a, b)       (lanes)((a) | (b))
#define COUNT(at)          (size_t) __builtin_popcount((unsigned)(at))
#define ANY(at)            ((at) != 0)

static inline void narrow(void *dst, ints x) { _mm256_storeu_si256(dst, _mm512_cvtepi32_epi16(x)); } /* keeps the low half */
static inline void narrow_to_bytes(void *dst, ints x) { _mm_storeu_si128(dst, _mm512_cvtepi32_epi8(x)); }
static inline uint32_t largest_of(ints x) { return _mm512_reduce_max_epu32(x); }

#else

enum { LANES = 8 };
typedef __m256 floats;
typedef __m256i ints, lanes; /* lanes: all ones where set */

#define ALL                _mm256_set1_ps
#define ALL_INTS(x)        _mm256_set1_epi32((int)(x))
#define COUNTED            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
#define ADD                _mm256_add_ps
#define SUB                _mm256_sub_ps
#define MUL                _mm256_mul_ps
#define DIV                _mm256_div_ps
#define SQRT               _mm256_sqrt_ps
#define INT_ADD            _mm256_add_epi32
#define INT_SUB            _mm256_sub_epi32
#define INT_MUL            _mm256_mullo_epi32
#define INT_AND            _mm256_and_si256
#define INT_OR             _mm256_or_si256
#define INT_XOR            _mm256_xor_si256
#define SHIFT_LEFT         _mm256_slli_epi32
#define SHIFT_RIGHT        _mm256_srli_epi32
#define INT_MAX_OF         _mm256_max_epu32
#define INT_MIN_OF         _mm256_min_epu32
#define LOAD               _mm256_loadu_ps
#define STORE              _mm256_storeu_ps
#define WIDE_U(p)          _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p)))
#define WIDE_S(p)          _mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)(p)))
#define WIDE_BYTES(p)      _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p)))
#define AS_INTS            _mm256_castps_si256
#define AS_FLOATS          _mm256_castsi256_ps
#define TO_INTS            _mm256_cvttps_epi32
#define TO_FLOATS          _mm256_cvtepi32_ps
#define AT_LEAST(x, limit) _mm256_cmpgt_epi32(x, ALL_INTS((limit)-1)) /* signed, and so are magnitudes without a sign bit */
#define BELOW(x, y)        _mm256_cmpgt_epi32(y, x)
#define SELECT(at, a, b)   _mm256_blendv_epi8(b, a, at)
#define EITHER             _mm256_or_si256
#define COUNT(at)          (size_t) __builtin_popcount((unsigned)_mm256_movemask_ps(AS_FLOATS(at)))
#define ANY(at)            (_mm256_movemask_epi8(at) != 0)

/* Packing saturates, so only the low part may be there. */
static inline __m128i halves(ints x) { return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)); }
static inline void narrow(void *dst, ints x) { _mm_storeu_si128(dst, halves(INT_AND(x, ALL_INTS(0xffff)))); }
static inline void narrow_to_bytes(void *dst, ints x)
{
    __m128i h = halves(INT_AND(x, ALL_INTS(0xff)));
    _mm_storel_epi64(dst, _mm_packus_epi16(h, h));
}

static inline uint32_t largest_of(ints x)
{
    __m128i y = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(y);
}

#endif
#endif
