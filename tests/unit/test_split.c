/* hi and lo: the pair is the float, for every float whose bf16 is finite, and the others are refused. */
#include "test.h"

#include "base/rng.h"
#include "base/split.h"

#include <math.h>

/* Upper halves of magnitudes worth all of their 2^16 low halves: zero and denormals, the first normals, around one,
 * the largest finite ones, and a sample of everything between. */
static size_t sampled_high_halves(uint16_t *out)
{
    static const uint16_t edges[] = { 0x0000, 0x0001, 0x0002, 0x003f, 0x007e, 0x007f, 0x0080, 0x0081, 0x00ff, 0x0100,
                                      0x3f7f, 0x3f80, 0x3f81, 0x3fff, 0x4000, 0x7eff, 0x7f00, 0x7f7d, 0x7f7e, 0x7f7f };
    size_t n = 0;
    for (size_t i = 0; i < MT_COUNT(edges); i++) out[n++] = edges[i];
    for (size_t i = 0; i < 60; i++) out[n++] = (uint16_t)mt_rng_below(1, 0, i, 0x7f80);
    for (size_t i = 0, m = n; i < m; i++) out[n++] = out[i] | 0x8000;
    return n;
}

static void every_low_half_makes_the_round_trip(void **state)
{
    (void)state;
    uint16_t tops[256];
    size_t n = sampled_high_halves(tops), wrong = 0;
    for (size_t t = 0; t < n; t++) {
        for (uint32_t low = 0; low < 0x10000; low++) {
            uint32_t bits = (uint32_t)tops[t] << 16 | low;
            float x = mt_f32_from_bits(bits);
            uint16_t hi;
            int16_t lo;
            if (!mt_split_ok(x)) {
                wrong += (tops[t] & 0x7fff) != 0x7f7f || low < 0x8000; /* only what would round to infinity */
                continue;
            }
            mt_split(x, &hi, &lo);
            wrong += mt_f32_bits(mt_join(hi, lo)) != bits;
            wrong += (int64_t)((uint64_t)hi << 16) + lo != bits; /* as integers, without wrapping */
            wrong += (hi & 0x7f80) == 0x7f80;
            wrong += fabsf(mt_bf16_to_f32(hi) - x) > fabsf(mt_bf16_to_f32(mt_f32_to_bf16(x)) - x); /* as near as bf16 gets */
            wrong += mt_split_check(&hi, &lo, 1) != 1;
        }
    }
    assert_int_equal(wrong, 0);
}

static void halves_round_away_from_zero(void **state)
{
    (void)state;
    uint16_t hi;
    int16_t lo;
    mt_split(mt_f32_from_bits(0x3f808000), &hi, &lo);
    assert_int_equal(hi, 0x3f81);
    assert_int_equal(lo, -32768);
    mt_split(mt_f32_from_bits(0xbf808000), &hi, &lo);
    assert_int_equal(hi, 0xbf81);
    mt_split(mt_f32_from_bits(0x3f807fff), &hi, &lo);
    assert_int_equal(hi, 0x3f80);
    assert_int_equal(lo, 32767);
}

static void values_without_a_finite_half_are_named(void **state)
{
    (void)state;
    static const uint32_t bad[] = { 0x7f7f8000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff,
                                    0xff7f8000, 0xff7fffff, 0xff800000, 0xffc00000, 0xffffffff };
    enum { N = 1000 };
    static float x[N], back[N];
    static uint16_t hi[N];
    static int16_t lo[N];
    for (size_t i = 0; i < N; i++) x[i] = mt_rng_normal(2, 0, i);
    assert_int_equal(mt_split_array(hi, lo, x, N), N);
    mt_join_array(back, hi, lo, N);
    assert_memory_equal(back, x, sizeof x);
    assert_int_equal(mt_split_array(hi, lo, x, 0), 0);
    for (size_t b = 0; b < MT_COUNT(bad); b++) {
        size_t at = (b * 331 + 5) % N;
        float keep = x[at];
        x[at] = mt_f32_from_bits(bad[b]);
        assert_int_equal(mt_split_array(hi, lo, x, N), at);
        x[at] = keep;
    }
    x[0] = mt_f32_from_bits(0x7f7f7fff); /* the largest that can be */
    x[1] = -x[0];
    assert_int_equal(mt_split_array(hi, lo, x, N), N);
    assert_int_equal(hi[0], 0x7f7f);
}

static void other_formats_become_halves_of_the_same_value(void **state)
{
    (void)state;
    enum { N = 600 };
    static float x[N], back[N];
    static uint16_t narrow[N], hi[N];
    static int16_t lo[N];
    for (size_t i = 0; i < N; i++) x[i] = mt_rng_normal(3, 0, i);
    static const mt_dtype types[] = { MT_DTYPE_BF16, MT_DTYPE_F16 };
    for (size_t t = 0; t < MT_COUNT(types); t++) {
        mt_from_f32(narrow, types[t], x, N);
        assert_int_equal(mt_split_from(hi, lo, narrow, types[t], N), N);
        mt_join_array(back, hi, lo, N);
        for (size_t i = 0; i < N; i++) {
            float want;
            mt_to_f32(&want, &narrow[i], types[t], 1);
            assert_int_equal(mt_f32_bits(back[i]), mt_f32_bits(want));
        }
        float inf = INFINITY;
        mt_from_f32(&narrow[577], types[t], &inf, 1);
        assert_int_equal(mt_split_from(hi, lo, narrow, types[t], N), 577);
    }
    assert_int_equal(mt_split_from(hi, lo, x, MT_DTYPE_F32, N), N);
    mt_join_array(back, hi, lo, N);
    assert_memory_equal(back, x, sizeof x);
}

static void pairs_no_split_can_make_are_found(void **state)
{
    (void)state;
    static const struct {
        uint16_t hi;
        int16_t lo;
        size_t good;
    } cases[] = {
        { 0x3f80, 5, 1 },  { 0x3f80, -32768, 1 }, { 0x0000, 0, 1 }, { 0x8000, 0, 1 },      { 0x7f7f, 32767, 1 },
        { 0x0000, -1, 0 }, { 0x8000, -1, 0 },     { 0x7f80, 0, 0 }, { 0x7f80, -32768, 0 }, { 0xffc0, 0, 0 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) assert_int_equal(mt_split_check(&cases[i].hi, &cases[i].lo, 1), cases[i].good);
}

MT_TEST_MAIN(cmocka_unit_test(every_low_half_makes_the_round_trip), cmocka_unit_test(halves_round_away_from_zero),
             cmocka_unit_test(values_without_a_finite_half_are_named),
             cmocka_unit_test(other_formats_become_halves_of_the_same_value), cmocka_unit_test(pairs_no_split_can_make_are_found))
