/* tensor.h - one tensor of a checkpoint, in any kind of file.
 *
 * Most are plain: `data` points at n numbers of `dtype` in a mapped file.  Those that are not (quantized blocks, rows in
 * another order, strides) have no data but a decoder, and are read a piece at a time:
 *
 *     for (size_t at = 0; at < t->n; at += PIECE) mt_st_read(t, at, min(PIECE, t->n - at), buffer);
 *
 * mt_st_read reads both kinds, so callers that need numbers rather than bytes use it. */
#ifndef MT_CKPT_TENSOR_H
#define MT_CKPT_TENSOR_H

#include "base/dtype.h"
#include "base/file.h"
#include "ops/forms.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MT_ST_MAX_DIMS = 8 };

/* Bytes of a file. */
typedef struct mt_st_span {
    const mt_map *map; /* of the file */
    const uint8_t *from;
    size_t n;
} mt_st_span;

enum { MT_ST_SPANS = 3 }; /* numbers, their scales, and what belongs to those */

/* Rows of a tensor's matrix that are a weight's: its row r is row first + r / run * stride + r % run, counted over all matrices of
 * the tensor. */
typedef struct mt_st_rows {
    int64_t n, first, run, stride;
} mt_st_rows;
static inline int64_t mt_st_row(const mt_st_rows *rows, int64_t r)
{
    return rows->first + r / rows->run * rows->stride + r % rows->run;
}
/* Each follows the one before it. */
static inline bool mt_st_rows_follow(const mt_st_rows *rows) { return rows->run >= rows->n || rows->run == rows->stride; }

/* The first member of what a format needs to read its numbers. */
typedef struct mt_st_decoder mt_st_decoder;
typedef struct mt_st_tensor mt_st_tensor;
struct mt_st_decoder {
    void (*read)(const mt_st_decoder *d, size_t first, size_t n, float *out);
    /* As mt_st_spans, which sets a map that is left NULL. */
    int (*spans)(const mt_st_decoder *d, size_t first, size_t n, mt_st_span *out);
    bool scattered;        /* numbers in a row are far apart in the file: their spans have bytes of many others */
    const char *stored_as; /* "Q4_K", "F8_E4M3": precision was lost when the file was made; NULL: none was */
    /* As mt_st_read_every; NULL: number by number. */
    void (*read_every)(const mt_st_decoder *d, size_t first, size_t step, size_t n, float *out);
    /* True if a weight of these rows can stay packed (ops/forms.h): it then is a matrix [rows->n, columns].  NULL: none can. */
    bool (*packing)(const mt_st_decoder *d, const mt_st_rows *rows, mt_packing *out);
    /* Packs rows [from, from + n) of such a weight, whose packed bytes begin at `to`: whole tiles.  The part that all rows share comes
     * with row 0. */
    void (*pack)(const mt_st_decoder *d, const mt_st_rows *rows, const mt_packing *p, int64_t from, int64_t n, uint8_t *to);
    /* The plain tensors of the files that this one was made of, to be copied where it stays as it is; NULL: it was not quantized, or
     * in another kind of file. */
    const mt_st_tensor *const *parts;
    int n_parts;
    bool packs_columns; /* rows of its matrix are columns of the tensor */
};

struct mt_st_tensor {
    const char *name;
    const char *file; /* base name of the file it is in, for messages */
    mt_dtype dtype;   /* of the numbers; what a decoder makes of quantized ones is F32, or BF16 where that holds all of them */
    int n_dims;       /* 0: one number */
    int64_t shape[MT_ST_MAX_DIMS];
    size_t n;                     /* numbers in it */
    size_t bytes;                 /* in the file: n * mt_dtype_bytes(dtype) unless quantized */
    const uint8_t *data;          /* in the map, perhaps unaligned; NULL: use mt_st_read */
    const mt_map *map;            /* of the file; empty where its bytes are a caller's */
    const mt_st_decoder *decoder; /* where data is NULL */
};

/* Floats, or something that reads as floats: mt_st_read may be called. */
bool mt_st_is_float(const mt_st_tensor *t);
/* Numbers first .. first + n as fp32; the range must be inside the tensor.  Any number of threads. */
void mt_st_read(const mt_st_tensor *t, size_t first, size_t n, float *out);
/* The bytes of numbers first .. first + n of a tensor that has data. */
mt_st_span mt_st_plain_span(const mt_st_tensor *t, size_t first, size_t n);
/* The bytes that numbers first .. first + n are read from, in a file or two; returns the number of spans. */
int mt_st_spans(const mt_st_tensor *t, size_t first, size_t n, mt_st_span out[MT_ST_SPANS]);
/* n numbers, `step` apart, from `first` on. */
void mt_st_read_every(const mt_st_tensor *t, size_t first, size_t step, size_t n, float *out);
/* The same numbers in the same dtype and shape. */
bool mt_st_same(const mt_st_tensor *a, const mt_st_tensor *b);
/* "BF16", "Q4_K". */
const char *mt_st_stored_as(const mt_st_tensor *t);

/* "[4096, 1024]" for messages. */
typedef struct mt_shape_text {
    char s[192];
} mt_shape_text;
mt_shape_text mt_st_shape_text(int n_dims, const int64_t *shape);

/* Numbers and bytes of a shape; false when it has too many dimensions, a negative one, or does not fit. */
bool mt_st_size(mt_dtype dtype, int n_dims, const int64_t *shape, size_t *n, size_t *bytes);

#endif
