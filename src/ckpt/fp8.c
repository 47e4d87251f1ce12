#include "ckpt/fp8.h"

#include "base/file.h"
#include "base/json.h"

#include <math.h>

enum { DEFAULT_BLOCK = 128 };

typedef struct scaled {
    mt_st_decoder base;
    const mt_st_tensor *weight, *scale; /* side by side: they are its parts */
    size_t R, C;                        /* rows and columns of one matrix; dimensions before them count matrices */
    size_t rows, columns;               /* of a block */
    size_t grid_rows, grid_columns;
} scaled;

size_t mt__fp8_base(const char *scale_name)
{
    static const char *const tails[] = { "_scale_inv", "_scale" };
    size_t n = strlen(scale_name);
    for (size_t i = 0; i < MT_COUNT(tails); i++) {
        size_t k = strlen(tails[i]);
        if (n > k && strcmp(scale_name + n - k, tails[i]) == 0) return n - k;
    }
    return 0;
}

mt_rc mt__fp8_block_size(mt__fp8_block *out, const char *config_path, mt_err *err)
{
    const mt_value *config;
    *out = (mt__fp8_block){ DEFAULT_BLOCK, DEFAULT_BLOCK };
    if (!mt_file_exists(config_path)) return MT_OK;
    MT_TRY(mt_json_read(&config, config_path, err));
    const mt_value *size = mt_value_get(mt_value_get(config, "quantization_config"), "weight_block_size");
    mt_rc rc = MT_OK;
    if (!mt_json_missing(size)) {
        *out = (mt__fp8_block){ mt_value_int(mt_value_at(size, 0)), mt_value_int(mt_value_at(size, 1)) };
        if (mt_value_items(size) != 2 || out->rows < 1 || out->columns < 1)
            rc = mt_fail(err, MT_EFORMAT, "%s: quantization_config.weight_block_size should be two sizes", config_path);
    }
    mt_json_free(config);
    return rc;
}

static float scale_at(const mt_st_tensor *scale, size_t i)
{
    float s;
    if (scale->dtype == MT_DTYPE_U8) return scale->data[i] == 255 ? NAN : ldexpf(1, scale->data[i] - 127);
    mt_st_read(scale, i, 1, &s);
    return s;
}

/* The scale of a number. */
static size_t scale_of(const scaled *q, size_t row, size_t column)
{
    const size_t grid_row = row / q->R * q->grid_rows + row % q->R / q->rows;
    return grid_row * q->grid_columns + column / q->columns;
}

static void read_scaled(const mt_st_decoder *d, size_t first, size_t n, float *out)
{
    const scaled *q = (const scaled *)d;
    mt_st_read(q->weight, first, n, out);
    while (n) { /* as far as one scale reaches */
        size_t row = first / q->C, column = first % q->C;
        size_t stop = (column / q->columns + 1) * q->columns;
        size_t some = (stop < q->C ? stop : q->C) - column;
        if (some > n) some = n;
        float s = scale_at(q->scale, scale_of(q, row, column));
        for (size_t i = 0; i < some; i++) out[i] *= s;
        first += some;
        out += some;
        n -= some;
    }
}

static int spans_of_scaled(const mt_st_decoder *d, size_t first, size_t n, mt_st_span *out)
{
    const scaled *q = (const scaled *)d;
    const size_t from = scale_of(q, first / q->C, 0), to = scale_of(q, (first + n - 1) / q->C, q->C - 1);
    mt_st_span of_scales[MT_ST_SPANS];
    mt_st_spans(q->weight, first, n, out);
    mt_st_spans(q->scale, from, to + 1 - from, of_scales); /* neither is joined: each is one span */
    out[1] = of_scales[0];
    return 2;
}

/* Tiles must be whole: rows that follow each other, and begin where a tile does. */
static bool packing_of(const mt_st_decoder *d, const mt_st_rows *rows, mt_packing *out)
{
    const scaled *q = (const scaled *)d;
    const int64_t tile = (int64_t)q->rows, first = rows->first % (int64_t)q->R;
    *out = (mt_packing){ q->weight->dtype == MT_DTYPE_F8_E4M3 ? MT_FORM_F8_E4M3 : MT_FORM_F8_E5M2,
                         rows->n,
                         (int64_t)q->C,
                         (int64_t)q->columns,
                         tile,
                         false };
    if (!q->weight->data || q->scale->decoder) return false;
    if (tile == 1) return true;
    if (rows->n <= tile && first / tile == (first + rows->n - 1) / tile) return mt_st_rows_follow(rows);
    return mt_st_rows_follow(rows) && first % tile == 0 && first + rows->n <= (int64_t)q->R;
}

