/* Column values as text: dates, times and decimals at their edges; and the compressions they come in. */
#include "test.h"

#include "data/codec.h"
#include "data/scalar.h"

#include <lz4.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

static void int_becomes(const mt_scalar *t, int64_t v, const char *want)
{
    mt_arena a = { 0 };
    mt_str s = { 0 };
    mt_value out;
    assert_true(mt__scalar_from_int(&out, t, v, &a));
    mt_value_write_json(&s, &out);
    assert_string_equal(s.s, want);
    mt_str_free(&s);
    mt_arena_free(&a);
}

static void dates_and_times_are_iso_text(void **state)
{
    (void)state;
    mt_scalar date = { .kind = MT_SCALAR_DATE }, ms = { .kind = MT_SCALAR_DATE_MS };
    mt_scalar second = { .kind = MT_SCALAR_TIMESTAMP, .per_second = 1 };
    mt_scalar nano = { .kind = MT_SCALAR_TIMESTAMP, .per_second = 1000000000, .utc = true };
    mt_scalar clock = { .kind = MT_SCALAR_TIME, .per_second = 1000 };
    int_becomes(&date, 0, "\"1970-01-01\"");
    int_becomes(&date, 11016, "\"2000-02-29\"");
    int_becomes(&date, -25509, "\"1900-02-28\"");
    int_becomes(&date, -25508, "\"1900-03-01\"");
    int_becomes(&date, -719162, "\"0001-01-01\"");
    int_becomes(&date, INT64_MAX, "9223372036854775807"); /* not a date: the number */
    int_becomes(&ms, -1, "\"1969-12-31\"");
    int_becomes(&second, -1, "\"1969-12-31T23:59:59\"");
    int_becomes(&nano, 1, "\"1970-01-01T00:00:00.000000001+00:00\"");
    int_becomes(&nano, INT64_MIN, "\"1677-09-21T00:12:43.145224192+00:00\"");
    int_becomes(&nano, INT64_MAX, "\"2262-04-11T23:47:16.854775807+00:00\"");
    int_becomes(&second, INT64_MIN, "\"-292277022657-01-27T08:29:52\"");
    int_becomes(&clock, 86399999, "\"23:59:59.999000\"");
    int_becomes(&clock, -5, "-5");
}

static void decimals_keep_every_digit(void **state)
{
    (void)state;
    static const struct {
        int64_t v;
        int scale;
        const char *want;
    } cases[] = {
        { 0, 0, "\"0\"" },
        { 5, 2, "\"0.05\"" },
        { -5, 2, "\"-0.05\"" },
        { 1234, 2, "\"12.34\"" },
        { 100, 2, "\"1.00\"" },
        { 12, -3, "\"12000\"" },
        { 0, -3, "\"0\"" },
        { 7, 1, "\"0.7\"" },
        { INT64_MIN, 0, "\"-9223372036854775808\"" },
        { INT64_MAX, 18, "\"9.223372036854775807\"" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++)
        int_becomes(&(mt_scalar){ .kind = MT_SCALAR_DECIMAL, .scale = cases[i].scale }, cases[i].v, cases[i].want);
}

static void unsigned_past_63_bits_keeps_its_digits(void **state)
{
    (void)state;
    int_becomes(&(mt_scalar){ .kind = MT_SCALAR_UINT }, -1, "18446744073709551615");
    int_becomes(&(mt_scalar){ .kind = MT_SCALAR_UINT }, INT64_MAX, "9223372036854775807");
}

static void bytes_that_are_no_text_are_trouble(void **state)
{
    (void)state;
    mt_arena a = { 0 };
    mt_value out;
    const char *trouble = NULL;
    mt_scalar bytes = { .kind = MT_SCALAR_BYTES }, uuid = { .kind = MT_SCALAR_UUID };
    assert_true(mt__scalar_from_bytes(&out, &bytes, (const uint8_t *)"\xff", 1, false, &a, &trouble));
    assert_string_equal(trouble, "not valid UTF-8");
    assert_int_equal(out.type, MT_VALUE_NULL);
    assert_true(mt__scalar_from_bytes(&out, &uuid, (const uint8_t *)"0123456789abcdef", 16, false, &a, &trouble));
    assert_true(mt_value_is(&out, "30313233-3435-3637-3839-616263646566"));
    mt_arena_free(&a);
}

typedef struct packed {
    uint8_t bytes[4096];
    size_t n;
} packed;

static const char text[] = "a text that repeats, a text that repeats, a text that repeats, a text that repeats";

static void put_big_endian(uint8_t *p, size_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static packed pack(mt_codec codec)
{
    packed p = { .n = sizeof p.bytes };
    char *out = (char *)p.bytes;
    uLongf z_n = sizeof p.bytes;
    switch (codec) {
    case MT_CODEC_NONE: memcpy(out, text, p.n = sizeof text); break;
    case MT_CODEC_SNAPPY: assert_int_equal(snappy_compress(text, sizeof text, out, &p.n), SNAPPY_OK); break;
    case MT_CODEC_GZIP: assert_int_equal(compress(p.bytes, &z_n, (const Bytef *)text, sizeof text), Z_OK), p.n = z_n; break;
    case MT_CODEC_ZSTD: p.n = ZSTD_compress(out, sizeof p.bytes, text, sizeof text, 1); break;
    case MT_CODEC_LZ4_RAW: p.n = (size_t)LZ4_compress_default(text, out, sizeof text, sizeof p.bytes); break;
    case MT_CODEC_LZ4_HADOOP:
        p.n = 8 + (size_t)LZ4_compress_default(text, out + 8, sizeof text, sizeof p.bytes - 8);
        put_big_endian(p.bytes, sizeof text);
        put_big_endian(p.bytes + 4, p.n - 8);
        break;
    default: p.n = LZ4F_compressFrame(out, sizeof p.bytes, text, sizeof text, NULL);
    }
    return p;
}

static void unpacked_bytes_must_be_exactly_as_many_as_announced(void **state)
{
    (void)state;
    for (mt_codec codec = MT_CODEC_NONE; codec < MT_CODEC_BROTLI; codec++) {
        packed p = pack(codec);
        uint8_t out[sizeof text + 1];
        mt_err err = { 0 };
        assert_ok(mt__decompress(codec, p.bytes, p.n, out, sizeof text, &err));
        assert_memory_equal(out, text, sizeof text);
        assert_int_equal(mt__decompress(codec, p.bytes, p.n, out, sizeof text - 1, &err), MT_EFORMAT);
        assert_int_equal(mt__decompress(codec, p.bytes, p.n, out, sizeof text + 1, &err), MT_EFORMAT);
        assert_says(mt__codec_name(codec));
        for (size_t n = 0; n < p.n; n++) assert_int_equal(mt__decompress(codec, p.bytes, n, out, sizeof text, &err), MT_EFORMAT);
    }
    mt_err err = { 0 };
    assert_int_equal(mt__decompress(MT_CODEC_ZSTD, (const uint8_t *)"", 0, NULL, (size_t)2 << 30, &err), MT_EFORMAT);
    assert_says("at most");
}

MT_TEST_MAIN(cmocka_unit_test(dates_and_times_are_iso_text), cmocka_unit_test(decimals_keep_every_digit),
             cmocka_unit_test(unsigned_past_63_bits_keeps_its_digits), cmocka_unit_test(bytes_that_are_no_text_are_trouble),
             cmocka_unit_test(unpacked_bytes_must_be_exactly_as_many_as_announced))
