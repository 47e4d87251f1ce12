#include "hub/sha_shani.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

bool mt__sha256_has_fast(void)
{
    unsigned a, b, c, d;
    static const unsigned sha = 1u << 29; /* of leaf 7, ebx */
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & sha) && __builtin_cpu_supports("sse4.1");
}

/* The instructions keep the state as (a, b, e, f) and (c, d, g, h), and make four rounds of every four words of the schedule. */
static void one_block(__m128i *abef, __m128i *cdgh, const uint8_t *p)
{
    const __m128i swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    __m128i w[4], x = *abef, y = *cdgh;
    for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)), swap);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        __m128i *now = &w[i % 4], next = w[(i + 3) % 4];
        __m128i sum = _mm_add_epi32(*now, _mm_loadu_si128((const __m128i *)(const void *)(mt__sha256_k + 4 * i)));
        y = _mm_sha256rnds2_epu32(y, x, sum);
        x = _mm_sha256rnds2_epu32(x, y, _mm_shuffle_epi32(sum, 0x0e));
        if (i >= 12) continue;
        __m128i old = _mm_sha256msg1_epu32(*now, w[(i + 1) % 4]);
        *now = _mm_sha256msg2_epu32(_mm_add_epi32(old, _mm_alignr_epi8(next, w[(i + 2) % 4], 4)), next);
    }
    *abef = _mm_add_epi32(*abef, x);
    *cdgh = _mm_add_epi32(*cdgh, y);
}

void mt__sha256_blocks_fast(uint32_t state[8], const uint8_t *p, size_t n)
{
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)state),
            high = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    low = _mm_shuffle_epi32(low, 0xb1);
    high = _mm_shuffle_epi32(high, 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
    for (; n; n--, p += 64) one_block(&abef, &cdgh, p);
    low = _mm_shuffle_epi32(abef, 0x1b);
    high = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

#else

bool mt__sha256_has_fast(void) { return false; }

void mt__sha256_blocks_fast(uint32_t state[8], const uint8_t *p, size_t n) { (void)state, (void)p, (void)n; }

#endif
