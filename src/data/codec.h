/* codec.h - the compressions that Parquet pages and Arrow buffers come in. */
#ifndef MT_DATA_CODEC_H
#define MT_DATA_CODEC_H

#include "base/mem.h"

typedef enum mt_codec {
    MT_CODEC_NONE,
    MT_CODEC_SNAPPY,
    MT_CODEC_GZIP,
    MT_CODEC_ZSTD,
    MT_CODEC_LZ4_RAW,    /* one block */
    MT_CODEC_LZ4_HADOOP, /* blocks with big-endian sizes before them, or one block, as old writers did */
    MT_CODEC_LZ4_FRAME,
    MT_CODEC_BROTLI,
} mt_codec;

/* Nothing that decompresses to more than this is touched: no real page or buffer is that large. */
enum { MT_CODEC_MAX_BYTES = 1 << 30 };

const char *mt__codec_name(mt_codec codec);

/* True if n bytes of this format can unpack to out_n.  Ask before allocating memory for them. */
bool mt__codec_can_unpack(mt_codec codec, size_t n, size_t out_n);

/* Exactly out_n bytes from in; fewer or more is a format error. */
mt_rc mt__decompress(mt_codec codec, const uint8_t *in, size_t n, uint8_t *out, size_t out_n, mt_err *err);

#endif
