/* grouped_linear.cuh - what the kernels of grouped products share: the three products, and which tile of which expert is whose.
 *
 * The number of rows of each expert is on the device.  So a fixed number of blocks walks the tiles: block b takes tiles b, b +
 * blocks, ...; every block finds its tiles by the same table, made from the offsets when it starts.  Which block computes a tile
 * changes nothing: a tile is one block's work from beginning to end, and depends on its expert alone. */
#ifndef MT_OPS_GROUPED_LINEAR_CUH
#define MT_OPS_GROUPED_LINEAR_CUH

#include "ops/ops_cuda.cuh"

typedef enum grouped_product {
    FORWARD, /* y  [rows, N] = x [rows, K] w' */
    TO_X,    /* dx [rows, K] = dy [rows, N] w */
    TO_W,    /* dw [N, K]  += dy' [N, rows] x [rows, K] */
} grouped_product;

/* Rows of a result that blocks work through column by column, so that what neighbours share stays in the L2 cache. */
enum { PANEL_ROWS = 2048 };

/* A tile of a result: row0 and col0 in the expert's part of it. */
typedef struct grouped_tile {
    int e;           /* expert, from e0 */
    int begin, rows; /* the expert's packed rows, from those of e0 */
    int row0, col0;
    bool same_cols; /* of a pair of blocks: the other one has the next rows of the same columns */
} grouped_tile;

/* How results are cut: into tiles for one block, or for a pair of blocks that take two row tiles of the same columns, or, of an
 * odd last row tile, two column tiles. */
typedef struct grouped_cut {
    int tile_rows, tile_cols;
    int col_tiles;
    int pair; /* 1 or 2 */
    int rank; /* of this block in its pair */
} grouped_cut;

__device__ __forceinline__ int tiles_of_rows(const grouped_cut &cut, int rows)
{
    int row_tiles = (rows + cut.tile_rows - 1) / cut.tile_rows;
    return row_tiles / cut.pair * cut.col_tiles + row_tiles % cut.pair * ((cut.col_tiles + 1) / 2);
}

/* starts[e] = tiles of the experts before e, for 0 <= e <= c.  All threads of the block; the first warp counts. */
__device__ __forceinline__ void count_tiles(int32_t *starts, const mt_grouped_linear &a, const grouped_cut &cut)
{
    const int32_t *offsets = a.offsets + a.e0;
    int c = (int)a.c, per = (c + 31) / 32, from = threadIdx.x * per, to = min(from + per, c);
    if (threadIdx.x < 32) {
        int mine = 0;
        for (int e = from; e < to; e++) mine += tiles_of_rows(cut, offsets[e + 1] - offsets[e]);
        int before = mine;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(0xffffffffu, before, step);
            if (threadIdx.x >= step) before += other;
        }
        if (threadIdx.x == 31) starts[c] = before;
        before -= mine;
        for (int e = from; e < to; e++) {
            starts[e] = before;
            before += tiles_of_rows(cut, offsets[e + 1] - offsets[e]);
        }
    }
    __syncthreads();
}

/* The last expert whose tiles begin at tile i or before, and that has any. */
__device__ __forceinline__ int expert_of(const int32_t *starts, int c, int i)
{
    int low = 0, high = c;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (starts[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Tile i of a matrix of so many row tiles, panel by panel. */
__device__ __forceinline__ void place_tile(grouped_tile *t, const grouped_cut &cut, int row_tiles, int i)
{
    int together = row_tiles / cut.pair, most = PANEL_ROWS / (cut.tile_rows * cut.pair);
    t->same_cols = i < together * cut.col_tiles;
    if (!t->same_cols) {
        t->row0 = (row_tiles - 1) * cut.tile_rows;
        t->col0 = ((i - together * cut.col_tiles) * cut.pair + cut.rank) * cut.tile_cols;
        return;
    }
    int panel = i / (most * cut.col_tiles) * most, height = min(most, together - panel);
    i -= panel * cut.col_tiles;
    t->row0 = ((panel + i % height) * cut.pair + cut.rank) * cut.tile_rows;
    t->col0 = i / height * cut.tile_cols;
}

/* All tiles of the result. */
template <grouped_product KIND>
__device__ __forceinline__ int all_tiles(const mt_grouped_linear &a, const int32_t *starts, const grouped_cut &cut)
{
    return KIND == TO_W ? (int)a.c * tiles_of_rows(cut, (int)a.N) : starts[a.c];
}

template <grouped_product KIND>
__device__ __forceinline__ grouped_tile find_tile(const mt_grouped_linear &a, const int32_t *starts, const grouped_cut &cut,
                                                  int i)
{
    const int32_t *offsets = a.offsets + a.e0;
    int each = tiles_of_rows(cut, (int)a.N);
    grouped_tile t;
    t.e = KIND == TO_W ? i / each : expert_of(starts, (int)a.c, i);
    t.begin = offsets[t.e] - offsets[0];
    t.rows = offsets[t.e + 1] - offsets[t.e];
    int height = KIND == TO_W ? (int)a.N : t.rows;
    place_tile(&t, cut, (height + cut.tile_rows - 1) / cut.tile_rows, i - (KIND == TO_W ? t.e * each : starts[t.e]));
    return t;
}

/* The row of x or dy that packed row i has. */
__device__ __forceinline__ int64_t source_row(const mt_grouped_linear &a, bool gather, int i)
{
    return gather ? a.rows[a.offsets[a.e0] + i] : i;
}

/* By tensor cores, for bf16 with N and K multiples of 8 and matrices on 16-byte addresses (grouped_tiles.cu). */
bool mt__grouped_fits_tiles(mt_stream *s, const mt_grouped_linear *a, grouped_product kind);
mt_rc mt__grouped_by_tiles(mt_stream *s, const mt_grouped_linear *a, grouped_product kind, mt_err *err);

#endif
