/* linear.c - products, by OpenBLAS, in tiles of a fixed size.
 *
 * OpenBLAS runs single-threaded inside our pool: threads take tiles.  The tile grid depends on the shapes
 * alone, so a result does not depend on the number of threads.  bf16 operands are widened to fp32 tile by
 * tile into the thread's scratch, and results are rounded once: what a tensor core does. */
#include "ops/ops_cpu.h"

#include "base/mem.h"
#include "device/device_cpu.h"

#include <cblas.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { TILE_ROWS = 512, TILE_COLS = 128 }; /* tall: OpenBLAS packs the weights anew for every tile of rows */

size_t mt_linear_scratch(const mt_linear *a) { return a->db ? mt_sum_scratch(a->M, a->N) : 0; }

typedef struct product {
    const mt_linear *a;
    int64_t ldx, ldy, ldadd;
    float alpha;
    atomic_bool no_memory;
} product;

static int64_t tiles(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }
static int64_t clip(int64_t from, int64_t tile, int64_t n) { return from + tile < n ? tile : n - from; }

/* A rows x cols block of src as fp32: in place if it already is, else widened into *scratch, which moves on. */
static const float *as_f32(const void *src, mt_dtype t, int64_t ld, int64_t rows, int64_t cols, int64_t *ld_out, float **scratch)
{
    *ld_out = ld;
    if (t == MT_DTYPE_F32) return src;
    float *dst = *scratch;
    for (int64_t i = 0; i < rows; i++) mt_to_f32(dst + i * cols, mt_at(src, t, i * ld), t, (size_t)cols);
    *ld_out = cols;
    *scratch += rows * cols;
    return dst;
}

/* Scratch for one result tile and, when operands must be widened, two operand blocks of depth `depth`. */
static float *tile_scratch(product *p, int64_t depth)
{
    size_t n = TILE_ROWS * TILE_COLS;
    if (p->a->t != MT_DTYPE_F32) n += (size_t)(TILE_ROWS + TILE_COLS) * (size_t)depth;
    float *s = mt_cpu_thread_scratch(n * sizeof(float));
    if (!s) atomic_store(&p->no_memory, true);
    return s;
}

static void store_tile(const product *p, const float *c, int64_t i0, int64_t rows, int64_t j0, int64_t cols)
{
    const mt_linear *a = p->a;
    mt_dtype ty = a->y_f32 ? MT_DTYPE_F32 : a->t;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float y = c[i * TILE_COLS + j];
            if (a->b) y += mt_get(a->b, a->t, j0 + j);
            y *= p->alpha;
            if (a->softcap != 0) y = a->softcap * tanhf(y / a->softcap);
            if (a->add) y += mt_get(a->add, a->t, (i0 + i) * p->ldadd + j0 + j);
            mt_put(a->y, ty, (i0 + i) * p->ldy + j0 + j, y);
        }
}

/* y tile = x rows times w rows. */
static void forward_tile(void *arg, int64_t tile)
{
    product *p = arg;
    const mt_linear *a = p->a;
    int64_t n_col_tiles = tiles(a->N, TILE_COLS);
    int64_t i0 = tile / n_col_tiles * TILE_ROWS, j0 = tile % n_col_tiles * TILE_COLS;
    int64_t rows = clip(i0, TILE_ROWS, a->M), cols = clip(j0, TILE_COLS, a->N), lx, lw;
    float *c = tile_scratch(p, a->K);
    if (!c) return;
    float *next = c + TILE_ROWS * TILE_COLS;
    const float *x = as_f32(mt_at(a->x, a->t, i0 * p->ldx), a->t, p->ldx, rows, a->K, &lx, &next);
    const float *w = as_f32(mt_at(a->w, a->t, j0 * a->K), a->t, a->K, cols, a->K, &lw, &next);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)cols, (int)a->K, 1.0f, x, (int)lx, w, (int)lw, 0.0f, c,
                TILE_COLS);
    store_tile(p, c, i0, rows, j0, cols);
}

