/* A master weight and its halves (docs/invariants.md, A1): every low half beside upper halves of every exponent. */
#include "test.h"

#include "base/split.h"

#include <math.h>

/* Is hi as near to x as a bf16 can be? */
static bool nearest(float x, uint16_t hi)
{
    double off = fabs((double)x - (double)mt_join(hi, 0));
    for (int step = -1; step <= 1; step += 2) {
        uint16_t beside = (uint16_t)(hi + step);
        if ((beside & 0x7f80) == 0x7f80 || (beside ^ hi) & 0x8000) continue; /* infinity, or across zero */
        if (fabs((double)x - (double)mt_join(beside, 0)) < off) return false;
    }
    return true;
}

static void check(uint32_t bits)
{
    float x = mt_f32_from_bits(bits);
    uint16_t hi;
    int16_t lo;
    if (!mt_split_ok(x)) return;
    mt_split(x, &hi, &lo);
    if (mt_f32_bits(mt_join(hi, lo)) != bits) fail_msg("%08x joins to %08x", bits, mt_f32_bits(mt_join(hi, lo)));
    if (!nearest(x, hi)) fail_msg("of %08x hi is %04x, which is not the nearest", bits, hi);
    if (mt_split_check(&hi, &lo, 1) != 1) fail_msg("the halves of %08x are taken for damage", bits);
}

static void every_low_half_joins_to_what_it_was(void **state)
{
    (void)state;
    static const uint32_t mantissas[] = { 0x00, 0x55, 0x7f };
    for (uint32_t sign = 0; sign <= 1; sign++)
        for (uint32_t exponent = 0; exponent < 255; exponent += exponent < 4 || exponent > 250 ? 1 : 7)
            for (size_t m = 0; m < MT_COUNT(mantissas); m++)
                for (uint32_t low = 0; low <= 0xffff; low++) check(sign << 31 | exponent << 23 | mantissas[m] << 16 | low);
}

static void what_has_no_finite_upper_half_is_refused(void **state)
{
    (void)state;
    for (uint32_t low = 0; low <= 0xffff; low++) {
        bool finite = ((0x7f7f0000 + low + 0x8000) >> 16) == 0x7f7f;
        assert_int_equal(mt_split_ok(mt_f32_from_bits(0x7f7f0000 | low)), finite);
        assert_int_equal(mt_split_ok(mt_f32_from_bits(0xff7f0000 | low)), finite);
        assert_false(mt_split_ok(mt_f32_from_bits(0x7f800000 | low)));
        assert_false(mt_split_ok(mt_f32_from_bits(0xffc00000 | low)));
    }
}

static void arrays_join_to_what_they_were_and_say_where_they_are_damaged(void **state)
{
    (void)state;
    enum { N = 4 };
    const float x[N] = { 1.0f, -0.1f, 0x1p-149f, 2.0f };
    uint16_t hi[N];
    int16_t lo[N];
    float back[N];
    for (int i = 0; i < N; i++) mt_split(x[i], &hi[i], &lo[i]);
    mt_join_array(back, hi, lo, N);
    assert_memory_equal(back, x, sizeof back);
    assert_int_equal(mt_split_check(hi, lo, N), N);
    hi[2] = 0x7f80; /* infinity */
    assert_int_equal(mt_split_check(hi, lo, N), 2);
}

MT_TEST_MAIN(cmocka_unit_test(every_low_half_joins_to_what_it_was), cmocka_unit_test(what_has_no_finite_upper_half_is_refused),
             cmocka_unit_test(arrays_join_to_what_they_were_and_say_where_they_are_damaged))