static void pack(const mt_st_decoder *d, const mt_st_rows *rows, const mt_packing *p, int64_t from, int64_t n, uint8_t *to)
{
    const scaled *q = (const scaled *)d;
    const mt_packed_places at = mt_packing_places(p);
    for (int64_t r = from; r < from + n; r++)
        memcpy(to + (size_t)r * at.row_bytes, q->weight->data + (size_t)mt_st_row(rows, r) * q->C, q->C);
    for (int64_t r = from; r < from + n; r += p->block_rows)
        for (int64_t b = 0; b < at.blocks; b++) {
            const float s = scale_at(q->scale, scale_of(q, (size_t)mt_st_row(rows, r), (size_t)(b * p->block)));
            memcpy(to + at.scales + (size_t)(r / p->block_rows * at.blocks + b) * sizeof s, &s, sizeof s);
        }
}

/* How much of a dimension of n one of `pieces` scales covers; 0: they do not fit. */
static size_t piece_size(int64_t n, int64_t pieces, int64_t block)
{
    if ((n - 1) / block + 1 == pieces) return (size_t)block;
    if (pieces == 1) return (size_t)n;
    return pieces == n ? 1 : 0;
}

static bool fit(scaled *q, const mt_st_tensor *w, const mt_st_tensor *s, mt__fp8_block block)
{
    int k = w->n_dims;
    q->R = k > 1 ? (size_t)w->shape[k - 2] : 1;
    q->C = (size_t)w->shape[k - 1];
    q->rows = q->R;
    q->columns = q->C;
    q->grid_rows = q->grid_columns = 1;
    if (s->n == 1 && w->n == q->R * q->C) return true;
    if (s->n_dims != k || k < 2) return false;
    for (int i = 0; i < k - 2; i++)
        if (s->shape[i] != w->shape[i]) return false;
    q->rows = piece_size(w->shape[k - 2], s->shape[k - 2], block.rows);
    q->columns = piece_size(w->shape[k - 1], s->shape[k - 1], block.columns);
    q->grid_rows = (size_t)s->shape[k - 2];
    q->grid_columns = (size_t)s->shape[k - 1];
    return q->rows && q->columns;
}

static bool is_scattered(const mt_st_tensor *t) { return t->decoder && t->decoder->scattered; }

mt_rc mt__fp8_join(mt_st_tensor *out, mt_arena *arena, const mt_st_tensor *w, const mt_st_tensor *s, mt__fp8_block block,
                   mt_err *err)
{
    scaled *q = mt_arena_alloc(arena, sizeof *q);
    if (!q) return mt_no_memory(err, "FP8 scales");
    *q = (scaled){ .base = { .read = read_scaled,
                             .spans = spans_of_scaled,
                             .scattered = is_scattered(w) || is_scattered(s),
                             .stored_as = mt_dtype_st_name(w->dtype),
                             .packing = packing_of,
                             .pack = pack,
                             .parts = &q->weight,
                             .n_parts = w->data && s->data ? 2 : 0 },
                   .weight = w,
                   .scale = s };
    if (!mt_st_is_float(s) && !(s->dtype == MT_DTYPE_U8 && s->data))
        return mt_fail(err, MT_EUNSUPPORTED, "%s: the scales \"%.200s\" are %s; floats and U8 are read", s->file, s->name,
                       mt_dtype_st_name(s->dtype));
    if (w->n_dims < 1 || w->n == 0 || !fit(q, w, s, block))
        return mt_fail(err, MT_EFORMAT,
                       "%s: the scales \"%.200s\" are %s, which does not fit \"%.200s\" of %s in blocks of %lld x %lld "
                       "(config.json: weight_block_size);\n"
                       "  config.json and the weights look like different revisions; download both again",
                       s->file, s->name, mt_st_shape_text(s->n_dims, s->shape).s, w->name,
                       mt_st_shape_text(w->n_dims, w->shape).s, (long long)block.rows, (long long)block.columns);
    *out = *w;
    out->dtype = MT_DTYPE_F32;
    out->data = NULL;
    out->decoder = &q->base;
    return MT_OK;
}
