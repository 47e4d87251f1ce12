/* The forms of packed weights: their small floats are those that files are read with, their sizes are what memory.md says, and NF4
 * is bitsandbytes'. */
#include "test.h"

#include "base/mem.h"
#include "ops/forms.h"

#include <math.h>
#include <string.h>

static bool same(float a, float b) { return mt_f32_bits(a) == mt_f32_bits(b) || (isnan(a) && isnan(b)); }

static void small_floats_are_those_of_files(void **state)
{
    (void)state;
    float x;
    for (uint32_t code = 0; code < 256; code++) {
        const uint8_t byte = (uint8_t)code;
        mt_to_f32(&x, &byte, MT_DTYPE_F8_E4M3, 1);
        assert_true(same(x, mt_form_e4m3(code)));
        mt_to_f32(&x, &byte, MT_DTYPE_F8_E5M2, 1);
        assert_true(same(x, mt_form_e5m2(code)));
        assert_true(same(mt_form_e8m0(code), code == 255 ? NAN : ldexpf(1, (int)code - 127)));
    }
    for (uint32_t half = 0; half < 65536; half++) assert_true(same(mt_f16_to_f32((uint16_t)half), mt_form_f16(half)));
}

/* One block of eight numbers: 0.5, -0.25, 0.1, -2, 1, 0, 1.5, -0.7 as bitsandbytes quantizes them. */
static void nf4_is_that_of_bitsandbytes(void **state)
{
    (void)state;
    static const float expected[8] = { 0.4922246f, -0.1821001f, 0.1591606f, -2, 0.8814197f, 0, 1.4459137f, -0.7898350f };
    const mt_packing as = { MT_FORM_NF4, 1, 8, 8, 1, false };
    _Alignas(MT_FORM_ALIGN) uint8_t bytes[64] = { 0xa6, 0x80, 0xc7, 0xe3 };
    float x[8];
    assert_true(mt_packing_is_possible(&as) && mt_packing_bytes(&as) <= sizeof bytes);
    memcpy(bytes + mt_packing_places(&as).scales, &(float){ 2 }, sizeof(float));
    const mt_packed p = mt_packed_at(&as, bytes);
    mt_packed_read(&p, 0, 8, x);
    for (int i = 0; i < 8; i++) assert_true(fabsf(x[i] - expected[i]) < 5e-7f);
}

static void a_form_takes_what_the_docs_say(void **state)
{
    (void)state;
    static const struct {
        mt_packing as;
        double bytes; /* a number */
    } cases[] = {
        { { MT_FORM_NUMBERS, 4096, 4096, 0, 0, false }, 0 },
        { { MT_FORM_F8_E4M3, 4096, 4096, 128, 128, false }, 1 + 4.0 / 16384 },
        { { MT_FORM_MXFP4, 4096, 4096, 32, 1, false }, 0.5 + 1.0 / 32 },
        { { MT_FORM_NF4, 4096, 4096, 64, 1, false }, 0.5 + 4.0 / 64 },
        { { MT_FORM_NF4_NESTED, 4096, 4096, 64, 1, false }, 0.5 + 1.0 / 64 + 4.0 / 16384 },
        { { MT_FORM_INT4, 4096, 4096, 128, 1, false }, 0.5 + 3.0 / 128 },
        { { MT_FORM_Q8_0, 4096, 4096, 32, 1, false }, 34.0 / 32 },
        { { MT_FORM_Q4_K, 4096, 4096, 256, 1, false }, 144.0 / 256 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        const double n = 4096.0 * 4096, bytes = (double)mt_packing_bytes(&cases[i].as);
        if (fabs(bytes / n - cases[i].bytes) > 1e-4)
            fail_msg("%s: %.4f bytes a number, expected %.4f", mt_form_name(cases[i].as.form), bytes / n, cases[i].bytes);
    }
}

static void what_cuts_a_block_is_not_packed(void **state)
{
    (void)state;
    static const mt_packing impossible[] = { { MT_FORM_MXFP4, 4, 48, 32, 1, false },      { MT_FORM_NF4, 4, 96, 64, 1, false },
                                             { MT_FORM_INT4, 4, 36, 12, 1, false },       { MT_FORM_Q4_K, 4, 128, 256, 1, false },
                                             { MT_FORM_Q8_0, 4, 40, 32, 1, false },       { MT_FORM_INT4, 4, 64, 32, 2, false },
                                             { MT_FORM_F8_E4M3, 0, 128, 128, 128, false } };
    for (size_t i = 0; i < MT_COUNT(impossible); i++) assert_false(mt_packing_is_possible(&impossible[i]));
}

MT_TEST_MAIN(cmocka_unit_test(small_floats_are_those_of_files), cmocka_unit_test(nf4_is_that_of_bitsandbytes),
             cmocka_unit_test(a_form_takes_what_the_docs_say), cmocka_unit_test(what_cuts_a_block_is_not_packed))
