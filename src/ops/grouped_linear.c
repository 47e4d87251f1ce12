/* grouped_linear.c - a product per expert over its packed rows, by OpenBLAS, in tiles of a fixed size.
 *
 * As in linear.c, threads take tiles and OpenBLAS runs single-threaded in each.  Tiles begin anew at each expert, so that a tile
 * depends on its expert's rows alone, and not on which experts share a call. */
#include "ops/ops_cpu.h"

#include "base/mem.h"
#include "device/device_cpu.h"

#include <cblas.h>
#include <stdatomic.h>
#include <string.h>

enum { TILE_ROWS = 256, TILE_COLS = 128 };

size_t mt_grouped_linear_scratch(const mt_grouped_linear *a)
{
    (void)a;
    return 0;
}

typedef struct product {
    const mt_grouped_linear *a;
    int64_t cols; /* of the result */
    atomic_bool no_memory;
} product;

/* A tile of a result: rows [i0, i0 + rows) and columns [j0, j0 + cols), rows counted from the first packed row of the expert, or,
 * for a weight gradient, rows of the matrix. */
typedef struct tile {
    int64_t e;        /* expert, from e0 */
    int64_t begin, n; /* the expert's packed rows, from those of e0 */
    int64_t i0, rows, j0, cols;
} tile;

static int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }
static int64_t clip(int64_t from, int64_t size, int64_t n) { return from + size < n ? size : n - from; }

static int64_t begin_of(const mt_grouped_linear *a, int64_t e) { return a->offsets[a->e0 + e] - a->offsets[a->e0]; }

/* Rows of the result that expert e has: its packed rows, or (weights) the rows of its matrix. */
static int64_t height(const mt_grouped_linear *a, bool weights, int64_t e)
{
    return weights ? a->N : begin_of(a, e + 1) - begin_of(a, e);
}

static int64_t count_tiles(const product *p, bool weights)
{
    int64_t n = 0;
    for (int64_t e = 0; e < p->a->c; e++) n += tiles(height(p->a, weights, e), TILE_ROWS);
    return n * tiles(p->cols, TILE_COLS);
}

static tile find_tile(const product *p, bool weights, int64_t index)
{
    int64_t per_row = tiles(p->cols, TILE_COLS), e = 0, row = index / per_row;
    for (; row >= tiles(height(p->a, weights, e), TILE_ROWS); e++) row -= tiles(height(p->a, weights, e), TILE_ROWS);
    tile t = { .e = e, .begin = begin_of(p->a, e), .i0 = row * TILE_ROWS, .j0 = index % per_row * TILE_COLS };
    t.n = begin_of(p->a, e + 1) - t.begin;
    t.rows = clip(t.i0, TILE_ROWS, height(p->a, weights, e));
    t.cols = clip(t.j0, TILE_COLS, p->cols);
    return t;
}

/* Packed rows [from, from + n) of a matrix of rows `width` long, columns [j0, j0 + cols), as fp32; gathered if it has a row per
 * token. */
static void fetch_rows(float *dst, const mt_grouped_linear *a, const void *src, bool gather, int64_t width, int64_t from,
                       int64_t n, int64_t j0, int64_t cols)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t row = gather ? a->rows[a->offsets[a->e0] + from + i] : from + i;
        mt_to_f32(dst + i * cols, mt_at(src, a->t, row * width + j0), a->t, (size_t)cols);
    }
}

/* Rows [i0, i0 + rows), columns [j0, j0 + cols) of expert e's matrix as fp32. */
static void fetch_weights(float *dst, const mt_grouped_linear *a, int64_t e, int64_t i0, int64_t rows, int64_t j0, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        mt_to_f32(dst + i * cols, mt_at(a->w, a->t, (e * a->N + i0 + i) * a->K + j0), a->t, (size_t)cols);
}

static float *room(product *p, size_t n)
{
    float *s = mt_cpu_thread_scratch(n * sizeof *s);
    if (!s) atomic_store(&p->no_memory, true);
    return s;
}

static void forward_tile(void *arg, int64_t index)
{
    product *p = arg;
    const mt_grouped_linear *a = p->a;
    tile t = find_tile(p, false, index);
    float *y = room(p, (size_t)(TILE_ROWS * TILE_COLS + (t.rows + t.cols) * a->K));
    if (!y) return;
    float *x = y + TILE_ROWS * TILE_COLS, *w = x + t.rows * a->K;
    fetch_rows(x, a, a->x, a->gather_x, a->K, t.begin + t.i0, t.rows, 0, a->K);
    fetch_weights(w, a, t.e, t.j0, t.cols, 0, a->K);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)t.rows, (int)t.cols, (int)a->K, 1.0f, x, (int)a->K, w, (int)a->K,
                0.0f, y, TILE_COLS);
    for (int64_t i = 0; i < t.rows; i++)
        for (int64_t j = 0; j < t.cols; j++) {
            float b = a->b ? mt_get(a->b, a->t, t.e * a->N + t.j0 + j) : 0.0f;
            mt_put(a->y, a->t, (t.begin + t.i0 + i) * a->N + t.j0 + j, y[i * TILE_COLS + j] + b);
        }
}

