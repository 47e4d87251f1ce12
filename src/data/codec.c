#include "data/codec.h"

#include <lz4.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#ifdef MT_HAVE_BROTLI
#include <brotli/decode.h>
#endif

const char *mt__codec_name(mt_codec codec)
{
    static const char *const names[] = { "uncompressed", "snappy", "gzip", "zstd", "lz4", "lz4", "lz4", "brotli" };
    return names[codec];
}

/* The most that one byte can stand for: snappy copies 64 bytes with 3, deflate 258 with 2 bits, zstd a block of 128 KiB with 4,
 * LZ4 255 with each, brotli a window of 16 MiB. */
bool mt__codec_can_unpack(mt_codec codec, size_t n, size_t out_n)
{
    static const size_t most[] = { 1, 22, 1032, 32768, 255, 255, 255, 16 << 20 };
    size_t reach;
    return !mt_mul_size(n, most[codec], &reach) || out_n <= reach || out_n - reach <= 64;
}

static bool copy_exact(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    if (n != out_n) return false;
    if (n) memcpy(out, in, n);
    return true;
}

static bool unsnappy(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    size_t got;
    if (snappy_uncompressed_length((const char *)in, n, &got) != SNAPPY_OK || got != out_n) return false;
    return snappy_uncompress((const char *)in, n, (char *)out, &got) == SNAPPY_OK && got == out_n;
}

/* gzip or zlib, by the header; several members may follow each other. */
static bool ungzip(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    z_stream z = { .next_in = (Bytef *)(uintptr_t)in, .avail_in = (uInt)n, .next_out = out, .avail_out = (uInt)out_n };
    if (inflateInit2(&z, 15 + 32) != Z_OK) return false;
    int rc = inflate(&z, Z_FINISH);
    while (rc == Z_STREAM_END && z.avail_in && z.avail_out && inflateReset(&z) == Z_OK) rc = inflate(&z, Z_FINISH);
    bool ok = rc == Z_STREAM_END && z.avail_out == 0;
    inflateEnd(&z);
    return ok;
}

static bool unzstd(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    size_t got = ZSTD_decompress(out, out_n, in, n);
    return !ZSTD_isError(got) && got == out_n;
}

static bool unlz4_raw(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    return LZ4_decompress_safe((const char *)in, (char *)out, (int)n, (int)out_n) == (int)out_n;
}

static uint32_t big_endian(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

static bool unlz4_hadoop_blocks(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    while (n >= 8) {
        size_t whole = big_endian(in), packed = big_endian(in + 4);
        if (packed > n - 8 || whole > out_n || !unlz4_raw(in + 8, packed, out, whole)) return false;
        in += 8 + packed, n -= 8 + packed;
        out += whole, out_n -= whole;
    }
    return n == 0 && out_n == 0;
}

static bool unlz4_hadoop(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    return unlz4_hadoop_blocks(in, n, out, out_n) || unlz4_raw(in, n, out, out_n);
}

static bool unlz4_frame(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    LZ4F_dctx *ctx = NULL;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&ctx, LZ4F_VERSION))) return false;
    size_t got = 0, used = 0, left = 1;
    while (left != 0 && used < n) {
        size_t room = out_n - got, chunk = n - used;
        left = LZ4F_decompress(ctx, out + got, &room, in + used, &chunk, NULL);
        if (LZ4F_isError(left) || (room == 0 && chunk == 0)) break;
        got += room;
        used += chunk;
    }
    LZ4F_freeDecompressionContext(ctx);
    return left == 0 && got == out_n;
}

static bool unbrotli(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
#ifdef MT_HAVE_BROTLI
    size_t got = out_n;
    return BrotliDecoderDecompress(n, in, &got, out) == BROTLI_DECODER_RESULT_SUCCESS && got == out_n;
#else
    (void)in, (void)n, (void)out, (void)out_n;
    return false;
#endif
}

mt_rc mt__decompress(mt_codec codec, const uint8_t *in, size_t n, uint8_t *out, size_t out_n, mt_err *err)
{
    static bool (*const decoders[])(const uint8_t *, size_t, uint8_t *, size_t) = {
        copy_exact, unsnappy, ungzip, unzstd, unlz4_raw, unlz4_hadoop, unlz4_frame, unbrotli,
    };
#ifndef MT_HAVE_BROTLI
    if (codec == MT_CODEC_BROTLI)
        return mt_fail(err, MT_EUNSUPPORTED, "compressed with brotli, and this program was built without libbrotlidec");
#endif
    if (n > INT32_MAX || out_n > MT_CODEC_MAX_BYTES)
        return mt_fail(err, MT_EFORMAT, "%zu bytes that unpack to %zu; at most %d are allowed", n, out_n, MT_CODEC_MAX_BYTES);
    if (decoders[codec](in, n, out, out_n)) return MT_OK;
    return mt_fail(err, MT_EFORMAT, "%s data is damaged (%zu bytes that should unpack to %zu)", mt__codec_name(codec), n, out_n);
}