/* dx tile = dy rows times w columns. */
static void dx_tile(void *arg, int64_t tile)
{
    product *p = arg;
    const mt_linear *a = p->a;
    int64_t n_col_tiles = tiles(a->K, TILE_COLS);
    int64_t i0 = tile / n_col_tiles * TILE_ROWS, j0 = tile % n_col_tiles * TILE_COLS;
    int64_t rows = clip(i0, TILE_ROWS, a->M), cols = clip(j0, TILE_COLS, a->K), ly, lw;
    float *c = tile_scratch(p, a->N);
    if (!c) return;
    float *next = c + TILE_ROWS * TILE_COLS;
    const float *dy = as_f32(mt_at(a->dy, a->t, i0 * p->ldy), a->t, p->ldy, rows, a->N, &ly, &next);
    const float *w = as_f32(mt_at(a->w, a->t, j0), a->t, a->K, a->N, cols, &lw, &next);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)cols, (int)a->N, p->alpha, dy, (int)ly, w, (int)lw,
                0.0f, c, TILE_COLS);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t at = (i0 + i) * p->ldx + j0 + j;
            float dx = c[i * TILE_COLS + j] + (a->dx_add ? mt_get(a->dx, a->t, at) : 0.0f);
            mt_put(a->dx, a->t, at, dx);
        }
}

/* dw tile (+)= dy columns (as rows) times x columns. */
static void dw_tile(void *arg, int64_t tile)
{
    product *p = arg;
    const mt_linear *a = p->a;
    int64_t n_col_tiles = tiles(a->K, TILE_COLS);
    int64_t i0 = tile / n_col_tiles * TILE_ROWS, j0 = tile % n_col_tiles * TILE_COLS;
    int64_t rows = clip(i0, TILE_ROWS, a->N), cols = clip(j0, TILE_COLS, a->K), ly, lx;
    float *c = tile_scratch(p, a->M);
    if (!c) return;
    float *next = c + TILE_ROWS * TILE_COLS;
    const float *dy = as_f32(mt_at(a->dy, a->t, i0), a->t, p->ldy, a->M, rows, &ly, &next);
    const float *x = as_f32(mt_at(a->x, a->t, j0), a->t, p->ldx, a->M, cols, &lx, &next);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)rows, (int)cols, (int)a->M, p->alpha, dy, (int)ly, x, (int)lx,
                a->dw_set ? 0.0f : 1.0f, a->dw + i0 * a->K + j0, (int)a->K);
}

static void db_block(void *arg, int64_t block)
{
    const product *p = arg;
    const mt_linear *a = p->a;
    float *db = (float *)a->scratch + block * a->N;
    memset(db, 0, (size_t)a->N * sizeof *db);
    int64_t to = (block + 1) * MT_SUM_ROWS < a->M ? (block + 1) * MT_SUM_ROWS : a->M;
    for (int64_t i = block * MT_SUM_ROWS; i < to; i++)
        for (int64_t j = 0; j < a->N; j++) db[j] += mt_get(a->dy, a->t, i * p->ldy + j);
}

static product product_of(const mt_linear *a)
{
    return (product){ .a = a,
                      .ldx = a->ldx ? a->ldx : a->K,
                      .ldy = a->ldy ? a->ldy : a->N,
                      .ldadd = a->ldadd ? a->ldadd : a->N,
                      .alpha = a->alpha != 0 ? a->alpha : 1.0f };
}

static mt_rc linear_finish(const product *p, mt_err *err)
{
    return p->no_memory ? mt_no_memory(err, "widening the operands of a product") : MT_OK;
}

mt_rc mt__linear_fwd_run(mt_pool *pool, const mt_linear *a, mt_err *err)
{
    product p = product_of(a);
    mt_pool_for(pool, tiles(a->M, TILE_ROWS) * tiles(a->N, TILE_COLS), forward_tile, &p);
    return linear_finish(&p, err);
}

mt_rc mt__linear_bwd_run(mt_pool *pool, const mt_linear *a, mt_err *err)
{
    product p = product_of(a);
    if (a->dw) mt_pool_for(pool, tiles(a->N, TILE_ROWS) * tiles(a->K, TILE_COLS), dw_tile, &p);
    if (a->db) {
        mt_pool_for(pool, mt_sum_blocks(a->M), db_block, &p);
        for (int64_t b = 0; b < mt_sum_blocks(a->M); b++) mt_axpy(a->db, p.alpha, (const float *)a->scratch + b * a->N, a->N);
    }
    if (a->dx) mt_pool_for(pool, tiles(a->M, TILE_ROWS) * tiles(a->K, TILE_COLS), dx_tile, &p);
    return linear_finish(&p, err);
}