static void dx_tile(void *arg, int64_t index)
{
    product *p = arg;
    const mt_grouped_linear *a = p->a;
    tile t = find_tile(p, false, index);
    float *dx = room(p, (size_t)(TILE_ROWS * TILE_COLS + (t.rows + t.cols) * a->N));
    if (!dx) return;
    float *dy = dx + TILE_ROWS * TILE_COLS, *w = dy + t.rows * a->N;
    fetch_rows(dy, a, a->dy, a->gather_dy, a->N, t.begin + t.i0, t.rows, 0, a->N);
    fetch_weights(w, a, t.e, 0, a->N, t.j0, t.cols);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)t.rows, (int)t.cols, (int)a->N, 1.0f, dy, (int)a->N, w,
                (int)t.cols, 0.0f, dx, TILE_COLS);
    for (int64_t i = 0; i < t.rows; i++)
        for (int64_t j = 0; j < t.cols; j++) mt_put(a->dx, a->t, (t.begin + t.i0 + i) * a->K + t.j0 + j, dx[i * TILE_COLS + j]);
}

static void dw_tile(void *arg, int64_t index)
{
    product *p = arg;
    const mt_grouped_linear *a = p->a;
    tile t = find_tile(p, true, index);
    float *dw = a->dw + (t.e * a->N + t.i0) * a->K + t.j0;
    for (int64_t i = 0; a->dw_set && i < t.rows; i++) memset(dw + i * a->K, 0, (size_t)t.cols * sizeof *dw);
    if (t.n == 0) return;
    float *dy = room(p, (size_t)((t.rows + t.cols) * t.n));
    if (!dy) return;
    float *x = dy + t.rows * t.n;
    fetch_rows(dy, a, a->dy, a->gather_dy, a->N, t.begin, t.n, t.i0, t.rows);
    fetch_rows(x, a, a->x, a->gather_x, a->K, t.begin, t.n, t.j0, t.cols);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)t.rows, (int)t.cols, (int)t.n, 1.0f, dy, (int)t.rows, x,
                (int)t.cols, 1.0f, dw, (int)a->K);
}

static void db_of_expert(void *arg, int64_t e)
{
    const mt_grouped_linear *a = ((const product *)arg)->a;
    int64_t from = begin_of(a, e), to = begin_of(a, e + 1);
    for (int64_t j = 0; j < a->N; j++) {
        float sum = 0;
        for (int64_t i = from; i < to; i++) {
            int64_t at = a->offsets[a->e0] + i, row = a->gather_dy ? a->rows[at] : i;
            sum += mt_get(a->dy, a->t, row * a->N + j) * (a->weights ? a->weights[a->order[at]] : 1.0f);
        }
        a->db[e * a->N + j] = (a->dw_set ? 0.0f : a->db[e * a->N + j]) + sum;
    }
}

/* The gradient of a routing weight through the bias of its row's expert. */
static void dweights_of_expert(void *arg, int64_t e)
{
    const mt_grouped_linear *a = ((const product *)arg)->a;
    for (int64_t i = begin_of(a, e); i < begin_of(a, e + 1); i++) {
        int64_t at = a->offsets[a->e0] + i, row = a->gather_dy ? a->rows[at] : i;
        float sum = 0;
        for (int64_t j = 0; j < a->N; j++) sum += mt_get(a->dy, a->t, row * a->N + j) * mt_get(a->b, a->t, e * a->N + j);
        a->dweights[a->order[at]] += sum;
    }
}

static mt_rc grouped_linear_run(mt_pool *pool, const mt_grouped_linear *a, bool weights, int64_t cols, mt_pool_fn fn, mt_err *err)
{
    product p = { .a = a, .cols = cols };
    mt_pool_for(pool, count_tiles(&p, weights), fn, &p);
    return p.no_memory ? mt_no_memory(err, "widening the operands of a product of experts") : MT_OK;
}

mt_rc mt__grouped_linear_fwd_run(mt_pool *pool, const mt_grouped_linear *a, mt_err *err)
{
    return grouped_linear_run(pool, a, false, a->N, forward_tile, err);
}

mt_rc mt__grouped_linear_bwd_run(mt_pool *pool, const mt_grouped_linear *a, mt_err *err)
{
    product p = { .a = a };
    if (a->dw) MT_TRY(grouped_linear_run(pool, a, true, a->K, dw_tile, err));
    if (a->db) mt_pool_for(pool, a->c, db_of_expert, &p);
    if (a->dweights) mt_pool_for(pool, a->c, dweights_of_expert, &p);
    return a->dx ? grouped_linear_run(pool, a, false, a->K, dx_tile, err) : MT_OK;
}
